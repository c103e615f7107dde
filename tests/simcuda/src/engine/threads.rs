//! Host threads: their clocks, and the signals that order them.
//!
//! Ordered (the default): all threads are one actor, for driver calls are ordered as they happen and the
//! locks between threads are invisible here. Separate: an actor each, joined only by signals.
#![forbid(unsafe_code)]

use super::{Engine, FastHash, ThreadKey};
use crate::checker::{Clock, Fault, Flaw, Order, Sound};
use std::collections::HashMap;

/// All host threads.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// The caller's numbers; a [`ThreadKey`] is an index here.
    numbers: Vec<u64>,
    keys: HashMap<u64, u64, FastHash>,
    separate: bool,
    /// The clock slot of all threads together.
    shared: Option<u32>,
    /// The clock slot of each thread.
    own: Vec<Option<u32>>,
    signals: HashMap<u64, Clock, FastHash>,
}

impl Threads {
    fn key(&mut self, number: u64) -> ThreadKey {
        let next = self.numbers.len() as u64;
        let key = *self.keys.entry(number).or_insert(next);
        if key == next {
            self.numbers.push(number);
            self.own.push(None);
        }
        ThreadKey(key)
    }

    /// The caller's number of the thread, for reports.
    pub fn number(&self, t: ThreadKey) -> u64 {
        self.numbers.get(t.0 as usize).copied().unwrap_or(0)
    }

    /// The slot whose clock is the thread's.
    pub fn slot(&mut self, t: ThreadKey, order: &mut Order) -> u32 {
        let shared = *self.shared.get_or_insert_with(|| order.add(None, Sound));
        if !self.separate {
            return shared;
        }
        match self.own.get_mut(t.0 as usize) {
            Some(own) => *own.get_or_insert_with(|| order.add(Some(shared), Sound)),
            None => shared,
        }
    }

    /// Whether each thread is an actor of its own.
    pub fn are_separate(&self) -> bool {
        self.separate
    }

    /// The slots of all threads and of those to come: what all of these know, everything knows that
    /// is submitted from now on.
    pub fn slots(&self) -> Vec<u32> {
        self.own.iter().flatten().chain(&self.shared).copied().collect()
    }

    /// The slots of threads that are actors of their own.
    pub fn own_slots(&mut self) -> impl Iterator<Item = &mut u32> {
        self.own.iter_mut().flatten()
    }

    /// What was signalled.
    pub fn signals(&mut self) -> impl Iterator<Item = &mut Clock> {
        self.signals.values_mut()
    }

    fn set_separate(&mut self, separate: bool, order: &mut Order) {
        if let (Some(shared), true, false) = (self.shared, self.separate, separate) {
            for own in self.own.iter_mut().filter_map(Option::take) {
                order.join_actor(shared, own);
                order.tick(shared);
                order.retire(own);
            }
        }
        self.separate = separate;
    }
}

impl<W, F: Flaw> Engine<W, F> {
    /// True (the default): all host threads share one clock. False: separate clocks that start with
    /// what all of them knew at this moment and are joined only by [`Self::signal`].
    pub fn set_threads_ordered(&mut self, ordered: bool) {
        let separate = !ordered && !self.checker.flaw.has(Fault::ThreadsShareClock);
        self.threads.set_separate(separate, &mut self.checker.order);
    }

    /// The key of a host thread; the same for the same `os_thread`, which is what reports name.
    pub fn thread(&mut self, os_thread: u64) -> ThreadKey {
        self.threads.key(os_thread)
    }

    /// What the thread knows now comes before whatever follows an `await_signal` of the same tag.
    pub fn signal(&mut self, t: ThreadKey, tag: u64) {
        if self.checker.keeps_order() {
            let slot = self.host_slot(t);
            let signalled = self.threads.signals.entry(tag).or_insert_with(Clock::nothing);
            self.checker.order.unite(signalled, self.checker.order.clock(slot));
        }
    }

    /// The thread now knows all that was signalled under the tag so far; without a signal, nothing.
    pub fn await_signal(&mut self, t: ThreadKey, tag: u64) {
        if !self.checker.keeps_order() {
            return;
        }
        if let Some(clock) = self.threads.signals.get(&tag).cloned() {
            self.host_learns(t, &clock);
        }
    }

    pub(super) fn host_slot(&mut self, t: ThreadKey) -> u32 {
        self.threads.slot(t, &mut self.checker.order)
    }

    /// The thread takes in a clock.
    pub(super) fn host_learns(&mut self, t: ThreadKey, clock: &Clock) {
        let slot = self.host_slot(t);
        if self.checker.order.join(slot, clock) {
            self.checker.order.tick(slot);
        }
    }
}
