//! The **books**: how often each API function was called, and what a call costs in virtual time.
//!
//! `cost = fixed + per_mib * bytes / 2^20 + per_unit * units`. The defaults are other people's
//! published figures for an A100 and guesses between them; none was measured by us. `create`'s
//! growth with its size is an assumption.

use std::collections::HashMap;

/// What a function costs: nanoseconds for a call, for a MiB, and for each unit beyond the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// A call.
    pub fixed: u64,
    /// A MiB of what the call is about.
    pub per_mib: u64,
    /// A further page or mapping.
    pub per_unit: u64,
}

const fn cost(fixed: u64, per_mib: u64, per_unit: u64) -> Cost {
    Cost { fixed, per_mib, per_unit }
}

/// The default of whatever has no line of its own.
pub const OTHERS: Cost = cost(200, 0, 0);

/// Defaults, in nanoseconds.
pub const COSTS: [(&str, Cost); 24] = [
    ("cuMemCreate", cost(190_000, 1_500, 0)),
    ("cuMemMap", cost(1_500, 0, 0)),
    ("cuMemSetAccess", cost(36_000, 0, 1_000)),
    ("cuMemUnmap", cost(26_000, 0, 26_000)),
    ("cuMemRelease", cost(5_000, 0, 0)),
    ("cuMemAddressReserve", cost(19_000, 0, 0)),
    ("cuMemAddressFree", cost(5_000, 0, 0)),
    ("cuMemAlloc", cost(160_000, 1_000, 0)),
    ("cuMemAllocPitch", cost(160_000, 1_000, 0)),
    ("cuMemFree", cost(150_000, 0, 0)),
    ("cuMemAllocAsync", cost(1_300, 0, 0)),
    ("cuMemAllocFromPoolAsync", cost(1_300, 0, 0)),
    ("cuMemFreeAsync", cost(700, 0, 0)),
    ("cuMemHostAlloc", cost(200_000, 100_000, 0)),
    ("cuMemAllocHost", cost(200_000, 100_000, 0)),
    ("cuMemFreeHost", cost(200_000, 0, 0)),
    ("cuMemGetInfo", cost(6_000, 0, 0)),
    ("cuEventRecord", cost(1_000, 0, 0)),
    ("cuEventRecordWithFlags", cost(1_000, 0, 0)),
    ("cuCtxRecordEvent", cost(1_000, 0, 0)),
    ("cuEventQuery", cost(1_200, 0, 0)),
    ("cuStreamQuery", cost(1_200, 0, 0)),
    ("cuLaunchKernel", cost(5_000, 0, 0)),
    ("cuLaunchKernelEx", cost(5_000, 0, 0)),
];

/// One function's page.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name without version and stream suffixes.
    pub name: &'static str,
    /// Calls since the last clearing.
    pub calls: u64,
    /// What a call costs.
    pub cost: Cost,
}

/// All functions that were called or spoken of.
#[derive(Debug, Default)]
pub struct Books {
    functions: Vec<Function>,
    by_name: HashMap<&'static str, usize>,
    /// Calls of all functions since the last clearing.
    pub total: u64,
    /// Calls since the process began.
    pub serial: u64,
    /// Virtual time spent inside driver calls, waits included.
    pub driver_ns: u64,
}

fn default_cost(name: &str) -> Cost {
    COSTS.iter().find(|(n, _)| *n == name).map_or(OTHERS, |(_, cost)| *cost)
}

impl Books {
    /// The page of a function, by base name.
    pub fn page(&mut self, name: &'static str) -> usize {
        if let Some(&page) = self.by_name.get(name) {
            return page;
        }
        self.functions.push(Function { name, calls: 0, cost: default_cost(name) });
        self.by_name.insert(name, self.functions.len() - 1);
        self.functions.len() - 1
    }

    /// The same for a name that is not static: one that a test speaks of.
    pub fn page_of(&mut self, name: &str) -> usize {
        let base = base_name(name);
        match self.by_name.get(base) {
            Some(&page) => page,
            None => self.page(Box::leak(base.to_owned().into_boxed_str())),
        }
    }

    /// A call begins.
    #[inline]
    pub fn count(&mut self, page: usize) -> &Function {
        self.total += 1;
        self.serial += 1;
        self.functions[page].calls += 1;
        &self.functions[page]
    }

    /// One page.
    #[inline]
    pub fn function(&self, page: usize) -> &Function {
        &self.functions[page]
    }

    /// Changes a function's cost.
    pub fn set_cost(&mut self, page: usize, fixed: u64, per_mib: u64) {
        let per_unit = self.functions[page].cost.per_unit;
        self.functions[page].cost = Cost { fixed, per_mib, per_unit };
    }

    /// Calls of a function since the last clearing.
    pub fn calls(&self, name: &str) -> u64 {
        self.by_name.get(base_name(name)).map_or(0, |&page| self.functions[page].calls)
    }

    /// The functions that were called, by name.
    pub fn called(&self) -> Vec<&Function> {
        let mut called: Vec<_> = self.functions.iter().filter(|f| f.calls > 0).collect();
        called.sort_by_key(|f| f.name);
        called
    }

    /// Sets all counts to zero.
    pub fn clear(&mut self) {
        self.total = 0;
        self.functions.iter_mut().for_each(|f| f.calls = 0);
    }

    /// Counts, costs and times as at the beginning. Pages keep their numbers: call sites remember
    /// them.
    pub fn reset(&mut self) {
        self.clear();
        self.driver_ns = 0;
        self.functions.iter_mut().for_each(|f| f.cost = default_cost(f.name));
    }
}

/// `cuMemcpyHtoDAsync_v2_ptsz` -> `cuMemcpyHtoDAsync`.
pub fn base_name(symbol: &str) -> &str {
    let symbol = symbol.strip_suffix("_ptsz").or(symbol.strip_suffix("_ptds")).unwrap_or(symbol);
    match symbol.rsplit_once("_v") {
        Some((base, version)) if version.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_taken_off() {
        for (symbol, base) in [
            ("cuMemAlloc_v2", "cuMemAlloc"),
            ("cuMemcpyHtoDAsync_v2_ptsz", "cuMemcpyHtoDAsync"),
            ("cuMemcpy_ptds", "cuMemcpy"),
            ("cuCtxCreate_v4", "cuCtxCreate"),
            ("cuInit", "cuInit"),
        ] {
            assert_eq!(base_name(symbol), base);
        }
    }
}
