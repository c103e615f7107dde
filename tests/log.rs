//! The log: what is in it, who may share it, and that a program never suffers from it.

mod common;
mod machine;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{Folder, library, run};
use cuddy::process;
use machine::{MIB, isolated, malloc, stats};

/// Sets the option, as a program does before it uses a device.
fn log_to(file: &Path) {
    let name = file.to_str().expect("UTF-8");
    process::set_option(b"log", name.as_bytes()).expect("no device is in use");
}

/// The fields of a line, after the time; the last one may have spaces in its quotes.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!(" {key}="))?.1;
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').map(|(value, _)| value),
        None => rest.split(' ').next(),
    }
}

fn number(line: &str, key: &str) -> u64 {
    let text = value(line, key).unwrap_or_else(|| panic!("no {key} in {line}"));
    text.parse().unwrap_or_else(|_| panic!("{key} in {line}"))
}

/// Every line, each of which has a time and this process's number.
fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for line in &lines {
        let (time, _) = line.split_once(' ').expect("fields");
        let (seconds, micros) = time.split_once('.').expect("a fraction");
        assert!(seconds.parse::<u64>().is_ok_and(|it| it > 1_700_000_000), "{line}");
        assert_eq!((micros.len(), number(line, "pid")), (6, u64::from(std::process::id())));
    }
    lines
}

/// What the lines say is reserved: what was got less what was given back, and the figure of the last.
/// Between threads the lines may be out of order.
fn reserved(lines: &[String]) -> (i64, u64) {
    let mut sum = 0;
    let mut last = 0;
    for line in lines.iter().filter(|line| value(line, "device") == Some("0")) {
        match value(line, "event") {
            Some("growth") => sum += number(line, "bytes") as i64,
            Some("release") => sum -= number(line, "bytes") as i64,
            _ => continue,
        }
        last = number(line, "reserved");
    }
    (sum, last)
}

#[test]
fn what_is_got_and_given_back_adds_up_and_failures_are_explained() {
    let name = "what_is_got_and_given_back_adds_up_and_failures_are_explained";
    isolated(name, &[("SIMCUDA_MEMORY", "256MiB")], |_| {
        let folder = Folder::new();
        let file = folder.file("cuddy.log");
        // A relative name is one of the folder that was current at the first use.
        std::env::set_current_dir(folder.path()).expect("it is there");
        log_to(Path::new("cuddy.log"));
        let first = malloc(10 * MIB, 0).expect("memory");
        std::env::set_current_dir("/").expect("it is there");
        let opened = &lines(&file)[0];
        assert_eq!(value(opened, "event"), Some("device"));
        assert_eq!(number(opened, "bytes"), 256 * MIB);
        assert_eq!(value(opened, "name"), Some("Simulated GPU 0 (simcuda)"));

        let second = malloc(100 * MIB, 0).expect("memory");
        assert_eq!(reserved(&lines(&file)), (110 << 20, 110 << 20));
        let why = malloc(200 * MIB, 0).expect_err("the device has 256 MiB").to_string();
        let all = lines(&file);
        let failed = all.last().expect("lines");
        assert_eq!(value(failed, "event"), Some("failed"));
        assert_eq!(value(failed, "status"), Some("CUDDY_ERROR_OUT_OF_MEMORY"));
        assert_eq!(number(failed, "bytes"), 200 * MIB);
        assert_eq!(value(failed, "why"), Some(&why[..]), "{failed}");

        // A hit, a wrong call and a free say nothing.
        process::free(second).expect("it is live");
        let third = malloc(100 * MIB, 0).expect("memory");
        process::free(7).expect_err("no block");
        assert_eq!(lines(&file).len(), all.len());
        process::free(first).and_then(|()| process::free(third)).expect("they are live");
        process::empty_cache(0).expect("the driver takes it");
        assert_eq!(reserved(&lines(&file)), (0, 0));
        assert_eq!(stats(0).reserved, 0);

        process::host_malloc(MIB, 0).expect("memory");
        let host = lines(&file).pop().expect("lines");
        assert_eq!((value(&host, "event"), value(&host, "device")), (Some("growth"), Some("host")));
        process::host_malloc(1 << 50, 0).expect_err("no host has it");
        assert_eq!(value(&lines(&file).pop().expect("lines"), "event"), Some("failed"));
        let open = fs::read_dir("/proc/self/fd").expect("Linux").flatten();
        let mut links = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        assert!(links.all(|link| link != file), "a descriptor is kept");

        // SAFETY: the child calls nothing but Cuddy and _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let refused = process::malloc(MIB, 0, 0, 1).is_err();
            // SAFETY: it ends the child at once.
            unsafe { libc::_exit(i32::from(!refused)) };
        }
        let mut status = -1;
        // SAFETY: the child is ours, the status a local.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "the child is refused");
        lines(&file); // nothing of the child's in it
    });
}

#[test]
fn threads_share_it_and_no_line_is_torn() {
    isolated("threads_share_it_and_no_line_is_torn", &[], |_| {
        let folder = Folder::new();
        let file = folder.file("cuddy.log");
        log_to(&file);
        std::thread::scope(|scope| {
            for stream in [1, 2, 2, 2] {
                scope.spawn(move || {
                    for _ in 0..50 {
                        let block = process::malloc(4 * MIB, 0, 0, stream).expect("memory");
                        process::free(block).expect("it is live");
                        process::empty_cache(0).expect("the driver takes it");
                    }
                });
            }
        });
        let all = lines(&file);
        assert!(all.len() > 50, "{} lines", all.len());
        for line in &all {
            assert_eq!(line.matches(" event=").count(), 1, "{line}");
        }
        assert_eq!(reserved(&all).0, 0, "every change is in it");
    });
}

/// It is said once, and the program goes on.
#[test]
fn a_log_that_cannot_be_written_harms_nobody() {
    isolated("a_log_that_cannot_be_written_harms_nobody", &[], |_| {
        let folder = Folder::new();
        let said = folder.file("stderr");
        let file = fs::File::create(&said).expect("the folder is ours");
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&file), 2) };
        log_to(&folder.file("no such folder/log"));
        let block = malloc(MIB, 0).expect("memory");
        process::free(block).expect("it is live");
        process::empty_cache(0).expect("the driver takes it");
        let said = fs::read_to_string(said).expect("it is there");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("cuddy: the log ") && said.contains("no such folder"), "{said}");
    });
}

/// A program that has more rights than its caller must not write where the caller says.
#[test]
fn programs_with_special_rights_read_no_environment() {
    let folder = Folder::new();
    let (source, program) = (folder.file("rights.c"), folder.file("rights"));
    let text = "#include <cuddy.h>\n#include <stdio.h>\nint main(void) { char value[64];\n\
        cuddy_status status = cuddy_get_option(\"log\", value, sizeof value, NULL);\n\
        printf(\"%s\", status ? cuddy_last_error() : value); return 0; }\n";
    fs::write(&source, text).expect("the folder is ours");
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg("-Iinclude").arg(library("libcuddy.a")).arg("-o").arg(&program);
    common::output(compiler.args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"]));
    let asked = || run(Command::new(&program).env("CUDDY_CONF", "log:/tmp/x")).quietly();
    assert_eq!(asked(), "/tmp/x");
    // Another owner makes it special for root too; nobody else can change the owner.
    if std::os::unix::fs::chown(&program, Some(65534), None).is_err() {
        return common::skipped("a setuid program's environment", "only root can change owners");
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("ours");
    assert_eq!(asked(), "none");
}
