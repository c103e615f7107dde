//! Memory and events between processes: this one and one more that each test starts.

mod common;
#[path = "common/other.rs"]
mod other;

use common::{IpcHandle, MIB, PAGE, SCHEDULES, Session, code, session};
use other::{Other, words};

/// What the other process can do; see `other::serve`.
#[test]
#[ignore = "started by the other tests as a process of its own"]
fn the_other_process() {
    let s = session(&[]);
    let contexts: Vec<u64> = (0..2).map(|device| s.use_device(device)).collect();
    ok!(s.cuCtxSetCurrent(contexts[0]));
    let stream = s.stream();
    other::serve(|command, n| {
        let handle = || IpcHandle(n[..8].try_into().expect("a handle"));
        let (mut at, mut new) = (0u64, IpcHandle::default());
        let code = match command {
            "open" => s.cuIpcOpenMemHandle_v2(&mut at, handle(), n[8] as u32),
            "close" => s.cuIpcCloseMemHandle(n[0]),
            "alloc" => s.cuMemAlloc_v2(&mut at, n[0] as usize),
            "free" => s.cuMemFree_v2(n[0]),
            "export" => {
                let code = s.cuIpcGetMemHandle(&mut new, n[0]);
                return [&[code as u64], &new.0[..]].concat();
            }
            "fill" => s.cuMemsetD8Async(n[0], n[1] as u8, n[2] as usize, stream),
            "peek" => return vec![u64::from(s.peek(n[0], 1)[0])],
            "wait" => s.cuStreamSynchronize(stream),
            "device" => s.cuCtxSetCurrent(contexts[n[0] as usize]),
            "context" => s.cuCtxCreate_v2(&mut at, 0, n[0] as i32),
            "events" => s.cuEventCreate(&mut at, 6),
            "event_export" => {
                let code = s.cuIpcGetEventHandle(&mut new, n[0]);
                return [&[code as u64], &new.0[..]].concat();
            }
            "event_open" => s.cuIpcOpenEventHandle(&mut at, handle()),
            "event_destroy" => s.cuEventDestroy_v2(n[0]),
            "record" => s.cuEventRecord(n[0], stream),
            "query" => s.cuEventQuery(n[0]),
            "synchronize" => s.cuEventSynchronize(n[0]),
            "stream_wait" => s.cuStreamWaitEvent(stream, n[0], 0),
            "gate" => {
                s.gate(n[0], stream);
                0
            }
            "gate_open" => {
                s.sim.gate_open(n[0]);
                0
            }
            "reports" => {
                let reports = s.sim.reports();
                let told = reports.iter().filter(|it| it.contains("use after free")).count();
                return vec![reports.len() as u64, told as u64];
            }
            "imports" => return vec![s.sim.objects("imports"), s.sim.objects("objects")],
            "used" => return vec![s.sim.used(0)],
            _ => panic!("{command} is no command"),
        };
        vec![code as u64, at]
    });
}

fn other(schedule: &str) -> Other {
    let settings = [
        ("SIMCUDA_DEVICES", "2"),
        ("SIMCUDA_MEMORY", "1GiB"),
        ("SIMCUDA_CHECKER", "log"),
        ("SIMCUDA_SCHEDULE", schedule),
    ];
    Other::start(&settings)
}

fn ours(schedule: &str) -> Session {
    session(&[("devices", "2"), ("memory", "1GiB"), ("checker", "log"), ("schedule", schedule)])
}

impl Session {
    fn export(&self, address: u64) -> IpcHandle {
        let mut handle = IpcHandle::default();
        ok!(self.cuIpcGetMemHandle(&mut handle, address));
        handle
    }

    fn shared_event(&self) -> (u64, IpcHandle) {
        let (mut event, mut handle) = (0, IpcHandle::default());
        ok!(self.cuEventCreate(&mut event, 6));
        ok!(self.cuIpcGetEventHandle(&mut handle, event));
        (event, handle)
    }
}

fn open(other: &mut Other, handle: &IpcHandle) -> u64 {
    let answer = other.ask(&format!("open {} 1", words(&handle.0)));
    assert_eq!(answer[0], 0, "the handle opens");
    answer[1]
}

fn refused(other: &mut Other, handle: &IpcHandle) -> i32 {
    other.number(&format!("open {} 1", words(&handle.0))) as i32
}

#[test]
fn the_bytes_are_the_same_in_both_processes() {
    let s = ours("eager");
    let mut other = other("eager");
    let block = s.alloc(3 * PAGE + 512);
    ok!(s.cuMemsetD8_v2(block, 7, 3 * PAGE + 512));
    let there = open(&mut other, &s.export(block));
    for offset in [0, 1, PAGE as u64, 3 * PAGE as u64 + 511] {
        assert_eq!(other.number(&format!("peek {}", there + offset)), 7, "{offset}");
    }
    assert_eq!(other.number(&format!("fill {} 9 {}", there + 100, PAGE)), 0);
    assert_eq!(other.number("wait"), 0);
    let seen = s.peek(block, 3 * PAGE);
    assert!(seen[..100].iter().all(|b| *b == 7) && seen[100 + PAGE..].iter().all(|b| *b == 7));
    assert!(seen[100..100 + PAGE].iter().all(|b| *b == 9));
    // It counts here and not there.
    assert_eq!(other.number("used"), 0);
    assert_eq!(other.number(&format!("close {there}")), 0);
    assert_eq!(s.peek(block + 100, 1), [9], "the exporter's memory stays");
    ok!(s.cuMemFree_v2(block));
    assert_eq!((s.sim.reports(), other.ask("reports")), (vec![], vec![0, 0]));
}

#[test]
fn what_another_process_wrote_is_given_back_to_the_host_too() {
    let s = ours("eager");
    let mut other = other("eager");
    let block = s.alloc(MIB);
    let there = open(&mut other, &s.export(block));
    assert_eq!(other.number(&format!("fill {there} 9 {MIB}")), 0);
    assert_eq!(other.number(&format!("close {there}")), 0);
    ok!(s.cuMemFree_v2(block));
    assert_eq!(s.peek(s.alloc(MIB), 1), [0]);
}

#[test]
fn a_handle_names_the_whole_allocation() {
    let s = ours("eager");
    let mut other = other("eager");
    let (small, block) = (s.alloc(512), s.alloc(64 * 1024));
    assert_eq!(s.export(block), s.export(block + 5000), "any address inside");
    assert_eq!(s.export(block), s.export(block), "as often as one likes");
    assert_ne!(s.export(block), s.export(small));
    ok!(s.cuMemsetD8_v2(block, 3, 64 * 1024));
    let there = open(&mut other, &s.export(block + 5000));
    assert_eq!(other.number(&format!("peek {there}")), 3, "the base is mapped");
    assert_eq!(other.number(&format!("fill {there} 1 {}", 64 * 1024)), 0, "all of it");
    assert_eq!(other.ask("reports"), [0, 0]);
}

#[test]
fn opened_twice_it_is_one_mapping_and_closed_twice_it_is_gone() {
    let s = ours("eager");
    let mut other = other("eager");
    let handle = s.export(s.alloc(MIB));
    let there = open(&mut other, &handle);
    assert_eq!(open(&mut other, &handle), there);
    assert_eq!(other.ask("imports"), [1, 1]);
    assert_eq!(other.number(&format!("close {there}")), 0);
    assert_eq!(other.number(&format!("fill {there} 1 8")), 0, "still open");
    assert_eq!(other.number("wait"), 0);
    assert_eq!(other.number(&format!("close {there}")), 0);
    assert_eq!(other.ask("imports"), [0, 0]);
    assert_eq!(other.number(&format!("close {there}")) as i32, code::INVALID_VALUE);
    let again = open(&mut other, &handle);
    assert_eq!(other.number(&format!("fill {again} 1 8")), 0, "it can be opened again");
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let s = ours("eager");
    let (block, pinned) = (s.alloc(MIB), s.pinned(MIB));
    let mut handle = IpcHandle::default();
    let (reserved, physical) = (s.reserve(PAGE), s.create(PAGE, 0));
    s.map(reserved, PAGE, physical);
    for address in [0, 64, pinned, reserved, block + MIB as u64] {
        assert_eq!(s.cuIpcGetMemHandle(&mut handle, address), code::INVALID_VALUE, "{address:#x}");
    }
    assert_eq!(s.cuIpcGetMemHandle(std::ptr::null_mut(), block), code::INVALID_VALUE);
    assert_eq!(s.cuIpcCloseMemHandle(block), code::INVALID_VALUE);
    // Memory of another process is not ours to hand on, and not ours to free.
    let mut other = other("eager");
    let there = open(&mut other, &s.export(block));
    assert_eq!(other.ask(&format!("export {there}"))[0] as i32, code::INVALID_VALUE);
    assert_eq!(other.number(&format!("free {there}")) as i32, code::INVALID_VALUE);
    assert_eq!(other.number(&format!("close {}", there + 512)) as i32, code::INVALID_VALUE);
}

#[test]
fn a_process_does_not_open_its_own_handles() {
    let s = ours("eager");
    let handle = s.export(s.alloc(MIB));
    let mut at = 0;
    assert_eq!(s.cuIpcOpenMemHandle_v2(&mut at, handle, 1), code::INVALID_CONTEXT);
    assert_eq!(s.cuIpcOpenMemHandle(&mut at, handle, 1), code::INVALID_CONTEXT);
    let (_, handle) = s.shared_event();
    assert_eq!(s.cuIpcOpenEventHandle(&mut at, handle), code::INVALID_CONTEXT);
}

#[test]
fn unknown_handles_and_flags_are_refused() {
    let s = ours("eager");
    let mut other = other("eager");
    let handle = s.export(s.alloc(MIB));
    assert_eq!(refused(&mut other, &IpcHandle::default()), code::INVALID_HANDLE);
    for word in 0..5 {
        let mut wrong = handle;
        wrong.0[word] ^= 1;
        assert_eq!(refused(&mut other, &wrong), code::INVALID_HANDLE, "word {word}");
    }
    for flags in [0, 2, 3] {
        let answer = other.number(&format!("open {} {flags}", words(&handle.0)));
        assert_eq!(answer as i32, code::INVALID_VALUE, "flags {flags}");
    }
    let (_, event) = s.shared_event();
    assert_eq!(refused(&mut other, &event), code::INVALID_HANDLE, "an event is no memory");
    let answer = other.number(&format!("event_open {}", words(&handle.0)));
    assert_eq!(answer as i32, code::INVALID_HANDLE, "memory is no event");
    ok!(s.cuCtxSetCurrent(0));
    let mut at = 0;
    assert_eq!(s.cuIpcOpenMemHandle_v2(&mut at, handle, 1), code::INVALID_CONTEXT);
}

#[test]
fn a_freed_allocation_has_no_handle_and_its_address_gets_a_new_one() {
    let s = ours("eager");
    let mut other = other("eager");
    let block = s.alloc(MIB);
    let old = s.export(block);
    ok!(s.cuMemFree_v2(block));
    assert_eq!(refused(&mut other, &old), code::INVALID_HANDLE);
    let again = s.alloc(MIB);
    assert_eq!(again, block, "the address comes back");
    assert_ne!(s.export(again), old);
    assert_eq!(refused(&mut other, &old), code::INVALID_HANDLE, "the old one stays dead");
    open(&mut other, &s.export(again));
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn freeing_what_another_process_has_open_is_a_finding_on_both_sides() {
    let s = ours("eager");
    let mut other = other("eager");
    let block = s.alloc(MIB);
    let there = open(&mut other, &s.export(block));
    assert_eq!(other.number(&format!("fill {there} 1 {MIB}")), 0);
    assert_eq!(other.number("wait"), 0);
    ok!(s.cuMemFree_v2(block));
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    for part in ["imported and not given back", &format!("process {}", other.pid()), "cuMemFree"] {
        assert!(reports[0].contains(part), "{part} in {}", reports[0]);
    }
    assert_eq!(other.ask("reports"), [0, 0]);
    assert_eq!(other.number(&format!("fill {there} 2 {MIB}")), 0, "not defined, and no crash");
    assert_eq!(other.ask("reports"), [1, 1]);
    other.number(&format!("fill {there} 2 {MIB}"));
    assert_eq!(other.ask("reports"), [1, 1], "said once");
    assert_eq!(other.number(&format!("close {there}")), 0);
}

#[test]
fn an_importer_that_dies_has_nothing_open() {
    let s = ours("eager");
    let block = s.alloc(MIB);
    let mut first = other("eager");
    open(&mut first, &s.export(block));
    first.kill_only();
    // A dead process that nobody has waited for is dead all the same.
    let mut second = other("eager");
    let there = open(&mut second, &s.export(block));
    assert_eq!(second.number(&format!("close {there}")), 0);
    drop(first);
    ok!(s.cuMemFree_v2(block));
    assert_eq!(s.sim.reports(), Vec::<String>::new());
}

#[test]
fn when_the_exporter_dies_its_handles_do_and_open_memory_is_a_finding() {
    let s = ours("eager");
    let mut other = other("eager");
    let blocks: Vec<_> = (0..2).map(|_| other.ask(&format!("alloc {MIB}"))[1]).collect();
    let handles = blocks.iter().map(|block| {
        let answer = other.ask(&format!("export {block}"));
        IpcHandle(answer[1..].try_into().expect("a handle"))
    });
    let handles: Vec<_> = handles.collect();
    let mut at = 0;
    ok!(s.cuIpcOpenMemHandle_v2(&mut at, handles[0], 1));
    assert_eq!(other.number(&format!("fill {} 5 {MIB}", blocks[0])), 0);
    assert_eq!(other.number("wait"), 0);
    assert_eq!(s.peek(at, 1), [5]);
    ok!(s.cuMemsetD8_v2(at, 6, MIB));
    assert_eq!(s.sim.reports(), Vec::<String>::new());
    other.kill();
    let mut more = 0;
    for handle in handles {
        assert_eq!(s.cuIpcOpenMemHandle_v2(&mut more, handle, 1), code::INVALID_HANDLE);
    }
    assert_eq!(s.peek(at, 1), [6], "the bytes are still there");
    ok!(s.cuMemsetD8_v2(at, 7, MIB));
    let reports = s.sim.reports();
    assert!(reports.len() == 1 && reports[0].contains("has ended"), "{reports:?}");
    ok!(s.cuIpcCloseMemHandle(at));
    assert_eq!(s.sim.objects("imports"), 0);
}

#[test]
fn closing_under_work_is_a_finding_and_a_late_use_too() {
    let s = ours("lazy");
    let mut other = other("lazy");
    let there = open(&mut other, &s.export(s.alloc(MIB)));
    assert_eq!(other.number(&format!("fill {there} 1 {MIB}")), 0);
    assert_eq!(other.number(&format!("close {there}")), 0);
    assert_eq!(other.ask("reports"), [1, 0], "memory taken away under work");
    other.number(&format!("fill {there} 1 {MIB}"));
    assert_eq!(other.ask("reports"), [2, 1], "use after free");
}

#[test]
fn one_context_a_device_opens_a_handle_and_other_devices_may() {
    let s = ours("eager");
    let mut other = other("eager");
    let handle = s.export(s.alloc(MIB));
    let first = open(&mut other, &handle);
    assert_eq!(other.number("device 1"), 0);
    let second = open(&mut other, &handle);
    assert_ne!(first, second, "a mapping for each device");
    assert_eq!(other.ask("imports"), [2, 1], "of the same bytes");
    assert_eq!(other.number("context 0"), 0);
    assert_eq!(refused(&mut other, &handle), code::INVALID_CONTEXT);
    assert_eq!(other.number(&format!("close {first}")), 0);
    assert_eq!(other.ask("imports"), [1, 1]);
}

#[test]
fn a_context_takes_its_imports_with_it() {
    let s = ours("eager");
    let mut other = other("eager");
    let block = other.ask(&format!("alloc {MIB}"))[1];
    let handle = IpcHandle(other.ask(&format!("export {block}"))[1..].try_into().expect("one"));
    let (mut context, mut at) = (0, 0);
    ok!(s.cuCtxCreate_v2(&mut context, 0, 0));
    ok!(s.cuIpcOpenMemHandle_v2(&mut at, handle, 1));
    ok!(s.cuCtxDestroy_v2(context));
    assert_eq!((s.sim.objects("imports"), s.sim.objects("objects")), (0, 0));
    assert_eq!(other.number(&format!("free {block}")), 0);
    assert_eq!(other.ask("reports"), [0, 0], "nobody had it open");
}

#[test]
fn an_event_orders_work_of_two_processes() {
    for schedule in SCHEDULES {
        let s = ours(schedule);
        let mut other = other(schedule);
        let stream = s.stream();
        let block = s.alloc(MIB);
        let there = open(&mut other, &s.export(block));
        let (event, handle) = s.shared_event();
        let answer = other.ask(&format!("event_open {}", words(&handle.0)));
        assert_eq!(answer[0], 0);
        let event_there = answer[1];
        assert_eq!(other.number(&format!("query {event_there}")), 0, "never recorded: done");
        ok!(s.cuMemsetD8Async(block, 4, MIB, stream));
        ok!(s.cuEventRecord(event, stream));
        // There: after the event, the other value. Nobody here waits for anything.
        assert_eq!(other.number(&format!("stream_wait {event_there}")), 0);
        assert_eq!(other.number(&format!("fill {there} 8 {}", MIB / 2)), 0);
        assert_eq!(
            other.number(&format!("record {event_there}")),
            0,
            "the same event, recorded there"
        );
        ok!(s.cuEventSynchronize(event));
        assert_eq!(s.peek(block, 1), [8], "{schedule}");
        assert_eq!(s.peek(block + MIB as u64 - 1, 1), [4], "{schedule}");
        assert_eq!((s.sim.reports(), other.ask("reports")), (vec![], vec![0, 0]), "{schedule}");
    }
}

#[test]
fn a_record_that_is_not_done_is_waited_for() {
    let s = ours("eager");
    let mut other = other("eager");
    let (event, handle) = s.shared_event();
    let there = other.ask(&format!("event_open {}", words(&handle.0)))[1];
    let stream = s.stream();
    s.gate(1, stream);
    ok!(s.cuEventRecord(event, stream));
    assert_eq!(other.number(&format!("query {there}")) as i32, code::NOT_READY);
    let block = other.ask(&format!("alloc {MIB}"))[1];
    other.number(&format!("stream_wait {there}"));
    other.number(&format!("fill {block} 1 {MIB}"));
    assert_eq!(other.number(&format!("peek {block}")), 0, "it waits in its stream");
    other.tell(&format!("synchronize {there}"));
    s.sim.gate_open(1);
    assert_eq!(other.answer()[0], 0);
    assert_eq!(other.number(&format!("query {there}")), 0);
    assert_eq!(other.number("wait"), 0);
    assert_eq!(other.number(&format!("peek {block}")), 1);
}

#[test]
fn nobody_waits_for_the_dead() {
    let s = ours("eager");
    let mut other = other("eager");
    let event = other.ask("events")[1];
    let handle =
        IpcHandle(other.ask(&format!("event_export {event}"))[1..].try_into().expect("one"));
    let mut here = 0;
    ok!(s.cuIpcOpenEventHandle(&mut here, handle));
    other.number("gate 1");
    assert_eq!(other.number(&format!("record {event}")), 0);
    assert_eq!(s.cuEventQuery(here), code::NOT_READY);
    let stream = s.stream();
    ok!(s.cuStreamWaitEvent(stream, here, 0));
    assert_eq!(s.cuStreamQuery(stream), code::NOT_READY);
    other.kill_only();
    ok!(s.cuStreamSynchronize(stream));
    ok!(s.cuEventSynchronize(here));
    let mut more = 0;
    assert_eq!(s.cuIpcOpenEventHandle(&mut more, handle), code::INVALID_HANDLE);
    ok!(s.cuEventDestroy_v2(here));
}

#[test]
fn events_that_cannot_be_shared_are_refused() {
    let s = ours("eager");
    let mut handle = IpcHandle::default();
    let plain = s.event();
    assert_eq!(s.cuIpcGetEventHandle(&mut handle, plain), code::INVALID_HANDLE);
    assert_eq!(s.cuIpcGetEventHandle(&mut handle, 77), code::INVALID_HANDLE);
    let (event, exported) = s.shared_event();
    assert_eq!(s.cuIpcGetEventHandle(std::ptr::null_mut(), event), code::INVALID_VALUE);
    let mut wrong = 0;
    assert_eq!(s.cuEventCreate(&mut wrong, 4), code::INVALID_VALUE, "with timing");
    let mut other = other("eager");
    let there = other.ask(&format!("event_open {}", words(&exported.0)))[1];
    let answer = other.ask(&format!("event_export {there}"));
    assert_eq!(answer[0] as i32, code::INVALID_HANDLE, "another process's is not handed on");
    let (mut ms, start, end) = (0.0, event, event);
    assert_eq!(s.cuEventElapsedTime(&mut ms, start, end), code::INVALID_HANDLE, "no timing");
    assert_eq!(other.number(&format!("event_destroy {there}")), 0);
    assert_eq!(s.cuEventQuery(event), 0, "its own lives on");
    ok!(s.cuEventDestroy_v2(event));
    let answer = other.number(&format!("event_open {}", words(&exported.0)));
    assert_eq!(answer as i32, code::INVALID_HANDLE, "destroyed");
}
