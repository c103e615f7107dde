//! The order that the program makes between its streams, and tells.

use super::Run;
use crate::api;
use crate::machine::MIB;
use crate::program::Op;

impl Run {
    /// A stream is made to wait for another, and Cuddy is told: what the other one freed before goes
    /// over with no more ado.
    pub(super) fn note_wait(&mut self, op: &Op) {
        let (thief, donor) = (self.stream_by(op.a), self.stream_by(op.b));
        let streams = &self.world.streams;
        let threads = (streams[thief].thread, streams[donor].thread);
        if thief == donor || matches!(threads, (Some(a), Some(b)) if a != b) {
            return;
        }
        let given: Option<u64> = self.ages.iter().find_map(|&at| {
            let block = &self.live[&at];
            let own = block.home == Some(donor) && block.to_name().is_empty();
            (own && block.graph.is_none() && block.bytes < 8 * MIB).then_some(at)
        });
        let bytes = given.map(|at| self.live[&at].bytes);
        if let Some(at) = given {
            match self.must(self.world.turn, "free", move || api::free(at)) {
                Some(()) => self.freed(at),
                None => return self.settle_failed_free(at),
            }
        }
        self.world.order(donor, thief);
        let thread = threads.0.or(threads.1).unwrap_or(self.world.turn);
        let (to, from) = (self.world.handle(thief), self.world.handle(donor));
        self.must(thread, "note_wait", move || api::note_wait(to, from));
        let Some(bytes) = bytes else { return };
        let before = api::stats();
        let sim = self.world.machine.sim;
        let asked = sim.calls("cuEventQuery") + sim.calls("cuStreamQuery");
        let thread = self.world.thread_of(thief);
        let (pool, lenders) = (self.effective(thread, 0), self.lenders());
        let outcome = self.call(thread, move || api::malloc(bytes, to));
        match outcome {
            Ok(at) => {
                let pool = self.serving(pool, &lenders);
                self.born(at, bytes, Some(thief), pool, None);
                let seed = self.live[&at].seed;
                self.world.write(thief, at, bytes, seed);
                self.live.get_mut(&at).expect("born").writer = Some(thief);
            }
            Err(failed) => self.refused(&failed, bytes, pool, true),
        }
        let after = api::stats();
        let quiet = after.stream_wait_count == before.stream_wait_count
            && after.wait_count == before.wait_count
            && sim.calls("cuEventQuery") + sim.calls("cuStreamQuery") == asked;
        if quiet && after.crossing_count > before.crossing_count {
            self.tally.add("fence implied", 1);
        }
    }
}
