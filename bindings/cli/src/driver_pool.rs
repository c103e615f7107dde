//! The driver's own stream-ordered pool as an allocator: `cuMemAllocAsync` and `cuMemFreeAsync`.
//!
//! Used as programs use it: the pool keeps what is freed (its release threshold is without limit), a
//! block is freed on the stream that it was allocated on, and before that this stream is made to wait
//! for the others that use the block, by an event each.
//!
//! Its functions are looked up here and not in the replayer's table: a driver without pools is good
//! for everything else.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_uint, c_void};

use crate::allocator::{Account, Allocator, Refusal};
use crate::gpu::{Gpu, GpuError, Stream, check};

/// Declares the functions, each with its counter, and a method that counts and calls.
macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Functions { $($name: (unsafe extern "C" fn($($type),*) -> c_int, u64),)* }

        #[allow(non_snake_case)]
        impl Functions {
            fn of(gpu: &Gpu) -> Result<Self, GpuError> {
                Ok(Self { $($name: {
                    let symbol = gpu.symbol(stringify!($name))?;
                    // SAFETY: cuda.h declares the function of this name with this signature, and
                    // the symbol was found in libcuda and is not null.
                    let function = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> c_int>(symbol)
                    };
                    (function, 0)
                },)* })
            }

            $(fn $name(&mut self, $($argument: $type),*) -> Result<(), GpuError> {
                self.$name.1 += 1;
                // SAFETY: the function is what cuda.h declares; pointers are to live locals of the
                // methods below, and the driver checks handles and addresses.
                check(stringify!($name), unsafe { (self.$name.0)($($argument),*) })
            })*

            fn counts(&self) -> BTreeMap<String, u64> {
                let all = [$((stringify!($name), self.$name.1),)*];
                all.into_iter().filter(|&(_, n)| n > 0).map(|(name, n)| (name.to_owned(), n)).collect()
            }

            fn total(&self) -> u64 {
                0 $(+ self.$name.1)*
            }
        }
    };
}

// Handles are passed as `usize`, which has the size and ABI of a pointer.
functions! {
    cuDeviceGetDefaultMemPool(pool: &mut usize, device: c_int);
    cuMemPoolSetAttribute(pool: usize, attribute: c_int, value: &mut u64);
    cuMemPoolTrimTo(pool: usize, keep: usize);
    cuMemAllocAsync(address: &mut u64, bytes: usize, stream: usize);
    cuMemFreeAsync(address: u64, stream: usize);
    cuEventCreate(event: &mut usize, flags: c_uint);
    cuEventRecord(event: usize, stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: c_uint);
    cuCtxSynchronize();
}

/// A live block: its stream, and the others that use it.
struct Block {
    stream: Stream,
    users: Vec<Stream>,
}

/// The default pool of device 0.
pub struct DriverPool {
    driver: Functions,
    pool: usize,
    event: usize,
    blocks: HashMap<u64, Block>,
}

impl DriverPool {
    /// The pool of the device in use, told to keep what is freed.
    pub fn new(gpu: &Gpu) -> Result<Self, GpuError> {
        const RELEASE_THRESHOLD: c_int = 4;
        const DISABLE_TIMING: c_uint = 2;
        let mut driver = Functions::of(gpu)?;
        let (mut pool, mut event) = (0, 0);
        driver.cuDeviceGetDefaultMemPool(&mut pool, 0)?;
        driver.cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, &mut u64::MAX.clone())?;
        driver.cuEventCreate(&mut event, DISABLE_TIMING)?;
        Ok(Self { driver, pool, event, blocks: HashMap::new() })
    }

    fn free_after_users(&mut self, address: u64, block: &Block) -> Result<(), GpuError> {
        for user in &block.users {
            self.driver.cuEventRecord(self.event, user.0)?;
            self.driver.cuStreamWaitEvent(block.stream.0, self.event, 0)?;
        }
        self.driver.cuMemFreeAsync(address, block.stream.0)
    }
}

fn refusal(error: &GpuError) -> Refusal {
    Refusal { text: error.to_string(), out_of_memory: error.is_out_of_memory() }
}

impl Allocator for DriverPool {
    fn malloc(&mut self, bytes: u64, stream: Stream) -> Result<u64, Refusal> {
        let mut address = 0;
        let given = self.driver.cuMemAllocAsync(&mut address, bytes as usize, stream.0);
        given.map_err(|error| Refusal {
            text: format!("{error} for {bytes} bytes"),
            ..refusal(&error)
        })?;
        self.blocks.insert(address, Block { stream, users: Vec::new() });
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), Refusal> {
        let block = self.blocks.remove(&address).ok_or_else(|| Refusal {
            text: format!("there is no block at {address:#x}"),
            out_of_memory: false,
        })?;
        self.free_after_users(address, &block).map_err(|error| refusal(&error))
    }

    fn record_stream(&mut self, address: u64, stream: Stream) -> Result<(), Refusal> {
        if let Some(block) = self.blocks.get_mut(&address)
            && block.stream != stream
            && !block.users.contains(&stream)
        {
            block.users.push(stream);
        }
        Ok(())
    }

    /// What is freed on a stream that has not come so far cannot be given back: it is waited for.
    fn empty_cache(&mut self) -> Result<(), Refusal> {
        let waited = self.driver.cuCtxSynchronize();
        let trimmed = waited.and_then(|()| self.driver.cuMemPoolTrimTo(self.pool, 0));
        trimmed.map_err(|error| refusal(&error))
    }

    fn open_stream(&mut self, _stream: Stream) -> Result<(), Refusal> {
        Ok(())
    }

    fn account(&self) -> Option<Account> {
        None
    }

    fn driver_calls(&self) -> BTreeMap<String, u64> {
        self.driver.counts()
    }

    fn driver_calls_total(&self) -> u64 {
        self.driver.total()
    }

    fn summary(&self) -> Option<String> {
        None
    }
}
