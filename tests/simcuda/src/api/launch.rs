//! Kernel launches.

use super::function::{self, DYNAMIC_SHARED};
use super::{exports, get, require};
use crate::call::Call;
use crate::graphs::{KernelCall, Task};
use crate::kernels::Launch;
use crate::types::{Code, LaunchConfig, Outcome, code};
use crate::work::{Body, KERNEL_NS, Kernel, signature};

exports! {
    fn cuLaunchKernel, fn cuLaunchKernel_ptsz (
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *const *const u8, extra: *const u64,
    ) |call| {
        let sizes = ([gx, gy, gz], [bx, by, bz], shared);
        launch(call, function, sizes, stream, parameters, extra)
    };
    fn cuLaunchKernelEx, fn cuLaunchKernelEx_ptsz (
        config: *const LaunchConfig, function: u64, parameters: *const *const u8, extra: *const u64,
    ) |call| {
        call.started()?;
        let c = get(config)?;
        launch(call, function, (c.grid, c.block, c.shared_bytes), c.stream, parameters, extra)
    };
    fn cuLaunchCooperativeKernel, fn cuLaunchCooperativeKernel_ptsz (
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *const *const u8,
    ) |call| {
        let sizes = ([gx, gy, gz], [bx, by, bz], shared);
        launch(call, function, sizes, stream, parameters, std::ptr::null())
    };
}

fn launch(
    call: &mut Call,
    function: u64,
    (grid, block, shared): ([u32; 3], [u32; 3], u32),
    stream: u64,
    parameters: *const *const u8,
    extra: *const u64,
) -> Outcome {
    let stream = call.stream(stream)?;
    let function = function::resolve(call, function)?;
    require(call.functions[function].context == stream.context, code::INVALID_HANDLE)?;
    let asked = ask(call, function, (grid, block, shared), parameters, extra)?;
    if call.is_capturing(&stream) {
        call.write_down(&stream, asked.task(stream.context));
        return Ok(());
    }
    let ns = asked.duration_ns();
    call.submit(&stream, asked.body, ns, || label(&asked.name, &asked.call.values));
    Ok(())
}

/// A launch that was asked for, and is right.
pub struct Asked {
    /// As it was asked for.
    pub call: KernelCall,
    name: String,
    body: Body,
}

impl Asked {
    fn duration_ns(&self) -> u64 {
        match &self.body {
            Body::Kernel(kernel) => kernel.duration_ns(),
            _ => KERNEL_NS,
        }
    }

    /// As the work of a graph's node.
    pub fn task(self, context: u64) -> Task {
        let (duration_ns, label) = (self.duration_ns(), label(&self.name, &self.call.values));
        Task { context, body: self.body, duration_ns, label, kernel: Some(self.call) }
    }
}

fn label(name: &str, values: &[u64]) -> String {
    if values.is_empty() {
        return format!("kernel {name}");
    }
    let shown: Vec<_> = values.iter().map(|v| format!("{v:#x}")).collect();
    format!("kernel {name}({})", shown.join(", "))
}

/// Checks a launch of a function, and reads its parameters.
pub fn ask(
    call: &mut Call,
    function: u64,
    (grid, block, shared): ([u32; 3], [u32; 3], u32),
    parameters: *const *const u8,
    extra: *const u64,
) -> Result<Asked, Code> {
    let name = call.functions[function].name.to_string_lossy().into_owned();
    let room = function::attribute(call, function, DYNAMIC_SHARED)?;
    require(i64::from(shared) <= i64::from(room), code::INVALID_VALUE)?;
    require(parameters.is_null() || extra.is_null(), code::INVALID_VALUE)?;
    let within = |sizes: [u32; 3], most: [u32; 3]| {
        sizes.iter().zip(most).all(|(&n, most)| (1..=most).contains(&n))
    };
    let fits = within(grid, [i32::MAX as u32, 65_535, 65_535]) && within(block, [1024, 1024, 64]);
    require(fits, code::INVALID_VALUE)?;
    let threads = block.iter().try_fold(1u32, |n, b| n.checked_mul(*b));
    require(threads.is_some_and(|n| n <= 1024), code::INVALID_VALUE)?;
    let (body, values) = match signature(&name) {
        None => (declared(call, &name, &Given { grid, block, parameters }), Vec::new()),
        Some(widths) => {
            let values =
                if extra.is_null() { listed(parameters, widths)? } else { packed(extra, widths)? };
            (Body::Kernel(Kernel::new(&name, &values)), values)
        }
    };
    let call = KernelCall { function, grid, block, shared, values, pointers: Vec::new() };
    Ok(Asked { call, name, body })
}

/// A kernel of the program's own: known by what was declared of it, or not at all.
fn declared(call: &mut Call, name: &str, launch: &Given) -> Body {
    let uses = call.kernels.find(name).and_then(|uses| uses.of(launch));
    uses.map(Body::Declared).unwrap_or_else(|| {
        call.kernels.count_unknown(name);
        Body::Kernel(Kernel::Unknown)
    })
}

/// What a launch gives to a declaration. Parameters in one buffer are not read: where one lies in it
/// depends on the widths of those before it, which a declaration does not say.
struct Given {
    grid: [u32; 3],
    block: [u32; 3],
    parameters: *const *const u8,
}

impl Launch for Given {
    fn parameter(&self, index: usize, offset: usize, width: usize) -> Option<u64> {
        let at = get(self.parameters.wrapping_add(index)).ok()?;
        if at.is_null() {
            return None;
        }
        read(at.wrapping_add(offset), width).ok()
    }

    fn blocks(&self) -> u64 {
        self.grid.iter().fold(1, |n, b| n.saturating_mul(u64::from(*b)))
    }

    fn threads(&self) -> u64 {
        self.block.iter().fold(self.blocks(), |n, b| n.saturating_mul(u64::from(*b)))
    }
}

/// Parameters as a list of pointers to their values.
fn listed(parameters: *const *const u8, widths: &[usize]) -> Result<Vec<u64>, Code> {
    let one = |(i, width): (usize, &usize)| read(get(parameters.wrapping_add(i))?, *width);
    widths.iter().enumerate().map(one).collect()
}

/// Parameters in one buffer: `extra` says where it is (1, address) and how long (2, address of the
/// size), and ends with 0.
fn packed(extra: *const u64, widths: &[usize]) -> Result<Vec<u64>, Code> {
    let (mut buffer, mut size) = (0, 0);
    for pair in 0..8 {
        let at = extra.wrapping_add(2 * pair);
        match get(at)? {
            0 => break,
            1 => buffer = get(at.wrapping_add(1))?,
            2 => size = get(get(at.wrapping_add(1))? as *const usize)?,
            _ => return Err(code::INVALID_VALUE),
        }
    }
    let mut offset: usize = 0;
    let mut values = Vec::new();
    for &width in widths {
        offset = offset.next_multiple_of(width);
        require(buffer != 0 && offset + width <= size, code::INVALID_VALUE)?;
        values.push(read((buffer as *const u8).wrapping_add(offset), width)?);
        offset += width;
    }
    Ok(values)
}

fn read(at: *const u8, width: usize) -> Result<u64, Code> {
    match width {
        1 => get(at).map(u64::from),
        4 => get(at.cast::<u32>()).map(u64::from),
        _ => get(at.cast::<u64>()),
    }
}
