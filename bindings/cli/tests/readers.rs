//! The readers: one program of allocations, written down in every format, is read back the same;
//! and no input, however damaged or hostile, does more than cause an error.

use std::io::Write;
use std::process::{Command, Stdio};

use cuddy_cli::trace::{Event, Trace, TraceError, read};
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).expect("a Vec takes everything");
    encoder.finish().expect("a Vec takes everything")
}

/// A step of a program of allocations; blocks are named by the step that made them.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc {
        bytes: u32,
        stream: u8,
    },
    /// Frees the live block of this rank.
    Free(u8),
}

/// A program's allocations and frees, in the terms of all formats: name, bytes, stream.
fn flatten(steps: &[Step]) -> Vec<(bool, u64, u64, u64)> {
    let mut live: Vec<(u64, u64, u64)> = Vec::new();
    let mut all = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Alloc { bytes, stream } => {
                let block = (index as u64, u64::from(bytes) + 1, u64::from(stream % 3));
                live.push(block);
                all.push((true, block.0, block.1, block.2));
            }
            Step::Free(rank) if !live.is_empty() => {
                let (name, bytes, stream) = live.remove(usize::from(rank) % live.len());
                all.push((false, name, bytes, stream));
            }
            Step::Free(_) => {}
        }
    }
    all
}

fn as_gputrace(steps: &[Step]) -> String {
    let mut text = String::from("# gputrace 1\n# name: program\n");
    for (allocates, name, bytes, stream) in flatten(steps) {
        text += &match allocates {
            true => format!("a {name} {bytes} {stream}\n"),
            false => format!("f {name} {stream}\n"),
        };
    }
    text
}

/// Streams as a C++ program prints them: the default one is null.
fn stream_handle(stream: u64) -> u64 {
    if stream == 0 { 0 } else { 0x5500_0000 + stream * 64 }
}

fn as_rmm(steps: &[Step]) -> String {
    let mut text = String::from("Thread,Time,Action,Pointer,Size,Stream\n");
    for (allocates, name, bytes, stream) in flatten(steps) {
        let action = if allocates { "allocate" } else { "free" };
        let (pointer, stream) = (0x7f00_0000_0000 + name * 512, stream_handle(stream));
        text += &format!("1,10:00:00:000001,{action},{pointer:#x},{bytes},{stream:#x}\n");
    }
    text
}

/// Writes the opcodes of plain data, protocol 2.
#[derive(Default)]
struct Pickler(Vec<u8>);

impl Pickler {
    fn text(&mut self, text: &str) {
        self.0.push(b'X');
        self.0.extend((text.len() as u32).to_le_bytes());
        self.0.extend(text.as_bytes());
    }
    fn integer(&mut self, number: u64) {
        self.0.extend([0x8a, 9]);
        self.0.extend(number.to_le_bytes());
        self.0.push(0);
    }
    /// `{'action': action, 'addr': ..., 'size': ..., 'stream': ...}`
    fn entry(&mut self, action: &str, name: u64, bytes: u64, stream: u64) {
        self.0.extend(b"}(");
        self.text("action");
        self.text(action);
        let fields = [
            ("addr", 0x7f00_0000_0000 + name * 512),
            ("size", bytes),
            ("stream", stream_handle(stream)),
        ];
        for (key, value) in fields {
            self.text(key);
            self.integer(value);
        }
        self.0.push(b'u');
    }
    /// A snapshot whose only device has this history.
    fn snapshot(history: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut pickler = Self(b"\x80\x02}(".to_vec());
        pickler.text("device_traces");
        pickler.0.extend(b"](](");
        history(&mut pickler);
        pickler.0.extend(b"ee");
        pickler.text("segments");
        pickler.0.extend(b"]u.");
        pickler.0
    }
}

fn as_snapshot(steps: &[Step]) -> Vec<u8> {
    Pickler::snapshot(|pickler| {
        for (allocates, name, bytes, stream) in flatten(steps) {
            if allocates {
                pickler.entry("alloc", name, bytes, stream);
            } else {
                pickler.entry("free_requested", name, bytes, stream);
                pickler.entry("free_completed", name, bytes, stream);
            }
        }
    })
}

fn events(bytes: &[u8]) -> Vec<Event> {
    read(bytes, "name").expect("is well formed").events
}

fn program() -> impl Strategy<Value = Vec<Step>> {
    let alloc =
        (any::<u32>(), any::<u8>()).prop_map(|(bytes, stream)| Step::Alloc { bytes, stream });
    prop::collection::vec(prop_oneof![alloc, any::<u8>().prop_map(Step::Free)], 1..80)
}

proptest! {
    #[test]
    fn every_format_says_the_same(steps in program()) {
        let expected = events(as_gputrace(&steps).as_bytes());
        prop_assert_eq!(expected.len(), flatten(&steps).len());
        prop_assert_eq!(&events(as_rmm(&steps).as_bytes()), &expected);
        if !expected.is_empty() {
            prop_assert_eq!(&events(&as_snapshot(&steps)), &expected);
        }
        prop_assert_eq!(&events(&gzip(as_gputrace(&steps).as_bytes())), &expected);
        prop_assert_eq!(&events(&gzip(as_rmm(&steps).as_bytes())), &expected);
    }

    #[test]
    fn random_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(bytes.as_slice(), "random");
        let _ = read([&b"\x80\x04"[..], &bytes].concat().as_slice(), "random pickle");
        let _ = read([&b"# gputrace 1\n"[..], &bytes].concat().as_slice(), "random gputrace");
        let _ = read([&b"Thread,Time,Action,Pointer,Size,Stream\n"[..], &bytes].concat().as_slice(), "random log");
        let _ = read([&b"\x1f\x8b\x08\0"[..], &bytes].concat().as_slice(), "random gzip");
    }

    #[test]
    fn a_damaged_file_never_panics(
        steps in program(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let whole = [as_gputrace(&steps).into_bytes(), as_rmm(&steps).into_bytes(), as_snapshot(&steps), gzip(&as_snapshot(&steps))];
        for mut bytes in whole {
            let place = at.index(bytes.len());
            bytes[place] = byte;
            let _ = read(bytes.as_slice(), "changed");
            bytes.truncate(cut.index(bytes.len()));
            let _ = read(bytes.as_slice(), "cut");
        }
    }
}

fn error_of(bytes: &[u8]) -> TraceError {
    read(bytes, "name").expect_err("must be rejected")
}

#[test]
fn a_truncated_gzip_file_says_so() {
    let steps: Vec<Step> = (0..2000).map(|n| Step::Alloc { bytes: n * 7919, stream: 0 }).collect();
    let whole = gzip(as_gputrace(&steps).as_bytes());
    assert!(read(whole.as_slice(), "whole").is_ok());
    for cut in [11, 20, 100, whole.len() / 2, whole.len() - 1] {
        let error = error_of(&whole[..cut]);
        assert!(error.reason.contains("truncated"), "{cut}: {error}");
    }
    let mut damaged = whole.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 1;
    assert!(error_of(&damaged).reason.contains("damaged"));
}

#[test]
fn what_is_no_trace_is_told_what_would_be() {
    for bytes in [&b"PK\x03\x04"[..], b"hello\n", b"\xff\xfe", b"#"] {
        assert!(error_of(bytes).reason.contains("expected gputrace 1"), "{bytes:?}");
    }
    // Cuddy's own are JSON.
    assert!(error_of(b"{\"a\": 1}").reason.contains("no snapshot"));
    assert!(error_of(b"").reason.contains("empty"));
    assert!(error_of(&gzip(b"")).reason.contains("empty"));
    let long = [&b"# gputrace 1\nm "[..], &[b'x'; 100_000]].concat();
    assert!(error_of(&long).reason.contains("longer than"));
    assert!(error_of(b"# gputrace 1\nm \xff\n").reason.contains("UTF-8"));
}

#[test]
fn a_snapshot_tells_what_was_live_before_and_what_was_freed_late() {
    let snapshot = Pickler::snapshot(|pickler| {
        pickler.entry("free_requested", 9, 700, 0); // was live before
        pickler.entry("free_completed", 9, 700, 0);
        pickler.entry("alloc", 1, 4096, 0);
        pickler.entry("segment_map", 50, 1 << 21, 0); // none of ours
        pickler.entry("free_requested", 1, 4096, 0);
        pickler.entry("alloc", 2, 512, 1); // in between: 1 was still in use elsewhere
        pickler.entry("free_completed", 1, 4096, 0);
    });
    let trace = read(snapshot.as_slice(), "s").expect("is well formed");
    let expected = [
        Event::Alloc { slot: 0, stream: 0, bytes: 700 },
        Event::Free { slot: 0, stream: 0 },
        Event::Alloc { slot: 0, stream: 0, bytes: 4096 },
        Event::Record { slot: 0, stream: None },
        Event::Free { slot: 0, stream: 0 },
        Event::Alloc { slot: 0, stream: 1, bytes: 512 },
    ];
    assert_eq!(trace.events, expected);
    assert_eq!(trace.lines, [0, 1, 3, 5, 5, 6]);
    assert!(trace.notes.iter().any(|note| note.starts_with("1 blocks were live")));

    let empty = Pickler::snapshot(|_| ());
    assert!(error_of(&empty).reason.contains("no history"));
    let twice = Pickler::snapshot(|pickler| {
        pickler.entry("alloc", 1, 512, 0);
        pickler.entry("alloc", 1, 512, 0);
    });
    assert_eq!(error_of(&twice).place, "entry 2");
    let hostile = b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0eecho I ran>&2;\x85R.";
    let error = error_of(hostile);
    assert!(error.reason.contains("refused: it asks to import `posix.system`"), "{error}");
}

/// What Python itself pickles, in every protocol, is read the same.
#[test]
fn pickles_of_python_are_read() {
    const PROGRAM: &str = r#"
import pickle, sys
frame = {'filename': 'train.py', 'line': 7, 'name': 'step'}
def entry(action, addr, size, stream=0):
    return {'action': action, 'addr': addr, 'size': size, 'stream': stream, 'time_us': 1700000000000000,
            'frames': [frame, frame], 'pool_id': (0, 0), 'compile_context': 'N/A'}
base, big = 0x7f0000000000, 140000000000000
blocks = [{'size': 1024, 'requested_size': 1000, 'address': base, 'state': 'active_allocated', 'frames': []},
          {'size': 2096128, 'requested_size': 0, 'address': base + 1024, 'state': 'inactive', 'frames': []}]
segment = {'device': 0, 'address': base, 'total_size': 2 << 20, 'allocated_size': 1024, 'stream': 0,
           'segment_type': 'small', 'segment_pool_id': (0, 0), 'is_expandable': False, 'blocks': blocks}
history = [entry('segment_alloc', big, 20 << 20), entry('alloc', big, 5 << 20),
           entry('alloc', big + (5 << 20), 300, 94000000000000), entry('snapshot', 0, 0),
           entry('free_requested', big, 5 << 20), entry('free_completed', big, 5 << 20)]
settings = {'PYTORCH_CUDA_ALLOC_CONF': '', 'max_split_size': -1, 'garbage_collection_threshold': 0.0,
            'expandable_segments': False, 'roundup_power2_divisions': {'1': 0}, 'big': 1 << 200, 'none': None}
snapshot = {'segments': [segment], 'device_traces': [[], history], 'allocator_settings': settings,
            'external_annotations': []}
snapshot['segments'][0]['device'] = 1
pickle.dump(snapshot, sys.stdout.buffer, protocol=int(sys.argv[1]))
"#;
    let mut seen: Option<Trace> = None;
    for protocol in 2..=5 {
        let mut python = Command::new("python3")
            .args(["-", &protocol.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tests need python3");
        let mut input = python.stdin.take().expect("was piped");
        input.write_all(PROGRAM.as_bytes()).expect("python3 reads its program");
        drop(input);
        let output = python.wait_with_output().expect("python3 ends");
        assert!(output.status.success());
        let trace = read(output.stdout.as_slice(), "s").expect("is plain data");
        let expected = [
            Event::Alloc { slot: 0, stream: 0, bytes: 1000 },
            Event::Alloc { slot: 1, stream: 0, bytes: 5 << 20 },
            Event::Alloc { slot: 2, stream: 1, bytes: 300 },
            Event::Free { slot: 1, stream: 0 },
        ];
        assert_eq!(trace.events, expected, "protocol {protocol}");
        assert!(seen.replace(trace.clone()).is_none_or(|before| before == trace));
    }
}
