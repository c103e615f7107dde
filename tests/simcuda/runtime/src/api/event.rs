//! Events. The flags are the driver's.

use super::exports;

exports! {
    context fn cudaEventCreate(event: *mut u64) |d| d.cuEventCreate(event, 0);
    context fn cudaEventCreateWithFlags(event: *mut u64, flags: u32) |d| {
        d.cuEventCreate(event, flags)
    };
    context fn cudaEventDestroy(event: u64) |d| d.cuEventDestroy(event);
    context fn cudaEventRecord, fn cudaEventRecord_ptsz (event: u64, stream: u64) |d, lane| {
        d.cuEventRecord(event, lane.of(stream))
    };
    context fn cudaEventRecordWithFlags, fn cudaEventRecordWithFlags_ptsz (
        event: u64, stream: u64, flags: u32,
    ) |d, lane| {
        d.cuEventRecordWithFlags(event, lane.of(stream), flags)
    };
    context fn cudaEventQuery(event: u64) |d| d.cuEventQuery(event);
    context fn cudaEventSynchronize(event: u64) |d| d.cuEventSynchronize(event);
    context fn cudaEventElapsedTime(ms: *mut f32, start: u64, end: u64) |d| {
        d.cuEventElapsedTime(ms, start, end)
    };
    context fn cudaEventElapsedTime_v2(ms: *mut f32, start: u64, end: u64) |d| {
        d.cuEventElapsedTime_v2(ms, start, end)
    };
}
