//! **Submission**: a stream is found, work is judged, and queued.

use crate::call::Call;
use crate::checker::{Access, Report, ReportKind};
use crate::engine::{Job, OpKey, StreamKey, StreamKind, Target};
use crate::graphs::Task;
use crate::memory::history::Taken;
use crate::memory::table::{Actor, Fault, Kind, Reason};
use crate::types::{Code, code};
use crate::work::{Body, Kernel, Work};

/// A stream that a call named.
#[derive(Clone, Copy, Debug)]
pub struct StreamRef {
    /// Its key in the engine.
    pub key: StreamKey,
    /// Its id.
    pub id: u64,
    /// Its context's handle.
    pub context: u64,
    /// Its device.
    pub device: u32,
}

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
pub const LEGACY: u64 = 1;
/// See [`LEGACY`].
pub const PER_THREAD: u64 = 2;

impl Call {
    /// Fails before `cuInit`.
    pub fn started(&self) -> Result<(), Code> {
        if self.started { Ok(()) } else { Err(code::NOT_INITIALIZED) }
    }

    /// A device's number, checked.
    pub fn device(&self, device: i32) -> Result<u32, Code> {
        self.started()?;
        match usize::try_from(device) {
            Ok(d) if d < self.devices.len() => Ok(d as u32),
            _ => Err(code::INVALID_DEVICE),
        }
    }

    /// The current context's handle; the error that spoilt it, if one did.
    pub fn context(&mut self) -> Result<u64, Code> {
        let handle = self.current()?;
        self.healthy(handle)?;
        Ok(handle)
    }

    /// The current context's handle, be it spoilt or not.
    pub fn current(&mut self) -> Result<u64, Code> {
        self.started()?;
        let thread = self.thread;
        let handle = self.thread(thread).stack.last().copied().ok_or(code::INVALID_CONTEXT)?;
        if self.contexts.contains_key(&handle) {
            Ok(handle)
        } else {
            Err(code::CONTEXT_IS_DESTROYED)
        }
    }

    /// Fails with a context's sticky error.
    pub fn healthy(&self, context: u64) -> Result<(), Code> {
        match self.contexts.get(&context) {
            None => Err(code::INVALID_CONTEXT),
            Some(context) => context.error.map_or(Ok(()), Err),
        }
    }

    /// The stream of a handle, as this call means it.
    pub fn stream(&mut self, handle: u64) -> Result<StreamRef, Code> {
        let current = self.context()?;
        let per_thread = handle == PER_THREAD || handle == 0 && self.per_thread;
        if handle > PER_THREAD {
            let stream = self.streams.get(handle).ok_or(code::INVALID_HANDLE)?;
            let (key, id, context) = (stream.key, stream.id, stream.context);
            if context != current {
                self.healthy(context)?;
            }
            let device = self.contexts[&context].device;
            return self.usable(StreamRef { key, id, context, device });
        }
        let device = self.contexts[&current].device;
        let (key, id) = if per_thread {
            self.per_thread_stream(current)
        } else {
            self.contexts[&current].legacy
        };
        self.usable(StreamRef { key, id, context: current, device })
    }

    fn per_thread_stream(&mut self, context: u64) -> (StreamKey, u64) {
        let thread = self.thread;
        let key = self.contexts[&context].key;
        if let Some(&known) = self.contexts[&context].per_thread.get(&thread) {
            return known;
        }
        let host = self.key();
        let stream = self.engine.create_stream(host, key, StreamKind::PerThread, 0);
        let new = (stream, self.unique());
        self.engine.number_stream(stream, new.1);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.per_thread.insert(thread, new);
        }
        new
    }

    /// Queues work. `label` is made only when somebody may read it.
    pub fn submit(
        &mut self,
        stream: &StreamRef,
        body: Body,
        duration_ns: u64,
        label: impl FnOnce() -> String,
    ) -> OpKey {
        if self.is_capturing(stream) {
            let (context, label) = (stream.context, label());
            self.write_down(stream, Task { context, body, duration_ns, label, kernel: None });
            return OpKey::NONE;
        }
        let engine = !matches!(body, Body::Kernel(_) | Body::Declared(_));
        let actor = Actor { device: stream.device, context: stream.context, engine };
        let on = self.engine.checker_ref().is_on();
        let (accesses, wrong) = if on { self.judge(actor, &body) } else { Default::default() };
        let label = if on { label() } else { String::new() };
        let gate = match body {
            Body::Kernel(Kernel::Gate { id }) => Some(id),
            _ => None,
        };
        let unknown_accesses = matches!(body, Body::Kernel(Kernel::Unknown));
        let said = wrong.map(|_| label.clone());
        let withdrawn = self.withdrawn(&accesses, &label);
        // What is free in a memory pool is still mapped: a GPU does not fault there.
        let poisoned = wrong.is_some_and(|w| {
            let found = self.memory.table.find(w.fault.address);
            !found.is_some_and(|m| m.kind == Kind::Pool && w.fault.reason == Reason::Unmapped)
        });
        let work = Work { actor, body, poisoned };
        let job = Job { work, accesses, duration_ns, label, unknown_accesses };
        let thread = self.key();
        let op = match gate {
            Some(gate) => self.engine.submit_gated(thread, stream.key, job, gate),
            None => self.engine.submit(thread, stream.key, job),
        };
        if let (Some(wrong), Some(label)) = (wrong, said) {
            self.report(wrong, stream, op, &label);
        }
        for report in withdrawn {
            self.engine.checker().report(Report { second_op: op.number(), ..report });
        }
        op
    }

    /// Uses of imported memory that its exporter has freed. The bytes are still there, so the work
    /// runs: what it finds is not defined.
    fn withdrawn(&mut self, accesses: &[Access], label: &str) -> Vec<Report> {
        if accesses.is_empty() || !self.memory.ipc.imports() {
            return Vec::new();
        }
        let thread = self.thread;
        let report = |access: &Access, why| Report {
            kind: ReportKind::UseAfterFree,
            first: why,
            second: format!("use by {label}, host thread {thread}"),
            object: access.object,
            object_label: "imported by cuIpcOpenMemHandle".to_owned(),
            offset: access.offset,
            bytes: access.bytes,
            ..Report::default()
        };
        let lost = |it: &Access| self.memory.withdrawn(it.object).map(|why| report(it, why));
        accesses.iter().filter_map(lost).collect()
    }

    /// Queues work and waits for it.
    pub fn submit_and_wait(
        &mut self,
        stream: &StreamRef,
        body: Body,
        duration_ns: u64,
        label: impl FnOnce() -> String,
    ) -> Result<(), Code> {
        let op = self.submit(stream, body, duration_ns, label);
        self.wait(Target::Op(op));
        self.healthy(stream.context)
    }

    /// The physical bytes that work uses, and the first use that is illegal.
    fn judge(&self, actor: Actor, body: &Body) -> (Vec<Access>, Option<Wrong>) {
        let mut accesses: Vec<Access> = Vec::new();
        let mut wrong = None;
        body.uses(|at, bytes, kind| {
            let write = kind != crate::checker::AccessKind::Read;
            let walked =
                self.memory.table.walk(actor, at, bytes, write, |mapping, offset, bytes| {
                    accesses.push(Access { object: mapping.object, offset, bytes, kind });
                });
            if let Err(fault) = walked
                && (!actor.engine
                    || self.memory.is_device_address(fault.address)
                    || fault.address != at)
            {
                wrong.get_or_insert(Wrong { fault, at, bytes, write });
            }
        });
        // The counter is added to atomically, so it is no race; but it has to be there.
        if let Body::Kernel(Kernel::PatternCheck { counter, .. }) = *body
            && let Err(fault) = self.memory.table.walk(actor, counter, 8, true, |_, _, _| ())
        {
            wrong.get_or_insert(Wrong { fault, at: counter, bytes: 8, write: true });
        }
        (accesses, wrong)
    }

    fn report(&mut self, wrong: Wrong, stream: &StreamRef, op: OpKey, label: &str) {
        let (kind, first) = self.explain(&wrong);
        let how = if wrong.write { "write" } else { "read" };
        let second = format!(
            "{how} of {:#x}..{:#x} by {label}, operation {}, {} of device {}, host thread {}",
            wrong.at,
            wrong.at.saturating_add(wrong.bytes),
            op.number(),
            self.engine.stream_name(stream.key),
            stream.device,
            self.thread
        );
        let object_label = self.known_as(wrong.at).unwrap_or_default();
        self.engine.checker().report(Report {
            kind,
            first,
            second,
            second_op: op.number(),
            offset: wrong.fault.address,
            bytes: wrong.at.saturating_add(wrong.bytes) - wrong.fault.address,
            object_label,
            ..Report::default()
        });
    }

    /// Who took an address away; nobody if it was reserved anew since and never mapped.
    fn last_to_take(&self, address: u64) -> Option<&Taken> {
        let reserved = self.memory.reservation(address).is_some();
        let last = self.memory.history.last(address);
        last.filter(|it| !reserved || it.who.function != "cuMemAddressFree")
    }

    /// The allocation at an address, as the checker knows it.
    fn known_as(&self, address: u64) -> Option<String> {
        let mapping = self.memory.table.find(address)?;
        let offset = address - mapping.start;
        self.engine.checker_ref().label_at(mapping.object, offset).map(str::to_owned)
    }

    fn explain(&self, wrong: &Wrong) -> (ReportKind, String) {
        let address = wrong.fault.address;
        let found = self.memory.table.find(address);
        match (wrong.fault.reason, found) {
            (Reason::NoAccess, Some(m)) if m.kind == Kind::Virtual => (
                ReportKind::NoAccess,
                format!(
                    "{:#x}..{:#x} is mapped; no cuMemSetAccess allows this use",
                    m.start,
                    m.end()
                ),
            ),
            (Reason::NoAccess, _) => (
                ReportKind::Foreign,
                format!("{address:#x} belongs to another context; peer access is not enabled"),
            ),
            _ if address > wrong.at => (
                ReportKind::OutOfBounds,
                format!("{:#x}..{address:#x} is mapped, and no more", wrong.at),
            ),
            _ => match self.last_to_take(address) {
                Some(taken) => (ReportKind::UseAfterFree, taken.to_string()),
                None if self.memory.is_device_address(address) => {
                    (ReportKind::Unmapped, format!("nothing was ever mapped at {address:#x}"))
                }
                None => (ReportKind::Foreign, format!("{address:#x} is no memory of a device")),
            },
        }
    }
}

/// An illegal use.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    fault: Fault,
    at: u64,
    bytes: u64,
    write: bool,
}
