//! Modules. Any image loads; a module has every function that is asked of it.

use super::{exports, get, put, require, wanted};
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

/// The function of a name: the same one whenever it is asked for.
pub fn find(call: &mut Call, module: u64, name: String) -> Result<u64, Code> {
    let found = call.modules.get(module).ok_or(code::INVALID_HANDLE)?;
    if let Some(&function) = found.functions.get(&name) {
        return Ok(function);
    }
    let context = found.context;
    let c_name = CString::new(name.as_bytes()).map_err(|_| code::INVALID_VALUE)?;
    let name_of_it = c_name.into_boxed_c_str();
    let new =
        Function { module, context, name: name_of_it, attributes: HashMap::new(), kernel: None };
    let function = call.functions.insert(new);
    if let Some(module) = call.modules.get_mut(module) {
        module.functions.insert(name, function);
    }
    Ok(function)
}
