#![forbid(unsafe_code)]
//! A fence: an event that was recorded behind a stream's (or a whole context's) work, and a count of
//! those who hold it. `count == copies of the fence`; with the last copy the event is free again.
//!
//! An `Arc` would do but for host memory: it cannot be asked to fail. The counts come from vectors
//! that are never given back, and are used again; there are as many as events were in use at once.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::Event;
use crate::streams::Home;

/// A copy of a fence.
#[derive(Debug)]
pub(super) struct Fence {
    event: Event,
    home: Home,
    /// Recorded over the whole context: it waits for streams that nobody asked about.
    wide: bool,
    count: Count,
}

/// How many hold a fence; 0 for one that is spare.
#[derive(Debug)]
pub(super) struct Count(&'static AtomicU32);

impl Count {
    /// A count for a new fence, if there is host memory for it.
    pub(super) fn new() -> Option<Self> {
        let mut place = Vec::new();
        place.try_reserve_exact(1).ok()?;
        place.push(AtomicU32::new(0));
        place.leak().first().map(Self)
    }
}

impl Fence {
    /// The first copy.
    pub(super) fn new(event: Event, home: Home, wide: bool, count: Count) -> Self {
        count.0.store(1, Ordering::Relaxed);
        Self { event, home, wide, count }
    }

    /// Whether it was recorded over a whole context.
    pub(super) fn is_wide(&self) -> bool {
        self.wide
    }

    /// The event that was recorded.
    pub(super) fn event(&self) -> Event {
        self.event
    }

    /// The context that the event is of.
    pub(super) fn home(&self) -> Home {
        self.home
    }

    /// Lets this copy go; the last one gives what the fence was made of.
    pub(super) fn into_parts(self) -> Option<(Event, Home, Count)> {
        let last = self.let_go();
        let parts = last.then_some((self.event, self.home, Count(self.count.0)));
        std::mem::forget(self);
        parts
    }

    /// Counts one copy less; whether it was the last. The others' uses of the event come before its
    /// next use.
    fn let_go(&self) -> bool {
        self.count.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// A copy that is dropped is let go too, but the last one should not be: its event would be lost.
impl Drop for Fence {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Clone for Fence {
    fn clone(&self) -> Self {
        self.count.0.fetch_add(1, Ordering::Relaxed);
        let Self { event, home, wide, .. } = *self;
        Self { event, home, wide, count: Count(self.count.0) }
    }
}

/// Fences of the device's own context and counts that nobody holds. In each list there is always
/// room for all that is in use: giving back never fails.
#[derive(Default)]
pub(super) struct Spares {
    events: Vec<Event>,
    counts: Vec<Count>,
    in_use: usize,
}

impl Spares {
    /// Takes a count, and an event if one is spare and `own` says that it is wanted; `None` if host
    /// memory ran out.
    pub(super) fn take(&mut self, own: bool) -> Option<(Count, Option<Event>)> {
        self.events.try_reserve(self.in_use + 1).ok()?;
        self.counts.try_reserve(self.in_use + 1).ok()?;
        let count = self.counts.pop().or_else(Count::new)?;
        self.in_use += 1;
        Some((count, if own { self.events.pop() } else { None }))
    }

    /// Gives back a count, and the event if it can be used again.
    pub(super) fn give(&mut self, count: Count, event: Option<Event>) {
        self.in_use = self.in_use.saturating_sub(1);
        self.counts.push(count);
        self.events.extend(event);
    }

    /// Forgets the events: their context is gone.
    pub(super) fn forget_events(&mut self) {
        self.events.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Home = Home { context: 0xc0, id: 7 };

    #[test]
    fn only_the_last_copy_gives_the_event_back() {
        let mut spares = Spares::default();
        let (count, event) = spares.take(true).expect("memory");
        assert_eq!(event, None);
        let first = Fence::new(Event(5), HOME, false, count);
        let (second, dropped) = (first.clone(), first.clone());
        assert!(first.into_parts().is_none());
        drop(dropped);
        let (event, home, count) = second.into_parts().expect("the last");
        assert_eq!((event, home), (Event(5), HOME));
        spares.give(count, Some(event));
        assert_eq!(spares.take(true).expect("memory").1, Some(Event(5)));
        assert_eq!(spares.take(false).expect("memory").1, None);
    }
}
