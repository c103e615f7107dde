#![forbid(unsafe_code)]
//! A scope: a named part of a program's run, to which what it allocates belongs.

use crate::error::Error;
use crate::mutants::mutant;
use crate::process;

/// Runs `work`; what this thread allocates meanwhile belongs to the scope of that name, inside the one
/// that the thread is in: [`crate::scopes`] and [`crate::leaks`] tell of it.
///
/// ```no_run
/// let loss = cuddy::scope("step", || 0.5)?;
/// println!("still live: {}", cuddy::leaks("step")?);
/// # Ok::<(), cuddy::Error>(())
/// ```
///
/// # Errors
/// [`Error::InvalidArgument`]: the name is empty or has a slash, or 63 scopes are nested. `work` is not
/// run then.
pub fn scope<R>(name: &str, work: impl FnOnce() -> R) -> Result<R, Error> {
    struct Begun;
    impl Drop for Begun {
        fn drop(&mut self) {
            if mutant("owned-scope-stays") {
                return;
            }
            // It is the last that was begun: `work` has ended its own.
            let _ = process::scope_end(None);
        }
    }
    process::scope_begin(name)?;
    let _begun = Begun;
    Ok(work())
}
