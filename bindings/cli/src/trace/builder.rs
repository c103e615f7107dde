//! The grammar of a trace, enforced while it is read.
//!
//! Names from outside (slots, streams, addresses: any u64) become small dense numbers here, so a
//! hostile file cannot ask for more memory than it has lines.

use std::collections::HashMap;

use super::{Event, Slot, StreamNumber, Trace};

/// Largest request that is believed, in bytes: sums of all live ones then fit in 64 bits.
const LARGEST_REQUEST: u64 = 1 << 50;

/// Events at most, so that a small compressed file cannot fill the host's memory.
const MOST_EVENTS: usize = 1 << 28;

/// Streams at most: a replayer makes every one of them.
const MOST_STREAMS: usize = 4096;

/// The default stream's name in every format, after the reader has mapped it.
pub const DEFAULT_STREAM: u64 = 0;

/// Makes a [`Trace`] event by event; each method says why an event cannot be.
#[derive(Default)]
pub struct Builder {
    trace: Trace,
    live: HashMap<u64, Slot>,
    spare: Vec<Slot>,
    streams: HashMap<u64, StreamNumber>,
    live_bytes: u64,
    bytes: Vec<u64>,
}

impl Builder {
    /// An empty trace of this name.
    pub fn new(name: &str) -> Self {
        let mut builder = Self::default();
        builder.trace.name = name.to_owned();
        builder.streams.insert(DEFAULT_STREAM, 0);
        builder
    }

    /// Gives it another name.
    pub fn rename(&mut self, name: &str) {
        self.trace.name = name.to_owned();
    }

    /// Something that the reader decided by itself and the user should know.
    pub fn note(&mut self, sentence: String) {
        self.trace.notes.push(sentence);
    }

    /// `id` becomes a live block.
    pub fn alloc(&mut self, line: u32, id: u64, bytes: u64, stream: u64) -> Result<(), String> {
        if bytes == 0 {
            return Err(format!("block {id} is allocated with 0 bytes: sizes must be above zero"));
        }
        if bytes > LARGEST_REQUEST {
            return Err(format!("block {id} asks for {bytes} bytes, more than any device has"));
        }
        if self.live.contains_key(&id) {
            return Err(format!("block {id} is allocated while it is still live"));
        }
        let Some(live_bytes) = self.live_bytes.checked_add(bytes) else {
            return Err("live blocks add up to more than 2^64 bytes".to_owned());
        };
        let stream = self.stream(stream)?;
        self.room()?;
        let slot = self.spare.pop().unwrap_or_else(|| {
            self.bytes.push(0);
            self.trace.slots += 1;
            self.trace.slots - 1
        });
        self.live.insert(id, slot);
        self.live_bytes = live_bytes;
        self.bytes[slot as usize] = bytes;
        self.push(line, Event::Alloc { slot, stream, bytes });
        Ok(())
    }

    /// The live block `id` is freed.
    pub fn free(&mut self, line: u32, id: u64, stream: u64) -> Result<(), String> {
        let stream = self.stream(stream)?;
        self.room()?;
        let Some(slot) = self.live.remove(&id) else {
            return Err(format!("block {id} is freed, but it is not live"));
        };
        self.live_bytes -= self.bytes[slot as usize];
        self.spare.push(slot);
        self.push(line, Event::Free { slot, stream });
        Ok(())
    }

    /// The live block `id` is used on another stream, `None` if it is not known which.
    pub fn record(&mut self, line: u32, id: u64, stream: Option<u64>) -> Result<(), String> {
        let Some(&slot) = self.live.get(&id) else {
            return Err(format!("block {id} is used on a further stream, but it is not live"));
        };
        let stream = stream.map(|name| self.stream(name)).transpose()?;
        self.room()?;
        self.push(line, Event::Record { slot, stream });
        Ok(())
    }

    /// `waiter` waits for `awaited`.
    pub fn wait(&mut self, line: u32, waiter: u64, awaited: u64) -> Result<(), String> {
        let (waiter, awaited) = (self.stream(waiter)?, self.stream(awaited)?);
        self.room()?;
        self.push(line, Event::Wait { waiter, awaited });
        Ok(())
    }

    /// The host waits for the device.
    pub fn synchronize(&mut self, line: u32) -> Result<(), String> {
        self.room()?;
        self.push(line, Event::Synchronize);
        Ok(())
    }

    /// Unused memory goes back to the device.
    pub fn empty_cache(&mut self, line: u32) -> Result<(), String> {
        self.room()?;
        self.push(line, Event::EmptyCache);
        Ok(())
    }

    /// A phase begins.
    pub fn marker(&mut self, line: u32, label: &str) -> Result<(), String> {
        self.room()?;
        let index = self.trace.labels.len() as u32;
        self.trace.labels.push(label.to_owned());
        self.push(line, Event::Marker { index });
        Ok(())
    }

    /// Whether `id` is live.
    pub fn is_live(&self, id: u64) -> bool {
        self.live.contains_key(&id)
    }

    /// The finished trace.
    pub fn finish(mut self) -> Trace {
        self.trace.streams = self.streams.len() as u32;
        self.trace
    }

    fn push(&mut self, line: u32, event: Event) {
        self.trace.events.push(event);
        self.trace.lines.push(line);
    }

    fn room(&self) -> Result<(), String> {
        match self.trace.events.len() {
            MOST_EVENTS => Err(format!("more than {MOST_EVENTS} events")),
            _ => Ok(()),
        }
    }

    fn stream(&mut self, name: u64) -> Result<StreamNumber, String> {
        if let Some(&number) = self.streams.get(&name) {
            return Ok(number);
        }
        if self.streams.len() == MOST_STREAMS {
            return Err(format!("more than {MOST_STREAMS} streams"));
        }
        let number = self.streams.len() as StreamNumber;
        self.streams.insert(name, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_held() {
        let mut builder = Builder::new("t");
        assert!(builder.alloc(1, 7, 100, 0).is_ok());
        assert!(builder.alloc(2, 7, 100, 0).is_err_and(|why| why.contains("still live")));
        assert!(builder.alloc(3, 8, 0, 0).is_err_and(|why| why.contains("0 bytes")));
        assert!(builder.alloc(3, 8, u64::MAX, 0).is_err_and(|why| why.contains("any device")));
        assert!(builder.free(4, 9, 0).is_err_and(|why| why.contains("not live")));
        assert!(builder.record(5, 9, None).is_err_and(|why| why.contains("not live")));
        assert!(builder.free(6, 7, 0).is_ok());
        assert!(builder.free(7, 7, 0).is_err());
        let trace = builder.finish();
        assert_eq!((trace.events.len(), trace.slots, trace.streams), (2, 1, 1));
        assert_eq!(trace.lines, [1, 6]);
    }

    #[test]
    fn huge_names_cost_nothing() {
        let mut builder = Builder::new("t");
        builder.alloc(1, u64::MAX, 1, u64::MAX).expect("any name is a name");
        builder.alloc(2, u64::MAX - 1, 1, 5).expect("any name is a name");
        let trace = builder.finish();
        assert_eq!((trace.slots, trace.streams), (2, 3));
    }

    #[test]
    fn ideal_is_the_peak_of_rounded_requests() {
        let mut builder = Builder::new("t");
        builder.alloc(1, 0, 1, 0).expect("fits");
        builder.alloc(2, 1, 513, 0).expect("fits");
        builder.free(3, 0, 0).expect("is live");
        builder.alloc(4, 0, 512, 0).expect("fits");
        let ideal = builder.finish().ideal();
        assert_eq!((ideal.requested, ideal.allocated), (513 + 512, 1024 + 512));
    }
}
