//! The **registry**: the kernels and variables that compiled programs register at their start.
//!
//! `kernel on a device = function of its name in its image's module there`; a module is loaded when
//! the first of its kernels is needed on a device. Nothing asks the driver before that.

use crate::driver::Driver;
use crate::types::{Code, code};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A program's device code, as it lies in the program.
#[derive(Debug)]
struct Image {
    data: usize,
    modules: HashMap<i32, u64>,
}

/// A kernel or a variable.
#[derive(Debug)]
struct Symbol {
    image: usize,
    name: CString,
    bytes: usize,
    /// Of a kernel: its function, by device.
    functions: HashMap<i32, u64>,
}

#[derive(Debug, Default)]
struct Registry {
    images: HashMap<usize, Image>,
    next_image: usize,
    kernels: HashMap<usize, Symbol>,
    variables: HashMap<usize, Symbol>,
}

static REGISTRY: LazyLock<RwLock<Registry>> = LazyLock::new(Default::default);

fn read() -> RwLockReadGuard<'static, Registry> {
    REGISTRY.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Registry> {
    REGISTRY.write().unwrap_or_else(PoisonError::into_inner)
}

/// What `__cudaRegisterFatBinary` is given: where the code is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Wrapper {
    magic: i32,
    version: i32,
    data: usize,
}

const MAGIC: i32 = 0x4662_43b1;

/// Takes an image in; the answer names it from then on.
pub fn add_image(wrapper: *const Wrapper) -> usize {
    // SAFETY: not null; the caller is code that nvcc wrote, and passes its wrapper.
    let data = match unsafe { wrapper.as_ref() } {
        Some(wrapper) if wrapper.magic == MAGIC => wrapper.data,
        _ => wrapper as usize,
    };
    let mut registry = write();
    // Programs take it for a pointer: it is not null, and as far apart as pointers are.
    registry.next_image += 16;
    let image = registry.next_image;
    registry.images.insert(image, Image { data, modules: HashMap::new() });
    image
}

/// Takes an image out, with all that it brought. Its modules are unloaded if there is a driver.
pub fn remove_image(image: usize, driver: Option<&Driver>) {
    let mut registry = write();
    registry.kernels.retain(|_, kernel| kernel.image != image);
    registry.variables.retain(|_, variable| variable.image != image);
    let Some(image) = registry.images.remove(&image) else { return };
    if let Some(driver) = driver {
        for module in image.modules.into_values() {
            // At the end of the process the context may be gone, and the module with it.
            let _ = driver.cuModuleUnload(module);
        }
    }
}

/// Registers a kernel under the address of its host stub.
pub fn add_kernel(image: usize, stub: usize, name: CString) {
    let kernel = Symbol { image, name, bytes: 0, functions: HashMap::new() };
    write().kernels.insert(stub, kernel);
}

/// Registers a variable under the address of its host shadow.
pub fn add_variable(image: usize, shadow: usize, name: CString, bytes: usize) {
    let variable = Symbol { image, name, bytes, functions: HashMap::new() };
    write().variables.insert(shadow, variable);
}

/// Everything on a device is gone.
pub fn forget(device: i32) {
    let mut registry = write();
    for image in registry.images.values_mut() {
        image.modules.remove(&device);
    }
    for kernel in registry.kernels.values_mut() {
        kernel.functions.remove(&device);
    }
}

/// The function of a kernel on a device.
pub fn function(driver: &Driver, device: i32, stub: usize) -> Result<u64, Code> {
    if let Some(kernel) = read().kernels.get(&stub)
        && let Some(&function) = kernel.functions.get(&device)
    {
        return Ok(function);
    }
    let mut registry = write();
    let kernel = registry.kernels.get(&stub).ok_or(code::INVALID_DEVICE_FUNCTION)?;
    let (image, name) = (kernel.image, kernel.name.clone());
    let module = module(&mut registry, driver, device, image)?;
    let mut function = 0;
    driver
        .cuModuleGetFunction(&mut function, module, name.as_ptr())
        .map_err(|_| code::INVALID_DEVICE_FUNCTION)?;
    if let Some(kernel) = registry.kernels.get_mut(&stub) {
        kernel.functions.insert(device, function);
    }
    Ok(function)
}

fn module(
    registry: &mut Registry,
    driver: &Driver,
    device: i32,
    image: usize,
) -> Result<u64, Code> {
    let image = registry.images.get_mut(&image).ok_or(code::INVALID_DEVICE_FUNCTION)?;
    if let Some(&module) = image.modules.get(&device) {
        return Ok(module);
    }
    let mut module = 0;
    driver.cuModuleLoadData(&mut module, image.data as *const c_void)?;
    image.modules.insert(device, module);
    Ok(module)
}

/// The name of a kernel. It lives as long as the kernel is registered.
pub fn kernel_name(stub: usize) -> Result<*const c_char, Code> {
    let name = |kernel: &Symbol| kernel.name.as_ptr();
    read().kernels.get(&stub).map(name).ok_or(code::INVALID_DEVICE_FUNCTION)
}

/// Where a variable is on a device, and how long it is.
pub fn variable(driver: &Driver, device: i32, shadow: usize) -> Result<(u64, usize), Code> {
    let mut registry = write();
    let variable = registry.variables.get(&shadow).ok_or(code::INVALID_SYMBOL)?;
    let (image, name, bytes) = (variable.image, variable.name.clone(), variable.bytes);
    let module = module(&mut registry, driver, device, image)?;
    let (mut address, mut found) = (0, 0);
    driver.cuModuleGetGlobal(&mut address, &mut found, module, name.as_ptr())?;
    Ok((address, if found == 0 { bytes } else { found }))
}
