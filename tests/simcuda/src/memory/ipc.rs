//! **Legacy IPC**: allocations of one process in the address space of another, and events of both.
//!
//! A handle names a whole `cuMemAlloc` allocation, whatever address inside it was given. The importer
//! maps that part of the exporter's memory file: the bytes are the same. In one context a handle is
//! open once and counted. What the exporter frees is withdrawn from its [`Board`]: then no handle opens
//! it any more, and importers' uses of it are findings.

use super::board::{self, Board};
use super::linear::{GRAIN, HostRange, MemoryFile};
use super::object::Home;
use super::table::{Kind, Mapping};
use super::{ALIGNMENT, Gone, LARGE, Memory};
use crate::types::{Code, code};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    pub(super) words: [u64; 8],
}

const MAGIC: [u64; 3] = [
    u64::from_le_bytes(*b"sim mem "),
    u64::from_le_bytes(*b"sim evt "),
    u64::from_le_bytes(*b"sim ptr "),
];
const MEMORY: usize = 0;
const EVENT: usize = 1;
/// The kind of data that name a block of a pool.
pub(super) const POINTER: usize = 2;

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub pid: u32,
    pub board: i32,
    pub nonce: u64,
    pub place: u32,
    pub serial: u64,
}

impl Name {
    pub(super) fn of(handle: &Handle, kind: usize) -> Result<Self, Code> {
        let [magic, process, nonce, place, serial, ..] = handle.words;
        let name = Self {
            pid: process as u32,
            board: (process >> 32) as i32,
            nonce,
            place: u32::try_from(place).map_err(|_| code::INVALID_HANDLE)?,
            serial,
        };
        if magic == MAGIC[kind] && serial != 0 { Ok(name) } else { Err(code::INVALID_HANDLE) }
    }

    pub(super) fn handle(&self, kind: usize) -> Handle {
        let process = u64::from(self.pid) | u64::from(self.board as u32) << 32;
        let place = u64::from(self.place);
        Handle { words: [MAGIC[kind], process, self.nonce, place, self.serial, 0, 0, 0] }
    }
}

/// Bytes of another process.
#[derive(Debug)]
pub struct Imported {
    name: Name,
    peer: Arc<Board>,
    #[allow(dead_code)] // Keeps the bytes mapped.
    range: HostRange,
    left: Cell<bool>,
}

impl Imported {
    /// The exporter is told, once.
    pub fn leave(&self) {
        if !self.left.replace(true)
            && let Some(place) = self.peer.allocation(self.name.place)
        {
            place.leave(std::process::id());
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.leave();
    }
}

/// An interprocess event, of this process or another.
#[derive(Clone, Debug)]
pub struct SharedEvent {
    board: Arc<Board>,
    place: u32,
    serial: u64,
    ours: bool,
}

impl SharedEvent {
    /// Its place on the board. It was checked when this was made.
    fn place(&self) -> Option<&board::Event> {
        self.board.event(self.place).filter(|it| it.serial.load(SeqCst) == self.serial)
    }

    /// A record begins; answers its number.
    pub fn record(&self) -> u64 {
        self.place().map_or(0, board::Event::record)
    }

    /// A record is done.
    pub fn finish(&self, record: u64) {
        if let Some(place) = self.place() {
            place.finish(record);
        }
    }

    /// The last record, if it was made by another process and is not done.
    pub fn pending(&self) -> Option<u64> {
        let place = self.place().filter(|place| !place.is_ours())?;
        Some(place.last()).filter(|&last| !place.is_done(last) && !place.is_abandoned())
    }

    /// Whether a record is done, or will never be.
    pub fn is_over(&self, record: u64) -> bool {
        self.place().is_none_or(|place| place.is_done(record) || place.is_abandoned())
    }

    /// Whether the last record is another process's.
    pub fn is_foreign(&self) -> bool {
        self.place().is_some_and(|place| !place.is_ours())
    }

    /// The event is destroyed where it was made.
    pub fn destroy(&self) {
        if let (true, Some(place)) = (self.ours, self.place()) {
            place.serial.store(0, SeqCst);
        }
    }

    /// The handle of an event that was made here.
    pub fn handle(&self) -> Result<Handle, Code> {
        let Self { ref board, place, serial, ours } = *self;
        let name = Name { pid: board.pid, board: board.fd(), nonce: board.nonce, place, serial };
        if ours { Ok(name.handle(EVENT)) } else { Err(code::INVALID_HANDLE) }
    }
}

/// What a process has exported and imported.
#[derive(Debug, Default)]
pub struct Ipc {
    own: Option<Arc<Board>>,
    serials: u64,
    exported: HashMap<u64, u32>,
    peers: HashMap<(u32, u64), Arc<Board>>,
    imported: HashMap<Name, u64>,
    opened: HashMap<u64, u32>,
    complained: HashSet<u64>,
    /// Imported blocks of pools: address and pool.
    pub(super) of_pools: HashMap<u64, u64>,
}

impl Drop for Ipc {
    fn drop(&mut self) {
        // A forked child has a copy of this, and nothing to withdraw.
        if let Some(own) = self.own.as_ref().filter(|own| own.pid == std::process::id()) {
            own.withdraw_all();
        }
    }
}

impl Ipc {
    pub(super) fn board(&mut self) -> Result<Arc<Board>, Code> {
        if let Some(own) = &self.own {
            return Ok(own.clone());
        }
        let own = Arc::new(Board::create().map_err(|_| code::OUT_OF_MEMORY)?);
        self.own = Some(own.clone());
        Ok(own)
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// The board of the process that a handle names. Not our own: those handles are not for us.
    pub(super) fn peer(&mut self, name: &Name) -> Result<Arc<Board>, Code> {
        if name.pid == std::process::id() {
            let ours = self.own.as_ref().is_some_and(|own| own.nonce == name.nonce);
            return Err(if ours { code::INVALID_CONTEXT } else { code::INVALID_HANDLE });
        }
        if let Some(known) = self.peers.get(&(name.pid, name.nonce)) {
            let gone = known.is_orphan();
            return if gone { Err(code::INVALID_HANDLE) } else { Ok(known.clone()) };
        }
        let peer = Board::open(name.pid, name.board, name.nonce);
        let peer = Arc::new(peer.map_err(|_| code::INVALID_HANDLE)?);
        self.peers.insert((name.pid, name.nonce), peer.clone());
        Ok(peer)
    }

    /// A place on the board for a new interprocess event.
    pub fn create_event(&mut self) -> Result<SharedEvent, Code> {
        let (board, serial) = (self.board()?, self.serial());
        let place = board.take_event(serial).ok_or(code::OUT_OF_MEMORY)?;
        Ok(SharedEvent { board, place, serial, ours: true })
    }

    /// The event of a handle.
    pub fn open_event(&mut self, handle: &Handle) -> Result<SharedEvent, Code> {
        let name = Name::of(handle, EVENT)?;
        let board = self.peer(&name)?;
        let event = SharedEvent { board, place: name.place, serial: name.serial, ours: false };
        if event.place().is_some() { Ok(event) } else { Err(code::INVALID_HANDLE) }
    }

    /// Shows bytes on our board, once; `number` is theirs alone. `place` is a file of ours and where
    /// in it they begin.
    pub(super) fn show(
        &mut self,
        number: u64,
        place: (i32, u64),
        bytes: u64,
        device: u32,
    ) -> Result<Name, Code> {
        let own = self.board()?;
        let known = self.exported.get(&number).copied();
        let at = known.or_else(|| own.free_allocation()).ok_or(code::OUT_OF_MEMORY)?;
        let entry = own.allocation(at).ok_or(code::OUT_OF_MEMORY)?;
        if known.is_none() {
            let (file, offset) = place;
            let (_, inode, _) = board::identify(file).map_err(|_| code::OUT_OF_MEMORY)?;
            entry.offset.store(offset, SeqCst);
            entry.bytes.store(bytes, SeqCst);
            entry.inode.store(inode, SeqCst);
            entry.device.store(device, SeqCst);
            entry.file.store(file, SeqCst);
            entry.serial.store(self.serial(), SeqCst);
            self.exported.insert(number, at);
        }
        let (pid, nonce, board) = (own.pid, own.nonce, own.fd());
        Ok(Name { pid, board, nonce, place: at, serial: entry.serial.load(SeqCst) })
    }

    /// The object of a name that is imported already.
    pub(super) fn imported(&self, name: &Name) -> Option<u64> {
        self.imported.get(name).copied()
    }

    /// The imported blocks of a pool.
    pub(super) fn blocks_of(&self, pool: u64) -> Vec<u64> {
        self.of_pools.iter().filter(|(_, of)| **of == pool).map(|(start, _)| *start).collect()
    }

    /// The imported pool of a block.
    pub fn pool_of(&self, start: u64) -> Option<u64> {
        self.of_pools.get(&start).copied()
    }

    /// An object, or a block of a pool, is no more.
    pub fn buried(&mut self, object: u64) {
        if let (Some(place), Some(own)) = (self.exported.remove(&object), &self.own)
            && let Some(place) = own.allocation(place)
        {
            place.serial.store(0, SeqCst);
        }
        self.imported.retain(|_, of| *of != object);
        self.complained.remove(&object);
    }

    /// The processes that have an object of ours open.
    pub fn open_in(&self, object: u64) -> Vec<u32> {
        let place = self.exported.get(&object).zip(self.own.as_ref());
        place.and_then(|(&at, own)| own.allocation(at)).map_or(Vec::new(), |it| it.open_in())
    }

    /// Whether anything is imported.
    pub fn imports(&self) -> bool {
        !self.imported.is_empty()
    }
}

impl Memory {
    /// `cuIpcGetMemHandle`: a handle of the whole allocation that holds `address`.
    pub fn export_ipc(&mut self, address: u64) -> Result<Handle, Code> {
        let ours = |m: &&Mapping| m.kind == Kind::Device;
        let mapping = self.table.find(address).filter(ours).cloned().ok_or(code::INVALID_VALUE)?;
        let place = self.linear.place(mapping.base);
        let name = self.ipc.show(mapping.object, place, mapping.bytes, mapping.device)?;
        // Others may write it, which we would not see.
        self.touched(mapping.object);
        Ok(name.handle(MEMORY))
    }

    /// `cuIpcOpenMemHandle` in a context: the address, and the object if it is new here.
    pub fn open_ipc(
        &mut self,
        handle: &Handle,
        context: u64,
        device: u32,
    ) -> Result<(u64, Option<(u64, u64)>), Code> {
        let name = Name::of(handle, MEMORY)?;
        let peer = self.ipc.peer(&name)?;
        let place = peer.allocation(name.place).ok_or(code::INVALID_HANDLE)?;
        if place.serial.load(SeqCst) != name.serial {
            return Err(code::INVALID_HANDLE);
        }
        let owner = place.device.load(SeqCst);
        if owner as usize >= self.budgets.len() {
            return Err(code::INVALID_DEVICE);
        }
        let known = self.ipc.imported.get(&name).copied();
        if let Some(object) = known {
            let open: Vec<_> = self.table.iter().filter(|m| m.object == object).collect();
            if let Some(m) = open.iter().find(|m| m.context == context) {
                let start = m.start;
                *self.ipc.opened.entry(start).or_default() += 1;
                return Ok((start, None));
            }
            // One context a device and process may have it open.
            if open.iter().any(|m| m.readers == 1 << device) {
                return Err(code::INVALID_CONTEXT);
            }
        }
        let bytes = place.bytes.load(SeqCst);
        let object = match known {
            Some(object) => object,
            None => self.import_object(name, peer.clone(), owner)?,
        };
        let start = self.map_import(object, bytes, context, owner, (1 << device, 1 << device))?;
        self.ipc.opened.insert(start, 1);
        Ok((start, known.is_none().then_some((object, bytes))))
    }

    pub(super) fn import_object(
        &mut self,
        name: Name,
        peer: Arc<Board>,
        device: u32,
    ) -> Result<u64, Code> {
        let place = peer.allocation(name.place).ok_or(code::INVALID_HANDLE)?;
        let bytes = place.bytes.load(SeqCst);
        let (offset, inode) = (place.offset.load(SeqCst), place.inode.load(SeqCst));
        let file = board::open_descriptor(name.pid, place.file.load(SeqCst));
        let file: MemoryFile = file.map_err(|_| code::MAP_FAILED)?;
        if board::identify(file.fd).map_or(0, |(_, it, _)| it) != inode {
            return Err(code::INVALID_HANDLE);
        }
        place.join(std::process::id());
        // A mapping of a file begins at one of its pages.
        let before = offset % GRAIN;
        let range = HostRange::of_file_at(file.fd, before + bytes, offset - before)
            .map_err(|_| code::MAP_FAILED);
        let withdrawn = place.serial.load(SeqCst) != name.serial;
        let range = match range {
            Ok(range) if !withdrawn => range,
            wrong => {
                place.leave(std::process::id());
                return Err(wrong.err().unwrap_or(code::INVALID_HANDLE));
            }
        };
        range.keep_private();
        let base = range.start + before;
        let left = Cell::new(false);
        let imported = Home::Imported(Imported { name, peer, range, left });
        let object = self.new_object(device, bytes, imported, base);
        object.counted = false;
        let object = object.id;
        self.ipc.imported.insert(name, object);
        Ok(object)
    }

    pub(super) fn map_import(
        &mut self,
        object: u64,
        bytes: u64,
        context: u64,
        owner: u32,
        (readers, writers): (u64, u64),
    ) -> Result<u64, Code> {
        let rounded = bytes.next_multiple_of(ALIGNMENT);
        let align = if rounded >= LARGE { LARGE } else { ALIGNMENT };
        let Some(start) = self.addresses.take(rounded, align) else {
            self.bury(object);
            return Err(code::OUT_OF_MEMORY);
        };
        let entry = self.objects.get_mut(&object).ok_or(code::INVALID_HANDLE)?;
        entry.mappings += 1;
        let base = entry.base;
        let mapping = Mapping {
            start,
            bytes,
            object,
            base,
            kind: Kind::Imported,
            device: owner,
            context,
            readers,
            writers,
            flags: 0,
            buffer: self.unique(),
            sync_memops: false,
        };
        self.table.insert(mapping);
        Ok(start)
    }

    /// `cuIpcCloseMemHandle`: the mapping, if this closes it for good.
    pub fn close_ipc(&mut self, start: u64) -> Result<Option<Mapping>, Code> {
        let imported = |m: &&Mapping| m.start == start && m.kind == Kind::Imported;
        let mapping =
            self.table.find(start).filter(imported).cloned().ok_or(code::INVALID_VALUE)?;
        let count = self.ipc.opened.get_mut(&start).ok_or(code::INVALID_VALUE)?;
        *count -= 1;
        Ok((*count == 0).then_some(mapping))
    }

    /// Takes an imported mapping away.
    pub fn remove_import(&mut self, start: u64) -> Gone {
        self.ipc.opened.remove(&start);
        self.free(start)
    }

    /// Why an imported object must not be used any more; said once.
    pub fn withdrawn(&mut self, object: u64) -> Option<String> {
        let Home::Imported(Imported { name, ref peer, .. }) = self.objects.get(&object)?.home
        else {
            return None;
        };
        let there = peer.allocation(name.place).map(|it| it.serial.load(SeqCst));
        let why = if peer.is_orphan() {
            format!("its exporter, process {}, has ended", name.pid)
        } else if there != Some(name.serial) {
            format!("its exporter, process {}, has freed it", name.pid)
        } else {
            return None;
        };
        self.ipc.complained.insert(object).then_some(why)
    }
}
