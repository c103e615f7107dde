//! Reads PyTorch's memory snapshot: the pickle that `torch.cuda.memory._dump_snapshot` writes.
//!
//! A trace is the history of one device (`device_traces`), the one with most entries. Blocks that
//! were live before the history began are allocated first: those that it frees without having
//! allocated them, and those that the segments list as allocated and the history never mentions.
//! A free that the allocator could complete only later had been recorded on some other stream.

use std::collections::{BTreeMap, HashMap};

use super::pickle::{Id, Pickle};
use super::{Builder, Trace, TraceError};

struct Entry {
    frees: bool,
    address: u64,
    bytes: u64,
    stream: u64,
    delayed: bool,
    place: u32,
}

/// Reads a whole snapshot.
pub fn read(input: &[u8], file_name: &str) -> Result<Trace, TraceError> {
    let pickle = Pickle::read(input)?;
    let mut builder = Builder::new(file_name);
    let (device, history) = busiest_device(&pickle, &mut builder)?;
    let entries = entries_of(&pickle, history)?;
    let before = live_before(&pickle, device, &entries)?;
    if !before.is_empty() {
        builder.note(format!("{} blocks were live before the history began", before.len()));
    }
    for (&address, &(bytes, stream)) in &before {
        builder.alloc(0, address, bytes, stream).map_err(|why| entry_error(0, why))?;
    }
    for entry in &entries {
        replay_entry(entry, &mut builder).map_err(|why| entry_error(entry.place, why))?;
    }
    Ok(builder.finish())
}

fn replay_entry(entry: &Entry, builder: &mut Builder) -> Result<(), String> {
    if !entry.frees {
        return builder.alloc(entry.place, entry.address, entry.bytes, entry.stream);
    }
    if entry.delayed && builder.is_live(entry.address) {
        builder.record(entry.place, entry.address, None)?;
    }
    builder.free(entry.place, entry.address, entry.stream)
}

fn entry_error(place: u32, reason: String) -> TraceError {
    TraceError { place: format!("entry {place}"), reason }
}

fn busiest_device<'p>(
    pickle: &'p Pickle,
    builder: &mut Builder,
) -> Result<(i64, &'p [Id]), TraceError> {
    let missing = "not a memory snapshot: there is no list `device_traces` in it";
    let traces = pickle.get(pickle.root(), "device_traces").and_then(|id| pickle.list(id));
    let traces = traces.ok_or_else(|| TraceError::whole(missing))?;
    let mut busiest: (i64, &[Id]) = (0, &[]);
    let mut busy = 0;
    for (device, &history) in traces.iter().enumerate() {
        let history = pickle.list(history).ok_or_else(|| TraceError::whole(missing))?;
        busy += u32::from(!history.is_empty());
        if history.len() > busiest.1.len() {
            busiest = (device as i64, history);
        }
    }
    if busiest.1.is_empty() {
        return Err(TraceError::whole(
            "the snapshot has no history: call torch.cuda.memory._record_memory_history() before \
             the work that it should show",
        ));
    }
    if busy > 1 {
        let device = busiest.0;
        builder.note(format!("{busy} devices have a history; this is device {device}'s"));
    }
    Ok(busiest)
}

/// The allocations and frees of a history, each free marked as delayed or not.
fn entries_of(pickle: &Pickle, history: &[Id]) -> Result<Vec<Entry>, TraceError> {
    let mut entries: Vec<Entry> = Vec::new();
    // Frees asked for and not yet completed, with their index.
    let mut pending: HashMap<u64, usize> = HashMap::new();
    for (index, &id) in history.iter().enumerate() {
        let place = index as u32 + 1;
        let wrong = |what: &str| entry_error(place, format!("`{what}` is missing or no number"));
        let action = pickle.get(id, "action").and_then(|id| pickle.text(id));
        let action = action.ok_or_else(|| entry_error(place, "no `action`".to_owned()))?;
        if !matches!(action, "alloc" | "free_requested" | "free_completed") {
            continue;
        }
        let number = |key: &str| {
            pickle.get(id, key).and_then(|id| pickle.integer(id)).map(|number| number as u64)
        };
        let address = number("addr").ok_or_else(|| wrong("addr"))?;
        if action == "free_completed" {
            if let Some(free) = pending.remove(&address) {
                entries[free].delayed = free + 1 < entries.len();
            }
            continue;
        }
        let bytes = number("size").ok_or_else(|| wrong("size"))?;
        let stream = number("stream").ok_or_else(|| wrong("stream"))?;
        let frees = action == "free_requested";
        if frees {
            pending.insert(address, entries.len());
        }
        entries.push(Entry { frees, address, bytes, stream, delayed: false, place });
    }
    // What never completed within the history was delayed, unless the history ends right there.
    for free in pending.into_values() {
        entries[free].delayed = free + 1 < entries.len();
    }
    Ok(entries)
}

/// Blocks live before the history: address to bytes and stream.
fn live_before(
    pickle: &Pickle,
    device: i64,
    entries: &[Entry],
) -> Result<BTreeMap<u64, (u64, u64)>, TraceError> {
    let mut before = BTreeMap::new();
    let mut mentioned: HashMap<u64, bool> = HashMap::new();
    for entry in entries {
        let known = mentioned.insert(entry.address, !entry.frees);
        if entry.frees && known.is_none() {
            before.insert(entry.address, (entry.bytes, entry.stream));
        }
    }
    let segments = pickle.get(pickle.root(), "segments").and_then(|id| pickle.list(id));
    for &segment in segments.unwrap_or_default() {
        let number = |id: Id, key: &str| pickle.get(id, key).and_then(|id| pickle.integer(id));
        if number(segment, "device").is_some_and(|of| of != device) {
            continue;
        }
        let malformed = || TraceError::whole("a segment of the snapshot is malformed");
        let mut address = number(segment, "address").ok_or_else(malformed)? as u64;
        let stream = number(segment, "stream").ok_or_else(malformed)? as u64;
        let blocks = pickle.get(segment, "blocks").and_then(|id| pickle.list(id));
        for &block in blocks.ok_or_else(malformed)? {
            let size = number(block, "size").ok_or_else(malformed)? as u64;
            let requested = number(block, "requested_size").map_or(size, |bytes| bytes as u64);
            let state = pickle.get(block, "state").and_then(|id| pickle.text(id));
            if state == Some("active_allocated") && !mentioned.contains_key(&address) {
                before.insert(address, (requested, stream));
            }
            // Older snapshots give no addresses: blocks tile their segment.
            address = address.wrapping_add(size);
        }
    }
    Ok(before)
}
