//! The **unimplemented**: exported functions that nothing stands behind.
//!
//! They are the rows of names/names.tsv that no other file of this crate defines. Each answers
//! `CUDA_ERROR_NOT_SUPPORTED` without reading an argument, and says its name on stderr the first
//! time.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::types::Code;
use crate::types::code::NOT_SUPPORTED;

/// Makes an exported function of each name, and the list of them.
macro_rules! not_supported {
    ($($symbol:ident)*) => {
        /// The symbols that are exported and not simulated.
        pub const UNIMPLEMENTED: &[&str] = &[$(stringify!($symbol),)*];
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, missing_docs)]
            pub extern "C" fn $symbol() -> Code {
                static SAID: AtomicBool = AtomicBool::new(false);
                answer(stringify!($symbol), &SAID)
            }
        )*
    };
}

include!(concat!(env!("OUT_DIR"), "/unimplemented.rs"));

/// What an unimplemented function does. A stderr that cannot be written to is no reason to fail.
fn answer(symbol: &'static str, said: &AtomicBool) -> Code {
    if !said.swap(true, Ordering::Relaxed) {
        let _ = writeln!(
            std::io::stderr(),
            "simcuda: {symbol} is not simulated; it answers CUDA_ERROR_NOT_SUPPORTED"
        );
    }
    NOT_SUPPORTED
}
