//! `cuddy replay`: one child a trace, and what came of them.

use indicatif::ProgressBar;

use crate::cli::{Outcome, ReplayArgs};
use crate::job::{Job, Source, Target, Who};
use crate::report::Report;
use crate::table::{Table, bytes_text, count_text};
use crate::trace::{Short, Trace};
use crate::would_fit::{self, Again};
use crate::{child, find, fit, machine, print, selftest};
use crate::{out, outln};

/// Does what `cuddy replay` was asked.
pub fn replay(args: &ReplayArgs) -> Result<Outcome, String> {
    if args.list {
        return list();
    }
    if args.backing.is_some() && args.allocator != Who::Cuddy {
        return Err("--backing is a choice of Cuddy's: it goes with --allocator cuddy".to_owned());
    }
    // Found before any is replayed: a wrong name at the end should not cost the work before it.
    let sources: Vec<Source> =
        args.traces.iter().map(|word| find::find(word)).collect::<Result<_, _>>()?;
    let target = machine::choose(args.on)?;
    let job = |source: Source| Job {
        source,
        who: args.allocator,
        backing: args.backing,
        share: None,
        target,
        device_memory: args.device_memory,
        schedule: args.schedule,
        sabotage: None,
        progress: true,
    };
    if args.self_test {
        let sources = if sources.is_empty() { vec![selftest::default_source()] } else { sources };
        return self_test(sources.into_iter().map(job));
    }
    let mut outcome = Outcome::Well;
    let mut failed = false;
    let mut reports = Vec::new();
    for source in sources {
        let job = job(source);
        match if args.fit { fit_of(&job) } else { child::run(&job) } {
            Ok(report) => {
                if !report.clean() {
                    outcome = Outcome::Wrong;
                }
                if args.json {
                    print::json(&report)?;
                } else {
                    reports.push(report);
                }
            }
            Err(error) if args.traces.len() == 1 => return Err(error),
            Err(error) => {
                eprintln!("cuddy: {error}");
                failed = true;
            }
        }
    }
    if !args.json && !reports.is_empty() {
        print::reports(&reports);
    }
    if failed {
        return Err("some traces could not be replayed, see above".to_owned());
    }
    Ok(outcome)
}

fn fit_of(job: &Job) -> Result<Report, String> {
    let trace = job.source.open().map_err(|error| format!("{}: {error}", job.source.label()))?;
    let device_memory = (job.target == Target::Sim).then(|| unhurried_memory(&trace));
    let job = &Job { device_memory, ..job.clone() };
    let unhurried = child::run(job)?;
    if !unhurried.clean() {
        return Ok(unhurried);
    }
    let bar = ProgressBar::new_spinner();
    let name = unhurried.trace.clone();
    let replay =
        |bytes| child::run(&Job { device_memory: Some(bytes), progress: false, ..job.clone() });
    let say = |short, enough| {
        let (short, enough) = (bytes_text(short), bytes_text(enough));
        bar.set_message(format!("{name}: the smallest device is above {short}, at most {enough}"));
        bar.tick();
    };
    let fit = fit::find(unhurried.clone(), replay, say)?;
    bar.finish_and_clear();
    if !fit.report.sound() {
        return Ok(fit.report);
    }
    let ratio = fit.bytes as f64 / unhurried.peak_allocated.max(1) as f64;
    let would_fit = trace.short.map(|short| would_fit(&short, fit.bytes, job)).transpose()?;
    Ok(Report { fit_ratio: Some(ratio), fit_bytes: Some(fit.bytes), would_fit, ..unhurried })
}

/// Memory with room to spare for a trace.
fn unhurried_memory(trace: &Trace) -> u64 {
    let needs = trace.ideal().allocated;
    machine::DEFAULT_MEMORY.max((needs + needs / 10).next_multiple_of(1 << 30))
}

/// What would have let a program's last request fit.
fn would_fit(short: &Short, fit: u64, job: &Job) -> Result<String, String> {
    let completes = |share: Option<&String>| {
        let share = share.cloned();
        // Less than a page serves nothing.
        let device_memory = short.shortage.memory().filter(|bytes| *bytes >= 2 << 20);
        let Some(memory) = device_memory else { return Ok(false) };
        let again = Job { device_memory: Some(memory), share, progress: false, ..job.clone() };
        child::run(&again).map(|report| report.completed)
    };
    let shared = completes(None)?;
    let as_it_was = match short.options.get("share") {
        Some(share) if share != "wait" => completes(Some(share))?,
        _ => shared,
    };
    Ok(would_fit::verdict(short, fit, Again { shared, as_it_was }))
}

fn self_test(jobs: impl Iterator<Item = Job>) -> Result<Outcome, String> {
    let mut outcome = Outcome::Well;
    for job in jobs {
        outln!("Self-test on {}: each mistake must be reported.", job.source.label());
        for row in selftest::run(&job)? {
            let verdict = if row.as_it_should { "ok    " } else { "MISSED" };
            outln!("\n  {verdict}  {}", row.mistake);
            for line in row.reported.lines() {
                outln!("          {line}");
            }
            if !row.as_it_should {
                outcome = Outcome::Wrong;
            }
        }
        outln!();
    }
    match outcome {
        Outcome::Well => outln!("All three mistakes were reported, and nothing without one."),
        _ => outln!("Not every mistake was reported as it should be."),
    }
    Ok(outcome)
}

fn list() -> Result<Outcome, String> {
    let mut table = Table::new(["trace", "events", "streams", "peak of live blocks"]);
    for source in find::all() {
        let name = source.short_name();
        match source.open() {
            Ok(trace) => table.row([
                name,
                count_text(trace.events.len() as u64),
                trace.streams.to_string(),
                bytes_text(trace.ideal().allocated),
            ]),
            Err(error) => eprintln!("cuddy: {}: {error}", source.label()),
        }
    }
    out!("{}", table.text());
    for folder in find::folders() {
        outln!("  from {}", folder.display());
    }
    outln!("  and from the program itself; ${} names another folder", find::VARIABLE);
    Ok(Outcome::Well)
}
