use cuddy::{Buffer, Error, Options, Pool};

fn main() -> Result<(), Error> {
    for _step in 0..1000 {
        let _weights = Buffer::<f32>::new(24 << 20)?; // legacy stream, current device
        let (_scratch, _output) = (Buffer::<f32>::new(10_000_000)?, Buffer::<f32>::new(1 << 18)?);
        // ... kernels get weights.as_ptr(), weights.len() ...
    } // back to the cache, in stream order
    let stats = cuddy::memory_stats(0)?;
    let peak = stats.reserved_peak >> 20;
    println!(
        "{} allocations, {} from the cache, {peak} MiB at the peak",
        stats.malloc_count, stats.hit_count
    );

    let pool = Pool::new(0, Some(64 << 20))?; // at most 64 MiB of device 0
    let options = Options { pool: Some(&pool), ..Options::default() };
    if let Err(Error::OutOfMemory(why)) = Buffer::<f64>::with(10 << 20, &options) {
        println!("{}...", &why[..46]);
    }
    Ok(())
}
