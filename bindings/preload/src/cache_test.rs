//! The cache against a shadow that only knows what a cache of whole blocks is.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const CAP: u64 = 64 << 20;

#[derive(Clone, Debug)]
enum Step {
    Request {
        context: usize,
        bytes: u64,
    },
    /// Frees the n-th live block, clean at once or by way of limbo.
    Free {
        which: usize,
        clean: bool,
    },
    /// Offset 0 is a second free.
    WrongFree {
        which: usize,
        offset: u64,
    },
    Taint {
        which: usize,
    },
    Seal {
        context: usize,
    },
    /// The n-th fence passes, or is taken back.
    Fence {
        which: usize,
        passes: bool,
    },
    Over {
        device: i32,
    },
    Flush {
        device: i32,
        only_clean: bool,
    },
    Forget {
        which: usize,
    },
    End {
        context: usize,
        really: bool,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let context = 1..4usize;
    let device = 0..2i32;
    let bytes = prop_oneof![
        1..5000u64,
        (1..40u64).prop_map(|n| n * 512),
        (1..40u64).prop_map(|n| (n << 19) + 7),
        Just((2 << 20) - 1),
        Just(2 << 20),
        Just(100 << 20),
    ];
    let which = any::<usize>();
    let step = prop_oneof![
        12 => (context.clone(), bytes).prop_map(|(context, bytes)| Step::Request { context, bytes }),
        10 => (which, any::<bool>()).prop_map(|(which, clean)| Step::Free { which, clean }),
        1 => (which, prop_oneof![Just(0u64), 1..100_000u64])
            .prop_map(|(which, offset)| Step::WrongFree { which, offset }),
        1 => which.prop_map(|which| Step::Taint { which }),
        3 => context.clone().prop_map(|context| Step::Seal { context }),
        3 => (which, prop::bool::weighted(0.8)).prop_map(|(which, passes)| Step::Fence { which, passes }),
        3 => device.clone().prop_map(|device| Step::Over { device }),
        1 => (device, any::<bool>()).prop_map(|(device, only_clean)| Step::Flush { device, only_clean }),
        1 => which.prop_map(|which| Step::Forget { which }),
        1 => (context, any::<bool>()).prop_map(|(context, really)| Step::End { context, really }),
    ];
    prop::collection::vec(step, 1..200)
}

#[derive(Clone, Debug, PartialEq)]
enum Is {
    Live(u64),
    Limbo,
    Fenced(u64),
    Clean,
}

#[derive(Clone, Debug)]
struct Known {
    context: usize,
    capacity: u64,
    is: Is,
    tainted: bool,
    freed: u64,
}

/// Contexts 1 and 2 are of device 0, 3 of device 1.
fn device(context: usize) -> i32 {
    i32::from(context == 3)
}

#[derive(Default)]
struct Shadow {
    blocks: BTreeMap<u64, Known>,
    fences: Vec<(usize, u64)>,
    /// The next address that was never given.
    next: u64,
    /// What the driver had back, and gives again, by capacity.
    again: BTreeMap<u64, Vec<u64>>,
    clock: u64,
}

impl Shadow {
    /// The driver has a block back.
    fn gone(&mut self, address: u64) -> Option<Known> {
        let block = self.blocks.remove(&address)?;
        self.again.entry(block.capacity).or_default().push(address);
        Some(block)
    }

    fn nth(&self, which: usize, live: bool) -> Option<u64> {
        let of = |known: &Known| matches!(known.is, Is::Live(_)) == live;
        let all: Vec<_> = self.blocks.iter().filter(|(_, b)| of(b)).map(|(a, _)| *a).collect();
        (!all.is_empty()).then(|| all[which % all.len()])
    }

    fn cached(&self, of: i32) -> u64 {
        let cached = self.blocks.values().filter(|b| device(b.context) == of && !b.is_live());
        cached.map(|b| b.capacity).sum()
    }

    fn oldest(&self, of: i32) -> Option<u64> {
        let cached = self.blocks.iter().filter(|(_, b)| device(b.context) == of && !b.is_live());
        cached.min_by_key(|(_, b)| b.freed).map(|(address, _)| *address)
    }

    fn fits(&self, context: usize, bytes: u64, clean: bool) -> Option<u64> {
        let most = capacity_of(bytes).max(bytes + bytes / 8);
        let fit = |b: &&Known| {
            b.context == context
                && !b.is_live()
                && (b.is == Is::Clean) == clean
                && (bytes..=most).contains(&b.capacity)
        };
        self.blocks.values().filter(fit).map(|b| b.capacity).min()
    }
}

impl Known {
    fn is_live(&self) -> bool {
        matches!(self.is, Is::Live(_))
    }
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut cache = Cache::new();
    let mut shadow = Shadow { next: 1 << 30, ..Shadow::default() };
    let introduce = |cache: &mut Cache| {
        (1..4).for_each(|context| cache.introduce(context, device(context), CAP));
    };
    introduce(&mut cache);
    for step in steps {
        shadow.clock += 1;
        match step {
            Step::Request { context, bytes } => {
                prop_assert_eq!(
                    cache.waits(context, bytes),
                    shadow.fits(context, bytes, false).is_some()
                );
                let best = shadow.fits(context, bytes, true);
                match cache.take(context, bytes) {
                    Some(address) => {
                        let block = shadow.blocks.get_mut(&address).expect("a block of ours");
                        prop_assert!(block.is == Is::Clean && block.context == context);
                        prop_assert_eq!(Some(block.capacity), best);
                        block.is = Is::Live(bytes);
                    }
                    None => {
                        prop_assert_eq!(best, None);
                        let capacity = capacity_of(bytes);
                        prop_assert!(capacity >= bytes && capacity - bytes < LARGE);
                        let again = shadow.again.entry(capacity).or_default().pop();
                        let address = again.unwrap_or(shadow.next);
                        if again.is_none() {
                            shadow.next += capacity + 4096;
                        }
                        cache.admit(context, address, capacity, bytes);
                        let (is, tainted, freed) = (Is::Live(bytes), false, 0);
                        shadow
                            .blocks
                            .insert(address, Known { context, capacity, is, tainted, freed });
                    }
                }
            }
            Step::Free { which, clean } => {
                let Some(address) = shadow.nth(which, true) else { continue };
                let block = shadow.blocks.get_mut(&address).expect("it is there");
                let expected = if block.tainted {
                    Leave::Pass(Why::Tainted)
                } else if block.capacity > CAP {
                    Leave::Pass(Why::TooLarge)
                } else {
                    Leave::Keep { context: block.context, device: device(block.context) }
                };
                prop_assert_eq!(cache.leave(address), expected);
                if matches!(expected, Leave::Pass(_)) {
                    shadow.gone(address);
                    prop_assert_eq!(cache.look(address), Place::Unknown);
                    continue;
                }
                // While it leaves, it is nobody's.
                prop_assert_eq!(cache.leave(address), Leave::Dead);
                block.freed = shadow.clock;
                if clean {
                    cache.settle(address);
                    block.is = Is::Clean;
                } else {
                    cache.rest(address);
                    block.is = Is::Limbo;
                }
            }
            Step::WrongFree { which, offset } => {
                if let Some(address) = shadow.nth(which, false) {
                    prop_assert_eq!(cache.leave(address), Leave::Dead);
                }
                if let (Some(address), true) = (shadow.nth(which, true), offset > 0) {
                    let block = &shadow.blocks[&address];
                    let Is::Live(asked) = block.is else { unreachable!() };
                    let expected = match offset {
                        offset if offset < asked => Leave::Inside,
                        offset if offset < block.capacity => Leave::Dead,
                        _ => continue,
                    };
                    prop_assert_eq!(cache.leave(address + offset), expected);
                }
            }
            Step::Taint { which } => {
                let Some(address) = shadow.nth(which, true) else { continue };
                cache.taint(address);
                shadow.blocks.get_mut(&address).expect("it is there").tainted = true;
            }
            Step::Seal { context } => {
                let limbo = |b: &&mut Known| b.context == context && b.is == Is::Limbo;
                let epoch = cache.seal(context);
                let mut any = false;
                for block in shadow.blocks.values_mut().filter(limbo) {
                    any = true;
                    block.is = Is::Fenced(epoch.unwrap_or(0));
                }
                prop_assert_eq!(epoch.is_some(), any);
                shadow.fences.extend(epoch.map(|epoch| (context, epoch)));
            }
            Step::Fence { which, passes } => {
                if shadow.fences.is_empty() {
                    continue;
                }
                let at = which % shadow.fences.len();
                let (context, epoch) = shadow.fences[at];
                let mut hit = |of: &dyn Fn(u64) -> bool, is: Is| {
                    for block in shadow.blocks.values_mut().filter(|b| b.context == context) {
                        if matches!(block.is, Is::Fenced(its) if of(its)) {
                            block.is = is.clone();
                        }
                    }
                    shadow.fences.retain(|(its, epoch)| *its != context || !of(*epoch));
                };
                if passes {
                    cache.passed(context, epoch);
                    hit(&|its| its <= epoch, Is::Clean);
                } else {
                    cache.unseal(context, epoch);
                    hit(&|its| its == epoch, Is::Limbo);
                }
            }
            Step::Over { device } => {
                for victim in cache.over(device) {
                    prop_assert!(shadow.cached(device) > CAP);
                    prop_assert_eq!(shadow.oldest(device), Some(victim.address));
                    shadow.gone(victim.address);
                }
                prop_assert!(shadow.cached(device) <= CAP);
            }
            Step::Flush { device: of, only_clean } => {
                let victims = cache.flush(of, only_clean);
                let goes = |b: &Known| {
                    device(b.context) == of && !b.is_live() && (!only_clean || b.is == Is::Clean)
                };
                let expected = shadow.blocks.values().filter(|b| goes(b)).count();
                prop_assert_eq!(victims.len(), expected);
                for victim in victims {
                    let gone = shadow.gone(victim.address).expect("once");
                    prop_assert!(goes(&gone) && gone.capacity == victim.capacity);
                    prop_assert_eq!(gone.context, victim.context);
                }
            }
            Step::Forget { which } => {
                let Some(address) = shadow.nth(which, true) else { continue };
                cache.forget(address);
                shadow.gone(address);
            }
            Step::End { context, really } => {
                let aside = cache.set_aside(context).expect("it was introduced");
                for (address, block) in &shadow.blocks {
                    let gone = block.context == context;
                    prop_assert_eq!(cache.look(*address) == Place::Unknown, gone);
                }
                shadow.fences.retain(|(its, _)| *its != context);
                if really {
                    drop(aside);
                    introduce(&mut cache);
                    shadow.blocks.retain(|_, block| block.context != context);
                } else {
                    cache.put_back(aside);
                    for block in shadow.blocks.values_mut().filter(|b| b.context == context) {
                        if matches!(block.is, Is::Fenced(_)) {
                            block.is = Is::Limbo;
                        }
                        if !block.is_live() {
                            // By address, among those that have come back.
                            shadow.clock += 1;
                            block.freed = shadow.clock;
                        }
                    }
                }
            }
        }
        agree(&cache, &shadow)?;
    }
    Ok(())
}

fn agree(cache: &Cache, shadow: &Shadow) -> Result<(), TestCaseError> {
    for device in 0..2 {
        prop_assert_eq!(cache.cached(device), shadow.cached(device));
    }
    let tally = cache.tally();
    let live = |b: &Known| if let Is::Live(asked) = b.is { asked } else { 0 };
    prop_assert_eq!(tally.live, shadow.blocks.values().map(live).sum::<u64>());
    prop_assert_eq!(tally.held, shadow.blocks.values().map(|b| b.capacity).sum::<u64>());
    prop_assert!(tally.live <= tally.live_peak && tally.held <= tally.held_peak);
    for (address, block) in &shadow.blocks {
        let inside = cache.look(address + block.capacity - 1);
        match block.is {
            Is::Live(asked) => {
                let Place::Live { base, asked: said, capacity, .. } =
                    cache.look(address + asked - 1)
                else {
                    return Err(TestCaseError::fail("a live block is not known"));
                };
                prop_assert_eq!((base, said, capacity), (*address, asked, block.capacity));
                prop_assert_eq!(inside == Place::Dead, asked < block.capacity);
            }
            _ => prop_assert_eq!(inside, Place::Dead),
        }
        prop_assert_eq!(cache.look(address + block.capacity), Place::Unknown);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn it_is_what_the_shadow_is(steps in steps()) {
        run(steps)?;
    }
}

#[test]
fn sizes_are_the_drivers() {
    for (bytes, capacity) in [
        (1, 512),
        (512, 512),
        (513, 1024),
        ((2 << 20) - 1, 2 << 20),
        (2 << 20, 2 << 20),
        ((2 << 20) + 1, 4 << 20),
        (u64::MAX, u64::MAX),
        (u64::MAX - 511, u64::MAX - 511),
    ] {
        assert_eq!(capacity_of(bytes), capacity, "{bytes}");
    }
}

#[test]
fn a_reuse_has_a_number_of_its_own() {
    let mut cache = Cache::new();
    cache.introduce(1, 0, CAP);
    cache.admit(1, 4096, 512, 500);
    let reuse = |cache: &Cache| match cache.look(4096) {
        Place::Live { reuse, .. } => reuse,
        other => panic!("{other:?}"),
    };
    assert_eq!(reuse(&cache), 0);
    for n in 1..4 {
        assert!(matches!(cache.leave(4096), Leave::Keep { .. }));
        cache.settle(4096);
        assert_eq!(cache.take(1, 512), Some(4096));
        assert_eq!(reuse(&cache), n);
    }
    // A context that was never introduced has nothing.
    assert_eq!((cache.take(9, 512), cache.waits(9, 512), cache.seal(9)), (None, false, None));
    assert!(cache.set_aside(9).is_none());
}
