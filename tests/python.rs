//! The Python package: the tests of tests/python in a Python of their own, on the simulated driver with
//! its checker set to abort; its README's program; its types; the wheel.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use common::{Folder, library};

/// A Python that finds the package, and two devices of 512 MiB.
fn python(folder: &Folder, package: &Path) -> Command {
    let mut command = Command::new("python3");
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
        .env("HOME", folder.path())
        .env("PYTHONPATH", package)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
        .env("LD_LIBRARY_PATH", folder.path())
        .env("CUDDY_LIBRARY", folder.file("libcuddy.so.0"));
    command.env("SIMCUDA_MEMORY", "512MiB").env("SIMCUDA_DEVICES", "2");
    command.env("SIMCUDA_CHECKER", "abort");
    command
}

fn sources() -> &'static Path {
    Path::new("bindings/python/src")
}

/// The tests themselves; a warning is a failure.
#[test]
fn the_package_behaves() {
    let folder = Folder::with_libraries();
    let path = std::env::join_paths([sources(), Path::new("tests/python")]).expect("no colons");
    let mut command = python(&folder, Path::new(&path));
    command.args(["-W", "error", "-m", "unittest", "discover", "-s", "tests/python"]);
    let ended = common::run(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    let ran = ended.err.lines().find_map(|line| line.strip_prefix("Ran ")?.split(' ').next());
    let ran: u32 = ran.and_then(|number| number.parse().ok()).unwrap_or(0);
    assert!(ran > 30, "only {ran} tests were run:\n{}", ended.err);
}

/// The programs of both READMEs, pasted as they are, print what those say.
#[test]
fn the_programs_print_what_the_readmes_say() {
    for (path, heading) in
        [("bindings/python/README.md", "# Cuddy for Python"), ("README.md", "### Python")]
    {
        prints_what_it_says(path, heading);
    }
}

fn prints_what_it_says(path: &str, heading: &str) {
    let readme = fs::read_to_string(path).expect("there is a README");
    let folder = Folder::with_libraries();
    let program = common::block(&readme, heading, "python");
    let mut command = python(&folder, sources());
    command.env_remove("SIMCUDA_MEMORY").args(["-W", "error", "-c", program]);
    let printed = common::run(&mut command).quietly();
    common::compare(path, &common::with_block(&readme, heading, "text", &printed));
}

/// Every public name has a docstring that says something.
#[test]
fn everything_is_documented() {
    let folder = Folder::with_libraries();
    let program = "import cuddy, inspect
short = []
for name in cuddy.__all__:
    thing = getattr(cuddy, name)
    if not (inspect.isclass(thing) or inspect.isfunction(thing)): continue
    own = vars(thing).items() if inspect.isclass(thing) else ()
    members = [m for n, m in own if not n.startswith('_') and (callable(m) or isinstance(m, property))]
    short += [str(t) for t in (thing, *members) if len((t.__doc__ or '').split()) < 4]
print(short)";
    let mut command = python(&folder, sources());
    assert_eq!(common::run(command.args(["-c", program])).quietly(), "[]\n");
}

/// The wheel, from this build: pip installs it, and it brings the library, the command and what that preloads.
#[test]
fn the_wheel_brings_the_library_and_the_command() {
    let folder = Folder::with_libraries();
    let (built, venv) = (folder.file("built"), folder.file("venv"));
    fs::create_dir(&built).expect("the folder is ours");
    for name in ["libcuddy.so", "libsimcuda.so"] {
        symlink(library(name), built.join(name)).expect("a link can be made");
    }
    fs::write(built.join("libcuddy_preload.so"), "stand-in").expect("the folder is ours");
    fs::write(built.join("cuddy"), "#!/bin/sh\necho stand-in\n").expect("the folder is ours");
    let made = common::run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
    if made.code != Some(0) {
        return common::skipped("the wheel", "python3 -m venv does not work here");
    }
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "./bindings/python"]);
    // The build's folders go elsewhere than into the sources.
    let ended = common::run(pip.env("CUDDY_BUILT", &built));
    let _ = fs::remove_dir_all("bindings/python/dist");
    if ended.code != Some(0) && ended.err.contains("No matching distribution found for hatchling") {
        return common::skipped("the wheel", "pip cannot get hatchling here");
    }
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let program = "import cuddy
with cuddy.empty(1 << 20) as block:
    print(cuddy.memory_allocated(), cuddy.library_path.endswith('cuddy/lib/libcuddy.so.0'), 'venv' in cuddy.__file__)";
    let mut command = Command::new(venv.join("bin/python"));
    let driver = Folder::new();
    symlink(library("libsimcuda.so"), driver.file("libcuda.so.1")).expect("a link can be made");
    command.env_clear().env("LD_LIBRARY_PATH", driver.path()).args(["-c", program]);
    assert_eq!(common::run(command.current_dir(folder.path())).quietly(), "1048576 True True\n");
    assert_eq!(common::output(&mut Command::new(venv.join("bin/cuddy"))), "stand-in\n");
    // Where the command looks for them (bindings/cli/tests/preload.rs).
    for name in ["libsimcuda.so", "libcuddy_preload.so"] {
        assert!(venv.join("lib/cuddy").join(name).exists(), "{name} is not there");
    }

    let site = common::output(
        Command::new(venv.join("bin/python"))
            .args(["-c", "import sysconfig; print(sysconfig.get_path('purelib'), end='')"]),
    );
    // Both licences ask for their text to come along.
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let there = fs::read(format!("{site}/cuddy/{licence}")).expect("it is installed");
        assert!(there == fs::read(licence).expect("it is committed"), "{licence}");
    }

    // The wheel names the glibc that its files ask for, and they ask for nothing that it may not expect.
    let info = format!("{site}/cuddy-{}.dist-info/WHEEL", env!("CARGO_PKG_VERSION"));
    let info = fs::read_to_string(info).expect("the wheel's own file");
    let tag = info.lines().find_map(|line| line.strip_prefix("Tag: py3-none-")).expect("a tag");
    let least =
        ["libcuddy.so", "libsimcuda.so"].map(|name| newest_glibc(&library(name))).into_iter();
    let least = least.max().expect("there are two");
    assert_eq!(tag, format!("manylinux_2_{least}_{}", std::env::consts::ARCH));
}

/// The newest version of glibc, 2.so much, that a library asks for; and it needs nothing beside that.
fn newest_glibc(library: &Path) -> u32 {
    let dynamic = common::output(Command::new("readelf").arg("-dW").arg(library));
    for line in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = [
            "libgcc_s.so.1",
            "libc.so.6",
            "libm.so.6",
            "libdl.so.2",
            "libpthread.so.0",
            "ld-linux",
        ];
        assert!(known.iter().any(|name| line.contains(name)), "{line}");
    }
    let versions = common::output(Command::new("readelf").arg("-VW").arg(library));
    let after = versions.split("Name: GLIBC_2.").skip(1);
    after
        .filter_map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok())
        .max()
        .expect("it asks for glibc")
}
