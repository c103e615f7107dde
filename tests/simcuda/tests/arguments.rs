//! Every function with every handle that it must not be given, and in every state in which it must
//! not be called.
//!
//! A line of [`TABLE`] is a function with arguments that are right. From it follow: the call succeeds;
//! before `cuInit`, without a current context and on a spoilt one it fails as it should; and with each
//! handle among its arguments replaced by a wrong one it says which kind was wrong.

mod common;

use Argument::*;
use common::*;
use std::ffi::c_void;

/// An argument that is right.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Argument {
    /// Room for a result.
    Out,
    /// A plain number.
    N(u64),
    /// Bytes of a device's memory: 64 KiB.
    Memory,
    /// A text: "simcuda_spin".
    Name,

    Device,
    Context,
    OtherContext,
    Stream,
    Event,
    Module,
    Function,
    Library,
    Kernel,
    /// A list of one parameter.
    Parameters,
}

/// What a function asks of the calling thread.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Asks {
    /// That `cuInit` was called.
    Init,
    /// A current context, be it spoilt.
    Any,
    /// A current context that works.
    Healthy,
}
use Asks::{Any, Healthy, Init};

type Line = (&'static str, Asks, &'static [Argument]);

const TABLE: &[Line] = &[
    ("cuDeviceGet", Init, &[Out, Device]),
    ("cuDeviceGetCount", Init, &[Out]),
    ("cuDeviceGetName", Init, &[Out, N(64), Device]),
    ("cuDeviceGetUuid", Init, &[Out, Device]),
    ("cuDeviceGetUuid_v2", Init, &[Out, Device]),
    ("cuDeviceTotalMem_v2", Init, &[Out, Device]),
    ("cuDeviceGetAttribute", Init, &[Out, N(1), Device]),
    ("cuDeviceGetPCIBusId", Init, &[Out, N(64), Device]),
    ("cuDeviceGetProperties", Init, &[Out, Device]),
    ("cuDeviceComputeCapability", Init, &[Out, Out, Device]),
    ("cuDeviceGetExecAffinitySupport", Init, &[Out, N(0), Device]),
    ("cuDeviceGetTexture1DLinearMaxWidth", Init, &[Out, N(1), N(1), Device]),
    ("cuDeviceGetLuid", Init, &[Out, Out, Device]),
    ("cuDeviceCanAccessPeer", Init, &[Out, Device, Device]),
    ("cuDevicePrimaryCtxRetain", Init, &[Out, Device]),
    ("cuDevicePrimaryCtxRelease_v2", Init, &[Device]),
    ("cuDevicePrimaryCtxSetFlags_v2", Init, &[Device, N(4)]),
    ("cuDevicePrimaryCtxGetState", Init, &[Device, Out, Out]),
    ("cuCtxCreate_v2", Init, &[Out, N(0), Device]),
    ("cuCtxCreate_v4", Init, &[Out, N(0), N(0), Device]),
    ("cuCtxDestroy_v2", Init, &[OtherContext]),
    ("cuCtxPushCurrent_v2", Init, &[Context]),
    ("cuCtxSetCurrent", Init, &[N(0)]),
    ("cuCtxGetCurrent", Init, &[Out]),
    ("cuCtxGetDevice", Any, &[Out]),
    ("cuCtxGetFlags", Any, &[Out]),
    ("cuCtxGetId", Any, &[N(0), Out]),
    ("cuCtxGetApiVersion", Any, &[N(0), Out]),
    ("cuCtxSynchronize", Healthy, &[]),
    ("cuCtxGetStreamPriorityRange", Healthy, &[Out, Out]),
    ("cuCtxGetLimit", Healthy, &[Out, N(0)]),
    ("cuCtxSetLimit", Healthy, &[N(0), N(2048)]),
    ("cuCtxGetCacheConfig", Healthy, &[Out]),
    ("cuCtxSetCacheConfig", Healthy, &[N(1)]),
    ("cuCtxResetPersistingL2Cache", Healthy, &[]),
    ("cuCtxEnablePeerAccess", Healthy, &[OtherContext, N(0)]),
    ("cuCtxRecordEvent", Healthy, &[Context, Event]),
    ("cuCtxWaitEvent", Healthy, &[Context, Event]),
    ("cuStreamCreate", Healthy, &[Out, N(0)]),
    ("cuStreamCreateWithPriority", Healthy, &[Out, N(1), N(0)]),
    ("cuStreamDestroy_v2", Init, &[Stream]),
    ("cuStreamSynchronize", Healthy, &[Stream]),
    ("cuStreamQuery", Healthy, &[Stream]),
    ("cuStreamWaitEvent", Healthy, &[Stream, Event, N(0)]),
    ("cuStreamGetId", Healthy, &[Stream, Out]),
    ("cuStreamGetCtx", Healthy, &[Stream, Out]),
    ("cuStreamGetDevice", Healthy, &[Stream, Out]),
    ("cuStreamGetFlags", Healthy, &[Stream, Out]),
    ("cuStreamGetPriority", Healthy, &[Stream, Out]),
    ("cuStreamIsCapturing", Healthy, &[Stream, Out]),
    ("cuEventCreate", Healthy, &[Out, N(0)]),
    ("cuEventDestroy_v2", Init, &[Event]),
    ("cuEventRecord", Healthy, &[Event, Stream]),
    ("cuEventRecordWithFlags", Healthy, &[Event, Stream, N(0)]),
    ("cuEventQuery", Healthy, &[Event]),
    ("cuEventSynchronize", Healthy, &[Event]),
    ("cuEventElapsedTime", Healthy, &[Out, Event, Event]),
    ("cuMemAlloc_v2", Healthy, &[Out, N(512)]),
    ("cuMemAllocPitch_v2", Healthy, &[Out, Out, N(512), N(2), N(4)]),
    ("cuMemFree_v2", Healthy, &[Memory]),
    ("cuMemGetInfo_v2", Healthy, &[Out, Out]),
    ("cuMemGetAddressRange_v2", Healthy, &[Out, Out, Memory]),
    ("cuMemHostAlloc", Healthy, &[Out, N(512), N(0)]),
    ("cuMemAllocHost_v2", Healthy, &[Out, N(512)]),
    ("cuMemFreeHost", Healthy, &[N(0)]),
    ("cuMemsetD8_v2", Healthy, &[Memory, N(1), N(16)]),
    ("cuMemsetD16_v2", Healthy, &[Memory, N(1), N(16)]),
    ("cuMemsetD32_v2", Healthy, &[Memory, N(1), N(16)]),
    ("cuMemsetD2D8_v2", Healthy, &[Memory, N(64), N(1), N(16), N(2)]),
    ("cuMemsetD8Async", Healthy, &[Memory, N(1), N(16), Stream]),
    ("cuMemsetD16Async", Healthy, &[Memory, N(1), N(16), Stream]),
    ("cuMemsetD32Async", Healthy, &[Memory, N(1), N(16), Stream]),
    ("cuMemsetD2D8Async", Healthy, &[Memory, N(64), N(1), N(16), N(2), Stream]),
    ("cuMemsetD2D16Async", Healthy, &[Memory, N(64), N(1), N(16), N(2), Stream]),
    ("cuMemsetD2D32Async", Healthy, &[Memory, N(64), N(1), N(16), N(2), Stream]),
    ("cuMemcpy", Healthy, &[Memory, Memory, N(16)]),
    ("cuMemcpyAsync", Healthy, &[Memory, Memory, N(16), Stream]),
    ("cuMemcpyHtoD_v2", Healthy, &[Memory, Name, N(8)]),
    ("cuMemcpyDtoH_v2", Healthy, &[Out, Memory, N(8)]),
    ("cuMemcpyDtoD_v2", Healthy, &[Memory, Memory, N(8)]),
    ("cuMemcpyHtoDAsync_v2", Healthy, &[Memory, Name, N(8), Stream]),
    ("cuMemcpyDtoHAsync_v2", Healthy, &[Out, Memory, N(8), Stream]),
    ("cuMemcpyDtoDAsync_v2", Healthy, &[Memory, Memory, N(8), Stream]),
    ("cuMemcpyPeer", Healthy, &[Memory, Context, Memory, Context, N(8)]),
    ("cuMemcpyPeerAsync", Healthy, &[Memory, Context, Memory, Context, N(8), Stream]),
    ("cuMemAllocAsync", Healthy, &[Out, N(512), Stream]),
    ("cuMemFreeAsync", Healthy, &[Memory, Stream]),
    ("cuModuleLoad", Healthy, &[Out, Name]),
    ("cuModuleLoadData", Healthy, &[Out, Name]),
    ("cuModuleLoadDataEx", Healthy, &[Out, Name, N(0), N(0), N(0)]),
    ("cuModuleLoadFatBinary", Healthy, &[Out, Name]),
    ("cuModuleUnload", Healthy, &[Module]),
    ("cuModuleGetFunction", Healthy, &[Out, Module, Name]),
    ("cuModuleGetFunctionCount", Init, &[Out, Module]),
    ("cuModuleGetLoadingMode", Init, &[Out]),
    ("cuFuncGetAttribute", Init, &[Out, N(0), Function]),
    ("cuFuncSetAttribute", Init, &[Function, N(8), N(1024)]),
    ("cuFuncSetCacheConfig", Init, &[Function, N(1)]),
    ("cuFuncGetModule", Init, &[Out, Function]),
    ("cuFuncGetName", Init, &[Out, Function]),
    ("cuFuncGetParamInfo", Init, &[Function, N(0), Out, Out]),
    ("cuFuncIsLoaded", Init, &[Out, Function]),
    ("cuFuncLoad", Init, &[Function]),
    ("cuOccupancyMaxActiveBlocksPerMultiprocessor", Healthy, &[Out, Function, N(256), N(0)]),
    (
        "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
        Healthy,
        &[Out, Function, N(256), N(0), N(1)],
    ),
    ("cuOccupancyMaxPotentialBlockSize", Healthy, &[Out, Out, Function, N(0), N(0), N(0)]),
    (
        "cuOccupancyMaxPotentialBlockSizeWithFlags",
        Healthy,
        &[Out, Out, Function, N(0), N(0), N(0), N(0)],
    ),
    ("cuOccupancyAvailableDynamicSMemPerBlock", Healthy, &[Out, Function, N(2), N(256)]),
    ("cuLibraryLoadData", Init, &[Out, Name, N(0), N(0), N(0), N(0), N(0), N(0)]),
    ("cuLibraryUnload", Init, &[Library]),
    ("cuLibraryGetKernel", Init, &[Out, Library, Name]),
    ("cuLibraryGetKernelCount", Init, &[Out, Library]),
    ("cuLibraryEnumerateKernels", Init, &[Out, N(8), Library]),
    ("cuLibraryGetModule", Healthy, &[Out, Library]),
    ("cuKernelGetFunction", Healthy, &[Out, Kernel]),
    ("cuKernelGetLibrary", Init, &[Out, Kernel]),
    ("cuKernelGetName", Init, &[Out, Kernel]),
    ("cuKernelGetAttribute", Init, &[Out, N(0), Kernel, Device]),
    ("cuKernelSetAttribute", Init, &[N(8), N(1024), Kernel, Device]),
    ("cuKernelSetCacheConfig", Init, &[Kernel, N(1), Device]),
    ("cuKernelGetParamInfo", Init, &[Kernel, N(0), Out, Out]),
    ("cuMemsetD2D16_v2", Healthy, &[Memory, N(64), N(1), N(16), N(2)]),
    ("cuMemsetD2D32_v2", Healthy, &[Memory, N(64), N(1), N(16), N(2)]),
    ("cuDeviceGetP2PAttribute", Init, &[Out, N(1), Device, N(1)]),
    ("cuCtxSetFlags", Any, &[N(4)]),
    (
        "cuLaunchKernel",
        Healthy,
        &[Function, N(1), N(1), N(1), N(1), N(1), N(1), N(0), Stream, Parameters, N(0)],
    ),
    (
        "cuLaunchCooperativeKernel",
        Healthy,
        &[Function, N(1), N(1), N(1), N(1), N(1), N(1), N(0), Stream, Parameters],
    ),
    ("cuProfilerStart", Init, &[]),
    ("cuProfilerStop", Init, &[]),
    ("cuFlushGPUDirectRDMAWrites", Healthy, &[N(0), N(100)]),
];

/// A session with one object of each kind.
struct World {
    s: Session,
    out: Box<[u64; 16]>,
    /// A pointer to the number after it.
    list: Box<[u64; 2]>,
    context: u64,
    other: u64,
    memory: u64,
    stream: u64,
    event: u64,
    module: u64,
    function: u64,
    library: u64,
    kernel: u64,
}

fn call(sim: &Sim, name: &str, arguments: &[u64]) -> i32 {
    type Twelve =
        unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> i32;
    let at = sim.symbol(name).unwrap_or_else(|| panic!("{name} is not exported"));
    let mut a = [0; 12];
    a[..arguments.len()].copy_from_slice(arguments);
    // SAFETY: every parameter is an integer or a pointer, and such are passed as 64-bit words; a
    // function with fewer than twelve does not look at the rest.
    unsafe {
        std::mem::transmute::<*mut c_void, Twelve>(at)(
            a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11],
        )
    }
}

impl World {
    fn new() -> Self {
        let s = session(&[("devices", "2")]);
        let mut made = [0u64; 8];
        ok!(s.cuDevicePrimaryCtxRetain(&mut made[0], 0));
        ok!(s.cuCtxCreate_v2(&mut made[1], 0, 1));
        ok!(s.cuCtxPopCurrent_v2(std::ptr::null_mut()));
        let (memory, stream, event) = (s.alloc(64 << 10), s.stream(), s.event());
        ok!(s.cuEventRecord(event, stream));
        ok!(s.cuModuleLoadData(&mut made[2], c"image".as_ptr()));
        ok!(s.cuModuleGetFunction(&mut made[3], made[2], c"simcuda_spin".as_ptr()));
        let image = c"image".as_ptr() as u64;
        let library = &raw mut made[4] as u64;
        ok!(call(s.sim, "cuLibraryLoadData", &[library, image, 0, 0, 0, 0, 0, 0]));
        let name = c"simcuda_spin".as_ptr() as u64;
        ok!(call(s.sim, "cuLibraryGetKernel", &[&raw mut made[5] as u64, made[4], name]));
        let [context, other, module, function, library, kernel, ..] = made;
        let (out, mut list) = (Box::new([0; 16]), Box::new([0, 5]));
        list[0] = &raw const list[1] as u64;
        Self {
            s,
            out,
            list,
            context,
            other,
            memory,
            stream,
            event,
            module,
            function,
            library,
            kernel,
        }
    }

    fn value(&mut self, argument: Argument) -> u64 {
        match argument {
            Out => self.out.as_mut_ptr() as u64,
            N(n) => n,
            Memory => self.memory,
            Name => c"/dev/null".as_ptr() as u64,
            Device => 0,
            Context => self.context,
            OtherContext => self.other,
            Stream => self.stream,
            Event => self.event,
            Module => self.module,
            Function => self.function,
            Library => self.library,
            Kernel => self.kernel,
            Parameters => self.list.as_ptr() as u64,
        }
    }

    fn values(&mut self, line: &Line) -> Vec<u64> {
        line.2.iter().map(|&argument| self.value(argument)).collect()
    }

    /// Values that are no object of an argument's kind, and what they are.
    fn wrong(&self, argument: Argument) -> Vec<(&'static str, u64)> {
        let garbage = |value: u64| {
            vec![("garbage", 3), ("past the end", value + (1 << 20)), ("inside", value + 1)]
        };
        let with = |mut all: Vec<_>, kinds: &[(&'static str, u64)]| {
            all.extend_from_slice(kinds);
            all
        };
        match argument {
            Device => vec![("negative", u64::MAX), ("one too many", 2), ("far too many", 1 << 20)],
            Context | OtherContext => with(garbage(self.context), &[("a stream", self.stream)]),
            // 0, 1 and 2 are default streams.
            Stream => {
                with(garbage(self.stream), &[("an event", self.event), ("a context", self.context)])
            }
            Event => with(garbage(self.event), &[("null", 0), ("a stream", self.stream)]),
            Module => with(garbage(self.module), &[("null", 0), ("a library", self.library)]),
            Function => with(garbage(self.function), &[("null", 0), ("a module", self.module)]),
            Library => with(garbage(self.library), &[("null", 0), ("a module", self.module)]),
            Kernel => with(garbage(self.kernel), &[("null", 0), ("a function", self.function)]),
            _ => Vec::new(),
        }
    }
}

/// What a wrong handle of a kind is.
fn wrong_code(argument: Argument) -> i32 {
    match argument {
        Device => code::INVALID_DEVICE,
        Context | OtherContext => code::INVALID_CONTEXT,
        _ => code::INVALID_HANDLE,
    }
}

/// The table, each line in a world of its own.
fn each(test: impl Fn(World, &Line)) {
    TABLE.iter().for_each(|line| test(World::new(), line));
}

#[test]
fn right_arguments_are_taken() {
    each(|mut world, line| {
        let values = world.values(line);
        assert_eq!(call(world.s.sim, line.0, &values), 0, "{line:?}");
    });
}

#[test]
fn before_cu_init_everything_is_not_initialized() {
    each(|mut world, line| {
        let values = world.values(line);
        world.s.sim.reset();
        assert_eq!(call(world.s.sim, line.0, &values), code::NOT_INITIALIZED, "{line:?}");
    });
}

#[test]
fn without_a_current_context_what_needs_one_is_refused() {
    each(|mut world, line| {
        let values = world.values(line);
        ok!(world.s.cuCtxSetCurrent(0));
        let named = line.2.contains(&Context);
        let expected = match line.1 {
            Init => 0,
            _ if named && line.0.starts_with("cuCtx") => 0,
            _ => code::INVALID_CONTEXT,
        };
        assert_eq!(call(world.s.sim, line.0, &values), expected, "{line:?}");
    });
}

#[test]
fn a_current_context_that_was_destroyed_says_so() {
    each(|mut world, line| {
        if line.1 == Init || line.2.contains(&Context) || line.2.contains(&OtherContext) {
            return;
        }
        ok!(world.s.cuCtxPushCurrent_v2(world.other));
        let other = world.other;
        std::thread::scope(|scope| {
            let s = &world.s;
            scope.spawn(|| ok!(s.driver.cuCtxDestroy_v2(other)));
        });
        let values = world.values(line);
        let found = call(world.s.sim, line.0, &values);
        assert_eq!(found, code::CONTEXT_IS_DESTROYED, "{line:?}");
    });
}

#[test]
fn a_spoilt_context_answers_its_error_to_everything_that_works_on_it() {
    each(|mut world, line| {
        world.s.launch("simcuda_touch", &[0x10, 8, 1], 0);
        let values = world.values(line);
        let found = call(world.s.sim, line.0, &values);
        let expected = if line.1 == Healthy { code::ILLEGAL_ADDRESS } else { 0 };
        assert_eq!(found, expected, "{line:?}");
    });
}

#[test]
fn a_handle_that_is_none_of_its_kind_is_named_so() {
    each(|mut world, line| {
        for (place, &argument) in line.2.iter().enumerate() {
            for (what, value) in world.wrong(argument) {
                let mut values = world.values(line);
                values[place] = value;
                let found = call(world.s.sim, line.0, &values);
                assert_eq!(found, wrong_code(argument), "{line:?}: {what} for argument {place}");
            }
        }
        // None of that changed anything.
        let values = world.values(line);
        assert_eq!(call(world.s.sim, line.0, &values), 0, "{line:?} after all that");
    });
}

#[test]
fn a_destroyed_object_is_none_any_more() {
    each(|mut world, line| {
        let values = world.values(line);
        for (place, &argument) in line.2.iter().enumerate() {
            let gone = match argument {
                Stream => ok_code(world.s.cuStreamDestroy_v2(world.stream)),
                Event => ok_code(world.s.cuEventDestroy_v2(world.event)),
                Module | Function => ok_code(world.s.cuModuleUnload(world.module)),
                Library | Kernel => ok_code(call(world.s.sim, "cuLibraryUnload", &[world.library])),
                OtherContext => ok_code(world.s.cuCtxDestroy_v2(world.other)),
                _ => continue,
            };
            assert!(gone);
            let found = call(world.s.sim, line.0, &values);
            assert_eq!(found, wrong_code(argument), "{line:?}: argument {place} is destroyed");
            return;
        }
    });
}

fn ok_code(code: i32) -> bool {
    code == 0
}

/// A function that must have room for its result, or a text, refuses null and does nothing.
#[test]
fn null_where_a_result_or_a_text_belongs_is_an_invalid_value() {
    const OPTIONAL: [&str; 9] = [
        "cuMemGetInfo_v2",
        "cuMemGetAddressRange_v2",
        "cuCtxGetStreamPriorityRange",
        "cuDeviceGetLuid",
        "cuDevicePrimaryCtxGetState",
        "cuOccupancyMaxPotentialBlockSize",
        "cuOccupancyMaxPotentialBlockSizeWithFlags",
        "cuFuncGetParamInfo",
        "cuKernelGetParamInfo",
    ];
    each(|mut world, line| {
        for (place, _) in line.2.iter().enumerate().filter(|(_, a)| [Out, Name].contains(a)) {
            if OPTIONAL.contains(&line.0) {
                continue;
            }
            let mut values = world.values(line);
            values[place] = 0;
            let kinds = ["streams", "events", "contexts", "modules", "libraries", "allocations"];
            let before = kinds.map(|kind| world.s.sim.objects(kind));
            let found = call(world.s.sim, line.0, &values);
            assert_eq!(found, code::INVALID_VALUE, "{line:?}: null for argument {place}");
            assert_eq!(kinds.map(|kind| world.s.sim.objects(kind)), before, "{line:?}");
        }
    });
}

/// Function, right arguments but for the one that is a wrong value.
const WRONG_VALUES: &[(&str, &[Argument], i32)] = &[
    ("cuInit", &[N(1)], code::INVALID_VALUE),
    ("cuDeviceGetName", &[Out, N(0), Device], code::INVALID_VALUE),
    ("cuDeviceGetPCIBusId", &[Out, N(12), Device], code::INVALID_VALUE),
    ("cuDeviceGetAttribute", &[Out, N(100_000), Device], code::INVALID_VALUE),
    ("cuDeviceGetAttribute", &[Out, N(0), Device], code::INVALID_VALUE),
    ("cuCtxCreate_v2", &[Out, N(3), Device], code::INVALID_VALUE),
    ("cuCtxCreate_v2", &[Out, N(0x100), Device], code::INVALID_VALUE),
    ("cuDevicePrimaryCtxSetFlags_v2", &[Device, N(6)], code::INVALID_VALUE),
    ("cuCtxGetLimit", &[Out, N(99)], 215),
    ("cuCtxSetLimit", &[N(99), N(0)], 215),
    ("cuCtxSetCacheConfig", &[N(4)], code::INVALID_VALUE),
    ("cuStreamCreate", &[Out, N(2)], code::INVALID_VALUE),
    ("cuStreamWaitEvent", &[Stream, Event, N(2)], code::INVALID_VALUE),
    ("cuEventCreate", &[Out, N(8)], code::INVALID_VALUE),
    ("cuEventCreate", &[Out, N(4)], code::INVALID_VALUE),
    ("cuEventRecordWithFlags", &[Event, Stream, N(2)], code::INVALID_VALUE),
    ("cuMemAlloc_v2", &[Out, N(0)], code::INVALID_VALUE),
    ("cuMemAllocPitch_v2", &[Out, Out, N(512), N(0), N(4)], code::INVALID_VALUE),
    ("cuMemAllocPitch_v2", &[Out, Out, N(512), N(2), N(5)], code::INVALID_VALUE),
    ("cuMemFree_v2", &[Out], code::INVALID_VALUE),
    ("cuMemHostAlloc", &[Out, N(0), N(0)], code::INVALID_VALUE),
    ("cuMemHostAlloc", &[Out, N(512), N(8)], code::INVALID_VALUE),
    ("cuMemFreeHost", &[Memory], code::INVALID_VALUE),
    ("cuMemHostUnregister", &[Out], 713),
    ("cuMemHostRegister_v2", &[Out, N(0), N(0)], code::INVALID_VALUE),
    ("cuMemHostRegister_v2", &[N(0), N(64), N(0)], code::INVALID_VALUE),
    ("cuMemcpy", &[Memory, N(0), N(8)], code::INVALID_VALUE),
    ("cuMemsetD2D8_v2", &[Memory, N(8), N(1), N(16), N(2)], code::INVALID_VALUE),
    ("cuModuleLoad", &[Out, Out], code::INVALID_VALUE + 300),
    ("cuFuncGetAttribute", &[Out, N(16), Function], code::INVALID_VALUE),
    ("cuFuncSetAttribute", &[Function, N(0), N(1)], code::INVALID_VALUE),
    ("cuFuncSetAttribute", &[Function, N(8), N(300 << 10)], code::INVALID_VALUE),
    ("cuFuncSetCacheConfig", &[Function, N(4)], code::INVALID_VALUE),
    ("cuFuncGetParamInfo", &[Function, N(1), Out, Out], code::INVALID_VALUE),
    ("cuKernelSetAttribute", &[N(4), N(1), Kernel, Device], code::INVALID_VALUE),
    (
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        &[Out, Function, N(1025), N(0)],
        code::INVALID_VALUE,
    ),
    (
        "cuOccupancyAvailableDynamicSMemPerBlock",
        &[Out, Function, N(9), N(256)],
        code::INVALID_VALUE,
    ),
    ("cuFlushGPUDirectRDMAWrites", &[N(1), N(100)], code::INVALID_VALUE),
    ("cuFlushGPUDirectRDMAWrites", &[N(0), N(1)], code::INVALID_VALUE),
    ("cuModuleGetGlobal_v2", &[Out, Out, Module, Name], code::NOT_FOUND),
    ("cuLibraryGetGlobal", &[Out, Out, Library, Name], code::NOT_FOUND),
    ("cuLibraryGetManaged", &[Out, Out, Library, Name], code::NOT_FOUND),
    ("cuLibraryGetUnifiedFunction", &[Out, Library, Name], code::NOT_FOUND),
    ("cuLibraryLoadFromFile", &[Out, Out, N(0), N(0), N(0), N(0), N(0), N(0)], 301),
    ("cuDevicePrimaryCtxReset_v2", &[N(2)], code::INVALID_DEVICE),
    ("cuDeviceGetP2PAttribute", &[Out, N(1), Device, Device], code::INVALID_DEVICE),
    ("cuDeviceGetP2PAttribute", &[Out, N(9), Device, N(1)], code::INVALID_VALUE),
];

#[test]
fn a_value_out_of_its_range_is_refused() {
    for line in WRONG_VALUES {
        let mut world = World::new();
        let values: Vec<_> = line.1.iter().map(|&argument| world.value(argument)).collect();
        assert_eq!(call(world.s.sim, line.0, &values), line.2, "{line:?}");
    }
}

#[test]
fn a_launch_that_no_device_can_make_is_refused() {
    let mut world = World::new();
    let (f, out) = (world.function, world.value(Out));
    let mut parameter = 5u64;
    let list = [&raw mut parameter as u64];
    let list = list.as_ptr() as u64;
    let with = |change: &[(usize, u64)]| {
        let mut arguments = [f, 1, 1, 1, 1, 1, 1, 0, 0, list, 0];
        change.iter().for_each(|&(place, value)| arguments[place] = value);
        call(world.s.sim, "cuLaunchKernel", &arguments)
    };
    assert_eq!(with(&[]), 0);
    assert_eq!(with(&[(1, i32::MAX as u64), (2, 65_535), (3, 65_535), (4, 1024)]), 0, "the most");
    assert_eq!(with(&[(7, 48 << 10)]), 0, "all shared memory that needs no asking");
    for wrong in [
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 0),
        (6, 0),
        (1, 1 << 31),
        (2, 65_536),
        (3, 65_536),
        (4, 1025),
        (5, 1025),
        (6, 65),
        (7, (48 << 10) + 1),
        (10, out),
    ] {
        assert_eq!(with(&[wrong]), code::INVALID_VALUE, "{wrong:?}");
    }
    assert_eq!(with(&[(4, 32), (5, 33)]), code::INVALID_VALUE, "1056 threads");
    assert_eq!(call(world.s.sim, "cuFuncSetAttribute", &[f, 8, 100 << 10]), 0);
    assert_eq!(with(&[(7, 100 << 10)]), 0, "as much as was asked for");
    assert_eq!(with(&[(7, (100 << 10) + 1)]), code::INVALID_VALUE);
    for handle in [0, 3, world.stream, f + 1] {
        assert_eq!(with(&[(0, handle)]), code::INVALID_HANDLE);
    }
    assert_eq!(with(&[(8, world.event)]), code::INVALID_HANDLE);
    ok!(world.s.cuCtxSetCurrent(world.other));
    assert_eq!(with(&[]), code::INVALID_HANDLE, "a function of another context");
}

#[test]
fn an_illegal_access_spoils_the_device_for_this_process() {
    let world = World::new();
    let s = &world.s;
    s.launch("simcuda_touch", &[0x10, 8, 1], 0);
    assert_eq!(s.cuCtxSynchronize(), code::ILLEGAL_ADDRESS);
    assert_eq!(s.cuDevicePrimaryCtxReset_v2(0), code::ILLEGAL_ADDRESS);
    s.use_device(0);
    assert_eq!(s.cuCtxSynchronize(), code::ILLEGAL_ADDRESS, "a new context helps nothing");
    ok!(s.cuCtxSetCurrent(world.other));
    assert_eq!(s.cuCtxSynchronize(), 0, "another device knows nothing of it");
}

#[test]
fn a_librarys_kernel_is_a_function_of_each_context() {
    let mut world = World::new();
    let (sim, kernel, out) = (world.s.sim, world.kernel, world.value(Out));
    ok!(call(sim, "cuKernelGetFunction", &[out, kernel]));
    let here = world.out[0];
    ok!(call(sim, "cuKernelGetFunction", &[out, kernel]));
    assert_eq!(world.out[0], here, "the same one again");
    ok!(world.s.cuCtxSetCurrent(world.other));
    ok!(call(sim, "cuKernelGetFunction", &[out, kernel]));
    let there = world.out[0];
    assert_ne!(here, there);
    // What is set of the kernel holds for its function, until that has its own.
    ok!(call(sim, "cuKernelSetAttribute", &[8, 4096, kernel, 1]));
    let shared = |world: &World| {
        ok!(call(sim, "cuFuncGetAttribute", &[out, 8, there]));
        world.out[0] as u32
    };
    assert_eq!(shared(&world), 4096);
    ok!(call(sim, "cuKernelSetAttribute", &[8, 8192, kernel, 1]));
    assert_eq!(shared(&world), 8192);
    ok!(call(sim, "cuFuncSetAttribute", &[there, 8, 1024]));
    assert_eq!(shared(&world), 1024);
    // It is launched by either handle, and really works.
    ok!(world.s.cuCtxSetCurrent(world.context));
    let before = sim.time_ns();
    let mut ns = 1_000_000u64;
    let list = [&raw mut ns as u64];
    for handle in [here, kernel] {
        let launch = [handle, 1, 1, 1, 1, 1, 1, 0, 0, list.as_ptr() as u64, 0];
        ok!(call(sim, "cuLaunchKernel", &launch));
    }
    ok!(world.s.cuCtxSynchronize());
    assert!(sim.time_ns() - before >= 2_000_000);
    ok!(call(sim, "cuLibraryUnload", &[world.library]));
    assert_eq!(call(sim, "cuFuncLoad", &[here]), code::INVALID_HANDLE);
    assert_eq!(call(sim, "cuKernelGetName", &[out, kernel]), code::INVALID_HANDLE);
}

#[test]
fn the_other_forms_of_copies_and_launches_do_as_the_plain_ones() {
    let world = World::new();
    let (s, sim) = (&world.s, world.s.sim);
    let (from, to) = (world.memory, s.alloc(64 << 10));
    let mut config = [0u32; 16];
    for size in &mut config[..6] {
        *size = 1;
    }
    let (mut ns, before) = (3_000_000u64, sim.time_ns());
    let list = [&raw mut ns as u64];
    let ex = [config.as_ptr() as u64, world.function, list.as_ptr() as u64, 0];
    ok!(call(sim, "cuLaunchKernelEx", &ex));
    ok!(s.cuCtxSynchronize());
    assert!(sim.time_ns() - before >= 3_000_000, "it ran");
    assert_eq!(call(sim, "cuLaunchKernelEx", &[0, ex[1], ex[2], 0]), code::INVALID_VALUE);
    config[3] = 2048;
    let ex = [config.as_ptr() as u64, world.function, list.as_ptr() as u64, 0];
    assert_eq!(call(sim, "cuLaunchKernelEx", &ex), code::INVALID_VALUE);
    for (value, name) in [(3, "cuMemcpy2D_v2"), (4, "cuMemcpy2DUnaligned_v2")] {
        ok!(s.cuMemsetD8_v2(from, value, 256));
        ok!(s.cuMemsetD8_v2(to, 0, 256));
        // Three rows of 8 bytes, 64 bytes apart, to rows 32 bytes apart.
        let rows = [0, 0, 2, 0, from, 0, 64, 0, 0, 2, 0, to, 0, 32, 8, 3];
        ok!(call(sim, name, &[rows.as_ptr() as u64]));
        let found = s.peek(to, 96);
        let expected = |i: usize| if i % 32 < 8 { value } else { 0 };
        assert!(found.iter().enumerate().all(|(i, b)| *b == expected(i)), "{name}: {found:?}");
        assert_eq!(call(sim, name, &[0]), code::INVALID_VALUE);
    }
}

/// Null, 1 and 2 are the default streams wherever a stream may be named, but cannot be destroyed.
#[test]
fn default_streams_are_streams_everywhere() {
    for stream in [0, 1, 2] {
        each(|mut world, line| {
            let place = line.2.iter().position(|argument| *argument == Stream);
            let Some(place) = place else { return };
            let expected = if line.0 == "cuStreamDestroy_v2" { code::INVALID_HANDLE } else { 0 };
            let mut values = world.values(line);
            values[place] = stream;
            assert_eq!(call(world.s.sim, line.0, &values), expected, "{line:?} on {stream}");
        });
    }
}

#[test]
fn a_forked_child_finds_the_driver_not_initialized() {
    let mut world = World::new();
    let calls: Vec<_> = TABLE.iter().map(|line| (line.0, world.values(line))).collect();
    let symbols = calls.iter().map(|(name, _)| world.s.sim.symbol(name).expect("exported"));
    assert_eq!(symbols.count(), TABLE.len());
    // SAFETY: the child makes driver calls, which answer at once there, and ends without running
    // anything else of this process.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let wrong = |(name, values): &(&str, Vec<u64>)| {
            call(world.s.sim, name, values) != code::NOT_INITIALIZED
        };
        let first = calls.iter().position(wrong).map_or(0, |place| place as i32 + 1);
        // SAFETY: as above.
        unsafe { libc::_exit(first) };
    }
    let mut status = -1;
    // SAFETY: the child is this process's own, and `status` is a local.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    let first = libc::WEXITSTATUS(status);
    assert!(libc::WIFEXITED(status) && first == 0, "status {status}: line {first} of the table");
    ok!(world.s.cuCtxSynchronize());
}

/// What a host function finds: the table's first line that is not refused.
struct Found {
    sim: &'static Sim,
    calls: Vec<(&'static str, Vec<u64>)>,
    wrong: Option<(&'static str, i32)>,
}

unsafe extern "C" fn call_everything(found: *mut Found) {
    // SAFETY: the test gives its own local, and waits for this function before it looks at it.
    let found = unsafe { &mut *found };
    found.wrong = found.calls.iter().find_map(|(name, values)| {
        let answer = call(found.sim, name, values);
        (answer != code::NOT_PERMITTED).then_some((*name, answer))
    });
    found.calls.clear();
}

#[test]
fn a_host_function_may_make_no_call_at_all() {
    let mut world = World::new();
    let calls = TABLE.iter().map(|line| (line.0, world.values(line))).collect();
    let mut found = Found { sim: world.s.sim, calls, wrong: None };
    let function = call_everything as *const () as u64;
    ok!(world.s.cuLaunchHostFunc(world.stream, function, &raw mut found as u64));
    ok!(world.s.cuStreamSynchronize(world.stream));
    assert!(found.calls.is_empty(), "it ran");
    assert_eq!(found.wrong, None);
    ok!(world.s.cuEventQuery(world.event));
}
