//! **Declared kernels**: what bytes a kernel uses, said by name.
//!
//! A kernel's code is not run, so what it does to memory is not known, unless somebody says it:
//!
//! ```text
//! scale_float          write p0 bytes=w2*4  read p1 bytes=w2*4
//! *FillFunctorIf*      write p2[0] bytes=w0*4     # a struct's first eight bytes
//! heartbeat
//! ```
//! A line is a name, in which `*` stands for any text, and the uses: `read` or `write`, the address,
//! `bytes=` and how many. Values: `pN` is the eight bytes of parameter N (from 0), `wN` four bytes,
//! `pN[K]` and `wN[K]` the same K bytes into it, `threads` and `blocks` the launch's, and plain
//! numbers; joined by `*` and `+` without blanks. A line without uses says that it uses nothing.
//! Of several lines that fit a name the last one holds.

use crate::checker::AccessKind;
use std::collections::HashMap;
use std::sync::Arc;

/// A value that a launch gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    Number(u64),
    /// Bytes of a parameter: its index, the offset, 4 or 8 of them.
    Parameter {
        index: usize,
        offset: usize,
        width: usize,
    },
    Threads,
    Blocks,
}

/// A sum of products.
type Formula = Vec<Vec<Term>>;

/// One use, as declared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declared {
    write: bool,
    at: Formula,
    bytes: Formula,
}

/// What a kernel uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uses(Vec<Declared>);

/// One use of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// First byte.
    pub at: u64,
    /// How many.
    pub bytes: u64,
    /// Whether they are written.
    pub write: bool,
}

impl Use {
    /// As the checker sees it.
    pub fn kind(&self) -> AccessKind {
        if self.write { AccessKind::Write } else { AccessKind::Read }
    }
}

/// What a formula is worked out from.
pub trait Launch {
    /// Up to eight bytes of a parameter.
    fn parameter(&self, index: usize, offset: usize, width: usize) -> Option<u64>;
    /// All blocks.
    fn blocks(&self) -> u64;
    /// All threads.
    fn threads(&self) -> u64;
}

/// All declarations.
#[derive(Debug, Default)]
pub struct Kernels {
    lines: Vec<(String, Arc<Uses>)>,
    /// Names looked up before.
    known: HashMap<String, Option<Arc<Uses>>>,
    /// Launches of kernels that nobody has declared, by name.
    pub unknown: HashMap<String, u64>,
}

impl Kernels {
    /// Adds a declaration; it comes before those made earlier.
    pub fn declare(&mut self, name: &str, uses: &str) -> Result<(), String> {
        if name.is_empty() || name.contains(char::is_whitespace) {
            return Err(format!("'{name}' is no kernel's name"));
        }
        let uses = parse(uses).map_err(|why| format!("{name}: {why}"))?;
        self.lines.push((name.to_owned(), Arc::new(uses)));
        self.known.clear();
        Ok(())
    }

    /// Adds the lines of a file.
    pub fn declare_file(&mut self, file: &str) -> Result<(), String> {
        self.declare_all(&std::fs::read_to_string(file).map_err(|why| why.to_string())?)
    }

    /// Adds the lines of a text; `#` begins a comment.
    pub fn declare_all(&mut self, text: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let (name, uses) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if !name.is_empty() {
                self.declare(name, uses).map_err(|why| format!("line {}: {why}", number + 1))?;
            }
        }
        Ok(())
    }

    /// What is declared of a kernel.
    pub fn find(&mut self, name: &str) -> Option<Arc<Uses>> {
        if self.lines.is_empty() {
            return None;
        }
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let line = self.lines.iter().rev().find(|(pattern, _)| fits(pattern, name));
        let found = line.map(|(_, uses)| uses.clone());
        self.known.insert(name.to_owned(), found.clone());
        found
    }

    /// A launch of a kernel of which nothing is known.
    pub fn count_unknown(&mut self, name: &str) {
        match self.unknown.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.unknown.insert(name.to_owned(), 1)),
        }
    }
}

impl Uses {
    /// The uses of one launch; none if it does not give what the declaration asks for.
    pub fn of(&self, launch: &impl Launch) -> Option<Vec<Use>> {
        let one = |it: &Declared| {
            let (at, bytes) = (value(&it.at, launch)?, value(&it.bytes, launch)?);
            Some(Use { at, bytes, write: it.write })
        };
        self.0.iter().map(one).collect()
    }
}

fn value(formula: &Formula, launch: &impl Launch) -> Option<u64> {
    let term = |term: &Term| match *term {
        Term::Number(n) => Some(n),
        Term::Parameter { index, offset, width } => launch.parameter(index, offset, width),
        Term::Threads => Some(launch.threads()),
        Term::Blocks => Some(launch.blocks()),
    };
    formula.iter().try_fold(0u64, |sum, product| {
        let product = product.iter().try_fold(1u64, |p, t| p.checked_mul(term(t)?))?;
        sum.checked_add(product)
    })
}

/// Whether a name fits a pattern in which `*` is any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let parts: Vec<_> = rest.split('*').collect();
    let Some((last, middle)) = parts.split_last() else { return true };
    for part in middle {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

fn parse(text: &str) -> Result<Uses, String> {
    let mut words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty());
    let mut uses = Vec::new();
    while let Some(how) = words.next() {
        let write = match how {
            "read" => false,
            "write" => true,
            _ => return Err(format!("'{how}' stands where 'read' or 'write' should")),
        };
        let at = words.next().ok_or(format!("'{how}' is followed by no address"))?;
        let bytes = words.next().and_then(|word| word.strip_prefix("bytes="));
        let bytes = bytes.ok_or(format!("'{how} {at}' is not followed by bytes=..."))?;
        uses.push(Declared { write, at: formula(at)?, bytes: formula(bytes)? });
    }
    Ok(Uses(uses))
}

fn formula(text: &str) -> Result<Formula, String> {
    text.split('+').map(|product| product.split('*').map(term).collect()).collect()
}

fn term(text: &str) -> Result<Term, String> {
    let wrong =
        || format!("'{text}' is no value; write p0, w2, p1[16], threads, blocks or a number");
    match text {
        "threads" => return Ok(Term::Threads),
        "blocks" => return Ok(Term::Blocks),
        _ => {}
    }
    let width = match text.as_bytes().first() {
        Some(b'p') => 8,
        Some(b'w') => 4,
        _ => return text.parse().map(Term::Number).map_err(|_| wrong()),
    };
    let inner = text[1..].strip_suffix(']').map(|inner| inner.split_once('['));
    let (index, offset) = match inner {
        None => (&text[1..], "0"),
        Some(parts) => parts.ok_or_else(wrong)?,
    };
    let number = |digits: &str| digits.parse::<usize>().ok().filter(|n| *n < 1 << 16);
    let (index, offset) = (number(index).ok_or_else(wrong)?, number(offset).ok_or_else(wrong)?);
    Ok(Term::Parameter { index, offset, width })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Launch for Fake {
        fn parameter(&self, index: usize, offset: usize, width: usize) -> Option<u64> {
            (index < 3).then_some((1000 * index + 10 * offset + width) as u64)
        }
        fn blocks(&self) -> u64 {
            5
        }
        fn threads(&self) -> u64 {
            640
        }
    }

    fn uses(text: &str) -> Option<Vec<Use>> {
        parse(text).expect("a right declaration").of(&Fake)
    }

    #[test]
    fn formulas_are_worked_out_from_the_launch() {
        let expected = [
            Use { at: 8, bytes: 2004 * 4, write: true },
            Use { at: 1000 + 160 + 8 + 64, bytes: 640 * 2 + 5, write: false },
        ];
        let text = "write p0 bytes=w2*4, read p1[16]+64 bytes=threads*2+blocks";
        assert_eq!(uses(text), Some(expected.to_vec()));
        assert_eq!(uses(""), Some(Vec::new()));
        assert_eq!(uses("read p3 bytes=1"), None, "no such parameter");
        assert_eq!(uses("read p0 bytes=18446744073709551615*2"), None, "too many");
    }

    #[test]
    fn a_star_is_any_text() {
        for (pattern, name, fit) in [
            ("f", "f", true),
            ("f", "ff", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "acb", false),
            ("*b*", "abc", true),
            ("*bb*b", "abbb", true),
            ("*bb*bb", "abbb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, name), fit, "{pattern} {name}");
        }
    }

    #[test]
    fn the_last_line_that_fits_holds() {
        let mut kernels = Kernels::default();
        let text = "# all\n*  write p0 bytes=1\n\nscale* # nothing\n";
        kernels.declare_all(text).expect("right lines");
        let count = |kernels: &mut Kernels, name| kernels.find(name).map(|uses| uses.0.len());
        assert_eq!(count(&mut kernels, "other"), Some(1));
        assert_eq!(count(&mut kernels, "scale_float"), Some(0));
        kernels.declare("scale_float", "read p0 bytes=1 read p1 bytes=2").expect("right");
        assert_eq!(count(&mut kernels, "scale_float"), Some(2), "found anew");
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        let mut kernels = Kernels::default();
        for (uses, why) in [
            ("writes p0 bytes=1", "'writes'"),
            ("write", "no address"),
            ("write p0", "bytes="),
            ("write p0 4", "bytes="),
            ("write x0 bytes=4", "'x0'"),
            ("write p0 bytes=p", "'p'"),
            ("write p0 bytes=p1[", "'p1['"),
            ("write p0 bytes=4*", "''"),
            ("write p0[-1] bytes=4", "'p0[-1]'"),
        ] {
            let said = kernels.declare("f", uses).expect_err(uses);
            assert!(said.contains(why), "{said}");
        }
        let said = kernels.declare_all("a\nb oops").expect_err("a wrong line");
        assert!(said.starts_with("line 2: b: 'oops'"), "{said}");
    }
}
