//! The timeline: live bytes over time by scope and by size, in a bounded number of points.
//!
//! Live bytes are known now, by the blocks; going back through the history gives them at every moment
//! before. A point stands for a run of events, and shows their highest moment: no peak is lost, however
//! few points there are. A request that found no memory has a point of its own.

use std::collections::HashMap;

use serde::Serialize;

use crate::snapshot::{DevicePart, Event, Kind};

/// The most points of a timeline.
const MOST_POINTS: usize = 2000;
/// The most requests without memory that are shown: the last ones.
const MOST_FAILURES: usize = 40;
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

/// A timeline, and what belongs to its points.
pub struct Line {
    pub timeline: Timeline,
    pub failures: Vec<Failure>,
    /// How many events each point has behind it.
    pub after: Vec<usize>,
}

/// A request that found no memory.
#[derive(Serialize)]
pub struct Failure {
    /// Its point of the timeline.
    point: usize,
    seconds: f64,
    requested: u64,
    live: i64,
    reserved: i64,
    scope: u32,
}

#[derive(Default, Serialize)]
pub struct Timeline {
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

/// Bytes of one band each, as the walk through the history finds them.
#[derive(Clone, Default)]
struct Moment {
    live: i64,
    reserved: i64,
    scopes: Vec<i64>,
    sizes: [i64; SIZES.len()],
}

impl Moment {
    /// What is there now.
    fn now(device: &DevicePart, bands: usize, band: impl Fn(u32) -> usize) -> Self {
        let mut now = Self { scopes: vec![0; bands + 1], ..Self::default() };
        now.reserved = device.stats.get("reserved").copied().unwrap_or(0) as i64;
        for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
            if block.state == "live" {
                now.live += block.bytes as i64;
                now.scopes[band(block.scope)] += block.bytes as i64;
                now.sizes[size_band(block.bytes)] += block.bytes as i64;
            }
        }
        now
    }

    /// What was there before the events.
    fn before(&self, events: &[&Event], band: impl Fn(u32) -> usize) -> Self {
        let mut total = Self { scopes: vec![0; self.scopes.len()], ..Self::default() };
        events.iter().for_each(|event| total.change(event, band(event.7)));
        let mut before = self.clone();
        before.live -= total.live;
        before.reserved -= total.reserved;
        for (value, change) in before.scopes.iter_mut().zip(&total.scopes) {
            *value -= change;
        }
        for (value, change) in before.sizes.iter_mut().zip(&total.sizes) {
            *value -= change;
        }
        before
    }

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

/// A point: when it is, how many events are behind it, and what was live.
struct Point {
    seconds: f64,
    after: usize,
    moment: Moment,
}

impl Line {
    pub fn of(
        device: &DevicePart,
        events: &[&Event],
        seconds: &impl Fn(u64) -> f64,
        end: u64,
        paths: &HashMap<u32, &str>,
    ) -> Self {
        let bands = bands(device, events);
        let band = |scope: u32| bands.iter().position(|&it| it == scope).unwrap_or(bands.len());
        let now = Moment::now(device, bands.len(), band);
        let mut moment = now.before(events, band);
        let mut points: Vec<Point> = Vec::new();
        let mut failures = Vec::new();
        if let Some(first) = events.first() {
            let moment = moment.clone();
            points.push(Point { seconds: seconds(first.0), after: 0, moment });
        }
        let failed = events.iter().filter(|event| event.1 == Kind::OutOfMemory).count();
        let mut unseen = failed.saturating_sub(MOST_FAILURES);
        let run = events.len().div_ceil(MOST_POINTS - 3 - 2 * failed.min(MOST_FAILURES)).max(1);
        let mut highest: Option<Point> = None;
        for (place, event) in events.iter().enumerate() {
            moment.change(event, band(event.7));
            let failed = event.1 == Kind::OutOfMemory;
            if highest.as_ref().is_none_or(|it| moment.live >= it.moment.live) {
                let moment = moment.clone();
                highest = Some(Point { seconds: seconds(event.0), after: place + 1, moment });
            }
            let shown = failed && unseen == 0;
            unseen -= usize::from(failed && unseen > 0);
            if shown || (place + 1) % run == 0 {
                points.extend(highest.take());
            }
            if shown {
                if points.last().is_none_or(|last| last.after <= place) {
                    let moment = moment.clone();
                    points.push(Point { seconds: seconds(event.0), after: place + 1, moment });
                }
                failures.push(Failure {
                    point: points.len() - 1,
                    seconds: seconds(event.0),
                    requested: event.6,
                    live: moment.live,
                    reserved: moment.reserved,
                    scope: event.7,
                });
            }
        }
        points.extend(highest);
        // After the last event it is as it is now: its run's highest moment does not last.
        let after = events.len();
        let ends = events.last().map(|last| seconds(last.0)).into_iter().chain([seconds(end)]);
        points.extend(ends.map(|seconds| Point { seconds, after, moment: now.clone() }));
        let after = points.iter().map(|it| it.after).collect();
        Self { timeline: drawn(&points, &bands, paths), failures, after }
    }
}

/// The scopes that have a band: those whose bytes grew most, largest first.
fn bands(device: &DevicePart, events: &[&Event]) -> Vec<u32> {
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

fn drawn(points: &[Point], bands: &[u32], paths: &HashMap<u32, &str>) -> Timeline {
    let name = |&scope: &u32| match paths.get(&scope) {
        Some(&"") | None => "in no scope".to_owned(),
        Some(path) => (*path).to_owned(),
    };
    let mut names: Vec<String> = bands.iter().map(name).collect();
    names.push("other scopes".to_owned());
    let by_scope = names.into_iter().enumerate().map(|(place, name)| Band {
        name,
        bytes: points.iter().map(|it| it.moment.scopes[place]).collect(),
    });
    let by_size = SIZES.iter().enumerate().map(|(place, (_, name))| Band {
        name: (*name).to_owned(),
        bytes: points.iter().map(|it| it.moment.sizes[place]).collect(),
    });
    let any = |band: &Band| band.bytes.iter().any(|&bytes| bytes != 0);
    let live: Vec<i64> = points.iter().map(|it| it.moment.live).collect();
    Timeline {
        seconds: points.iter().map(|it| it.seconds).collect(),
        reserved: points.iter().map(|it| it.moment.reserved).collect(),
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
pub mod tests {
    use super::*;

    pub fn device(live: u64) -> DevicePart {
        let block = format!(
            "{{\"bytes\":{live},\"requested\":1,\"state\":\"live\",\"stream\":1,\"scope\":1,\"run\":1}}"
        );
        serde_json::from_str(&format!(
            "{{\"device\":0,\"stats\":{{\"reserved\":4096}},\"segments\":[{{\"pool\":0,\"address\":512,\"blocks\":[{block}]}}]}}"
        ))
        .expect("it is JSON")
    }

    pub fn event(time: u64, kind: Kind, bytes: u64) -> Event {
        Event::new(time, kind, bytes, 1)
    }

    fn line(events: &[Event], end: u64, paths: &HashMap<u32, &str>) -> Line {
        let events: Vec<&Event> = events.iter().collect();
        Line::of(&device(1024), &events, &|time| time as f64, end, paths)
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
        let line = line(&events, 1 << 21, &paths).timeline;
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
            events.push(it.clone());
            if step % 3 > 0 {
                it.1 = Kind::Free;
                events.push(it.clone());
            }
        }
        events.push(event(4000, Kind::OutOfMemory, 1 << 40));
        let Line { timeline: line, failures, after } = line(&events, 5000, &HashMap::new());
        for place in 0..line.live.len() {
            for bands in [&line.by_scope, &line.by_size] {
                assert_eq!(
                    bands.iter().map(|band| band.bytes[place]).sum::<i64>(),
                    line.live[place]
                );
            }
        }
        assert_eq!((failures.len(), failures[0].requested), (1, 1 << 40));
        assert_eq!(after[failures[0].point], events.len());
    }
}
