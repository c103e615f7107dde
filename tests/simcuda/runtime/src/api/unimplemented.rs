//! What is not there: functions that say so, once each, and answer `cudaErrorNotSupported`. The
//! build script writes the list: what names/names.tsv has and no source file defines.

use crate::types::{Code, code};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says once that a function is not there.
pub fn refuse(name: &str, said: &AtomicBool) -> Code {
    if !said.swap(true, Ordering::Relaxed) {
        // Nobody may be there to read it: that is no reason to fail otherwise.
        let _ = writeln!(
            std::io::stderr(),
            "simcudart: {name} is not in this substitute for the CUDA runtime: it answers \
             cudaErrorNotSupported"
        );
    }
    crate::call::plain(|()| Err(code::NOT_SUPPORTED))
}

macro_rules! not_supported {
    ($($name:ident)*) => {$(
        #[unsafe(export_name = concat!("simrt_", stringify!($name)))]
        pub unsafe extern "C" fn $name() -> i32 {
            static SAID: AtomicBool = AtomicBool::new(false);
            refuse(stringify!($name), &SAID)
        }
    )*};
}

include!(concat!(env!("OUT_DIR"), "/unimplemented.rs"));
