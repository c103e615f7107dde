//! What a **host thread** has: its device, its last error, and the launch that it is about to make.

use crate::{Code, Outcome, code, device, driver};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEVICE: Cell<i32> = const { Cell::new(0) };
    static LAST: Cell<Code> = const { Cell::new(0) };
    static LAUNCHES: RefCell<Vec<Launch>> = const { RefCell::new(Vec::new()) };
}

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

/// What `kernel<<<grid, block, shared, stream>>>` says, on its way to the launch.
#[derive(Clone, Copy)]
pub struct Launch {
    pub grid: Dim3,
    pub block: Dim3,
    pub shared: usize,
    pub stream: u64,
}

/// Runs a function's body; a failure is the thread's last error from then on. No panic leaves it.
pub fn noted(body: impl FnOnce() -> Outcome) -> Code {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(code::UNKNOWN));
    let code = result.err().unwrap_or(0);
    if code != 0 {
        let _ = LAST.try_with(|last| last.set(code));
    }
    code
}

/// The last error; it is forgotten if asked so.
pub fn last(forget: bool) -> Code {
    LAST.with(|last| if forget { last.replace(0) } else { last.get() })
}

/// The thread's device: that of its current context, else what it set.
pub fn device() -> i32 {
    let (mut context, mut device) = (0, 0);
    let current = driver::cuCtxGetCurrent(&mut context).is_ok() && context != 0;
    if current && driver::cuCtxGetDevice(&mut device).is_ok() { device } else { DEVICE.get() }
}

/// Makes a device the thread's, and its primary context current.
pub fn set_device(device: i32) -> Outcome {
    let context = device::primary(device)?;
    DEVICE.set(device);
    driver::cuCtxSetCurrent(context)
}

/// A context is current from here on: the thread's own, or the primary one of its device.
pub fn context() -> Outcome {
    device::start()?;
    let mut context = 0;
    driver::cuCtxGetCurrent(&mut context)?;
    if context != 0 { Ok(()) } else { set_device(DEVICE.get()) }
}

/// Keeps a launch for the stub that follows.
pub fn push(launch: Launch) {
    LAUNCHES.with_borrow_mut(|all| all.push(launch));
}

/// Takes it again.
pub fn pop() -> Option<Launch> {
    LAUNCHES.with_borrow_mut(Vec::pop)
}
