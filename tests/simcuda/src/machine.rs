//! The **machine**: runs work on the memory.
//!
//! Every byte that is touched was just found in the page table; what is not there, or not allowed,
//! is a fault, and nothing of the work after the fault takes place.

use crate::faults::mix;
use crate::memory::Memory;
use crate::memory::table::{Actor, Fault, Mapping, Reason};
use crate::work::{Body, Kernel, Plane, Work, pattern_offsets};

/// Runs one piece of work that needs nothing but memory.
pub fn run(memory: &Memory, work: &Work) -> Result<(), Fault> {
    if work.poisoned {
        return Err(Fault { address: 0, reason: Reason::Poisoned });
    }
    let mut view = View { memory, actor: work.actor, last: None, written: 0 };
    match &work.body {
        &Body::Fill { at, pitch, width, rows, size, value } => {
            let bytes = &value.to_le_bytes()[..size as usize];
            (0..rows).try_for_each(|row| view.fill(at + row * pitch, width * size, bytes))
        }
        Body::Copy { to, from, width, rows, staged } => {
            view.copy_rows(*to, *from, *width, *rows, staged.as_deref())
        }
        Body::Kernel(kernel) => view.kernel(*kernel),
        Body::Declared(uses) => {
            uses.iter().try_for_each(|it| view.check(it.at, it.bytes, it.write))
        }
        Body::Publish(event, record) => {
            event.finish(*record);
            Ok(())
        }
        Body::Host(_) | Body::SpinReal { .. } | Body::Await(..) | Body::Nothing => Ok(()),
    }
}

/// Test access to memory: past the checker and past all rights.
pub fn peek(memory: &Memory, address: u64, into: &mut [u8]) -> Result<(), Fault> {
    View { memory, actor: NOBODY, last: None, written: 0 }.read(address, into)
}

/// The same, writing.
pub fn poke(memory: &Memory, address: u64, from: &[u8]) -> Result<(), Fault> {
    View { memory, actor: NOBODY, last: None, written: 0 }.write(address, from)
}

/// The test itself: a device that does not exist, whose rights nobody asks for.
const NOBODY: Actor = Actor { device: u32::MAX, context: 0, engine: true };

struct View<'a> {
    memory: &'a Memory,
    actor: Actor,
    last: Option<&'a Mapping>,
    written: u64,
}

/// One side of a copy.
struct Side {
    at: u64,
    write: bool,
    pageable: bool,
}

impl<'a> View<'a> {
    fn permits(&self, mapping: &Mapping, write: bool) -> bool {
        self.actor.device == u32::MAX || self.memory.table.permits(mapping, self.actor, write)
    }

    /// The mapping at an address, if this actor may use it so.
    fn mapping(&mut self, address: u64, write: bool) -> Result<&'a Mapping, Fault> {
        let fault = |reason| Fault { address, reason };
        let near = self.last.filter(|m| m.start <= address && address < m.end());
        let mapping = near.or_else(|| self.memory.table.find(address));
        let mapping = mapping.ok_or(fault(Reason::Unmapped))?;
        if !self.permits(mapping, write) {
            return Err(fault(Reason::NoAccess));
        }
        if write && self.written != mapping.object {
            self.memory.touched(mapping.object);
            self.written = mapping.object;
        }
        self.last = Some(mapping);
        Ok(mapping)
    }

    /// The host's pointer to an address, and how far it holds.
    fn reach(&mut self, address: u64, bytes: u64, write: bool) -> Result<(*mut u8, usize), Fault> {
        let m = self.mapping(address, write)?;
        let at = m.base + (address - m.start);
        Ok((at as *mut u8, bytes.min(m.end() - address) as usize))
    }

    /// The same for copies, which may also use the program's own memory.
    fn reach_any(&mut self, side: &Side, done: u64, bytes: u64) -> Result<(*mut u8, usize), Fault> {
        match side.pageable {
            true => Ok(((side.at + done) as *mut u8, bytes as usize)),
            false => self.reach(side.at + done, bytes, side.write),
        }
    }

    /// A use that begins in memory that nobody mapped and no device has is a use of the program's
    /// own memory.
    fn side(&self, at: u64, write: bool) -> Side {
        let mapped = self.memory.is_device_address(at) || self.memory.table.find(at).is_some();
        Side { at, write, pageable: !mapped && self.actor.engine }
    }

    fn copy_rows(
        &mut self,
        to: Plane,
        from: Plane,
        width: u64,
        rows: u64,
        staged: Option<&[u8]>,
    ) -> Result<(), Fault> {
        for row in 0..rows {
            let (target, source) = (to.at + row * to.pitch, from.at + row * from.pitch);
            match staged {
                Some(bytes) => {
                    let at = source as usize;
                    self.write_side(&self.side(target, true), &bytes[at..at + width as usize])?;
                }
                None => self.copy(target, source, width)?,
            }
        }
        Ok(())
    }

    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), Fault> {
        let (to, from) = (self.side(to, true), self.side(from, false));
        let mut done = 0;
        while done < bytes {
            let (source, readable) = self.reach_any(&from, done, bytes - done)?;
            let (target, step) = self.reach_any(&to, done, readable as u64)?;
            // SAFETY: `reach` gave `step` bytes of live host mappings on both sides (or of memory
            // that the program named as its own); the lock keeps the page table as it is; `copy`
            // allows an overlap.
            unsafe { std::ptr::copy(source, target, step) };
            done += step as u64;
        }
        Ok(())
    }

    fn fill(&mut self, at: u64, bytes: u64, element: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            let (target, step) = self.reach(at + done, bytes - done, true)?;
            match element {
                // SAFETY: `reach` gave `step` writable bytes, and the lock keeps them.
                [value] => unsafe { target.write_bytes(*value, step) },
                _ => {
                    for i in 0..step {
                        let value = element[(done as usize + i) % element.len()];
                        // SAFETY: as above; `i < step`.
                        unsafe { target.add(i).write(value) };
                    }
                }
            }
            done += step as u64;
        }
        Ok(())
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < into.len() {
            let (source, step) = self.reach(at + done as u64, (into.len() - done) as u64, false)?;
            // SAFETY: `reach` gave `step` readable bytes, no more than are left in `into`, which is
            // apart from them.
            unsafe { std::ptr::copy_nonoverlapping(source, into[done..].as_mut_ptr(), step) };
            done += step;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Fault> {
        self.write_side(&Side { at, write: true, pageable: false }, from)
    }

    fn write_side(&mut self, to: &Side, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let (target, step) = self.reach_any(to, done as u64, (from.len() - done) as u64)?;
            // SAFETY: `reach` gave `step` writable bytes, no more than are left in `from`, which is
            // apart from them.
            unsafe { std::ptr::copy_nonoverlapping(from[done..].as_ptr(), target, step) };
            done += step;
        }
        Ok(())
    }

    fn check(&mut self, at: u64, bytes: u64, write: bool) -> Result<(), Fault> {
        let mut done = 0;
        while done < bytes {
            done += self.reach(at + done, bytes - done, write)?.1 as u64;
        }
        Ok(())
    }

    fn kernel(&mut self, kernel: Kernel) -> Result<(), Fault> {
        match kernel {
            Kernel::Fill { at, bytes, value } => self.fill(at, bytes, &[value]),
            Kernel::Copy { to, from, bytes } => self.copy(to, from, bytes),
            Kernel::Add { to, a, b, count } => self.add(to, a, b, count),
            Kernel::Touch { at, bytes, write } => self.check(at, bytes, write),
            Kernel::PatternWrite { at, bytes, stride, seed } => {
                self.pattern_write(at, bytes, stride, seed)
            }
            Kernel::PatternCheck { at, bytes, stride, seed, counter } => {
                let wrong = self.pattern_check(at, bytes, stride, seed)?;
                self.count(counter, wrong)
            }
            Kernel::Spin { .. } | Kernel::SpinReal { .. } | Kernel::Gate { .. } => Ok(()),
            Kernel::Unknown => Ok(()),
        }
    }

    fn add(&mut self, to: u64, a: u64, b: u64, count: u64) -> Result<(), Fault> {
        for i in 0..count {
            let (mut x, mut y) = ([0; 4], [0; 4]);
            self.read(a + 4 * i, &mut x)?;
            self.read(b + 4 * i, &mut y)?;
            let sum = f32::from_le_bytes(x) + f32::from_le_bytes(y);
            self.write(to + 4 * i, &sum.to_le_bytes())?;
        }
        Ok(())
    }

    fn pattern_write(&mut self, at: u64, bytes: u64, stride: u64, seed: u64) -> Result<(), Fault> {
        if bytes < 8 {
            return (0..bytes).try_for_each(|i| self.write(at + i, &[mix(seed ^ i) as u8]));
        }
        pattern_offsets(bytes, stride)
            .try_for_each(|o| self.write(at + o, &mix(seed ^ o).to_le_bytes()))
    }

    fn pattern_check(&mut self, at: u64, bytes: u64, stride: u64, seed: u64) -> Result<u64, Fault> {
        let mut wrong = 0;
        if bytes < 8 {
            let mut byte = [0];
            for i in 0..bytes {
                self.read(at + i, &mut byte)?;
                wrong += u64::from(byte[0] != mix(seed ^ i) as u8);
            }
            return Ok(wrong);
        }
        let mut word = [0; 8];
        for offset in pattern_offsets(bytes, stride) {
            self.read(at + offset, &mut word)?;
            wrong += u64::from(u64::from_le_bytes(word) != mix(seed ^ offset));
        }
        Ok(wrong)
    }

    /// The kernel's atomic addition: the lock makes it one.
    fn count(&mut self, counter: u64, wrong: u64) -> Result<(), Fault> {
        let mut word = [0; 8];
        self.read(counter, &mut word)?;
        let sum = u64::from_le_bytes(word).wrapping_add(wrong);
        self.write(counter, &sum.to_le_bytes())
    }
}
