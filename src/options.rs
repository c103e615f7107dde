#![forbid(unsafe_code)]
//! What can be chosen, as plain values in force.

use crate::error::Error;

/// What serves a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Pages where the device can, else segments.
    Auto,
    /// Virtual memory: blocks of any size share pages.
    Pages,
    /// Whole driver allocations, cut into blocks.
    Segments,
}

/// How raw stream handles are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// Borrowed: told apart by their ids in every call, never kept.
    Checked,
    /// The program destroys no stream: handles are kept.
    Trusted,
}

/// The values in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What serves a device's memory.
    pub backing: Backing,
    /// The most that a device may reserve, in bytes; `u64::MAX` is no limit.
    pub memory_limit: u64,
    /// The same as a fraction of the device's memory.
    pub memory_fraction: f64,
    /// Whether freed memory is kept at all.
    pub caching: bool,
    /// How raw stream handles are taken.
    pub streams: Streams,
    /// Addresses asked for a device at first, in bytes; 0 is four times its memory.
    pub reserve: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backing: Backing::Auto,
            memory_limit: u64::MAX,
            memory_fraction: 1.0,
            caching: true,
            streams: Streams::Checked,
            reserve: 0,
        }
    }
}

impl Options {
    /// The options of `CUDDY_CONF`.
    pub fn from_environment() -> Self {
        let mut options = Self::default();
        for entry in std::env::var("CUDDY_CONF").unwrap_or_default().split(',') {
            if let Some((name, value)) = entry.split_once(':') {
                let _ = options.set(name.trim(), value.trim());
            }
        }
        options
    }

    /// Sets one option from text.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let bad = || Error::InvalidOption(format!("{name}:{value}"));
        match (name, value) {
            ("backing", "auto") => self.backing = Backing::Auto,
            ("backing", "pages") => self.backing = Backing::Pages,
            ("backing", "segments") => self.backing = Backing::Segments,
            ("caching", "on") => self.caching = true,
            ("caching", "off") => self.caching = false,
            ("streams", "checked") => self.streams = Streams::Checked,
            ("streams", "trusted") => self.streams = Streams::Trusted,
            ("memory_limit", _) => self.memory_limit = value.parse().map_err(|_| bad())?,
            ("memory_fraction", _) => self.memory_fraction = value.parse().map_err(|_| bad())?,
            ("reserve", _) => self.reserve = value.parse().map_err(|_| bad())?,
            _ => return Err(bad()),
        }
        Ok(())
    }

    /// One option as text.
    pub fn get(&self, name: &str) -> Result<String, Error> {
        Ok(match name {
            "backing" => format!("{:?}", self.backing).to_lowercase(),
            "caching" => if self.caching { "on" } else { "off" }.to_string(),
            "streams" => format!("{:?}", self.streams).to_lowercase(),
            "memory_limit" => self.memory_limit.to_string(),
            "memory_fraction" => self.memory_fraction.to_string(),
            "reserve" => self.reserve.to_string(),
            _ => return Err(Error::InvalidOption(name.to_string())),
        })
    }
}
