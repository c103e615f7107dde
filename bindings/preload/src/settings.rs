#![forbid(unsafe_code)]
//! The **settings** of a preloaded process: what `CUDDY_PRELOAD` says.
//!
//! `CUDDY_PRELOAD=mode:fenced,cap:0.2,async:off,report:FILE`. What is not understood is left out,
//! silently: a preloaded library has no business on anybody's standard error.

/// What a free of a block does before the block may be reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Waits until the context has nothing to do, as the driver's own free does.
    Strict,
    /// Nothing: the block waits for a fence over the whole context.
    Fenced,
    /// Every call is the driver's.
    Off,
}

/// What becomes of the stream-ordered pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Async {
    /// The device's pool keeps memory across waits, up to the cap, unless the program said how much.
    Keep,
    /// It is left as it is.
    Off,
}

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What a free does.
    pub mode: Mode,
    /// The most that may be cached, as a share of the device's memory.
    pub cap: f64,
    /// What becomes of the pool.
    pub pool: Async,
    /// The file that gets a line of JSON at exit.
    pub report: Option<Vec<u8>>,
}

impl Settings {
    /// Without `CUDDY_PRELOAD`.
    pub const DEFAULT: Self =
        Self { mode: Mode::Strict, cap: 0.1, pool: Async::Keep, report: None };

    /// Reads the variable's value. `report:` comes last and takes the rest, commas and all.
    pub fn read(text: &[u8]) -> Self {
        let mut settings = Self::DEFAULT;
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(file) = rest.strip_prefix(b"report:") {
                settings.report = (!file.is_empty()).then(|| file.to_vec());
                break;
            }
            let end = rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len());
            settings.set(&rest[..end]);
            rest = rest.get(end + 1..).unwrap_or_default();
        }
        settings
    }

    fn set(&mut self, entry: &[u8]) {
        match entry {
            b"mode:strict" => self.mode = Mode::Strict,
            b"mode:fenced" => self.mode = Mode::Fenced,
            b"mode:off" => self.mode = Mode::Off,
            b"async:keep" => self.pool = Async::Keep,
            b"async:off" => self.pool = Async::Off,
            _ => {
                let number =
                    entry.strip_prefix(b"cap:").and_then(|it| std::str::from_utf8(it).ok());
                match number.and_then(|it| it.parse::<f64>().ok()) {
                    Some(cap) if (0.0..=1.0).contains(&cap) => self.cap = cap,
                    _ => {}
                }
            }
        }
    }

    /// The cap of a device of so many bytes.
    pub fn cap_of(&self, total: u64) -> u64 {
        (total as f64 * self.cap) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_read_and_nonsense_left_out() {
        assert_eq!(Settings::read(b""), Settings::DEFAULT);
        let read = Settings::read(b"mode:fenced,what,cap:0.25,async:off,cap:7,cap:x,report:/a,b:c");
        let report = Some(b"/a,b:c".to_vec());
        assert_eq!(read, Settings { mode: Mode::Fenced, cap: 0.25, pool: Async::Off, report });
        assert_eq!(Settings::read(b"mode:off,mode:strict").mode, Mode::Strict);
        assert_eq!(Settings::read(b"mode:off").mode, Mode::Off);
        assert_eq!(Settings::read(b"report:").report, None);
        assert_eq!(Settings::read(b",,cap:0").cap_of(1000), 0);
        assert_eq!(Settings::DEFAULT.cap_of(1 << 30), (1 << 30) / 10);
    }
}
