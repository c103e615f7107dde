//! The machine of a replay: a real GPU, or the simulated device, started for one job.
//!
//! After [`Machine::start`] the two differ in nothing that the replay does: the driver is
//! `libcuda.so.1`, device 0 is in use, and `memory` bytes of it are the allocator's.

use crate::allocator::{Allocator, DriverCalls};
use crate::driver_pool::DriverPool;
use crate::gpu::{Gpu, GpuError};
use crate::job::{Job, Schedule, Target, Who};
use crate::library::CuddyLibrary;
use crate::sim::Simulator;
use crate::table::bytes_text;
use crate::trace::Trace;

/// Memory of the simulated device unless another size is asked for, in bytes.
pub const DEFAULT_MEMORY: u64 = 80 << 30;

/// A device, ready.
pub struct Machine {
    /// The driver.
    pub gpu: Gpu,
    /// Its controls, if it is simulated.
    pub simulator: Option<Simulator>,
    /// The device's name.
    pub name: String,
    /// Memory that the allocator may use, in bytes.
    pub memory: u64,
}

/// Whether this machine has a GPU that the driver can use; if not, why not.
///
/// Loads the machine's driver into this process, which then cannot load the simulated one any
/// more: the command asks here, its children act on the answer.
pub fn real_gpu() -> Result<Gpu, String> {
    let gpu = Gpu::load()?;
    match gpu.device_count() {
        Ok(0) => Err("the driver sees no device".to_owned()),
        Ok(_) => Ok(gpu),
        Err(error) => Err(error.to_string()),
    }
}

/// What `auto` means here. Chosen once, before anything starts.
pub fn choose(target: Target) -> Result<Target, String> {
    match target {
        Target::Sim => Ok(Target::Sim),
        Target::Gpu => match real_gpu() {
            Ok(_) => Ok(Target::Gpu),
            Err(why) => Err(format!("there is no GPU to use: {why}")),
        },
        // A simulated driver in the place of the machine's is better used with its controls.
        Target::Auto if real_gpu().is_ok_and(|gpu| !gpu.simulated()) => Ok(Target::Gpu),
        Target::Auto => Ok(Target::Sim),
    }
}

impl Machine {
    /// Starts what the job asks for.
    pub fn start(job: &Job, trace: &Trace) -> Result<Self, String> {
        let simulator = match job.target {
            Target::Gpu => None,
            Target::Auto | Target::Sim => Some(simulator(job, trace)?),
        };
        let gpu = Gpu::load()?;
        if job.target == Target::Gpu {
            refuse_what_needs_the_simulator(job)?;
        }
        let said = |error: GpuError| error.to_string();
        let facts = gpu.device_facts(0).map_err(said)?;
        gpu.use_device(0).map_err(said)?;
        let free = gpu.memory().map_err(said)?.0;
        let memory =
            job.device_memory.unwrap_or(if simulator.is_some() { facts.memory } else { free });
        Ok(Self { gpu, simulator, name: facts.name, memory })
    }

    /// Makes the allocator that the job asks for.
    pub fn allocator<'m>(&'m self, job: &Job) -> Result<Box<dyn Allocator + 'm>, String> {
        match job.who {
            Who::Cuddy => {}
            Who::Driver => return Ok(Box::new(DriverCalls::new(&self.gpu))),
            Who::DriverAsync => {
                let pool = DriverPool::new(&self.gpu).map_err(|error| error.to_string())?;
                return Ok(Box::new(pool));
            }
        }
        let library = CuddyLibrary::new(0);
        if let Some(backing) = job.backing {
            library.set_option("backing", &backing.to_string()).map_err(|why| why.text)?;
        }
        if let Some(share) = &job.share {
            library.set_option("share", share).map_err(|why| why.text)?;
        }
        if let (None, Some(bytes)) = (&self.simulator, job.device_memory) {
            // A real device has the size that it has.
            library.set_memory_limit(bytes).map_err(|why| why.text)?;
        }
        Ok(Box::new(library))
    }

    /// Physical memory of device 0 that is in use, in bytes.
    pub fn used(&self) -> Result<u64, GpuError> {
        match &self.simulator {
            Some(simulator) => Ok(simulator.used()),
            None => self.gpu.memory().map(|(free, total)| total - free),
        }
    }
}

fn simulator(job: &Job, trace: &Trace) -> Result<Simulator, String> {
    let memory = job.device_memory.unwrap_or(DEFAULT_MEMORY);
    let needs = trace.ideal().allocated;
    if job.device_memory.is_none() && needs > memory {
        return Err(format!(
            "{}: its live blocks need {} and the simulated device has {}: pass --device-memory {}GiB",
            trace.name,
            bytes_text(needs),
            bytes_text(memory),
            (needs + needs / 10).div_ceil(1 << 30),
        ));
    }
    let simulator = Simulator::load()?;
    simulator.configure("devices", "1")?;
    simulator.configure("memory", &memory.to_string())?;
    simulator.configure("schedule", &job.schedule.to_string())?;
    simulator.configure("checker", "log")?;
    Ok(simulator)
}

fn refuse_what_needs_the_simulator(job: &Job) -> Result<(), String> {
    let what = if job.sabotage.is_some() {
        "--self-test"
    } else if job.schedule != Schedule::Eager {
        "--schedule"
    } else if job.who != Who::Cuddy && job.device_memory.is_some() {
        "--device-memory with another --allocator than cuddy"
    } else {
        return Ok(());
    };
    Err(format!("{what} needs the simulated device: pass --on sim"))
}
