//! **Streams and events**: passed on as they are; the numbers of the special streams, of flags and of
//! modes are the same in both APIs.

use crate::{driver, thread};

crate::exports! {
    fn rt_cudaStreamCreate(stream: *mut u64) {
        thread::context()?;
        driver::cuStreamCreate(stream, 0)
    }
    fn rt_cudaStreamCreateWithFlags(stream: *mut u64, flags: u32) {
        thread::context()?;
        driver::cuStreamCreate(stream, flags)
    }
    fn rt_cudaStreamCreateWithPriority(stream: *mut u64, flags: u32, priority: i32) {
        thread::context()?;
        driver::cuStreamCreateWithPriority(stream, flags, priority)
    }
    fn rt_cudaStreamDestroy(stream: u64) {
        thread::context()?;
        driver::cuStreamDestroy(stream)
    }
    fn rt_cudaStreamQuery(stream: u64) {
        thread::context()?;
        driver::cuStreamQuery(stream)
    }
    fn rt_cudaStreamSynchronize(stream: u64) {
        thread::context()?;
        driver::cuStreamSynchronize(stream)
    }
    fn rt_cudaStreamWaitEvent(stream: u64, event: u64, flags: u32) {
        thread::context()?;
        driver::cuStreamWaitEvent(stream, event, flags)
    }
    fn rt_cudaStreamGetPriority(stream: u64, priority: *mut i32) {
        thread::context()?;
        driver::cuStreamGetPriority(stream, priority)
    }
    fn rt_cudaStreamGetFlags(stream: u64, flags: *mut u32) {
        thread::context()?;
        driver::cuStreamGetFlags(stream, flags)
    }
    fn rt_cudaStreamGetId(stream: u64, id: *mut u64) {
        thread::context()?;
        driver::cuStreamGetId(stream, id)
    }
    fn rt_cudaStreamAddCallback(stream: u64, function: u64, data: u64, flags: u32) {
        thread::context()?;
        driver::cuStreamAddCallback(stream, function, data, flags)
    }
    fn rt_cudaLaunchHostFunc(stream: u64, function: u64, data: u64) {
        thread::context()?;
        driver::cuLaunchHostFunc(stream, function, data)
    }
    fn rt_cudaStreamBeginCapture(stream: u64, mode: i32) {
        thread::context()?;
        driver::cuStreamBeginCapture(stream, mode)
    }
    fn rt_cudaStreamEndCapture(stream: u64, graph: *mut u64) {
        thread::context()?;
        driver::cuStreamEndCapture(stream, graph)
    }
    fn rt_cudaStreamIsCapturing(stream: u64, status: *mut i32) {
        thread::context()?;
        driver::cuStreamIsCapturing(stream, status)
    }
    fn rt_cudaStreamGetCaptureInfo_v2(
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64,
        dependencies: *mut *const u64, count: *mut usize,
    ) {
        thread::context()?;
        driver::cuStreamGetCaptureInfo(stream, status, id, graph, dependencies, count)
    }
    fn rt_cudaStreamUpdateCaptureDependencies(
        stream: u64, dependencies: *mut u64, count: usize, flags: u32,
    ) {
        thread::context()?;
        driver::cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags)
    }
    fn rt_cudaThreadExchangeStreamCaptureMode(mode: *mut i32) {
        thread::context()?;
        driver::cuThreadExchangeStreamCaptureMode(mode)
    }
    fn rt_cudaEventCreate(event: *mut u64) {
        thread::context()?;
        driver::cuEventCreate(event, 0)
    }
    fn rt_cudaEventCreateWithFlags(event: *mut u64, flags: u32) {
        thread::context()?;
        driver::cuEventCreate(event, flags)
    }
    fn rt_cudaEventRecord(event: u64, stream: u64) {
        thread::context()?;
        driver::cuEventRecord(event, stream)
    }
    fn rt_cudaEventRecordWithFlags(event: u64, stream: u64, flags: u32) {
        thread::context()?;
        driver::cuEventRecordWithFlags(event, stream, flags)
    }
    fn rt_cudaEventQuery(event: u64) {
        thread::context()?;
        driver::cuEventQuery(event)
    }
    fn rt_cudaEventSynchronize(event: u64) {
        thread::context()?;
        driver::cuEventSynchronize(event)
    }
    fn rt_cudaEventDestroy(event: u64) {
        thread::context()?;
        driver::cuEventDestroy(event)
    }
    fn rt_cudaEventElapsedTime(ms: *mut f32, begin: u64, end: u64) {
        thread::context()?;
        driver::cuEventElapsedTime(ms, begin, end)
    }
}
