//! The Rust face: owners give back what they own, in order, whatever happens meanwhile.

mod machine;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use cuddy::{Buffer, Error, Pool, Request, Stream};
use machine::{MIB, isolated};

fn allocated() -> u64 {
    cuddy::memory_stats(0).expect("there is a device").allocated
}

fn stream(handle: usize) -> Stream {
    // SAFETY: no scenario destroys a stream.
    unsafe { Stream::from_raw(std::ptr::with_exposed_provenance_mut(handle)) }
}

#[test]
fn buffers() {
    isolated("buffers", &[("SIMCUDA_MEMORY", "512MiB"), ("SIMCUDA_CHECKER", "abort")], |machine| {
        machine.use_device(0);
        let mut buffer = Buffer::<f32>::new(1 << 20).expect("memory");
        assert_eq!((buffer.len(), allocated()), (1 << 20, 4 * MIB));
        assert_eq!(buffer.as_ptr() as u64, buffer.address());
        assert_eq!(buffer.as_mut_ptr() as u64 % 512, 0);
        let at = buffer.address();
        drop(buffer);
        assert_eq!(allocated(), 0);
        let again = Buffer::<f32>::new(1 << 20).expect("memory");
        assert_eq!(again.address(), at, "it comes back in the order of its stream");
        again.free().expect("it is live");

        let empty = Buffer::<u8>::new(0).expect("nothing");
        assert!(empty.is_empty() && empty.as_ptr().is_null());
        let huge = Buffer::<u64>::new(usize::MAX / 4).expect_err("no device has it").to_string();
        assert!(huge.contains("address space"), "{huge}");
        let Err(Error::OutOfMemory(why)) = Buffer::<u8>::new(600 << 20) else {
            panic!("the device has 512 MiB");
        };
        assert!(why.contains("600.0 MiB"), "{why}");
        let misaligned = Request { alignment: 3, ..Request::default() };
        assert!(matches!(Buffer::<u8>::with(1, &misaligned), Err(Error::InvalidArgument { .. })));
        let aligned = Request { alignment: MIB, ..Request::default() };
        let aligned = Buffer::<u8>::with(1, &aligned).expect("memory");
        assert_eq!(aligned.address() % MIB, 0);
        let handed = aligned.into_address();
        cuddy::process::free(handed).expect("nobody else has freed it");
        assert_eq!(allocated(), 0);
    });
}

/// A request of this stream's.
fn on(stream: Stream) -> Request<'static> {
    Request { stream, ..Request::default() }
}

/// The checker ends the process if two uses of the same bytes are not ordered.
#[test]
fn order() {
    isolated("order", &[("SIMCUDA_CHECKER", "abort")], |machine| {
        machine.use_device(0);
        let handles = (machine.stream(), machine.stream());
        let (first, second) = (stream(handles.0), stream(handles.1));
        let new = |stream| Buffer::<u8>::with(2 * MIB as usize, &on(stream)).expect("memory");
        let fill = |handle, buffer: &Buffer<u8>| {
            machine.fill(handle, buffer.address(), 1, buffer.len() as u64);
        };
        let recorded = new(first);
        assert_eq!(recorded.stream(), first);
        fill(handles.1, &recorded);
        recorded.record_stream(second).expect("it exists");
        drop(recorded);
        let next = new(first);
        fill(handles.0, &next);

        // The program's own order: what is given to a stream is that stream's at once.
        machine.order(handles.0, handles.1);
        let at = next.address();
        next.free_on(second).expect("it is live");
        let got = new(second);
        assert_eq!(got.address(), at);
        fill(handles.1, &got);
        // On another thread than it was made on.
        std::thread::spawn(move || drop(got)).join().expect("it ends");

        let until = new(first);
        fill(handles.1, &until);
        let event = machine.event(handles.1);
        // SAFETY: the event exists.
        unsafe { until.free_after(std::ptr::with_exposed_provenance_mut(event)) }
            .expect("it is live");
        fill(handles.0, &new(first));
        assert_eq!(allocated(), 0);
    });
}

#[test]
fn streams() {
    isolated("streams", &[("SIMCUDA_CHECKER", "abort")], |machine| {
        machine.use_device(0);
        let first = stream(machine.stream());
        let held = first.hold(0).expect("it exists");
        drop(Buffer::<u8>::with(1, &on(held.stream())).expect("memory"));
        drop(held);
        drop(first.hold(0).expect("it can be held again"));
        assert!(matches!(first.hold(cuddy::CURRENT_DEVICE), Err(Error::InvalidDevice { .. })));
        let patient =
            Request { longest_wait: Some(Duration::from_secs(1)), ..on(Stream::PER_THREAD) };
        drop(Buffer::<u8>::with(1, &patient).expect("memory"));
        drop(Buffer::<u8>::with(1, &on(Stream::ANY)).expect("memory"));
        let nowhere = Request { device: 7, ..Request::default() };
        assert!(matches!(Buffer::<u8>::with(1, &nowhere), Err(Error::InvalidDevice { .. })));
    });
}

#[test]
fn pools_and_scopes_end_with_a_panic_too() {
    isolated("pools_and_scopes_end_with_a_panic_too", &[], |machine| {
        machine.use_device(0);
        let pool = Pool::new(0, Some(8 * MIB)).expect("a pool");
        let inside = |bytes: u64| Buffer::<u8>::new(bytes as usize);
        let kept = pool.inside(|| inside(MIB)).expect("it can be entered").expect("memory");
        assert_eq!(pool.stats().expect("it is live").allocated, MIB);
        let outside = inside(MIB).expect("memory");
        assert_eq!(pool.stats().expect("it is live").allocated, MIB, "it was left");
        assert!(pool.inside(|| inside(16 * MIB)).expect("it can be entered").is_err());

        let panicked = catch_unwind(AssertUnwindSafe(|| {
            pool.inside(|| cuddy::scope("step", || panic!("on purpose"))).map(|_| ())
        }));
        assert!(panicked.is_err());
        let other = inside(MIB).expect("memory");
        assert_eq!(pool.stats().expect("it is live").allocated, MIB, "a panic left it");
        let begun = cuddy::scope("step", || inside(1000)).expect("a name").expect("memory");
        begun.annotate("weights").expect("scopes are in use");
        assert!(cuddy::leaks("step").expect("a scope").contains("\"weights\""));
        assert!(cuddy::leaks("step").expect("a scope").contains("\"requested\":1000,"));
        assert!(cuddy::scopes().expect("scopes").contains("\"path\":\"step\",\"runs\":2,"));
        drop(inside(1000).expect("memory"));
        let outer = cuddy::scope("after", cuddy::scopes).expect("a name").expect("scopes");
        assert!(outer.contains("\"path\":\"after\""), "the panic's scope has ended: {outer}");
        assert!(cuddy::scope("a/b", || ()).is_err());
        drop((outside, other, begun));
        assert!(!cuddy::leaks("step").expect("a scope").contains("address"));
        drop(pool);
        drop(kept);
        cuddy::empty_cache(0).expect("the driver takes it");
        assert_eq!(cuddy::memory_stats(0).expect("a device").reserved, 0);
        assert!(cuddy::memory_summary(0).expect("a device").contains("live blocks"));
    });
}
