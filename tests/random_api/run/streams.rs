//! Streams that come and go, threads that end with their default streams, and a device that is reset.

use cuddy::error::cuddy_status;

use super::{Counts, Run};
use crate::api;
use crate::program::Op;
use crate::world::Sid;

/// Created streams at once.
const MOST: usize = 6;

impl Run {
    pub(super) fn create_stream(&mut self, blocking: bool, open: bool) {
        let stream = self.world.create(blocking);
        if open || self.setting.opens_all() {
            self.open_stream(stream);
        }
    }

    fn open_stream(&mut self, stream: Sid) {
        let handle = self.world.handle(stream);
        let turn = self.world.turn;
        let capturable = self.setting.finds && stream % 2 == 0;
        let open = move || match capturable {
            true => api::stream_open_capturable(handle),
            false => api::stream_open(handle),
        };
        let mut opened = self.must(turn, "stream_open", open);
        if opened.is_none() && self.setting.opens_all() {
            opened = self.must(turn, "stream_open", open);
        }
        self.world.streams[stream].held |= opened.is_some();
        self.world.streams[stream].capturable |= opened.is_some() && capturable;
    }

    fn retire(&mut self, stream: Sid) {
        let (turn, handle) = (self.world.turn, self.world.handle(stream));
        self.must(turn, "stream_retire", move || api::stream_retire(handle));
        self.world.streams[stream].held = false;
        self.world.streams[stream].capturable = false;
    }

    pub(super) fn stream_life(&mut self, op: &Op) {
        let created: Vec<Sid> =
            self.world.usable().filter(|&stream| !self.world.streams[stream].built_in).collect();
        if created.is_empty() || created.len() < MOST && op.a % 3 == 0 {
            return self.create_stream(op.b % 3 == 0, op.c % 2 == 0);
        }
        let stream = created[op.b as usize % created.len()];
        let held = self.world.streams[stream].held;
        match op.a % 3 {
            1 if !self.setting.trusted => {
                if held {
                    self.retire(stream);
                }
                self.say(|| format!("stream {stream} is destroyed"));
                self.world.destroy(stream);
            }
            2 if !held && !self.setting.trusted => {
                let refused = [cuddy_status::CUDDY_ERROR_INVALID_STREAM];
                let handle = self.world.handle(stream);
                self.must_fail(&refused, move || api::stream_retire(handle));
                self.open_stream(stream);
            }
            _ => {}
        }
    }

    pub(super) fn thread_ends(&mut self, op: &Op) {
        let threads = self.setting.threads;
        if threads < 2 {
            return;
        }
        let thread = 1 + op.a as usize % (threads - 1);
        let own = self.world.streams.iter().rposition(|stream| stream.thread == Some(thread));
        let own = own.expect("every thread has a default stream");
        if self.world.streams[own].captured || self.is_captured_by_driver() {
            return;
        }
        self.say(|| format!("thread {thread} ends, with stream {own}"));
        self.world.note_end(own);
        self.world.hosts.renew(thread);
        self.pushed[thread].clear();
        self.world.built_in(2, Some(thread));
    }

    /// The device is reset under us: its blocks are gone, and what comes after is as at the start.
    pub(super) fn reset(&mut self) {
        self.say(|| "the device is reset".to_owned());
        self.world.turn = 0;
        self.armed = None;
        self.end_all_graphs();
        self.world.look();
        let before = api::stats();
        self.tally.add_stats(&before);
        self.tally.add("reset", 1);
        self.world.machine.reset_device(0);
        self.world.start_anew();
        // Somebody has to notice.
        api::empty_cache().expect("it starts anew");
        self.live.clear();
        let lost = std::mem::take(&mut self.ages);
        for at in lost {
            // Where nothing is cached, whose an address was may be forgotten with it.
            let reset = [
                cuddy_status::CUDDY_ERROR_DEVICE_RESET,
                match self.setting.caching {
                    true => cuddy_status::CUDDY_ERROR_DEVICE_RESET,
                    false => cuddy_status::CUDDY_ERROR_FOREIGN_POINTER,
                },
            ];
            self.must_fail(&reset, move || api::free(at));
        }
        // Observers are told at the end of the next call that asks the driver.
        api::empty_cache().expect("it works");
        self.graves.clear();
        api::reset_accumulated().expect("it can");
        self.counts = Counts::default();
        self.reserved_before = api::stats().reserved;
        // What the driver would not take back outlives the device's books.
        let left = self.world.machine.sim.used(0) - self.not_ours - self.reserved_before;
        assert!(left <= before.quarantined, "{left} bytes are lost: {before:?}");
        self.not_ours += left;
        self.world.machine.sim.reset_used_peak(0).expect("a device");
        self.pools.iter_mut().for_each(|pool| pool.reserved = 0);
        self.check();
        for open in [true, false] {
            self.create_stream(false, open);
        }
        self.check();
    }
}
