//! The doctor, with a driver, without one, and with a configuration that has mistakes.

mod common;

use common::{Ended, cuddy, driver_folder};

#[test]
fn without_a_driver_it_says_how_to_get_one() {
    // A file that is no library stands before whatever the machine has.
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("libcuda.so.1"), b"none").expect("the folder takes files");
    let ended = Ended::of(cuddy(&["doctor"]).env("LD_LIBRARY_PATH", folder.path()));
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    for text in
        ["not usable", "comes with the NVIDIA driver", "--on sim", "memory_limit", "Not healthy"]
    {
        assert!(ended.out.contains(text), "{text} in {}", ended.out);
    }
}

#[test]
fn with_a_driver_it_tries_every_device() {
    let folder = driver_folder();
    let mut command = cuddy(&["doctor"]);
    let command = command.env("LD_LIBRARY_PATH", folder.path()).env("SIMCUDA_DEVICES", "2");
    let ended = Ended::of(command.env("SIMCUDA_MEMORY", "80GiB,24GiB"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    for text in ["Device 0: ", "Device 1: ", "80.00 GiB", "24.00 GiB", "Healthy."] {
        assert!(ended.out.contains(text), "{text} in {}", ended.out);
    }
    assert_eq!(ended.out.matches("allocated, written, read back and freed").count(), 2);
}

#[test]
fn with_a_driver_that_has_no_device_it_is_not_healthy() {
    let folder = driver_folder();
    let mut command = cuddy(&["doctor"]);
    let ended =
        Ended::of(command.env("LD_LIBRARY_PATH", folder.path()).env("SIMCUDA_DEVICES", "0"));
    assert_eq!(ended.code, Some(1), "{}{}", ended.out, ended.err);
    assert!(ended.out.contains("Not healthy"), "{}", ended.out);
}

#[test]
fn the_configuration_is_shown_with_its_sources_and_its_mistakes() {
    let ended = Ended::of(cuddy(&["doctor", "--on", "sim"]).env("CUDDY_CONF", "memory_limit:8GiB"));
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    let row = ended.out.lines().find(|line| line.trim_start().starts_with("memory_limit"));
    let row = row.expect("every option has a row");
    assert!(row.contains("8GiB") && row.contains("CUDDY_CONF"), "{row}");
    let ended = Ended::of(
        cuddy(&["doctor", "--on", "sim"]).env("CUDDY_CONF", "memory_limits:8GiB,caching:perhaps"),
    );
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    for text in ["\"memory_limits:8GiB\"", "\"caching:perhaps\"", "memory_limit", "on or off"] {
        assert!(ended.out.contains(text), "{text} in {}", ended.out);
    }
}
