"""Builds libcuddy.so and the command, and puts them into the wheel.

CUDDY_BUILT names a folder with a finished build (cargo's target/release) to take instead.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent


class CustomBuildHook(BuildHookInterface[Any]):
    """The wheel's own part: a library for this platform, for any Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is made."""
        if self.target_name != "wheel":
            raise RuntimeError("only a wheel can be built: the library's source is outside of this folder")
        built = self._built()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        build_data["force_include"][str(self._stripped(built / "libcuddy.so"))] = "cuddy/lib/libcuddy.so.0"
        preload = built / "libcuddy_preload.so"
        if preload.exists():
            build_data["force_include"][str(self._stripped(preload))] = "cuddy/lib/libcuddy_preload.so"
        # `cuddy` for the environment's bin, and the simulated driver where it looks for it.
        build_data["shared_scripts"][str(self._stripped(built / "cuddy"))] = "cuddy"
        for name in ("libsimcuda.so", "cudart/libcudart.so.12", "cudart/libcudart.so.13"):
            if (built / name).exists():
                build_data["shared_data"][str(self._stripped(built / name))] = f"lib/cuddy/{name}"

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
