//! `cuddy top`: a running process's memory, live in the terminal.
//!
//! The process writes its counters to a file (CUDDY_EXPORT, `cuddy_export_metrics()`); this reads it as
//! often as asked, and shows it. It touches neither the process nor a device.

mod sample;
mod view;

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};

use self::sample::Sample;
use self::view::View;
use crate::cli::{Outcome, TopArgs};
use crate::outln;

/// Columns and rows of a page that is printed.
const PAGE: (u16, u16) = (100, 30);
/// A file that has not been written for so long is stale.
const STALE: Duration = Duration::from_secs(5);

/// Does what `cuddy top` was asked.
pub fn run(args: &TopArgs) -> Result<Outcome, String> {
    let path = file_of(&args.target);
    let (first, written) = read(&path)?;
    let mut view = View::new(format!("cuddy top {}", args.target), first);
    view.warning = warning(written);
    if args.once || !io::stdout().is_terminal() {
        return print(&view);
    }
    let mut terminal = ratatui::init();
    let every = Duration::from_millis(args.interval_ms);
    let ended = follow(&mut terminal, &mut view, (&path, written), every);
    ratatui::restore();
    ended.map(|()| Outcome::Well)
}

/// The file that a word names: a process's number is that of its own export.
fn file_of(target: &str) -> PathBuf {
    match target.parse::<u32>() {
        Ok(process) => PathBuf::from(format!("/dev/shm/cuddy-{process}.prom")),
        Err(_) => PathBuf::from(target),
    }
}

/// What the file says, and when it was written.
fn read(path: &Path) -> Result<(Sample, SystemTime), String> {
    let name = path.display();
    // Time and text are those of one file, though another one takes its place meanwhile.
    let whole = File::open(path).and_then(|mut file| {
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok((text, file.metadata()?.modified()?))
    });
    let (text, written) = whole.map_err(|error| {
        format!("{name}: {error}; a program writes it if it is started with CUDDY_EXPORT=on, or CUDDY_EXPORT=FILE")
    })?;
    let sample = Sample::parse(&text).map_err(|why| format!("{name}: {why}"))?;
    Ok((sample, written))
}

/// What to say of a file that nobody writes any more.
fn warning(written: SystemTime) -> Option<String> {
    let age = SystemTime::now().duration_since(written).ok()?;
    (age > STALE).then(|| format!("not written for {} s: has the process ended?", age.as_secs()))
}

/// Prints one page.
fn print(view: &View) -> Result<Outcome, String> {
    let mut terminal =
        Terminal::new(TestBackend::new(PAGE.0, PAGE.1)).map_err(|error| error.to_string())?;
    terminal.draw(|frame| view.draw(frame)).map_err(|error| error.to_string())?;
    let buffer = terminal.backend().buffer();
    for row in 0..PAGE.1 {
        let line: String = (0..PAGE.0).map(|column| buffer[(column, row)].symbol()).collect();
        outln!("{}", line.trim_end());
    }
    Ok(Outcome::Well)
}

/// Shows the file anew until the user has seen enough.
fn follow(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    (path, mut written): (&Path, SystemTime),
    every: Duration,
) -> Result<(), String> {
    let mut taken = Instant::now();
    loop {
        terminal.draw(|frame| view.draw(frame)).map_err(|error| error.to_string())?;
        if wants_to_quit(every.saturating_sub(taken.elapsed()))? {
            return Ok(());
        }
        if taken.elapsed() >= every {
            match read(path) {
                Ok((sample, now)) => {
                    // Looked at more often than it is written, it says nothing new.
                    if let Ok(passed) = now.duration_since(written)
                        && !passed.is_zero()
                    {
                        view.next(sample, passed.as_secs_f64());
                    }
                    written = now;
                    view.warning = warning(written);
                }
                Err(why) => view.warning = Some(why),
            }
            taken = Instant::now();
        }
    }
}

/// Waits for a key or a new size, at most so long; whether the key quits.
fn wants_to_quit(wait: Duration) -> Result<bool, String> {
    let said = |error: io::Error| error.to_string();
    if !event::poll(wait).map_err(said)? {
        return Ok(false);
    }
    Ok(match event::read().map_err(said)? {
        Event::Key(key) => {
            let interrupt =
                key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c');
            interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
        }
        _ => false,
    })
}
