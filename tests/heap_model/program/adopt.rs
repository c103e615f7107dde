//! Memory that crosses from one stream to another: searched for, and adopted.

use super::{Op, Run};
use crate::shadow::{Cell, Kind};
use cuddy::heap::{Found, Quest, Request, Spot};
use cuddy::types::Stamp;

impl Run {
    /// Looks for memory of any stream, in steps of any size; adopts what is found.
    pub(super) fn adopt(&mut self, op: Op) {
        let request = self.request(op);
        let any = op.b.is_multiple_of(2);
        let clock = self.clock.clone();
        let passed = move |stream: u32, epoch: u64| any || epoch <= clock[stream as usize].1;
        let mut usable = |stamp: Stamp| passed(stamp.stream.0, stamp.epoch);
        let (runs, effort) = (op.b & 2 == 0, 1 + (op.b >> 8) as usize % 7);
        let mut quest = Quest::new(&request, usize::MAX, runs);
        let found = loop {
            match self.heap.search(&mut quest, &mut usable, effort) {
                Found::NotYet => {}
                Found::Spot(spot) => break Some(spot),
                Found::Nothing => break None,
            }
        };
        let may_use = |cell: Cell| {
            cell.kind == Kind::Free && !cell.claimed && passed(cell.stream, cell.epoch)
        };
        let Some(spot) = found else {
            if any && self.compares_now() {
                self.nothing_is_missed(&request, runs);
            }
            return;
        };
        let (from, to) = (spot.address().0, spot.address().0 + request.bytes);
        assert!(self.shadow.whole(from, to, may_use), "{spot:?} may not be used");
        self.stamps_cover(spot, &request);
        // Somebody else may come first.
        if op.b >> 28 == 0 {
            let block = self.heap.adopt(spot, &request, &mut |_| false).expect("memory");
            assert_eq!(block, None, "memory that may not be used any more");
        }
        let block = self.heap.adopt(spot, &request, &mut usable).expect("memory");
        let block = block.expect("nothing has changed");
        assert_eq!(block.address, spot.address());
        self.is_as_asked(&block, &request);
        self.seen.adopted += 1;
        let Stamp { stream, epoch } = request.stamp;
        self.shadow.paint(from, to, |_| Cell {
            kind: Kind::Live(from),
            claimed: false,
            stream: stream.0,
            epoch,
        });
        self.live.push(block);
        assert_eq!(self.heap.adopt(spot, &request, &mut |_| true), Ok(None), "it is not free");
    }

    /// Every byte's last use is covered by a stamp of the spot.
    fn stamps_cover(&self, spot: Spot, request: &Request) {
        let mut stamps = Vec::new();
        self.heap.stamps_of(spot, request.bytes, &mut |stamp| stamps.push(stamp));
        let from = spot.address().0;
        for (_, _, cell) in self.shadow.over(from, from + request.bytes) {
            let covers = |s: &Stamp| s.stream.0 == cell.stream && s.epoch >= cell.epoch;
            assert!(stamps.iter().any(covers), "a use of {spot:?} is forgotten");
        }
    }

    fn nothing_is_missed(&self, request: &Request, runs: bool) {
        let fits = |(from, to): (u64, u64)| {
            from.next_multiple_of(request.alignment).saturating_add(request.bytes) <= to
        };
        let free = |cell: Cell| cell.kind == Kind::Free && !cell.claimed;
        for stream in 0..self.geometry.streams {
            let mine = self.shadow.runs(|cell| free(cell) && cell.stream == stream);
            assert!(!mine.into_iter().any(fits), "{request:?} fits a block, and is refused");
        }
        if runs {
            let all = self.shadow.runs(free);
            assert!(!all.into_iter().any(fits), "{request:?} fits a run, and is refused");
        }
    }

    /// A block's owner changes while it is live.
    pub(super) fn give(&mut self, op: Op) {
        if self.live.is_empty() {
            return;
        }
        let at = op.a as usize % self.live.len();
        let stream = cuddy::types::StreamSlot((op.b >> 8) % self.geometry.streams);
        let block = self.heap.give_to(self.live[at].address, stream).expect("it is live");
        self.live[at].stream = stream;
        assert_eq!(block, self.live[at]);
        self.shadow.paint(block.address.0, block.address.0 + block.bytes, |cell| Cell {
            stream: stream.0,
            epoch: 0,
            ..cell
        });
    }
}
