//! What programs reached: how often each rung of the ladder, and each kind of fence.

use std::collections::BTreeMap;

use cuddy::process;
use cuddy::stats::cuddy_stats;

/// Counts by name.
#[derive(Clone, Debug, Default)]
pub struct Tally(pub BTreeMap<String, u64>);

/// What every sample has to reach, with what each is.
pub const REQUIRED: [(&str, &str); 17] = [
    ("rung 1 own", "a block of the same stream"),
    ("rung 2 passed", "memory of any stream whose last use is over"),
    ("rung 3 growth", "fresh memory within share_growth"),
    ("rung 4 stream wait", "another stream's memory behind a stream wait"),
    ("rung 5 fresh", "fresh memory within the limit"),
    ("rung 6 harvest", "pages and segments taken back"),
    ("rung 7 host wait", "a host wait for the last users"),
    ("rung 8 callbacks", "what callbacks freed"),
    ("rung 9 out of memory", "the explanation"),
    ("fence event", "an event recorded on a stream"),
    ("fence context-wide", "an event recorded over a context"),
    ("fence implied", "a crossing that the program's own wait made safe"),
    ("fence stream wait", "a wait put into a stream"),
    ("fence host wait", "a wait of the host"),
    ("graph launched", "memory of a graph used by its launch"),
    ("graph launched by the driver", "the same, of a capture"),
    ("graph found", "a capture that nobody told of, and its end"),
];

impl Tally {
    pub fn add(&mut self, what: &str, count: u64) {
        if count > 0 {
            *self.0.entry(what.to_owned()).or_default() += count;
        }
    }

    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, count)| self.add(what, *count));
    }

    /// What a device has counted since its counters began.
    pub fn add_stats(&mut self, stats: &cuddy_stats) {
        for (what, count) in [
            ("rung 1 own", stats.rung_own_count),
            ("rung 2 passed", stats.rung_passed_count),
            ("rung 3 growth", stats.rung_growth_count),
            ("rung 4 stream wait", stats.rung_stream_wait_count),
            ("rung 5 fresh", stats.rung_fresh_count),
            ("rung 6 harvest", stats.rung_harvest_count),
            ("rung 7 host wait", stats.rung_host_wait_count),
            ("rung 8 callbacks", stats.rung_callback_count),
            ("rung 9 out of memory", stats.out_of_memory_count),
            ("fence stream wait", stats.stream_wait_count),
            ("fence host wait", stats.wait_count),
            ("hit", stats.hit_count),
            ("crossing", stats.crossing_count),
        ] {
            self.add(what, count);
        }
    }

    /// The fences that the driver was asked for.
    pub fn add_driver_calls(&mut self) {
        let calls: BTreeMap<&str, u64> = process::driver_calls().into_iter().collect();
        self.add("fence event", calls.get("cuEventRecord").copied().unwrap_or(0));
        self.add("fence context-wide", calls.get("cuCtxRecordEvent").copied().unwrap_or(0));
    }

    /// One line, for the parent.
    pub fn to_line(&self) -> String {
        let parts: Vec<String> = self.0.iter().map(|(what, n)| format!("{what}={n}")).collect();
        format!("{MARK}{}", parts.join(";"))
    }

    /// What a child's lines say.
    pub fn of_text(text: &str) -> Self {
        let mut tally = Self::default();
        for line in text.lines().filter_map(|line| line.split_once(MARK)) {
            for (what, count) in line.1.split(';').filter_map(|part| part.split_once('=')) {
                tally.add(what, count.parse().unwrap_or(0));
            }
        }
        tally
    }

    /// Everything, for people.
    pub fn table(&self) -> String {
        let row = |(what, count): (&String, &u64)| format!("  {what:<28} {count:>9}\n");
        self.0.iter().map(row).collect()
    }
}

/// What a child's line with counts begins with.
const MARK: &str = "reached: ";
