//! `cuddy doctor`: is this machine fit for Cuddy, and how is Cuddy configured?
//!
//! Healthy: the driver loads, it has a device, a trial on every device succeeds, and every entry of
//! `CUDDY_CONF` is one that can be used.

use cuddy::process;

use crate::allocator::Allocator;
use crate::cli::Outcome;
use crate::gpu::{Gpu, GpuError, Stream};
use crate::job::Target;
use crate::library::CuddyLibrary;
use crate::sim::Simulator;
use crate::table::{Table, bytes_text};
use crate::workload::{Region, Workload};
use crate::{out, outln};

/// Bytes of the trial's block.
const TRIAL: u64 = 1 << 20;

/// Prints what there is, and whether it is healthy.
pub fn run(on: Target) -> Result<Outcome, String> {
    outln!("cuddy {}\n", env!("CARGO_PKG_VERSION"));
    if on == Target::Sim {
        let simulator = Simulator::load()?;
        simulator.configure("devices", "1")?;
    }
    let mut complaints = Vec::new();
    devices(&mut complaints);
    configuration(&mut complaints);
    match complaints.as_slice() {
        [] => {
            outln!("Healthy.");
            Ok(Outcome::Well)
        }
        complaints => {
            outln!("Not healthy:");
            complaints.iter().for_each(|complaint| outln!("  {complaint}"));
            Ok(Outcome::Wrong)
        }
    }
}

/// A line of a section: what, and how it is.
fn line(what: &str, how: impl AsRef<str>) {
    let mut lines = how.as_ref().lines();
    outln!("  {what:<16}{}", lines.next().unwrap_or(""));
    lines.for_each(|more| outln!("  {:<16}{more}", ""));
}

fn devices(complaints: &mut Vec<String>) {
    outln!("Driver");
    let gpu = match Gpu::load() {
        Ok(gpu) => gpu,
        Err(why) => {
            line("libcuda.so.1", format!("not usable: {why}"));
            line("", ADVICE);
            outln!();
            complaints.push("there is no usable CUDA driver".to_owned());
            return;
        }
    };
    line("libcuda.so.1", if gpu.simulated() { "found: the simulated driver" } else { "found" });
    match gpu.version() {
        Ok(version) => line("version", format!("CUDA {}.{}", version / 1000, version % 1000 / 10)),
        Err(error) => complaints.push(error.to_string()),
    }
    let count = gpu.device_count().unwrap_or(0);
    line("devices", count.to_string());
    outln!();
    if count == 0 {
        complaints.push("the driver sees no device (is CUDA_VISIBLE_DEVICES set?)".to_owned());
    }
    for number in 0..count {
        if let Err(why) = device(&gpu, number) {
            line("trial", format!("FAILED: {why}"));
            complaints.push(format!("device {number}: {why}"));
        }
        outln!();
    }
}

const ADVICE: &str = "\
libcuda.so.1 comes with the NVIDIA driver: install it with the system's packages (on Debian and
Ubuntu nvidia-driver-NNN) or from nvidia.com/drivers; a container gets it from its host
(docker run --gpus all, with the NVIDIA Container Toolkit).
No GPU at hand? `cuddy demo` and `cuddy replay` run on a simulated device, and so does
`cuddy doctor --on sim`.";

fn device(gpu: &Gpu, number: u32) -> Result<(), String> {
    let said = |error: GpuError| error.to_string();
    let seen = gpu.device_facts(number).map_err(said)?;
    outln!("Device {number}: {}", seen.name);
    gpu.use_device(number).map_err(said)?;
    let (free, total) = gpu.memory().map_err(said)?;
    line("memory", format!("{}, {} of it free", bytes_text(total), bytes_text(free)));
    let facts = process::device_facts(number as i32).map_err(|error| error.to_string())?;
    let yes = |is: bool, since: &str| match is {
        true => "yes".to_owned(),
        false => format!("no (CUDA {since} has them)"),
    };
    line(
        "virtual memory",
        match facts.virtual_memory {
            true => format!("yes, granularity {}", bytes_text(facts.granularity)),
            false => "no: this device cannot map pages".to_owned(),
        },
    );
    line(
        "backing",
        match facts.page_bytes {
            0 => facts.backing.to_owned(),
            page => format!("{} of {}", facts.backing, bytes_text(page)),
        },
    );
    line("stream ids", yes(facts.stream_ids, "12.0"));
    line("context events", yes(facts.context_events, "12.5"));
    trial(gpu, number)?;
    line("trial", format!("{} allocated, written, read back and freed", bytes_text(TRIAL)));
    Ok(())
}

/// Uses a block of Cuddy's on a device for what it is there for.
fn trial(gpu: &Gpu, number: u32) -> Result<(), String> {
    let said = |error: GpuError| error.to_string();
    let mut library = CuddyLibrary::new(number);
    let mut workload = Workload::new(gpu, 1).map_err(said)?;
    let address = library.malloc(TRIAL, Stream::DEFAULT).map_err(|why| why.text)?;
    let region = Region { address, bytes: TRIAL, seed: 1 };
    workload.write(&region, Stream::DEFAULT).map_err(said)?;
    workload.check(&region, Stream::DEFAULT).map_err(said)?;
    gpu.synchronize().map_err(said)?;
    library.free(address).map_err(|why| why.text)?;
    library.empty_cache().map_err(|why| why.text)?;
    match workload.wrong_words().iter().sum::<u64>() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} words read back were not those written")),
    }
}

fn configuration(complaints: &mut Vec<String>) {
    outln!("Configuration");
    let mut table = Table::of_words(["option", "value", "from", "accepted"]);
    for option in process::options().unwrap_or_default() {
        let (name, accepted) = (option.row.name, option.row.kind.to_string());
        table.row([name.to_owned(), option.value, option.source.to_string(), accepted]);
    }
    out!("{}", table.text());
    for rejected in process::rejected_options().unwrap_or_default() {
        outln!("  left out: \"{}\": {}", rejected.entry, rejected.why);
        complaints
            .push(format!("CUDDY_CONF has an entry that was left out: \"{}\"", rejected.entry));
    }
    outln!();
}
