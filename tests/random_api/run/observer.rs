//! An observer that frees blocks where a request finds no memory, and adds up what is got from the
//! driver and given back.

use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use cuddy::abi::observers::{
    CUDDY_EVENT_GROWTH, CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_RELEASE, cuddy_event,
};

use super::Run;
use crate::api;

/// Blocks that may be freed at any time, and those that were.
static SPARE: Mutex<(Vec<u64>, Vec<u64>)> = Mutex::new((Vec::new(), Vec::new()));
/// What was got, without what was given back.
static NET: AtomicI64 = AtomicI64::new(0);
/// Requests that found no memory, and were served after all or not.
static CALLED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C-unwind" fn told(event: *const cuddy_event, _: *mut c_void) {
    // SAFETY: it lives until this returns.
    let event = unsafe { *event };
    let bytes = event.bytes as i64;
    match event.kind {
        CUDDY_EVENT_GROWTH => drop(NET.fetch_add(bytes, Ordering::Relaxed)),
        CUDDY_EVENT_RELEASE => drop(NET.fetch_sub(bytes, Ordering::Relaxed)),
        _ => {
            CALLED.fetch_add(1, Ordering::Relaxed);
            // No lock is held: it may ask, and free.
            api::stats();
            let spare = SPARE.lock().expect("nobody panics").0.pop();
            // Where nothing is cached a free may fail, and the block is free.
            if let Some(at) = spare
                && (api::free(at).is_ok() || api::block_info(at).is_err())
            {
                SPARE.lock().expect("nobody panics").1.push(at);
            }
        }
    }
}

impl Run {
    pub(super) fn observe(&mut self) {
        let kinds = CUDDY_EVENT_OUT_OF_MEMORY | CUDDY_EVENT_GROWTH | CUDDY_EVENT_RELEASE;
        api::observe(kinds, told).expect("an observer");
    }

    /// Puts blocks that need no more than a free where the observer finds them.
    pub(super) fn offer(&self) {
        let spare = self.ages.iter().copied().filter(|at| self.may_be_freed(*at));
        SPARE.lock().expect("nobody panics").0 = spare.take(2).collect();
    }

    /// What the observer did meanwhile.
    pub(super) fn take_offer_back(&mut self) {
        let freed = {
            let spare = &mut *SPARE.lock().expect("nobody panics");
            spare.0.clear();
            std::mem::take(&mut spare.1)
        };
        for at in freed {
            self.say(|| format!("the observer freed {at:#x}"));
            self.tally.add("block freed by a callback", 1);
            self.freed(at);
        }
    }

    /// What was told adds up to what is reserved.
    pub(super) fn check_observed(&mut self, reserved: u64) {
        if self.setting.observes {
            let mut reserved = reserved;
            if NET.load(Ordering::Relaxed) != reserved as i64 {
                // What a callback gave back is told at the end of the next call that asks the driver.
                api::trim(u64::MAX).expect("it works");
                reserved = api::stats().reserved;
            }
            assert_eq!(NET.load(Ordering::Relaxed), reserved as i64, "growth without release");
            self.tally.add("callback", CALLED.swap(0, Ordering::Relaxed));
        }
    }
}
