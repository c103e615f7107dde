//! A sample: what an export file says at one moment, by device and by scope.

use std::collections::BTreeMap;

/// One moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// By the device's number: values by name, without `cuddy_`.
    pub devices: BTreeMap<u32, BTreeMap<String, f64>>,
    /// Of page-locked host memory, the same without `cuddy_host_`.
    pub host: BTreeMap<String, f64>,
    /// Live and peak bytes, and blocks, by scope.
    pub scopes: BTreeMap<String, [f64; 3]>,
}

/// The metrics of a scope, in the order of [`Sample::scopes`].
const OF_SCOPES: [&str; 3] = ["scope_live_bytes", "scope_peak_bytes", "scope_live_blocks"];

impl Sample {
    /// Reads Prometheus's text format as Cuddy writes it; lines of other programs are passed over.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut sample = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, value)) = line.rsplit_once(' ') else { continue };
            let Some(name) = name.strip_prefix("cuddy_") else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            sample.note(name, value);
        }
        match sample.devices.is_empty() && sample.host.is_empty() {
            true => Err("it has none of Cuddy's counters: a program writes them there with CUDDY_EXPORT=FILE or \
                         cuddy_export_metrics()"
                .to_owned()),
            false => Ok(sample),
        }
    }

    fn note(&mut self, name: &str, value: f64) {
        match name.split_once('{') {
            None => {
                let name = name.strip_prefix("host_").unwrap_or(name);
                self.host.insert(name.to_owned(), value);
            }
            Some((name, labels)) => {
                if let Some(number) = label(labels, "device").and_then(|it| it.parse().ok()) {
                    self.devices.entry(number).or_default().insert(name.to_owned(), value);
                } else if let (Some(scope), Some(place)) =
                    (label(labels, "scope"), OF_SCOPES.iter().position(|it| *it == name))
                {
                    self.scopes.entry(scope).or_default()[place] = value;
                }
            }
        }
    }
}

/// The value of a label, behind the brace that opens them.
fn label(labels: &str, name: &str) -> Option<String> {
    let quoted = labels.strip_suffix('}')?.strip_prefix(name)?.strip_prefix('=')?;
    serde_json::from_str(quoted).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cuddy_writes_is_read_and_the_rest_is_passed_over() {
        let text = "# HELP cuddy_x y\ncuddy_reserved_bytes{device=\"1\"} 42\ncuddy_limit_bytes{device=\"1\"} +Inf\n\
                    cuddy_host_reserved_bytes 7\nnode_load1 3\ncuddy_scope_live_bytes{scope=\"a \\\"b\\\"/c\"} 5\n\
                    cuddy_scope_live_blocks{scope=\"a \\\"b\\\"/c\"} 2\nnonsense\n";
        let sample = Sample::parse(text).expect("it is Cuddy's");
        assert_eq!(sample.devices[&1]["reserved_bytes"], 42.0);
        assert_eq!(sample.devices[&1]["limit_bytes"], f64::INFINITY);
        assert_eq!(sample.host["reserved_bytes"], 7.0);
        assert_eq!(sample.scopes["a \"b\"/c"], [5.0, 0.0, 2.0]);
        assert!(Sample::parse("node_load1 3\n").is_err_and(|why| why.contains("CUDDY_EXPORT")));
    }
}
