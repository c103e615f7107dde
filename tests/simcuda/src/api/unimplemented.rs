//! The **unimplemented**: exported functions that nothing stands behind.
//!
//! They are the rows of names/names.tsv that no other file of this crate defines. Each answers
//! `CUDA_ERROR_NOT_SUPPORTED` without reading an argument, and says its name on stderr the first
//! time. They are counted as calls like all others.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::{Site, enter};
use crate::types::{Code, code};

/// Makes an exported function of each name, and the list of them.
macro_rules! not_supported {
    ($($symbol:ident)*) => {
        /// The symbols that are exported and not simulated.
        pub const UNIMPLEMENTED: &[&str] = &[$(stringify!($symbol),)*];
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $symbol() -> Code {
                static SITE: Site = Site::new(stringify!($symbol), false);
                static SAID: AtomicBool = AtomicBool::new(false);
                answer(&SITE, stringify!($symbol), &SAID)
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/unimplemented.rs"));

/// What an unimplemented function does. A stderr that cannot be written to is no reason to fail.
fn answer(site: &'static Site, symbol: &'static str, said: &AtomicBool) -> Code {
    if !said.swap(true, Ordering::Relaxed) {
        let _ = writeln!(
            std::io::stderr(),
            "simcuda: {symbol} is not simulated; it answers CUDA_ERROR_NOT_SUPPORTED"
        );
    }
    enter(site, |_call| Err(code::NOT_SUPPORTED))
}
