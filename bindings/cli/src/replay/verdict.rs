//! The verdict: what a replay showed, once it is over.
//!
//! `allocator's driver calls = the device's - the replayer's own`, function by function.

use std::collections::{BTreeMap, BTreeSet};

use super::{Player, Stop};
use crate::report::Report;

/// Findings that a report spells out; the others are only counted.
const FINDINGS: usize = 10;

/// Driver calls by function.
type Calls = BTreeMap<String, u64>;

impl Player<'_> {
    pub(super) fn find(&mut self, finding: String) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }

    /// How to name an event to the user.
    pub(super) fn line(&self, event: usize) -> String {
        match self.trace.lines.get(event) {
            Some(0) => "before the history".to_owned(),
            Some(line) => format!("line {line}"),
            None => "the end of the trace".to_owned(),
        }
    }

    pub(super) fn report(mut self, outcome: Result<(), Stop>) -> Report {
        let device_failed = matches!(outcome, Err(Stop::Device { .. }));
        let error = outcome.err().map(|stop| self.explain(stop));
        // After a stop, what was queued still has to be waited for before anything is read.
        let drained = self.gpu.synchronize();
        let device_failed = device_failed || drained.is_err();
        let error = error.or_else(|| drained.err().map(|error| format!("at the end: {error}")));
        let corrupt_blocks = self.corrupt_blocks();
        let account = self.meter.allocator.account();
        let simulator = self.machine.simulator.as_ref();
        let measured =
            simulator.map(|simulator| simulator.used_peak().saturating_sub(self.baseline));
        let peak_reserved = match account {
            Some(account) => account.reserved.1,
            None => measured.unwrap_or(self.sampled_peak.saturating_sub(self.baseline)),
        };
        let driver_calls = self.driver_calls();
        let mut wrong_counters = Vec::new();
        let replay_driver_calls = self.gpu.calls();
        let total = simulator.map(|simulator| simulator.driver_time_ns());
        if self.job.sabotage.is_none() {
            self.audit(&driver_calls, &mut wrong_counters);
        }
        // It asks the driver itself, so it comes after the audit of driver calls.
        let summary = self.meter.allocator.summary();
        if self.job.sabotage.is_none() && !device_failed {
            self.close(&mut wrong_counters);
        }
        let mut findings = std::mem::take(&mut self.findings);
        if let Some(simulator) = simulator {
            findings.extend(simulator.reports(FINDINGS));
        }
        let own = total.map(|total| total.saturating_sub(self.meter.driver_ns()));
        Report {
            trace: self.trace.name.clone(),
            events: self.trace.events.len() as u64,
            completed: error.is_none(),
            error,
            peak_requested: self.requested.peak,
            peak_allocated: self.allocated.peak,
            peak_reserved,
            reserved_over_allocated: peak_reserved as f64 / self.allocated.peak.max(1) as f64,
            driver_calls,
            steady_state_driver_calls: self.meter.steady().map(|(calls, _)| calls),
            steady_state_driver_time_us: self.meter.steady().map(|(_, ns)| ns as f64 / 1e3),
            driver_time_us: self.meter.driver_ns() as f64 / 1e3,
            ns_per_op: self.meter.ns_per_op(),
            checker_reports: simulator.map(|simulator| simulator.report_count()),
            corrupt_blocks,
            allocator: self.job.who.to_string(),
            backing: self.job.backing.map(|backing| backing.to_string()),
            device: self.machine.name.clone(),
            simulated: self.gpu.simulated(),
            device_memory: self.machine.memory,
            schedule: simulator.map(|_| self.job.schedule.to_string()),
            operations: self.meter.operations,
            misplaced_blocks: self.misplaced,
            wrong_counters,
            bytes_written: self.workload.bytes_written,
            bytes_read_back: self.workload.bytes_read_back,
            accesses_checked: simulator.map(|simulator| simulator.accesses_checked()),
            unknown_launches: simulator.map(|simulator| simulator.unknown_launches()),
            replay_driver_calls,
            replay_driver_time_us: own.map(|ns| ns as f64 / 1e3),
            notes: self.trace.notes.clone(),
            findings,
            summary,
            ..Report::default()
        }
    }

    fn explain(&mut self, stop: Stop) -> String {
        match stop {
            Stop::Allocator { event, doing, refusal } => {
                format!("{}, {doing}: {}", self.line(event), refusal.text)
            }
            Stop::Device { event, error } => format!("{}: {error}", self.line(event)),
        }
    }

    fn corrupt_blocks(&mut self) -> u64 {
        let wrong = self.workload.wrong_words();
        let mut blocks = BTreeSet::new();
        for (reading, &words) in wrong.iter().enumerate().filter(|&(_, &words)| words > 0) {
            let (born, read) = self.readings[reading];
            if blocks.insert(born) {
                let (born, read) = (self.line(born), self.line(read));
                let words =
                    if words == 1 { "1 wrong word".into() } else { format!("{words} wrong words") };
                self.find(format!("the block of {born} was read back with {words} at {read}"));
            }
        }
        blocks.len() as u64
    }

    /// The allocator's driver calls: all of the device's but the replayer's own.
    fn driver_calls(&self) -> Calls {
        let Some(simulator) = &self.machine.simulator else {
            return self.meter.allocator.driver_calls();
        };
        let own = self.gpu.calls();
        let all = simulator.calls().into_iter();
        let rest = all.map(|(name, count)| {
            let own = own.get(&name).copied().unwrap_or(0);
            (name, count.saturating_sub(own))
        });
        rest.filter(|&(_, count)| count > 0).collect()
    }

    /// Compares the allocator's counters with the replayer's books and with the device.
    fn audit(&self, driver_calls: &Calls, wrong: &mut Vec<String>) {
        let Some(account) = self.meter.allocator.account() else { return };
        let mut compare = |what: &str, says: u64, is: u64| compare(wrong, what, says, is);
        compare("bytes requested", account.requested.0, self.requested.now);
        compare("the peak of bytes requested", account.requested.1, self.requested.peak);
        compare("bytes allocated", account.allocated.0, self.allocated.now);
        compare("the peak of bytes allocated", account.allocated.1, self.allocated.peak);
        compare("the number of blocks given out", account.mallocs, self.given);
        compare("the number of blocks freed", account.frees, self.taken_back);
        compare("the number of live blocks", account.live_blocks, self.given - self.taken_back);
        if let Some(simulator) = &self.machine.simulator {
            let [used, peak] = [simulator.used(), simulator.used_peak()];
            compare("memory held", account.reserved.0, used.saturating_sub(self.baseline));
            compare("its peak", account.reserved.1, peak.saturating_sub(self.baseline));
            let counted = self.meter.allocator.driver_calls();
            let names: BTreeSet<&String> = driver_calls.keys().chain(counted.keys()).collect();
            for name in names {
                let of = |calls: &Calls| calls.get(name).copied().unwrap_or(0);
                compare(&format!("the number of {name} calls"), of(&counted), of(driver_calls));
            }
        }
        if account.reserved.1 > self.machine.memory {
            wrong.push(format!("{} bytes were held, more than the limit", account.reserved.1));
        }
    }

    /// Frees what is left and empties the cache: then nothing may be live, waiting or held.
    fn close(&mut self, wrong: &mut Vec<String>) {
        for block in self.live.iter_mut().filter_map(Option::take).filter(|block| !block.gone) {
            if let Err(refusal) = self.meter.allocator.free(block.region.address) {
                wrong.push(format!("a block could not be freed at the end: {}", refusal.text));
            }
        }
        if let Err(refusal) = self.meter.allocator.empty_cache() {
            wrong.push(format!("the cache could not be emptied at the end: {}", refusal.text));
        }
        if let Some(account) = self.meter.allocator.account() {
            compare(wrong, "bytes allocated, when all is freed,", account.allocated.0, 0);
            compare(wrong, "bytes active, when all is freed,", account.active, 0);
            compare(wrong, "memory held, when all is given back,", account.reserved.0, 0);
        }
        if let Some(simulator) = &self.machine.simulator {
            let left = simulator.used().saturating_sub(self.baseline);
            if left > 0 {
                wrong.push(format!("{left} bytes were not given back to the device"));
            }
        }
    }
}

fn compare(wrong: &mut Vec<String>, what: &str, says: u64, is: u64) {
    if says != is {
        wrong.push(format!("{what} is {is}, the allocator's counter says {says}"));
    }
}
