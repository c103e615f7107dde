"""Builds libcuddy.so and the command, and puts them into the wheel.

CUDDY_BUILT names a folder with a finished build (cargo's target/release) to take instead.

The wheel says which C library it needs (PEP 600: `manylinux_2_34_x86_64` is glibc 2.34 or newer), by what its
files ask for. What is built on an older system runs on more of them.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
# Without these there is no wheel; what else a build left comes along.
NEEDED = ("libcuddy.so", "cuddy")
SIMULATOR = ("libsimcuda.so", "cudart/libcudart.so.12", "cudart/libcudart.so.13")


def platform_tag(files: list[pathlib.Path]) -> str:
    """Where wheels with these files run: on Linux with glibc, the oldest glibc that has all they ask for.

    Besides glibc they need libgcc_s, which every such system has (a test holds them to it).
    """
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    asked = [int(minor) for path in files for minor in re.findall(rb"\0GLIBC_2\.(\d+)", path.read_bytes())]
    if not platform.startswith("linux_") or not asked:
        return platform
    # PEP 600 begins with glibc 2.5; the first on x86-64 that anybody builds for is 2.17.
    return f"manylinux_2_{max(17, *asked)}_{platform.removeprefix('linux_')}"


class CustomBuildHook(BuildHookInterface[Any]):
    """The wheel's own part: a library for this platform, for any Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is made."""
        if self.target_name != "wheel":
            raise RuntimeError("only a wheel can be built: the library's source is outside of this folder")
        built = self._built()
        package, data = build_data["force_include"], build_data["shared_data"]
        places = [
            ("libcuddy.so", package, "cuddy/lib/libcuddy.so.0"),
            # For the environment's bin; and where the command looks for them, what it preloads.
            ("cuddy", build_data["shared_scripts"], "cuddy"),
            *((name, data, f"lib/cuddy/{name}") for name in ("libcuddy_preload.so", *SIMULATOR)),
        ]
        files = []
        for name, place, goes_to in places:
            if name in NEEDED or (built / name).exists():
                files.append(self._stripped(built / name))
                place[str(files[-1])] = goes_to
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            package[str(REPOSITORY / licence)] = f"cuddy/{licence}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(files)}"

    def _built(self) -> pathlib.Path:
        named = os.environ.get("CUDDY_BUILT")
        if named:
            return pathlib.Path(named).resolve()
        if not (REPOSITORY / "Cargo.toml").exists():
            raise RuntimeError(f"{REPOSITORY} is not Cuddy's repository: install from a clone of it")
        if shutil.which("cargo") is None:
            raise RuntimeError("cargo is not here: install Rust, or name a finished build by CUDDY_BUILT")
        # The default members: the library, the command, the simulator, the preload library.
        subprocess.run(["cargo", "build", "--release"], cwd=REPOSITORY, check=True)
        target = os.environ.get("CARGO_TARGET_DIR", "target")
        return (REPOSITORY / target / "release").resolve()

    def _stripped(self, path: pathlib.Path) -> pathlib.Path:
        """A copy without debug information, if there is a tool for it."""
        folder = pathlib.Path(self.directory) / "stripped"
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / path.name
        shutil.copy2(path, copy)
        copy.chmod(0o755)
        if shutil.which("strip"):
            subprocess.run(["strip", "--strip-debug", str(copy)], check=False, stderr=subprocess.DEVNULL)
        return copy
