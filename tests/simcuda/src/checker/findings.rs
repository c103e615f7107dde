//! The list of reports, and what was left out of it.
#![forbid(unsafe_code)]

use super::Report;

/// Reports kept until they are taken; further ones are only counted.
const KEPT: usize = 10_000;

/// `found == reports kept + reports taken + left out of a full list`; repetitions are `repeated`.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub reports: Vec<Report>,
    pub abort: bool,
    /// Told of each report that is kept, before anything else happens to it.
    pub told: Option<fn(&Report)>,
    repeated: u64,
    overflowed: u64,
}

impl Findings {
    /// Keeps a report and says where it lies.
    pub fn add(&mut self, report: Report) -> Option<usize> {
        if self.reports.len() >= KEPT {
            self.overflowed += 1;
            return None;
        }
        if let Some(told) = self.told {
            told(&report);
        }
        if self.abort {
            eprintln!("simcuda: {report}");
            std::process::abort();
        }
        self.reports.push(report);
        Some(self.reports.len() - 1)
    }

    /// The pair of the report at `at` was found in another range.
    pub fn again(&mut self, at: Option<usize>) {
        self.repeated += 1;
        if let Some(report) = at.and_then(|at| self.reports.get_mut(at)) {
            report.more += 1;
        }
    }

    pub fn suppressed(&self) -> u64 {
        self.repeated + self.overflowed
    }

    pub fn overflowed(&self) -> u64 {
        self.overflowed
    }
}
