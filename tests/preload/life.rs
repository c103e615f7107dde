//! **Life** of processes: shells and children, forks, exits; and programs that cannot be hooked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::common::{self, is_installed, skipped};
use crate::place::Place;

#[test]
fn forks_exec_threads_and_exits() {
    let place = Place::new();
    let program = place.compile("life.c", &[]);
    let whats = [
        "plain",
        "fork-before",
        "lookup-then-fork",
        "fork-after",
        "fork-busy",
        "exec",
        "threads",
        "static",
    ];
    for what in whats {
        let alone = common::run(place.plain(&program).arg(what)).quietly();
        for mode in ["mode:strict", "mode:fenced", "mode:off"] {
            let with = common::run(place.preloaded(&program, mode).arg(what)).quietly();
            assert_eq!(with, alone, "{what}, {mode}");
        }
    }
}

/// A child that comes before the first allocation caches for itself.
#[test]
fn a_child_from_before_the_first_allocation_is_served_too() {
    let place = Place::new();
    let program = place.compile("life.c", &[]);
    for what in ["fork-before", "lookup-then-fork"] {
        let file = place.file("report");
        let settings = format!("mode:fenced,report:{}", file.display());
        common::run(place.preloaded(&program, &settings).arg(what)).quietly();
        let report = fs::read_to_string(&file).expect("a report");
        assert_eq!(report.matches("\"hits\":7,\"misses\":1,").count(), 2, "{what}: {report}");
        fs::remove_file(&file).expect("ours");
    }
}

#[test]
fn programs_without_cuda_do_not_notice() {
    let place = Place::new();
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell.env_clear().env("PATH", "/usr/bin:/bin").args(["-c", command]);
        shell
    };
    let command =
        "ls / | wc -l; cat /proc/self/comm; (exit 3); echo $?; env true && sort </dev/null";
    let alone = common::run(&mut shell(command)).quietly();
    let library = place.file("libcuddy_preload.so");
    let with = common::run(shell(command).env("LD_PRELOAD", &library)).quietly();
    assert_eq!(with, alone);
    // No driver anywhere: a lookup finds what it would have found.
    if is_installed("python3") {
        let asks = "python3 -c 'import ctypes, sys\n\
                    none = ctypes.CDLL(None)\n\
                    print([hasattr(none, n) for n in (\"cuMemAlloc_v2\", \"cuGetProcAddress_v2\", \"strlen\")])\n\
                    try: ctypes.CDLL(\"libcuda.so.1\")\n\
                    except OSError: print(\"no driver\")'";
        let alone = common::run(&mut shell(asks)).quietly();
        let with = common::run(shell(asks).env("LD_PRELOAD", &library)).quietly();
        assert_eq!(with, alone);
        assert!(alone.starts_with("[False, False, True]"), "{alone}");
    } else {
        skipped("lookups in a process without a driver", "python3 is not installed");
    }
}

/// A shell that starts Python that forks and becomes another program.
#[test]
fn a_chain_of_programs() {
    if !is_installed("python3") {
        return skipped("a chain of programs", "python3 is not installed");
    }
    let place = Place::new();
    let program = place.compile("life.c", &[]);
    let script = format!(
        "import os, ctypes\n\
         cuda = ctypes.CDLL('libcuda.so.1')\n\
         assert cuda.cuInit(0) == 0\n\
         context, block = ctypes.c_void_p(), ctypes.c_ulonglong()\n\
         assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n\
         assert cuda.cuCtxSetCurrent(context) == 0\n\
         for i in range(5):\n\
        \x20   assert cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)) == 0\n\
        \x20   assert cuda.cuMemFree_v2(block) == 0\n\
         if os.fork() == 0: os.execv('{0}', ['{0}', 'plain'])\n\
         os.wait()\n\
         print('done')\n",
        program.display()
    );
    fs::write(place.file("chain.py"), script).expect("the folder is ours");
    let command =
        format!("python3 {}; {} plain", place.file("chain.py").display(), program.display());
    let report = place.file("report");
    let settings = format!("mode:strict,report:{}", report.display());
    let mut shell = place.preloaded("sh".as_ref(), &settings);
    let said = common::run(shell.args(["-c", &command])).quietly();
    assert_eq!(said, "done\n");
    let report = fs::read_to_string(report).expect("a report");
    assert_eq!(report.matches("\"event\":\"end\"").count(), 3, "{report}");
    assert!(report.contains("\"hits\":4,\"misses\":1,"), "Python's own, by ctypes: {report}");
}

#[test]
fn static_and_setuid_programs_are_not_harmed() {
    let place = Place::new();
    let fixed = place.build("life.c", "fixed", &["-static", "-DWITHOUT_DLOPEN"]);
    let with = common::run(&mut place.preloaded(&fixed, "")).quietly();
    assert_eq!(with, "a program without a loader\n");
    let special = place.compile("life.c", &["-DWITHOUT_DLOPEN"]);
    // Another owner makes it special for root too; nobody else can change the owner.
    let _ = std::os::unix::fs::chown(&special, Some(65534), None);
    fs::set_permissions(&special, fs::Permissions::from_mode(0o4755)).expect("ours");
    // The loader says on stderr that it ignores the library, where the user is not its owner.
    let ended = common::run(&mut place.preloaded(&special, ""));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "a program without a loader\n"));
}

/// The release's promise, as far as this build can show it.
#[test]
fn the_library_needs_little_and_does_nothing_when_loaded() {
    let place = Place::new();
    let library = place.file("libcuddy_preload.so");
    let dynamic = common::output(Command::new("readelf").args(["-dW"]).arg(&library));
    let needed: Vec<_> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(!needed.is_empty(), "{dynamic}");
    for line in needed {
        let known = ["libgcc_s.so.1", "libc.so.6", "ld-linux", "libdl.so.2", "libpthread.so.0"];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
    assert!(dynamic.contains("NODELETE") && dynamic.contains("[libcuddy.so.0]"), "{dynamic}");
    // std's own initialisers: its note of the arguments, and the C compiler's frame.
    let size = dynamic.lines().find(|line| line.contains("(INIT_ARRAYSZ)"));
    let size = size.and_then(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    assert!(size.unwrap_or(0) <= 16, "{dynamic}");
    let names = common::output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let names: Vec<_> = names.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    let known = |name: &&str| {
        name.starts_with("cuddy_") || name.starts_with("cu") || ["dlsym", "dlvsym"].contains(name)
    };
    let strange: Vec<_> = names.iter().filter(|name| !known(name)).collect();
    assert!(strange.is_empty(), "{strange:?}");
    assert!(names.contains(&"cuddy_malloc") && names.contains(&"cuMemAlloc_v2"));
    // The oldest C library that this build runs with: no symbol of it is newer.
    let versions = common::output(Command::new("readelf").arg("-VW").arg(&library));
    let newest = versions.split("GLIBC_2.").skip(1).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().ok()
    });
    assert!(newest.max().is_some_and(|newest| newest <= 34), "{versions}");
    // What other library is: the same functions of Cuddy, and nothing else.
    let plain = common::library("libcuddy.so");
    let plain = common::output(Command::new("nm").args(["-D", "--defined-only"]).arg(plain));
    for name in plain.lines().filter_map(|line| line.split(' ').nth(2)) {
        assert!(name.starts_with("cuddy_") && names.contains(&name), "{name}");
    }
}
