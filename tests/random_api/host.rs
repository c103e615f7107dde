//! Host threads that are run by turns: exactly one does something at a time, so that a program of many
//! threads is the same in every run.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type Job = Box<dyn FnOnce() + Send>;

/// Thread 0 is the caller's own.
pub struct Hosts {
    others: Vec<(Sender<Job>, JoinHandle<()>)>,
    begin: fn(usize),
    with: usize,
}

fn start(begin: fn(usize), with: usize) -> (Sender<Job>, JoinHandle<()>) {
    let (sender, jobs) = channel::<Job>();
    let thread = std::thread::spawn(move || {
        begin(with);
        jobs.into_iter().for_each(|job| job());
    });
    (sender, thread)
}

impl Hosts {
    /// So many threads, the caller's included; each other one begins with `begin(with)`.
    pub fn new(count: usize, begin: fn(usize), with: usize) -> Self {
        let others = (1..count).map(|_| start(begin, with)).collect();
        Self { others, begin, with }
    }

    pub fn count(&self) -> usize {
        self.others.len() + 1
    }

    /// What `job` gives, done by that thread.
    pub fn on<R: Send + 'static>(
        &self,
        thread: usize,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> R {
        let Some((sender, _)) = thread.checked_sub(1).map(|other| &self.others[other]) else {
            return job();
        };
        let (answer, answers) = channel();
        sender
            .send(Box::new(move || {
                // Nobody listens only if the program has failed.
                let _ = answer.send(job());
            }))
            .expect("the thread lives");
        answers.recv().expect("the thread did not panic")
    }

    /// That thread ends, and another takes its place.
    pub fn renew(&mut self, thread: usize) {
        let fresh = start(self.begin, self.with);
        let (sender, ended) = std::mem::replace(&mut self.others[thread - 1], fresh);
        drop(sender);
        ended.join().expect("the thread did not panic");
    }
}
