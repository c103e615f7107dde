//! Memory.
//!
//! Memory from Cuddy belongs to a stream. It is safe on that stream at once, and on whatever that
//! stream is ordered before; on any other stream, or on the host, the program orders the use itself,
//! as it does for a kernel's output. Freeing gives it back at the point that the host has reached in
//! the block's own stream: later work on that stream may use it at once, with no driver call and no
//! wait.

use std::ffi::{c_char, c_int, c_void};

use super::convert::{Growing, characters_or_null, cuddy_stream, fill, given, invalid, read};
use super::guard::guarded;
use crate::error::cuddy_status;
use crate::process;

/// In place of a device's number: the device of the calling thread's current CUDA context, or
/// device 0 if it has none.
pub const CUDDY_CURRENT_DEVICE: c_int = -1;

/// In place of a device's number, where a function says so: every device in use.
pub const CUDDY_ALL_DEVICES: c_int = -2;

/// A flag of a request: rather fail than wait for a stream to finish with memory.
pub const CUDDY_REQUEST_NO_WAIT: u32 = 1;

/// What cuddy_malloc_ex() is asked for. Set the whole of it to 0, then struct_size, then what is
/// wanted.
///
/// Fields are added at the end only; 0 in one of them means what it meant before it was there.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cuddy_request {
    /// sizeof(cuddy_request).
    pub struct_size: u64,
    /// Bytes wanted; 0 gives success and NULL.
    pub bytes: u64,
    /// The address is to be a multiple of this: a power of two, at most 2 MiB. 0 and all below
    /// 512 mean 512.
    pub alignment: u64,
    /// The stream that will use the memory first.
    pub stream: cuddy_stream,
    /// The device's number, or CUDDY_CURRENT_DEVICE.
    pub device: i32,
    /// 0, or CUDDY_REQUEST_NO_WAIT.
    pub flags: u32,
    /// The pool: one of cuddy_pool_create(), of this device; CUDDY_POOL_CURRENT (0), the calling
    /// thread's current one; or CUDDY_POOL_DEFAULT.
    pub pool: u64,
    /// The longest that the call may wait for streams to finish with memory, in milliseconds; 0 is as
    /// the option wait_ms says.
    pub wait_ms: u64,
    /// What the block is for: the label that cuddy_annotate() would give it, from the beginning;
    /// NULL is none. With the first one blocks begin to be watched, as with the first scope.
    pub tag: *const c_char,
}

/// What cuddy_block_info() tells about a block.
///
/// Set struct_size before the call; no more than that is written. Fields are added at the end only.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct cuddy_block {
    /// In: sizeof(cuddy_block) in the caller's header. Out: the bytes that were filled.
    pub struct_size: u64,
    /// The block's start: what cuddy_malloc() gave, and cuddy_free() takes.
    pub address: *mut c_void,
    /// Bytes that may be used from there: the request, rounded up.
    pub bytes: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// How far the pointer that was asked about lies behind the start, in bytes.
    pub offset: u64,
    /// The block's stream, as it was passed to cuddy_malloc(). It is told for comparing: the program
    /// may have destroyed it.
    pub stream: cuddy_stream,
    /// The device's number.
    pub device: i32,
    /// 0.
    pub reserved: u32,
}

// SAFETY: `#[repr(C)]`, begins with `struct_size: u64`, and holds numbers and raw pointers only.
unsafe impl Growing for cuddy_request {
    const NAME: &'static str = "cuddy_request";
}

// SAFETY: as above.
unsafe impl Growing for cuddy_block {
    const NAME: &'static str = "cuddy_block";
}

/// Allocates device memory.
///
/// ptr:    where to write the address, a multiple of 512.
/// bytes:  how many are wanted; rounded up to a multiple of 512. 0 gives success and NULL.
/// device: a device's number, or CUDDY_CURRENT_DEVICE.
/// stream: the stream that will use the memory first: a CUstream, a cudaStream_t, or one of
///         CUDDY_STREAM_LEGACY, CUDDY_STREAM_PER_THREAD and CUDDY_STREAM_ANY. It must be valid
///         during the call.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (ptr is NULL), CUDDY_ERROR_OUT_OF_MEMORY (also for a size
/// that no device has), CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_INVALID_STREAM,
/// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED,
/// CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
/// Thread-safe. Calls the driver, and may wait for streams, only when the stream has no free block
/// that fits; memory that is free is never missed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_malloc(
    ptr: *mut *mut c_void,
    bytes: usize,
    device: c_int,
    stream: cuddy_stream,
) -> cuddy_status {
    if !ptr.is_null()
        && let Some(address) = process::off_shelf(bytes as u64, device, stream as usize)
    {
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { ptr.write(address as *mut c_void) };
        return cuddy_status::CUDDY_OK;
    }
    // SAFETY: the caller's promises are the same.
    unsafe { malloc_missed(ptr, bytes, device, stream) }
}

/// What [`cuddy_malloc`] does when there is nothing on the shelf. A function of its own: a hit pays
/// for none of it.
///
/// # Safety
/// `ptr` is NULL or valid for writing.
#[inline(never)]
unsafe fn malloc_missed(
    ptr: *mut *mut c_void,
    bytes: usize,
    device: c_int,
    stream: cuddy_stream,
) -> cuddy_status {
    guarded(|| {
        given(ptr, "ptr")?;
        let address = process::malloc_missed(process::Asked {
            pool: process::CURRENT_POOL,
            bytes: bytes as u64,
            alignment: 0,
            device,
            stream: stream as usize,
            wait_ms: None,
        })?;
        // SAFETY: not NULL, and writable by the function's contract.
        unsafe { ptr.write(address as *mut c_void) };
        Ok(())
    })
}

/// Allocates device memory, with an alignment, in a pool, with a bound on waiting, and a label.
///
/// ptr:     where to write the address.
/// request: what is wanted. Bytes of it that this version does not know must be 0.
///
/// Errors: as cuddy_malloc(); CUDDY_ERROR_INVALID_ARGUMENT also for a struct_size that is none, an
/// alignment that is no power of two or above 2 MiB, flags that are not known, and a tag that is no
/// UTF-8. With a bound on waiting CUDDY_ERROR_OUT_OF_MEMORY may mean that memory is there, but still
/// in use.
/// CUDDY_ERROR_INVALID_POOL; CUDDY_ERROR_WRONG_DEVICE (the pool is of another device).
/// Thread-safe. Costs what cuddy_malloc() costs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_malloc_ex(
    ptr: *mut *mut c_void,
    request: *const cuddy_request,
) -> cuddy_status {
    // SAFETY: the caller's promises are those of `malloc_ex`.
    unsafe { malloc_ex(ptr, request, |stream| stream) }
}

/// Serves a request, its stream seen through `named`.
///
/// # Safety
/// `ptr` is NULL or valid for writing; `request` is NULL or valid for reading `struct_size` bytes.
pub(super) unsafe fn malloc_ex(
    ptr: *mut *mut c_void,
    request: *const cuddy_request,
    named: impl FnOnce(cuddy_stream) -> cuddy_stream,
) -> cuddy_status {
    guarded(|| {
        given(ptr, "ptr")?;
        let absent = cuddy_request {
            struct_size: 0,
            bytes: 0,
            alignment: 0,
            stream: std::ptr::null_mut(),
            device: 0,
            flags: 0,
            pool: 0,
            wait_ms: 0,
            tag: std::ptr::null(),
        };
        // SAFETY: NULL is refused there; else the function's contract.
        let request = unsafe { read(request, "request", absent) }?;
        if request.flags & !CUDDY_REQUEST_NO_WAIT != 0 {
            let flags = request.flags;
            let why = format_args!(
                "its flags are {flags:#x}; CUDDY_REQUEST_NO_WAIT ({CUDDY_REQUEST_NO_WAIT:#x}) is \
                 all that is known"
            );
            return Err(invalid("request", why));
        }
        let wait_ms = match (request.flags & CUDDY_REQUEST_NO_WAIT != 0, request.wait_ms) {
            (true, _) => Some(0),
            (false, 0) => None,
            (false, some) => Some(some),
        };
        let stream = named(request.stream) as usize;
        let cuddy_request { pool, bytes, alignment, device, .. } = request;
        let serve = || process::malloc_in(pool, bytes, alignment, device, stream, wait_ms);
        // SAFETY: the caller promises NULL or a C string.
        let address = match unsafe { characters_or_null(request.tag, "tag") }? {
            None => serve()?,
            Some(tag) => process::tagged(tag, serve)?,
        };
        // SAFETY: not NULL, and the caller promises that it may be written.
        unsafe { ptr.write(address as *mut c_void) };
        Ok(())
    })
}

/// Gives a block back. Its bytes may be reused by later work on its stream at once, and by others
/// when they are ordered behind it.
///
/// ptr: what cuddy_malloc() or cuddy_malloc_ex() gave; NULL does nothing.
///
/// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
/// CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe; any thread may free. Calls the driver only for a block that other streams use too
/// (see cuddy_record_stream()). Never waits, unless the option caching is off.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_free(ptr: *mut c_void) -> cuddy_status {
    if process::to_shelf(ptr as u64) {
        return cuddy_status::CUDDY_OK;
    }
    free_missed(ptr)
}

/// What [`cuddy_free`] does with what cannot be put on the shelf.
#[inline(never)]
fn free_missed(ptr: *mut c_void) -> cuddy_status {
    guarded(|| process::free_missed(ptr as u64))
}

/// Gives a block back to another stream than its own, whose later work may use it at once. The
/// program has made that stream wait for every use of the block; that the block was handed out for
/// its own stream counts as a use there.
///
/// ptr:    what cuddy_malloc() or cuddy_malloc_ex() gave; NULL does nothing.
/// stream: the stream that it is given to. It must be valid during the call.
///
/// Errors: as cuddy_free(); CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_WRONG_DEVICE,
/// CUDDY_ERROR_HOST_OUT_OF_MEMORY. After any of them the block is live.
/// Thread-safe; any thread may free. Calls the driver at most to tell which stream a handle is, and
/// for a block that other streams were recorded to use.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_free_on(ptr: *mut c_void, stream: cuddy_stream) -> cuddy_status {
    guarded(|| process::free_on(ptr as u64, stream as usize))
}

/// Gives a block back once an event is over: the block's bytes are used again, by any stream, only
/// after that.
///
/// ptr:   what cuddy_malloc() or cuddy_malloc_ex() gave; NULL does nothing.
/// event: a CUevent or cudaEvent_t that was recorded behind all other use of the block than its own
///        stream's. What it holds during the call counts: it may be recorded anew, or destroyed, at
///        once. It must be of the block's device, and not of a capture.
///
/// Errors: as cuddy_free(); CUDDY_ERROR_DRIVER, CUDDY_ERROR_HOST_OUT_OF_MEMORY. After either of
/// these the block is live.
/// Thread-safe. Calls the driver a few times; does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_free_after(ptr: *mut c_void, event: *mut c_void) -> cuddy_status {
    guarded(|| process::free_after(ptr as u64, event as usize))
}

/// Says that another stream uses a block too: after its free it is not reused before the work that
/// this stream had been given by then is over.
///
/// ptr:    the start of a live block; NULL does nothing.
/// stream: the other stream; the block's own changes nothing. It must be valid during the call.
///
/// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
/// CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_WRONG_DEVICE, CUDDY_ERROR_DRIVER,
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe. Calls the driver at most to tell which stream a handle is.
#[unsafe(no_mangle)]
pub extern "C" fn cuddy_record_stream(ptr: *mut c_void, stream: cuddy_stream) -> cuddy_status {
    guarded(|| process::record_stream(ptr as u64, stream as usize))
}

/// Tells about the live block that a pointer lies in: the start of a block or any byte of it.
///
/// ptr:  the pointer; it is not dereferenced.
/// info: where to write; its struct_size must be set.
///
/// Errors: CUDDY_ERROR_INVALID_ARGUMENT (info is NULL or its struct_size is none),
/// CUDDY_ERROR_FOREIGN_POINTER (NULL too), CUDDY_ERROR_DOUBLE_FREE (the block was freed),
/// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
/// Thread-safe. Never calls the driver. Constant time for a block's start, else it looks through
/// the device's blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuddy_block_info(
    ptr: *const c_void,
    info: *mut cuddy_block,
) -> cuddy_status {
    guarded(|| {
        let tell = || {
            let block = process::block_info(ptr as u64)?;
            Ok(cuddy_block {
                struct_size: 0,
                address: block.address as *mut c_void,
                bytes: block.bytes,
                requested: block.requested,
                offset: (ptr as u64).saturating_sub(block.address),
                stream: block.stream as cuddy_stream,
                device: i32::try_from(block.device).unwrap_or(i32::MAX),
                reserved: 0,
            })
        };
        // SAFETY: NULL is refused there; the caller promises struct_size bytes.
        unsafe { fill(info, "info", tell) }
    })
}
