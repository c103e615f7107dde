#![forbid(unsafe_code)]
//! The options in force: `CUDDY_CONF` once, then what the program says.

use super::start::started_already;
use crate::environment;
use crate::error::{Error, sentence};
use crate::options::{Configuration, Listed, Options, Rejected};
use crate::sync::{Lock, refuse_after_fork};

/// Rank of the lock around the configuration.
const RANK: u8 = 2;

static CONFIGURATION: Lock<Option<Configuration>, RANK> = Lock::new(None);

/// Reads the environment once, saying once on stderr what was left out.
fn with<R>(look: impl FnOnce(&mut Configuration) -> R) -> R {
    let mut held = CONFIGURATION.lock();
    let configuration = held.get_or_insert_with(|| {
        let configuration =
            environment::with_variable(c"CUDDY_CONF", Configuration::from_environment);
        for rejected in configuration.rejected() {
            environment::complain(&sentence!("{rejected}\n"));
        }
        configuration
    });
    look(configuration)
}

/// The values in force.
pub(super) fn in_force() -> Options {
    with(|configuration| *configuration.options())
}

/// Sets an option. Limits hold for every device from now on; the other options can be set as long as
/// no device is in use.
pub fn set_option(name: &[u8], value: &[u8]) -> Result<(), Error> {
    refuse_after_fork()?;
    let process = started_already();
    let in_use = process.is_some_and(|process| process.devices_in_use().next().is_some());
    let before = in_force();
    with(|configuration| configuration.set(name, value, in_use))?;
    let after = in_force();
    let same = before.memory_limit == after.memory_limit
        && before.memory_fraction == after.memory_fraction;
    match process {
        Some(process) if !same => process.apply_limits(),
        _ => Ok(()),
    }
}

/// An option as it stands, by name.
pub fn option(name: &[u8]) -> Result<Listed, Error> {
    refuse_after_fork()?;
    with(|configuration| configuration.get(name))
}

/// Every option as it stands.
pub fn options() -> Result<Vec<Listed>, Error> {
    refuse_after_fork()?;
    Ok(with(|configuration| configuration.list().collect()))
}

/// The entries of `CUDDY_CONF` that were left out.
pub fn rejected_options() -> Result<Vec<Rejected>, Error> {
    refuse_after_fork()?;
    Ok(with(|configuration| configuration.rejected().to_vec()))
}
