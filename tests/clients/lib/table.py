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
    own: bool = False  # all its device memory is Cuddy's, by cuddy.h
    outside: tuple = ()  # behaviours that look at the driver past the preload library: with it, they differ
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
PEERS = {
    # CUB is header-only.
    "CUB": (),
    # RMM's pool is too, but for helpers that call no CUDA: those are in librmm.so.
    "RMM": (
        "-DLIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE",
        *(word for part in ("librmm/include", "librmm/include/rapids", "rapids_logger/include") for word in ("-isystem", "{site}/" + part)),
    ),
}
PEERS_LIBRARIES = {
    "CUB": (),
    "RMM": tuple(
        word
        for folder, file in (("librmm", "librmm.so"), ("rapids_logger", "librapids_logger.so"))
        for word in ("{site}/%s/lib64/%s" % (folder, file), "-Wl,-rpath,{site}/%s/lib64" % folder)
    ),
}


def peer_program(name, peer, source, **more):
    """An allocator of others in C++, on the substitute runtime."""
    includes = (*PEERS[peer], "-isystem", "{nvidia}/cuda_cccl/include", "-I{here}/peers")
    gcc = ("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-DPEER_" + peer, *includes)
    out = ("-o", "{scratch}/" + name, "{here}/peers/" + source)
    program = (*gcc, *out, *CUDART, *PEERS_LIBRARIES[peer])
    return Client(name, ("{scratch}/" + name,), parts=("headers",), runtime="12", compile=(program,), **more)


CUDDY = ("-I{root}/include", "{target}/libcuddy.so", "-Wl,-rpath,{scratch}")

CLIENTS = (
    c_program("c-driver", "driver.c", accesses=1000),
    c_program("c-driver-per-thread", "driver.c", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", accesses=1000),
    c_program("c-runtime", "runtime.c", "-isystem", "{nvidia}/cuda_nvcc/include", link="-lcudart", runtime="12", accesses=1000),
    Client("cudarc", ("{target}/client-cudarc",), crates=("client-cudarc",), accesses=50),
    python_program("numba-cuda", "numba_arrays.py", accesses=50, outside=("freed arrays give their memory back",)),
    python_program("numba-cuda-emm", "numba_manager.py", accesses=5, outside=("each goes back to it exactly once",)),
    python_program("numba-on-cuddy", "numba_on_cuddy.py", crates=("cuddy",), own=True, accesses=20),
    python_program(
        "numba-on-cuddy-by-name",
        "numba_on_cuddy.py",
        crates=("cuddy",),
        own=True,
        accesses=20,
        environment={"NUMBA_CUDA_MEMORY_MANAGER": "cuddy.numba"},
    ),
    python_program("cuda-core-on-cuddy", "core_on_cuddy.py", crates=("cuddy",), own=True, accesses=10),
    python_program("cuda-core", "core_resources.py", accesses=20),
    python_program(
        "cuda-bindings",
        "bindings_vmm.py",
        accesses=20,
        outside=("virtual memory: one object at two addresses, data moves with it",),
    ),
    torch_program(
        "torch-native",
        "allocator.py",
        # A request that fails on purpose is made again by the library before torch hears of it; the
        # failure that is still planned then meets what comes next.
        outside=(
            "an injected failure of the driver is retried; a second one is an OutOfMemoryError",
            "a memory fraction is a limit",
            "history and snapshot name each allocation and each free",
        ),
    ),
    torch_program("torch-expandable", "allocator.py", "expandable", "expandable_segments:True"),
    torch_program("torch-async", "allocator.py", "async", "backend:cudaMallocAsync"),
    torch_program(
        "torch-pluggable",
        "plugged.py",
        "plain",
        compile=(shared_library("libplain_torch.so", "pluggable.c", *CUDART),),
        parts=("headers",),
        outside=(
            "what is freed is served again: how many driver calls that takes",
            "at the end everything was given back",
        ),
    ),
    torch_program(
        "torch-on-cuddy",
        "plugged.py",
        "cuddy",
        crates=("cuddy",),
        own=True,
        compile=(("ln", "-sf", "{target}/libcuddy.so", "{scratch}/libcuddy.so.0"), shared_library("libcuddy_torch.so", "cuddy.c", *CUDDY)),
    ),
    torch_program("torch-cuddy-enabled", "enabled.py", crates=("cuddy",), own=True),
    torch_program("torch-cuddy-pool", "pooled.py", crates=("cuddy",)),
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
    torch_program("torch-graphs", "captured.py"),
    torch_program("torch-graphs-expandable", "captured.py", "expandable", "expandable_segments:True"),
    torch_program("torch-graphs-async", "captured.py", "async", "backend:cudaMallocAsync"),
    torch_program("torch-graphs-cuddy", "captured.py", "cuddy", crates=("cuddy",), own=True),
    torch_program(
        "torch-graphs-missing-wait",
        "missing_wait_graph.py",
        finds=(
            r"two uses of the same bytes that nothing orders",
            r"first: +read by cuMemcpy\w*Async\([^\n]*node \d+ of a graph's launch 1\)[^\n]* stream \d+",
            r"second: +write by cuMemcpy\w*Async\([^\n]* stream \d+",
            r"bytes 0x0\.\.0x400000 of [^\n]*cuMemAlloc\(\d+\)",
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
    peer_program("cub-random", "CUB", "random.cpp", accesses=1000),
    peer_program("cub-merge", "CUB", "merge.cpp", accesses=5),
    peer_program("rmm-random", "RMM", "random.cpp", accesses=1000),
    peer_program(
        "rmm-merge",
        "RMM",
        "merge.cpp",
        accesses=4,
        finds=(
            r"two uses of the same bytes that nothing orders",
            r"first: +write by cuMemsetD8Async\([^\n]*, 0x22, 4194304\)[^\n]* stream \d+",
            r"second: +write by cuMemsetD8Async\([^\n]*, 0xcc, 2097152\)[^\n]* stream \d+",
            r"bytes 0x600000\.\.0x800000 of [^\n]*cuMemAlloc\(8388608\)",
        ),
    ),
)
