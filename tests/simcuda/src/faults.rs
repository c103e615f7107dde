//! **Faults on demand**: which calls fail, with what code, before or after their effect.
//!
//! A rule counts the calls of its function since it was set: it fires at call `first`, and then at
//! every `every`-th after it (0: never again). A random rule fires for a share of the calls that
//! its seed decides. A fault after the effect is for calls that hand out no object, since nobody
//! could give that object back. A *meeting* is no fault: the call lets somebody else go first, so that a
//! test decides where two threads meet.

use crate::types::Code;

/// Functions that touch no device: they work before `cuInit`, after a fork and in host functions,
/// and `*` leaves them alone, since a client that misses an entry point is another client from then
/// on.
pub const NEEDS_NOTHING: [&str; 4] =
    ["cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion", "cuGetProcAddress"];

/// What a call does first, without the lock: a function of the program and its argument.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// May make any call.
    pub function: extern "C" fn(usize),
    /// Whatever it wants to know.
    pub argument: usize,
}

impl PartialEq for Meeting {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.function, other.function) && self.argument == other.argument
    }
}

impl Eq for Meeting {}

/// What a rule does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strike {
    /// The call fails before its effect.
    Before(Code),
    /// The call fails after its effect.
    After(Code),
    /// The call first lets somebody else go.
    Meets(Meeting),
}

/// When a rule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At call `first`, and every `every` calls from there if that is not 0.
    Counted {
        /// 1 = the next call.
        first: u64,
        /// 0 = once.
        every: u64,
        /// Whether the call takes effect first.
        after: bool,
    },
    /// In this share of the calls.
    Random {
        /// Share, in millionths.
        per_million: u64,
        /// State of the generator.
        state: u64,
    },
    /// At call `at`, once, and it does not fail.
    Met {
        /// 1 = the next call.
        at: u64,
        /// Who goes first.
        by: Meeting,
    },
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Base name of the function, or `*`: any but those of [`NEEDS_NOTHING`].
    pub function: String,
    /// What the call answers.
    pub code: Code,
    /// Which calls.
    pub when: When,
    seen: u64,
}

/// The rules in force.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
    /// How many calls were made to fail.
    pub fired: u64,
    /// Whether the configuration's rules are among them.
    pub begun: bool,
}

/// A step of SplitMix64.
pub fn split_mix(state: &mut u64) -> u64 {
    let answer = mix(*state);
    *state = state.wrapping_add(GAMMA);
    answer
}

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// What SplitMix64 gives in a state: `mix(seed ^ offset)` is the pattern word at an offset.
pub fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(GAMMA);
    let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Rule {
    /// A rule that has seen no call yet.
    pub fn new(function: &str, code: Code, when: When) -> Self {
        Self { function: function.to_owned(), code, when, seen: 0 }
    }

    fn sees(&mut self, function: &str) -> Option<Strike> {
        let any = self.function == "*" && !NEEDS_NOTHING.contains(&function);
        if !any && self.function != function {
            return None;
        }
        self.seen += 1;
        match &mut self.when {
            When::Counted { first, every, after } => {
                let late = self.seen.checked_sub(*first)?;
                let fires = late == 0 || (*every != 0 && late.is_multiple_of(*every));
                let strike = if *after { Strike::After } else { Strike::Before };
                fires.then_some(strike(self.code))
            }
            When::Random { per_million, state } => {
                (split_mix(state) % 1_000_000 < *per_million).then_some(Strike::Before(self.code))
            }
            When::Met { at, by } => (self.seen == *at).then_some(Strike::Meets(*by)),
        }
    }
}

impl Faults {
    /// Adds a rule, or says why it cannot be.
    pub fn add(&mut self, rule: Rule) -> Result<(), String> {
        let after = matches!(rule.when, When::Counted { after: true, .. });
        if after && (rule.function == "*" || hands_out_an_object(&rule.function)) {
            return Err(format!(
                "{} hands out an object: after its effect nobody could give it back; fault it before",
                rule.function
            ));
        }
        if matches!(rule.when, When::Counted { first: 0, .. } | When::Met { at: 0, .. }) {
            return Err("calls are counted from 1".to_owned());
        }
        if rule.code == 0 && !matches!(rule.when, When::Met { .. }) {
            return Err("code 0 is success".to_owned());
        }
        self.rules.push(rule);
        Ok(())
    }

    /// Forgets all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// A call of `function` begins: what is to happen to it.
    #[inline]
    pub fn on_call(&mut self, function: &str) -> Option<Strike> {
        if self.rules.is_empty() { None } else { self.ask_rules(function) }
    }

    #[cold]
    fn ask_rules(&mut self, function: &str) -> Option<Strike> {
        let mut found = None;
        for rule in &mut self.rules {
            let fires = rule.sees(function);
            found = found.or(fires);
        }
        self.fired += u64::from(matches!(found, Some(Strike::Before(_) | Strike::After(_))));
        found
    }
}

/// Whether a call gives its caller something that has to be given back.
pub fn hands_out_an_object(function: &str) -> bool {
    const PARTS: [&str; 9] =
        ["Alloc", "Create", "Reserve", "Retain", "Load", "Import", "Export", "Open", "Register"];
    PARTS.iter().any(|part| function.contains(part))
}

/// The base name of a function of the driver, or `*`.
pub fn known(function: &str) -> Result<&str, String> {
    let base = crate::books::base_name(function);
    match base == "*" || !crate::entries::rows_of(base).is_empty() {
        true => Ok(base),
        false => Err(format!("'{function}' is no function of the driver (nor '*', which is any)")),
    }
}

/// `function:first:code,...`; the code by name or number.
pub fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let entries = text.split(',').map(str::trim).filter(|e| !e.is_empty());
    entries.map(parse_entry).collect()
}

fn parse_entry(entry: &str) -> Result<Rule, String> {
    let shape = || format!("'{entry}' should read like cuMemCreate:3:OUT_OF_MEMORY");
    let parts: Vec<_> = entry.split(':').collect();
    let [function, first, code] = parts[..] else { return Err(shape()) };
    let first = first.parse().map_err(|_| shape())?;
    let function = known(function).map_err(|why| format!("'{entry}': {why}"))?;
    let code = crate::api::error_names::code_of(code)
        .ok_or_else(|| format!("'{code}' in '{entry}' is no CUDA error"))?;
    Ok(Rule::new(function, code, When::Counted { first, every: 0, after: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fires(rule: Rule, calls: u64) -> Vec<u64> {
        let mut faults = Faults::default();
        faults.add(rule).expect("a right rule");
        (1..=calls).filter(|_| faults.on_call("f").is_some()).collect()
    }

    #[test]
    fn counted_rules_fire_at_first_and_every() {
        let rule = |first, every| Rule::new("f", 2, When::Counted { first, every, after: false });
        assert_eq!(fires(rule(3, 0), 20), [3]);
        assert_eq!(fires(rule(2, 5), 20), [2, 7, 12, 17]);
        let mut faults = Faults::default();
        faults.add(rule(1, 1)).expect("a right rule");
        assert_eq!(faults.on_call("g"), None, "another function");
    }

    #[test]
    fn a_star_is_every_function_that_a_device_has_to_do_with() {
        let mut faults = Faults::default();
        let always = When::Counted { first: 1, every: 1, after: false };
        faults.add(Rule::new("*", 2, always)).expect("a right rule");
        assert_eq!(faults.on_call("cuMemCreate"), Some(Strike::Before(2)));
        for function in NEEDS_NOTHING {
            assert_eq!(faults.on_call(function), None, "{function}");
        }
        faults.add(Rule::new("cuGetProcAddress", 3, always)).expect("a right rule");
        assert_eq!(
            faults.on_call("cuGetProcAddress"),
            Some(Strike::Before(3)),
            "unless it is named"
        );
    }

    #[test]
    fn random_rules_are_reproduced_by_their_seed() {
        let rule = || Rule::new("*", 2, When::Random { per_million: 250_000, state: 7 });
        let once = fires(rule(), 10_000);
        assert_eq!(once, fires(rule(), 10_000));
        assert!((2_200..2_800).contains(&once.len()), "{}", once.len());
    }

    #[test]
    fn wrong_rules_are_refused() {
        let mut faults = Faults::default();
        let after = When::Counted { first: 1, every: 0, after: true };
        assert!(faults.add(Rule::new("cuMemCreate", 2, after)).is_err());
        assert!(faults.add(Rule::new("cuMemAlloc", 2, after)).is_err());
        assert!(faults.add(Rule::new("cuMemUnmap", 2, after)).is_ok());
        assert!(faults.add(Rule::new("f", 0, When::Random { per_million: 1, state: 1 })).is_err());
        assert!(parse("cuMemCreate:3:OUT_OF_MEMORY, cuMemMap:1:999, *:7:2").is_ok());
        let rules = parse("cuMemAlloc_v2:1:2").expect("any variant of a function names it");
        assert_eq!(rules[0].function, "cuMemAlloc");
        for wrong in [
            "cuMemCraete:1:2",
            "cuMemCreate",
            "cuMemCreate:x:2",
            "cuMemCreate:1:NO_SUCH",
            "a:0:2:3",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
