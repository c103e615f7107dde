//! Modules and functions. Any image loads; a module has every function that is asked of it.

use super::{exports, get, put, put_if, require, wanted};
use crate::call::Call;
use crate::state::{Function, Module};
use crate::types::{Code, Outcome, code};
use std::collections::HashMap;
use std::ffi::CString;

exports! {
    fn cuModuleLoad(module: *mut u64, file: *const u8) |call| {
        call.started()?;
        let name = text(file)?;
        require(std::path::Path::new(&name).exists(), code::FILE_NOT_FOUND)?;
        load(call, module)
    };
    fn cuModuleLoadData(module: *mut u64, image: *const u8) |call| {
        call.started()?;
        wanted(image)?;
        load(call, module)
    };
    fn cuModuleLoadDataEx(
        module: *mut u64, image: *const u8, count: u32, options: *const i32, values: *const u64,
    ) |call| {
        let _ = (count, options, values);
        call.started()?;
        wanted(image)?;
        load(call, module)
    };
    fn cuModuleLoadFatBinary(module: *mut u64, image: *const u8) |call| {
        call.started()?;
        wanted(image)?;
        load(call, module)
    };
    fn cuModuleUnload(module: u64) |call| {
        call.context()?;
        call.modules.remove(module).ok_or(code::INVALID_HANDLE)?;
        call.functions.remove_all(|f| f.module == module);
        Ok(())
    };
    fn cuModuleGetFunction(function: *mut u64, module: u64, name: *const u8) |call| {
        call.context()?;
        wanted(function)?;
        let name = text(name)?;
        require(!name.is_empty(), code::NOT_FOUND)?;
        put(function, find(call, module, name)?)
    };
    fn cuModuleGetGlobal_v2(
        address: *mut u64, bytes: *mut usize, module: u64, name: *const u8,
    ) |call| {
        let _ = (address, bytes);
        call.context()?;
        text(name)?;
        require(call.modules.get(module).is_some(), code::INVALID_HANDLE)?;
        Err(code::NOT_FOUND)
    };
    fn cuModuleGetFunctionCount(count: *mut u32, module: u64) |call| {
        call.started()?;
        let module = call.modules.get(module).ok_or(code::INVALID_HANDLE)?;
        put(count, module.functions.len() as u32)
    };
    fn cuModuleGetLoadingMode(mode: *mut i32) |call| {
        call.started()?;
        put(mode, 2)
    };
    fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: u64) |call| {
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)?;
        match attribute {
            0 => put(value, 1024),
            4 => put(value, 32),
            5 | 6 => put(value, 90),
            1..=15 => put(value, 0),
            _ => Err(code::INVALID_VALUE),
        }
    };
    fn cuFuncSetAttribute(function: u64, attribute: i32, value: i32) |call| {
        let _ = value;
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)?;
        require((0..=15).contains(&attribute), code::INVALID_VALUE)
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
    fn cuFuncIsLoaded(state: *mut i32, function: u64) |call| {
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)?;
        put(state, 1)
    };
    fn cuFuncLoad(function: u64) |call| {
        call.started()?;
        require(call.functions.get(function).is_some(), code::INVALID_HANDLE)
    };
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: u64, block_size: i32, shared: usize,
    ) |call| {
        let _ = (function, shared);
        call.started()?;
        require((1..=1024).contains(&block_size), code::INVALID_VALUE)?;
        put(blocks, (2048 / block_size).min(32))
    };
    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, function: u64, block_size: i32, shared: usize, flags: u32,
    ) |call| {
        let _ = (function, shared, flags);
        call.started()?;
        require((1..=1024).contains(&block_size), code::INVALID_VALUE)?;
        put(blocks, (2048 / block_size).min(32))
    };
    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: u64, shared_of: u64, shared: usize, limit: i32,
    ) |call| {
        let _ = (function, shared_of, shared, limit);
        call.started()?;
        put_if(grid, 264)?;
        put_if(block, 1024)
    };
}

/// A C string of the caller's.
pub fn text(at: *const u8) -> Result<String, Code> {
    let mut bytes = Vec::new();
    for i in 0..65_536 {
        match get(at.wrapping_add(i))? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            byte => bytes.push(byte),
        }
    }
    Err(code::INVALID_VALUE)
}

fn load(call: &mut Call, module: *mut u64) -> Outcome {
    let context = call.context()?;
    wanted(module)?;
    let handle = call.modules.insert(Module { context, functions: HashMap::new() });
    put(module, handle)
}

fn find(call: &mut Call, module: u64, name: String) -> Result<u64, Code> {
    let found = call.modules.get(module).ok_or(code::INVALID_HANDLE)?;
    if let Some(&function) = found.functions.get(&name) {
        return Ok(function);
    }
    let context = found.context;
    let c_name = CString::new(name.as_bytes()).map_err(|_| code::INVALID_VALUE)?;
    let new = Function { module, context, name: c_name.into_boxed_c_str() };
    let function = call.functions.insert(new);
    if let Some(module) = call.modules.get_mut(module) {
        module.functions.insert(name, function);
    }
    Ok(function)
}
