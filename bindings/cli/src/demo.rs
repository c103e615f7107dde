//! `cuddy demo`: the training of a real model, served three times.

use crate::bundled::{self, Bundled};
use crate::child;
use crate::cli::Outcome;
use crate::job::{Job, Schedule, Source, Target, Who};
use crate::machine;
use crate::print::kind_of_time;
use crate::report::Report;
use crate::table::{Table, bytes_text, count_text, time_text};
use crate::{out, outln};

/// Runs it and prints one table.
pub fn run(on: Target) -> Result<Outcome, String> {
    let target = machine::choose(on)?;
    let (device, memory) = device(target)?;
    outln!("{device}");
    let chosen = bundled::largest_within(memory / 5 * 4).map_err(|error| error.to_string())?;
    let Some(chosen) = chosen else {
        let need = bytes_text(6 << 30);
        return Err(format!(
            "the smallest bundled trace needs a device with about {need} free; `cuddy demo --on sim` needs none"
        ));
    };
    let ideal = chosen.trace.ideal();
    outln!(
        "{}: {} calls, {} live at the peak.\n",
        chosen.what,
        count_text(chosen.trace.operations()),
        bytes_text(ideal.allocated)
    );
    let driver = child::run(&job(&chosen, Who::Driver, target))?;
    let pool = child::run(&job(&chosen, Who::DriverAsync, target))?;
    let cuddy = child::run(&job(&chosen, Who::Cuddy, target))?;
    out!("{}", table([&driver, &pool, &cuddy]));
    outln!("\n  {}\n", explanation(&cuddy));
    if let Some(summary) = &cuddy.summary {
        outln!("{}", summary.trim_end());
    }
    let all = [&driver, &pool, &cuddy];
    all.iter().for_each(|report| complain(report));
    Ok(if all.iter().all(|report| report.clean()) { Outcome::Well } else { Outcome::Wrong })
}

/// What the demo runs on, and how much memory is free there.
fn device(target: Target) -> Result<(String, u64), String> {
    if target == Target::Sim {
        let memory = machine::DEFAULT_MEMORY;
        return Ok((
            format!(
                "No GPU is used: this runs on a simulated one of {} (simcuda).",
                bytes_text(memory)
            ),
            memory,
        ));
    }
    let gpu = machine::real_gpu()?;
    let said = |error: crate::gpu::GpuError| error.to_string();
    let facts = gpu.device_facts(0).map_err(said)?;
    gpu.use_device(0).map_err(said)?;
    let (free, total) = gpu.memory().map_err(said)?;
    let (free_text, total_text) = (bytes_text(free), bytes_text(total));
    Ok((format!("On {}, {free_text} of {total_text} free.", facts.name), free))
}

fn job(chosen: &Bundled, who: Who, target: Target) -> Job {
    Job {
        source: Source::Bundled(chosen.name.to_owned()),
        who,
        backing: None,
        share: None,
        target,
        device_memory: None,
        schedule: Schedule::Eager,
        sabotage: None,
        progress: true,
    }
}

fn table(all: [&Report; 3]) -> String {
    let mut table = Table::new(["", "bare driver calls", "the driver's pool", "Cuddy"]);
    let mut row = |name: &str, of: &dyn Fn(&Report) -> String| {
        let [driver, pool, cuddy] = all.map(of);
        table.row([name.to_owned(), driver, pool, cuddy]);
    };
    const LATER: &str = "  from the third step on";
    row("driver calls", &|report| count_text(report.driver_calls_total()));
    row(LATER, &|report| report.steady_state_driver_calls.map_or_else(|| "-".into(), count_text));
    let name = format!("driver time ({})", kind_of_time(all[2]));
    row(&name, &|report| time_text(report.driver_time_us * 1e3));
    row(LATER, &|report| {
        let time = report.steady_state_driver_time_us;
        time.map_or_else(|| "-".into(), |us| time_text(us * 1e3))
    });
    row("host time a call (measured)", &|report| time_text(report.ns_per_op));
    row("peak allocated", &|report| bytes_text(report.peak_allocated));
    row("peak reserved", &|report| bytes_text(report.peak_reserved));
    row("reserved / allocated", &|report| format!("{:.4}", report.reserved_over_allocated));
    table.text()
}

fn explanation(cuddy: &Report) -> String {
    let time = if cuddy.simulated {
        "Virtual driver time is what the calls would cost, from published measurements on an A100;\n  \
         measured host time has the simulator's own work in it. The driver's pool (cuMemAllocAsync) is\n  \
         the simulator's model of it: where the vendor's places blocks is not known."
    } else {
        "Driver time is that of the allocator calls that reached the driver."
    };
    match (cuddy.clean(), cuddy.accesses_checked) {
        (false, _) => format!("{time} Something is WRONG, see below."),
        (true, Some(accesses)) => format!(
            "{time}\n  Every block was written and read back: no byte was wrong, and of {} accesses none\n  \
             was unordered.",
            count_text(accesses)
        ),
        (true, None) => {
            format!("{time}\n  Every block was written and read back: no byte was wrong.")
        }
    }
}

fn complain(report: &Report) {
    let mut lines =
        report.error.iter().chain(&report.findings).chain(&report.wrong_counters).peekable();
    if lines.peek().is_some() {
        eprintln!("cuddy: with {}:", report.allocator);
    }
    for line in lines {
        eprintln!("  {line}");
    }
}
