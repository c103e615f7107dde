//! The **hand-off**: work that must not hold the lock runs on another thread.
//!
//! Host functions run one after another on one thread of the driver's own, and may wait for their
//! program; kernels that take real time have a thread each. When such work is over it is finished in
//! the engine, unless the simulator was reset meanwhile.

use crate::call::{Call, in_host_function};
use crate::engine::OpKey;
use crate::memory::ipc::SharedEvent;
use crate::work::HostFunction;
use std::cell::Cell;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// How long a host function is waited for by the call that found it ready.
pub const HOST_FUNCTION: Duration = Duration::from_millis(20);

/// How often the event of another process is looked at.
pub const LOOK: Duration = Duration::from_micros(200);

thread_local! {
    static IN_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// What runs without the lock.
pub enum Task {
    /// A function of the program.
    Function(HostFunction),
    /// A kernel that takes real time.
    Sleep(Duration),
    /// A record of another process that has to be done.
    Await(SharedEvent, u64),
}

struct Job {
    op: OpKey,
    task: Task,
    generation: u64,
}

/// Host functions run one after another on a thread of the driver's own.
fn worker(job: Job) {
    use std::sync::mpsc::{Sender, channel};
    static QUEUE: LazyLock<Mutex<Sender<Job>>> = LazyLock::new(|| {
        let (sender, receiver) = channel::<Job>();
        std::thread::spawn(move || {
            IN_WORKER.set(true);
            receiver.iter().for_each(Job::run);
        });
        Mutex::new(sender)
    });
    let queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.send(job).is_err() {
        eprintln!("simcuda: the thread for host functions is gone");
    }
}

/// Runs a function of the program that no work waits for.
pub fn apart(function: HostFunction) {
    worker(Job { op: OpKey::NONE, task: Task::Function(function), generation: 0 });
}

impl Job {
    fn run(self) {
        match self.task {
            Task::Sleep(time) => std::thread::sleep(time),
            Task::Await(event, record) => {
                while !event.is_over(record) {
                    std::thread::sleep(LOOK);
                }
            }
            Task::Function(function) => {
                in_host_function(true);
                call_function(function);
                in_host_function(false);
            }
        }
        if self.op == OpKey::NONE {
            return;
        }
        let mut call = Call::internal("a host function");
        if call.generation == self.generation {
            call.in_flight.remove(&self.op);
            call.engine.finished(self.op);
            call.wake();
            call.drain();
        }
    }
}

fn call_function(function: HostFunction) {
    type Function = unsafe extern "C" fn(*mut libc::c_void);
    type Callback = unsafe extern "C" fn(u64, i32, *mut libc::c_void);
    match function {
        HostFunction::Function { f, data } => {
            // SAFETY: the program gave a non-null `CUhostFn` (checked on entry) and vouches that it
            // may be called with `data`.
            unsafe { std::mem::transmute::<usize, Function>(f as usize)(data as *mut _) }
        }
        HostFunction::Callback { f, stream, data } => {
            // SAFETY: as above, for a `CUstreamCallback`.
            unsafe { std::mem::transmute::<usize, Callback>(f as usize)(stream, 0, data as *mut _) }
        }
    }
}

impl Call {
    /// Gives a task to another thread. A host function that is quick is waited for, so that runs
    /// repeat themselves; one that waits for its program is left alone.
    pub fn hand_off(&mut self, op: OpKey, task: Task, patience: Option<Duration>) {
        self.in_flight.insert(op);
        let job = Job { op, task, generation: self.generation };
        let on_worker = IN_WORKER.get();
        match job.task {
            Task::Function(_) => worker(job),
            Task::Sleep(_) | Task::Await(..) => drop(std::thread::spawn(move || job.run())),
        }
        let Some(mut left) = patience.filter(|_| !on_worker) else { return };
        const ROUND: Duration = Duration::from_millis(1);
        while self.in_flight.contains(&op) && !left.is_zero() {
            if !self.sleep(ROUND) {
                left = left.saturating_sub(ROUND);
            }
        }
    }
}
