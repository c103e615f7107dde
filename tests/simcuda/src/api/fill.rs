//! Fills.

use super::{exports, require};
use crate::call::Call;
use crate::engine::Target;
use crate::graphs::Task;
use crate::memory::table::Kind;
use crate::types::{Code, Outcome, code};
use crate::work::Body;

exports! {
    fn cuMemsetD8_v2, fn cuMemsetD8_v2_ptds (at: u64, value: u8, count: usize) |call| {
        fill(call, 0, false, Rect::line(at, count, 1), value.into())
    };
    fn cuMemsetD16_v2, fn cuMemsetD16_v2_ptds (at: u64, value: u16, count: usize) |call| {
        fill(call, 0, false, Rect::line(at, count, 2), value.into())
    };
    fn cuMemsetD32_v2, fn cuMemsetD32_v2_ptds (at: u64, value: u32, count: usize) |call| {
        fill(call, 0, false, Rect::line(at, count, 4), value)
    };
    fn cuMemsetD2D8_v2, fn cuMemsetD2D8_v2_ptds (
        at: u64, pitch: usize, value: u8, width: usize, rows: usize,
    ) |call| {
        fill(call, 0, false, Rect::plane(at, pitch, width, rows, 1), value.into())
    };
    fn cuMemsetD2D16_v2, fn cuMemsetD2D16_v2_ptds (
        at: u64, pitch: usize, value: u16, width: usize, rows: usize,
    ) |call| {
        fill(call, 0, false, Rect::plane(at, pitch, width, rows, 2), value.into())
    };
    fn cuMemsetD2D32_v2, fn cuMemsetD2D32_v2_ptds (
        at: u64, pitch: usize, value: u32, width: usize, rows: usize,
    ) |call| {
        fill(call, 0, false, Rect::plane(at, pitch, width, rows, 4), value)
    };
    fn cuMemsetD8Async, fn cuMemsetD8Async_ptsz (
        at: u64, value: u8, count: usize, stream: u64,
    ) |call| {
        fill(call, stream, true, Rect::line(at, count, 1), value.into())
    };
    fn cuMemsetD16Async, fn cuMemsetD16Async_ptsz (
        at: u64, value: u16, count: usize, stream: u64,
    ) |call| {
        fill(call, stream, true, Rect::line(at, count, 2), value.into())
    };
    fn cuMemsetD32Async, fn cuMemsetD32Async_ptsz (
        at: u64, value: u32, count: usize, stream: u64,
    ) |call| {
        fill(call, stream, true, Rect::line(at, count, 4), value)
    };
    fn cuMemsetD2D8Async, fn cuMemsetD2D8Async_ptsz (
        at: u64, pitch: usize, value: u8, width: usize, rows: usize, stream: u64,
    ) |call| {
        fill(call, stream, true, Rect::plane(at, pitch, width, rows, 1), value.into())
    };
    fn cuMemsetD2D16Async, fn cuMemsetD2D16Async_ptsz (
        at: u64, pitch: usize, value: u16, width: usize, rows: usize, stream: u64,
    ) |call| {
        fill(call, stream, true, Rect::plane(at, pitch, width, rows, 2), value.into())
    };
    fn cuMemsetD2D32Async, fn cuMemsetD2D32Async_ptsz (
        at: u64, pitch: usize, value: u32, width: usize, rows: usize, stream: u64,
    ) |call| {
        fill(call, stream, true, Rect::plane(at, pitch, width, rows, 4), value)
    };
}

/// What is filled.
#[derive(Clone, Copy)]
pub struct Rect {
    at: u64,
    pitch: u64,
    width: u64,
    rows: u64,
    size: u64,
}

impl Rect {
    fn line(at: u64, count: usize, size: u64) -> Self {
        let width = count as u64;
        Self { at, pitch: width.saturating_mul(size), width, rows: 1, size }
    }

    /// Rows, each a pitch after the one before.
    pub fn plane(at: u64, pitch: usize, width: usize, rows: usize, size: u64) -> Self {
        Self { at, pitch: pitch as u64, width: width as u64, rows: rows as u64, size }
    }

    /// How many bytes; fails where no memory can hold them.
    fn bytes(&self) -> Result<u64, Code> {
        let Self { at, pitch, width, rows, size } = *self;
        let row = width.checked_mul(size).ok_or(code::INVALID_VALUE)?;
        require(at.is_multiple_of(size), code::INVALID_VALUE)?;
        require(rows <= 1 || pitch >= row && pitch.is_multiple_of(size), code::INVALID_VALUE)?;
        let end = pitch.checked_mul(rows).and_then(|span| at.checked_add(span));
        require(end.is_some(), code::INVALID_VALUE)?;
        Ok(row.saturating_mul(rows))
    }

    fn body(&self, value: u32) -> Body {
        let Self { at, pitch, width, rows, size } = *self;
        Body::Fill { at, pitch, width, rows, size, value }
    }

    fn label(&self, name: &str, value: u32) -> String {
        let Self { at, pitch, width, rows, .. } = self;
        match rows {
            1 => format!("{name}({at:#x}, {value:#x}, {width})"),
            _ => format!("{name}({at:#x}, pitch {pitch}, {value:#x}, {width} x {rows})"),
        }
    }

    /// As the work of a graph's node, in a context.
    pub fn task(self, value: u32, context: u64) -> Result<Task, Code> {
        let duration_ns = duration_ns(self.bytes()?);
        let (body, label) = (self.body(value), self.label("fill", value));
        Ok(Task { context, body, duration_ns, label, kernel: None })
    }
}

fn duration_ns(bytes: u64) -> u64 {
    2_000 + bytes / 1_000
}

/// A fill is asynchronous, but for the plain form on host memory.
fn fill(call: &mut Call, stream: u64, asynchronous: bool, rect: Rect, value: u32) -> Outcome {
    let stream = call.stream(stream)?;
    let bytes = rect.bytes()?;
    if bytes == 0 {
        return Ok(());
    }
    let found = call.memory.table.find(rect.at);
    let host = found.is_some_and(|m| matches!(m.kind, Kind::Pinned | Kind::Registered));
    let name = call.function;
    let label = || rect.label(name, value);
    let op = call.submit(&stream, rect.body(value), duration_ns(bytes), label);
    if host && !asynchronous {
        call.wait(Target::Op(op));
        call.healthy(stream.context)?;
    }
    Ok(())
}
