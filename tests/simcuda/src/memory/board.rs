//! The **board**: a shared page of a process on which others read what it has exported.
//!
//! It is a memory file of the exporter's, found by others under `/proc/PID/fd`. A handle names a
//! process, a place on its board and a serial number that is never used twice: it is good exactly while
//! that place still has that number. The nonce tells a process from a later one of the same number.
//!
//! ```text
//! page 0: magic, nonce, pid | ALLOCATIONS places of 128 bytes | EVENTS places of 64 bytes
//! ```

use super::linear::{HostRange, MemoryFile};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};

const MAGIC: u64 = u64::from_le_bytes(*b"simcipc1");
const HEADER: u64 = 4096;
/// Allocations that a process can have exported at one time.
pub const ALLOCATIONS: u32 = 8192;
/// Interprocess events that a process can have at one time.
pub const EVENTS: u32 = 8192;
const BYTES: u64 = HEADER + (ALLOCATIONS as u64) * 128 + (EVENTS as u64) * 64;

#[repr(C)]
struct Header {
    magic: AtomicU64,
    nonce: AtomicU64,
    pid: AtomicU32,
}

/// An exported allocation.
#[repr(C)]
pub struct Allocation {
    /// 0: nothing is exported here.
    pub serial: AtomicU64,
    /// Where it begins in the exporter's memory file.
    pub offset: AtomicU64,
    /// Its size.
    pub bytes: AtomicU64,
    /// The inode of that file.
    pub inode: AtomicU64,
    /// The device that it lies on.
    pub device: AtomicU32,
    /// The exporter's descriptor of its memory file.
    pub file: AtomicI32,
    importers: [AtomicU32; 22],
}

/// An interprocess event: `done <= recorded`, and the last record is done exactly if they are equal.
#[repr(C)]
pub struct Event {
    /// 0: there is no event here.
    pub serial: AtomicU64,
    recorded: AtomicU64,
    done: AtomicU64,
    recorder: AtomicU32,
    rest: [u32; 9],
}

const _: () = assert!(size_of::<Allocation>() == 128 && size_of::<Event>() == 64);

impl Allocation {
    /// Notes that a process has it open; nothing if 22 others have.
    pub fn join(&self, pid: u32) {
        let _ = self.importers.iter().find(|i| i.compare_exchange(0, pid, SeqCst, SeqCst).is_ok());
    }

    /// Takes the note back.
    pub fn leave(&self, pid: u32) {
        let _ = self.importers.iter().find(|i| i.compare_exchange(pid, 0, SeqCst, SeqCst).is_ok());
    }

    /// The living processes that have it open.
    pub fn open_in(&self) -> Vec<u32> {
        let pids = self.importers.iter().map(|pid| pid.load(SeqCst));
        pids.filter(|&pid| pid != 0 && is_alive(pid)).collect()
    }
}

impl Event {
    /// A record begins; answers its number.
    pub fn record(&self) -> u64 {
        self.recorder.store(std::process::id(), SeqCst);
        self.recorded.fetch_add(1, SeqCst) + 1
    }

    /// That record, and so all before it, is done.
    pub fn finish(&self, record: u64) {
        self.done.fetch_max(record, SeqCst);
    }

    /// The number of the last record.
    pub fn last(&self) -> u64 {
        self.recorded.load(SeqCst)
    }

    /// Whether the last record was made by this process, or there is none.
    pub fn is_ours(&self) -> bool {
        self.last() == 0 || self.recorder.load(SeqCst) == std::process::id()
    }

    /// Whether a record is done.
    pub fn is_done(&self, record: u64) -> bool {
        self.done.load(SeqCst) >= record
    }

    /// Whether nobody will ever finish the last record: who made it is gone, or the event is.
    pub fn is_abandoned(&self) -> bool {
        self.serial.load(SeqCst) == 0 || !is_alive(self.recorder.load(SeqCst))
    }

    fn clear(&self) {
        self.recorded.store(0, SeqCst);
        self.done.store(0, SeqCst);
        self.recorder.store(0, SeqCst);
    }
}

/// A board of this process or of another.
#[derive(Debug)]
pub struct Board {
    file: MemoryFile,
    range: HostRange,
    /// What tells its process from all others.
    pub nonce: u64,
    /// Its process.
    pub pid: u32,
    /// Readable when the process has ended; none for our own.
    process: Option<OwnedFd>,
}

impl Board {
    /// This process's own, empty.
    pub fn create() -> io::Result<Self> {
        let file = MemoryFile::create(c"simcuda-board", BYTES)?;
        let range = HostRange::of_file(file.fd, BYTES)?;
        let board = Self { file, range, nonce: nonce()?, pid: std::process::id(), process: None };
        let header = board.header();
        header.nonce.store(board.nonce, SeqCst);
        header.pid.store(board.pid, SeqCst);
        header.magic.store(MAGIC, SeqCst);
        Ok(board)
    }

    /// Another process's, by its descriptor there.
    pub fn open(pid: u32, fd: i32, nonce: u64) -> io::Result<Self> {
        let process = Some(open_process(pid)?);
        let file = open_descriptor(pid, fd)?;
        let (_, _, length) = identify(file.fd)?;
        if length != BYTES {
            return Err(io::Error::other("not a board"));
        }
        let range = HostRange::of_file(file.fd, BYTES)?;
        let board = Self { file, range, nonce, pid, process };
        let header = board.header();
        let theirs = (header.magic.load(SeqCst), header.nonce.load(SeqCst));
        if theirs == (MAGIC, nonce) && !board.is_orphan() {
            Ok(board)
        } else {
            Err(io::Error::other("the board of another process"))
        }
    }

    /// Its descriptor in this process.
    pub fn fd(&self) -> i32 {
        self.file.fd
    }

    /// Whether its process has ended.
    pub fn is_orphan(&self) -> bool {
        self.process.as_ref().is_some_and(has_ended)
    }

    fn header(&self) -> &Header {
        // SAFETY: the range is a mapping of `BYTES` bytes that lives as long as `self`; the header is
        // its beginning, made of atomics, for which every content is valid.
        unsafe { &*(self.range.start as *const Header) }
    }

    /// A place for an allocation.
    pub fn allocation(&self, place: u32) -> Option<&Allocation> {
        let at = self.range.start + HEADER + u64::from(place) * 128;
        // SAFETY: as above; the place is one of those in the range, and 128 bytes aligned.
        (place < ALLOCATIONS).then(|| unsafe { &*(at as *const Allocation) })
    }

    /// A place for an event.
    pub fn event(&self, place: u32) -> Option<&Event> {
        let at = self.range.start + HEADER + u64::from(ALLOCATIONS) * 128 + u64::from(place) * 64;
        // SAFETY: as above; 64 bytes aligned.
        (place < EVENTS).then(|| unsafe { &*(at as *const Event) })
    }

    /// A free place for an event, taken with this serial number.
    pub fn take_event(&self, serial: u64) -> Option<u32> {
        (0..EVENTS).find(|&place| {
            let event = self.event(place);
            event.is_some_and(|event| {
                let taken = event.serial.compare_exchange(0, serial, SeqCst, SeqCst).is_ok();
                if taken {
                    event.clear();
                }
                taken
            })
        })
    }

    /// A free place for an allocation; it is taken when its serial number is set.
    pub fn free_allocation(&self) -> Option<u32> {
        (0..ALLOCATIONS).find(|&place| {
            self.allocation(place).is_some_and(|it| {
                it.serial.load(SeqCst) == 0 && it.importers.iter().all(|i| i.load(SeqCst) == 0)
            })
        })
    }

    /// Withdraws everything: what was exported is gone.
    pub fn withdraw_all(&self) {
        (0..ALLOCATIONS)
            .filter_map(|it| self.allocation(it))
            .for_each(|it| it.serial.store(0, SeqCst));
        (0..EVENTS).filter_map(|it| self.event(it)).for_each(|it| it.serial.store(0, SeqCst));
    }
}

/// Opens what another process has open as `fd`.
pub fn open_descriptor(pid: u32, fd: i32) -> io::Result<MemoryFile> {
    use std::os::fd::IntoRawFd;
    let path = format!("/proc/{pid}/fd/{fd}");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    Ok(MemoryFile { fd: file.into_raw_fd() })
}

/// Device, inode and length of an open file.
pub fn identify(fd: i32) -> io::Result<(u64, u64, u64)> {
    // SAFETY: an all-zero `stat` is valid; the call fills it or fails.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is ours; a wrong descriptor fails.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok((stat.st_dev, stat.st_ino, stat.st_size as u64)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn nonce() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the call fills the eight bytes of `bytes` or fails.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0) } {
        8 => Ok(u64::from_le_bytes(bytes)),
        _ => Err(io::Error::last_os_error()),
    }
}

fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call makes a descriptor or fails; it touches no memory.
    match unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) } {
        // SAFETY: the descriptor was just made and nobody else has it.
        fd if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one `pollfd` of ours; no waiting.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// Whether a process is there and has not ended, be it waited for or not.
pub fn is_alive(pid: u32) -> bool {
    pid == std::process::id() || open_process(pid).is_ok_and(|process| !has_ended(&process))
}
