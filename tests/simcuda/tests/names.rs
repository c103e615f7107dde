//! The **names** seen from outside: what libsimcuda.so exports, and what `cuGetProcAddress` makes
//! of a name.
//!
//! Everything goes through the library as a client loads it. Facts are held against pointers: the
//! entry of ("cuMemAlloc", 3020) is the address that `dlsym` gives for `cuMemAlloc_v2`.

use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::path::PathBuf;
use std::process::Command;
use std::ptr::{dangling, dangling_mut, null, null_mut};
use std::sync::LazyLock;

const INVALID_VALUE: c_int = 1;
const NOT_FOUND: c_int = 500;
const NOT_SUPPORTED: c_int = 801;

macro_rules! not_supported {
    ($($symbol:ident)*) => { const UNIMPLEMENTED: &[&str] = &[$(stringify!($symbol),)*]; };
}
include!(concat!(env!("OUT_DIR"), "/unimplemented.rs"));

fn path() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    program.with_file_name("libsimcuda.so")
}

/// The library's handle, as a number: raw pointers are not shared between threads.
static LIBRARY: LazyLock<usize> = LazyLock::new(|| {
    let path = CString::new(path().into_os_string().into_encoded_bytes()).expect("no NUL inside");
    // SAFETY: the path is a C string; the library's initialisers need nothing.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "{} cannot be loaded", self::path().display());
    handle as usize
});

fn symbol(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no NUL inside");
    // SAFETY: the handle is open for ever and the name is a C string.
    unsafe { libc::dlsym(*LIBRARY as *mut c_void, name.as_ptr()) }
}

/// Calls an exported function by name, with the signature that is written in place.
macro_rules! call {
    ($name:literal as fn($($kind:ty),*); $($argument:expr),*) => {{
        let address = symbol($name);
        assert!(!address.is_null(), "{} is not exported", $name);
        // SAFETY: this is the function's signature, and the arguments live through the call.
        unsafe {
            let function: unsafe extern "C" fn($($kind),*) -> c_int = transmute(address);
            function($($argument),*)
        }
    }};
}

type Text = *const c_char;
type Place = *mut *mut c_void;

fn ask_first(name: Text, found: Place, version: c_int, flags: u64) -> c_int {
    call!("cuGetProcAddress" as fn(Text, Place, c_int, u64); name, found, version, flags)
}

fn ask_second(name: Text, found: Place, version: c_int, flags: u64, status: *mut c_int) -> c_int {
    call!("cuGetProcAddress_v2" as fn(Text, Place, c_int, u64, *mut c_int);
        name, found, version, flags, status)
}

fn first_form(name: &str, version: c_int, flags: u64) -> (c_int, *mut c_void) {
    let (name, mut found) = (CString::new(name).expect("no NUL inside"), dangling_mut());
    let code = ask_first(name.as_ptr(), &mut found, version, flags);
    (code, found)
}

fn second_form(name: &str, version: c_int, flags: u64) -> (c_int, *mut c_void, c_int) {
    let (name, mut found) = (CString::new(name).expect("no NUL inside"), dangling_mut());
    let mut status = -1;
    let code = ask_second(name.as_ptr(), &mut found, version, flags, &mut status);
    (code, found, status)
}

/// Asks both forms, and checks that both give this symbol.
fn assert_gives(name: &str, version: c_int, flags: u64, expected: &str) {
    let address = symbol(expected);
    assert!(!address.is_null(), "{expected} is not exported");
    let case = format!("{name} {version} flags {flags}: expected {expected}");
    assert_eq!(first_form(name, version, flags), (0, address), "{case}");
    assert_eq!(second_form(name, version, flags), (0, address, 0), "{case}");
}

/// Asks both forms, and checks that both say no in their ways.
fn assert_misses(name: &str, version: c_int, flags: u64, status: c_int) {
    let case = format!("{name} {version} flags {flags}");
    assert_eq!(first_form(name, version, flags), (NOT_FOUND, null_mut()), "{case}");
    assert_eq!(second_form(name, version, flags), (0, null_mut(), status), "{case}");
}

/// Runs one test of this file again in a process of its own; `None` in that process.
fn in_a_child(test: &str, driver: &str) -> Option<String> {
    if std::env::var_os("SIMCUDA_TEST_CHILD").is_some() {
        return None;
    }
    let output = Command::new(std::env::current_exe().expect("this program has a path"))
        .args(["--exact", test, "--nocapture"])
        .env("SIMCUDA_TEST_CHILD", "1")
        .env("SIMCUDA_DRIVER", driver)
        .output()
        .expect("this program can be run again");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}{said}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{test} did not run");
    Some(said)
}

#[test]
fn what_is_exported_is_the_table() {
    let listing =
        Command::new("nm").args(["-D", "--defined-only"]).arg(path()).output().expect("nm");
    assert!(listing.status.success(), "nm cannot read {}", path().display());
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let exported: BTreeSet<&str> = listing
        .lines()
        .filter_map(|line| line.split(' ').next_back())
        .filter(|name| name.starts_with("cu") && name[2..].starts_with(|c: char| c.is_uppercase()))
        .collect();
    let table: BTreeSet<&str> = include_str!("../names/names.tsv")
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next())
        .collect();
    let missing: Vec<_> = table.difference(&exported).collect();
    let unknown: Vec<_> = exported.difference(&table).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
    assert!(table.len() > 600, "{} symbols", table.len());
}

/// Every symbol of the table is what its own line says, asked for from outside.
#[test]
fn every_line_of_the_table_is_answered() {
    for line in include_str!("../names/names.tsv").lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let version = cells[2].parse().expect("a version");
        let flags = if cells[3] == "per-thread" { 2 } else { 0 };
        assert_gives(cells[1], version, flags, cells[0]);
    }
}

#[rustfmt::skip]
const FACTS: [(&str, c_int, u64, &str); 56] = [
    ("cuInit", 2000, 0, "cuInit"),
    ("cuInit", 13000, 0, "cuInit"),
    ("cuInit", 13000, 2, "cuInit"),
    ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
    ("cuMemAlloc", 3010, 1, "cuMemAlloc"),
    ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 12080, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 12080, 2, "cuMemAlloc_v2"),
    ("cuMemFree", 3020, 0, "cuMemFree_v2"),
    ("cuMemGetInfo", 3020, 0, "cuMemGetInfo_v2"),
    ("cuMemHostAlloc", 2020, 0, "cuMemHostAlloc"),
    ("cuMemHostRegister", 4000, 0, "cuMemHostRegister"),
    ("cuMemHostRegister", 6050, 0, "cuMemHostRegister_v2"),
    ("cuMemCreate", 10020, 0, "cuMemCreate"),
    ("cuMemAllocAsync", 11020, 0, "cuMemAllocAsync"),
    ("cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz"),
    ("cuMemcpy", 4000, 2, "cuMemcpy"),
    ("cuMemcpy", 7000, 2, "cuMemcpy_ptds"),
    ("cuMemcpyHtoD", 3020, 2, "cuMemcpyHtoD_v2"),
    ("cuMemcpyHtoD", 7000, 2, "cuMemcpyHtoD_v2_ptds"),
    ("cuMemcpyHtoDAsync", 2000, 0, "cuMemcpyHtoDAsync"),
    ("cuMemcpyHtoDAsync", 3020, 0, "cuMemcpyHtoDAsync_v2"),
    ("cuMemcpyHtoDAsync", 12000, 1, "cuMemcpyHtoDAsync_v2"),
    ("cuMemcpyHtoDAsync", 12000, 2, "cuMemcpyHtoDAsync_v2_ptsz"),
    ("cuMemcpyDtoDAsync", 3000, 0, "cuMemcpyDtoDAsync"),
    ("cuMemcpyBatchAsync", 12080, 0, "cuMemcpyBatchAsync"),
    ("cuMemcpyBatchAsync", 13000, 0, "cuMemcpyBatchAsync_v2"),
    ("cuMemcpyBatchAsync", 13000, 2, "cuMemcpyBatchAsync_v2_ptsz"),
    ("cuMemsetD8Async", 12000, 0, "cuMemsetD8Async"),
    ("cuMemsetD8Async", 12000, 2, "cuMemsetD8Async_ptsz"),
    ("cuStreamSynchronize", 2000, 0, "cuStreamSynchronize"),
    ("cuStreamSynchronize", 12000, 1, "cuStreamSynchronize"),
    ("cuStreamSynchronize", 12000, 2, "cuStreamSynchronize_ptsz"),
    ("cuStreamDestroy", 3020, 0, "cuStreamDestroy"),
    ("cuStreamDestroy", 4000, 0, "cuStreamDestroy_v2"),
    ("cuStreamDestroy", 4000, 2, "cuStreamDestroy_v2"),
    ("cuStreamBeginCapture", 10000, 0, "cuStreamBeginCapture"),
    ("cuStreamBeginCapture", 10010, 2, "cuStreamBeginCapture_v2_ptsz"),
    ("cuStreamGetCaptureInfo", 11020, 0, "cuStreamGetCaptureInfo"),
    ("cuStreamGetCaptureInfo", 12020, 0, "cuStreamGetCaptureInfo_v2"),
    ("cuStreamGetCaptureInfo", 12020, 2, "cuStreamGetCaptureInfo_v2_ptsz"),
    ("cuStreamGetCaptureInfo", 12030, 0, "cuStreamGetCaptureInfo_v3"),
    ("cuEventElapsedTime", 12070, 0, "cuEventElapsedTime"),
    ("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"),
    ("cuCtxCreate", 2000, 0, "cuCtxCreate"),
    ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
    ("cuCtxSynchronize", 12080, 0, "cuCtxSynchronize"),
    ("cuDeviceGetUuid", 11030, 0, "cuDeviceGetUuid"),
    ("cuDeviceGetUuid", 11040, 0, "cuDeviceGetUuid_v2"),
    ("cuGraphInstantiate", 12000, 0, "cuGraphInstantiate_v2"),
    ("cuGraphInstantiateWithFlags", 11040, 0, "cuGraphInstantiateWithFlags"),
    ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
];

#[test]
fn known_answers() {
    for (name, version, flags, expected) in FACTS {
        assert_gives(name, version, flags, expected);
    }
}

#[test]
fn names_and_versions_that_are_not_there() {
    for name in ["", "cu", "cuNoSuchThing", "cuMemAlloc_v2", "cumemalloc", "main", "cuInit "] {
        assert_misses(name, 13000, 0, 1);
        assert_misses(name, 13000, 2, 1);
    }
    for (name, version) in [
        ("cuInit", 1999),
        ("cuInit", 0),
        ("cuInit", -1),
        ("cuMemCreate", 10010),
        ("cuStreamGetCaptureInfo", 10000),
        ("cuCtxGetId", 11080),
        ("cuGetProcAddress", 11020),
    ] {
        assert_misses(name, version, 0, 2);
        assert_misses(name, version, 2, 2);
    }
}

#[test]
fn wrong_arguments() {
    for flags in [3, 4, 8, 1 << 32, u64::MAX] {
        assert_eq!(first_form("cuInit", 12000, flags), (INVALID_VALUE, null_mut()), "{flags}");
        assert_eq!(second_form("cuInit", 12000, flags), (INVALID_VALUE, null_mut(), -1), "{flags}");
    }
    let mut found = dangling_mut();
    let name = c"cuInit".as_ptr();
    for (name, found) in [(null(), &raw mut found), (name, null_mut())] {
        assert_eq!(ask_first(name, found, 12000, 0), INVALID_VALUE);
        assert_eq!(ask_second(name, found, 12000, 0, null_mut()), INVALID_VALUE);
    }
    let code = ask_second(name, &mut found, 12000, 0, null_mut());
    assert_eq!((code, found), (0, symbol("cuInit")), "the status is optional");
    let latin1 = [b'c', b'u', 0xE9, 0];
    let code = ask_first(latin1.as_ptr().cast(), &mut found, 12000, 0);
    assert_eq!((code, found), (NOT_FOUND, null_mut()), "not UTF-8");
}

#[test]
fn an_older_driver_has_fewer_entries() {
    if in_a_child("an_older_driver_has_fewer_entries", "11040").is_some() {
        return;
    }
    for initialised in [false, true] {
        if initialised {
            assert_eq!(call!("cuInit" as fn(u32); 0), 0);
        }
        let newest = symbol("cuCtxCreate_v3");
        assert_eq!(second_form("cuCtxCreate", 11040, 0), (0, newest, 0));
        assert_eq!(second_form("cuCtxCreate", 12050, 0), (INVALID_VALUE, null_mut(), -1));
        assert_eq!(first_form("cuCtxCreate", 12050, 0), (0, newest), "the first form only looks");
        assert_misses("cuCtxGetId", 11040, 0, 1);
        assert_misses("cuLaunchKernelEx", 11040, 2, 1);
        assert_misses("cuMemCreate", 10010, 0, 2);
        assert_gives("cuGetProcAddress", 11040, 0, "cuGetProcAddress");
        assert_gives("cuStreamGetCaptureInfo", 11040, 2, "cuStreamGetCaptureInfo_v2_ptsz");
    }
}

#[test]
fn the_newest_driver_refuses_a_version_above_its_own() {
    if in_a_child("the_newest_driver_refuses_a_version_above_its_own", "13000").is_some() {
        return;
    }
    assert_eq!(second_form("cuInit", 13010, 0), (INVALID_VALUE, null_mut(), -1));
    assert_eq!(first_form("cuCtxCreate", 99990, 0), (0, symbol("cuCtxCreate_v4")));
    assert_eq!(second_form("cuCtxCreate", 13000, 0), (0, symbol("cuCtxCreate_v4"), 0));
}

#[test]
fn what_is_not_simulated_answers_801_and_says_so_once() {
    if let Some(said) = in_a_child("what_is_not_simulated_answers_801_and_says_so_once", "13000") {
        let lines: Vec<_> = said.lines().filter(|line| line.starts_with("simcuda: ")).collect();
        let names: BTreeSet<_> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(lines.len(), UNIMPLEMENTED.len(), "each is named once:\n{said}");
        assert_eq!(names, UNIMPLEMENTED.iter().copied().collect());
        return;
    }
    assert!(!UNIMPLEMENTED.is_empty());
    for name in UNIMPLEMENTED.iter().cycle().take(3 * UNIMPLEMENTED.len()) {
        let address = symbol(name);
        assert!(!address.is_null(), "{name} is not exported");
        // SAFETY: an unimplemented function reads no argument, whatever its signature.
        let code = unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(address)() };
        assert_eq!(code, NOT_SUPPORTED, "{name}");
    }
}

#[test]
fn no_private_table_is_given_out() {
    type Table = *mut *const c_void;
    let (mut table, id) = (dangling(), [0_u8; 16]);
    let code = call!("cuGetExportTable" as fn(Table, *const u8); &mut table, id.as_ptr());
    assert_eq!((code, table), (NOT_FOUND, null()));
    let code = call!("cuGetExportTable" as fn(Table, *const u8); null_mut(), id.as_ptr());
    assert_eq!(code, NOT_FOUND);
}

#[test]
fn errors_have_names_and_descriptions() {
    let text = |function: &str, code: c_int| {
        let mut text: *const c_char = c"unwritten".as_ptr();
        // SAFETY: both functions have this signature; the text outlives the call.
        let answer = unsafe {
            let function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int =
                transmute(symbol(function));
            function(code, &mut text)
        };
        // SAFETY: what is not null is one of the library's texts.
        let text = (!text.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(text) });
        (answer, text.map(|text| text.to_string_lossy().into_owned()))
    };
    for (code, name) in [
        (0, "CUDA_SUCCESS"),
        (1, "CUDA_ERROR_INVALID_VALUE"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY"),
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (600, "CUDA_ERROR_NOT_READY"),
        (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        (801, "CUDA_ERROR_NOT_SUPPORTED"),
        (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
        (999, "CUDA_ERROR_UNKNOWN"),
    ] {
        assert_eq!(text("cuGetErrorName", code), (0, Some(name.to_owned())));
        let (answer, described) = text("cuGetErrorString", code);
        assert!(
            answer == 0 && described.is_some_and(|d| d.contains(char::is_whitespace) && d != name),
            "{code}"
        );
    }
    for code in [-1, 9, 998, 1000, c_int::MAX, c_int::MIN] {
        assert_eq!(text("cuGetErrorName", code), (INVALID_VALUE, None));
        assert_eq!(text("cuGetErrorString", code), (INVALID_VALUE, None));
    }
    let code = call!("cuGetErrorName" as fn(c_int, *mut *const c_char); 0, null_mut());
    assert_eq!(code, INVALID_VALUE);
}

#[test]
fn look_ups_and_what_is_not_simulated_are_counted() {
    if in_a_child("look_ups_and_what_is_not_simulated_are_counted", "13000").is_some() {
        return;
    }
    let calls = |function: &std::ffi::CStr| {
        // SAFETY: this is the function's signature.
        unsafe {
            let calls: extern "C" fn(*const c_char) -> u64 = transmute(symbol("simcuda_calls"));
            calls(function.as_ptr())
        }
    };
    let missing = UNIMPLEMENTED[0];
    let missing_name = CString::new(missing).expect("no NUL inside");
    assert_eq!((calls(c"cuGetProcAddress"), calls(&missing_name)), (0, 0));
    first_form(missing, 13000, 0);
    second_form(missing, 13000, 0);
    call!("cuGetErrorName" as fn(c_int, *mut *const c_char); 0, null_mut());
    // SAFETY: an unimplemented function reads no argument, whatever its signature.
    unsafe { transmute::<*mut c_void, extern "C" fn() -> c_int>(symbol(missing))() };
    assert_eq!((calls(c"cuGetProcAddress"), calls(&missing_name)), (2, 1));
    assert_eq!(calls(c"cuGetErrorName"), 1);
}

/// A forked child of a process that called `cuInit` may still ask what things are called, and no
/// more.
#[test]
fn names_survive_a_fork() {
    if in_a_child("names_survive_a_fork", "13000").is_some() {
        return;
    }
    assert_eq!(call!("cuInit" as fn(u32); 0), 0);
    let (get_count, mut count) = (symbol("cuDeviceGetCount"), 0);
    assert_eq!(call!("cuDeviceGetCount" as fn(*mut c_int); &mut count), 0);
    // SAFETY: the child calls this library and nothing else, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let (mut found, mut text) = (null_mut(), null());
        let asked = ask_second(c"cuDeviceGetCount".as_ptr(), &mut found, 13000, 0, null_mut());
        let named = call!("cuGetErrorName" as fn(c_int, *mut *const c_char); 3, &mut text);
        let counted = call!("cuDeviceGetCount" as fn(*mut c_int); &mut count);
        let right = (asked, named, counted) == (0, 0, 3) && found == get_count && !text.is_null();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(if right { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: the status may be written.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's answers differ");
}
