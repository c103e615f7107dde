//! The **report** of a run: what was served from the cache, and what that saved.

use std::fmt::Write as _;
use std::io::Write as _;

use super::RunArgs;
use super::journal::{End, Process};
use crate::simulate::wait::Status;
use crate::table::{bytes_text, count_text, time_text};

/// Prints the report, or writes it to the file that was named.
pub fn say(args: &RunArgs, processes: &[Process], status: Status) -> Result<(), String> {
    let Some(file) = &args.report else {
        // A stderr that cannot be written to is no reason to fail.
        let _ = std::io::stderr().write_all(text(args, processes, status).as_bytes());
        return Ok(());
    };
    let text = match file.extension().is_some_and(|it| it == "jsonl") {
        true => {
            let ends = processes.iter().filter_map(|process| process.end.as_ref());
            let lines: Result<Vec<_>, _> = ends.map(serde_json::to_string).collect();
            let lines = lines.map_err(|error| error.to_string())?;
            lines.iter().map(|line| format!("{line}\n")).collect()
        }
        false => text(args, processes, status),
    };
    std::fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn text(args: &RunArgs, processes: &[Process], status: Status) -> String {
    let ends: Vec<&End> = processes.iter().filter_map(|process| process.end.as_ref()).collect();
    let mut text = String::new();
    let mut say = |what: &str, how: String| {
        let _ = writeln!(text, "  {what:<12}{how}");
    };
    let all = |of: fn(&End) -> u64| ends.iter().map(|end| of(end)).sum::<u64>();
    let most = |of: fn(&End) -> u64| ends.iter().map(|end| of(end)).max().unwrap_or(0);
    let counts = |of: fn(&End) -> u64| count_text(all(of));
    let (hits, misses) = (all(|end| end.hits), all(|end| end.misses));
    if hits + misses > 0 {
        let asked = format!("{} allocations", count_text(hits + misses));
        say(
            "driver",
            format!(
                "{}, {} and {} for {asked} and {}",
                some(all(|end| end.alloc_calls), "allocation"),
                some(all(|end| end.free_calls), "free"),
                some(all(|end| end.wait_calls), "wait"),
                some(all(|end| end.kept + end.tainted + end.too_large), "free"),
            ),
        );
        say("time", saved(&ends));
        let each = if ends.len() > 1 { " (the largest of each process)" } else { "" };
        say(
            "peak",
            format!(
                "{} asked for, {} held from the driver, {} of it kept{each}",
                bytes_text(most(|end| end.live_peak)),
                bytes_text(most(|end| end.held_peak)),
                bytes_text(most(|end| end.cached_peak)),
            ),
        );
    }
    let passed: [(u64, &str); 8] = [
        (
            all(|end| end.passed_allocs),
            "allocations of other kinds (stream-ordered, managed, virtual, arrays)",
        ),
        (all(|end| end.foreign_frees), "frees of memory that is not cuMemAlloc's"),
        (all(|end| end.tainted), "frees of exported memory, or with attributes set"),
        (all(|end| end.too_large), "frees of blocks above the cap"),
        (all(|end| end.evicted), "kept blocks given back"),
        (all(|end| end.captured_frees), "frees while a graph was captured, kept aside"),
        (all(|end| end.failed_frees), "frees for which the device could not be waited for"),
        (all(|end| end.rescues), "allocations that fitted once the cache was given back"),
    ];
    for (at, (count, what)) in passed.iter().filter(|(count, _)| *count > 0).enumerate() {
        say(if at == 0 { "passed on" } else { "" }, format!("{} {what}", count_text(*count)));
    }
    let doors: [(u64, String); 5] = [
        (
            all(|end| end.lookup_2),
            format!("cuGetProcAddress_v2 ({} functions)", counts(|e| e.lookup_2)),
        ),
        (
            all(|end| end.lookup_1),
            format!("cuGetProcAddress ({} functions)", counts(|e| e.lookup_1)),
        ),
        (all(|end| end.dlsym), format!("dlsym ({} functions)", counts(|e| e.dlsym))),
        (all(|end| end.symbols), "linked symbols".to_owned()),
        (
            all(|end| end.runtime_calls),
            format!("the runtime's symbols ({} calls)", counts(|e| e.runtime_calls)),
        ),
    ];
    let doors: Vec<_> =
        doors.into_iter().filter(|(count, _)| *count > 0).map(|(_, door)| door).collect();
    if !doors.is_empty() {
        say("doors", doors.join(", "));
    }
    for process in processes.iter().filter(|process| process.end.is_none()) {
        say(
            "not seen",
            format!("`{}` was killed, or left by _exit: it is not in these figures", process.name),
        );
    }
    format!("cuddy run: {}\n{text}", headline(args, processes, (hits, misses), status))
}

fn some(count: u64, what: &str) -> String {
    format!("{} {what}{}", count_text(count), if count == 1 { "" } else { "s" })
}

fn headline(args: &RunArgs, processes: &[Process], served: (u64, u64), status: Status) -> String {
    let (hits, misses) = served;
    let ended = match status.code() {
        0 => String::new(),
        _ => format!("; the program ended with {}", status.text()),
    };
    let what = if args.mode == super::Mode::Off {
        "mode off, every call was the driver's".to_owned()
    } else if processes.is_empty() {
        "no process allocated device memory by a way that was seen (`cuddy doctor -- PROGRAM` may say why)"
            .to_owned()
    } else if hits + misses == 0 {
        "no allocation was seen to the end of its process".to_owned()
    } else {
        let share = 100.0 * hits as f64 / (hits + misses) as f64;
        let many = match processes.len() {
            1 => String::new(),
            many => format!(", {many} processes"),
        };
        format!(
            "{} of {} allocations served from kept memory ({share:.1} %), mode {}{many}",
            count_text(hits),
            count_text(hits + misses),
            args.mode.name(),
        )
    };
    format!("{what}{ended}")
}

/// What the calls would have cost that were not made, by the mean of those that were.
fn saved(ends: &[&End]) -> String {
    let (mut allocating, mut freeing, mut waiting) = (0.0, 0.0, 0.0);
    let mut unknown = false;
    for end in ends {
        let mean = |ns: u64, calls: u64| (calls > 0).then(|| ns as f64 / calls as f64);
        allocating += mean(end.alloc_ns, end.alloc_calls).unwrap_or(0.0) * end.hits as f64;
        match mean(end.free_ns, end.free_calls) {
            Some(mean) => freeing += mean * end.kept as f64,
            None => unknown |= end.kept > 0,
        }
        waiting += end.wait_ns as f64;
    }
    let clock = match ends.iter().all(|end| end.simulated) {
        true => "virtual time of the simulated driver",
        false => "measured",
    };
    let freeing = match (freeing > 0.0, unknown) {
        (true, _) => format!(" and about {} of freeing", time_text(freeing)),
        (false, true) => " (no free was made to measure one by)".to_owned(),
        (false, false) => String::new(),
    };
    let waited = match waiting > 0.0 {
        true => format!("; {} waited for the device in frees", time_text(waiting)),
        false => String::new(),
    };
    format!("about {} of allocating{freeing} saved{waited} ({clock})", time_text(allocating))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_saved_is_the_mean_of_what_was_made_times_what_was_not() {
        let end = End { hits: 100, kept: 50, alloc_calls: 2, alloc_ns: 20_000, ..End::default() };
        assert_eq!(
            saved(&[&end]),
            "about 1.00 ms of allocating (no free was made to measure one by) saved (measured)"
        );
        let end = End { free_calls: 1, free_ns: 1000, wait_ns: 5000, simulated: true, ..end };
        assert_eq!(
            saved(&[&end]),
            "about 1.00 ms of allocating and about 50.00 us of freeing saved; 5.00 us waited for the \
             device in frees (virtual time of the simulated driver)"
        );
    }
}
