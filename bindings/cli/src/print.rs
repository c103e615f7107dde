//! Reports, printed: for programs as JSON, for people as a table.

use crate::report::Report;
use crate::table::{Table, bytes_text, count_text, time_text};
use crate::{out, outln};

/// One object, one line.
pub fn json(report: &Report) -> Result<(), String> {
    let plain = Report { summary: None, ..report.clone() };
    let line = serde_json::to_string(&plain).map_err(|error| error.to_string())?;
    outln!("{line}");
    Ok(())
}

/// All of them: one trace in detail, several as a table.
pub fn reports(reports: &[Report]) {
    match reports {
        [one] => detail(one),
        several => overview(several),
    }
}

/// `on Simulated GPU 0 (simcuda), 80.00 GiB, eager; served by cuddy`
pub fn setting(report: &Report) -> String {
    let schedule = report.schedule.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
    let backing = report.backing.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    let memory = bytes_text(report.device_memory);
    format!("on {}, {memory}{schedule}; served by {}{backing}", report.device, report.allocator)
}

fn detail(report: &Report) {
    outln!("{}: {} events {}\n", report.trace, count_text(report.events), setting(report));
    let mut table = Table::new(["memory", "bytes", ""]);
    let mut size =
        |name: &str, bytes: u64| table.row([name.to_owned(), count_text(bytes), bytes_text(bytes)]);
    size("peak requested", report.peak_requested);
    size("peak allocated", report.peak_allocated);
    size("peak reserved", report.peak_reserved);
    if let Some(bytes) = report.fit_bytes {
        size("smallest device", bytes);
    }
    let ratio = |value: f64| [String::new(), format!("{value:.4}")];
    table.row(
        [vec!["reserved / allocated".to_owned()], ratio(report.reserved_over_allocated).to_vec()]
            .concat(),
    );
    if let Some(fit) = report.fit_ratio {
        table.row([vec!["smallest device / allocated".to_owned()], ratio(fit).to_vec()].concat());
    }
    outln!("{}", table.text());
    if let Some(verdict) = &report.would_fit {
        outln!("  The request that found no memory would have fitted {verdict}.\n");
    }

    let mut table = Table::new(["driver calls of the allocator", "calls"]);
    for (function, calls) in &report.driver_calls {
        table.row([function.clone(), count_text(*calls)]);
    }
    table.row(["all".to_owned(), count_text(report.driver_calls_total())]);
    if let Some(calls) = report.steady_state_driver_calls {
        table.row(["of them in the steady state".to_owned(), count_text(calls)]);
    }
    outln!("{}", table.text());

    outln!("  driver time   {} ({})", time_text(report.driver_time_us * 1e3), kind_of_time(report));
    outln!(
        "  host time     {} a call, measured over {} calls",
        time_text(report.ns_per_op),
        count_text(report.operations)
    );
    outln!("  checks        {}", checks(report));
    outln!("  replay        {:.1} s", report.seconds);
    remarks(report);
}

fn overview(reports: &[Report]) {
    let fit = reports.iter().any(|report| report.fit_ratio.is_some());
    let mut heads = vec!["trace", "events", "allocated", "reserved", "ratio"];
    if fit {
        heads.extend(["smallest device", "ratio"]);
    }
    heads.extend(["driver calls", "steady", "driver time", "a call", "checks"]);
    let mut table = Table::new(heads);
    for report in reports {
        let mut cells = vec![
            report.trace.clone(),
            count_text(report.events),
            bytes_text(report.peak_allocated),
            bytes_text(report.peak_reserved),
            format!("{:.4}", report.reserved_over_allocated),
        ];
        if fit {
            cells.push(report.fit_bytes.map_or_else(|| "-".into(), bytes_text));
            cells.push(report.fit_ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}")));
        }
        cells.extend([
            count_text(report.driver_calls_total()),
            report.steady_state_driver_calls.map_or_else(|| "-".into(), count_text),
            time_text(report.driver_time_us * 1e3),
            time_text(report.ns_per_op),
            verdict(report).to_owned(),
        ]);
        table.row(cells);
    }
    if let Some(first) = reports.first() {
        outln!(
            "{} traces {}; driver time is {}\n",
            reports.len(),
            setting(first),
            kind_of_time(first)
        );
    }
    out!("{}", table.text());
    for report in reports {
        remarks(report);
    }
    let clean = reports.iter().filter(|report| report.clean()).count();
    outln!("\n  {clean} of {} traces completed with nothing wrong.", reports.len());
}

/// `virtual` or `measured`.
pub fn kind_of_time(report: &Report) -> &'static str {
    if report.simulated { "virtual" } else { "measured" }
}

fn verdict(report: &Report) -> &'static str {
    match report {
        _ if !report.sound() => "WRONG",
        _ if !report.completed => "stopped",
        _ => "clean",
    }
}

fn checks(report: &Report) -> String {
    let mut parts = Vec::new();
    match (report.checker_reports, report.accesses_checked) {
        (Some(reports), Some(accesses)) => {
            parts.push(format!("{} accesses, {reports} reported", count_text(accesses)));
            match report.unknown_launches {
                None | Some(0) => {}
                Some(unknown) => parts.push(format!("{unknown} launches of unknown accesses")),
            }
        }
        _ => parts.push("no checker on a GPU".to_owned()),
    }
    let read = bytes_text(report.bytes_read_back);
    parts.push(format!("{read} of patterns read back, {} blocks corrupt", report.corrupt_blocks));
    if report.misplaced_blocks > 0 {
        parts.push(format!("{} blocks MISPLACED", report.misplaced_blocks));
    }
    match report.wrong_counters.len() {
        // Bare driver calls keep no counters.
        0 if report.allocator == "cuddy" => parts.push("counters agree".to_owned()),
        0 => {}
        wrong => parts.push(format!("{wrong} counters WRONG")),
    }
    parts.join("; ")
}

/// What cannot be said in a table.
fn remarks(report: &Report) {
    let mut lines: Vec<String> = report.notes.clone();
    lines.extend(report.error.iter().map(|error| format!("stopped at {error}")));
    lines.extend(report.findings.iter().cloned());
    lines.extend(report.wrong_counters.iter().cloned());
    if !lines.is_empty() {
        outln!("\n  {}:", report.trace);
    }
    for line in lines.iter().flat_map(|text| text.lines()) {
        outln!("    {line}");
    }
}
