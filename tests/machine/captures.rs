//! Captures by the driver, and the graphs that come of them.

use std::ffi::c_void;

use super::Machine;

/// The modes of a capture: global, of this thread, relaxed.
pub const MODES: [i32; 3] = [0, 1, 2];

impl Machine {
    /// Begins a relaxed capture of a stream.
    pub fn begin_capture(&self, stream: usize) {
        self.begin_capture_in(stream, 2);
    }

    /// Begins a capture of a stream in this mode.
    pub fn begin_capture_in(&self, stream: usize, mode: i32) {
        let code = cu!(self, "cuStreamBeginCapture_v2"(stream => usize, mode => i32));
        assert_eq!(code, 0, "a capture that cannot begin");
    }

    /// Ends a capture, which nothing has spoilt; the graph goes at once.
    pub fn end_capture(&self, stream: usize) {
        let graph = self.drawn(stream);
        assert_eq!(cu!(self, "cuGraphDestroy"(graph => usize)), 0);
    }

    /// Ends a capture, which nothing has spoilt; what can be launched.
    pub fn instantiate_capture(&self, stream: usize) -> usize {
        let (graph, mut launchable) = (self.drawn(stream), 0usize);
        let to = &mut launchable;
        let code = cu!(self, "cuGraphInstantiateWithFlags"(
            to => *mut usize, graph => usize, 0 => u64
        ));
        assert_eq!(code, 0);
        assert_eq!(cu!(self, "cuGraphDestroy"(graph => usize)), 0);
        launchable
    }

    /// Ends a capture, which nothing has spoilt; what was drawn.
    fn drawn(&self, stream: usize) -> usize {
        let mut graph = 0usize;
        let to = &mut graph;
        let code = cu!(self, "cuStreamEndCapture"(stream => usize, to => *mut usize));
        assert_eq!(code, 0, "the capture was spoilt, or something was not joined");
        graph
    }

    pub fn launch(&self, launchable: usize, stream: usize) {
        let code = cu!(self, "cuGraphLaunch"(launchable => usize, stream => usize));
        assert_eq!(code, 0, "a launch of a graph");
    }

    /// Nobody launches it any more; what was launched goes on.
    pub fn destroy_launchable(&self, launchable: usize) {
        assert_eq!(cu!(self, "cuGraphExecDestroy"(launchable => usize)), 0);
    }
}
