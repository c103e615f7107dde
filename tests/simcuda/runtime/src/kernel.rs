//! **Kernels**: the compiler's stubs register an image and each kernel's name under the address of a
//! host function; a launch by that address loads the image into the current context, once, and
//! launches the function of that name.

use crate::thread::{self, Dim3, Launch};
use crate::{Code, Outcome, code, driver, put};
use std::collections::HashMap;
use std::ffi::{c_char, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What is registered, and what of it was loaded.
#[derive(Default)]
struct Registry {
    kernels: HashMap<u64, Kernel>,
    modules: HashMap<(u64, u64), u64>,
    functions: HashMap<(u64, u64), u64>,
}

/// An image and the address of a name, both of the program's and there for ever.
#[derive(Clone, Copy)]
struct Kernel {
    image: u64,
    name: u64,
}

/// What `__cudaRegisterFatBinary` is given.
#[repr(C)]
pub struct Wrapper {
    magic: i32,
    version: i32,
    image: u64,
    file: u64,
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
pub struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
    attributes: u64,
    count: u32,
}

/// `cudaFuncAttributes`.
#[repr(C)]
pub struct Attributes {
    sizes: [usize; 3],
    numbers: [i32; 13],
    reserved: [i32; 16],
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The driver's function for a host function, in the current context.
fn function(host: u64) -> Result<u64, Code> {
    thread::context()?;
    let mut context = 0;
    driver::cuCtxGetCurrent(&mut context)?;
    let mut registry = registry();
    if let Some(&known) = registry.functions.get(&(context, host)) {
        return Ok(known);
    }
    let kernel = *registry.kernels.get(&host).ok_or(code::INVALID_DEVICE_FUNCTION)?;
    let loaded = registry.modules.get(&(context, kernel.image)).copied();
    let mut module = loaded.unwrap_or(0);
    if loaded.is_none() {
        driver::cuModuleLoadData(&mut module, kernel.image as *const c_void)?;
        registry.modules.insert((context, kernel.image), module);
    }
    let mut found = 0;
    driver::cuModuleGetFunction(&mut found, module, kernel.name as *const c_char)?;
    registry.functions.insert((context, host), found);
    Ok(found)
}

fn launch(host: u64, launch: Launch, arguments: *mut *mut c_void) -> Outcome {
    let function = function(host)?;
    let (g, b) = (launch.grid, launch.block);
    let shared = launch.shared as u32;
    let none = std::ptr::null_mut();
    driver::cuLaunchKernel(
        function,
        g.x,
        g.y,
        g.z,
        b.x,
        b.y,
        b.z,
        shared,
        launch.stream,
        arguments,
        none,
    )
}

/// An image is known by the address of its wrapper.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rt___cudaRegisterFatBinary(wrapper: *mut Wrapper) -> *mut c_void {
    wrapper.cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rt___cudaRegisterFatBinaryEnd(_image: *mut c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rt___cudaUnregisterFatBinary(_image: *mut c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rt___cudaRegisterFunction(
    wrapper: *const Wrapper,
    host: u64,
    _device_function: u64,
    name: u64,
    _thread_limit: i32,
    _thread_id: u64,
    _block_id: u64,
    _block_dim: u64,
    _grid_dim: u64,
    _warp: u64,
) {
    if !wrapper.is_null() {
        // SAFETY: what __cudaRegisterFatBinary was given, a constant of the program's.
        let image = unsafe { (*wrapper).image };
        registry().kernels.insert(host, Kernel { image, name });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rt___cudaRegisterVar(
    _image: *mut c_void,
    _host: u64,
    _address: u64,
    _name: u64,
    _external: i32,
    _bytes: usize,
    _constant: i32,
    _global: i32,
) {
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rt___cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: u64,
) -> u32 {
    thread::push(Launch { grid, block, shared, stream });
    0
}

crate::exports! {
    fn rt___cudaPopCallConfiguration(
        grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut u64,
    ) {
        let launch = thread::pop().ok_or(52)?;
        put(grid, launch.grid)?;
        put(block, launch.block)?;
        put(shared, launch.shared)?;
        put(stream, launch.stream)
    }
    fn rt_cudaLaunchKernel(
        host: u64, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared: usize, stream: u64,
    ) {
        launch(host, Launch { grid, block, shared, stream }, arguments)
    }
    fn rt_cudaLaunchKernelExC(config: *const Config, host: u64, arguments: *mut *mut c_void) {
        if config.is_null() {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: not null; the caller's (see the crate). Attributes say how to run, not what.
        let Config { grid, block, shared, stream, .. } = *unsafe { &*config };
        launch(host, Launch { grid, block, shared, stream }, arguments)
    }
    fn rt_cudaFuncGetAttributes(attributes: *mut Attributes, host: u64) {
        let function = function(host)?;
        let ask = |attribute| {
            let mut value = 0;
            driver::cuFuncGetAttribute(&mut value, attribute, function).map(|()| value)
        };
        let mut all = Attributes { sizes: [0; 3], numbers: [0; 13], reserved: [0; 16] };
        for (size, attribute) in all.sizes.iter_mut().zip([1, 2, 3]) {
            *size = ask(attribute)? as usize;
        }
        for (number, attribute) in all.numbers.iter_mut().zip([0, 4, 5, 6, 7, 8, 9]) {
            *number = ask(attribute)?;
        }
        put(attributes, all)
    }
    fn rt_cudaFuncSetAttribute(host: u64, attribute: i32, value: i32) {
        driver::cuFuncSetAttribute(function(host)?, attribute, value)
    }
    fn rt_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, host: u64, size: i32, shared: usize,
    ) {
        let function = function(host)?;
        driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, size, shared, 0)
    }
    fn rt_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut i32, host: u64, size: i32, shared: usize, flags: u32,
    ) {
        let function = function(host)?;
        driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            blocks, function, size, shared, flags,
        )
    }
}
