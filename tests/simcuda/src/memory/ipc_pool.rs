//! **Pools between processes**: a pool is shared once, as a file; then its blocks one by one.
//!
//! The file is a token that names the exporter's [`Board`](super::board::Board) and the pool. A block's
//! data name its place on the board. An imported pool gives out nothing; what is imported from it
//! lives until it is freed here, which comes before the exporter frees it.

use super::board;
use super::ipc::{Handle, Name, POINTER};
use super::linear::MemoryFile;
use super::table::{Block, Kind};
use super::vmm::POSIX_FILE_DESCRIPTOR;
use super::{Gone, Memory};
use crate::types::{Code, LOCATION_DEVICE, Location, PoolProperties, code};
use std::io::Write;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::sync::atomic::Ordering::SeqCst;

const MAGIC: u64 = u64::from_le_bytes(*b"sim pool");

/// A pool of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolName {
    pid: u32,
    nonce: u64,
    serial: u64,
}

impl Memory {
    /// `cuMemPoolExportToShareableHandle`: a file that stands for a pool.
    pub fn export_pool(&mut self, pool: u64) -> Result<i32, Code> {
        let found = self.pools.get(pool).ok_or(code::INVALID_VALUE)?;
        let able = found.properties.handle_types & POSIX_FILE_DESCRIPTOR != 0;
        if !able || found.imported.is_some() {
            return Err(code::INVALID_VALUE);
        }
        let device = found.device;
        let serial = self.pool_serial(pool)?;
        let own = self.ipc.board()?;
        let process = u64::from(own.pid) | u64::from(own.fd() as u32) << 32;
        let words = [MAGIC, process, own.nonce, serial, u64::from(device)];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let file = MemoryFile::create(c"simcuda-pool", 0).map_err(|_| code::OUT_OF_MEMORY)?;
        let mut writer = file.duplicate().map_err(|_| code::OUT_OF_MEMORY)?;
        writer.write_all(&bytes).map_err(|_| code::OUT_OF_MEMORY)?;
        Ok(writer.into_raw_fd())
    }

    /// The number by which others know a pool of ours.
    fn pool_serial(&mut self, pool: u64) -> Result<u64, Code> {
        let new = self.ipc.serial();
        let pool = self.pools.get_mut(pool).ok_or(code::INVALID_VALUE)?;
        Ok(*pool.shared.get_or_insert(new))
    }

    /// `cuMemPoolImportFromShareableHandle`: a pool that stands for another process's.
    pub fn import_pool(&mut self, fd: i32) -> Result<u64, Code> {
        let [magic, process, nonce, serial, device] =
            read_token(fd).map_err(|_| code::INVALID_VALUE)?;
        let board =
            Name { pid: process as u32, board: (process >> 32) as i32, nonce, place: 0, serial };
        if magic != MAGIC || self.ipc.peer(&board).is_err() {
            return Err(code::INVALID_VALUE);
        }
        let known = device < self.budgets.len() as u64;
        let device = u32::try_from(device).ok().filter(|_| known).ok_or(code::INVALID_DEVICE)?;
        let properties = PoolProperties {
            location: Location { kind: LOCATION_DEVICE, id: device as i32 },
            ..PoolProperties::of_device(device)
        };
        let pool = self.create_pool(device, properties);
        if let Some(new) = self.pools.get_mut(pool) {
            new.imported = Some(PoolName { pid: board.pid, nonce, serial });
        }
        Ok(pool)
    }

    /// `cuMemPoolExportPointer`: data of the whole block that holds `address`.
    pub fn export_block(&mut self, address: u64) -> Result<Handle, Code> {
        let block = self.table.block(address).copied().ok_or(code::INVALID_VALUE)?;
        let pool = self.pools.get(block.pool).ok_or(code::INVALID_VALUE)?;
        if pool.properties.handle_types & POSIX_FILE_DESCRIPTOR == 0 {
            return Err(code::INVALID_VALUE);
        }
        let device = pool.device;
        let (chunk, _, object) = pool.chunk(block.start).ok_or(code::INVALID_VALUE)?;
        let file = self.objects.get(&object).and_then(|o| o.file()).ok_or(code::INVALID_VALUE)?;
        let serial = self.pool_serial(block.pool)?;
        let place = (file, block.start - chunk);
        let name = self.ipc.show(block.buffer, place, block.bytes, device)?;
        let mut data = name.handle(POINTER);
        data.words[5] = serial;
        Ok(data)
    }

    /// `cuMemPoolImportPointer`: the address, the object and its size.
    pub fn import_block(&mut self, pool: u64, data: &Handle) -> Result<(u64, u64, u64), Code> {
        let wrong = code::INVALID_VALUE;
        let name = Name::of(data, POINTER).map_err(|_| wrong)?;
        let theirs = PoolName { pid: name.pid, nonce: name.nonce, serial: data.words[5] };
        let found = self.pools.get(pool).filter(|p| p.imported == Some(theirs)).ok_or(wrong)?;
        let (device, rights) = (found.device, (found.readers, found.writers));
        let peer = self.ipc.peer(&name).map_err(|_| wrong)?;
        let place = peer.allocation(name.place).ok_or(wrong)?;
        if place.serial.load(SeqCst) != name.serial {
            return Err(wrong);
        }
        let bytes = place.bytes.load(SeqCst);
        let object = match self.ipc.imported(&name) {
            Some(object) => object,
            None => self.import_object(name, peer.clone(), device).map_err(|_| wrong)?,
        };
        let start = self.map_import(object, bytes, 0, device, rights)?;
        self.ipc.of_pools.insert(start, pool);
        if let Some(pool) = self.pools.get_mut(pool) {
            pool.blocks += 1;
        }
        Ok((start, object, bytes))
    }

    /// A block of an imported pool is freed here: its exporter may free it now.
    pub fn leave_block(&mut self, start: u64) {
        let Some(pool) = self.ipc.of_pools.remove(&start) else { return };
        let object = self.table.find(start).map(|m| m.object);
        if let Some(object) = object.and_then(|object| self.objects.get(&object)) {
            object.leave();
        }
        if let Some(found) = self.pools.get_mut(pool) {
            found.blocks -= 1;
        }
        self.bury_pool(pool);
    }

    /// A block of ours is freed: nobody can import it any more. The processes that still have it.
    pub fn block_gone(&mut self, block: &Block) -> Vec<u32> {
        let open_in = self.ipc.open_in(block.buffer);
        self.ipc.buried(block.buffer);
        open_in
    }

    /// Whether an address is the first of a block of an imported pool.
    pub fn is_imported_block(&self, start: u64) -> bool {
        self.ipc.of_pools.contains_key(&start)
            && self.table.find(start).is_some_and(|m| m.kind == Kind::Imported)
    }

    /// Ends an imported block at once.
    pub fn remove_block_import(&mut self, start: u64) -> Gone {
        self.leave_block(start);
        self.free(start)
    }
}

fn read_token(fd: i32) -> std::io::Result<[u64; 5]> {
    use std::os::unix::fs::FileExt;
    board::identify(fd)?;
    let copy = MemoryFile::duplicate_of(fd)?;
    let mut bytes = [0; 40];
    copy.read_exact_at(&mut bytes, 0)?;
    let mut words = [0; 5];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().map_err(std::io::Error::other)?);
    }
    Ok(words)
}

impl MemoryFile {
    /// Another descriptor of it, closed by whoever gets it.
    pub fn duplicate(&self) -> std::io::Result<std::fs::File> {
        Self::duplicate_of(self.fd)
    }

    /// Another descriptor of an open file.
    pub fn duplicate_of(fd: i32) -> std::io::Result<std::fs::File> {
        // SAFETY: the call makes a new descriptor or fails; it touches no memory.
        match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) } {
            // SAFETY: the descriptor was just made and nobody else has it.
            new if new >= 0 => Ok(unsafe { std::fs::File::from_raw_fd(new) }),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}
