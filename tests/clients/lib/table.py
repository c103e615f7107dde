"""The clients: what each needs, how it is made and run, and what must come of it."""

import dataclasses

MACHINE = ("--devices", "2", "--memory", "24GiB")


@dataclasses.dataclass(frozen=True)
class Client:
    """One program under one setting. Words may have {here}, {venv}, {site}, {nvidia}, {target},
    {scratch} in them."""

    name: str
    command: tuple
    parts: tuple = ()  # of tests/clients/install
    crates: tuple = ()  # to build by cargo
    compile: tuple = ()  # commands that make the program
    runtime: str = ""  # the substitute runtime that it needs: 12 or 13
    sim: tuple = MACHINE  # options of `cuddy sim`
    environment: dict = dataclasses.field(default_factory=dict)
    accesses: int = 1  # fewer checked accesses prove nothing
    finds: tuple = ()  # patterns that the findings must have; none: there must be no finding


def c_program(name, source, *options, link="-lcuda", **more):
    """A program in C, compiled with the vendor's headers."""
    gcc = ("gcc", "-O1", "-Wall", "-Wextra", "-Werror", *options, "-isystem", "{nvidia}/cuda_runtime/include")
    out = ("-o", "{scratch}/" + name, "{here}/c/" + source, "-L{scratch}", link, "-lpthread")
    return Client(name, ("{scratch}/" + name,), parts=("headers",), compile=((*gcc, *out),), **more)


def python_program(name, file, **more):
    """A program in Python on the driver alone."""
    return Client(name, ("{venv}/bin/python", "{here}/python/" + file), parts=("driver",), **more)


def torch_program(name, file, mode="native", conf="", compile=(), **more):
    """A program on torch 2.9.1, with the substitute runtime preloaded."""
    settings = {"CUDDY_CLIENT_MODE": mode, "SIMCUDA_KERNELS": "{here}/torch/kernels.txt"}
    if conf:
        # This torch reads both settings under this name only.
        settings["PYTORCH_CUDA_ALLOC_CONF"] = conf
    return Client(
        name,
        ("{venv}/bin/python", "{here}/torch/" + file),
        parts=("torch", *more.pop("parts", ())),
        runtime="12",
        environment=settings,
        compile=compile,
        **{"accesses": 1000, **more},
    )


def shared_library(name, source, *options):
    """A command that compiles one."""
    gcc = ("gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", "{scratch}/" + name)
    return (*gcc, "{here}/torch/" + source, *options)


CUDART = ("-isystem", "{nvidia}/cuda_runtime/include", "-isystem", "{nvidia}/cuda_nvcc/include", "-L{scratch}", "-lcudart")
CUDDY = ("-I{root}/include", "{target}/libcuddy.so", "-Wl,-rpath,{scratch}")

CLIENTS = (
    c_program("c-driver", "driver.c", accesses=1000),
    c_program("c-driver-per-thread", "driver.c", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", accesses=1000),
    Client("cudarc", ("{target}/client-cudarc",), crates=("client-cudarc",), accesses=50),
    python_program("numba-cuda", "numba_arrays.py", accesses=50),
    python_program("numba-cuda-emm", "numba_manager.py", accesses=5),
    python_program("cuda-core", "core_resources.py", accesses=20),
    python_program("cuda-bindings", "bindings_vmm.py", accesses=20),
    torch_program("torch-native", "allocator.py"),
    torch_program("torch-expandable", "allocator.py", "expandable", "expandable_segments:True"),
    torch_program("torch-async", "allocator.py", "async", "backend:cudaMallocAsync"),
    torch_program(
        "torch-pluggable",
        "plugged.py",
        "plain",
        compile=(shared_library("libplain_torch.so", "pluggable.c", *CUDART),),
        parts=("headers",),
    ),
    torch_program(
        "torch-on-cuddy",
        "plugged.py",
        "cuddy",
        crates=("cuddy",),
        compile=(("ln", "-sf", "{target}/libcuddy.so", "{scratch}/libcuddy.so.0"), shared_library("libcuddy_torch.so", "cuddy.c", *CUDDY)),
    ),
    torch_program(
        "torch-missing-record-stream",
        "missing_record.py",
        finds=(
            r"two uses of the same bytes that nothing orders",
            r"first: +read by cuMemcpy\w*Async\([^\n]* stream \d+",
            r"second: +write by cuMemcpy\w*Async\([^\n]* stream \d+",
            r"bytes 0x0\.\.0x800000 of [^\n]*cuMemAlloc\(\d+\)",
        ),
    ),
    torch_program("torch-training", "training.py"),
    torch_program("torch-training-expandable", "training.py", conf="expandable_segments:True"),
    torch_program(
        "torch-missing-record-stream-kernel",
        "missing_record_kernel.py",
        finds=(
            r"first: +read by kernel [^\n]*CUDAFunctor_add[^\n]* stream \d+",
            r"second: +write by cuMemcpy\w*Async\([^\n]* stream \d+",
            r"bytes 0x0\.\.0x400000 of [^\n]*cuMemAlloc\(\d+\)",
        ),
    ),
)
