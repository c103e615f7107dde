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


CLIENTS = (
    c_program("c-driver", "driver.c", accesses=1000),
    c_program("c-driver-per-thread", "driver.c", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", accesses=1000),
    Client("cudarc", ("{target}/client-cudarc",), crates=("client-cudarc",), accesses=50),
    python_program("numba-cuda", "numba_arrays.py", accesses=50),
    python_program("numba-cuda-emm", "numba_manager.py", accesses=5),
    python_program("cuda-core", "core_resources.py", accesses=20),
    python_program("cuda-bindings", "bindings_vmm.py", accesses=20),
)
