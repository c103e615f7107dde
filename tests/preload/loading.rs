//! **Loading**: other interposers before and behind, plug-ins, namespaces, the next library.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::place::{Place, Said, said};

fn with_libraries(mut command: Command, libraries: &[&Path]) -> Command {
    let list: Vec<_> = libraries.iter().map(|it| it.to_str().expect("UTF-8")).collect();
    command.env("LD_PRELOAD", list.join(":"));
    command
}

/// One that hooks `dlsym` by name, as some that limit memory do.
#[test]
fn another_interposer_before_and_behind() {
    let place = Place::new();
    let other = place.build("interposer.c", "interposer.so", &["-shared", "-fPIC"]);
    let ours = place.file("libcuddy_preload.so");
    let program = place.compile("doors.c", &[]);
    let counts = place.file("counts");
    let run = |libraries: &[&Path], way: &str| -> (Said, String) {
        let mut command = with_libraries(place.plain(&program), libraries);
        command.env("COUNTS", &counts).env("CUDDY_PRELOAD", "mode:fenced").arg(way);
        let said = said(common::run(&mut command));
        (said, fs::read_to_string(&counts).expect("the interposer writes it"))
    };
    for way in ["dlsym", "address2"] {
        let (alone, seen) = run(&[&other], way);
        assert_eq!((alone.driver, seen.as_str()), ((200, 250), "200 250"), "{way}");
        // Behind us, it is the driver: it sees what we ask of that.
        let (behind, seen) = run(&[&ours, &other], way);
        assert_eq!(behind.text, alone.text, "{way}");
        assert_eq!((behind.driver, seen.as_str()), ((4, 50), "4 50"), "{way}");
        // Before us, it goes to the driver past us, by the loader's own dlsym.
        let (before, seen) = run(&[&other, &ours], way);
        assert_eq!(before.text, alone.text, "{way}");
        assert_eq!((before.driver, seen.as_str()), ((200, 250), "200 250"), "{way}");
    }
}

#[test]
fn plugins_namespaces_and_the_next_library() {
    let place = Place::new();
    let plugin = place.build("plugin.c", "libopened.so", &["-shared", "-fPIC"]);
    // Two that are linked, the second behind the first.
    for name in ["libplugin.so", "libfirst.so"] {
        place.build("plugin.c", name, &["-shared", "-fPIC"]);
    }
    let program =
        place.compile("loading.c", &["-Wl,--no-as-needed", "-l:libfirst.so", "-l:libplugin.so"]);
    let ours = place.file("libcuddy_preload.so");
    let run = |libraries: &[&Path], what: &str| -> Said {
        let mut command = with_libraries(place.plain(&program), libraries);
        command.env("PLUGIN", &plugin).env("CUDDY_PRELOAD", "mode:strict").arg(what);
        said(common::run(&mut command))
    };
    for (what, alone, with) in [
        // The plugin finds the driver itself; its memory is then the driver's to free.
        ("deepbind", (20, 20), (11, 10)),
        ("plugin", (20, 20), (1, 0)),
        // The copy's ten pairs are its own affair.
        ("namespace", (10, 10), (1, 0)),
        ("next", (0, 0), (0, 0)),
        ("versions", (0, 0), (0, 0)),
    ] {
        let plain = run(&[], what);
        let preloaded = run(&[&ours], what);
        assert_eq!(preloaded.text, plain.text, "{what}");
        assert_eq!((plain.driver, preloaded.driver), (alone, with), "{what}");
    }
    assert_eq!(run(&[&ours], "next").text, "41", "the function after the caller's own");
    assert!(run(&[&ours], "namespace").text.contains("the copy: 10 10"));
}
