//! Reads Cuddy's own snapshot: what `cuddy_snapshot()` and the flight recorder write.
//!
//! A trace is the history of one device, the one with most events; without a history there is none.
//! Blocks that were live before it began are allocated first: those that it frees without having
//! allocated them, and those that are live and that it never mentions. The last request that found no
//! memory is asked for where it was, and freed at once: the program went on without it.

use std::collections::{BTreeMap, HashMap};

use super::builder::DEFAULT_STREAM;
use super::{Builder, Short, Trace, TraceError};
use crate::snapshot::{Event, Kind, Snapshot};

/// How a snapshot begins.
pub const MAGIC: &[u8] = b"{";

/// The name of the block that could not be had: no block lies there.
const WANTED: u64 = u64::MAX;

/// Reads a whole snapshot.
pub fn read(input: &[u8], file_name: &str) -> Result<Trace, TraceError> {
    let snapshot = Snapshot::parse(input).map_err(TraceError::whole)?;
    let mut builder = Builder::new(file_name);
    let device = busiest_device(&snapshot)?;
    let events: Vec<&Event> =
        snapshot.history.events.iter().filter(|event| event.2 == device).collect();
    let before = live_before(&snapshot, device, &events);
    if !before.is_empty() {
        builder.note(format!("{} blocks were live before the history began", before.len()));
    }
    let at = |place: u32| move |why| TraceError { place: format!("event {place}"), reason: why };
    for (&address, &(bytes, stream)) in &before {
        builder.alloc(0, address, bytes, stream).map_err(at(0))?;
    }
    let last_failure = events.iter().rposition(|event| event.1 == Kind::OutOfMemory);
    for (place, event) in events.iter().enumerate() {
        let line = place as u32 + 1;
        let (kind, stream, address, requested) = (event.1, stream_of(event.3), event.4, event.6);
        let done = match kind {
            Kind::Alloc => builder.alloc(line, address, requested, stream),
            Kind::Free => builder.free(line, address, stream),
            Kind::OutOfMemory if Some(place) == last_failure => builder
                .alloc(line, WANTED, requested, stream)
                .and_then(|()| builder.free(line, WANTED, stream)),
            _ => Ok(()),
        };
        done.map_err(at(line))?;
    }
    let mut trace = builder.finish();
    trace.short = snapshot
        .out_of_memory
        .filter(|shortage| shortage.device == device && last_failure.is_some())
        .map(|shortage| Short { shortage, options: snapshot.options });
    Ok(trace)
}

/// The legacy default stream, under the name that every trace has for it.
fn stream_of(handle: u64) -> u64 {
    if handle <= 1 { DEFAULT_STREAM } else { handle }
}

fn busiest_device(snapshot: &Snapshot) -> Result<i32, TraceError> {
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for event in snapshot.history.events.iter().filter(|event| event.2 >= 0) {
        *counts.entry(event.2).or_default() += 1;
    }
    let busiest = counts.into_iter().max_by_key(|&(device, count)| (count, -device));
    busiest.map(|(device, _)| device).ok_or_else(|| {
        TraceError::whole(
            "the snapshot has no history: call cuddy_record_history() before the work that it should show, \
             or set CUDDY_OOM_SNAPSHOT",
        )
    })
}

/// Blocks live before the history: address to bytes and stream.
fn live_before(snapshot: &Snapshot, device: i32, events: &[&Event]) -> BTreeMap<u64, (u64, u64)> {
    let mut before = BTreeMap::new();
    // Addresses that the history mentions.
    let mut mentioned: HashMap<u64, ()> = HashMap::new();
    for event in events.iter().filter(|event| matches!(event.1, Kind::Alloc | Kind::Free)) {
        if mentioned.insert(event.4, ()).is_none() && event.1 == Kind::Free {
            before.insert(event.4, (event.6, stream_of(event.3)));
        }
    }
    let of_device = snapshot.devices.iter().filter(|it| it.device == device);
    for segment in of_device.flat_map(|device| &device.segments) {
        let mut address = segment.address;
        for block in &segment.blocks {
            if block.state == "live" && !mentioned.contains_key(&address) {
                before.insert(address, (block.requested, stream_of(block.stream)));
            }
            address = address.wrapping_add(block.bytes);
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::super::Event as Step;
    use super::*;

    fn snapshot(history: &str) -> String {
        let columns = "\"time_us\",\"kind\",\"device\",\"stream\",\"address\",\"bytes\",\"requested\",\"scope\",\"thread\"";
        let block = |bytes: u64, state: &str| {
            format!(
                "{{\"bytes\":{bytes},\"requested\":{},\"state\":\"{state}\",\"stream\":9,\"scope\":0,\"run\":0}}",
                bytes - 1
            )
        };
        let blocks = [block(512, "live"), block(1024, "live"), block(512, "free")].join(",");
        format!(
            "{{\"format\":\"cuddy-snapshot\",\"version\":1,\"library\":\"0\",\"time_us\":9,\"devices\":[{{\"device\":0,\
             \"stats\":{{}},\"segments\":[{{\"pool\":0,\"address\":4096,\"blocks\":[{blocks}]}}]}}],\"scopes\":[],\
             \"history\":{{\"noted\":9,\"lost\":0,\"columns\":[{columns}],\"events\":[{history}]}}}}"
        )
    }

    #[test]
    fn what_was_live_comes_first_and_the_last_failure_is_asked_for() {
        let history = "[1,\"free\",0,9,8192,512,400,0,1],[2,\"out_of_memory\",0,9,0,0,7000,0,1],\
                       [3,\"alloc\",0,1,4608,1024,1023,0,1],[4,\"growth\",0,0,0,4096,0,0,1],\
                       [5,\"out_of_memory\",0,9,0,0,9000,0,1]";
        let trace = read(snapshot(history).as_bytes(), "file").expect("it is well formed");
        let bytes: Vec<u64> = trace
            .events
            .iter()
            .map(|step| if let Step::Alloc { bytes, .. } = step { *bytes } else { 0 })
            .collect();
        // Two were live before; one is freed, one is allocated, and one is wanted.
        assert_eq!(bytes, [511, 400, 0, 1023, 9000, 0]);
        assert_eq!((trace.streams, trace.short.is_none()), (2, true));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = read(snapshot("").as_bytes(), "file").expect_err("there is no history");
        assert!(error.to_string().contains("cuddy_record_history"), "{error}");
        let twice = "[1,\"alloc\",0,1,512,512,1,0,1],[1,\"alloc\",0,1,512,512,1,0,1]";
        let error = read(snapshot(twice).as_bytes(), "file").expect_err("it is live");
        assert!(error.to_string().contains("event 2"), "{error}");
        assert!(read(b"{}", "file").expect_err("it is empty").to_string().contains("no snapshot"));
    }
}
