//! Blocks: how they are asked for, used, named and freed.

use std::ffi::CStr;

use cuddy::abi::memory::CUDDY_REQUEST_NO_WAIT;
use cuddy::abi::pools::CUDDY_POOL_DEFAULT;
use cuddy::error::cuddy_status;

use super::Run;
use crate::api::{self, Request};
use crate::machine::MIB;
use crate::program::Op;
use crate::world::Sid;

const ANY: usize = usize::MAX;
/// The label of requests that have one.
pub const TAG: &CStr = c"a tag of the program";
/// What pages are made of.
const PAGE: u64 = 2 * MIB;

/// A live block.
#[derive(Clone, Debug)]
pub struct Block {
    pub bytes: u64,
    /// Of the pattern that it holds.
    pub seed: u64,
    /// The stream that it was asked for on; `None`: any.
    pub home: Option<Sid>,
    /// Who wrote it last; nobody, if it is a graph's that was never launched.
    pub writer: Option<Sid>,
    /// Who has read that.
    pub readers: Vec<Sid>,
    /// The writer is a launch: Cuddy knows of it by the graph.
    pub launched: bool,
    /// Launches that have read it, and that Cuddy knows of.
    pub launch_readers: Vec<Sid>,
    pub recorded: Vec<Sid>,
    pub pool: u64,
    /// It has the label [`TAG`].
    pub tagged: bool,
    /// Asked for in this graph's capture.
    pub graph: Option<usize>,
    /// Graphs whose launches read it.
    pub input_of: Vec<usize>,
}

impl Block {
    pub fn rounded(&self) -> u64 {
        self.bytes.div_ceil(512) * 512
    }

    /// The streams whose work on it Cuddy cannot know of by itself.
    pub(super) fn to_name(&self) -> Vec<Sid> {
        let writer = self.writer.filter(|_| !self.launched);
        let users = writer.into_iter().chain(self.readers.iter().copied());
        let mut users: Vec<Sid> = users.filter(|&user| Some(user) != self.home).collect();
        users.sort_unstable();
        users.dedup();
        users
    }

    /// All whose work has to come before a write.
    pub fn before_write(&self) -> Vec<Sid> {
        let users = self.writer.into_iter().chain(self.readers.iter().copied());
        users.chain(self.launch_readers.iter().copied()).collect()
    }

    /// What `from` did is done for `to` too: it waits for it.
    fn hand_on(&mut self, from: Sid, to: Sid) {
        if self.writer == Some(from) && !self.launched {
            self.writer = Some(to);
        }
        for reader in &mut self.readers {
            if *reader == from {
                *reader = to;
            }
        }
    }
}

impl Run {
    fn size(&self, a: u64) -> u64 {
        let (kind, a) = (a % 16, a / 16);
        match kind {
            0..5 => 1 + a % 4096,
            5..9 => 1 + a % MIB,
            9..13 => 1 + a % (6 * MIB),
            13 => PAGE * (1 + a % 4),
            14 => 1 + a % (20 * MIB),
            _ => 512 * (1 + a % 64),
        }
    }

    /// A seed that no other block has.
    pub fn pattern(&mut self) -> u64 {
        self.patterns += 1;
        self.patterns << 20
    }

    pub(super) fn malloc(&mut self, op: &Op) {
        let capturing = self.capturing().filter(|_| op.c / 8 % 2 == 0);
        if let Some(graph) = capturing {
            self.malloc_captured(graph, op);
            return;
        }
        let any = op.b % 16 == 0;
        let home = self.stream_by(op.b / 16);
        let thread = self.world.thread_of(home);
        let handle = if any { ANY } else { self.world.handle(home) };
        let bytes = if op.a % 500 == 0 { 0 } else { self.size(op.a / 500) };
        let flags = if op.c / 16 % 8 == 0 { CUDDY_REQUEST_NO_WAIT } else { 0 };
        let wait_ms = u64::from(op.c / 128 % 16 == 0);
        let asked = match op.c / 2048 % 8 {
            0 => 1,
            1 | 2 => self.pool_by(op.c >> 20).unwrap_or(0),
            _ => 0,
        };
        let alignment = [0, 0, 0, 4096, 2 * MIB][(op.c >> 40) as usize % 5];
        let pool = self.effective(thread, asked);
        let tag = (self.setting.watches && op.c >> 44 & 3 == 0).then_some(TAG);
        let plain = asked == 0 && alignment == 0 && flags == 0 && wait_ms == 0 && tag.is_none();
        let request =
            Request { bytes, alignment, stream: handle, flags, pool: asked, wait_ms, tag };
        self.say(|| format!("malloc {request:?} by {thread}, home {home}"));
        let lenders = self.lenders();
        let outcome = self.call(thread, move || match plain {
            true => api::malloc(bytes, handle),
            false => api::malloc_ex(request),
        });
        let at = match outcome {
            Ok(0) => {
                assert_eq!(bytes, 0);
                return;
            }
            Ok(at) => at,
            Err(failed) => {
                let waits = flags == 0 && wait_ms == 0;
                self.refused(&failed, bytes, pool, waits);
                return;
            }
        };
        let pool = self.serving(pool, &lenders);
        assert_eq!(at % alignment.max(512), 0, "not aligned");
        self.born(at, bytes, (!any).then_some(home), pool, None);
        let seed = self.live[&at].seed;
        self.world.write(home, at, bytes, seed);
        let block = self.live.get_mut(&at).expect("just born");
        (block.writer, block.tagged) = (Some(home), tag.is_some());
    }

    /// Enters a new block, which must be nobody else's.
    pub(super) fn born(
        &mut self,
        at: u64,
        bytes: u64,
        home: Option<Sid>,
        pool: u64,
        graph: Option<usize>,
    ) {
        let block = Block {
            bytes,
            seed: self.pattern(),
            home,
            writer: None,
            readers: Vec::new(),
            launched: false,
            launch_readers: Vec::new(),
            recorded: Vec::new(),
            pool,
            tagged: false,
            graph,
            input_of: Vec::new(),
        };
        let end = at + block.rounded();
        let before = self.live.range(..at).next_back();
        assert!(before.is_none_or(|(start, block)| start + block.rounded() <= at), "overlap");
        assert!(self.live.range(at..).next().is_none_or(|(start, _)| end <= *start), "overlap");
        for (number, other) in self.graphs.iter().enumerate() {
            let own = graph == Some(number) && other.begun;
            assert!(own || !other.owns(at, end), "{at:#x} is graph {number}'s");
        }
        self.say(|| format!("block {at:#x}, {bytes} bytes, pool {pool}"));
        self.live.insert(at, block);
        self.ages.push(at);
        self.graves.retain(|grave| *grave != at);
        self.counts.mallocs += 1;
    }

    /// A request failed: it may, if memory is short, or a fault struck.
    pub(super) fn refused(&mut self, failed: &api::Failed, bytes: u64, pool: u64, waits: bool) {
        self.say(|| format!("refused: {failed:?}"));
        if failed.status == cuddy_status::CUDDY_ERROR_OUT_OF_MEMORY {
            self.counts.refused += 1;
            self.tally.add("refused", 1);
            let simple = waits && self.struck == 0 && self.setting.pages;
            if simple
                && !self.graphs_hold_memory()
                && !self.is_bounded(pool)
                && !self.ended_pools_hold_memory()
            {
                let held = self.least_held(|of| of == pool || of == CUDDY_POOL_DEFAULT);
                let held = held + self.kept_by_pools(pool) + api::stats().quarantined;
                let room = self.limit.saturating_sub(held);
                let need = bytes.div_ceil(PAGE) * PAGE;
                assert!(room < need, "{room} bytes can be had, {need} are enough: {failed:?}");
            }
            return;
        }
        let ended = failed.status == cuddy_status::CUDDY_ERROR_INVALID_POOL;
        assert!(self.struck > 0 || ended && self.is_destroyed(pool), "{failed:?}");
    }

    /// The pages that live blocks of these pools lie on, in bytes.
    pub(super) fn least_held(&self, counts: impl Fn(u64) -> bool) -> u64 {
        let mut last = u64::MAX;
        let mut pages = 0;
        for (&at, block) in self.live.iter().filter(|(_, block)| counts(block.pool)) {
            let (first, end) = (at / PAGE, (at + block.rounded()).div_ceil(PAGE));
            pages += end - first - u64::from(first == last);
            last = end - 1;
        }
        pages * PAGE
    }

    pub(super) fn block_by(&self, number: u64) -> Option<u64> {
        self.ages.get(number as usize % self.ages.len().max(1)).copied()
    }

    /// Whether the program can order work after all that was done with a block.
    fn is_at_hand(&self, at: u64) -> bool {
        let block = &self.live[&at];
        let streams = &self.world.streams;
        block.writer.is_some() && block.before_write().iter().all(|&user| !streams[user].captured)
    }

    pub(super) fn use_block(&mut self, op: &Op) {
        let Some(at) = self.block_by(op.a) else { return };
        if let Some(graph) = self.capturing()
            && self.use_in_capture(graph, at, op)
        {
            return;
        }
        let home = self.live[&at].home;
        let home_is_captured = home.is_some_and(|home| self.world.streams[home].captured);
        if !self.is_at_hand(at) || home_is_captured {
            return;
        }
        let user = match (op.b % 3, home) {
            (0, Some(home)) if self.world.is_usable(home) => home,
            _ => self.stream_by(op.b / 4),
        };
        let write = op.c % 2 == 0 && !self.is_fixed_input(&self.live[&at]);
        let block = self.live.get_mut(&at).expect("picked");
        if write {
            block.before_write().iter().for_each(|&before| self.world.order(before, user));
            self.patterns += 1;
            block.seed = self.patterns << 20;
            (block.writer, block.launched) = (Some(user), false);
            block.readers.clear();
            block.launch_readers.clear();
            self.world.write(user, at, block.bytes, block.seed);
        } else {
            self.world.order(block.writer.expect("at hand"), user);
            let what = format!("block {at:#x} on stream {user}");
            self.world.compare(user, at, block.bytes, block.seed, what);
            block.readers.push(user);
        }
        self.say(|| format!("use of {at:#x} on {user}, write {write}"));
        match op.c / 2 % 3 {
            0 => self.name(at, user),
            1 => self.order_home(at, user),
            _ => {}
        }
    }

    /// Says that a stream uses a block; by its own thread.
    fn name(&mut self, at: u64, user: Sid) {
        if self.live[&at].home == Some(user) || !self.world.is_usable(user) {
            return;
        }
        let (thread, handle) = (self.world.thread_of(user), self.world.handle(user));
        let named = self.must(thread, "record_stream", move || api::record_stream(at, handle));
        if named.is_some() {
            self.say(|| format!("recorded {at:#x} on {user}"));
            self.live.get_mut(&at).expect("live").recorded.push(user);
        }
    }

    /// Makes the block's own stream wait for another.
    fn order_home(&mut self, at: u64, user: Sid) {
        let block = self.live.get_mut(&at).expect("live");
        if let Some(home) = block.home
            && self.world.is_usable(home)
            && !self.world.streams[user].captured
        {
            self.world.order(user, home);
            block.hand_on(user, home);
        }
    }

    pub(super) fn free(&mut self, op: &Op) {
        if let Some(at) = self.block_by(op.a) {
            self.free_block(at, op);
        }
    }

    /// Names every stream that uses the block, in one way or another, and frees it.
    pub(super) fn free_block(&mut self, at: u64, op: &Op) {
        let block = &self.live[&at];
        let home = block.home;
        let captured = home.is_some_and(|home| self.world.streams[home].captured);
        let users: Vec<Sid> =
            block.to_name().into_iter().filter(|user| !block.recorded.contains(user)).collect();
        if users.iter().any(|&user| self.world.streams[user].captured) {
            return;
        }
        let nameable = users.iter().all(|&user| self.world.is_usable(user));
        let home_usable = home.is_some_and(|home| self.world.is_usable(home));
        let way = match (op.b % 4, home) {
            (0, Some(_)) if nameable => 0,
            (1, Some(_)) if home_usable => 1,
            (0 | 1, None) => 0,
            _ if captured || self.is_a_graphs(block) => {
                if !nameable {
                    return;
                }
                0
            }
            (2, Some(home)) if self.world.streams[home].alive => 2,
            _ => 3,
        };
        let to = self.stream_by(op.b / 4);
        let (thread, handle) = (self.world.thread_of(to), self.world.handle(to));
        let turn = self.world.turn;
        self.say(|| format!("free {at:#x}, way {way}, to {to}, users {users:?}"));
        let outcome = match way {
            0 | 1 => {
                if home.is_some() {
                    for &user in &users {
                        if way == 0 { self.name(at, user) } else { self.order_home(at, user) }
                    }
                }
                if way == 0 && home.is_some() {
                    let recorded = &self.live[&at].recorded;
                    if users.iter().any(|user| !recorded.contains(user)) {
                        return;
                    }
                }
                self.call(turn, move || api::free(at))
            }
            2 => {
                for &user in users.iter().chain(home.iter()) {
                    self.world.order(user, to);
                }
                self.call(thread, move || api::free_on(at, handle))
            }
            _ => {
                users.iter().for_each(|&user| self.world.order(user, to));
                let event = self.world.record(to);
                let outcome = self.call(turn, move || api::free_after(at, event));
                self.world.machine.destroy_event(event);
                outcome
            }
        };
        match outcome {
            Ok(()) => self.freed(at),
            Err(failed) => {
                assert!(self.struck > 0, "{failed:?}");
                self.settle_failed_free(at);
            }
        }
        if op.c % 8 == 0 && !self.live.contains_key(&at) {
            self.free_again(at);
        }
    }

    /// Whether a plain free of the block is right as it stands.
    pub(super) fn may_be_freed(&self, at: u64) -> bool {
        let block = &self.live[&at];
        let captured = block.home.is_some_and(|home| self.world.streams[home].captured);
        let named = block.to_name().iter().all(|user| block.recorded.contains(user));
        let plain = block.home.is_none() || named;
        plain && !captured && block.writer.is_some() && !self.is_a_graphs(block)
    }

    /// Whether launches may still use the block.
    fn is_a_graphs(&self, block: &Block) -> bool {
        block.graph.iter().chain(&block.input_of).any(|&graph| !self.graphs[graph].gone)
    }

    /// A call that failed has changed nothing; where nothing is cached, the block is free.
    pub(super) fn settle_failed_free(&mut self, at: u64) {
        let told = api::block_info(at);
        match self.setting.caching {
            true => assert_eq!(told.expect("it is live").1, self.live[&at].bytes),
            false if told.is_err() => self.freed(at),
            false => {}
        }
    }

    /// The block is free.
    pub(super) fn freed(&mut self, at: u64) {
        let block = self.live.remove(&at).expect("live");
        self.ages.retain(|age| *age != at);
        self.counts.frees += 1;
        self.leave_to_graphs(at, &block);
        self.graves.push(at);
        if self.graves.len() > 32 {
            self.graves.remove(0);
        }
    }

    pub(super) fn free_again(&mut self, at: u64) {
        use cuddy_status::*;
        let inside = self
            .live
            .range(..at)
            .next_back()
            .is_some_and(|(start, block)| start + block.rounded() > at);
        let allowed = match inside {
            true => [CUDDY_ERROR_INTERIOR_POINTER; 2],
            false => [CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_FOREIGN_POINTER],
        };
        self.must_fail(&allowed, move || api::free(at));
    }
}
