//! **ELF** files, as far as the loader's view of a program needs them.

use std::path::Path;

/// What a program file is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// 64 bits, little-endian.
    pub ordinary: bool,
    /// The processor's number (62 is x86-64, 183 aarch64).
    pub machine: u16,
    /// The loader that it names; none for a static program.
    pub loader: Option<String>,
    /// The libraries that it names.
    pub needed: Vec<String>,
    /// Whether the text `libcuda.so.1` stands in it: it opens the driver itself.
    pub opens_driver: bool,
}

impl Elf {
    /// Reads a file; `None` if it is no ELF file, or a damaged one.
    pub fn read(file: &Path) -> Option<Self> {
        Self::parse(&std::fs::read(file).ok()?)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF") {
            return None;
        }
        let ordinary = bytes.get(4..6) == Some(&[2, 1]);
        let mut elf = Self { ordinary, ..Self::default() };
        if !ordinary {
            return Some(elf);
        }
        elf.machine = number(bytes, 18, 2)? as u16;
        elf.opens_driver = bytes.windows(12).any(|window| window == b"libcuda.so.1");
        let (table, size, count) =
            (number(bytes, 32, 8)?, number(bytes, 54, 2)?, number(bytes, 56, 2)?);
        let headers: Vec<usize> = (0..count).map(|i| (table + i * size) as usize).collect();
        let field = |header: usize, at: usize, width| number(bytes, header + at, width);
        // Address to place in the file, by the segments that are loaded.
        let place = |address: u64| {
            headers.iter().find_map(|&header| {
                let (offset, start, length) =
                    (field(header, 8, 8)?, field(header, 16, 8)?, field(header, 32, 8)?);
                let inside =
                    field(header, 0, 4)? == 1 && (start..start + length).contains(&address);
                inside.then(|| (address - start + offset) as usize)
            })
        };
        for &header in &headers {
            let offset = field(header, 8, 8)? as usize;
            match field(header, 0, 4)? {
                2 => elf.needed = needed(bytes, offset, &place)?,
                3 => elf.loader = Some(text(bytes, offset)?),
                _ => {}
            }
        }
        Some(elf)
    }
}

fn needed(
    bytes: &[u8],
    mut at: usize,
    place: &dyn Fn(u64) -> Option<usize>,
) -> Option<Vec<String>> {
    let (mut names, mut strings) = (Vec::new(), None);
    loop {
        let (tag, value) = (number(bytes, at, 8)?, number(bytes, at + 8, 8)?);
        match tag {
            0 => break,
            1 => names.push(value as usize),
            5 => strings = place(value),
            _ => {}
        }
        at += 16;
    }
    let Some(strings) = strings else { return Some(Vec::new()) };
    names.into_iter().map(|name| text(bytes, strings.checked_add(name)?)).collect()
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let digits = bytes.get(at..at.checked_add(width)?)?;
    Some(digits.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn text(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_read_and_every_cut_of_it_survived() {
        let file = std::env::current_exe().expect("a test has a file");
        let elf = Elf::read(&file).expect("it is ELF");
        assert!(elf.ordinary && elf.loader.is_some());
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{elf:?}");
        let bytes = std::fs::read(file).expect("it can be read");
        for length in (0..4096.min(bytes.len())).chain([bytes.len() / 2]) {
            let _ = Elf::parse(&bytes[..length]);
        }
        assert_eq!(Elf::parse(b"#!/bin/sh"), None);
    }
}
