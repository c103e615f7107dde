//! Where memory was asked for: the stacks, each with what is live of it and what it allocated over the
//! history. The page merges them by function.

use std::collections::HashMap;

use serde::Serialize;

use crate::snapshot::{DevicePart, Event, Frame, Kind};

/// The most stacks that a page has; the others are summed up.
const MOST_STACKS: usize = 2000;

#[derive(Default, Serialize)]
pub struct Sites {
    /// Functions, and where they are.
    frames: Vec<(String, String)>,
    /// Stack 0 has no frames: it is what has no stack, or is not among the largest.
    stacks: Vec<Stack>,
    #[serde(skip)]
    numbers: HashMap<Vec<u32>, u32>,
}

#[derive(Clone, Default, Serialize)]
struct Stack {
    /// Places in `frames`, innermost first.
    frames: Vec<u32>,
    live_bytes: u64,
    live_count: u64,
    total_bytes: u64,
    total_count: u64,
}

impl Stack {
    fn add(&mut self, other: &Self) {
        self.live_bytes += other.live_bytes;
        self.live_count += other.live_count;
        self.total_bytes += other.total_bytes;
        self.total_count += other.total_count;
    }
}

impl Sites {
    pub fn of(device: &DevicePart, events: &[&Event], frames: &[Frame]) -> Self {
        let mut sums: HashMap<&[u32], Stack> = HashMap::new();
        for block in device.segments.iter().flat_map(|segment| &segment.blocks) {
            if block.state == "live" {
                let sum = sums.entry(&block.stack).or_default();
                sum.live_bytes += block.bytes;
                sum.live_count += 1;
            }
        }
        for event in events.iter().filter(|event| event.1 == Kind::Alloc) {
            let sum = sums.entry(&event.9).or_default();
            sum.total_bytes += event.5;
            sum.total_count += 1;
        }
        let mut others = sums.remove(&[][..]).unwrap_or_default();
        let mut order: Vec<(&[u32], Stack)> = sums.into_iter().collect();
        let largest = |it: &Stack| (it.live_bytes.max(it.total_bytes), it.live_bytes);
        order.sort_by(|a, b| largest(&b.1).cmp(&largest(&a.1)).then(a.0.cmp(b.0)));
        for (_, small) in order.drain(order.len().min(MOST_STACKS)..) {
            others.add(&small);
        }
        let mut sites = Self { stacks: vec![others], ..Self::default() };
        let mut known: HashMap<(String, String), u32> = HashMap::new();
        for (stack, mut sum) in order {
            let places = stack.iter().filter_map(|&place| frames.get(place as usize));
            for frame in ours_left_out(places.collect()) {
                let next = sites.frames.len() as u32;
                let told = (function(frame), place(frame));
                sum.frames.push(*known.entry(told.clone()).or_insert_with(|| {
                    sites.frames.push(told);
                    next
                }));
            }
            sites.numbers.insert(stack.to_vec(), sites.stacks.len() as u32);
            sites.stacks.push(sum);
        }
        sites
    }

    /// The number under which the page knows a stack.
    pub fn number(&self, stack: &[u32]) -> u32 {
        self.numbers.get(stack).copied().unwrap_or(0)
    }
}

/// A stack without its innermost frames that are Cuddy's own; all of it if nothing else would be left.
fn ours_left_out(stack: Vec<&Frame>) -> Vec<&Frame> {
    let first = stack.iter().position(|frame| !is_ours(frame)).unwrap_or(0);
    stack[first..].to_vec()
}

fn is_ours(frame: &Frame) -> bool {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let package = frame.file.rsplit('/').nth(1) == Some("cuddy");
    name(&frame.module).starts_with("libcuddy") || (package && frame.file.ends_with(".py"))
}

fn function(frame: &Frame) -> String {
    if frame.name.is_empty() { place(frame) } else { frame.name.clone() }
}

fn place(frame: &Frame) -> String {
    match (frame.file.as_str(), frame.module.as_str()) {
        ("", "") => String::new(),
        ("", module) => format!("{module}+{:#x}", frame.offset),
        (file, _) => format!("{file}:{}", frame.line),
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::tests::{device, event};
    use super::*;

    fn frame(name: &str, file: &str, module: &str) -> Frame {
        let (name, file, module) = (name.into(), file.into(), module.into());
        Frame { name, file, line: 7, module, offset: 16 }
    }

    #[test]
    fn stacks_are_summed_and_begin_in_the_program() {
        let frames = [
            frame("cuddy_malloc", "", "/usr/lib/libcuddy.so.0"),
            frame("empty", "/site-packages/cuddy/_buffers.py", ""),
            frame("step", "train.py", ""),
            frame("", "", "app"),
        ];
        let mut events = Vec::new();
        for stack in [vec![0, 1, 2, 3], vec![0, 1, 2, 3], vec![0, 3], vec![]] {
            let mut it = event(1, Kind::Alloc, 512);
            it.9 = stack;
            events.push(it);
        }
        let events: Vec<&Event> = events.iter().collect();
        let sites = Sites::of(&device(1024), &events, &frames);
        let frames: Vec<&str> = sites.frames.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(frames, ["step", "app+0x10"]);
        assert_eq!(sites.frames[0].1, "train.py:7");
        let told: Vec<_> = sites
            .stacks
            .iter()
            .map(|it| (it.frames.len(), it.live_bytes, it.total_bytes))
            .collect();
        // What has no stack; two of one place; one.
        assert_eq!(told, [(0, 1024, 512), (2, 0, 1024), (1, 0, 512)]);
        assert_eq!((sites.number(&[0, 3]), sites.number(&[9])), (2, 0));
    }

    #[test]
    fn few_stacks_are_kept_and_nothing_is_lost_of_the_sums() {
        let mut events = Vec::new();
        for number in 0..3000u32 {
            let mut it = event(1, Kind::Alloc, u64::from(number + 1));
            it.9 = vec![number];
            events.push(it);
        }
        let events: Vec<&Event> = events.iter().collect();
        let sites = Sites::of(&device(1024), &events, &[]);
        assert_eq!(sites.stacks.len(), MOST_STACKS + 1);
        assert_eq!((sites.number(&[2999]), sites.number(&[0])), (1, 0));
        assert_eq!(sites.stacks.iter().map(|it| it.total_bytes).sum::<u64>(), 3000 * 3001 / 2);
    }
}
