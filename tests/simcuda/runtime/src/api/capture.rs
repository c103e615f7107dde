//! Stream capture, passed on to the driver. CUDA 12 has three forms of what is asked of a capture,
//! CUDA 13 the last of them under the plain name.

use super::exports;
use std::ptr::null_mut;

exports! {
    context fn cudaStreamIsCapturing, fn cudaStreamIsCapturing_ptsz (
        stream: u64, status: *mut i32,
    ) |d, lane| {
        d.cuStreamIsCapturing(lane.of(stream), status)
    };
    context fn cudaStreamBeginCapture, fn cudaStreamBeginCapture_ptsz (
        stream: u64, mode: i32,
    ) |d, lane| {
        d.cuStreamBeginCapture(lane.of(stream), mode)
    };
    context fn cudaStreamBeginCaptureToGraph, fn cudaStreamBeginCaptureToGraph_ptsz (
        stream: u64, graph: u64, nodes: *const u64, edges: *const [u8; 8], count: usize, mode: i32,
    ) |d, lane| {
        d.cuStreamBeginCaptureToGraph(lane.of(stream), graph, nodes, edges, count, mode)
    };
    context fn cudaStreamEndCapture, fn cudaStreamEndCapture_ptsz (
        stream: u64, graph: *mut u64,
    ) |d, lane| {
        d.cuStreamEndCapture(lane.of(stream), graph)
    };
    context fn cudaStreamGetCaptureInfo, fn cudaStreamGetCaptureInfo_ptsz (
        stream: u64, status: *mut i32, id: *mut u64,
    ) |d, lane| {
        let (graph, nodes, count) = (null_mut(), null_mut(), null_mut());
        d.cuStreamGetCaptureInfo(lane.of(stream), status, id, graph, nodes, count)
    };
    context fn cudaStreamGetCaptureInfo_v2, fn cudaStreamGetCaptureInfo_v2_ptsz (
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64,
        count: *mut usize,
    ) |d, lane| {
        d.cuStreamGetCaptureInfo(lane.of(stream), status, id, graph, nodes, count)
    };
    context fn cudaStreamGetCaptureInfo_v3, fn cudaStreamGetCaptureInfo_v3_ptsz (
        stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64, nodes: *mut *const u64,
        edges: *mut *const [u8; 8], count: *mut usize,
    ) |d, lane| {
        d.cuStreamGetCaptureInfo_v3(lane.of(stream), status, id, graph, nodes, edges, count)
    };
    context fn cudaStreamUpdateCaptureDependencies, fn cudaStreamUpdateCaptureDependencies_ptsz (
        stream: u64, nodes: *mut u64, count: usize, flags: u32,
    ) |d, lane| {
        d.cuStreamUpdateCaptureDependencies(lane.of(stream), nodes, count, flags)
    };
    context fn cudaStreamUpdateCaptureDependencies_v2,
        fn cudaStreamUpdateCaptureDependencies_v2_ptsz (
        stream: u64, nodes: *mut u64, edges: *const [u8; 8], count: usize, flags: u32,
    ) |d, lane| {
        d.cuStreamUpdateCaptureDependencies_v2(lane.of(stream), nodes, edges, count, flags)
    };
    driver fn cudaThreadExchangeStreamCaptureMode(mode: *mut i32) |d| {
        d.cuThreadExchangeStreamCaptureMode(mode)
    };
}
