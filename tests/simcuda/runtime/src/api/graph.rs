//! Graphs, passed on to the driver. Nodes of kernels, copies and fills come from captures; the
//! functions that make them one by one are not there yet.

use super::exports;
use std::ffi::{c_char, c_void};

exports! {
    context fn cudaGraphCreate(graph: *mut u64, flags: u32) |d| d.cuGraphCreate(graph, flags);
    context fn cudaGraphDestroy(graph: u64) |d| d.cuGraphDestroy(graph);
    context fn cudaGraphClone(clone: *mut u64, graph: u64) |d| d.cuGraphClone(clone, graph);
    context fn cudaGraphInstantiate(exec: *mut u64, graph: u64, flags: u64) |d| {
        d.cuGraphInstantiateWithFlags(exec, graph, flags)
    };
    context fn cudaGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) |d| {
        d.cuGraphInstantiateWithFlags(exec, graph, flags)
    };
    context fn cudaGraphInstantiateWithParams, fn cudaGraphInstantiateWithParams_ptsz (
        exec: *mut u64, graph: u64, parameters: *mut c_void,
    ) |d, lane| {
        let _ = lane;
        d.cuGraphInstantiateWithParams(exec, graph, parameters)
    };
    context fn cudaGraphLaunch, fn cudaGraphLaunch_ptsz (exec: u64, stream: u64) |d, lane| {
        d.cuGraphLaunch(exec, lane.of(stream))
    };
    context fn cudaGraphUpload, fn cudaGraphUpload_ptsz (exec: u64, stream: u64) |d, lane| {
        d.cuGraphUpload(exec, lane.of(stream))
    };
    context fn cudaGraphExecDestroy(exec: u64) |d| d.cuGraphExecDestroy(exec);
    context fn cudaGraphExecUpdate(exec: u64, graph: u64, result: *mut c_void) |d| {
        d.cuGraphExecUpdate(exec, graph, result)
    };
    context fn cudaGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) |d| {
        d.cuGraphGetNodes(graph, nodes, count)
    };
    context fn cudaGraphGetRootNodes(graph: u64, nodes: *mut u64, count: *mut usize) |d| {
        d.cuGraphGetRootNodes(graph, nodes, count)
    };
    context fn cudaGraphGetEdges(
        graph: u64, from: *mut u64, to: *mut u64, count: *mut usize,
    ) |d| {
        d.cuGraphGetEdges(graph, from, to, count)
    };
    context fn cudaGraphGetEdges_v2(
        graph: u64, from: *mut u64, to: *mut u64, edges: *mut [u8; 8], count: *mut usize,
    ) |d| {
        d.cuGraphGetEdges_v2(graph, from, to, edges, count)
    };
    // Both number the kinds alike.
    context fn cudaGraphNodeGetType(node: u64, kind: *mut i32) |d| d.cuGraphNodeGetType(node, kind);
    context fn cudaGraphNodeGetDependencies(node: u64, nodes: *mut u64, count: *mut usize) |d| {
        d.cuGraphNodeGetDependencies(node, nodes, count)
    };
    context fn cudaGraphNodeGetDependencies_v2(
        node: u64, nodes: *mut u64, edges: *mut [u8; 8], count: *mut usize,
    ) |d| {
        d.cuGraphNodeGetDependencies_v2(node, nodes, edges, count)
    };
    context fn cudaGraphNodeGetDependentNodes(node: u64, nodes: *mut u64, count: *mut usize) |d| {
        d.cuGraphNodeGetDependentNodes(node, nodes, count)
    };
    context fn cudaGraphNodeGetDependentNodes_v2(
        node: u64, nodes: *mut u64, edges: *mut [u8; 8], count: *mut usize,
    ) |d| {
        d.cuGraphNodeGetDependentNodes_v2(node, nodes, edges, count)
    };
    context fn cudaGraphAddDependencies(
        graph: u64, from: *const u64, to: *const u64, count: usize,
    ) |d| {
        d.cuGraphAddDependencies(graph, from, to, count)
    };
    context fn cudaGraphAddDependencies_v2(
        graph: u64, from: *const u64, to: *const u64, edges: *const [u8; 8], count: usize,
    ) |d| {
        d.cuGraphAddDependencies_v2(graph, from, to, edges, count)
    };
    context fn cudaGraphDestroyNode(node: u64) |d| d.cuGraphDestroyNode(node);
    context fn cudaGraphAddEmptyNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize,
    ) |d| {
        d.cuGraphAddEmptyNode(node, graph, after, count)
    };
    context fn cudaGraphAddHostNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *const c_void,
    ) |d| {
        d.cuGraphAddHostNode(node, graph, after, count, what)
    };
    context fn cudaGraphAddChildGraphNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, child: u64,
    ) |d| {
        d.cuGraphAddChildGraphNode(node, graph, after, count, child)
    };
    context fn cudaGraphAddEventRecordNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64,
    ) |d| {
        d.cuGraphAddEventRecordNode(node, graph, after, count, event)
    };
    context fn cudaGraphAddEventWaitNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, event: u64,
    ) |d| {
        d.cuGraphAddEventWaitNode(node, graph, after, count, event)
    };
    context fn cudaGraphAddMemAllocNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, what: *mut c_void,
    ) |d| {
        d.cuGraphAddMemAllocNode(node, graph, after, count, what)
    };
    context fn cudaGraphAddMemFreeNode(
        node: *mut u64, graph: u64, after: *const u64, count: usize, address: u64,
    ) |d| {
        d.cuGraphAddMemFreeNode(node, graph, after, count, address)
    };
    context fn cudaGraphDebugDotPrint(graph: u64, path: *const c_char, flags: u32) |d| {
        d.cuGraphDebugDotPrint(graph, path, flags)
    };
    driver fn cudaDeviceGraphMemTrim(device: i32) |d| d.cuDeviceGraphMemTrim(device);
    driver fn cudaDeviceGetGraphMemAttribute(device: i32, attribute: i32, value: *mut c_void) |d| {
        d.cuDeviceGetGraphMemAttribute(device, attribute, value)
    };
    driver fn cudaDeviceSetGraphMemAttribute(device: i32, attribute: i32, value: *mut c_void) |d| {
        d.cuDeviceSetGraphMemAttribute(device, attribute, value)
    };
}
