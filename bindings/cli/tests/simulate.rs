//! `cuddy sim`: what it says of right, wrong and unfinished programs, and how it ends.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::LazyLock;

use common::{Ended, cuddy, run};

/// A program that does what its argument says; every step of it is on the driver API.
const PROGRAM: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuStreamCreate(void **, unsigned), cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, void *);
int cuMemAlloc_v2(CUdeviceptr *, size_t), cuMemFree_v2(CUdeviceptr), cuDeviceGetCount(int *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuGetExportTable(const void **, const void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void *, void **, void **);

static int work(int wrong) {
    CUdeviceptr block;
    void *context, *a, *b;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 20;
    int code = cuMemAlloc_v2(&block, 1 << 20);
    if (code) return code;
    if (cuStreamCreate(&a, 1) || cuStreamCreate(&b, 1)) return 21;
    if (cuMemsetD8Async(block, 1, 1 << 20, a)) return 22;
    if (wrong && cuMemsetD8Async(block, 2, 1 << 20, b)) return 23;
    return 0;
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "right";
    int devices, status;
    if (!strcmp(what, "right")) return work(0);
    if (!strcmp(what, "wrong")) return work(1);
    if (!strcmp(what, "idle")) return cuInit(0);
    if (!strcmp(what, "exit9")) return work(0) ? 1 : 9;
    if (!strcmp(what, "quick")) work(1), _exit(4);
    if (!strcmp(what, "killed")) work(0), raise(SIGKILL);
    if (!strcmp(what, "exec")) return work(1), execl(words[0], words[0], "right", (char *)0);
    if (!strcmp(what, "devices")) return cuInit(0), cuDeviceGetCount(&devices), devices;
    if (!strcmp(what, "children")) {
        for (int i = 0; i < 2; i++)
            if (fork() == 0) exit(work(i));
        while (wait(&status) > 0) {}
        return work(0);
    }
    if (!strcmp(what, "forked")) {
        int code = work(0);
        if (fork() == 0) exit(cuInit(0) == 3 ? 0 : 1); /* CUDA_ERROR_NOT_INITIALIZED */
        wait(&status);
        return code + WEXITSTATUS(status);
    }
    if (!strcmp(what, "kernel")) {
        void *module, *kernel;
        int code = work(0);
        if (cuModuleLoadData(&module, "any") || cuModuleGetFunction(&kernel, module, "gemm")) return 5;
        return code + cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
    }
    if (!strcmp(what, "touch")) {
        CUdeviceptr block;
        int code = work(0);
        cuMemAlloc_v2(&block, 3000);
        *(volatile char *)(block + 5) = 1;
        return code;
    }
    if (!strcmp(what, "own-fault")) return *(volatile char *)(size_t)work(0);
    if (!strcmp(what, "genuine")) {
        const void *table;
        char asked[16] = {0};
        return work(0) + (cuGetExportTable(&table, asked) != 500);
    }
    if (!strcmp(what, "wait")) {
        puts("ready");
        fflush(stdout);
        pause();
    }
    if (!strcmp(what, "environment")) {
        printf("%s\n%s\n%s\n", getenv("LD_PRELOAD"), getenv("SIMCUDA_CHECKER"), getenv("SIMCUDA_DRIVER"));
        return 0;
    }
    return 77;
}
"#;

fn program() -> &'static str {
    static PLACE: LazyLock<(tempfile::TempDir, String)> =
        LazyLock::new(|| common::compile("program", PROGRAM));
    &PLACE.1
}

fn sim(options: &[&str], arguments: &[&str]) -> Ended {
    run(&[&["sim"], options, &["--", program()], arguments].concat())
}

#[test]
fn a_right_program_is_clean_and_its_exit_code_comes_through() {
    let ended = sim(&[], &["right"]);
    assert_eq!(ended.code, Some(0));
    assert_eq!(
        (ended.out.as_str(), ended.err.as_str()),
        ("", "cuddy sim: clean: 1 access checked\n")
    );
    assert_eq!(sim(&[], &["exit9"]).code, Some(9));
}

#[test]
fn a_wrong_program_is_reported_with_both_sides_and_exit_code_86() {
    for options in [&[][..], &["--schedule", "lazy"], &["--seed", "5"], &["--checker", "abort"]] {
        let ended = sim(options, &["wrong"]);
        assert_eq!(ended.code, Some(86), "{options:?}: {}", ended.err);
        let parts = [
            "[1] race: two uses",
            "first:  write by cuMemsetD8Async",
            "second: write by",
            "1 finding",
        ];
        for part in parts {
            assert!(ended.err.contains(part), "{options:?}: {part} in {}", ended.err);
        }
    }
    assert_eq!(sim(&["--checker", "off"], &["wrong"]).code, Some(0));
}

#[test]
fn what_was_not_checked_is_never_called_clean() {
    let cases: [(&[&str], &str); 5] = [
        (&["--checker", "off"], "right"),
        (&[], "idle"),
        (&[], "environment"),
        (&[], "killed"),
        (&["--checker", "off"], "killed"),
    ];
    for (options, what) in cases {
        let ended = sim(options, &[what]);
        assert!(!ended.err.contains("clean"), "{what}: {}", ended.err);
        assert!(ended.err.starts_with("cuddy sim: "), "{what}: {}", ended.err);
    }
    let says = |options: &[&str], what, text: &str| {
        let ended = sim(options, &[what]);
        assert!(ended.err.contains(text), "{what}: {text} in {}", ended.err);
    };
    says(&["--checker", "off"], "right", "NOT CHECKED: the checker was off");
    says(&[], "idle", "NOT CHECKED: no access to memory was seen");
    says(&[], "environment", "NOT CHECKED: no process initialised the simulated driver");
    says(&[], "killed", "1 process was not judged to the end");
    says(&[], "kernel", "1 launch of a kernel that the checker does not know: what these touched");
}

#[test]
fn a_process_that_leaves_early_has_its_findings_reported() {
    let ended = sim(&[], &["quick"]);
    assert_eq!(ended.code, Some(86), "{}", ended.err);
    assert!(
        ended.err.contains("race") && ended.err.contains("ended with exit code 4"),
        "{}",
        ended.err
    );
    let ended = sim(&[], &["killed"]);
    assert_eq!(ended.code, Some(128 + 9), "{}", ended.err);
}

#[test]
fn children_and_programs_that_it_becomes_are_judged_too() {
    let ended = sim(&["--calls"], &["children"]);
    assert_eq!(ended.code, Some(86), "{}", ended.err);
    assert!(ended.err.contains("1 finding in 4 accesses checked"), "{}", ended.err);
    assert!(ended.err.contains("cuInit                         3"), "{}", ended.err);
    assert!(ended.err.contains("program children\n[1] race"), "by name: {}", ended.err);
    let ended = sim(&[], &["exec"]);
    assert_eq!(ended.code, Some(86), "{}", ended.err);
    assert!(ended.err.contains("1 process was not judged to the end"), "{}", ended.err);
    let ended = sim(&[], &["forked"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert_eq!(ended.err, "cuddy sim: clean: 1 access checked\n");
    let ended = run(&["sim", "sh", "-c", &format!("{0} right && {0} right", program())]);
    assert_eq!(ended.err, "cuddy sim: clean: 2 accesses checked in 2 processes\n");
}

#[test]
fn options_reach_the_device() {
    assert_eq!(sim(&["--devices", "3"], &["devices"]).code, Some(3));
    assert_eq!(sim(&["--memory", "512KiB"], &["right"]).code, Some(2), "CUDA_ERROR_OUT_OF_MEMORY");
    assert_eq!(sim(&["--faults", "cuMemAlloc:1:OUT_OF_MEMORY"], &["right"]).code, Some(2));
    let ended = sim(&["--faults", "cuMemCreate:1:OUT_OF_MEMORY"], &["right"]);
    assert!(
        ended.code == Some(0) && ended.err.contains("no call was made to fail"),
        "{}",
        ended.err
    );
    let ended = sim(&["--driver", "12.8", "--runtime", "none"], &["environment"]);
    let lines: Vec<_> = ended.out.lines().collect();
    assert!(lines[0].ends_with("/libcuda.so.1") && !lines[0].contains("cudart"), "{lines:?}");
    assert_eq!(lines[1..], ["log", "12080"]);
    let mut command = cuddy(&["sim", "--", program(), "environment"]);
    let ended = Ended::of(command.env("SIMCUDA_CHECKER", "off").env("LD_PRELOAD", "libm.so.6"));
    assert!(ended.out.contains("/libcuda.so.1:libm.so.6\noff\n"), "{}", ended.out);
}

#[test]
fn the_calls_the_time_and_the_memory_are_printed_if_asked() {
    let plain = sim(&[], &["right"]).err;
    assert!(!plain.contains("cuMemAlloc") && !plain.contains("virtual"), "{plain}");
    let ended = sim(&["--calls", "--time", "--memory", "2GiB"], &["right"]);
    for part in ["cuStreamCreate                 2", "virtual time", "1.00 MiB   2.00 GiB"] {
        assert!(ended.err.contains(part), "{part} in {}", ended.err);
    }
}

#[test]
fn too_little_checked_is_a_failure_if_asked() {
    let ended = sim(&["--require-checked", "1"], &["right"]);
    assert_eq!((ended.code, &*ended.err), (Some(0), "cuddy sim: clean: 1 access checked\n"));
    for (options, what, code) in [
        (&["--require-checked", "2"][..], "right", 87),
        (&["--require-checked", "1"], "idle", 87),
        (&["--require-checked", "1"], "environment", 87),
        (&["--require-checked", "1", "--checker", "off"], "right", 87),
        (&["--require-checked", "9"], "wrong", 86),
        (&["--require-checked", "9"], "exit9", 9),
    ] {
        let ended = sim(options, &[what]);
        assert_eq!(ended.code, Some(code), "{what}: {}", ended.err);
        assert!(ended.err.contains("TOO LITTLE CHECKED: "), "{what}: {}", ended.err);
    }
    assert_eq!(sim(&["--require-checked", "some"], &["right"]).code, Some(2));
}

#[test]
fn wrong_settings_are_judged_before_the_program_starts() {
    let (_folder, kernels) = common::file("kernels.txt", b"gemm writes p0 bytes=1\n");
    for (name, value, message) in [
        ("SIMCUDA_DEVICES", "99", "expected a number of devices, 0 to 64"),
        ("SIMCUDA_MEMORY", "much", "write 80GiB"),
        ("SIMCUDA_DRIVER", "9000", "expected a driver version"),
        ("SIMCUDA_CHECKER", "on", "off, log or abort"),
        ("SIMCUDA_DEVICE", "2", "there are devices, memory"),
        ("SIMCUDA_KERNELS", &kernels, "line 1: gemm: 'writes' stands where"),
        ("SIMCUDA_KERNELS", "/no/such/file", "No such file"),
    ] {
        let mut command = cuddy(&["sim", "--", program(), "exit9"]);
        let ended = Ended::of(command.env(name, value));
        assert_eq!(ended.code, Some(2), "{name}: {}", ended.err);
        let begin = format!("cuddy: {name}={value}: ");
        assert!(ended.err.starts_with(&begin) && ended.err.contains(message), "{}", ended.err);
    }
    let mut command = cuddy(&["sim", "--devices", "3", "--", program(), "devices"]);
    let ended = Ended::of(command.env("SIMCUDA_DEVICES", "99"));
    assert_eq!(ended.code, Some(3), "an option comes before a variable: {}", ended.err);
}

#[test]
fn unknown_kernels_are_named_and_can_be_declared() {
    let ended = sim(&[], &["kernel"]);
    assert!(ended.err.contains("\n  1 of gemm\n"), "{}", ended.err);
    assert!(ended.err.contains("--kernels FILE"), "{}", ended.err);
    let (_folder, file) = common::file("kernels.txt", b"ge* # it uses nothing\n");
    let ended = sim(&["--kernels", &file], &["kernel"]);
    assert_eq!((ended.code, &*ended.err), (Some(0), "cuddy sim: clean: 1 access checked\n"));
    let ended = sim(&["--kernels", "/no/such/file"], &["kernel"]);
    assert!(
        ended.code == Some(2) && ended.err.contains("--kernels=/no/such/file: "),
        "{}",
        ended.err
    );
}

#[test]
fn who_was_refused_is_said() {
    let ended = sim(&["--faults", "cuInit:1:SYSTEM_NOT_READY"], &["right"]);
    assert_eq!(ended.code, Some(20));
    let refused =
        format!("cuInit was refused in `{} right`: CUDA_ERROR_SYSTEM_NOT_READY", program());
    assert!(ended.err.contains(&refused) && ended.err.contains("NOT CHECKED"), "{}", ended.err);
    assert!(!ended.err.contains("no call was made to fail"), "{}", ended.err);
    let ended = sim(&[], &["genuine"]);
    let asked = format!("cuddy sim: {} asked the driver to prove that it is genuine", program());
    assert!(ended.code == Some(0) && ended.err.contains(&asked), "{}", ended.err);
    let (folder, program) = common::file("static.c", b"int main(void) { return 0; }");
    let output = folder.path().join("static");
    let built =
        std::process::Command::new("cc").args(["-static", &program, "-o"]).arg(&output).status();
    assert!(built.is_ok_and(|status| status.success()), "a C compiler, and libc.a");
    let ended = run(&["sim", output.to_str().expect("UTF-8")]);
    assert!(ended.err.contains("is linked statically: it has no loader"), "{}", ended.err);
}

#[test]
fn a_host_touch_of_device_memory_is_named() {
    for options in [&[][..], &["--checker", "abort"]] {
        let ended = sim(options, &["touch"]);
        assert_eq!(ended.code, Some(86), "{}", ended.err);
        assert!(
            ended.err.starts_with("[1] host use of memory that only the device"),
            "{}",
            ended.err
        );
        for part in ["cuMemAlloc", "3000", "by host thread 1 itself", "ended with signal 11"] {
            assert!(ended.err.contains(part), "{part} in {}", ended.err);
        }
    }
    let ended = sim(&[], &["own-fault"]);
    assert_eq!(ended.code, Some(128 + 11), "a fault of the program's own: {}", ended.err);
    assert!(!ended.err.contains("host use"), "{}", ended.err);
}

#[test]
fn programs_with_sanitizers_run() {
    for sanitizer in ["address", "undefined", "leak"] {
        let option = format!("-fsanitize={sanitizer}");
        let (_folder, program) = common::compile_with("sanitized", PROGRAM, &[&option]);
        let ended = run(&["sim", "--", &program, "right"]);
        assert_eq!((ended.code, &*ended.err), (Some(0), "cuddy sim: clean: 1 access checked\n"));
        let ended = run(&["sim", "--", &program, "touch"]);
        assert!(ended.code == Some(86) && ended.err.contains("[1] host use"), "{}", ended.err);
    }
}

#[test]
fn a_report_goes_to_a_file_and_the_verdict_to_stderr() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["report.txt", "report.jsonl"] {
        let file = folder.path().join(name);
        let ended = sim(&["--report", file.to_str().expect("UTF-8")], &["wrong"]);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        let text = std::fs::read_to_string(&file).expect("a report");
        assert!(text.contains("race") && text.contains("cuMemsetD8Async"), "{text}");
        if name.ends_with("jsonl") {
            let line: serde_json::Value = serde_json::from_str(text.trim_end()).expect("JSON");
            assert_eq!(line["end"]["accesses"], 2);
        }
    }
    let nowhere = folder.path().join("none/report.txt");
    let ended = sim(&["--report", nowhere.to_str().expect("UTF-8")], &["wrong"]);
    assert!(ended.code == Some(2) && ended.err.starts_with("cuddy: cannot write"), "{}", ended.err);
}

#[test]
fn what_cannot_be_run_is_said() {
    let (folder, text) = common::file("text", b"no program");
    let broken = folder.path().join("broken");
    std::fs::write(&broken, "#!/no/such/interpreter\n").expect("a folder of ours");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&broken, PermissionsExt::from_mode(0o755)).expect("our file");
    let cases: [(&[&str], i32, &str); 10] = [
        (&["no_such_program"], 127, "no program of that name on the PATH"),
        (&["./no_such_program"], 127, "no such file"),
        (&[&text], 126, "not executable"),
        (&[broken.to_str().expect("UTF-8")], 126, "interpreter"),
        (&[], 2, "COMMAND"),
        (&["--memory", "much", "true"], 2, "'much' is no size"),
        (&["--schedule", "soon", "true"], 2, "eager, lazy, lag:K or random:SEED"),
        (&["--faults", "cuMemAloc:1:OUT_OF_MEMORY", "true"], 2, "no function of the driver"),
        (&["--driver", "9.0", "true"], 2, "expected a driver version"),
        (&["--colour", "true"], 2, "--colour"),
    ];
    for (arguments, code, message) in cases {
        let ended = run(&[&["sim"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(message), "{arguments:?}: {}", ended.err);
    }
    let ended = Ended::of(cuddy(&["sim", "true"]).env("CUDDY_SIM_LIBRARY", "/no/such/file.so"));
    assert!(ended.code == Some(2) && ended.err.contains("was not found"), "{}", ended.err);
    let ended = Ended::of(cuddy(&["sim", "true"]).env("TMPDIR", "/no such folder"));
    assert!(ended.code == Some(2) && ended.err.contains("/no such folder"), "{}", ended.err);
    let blank = folder.path().join("a b");
    std::fs::create_dir(&blank).expect("a folder of ours");
    let ended = Ended::of(cuddy(&["sim", "true"]).env("TMPDIR", &blank));
    assert!(ended.code == Some(2) && ended.err.contains("set TMPDIR"), "{}", ended.err);
    assert_eq!(std::fs::read_dir(&blank).expect("it is there").count(), 0, "nothing is left");
}

#[test]
fn a_request_to_end_is_handed_on() {
    for (signal, code) in [(libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let mut child = cuddy(&["sim", "--", program(), "wait"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
        let mut ready = String::new();
        std::io::BufRead::read_line(&mut out, &mut ready).expect("the program speaks");
        assert_eq!(ready, "ready\n");
        // SAFETY: our own child, not waited for yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        let ended = child.wait_with_output().expect("our own child");
        assert_eq!(ended.status.code(), Some(code), "{ended:?}");
        assert_eq!(ended.status.signal(), None, "the report came: {ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("NOT CHECKED"));
    }
}
