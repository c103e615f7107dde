//! Scopes, leaks and history: what the process tells of its blocks.

mod machine;

use cuddy::process;
use machine::*;

/// The number that stands behind `"name":` in the object that has `mark` in it.
fn number(text: &str, mark: &str, name: &str) -> u64 {
    let object = text.split('{').find(|object| object.contains(mark)).expect("it is told");
    let (_, rest) = object.split_once(&format!("\"{name}\":")).expect("it has that name");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

fn malloc(bytes: u64) -> u64 {
    process::malloc(bytes, 512, 0, 1).expect("there is memory")
}

#[test]
fn scopes_know_what_is_live_of_them() {
    isolated("scopes_know_what_is_live_of_them", &[], |machine| {
        machine.use_device(0);
        let before = malloc(100);
        process::scope_begin("step").expect("a name");
        let (kept, gone) = (malloc(1000), malloc(70_000));
        process::free(gone).expect("it is live");
        // What fails changes nothing.
        assert!(process::free(gone).is_err() && process::free(kept + 8).is_err());
        process::scope_end(Some("step")).expect("it is that one");
        let told = process::scopes().expect("host memory");
        let step = "\"path\":\"step\"";
        assert_eq!(number(&told, step, "live_bytes"), 1000);
        assert_eq!(number(&told, step, "live_count"), 1);
        assert_eq!(number(&told, step, "peak_bytes"), 71_000);
        assert_eq!(number(&told, step, "total_count"), 2);
        let leaks = process::leaks("step").expect("there is such a scope");
        assert_eq!(number(&leaks, "\"requested\":1000", "address"), kept);
        process::free(kept).expect("it is live");
        process::free(before).expect("it is live, and was never known");
        assert_eq!(process::leaks("step").as_deref(), Ok("[]"));
        assert_eq!(process::stats(0).expect("in use").live_block_count, 0);
    });
}

#[test]
fn every_kind_of_free_is_seen() {
    isolated("every_kind_of_free_is_seen", &[], |machine| {
        machine.use_device(0);
        let other = machine.stream();
        process::scope_begin("all").expect("a name");
        let blocks: Vec<u64> = (0..4).map(|_| malloc(2 * MIB)).collect();
        let event = machine.event(other);
        process::free(blocks[0]).expect("it is live");
        process::free_on(blocks[1], other).expect("it is live");
        process::free_after(blocks[2], event).expect("it is live");
        let told = process::scopes().expect("host memory");
        assert_eq!(number(&told, "\"path\":\"all\"", "live_count"), 1);
    });
}

#[test]
fn a_block_whose_free_the_driver_failed_is_no_leak() {
    let test = "a_block_whose_free_the_driver_failed_is_no_leak";
    isolated(test, &[("CUDDY_CONF", "caching:off")], |machine| {
        machine.use_device(0);
        process::scope_begin("step").expect("a name");
        let block = malloc(1000);
        machine.sim.fault("cuMemFree", 1, 1, UNKNOWN, false).expect("a function");
        process::free(block).expect_err("the driver fails");
        machine.sim.clear_faults();
        assert!(process::block_info(block).is_err(), "it is free all the same");
        assert_eq!(process::leaks("step").expect("a scope"), "[]");
    });
}

#[test]
fn what_is_watched_off_and_on_again_stays_true() {
    isolated("what_is_watched_off_and_on_again_stays_true", &[], |machine| {
        machine.use_device(0);
        for round in 0..3 {
            process::record_history(100).expect("host memory");
            let block = malloc(4096);
            let told = process::snapshot().expect("host memory");
            assert!(told.contains(&format!("\"alloc\",0,1,{block},4096,4096,0,")), "{told}");
            process::record_history(0).expect("it ends");
            process::free(block).expect("it is live");
            // With history off nothing is known of it: its address may be another's.
            assert_eq!(process::leaks("").as_deref(), Ok("[]"), "round {round}");
        }
    });
}

/// Blocks off a shelf are told as those of the books are, whatever their stream.
#[test]
fn what_a_shelf_serves_is_told_as_it_is() {
    isolated("what_a_shelf_serves_is_told_as_it_is", &[], |machine| {
        machine.use_device(0);
        let opened = machine.stream();
        process::stream_open(0, opened).expect("it is a stream");
        process::malloc(8 * MIB, 0, 0, 0).expect("there is memory, and shelves may hold some");
        process::record_history(100).expect("host memory");
        for stream in [0, 1, 2, opened] {
            for requested in [1, 512, 1000] {
                let first = process::malloc(requested, 0, 0, stream).expect("there is memory");
                process::free(first).expect("it is live");
                let again = process::malloc(requested, 0, 0, stream).expect("there is memory");
                assert_eq!(first, again, "it lay on the shelf");
                let it = process::block_info(again).expect("it is live");
                process::free(again).expect("it is live");
                let told = process::snapshot().expect("host memory");
                for kind in ["alloc", "free"] {
                    let (stream, bytes) = (it.stream, it.bytes);
                    let line = format!("\"{kind}\",0,{stream},{again},{bytes},{requested},0,");
                    assert_eq!(told.matches(&line).count(), 2, "{line} in {told}");
                }
                process::record_history(100).expect("host memory");
            }
        }
        assert!(process::free(1).is_err());
    });
}

/// Threads that allocate and free while others look.
#[test]
fn threads_and_those_who_look_agree_in_the_end() {
    isolated("threads_and_those_who_look_agree_in_the_end", &[], |machine| {
        machine.use_device(0);
        process::record_history(1000).expect("host memory");
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    process::scope_begin("worker").expect("a name");
                    for step in 0..300 {
                        let block = malloc(512 * (1 + (step * 7 + thread) % 300));
                        process::free(block).expect("it is live");
                    }
                    process::scope_end(None).expect("it was begun");
                });
            }
            for _ in 0..20 {
                process::snapshot().expect("host memory");
            }
        });
        let told = process::scopes().expect("host memory");
        let worker = "\"path\":\"worker\"";
        assert_eq!(number(&told, worker, "live_count"), 0);
        assert_eq!(
            (number(&told, worker, "runs"), number(&told, worker, "total_count")),
            (4, 1200)
        );
        assert_eq!(process::leaks("").as_deref(), Ok("[]"));
    });
}

/// The value of a metric with its labels.
fn metric(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().expect("a number")
}

#[test]
fn the_counters_for_prometheus_are_those_of_every_device() {
    let devices = [("SIMCUDA_DEVICES", "2")];
    isolated("the_counters_for_prometheus_are_those_of_every_device", &devices, |machine| {
        assert!(!process::prometheus().expect("host memory").contains("device="), "none is in use");
        machine.use_device(0);
        let kept = malloc(1000);
        process::scope_begin("far \"away\"").expect("a name");
        let far = process::malloc(3 * MIB, 512, 1, 1).expect("there is memory");
        let pinned = process::host_malloc(5000, 0).expect("there is memory");
        let told = process::prometheus().expect("host memory");
        for (device, requested) in [(0, 1000), (1, 3 * MIB)] {
            let stats = process::stats(device).expect("in use");
            let of = |name: &str| metric(&told, &format!("cuddy_{name}{{device=\"{device}\"}}"));
            assert_eq!(of("requested_bytes"), requested);
            assert_eq!(of("reserved_bytes"), stats.reserved);
            assert_eq!(of("reserved_bytes_total"), stats.reserved_total);
            assert_eq!((of("malloc_total"), of("live_block")), (1, 1));
            assert_eq!(of("rung_fresh_total") + of("rung_growth_total"), 1);
        }
        assert_eq!(metric(&told, "cuddy_host_requested_bytes"), 5000);
        assert_eq!(metric(&told, "cuddy_scope_live_bytes{scope=\"far \\\"away\\\"\"}"), 3 * MIB);
        // Every sample stands behind the head of its metric, which is there once.
        let mut heads = std::collections::BTreeSet::new();
        let mut head = "";
        for line in told.lines().filter(|line| !line.starts_with("# HELP")) {
            match line.strip_prefix("# TYPE ") {
                Some(of) => {
                    head = of.split(' ').next().expect("a name");
                    assert!(heads.insert(head), "{head} comes twice");
                }
                None => assert_eq!(line.split(['{', ' ']).next(), Some(head), "{line}"),
            }
        }
        for block in [kept, far] {
            process::free(block).expect("it is live");
        }
        process::host_free(pinned).expect("it is live");
    });
}

/// Waits until the file tells what is wanted, for ten seconds at most.
fn comes(file: &str, wanted: impl Fn(&str) -> bool) -> bool {
    let told = || std::fs::read_to_string(file).is_ok_and(|text| wanted(&text));
    (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        told()
    })
}

#[test]
fn the_export_goes_on_until_it_is_ended() {
    isolated("the_export_goes_on_until_it_is_ended", &[], |machine| {
        machine.use_device(0);
        let folder = std::env::temp_dir().join(format!("cuddy-export-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        let file = folder.join("of.prom").to_str().expect("it is text").to_owned();
        assert!(process::export_metrics(Some(&file), 0).is_err());
        assert!(process::export_metrics(Some(""), 10).is_err());
        assert!(process::export_metrics(Some("/no/such/folder/x"), 10).is_err());
        let kept = malloc(1000);
        process::export_metrics(Some(&file), 10).expect("it can be written");
        let told = std::fs::read_to_string(&file).expect("it is there at once");
        let requested = "cuddy_requested_bytes{device=\"0\"}";
        assert_eq!(metric(&told, requested), 1000);
        let more = malloc(500);
        assert!(comes(&file, |text| metric(text, requested) == 1500));
        process::export_metrics(None, 0).expect("it ends");
        // The thread sees its end before it writes the next file.
        assert!(comes("/proc/self/status", |text| text.contains("Threads:\t2\n")), "it is gone");
        std::fs::remove_dir_all(&folder).expect("nobody writes there any more");
        for block in [kept, more] {
            process::free(block).expect("it is live");
        }
    });
}
