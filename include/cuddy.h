// cuddy.h: a caching allocator for CUDA device memory.
//
// cudaMalloc() costs tens of microseconds or more, cudaFree() waits for the device. Cuddy keeps what
// is freed and hands it out again with no driver call, in stream order, and gives it back to the
// driver when memory runs short. It needs no initialisation and no thread, takes nothing from a
// device that is not used, and tells at any time where the memory went.
//
// A program in full:
//
//     #include <stdio.h>
//     #include <cuddy.h>
//
//     int main(void) {
//         void *block;
//         size_t bytes = (size_t)64 << 20;
//         if (cuddy_malloc(&block, bytes, CUDDY_CURRENT_DEVICE, CUDDY_STREAM_LEGACY) != CUDDY_OK) {
//             fprintf(stderr, "no memory: %s\n", cuddy_last_error());
//             return 1;
//         }
//         // ... kernels and copies on that stream use the block ...
//         cuddy_free(block); // to the cache: later work on the stream may have it at once
//
//         cuddy_malloc(&block, bytes, CUDDY_CURRENT_DEVICE, CUDDY_STREAM_LEGACY); // no driver call
//         cuddy_free(block);
//         printf("%zu bytes in use, %zu kept\n", cuddy_memory_allocated(CUDDY_CURRENT_DEVICE),
//                cuddy_memory_reserved(CUDDY_CURRENT_DEVICE));
//         return 0;
//     }
//
// Build it with: cc program.c $(pkg-config --cflags --libs cuddy)
//
// What holds for every function:
// - Any thread may call it at any time, also during exit. Nothing aborts or throws. Nothing prints,
//   but for mistakes in CUDDY_CONF, which are said once on stderr.
// - Sizes are in bytes; text is UTF-8 and ends with 0.
// - A pointer argument must be valid for what the text says; NULL where it is not allowed is
//   CUDDY_ERROR_INVALID_ARGUMENT. Structs begin with their size, so that they can grow.
// - Besides the errors listed, CUDDY_ERROR_INTERNAL means a bug in Cuddy.
// - A child forked before the first use may use Cuddy; a child forked later gets CUDDY_ERROR_FORKED.
//
// Types come first, then the functions in chapters: version and errors, memory, streams, cache,
// limits, statistics, options, per-thread default streams. You may stop reading at any of them.

#ifndef CUDDY_H
#define CUDDY_H

#include <stddef.h>
#include <stdint.h>

// The version of this header, as numbers and as text.
#define CUDDY_VERSION_MAJOR 0
#define CUDDY_VERSION_MINOR 1
#define CUDDY_VERSION_PATCH 0
#define CUDDY_VERSION_STRING "0.1.0"

// The three in one number: major * 10000 + minor * 100 + patch.
#define CUDDY_VERSION 100

// A stream: the driver's CUstream and the runtime's cudaStream_t pass as they are.
typedef struct CUstream_st *cuddy_stream;

// The legacy default stream. Stream 0 is the same one, unless the program is compiled for per-thread
// default streams.
#define CUDDY_STREAM_LEGACY ((cuddy_stream)1)

// The calling thread's own default stream.
#define CUDDY_STREAM_PER_THREAD ((cuddy_stream)2)

// No stream in particular, for memory that any stream, or none, may use at once, as cudaMalloc()
// gives it: its last use is over before it is handed out, and after its free the work of all streams
// comes first.
#define CUDDY_STREAM_ANY ((cuddy_stream)-1)

// In place of a limit: none.
#define CUDDY_NO_LIMIT SIZE_MAX

// In place of a device's number: the device of the calling thread's current CUDA context, or
// device 0 if it has none.
#define CUDDY_CURRENT_DEVICE -1

// In place of a device's number, where a function says so: every device in use.
#define CUDDY_ALL_DEVICES -2

// A flag of a request: rather fail than wait for a stream to finish with memory.
#define CUDDY_REQUEST_NO_WAIT 1

// The stream may be captured, and cuddy_graph_begin() is not called: each call of Cuddy asks the
// driver. For cuddy_stream_open_ex().
#define CUDDY_STREAM_CAPTURABLE 1

// A flag of a pool: before a request to the default pool fails for want of memory, it may be served
// from this one's free memory.
#define CUDDY_POOL_USE_ON_OOM 1

// A pool's way of sharing: as the option share says.
#define CUDDY_SHARE_AS_CONFIGURED 0

// A pool's way of sharing: behind a stream wait where memory is short.
#define CUDDY_SHARE_WAIT 1

// A pool's way of sharing: only what nobody uses any more.
#define CUDDY_SHARE_PASSED 2

// A pool's way of sharing: never without the driver.
#define CUDDY_SHARE_NEVER 3

// A flag of host memory: page-locked to all contexts, as CU_MEMHOSTALLOC_PORTABLE.
#define CUDDY_HOST_PORTABLE 1

// A flag of host memory: mapped into device addresses, as CU_MEMHOSTALLOC_DEVICEMAP.
#define CUDDY_HOST_MAPPED 2

// A flag of host memory: write-combined, slow to read on the host; as
// CU_MEMHOSTALLOC_WRITECOMBINED.
#define CUDDY_HOST_WRITE_COMBINED 4

// A flag of host memory: the program records every stream that uses the block, so that one of
// which none was recorded is free at once.
#define CUDDY_HOST_STREAMS_RECORDED 256

// A kind of event: nothing that could serve a request was found, after all else was tried. When
// all callbacks have returned, the search begins again; they are called again as long as it fails
// and live memory has become less, or a limit was raised. Not told in a captured stream, where a
// call of the driver's may break the capture.
#define CUDDY_EVENT_OUT_OF_MEMORY 1

// A kind of event: more memory is reserved than when this was told last.
#define CUDDY_EVENT_GROWTH 2

// A kind of event: less memory is reserved than when this was told last.
#define CUDDY_EVENT_RELEASE 4

// In place of a device's number in an event: page-locked host memory.
#define CUDDY_HOST_MEMORY -3

// What a call of Cuddy returns. Zero is success; numbers never change their meaning.
//
// cuddy_last_error() has the sentence that belongs to the last failure on the calling thread.
enum cuddy_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The call did what it says.
  CUDDY_OK = 0,
  // An argument is outside what the function accepts; the message names it.
  CUDDY_ERROR_INVALID_ARGUMENT = 1,
  // No memory: everything reusable was tried first. The message explains where memory went.
  CUDDY_ERROR_OUT_OF_MEMORY = 2,
  // No usable CUDA driver: libcuda.so.1 is missing, too old, or cuInit failed.
  CUDDY_ERROR_NO_DRIVER = 3,
  // There is no device of that number.
  CUDDY_ERROR_INVALID_DEVICE = 4,
  // The stream is not a valid stream, or was never opened.
  CUDDY_ERROR_INVALID_STREAM = 5,
  // The pointer was not allocated by Cuddy.
  CUDDY_ERROR_FOREIGN_POINTER = 6,
  // The pointer lies inside a live block, but is not its start.
  CUDDY_ERROR_INTERIOR_POINTER = 7,
  // The pointer's block has already been freed.
  CUDDY_ERROR_DOUBLE_FREE = 8,
  // The pointer, stream or event belongs to another device than the one named.
  CUDDY_ERROR_WRONG_DEVICE = 9,
  // The CUDA driver failed; the message has the function and the CUDA code's name.
  CUDDY_ERROR_DRIVER = 10,
  // The device or its context was reset: all its blocks are gone.
  CUDDY_ERROR_DEVICE_RESET = 11,
  // This process is a fork of one that used CUDA; CUDA does not work in such a child.
  CUDDY_ERROR_FORKED = 12,
  // The CUDA driver has shut down, at process exit.
  CUDDY_ERROR_SHUTDOWN = 13,
  // The device or the driver cannot do this.
  CUDDY_ERROR_NOT_SUPPORTED = 14,
  // Host memory ran out; nothing was changed.
  CUDDY_ERROR_HOST_OUT_OF_MEMORY = 15,
  // There is no such option, or it does not take that value.
  CUDDY_ERROR_INVALID_OPTION = 16,
  // A bug in Cuddy: please report it.
  CUDDY_ERROR_INTERNAL = 17,
  // There is no such pool, it was destroyed, or it is not the one to be popped.
  CUDDY_ERROR_INVALID_POOL = 18,
  // There is no such graph, or it is not in the state that the call needs.
  CUDDY_ERROR_INVALID_GRAPH = 19,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum cuddy_status cuddy_status;
#else
typedef int32_t cuddy_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What cuddy_malloc_ex() is asked for. Set the whole of it to 0, then struct_size, then what is
// wanted.
//
// Fields are added at the end only; 0 in one of them means what it meant before it was there.
typedef struct cuddy_request {
  // sizeof(cuddy_request).
  uint64_t struct_size;
  // Bytes wanted; 0 gives success and NULL.
  uint64_t bytes;
  // The address is to be a multiple of this: a power of two, at most 2 MiB. 0 and all below
  // 512 mean 512.
  uint64_t alignment;
  // The stream that will use the memory first.
  cuddy_stream stream;
  // The device's number, or CUDDY_CURRENT_DEVICE.
  int32_t device;
  // 0, or CUDDY_REQUEST_NO_WAIT.
  uint32_t flags;
  // The pool: one of cuddy_pool_create(), of this device; CUDDY_POOL_CURRENT (0), the calling
  // thread's current one; or CUDDY_POOL_DEFAULT.
  uint64_t pool;
  // The longest that the call may wait for streams to finish with memory, in milliseconds; 0 is as
  // the option wait_ms says.
  uint64_t wait_ms;
  // What the block is for: the label that cuddy_annotate() would give it, from the beginning;
  // NULL is none. With the first one blocks begin to be watched, as with the first scope.
  const char *tag;
} cuddy_request;

// What cuddy_block_info() tells about a block.
//
// Set struct_size before the call; no more than that is written. Fields are added at the end only.
typedef struct cuddy_block {
  // In: sizeof(cuddy_block) in the caller's header. Out: the bytes that were filled.
  uint64_t struct_size;
  // The block's start: what cuddy_malloc() gave, and cuddy_free() takes.
  void *address;
  // Bytes that may be used from there: the request, rounded up.
  uint64_t bytes;
  // Bytes that were asked for.
  uint64_t requested;
  // How far the pointer that was asked about lies behind the start, in bytes.
  uint64_t offset;
  // The block's stream, as it was passed to cuddy_malloc(). It is told for comparing: the program
  // may have destroyed it.
  cuddy_stream stream;
  // The device's number.
  int32_t device;
  // 0.
  uint32_t reserved;
} cuddy_block;

// How a pool is to be. Set the whole of it to 0, then struct_size, then what is wanted.
//
// Fields are added at the end only; 0 in one of them means what it meant before it was there.
typedef struct cuddy_pool_options {
  // sizeof(cuddy_pool_options).
  uint64_t struct_size;
  // The most that may be reserved in the pool, in bytes; 0 or CUDDY_NO_LIMIT for none.
  uint64_t limit;
  // The device's number, or CUDDY_CURRENT_DEVICE.
  int32_t device;
  // 0, or CUDDY_POOL_USE_ON_OOM.
  uint32_t flags;
} cuddy_pool_options;

// A pool's name.
typedef uint64_t cuddy_pool;

// Counters of one device. All are 64 bits; bytes unless the name ends in `_count`.
//
// Set `struct_size` to `sizeof(cuddy_stats)` before the call: no more than that is written, so a
// program built against an older cuddy.h keeps working. New fields are added at the end only.
//
// At every moment allocated <= active <= reserved <= reserved_peak, and requested <= allocated.
// "peak" is the largest value since the last cuddy_reset_peak_memory_stats(), "total" the sum of all
// that was added since the last cuddy_reset_accumulated_memory_stats().
typedef struct cuddy_stats {
  // In: sizeof(cuddy_stats) in the caller's header. Out: the bytes that were filled.
  uint64_t struct_size;
  // Bytes that callers asked for, in live blocks.
  uint64_t requested;
  // Its peak.
  uint64_t requested_peak;
  // Its total.
  uint64_t requested_total;
  // Bytes of live blocks, after rounding to 512.
  uint64_t allocated;
  // Its peak.
  uint64_t allocated_peak;
  // Its total.
  uint64_t allocated_total;
  // Allocated, plus bytes of freed blocks that some stream may still be using.
  uint64_t active;
  // Its peak.
  uint64_t active_peak;
  // Physical bytes held from the driver.
  uint64_t reserved;
  // Its peak.
  uint64_t reserved_peak;
  // Bytes got from the driver over time.
  uint64_t reserved_total;
  // Physical bytes kept by the cache: reserved - active.
  uint64_t cached;
  // Physical bytes kept without an address, ready to be mapped again; part of cached.
  uint64_t unmapped;
  // The most that may be reserved; UINT64_MAX when there is no limit.
  uint64_t limit;
  // The largest block that this device could serve from its cache, on one stream.
  uint64_t largest_free;
  // Bytes that the driver took neither back nor gave: lost to a failed release. Part of
  // reserved, never used again.
  uint64_t quarantined;
  // Live blocks.
  uint64_t live_block_count;
  // Its peak.
  uint64_t live_block_peak_count;
  // Allocations served.
  uint64_t malloc_count;
  // Blocks freed.
  uint64_t free_count;
  // Allocations served from the cache, with no driver call.
  uint64_t hit_count;
  // Allocations that needed the driver.
  uint64_t miss_count;
  // Misses served by taking pages from free blocks and mapping them elsewhere.
  uint64_t harvest_count;
  // Times that the host waited for a stream, to make memory reusable.
  uint64_t wait_count;
  // Allocations that failed at first and succeeded after memory was taken back.
  uint64_t retry_count;
  // Allocations that failed for want of memory.
  uint64_t out_of_memory_count;
  // Freed blocks that wait for a stream.
  uint64_t limbo_block_count;
  // Driver calls made on behalf of this device.
  uint64_t driver_call_count;
  // Blocks that a stream got from other streams' free memory.
  uint64_t crossing_count;
  // Stream waits put in, so that a stream could have another one's memory at once.
  uint64_t stream_wait_count;
  // Misses served on rung 1: a block of the same stream that was freed meanwhile.
  uint64_t rung_own_count;
  // Misses served on rung 2: free memory of any stream whose last use was over, or known to be ordered
  // before.
  uint64_t rung_passed_count;
  // Misses served on rung 3: fresh memory, while growth was within share_growth.
  uint64_t rung_growth_count;
  // Misses served on rung 4: another stream's free memory, behind a stream wait.
  uint64_t rung_stream_wait_count;
  // Misses served on rung 5: fresh memory within the limit.
  uint64_t rung_fresh_count;
  // Misses that got to rung 6: pages or segments taken back without any wait.
  uint64_t rung_harvest_count;
  // Misses that got to rung 7: the host waited for the last users of memory.
  uint64_t rung_host_wait_count;
  // Times that rung 8 was reached: out-of-memory callbacks were called, and the search began
  // again.
  uint64_t rung_callback_count;
} cuddy_stats;

// A graph's name, as Cuddy knows it.
typedef uint64_t cuddy_graph;

// Counters of page-locked host memory. All are 64 bits; bytes unless the name ends in `_count`.
//
// Set `struct_size` as for cuddy_stats. "peak" and "total" as there. At every moment
// requested <= allocated <= active <= reserved <= reserved_peak.
typedef struct cuddy_host_stats {
  // In: sizeof(cuddy_host_stats) in the caller's header. Out: the bytes that were filled.
  uint64_t struct_size;
  // Bytes that callers asked for, in live blocks.
  uint64_t requested;
  // Its peak.
  uint64_t requested_peak;
  // Its total.
  uint64_t requested_total;
  // Bytes of live blocks, after rounding to 512.
  uint64_t allocated;
  // Its peak.
  uint64_t allocated_peak;
  // Its total.
  uint64_t allocated_total;
  // Allocated, plus bytes of freed blocks that some stream may still be using.
  uint64_t active;
  // Its peak.
  uint64_t active_peak;
  // Bytes that are page-locked: got from the driver, and not given back.
  uint64_t reserved;
  // Its peak.
  uint64_t reserved_peak;
  // Bytes got from the driver over time.
  uint64_t reserved_total;
  // Bytes kept by the cache: reserved - active - quarantined.
  uint64_t cached;
  // Bytes that the driver failed to take back. Part of reserved, never used again.
  uint64_t quarantined;
  // Live blocks.
  uint64_t live_block_count;
  // Its peak.
  uint64_t live_block_peak_count;
  // Freed blocks that wait for a stream.
  uint64_t limbo_block_count;
  // Driver allocations held.
  uint64_t segment_count;
  // Allocations served.
  uint64_t malloc_count;
  // Blocks freed.
  uint64_t free_count;
  // Allocations served from the cache.
  uint64_t hit_count;
  // Allocations that needed more memory from the driver.
  uint64_t miss_count;
  // Driver allocations given back.
  uint64_t release_count;
  // Times that the host waited for a stream, to make memory reusable.
  uint64_t wait_count;
  // Allocations that failed at first and succeeded after memory was given back or waited for.
  uint64_t retry_count;
  // Allocations that failed for want of memory.
  uint64_t out_of_memory_count;
  // Times that out-of-memory callbacks were called.
  uint64_t callback_count;
} cuddy_host_stats;

// An observer; 0 is none.
typedef uint64_t cuddy_observer;

// What a callback is told. It lives until the callback returns. Fields are added at the end only.
typedef struct cuddy_event {
  // The bytes of this struct: how much of it there is.
  uint64_t struct_size;
  // One of CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_GROWTH and CUDDY_EVENT_RELEASE.
  uint32_t kind;
  // The device's number, or CUDDY_HOST_MEMORY.
  int32_t device;
  // Out of memory: bytes asked for. Else: by how many bytes more or fewer are reserved now.
  // Threads that grow at once may share one event; the sum is exact.
  uint64_t bytes;
  // Bytes of live blocks, at that moment.
  uint64_t allocated;
  // Bytes held from the driver, at that moment.
  uint64_t reserved;
  // The limit; UINT64_MAX when there is none.
  uint64_t limit;
  // Out of memory: the stream of the request, as it was passed. Else NULL.
  cuddy_stream stream;
} cuddy_event;

// A function of the program's: event is what happened, user what cuddy_observe() was given.
typedef void (*cuddy_callback)(const struct cuddy_event *event, void *user);

// In place of a pool: the calling thread's current one.
#define CUDDY_POOL_CURRENT 0

// In place of a pool: the default one.
#define CUDDY_POOL_DEFAULT 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// -------------------------------------------------------------------------------------------------
// Version and errors
// -------------------------------------------------------------------------------------------------
//
// Every function that can fail returns a cuddy_status; 0 is success. A call that fails changes
// nothing and leaves its outputs as they were. The sentence that belongs to a failure, with the
// figures, is in cuddy_last_error().

// The version of the library that is running: CUDDY_VERSION of the header that it was built with.
//
// A program may compare the two. Libraries of one soname (libcuddy.so.N) only add to each other.
//
// Never fails. Thread-safe.
int cuddy_version(void);

// The same as text, "0.1.0". The text is constant.
//
// Never fails. Thread-safe.
const char *cuddy_version_string(void);

// The name of a status, "CUDDY_ERROR_OUT_OF_MEMORY". The text is constant.
//
// status: what a function returned. A number that is no status gives "unknown status".
//
// Never fails. Thread-safe.
const char *cuddy_status_name(int status);

// What the calling thread's last failure was about, in one or more sentences; "" before the first.
//
// The text belongs to the thread and changes with its next failure; a call that succeeds leaves it
// alone. It is at most 4095 bytes long, UTF-8. Never NULL.
//
// Never fails. Thread-safe: each thread has its own.
const char *cuddy_last_error(void);

// -------------------------------------------------------------------------------------------------
// Memory
// -------------------------------------------------------------------------------------------------
//
// Memory from Cuddy belongs to a stream. It is safe on that stream at once, and on whatever that
// stream is ordered before; on any other stream, or on the host, the program orders the use itself,
// as it does for a kernel's output. Freeing gives it back at the point that the host has reached in
// the block's own stream: later work on that stream may use it at once, with no driver call and no
// wait.

// Allocates device memory.
//
// ptr:    where to write the address, a multiple of 512.
// bytes:  how many are wanted; rounded up to a multiple of 512. 0 gives success and NULL.
// device: a device's number, or CUDDY_CURRENT_DEVICE.
// stream: the stream that will use the memory first: a CUstream, a cudaStream_t, or one of
//         CUDDY_STREAM_LEGACY, CUDDY_STREAM_PER_THREAD and CUDDY_STREAM_ANY. It must be valid
//         during the call.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (ptr is NULL), CUDDY_ERROR_OUT_OF_MEMORY (also for a size
// that no device has), CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_INVALID_STREAM,
// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED,
// CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Calls the driver, and may wait for streams, only when the stream has no free block
// that fits; memory that is free is never missed.
cuddy_status cuddy_malloc(void **ptr, size_t bytes, int device, cuddy_stream stream);

// Allocates device memory, with an alignment, in a pool, with a bound on waiting, and a label.
//
// ptr:     where to write the address.
// request: what is wanted. Bytes of it that this version does not know must be 0.
//
// Errors: as cuddy_malloc(); CUDDY_ERROR_INVALID_ARGUMENT also for a struct_size that is none, an
// alignment that is no power of two or above 2 MiB, flags that are not known, and a tag that is no
// UTF-8. With a bound on waiting CUDDY_ERROR_OUT_OF_MEMORY may mean that memory is there, but still
// in use.
// CUDDY_ERROR_INVALID_POOL; CUDDY_ERROR_WRONG_DEVICE (the pool is of another device).
// Thread-safe. Costs what cuddy_malloc() costs.
cuddy_status cuddy_malloc_ex(void **ptr, const struct cuddy_request *request);

// Gives a block back. Its bytes may be reused by later work on its stream at once, and by others
// when they are ordered behind it.
//
// ptr: what cuddy_malloc() or cuddy_malloc_ex() gave; NULL does nothing.
//
// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
// CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe; any thread may free. Calls the driver only for a block that other streams use too
// (see cuddy_record_stream()). Never waits, unless the option caching is off.
cuddy_status cuddy_free(void *ptr);

// Gives a block back to another stream than its own, whose later work may use it at once. The
// program has made that stream wait for every use of the block; that the block was handed out for
// its own stream counts as a use there.
//
// ptr:    what cuddy_malloc() or cuddy_malloc_ex() gave; NULL does nothing.
// stream: the stream that it is given to. It must be valid during the call.
//
// Errors: as cuddy_free(); CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_WRONG_DEVICE,
// CUDDY_ERROR_HOST_OUT_OF_MEMORY. After any of them the block is live.
// Thread-safe; any thread may free. Calls the driver at most to tell which stream a handle is, and
// for a block that other streams were recorded to use.
cuddy_status cuddy_free_on(void *ptr, cuddy_stream stream);

// Gives a block back once an event is over: the block's bytes are used again, by any stream, only
// after that.
//
// ptr:   what cuddy_malloc() or cuddy_malloc_ex() gave; NULL does nothing.
// event: a CUevent or cudaEvent_t that was recorded behind all other use of the block than its own
//        stream's. What it holds during the call counts: it may be recorded anew, or destroyed, at
//        once. It must be of the block's device, and not of a capture.
//
// Errors: as cuddy_free(); CUDDY_ERROR_DRIVER, CUDDY_ERROR_HOST_OUT_OF_MEMORY. After either of
// these the block is live.
// Thread-safe. Calls the driver a few times; does not wait.
cuddy_status cuddy_free_after(void *ptr, void *event);

// Says that another stream uses a block too: after its free it is not reused before the work that
// this stream had been given by then is over.
//
// ptr:    the start of a live block; NULL does nothing.
// stream: the other stream; the block's own changes nothing. It must be valid during the call.
//
// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
// CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_WRONG_DEVICE, CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe. Calls the driver at most to tell which stream a handle is.
cuddy_status cuddy_record_stream(void *ptr, cuddy_stream stream);

// Tells about the live block that a pointer lies in: the start of a block or any byte of it.
//
// ptr:  the pointer; it is not dereferenced.
// info: where to write; its struct_size must be set.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (info is NULL or its struct_size is none),
// CUDDY_ERROR_FOREIGN_POINTER (NULL too), CUDDY_ERROR_DOUBLE_FREE (the block was freed),
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe. Never calls the driver. Constant time for a block's start, else it looks through
// the device's blocks.
cuddy_status cuddy_block_info(const void *ptr, struct cuddy_block *info);

// -------------------------------------------------------------------------------------------------
// Streams
// -------------------------------------------------------------------------------------------------
//
// A stream that Cuddy was not told about is used only inside the calls that pass it: the program
// may destroy it at any time, and its handle may come back for another stream. A program that opens
// its streams here, and retires them before it destroys them, saves driver calls and waits.

// Promises that a stream lives until cuddy_stream_retire(): Cuddy may use its handle meanwhile.
//
// device: the stream's device, or CUDDY_CURRENT_DEVICE.
// stream: a stream of that device. Opening one twice, or a built-in one, changes nothing.
//
// Errors: CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE,
// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN,
// CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Calls the driver once.
cuddy_status cuddy_stream_open(int device, cuddy_stream stream);

// cuddy_stream_open() with flags.
//
// With CUDDY_STREAM_CAPTURABLE the memory that is allocated on the stream during a capture
// belongs to the captured graph, without a word from the program: until the graph, and all that
// was instantiated from it, is destroyed and its launches are over. What holds between
// cuddy_graph_begin() and cuddy_graph_end() holds during the capture. Open every stream so that
// allocates in a capture, those that join one too. Meant for programs that cannot tell when a
// library of theirs captures; with such a stream no allocation is served without driver calls:
// where the program can, let it call cuddy_graph_begin().
//
// device: the stream's device, or CUDDY_CURRENT_DEVICE.
// stream: a stream of that device; with CUDDY_STREAM_CAPTURABLE, not a default one. Opening one
//         again adds flags, and takes none away.
// flags:  0, or CUDDY_STREAM_CAPTURABLE.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (flags), CUDDY_ERROR_INVALID_STREAM,
// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE, CUDDY_ERROR_NOT_SUPPORTED (drivers before
// CUDA 11.3 cannot tell when a graph is gone), CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Calls the driver once.
cuddy_status cuddy_stream_open_ex(int device, cuddy_stream stream, uint32_t flags);

// Ends that promise: call it right before the stream is destroyed. Work that the stream was given
// before counts; it must be given no more.
//
// Blocks of the stream stay valid, and its free memory stays usable by others.
//
// device: the stream's device, or CUDDY_CURRENT_DEVICE.
// stream: a stream that was opened.
//
// Errors: CUDDY_ERROR_INVALID_STREAM (never opened, or retired before), CUDDY_ERROR_INVALID_DEVICE,
// CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe. Calls the driver to mark the end of the stream's work; does not wait for it.
cuddy_status cuddy_stream_retire(int device, cuddy_stream stream);

// Tells that the program has made one stream wait for another. What has been freed on donor may
// then go to thief at once, with no wait of Cuddy's.
//
// Call it where the wait is put in (cuStreamWaitEvent(), cudaStreamWaitEvent()). The event stands
// for all that donor was given before it was recorded: a block of donor whose use comes later must
// not have been freed by then.
//
// device: the streams' device, or CUDDY_CURRENT_DEVICE.
// thief:  the stream that waits.
// donor:  the stream that it waits for.
//
// Errors: CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE,
// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN,
// CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Calls the driver at most to tell which streams the handles are.
cuddy_status cuddy_note_wait(int device, cuddy_stream thief, cuddy_stream donor);

// -------------------------------------------------------------------------------------------------
// Pools
// -------------------------------------------------------------------------------------------------
//
// A private pool is an isolated part of a device's memory: what is freed in it serves later requests
// to it, and nobody else. It can have a limit of its own, it has counters of its own, and it is
// given back as a whole. Blocks of any pool are freed with cuddy_free().
//
// Names of pools are never used twice. 0 and 1 name none of them: in place of a pool,
// CUDDY_POOL_CURRENT is the one that the calling thread pushed last on the device, and
// CUDDY_POOL_DEFAULT the device's default pool.

// Makes a private pool.
//
// options: how it is to be.
// pool:    where to write its name.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (a pointer is NULL, a struct_size that is none, unknown
// flags), CUDDY_ERROR_NOT_SUPPORTED (the device has too many pools), CUDDY_ERROR_INVALID_DEVICE,
// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN,
// CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. No memory is reserved before the first allocation.
cuddy_status cuddy_pool_create(const struct cuddy_pool_options *options, cuddy_pool *pool);

// Ends a pool: nothing more is allocated in it. Its blocks stay valid, and are freed as ever; with
// the last of them its memory goes back to the driver, as soon as no work uses it any more.
//
// pool: a pool of cuddy_pool_create(). It may be destroyed before its blocks are freed, or after.
//
// Errors: CUDDY_ERROR_INVALID_POOL (no pool, or destroyed before), CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_FORKED.
// Thread-safe. Waits for nobody: memory that work still uses goes back at a later call that needs
// the driver.
cuddy_status cuddy_pool_destroy(cuddy_pool pool);

// Makes a pool the calling thread's current one: until it is popped, this thread's allocations on
// the pool's device come from it, unless they name another pool.
//
// pool: a pool of cuddy_pool_create(), or CUDDY_POOL_DEFAULT, which goes back to the default
//       pool on every device.
//
// Pools may be pushed over each other, 64 deep. Other threads are not touched.
//
// Errors: CUDDY_ERROR_INVALID_POOL (no pool, destroyed, or too many pushed), CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_pool_push(cuddy_pool pool);

// Ends what this thread's last cuddy_pool_push() began.
//
// pool: the pool that was pushed last; it may have been destroyed meanwhile.
//
// Errors: CUDDY_ERROR_INVALID_POOL (nothing is pushed, or another pool was pushed last: nothing is
// popped then), CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_pool_pop(cuddy_pool pool);

// Fills in a pool's counters, all of one moment.
//
// pool:  a pool of cuddy_pool_create().
// stats: as for cuddy_memory_stats(). Counters of what only a device has (unmapped, quarantined,
//        waits, harvests, driver calls) are 0; reserved is what is mapped in the pool.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (stats is NULL, a struct_size that is none),
// CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_pool_stats(cuddy_pool pool, struct cuddy_stats *stats);

// Makes every peak of a pool what is now.
//
// pool: a pool of cuddy_pool_create().
//
// Errors: CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_pool_reset_peak_stats(cuddy_pool pool);

// Sets the most that may be reserved in a pool.
//
// pool:  a pool of cuddy_pool_create().
// bytes: the limit; 0 or CUDDY_NO_LIMIT for none. Below what is reserved now, free memory of the
//        pool is given back, after a wait for the work that uses it; live blocks stay.
//
// Errors: CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET,
// CUDDY_ERROR_FORKED.
// Thread-safe.
cuddy_status cuddy_pool_set_limit(cuddy_pool pool, size_t bytes);

// Sets how a stream gets memory of a pool that another stream freed.
//
// pool:  a pool of cuddy_pool_create().
// share: a CUDDY_SHARE_ constant.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (another number), CUDDY_ERROR_INVALID_POOL (no pool, or
// destroyed), CUDDY_ERROR_FORKED.
// Thread-safe. It holds for the requests from now on.
cuddy_status cuddy_pool_set_share(cuddy_pool pool, int share);

// Gives a pool's free memory back to the driver until at most so many bytes are reserved in it.
// Waits for the work that still uses it.
//
// pool:       a pool of cuddy_pool_create(). cuddy_empty_cache() empties all pools of a device.
// keep_bytes: bytes that may stay reserved, live blocks included; 0 gives back all that is free.
// freed:      where to write how many bytes were given back; may be NULL.
//
// Errors: CUDDY_ERROR_INVALID_POOL, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET,
// CUDDY_ERROR_FORKED.
// Thread-safe.
cuddy_status cuddy_pool_trim(cuddy_pool pool, size_t keep_bytes, size_t *freed);

// -------------------------------------------------------------------------------------------------
// Graphs
// -------------------------------------------------------------------------------------------------
//
// Memory that a captured CUDA graph uses is the graph's until it is destroyed, even if it is freed:
// each launch uses it again. So Cuddy has to know of the capture: tell it with these three calls,
// around what captures, launches and destroys the graph. While a capture is under way Cuddy makes no
// driver call that would disturb it, in any capture mode; freed memory that other streams still use
// waits for its end.
//
// Between cuddy_graph_begin() and cuddy_graph_end() allocations on the captured stream, and on
// streams that joined its capture, come from the graph's pool. Memory freed there is used again
// in the same capture by the same stream, and by another one after cuddy_note_wait(). Several graphs
// may share a pool: a later one uses what an earlier one freed, so they must be launched in the order
// of their captures, one after the other.

// Says that a stream's work is captured into a graph from now on. Call it right before
// the capture is begun; right after will do where no other thread calls Cuddy in between. Waits
// for other threads' driver calls about the whole context: they would break the capture.
//
// graph:  where to write the graph's name.
// device: the stream's device, or CUDDY_CURRENT_DEVICE.
// stream: the stream that is captured; it must live until cuddy_graph_end(). Not the legacy one.
// pool:   a pool of cuddy_pool_create(), which other graphs may share; 0 for one of its own.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (graph is NULL), CUDDY_ERROR_INVALID_GRAPH (the stream is
// captured into another graph already), CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_POOL,
// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_WRONG_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_FORKED, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Graphs of several streams may be captured at once.
cuddy_status cuddy_graph_begin(cuddy_graph *graph,
                               int device,
                               cuddy_stream stream,
                               cuddy_pool pool);

// Says that the capture is over. Call it right after the capture was ended, whether that succeeded
// or not.
//
// graph: a graph that was begun.
//
// Errors: CUDDY_ERROR_INVALID_GRAPH (no graph, or ended before), CUDDY_ERROR_FORKED.
// Thread-safe. Records what could not be recorded during the capture; waits for nobody.
cuddy_status cuddy_graph_end(cuddy_graph graph);

// Says that the graph, and all that was instantiated from it, is not launched any more. Its memory
// goes back to the pool once its last launches are over; a pool of its own ends with it. Blocks
// that were not freed stay valid.
//
// graph:  a graph. One whose capture was not ended, because it failed, is ended first.
// stream: the stream of its last launches; launches on others must be ordered before it.
//
// Errors: CUDDY_ERROR_INVALID_GRAPH (no graph, or destroyed before), CUDDY_ERROR_INVALID_STREAM,
// CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Waits for nobody.
cuddy_status cuddy_graph_destroy(cuddy_graph graph, cuddy_stream stream);

// -------------------------------------------------------------------------------------------------
// Cache
// -------------------------------------------------------------------------------------------------
//
// Freed memory is kept for the next allocation. These give it back to the driver, for other
// libraries and other processes; Cuddy itself does so when the device runs short.

// Gives every free page and segment back to the driver. Waits for the work that still uses them.
//
// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
// freed:  where to write how many bytes were given back; may be NULL.
//
// Errors: CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// CUDDY_ERROR_DRIVER says that the driver failed to take something back; all the rest has gone, and
// the next call tries it again.
// Thread-safe. Other threads go on allocating from what stays.
cuddy_status cuddy_empty_cache(int device, size_t *freed);

// Gives free pages and segments back to the driver until at most so many bytes are reserved.
//
// device:     a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES (each by itself).
// keep_bytes: bytes that may stay reserved, live blocks included; 0 is cuddy_empty_cache().
// freed:      where to write how many bytes were given back; may be NULL.
//
// Errors, threads and waiting: as cuddy_empty_cache().
cuddy_status cuddy_trim(int device, size_t keep_bytes, size_t *freed);

// Lets time pass for an idle program: gives back what has decayed (options decay_ms, decay_waste),
// what destroyed pools left, and tries again what the driver failed to take back. Waits for nobody.
// A busy program need not call this: requests that miss the cache let memory decay too.
//
// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
// freed:  where to write how many bytes were given back; may be NULL.
//
// Errors: as cuddy_empty_cache().
// Thread-safe.
cuddy_status cuddy_tick(int device, size_t *freed);

// Keeps memory where it is: its pages are neither given back nor mapped elsewhere before
// cuddy_unpin(). For memory that is registered with a network card or a collective library, or that
// another process knows. Blocks in it may be freed; it then serves other requests, in its place.
//
// pointer: a live block, or an address in one.
// bytes:   how much, neighbouring blocks included; 0 for the rest of the block.
//
// Pins of one range are counted; ranges may overlap.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (not all of the range is memory in use or cached),
// CUDDY_ERROR_FOREIGN_POINTER, CUDDY_ERROR_DOUBLE_FREE (the block is free),
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// No driver call is made.
// Thread-safe.
cuddy_status cuddy_pin(void *pointer, size_t bytes);

// Ends one cuddy_pin() of the same range. The block may have been freed meanwhile.
//
// pointer: as it was pinned.
// bytes:   as it was pinned; 0 for the smallest pin that begins there.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (this range is not pinned), CUDDY_ERROR_FOREIGN_POINTER,
// CUDDY_ERROR_FORKED.
// Thread-safe.
cuddy_status cuddy_unpin(void *pointer, size_t bytes);

// -------------------------------------------------------------------------------------------------
// Limits
// -------------------------------------------------------------------------------------------------
//
// At every moment a device's reserved bytes are at most its limit. It has none unless one is set
// here, in bytes or as a share of its memory (the later call holds), or by the options memory_limit
// and memory_fraction (the lower of the two holds).

// Sets the most that Cuddy may reserve on a device, in bytes.
//
// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
// bytes:  the limit; 0 or CUDDY_NO_LIMIT for none. Below what is reserved now, free memory is given
//         back, after a wait for the work that uses it; live blocks stay, and nothing is reserved
//         until enough of them are freed.
//
// Errors: CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe.
cuddy_status cuddy_set_memory_limit(int device, size_t bytes);

// Sets the most that Cuddy may reserve on a device, as a share of its memory.
//
// device:   a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
// fraction: above 0, at most 1.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (another fraction), and as cuddy_set_memory_limit().
// Thread-safe.
cuddy_status cuddy_set_memory_fraction(int device, double fraction);

// Tells a device's limit.
//
// device: a device's number, or CUDDY_CURRENT_DEVICE.
// bytes:  where to write it, in bytes; CUDDY_NO_LIMIT if there is none.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (bytes is NULL), CUDDY_ERROR_INVALID_DEVICE,
// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe.
cuddy_status cuddy_memory_limit(int device, size_t *bytes);

// Tells how much memory an allocation could still get, and how much the device has.
//
// Unlike cudaMemGetInfo(), free memory that Cuddy keeps for reuse counts as free, and a limit
// counts too.
//
// device:      a device's number, or CUDDY_CURRENT_DEVICE.
// free_bytes:  where to write the first. It need not be in one piece.
// total_bytes: where to write the second.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (a pointer is NULL), CUDDY_ERROR_INVALID_DEVICE,
// CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED,
// CUDDY_ERROR_SHUTDOWN.
// Thread-safe. Asks the driver: it makes the device's primary context if there is none yet.
cuddy_status cuddy_mem_get_info(int device, size_t *free_bytes, size_t *total_bytes);

// -------------------------------------------------------------------------------------------------
// Statistics
// -------------------------------------------------------------------------------------------------
//
// Always counted, exactly. A device that Cuddy has not used has zeros, and asking does not make a
// context on it.

// Bytes of live blocks, after rounding.
//
// device: a device's number, or CUDDY_CURRENT_DEVICE.
//
// Returns 0 if there is no such device; cuddy_last_error() says so. Thread-safe.
size_t cuddy_memory_allocated(int device);

// The most bytes of live blocks since the start or cuddy_reset_peak_memory_stats().
//
// device, result, threads: as cuddy_memory_allocated().
size_t cuddy_max_memory_allocated(int device);

// Physical bytes held from the driver: live blocks, blocks that a stream may still use, and cache.
//
// device, result, threads: as cuddy_memory_allocated().
size_t cuddy_memory_reserved(int device);

// The most physical bytes held since the start or cuddy_reset_peak_memory_stats().
//
// device, result, threads: as cuddy_memory_allocated().
size_t cuddy_max_memory_reserved(int device);

// Copies a device's counters, all of one moment.
//
// device: a device's number, or CUDDY_CURRENT_DEVICE.
// stats:  where to write; its struct_size must be set.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (stats is NULL or its struct_size is none),
// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe. Never calls the driver for a device in use.
cuddy_status cuddy_memory_stats(int device, struct cuddy_stats *stats);

// Starts every peak anew, from the value of now.
//
// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
//
// Errors: CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_FORKED,
// CUDDY_ERROR_SHUTDOWN. Thread-safe.
cuddy_status cuddy_reset_peak_memory_stats(int device);

// Starts every total, and every count of events, anew from 0.
//
// device, errors, threads: as cuddy_reset_peak_memory_stats().
cuddy_status cuddy_reset_accumulated_memory_stats(int device);

// Writes a table of the counters for people to read.
//
// device: a device's number, CUDDY_CURRENT_DEVICE or CUDDY_ALL_DEVICES.
// buffer: where to write the text, cut to size - 1 bytes and ended by 0; NULL if size is 0.
// size:   the buffer's bytes.
// needed: where to write the bytes that the whole text needs, the 0 included; may be NULL. If it
//         is above size, the text was cut.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0), and as
// cuddy_memory_stats(). Thread-safe.
cuddy_status cuddy_memory_summary(int device, char *buffer, size_t size, size_t *needed);

// Writes the counters of every device in use, of page-locked host memory and of the scopes in the
// text format of Prometheus: a program serves it, or writes it to a file for the textfile
// collector of the node exporter.
//
// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0),
// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_export_prometheus(char *buffer, size_t size, size_t *needed);

// Writes what cuddy_export_prometheus() tells to a file, now and again and again, from a thread of
// Cuddy's own: for `cuddy top`, and for the textfile collector of the node exporter. Who reads sees
// a whole file. CUDDY_EXPORT in the environment is the same, every 500 ms; CUDDY_EXPORT=on is a
// file that `cuddy top` finds by the process's number.
//
// path:     the file; "%p" in it is the process's number. NULL ends it. What was begun before ends.
// every_ms: milliseconds from one file to the next, at least 1.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (path is empty, no UTF-8 or cannot be written; every_ms is
// 0), CUDDY_ERROR_NOT_SUPPORTED (no thread can be started), CUDDY_ERROR_HOST_OUT_OF_MEMORY,
// CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_export_metrics(const char *path, uint64_t every_ms);

// -------------------------------------------------------------------------------------------------
// Options
// -------------------------------------------------------------------------------------------------
//
// The environment variable CUDDY_CONF sets options before the program does, as
// "key:value,key:value". An entry of it that cannot be used is left out and said once on stderr. The
// keys are listed by cuddy_list_options(), by `cuddy doctor` and in docs/OPTIONS.md.

// Sets one option. It takes effect for devices that are not in use yet; the limits for all.
//
// key:   the option's name, for example "memory_limit".
// value: as it would stand in CUDDY_CONF, for example "1.5GiB".
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (a pointer is NULL), CUDDY_ERROR_INVALID_OPTION (no such
// option, a value that it does not take, or one that cannot change any more; the message says what
// is accepted), CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN. Thread-safe.
cuddy_status cuddy_set_option(const char *key, const char *value);

// Tells the value of one option, as text that cuddy_set_option() takes.
//
// key:    the option's name.
// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (key is NULL, or buffer is and size is not 0),
// CUDDY_ERROR_INVALID_OPTION (no such option), CUDDY_ERROR_FORKED. Thread-safe.
cuddy_status cuddy_get_option(const char *key, char *buffer, size_t size, size_t *needed);

// Lists every option, one a line, its parts separated by tabs: key, value, where the value came
// from (default, CUDDY_CONF or program), values accepted, meaning.
//
// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0), CUDDY_ERROR_FORKED.
// Thread-safe.
cuddy_status cuddy_list_options(char *buffer, size_t size, size_t *needed);

// -------------------------------------------------------------------------------------------------
// Host memory
// -------------------------------------------------------------------------------------------------
//
// Page-locked memory of the host, which devices copy from and to without the program waiting.
// Getting it from the driver costs milliseconds; here it is kept and handed out again. A freed
// block is used again only when the work that uses it is known to be over, never behind a wait of
// a stream: the host would not be held back by that. So say which streams use a block
// (cuddy_host_record_stream()): after its free they are waited for, and nobody else. Of a block
// for which no stream was recorded, all work of its device's primary context is waited for, as
// cudaFreeHost() does; a program that records every stream says so with
// CUDDY_HOST_STREAMS_RECORDED, and gets unused blocks back at once.
//
// Blocks are cut from driver allocations: those up to 256 KiB from shared ones of 2 MiB, others
// from any that is less than 16 times as large. No request is rounded by more than 2 MiB. Before
// the driver is asked for more, whole allocations that are free go back, until no more is
// page-locked than was ever in use at once and an eighth of it (or 2 MiB) more. The memory is of
// the primary context of the device that was current when it was got; all devices can use it where
// addresses are unified. It is placed by the calling thread's memory policy when it is got; reuse
// does not look where it lies. A reset of that device takes it away; that is noticed by the next
// call which needs the driver.

// Allocates page-locked host memory.
//
// ptr:   where to write the address, a multiple of 512.
// bytes: how many are wanted; rounded up to a multiple of 512. 0 gives success and NULL.
// flags: CUDDY_HOST_PORTABLE, CUDDY_HOST_MAPPED, CUDDY_HOST_WRITE_COMBINED and
//        CUDDY_HOST_STREAMS_RECORDED, or-ed; 0 for none. Memory is reused for the same flags only.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (ptr is NULL, unknown flags), CUDDY_ERROR_OUT_OF_MEMORY
// (all that is cached went back, and freed blocks were waited for, before), CUDDY_ERROR_NO_DRIVER,
// CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Calls the driver only when no free block fits; waits for streams only when the
// driver has no memory, or cannot record what a freed block waits for (before CUDA 12.5).
cuddy_status cuddy_host_malloc(void **ptr, size_t bytes, uint32_t flags);

// Gives a block of host memory back. It is used again when the work that its streams had been
// given by now is over.
//
// ptr: what cuddy_host_malloc() gave; NULL does nothing.
//
// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED; with the option caching off CUDDY_ERROR_DRIVER,
// after which the block is free all the same.
// Thread-safe; any thread may free. Never waits, unless caching is off. Calls the driver for one
// free in 16, or in 1 MiB, to mark the end of the streams' work.
cuddy_status cuddy_host_free(void *ptr);

// Says that a stream uses a block of host memory: after its free it is not used again before the
// work that the stream had been given by then is over.
//
// ptr:    the start of a live block; NULL does nothing.
// stream: the stream, of any device; CUDDY_STREAM_ANY is all work of the primary context of the
//         block's device. It must be valid during the call. A captured stream's use lasts until
//         its graph is destroyed.
//
// Errors: CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INTERIOR_POINTER, CUDDY_ERROR_FOREIGN_POINTER,
// CUDDY_ERROR_INVALID_STREAM, CUDDY_ERROR_INVALID_GRAPH (the stream is captured, and no
// cuddy_graph_begin() said so), CUDDY_ERROR_DRIVER, CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED,
// CUDDY_ERROR_SHUTDOWN, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. Calls the driver to tell which stream a handle is.
cuddy_status cuddy_host_record_stream(void *ptr, cuddy_stream stream);

// Gives all host memory that is free back to the driver. Waits for the work that still uses it.
//
// freed: where to write how many bytes were given back; may be NULL.
//
// Errors: CUDDY_ERROR_DRIVER, CUDDY_ERROR_FORKED, CUDDY_ERROR_HOST_OUT_OF_MEMORY.
// Thread-safe. While a graph is captured nothing is given back.
cuddy_status cuddy_host_empty_cache(size_t *freed);

// Copies the counters of host memory, all of one moment.
//
// stats: where to write; its struct_size must be set.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (stats is NULL or its struct_size is none),
// CUDDY_ERROR_FORKED. Thread-safe. Never calls the driver.
cuddy_status cuddy_host_memory_stats(struct cuddy_host_stats *stats);

// Starts every peak of host memory anew, from the value of now.
//
// Errors: CUDDY_ERROR_FORKED. Thread-safe.
cuddy_status cuddy_host_reset_peak_memory_stats(void);

// Starts every total of host memory, and every count of events, anew from 0.
//
// Errors, threads: as cuddy_host_reset_peak_memory_stats().
cuddy_status cuddy_host_reset_accumulated_memory_stats(void);

// -------------------------------------------------------------------------------------------------
// Observers
// -------------------------------------------------------------------------------------------------
//
// A program can be called when a request finds no memory, so that it frees something, and when
// memory is got from the driver or given back to it. A callback runs on the thread whose call it
// is about, within that call and with no lock of Cuddy's held: it may call any function of
// Cuddy's, and wait for other threads. What it does itself is told to nobody while it does it:
// callbacks do not nest, and a request that finds no memory inside one fails. It must return: an
// exception that leaves it ends the process, and longjmp() out of it leaves it running for ever,
// so that nobody could wait for its removal. Where nobody observes, and for all that the cache
// serves, observers cost nothing.

// Asks to be called when certain things happen.
//
// observer: where to write the observer's name.
// kinds:    CUDDY_EVENT_OUT_OF_MEMORY, CUDDY_EVENT_GROWTH and CUDDY_EVENT_RELEASE, or-ed.
// callback: the function to call, by any thread, and by several at once.
// user:     passed to it as it is; it must be good until cuddy_unobserve() returns.
//
// Observers are called in the order in which they were added.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (observer or callback is NULL, kinds is 0 or has unknown
// bits), CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe; may be called in a callback. Never calls the driver.
cuddy_status cuddy_observe(cuddy_observer *observer,
                           uint32_t kinds,
                           cuddy_callback callback,
                           void *user);

// Ends that. When it returns, the callback is not running and is never called again: calls that
// other threads are in are waited for. Called inside any callback it does not wait, since two that
// removed each other would wait for ever: then calls under way on other threads may still run on.
//
// observer: what cuddy_observe() wrote.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (no observer, or removed before), CUDDY_ERROR_FORKED.
// Thread-safe. The caller must not hold what the callback waits for. Never calls the driver.
cuddy_status cuddy_unobserve(cuddy_observer observer);

// -------------------------------------------------------------------------------------------------
// Peers
// -------------------------------------------------------------------------------------------------
//
// Other devices may use memory that Cuddy allocates on a device once that is enabled. Nothing is made
// on them: no context, no memory.

// Lets another device use the memory that Cuddy allocates on a device: all that there is, and all
// that comes. Streams of that device may then be named where a stream of the block's device may.
//
// device: the device whose memory it is; it is used by this call.
// peer:   the device that is to use it.
//
// Enabling twice is once. A failure leaves everything as it was. Memory in segments can be used by
// the peer's primary context alone, which has to be there, and only until the peer is reset.
//
// Errors: CUDDY_ERROR_NOT_SUPPORTED (no way between the devices; or memory in segments, and the
// peer has no primary context), CUDDY_ERROR_INVALID_ARGUMENT (one device twice),
// CUDDY_ERROR_INVALID_DEVICE, CUDDY_ERROR_NO_DRIVER, CUDDY_ERROR_DRIVER,
// CUDDY_ERROR_DEVICE_RESET, CUDDY_ERROR_FORKED, CUDDY_ERROR_SHUTDOWN.
// Thread-safe.
cuddy_status cuddy_enable_peer_access(int device, int peer);

// Ends cuddy_enable_peer_access(). The peer's work with the memory has to be over.
//
// device: the device whose memory it is.
// peer:   the device that used it.
//
// Errors: as cuddy_enable_peer_access().
// Thread-safe.
cuddy_status cuddy_disable_peer_access(int device, int peer);

// -------------------------------------------------------------------------------------------------
// Scopes and history
// -------------------------------------------------------------------------------------------------
//
// Scopes name parts of a program's run; each tells what was allocated in it, and what of that is
// still live. History keeps what happened last. Both are off, and cost a branch, until a program
// begins a scope or asks for history; from then on an allocation and its free cost some tens of
// nanoseconds more. What is told, as JSON, is described in docs/SNAPSHOT.md.

// Begins a scope on the calling thread, inside the one that it is in. What this thread allocates
// until cuddy_scope_end() belongs to it.
//
// name: what it is called: not empty, without a slash. Scopes of one name in the same scope are
//       one; how often it was begun is counted ("step", not "step 17").
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (name, or 63 scopes are begun), CUDDY_ERROR_NOT_SUPPORTED
// (too many names), CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Other threads are not touched. Never calls the driver.
cuddy_status cuddy_scope_begin(const char *name);

// Ends the scope that the calling thread began last. Blocks of it stay its own.
//
// name: its name, to be sure; or NULL.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (the thread is in no scope, or in another: nothing is
// ended then), CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_scope_end(const char *name);

// Tells of every scope, as a JSON array: its path, how often it was begun, what is live of it,
// its peak, and what was allocated over time, the scopes inside it included.
//
// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0), CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_scopes(char *buffer, size_t size, size_t *needed);

// Tells of the live blocks that were allocated in a scope, or in one inside it, as a JSON array:
// where they are, how large, in which run of which scope they were allocated, and their labels.
// Called when the scope has ended, these are what it leaked.
//
// scope: its path, all names from the outermost on with slashes between, "epoch/step"; "" is
//        every block that was allocated since scopes or history were first used.
// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (scope is NULL or names none; buffer is NULL and size is
// not 0), CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_leaks(const char *scope, char *buffer, size_t size, size_t *needed);

// Says what a block is for: a label that leaks and snapshots tell.
//
// ptr:   the start of a live block, or any byte of it.
// label: the text; "" takes it away.
//
// Errors: CUDDY_ERROR_FOREIGN_POINTER, CUDDY_ERROR_DOUBLE_FREE, CUDDY_ERROR_INVALID_ARGUMENT
// (label is NULL; or the block was allocated before scopes or history were used),
// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_annotate(const void *ptr, const char *label);

// Keeps what happens to memory from now on: allocations, frees, growth, release, and requests
// that found none.
//
// events: how many of the last to keep, 64 bytes each, taken at once; 0 ends it. What was kept
//         before is forgotten.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (more than 2^28), CUDDY_ERROR_HOST_OUT_OF_MEMORY,
// CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_record_history(size_t events);

// Tells why the last request of the calling thread found no memory, as a JSON object: what was
// asked for, where memory is, what limits it, which streams freed memory waits for, in which
// scopes live memory was allocated, and what to do. docs/SNAPSHOT.md says what each name means. It
// is "null" if no request has failed so, or if it was for more than any device has.
//
// buffer, size, needed: where to write the text; as for cuddy_memory_summary().
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0),
// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_last_out_of_memory(char *buffer, size_t size, size_t *needed);

// Keeps what happens to memory, as cuddy_record_history(), and writes a snapshot to a file where a
// request finds no memory: the error's message says where it is. It is written at most every ten
// seconds, over the one before. `cuddy report` shows it; `cuddy replay --fit` tells what would have
// fitted. CUDDY_OOM_SNAPSHOT in the environment is the same, with 100000 events.
//
// path:   the file; "%p" in it is the process's number. NULL ends the recorder, and history.
// events: how many of the last events to keep, 64 bytes each, taken at once.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (path is empty, or no UTF-8; more than 2^28 events),
// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver.
cuddy_status cuddy_flight_recorder(const char *path, size_t events);

// Writes all that is known of memory, as JSON: of every device in use its counters and every
// block, the last request that found no memory, the options, the scopes, and the history that was
// kept.
//
// buffer, size, needed: where to write the text; as for cuddy_memory_summary(). It may be longer
//         at the next call: make the buffer larger, until needed is at most size.
//
// Errors: CUDDY_ERROR_INVALID_ARGUMENT (buffer is NULL and size is not 0),
// CUDDY_ERROR_HOST_OUT_OF_MEMORY, CUDDY_ERROR_FORKED.
// Thread-safe. Never calls the driver. Other threads wait while blocks are listed.
cuddy_status cuddy_snapshot(char *buffer, size_t size, size_t *needed);

// -------------------------------------------------------------------------------------------------
// Per-thread default streams
// -------------------------------------------------------------------------------------------------
//
// A program compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM (nvcc --default-stream per-thread)
// means CUDDY_STREAM_PER_THREAD by stream 0. For it the names of the functions that take a stream
// stand for these, as the names of cuda.h do; others need not call them by name.

// cuddy_malloc(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_malloc_ptsz(void **ptr, size_t bytes, int device, cuddy_stream stream);

// cuddy_malloc_ex(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_malloc_ex_ptsz(void **ptr, const struct cuddy_request *request);

// cuddy_record_stream(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_record_stream_ptsz(void *ptr, cuddy_stream stream);

// cuddy_host_record_stream(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_host_record_stream_ptsz(void *ptr, cuddy_stream stream);

// cuddy_free_on(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_free_on_ptsz(void *ptr, cuddy_stream stream);

// cuddy_note_wait(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_note_wait_ptsz(int device, cuddy_stream thief, cuddy_stream donor);

// cuddy_graph_begin(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_graph_begin_ptsz(cuddy_graph *graph,
                                    int device,
                                    cuddy_stream stream,
                                    cuddy_pool pool);

// cuddy_graph_destroy(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_graph_destroy_ptsz(cuddy_graph graph, cuddy_stream stream);

// cuddy_stream_open(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_stream_open_ptsz(int device, cuddy_stream stream);

// cuddy_stream_open_ex(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_stream_open_ex_ptsz(int device, cuddy_stream stream, uint32_t flags);

// cuddy_stream_retire(), where stream 0 is CUDDY_STREAM_PER_THREAD.
cuddy_status cuddy_stream_retire_ptsz(int device, cuddy_stream stream);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) || defined(__CUDA_API_PER_THREAD_DEFAULT_STREAM)
#define cuddy_malloc cuddy_malloc_ptsz
#define cuddy_malloc_ex cuddy_malloc_ex_ptsz
#define cuddy_free_on cuddy_free_on_ptsz
#define cuddy_note_wait cuddy_note_wait_ptsz
#define cuddy_graph_begin cuddy_graph_begin_ptsz
#define cuddy_graph_destroy cuddy_graph_destroy_ptsz
#define cuddy_record_stream cuddy_record_stream_ptsz
#define cuddy_host_record_stream cuddy_host_record_stream_ptsz
#define cuddy_stream_open cuddy_stream_open_ptsz
#define cuddy_stream_open_ex cuddy_stream_open_ex_ptsz
#define cuddy_stream_retire cuddy_stream_retire_ptsz
#endif

#endif  /* CUDDY_H */
