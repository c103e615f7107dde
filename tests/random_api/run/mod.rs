//! One program at work, and what has to hold of it: a model that knows what an allocator is, and no
//! more. Work on the device writes and compares patterns; the checker judges its order.
//!
//! Of every block the model knows which streams use it. Before a free the program names them all, in
//! one of four ways; that is the whole of its duty, and the whole of what is promised rests on it.

mod blocks;
mod check;
mod crossing;
mod graphs;
mod misuse;
mod observer;
mod pools;
mod streams;

use std::collections::BTreeMap;

use crate::api::{self, Failed, Outcome};
use crate::machine::Machine;
use crate::program::{Kind, Op, Setting};
use crate::tally::Tally;
use crate::world::{Sid, World};
use blocks::Block;
use cuddy::error::cuddy_status;
use graphs::Graph;
use pools::Pool;

/// Driver functions that are made to fail, and the codes that they fail with.
const FAULTS: [&str; 14] = [
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAlloc",
    "cuMemFree",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuStreamWaitEvent",
    "cuCtxRecordEvent",
    "cuStreamGetId",
];

/// A fault that waits for a call that it can strike.
type Armed = (&'static str, u64, i32);

/// What was counted, and has to be in the statistics too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub mallocs: u64,
    pub frees: u64,
    pub refused: u64,
}

pub struct Run {
    pub world: World,
    pub setting: Setting,
    pub live: BTreeMap<u64, Block>,
    /// The same, by age: addresses are other ones in every run.
    pub ages: Vec<u64>,
    pub pools: Vec<Pool>,
    /// What each host thread has pushed.
    pub pushed: Vec<Vec<u64>>,
    pub graphs: Vec<Graph>,
    pub counts: Counts,
    pub limit: u64,
    pub tally: Tally,
    /// Addresses that were freed lately.
    graves: Vec<u64>,
    armed: Option<Armed>,
    /// Faults that struck the last call.
    struck: u64,
    /// Faults that struck any call.
    pub struck_ever: u64,
    reserved_before: u64,
    /// Device memory that is not Cuddy's to give back, in bytes.
    not_ours: u64,
    patterns: u64,
    say: bool,
}

impl Run {
    pub fn new(machine: &'static Machine, setting: Setting, say: bool) -> Self {
        let mut world = World::new(machine, setting.threads);
        world.built_in(0, None);
        world.built_in(1, None);
        for thread in 0..setting.threads {
            world.built_in(2, Some(thread));
        }
        let pushed = vec![Vec::new(); setting.threads];
        let limit = setting.limit;
        let mut run = Self {
            world,
            setting,
            live: BTreeMap::new(),
            ages: Vec::new(),
            pools: Vec::new(),
            pushed,
            graphs: Vec::new(),
            counts: Counts::default(),
            limit,
            tally: Tally::default(),
            graves: Vec::new(),
            armed: None,
            struck: 0,
            struck_ever: 0,
            reserved_before: 0,
            not_ours: World::OWN_BYTES,
            patterns: 0,
            say,
        };
        if run.setting.observes {
            run.observe();
        }
        if run.setting.watches {
            api::scope_begin(c"program").expect("a scope");
        }
        for blocking in [false, false, true] {
            run.create_stream(blocking, true);
        }
        run
    }

    /// Does the steps, frees all that is left, and looks that nothing is left behind.
    pub fn run(&mut self, ops: &[(u64, Op)], half: u64) {
        let mut to_reset = self.setting.resets;
        for (at, (number, op)) in ops.iter().enumerate() {
            if to_reset && *number >= half {
                to_reset = false;
                self.reset();
            }
            if self.say {
                println!("{number}: {op:?}");
            }
            NOW.set(*number);
            self.world.turn = op.c as usize % self.setting.threads;
            self.step(op);
            if at % 8 == 0 {
                self.check();
            }
        }
        self.finish();
    }

    fn step(&mut self, op: &Op) {
        match op.kind {
            Kind::Malloc => self.malloc(op),
            Kind::Use => self.use_block(op),
            Kind::Free => self.free(op),
            Kind::NoteWait => self.note_wait(op),
            Kind::Misuse => self.misuse(op),
            Kind::Trim => self.trim(op),
            Kind::Limit => self.set_limit(op),
            Kind::Synchronize => self.synchronize(op),
            Kind::Stream => self.stream_life(op),
            Kind::ThreadEnds => self.thread_ends(op),
            Kind::Pool => self.pool(op),
            Kind::Graph => self.graph(op),
            Kind::Look => self.look(op),
            Kind::Fault => self.arm(op),
        }
    }

    /// Says something of the step, if that is wanted.
    pub fn say(&self, text: impl FnOnce() -> String) {
        if self.say {
            println!("    {}", text());
        }
    }

    fn arm(&mut self, op: &Op) {
        if self.setting.faults {
            let function = FAULTS[op.a as usize % FAULTS.len()];
            let code = [crate::machine::OUT_OF_MEMORY, crate::machine::UNKNOWN][op.b as usize % 2];
            self.armed = Some((function, 1 + op.b / 2 % 2, code));
            self.say(|| format!("armed {:?}", self.armed));
        }
    }

    /// A call of Cuddy's, by a thread; the fault that is armed strikes in it, if at all.
    pub fn call<T: Send + 'static>(
        &mut self,
        thread: usize,
        call: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let sim = self.world.machine.sim;
        let armed = self.armed;
        if let Some((function, first, code)) = armed {
            sim.fault(function, first, 0, code, false).expect("a function");
        }
        let before = sim.faults_fired();
        if self.setting.observes {
            self.offer();
        }
        let outcome = self.world.hosts.on(thread, call);
        self.struck = 0;
        if armed.is_some() {
            self.struck = sim.faults_fired() - before;
            self.struck_ever += self.struck;
            sim.clear_faults();
            if self.struck > 0 {
                self.armed = None;
            }
            self.tally.add("fault that struck", self.struck);
        }
        if self.setting.observes {
            self.take_offer_back();
        }
        outcome
    }

    /// A call that succeeds, unless a fault struck in it.
    pub fn must<T: Send + 'static>(
        &mut self,
        thread: usize,
        what: &str,
        call: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) -> Option<T> {
        match self.call(thread, call) {
            Ok(value) => Some(value),
            Err(failed) => {
                assert!(self.struck > 0, "{what}: {failed:?}");
                None
            }
        }
    }

    /// A call that fails in this way, whatever else happens.
    pub fn must_fail<T: std::fmt::Debug + Send + 'static>(
        &mut self,
        allowed: &[cuddy_status],
        call: impl FnOnce() -> Outcome<T> + Send + 'static,
    ) {
        let turn = self.world.turn;
        match self.call(turn, call) {
            Err(Failed { status, .. }) if allowed.contains(&status) => {}
            Err(failed) => assert!(self.struck > 0, "{failed:?}, and not one of {allowed:?}"),
            Ok(value) => panic!("{value:?}, and not one of {allowed:?}"),
        }
    }

    /// A stream of those, by a number.
    pub fn stream_by(&self, number: u64) -> Sid {
        let usable: Vec<Sid> = self.world.usable().collect();
        usable[number as usize % usable.len()]
    }

    fn synchronize(&mut self, op: &Op) {
        if self.is_captured_by_driver() {
            return;
        }
        match op.a % 3 {
            0 => self.world.machine.synchronize_all(),
            _ => self.world.synchronize(self.stream_by(op.b)),
        }
    }

    fn trim(&mut self, op: &Op) {
        let (turn, keep) = (self.world.turn, op.b % self.setting.limit);
        match op.a % 2 {
            0 => drop(self.must(turn, "empty_cache", api::empty_cache)),
            _ => {
                let done = self.must(turn, "trim", move || api::trim(keep)).is_some();
                let stats = api::stats();
                let kept = keep.max(self.least_held(|_| true));
                let most = kept + stats.quarantined;
                let sure = done && self.struck == 0 && self.setting.pages;
                let graphs = self.graphs_hold_memory();
                assert!(!sure || graphs || stats.reserved <= most, "{stats:?}, {kept} kept");
            }
        }
    }

    fn set_limit(&mut self, op: &Op) {
        self.check();
        let bytes = match op.a % 4 {
            0 => self.setting.limit,
            1 => self.setting.limit / 2 + op.b % self.setting.limit,
            2 => 4096 + op.b % self.setting.limit,
            _ => self.setting.limit - op.b % (self.setting.limit / 4),
        };
        let turn = self.world.turn;
        if op.c % 2 == 0 {
            self.must(turn, "set_memory_limit", move || api::set_memory_limit(bytes));
            self.limit = bytes;
        } else {
            let total = api::mem_get_info().expect("it tells").1 as u64;
            let fraction = bytes as f64 / total as f64;
            self.must(turn, "set_memory_fraction", move || api::set_memory_fraction(fraction));
            let limit = api::memory_limit().expect("it tells");
            assert!(limit.abs_diff(bytes) <= 1, "{limit} for {bytes}");
            self.limit = limit;
        }
        self.check();
    }

    /// Calls that change nothing but peaks and totals.
    fn look(&mut self, op: &Op) {
        match op.a % 8 {
            0 if !self.is_captured_by_driver() => self.world.look(),
            1 => drop(api::summary(op.b as usize % 5000 + 1).expect("it tells")),
            2 => {
                let (free, total) = api::mem_get_info().expect("it tells");
                assert!(free <= total);
            }
            3 => {
                api::reset_peaks().expect("it can");
                let now = api::stats();
                assert_eq!((now.allocated, now.active), (now.allocated_peak, now.active_peak));
                assert_eq!((now.requested, now.reserved), (now.requested_peak, now.reserved_peak));
            }
            4 => {
                self.tally.add_stats(&api::stats());
                api::reset_accumulated().expect("it can");
                let now = api::stats();
                assert_eq!((now.malloc_count, now.free_count, now.out_of_memory_count), (0, 0, 0));
                self.counts = Counts::default();
            }
            5 if self.setting.watches => self.check_known(),
            6 if self.setting.watches => self.pin_and_tick(op),
            _ if !self.is_captured_by_driver() => self.world.synchronize(0),
            _ => {}
        }
    }
}

thread_local! {
    /// The step that is being done, for whoever reports a failure.
    pub static NOW: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}
