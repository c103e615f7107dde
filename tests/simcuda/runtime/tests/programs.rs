//! C programs on the substitute runtime: each is compiled and linked once for CUDA 12 and once for
//! CUDA 13, by what their public headers declare, and runs on the simulated driver.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// A library that this build made, beside the running test.
fn library(name: &str) -> PathBuf {
    let path = env::current_exe().expect("a test has a path").with_file_name(name);
    assert!(path.exists(), "{} is missing: build the whole workspace", path.display());
    path
}

/// A folder with the libraries in it under the vendor's names, removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("simcudart-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a temporary folder can be made");
        symlink(library("libsimcuda.so"), path.join("libcuda.so.1")).expect("a link");
        for cuda in [12, 13] {
            let to = library(&format!("libsimcudart{cuda}.so"));
            symlink(to, path.join(format!("libcudart.so.{cuda}"))).expect("a link");
        }
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn compile(folder: &Folder, name: &str, cuda: i32) -> PathBuf {
    let program = folder.0.join(format!("program{cuda}"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-g", &format!("-DCUDA={cuda}")]);
    compiler.arg(Path::new("tests/c").join(name)).arg("-o").arg(&program).arg("-L").arg(&folder.0);
    compiler.arg(format!("-l:libcudart.so.{cuda}")).args(["-ldl", "-lpthread"]);
    let done = compiler.output().expect("there is a C compiler");
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    program
}

fn start(folder: &Folder, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", &folder.0).env_remove("LD_PRELOAD");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Runs a program for both CUDAs, and wants success and this on stderr.
fn check(name: &str, settings: &[(&str, &str)], says: &str) {
    let folder = Folder::new(name);
    for cuda in [12, 13] {
        let program = compile(&folder, name, cuda);
        let done = run(start(&folder, &program).envs(settings.iter().copied()));
        let err = text(&done.stderr);
        assert!(done.status.success(), "{name} for CUDA {cuda}: {:?}\n{err}", done.status);
        assert_eq!(err.trim_end(), says, "{name} for CUDA {cuda}");
    }
}

#[test]
fn memory() {
    check("memory.c", &[], "");
}

#[test]
fn errors() {
    let says = "simcudart: cudaMallocArray is not in this substitute for the CUDA runtime: it \
                answers cudaErrorNotSupported";
    check("errors.c", &[], says);
}

#[test]
fn sticky() {
    check("sticky.c", &[], "");
}

#[test]
fn devices() {
    check("devices.c", &[("SIMCUDA_DEVICES", "2")], "");
}

#[test]
fn streams() {
    check("streams.c", &[("SIMCUDA_SCHEDULE", "lazy"), ("SIMCUDA_CHECKER", "abort")], "");
}

#[test]
fn kernels() {
    check("kernels.c", &[], "");
}

/// Without a driver, or with one of an older CUDA, every program is told so in the way it expects.
#[test]
fn a_driver_that_is_missing_or_too_old() {
    let folder = Folder::new("none");
    let source = folder.0.join("none.c");
    let code = "#include \"runtime.h\"\n\
                int main(void) { int n = 5; int code = cudaGetDeviceCount(&n);\n\
                printf(\"%d %d %d\\n\", code, n, cudaGetLastError()); return 0; }\n";
    fs::write(&source, code).expect("the folder is ours");
    fs::copy("tests/c/runtime.h", folder.0.join("runtime.h")).expect("the folder is ours");
    let source = source.to_str().expect("UTF-8");
    for (cuda, driver, expected) in [
        (12, "12080", "0 1 0"),
        (13, "12080", "35 0 35"),
        (12, "11080", "35 0 35"),
        (13, "13000", "0 1 0"),
    ] {
        let program = compile(&folder, source, cuda);
        let done = run(start(&folder, &program).env("SIMCUDA_DRIVER", driver));
        assert_eq!(text(&done.stdout).trim(), expected, "CUDA {cuda} on driver {driver}");
    }
    let program = compile(&folder, source, 12);
    let done = run(start(&folder, &program).env("SIMCUDA_DEVICES", "0"));
    assert_eq!(text(&done.stdout).trim(), "100 0 100");
    fs::remove_file(folder.0.join("libcuda.so.1")).expect("the folder is ours");
    if !text(&run(Command::new("ldconfig").arg("-p")).stdout).contains("libcuda.so.1 ") {
        let done = run(&mut start(&folder, &program));
        assert_eq!(text(&done.stdout).trim(), "35 0 35");
    }
}

/// Exported names with their version node, as `nm` lists them.
fn exported(cuda: i32) -> Vec<String> {
    let done = run(Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(library(&format!("libsimcudart{cuda}.so"))));
    let node = format!("@@libcudart.so.{cuda}");
    let name = |line: &str| line.split(' ').nth(2)?.strip_suffix(&node).map(str::to_owned);
    text(&done.stdout).lines().filter_map(name).collect()
}

#[test]
fn every_name_of_both_runtimes_is_exported_with_its_version_node() {
    let table = fs::read_to_string("names/names.tsv").expect("the table");
    for cuda in [12, 13] {
        let cell = |line: &str| line.split('\t').nth(cuda - 11).map(str::to_owned);
        let mut wanted: Vec<_> = table
            .lines()
            .skip(1)
            .filter(|line| cell(line).is_some_and(|function| function != "-"))
            .filter_map(|line| line.split('\t').next().map(str::to_owned))
            .collect();
        let mut found = exported(cuda as i32);
        wanted.sort();
        found.sort();
        assert_eq!(wanted, found, "CUDA {cuda}");
        assert!(found.len() > 400, "CUDA {cuda}: {}", found.len());
    }
}

/// What names/torch-2.9.1.txt lists is there, and none of it is one that only refuses.
#[test]
fn all_that_pytorch_imports_is_there() {
    let list = fs::read_to_string("names/torch-2.9.1.txt").expect("the list");
    let imports: Vec<_> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(imports.len(), 92);
    let sources = all_sources(Path::new("src"));
    // CUDA 13 has lost two of CUDA 12's forms, and torch for 13 imports others.
    for (cuda, gone) in
        [(12, &[][..]), (13, &["cudaGetDeviceProperties_v2", "cudaStreamGetCaptureInfo_v2"])]
    {
        let found = exported(cuda);
        for name in &imports {
            let there = found.iter().any(|other| other == name);
            assert_eq!(there, !gone.contains(name), "CUDA {cuda}: {name}");
            assert!(
                [format!("fn {name}("), format!("fn {name},"), format!("fn {name}_12(")]
                    .iter()
                    .any(|definition| sources.contains(definition)),
                "{name} is exported, and only refuses"
            );
        }
    }
}

fn all_sources(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).expect("src") {
        let path = entry.expect("an entry").path();
        all += &if path.is_dir() {
            all_sources(&path)
        } else {
            fs::read_to_string(&path).expect("text")
        };
    }
    all
}

/// No program may be forgotten.
#[test]
fn every_program_has_a_test() {
    let tests = fs::read_to_string("tests/programs.rs").expect("this file");
    let names = fs::read_dir("tests/c").expect("tests/c").map(|e| e.expect("an entry").file_name());
    for name in names.filter_map(|name| name.into_string().ok()).filter(|n| n.ends_with(".c")) {
        assert!(tests.contains(&format!("check(\"{name}\"")), "{name} has no test");
    }
}
