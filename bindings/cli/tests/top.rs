//! `cuddy top`: one page of a file, and of a process that is running.

mod common;

use common::{compile, cuddy, file, run};

#[test]
fn a_page_shows_what_the_file_says() {
    let text = "cuddy_device_memory_bytes{device=\"0\"} 85899345920\ncuddy_allocated_bytes{device=\"0\"} 42949672960\n\
                cuddy_active_bytes{device=\"0\"} 53687091200\ncuddy_reserved_bytes{device=\"0\"} 64424509440\n\
                cuddy_cached_bytes{device=\"0\"} 10737418240\ncuddy_limit_bytes{device=\"0\"} +Inf\n\
                cuddy_hit_total{device=\"0\"} 999\ncuddy_miss_total{device=\"0\"} 1\n\
                cuddy_scope_live_bytes{scope=\"\"} 9\ncuddy_scope_live_bytes{scope=\"training/step\"} 1048576\n";
    let (_folder, path) = file("of.prom", text.as_bytes());
    let ended = run(&["top", "--once", &path]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let bar = ended.out.lines().nth(2).expect("a bar");
    // Half of the device is live, an eighth in limbo, an eighth cached.
    let cells = |mark: char| bar.chars().filter(|it| *it == mark).count();
    assert_eq!((cells('█'), cells('▓'), cells('▒'), cells('·')), (49, 12, 12, 25), "{bar}");
    for words in [
        "live 40.00 GiB",
        "reserved 60.00 GiB of 80.00 GiB",
        "from the cache 99.9 %",
        "training/step",
        "1.00 MiB",
    ] {
        assert!(ended.out.contains(words), "{words} is not in\n{}", ended.out);
    }
    let first = ended.out.find("training/step").expect("it is there");
    assert!(first < ended.out.find("all ").expect("it is there"), "the largest comes first");
    assert!(ended.out.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn a_running_process_is_found_by_its_number() {
    let source = r#"
        #include <stdio.h>
        #include "cuddy.h"
        int main(void) {
            void *block;
            if (cuddy_malloc(&block, 96 << 20, 0, CUDDY_STREAM_LEGACY) != CUDDY_OK) {
                return 1;
            }
            if (cuddy_export_metrics("/dev/shm/cuddy-%p.prom", 20) != CUDDY_OK) {
                return 2;
            }
            puts("ready");
            fflush(stdout);
            getchar();
            return cuddy_export_metrics(NULL, 0) != CUDDY_OK;
        }"#;
    let (_folder, program) = compile("shown", source);
    let folder = common::driver_folder();
    let mut child = std::process::Command::new(program)
        .env("LD_LIBRARY_PATH", folder.path())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    std::io::BufRead::read_line(&mut output, &mut line).expect("it says something");
    assert_eq!(line, "ready\n");
    let number = child.id().to_string();
    let ended = common::Ended::of(cuddy(&["top", "--once"]).arg(&number));
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    let _ = std::fs::remove_file(format!("/dev/shm/cuddy-{number}.prom"));
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(
        ended.out.contains("live 96.00 MiB") && ended.out.contains("live blocks 1 "),
        "{}",
        ended.out
    );
}

#[test]
fn what_is_not_there_is_said() {
    for (target, words) in [("4294967295", "CUDDY_EXPORT=on"), ("/no/such/file", "/no/such/file")] {
        let ended = run(&["top", "--once", target]);
        assert!(ended.code == Some(2) && ended.err.contains(words), "{}", ended.err);
    }
    let (_folder, path) = file("other.prom", b"node_load1 3\n");
    let ended = run(&["top", "--once", &path]);
    assert!(
        ended.code == Some(2) && ended.err.contains("none of Cuddy's counters"),
        "{}",
        ended.err
    );
}
