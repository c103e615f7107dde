//! A server: each worker thread has a stream and a pool, and a request's memory ends with it.

use std::thread;

use cuddy::{Buffer, Error, Pool, Request, Stream};

const BUDGET: u64 = 128 << 20;

/// Serves one request: `images` of 4 MiB, and as much for the answer.
fn serve(images: usize, memory: &Request<'_>) -> Result<usize, Error> {
    let input = Buffer::<u8>::with(images << 22, memory)?;
    let output = Buffer::<u8>::with(images << 22, memory)?;
    // ... kernels on memory.stream read input.as_ptr() and write output.as_ptr() ...
    Ok(input.len() + output.len())
} // both go back to the worker's pool, in stream order, whatever happened

fn worker(sizes: &[usize]) -> Result<(usize, u64), Error> {
    let pool = Pool::new(0, Some(BUDGET))?;
    // Here each thread uses its own default stream; a server of yours has streams it created.
    let memory = Request { pool: Some(&pool), stream: Stream::PER_THREAD, ..Request::default() };
    let mut refused = 0;
    for &images in sizes {
        match serve(images, &memory) {
            Ok(_) => {}
            Err(Error::OutOfMemory(_)) => refused += 1, // this request alone: others go on
            Err(other) => return Err(other),
        }
    }
    Ok((refused, pool.stats()?.reserved_peak))
}

fn main() -> Result<(), Error> {
    let served = thread::scope(|scope| {
        let sizes: [&[usize]; 2] = [&[1, 4, 16, 8, 2], &[3, 40, 3]];
        let workers = sizes.map(|sizes| scope.spawn(|| worker(sizes)));
        workers.map(|worker| worker.join().expect("a worker does not panic"))
    });
    for (number, outcome) in served.into_iter().enumerate() {
        let (refused, peak) = outcome?;
        println!("worker {number}: {refused} refused, at most {} MiB", peak >> 20);
    }
    Ok(())
}

// Prints:
// worker 0: 0 refused, at most 128 MiB
// worker 1: 1 refused, at most 24 MiB
