//! The **journal**: what a process did with the simulated driver, as lines of JSON in a file that many
//! processes may share.
//!
//! A line each: `begin` at `cuInit`, `finding` when the checker finds something, `end` when the
//! process exits (or `simcuda_reset`); and where it does not get so far, `refused` when `cuInit` fails,
//! `proof` when somebody asks for private tables of the vendor's driver. Each is one write at the end of the file, so lines of several
//! processes never mix, and a process that is killed leaves what it had found. Whoever has a `begin`
//! and no `end` was killed, left by `_exit`, became another program, or still runs.

use crate::call::Call;
use crate::checker::{Mode, Report};
use crate::host_touch::{self, Fixed};
use crate::types::Code;
use std::fmt::{self, Write};
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

/// Before `cuInit` succeeds the environment alone says where the journal is.
fn write_early(event: &str, fields: &str) {
    let asked = std::env::var("SIMCUDA_REPORT").ok().filter(|file| file.ends_with(EXTENSION));
    if let Some(asked) = asked {
        let mut file = FILE.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_empty() {
            *file = asked;
        }
        drop(file);
        write(event, fields);
    }
}

/// `cuInit` failed: with which code, and why if the simulator knows.
pub fn refused(code: Code, why: &str) {
    let name = crate::api::error_names::row(code).and_then(|row| row.1.to_str().ok());
    let why = format!("{} {why}", name.unwrap_or("an unknown error"));
    let fields = format!("\"program\":{},\"why\":{}", quoted(&program()), quoted(why.trim()));
    write_early("refused", &fields);
}

/// A file of this process asked for private tables of the vendor's driver.
pub fn proof(file: &str) {
    write_early("proof", &format!("\"program\":{},\"file\":{}", quoted(&program()), quoted(file)));
}

fn finding(report: &Report) {
    write("finding", &format!("\"text\":{}", quoted(&report.to_string())));
}

/// The same in a signal's handler: no waiting, no memory. False if there is no journal.
pub fn finding_in_handler(text: &str) -> bool {
    let Ok(file) = FILE.try_lock() else { return false };
    let (mut path, mut line) = ([0; 4096], [0; 4096]);
    let mut path = Fixed { bytes: &mut path, length: 0 };
    let mut line = Fixed { bytes: &mut line, length: 0 };
    let process = std::process::id();
    let written = write!(path, "{file}\0").and_then(|()| {
        let text = Quoted(text);
        writeln!(line, "{{\"process\":{process},\"event\":\"finding\",\"text\":{text}}}")
    });
    if file.is_empty() || written.is_err() {
        return false;
    }
    // SAFETY: the path ends with a zero, and the line's buffer holds so many bytes.
    unsafe {
        let fd = libc::open(
            path.bytes.as_ptr().cast(),
            libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC,
        );
        let count = libc::write(fd, line.bytes.as_ptr().cast(), line.length);
        libc::close(fd);
        count == line.length as isize
    }
}

/// The last line: all counts, and the findings that were not cleared.
pub fn end(call: &mut Call) {
    if !call.started || !call.config.report.ends_with(EXTENSION) {
        return;
    }
    let checker = call.engine.checker_ref();
    let told = host_touch::told().map(quoted);
    let texts = checker.reports().iter().map(|report| quoted(&report.to_string())).chain(told);
    let texts = list(texts);
    let unknown = crate::report::unknown(call);
    let unknown = list(unknown.iter().map(|(name, count)| format!("[{},{count}]", quoted(name))));
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
         \"unknown\":{unknown},\"time_ns\":{},\"driver_ns\":{},\"faults\":{},\"calls\":{calls},\"devices\":{devices}",
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
    Quoted(text).to_string()
}

struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a\"b\\c\nd\u{1}e\u{e9}"), "\"a\\\"b\\\\c\\nd\\u0001e\u{e9}\"");
    }
}
