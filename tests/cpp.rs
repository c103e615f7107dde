//! cuddy.hpp and its adaptors: the C++ programs of tests/cpp, compiled as C++17 and C++20 by every
//! compiler that is here, and run on the simulated driver with its checker set to abort.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::Folder;

const WARNINGS: [&str; 6] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"];
const STANDARDS: [&str; 2] = ["-std=c++17", "-std=c++20"];

/// The compilers that are here: one at least.
fn compilers() -> Vec<&'static str> {
    let found: Vec<_> =
        ["g++", "clang++"].into_iter().filter(|name| common::is_installed(name)).collect();
    assert!(!found.is_empty(), "neither g++ nor clang++ is installed");
    for missing in ["g++", "clang++"].iter().filter(|name| !found.contains(name)) {
        common::skipped("the C++ headers", &format!("with {missing}: it is not installed"));
    }
    found
}

/// A compiler's command for these sources.
fn compile(folder: &Folder, compiler: &str, standard: &str, sources: &[PathBuf]) -> Command {
    let mut command = Command::new(compiler);
    command.args(WARNINGS).args([standard, "-g", "-Iinclude", "-Ibindings/cpp", "-Itests/cpp"]);
    command.args(sources).arg("-o").arg(folder.file("program"));
    command.arg("-L").arg(folder.path()).args(["-lcuddy", "-ldl", "-lpthread"]);
    command
}

/// Runs what was compiled: one device of 512 MiB.
fn run(folder: &Folder) {
    let mut command = Command::new(folder.file("program"));
    command.env_clear().env("LD_LIBRARY_PATH", folder.path());
    command.env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_CHECKER", "abort");
    common::run(&mut command).quietly();
}

/// A program of tests/cpp.
fn source(name: &str) -> PathBuf {
    Path::new("tests/cpp").join(name)
}

fn check(sources: &[&str]) {
    let sources: Vec<_> = sources.iter().map(|name| source(name)).collect();
    let folder = Folder::with_libraries();
    for compiler in compilers() {
        for standard in STANDARDS {
            common::output(&mut compile(&folder, compiler, standard, &sources));
            run(&folder);
        }
    }
}

#[test]
fn owners() {
    check(&["owners.cpp"]);
}

#[test]
fn pools() {
    check(&["pools.cpp"]);
}

/// Two halves with different default streams are one program.
#[test]
fn per_thread() {
    check(&["per_thread.cpp", "per_thread_half.cpp"]);
}

/// What the CUDA provider of ONNX Runtime allocates with: nothing of ONNX Runtime is needed.
#[test]
fn onnxruntime_addresses() {
    check(&["onnxruntime_addresses.cpp"]);
}

/// The header, alone and twice, without a warning and without CUDA's own headers.
#[test]
fn the_header_stands_alone() {
    let folder = Folder::with_libraries();
    let source = folder.file("alone.cpp");
    fs::write(&source, "#include <cuddy.hpp>\n#include <cuddy.hpp>\nint main() { return 0; }\n")
        .expect("the folder is ours");
    for compiler in compilers() {
        for standard in STANDARDS {
            common::output(&mut compile(
                &folder,
                compiler,
                standard,
                std::slice::from_ref(&source),
            ));
        }
    }
}

/// Where `tests/clients/install` puts things.
fn clients() -> Option<PathBuf> {
    let named = std::env::var_os("CUDDY_CLIENTS").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    named.or_else(|| Some(cache.or_else(home)?.join("cuddy/clients")))
}

/// Where Python's packages are among them.
fn packages() -> Option<PathBuf> {
    let versions = fs::read_dir(clients()?.join("lib")).ok()?;
    let folders = versions.filter_map(|entry| Some(entry.ok()?.path().join("site-packages")));
    folders.into_iter().find(|folder| folder.is_dir())
}

/// The headers of the CUDA runtime, the half of them that the compiler's package has included.
fn cuda(site: &Path) -> [PathBuf; 2] {
    ["cuda_runtime", "cuda_nvcc"].map(|part| site.join("nvidia").join(part).join("include"))
}

/// Compiles and runs a program against headers of somebody else's: their folders, and what else the
/// compiler is to be told.
fn check_against(program: &str, includes: &[PathBuf], more: &[&str]) {
    let folder = Folder::with_libraries();
    for standard in STANDARDS {
        let mut command = compile(&folder, "g++", standard, &[source(program)]);
        for include in includes {
            command.arg("-isystem").arg(include);
        }
        common::output(command.args(more));
        run(&folder);
    }
}

/// The resource is one for CCCL 2, for CCCL 3.1 (RMM's own copy) and for the newest CCCL 3, where they
/// are installed.
#[test]
fn memory_resource() {
    let Some(site) = packages() else {
        return common::skipped("cuddy_mr.hpp", "tests/clients/install headers was not run");
    };
    let [runtime, of_compiler] = cuda(&site);
    for (name, cccl) in [
        ("CCCL 2.7", "nvidia/cuda_cccl/include"),
        ("CCCL 3.1", "librmm/include/rapids"),
        ("CCCL 3.3", "nvidia/cu13/include/cccl"),
    ] {
        let cccl = site.join(cccl);
        if !cccl.join("cuda/memory_resource").exists() || !runtime.exists() {
            common::skipped("cuddy_mr.hpp", &format!("{name}: tests/clients/install headers"));
            continue;
        }
        let includes = [cccl, runtime.clone(), of_compiler.clone()];
        // Unoptimised, it asks for a runtime that nothing here calls.
        check_against("memory_resource.cpp", &includes, &["-O1"]);
    }
}

/// The allocator is one for TensorRT and for TensorRT for RTX.
#[test]
fn tensorrt() {
    let (Some(clients), Some(site)) = (clients(), packages()) else {
        return common::skipped("cuddy_tensorrt.hpp", "tests/clients/install headers was not run");
    };
    let [runtime, of_compiler] = cuda(&site);
    for version in ["TRT-Enterprise-11.4", "TRT-RTX-1.7"] {
        let headers = clients.join("tensorrt").join(version);
        if !headers.join("NvInferRuntime.h").exists() || !runtime.exists() {
            let why = format!("{version}: tests/clients/install headers was not run");
            common::skipped("cuddy_tensorrt.hpp", &why);
            continue;
        }
        let includes = [headers, runtime.clone(), of_compiler.clone()];
        check_against("tensorrt.cpp", &includes, &[]);
    }
}

/// What pkg-config says of an installed library; `None` where it is not there.
fn package_flags(name: &str) -> Option<Vec<String>> {
    let asked = Command::new("pkg-config").args(["--cflags", "--libs", name]).output().ok()?;
    let flags = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| flags.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn opencv() {
    // Debian's core alone has no opencv4.pc.
    let include = PathBuf::from("/usr/include/opencv4");
    if !include.join("opencv2/core/cuda.hpp").exists() {
        return common::skipped("cuddy_opencv.hpp", "OpenCV's core headers are not installed");
    }
    check_against("opencv.cpp", &[include], &["-lopencv_core"]);
}

#[test]
fn onnxruntime() {
    let Some(flags) = package_flags("libonnxruntime") else {
        return common::skipped(
            "cuddy_onnxruntime.hpp",
            "ONNX Runtime's headers (libonnxruntime.pc) are not installed",
        );
    };
    let flags: Vec<_> = flags.iter().map(String::as_str).collect();
    check_against("onnxruntime.cpp", &[], &flags);
}

/// The README's program, pasted as it is, prints what the README says.
#[test]
fn the_program_prints_what_the_readme_says() {
    let readme = fs::read_to_string("README.md").expect("there is a README");
    let folder = Folder::with_libraries();
    let source = folder.file("step.cpp");
    let heading = "### C++";
    fs::write(&source, common::block(&readme, heading, "cpp")).expect("the folder takes files");
    let compiler = compilers()[0];
    common::output(&mut compile(&folder, compiler, STANDARDS[0], std::slice::from_ref(&source)));
    let mut command = Command::new(folder.file("program"));
    command.env_clear().env("LD_LIBRARY_PATH", folder.path());
    let printed = common::run(&mut command).quietly();
    let fresh = common::with_block(&readme, heading, "text", &printed);
    common::compare("README.md", &fresh);
}

/// No program may be forgotten.
#[test]
fn every_program_has_a_test() {
    let tests = fs::read_to_string(file!()).expect("this file");
    for entry in fs::read_dir("tests/cpp").expect("tests/cpp can be read") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        assert!(!name.ends_with(".cpp") || tests.contains(&format!("\"{name}\"")), "{name}");
    }
}
