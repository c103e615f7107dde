//! **Entry points**: `cuGetProcAddress`, in both its forms, over the [`entries`].
//!
//! The first form says "no" with an error, the second with success, a null pointer and a status;
//! only the second refuses a version above the driver's. Both may be called before `cuInit`.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::sync::Once;

use super::{exports, put, put_if, require, wanted};
use crate::config::Config;
use crate::entries::{self, Missing, Row};
use crate::state::State;
use crate::types::code;

/// Flags: 0 = as the client was compiled, which for a driver is the same as 1 = legacy stream.
const PER_THREAD: u64 = 2;

/// `CUdriverProcAddressQueryResult`.
const FOUND: c_int = 0;
const NO_SUCH_NAME: c_int = 1;
const VERSION_TOO_LOW: c_int = 2;

type Name = *const c_char;
type Function = *mut *mut c_void;
type Answer = Result<&'static Row, Missing>;

exports! {
    // What is not there is null and NOT_FOUND.
    fn cuGetProcAddress(name: Name, function: Function, version: c_int, flags: u64) |call| {
        let answer = look_up(call, name, function, version, flags, c_int::MAX)?;
        answer.map(drop).map_err(|_| code::NOT_FOUND)
    };
    // Since CUDA 12: what is not there is null and a status, and no error.
    fn cuGetProcAddress_v2(
        name: Name, function: Function, version: c_int, flags: u64, status: *mut c_int,
    ) |call| {
        let highest = driver_version(call);
        let answer = look_up(call, name, function, version, flags, highest)?;
        put_if(status, match answer {
            Ok(_) => FOUND,
            Err(Missing::Name) => NO_SUCH_NAME,
            Err(Missing::Version) => VERSION_TOO_LOW,
        })
    };
    // Private tables between the driver and its own libraries: there are none. Never answer it: the
    // vendor's runtime asks here for proof that the driver is genuine, and this one is not.
    fn cuGetExportTable(table: *mut *const c_void, _id: *const c_void) |_call| {
        put_if(table, std::ptr::null())?;
        say_who_asks();
        Err(code::NOT_FOUND)
    };
}

/// Says once who asks for private tables: nothing that needs them runs here, and its own errors do
/// not say why.
fn say_who_asks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let file = asker().unwrap_or_else(|| "the program".to_owned());
        let _ = writeln!(
            std::io::stderr(),
            "simcuda: {file} asks for private tables of the vendor's driver (cuGetExportTable), as the vendor's CUDA \
             runtime does to see whether the driver is genuine. This one is not, and does not answer"
        );
        crate::journal::proof(&file);
    });
}

/// The file that the nearest caller outside this library lies in.
fn asker() -> Option<String> {
    let mut frames = [std::ptr::null_mut(); 32];
    // SAFETY: room for so many addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), frames.len() as c_int) };
    let object = |address: *const c_void| {
        // SAFETY: the structure is written by the call, whatever the address is; the name lives as
        // long as the library does.
        unsafe {
            let mut info: libc::Dl_info = std::mem::zeroed();
            let known = libc::dladdr(address, &raw mut info) != 0 && !info.dli_fname.is_null();
            known.then(|| {
                (info.dli_fbase, CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned())
            })
        }
    };
    let (ours, _) = object(asker as *const c_void)?;
    let frames = frames.iter().take(count as usize);
    frames.filter_map(|at| object(*at)).find(|(base, _)| *base != ours).map(|(_, file)| file)
}

/// The driver's version, also before `cuInit`: 1000 * major + 10 * minor.
pub fn driver_version(state: &State) -> c_int {
    if state.started {
        return state.config.driver;
    }
    let default = Config::default().driver;
    Config::load(&state.overrides).map_or(default, |config| config.driver)
}

/// Checks the arguments and writes what is found, null if nothing is. A client of a CUDA above
/// `highest` is refused.
fn look_up(
    state: &State,
    name: Name,
    function: Function,
    version: c_int,
    flags: u64,
    highest: c_int,
) -> Result<Answer, i32> {
    wanted(name)?;
    put(function, std::ptr::null_mut())?;
    require(flags <= PER_THREAD && version <= highest, code::INVALID_VALUE)?;
    // SAFETY: not null, and the C caller vouches for a text that ends with a zero (see the module
    // of all chapters).
    let name = unsafe { CStr::from_ptr(name) };
    // Names are ASCII: one that is not UTF-8 is as unknown as the empty one.
    let name = name.to_str().unwrap_or_default();
    let answer = entries::lookup(name, version, flags == PER_THREAD, driver_version(state));
    if let Ok(row) = answer {
        put(function, row.address.pointer())?;
    }
    Ok(answer)
}
