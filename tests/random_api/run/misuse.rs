//! Mistakes of a program: each has its own status, and changes nothing.

use cuddy::error::cuddy_status;

use super::Run;
use crate::api::{self, Request};
use crate::program::Op;

impl Run {
    /// Mistakes of a program: each has its own status, and changes nothing.
    pub(super) fn misuse(&mut self, op: &Op) {
        use cuddy_status::*;
        let at = self.block_by(op.b);
        match op.a % 9 {
            0 => {
                let grave = self.graves.get(op.b as usize % self.graves.len().max(1)).copied();
                grave.into_iter().for_each(|grave| self.free_again(grave));
            }
            1 if at.is_some_and(|at| self.live[&at].bytes > 300) => {
                let inside = at.expect("some") + 256;
                self.must_fail(&[CUDDY_ERROR_INTERIOR_POINTER], move || api::free(inside));
                if let Ok((start, _, offset)) = api::block_info(inside) {
                    assert_eq!((start, offset), (inside - 256, 256));
                }
            }
            2 => self.must_fail(&[CUDDY_ERROR_FOREIGN_POINTER], || api::free(0x123_4000)),
            3 => {
                let bytes = u64::MAX - op.b % 600;
                self.must_fail(&[CUDDY_ERROR_OUT_OF_MEMORY], move || api::malloc(bytes, 0));
                self.counts.refused += u64::from(self.struck == 0);
            }
            4 => self.must_fail(&[CUDDY_ERROR_INVALID_GRAPH], || api::graph_end(1 << 40)),
            5 => self.must_fail(&[CUDDY_ERROR_INVALID_POOL], || api::pool_pop(1 << 40)),
            6 => {
                let request = Request { bytes: 1, alignment: 3, ..Request::default() };
                self.must_fail(&[CUDDY_ERROR_INVALID_ARGUMENT], move || api::malloc_ex(request));
            }
            7 => self.must_fail(&[CUDDY_ERROR_FOREIGN_POINTER], || api::record_stream(4096, 0)),
            _ => self.must_fail(&[CUDDY_ERROR_FOREIGN_POINTER], || api::free_on(4096, 0)),
        }
    }
}
