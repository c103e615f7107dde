//! Requests that find no memory, as data: what is told, to whom, and what the flight recorder leaves.

mod machine;

use cuddy::error::Error;
use cuddy::process;
use machine::*;

const LIMIT: &[(&str, &str)] = &[("CUDDY_CONF", "memory_limit:16MiB")];

fn malloc(bytes: u64) -> Result<u64, Error> {
    process::malloc(bytes, 512, 0, 1)
}

/// A request that finds no memory; what its error says.
fn fails(bytes: u64) -> String {
    match malloc(bytes) {
        Err(Error::OutOfMemory(text)) => text,
        other => panic!("{bytes} bytes: {other:?}"),
    }
}

fn told() -> String {
    process::last_out_of_memory().expect("there is host memory")
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn a_failure_is_told_to_its_thread_and_stands_in_the_snapshot() {
    isolated("a_failure_is_told_to_its_thread_and_stands_in_the_snapshot", LIMIT, |machine| {
        machine.use_device(0);
        assert_eq!(told(), "null");
        let kept = malloc(6 * MIB).expect("there is room");
        let text = fails(12 * MIB);
        has(&text, &["12.0 MiB", "raise the limit"]);
        let mine = told();
        has(
            &mine,
            &[
                "\"device\":0,\"requested\":12582912,\"alignment\":512,\"stream\":1,\"cause\":\"limit\",",
                "\"allocated\":6291456,\"active\":6291456,",
                "\"limit\":16777216,\"live_block_count\":1,\"limbo_block_count\":0,",
                "\"waiting\":[],\"advice\":\"Free blocks",
                "\"scopes\":[],\"message\":\"12.0 MiB",
            ],
        );
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(told(), "null", "it was another thread's");
                fails(13 * MIB);
                has(&told(), &["\"requested\":13631488,"]);
            });
        });
        assert_eq!(told(), mine);
        let snapshot = process::snapshot().expect("there is host memory");
        has(&snapshot, &["\"out_of_memory\":{\"time_us\":", "\"requested\":13631488,"]);
        // More than any device has: nothing else is to be told of it.
        fails(u64::MAX);
        assert_eq!(told(), "null");
        process::free(kept).expect("it is live");
        malloc(12 * MIB).expect("now there is room");
    });
}

#[test]
fn it_says_which_streams_and_which_scopes_have_the_memory() {
    let lazy = [LIMIT[0], ("SIMCUDA_SCHEDULE", "lazy")];
    isolated("it_says_which_streams_and_which_scopes_have_the_memory", &lazy, |machine| {
        machine.use_device(0);
        let other = machine.stream();
        process::scope_begin("step").expect("a name");
        let kept = malloc(5 * MIB).expect("there is room");
        process::scope_begin("inner").expect("a name");
        let used = malloc(6 * MIB).expect("there is room");
        let inner = malloc(3 * MIB).expect("there is room");
        machine.fill(other, used, 1, 6 * MIB);
        process::record_stream(used, other).expect("it is live");
        process::free(used).expect("it is live");
        let asked = process::malloc_in(process::DEFAULT_POOL, 4 * MIB, 0, 0, 1, Some(0));
        let Err(Error::OutOfMemory(text)) = asked else { panic!("{asked:?}") };
        let waits = format!("(6.00 MiB for stream {other:#x})");
        has(&text, &[&waits, "Live blocks by scope: step 5.00 MiB, step/inner 3.00 MiB."]);
        let waits = format!("\"waiting\":[{{\"stream\":{other},\"bytes\":6291456}}]");
        let scopes = "\"scopes\":[{\"scope\":1,\"path\":\"step\",\"live_bytes\":5242880},\
                      {\"scope\":2,\"path\":\"step/inner\",\"live_bytes\":3145728}]";
        has(&told(), &[&waits, scopes]);
        machine.synchronize_all();
        for block in [kept, inner] {
            process::free(block).expect("it is live");
        }
    });
}

#[test]
fn the_recorder_writes_what_led_to_a_failure() {
    isolated("the_recorder_writes_what_led_to_a_failure", LIMIT, |machine| {
        machine.use_device(0);
        let folder = std::env::temp_dir().join(format!("cuddy-recorder-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let wanted = folder.join("of-%p.json");
        let wanted = wanted.to_str().expect("it is text");
        let file = wanted.replace("%p", &std::process::id().to_string());
        assert!(process::flight_recorder(Some(""), 10).is_err());
        process::flight_recorder(Some(wanted), 1000).expect("there is host memory");
        let kept = malloc(6 * MIB).expect("there is room");
        has(&fails(12 * MIB), &[&format!("`cuddy replay --fit {file}`")]);
        let written = std::fs::read_to_string(&file).expect("it was written");
        let events = written.split("\"events\":[").nth(1).expect("there is a history");
        let kinds: Vec<_> = events.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(kinds, ["growth", "alloc", "out_of_memory"], "{events}");
        has(
            &written,
            &[
                "\"requested\":12582912,",
                "\"options\":{\"backing\":\"auto\",\"memory_limit\":\"16MiB\"",
            ],
        );
        // A program that asks again and again does not write again and again.
        std::fs::remove_file(&file).expect("it is there");
        assert!(!fails(12 * MIB).contains("replay"));
        assert!(!std::path::Path::new(&file).exists());
        // What cannot be written is said, and nothing else changes.
        process::flight_recorder(Some("/no/such/folder/x.json"), 1000)
            .expect("there is host memory");
        has(
            &fails(12 * MIB),
            &["could not be written to /no/such/folder/x.json", "raise the limit"],
        );
        process::flight_recorder(None, 0).expect("it ends");
        assert!(!fails(12 * MIB).contains("written"));
        process::free(kept).expect("it is live");
        std::fs::remove_dir_all(&folder).expect("it is ours");
    });
}

#[test]
fn the_environment_asks_for_the_recorder() {
    let folder = std::env::temp_dir().join(format!("cuddy-recorded-{}", std::process::id()));
    let file = folder.join("oom.json");
    let name = file.to_str().expect("it is text");
    let variables = [LIMIT[0], ("CUDDY_OOM_SNAPSHOT", name)];
    isolated("the_environment_asks_for_the_recorder", &variables, |machine| {
        machine.use_device(0);
        let file = std::env::var("CUDDY_OOM_SNAPSHOT").expect("it is set");
        let folder = std::path::Path::new(&file).parent().expect("it lies in one").to_owned();
        std::fs::create_dir(&folder).expect("a new folder");
        fails(20 * MIB);
        let written = std::fs::read_to_string(&file).expect("it was written");
        has(&written, &["\"capacity\":100000,", "\"cause\":\"limit\""]);
        std::fs::remove_dir_all(folder).expect("it is ours");
    });
}
