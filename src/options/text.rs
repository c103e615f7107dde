#![forbid(unsafe_code)]
//! Text of options: bytes with units, the distance between names, and what may be printed.
//!
//! `bytes_of(Bytes(b).to_string()) == b` for every `b`.

use std::fmt;

/// The units of bytes, largest first.
const UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Bytes from `512`, `20MiB` or `1.5 GiB`; `None` unless it is a whole number of bytes.
pub(super) fn bytes_of(text: &str) -> Option<u64> {
    let unit = UNITS.iter().find(|(unit, _)| text.ends_with(unit));
    let (number, scale) = match unit {
        Some((unit, scale)) => (text[..text.len() - unit.len()].trim_end(), *scale),
        None => (text, 1),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 15 {
        return None;
    }
    let scaled_part = part.parse::<u128>().ok()? * u128::from(scale);
    let tenth = 10_u128.pow(u32::try_from(part.len()).ok()?);
    if scaled_part % tenth != 0 {
        return None;
    }
    let bytes = u128::from(whole.parse::<u64>().ok()?) * u128::from(scale) + scaled_part / tenth;
    u64::try_from(bytes).ok()
}

/// Displays bytes in the largest unit that gives a whole number: `20MiB`, `1000`.
pub(super) struct Bytes(pub(super) u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) if *scale > 1 => write!(f, "{}{unit}", self.0 / scale),
            _ => write!(f, "{}", self.0),
        }
    }
}

/// How many letters must be put in, taken out or changed to get from one name to the other.
pub(super) fn distance(name: &[u8], given: &[u8]) -> usize {
    let given = &given[..given.len().min(64)];
    let mut row = [0; 65];
    for (at, cell) in row.iter_mut().enumerate() {
        *cell = at;
    }
    for (done, letter) in name.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (at, other) in given.iter().enumerate() {
            let change = diagonal + usize::from(letter != other);
            diagonal = row[at + 1];
            row[at + 1] = change.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[given.len()]
}

/// Displays bytes of unknown meaning: at most 80 letters, nothing that moves a terminal's cursor.
pub(super) struct Printable<'a>(pub(super) &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chunks = self.0.utf8_chunks();
        let mut letters = chunks.flat_map(|chunk| {
            chunk.valid().chars().chain((!chunk.invalid().is_empty()).then_some('\u{fffd}'))
        });
        for letter in letters.by_ref().take(80) {
            match letter.is_control() {
                true => write!(f, "{}", letter.escape_default())?,
                false => write!(f, "{letter}")?,
            }
        }
        letters.next().map_or(Ok(()), |_| f.write_str("..."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_whole_or_refused() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("1KiB", 1024),
            ("2 MiB", 2 << 20),
            ("1.5GiB", 3 << 29),
            ("0.5KiB", 512),
            ("16777215TiB", 16_777_215 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes_of(text), Some(bytes), "{text}");
        }
        for text in [
            "",
            "B",
            "MiB",
            "-1",
            "+1",
            "1GB",
            "1G",
            "1mib",
            "1.3B",
            "0.3",
            "1.",
            ".5MiB",
            "1e3",
            "0x10",
            "16777216TiB",
            "18446744073709551616",
            "1 2",
            "1.0000000000000001KiB",
            "²",
        ] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
        for bytes in [0, 1, 511, 512, 1 << 20, 3 << 29, (1 << 40) + 1, 1 << 62] {
            assert_eq!(bytes_of(&Bytes(bytes).to_string()), Some(bytes));
        }
    }

    #[test]
    fn distance_counts_letters() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b""), 3);
        assert_eq!(distance(b"same", b"same"), 0);
    }
}
