//! Kernel launches. A kernel is named by the address of its host stub; the driver is given the
//! function of its name, and the parameters as the list that they come in.

use super::{exports, get, put, require};
use crate::driver::Driver;
use crate::types::{Dim3, DriverLaunchConfig, FunctionAttributes, LaunchConfig, Outcome, code};
use crate::{call, registry};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};

type Parameters = *mut *mut c_void;

exports! {
    context fn cudaLaunchKernel, fn cudaLaunchKernel_ptsz (
        stub: usize, grid: Dim3, block: Dim3, parameters: Parameters, shared: usize, stream: u64,
    ) |d, lane| {
        launch(d, stub, grid, block, parameters, shared, lane.of(stream))
    };
    // As code of nvcc 13 calls it: with what __cudaGetKernel gave.
    context fn __cudaLaunchKernel, fn __cudaLaunchKernel_ptsz (
        kernel: usize, grid: Dim3, block: Dim3, parameters: Parameters, shared: usize, stream: u64,
    ) |d, lane| {
        launch(d, kernel, grid, block, parameters, shared, lane.of(stream))
    };
    context fn cudaLaunchKernelExC, fn cudaLaunchKernelExC_ptsz (
        config: *const LaunchConfig, stub: usize, parameters: Parameters,
    ) |d, lane| {
        let c = get(config)?;
        let function = function(d, stub)?;
        let config = DriverLaunchConfig {
            grid: c.grid,
            block: c.block,
            shared_bytes: u32::try_from(c.shared_bytes).map_err(|_| code::INVALID_VALUE)?,
            stream: lane.of(c.stream),
            attributes: c.attributes,
            attribute_count: c.attribute_count,
        };
        d.cuLaunchKernelEx(&config, function, parameters, std::ptr::null_mut())
            .map_err(configuration)
    };
    context fn cudaLaunchCooperativeKernel, fn cudaLaunchCooperativeKernel_ptsz (
        stub: usize, grid: Dim3, block: Dim3, parameters: Parameters, shared: usize, stream: u64,
    ) |d, lane| {
        let function = function(d, stub)?;
        let shared = u32::try_from(shared).map_err(|_| code::INVALID_VALUE)?;
        d.cuLaunchCooperativeKernel(
            function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, lane.of(stream),
            parameters,
        )
        .map_err(configuration)
    };
    context fn cudaFuncGetAttributes(to: *mut FunctionAttributes, stub: usize) |d| {
        super::wanted(to)?;
        put(to, attributes(d, function(d, stub)?)?)
    };
    context fn cudaFuncSetAttribute(stub: usize, attribute: i32, value: i32) |d| {
        d.cuFuncSetAttribute(function(d, stub)?, attribute, value)
    };
    context fn cudaFuncSetCacheConfig(stub: usize, config: i32) |d| {
        d.cuFuncSetCacheConfig(function(d, stub)?, config)
    };
    context fn cudaFuncSetSharedMemConfig(stub: usize, config: i32) |d| {
        require((0..=2).contains(&config), code::INVALID_VALUE)?;
        function(d, stub).map(drop)
    };
    plain fn cudaFuncGetName(name: *mut *const c_char, stub: usize) |_none| {
        put(name, registry::kernel_name(stub)?)
    };
    context fn cudaGetFuncBySymbol(to: *mut u64, stub: usize) |d| put(to, function(d, stub)?);
    // A kernel's handle is its stub's address.
    plain fn cudaGetKernel(kernel: *mut usize, stub: usize) |_none| {
        registry::kernel_name(stub)?;
        put(kernel, stub)
    };
    plain fn __cudaGetKernel(kernel: *mut usize, stub: usize) |_none| {
        registry::kernel_name(stub)?;
        put(kernel, stub)
    };
    context fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, stub: usize, block_size: i32, shared: usize,
    ) |d| {
        d.cuOccupancyMaxActiveBlocks(blocks, function(d, stub)?, block_size, shared, 0)
    };
    context fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, stub: usize, block_size: i32, shared: usize, flags: u32,
    ) |d| {
        d.cuOccupancyMaxActiveBlocks(blocks, function(d, stub)?, block_size, shared, flags)
    };
    plain fn __cudaPopCallConfiguration(
        grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut u64,
    ) |_none| {
        let pushed = PUSHED.with_borrow_mut(Vec::pop).ok_or(code::MISSING_CONFIGURATION)?;
        put(grid, pushed.0)?;
        put(block, pushed.1)?;
        put(shared, pushed.2)?;
        put(stream, pushed.3)
    };
}

thread_local! {
    /// What stands between the brackets of launches that are under way.
    static PUSHED: RefCell<Vec<(Dim3, Dim3, usize, u64)>> = const { RefCell::new(Vec::new()) };
}

/// Zero if the launch may go on.
#[unsafe(export_name = "simrt___cudaPushCallConfiguration")]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
) -> u32 {
    // Late in a thread's life there is nowhere to keep it: then the launch is left out.
    let push = |pushed: &RefCell<Vec<_>>| pushed.borrow_mut().push((grid, block, shared, stream));
    u32::from(PUSHED.try_with(push).is_err())
}

/// The function of a kernel on the thread's device.
pub(crate) fn function(driver: &Driver, stub: usize) -> Result<u64, i32> {
    registry::function(driver, call::device(driver)?, stub)
}

fn launch(
    driver: &Driver,
    stub: usize,
    grid: Dim3,
    block: Dim3,
    parameters: Parameters,
    shared: usize,
    stream: u64,
) -> Outcome {
    let function = function(driver, stub)?;
    let shared = u32::try_from(shared).map_err(|_| code::INVALID_VALUE)?;
    let none = std::ptr::null_mut();
    let (g, b) = (grid, block);
    driver
        .cuLaunchKernel(function, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, parameters, none)
        .map_err(configuration)
}

/// What the driver calls an invalid value in a launch is an invalid configuration here.
fn configuration(error: i32) -> i32 {
    const INVALID_CONFIGURATION: i32 = 9;
    if error == code::INVALID_VALUE { INVALID_CONFIGURATION } else { error }
}

/// `CUfunction_attribute`, in the order of the structure: three sizes, then the numbers.
const SIZES: [i32; 3] = [1, 2, 3];
const NUMBERS: [i32; 12] = [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15];
/// The structure's last number, whether clusters of a size that is not portable are allowed.
const NON_PORTABLE: i32 = 14;

fn attributes(driver: &Driver, function: u64) -> Result<FunctionAttributes, i32> {
    let read = |attribute| {
        let mut value = 0;
        driver.cuFuncGetAttribute(&mut value, attribute, function).map(|()| value)
    };
    let mut found = FunctionAttributes::default();
    for (to, attribute) in found.sizes.iter_mut().zip(SIZES) {
        *to = usize::try_from(read(attribute)?).unwrap_or_default();
    }
    for (to, attribute) in found.numbers.iter_mut().zip(NUMBERS) {
        // An older driver does not know the newest ones.
        *to = read(attribute).unwrap_or_default();
    }
    found.non_portable = read(NON_PORTABLE).unwrap_or_default();
    Ok(found)
}
