//! What of a snapshot is drawn: for each device a timeline of bounded length, the blocks, and sums.
//!
//! Live bytes are known now, by the blocks; going back through the history gives them at every moment
//! before. A point of the timeline stands for a run of events, and shows their highest moment: no peak
//! is lost, however few points there are.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::snapshot::{DevicePart, Event, Kind, Shortage, Snapshot};

/// The most points of a timeline.
pub const MOST_POINTS: usize = 2000;
/// With more events than this the page has none of them, only the timeline.
const MOST_EVENTS: usize = 40_000;
/// How many scopes have a band of their own.
const BANDS: usize = 8;
/// The bands by size: up to so many bytes.
const SIZES: [(u64, &str); 5] = [
    (64 << 10, "up to 64 KiB"),
    (1 << 20, "up to 1 MiB"),
    (16 << 20, "up to 16 MiB"),
    (256 << 20, "up to 256 MiB"),
    (u64::MAX, "larger"),
];

#[derive(Serialize)]
pub struct Digest<'a> {
    library: &'a str,
    time_us: u64,
    noted: u64,
    lost: u64,
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
    /// address, pool, and blocks: bytes, requested, state, stream, scope, run, label.
    segments: Vec<(u64, u32, Vec<Cell<'a>>)>,
    timeline: Timeline,
    /// Times, kinds, addresses, bytes, scopes of every event; empty if there are too many.
    events: Vec<(f64, u8, u64, u64, u32)>,
    failures: Vec<Failure>,
}

type Cell<'a> = (u64, u64, &'a str, u64, u32, u64, &'a str);

#[derive(Serialize)]
struct Failure {
    seconds: f64,
    requested: u64,
    live: i64,
    reserved: i64,
    scope: u32,
}

#[derive(Default, Serialize)]
struct Timeline {
    seconds: Vec<f64>,
    live: Vec<i64>,
    reserved: Vec<i64>,
    by_scope: Vec<Band>,
    by_size: Vec<Band>,
    /// Where the highest moments are: places in the lists above.
    peaks: Vec<usize>,
}

#[derive(Serialize)]
struct Band {
    name: String,
    bytes: Vec<i64>,
}

impl<'a> Digest<'a> {
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let begin = snapshot.history.events.first().map_or(snapshot.time_us, |event| event.0);
        let paths: HashMap<u32, &str> =
            snapshot.scopes.iter().map(|it| (it.scope, it.path.as_str())).collect();
        Self {
            shortage: snapshot.out_of_memory.as_ref(),
            library: &snapshot.library,
            time_us: snapshot.time_us,
            noted: snapshot.history.noted,
            lost: snapshot.history.lost,
            devices: snapshot
                .devices
                .iter()
                .map(|device| {
                    let mine = |event: &&Event| event.2 == device.device;
                    let events: Vec<Event> =
                        snapshot.history.events.iter().filter(mine).copied().collect();
                    device_digest(device, &events, begin, snapshot.time_us, &paths)
                })
                .collect(),
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
    device: &'a DevicePart,
    events: &[Event],
    begin: u64,
    end: u64,
    paths: &HashMap<u32, &str>,
) -> DeviceDigest<'a> {
    let seconds = |time: u64| time.saturating_sub(begin) as f64 / 1e6;
    let segments = device.segments.iter().map(|segment| {
        let cells = segment.blocks.iter().map(|it| {
            let label = it.label.as_str();
            (it.bytes, it.requested, it.state.as_str(), it.stream, it.scope, it.run, label)
        });
        (segment.address, segment.pool, cells.collect())
    });
    let (timeline, failures) = timeline(device, events, &seconds, end, paths);
    let few = events.len() <= MOST_EVENTS;
    DeviceDigest {
        device: device.device,
        stats: &device.stats,
        segments: segments.collect(),
        timeline,
        events: events
            .iter()
            .filter(|event| few && matches!(event.1, Kind::Alloc | Kind::Free))
            .map(|it| (seconds(it.0), u8::from(it.1 == Kind::Free), it.4, it.5, it.7))
            .collect(),
        failures,
    }
}

/// Bytes of one band each, as the walk through the history finds them.
#[derive(Clone, Default)]
struct Moment {
    live: i64,
    reserved: i64,
    scopes: Vec<i64>,
    sizes: [i64; SIZES.len()],
}

impl Moment {
    /// The change that an event was.
    fn change(&mut self, event: &Event, band: usize) {
        let bytes = event.5 as i64;
        match event.1 {
            Kind::Alloc | Kind::Free => {
                let by = if event.1 == Kind::Alloc { bytes } else { -bytes };
                self.live += by;
                self.scopes[band] += by;
                self.sizes[size_band(event.5)] += by;
            }
            Kind::Growth => self.reserved += bytes,
            Kind::Release => self.reserved -= bytes,
            Kind::OutOfMemory | Kind::Unknown => {}
        }
    }
}

fn size_band(bytes: u64) -> usize {
    SIZES.iter().position(|&(most, _)| bytes <= most).unwrap_or(SIZES.len() - 1)
}

fn timeline(
    device: &DevicePart,
    events: &[Event],
    seconds: &impl Fn(u64) -> f64,
    end: u64,
    paths: &HashMap<u32, &str>,
) -> (Timeline, Vec<Failure>) {
    let bands = bands(device, events);
    let band = |scope: u32| bands.iter().position(|&it| it == scope).unwrap_or(bands.len());
    // What is there now; then back to the beginning.
    let mut now = Moment { scopes: vec![0; bands.len() + 1], ..Moment::default() };
    now.reserved = device.stats.get("reserved").copied().unwrap_or(0) as i64;
    for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state == "live" {
            now.live += block.bytes as i64;
            now.scopes[band(block.scope)] += block.bytes as i64;
            now.sizes[size_band(block.bytes)] += block.bytes as i64;
        }
    }
    let mut total = Moment { scopes: vec![0; bands.len() + 1], ..Moment::default() };
    events.iter().for_each(|event| total.change(event, band(event.7)));
    let mut moment = now.clone();
    moment.live -= total.live;
    moment.reserved -= total.reserved;
    for (value, change) in moment.scopes.iter_mut().zip(&total.scopes) {
        *value -= change;
    }
    for (value, change) in moment.sizes.iter_mut().zip(&total.sizes) {
        *value -= change;
    }

    let mut points: Vec<(f64, Moment)> = Vec::new();
    let mut failures = Vec::new();
    if let Some(first) = events.first() {
        points.push((seconds(first.0), moment.clone()));
    }
    let run = events.len().div_ceil(MOST_POINTS - 3).max(1);
    for chunk in events.chunks(run) {
        let mut highest: Option<(f64, Moment)> = None;
        for event in chunk {
            moment.change(event, band(event.7));
            if event.1 == Kind::OutOfMemory {
                failures.push(Failure {
                    seconds: seconds(event.0),
                    requested: event.6,
                    live: moment.live,
                    reserved: moment.reserved,
                    scope: event.7,
                });
            }
            if highest.as_ref().is_none_or(|(_, it)| moment.live >= it.live) {
                highest = Some((seconds(event.0), moment.clone()));
            }
        }
        points.extend(highest);
    }
    // After the last event it is as it is now: its run's highest moment does not last.
    points.extend(events.last().map(|last| (seconds(last.0), now.clone())));
    points.push((seconds(end), now));
    (drawn(&points, &bands, paths), failures)
}

/// The scopes that have a band: those whose bytes grew most, largest first.
fn bands(device: &DevicePart, events: &[Event]) -> Vec<u32> {
    let mut moved: HashMap<u32, u64> = HashMap::new();
    for event in events.iter().filter(|event| event.1 == Kind::Alloc) {
        *moved.entry(event.7).or_default() += event.5;
    }
    for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
        if block.state == "live" {
            *moved.entry(block.scope).or_default() += block.bytes;
        }
    }
    let mut order: Vec<(u64, u32)> =
        moved.into_iter().map(|(scope, bytes)| (bytes, scope)).collect();
    order.sort_unstable_by(|a, b| b.cmp(a));
    order.into_iter().take(BANDS).map(|(_, scope)| scope).collect()
}

fn drawn(points: &[(f64, Moment)], bands: &[u32], paths: &HashMap<u32, &str>) -> Timeline {
    let name = |&scope: &u32| match paths.get(&scope) {
        Some(&"") | None => "in no scope".to_owned(),
        Some(path) => (*path).to_owned(),
    };
    let mut names: Vec<String> = bands.iter().map(name).collect();
    names.push("other scopes".to_owned());
    let by_scope = names.into_iter().enumerate().map(|(place, name)| Band {
        name,
        bytes: points.iter().map(|(_, it)| it.scopes[place]).collect(),
    });
    let by_size = SIZES.iter().enumerate().map(|(place, (_, name))| Band {
        name: (*name).to_owned(),
        bytes: points.iter().map(|(_, it)| it.sizes[place]).collect(),
    });
    let any = |band: &Band| band.bytes.iter().any(|&bytes| bytes != 0);
    let live: Vec<i64> = points.iter().map(|(_, it)| it.live).collect();
    Timeline {
        seconds: points.iter().map(|(at, _)| *at).collect(),
        reserved: points.iter().map(|(_, it)| it.reserved).collect(),
        by_scope: by_scope.filter(any).collect(),
        by_size: by_size.filter(any).collect(),
        peaks: peaks(&live),
        live,
    }
}

/// The highest moments, highest first, none next to another.
fn peaks(live: &[i64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..live.len()).collect();
    order.sort_by_key(|&place| (-live[place], place));
    let apart = (live.len() / 20).max(1);
    let mut found: Vec<usize> = Vec::new();
    for place in order {
        if found.len() == 5 || live[place] == 0 {
            break;
        }
        if found.iter().all(|&other| other.abs_diff(place) > apart) {
            found.push(place);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(live: u64) -> DevicePart {
        let block = format!(
            "{{\"bytes\":{live},\"requested\":1,\"state\":\"live\",\"stream\":1,\"scope\":1,\"run\":1}}"
        );
        serde_json::from_str(&format!(
            "{{\"device\":0,\"stats\":{{\"reserved\":4096}},\"segments\":[{{\"pool\":0,\"address\":512,\"blocks\":[{block}]}}]}}"
        ))
        .expect("it is JSON")
    }

    fn event(time: u64, kind: Kind, bytes: u64) -> Event {
        Event::new(time, kind, bytes, 1)
    }

    #[test]
    fn no_peak_is_lost_in_a_million_events() {
        let mut events = Vec::new();
        for step in 0..500_000u64 {
            let bytes = if step == 123_456 { 1 << 30 } else { 512 };
            events.push(event(2 * step, Kind::Alloc, bytes));
            events.push(event(2 * step + 1, Kind::Free, bytes));
        }
        let paths = HashMap::from([(1, "step")]);
        let (line, _) = timeline(&device(1024), &events, &|time| time as f64, 1 << 21, &paths);
        assert!(line.seconds.len() <= MOST_POINTS);
        assert_eq!(line.live.iter().max(), Some(&((1 << 30) + 1024)));
        assert_eq!(line.seconds[line.peaks[0]], 246_912.0);
        assert_eq!((line.live[0], line.live[line.live.len() - 1]), (1024, 1024));
        assert_eq!(line.by_scope[0].name, "step");
    }

    #[test]
    fn bands_sum_up_to_what_is_live() {
        let mut events: Vec<Event> = Vec::new();
        for step in 0..3000u64 {
            let mut it = event(step, Kind::Alloc, 512 << (step % 20));
            it.7 = (step % 13) as u32;
            events.push(it);
            if step % 3 > 0 {
                it.1 = Kind::Free;
                events.push(it);
            }
        }
        events.push(event(4000, Kind::OutOfMemory, 1 << 40));
        let (line, failures) =
            timeline(&device(1024), &events, &|time| time as f64, 5000, &HashMap::new());
        for place in 0..line.live.len() {
            for bands in [&line.by_scope, &line.by_size] {
                assert_eq!(
                    bands.iter().map(|band| band.bytes[place]).sum::<i64>(),
                    line.live[place]
                );
            }
        }
        assert_eq!((failures.len(), failures[0].requested), (1, 1 << 40));
    }
}
