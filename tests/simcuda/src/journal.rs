//! The **journal**: what a process did with the simulated driver, as lines of JSON in a file that many
//! processes may share.
//!
//! A line each: `begin` at `cuInit`, `finding` when the checker finds something, `end` when the
//! process exits (or `simcuda_reset`). Each is one write at the end of the file, so lines of several
//! processes never mix, and a process that is killed leaves what it had found. Whoever has a `begin`
//! and no `end` was killed, left by `_exit`, became another program, or still runs.

use crate::call::Call;
use crate::checker::{Mode, Report};
use std::fmt::Write;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

/// The end of the name of a report file that is a journal.
pub const EXTENSION: &str = ".jsonl";

/// The journal in use; empty: none.
static FILE: Mutex<String> = Mutex::new(String::new());

/// The first line of a process, if a journal is asked for.
pub fn begin(call: &mut Call) {
    let file = match call.config.report.ends_with(EXTENSION) {
        true => call.config.report.clone(),
        false => String::new(),
    };
    let wanted = !file.is_empty();
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = file;
    call.engine.checker().set_told(wanted.then_some(finding as fn(&Report)));
    if wanted {
        let checker = mode_text(call.engine.checker_ref().mode());
        write("begin", &format!("\"program\":{},\"checker\":\"{checker}\"", quoted(&program())));
    }
}

fn finding(report: &Report) {
    write("finding", &format!("\"text\":{}", quoted(&report.to_string())));
}

/// The last line: all counts, and the findings that were not cleared.
pub fn end(call: &mut Call) {
    if !call.started || !call.config.report.ends_with(EXTENSION) {
        return;
    }
    let checker = call.engine.checker_ref();
    let texts = list(checker.reports().iter().map(|report| quoted(&report.to_string())));
    let calls =
        list(call.books.called().iter().map(|f| format!("[{},{}]", quoted(f.name), f.calls)));
    let devices = list(
        call.memory
            .budgets
            .iter()
            .map(|b| format!("{{\"total\":{},\"used\":{},\"peak\":{}}}", b.total, b.used, b.peak)),
    );
    let fields = format!(
        "\"checker\":\"{}\",\"findings\":{texts},\"left_out\":{},\"accesses\":{},\"unknown_launches\":{},\
         \"time_ns\":{},\"driver_ns\":{},\"faults\":{},\"calls\":{calls},\"devices\":{devices}",
        mode_text(checker.mode()),
        checker.overflowed(),
        checker.accesses_checked(),
        checker.unknown_launches(),
        call.engine.now_ns(),
        call.books.driver_ns,
        call.faults.fired,
    );
    write("end", &fields);
}

/// The word for a mode.
pub fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Off => "off",
        Mode::Log => "log",
        Mode::Abort => "abort",
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// Adds a line; a file that cannot be written to is said once.
fn write(event: &str, fields: &str) {
    static SAID: std::sync::Once = std::sync::Once::new();
    let file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let line = format!("{{\"process\":{},\"event\":\"{event}\",{fields}}}\n", std::process::id());
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(&*file);
    if let Err(why) = opened.and_then(|mut opened| opened.write_all(line.as_bytes())) {
        SAID.call_once(|| eprintln!("simcuda: SIMCUDA_REPORT={file}: {why}"));
    }
}

/// The command line of this process, cut short.
fn program() -> String {
    const MOST: usize = 200;
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<_> = bytes.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    let text = words.join(" ").trim_end().to_owned();
    match text.char_indices().nth(MOST) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\c\nd\u{1}e\u{e9}"), "\"a\\\"b\\\\c\\nd\\u0001e\u{e9}\"");
    }
}
