#![forbid(unsafe_code)]
//! Bytes for people: `1.50 GiB`.

use crate::error::sentence;

/// The bytes with a unit, three digits that count: `512 B`, `20.0 MiB`, `1.50 GiB`.
pub(crate) fn short(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1023.95 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        value if value < 9.995 => 2,
        _ => 1,
    };
    sentence!("{value:.digits$} {}", UNITS[unit])
}

/// The bytes with a unit, and exactly: `1.50 GiB (1610612736 bytes)`.
pub(super) fn exact(bytes: u64) -> String {
    match bytes {
        0..1024 => sentence!("{bytes} bytes"),
        _ => sentence!("{} ({bytes} bytes)", short(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_that_count() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (20 << 20, "20.0 MiB"),
            (3 << 29, "1.50 GiB"),
            ((1 << 30) - 1, "1.00 GiB"),
            (80 << 30, "80.0 GiB"),
            (1000 << 30, "1000.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(short(bytes), text);
        }
        assert_eq!(exact(3 << 29), "1.50 GiB (1610612736 bytes)");
        assert_eq!(exact(512), "512 bytes");
    }
}
