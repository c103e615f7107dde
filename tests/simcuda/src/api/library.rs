//! Libraries: code that belongs to no context. A kernel of one is a function in each context, made
//! when it is first asked for there.

use super::function::{default_of, parameter, settable};
use super::module::{find, text};
use super::{exports, get, put, put_if, require, wanted};
use crate::call::Call;
use crate::state::{Library, LibraryKernel, Module};
use crate::types::{Code, Outcome, code};
use std::collections::HashMap;
use std::ffi::CString;

exports! {
    fn cuLibraryLoadData(
        library: *mut u64, image: *const u8, options: *const i32, values: *const u64, count: u32,
        library_options: *const i32, library_values: *const u64, library_count: u32,
    ) |call| {
        call.started()?;
        let given = [(options, values, count), (library_options, library_values, library_count)];
        listed(given)?;
        wanted(image)?;
        load(call, library)
    };
    fn cuLibraryLoadFromFile(
        library: *mut u64, file: *const u8, options: *const i32, values: *const u64, count: u32,
        library_options: *const i32, library_values: *const u64, library_count: u32,
    ) |call| {
        call.started()?;
        let given = [(options, values, count), (library_options, library_values, library_count)];
        listed(given)?;
        let name = text(file)?;
        require(std::path::Path::new(&name).exists(), code::FILE_NOT_FOUND)?;
        load(call, library)
    };
    fn cuLibraryUnload(library: u64) |call| {
        call.started()?;
        let gone = call.libraries.remove(library).ok_or(code::INVALID_HANDLE)?;
        call.library_kernels.remove_all(|kernel| kernel.library == library);
        for module in gone.modules.into_values() {
            call.modules.remove(module);
            call.functions.remove_all(|function| function.module == module);
        }
        Ok(())
    };
    fn cuLibraryGetKernel(kernel: *mut u64, library: u64, name: *const u8) |call| {
        call.started()?;
        wanted(kernel)?;
        let found = call.libraries.get(library).ok_or(code::INVALID_HANDLE)?;
        let name = text(name)?;
        require(!name.is_empty(), code::NOT_FOUND)?;
        let handle = match found.kernels.get(&name) {
            Some(&known) => known,
            None => new_kernel(call, library, name)?,
        };
        put(kernel, handle)
    };
    fn cuLibraryGetKernelCount(count: *mut u32, library: u64) |call| {
        call.started()?;
        let library = call.libraries.get(library).ok_or(code::INVALID_HANDLE)?;
        put(count, library.kernels.len() as u32)
    };
    fn cuLibraryEnumerateKernels(kernels: *mut u64, room: u32, library: u64) |call| {
        call.started()?;
        let library = call.libraries.get(library).ok_or(code::INVALID_HANDLE)?;
        wanted(kernels)?;
        let mut all: Vec<_> = library.kernels.values().copied().collect();
        all.sort_unstable();
        let mut places = 0..room as usize;
        all.iter().zip(&mut places).try_for_each(|(&k, i)| put(kernels.wrapping_add(i), k))
    };
    fn cuLibraryGetModule(module: *mut u64, library: u64) |call| {
        call.context()?;
        wanted(module)?;
        put(module, module_of(call, library)?)
    };
    fn cuLibraryGetGlobal(
        address: *mut u64, bytes: *mut usize, library: u64, name: *const u8,
    ) |call| {
        let _ = (address, bytes);
        call.context()?;
        no_symbol(call, library, name)
    };
    fn cuLibraryGetManaged(
        address: *mut u64, bytes: *mut usize, library: u64, name: *const u8,
    ) |call| {
        let _ = (address, bytes);
        call.started()?;
        no_symbol(call, library, name)
    };
    fn cuLibraryGetUnifiedFunction(function: *mut u64, library: u64, name: *const u8) |call| {
        let _ = function;
        call.started()?;
        no_symbol(call, library, name)
    };
    fn cuKernelGetFunction(function: *mut u64, kernel: u64) |call| {
        call.context()?;
        wanted(function)?;
        put(function, function_of(call, kernel)?)
    };
    fn cuKernelGetLibrary(library: *mut u64, kernel: u64) |call| {
        call.started()?;
        let kernel = call.library_kernels.get(kernel).ok_or(code::INVALID_HANDLE)?;
        put(library, kernel.library)
    };
    fn cuKernelGetName(name: *mut *const libc::c_char, kernel: u64) |call| {
        call.started()?;
        let kernel = call.library_kernels.get(kernel).ok_or(code::INVALID_HANDLE)?;
        put(name, kernel.name.as_ptr())
    };
    fn cuKernelGetAttribute(value: *mut i32, number: i32, kernel: u64, device: i32) |call| {
        let device = call.device(device)?;
        let kernel = call.library_kernels.get(kernel).ok_or(code::INVALID_HANDLE)?;
        let default = default_of(number)?;
        put(value, *kernel.attributes.get(&(device, number)).unwrap_or(&default))
    };
    fn cuKernelSetAttribute(number: i32, value: i32, kernel: u64, device: i32) |call| {
        let device = call.device(device)?;
        let kernel = call.library_kernels.get_mut(kernel).ok_or(code::INVALID_HANDLE)?;
        settable(number, value)?;
        kernel.attributes.insert((device, number), value);
        Ok(())
    };
    fn cuKernelSetCacheConfig(kernel: u64, config: i32, device: i32) |call| {
        call.device(device)?;
        require(call.library_kernels.get(kernel).is_some(), code::INVALID_HANDLE)?;
        require((0..=3).contains(&config), code::INVALID_VALUE)
    };
    fn cuKernelGetParamInfo(
        kernel: u64, index: usize, offset: *mut usize, bytes: *mut usize,
    ) |call| {
        call.started()?;
        let kernel = call.library_kernels.get(kernel).ok_or(code::INVALID_HANDLE)?;
        let (at, width) = parameter(&kernel.name.to_string_lossy(), index)?;
        put(offset, at)?;
        put_if(bytes, width)
    };
}

/// Options come with their values.
fn listed(given: [(*const i32, *const u64, u32); 2]) -> Outcome {
    given.into_iter().try_for_each(|(options, values, count)| {
        (0..count as usize).try_for_each(|i| {
            get(options.wrapping_add(i))?;
            wanted(values)
        })
    })
}

fn load(call: &mut Call, library: *mut u64) -> Outcome {
    wanted(library)?;
    let handle = call.libraries.insert(Library::default());
    put(library, handle)
}

fn new_kernel(call: &mut Call, library: u64, name: String) -> Result<u64, Code> {
    let c_name = CString::new(name.as_bytes()).map_err(|_| code::INVALID_VALUE)?;
    let (c_name, attributes) = (c_name.into_boxed_c_str(), HashMap::new());
    let kernel = call.library_kernels.insert(LibraryKernel { library, name: c_name, attributes });
    if let Some(library) = call.libraries.get_mut(library) {
        library.kernels.insert(name, kernel);
    }
    Ok(kernel)
}

/// An image is not looked into: it has every kernel, and no variable and no host function.
fn no_symbol(call: &Call, library: u64, name: *const u8) -> Outcome {
    require(call.libraries.get(library).is_some(), code::INVALID_HANDLE)?;
    text(name)?;
    Err(code::NOT_FOUND)
}

/// The library's module in the current context.
fn module_of(call: &mut Call, library: u64) -> Result<u64, Code> {
    let context = call.current()?;
    let found = call.libraries.get(library).ok_or(code::INVALID_HANDLE)?;
    if let Some(&module) = found.modules.get(&context) {
        return Ok(module);
    }
    let module = call.modules.insert(Module { context, functions: HashMap::new() });
    if let Some(library) = call.libraries.get_mut(library) {
        library.modules.insert(context, module);
    }
    Ok(module)
}

/// The function that a library's kernel is in the current context.
pub fn function_of(call: &mut Call, kernel: u64) -> Result<u64, Code> {
    let found = call.library_kernels.get(kernel).ok_or(code::INVALID_HANDLE)?;
    let (library, name) = (found.library, found.name.to_string_lossy().into_owned());
    let module = module_of(call, library)?;
    let function = find(call, module, name)?;
    if let Some(function) = call.functions.get_mut(function) {
        function.kernel = Some(kernel);
    }
    Ok(function)
}
