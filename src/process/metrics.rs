#![forbid(unsafe_code)]
//! The counters for Prometheus: its text format 0.0.4, which the textfile collector of its node exporter
//! and readers of OpenMetrics take.
//!
//! Every field of the structs of counters is a metric, named by one rule, so that none is forgotten:
//! `X` is the gauge `cuddy_X_bytes`, `X_total` the counter `cuddy_X_bytes_total`, and `X_count` the
//! counter `cuddy_X_total`, or, if it is a count of what is there, the gauge `cuddy_X`.

use super::start::started_already;
use super::{host_stats, watch};
use crate::error::{Error, sentence};
use crate::json::{Page, Quoted, put};
use crate::mutants::mutant;
use crate::stats::fields;
use crate::sync::refuse_after_fork;

/// Counts of what is there now, or was at most.
const THERE: [&str; 4] =
    ["live_block_count", "live_block_peak_count", "limbo_block_count", "segment_count"];

/// The name of a field's metric behind `cuddy_`, and its kind.
fn named(field: &str) -> (String, &'static str) {
    let plain = field.strip_suffix("_count");
    match (plain, field.strip_suffix("_total")) {
        (Some(plain), _) if THERE.contains(&field) => (sentence!("{plain}"), "gauge"),
        (Some(plain), _) => (sentence!("{plain}_total"), "counter"),
        (_, Some(plain)) => (sentence!("{plain}_bytes_total"), "counter"),
        _ => (sentence!("{field}_bytes"), "gauge"),
    }
}

/// Says which metric comes: all values of one stand together.
fn head(page: &mut Page, name: &str, kind: &str, help: &str) {
    put!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// Every field as a metric, of each of `all` structs, which are told as `Debug` tells them, with labels.
fn structs(page: &mut Page, prefix: &str, of: &str, all: &[(String, String)]) {
    let Some((_, first)) = all.first() else { return };
    for (place, (field, _)) in fields(first).enumerate().filter(|(_, it)| it.0 != "struct_size") {
        let (name, kind) = named(field);
        let name = sentence!("{prefix}{name}");
        head(page, &name, kind, &sentence!("{field} of {of} in cuddy.h."));
        for (labels, told) in all {
            let value = fields(told).nth(place).map_or("0", |it| it.1);
            let none = field == "limit" && value.parse() == Ok(u64::MAX);
            put!(page, "{name}{labels} {}\n", if none { "+Inf" } else { value });
        }
    }
}

/// The counters of every device in use, of page-locked host memory, and of the scopes.
pub fn prometheus() -> Result<String, Error> {
    refuse_after_fork()?;
    let mut page = Page::default();
    let devices = started_already().map(|process| process.devices_in_use());
    let mut all: Vec<(String, String)> = Vec::new();
    let mut totals = Vec::new();
    for device in devices.into_iter().flatten() {
        let stats = device.stats();
        all.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        totals.try_reserve(1).map_err(|_| Error::HostOutOfMemory)?;
        totals.push(device.total());
        all.push((sentence!("{{device=\"{}\"}}", device.id().0), sentence!("{stats:?}")));
    }
    let name = "cuddy_device_memory_bytes";
    if !all.is_empty() {
        head(&mut page, name, "gauge", "What the device has.");
    }
    for ((labels, _), bytes) in all.iter().zip(totals) {
        put!(page, "{name}{labels} {bytes}\n");
    }
    if mutant("metrics-first-device-only") {
        all.truncate(1);
    }
    structs(&mut page, "cuddy_", "cuddy_stats", &all);
    let host = (String::new(), sentence!("{:?}", host_stats()?));
    structs(&mut page, "cuddy_host_", "cuddy_host_stats", &[host]);
    scopes(&mut page)?;
    page.whole()
}

fn scopes(page: &mut Page) -> Result<(), Error> {
    let scopes = watch::scope_figures()?;
    let metrics = [("live_bytes", "gauge"), ("peak_bytes", "gauge"), ("live_blocks", "gauge")];
    for (which, (name, kind)) in metrics.into_iter().enumerate() {
        let name = sentence!("cuddy_scope_{name}");
        if !scopes.is_empty() {
            head(page, &name, kind, "Of a scope and those in it, as asked for.");
        }
        for (path, it) in &scopes {
            let value = [it.live_bytes, it.peak_bytes, it.live_count][which];
            // A label is quoted as JSON is, but for control characters, which no name should have.
            put!(page, "{name}{{scope={}}} {value}\n", Quoted(path));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{cuddy_host_stats, cuddy_stats};

    #[test]
    fn every_field_has_a_name_and_a_kind() {
        let of = |field: &str| named(field);
        assert_eq!(of("allocated"), ("allocated_bytes".into(), "gauge"));
        assert_eq!(of("allocated_peak"), ("allocated_peak_bytes".into(), "gauge"));
        assert_eq!(of("allocated_total"), ("allocated_bytes_total".into(), "counter"));
        assert_eq!(of("malloc_count"), ("malloc_total".into(), "counter"));
        assert_eq!(of("live_block_count"), ("live_block".into(), "gauge"));
        // Each of the exceptions exists.
        let told = format!("{:?} {:?}", cuddy_stats::NONE, cuddy_host_stats::default());
        assert!(THERE.iter().all(|name| told.contains(name)), "{told}");
    }

    #[test]
    fn values_of_one_metric_stand_together() {
        let told = |requested: u64| {
            let stats = cuddy_stats { requested, ..cuddy_stats::NONE };
            (format!("{{device=\"{requested}\"}}"), format!("{stats:?}"))
        };
        let mut page = Page::default();
        structs(&mut page, "cuddy_", "cuddy_stats", &[told(3), told(4)]);
        let text = page.whole().expect("there is memory");
        let start = "# HELP cuddy_requested_bytes requested of cuddy_stats in cuddy.h.\n\
                     # TYPE cuddy_requested_bytes gauge\n\
                     cuddy_requested_bytes{device=\"3\"} 3\ncuddy_requested_bytes{device=\"4\"} 4\n# HELP";
        assert!(text.starts_with(start), "{text}");
        assert!(text.contains("cuddy_limit_bytes{device=\"3\"} +Inf\n"), "{text}");
        assert!(!text.contains("struct_size"), "{text}");
    }
}
