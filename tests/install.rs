//! What install.sh puts in place is what pkg-config, CMake and the loader need.
//!
//! The command itself is tested in its own crate: a stand-in of its name is installed here.

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Folder, library, output, run};

const PROGRAM: &str = "#include <cuddy.h>\n#include <stdio.h>\n\
    int main(void) {\n    void *p = NULL;\n\
    if (cuddy_malloc(&p, 1, CUDDY_CURRENT_DEVICE, CUDDY_STREAM_LEGACY) != CUDDY_OK) {\n\
    printf(\"%s\\n\", cuddy_last_error());\n    return 1;\n    }\n\
    printf(\"%s %d\\n\", cuddy_version_string(), (int)cuddy_memory_allocated(0));\n\
    return cuddy_free(p);\n}\n";

/// What the program prints when all is well.
fn expected() -> String {
    format!("{} 512\n", env!("CARGO_PKG_VERSION"))
}

/// A folder such as cargo leaves after a release build.
fn built() -> Folder {
    let folder = Folder::new();
    for name in ["libcuddy.so", "libcuddy.a", "libsimcuda.so"] {
        symlink(library(name), folder.file(name)).expect("a link can be made");
    }
    // Its own tests have the real one.
    fs::write(folder.file("libcuddy_preload.so"), "stand-in").expect("the folder is ours");
    fs::create_dir(folder.file("cudart")).expect("the folder is ours");
    for name in ["cudart/libcudart.so.12", "cudart/libcudart.so.13"] {
        fs::write(folder.file(name), "stand-in").expect("the folder is ours");
    }
    let command = "#!/bin/sh\nif [ \"$1\" = man ]; then touch \"$2/cuddy.1\" \"$2/cuddy-top.1\"; else echo stand-in; fi\n";
    fs::write(folder.file("cuddy"), command).expect("the folder is ours");
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder.file("cuddy"), executable).expect("the folder is ours");
    folder
}

fn install(target: &Folder, prefix: &Path) -> Command {
    let mut command = Command::new("./install.sh");
    command.env_remove("DESTDIR").arg("--prefix").arg(prefix).arg("--target").arg(target.path());
    command
}

/// Every file below a folder, as paths from there.
fn files(folder: &Path) -> Vec<String> {
    fn collect(root: &Path, folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("a folder of ours") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                collect(root, &path, found);
            } else {
                found.push(path.strip_prefix(root).expect("below").display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    collect(folder, folder, &mut found);
    found.sort();
    found
}

/// Runs a program that was linked with the installed library, on the simulated driver.
fn runs(program: &Path, libraries: &Path) {
    let driver = Folder::new();
    symlink(library("libsimcuda.so"), driver.file("libcuda.so.1")).expect("a link can be made");
    let path = format!("{}:{}", libraries.display(), driver.path().display());
    let ended = run(Command::new(program).env_clear().env("LD_LIBRARY_PATH", path));
    assert_eq!(ended.quietly(), expected());
}

fn written(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let path = folder.file(name);
    fs::write(&path, text).expect("the folder is ours");
    path
}

#[test]
fn everything_is_in_its_place_and_goes_away_again() {
    let (target, place) = (built(), Folder::new());
    let prefix = place.file("a prefix");
    let version = env!("CARGO_PKG_VERSION");
    for libdir in ["lib", "lib/x86_64-linux-gnu"] {
        output(install(&target, &prefix).args(["--libdir", libdir]));
        // Again, over itself: an upgrade.
        output(install(&target, &prefix).args(["--libdir", libdir]));
        let mut wanted: Vec<_> = [
            "bin/cuddy",
            "include/cuddy.h",
            "include/cuddy.hpp",
            "include/cuddy_mr.hpp",
            "include/cuddy_onnxruntime.hpp",
            "include/cuddy_opencv.hpp",
            "include/cuddy_tensorrt.hpp",
            "include/simcuda.h",
        ]
        .map(str::to_owned)
        .into();
        let libraries = [
            "cmake/cuddy/cuddyConfig.cmake",
            "cmake/cuddy/cuddyConfigVersion.cmake",
            "cuddy/cudart/libcudart.so.12",
            "cuddy/cudart/libcudart.so.13",
            "cuddy/libcuddy_preload.so",
            "cuddy/libsimcuda.so",
            "libcuddy.a",
            "libcuddy.so",
            "libcuddy.so.0",
            &format!("libcuddy.so.{version}"),
            "pkgconfig/cuddy-static.pc",
            "pkgconfig/cuddy.pc",
        ];
        wanted.extend(libraries.iter().map(|name| format!("{libdir}/{name}")));
        wanted.extend(["cuddy-top.1", "cuddy.1"].map(|name| format!("share/man/man1/{name}")));
        assert_eq!(files(&prefix), wanted);
        let same = |name: &str, from: &Path| {
            let installed = fs::read(prefix.join(name)).expect("it is installed");
            assert!(installed == fs::read(from).expect("it is built"), "{name}");
        };
        same("include/cuddy.h", Path::new("include/cuddy.h"));
        same("include/cuddy.hpp", Path::new("bindings/cpp/cuddy.hpp"));
        same("include/cuddy_mr.hpp", Path::new("bindings/cpp/cuddy_mr.hpp"));
        same("include/simcuda.h", Path::new("tests/simcuda/include/simcuda.h"));
        same(&format!("{libdir}/libcuddy.so"), &library("libcuddy.so"));
        same(&format!("{libdir}/cuddy/libsimcuda.so"), &library("libsimcuda.so"));
        let mode = prefix.join("bin/cuddy").metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        assert_eq!(output(&mut Command::new(prefix.join("bin/cuddy"))), "stand-in\n");

        output(install(&target, &prefix).args(["--libdir", libdir, "--uninstall"]));
        assert_eq!(files(&prefix), [] as [String; 0]);
        fs::remove_dir_all(prefix.join("lib")).unwrap_or_default();
    }
}

/// Compiles and links the program; whether it needs the shared library.
fn linked(place: &Folder, flags: &str) -> bool {
    let (source, program) = (written(place, "program.c", PROGRAM), place.file("program"));
    let mut compiler = Command::new("cc");
    output(compiler.arg(&source).arg("-o").arg(&program).args(flags.split_whitespace()));
    let needed = output(Command::new("readelf").arg("-d").arg(&program));
    needed.contains("[libcuddy.so.0]")
}

/// The names that a library defines for others.
fn names(nm: &[&str], library: &Path) -> Vec<String> {
    let symbols = output(Command::new("nm").args(nm).arg("--defined-only").arg(library));
    symbols.lines().filter_map(|line| line.split(' ').nth(2)).map(str::to_owned).collect()
}

/// A program that the static library is in gets the functions of the shared one, and none that the
/// driver, the runtime or the C library has.
#[test]
fn the_static_library_defines_what_the_shared_one_does() {
    let (alone, shared) = (library("libcuddy.a"), library("libcuddy.so"));
    let defined = names(&["-g"], &alone);
    let missing: Vec<_> =
        names(&["-D"], &shared).into_iter().filter(|name| !defined.contains(name)).collect();
    assert_eq!(missing, [] as [String; 0]);
    let foreign = |name: &&String| {
        let of_cuda = name.strip_prefix("cu").is_some_and(|rest| {
            rest.starts_with("da") || rest.starts_with(|letter: char| letter.is_ascii_uppercase())
        });
        of_cuda || ["malloc", "free", "dlsym", "fork"].contains(&name.as_str())
    };
    assert_eq!(defined.iter().find(foreign), None);
}

#[test]
fn pkg_config_finds_it_even_after_a_move() {
    let (target, place) = (built(), Folder::new());
    if !common::is_installed("pkg-config") {
        return common::skipped("the pkg-config file", "pkg-config is not installed");
    }
    for libdir in ["lib", "lib/x86_64-linux-gnu"] {
        let (first, moved) = (place.file("first"), place.file("moved"));
        output(install(&target, &first).args(["--libdir", libdir]));
        fs::rename(&first, &moved).expect("the folder is ours");
        let ask = |question: &[&str]| {
            let mut command = Command::new("pkg-config");
            command.env("PKG_CONFIG_PATH", moved.join(libdir).join("pkgconfig"));
            output(command.args(question))
        };
        for package in ["cuddy", "cuddy-static"] {
            assert_eq!(ask(&["--modversion", package]).trim(), env!("CARGO_PKG_VERSION"));
        }
        let flags = ask(&["--cflags", "--libs", "cuddy"]);
        assert!(linked(&place, &flags), "the shared library comes first");
        runs(&place.file("program"), &moved.join(libdir));
        // The static library beside the shared one, and where it is alone.
        assert!(!linked(&place, &ask(&["--cflags", "--libs", "cuddy-static"])));
        runs(&place.file("program"), Path::new("/nonexistent"));
        fs::remove_file(moved.join(libdir).join("libcuddy.so")).expect("the folder is ours");
        assert!(!linked(&place, &ask(&["--static", "--cflags", "--libs", "cuddy"])));
        runs(&place.file("program"), Path::new("/nonexistent"));
        fs::remove_dir_all(&moved).expect("the folder is ours");
    }
}

#[test]
fn cmake_finds_it() {
    if !common::is_installed("cmake") {
        return common::skipped("the CMake package", "cmake is not installed");
    }
    let (target, place) = (built(), Folder::new());
    for libdir in ["lib", "lib/x86_64-linux-gnu"] {
        let prefix = place.file("prefix");
        output(install(&target, &prefix).args(["--libdir", libdir]));
        written(&place, "program.c", PROGRAM);
        let configure = |wanted: &str| {
            written(
                &place,
                "CMakeLists.txt",
                &format!(
                    "cmake_minimum_required(VERSION 3.16)\nproject(program C)\n\
                     find_package(cuddy {wanted} REQUIRED)\nfind_package(cuddy REQUIRED)\n\
                     add_executable(program program.c)\n\
                     target_link_libraries(program PRIVATE cuddy::cuddy)\n\
                     add_executable(alone program.c)\n\
                     target_link_libraries(alone PRIVATE cuddy::static)\n"
                ),
            );
            let _ = fs::remove_dir_all(place.file("build"));
            let mut cmake = Command::new("cmake");
            cmake.arg("-S").arg(place.path()).arg("-B").arg(place.file("build"));
            run(cmake.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display())))
        };
        for wanted in ["1.0", "0.99", "99"] {
            let ended = configure(wanted);
            assert!(ended.code != Some(0) && ended.err.contains("cuddy"), "{wanted}: {ended:?}");
        }
        let version = env!("CARGO_PKG_VERSION");
        for wanted in ["", "0.1", version, &format!("{version} EXACT")] {
            let ended = configure(wanted);
            assert_eq!(ended.code, Some(0), "{wanted}: {ended:?}");
        }
        output(Command::new("cmake").arg("--build").arg(place.file("build")));
        runs(&place.file("build/program"), &prefix.join(libdir));
        runs(&place.file("build/alone"), Path::new("/nonexistent"));
        fs::remove_dir_all(&prefix).expect("the folder is ours");
    }
}

/// What the README says to type, as it stands there: installed below a home of its own.
#[test]
fn the_lines_of_the_readme_work_as_pasted() {
    if !common::is_installed("pkg-config") {
        return common::skipped("the README's lines", "pkg-config is not installed");
    }
    let (target, home) = (built(), Folder::new());
    output(&mut install(&target, &home.file(".local")));
    let readme = fs::read_to_string("README.md").expect("there is a README");
    let c = "## Use it from C, C++ and Rust";
    let block = |heading: &str, language: &str| common::block(&readme, heading, language);
    written(&home, "step.c", block(c, "c"));
    written(&home, "step.cpp", block("### C++", "cpp"));
    let sim = "LD_PRELOAD=~/.local/lib/cuddy/libsimcuda.so ./step";
    assert!(block(c, "sh").contains(sim), "the README runs it on the simulated device");
    let script = format!("{}echo\n{}{sim}\n", block(c, "sh"), block("### C++", "sh"));
    let mut shell = Command::new("sh");
    shell
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", std::env::var_os("PATH").expect("a path"));
    let ended = run(shell.args(["-c", &script]).current_dir(home.path()));
    // Where there is no GPU, the line that asks for one says so, and only that.
    let gpu = Path::new("/dev/nvidiactl").exists();
    assert!(gpu || ended.err.starts_with("the CUDA driver cannot be loaded"), "{}", ended.err);
    assert!(gpu || ended.err.lines().count() == 1, "{}", ended.err);
    let printed = format!("{}\n{}", block(c, "text"), block("### C++", "text"));
    assert!(ended.code == Some(0) && ended.out.ends_with(&printed), "{ended:#?}");
}

#[test]
fn packagers_can_stage_it() {
    let (target, stage) = (built(), Folder::new());
    output(install(&target, Path::new("/usr")).env("DESTDIR", stage.path()));
    assert!(stage.file("usr/lib/libcuddy.so.0").exists());
    let file = fs::read_to_string(stage.file("usr/lib/pkgconfig/cuddy.pc")).expect("it is there");
    assert!(!file.contains(stage.path().to_str().expect("UTF-8")), "{file}");
}

#[test]
fn what_is_wrong_is_said_and_nothing_is_installed() {
    let (target, place) = (built(), Folder::new());
    let prefix = place.file("prefix");
    let refused = |command: &mut Command, words: &str| {
        let ended = run(command);
        assert!(ended.code == Some(1) && ended.err.contains(words), "{ended:?}");
        assert!(!prefix.exists());
    };
    refused(install(&target, &prefix).arg("--perfix"), "what is --perfix?");
    refused(install(&target, &prefix).arg("--libdir"), "needs a folder");
    refused(install(&target, &prefix).args(["--libdir", "/lib"]), "below the prefix");
    let no_soname = fs::read(library("libsimcuda.so")).expect("it is built");
    fs::remove_file(target.file("libcuddy.so")).expect("the folder is ours");
    refused(&mut install(&target, &prefix), "libcuddy.so is missing: run cargo build --release");
    fs::write(target.file("libcuddy.so"), no_soname).expect("the folder is ours");
    refused(&mut install(&target, &prefix), "has no soname libcuddy.so.0");
}
