#![forbid(unsafe_code)]
//! Scopes: names that a program gives to parts of its run, and the blocks that were allocated in them.
//!
//! Scopes form a tree: one begun inside another is its child. A block belongs to the scope that was
//! innermost on its thread. For every scope, its children included:
//! `live == allocated - freed <= peak`.

use std::collections::HashMap;
use std::fmt::Write;

use crate::error::{Error, Words, sentence};
use crate::hash::ByNumber;

/// The scope of whatever is in none; it has all others in it.
pub(crate) const OUTSIDE: u32 = 0;
/// The most scopes of different names and parents.
const MOST: usize = 1 << 16;

/// A few scopes and the bytes that are live of each.
pub(crate) type Largest = [(u32, u64); 5];

/// Bytes as they were asked for, and blocks, of a scope and those in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub live_bytes: u64,
    pub live_count: u64,
    pub peak_bytes: u64,
    pub total_bytes: u64,
    pub total_count: u64,
}

#[derive(Debug)]
struct Scope {
    name: String,
    parent: u32,
    /// How often it was begun.
    runs: u64,
    figures: Figures,
}

/// A live block, as scopes know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub scope: u32,
    pub device: u32,
    /// Which run of the scope it was.
    pub run: u64,
    pub stream: u64,
    pub bytes: u64,
    pub requested: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// By number; the first is [`OUTSIDE`].
    scopes: Vec<Scope>,
    children: HashMap<(u32, String), u32>,
    live: HashMap<u64, Known, ByNumber>,
    /// What the program says of live blocks; of most, nothing.
    labels: HashMap<u64, String, ByNumber>,
}

impl Scopes {
    /// The scope of that name in `parent`, begun once more: its number, and which run it is.
    pub fn begin(&mut self, parent: u32, name: &str) -> Result<(u32, u64), Error> {
        self.prepare()?;
        let key = (parent, owned(name)?);
        let number = match self.children.get(&key) {
            Some(&number) => number,
            None => {
                if self.scopes.len() >= MOST {
                    return Err(Error::NotSupported(sentence!(
                        "there are {MOST} scopes of different names already: use one name for what is \
                         repeated, each run has its number"
                    )));
                }
                self.children.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                self.scopes.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
                let (number, name) = (self.scopes.len() as u32, owned(name)?);
                self.scopes.push(Scope { name, parent, runs: 0, figures: Figures::default() });
                self.children.insert(key, number);
                number
            }
        };
        let scope = &mut self.scopes[number as usize];
        scope.runs += 1;
        Ok((number, scope.runs))
    }

    /// Makes the outermost scope.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.scopes.is_empty() {
            self.scopes.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
            let name = String::new();
            self.scopes.push(Scope { name, parent: 0, runs: 1, figures: Figures::default() });
        }
        Ok(())
    }

    /// The scope's name, and the scope that it is in.
    pub fn name(&self, scope: u32) -> (&str, u32) {
        self.scopes.get(scope as usize).map_or(("", OUTSIDE), |it| (&it.name, it.parent))
    }

    /// A block was handed out. Where host memory has no room for it, it is not known.
    #[inline]
    pub fn add(&mut self, address: u64, block: Known) {
        if self.scopes.is_empty() && self.prepare().is_err() || self.live.try_reserve(1).is_err() {
            return;
        }
        if let Some(before) = self.live.insert(address, block) {
            // It vanished with its device.
            self.forget(address, before);
        }
        self.change(block.scope, |figures| {
            figures.live_bytes += block.requested;
            figures.live_count += 1;
            figures.peak_bytes = figures.peak_bytes.max(figures.live_bytes);
            figures.total_bytes += block.requested;
            figures.total_count += 1;
        });
    }

    /// A block goes; what was known of it.
    #[inline]
    pub fn remove(&mut self, address: u64) -> Option<(Known, Option<String>)> {
        let block = self.live.remove(&address)?;
        Some((block, self.forget(address, block)))
    }

    /// Nothing of the block counts as live any more; its label.
    #[inline]
    fn forget(&mut self, address: u64, block: Known) -> Option<String> {
        self.change(block.scope, |figures| {
            figures.live_bytes -= block.requested;
            figures.live_count -= 1;
        });
        if self.labels.is_empty() { None } else { self.labels.remove(&address) }
    }

    /// A block that was removed is there after all.
    pub fn put_back(&mut self, address: u64, (block, label): (Known, Option<String>)) {
        if self.live.try_reserve(1).is_err() {
            return;
        }
        self.change(block.scope, |figures| {
            figures.live_bytes += block.requested;
            figures.live_count += 1;
        });
        self.live.insert(address, block);
        if let Some(label) = label {
            let _ = self.annotate(address, &label);
        }
    }

    /// Says what a live block is for; "" takes that away. `false` if the block is not known.
    pub fn annotate(&mut self, address: u64, label: &str) -> Result<bool, Error> {
        if !self.live.contains_key(&address) {
            return Ok(false);
        }
        if label.is_empty() {
            self.labels.remove(&address);
            return Ok(true);
        }
        self.labels.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        self.labels.insert(address, owned(label)?);
        Ok(true)
    }

    /// What a live block is for; "" is not said.
    pub fn label(&self, address: u64) -> &str {
        self.labels.get(&address).map_or("", String::as_str)
    }

    /// What is known of a live block.
    pub fn get(&self, address: u64) -> Option<&Known> {
        self.live.get(&address)
    }

    /// A scope and all that it is in.
    #[inline]
    fn change(&mut self, scope: u32, how: impl Fn(&mut Figures)) {
        let mut number = scope;
        loop {
            let Some(scope) = self.scopes.get_mut(number as usize) else { return };
            how(&mut scope.figures);
            if number == OUTSIDE {
                return;
            }
            number = scope.parent;
        }
    }

    /// Every scope: number, parent, name, runs and figures; parents come before their children.
    pub fn each(&self) -> impl Iterator<Item = (u32, u32, &str, u64, Figures)> {
        (0..)
            .zip(&self.scopes)
            .map(|(number, it)| (number, it.parent, it.name.as_str(), it.runs, it.figures))
    }

    /// Its names from the outermost on, with slashes between.
    pub fn path(&self, scope: u32) -> String {
        let mut way = [OUTSIDE; 64];
        let (mut depth, mut number) = (0, scope);
        while number != OUTSIDE && depth < way.len() {
            way[depth] = number;
            depth += 1;
            number = self.name(number).1;
        }
        let mut path = Words::default();
        for (place, &number) in way[..depth].iter().rev().enumerate() {
            let slash = if place == 0 { "" } else { "/" };
            // What host memory has no room for is cut.
            let _ = write!(path, "{slash}{}", self.name(number).0);
        }
        path.into_string()
    }

    /// The scope that a path names.
    pub fn find(&self, path: &str) -> Option<u32> {
        self.each().map(|it| it.0).find(|&number| self.path(number) == path)
    }

    /// The scopes that most live bytes of a device were allocated in, those inside them not included,
    /// most first; no bytes are no scope.
    pub fn largest(&self, device: u32) -> Largest {
        let mut largest = Largest::default();
        let mut sums = Vec::new();
        if sums.try_reserve_exact(self.scopes.len()).is_err() {
            return largest;
        }
        sums.extend((0..).zip(&self.scopes).map(|(number, _): (u32, _)| (number, 0)));
        for block in self.live.values().filter(|block| block.device == device) {
            if let Some((_, bytes)) = sums.get_mut(block.scope as usize) {
                *bytes += block.requested;
            }
        }
        sums.sort_unstable_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        for (to, from) in largest.iter_mut().zip(sums) {
            *to = from;
        }
        largest
    }

    /// The live blocks of a scope and those in it, oldest runs first, then by address.
    pub fn live_in(&self, scope: u32) -> Result<Vec<(u64, &Known)>, Error> {
        let within = |mut number: u32| loop {
            if number == scope {
                return true;
            }
            if number == OUTSIDE {
                return false;
            }
            number = self.name(number).1;
        };
        let mut found = Vec::new();
        for (&address, block) in self.live.iter().filter(|(_, block)| within(block.scope)) {
            found.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
            found.push((address, block));
        }
        found.sort_unstable_by_key(|(address, block)| (block.run, *address));
        Ok(found)
    }
}

/// A copy, or an error where host memory has no room for it.
fn owned(text: &str) -> Result<String, Error> {
    let mut copy = String::new();
    copy.try_reserve_exact(text.len()).map_err(|_| Error::HostOutOfMemory)?;
    copy.push_str(text);
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(scope: u32, run: u64, requested: u64) -> Known {
        Known { scope, run, device: 0, stream: 1, bytes: 512, requested }
    }

    fn figures(scopes: &Scopes, number: u32) -> Figures {
        scopes.each().find(|it| it.0 == number).expect("it is there").4
    }

    #[test]
    fn figures_hold_for_a_scope_and_all_that_it_is_in() {
        let mut scopes = Scopes::default();
        let (epoch, _) = scopes.begin(OUTSIDE, "epoch").expect("memory");
        let (step, first) = scopes.begin(epoch, "step").expect("memory");
        let (again, second) = scopes.begin(epoch, "step").expect("memory");
        assert_eq!((again, first, second), (step, 1, 2));
        scopes.add(512, block(step, 1, 100));
        scopes.add(1024, block(step, 2, 200));
        scopes.add(1536, block(epoch, 1, 50));
        scopes.add(2048, block(OUTSIDE, 0, 7));
        scopes.remove(1024);
        let live =
            |number| (figures(&scopes, number).live_bytes, figures(&scopes, number).live_count);
        assert_eq!((live(step), live(epoch), live(OUTSIDE)), ((100, 1), (150, 2), (157, 3)));
        assert_eq!(figures(&scopes, step).peak_bytes, 300);
        assert_eq!(figures(&scopes, OUTSIDE).total_count, 4);
        assert_eq!((scopes.path(step).as_str(), scopes.path(OUTSIDE).as_str()), ("epoch/step", ""));
        assert_eq!((scopes.find("epoch/step"), scopes.find("step")), (Some(step), None));
        assert_eq!(scopes.largest(0), [(step, 100), (epoch, 50), (OUTSIDE, 7), (0, 0), (0, 0)]);
        assert!(scopes.largest(1).iter().all(|&(_, bytes)| bytes == 0));
        let left: Vec<u64> =
            scopes.live_in(step).expect("memory").iter().map(|(address, _)| *address).collect();
        assert_eq!(left, [512]);
        assert_eq!(scopes.live_in(OUTSIDE).expect("memory").len(), 3);
    }

    #[test]
    fn an_address_that_comes_back_is_counted_once() {
        let mut scopes = Scopes::default();
        scopes.add(512, block(OUTSIDE, 0, 10));
        scopes.add(512, block(OUTSIDE, 0, 30));
        assert_eq!(figures(&scopes, OUTSIDE).live_bytes, 30);
        let taken = scopes.remove(512).expect("it is there");
        scopes.put_back(512, taken);
        assert_eq!(figures(&scopes, OUTSIDE).total_count, 2);
        assert_eq!(figures(&scopes, OUTSIDE).live_count, 1);
        assert_eq!(scopes.remove(99), None);
    }

    #[test]
    fn a_label_goes_with_its_block() {
        let mut scopes = Scopes::default();
        scopes.add(512, block(OUTSIDE, 0, 10));
        assert_eq!(scopes.annotate(512, "weights"), Ok(true));
        assert_eq!(scopes.annotate(1024, "nobody"), Ok(false));
        let taken = scopes.remove(512).expect("it is there");
        assert_eq!(scopes.label(512), "");
        scopes.put_back(512, taken);
        assert_eq!(scopes.label(512), "weights");
        scopes.add(512, block(OUTSIDE, 0, 20));
        assert_eq!(scopes.label(512), "", "another block");
    }
}
