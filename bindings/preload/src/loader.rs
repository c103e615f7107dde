//! The **loader**: the `dlsym` and `dlvsym` that would have been called without us.
//!
//! Both are exported from here, so their names lead to ourselves: glibc's are read out of its own
//! symbol table. `next` is what comes after us in the order of libraries: another interposer's
//! function, or glibc's. Nothing here allocates or takes a lock, since an allocator may call `dlsym`
//! while it starts.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

type Pointer = *mut c_void;
/// `dlsym`.
pub type Look = unsafe extern "C" fn(Pointer, *const c_char) -> Pointer;

static NEXT_DLSYM: AtomicUsize = AtomicUsize::new(0);
static LIBC_DLSYM: AtomicUsize = AtomicUsize::new(0);
static NEXT_DLVSYM: AtomicUsize = AtomicUsize::new(0);
static OWN_START: AtomicUsize = AtomicUsize::new(0);
static OWN_END: AtomicUsize = AtomicUsize::new(0);

/// What a walk over the loaded objects has found.
#[derive(Default)]
struct Found {
    dlsym: usize,
    dlvsym: usize,
    own: (usize, usize),
}

/// Whether an address lies in this library.
pub fn is_own(address: usize) -> bool {
    start();
    (OWN_START.load(Ordering::Relaxed)..OWN_END.load(Ordering::Relaxed)).contains(&address)
}

/// The address of the next `dlsym`; 0 if there is none, which is a libc that we do not know.
pub fn next_dlsym() -> usize {
    start();
    NEXT_DLSYM.load(Ordering::Acquire)
}

/// The address of the next `dlvsym`.
pub fn next_dlvsym() -> usize {
    start();
    NEXT_DLVSYM.load(Ordering::Acquire)
}

/// Looks a symbol up as a program without us would, from this library's place.
pub fn look(handle: Pointer, name: &CStr) -> Pointer {
    look_by(next_dlsym(), handle, name)
}

/// What comes after us in the order of libraries, past any interposer's `dlsym`: one that means its
/// own function, and was linked like most, answers with ours of the same name.
pub fn look_behind(name: &CStr) -> Pointer {
    start();
    look_by(LIBC_DLSYM.load(Ordering::Acquire), libc::RTLD_NEXT, name)
}

fn look_by(next: usize, handle: Pointer, name: &CStr) -> Pointer {
    if next == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: `next` is the address of a dlsym.
    let next: Look = unsafe { std::mem::transmute::<usize, Look>(next) };
    // SAFETY: the handle is the caller's, or one of the special ones; the name is a C string.
    unsafe { next(handle, name.as_ptr()) }
}

fn start() {
    if NEXT_DLSYM.load(Ordering::Acquire) != 0 {
        return;
    }
    let mut found = Found::default();
    // SAFETY: `visit` has the signature asked for, and `found` outlives the walk.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    let Found { dlsym, dlvsym, own } = found;
    OWN_START.store(own.0, Ordering::Relaxed);
    OWN_END.store(own.1, Ordering::Relaxed);
    if dlsym == 0 {
        return;
    }
    // SAFETY: glibc's own function, found in its symbol table.
    let of_libc: Look = unsafe { std::mem::transmute::<usize, Look>(dlsym) };
    let next = |name: &CStr, default: usize| {
        // SAFETY: called from this library, so RTLD_NEXT means what comes after it.
        let next = unsafe { of_libc(libc::RTLD_NEXT, name.as_ptr()) }.expose_provenance();
        let ours = (own.0..own.1).contains(&next);
        if next == 0 || ours { default } else { next }
    };
    LIBC_DLSYM.store(dlsym, Ordering::Release);
    NEXT_DLVSYM.store(next(c"dlvsym", dlvsym), Ordering::Release);
    NEXT_DLSYM.store(next(c"dlsym", dlsym), Ordering::Release);
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, data: Pointer) -> c_int {
    // SAFETY: the loader gives a valid description, and `data` is the `Found` of `start`.
    let (info, found) = unsafe { (&*info, &mut *data.cast::<Found>()) };
    let base = info.dlpi_addr as usize;
    // SAFETY: the loader's table of so many headers, which stays while it walks.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let here = visit as *const () as usize;
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let start = base + header.p_vaddr as usize;
        if (start..start + header.p_memsz as usize).contains(&here) {
            found.own = extent(base, headers);
        }
    }
    if info.dlpi_name.is_null() {
        return 0;
    }
    // SAFETY: a C string of the loader's.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    // Before glibc 2.34, these functions had a library of their own.
    if file == b"libc.so.6" || file == b"libdl.so.2" {
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC);
        if let Some(header) = dynamic {
            let object = Object::read(base, base + header.p_vaddr as usize);
            for (name, slot) in [(c"dlsym", &mut found.dlsym), (c"dlvsym", &mut found.dlvsym)] {
                if *slot == 0 {
                    *slot = object.as_ref().and_then(|it| it.find(name)).unwrap_or(0);
                }
            }
        }
    }
    0
}

/// First and last address of an object.
fn extent(base: usize, headers: &[libc::Elf64_Phdr]) -> (usize, usize) {
    let loads = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let start = loads().map(|it| it.p_vaddr as usize).min().unwrap_or(0);
    let end = loads().map(|it| (it.p_vaddr + it.p_memsz) as usize).max().unwrap_or(0);
    (base + start, base + end)
}

/// An object's tables of symbols.
struct Object {
    base: usize,
    symbols: usize,
    strings: usize,
    hash: usize,
}

impl Object {
    /// Reads the dynamic section at this address.
    fn read(base: usize, mut dynamic: usize) -> Option<Self> {
        const STRINGS: u64 = 5;
        const SYMBOLS: u64 = 6;
        const GNU_HASH: u64 = 0x6fff_fef5;
        let mut object = Self { base, symbols: 0, strings: 0, hash: 0 };
        loop {
            let (tag, value) = (word(dynamic), word(dynamic + 8) as usize);
            // The loader turns these into addresses, but for where the section cannot be written.
            let address = if value < base { base + value } else { value };
            match tag {
                0 => break,
                STRINGS => object.strings = address,
                SYMBOLS => object.symbols = address,
                GNU_HASH => object.hash = address,
                _ => {}
            }
            dynamic += 16;
        }
        (object.symbols != 0 && object.strings != 0 && object.hash != 0).then_some(object)
    }

    /// The address of a symbol that the object defines, of whatever version.
    fn find(&self, name: &CStr) -> Option<usize> {
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let (buckets, first, filter) = (half(self.hash), half(self.hash + 4), half(self.hash + 8));
        let buckets_at = self.hash + 16 + 8 * filter as usize;
        let chains_at = buckets_at + 4 * buckets as usize;
        let mut index = half(buckets_at + 4 * (hash % buckets.max(1)) as usize);
        if index < first {
            return None;
        }
        loop {
            let chain = half(chains_at + 4 * (index - first) as usize);
            if chain | 1 == hash | 1 {
                let symbol = self.symbols + 24 * index as usize;
                let (text, section, value) =
                    (half(symbol), word(symbol) >> 48, word(symbol + 8) as usize);
                // SAFETY: an offset into the object's table of C strings.
                let text = unsafe {
                    CStr::from_ptr(std::ptr::with_exposed_provenance(self.strings + text as usize))
                };
                if section != 0 && text == name {
                    return Some(self.base + value);
                }
            }
            if chain & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}

fn word(address: usize) -> u64 {
    // SAFETY: only called inside the tables that an object's dynamic section names; they are
    // aligned, mapped and never change.
    unsafe { *std::ptr::with_exposed_provenance::<u64>(address) }
}

fn half(address: usize) -> u32 {
    // SAFETY: as for `word`.
    unsafe { *std::ptr::with_exposed_provenance::<u32>(address) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_own_functions_are_found_and_work() {
        assert!(is_own(next_dlsym as *const () as usize));
        assert!(!is_own(libc::strlen as *const () as usize) && !is_own(0));
        let found = look(libc::RTLD_DEFAULT, c"strlen");
        assert_eq!(found.addr(), libc::strlen as *const () as usize);
        assert!(look(libc::RTLD_DEFAULT, c"cuddy_no_such_symbol").is_null());
        assert_ne!(next_dlvsym(), 0);
    }
}
