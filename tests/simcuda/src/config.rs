//! The **configuration**: what machine is simulated. `SIMCUDA_*` in the environment, read at
//! `cuInit`, and above it what `simcuda_configure` said.

use crate::api::device::uuid_of;
use crate::checker::Mode;
use crate::engine::Schedule;

/// The most devices that can be simulated: access rights are kept as a bit a device.
pub const MAX_DEVICES: usize = 64;
const GIB: u64 = 1 << 30;

/// The keys of `simcuda_configure`; `SIMCUDA_` and upper case in the environment.
pub const KEYS: [&str; 11] = [
    "devices",
    "memory",
    "schedule",
    "checker",
    "vmm",
    "driver",
    "faults",
    "granularity",
    "report",
    "kernels",
    "visible_devices",
];

/// The variable of a key in the environment.
fn variable(key: &str) -> String {
    match key {
        "visible_devices" => "CUDA_VISIBLE_DEVICES".to_owned(),
        _ => format!("SIMCUDA_{}", key.to_uppercase()),
    }
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of devices.
    pub devices: usize,
    /// Bytes of each device; the last entry holds for those after it.
    pub memory: Vec<u64>,
    /// When queued work runs.
    pub schedule: Schedule,
    /// What is done with findings.
    pub checker: Mode,
    /// Whether the devices say that they support virtual memory management.
    pub vmm: bool,
    /// The driver's version, 1000 * major + 10 * minor.
    pub driver: i32,
    /// Faults to begin with: `function:first:code`, comma separated.
    pub faults: String,
    /// The VMM granularity in bytes.
    pub granularity: u64,
    /// Where a report goes: `stderr`, a file, a journal (`*.jsonl`), or nowhere.
    pub report: String,
    /// The file that declares what kernels use; empty: none.
    pub kernels: String,
    /// Which devices are there for the program, and in what order, as `CUDA_VISIBLE_DEVICES` has it;
    /// none: all of them.
    pub visible: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            memory: vec![80 * GIB],
            schedule: Schedule::Eager,
            checker: Mode::Off,
            vmm: true,
            driver: 13000,
            faults: String::new(),
            granularity: 2 << 20,
            report: String::new(),
            kernels: String::new(),
            visible: None,
        }
    }
}

impl Config {
    /// The environment, then `overrides`.
    pub fn load(overrides: &[(String, String)]) -> Result<Self, String> {
        let mut config = Self::default();
        for key in KEYS {
            let variable = variable(key);
            if let Ok(value) = std::env::var(&variable) {
                config.set(key, &value).map_err(|why| format!("{variable}={value}: {why}"))?;
            }
        }
        for (key, value) in overrides {
            config.set(key, value).map_err(|why| format!("{key}={value}: {why}"))?;
        }
        Ok(config)
    }

    /// Sets one key.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "devices" => self.devices = parse_devices(value)?,
            "memory" => self.memory = value.split(',').map(parse_size).collect::<Result<_, _>>()?,
            "schedule" => self.schedule = parse_schedule(value)?,
            "checker" => self.checker = parse_mode(value)?,
            "vmm" => self.vmm = parse_switch(value)?,
            "driver" => self.driver = parse_driver(value)?,
            "faults" => {
                crate::faults::parse(value)?;
                self.faults = value.to_owned();
            }
            "granularity" => self.granularity = parse_granularity(value)?,
            "report" => self.report = value.to_owned(),
            "kernels" => self.kernels = value.to_owned(),
            "visible_devices" => self.visible = (value != "all").then(|| value.to_owned()),
            _ => return Err(format!("no such key; there are {}", KEYS.join(", "))),
        }
        Ok(())
    }

    /// The devices that the program sees, in its order. The first that does not exist ends the list;
    /// one that is named twice leaves none.
    pub fn visible_devices(&self) -> Vec<u32> {
        let all = 0..self.devices as u32;
        let Some(list) = &self.visible else { return all.collect() };
        let mut seen = Vec::new();
        for word in list.split(',') {
            let Some(device) = named(word.trim(), all.clone()) else { break };
            if seen.contains(&device) {
                return Vec::new();
            }
            seen.push(device);
        }
        seen
    }

    /// The size of one device.
    pub fn memory_of(&self, device: usize) -> u64 {
        self.memory.get(device).or(self.memory.last()).copied().unwrap_or(80 * GIB)
    }
}

/// The device of a word: its number, or `GPU-` and the beginning of its UUID, if no other has it.
fn named(word: &str, all: std::ops::Range<u32>) -> Option<u32> {
    let Some(_) = word.strip_prefix("GPU-") else {
        let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        return word[..end].parse().ok().filter(|device| all.contains(device));
    };
    let asked = word.to_ascii_lowercase();
    let fits = |device: &u32| uuid_text(*device).to_ascii_lowercase().starts_with(&asked);
    let mut fitting = all.filter(fits);
    fitting.next().filter(|_| fitting.next().is_none())
}

/// A device's UUID as tools write it.
fn uuid_text(device: u32) -> String {
    let hex: String = uuid_of(device).iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    format!("GPU-{}", parts.join("-"))
}

fn parse_devices(value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(n) if n <= MAX_DEVICES => Ok(n),
        _ => Err(format!("expected a number of devices, 0 to {MAX_DEVICES}")),
    }
}

/// `80GiB`, `512 MiB`, `4096`; units B, K/KB/KiB to T/TB/TiB, all powers of 1024.
pub fn parse_size(value: &str) -> Result<u64, String> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or(unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("'{value}' is no size; write 80GiB, 512MiB or a number of bytes")),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| *n < 1 << 46)
        .ok_or_else(|| {
            format!("'{value}' is no size below 64 TiB; write 80GiB, 512MiB or a number of bytes")
        })
}

/// `eager`, `lazy`, `lag:K`, `random:SEED`.
pub fn parse_schedule(value: &str) -> Result<Schedule, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("'{text}' is no number"));
    match value.split_once(':') {
        None if value == "eager" => Ok(Schedule::Eager),
        None if value == "lazy" => Ok(Schedule::Lazy),
        Some(("lag", k)) => Ok(Schedule::Lag(number(k)?)),
        Some(("random", seed)) => Ok(Schedule::Random(number(seed)?)),
        _ => Err(format!("'{value}' is no schedule: eager, lazy, lag:K or random:SEED")),
    }
}

/// `off`, `log`, `abort`.
pub fn parse_mode(value: &str) -> Result<Mode, String> {
    match value {
        "off" => Ok(Mode::Off),
        "log" => Ok(Mode::Log),
        "abort" => Ok(Mode::Abort),
        _ => Err(format!("'{value}' is no checker mode: off, log or abort")),
    }
}

fn parse_switch(value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("expected 0 or 1".to_owned()),
    }
}

fn parse_driver(value: &str) -> Result<i32, String> {
    match value.parse() {
        Ok(version) if (11000..=13990).contains(&version) => Ok(version),
        _ => {
            Err("expected a driver version from 11000 to 13990, such as 12080 for 12.8".to_owned())
        }
    }
}

fn parse_granularity(value: &str) -> Result<u64, String> {
    match parse_size(value)? {
        bytes if bytes >= 4096 && bytes.is_multiple_of(4096) => Ok(bytes),
        _ => Err("the granularity must be a multiple of 4096 bytes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("80GiB", 80 << 30),
            ("24g", 24 << 30),
            ("512 MB", 512 << 20),
            ("4096", 4096),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "80XB", "-1", "1.5GiB", "99999999T"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn visible_devices_are_listed_until_the_first_that_is_none() {
        let mut config = Config { devices: 3, ..Config::default() };
        assert_eq!(config.visible_devices(), [0, 1, 2]);
        let second = uuid_text(1);
        for (list, seen) in [
            ("all", &[0, 1, 2][..]),
            ("2,1", &[2, 1]),
            ("0,2,-1,1", &[0, 2]),
            ("1,3,0", &[1]),
            (" 1gpu , 0", &[1, 0]),
            ("1,1", &[]),
            ("", &[]),
            ("none", &[]),
            (&second, &[1]),
            (&second[..12], &[1]),
            ("GPU-0000", &[]),
            ("GPU-ffff,0", &[]),
            ("MIG-1", &[]),
        ] {
            config.set("visible_devices", list).expect("any list is one");
            assert_eq!(config.visible_devices(), seen, "{list}");
        }
    }

    #[test]
    fn every_key_is_known_and_a_wrong_value_says_why() {
        let mut config = Config::default();
        for (key, value) in KEYS.iter().zip([
            "2",
            "8GiB,1GiB",
            "lag:7",
            "log",
            "0",
            "12020",
            "cuMemCreate:3:OUT_OF_MEMORY",
            "64KiB",
            "stderr",
            "kernels.txt",
            "1,0",
        ]) {
            assert_eq!(config.set(key, value), Ok(()), "{key}");
        }
        assert_eq!(config.memory_of(0), 8 << 30);
        assert_eq!(config.memory_of(5), 1 << 30);
        assert_eq!(config.schedule, Schedule::Lag(7));
        for key in KEYS.iter().filter(|k| !["report", "kernels", "visible_devices"].contains(k)) {
            assert!(config.set(key, "?:?").is_err(), "{key}");
        }
        let why = config.set("colour", "red").expect_err("no such key");
        assert!(why.contains("devices"), "{why}");
    }
}
