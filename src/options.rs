#![forbid(unsafe_code)]
//! Options: what can be configured, in one table.
//!
//! [`TABLE`] has one row a key; reading `CUDDY_CONF`, the C setters, listings and the manual all
//! come from it: the value in force is the last good one of default, environment and program.
//!
//! An entry that cannot be used changes nothing: it becomes a [`Rejected`], and the program goes on.

mod table;
mod text;

use std::fmt;

use crate::error::{Error, sentence};
pub use table::*;
use table::{Accepted, read, write};
use text::{Printable, distance};

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The table.
    Default,
    /// `CUDDY_CONF`.
    Environment,
    /// A call of the program.
    Program,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::Environment => "CUDDY_CONF",
            Self::Program => "program",
        })
    }
}

/// An entry of `CUDDY_CONF` that was left out. Its `Display` is the line for stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The entry as it was written, unprintable characters escaped, cut to 80 letters.
    pub entry: String,
    /// What is wrong with it and what would be right.
    pub why: String,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cuddy: CUDDY_CONF: left out \"{}\": {}", self.entry, self.why)
    }
}

/// The options in force, where each came from, and what was left out.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    options: Options,
    sources: [Source; COUNT],
    rejected: Vec<Rejected>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self::new()
    }
}

impl Configuration {
    /// The defaults.
    pub const fn new() -> Self {
        Self { options: Options::DEFAULT, sources: [Source::Default; COUNT], rejected: Vec::new() }
    }

    /// The defaults, changed by the text of `CUDDY_CONF`: `key:value,key:value`.
    ///
    /// Spaces around keys and values and empty entries are allowed; of a key given twice the last
    /// holds. Entries that cannot be used are in [`Configuration::rejected`].
    pub fn from_environment(text: &[u8]) -> Self {
        let mut configuration = Self::new();
        for entry in text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if entry.is_empty() {
                continue;
            }
            if let Err(why) = configuration.apply(entry)
                && configuration.rejected.try_reserve(1).is_ok()
            {
                let entry = sentence!("{}", Printable(entry));
                configuration.rejected.push(Rejected { entry, why });
            }
        }
        configuration
    }

    fn apply(&mut self, entry: &[u8]) -> Result<(), String> {
        let Some(colon) = entry.iter().position(|&byte| byte == b':') else {
            let name = entry.split(|&byte| byte == b'=').next().unwrap_or(entry);
            return Err(match find(name.trim_ascii()) {
                Ok(at) => {
                    let accepted = Accepted(&TABLE[at]);
                    sentence!("write key:value, with a colon: {accepted}")
                }
                Err(unknown) => sentence!("write key:value, with a colon: {unknown}"),
            });
        };
        let at = find(entry[..colon].trim_ascii())?;
        read(&TABLE[at], &entry[colon + 1..], &mut self.options)?;
        self.sources[at] = Source::Environment;
        Ok(())
    }

    /// Sets one option for the program; `in_use` says whether a device has been used already.
    ///
    /// # Errors
    /// `InvalidOption` when there is no such option, it does not take the value, or it cannot
    /// change any more. Nothing is changed then.
    pub fn set(&mut self, name: &[u8], value: &[u8], in_use: bool) -> Result<(), Error> {
        let at = find(name).map_err(Error::InvalidOption)?;
        let row = &TABLE[at];
        let mut options = self.options;
        read(row, value, &mut options).map_err(Error::InvalidOption)?;
        if in_use && row.changes == Changes::BeforeUse && options != self.options {
            return Err(Error::InvalidOption(sentence!(
                "{} cannot change after Cuddy has used a device: set it earlier, or in CUDDY_CONF",
                row.name
            )));
        }
        self.options = options;
        self.sources[at] = Source::Program;
        Ok(())
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The row, the value's text and its source, by name.
    ///
    /// # Errors
    /// `InvalidOption` when there is no such option.
    pub fn get(&self, name: &[u8]) -> Result<Listed, Error> {
        find(name).map(|at| self.listed(at)).map_err(Error::InvalidOption)
    }

    /// Every option, in the table's order.
    pub fn list(&self) -> impl Iterator<Item = Listed> {
        (0..COUNT).map(|at| self.listed(at))
    }

    fn listed(&self, at: usize) -> Listed {
        Listed {
            row: &TABLE[at],
            value: write(&TABLE[at], &self.options),
            source: self.sources[at],
        }
    }

    /// The entries of `CUDDY_CONF` that were left out, in their order.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }
}

/// One option as it stands.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its row.
    pub row: &'static Row,
    /// Its value, as text that would set it.
    pub value: String,
    /// Where the value came from.
    pub source: Source,
}

/// The row of this name, or a sentence with the nearest one.
fn find(name: &[u8]) -> Result<usize, String> {
    if let Some(at) = TABLE.iter().position(|row| row.name.as_bytes() == name) {
        return Ok(at);
    }
    let nearest = TABLE.iter().min_by_key(|row| distance(row.name.as_bytes(), name));
    let (name, nearest) = (Printable(name), Accepted(nearest.unwrap_or(&TABLE[0])));
    Err(sentence!("there is no option \"{name}\", the nearest is {nearest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(text: &str) -> Configuration {
        Configuration::from_environment(text.as_bytes())
    }

    #[test]
    fn every_key_can_be_set_and_comes_back_as_text_that_sets_it_again() {
        let text = "backing:segments, memory_limit : 1.5GiB,memory_fraction:0.25,caching:off,\
                    streams:trusted,address_range:256MiB,segment_small:1MiB,segment_large:40MiB,\
                    share:passed,share_growth:0.5,wait_ms:250,decay_ms:40,decay_waste:10,\
                    log: a folder/cuddy:1.log";
        let first = configured(text);
        assert_eq!(first.rejected(), []);
        let expected = Options {
            backing: Backing::Segments,
            memory_limit: 3 << 29,
            memory_fraction: 0.25,
            caching: false,
            streams: StreamTrust::Trusted,
            address_range: 256 << 20,
            segment_small: 1 << 20,
            segment_large: 40 << 20,
            share: Sharing::Passed,
            share_growth: 0.5,
            wait_ms: 250,
            decay_ms: 40,
            decay_waste: 10,
            log: "a folder/cuddy:1.log",
        };
        assert_eq!(*first.options(), expected);
        let again: Vec<_> = first.list().map(|o| format!("{}:{}", o.row.name, o.value)).collect();
        assert_eq!(configured(&again.join(",")), first);
        assert!(first.list().all(|option| option.source == Source::Environment));

        let defaults: Vec<_> =
            Configuration::new().list().map(|o| format!("{}:{}", o.row.name, o.value)).collect();
        assert_eq!(*configured(&defaults.join(",")).options(), Options::DEFAULT);
    }

    #[test]
    fn a_bad_entry_is_left_out_and_the_good_ones_hold() {
        let read = configured(
            "backng:pages,caching:maybe,memory_limit:10GB,streams,caching=off,\
                               memory_fraction:1.01,memory_fraction:0,memory_fraction:nan,segment_small:4,backing:pages",
        );
        assert_eq!(
            *read.options(),
            Options { backing: Backing::Pages, ..Options::DEFAULT },
            "only the last entry is good"
        );
        let lines: Vec<_> = read.rejected().iter().map(ToString::to_string).collect();
        let prefix = "cuddy: CUDDY_CONF: left out ";
        assert_eq!(
            lines,
            [
                "\"backng:pages\": there is no option \"backng\", the nearest is backing (auto, pages or segments)",
                "\"caching:maybe\": \"maybe\" is not a value of caching (on or off)",
                "\"memory_limit:10GB\": \"10GB\" is not a value of memory_limit (1 to 4194304TiB or none); units are B, KiB, MiB, GiB and TiB",
                "\"streams\": write key:value, with a colon: streams (checked or trusted)",
                "\"caching=off\": write key:value, with a colon: caching (on or off)",
                "\"memory_fraction:1.01\": \"1.01\" is not a value of memory_fraction (above 0, up to 1)",
                "\"memory_fraction:0\": \"0\" is not a value of memory_fraction (above 0, up to 1)",
                "\"memory_fraction:nan\": \"nan\" is not a value of memory_fraction (above 0, up to 1)",
                "\"segment_small:4\": \"4\" is not a value of segment_small (1MiB to 1GiB); units are B, KiB, MiB, GiB and TiB",
            ]
            .map(|line| format!("{prefix}{line}"))
        );
    }

    #[test]
    fn hostile_text_gives_one_short_printable_line() {
        let long = "x".repeat(5000);
        let texts: [&[u8]; 6] = [
            b"a\nb:\x1b[31mc\r",
            b"\xff\xfe:\xff",
            long.as_bytes(),
            b":",
            b"memory_limit:\xf0\x9f\x92\xa9",
            "ключ:значение".as_bytes(),
        ];
        for text in texts {
            let read = Configuration::from_environment(text);
            assert_eq!(*read.options(), Options::DEFAULT);
            assert_eq!(read.rejected().len(), 1);
            let line = read.rejected()[0].to_string();
            assert!(line.len() < 400, "{line}");
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        assert_eq!(configured(" , ,,").rejected(), []);
    }

    #[test]
    fn a_files_name_is_text_that_can_be_one() {
        for bad in ["", "a\nb", &"x".repeat(5000)] {
            let error = Configuration::new().set(b"log", bad.as_bytes(), false).expect_err(bad);
            assert!(error.to_string().contains("log (a file's name or none)"), "{error}");
        }
        let mut configuration = configured("log:one");
        configuration.set(b"log", b"two, three", false).expect("a program may name any file");
        assert_eq!(configuration.options().log, "two, three");
        configuration.set(b"log", b"none", false).expect("none");
        assert_eq!(configuration.options(), &Options::DEFAULT);
    }

    #[test]
    fn a_program_sets_what_may_still_change() {
        let mut configuration = configured("memory_limit:1GiB");
        configuration.set(b"backing", b"pages", false).expect("nothing is in use yet");
        configuration.set(b"memory_limit", b"2GiB", true).expect("a limit may change at any time");
        configuration.set(b"backing", b"pages", true).expect("that is what it is already");
        let before = configuration.clone();
        let error = configuration.set(b"backing", b"segments", true).expect_err("in use");
        assert!(error.to_string().contains("backing cannot change"), "{error}");
        configuration.set(b"memory_limit", b"-1", true).expect_err("no such value");
        configuration.set(b"limit", b"1", true).expect_err("no such key");
        assert_eq!(configuration, before, "a refused change changes nothing");
        let limit = configuration.get(b"memory_limit").expect("it exists");
        assert_eq!((limit.value.as_str(), limit.source), ("2GiB", Source::Program));
    }

    #[test]
    fn the_nearest_key_is_named() {
        for (given, nearest) in
            [("memorylimit", "memory_limit"), ("cache", "caching"), ("Backing", "backing")]
        {
            let sentence = find(given.as_bytes()).expect_err("it is misspelt");
            assert!(sentence.contains(&format!("the nearest is {nearest} (")), "{sentence}");
        }
    }
}
