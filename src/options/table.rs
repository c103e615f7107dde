#![forbid(unsafe_code)]
//! The table of options, and how a row's value is read and written.
//!
//! `read(write(value)) == value` for every row and every value in its range.

use std::fmt;

use super::text::{Bytes, Printable, bytes_of};
use crate::error::sentence;

/// How device memory is got from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pages where the device supports them, else segments.
    Auto,
    /// Physical pages, mapped into one large range of addresses (the driver's VMM functions).
    Pages,
    /// Whole segments from `cuMemAlloc`.
    Segments,
}

/// What is known about the raw stream handles that callers pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamTrust {
    /// A stream may be destroyed at any time; its handle is used only inside the call it came with.
    Checked,
    /// The program destroys no stream: a handle stays usable after the call.
    Trusted,
}

/// How free memory may go from one stream to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Once its last use is over; where memory is short also at once, behind a stream wait.
    Wait,
    /// Once its last use is over.
    Passed,
    /// Not at all, but by way of the driver's pages.
    Never,
}

/// The value of every option; [`Options::DEFAULT`] has the defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How device memory is got from the driver.
    pub backing: Backing,
    /// The most that may be reserved on a device, in bytes; [`Options::NO_LIMIT`] for no limit.
    pub memory_limit: u64,
    /// The most that may be reserved on a device, as a share of its memory: above 0, up to 1.
    pub memory_fraction: f64,
    /// Whether freed memory is kept for reuse.
    pub caching: bool,
    /// What is known about raw stream handles.
    pub streams: StreamTrust,
    /// Addresses reserved for a device, in bytes; [`Options::AUTO`] for a size made from its memory.
    pub address_range: u64,
    /// Bytes of a segment that serves requests of at most half of it.
    pub segment_small: u64,
    /// Bytes of a segment that serves larger requests below half of it.
    pub segment_large: u64,
    /// How free memory may go from one stream to another.
    pub share: Sharing,
    /// How far reserved memory may grow beyond the peak of what was active, as a share of it, before
    /// a stream is made to wait for another one's memory.
    pub share_growth: f64,
    /// The longest that a request waits for memory, in milliseconds; [`Options::NO_LIMIT`] for as
    /// long as it takes.
    pub wait_ms: u64,
    /// How long memory has to be unneeded before it is given back, in milliseconds;
    /// [`Options::NO_LIMIT`] for never.
    pub decay_ms: u64,
    /// Memory decays only while more than this percentage of what is reserved is unneeded.
    pub decay_waste: u64,
    /// The file that lines of the log are appended to; empty for none.
    pub log: &'static str,
}

impl Options {
    /// `memory_limit` when there is none.
    /// cbindgen:ignore
    pub const NO_LIMIT: u64 = u64::MAX;
    /// `address_range` when the device's memory decides.
    /// cbindgen:ignore
    pub const AUTO: u64 = 0;
    /// What holds when nothing is configured.
    /// cbindgen:ignore
    pub const DEFAULT: Self = Self {
        backing: Backing::Auto,
        memory_limit: Self::NO_LIMIT,
        memory_fraction: 1.0,
        caching: true,
        streams: StreamTrust::Checked,
        address_range: Self::AUTO,
        segment_small: 2 << 20,
        segment_large: 20 << 20,
        share: Sharing::Wait,
        share_growth: 0.02,
        wait_ms: Self::NO_LIMIT,
        decay_ms: Self::NO_LIMIT,
        decay_waste: 0,
        log: "",
    };
}

impl Default for Options {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A value's type and range, and where it lies in [`Options`].
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A number of bytes from `least` to `most`, or a word that stands for a value of its own.
    Bytes {
        /// The smallest number accepted.
        least: u64,
        /// The largest number accepted.
        most: u64,
        /// A word and the value that it stands for.
        word: Option<(&'static str, u64)>,
        /// The option's field.
        field: fn(&mut Options) -> &mut u64,
    },
    /// A number from `least` to `most`, or a word that stands for a value of its own.
    Number {
        /// The smallest number accepted.
        least: u64,
        /// The largest number accepted.
        most: u64,
        /// A word and the value that it stands for.
        word: Option<(&'static str, u64)>,
        /// The option's field.
        field: fn(&mut Options) -> &mut u64,
    },
    /// A number above 0, up to 1.
    Fraction {
        /// The option's field.
        field: fn(&mut Options) -> &mut f64,
    },
    /// One of a few words.
    Choice {
        /// The words, in the order of their numbers.
        words: &'static [&'static str],
        /// The number of the word in force.
        get: fn(&Options) -> usize,
        /// Puts the word of this number in force.
        set: fn(&mut Options, usize),
    },
    /// `on` or `off`.
    Switch {
        /// The option's field.
        field: fn(&mut Options) -> &mut bool,
    },
    /// A file's name, or `none`. Its text is kept until the process ends.
    File {
        /// The option's field.
        field: fn(&mut Options) -> &mut &'static str,
    },
}

/// When an option may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// At any time.
    Anytime,
    /// Until Cuddy first uses a device.
    BeforeUse,
}

/// One row of [`TABLE`].
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The key.
    pub name: &'static str,
    /// Type, range and place.
    pub kind: Kind,
    /// When it may be set.
    pub changes: Changes,
    /// One sentence for the manual.
    pub help: &'static str,
}

/// The longest name of a file, in bytes: Linux takes no longer one.
const LONGEST_NAME: usize = 4095;

/// How many options there are.
/// cbindgen:ignore
pub const COUNT: usize = 14;

/// Every option there is.
#[rustfmt::skip]
pub static TABLE: [Row; COUNT] = [
    Row { name: "backing", changes: Changes::BeforeUse,
          kind: Kind::Choice { words: &["auto", "pages", "segments"],
                               get: |o| o.backing as usize,
                               set: |o, n| o.backing = [Backing::Auto, Backing::Pages, Backing::Segments][n] },
          help: "How device memory is got: physical pages mapped where they are needed, whole \
                 segments, or pages where the device has them." },
    Row { name: "memory_limit", changes: Changes::Anytime,
          kind: Kind::Bytes { least: 1, most: 1 << 62, word: Some(("none", Options::NO_LIMIT)),
                              field: |o| &mut o.memory_limit },
          help: "The most that is reserved on each device." },
    Row { name: "memory_fraction", changes: Changes::Anytime,
          kind: Kind::Fraction { field: |o| &mut o.memory_fraction },
          help: "The most that is reserved on each device, as a share of its memory; the lower of \
                 this and memory_limit holds." },
    Row { name: "caching", changes: Changes::BeforeUse,
          kind: Kind::Switch { field: |o| &mut o.caching },
          help: "Whether freed memory is kept for reuse; off passes every call to the driver, for \
                 compute-sanitizer and for comparing." },
    Row { name: "streams", changes: Changes::BeforeUse,
          kind: Kind::Choice { words: &["checked", "trusted"],
                               get: |o| o.streams as usize,
                               set: |o, n| o.streams = [StreamTrust::Checked, StreamTrust::Trusted][n] },
          help: "Whether the program may destroy streams while Cuddy runs (checked), or never does \
                 (trusted), which saves driver calls." },
    Row { name: "address_range", changes: Changes::BeforeUse,
          kind: Kind::Bytes { least: 64 << 20, most: 1 << 47, word: Some(("auto", Options::AUTO)),
                              field: |o| &mut o.address_range },
          help: "Addresses reserved for each device (they cost no memory); auto makes it from the \
                 device's memory." },
    Row { name: "segment_small", changes: Changes::BeforeUse,
          kind: Kind::Bytes { least: 1 << 20, most: 1 << 30, word: None,
                              field: |o| &mut o.segment_small },
          help: "Segments backing: bytes of a segment for requests of at most half of it." },
    Row { name: "segment_large", changes: Changes::BeforeUse,
          kind: Kind::Bytes { least: 2 << 20, most: 1 << 34, word: None,
                              field: |o| &mut o.segment_large },
          help: "Segments backing: bytes of a segment for larger requests below half of it; what is \
                 larger gets a segment of its own size." },
    Row { name: "share", changes: Changes::BeforeUse,
          kind: Kind::Choice { words: &["wait", "passed", "never"],
                               get: |o| o.share as usize,
                               set: |o, n| o.share = [Sharing::Wait, Sharing::Passed, Sharing::Never][n] },
          help: "How a stream gets memory that another one freed: behind a stream wait where memory \
                 is short, only once its last use is over, or never without the driver." },
    Row { name: "share_growth", changes: Changes::BeforeUse,
          kind: Kind::Fraction { field: |o| &mut o.share_growth },
          help: "How far reserved memory may grow beyond the peak of what was active, as a share of \
                 it, before a stream is made to wait for another one's memory." },
    Row { name: "wait_ms", changes: Changes::BeforeUse,
          kind: Kind::Number { least: 0, most: 1 << 40, word: Some(("none", Options::NO_LIMIT)),
                               field: |o| &mut o.wait_ms },
          help: "The longest that a request waits for streams to finish with memory, in \
                 milliseconds; 0 never waits." },
    Row { name: "decay_ms", changes: Changes::BeforeUse,
          kind: Kind::Number { least: 0, most: 1 << 40, word: Some(("none", Options::NO_LIMIT)),
                               field: |o| &mut o.decay_ms },
          help: "Cached memory that was not needed for so many milliseconds is given back by the next \
                 request that misses the cache, or by cuddy_tick()." },
    Row { name: "decay_waste", changes: Changes::BeforeUse,
          kind: Kind::Number { least: 0, most: 100, word: None,
                               field: |o| &mut o.decay_waste },
          help: "Memory decays only while more than this percentage of what is reserved was not \
                 needed." },
    Row { name: "log", changes: Changes::BeforeUse,
          kind: Kind::File { field: |o| &mut o.log },
          help: "A file to which a line is appended when a device is first used, when memory is got \
                 from the driver or given back, and when a request fails." },
];

/// Displays what a row takes: "backing (auto, pages or segments)".
pub(super) struct Accepted<'a>(pub(super) &'a Row);

impl fmt::Display for Accepted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.name, self.0.kind)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { least, most, word, .. } => {
                write!(f, "{} to {}", Bytes(*least), Bytes(*most))?;
                word.map_or(Ok(()), |(word, _)| write!(f, " or {word}"))
            }
            Self::Number { least, most, word, .. } => {
                write!(f, "{least} to {most}")?;
                word.map_or(Ok(()), |(word, _)| write!(f, " or {word}"))
            }
            Self::Fraction { .. } => f.write_str("above 0, up to 1"),
            Self::Choice { words, .. } => match words {
                [first @ .., before, last] => {
                    first.iter().try_for_each(|word| write!(f, "{word}, "))?;
                    write!(f, "{before} or {last}")
                }
                _ => words.iter().try_for_each(|word| f.write_str(word)),
            },
            Self::Switch { .. } => f.write_str("on or off"),
            Self::File { .. } => f.write_str("a file's name or none"),
        }
    }
}

/// Reads a value into its place in `options`; on failure says what would be accepted.
pub(super) fn read(row: &Row, text: &[u8], options: &mut Options) -> Result<(), String> {
    let text = text.trim_ascii();
    std::str::from_utf8(text).ok().and_then(|text| place(&row.kind, text, options)).ok_or_else(
        || {
            let units = match row.kind {
                Kind::Bytes { .. } => "; units are B, KiB, MiB, GiB and TiB",
                _ => "",
            };
            let (text, accepted) = (Printable(text), Accepted(row));
            sentence!("\"{text}\" is not a value of {accepted}{units}")
        },
    )
}

/// Puts the value that `text` stands for into its place; `None` if it is no value of this kind.
fn place(kind: &Kind, text: &str, options: &mut Options) -> Option<()> {
    match *kind {
        Kind::Bytes { least, most, word, field } => {
            *field(options) = match word {
                Some((word, value)) if word == text => value,
                _ => bytes_of(text).filter(|bytes| (least..=most).contains(bytes))?,
            };
        }
        Kind::Number { least, most, word, field } => {
            *field(options) = match word {
                Some((word, value)) if word == text => value,
                _ => text.parse().ok().filter(|value| (least..=most).contains(value))?,
            };
        }
        Kind::Fraction { field } => {
            *field(options) = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0)?;
        }
        Kind::Choice { words, set, .. } => {
            set(options, words.iter().position(|word| *word == text)?);
        }
        Kind::Switch { field } => {
            *field(options) = match text {
                "on" => true,
                "off" => false,
                _ => return None,
            };
        }
        Kind::File { field } => {
            let name = if text == "none" { "" } else { kept(text)? };
            *field(options) = name;
        }
    }
    Some(())
}

/// A file's name, kept until the process ends; `None` if it is none.
fn kept(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
        return None;
    }
    let mut copy = String::new();
    copy.try_reserve_exact(name.len()).ok()?;
    copy.push_str(name);
    Some(copy.leak())
}

/// A value as text that [`read`] takes back.
pub(super) fn write(row: &Row, options: &Options) -> String {
    let mut options = *options;
    match row.kind {
        Kind::Bytes { word, field, .. } => match (*field(&mut options), word) {
            (value, Some((word, of_word))) if value == of_word => sentence!("{word}"),
            (value, _) => sentence!("{}", Bytes(value)),
        },
        Kind::Number { word, field, .. } => match (*field(&mut options), word) {
            (value, Some((word, of_word))) if value == of_word => sentence!("{word}"),
            (value, _) => sentence!("{value}"),
        },
        Kind::Fraction { field } => sentence!("{}", field(&mut options)),
        Kind::Choice { words, get, .. } => sentence!("{}", words[get(&options)]),
        Kind::Switch { field } => {
            sentence!("{}", if *field(&mut options) { "on" } else { "off" })
        }
        Kind::File { field } => match *field(&mut options) {
            "" => sentence!("none"),
            name => sentence!("{name}"),
        },
    }
}

/// The manual's table, in Markdown.
pub fn manual() -> String {
    use fmt::Write;
    let mut text = String::from(
        "| key | values | default | may change | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for row in &TABLE {
        let changes = match row.changes {
            Changes::Anytime => "at any time",
            Changes::BeforeUse => "before first use",
        };
        let default = write(row, &Options::DEFAULT);
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {default} | {changes} | {} |",
            row.name, row.kind, row.help
        );
    }
    text
}
