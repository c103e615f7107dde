//! **Graphs**: passed on as they are.

use crate::{driver, thread};
use std::ffi::c_char;

crate::exports! {
    fn rt_cudaGraphAddEmptyNode(
        node: *mut u64, graph: u64, dependencies: *const u64, count: usize,
    ) {
        driver::cuGraphAddEmptyNode(node, graph, dependencies, count)
    }
    fn rt_cudaGraphDebugDotPrint(graph: u64, path: *const c_char, flags: u32) {
        driver::cuGraphDebugDotPrint(graph, path, flags)
    }
    fn rt_cudaGraphDestroy(graph: u64) {
        driver::cuGraphDestroy(graph)
    }
    fn rt_cudaGraphExecDestroy(exec: u64) {
        driver::cuGraphExecDestroy(exec)
    }
    fn rt_cudaGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) {
        driver::cuGraphGetNodes(graph, nodes, count)
    }
    fn rt_cudaGraphInstantiate(exec: *mut u64, graph: u64, flags: u64) {
        thread::context()?;
        driver::cuGraphInstantiateWithFlags(exec, graph, flags)
    }
    fn rt_cudaGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) {
        thread::context()?;
        driver::cuGraphInstantiateWithFlags(exec, graph, flags)
    }
    fn rt_cudaGraphLaunch(exec: u64, stream: u64) {
        thread::context()?;
        driver::cuGraphLaunch(exec, stream)
    }
    fn rt_cudaGraphNodeGetDependencies(node: u64, nodes: *mut u64, count: *mut usize) {
        driver::cuGraphNodeGetDependencies(node, nodes, count)
    }
    fn rt_cudaGraphNodeGetType(node: u64, kind: *mut i32) {
        driver::cuGraphNodeGetType(node, kind)
    }
}
