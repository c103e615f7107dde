//! Functions: what is known of them, and what may be set. A library's kernel may stand for the
//! function that it is in the current context.

use super::library::function_of;
use super::{exports, put, put_if, require};
use crate::call::Call;
use crate::types::{Code, code};
use crate::work::signature;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
pub const DYNAMIC_SHARED: i32 = 8;

/// The most that it may be set to.
const DYNAMIC_SHARED_MOST: i32 = 227 << 10;

/// Below this are the attributes of a function.
const ATTRIBUTES: i32 = 16;

exports! {
    fn cuFuncGetAttribute(value: *mut i32, number: i32, function: u64) |call| {
        call.started()?;
        put(value, attribute(call, function, number)?)
    };
    fn cuFuncSetAttribute(function: u64, number: i32, value: i32) |call| {
        call.started()?;
        let found = call.functions.get_mut(function).ok_or(code::INVALID_HANDLE)?;
        settable(number, value)?;
        found.attributes.insert(number, value);
        Ok(())
    };
    fn cuFuncSetCacheConfig(function: u64, config: i32) |call| {
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)?;
        require((0..=3).contains(&config), code::INVALID_VALUE)
    };
    fn cuFuncGetModule(module: *mut u64, function: u64) |call| {
        call.started()?;
        let function = call.functions.get(function).ok_or(code::INVALID_HANDLE)?;
        put(module, function.module)
    };
    fn cuFuncGetName(name: *mut *const libc::c_char, function: u64) |call| {
        call.started()?;
        let function = call.functions.get(function).ok_or(code::INVALID_HANDLE)?;
        put(name, function.name.as_ptr())
    };
    fn cuFuncGetParamInfo(
        function: u64, index: usize, offset: *mut usize, bytes: *mut usize,
    ) |call| {
        call.started()?;
        let function = call.functions.get(function).ok_or(code::INVALID_HANDLE)?;
        let (at, width) = parameter(&function.name.to_string_lossy(), index)?;
        put(offset, at)?;
        put_if(bytes, width)
    };
    fn cuFuncIsLoaded(state: *mut i32, function: u64) |call| {
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)?;
        put(state, 1)
    };
    fn cuFuncLoad(function: u64) |call| {
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)
    };
}

/// The function that a caller means: one of a module, or a library's kernel.
pub fn resolve(call: &mut Call, function: u64) -> Result<u64, Code> {
    if call.functions.get(function).is_some() {
        return Ok(function);
    }
    function_of(call, function)
}

/// An attribute of a function: as it was set, else as it was set of its kernel, else as it is.
pub fn attribute(call: &Call, function: u64, number: i32) -> Result<i32, Code> {
    let found = call.functions.get(function).ok_or(code::INVALID_HANDLE)?;
    let default = default_of(number)?;
    let kernel = found.kernel.and_then(|kernel| call.library_kernels.get(kernel));
    let device = call.contexts.get(&found.context).map_or(0, |context| context.device);
    let of_kernel = kernel.and_then(|kernel| kernel.attributes.get(&(device, number)));
    Ok(*found.attributes.get(&number).or(of_kernel).unwrap_or(&default))
}

/// An attribute as a plain kernel of compute capability 9.0 has it.
pub fn default_of(number: i32) -> Result<i32, Code> {
    require((0..ATTRIBUTES).contains(&number), code::INVALID_VALUE)?;
    Ok(match number {
        0 => 1024,
        4 => 32,
        5 | 6 => 90,
        DYNAMIC_SHARED => 48 << 10,
        9 => -1,
        _ => 0,
    })
}

/// Whether an attribute may be set, and to this.
pub fn settable(number: i32, value: i32) -> Result<(), Code> {
    let fits = match number {
        DYNAMIC_SHARED => (0..=DYNAMIC_SHARED_MOST).contains(&value),
        9 => (-1..=100).contains(&value),
        // The shape of a cluster, and how clusters are scheduled.
        11..=13 => value >= 0,
        14 => (0..=1).contains(&value),
        15 => (0..=2).contains(&value),
        _ => false,
    };
    require(fits, code::INVALID_VALUE)
}

/// Where a parameter lies among all of them, and its size. Of a kernel whose code is not known
/// nothing is.
pub fn parameter(name: &str, index: usize) -> Result<(usize, usize), Code> {
    let widths = signature(name).ok_or(code::NOT_SUPPORTED)?;
    let width = *widths.get(index).ok_or(code::INVALID_VALUE)?;
    let end = widths[..=index].iter().fold(0, |end: usize, w| end.next_multiple_of(*w) + w);
    Ok((end - width, width))
}
