//! The **entries**: every symbol that this driver exports, and which of them a name stands for.
//!
//! `lookup(base, asked) = the newest row of base with version <= min(asked, driver)`; where a
//! per-thread and an ordinary variant are of one version, the per-thread one wins if it is wanted.
//! The rows are names/names.tsv, turned into code by build_names.rs; names/make_names.py says where
//! they come from.

use std::ffi::c_void;

/// Where a function lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Address(*const c_void);

// SAFETY: the pointer is a function's address: nothing is ever read or written through it.
unsafe impl Sync for Address {}

impl Address {
    /// As a client gets it.
    pub fn pointer(self) -> *mut c_void {
        self.0.cast_mut()
    }
}

/// One exported symbol.
#[derive(Debug)]
pub struct Row {
    /// The name that is asked for.
    pub base: &'static str,
    /// Whether stream 0 is the calling thread's own for it.
    pub per_thread: bool,
    /// The CUDA version that brought it: 1000 * major + 10 * minor.
    pub version: i32,
    /// The name that is exported.
    pub symbol: &'static str,
    /// The function.
    pub address: Address,
}

/// Why there is no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The driver has nothing of that name.
    Name,
    /// It has, but only for versions above the one asked for.
    Version,
}

/// Makes [`ROWS`] of lines `base, per_thread, version, symbol`. The functions have many signatures
/// and lie in many modules, so they are declared here once more by their symbols alone.
macro_rules! rows {
    ($($base:literal $per_thread:literal $version:literal $symbol:ident,)*) => {
        mod symbols {
            unsafe extern "C" { $(pub fn $symbol();)* }
        }

        /// Every exported symbol, sorted by base, flag and version.
        pub static ROWS: &[Row] = &[$(Row {
            base: $base,
            per_thread: $per_thread,
            version: $version,
            symbol: stringify!($symbol),
            address: Address(symbols::$symbol as *const c_void),
        },)*];
    };
}

include!(concat!(env!("OUT_DIR"), "/rows.rs"));

/// All rows of one name.
pub fn rows_of(base: &str) -> &'static [Row] {
    let begin = ROWS.partition_point(|row| row.base < base);
    let rows = &ROWS[begin..];
    &rows[..rows.partition_point(|row| row.base == base)]
}

/// The entry that a client of CUDA `asked` gets from a driver of version `driver`.
pub fn lookup(
    base: &str,
    asked: i32,
    per_thread: bool,
    driver: i32,
) -> Result<&'static Row, Missing> {
    let present = || rows_of(base).iter().filter(|row| row.version <= driver);
    let fits = |row: &&Row| row.version <= asked && (per_thread || !row.per_thread);
    let newest = present().filter(fits).max_by_key(|row| (row.version, row.per_thread));
    let missing = if present().next().is_some() { Missing::Version } else { Missing::Name };
    newest.ok_or(missing)
}

/// The CUDA version that brought an exported symbol; 0 if the table has no such symbol.
pub fn since(symbol: &str) -> i32 {
    let of_base = rows_of(crate::books::base_name(symbol));
    of_base.iter().find(|row| row.symbol == symbol).map_or(0, |row| row.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_no_symbol_is_there_twice() {
        let key = |row: &Row| (row.base, row.per_thread, row.version);
        assert!(ROWS.is_sorted_by(|a, b| key(a) < key(b)));
        let mut symbols: Vec<_> = ROWS.iter().map(|row| row.symbol).collect();
        symbols.sort();
        symbols.dedup();
        assert_eq!(symbols.len(), ROWS.len());
    }

    #[test]
    fn the_binary_search_agrees_with_a_plain_reading_of_the_table() {
        let table: Vec<Vec<&str>> = include_str!("../names/names.tsv")
            .lines()
            .skip(1)
            .map(|line| line.split('\t').collect())
            .collect();
        assert_eq!(table.len(), ROWS.len());
        let number = |row: &[&str]| row[2].parse::<i32>().expect("a version");
        let asked_versions = [0, 2000, 3010, 3020, 7000, 11030, 11040, 12000, 12050, 13000];
        for name in table.iter().map(|row| row[1]).chain(["", "cu", "cuNoSuch", "zz"]) {
            for (asked, driver) in asked_versions.iter().flat_map(|a| [(*a, 13000), (*a, 12020)]) {
                for per_thread in [false, true] {
                    let mut best = ("", -1, "");
                    for row in table.iter().filter(|row| row[1] == name) {
                        let (version, flag) = (number(row), row[3]);
                        let wanted = flag == "default" || per_thread;
                        if version <= asked.min(driver)
                            && wanted
                            && (version, flag) > (best.1, best.2)
                        {
                            best = (row[0], version, flag);
                        }
                    }
                    let found =
                        lookup(name, asked, per_thread, driver).map_or("", |row| row.symbol);
                    assert_eq!(found, best.0, "{name} {asked} {per_thread} {driver}");
                }
            }
        }
    }

    #[test]
    fn an_entry_newer_than_the_driver_is_a_name_that_does_not_exist() {
        let missing = |base, asked, driver| lookup(base, asked, false, driver).err();
        assert_eq!(missing("cuCtxGetId", 13000, 13000), None);
        assert_eq!(missing("cuCtxGetId", 11080, 13000), Some(Missing::Version));
        assert_eq!(missing("cuCtxGetId", 13000, 11040), Some(Missing::Name));
        assert_eq!(since("cuCtxGetId"), 12000);
        assert_eq!(since("cuCtxCreate"), 2000);
        assert_eq!(since("cuCtxCreate_v4"), 12050);
        assert_eq!(since("cuMemcpyHtoDAsync_v2_ptsz"), 7000);
        assert_eq!(since("cuNoSuch"), 0);
    }
}
