#![forbid(unsafe_code)]
//! Starting: the driver by the first call that names a device, a device by the first that uses it.

use std::sync::OnceLock;

use super::configuration::in_force;
use super::facts::device_facts;
use super::log;
use crate::device::Device;
use crate::driver::Driver;
use crate::error::Error;
use crate::options::Options;
use crate::owners::{MOST_DEVICES, Owners};
use crate::sync::{self, Lock, refuse_after_fork};
use crate::types::DeviceId;

/// Which device serves which address.
pub(super) static OWNERS: Owners = Owners::new();

static PROCESS: OnceLock<Process> = OnceLock::new();
static STARTING: Lock<(), 0> = Lock::new(());

/// All that exists once in a process.
pub(super) struct Process {
    pub(super) driver: Driver,
    devices: Vec<OnceLock<Device>>,
    /// The one that was opened first: for most programs, the one that every call is about.
    first: OnceLock<(DeviceId, &'static Device)>,
    opening: Lock<(), 1>,
    /// Limits that the program set for a device; they outlive the options' ones.
    limits: Lock<Vec<Option<u64>>, 3>,
}

/// The process, if its driver has been loaded.
#[inline]
pub(super) fn started_already() -> Option<&'static Process> {
    PROCESS.get()
}

/// The process; loads the driver if that has not been done.
#[inline]
pub(super) fn started() -> Result<&'static Process, Error> {
    refuse_after_fork()?;
    match PROCESS.get() {
        Some(process) => Ok(process),
        None => start(),
    }
}

#[cold]
fn start() -> Result<&'static Process, Error> {
    let one_at_a_time = STARTING.lock();
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    sync::about_to_use()?;
    // A driver that does not start leaves a fork as harmless as it was; one that has started does not.
    let driver = Driver::open_system().inspect_err(|_| sync::unused())?;
    let process = Process::new(driver)?;
    let process = PROCESS.get_or_init(|| process);
    drop(one_at_a_time);
    super::recorder::from_environment();
    super::exporter::from_environment();
    Ok(process)
}

impl Process {
    fn new(driver: Driver) -> Result<Self, Error> {
        let count = (driver.device_count()? as usize).min(MOST_DEVICES);
        let (mut devices, mut limits) = (Vec::new(), Vec::new());
        devices.try_reserve_exact(count).map_err(|_| Error::HostOutOfMemory)?;
        limits.try_reserve_exact(count).map_err(|_| Error::HostOutOfMemory)?;
        devices.resize_with(count, OnceLock::new);
        limits.resize(count, None);
        Ok(Self {
            driver,
            devices,
            first: OnceLock::new(),
            opening: Lock::new(()),
            limits: Lock::new(limits),
        })
    }

    /// How many devices there are.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.devices.len() as u32
    }

    /// The device, if it is in use.
    #[inline]
    pub(super) fn device_in_use(&self, id: DeviceId) -> Option<&Device> {
        self.devices.get(id.0 as usize)?.get()
    }

    /// The same, quicker for the device that was opened first: the processor guesses that it is this
    /// one, and does not wait for `id`.
    #[inline]
    pub(super) fn device_guessed(&self, id: DeviceId) -> Option<&Device> {
        match self.first.get() {
            Some((first, device)) if *first == id => Some(device),
            _ => self.device_in_use(id),
        }
    }

    /// Every device in use.
    pub(super) fn devices_in_use(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter_map(OnceLock::get)
    }

    /// The device; it is opened, with a context, if it is not in use.
    #[inline]
    pub(super) fn device(&'static self, id: DeviceId) -> Result<&'static Device, Error> {
        match self.device_in_use(id) {
            Some(device) => Ok(device),
            None => self.open(id),
        }
    }

    #[cold]
    fn open(&'static self, id: DeviceId) -> Result<&'static Device, Error> {
        log::begin();
        let device = {
            let _one_at_a_time = self.opening.lock();
            if let Some(device) = self.device_in_use(id) {
                return Ok(device);
            }
            let device = Device::open(&self.driver, &OWNERS, id, in_force(), self.limit(id)?)?;
            let device = self.devices[id.0 as usize].get_or_init(|| device);
            self.first.get_or_init(|| (id, device));
            device
        };
        log::opened(|| device_facts(id.0 as i32));
        Ok(device)
    }

    /// The device of the calling thread's current context; without one device 0, as the runtime has
    /// it.
    pub(super) fn current(&self) -> Result<DeviceId, Error> {
        let id = match self.driver.current_context()? {
            Some(_) => self.driver.current_device()?,
            None => DeviceId(0),
        };
        match id.0 < self.count() {
            true => Ok(id),
            false => Err(Error::InvalidDevice { device: i64::from(id.0), count: self.count() }),
        }
    }

    /// The device's memory, in bytes.
    pub(super) fn total(&self, id: DeviceId) -> Result<u64, Error> {
        match self.device_in_use(id) {
            Some(device) => Ok(device.total()),
            None => Ok(self.driver.device_total(id)?),
        }
    }

    /// The limit of a device, in use or not.
    pub(super) fn limit(&self, id: DeviceId) -> Result<u64, Error> {
        if let Some(device) = self.device_in_use(id) {
            return Ok(device.limit());
        }
        let set = self.limits.lock()[id.0 as usize];
        set.map_or_else(|| self.limit_by_options(id), Ok)
    }

    /// The limit that the options alone give a device.
    fn limit_by_options(&self, id: DeviceId) -> Result<u64, Error> {
        let options = in_force();
        let by_share = match options.memory_fraction {
            1.0 => Options::NO_LIMIT,
            fraction => share(self.total(id)?, fraction),
        };
        Ok(options.memory_limit.min(by_share))
    }

    /// Sets the limit of a device, in use or not.
    pub(super) fn set_limit(&self, id: DeviceId, bytes: u64) -> Result<(), Error> {
        {
            // Whoever opens the device meanwhile sees the limit before or after. Giving back what is
            // above it may wait for the GPU, which keeps nobody from opening a device.
            let _nobody_opens = self.opening.lock();
            self.limits.lock()[id.0 as usize] = Some(bytes);
        }
        self.device_in_use(id).map_or(Ok(()), |device| device.set_limit(bytes))
    }

    /// The options' limits have changed: they hold for every device from now on.
    pub(super) fn apply_limits(&self) -> Result<(), Error> {
        {
            let _nobody_opens = self.opening.lock();
            self.limits.lock().fill(None);
        }
        let set = |device: &Device| device.set_limit(self.limit_by_options(device.id())?);
        // What one device cannot give back is no reason to leave the limit off the others.
        self.devices_in_use().map(set).fold(Ok(()), Result::and)
    }
}

/// A fraction of a device's memory: the nearest whole number of bytes, so that
/// `share(total, wanted / total) == wanted`.
pub(super) fn share(total: u64, fraction: f64) -> u64 {
    (total as f64 * fraction).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_hits_its_byte() {
        for total in [80u64 << 30, (24 << 30) + 12345, 10_989 << 20, 150_323_855_360] {
            for wanted in [1, 512, 2 << 20, (2 << 20) + 1, 100 << 20, total / 3, total - 1, total] {
                assert_eq!(share(total, wanted as f64 / total as f64), wanted);
            }
        }
    }
}
