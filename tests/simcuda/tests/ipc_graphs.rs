//! Interprocess events inside captures and graphs: this process and one more.

mod common;
#[path = "common/other.rs"]
mod other;

use common::{IpcHandle, MIB, SCHEDULES, Session, bytes_node, session};
use other::{Other, words};

const INVALIDATED: i32 = 901;
const ISOLATION: i32 = 905;
const RELAXED: i32 = 2;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

/// What the other process can do; see `other::serve`.
#[test]
#[ignore = "started by the other tests as a process of its own"]
fn the_other_process() {
    let s = session(&[]);
    let stream = s.stream();
    other::serve(|command, n| {
        let handle = || IpcHandle(n[..8].try_into().expect("a handle"));
        let mut new = 0;
        let code = match command {
            "open" => s.cuIpcOpenMemHandle_v2(&mut new, handle(), 1),
            "event_open" => s.cuIpcOpenEventHandle(&mut new, handle()),
            "fill" => s.cuMemsetD8Async(n[0], n[1] as u8, n[2] as usize, stream),
            "copy" => s.cuMemcpyDtoDAsync_v2(n[0], n[1], n[2] as usize, stream),
            "record" => s.cuEventRecord(n[0], stream),
            "stream_wait" => s.cuStreamWaitEvent(stream, n[0], 0),
            "wait" => s.cuStreamSynchronize(stream),
            "reports" => return vec![s.sim.report_count()],
            _ => panic!("{command} is no command"),
        };
        vec![code as u64, new]
    });
}

/// This process, another one, and what they share.
struct Pair {
    s: Session,
    other: Other,
    /// A block here and there.
    block: [u64; 2],
    /// Events of this process: here and there.
    events: [[u64; 2]; 2],
}

fn pair(schedule: &str) -> Pair {
    let s = session(&[("memory", "1GiB"), ("checker", "log"), ("schedule", schedule)]);
    let settings = [("MEMORY", "1GiB"), ("CHECKER", "log"), ("SCHEDULE", schedule)];
    let names = settings.map(|(key, value)| (format!("SIMCUDA_{key}"), value));
    let mut other = Other::start(&names.each_ref().map(|(key, value)| (key.as_str(), *value)));
    let mut opened = |how: &str, handle: IpcHandle| {
        let answer = other.ask(&format!("{how} {}", words(&handle.0)));
        assert_eq!(answer[0], 0, "{how}");
        answer[1]
    };
    let (at, mut handle) = (s.alloc(MIB), IpcHandle::default());
    ok!(s.cuIpcGetMemHandle(&mut handle, at));
    let block = [at, opened("open", handle)];
    let events = [(); 2].map(|()| {
        let mut event = 0;
        ok!(s.cuEventCreate(&mut event, 6));
        ok!(s.cuIpcGetEventHandle(&mut handle, event));
        [event, opened("event_open", handle)]
    });
    Pair { s, other, block, events }
}

impl Pair {
    fn tell(&mut self, command: &str) {
        assert_eq!(self.other.number(command), 0, "{command}");
    }

    fn clean(&mut self, why: &str) {
        assert_eq!(self.s.sim.reports(), Vec::<String>::new(), "{why}");
        assert_eq!(self.other.ask("reports"), [0], "{why}");
    }
}

/// A launch waits for the other process, does its work, and says so: each time anew.
#[test]
fn a_graph_waits_for_another_process_and_tells_it() {
    for schedule in SCHEDULES {
        let mut p = pair(schedule);
        let [here, there] = p.block;
        let [[go, go_there], [done, done_there]] = p.events;
        let (stream, mut graph) = (p.s.stream(), 0);
        ok!(p.s.cuStreamBeginCapture_v2(stream, RELAXED));
        ok!(p.s.cuStreamWaitEvent(stream, go, EXTERNAL));
        ok!(p.s.cuMemcpyDtoDAsync_v2(here + 64, here, 64, stream));
        ok!(p.s.cuEventRecordWithFlags(done, stream, EXTERNAL));
        ok!(p.s.cuStreamEndCapture(stream, &mut graph));
        let exec = p.s.exec(graph);
        for value in [1, 2] {
            p.tell(&format!("fill {there} {value} 64"));
            p.tell(&format!("record {go_there}"));
            ok!(p.s.cuGraphLaunch(exec, stream));
            p.tell(&format!("stream_wait {done_there}"));
            p.tell(&format!("copy {} {} 64", there + 128, there + 64));
            p.tell("wait");
            ok!(p.s.cuStreamSynchronize(stream));
            assert_eq!(p.s.peek(here + 128, 64), [value; 64], "{schedule}");
        }
        p.clean(schedule);
    }
}

#[test]
fn nodes_made_by_hand_do_the_same() {
    for schedule in SCHEDULES {
        let mut p = pair(schedule);
        let ([here, there], [[go, go_there], [done, done_there]]) = (p.block, p.events);
        let (s, stream, graph) = (&p.s, p.s.stream(), p.s.graph());
        let (mut first, mut last) = (0, 0);
        ok!(s.cuGraphAddEventWaitNode(&mut first, graph, std::ptr::null(), 0, go));
        let fill = s.add_fill(graph, &[first], bytes_node(here, 7, 64));
        ok!(s.cuGraphAddEventRecordNode(&mut last, graph, &fill, 1, done));
        let exec = s.exec(graph);
        p.tell(&format!("fill {there} 3 64"));
        p.tell(&format!("record {go_there}"));
        ok!(p.s.cuGraphLaunch(exec, stream));
        ok!(p.s.cuEventSynchronize(done));
        p.tell(&format!("stream_wait {done_there}"));
        p.tell(&format!("copy {} {there} 64", there + 64));
        p.tell("wait");
        assert_eq!(p.s.peek(here, 128), [7; 128], "{schedule}");
        p.clean(schedule);
    }
}

/// Inside a capture an event stands for captured work, be it an interprocess one.
#[test]
fn a_capture_orders_its_streams_by_interprocess_events_of_its_own() {
    let mut p = pair("lazy");
    let [here, _] = p.block;
    let [[fork, _], [join, _]] = p.events;
    let (s, mut graph) = (&p.s, 0);
    let (main, side) = (s.stream(), s.stream());
    ok!(s.cuStreamBeginCapture_v2(main, RELAXED));
    ok!(s.cuMemsetD8Async(here, 1, 64, main));
    ok!(s.cuEventRecord(fork, main));
    ok!(s.cuStreamWaitEvent(side, fork, 0));
    ok!(s.cuMemcpyDtoDAsync_v2(here + 64, here, 64, side));
    ok!(s.cuEventRecord(join, side));
    ok!(s.cuStreamWaitEvent(main, join, 0));
    ok!(s.cuMemsetD8Async(here, 2, 64, main));
    ok!(s.cuStreamEndCapture(main, &mut graph));
    s.play(s.exec(graph), main);
    assert_eq!(s.peek(here, 128), [[2; 64], [1; 64]].concat());
    p.clean("the edges order both");
}

#[test]
fn what_another_process_recorded_is_not_captured() {
    let mut p = pair("eager");
    let [[go, go_there], _] = p.events;
    p.tell(&format!("record {go_there}"));
    let (s, stream, mut graph) = (&p.s, p.s.stream(), 0);
    ok!(s.cuStreamBeginCapture_v2(stream, RELAXED));
    assert_eq!(s.cuStreamWaitEvent(stream, go, 0), ISOLATION);
    assert_eq!(s.cuStreamEndCapture(stream, &mut graph), INVALIDATED);
    ok!(s.cuStreamWaitEvent(stream, go, 0));
}
