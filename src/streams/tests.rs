#![forbid(unsafe_code)]
//! Streams, as sequences of what may happen to them.

use super::*;

const HOME: Home = Home { context: 0xc0, id: 7 };

fn streams() -> Streams<u32> {
    Streams::new(HOME).expect("host memory")
}

#[test]
fn a_stamp_is_passed_by_its_own_fence_or_a_later_one() {
    let mut streams = streams();
    let early = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
    let fence = streams.begin_fence(LEGACY);
    let late = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
    streams.attach(fence, 1).expect("host memory");
    assert_eq!(streams.fence_of(early), Some((fence, 1)));
    assert_eq!(streams.fence_of(late), None);
    assert!(!streams.passed(early));
    assert_eq!(streams.pass(fence), Some(1));
    assert_eq!(streams.pass(fence), None);
    assert!(streams.passed(early) && !streams.passed(late));
    assert_eq!(streams.fence_of(early), None);
}

#[test]
fn fences_attached_out_of_order_stay_sorted() {
    let mut streams = streams();
    let (first, second) = (streams.begin_fence(LEGACY), streams.begin_fence(LEGACY));
    streams.attach(second, 2).expect("host memory");
    streams.attach(first, 1).expect("host memory");
    assert_eq!(streams.fence_of(first), Some((first, 1)));
    let oldest = |streams: &Streams<u32>| {
        let mut seen = Vec::new();
        streams.oldest_fences(|stamp, token| seen.push((stamp, *token)));
        seen
    };
    assert_eq!(oldest(&streams), [(first, 1)]);
    let done: Vec<_> = std::iter::from_fn(|| streams.pass(second)).collect();
    assert_eq!(done, [1, 2]);
    assert_eq!(oldest(&streams), []);
}

#[test]
fn a_recycled_handle_is_another_stream() {
    let mut streams = streams();
    let old = streams.hold(0x5000, 11, HOME).expect("host memory");
    assert_eq!(streams.hold(0x5000, 11, HOME), Ok(old));
    let last = streams.retire(0x5000).expect("it was held");
    assert_eq!(streams.recordable(old, 1, Some((old, 0x5000))), None);
    let new = streams.hold(0x5000, 12, HOME).expect("host memory");
    assert_ne!(old, new);
    // The old one's memory is covered by its last fence, whenever it is freed.
    assert_eq!(streams.epoch(old), last.epoch);
    assert_eq!(streams.begin_fence(old), last);
    assert_eq!(streams.retire(0x6000), None);
}

#[test]
fn a_held_stream_destroyed_without_a_word_is_not_touched_again() {
    let mut streams = streams();
    let old = streams.hold(0x5000, 11, HOME).expect("host memory");
    let new = streams.hold(0x5000, 12, HOME).expect("host memory");
    assert_eq!(streams.recordable(old, 1, None), None);
    assert_eq!(streams.recordable(new, 1, None), Some(0x5000));
}

#[test]
fn a_borrowed_stream_keeps_its_slot_when_it_is_opened() {
    let mut streams = streams();
    let borrowed = streams.add(Key::Id(5), Kind::Borrowed, 0x7000, 5, HOME).expect("host memory");
    assert_eq!(streams.recordable(borrowed, 1, None), None);
    assert_eq!(streams.recordable(borrowed, 1, Some((borrowed, 0x7000))), Some(0x7000));
    assert_eq!(streams.hold(0x7000, 5, HOME), Ok(borrowed));
    assert_eq!(streams.recordable(borrowed, 1, None), Some(0x7000));
}

#[test]
fn a_per_thread_stream_is_fenced_by_its_thread_alone() {
    let mut streams = streams();
    let slot = streams.add(Key::Thread(3), Kind::PerThread(3), 2, 0, HOME).expect("host memory");
    assert_eq!(streams.recordable(slot, 3, None), Some(2));
    assert_eq!(streams.recordable(slot, 4, Some((slot, 2))), None);
}

#[test]
fn a_wait_for_a_context_covers_its_streams_and_no_others() {
    let mut streams = streams();
    let other = Home { context: 0xd0, id: 8 };
    let here = streams.hold(1 << 12, 1, HOME).expect("host memory");
    let there = streams.hold(2 << 12, 2, other).expect("host memory");
    let stamps = streams.begin_fences_of(HOME).expect("host memory");
    let slots: Vec<_> = stamps.iter().map(|stamp| stamp.stream).collect();
    assert_eq!(slots, [LEGACY, ANY, EVERYBODY, here]);
    assert_eq!(streams.epoch(there), 1);
}

fn now(streams: &Streams<u32>, stream: StreamSlot) -> Stamp {
    Stamp { stream, epoch: streams.epoch(stream) }
}

fn held(streams: &mut Streams<u32>, id: u64) -> StreamSlot {
    streams.hold((id as usize) << 12, id, HOME).expect("host memory")
}

#[test]
fn what_was_stamped_before_a_wait_is_seen_and_what_comes_after_is_not() {
    let mut streams = streams();
    let (a, b) = (held(&mut streams, 1), held(&mut streams, 2));
    let before = now(&streams, a);
    assert!(!streams.has_seen(b, before) && streams.has_seen(a, before));
    streams.note_wait(b, a).expect("host memory");
    let after = now(&streams, a);
    assert!(streams.has_seen(b, before) && !streams.has_seen(b, after));
    assert!(!streams.has_seen(a, now(&streams, b)), "a wait orders one way");
}

/// Waits of random streams for each other, against a closure over all of them.
#[test]
fn seen_is_a_vector_clock() {
    const STREAMS: usize = 5;
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % below
    };
    for _ in 0..200 {
        let mut streams = streams();
        let slots: Vec<_> = (1..=STREAMS as u64).map(|id| held(&mut streams, id)).collect();
        // The shadow: of each stream, the set of stamps that its next work comes after.
        let mut frees: Vec<Stamp> = Vec::new();
        let mut after: Vec<Vec<bool>> = vec![Vec::new(); STREAMS];
        for _ in 0..60 {
            let (one, other) = (random(STREAMS), random(STREAMS));
            if random(2) == 0 {
                frees.push(now(&streams, slots[one]));
                after.iter_mut().enumerate().for_each(|(who, seen)| seen.push(who == one));
            } else {
                streams.note_wait(slots[one], slots[other]).expect("host memory");
                let theirs = after[other].clone();
                after[one].iter_mut().zip(theirs).for_each(|(seen, theirs)| *seen |= theirs);
            }
        }
        for (who, slot) in slots.iter().enumerate() {
            for (at, &stamp) in frees.iter().enumerate() {
                assert_eq!(streams.has_seen(*slot, stamp), after[who][at], "{who} {stamp:?}");
            }
        }
    }
}

#[test]
fn a_vacated_slot_goes_on_with_its_epochs() {
    let mut streams = streams();
    let old = streams.add(Key::Id(5), Kind::Borrowed, 0x7000, 5, HOME).expect("host memory");
    let used = now(&streams, old);
    assert_eq!(streams.idle(), None, "its memory may be in use");
    let fence = streams.begin_fence(old);
    streams.attach(fence, 1).expect("host memory");
    while streams.pass(fence).is_some() {}
    streams.pin(old);
    assert_eq!(streams.idle(), None, "a call is using it");
    streams.unpin(old);
    let reader = held(&mut streams, 1);
    streams.note_wait(reader, old).expect("host memory");
    streams.note_wait(old, reader).expect("host memory");
    assert_eq!(streams.idle(), Some(old));
    streams.vacate(old);
    assert_eq!((streams.find(Key::Id(5)), streams.vacated()), (None, 1));
    assert_eq!(streams.idle(), None, "it is vacant already");
    let new = streams.add(Key::Id(6), Kind::Borrowed, 0x8000, 6, HOME).expect("host memory");
    assert_eq!(new, old);
    assert!(streams.passed(used) && !streams.passed(now(&streams, new)));
    assert!(!streams.has_seen(reader, now(&streams, new)), "that was another stream");
    assert!(!streams.has_seen(new, Stamp { stream: reader, epoch: 1 }), "so was that");
}

#[test]
fn a_fence_is_due_when_it_is_wanted_or_many_frees_have_gathered() {
    let mut streams = streams();
    let one = streams.add(Key::Id(5), Kind::Borrowed, 0x7000, 5, HOME).expect("host memory");
    let held = held(&mut streams, 1);
    assert!(!streams.is_due(one));
    streams.want_fence(one);
    streams.want_fence(held);
    assert!(streams.is_due(one) && !streams.is_due(held));
    streams.begin_fence(one);
    assert!(!streams.is_due(one));
    (0..FREES_A_FENCE).for_each(|_| {
        assert!(!streams.is_due(one));
        streams.epoch(one);
    });
    assert!(streams.is_due(one));
}

#[test]
fn after_a_reset_nothing_is_pending_and_created_streams_are_gone() {
    let mut streams = streams();
    let held = streams.hold(0x5000, 11, HOME).expect("host memory");
    let stamp = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
    let fence = streams.begin_fence(held);
    streams.attach(fence, 1).expect("host memory");
    let home = Home { context: 0xc0, id: 9 };
    streams.reset(home);
    assert!(streams.passed(stamp) && streams.passed(fence));
    assert_eq!((streams.fence_of(fence), streams.find(Key::Held(0x5000))), (None, None));
    assert_eq!((streams.home(LEGACY), streams.find(Key::Id(11))), (home, None));
    let next = Stamp { stream: LEGACY, epoch: streams.epoch(LEGACY) };
    assert!(!streams.passed(next));
}
