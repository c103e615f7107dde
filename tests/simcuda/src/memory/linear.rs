//! **Linear memory**: one sparse memory file, seen whole through one host mapping.
//!
//! Every page of device memory is an extent of this file, so a device of any size costs one host
//! mapping and nothing until it is touched. What is given back is punched out of the file: its host
//! memory is free again and it reads as zero.

use super::extents::Extents;
use std::io;

/// File offsets are handed out at this grain.
pub const GRAIN: u64 = 4096;

/// A range of host addresses that this process owns.
#[derive(Debug)]
pub struct HostRange {
    /// First address.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
}

impl HostRange {
    /// Maps `bytes` of nothing: inaccessible addresses, no memory behind them. Halves the wish
    /// until the system agrees.
    pub fn reserve(mut bytes: u64, least: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        loop {
            match map(bytes, libc::PROT_NONE, flags, -1) {
                Ok(start) => return Ok(Self { start, bytes }),
                Err(error) if bytes / 2 < least => return Err(error),
                Err(_) => bytes /= 2,
            }
        }
    }

    /// Maps a whole file for reading and writing.
    pub fn of_file(fd: i32, bytes: u64) -> io::Result<Self> {
        Self::of_file_at(fd, bytes, 0)
    }

    /// Maps a part of a file for reading and writing.
    pub fn of_file_at(fd: i32, bytes: u64, offset: u64) -> io::Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let start = map_at(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)?;
        Ok(Self { start, bytes })
    }

    /// Maps zeroed memory of the host.
    pub fn anonymous(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        Ok(Self { start, bytes })
    }

    /// The same, without a promise that there is as much memory.
    pub fn sparse(bytes: u64) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let start = map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1)?;
        Ok(Self { start, bytes })
    }

    /// Keeps the range out of children and core files, and in small pages: a device is touched here
    /// and there only.
    pub fn keep_private(&self) {
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP, libc::MADV_NOHUGEPAGE] {
            // SAFETY: the range is a mapping of this value's own; no advice changes its contents.
            unsafe { libc::madvise(self.start as *mut _, self.bytes as usize, advice) };
        }
    }

    /// Whether `address` lies inside.
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

impl Drop for HostRange {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        // SAFETY: the range was mapped by `map` and is owned by this value alone.
        unsafe { libc::munmap(self.start as *mut _, self.bytes as usize) };
    }
}

fn map(bytes: u64, protection: i32, flags: i32, fd: i32) -> io::Result<u64> {
    map_at(bytes, protection, flags, fd, 0)
}

fn map_at(bytes: u64, protection: i32, flags: i32, fd: i32, offset: u64) -> io::Result<u64> {
    let length = usize::try_from(bytes).map_err(io::Error::other)?;
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: no address is asked for, so no existing mapping changes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, fd, offset) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at as u64) }
}

/// A memory file.
#[derive(Debug)]
pub struct MemoryFile {
    /// Its descriptor.
    pub fd: i32,
}

impl MemoryFile {
    /// A new sparse file of `bytes`, under a name that `/proc` shows.
    pub fn create(name: &std::ffi::CStr, bytes: u64) -> io::Result<Self> {
        // SAFETY: `name` is a C string; the call makes a new descriptor and touches nothing else.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let file = Self { fd };
        // SAFETY: `fd` is the descriptor made above.
        match unsafe { libc::ftruncate(fd, bytes as libc::off_t) } {
            0 => Ok(file),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn punch(&self, offset: u64, bytes: u64) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the descriptor is ours; punching changes file contents only, which nobody holds a
        // reference to.
        unsafe { libc::fallocate(self.fd, mode, offset as libc::off_t, bytes as libc::off_t) };
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if self.fd < 0 {
            return;
        }
        // SAFETY: the descriptor is owned by this value.
        unsafe { libc::close(self.fd) };
    }
}

/// The file, its host mapping, and which extents of it are free.
#[derive(Debug)]
pub struct Linear {
    file: MemoryFile,
    alias: HostRange,
    free: Extents,
}

impl Linear {
    /// Room for `wish` bytes, or as much as the host's address space allows.
    pub fn new(wish: u64) -> io::Result<Self> {
        let mut bytes = wish.next_power_of_two();
        loop {
            let file = MemoryFile::create(c"simcuda-device-memory", bytes)?;
            match HostRange::of_file(file.fd, bytes) {
                Ok(alias) => {
                    alias.keep_private();
                    return Ok(Self { file, alias, free: Extents::new(0, bytes) });
                }
                Err(error) if bytes <= 1 << 30 => return Err(error),
                Err(_) => bytes /= 2,
            }
        }
    }

    /// No room at all.
    pub fn empty() -> Self {
        let alias = HostRange { start: 0, bytes: 0 };
        Self { file: MemoryFile { fd: -1 }, alias, free: Extents::default() }
    }

    /// Takes `bytes` of the file; answers their host address.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let rounded = bytes.checked_next_multiple_of(GRAIN)?;
        self.free.take(rounded, GRAIN).map(|offset| self.alias.start + offset)
    }

    /// The file, and where in it the byte of a host address lies.
    pub fn place(&self, address: u64) -> (i32, u64) {
        (self.file.fd, address - self.alias.start)
    }

    /// Gives memory back, and its host memory to the system if it was ever `touched`.
    pub fn give(&mut self, address: u64, bytes: u64, touched: bool) {
        let (offset, rounded) = (address - self.alias.start, bytes.next_multiple_of(GRAIN));
        if touched {
            self.file.punch(offset, rounded);
        }
        self.free.give(offset, rounded);
    }
}
