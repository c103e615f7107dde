//! The **door matrix**: every way to a driver function leads to the cache once, and shows the same.

use crate::common;
use crate::place::{Place, said};

const MODES: [&str; 2] = ["mode:strict", "mode:fenced"];

/// 50 rounds of four blocks.
const REQUESTS: u64 = 200;

#[test]
fn every_way_of_finding_the_driver() {
    let place = Place::new();
    let found = place.compile("doors.c", &[]);
    let linked = place.compile("doors.c", &["-DLINKED", "-l:libcuda.so.1"]);
    let ways = ["dlsym", "address1", "address2", "whole", "deepbind"];
    let rows = ways.map(|way| (&found, way)).into_iter().chain([(&linked, "linked")]);
    for (program, way) in rows {
        let alone = said(common::run(place.plain(program).arg(way)));
        assert_eq!(alone.driver, (REQUESTS, REQUESTS + 50), "{way}");
        for mode in MODES {
            let (with, report) = place.reported(program, mode, &[way]);
            assert_eq!(with.text, alone.text, "{way}, {mode}");
            // Four blocks, and the second frees of what is not the program's any more.
            assert_eq!(with.driver, (4, 50), "{way}, {mode}");
            let counted = (report.number("hits"), report.number("misses"), report.number("kept"));
            assert_eq!(counted, (REQUESTS - 4, 4, REQUESTS), "{way}, {mode}");
            let door = match way {
                "address1" => "cuGetProcAddress",
                "address2" => "cuGetProcAddress_v2",
                _ => "dlsym",
            };
            assert!(report.number(door) > 0, "{way}, {mode}: {report:?}");
        }
        let (off, report) = place.reported(program, "mode:off", &[way]);
        assert_eq!(off, alone, "{way}, off");
        assert!(format!("{report:?}").len() < 100, "nothing to report: {report:?}");
    }
}

#[test]
fn programs_that_link_the_runtime() {
    let place = Place::new();
    for cuda in [12, 13] {
        let program = place.compile("runtime.c", &[&format!("-l:libcudart.so.{cuda}")]);
        let alone = said(common::run(&mut place.plain(&program)));
        assert!(alone.text.contains("free memory is the same: 1"), "{alone:?}");
        for mode in MODES {
            let (with, report) = place.reported(&program, mode, &[]);
            assert_eq!(with.text, alone.text, "{cuda}, {mode}");
            // 200 in the loop, then one too much, one freed by a stream, two around the reset.
            let counted = report.number("hits") + report.number("misses");
            assert_eq!(counted, 203, "{cuda}, {mode}: {report:?}");
            assert!(report.number("runtime_calls") > 400, "{cuda}, {mode}: {report:?}");
        }
    }
}
