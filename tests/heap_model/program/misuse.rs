//! What must change nothing: wrong addresses, and host memory that runs out.

use super::{Op, Run};
use crate::shadow::{Cell, Kind};
use cuddy::error::Error;
use cuddy::heap::{FreeError, Standing};
use cuddy::types::{Address, Stamp, StreamSlot};

impl Run {
    /// Any address is classified as the shadow sees it; what is no live block is not freed.
    pub(super) fn misuse(&mut self, op: Op) {
        let at = match op.b % 4 {
            0 => u64::from(op.a) << 9,
            1 if !self.live.is_empty() => {
                let block = self.live[op.a as usize % self.live.len()];
                block.address.0 + u64::from(op.a) % block.bytes
            }
            2 if !self.limbo.is_empty() => self.limbo[op.a as usize % self.limbo.len()].address.0,
            _ => match self.shadow.areas.get(op.a as usize % self.shadow.areas.len().max(1)) {
                Some(area) => area.start + u64::from(op.a) * 521 % area.bytes,
                None => u64::MAX,
            },
        };
        let standing = self.heap.classify(Address(at));
        let cell = self.shadow.cell(at);
        let expected = match cell {
            None => Err(FreeError::Foreign),
            Some(Cell { kind: Kind::Live(start), .. }) if start == at => Ok(()),
            Some(Cell { kind: Kind::Live(start), .. }) => {
                Err(FreeError::Interior { start: Address(start) })
            }
            Some(_) => Err(FreeError::AlreadyFree),
        };
        let agrees = match (standing, cell) {
            (Standing::Foreign, None) => true,
            (Standing::Claimed, Some(cell)) => cell.claimed,
            (_, Some(Cell { claimed: true, .. })) => false,
            (Standing::Live(block), Some(cell)) => {
                cell.kind == Kind::Live(at) && block.address.0 == at
            }
            (Standing::LiveInterior(block), Some(cell)) => {
                cell.kind == Kind::Live(block.address.0) && block.address.0 < at
            }
            (Standing::Limbo(block), Some(cell)) => cell.kind == Kind::Limbo(block.address.0),
            (Standing::Free, Some(cell)) => cell.kind == Kind::Free,
            (Standing::Gap, Some(cell)) => cell.kind == Kind::Gap,
            _ => false,
        };
        assert!(agrees, "{at:#x} is {cell:?}, not {standing:?}");
        if let Err(error) = expected {
            self.seen.misuse += 1;
            assert_eq!(self.heap.release(Address(at), |_| 1), Err(error));
            assert_eq!(self.heap.release_to_limbo(Address(at), |_| 1), Err(error));
            let stamp = Stamp { stream: StreamSlot(0), epoch: 1 };
            assert_eq!(self.heap.release_to(Address(at), stamp), Err(error.at(Address(at))));
        }
        if !matches!(cell, Some(Cell { kind: Kind::Limbo(start), .. }) if start == at) {
            assert!(self.heap.settle(Address(at)).is_err());
        }
    }

    /// The k-th reservation of host memory fails: everything is as it was. Where nothing needed k,
    /// what was got is given back, and everything is as it was too.
    pub(super) fn fail_host(&mut self, op: Op) {
        let before: Vec<_> = self.heap.blocks().collect();
        let figures = self.heap.figures();
        let request = self.request(op);
        self.heap.fail_reservation(u64::from(1 + op.b % 4));
        let done = match op.a % 4 {
            0 => self.heap.take(&request).map(|block| {
                if let Some(block) = block {
                    self.heap.release(block.address, |_| 0).expect("it is live");
                }
            }),
            1 => self.heap.claim_growth(&request, u64::MAX).map(|growth| {
                if let Some(growth) = growth {
                    self.heap.abort_growth(growth).expect("it is claimed");
                }
            }),
            2 => self.heap.claim_pages(u64::MAX, &|_| true).map(|runs| {
                for run in runs {
                    self.heap.abort_unmap(run).expect("it is claimed");
                }
            }),
            _ => self.heap.claim_segments(u64::MAX, &|_| true).map(|runs| {
                for run in runs {
                    self.heap.abort_remove(run).expect("it is claimed");
                }
            }),
        };
        self.heap.fail_reservation(0);
        if let Err(error) = done {
            assert_eq!(error, Error::HostOutOfMemory);
            self.seen.host_failures += 1;
        }
        self.heap.check();
        let after: Vec<_> = self.heap.blocks().collect();
        assert_eq!(before, after, "a failure left its traces");
        assert_eq!(figures, self.heap.figures());
    }
}
