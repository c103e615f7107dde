//! A **client**: a Rust program on cudarc's safe API, as users of it write them. It says what it did
//! in the lines that `tests/clients/run` reads; see `lib/behaviour.py` there.

use cudarc::driver::{CudaContext, DriverError, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

type Outcome = Result<(), Box<dyn Error>>;
type Check = fn(&Arc<CudaContext>) -> Outcome;

const GIB: usize = 1 << 30;

/// A sum of floats, under the name that the simulated driver knows as one of its few real kernels.
const ADD: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry simcuda_add(.param .u64 to, .param .u64 a, .param .u64 b, .param .u64 count) {
    .reg .pred %p1;
    .reg .f32 %f<4>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [a];
    ld.param.u64 %rd3, [b];
    ld.param.u64 %rd4, [count];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %rd5, %r4;
    setp.ge.u64 %p1, %rd5, %rd4;
    @%p1 bra done;
    shl.b64 %rd6, %rd5, 2;
    add.s64 %rd7, %rd2, %rd6;
    ld.global.f32 %f1, [%rd7];
    add.s64 %rd8, %rd3, %rd6;
    ld.global.f32 %f2, [%rd8];
    add.f32 %f3, %f1, %f2;
    add.s64 %rd9, %rd1, %rd6;
    st.global.f32 [%rd9], %f3;
done:
    ret;
}
";

const BEHAVIOURS: &[(&str, Check)] = &[
    ("devices, names and sizes", devices),
    ("slices are copied to the device and back", copies),
    ("views of a slice copy their part", views),
    ("streams wait for each other by the library's own events", streams),
    ("page-locked host memory", pinned),
    ("a kernel's launch, its arguments and its result", kernel),
    ("dropped slices give their memory back", drops),
    ("out of memory is an error that a program survives", out_of_memory),
    ("slices cross to a thread and are dropped there", threads),
];

fn main() -> ExitCode {
    let context = match CudaContext::new(0) {
        Ok(context) => context,
        Err(error) => {
            println!("failed the device is opened -- {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut good = true;
    for (name, check) in BEHAVIOURS {
        match check(&context) {
            Ok(()) => println!("passed {name}"),
            Err(why) => {
                good = false;
                println!("failed {name} -- {why}");
            }
        }
    }
    println!("end {}", BEHAVIOURS.len());
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Fails with a text unless something holds.
fn hold(holds: bool, otherwise: impl Into<String>) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into().into()) }
}

fn devices(context: &Arc<CudaContext>) -> Outcome {
    let name = context.name()?;
    // `tests/gpu/check` runs this on real devices, and says so.
    let real = std::env::var("CUDDY_GPU_SIMULATED").is_ok_and(|simulated| simulated == "0");
    hold(name.contains("simcuda") != real, format!("the device is named {name}"))?;
    if real {
        return hold(context.total_mem()? > GIB, "not even 1 GiB");
    }
    hold(CudaContext::device_count()? == 2, "not two devices")?;
    hold(context.total_mem()? == 24 * GIB, "not 24 GiB")?;
    let second = CudaContext::new(1)?;
    hold(second.ordinal() == 1 && second.uuid()?.bytes != context.uuid()?.bytes, "ordinal, uuid")
}

fn copies(context: &Arc<CudaContext>) -> Outcome {
    let stream = context.default_stream();
    let data: Vec<u32> = (0..100_003u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    let slice = stream.clone_htod(&data)?;
    hold(stream.clone_dtoh(&slice)? == data, "the data came back changed")?;
    let twin = slice.try_clone()?;
    hold(stream.clone_dtoh(&twin)? == data, "the clone has other data")?;
    let zeros = stream.alloc_zeros::<f64>(1000)?;
    hold(stream.clone_dtoh(&zeros)? == vec![0.0; 1000], "zeros")
}

fn views(context: &Arc<CudaContext>) -> Outcome {
    let stream = context.default_stream();
    let mut slice = stream.clone_htod(&(0..1024u16).collect::<Vec<_>>())?;
    let part = stream.clone_dtoh(&slice.slice(100..200))?;
    hold(part == (100..200).collect::<Vec<u16>>(), "the part")?;
    let (mut left, right) = slice.split_at_mut(512);
    stream.memcpy_dtod(&right, &mut left)?;
    hold(stream.clone_dtoh(&slice)?[..512] == (512..1024).collect::<Vec<u16>>(), "the half")
}

fn streams(context: &Arc<CudaContext>) -> Outcome {
    let (first, second) = (context.new_stream()?, context.new_stream()?);
    let data = vec![7u8; 1 << 20];
    let mut from = first.alloc_zeros::<u8>(data.len())?;
    first.memcpy_htod(&data, &mut from)?;
    // cudarc makes `second` wait for what `first` did with the slice.
    let mut to = second.alloc_zeros::<u8>(data.len())?;
    second.memcpy_dtod(&from, &mut to)?;
    hold(second.clone_dtoh(&to)? == data, "the data of the other stream")?;
    let event = first.record_event(None)?;
    second.wait(&event)?;
    event.synchronize()?;
    hold(event.is_complete(), "the event is not over")?;
    second.join(&first)?;
    Ok(second.synchronize()?)
}

fn pinned(context: &Arc<CudaContext>) -> Outcome {
    let stream = context.new_stream()?;
    // SAFETY: every byte pattern is an i32, and it is filled before it is read.
    let mut host = unsafe { context.alloc_pinned::<i32>(4096)? };
    host.as_mut_slice()?.fill(-3);
    let slice = stream.clone_htod(&host)?;
    hold(stream.clone_dtoh(&slice)? == vec![-3; 4096], "the data")
}

fn kernel(context: &Arc<CudaContext>) -> Outcome {
    let module = context.load_module(Ptx::from_src(ADD))?;
    let add = module.load_function("simcuda_add")?;
    let stream = context.default_stream();
    let a = stream.clone_htod(&[1.0f32, 2.0, 3.0])?;
    let b = stream.clone_htod(&[10.0f32, 20.0, 30.0])?;
    let mut sum = stream.alloc_zeros::<f32>(3)?;
    let mut launch = stream.launch_builder(&add);
    launch.arg(&mut sum).arg(&a).arg(&b).arg(&3u64);
    // SAFETY: the arguments are those of the kernel above, and the slices are long enough.
    unsafe { launch.launch(LaunchConfig::for_num_elems(3))? };
    hold(stream.clone_dtoh(&sum)? == [11.0, 22.0, 33.0], "the sum")
}

fn drops(context: &Arc<CudaContext>) -> Outcome {
    let stream = context.default_stream();
    let (before, _) = context.mem_get_info()?;
    let slices: Vec<_> =
        (0..16).map(|_| stream.alloc_zeros::<u8>(64 << 20)).collect::<Result<_, _>>()?;
    hold(context.mem_get_info()?.0 <= before - GIB, "1 GiB was allocated, and is not missed")?;
    drop(slices);
    stream.synchronize()?;
    hold(context.mem_get_info()?.0 >= before, "the memory did not come back")
}

fn out_of_memory(context: &Arc<CudaContext>) -> Outcome {
    let stream = context.default_stream();
    let error = stream
        .alloc_zeros::<u8>(context.total_mem()? + GIB)
        .err()
        .ok_or("more than there is was given")?;
    hold(error == DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY), error.to_string())?;
    let slice = stream.clone_htod(&[1u8, 2, 3])?;
    hold(stream.clone_dtoh(&slice)? == [1, 2, 3], "afterwards nothing works")
}

fn threads(context: &Arc<CudaContext>) -> Outcome {
    let stream = context.new_stream()?;
    let slice = stream.clone_htod(&[5u64; 1000])?;
    let work = move || -> Result<bool, DriverError> {
        stream.context().bind_to_thread()?;
        Ok(stream.clone_dtoh(&slice)? == [5u64; 1000])
    };
    let same = std::thread::spawn(work).join().map_err(|_| "the thread panicked")??;
    hold(same, "the data in the thread")
}
