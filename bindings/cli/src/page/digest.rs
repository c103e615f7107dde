//! What of a snapshot is drawn: for each device a timeline, the blocks of now and of every moment of the
//! timeline, call sites, and sums. All of it is bounded, however many events there were.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::moments::Moments;
use super::sites::Sites;
use super::timeline::{Failure, Line, Timeline};
use crate::snapshot::{DevicePart, Event, Shortage, Snapshot};

#[derive(Serialize)]
pub struct Digest<'a> {
    library: &'a str,
    time_us: u64,
    noted: u64,
    lost: u64,
    /// Whether memory was got as pages that can be mapped elsewhere; else the map shows none.
    pages: bool,
    devices: Vec<DeviceDigest<'a>>,
    scopes: Vec<Row<'a>>,
    /// The last request that found no memory.
    shortage: Option<&'a Shortage>,
}

/// A scope, for the table.
#[derive(Serialize)]
struct Row<'a> {
    scope: u32,
    path: &'a str,
    runs: u64,
    live_bytes: u64,
    live_count: u64,
    peak_bytes: u64,
    total_bytes: u64,
    total_count: u64,
}

#[derive(Serialize)]
struct DeviceDigest<'a> {
    device: i32,
    stats: &'a BTreeMap<String, u64>,
    /// address, pool, and blocks: bytes, requested, state, stream, scope, run, label, stack.
    segments: Vec<(u64, u32, Vec<Cell<'a>>)>,
    timeline: Timeline,
    moments: Moments,
    sites: Sites,
    failures: Vec<Failure>,
}

type Cell<'a> = (u64, u64, &'a str, u64, u32, u64, &'a str, u32);

impl<'a> Digest<'a> {
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let begin = snapshot.history.events.first().map_or(snapshot.time_us, |event| event.0);
        let paths: HashMap<u32, &str> =
            snapshot.scopes.iter().map(|it| (it.scope, it.path.as_str())).collect();
        let digest = |device| device_digest(snapshot, device, begin, &paths);
        Self {
            shortage: snapshot.out_of_memory.as_ref(),
            library: &snapshot.library,
            time_us: snapshot.time_us,
            noted: snapshot.history.noted,
            lost: snapshot.history.lost,
            pages: snapshot.options.get("backing").is_none_or(|backing| backing != "segments"),
            devices: snapshot.devices.iter().map(digest).collect(),
            scopes: snapshot
                .scopes
                .iter()
                .map(|it| Row {
                    scope: it.scope,
                    path: &it.path,
                    runs: it.runs,
                    live_bytes: it.live_bytes,
                    live_count: it.live_count,
                    peak_bytes: it.peak_bytes,
                    total_bytes: it.total_bytes,
                    total_count: it.total_count,
                })
                .collect(),
        }
    }
}

fn device_digest<'a>(
    snapshot: &'a Snapshot,
    device: &'a DevicePart,
    begin: u64,
    paths: &HashMap<u32, &str>,
) -> DeviceDigest<'a> {
    let seconds = |time: u64| time.saturating_sub(begin) as f64 / 1e6;
    let events: Vec<&Event> =
        snapshot.history.events.iter().filter(|event| event.2 == device.device).collect();
    let line = Line::of(device, &events, &seconds, snapshot.time_us, paths);
    let mut sites = Sites::of(device, &events, &snapshot.frames);
    let moments = Moments::of(device, &events, &line.after, &mut sites);
    let segments = device.segments.iter().map(|segment| {
        let cells = segment.blocks.iter().map(|it| {
            let (state, label, stack) =
                (it.state.as_str(), it.label.as_str(), sites.number(&it.stack));
            (it.bytes, it.requested, state, it.stream, it.scope, it.run, label, stack)
        });
        (segment.address, segment.pool, cells.collect())
    });
    DeviceDigest {
        device: device.device,
        stats: &device.stats,
        segments: segments.collect(),
        timeline: line.timeline,
        failures: line.failures,
        moments,
        sites,
    }
}
