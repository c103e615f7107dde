//! **Capturing**: what a call may do while a stream is captured, and work that becomes a node.
//!
//! A call is asked for by the name of its function. Three things are looked at, in this order: whether
//! the call is one that some capture forbids to this thread (`may_call`); whether its stream is usable
//! (`usable`); and whether its event is (`event_is_free`). A call that breaks a rule makes the captures
//! that it would have spoilt invalid.

use crate::call::Call;
use crate::engine::capture::{Member, Mode, Status, Waits};
use crate::engine::{EventKey, StreamKind};
use crate::graphs::{Node, Task};
use crate::submit::StreamRef;
use crate::types::{Code, Outcome, code};

/// What a function does with a stream that is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Asks about it, or is about the capture itself.
    Asks,
    /// Becomes a part of the graph.
    Captured,
    /// Cannot be captured.
    Refused,
}

fn role(function: &str) -> Role {
    match function {
        "cuStreamGetId"
        | "cuStreamGetCtx"
        | "cuStreamGetDevice"
        | "cuStreamGetFlags"
        | "cuStreamGetPriority"
        | "cuStreamGetAttribute"
        | "cuStreamIsCapturing"
        | "cuStreamGetCaptureInfo"
        | "cuStreamBeginCapture"
        | "cuStreamBeginCaptureToGraph"
        | "cuStreamUpdateCaptureDependencies"
        | "cuStreamEndCapture" => Role::Asks,
        "cuLaunchKernel"
        | "cuLaunchKernelEx"
        | "cuLaunchCooperativeKernel"
        | "cuLaunchHostFunc"
        | "cuEventRecord"
        | "cuEventRecordWithFlags"
        | "cuStreamWaitEvent"
        | "cuMemAllocAsync"
        | "cuMemAllocFromPoolAsync"
        | "cuMemFreeAsync"
        | "cuGraphLaunch" => Role::Captured,
        _ if function.starts_with("cuMemcpy") || function.starts_with("cuMemset") => {
            if function.ends_with("Async") { Role::Captured } else { Role::Refused }
        }
        _ => Role::Refused,
    }
}

/// Calls that take effect at once, outside every stream, or wait: "potentially unsafe" ones. The
/// documentation names `cudaMalloc`; the others are those that it compares to it or that programs
/// are known to meet.
fn is_unsafe(function: &str) -> bool {
    matches!(
        function,
        "cuMemAlloc"
            | "cuMemAllocPitch"
            | "cuMemAllocManaged"
            | "cuMemFree"
            | "cuMemHostAlloc"
            | "cuMemAllocHost"
            | "cuMemFreeHost"
            | "cuMemHostRegister"
            | "cuMemHostUnregister"
            | "cuStreamSynchronize"
            | "cuStreamQuery"
    ) || function.starts_with("cuMemcpy") && !function.ends_with("Async")
}

/// The same for events, asked once it is known that the event itself is not captured.
fn waits_for_event(function: &str) -> bool {
    matches!(function, "cuEventQuery" | "cuEventSynchronize")
}

/// `CUstreamCaptureMode`.
pub fn mode(value: i32) -> Result<Mode, Code> {
    match value {
        0 => Ok(Mode::Global),
        1 => Ok(Mode::ThreadLocal),
        2 => Ok(Mode::Relaxed),
        _ => Err(code::INVALID_VALUE),
    }
}

impl Call {
    /// Makes captures invalid; answers the code, to be passed on.
    pub fn spoil_captures(&mut self, ids: &[u64], code: Code) -> Code {
        self.captures.invalidate(ids);
        code
    }

    /// Whether the calling thread may make this call now.
    #[inline]
    pub fn may_call(&mut self) -> Outcome {
        if self.captures.is_idle() || !is_unsafe(self.function) {
            return Ok(());
        }
        self.not_forbidden()
    }

    fn not_forbidden(&mut self) -> Outcome {
        let thread = self.thread;
        let own = mode(self.thread(thread).capture_mode)?;
        let forbidding = self.captures.forbidding(thread, own);
        if forbidding.is_empty() {
            return Ok(());
        }
        Err(self.spoil_captures(&forbidding, code::CAPTURE_UNSUPPORTED))
    }

    /// Whether this call may use the stream that it named.
    #[inline]
    pub fn usable(&mut self, stream: StreamRef) -> Result<StreamRef, Code> {
        if self.captures.is_idle() {
            return Ok(stream);
        }
        self.usable_in_capture(&stream).map(|()| stream)
    }

    fn usable_in_capture(&mut self, stream: &StreamRef) -> Outcome {
        let role = role(self.function);
        if role == Role::Asks {
            return Ok(());
        }
        if self.engine.stream_kind(stream.key) == Some(StreamKind::Legacy) {
            let captures = self.captures.in_context(stream.context, true);
            if !captures.is_empty() {
                return Err(self.spoil_captures(&captures, code::CAPTURE_IMPLICIT));
            }
        }
        match self.captures.status(stream.key) {
            Status::None => Ok(()),
            Status::Invalidated => Err(code::CAPTURE_INVALIDATED),
            Status::Active if role == Role::Captured => Ok(()),
            Status::Active => {
                let of = self.captures.of(stream.key).map(|s| s.id);
                Err(self.spoil_captures(of.as_slice(), code::CAPTURE_UNSUPPORTED))
            }
        }
    }

    /// Whether work for this stream becomes a node.
    #[inline]
    pub fn is_capturing(&self, stream: &StreamRef) -> bool {
        !self.captures.is_idle() && self.captures.of(stream.key).is_some()
    }

    /// The stream, as the rules of capture see it.
    pub fn member(&self, stream: &StreamRef) -> Member {
        let blocking = self.engine.stream_kind(stream.key) != Some(StreamKind::NonBlocking);
        Member { stream: stream.key, context: stream.context, blocking }
    }

    /// Fails if anything of the context is being captured: a call that is about all of it.
    pub fn no_capture_in(&mut self, context: u64) -> Outcome {
        if self.captures.is_idle() {
            return Ok(());
        }
        let captures = self.captures.in_context(context, false);
        if captures.is_empty() {
            return Ok(());
        }
        Err(self.spoil_captures(&captures, code::CAPTURE_UNSUPPORTED))
    }

    /// Fails if the event was last recorded in a capture: its work is not there to be asked about.
    pub fn event_is_free(&mut self, event: EventKey) -> Outcome {
        if self.captures.is_idle() {
            return Ok(());
        }
        if let Some(capture) = self.captures.recorded_in(event) {
            return Err(self.spoil_captures(capture.as_slice(), code::CAPTURED_EVENT));
        }
        if waits_for_event(self.function) { self.not_forbidden() } else { Ok(()) }
    }

    /// Adds a node that comes after what the stream did so far.
    pub fn capture_node(&mut self, stream: &StreamRef, work: Node) -> Result<u64, Code> {
        let graph = self.captures.of(stream.key).map(|s| s.graph).ok_or(code::ILLEGAL_STATE)?;
        let after = self.captures.frontier(stream.key).to_vec();
        let node = self.graphs.add(graph, &after, work)?;
        self.captures.set_frontier(stream.key, vec![node]);
        Ok(node)
    }

    /// Work becomes a node.
    pub fn write_down(&mut self, stream: &StreamRef, task: Task) {
        if self.capture_node(stream, Node::Work(task)).is_err() {
            let of = self.captures.of(stream.key).map(|s| s.id);
            self.captures.invalidate(of.as_slice());
        }
    }

    /// A stream waits for an event, if that is a matter of capture; false if it is not.
    pub fn capture_wait(
        &mut self,
        stream: &StreamRef,
        event: EventKey,
        recorded: bool,
    ) -> Result<bool, Code> {
        if self.captures.is_idle() {
            return Ok(false);
        }
        let member = self.member(stream);
        let may_join = self.engine.stream_kind(stream.key) != Some(StreamKind::Legacy);
        let mine = self.captures.of(stream.key).map(|s| s.id);
        let theirs = self.captures.recorded_in(event).flatten();
        let both: Vec<u64> = mine.into_iter().chain(theirs).collect();
        let code = match self.captures.wait(member, event, recorded, may_join) {
            Waits::Plainly => return Ok(false),
            Waits::Captured => return Ok(true),
            Waits::Merge => code::CAPTURE_MERGE,
            Waits::Isolation => code::CAPTURE_ISOLATION,
            Waits::Captive if may_join => code::CAPTURED_EVENT,
            Waits::Captive => code::CAPTURE_UNSUPPORTED,
            Waits::Invalid => code::CAPTURE_INVALIDATED,
        };
        Err(self.spoil_captures(&both, code))
    }
}
