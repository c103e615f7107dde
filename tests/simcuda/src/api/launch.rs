//! Kernel launches.

use super::{exports, get, require};
use crate::call::Call;
use crate::graphs::KernelCall;
use crate::types::{Code, LaunchConfig, Outcome, code};
use crate::work::{Body, Kernel, signature};

exports! {
    fn cuLaunchKernel, fn cuLaunchKernel_ptsz (
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *const *const u8, extra: *const u64,
    ) |call| {
        launch(call, function, [gx, gy, gz], [bx, by, bz], shared, stream, parameters, extra)
    };
    fn cuLaunchKernelEx, fn cuLaunchKernelEx_ptsz (
        config: *const LaunchConfig, function: u64, parameters: *const *const u8, extra: *const u64,
    ) |call| {
        call.started()?;
        let c = get(config)?;
        launch(call, function, c.grid, c.block, c.shared_bytes, c.stream, parameters, extra)
    };
    fn cuLaunchCooperativeKernel, fn cuLaunchCooperativeKernel_ptsz (
        function: u64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32,
        stream: u64, parameters: *const *const u8,
    ) |call| {
        let none = std::ptr::null();
        launch(call, function, [gx, gy, gz], [bx, by, bz], shared, stream, parameters, none)
    };
}

fn launch(
    call: &mut Call,
    function: u64,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: u64,
    parameters: *const *const u8,
    extra: *const u64,
) -> Outcome {
    let stream = call.stream(stream)?;
    let name = &call.functions.get(function).ok_or(code::INVALID_HANDLE)?.name;
    let name = name.to_string_lossy().into_owned();
    require(grid.iter().chain(&block).all(|n| *n > 0), code::INVALID_VALUE)?;
    let threads = block.iter().try_fold(1u32, |n, b| n.checked_mul(*b));
    require(threads.is_some_and(|n| n <= 1024), code::INVALID_VALUE)?;
    let (kernel, values) = match signature(&name) {
        Some(widths) => {
            let values =
                if extra.is_null() { listed(parameters, widths)? } else { packed(extra, widths)? };
            (Kernel::new(&name, &values), values)
        }
        None => (Kernel::Unknown, Vec::new()),
    };
    let capture = call.is_capturing(&stream).then(|| KernelCall {
        function,
        grid,
        block,
        shared,
        values: values.clone().into(),
        pointers: Box::default(),
    });
    let label = || {
        let shown: Vec<_> = values.iter().map(|v| format!("{v:#x}")).collect();
        format!("kernel {name}({})", shown.join(", "))
    };
    if capture.is_some() {
        let (body, ns) = (Body::Kernel(kernel), kernel.duration_ns());
        call.write_down_kernel(&stream, body, ns, label(), capture);
        return Ok(());
    }
    call.submit(&stream, Body::Kernel(kernel), kernel.duration_ns(), label);
    Ok(())
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
