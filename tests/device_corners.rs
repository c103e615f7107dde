//! Moments that few programs meet: two misses that want the same, a limit that falls while memory is
//! got, no addresses left, a context that never comes back.

mod machine;

use std::sync::atomic::{AtomicBool, Ordering};

use cuddy::process;
use machine::*;

#[test]
fn a_new_segment_is_for_the_miss_that_got_it() {
    let environment = [("CUDDY_CONF", "backing:segments")];
    isolated("a_new_segment_is_for_the_miss_that_got_it", &environment, |_| {
        let over = AtomicBool::new(false);
        let failed = std::thread::scope(|scope| {
            let work = || {
                let mut outcome = Ok(());
                for _ in 0..1_000_000 {
                    outcome = outcome.and_then(|()| malloc(12 * MIB, 0)).and_then(process::free);
                }
                outcome
            };
            let workers = [scope.spawn(work), scope.spawn(work), scope.spawn(work)];
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    process::empty_cache(0).expect("the driver works");
                }
            });
            let outcomes = workers.map(|worker| worker.join().expect("it lives"));
            over.store(true, Ordering::Relaxed);
            outcomes.into_iter().find_map(Result::err)
        });
        assert_eq!(failed, None);
        assert_eq!(stats(0).active, 0);
    });
}
