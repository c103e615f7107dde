#!/usr/bin/env python3
"""Writes names.tsv: what the CUDA 12 and CUDA 13 runtimes export, and which function is meant.

One line is one exported name, and for each of the two runtimes the function of this
crate that goes by it there ("-": that runtime has no such name). The names are those
of the libraries' symbol tables. A function of CUDA 12 that has a later form
(cudaX_v2, cudaX_v3) lost its first form in CUDA 13, where plain cudaX is the latest:

    function in 12 = the name                 (each form has its own)
    function in 13 = the name's latest form in 12, if 13 has no such suffixed name

and a few differ between the two without a suffix to show it: they are listed below.
"""

import pathlib
import re
import subprocess
import sys

HOW_TO = """usage: make_names.py libcudart.so.12 libcudart.so.13
The libraries are in the runtime's wheels on PyPI:
    pip download --no-deps nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-runtime==13.0.96
"""
# Functions whose parameters, structures or answers differ: the 12 or the 13 stands for the runtime.
OF_EACH = {
    "cudaRuntimeGetVersion",
    "cudaPointerGetAttributes",
    "cudaGetDriverEntryPoint",
    "cudaGetDriverEntryPoint_ptsz",
    "cudaMemcpyBatchAsync",
    "cudaMemcpyBatchAsync_ptsz",
    "cudaMemcpy3DBatchAsync",
    "cudaMemcpy3DBatchAsync_ptsz",
}
# The structure shrank again in 13, so that neither form of 12 is its.
SPECIAL = {("cudaGetDeviceProperties", 13): "cudaGetDeviceProperties_13"}


def names_of(library):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    ).stdout
    names = {line.split()[-1].split("@")[0] for line in listed.splitlines() if " T " in line}
    if not names:
        sys.exit(f"make_names.py: {library} exports nothing")
    return names


def latest(name, names):
    base, lane = re.fullmatch(r"(\w+?)(_ptds|_ptsz)?", name).groups()
    forms = [other for other in names if re.fullmatch(rf"{base}_v\d{lane or ''}", other)]
    return max(forms, default=name)


def function(name, major, twelve):
    if (name, major) in SPECIAL:
        return SPECIAL[name, major]
    if name in OF_EACH:
        return f"{name}_{major}"
    return name if major == 12 else latest(name, twelve)


def main():
    if len(sys.argv) != 3:
        sys.exit(HOW_TO)
    of = {12: names_of(sys.argv[1]), 13: names_of(sys.argv[2])}
    lines = ["symbol\tcuda12\tcuda13\n"]
    for name in sorted(of[12] | of[13]):
        cells = [function(name, n, of[12]) if name in of[n] else "-" for n in (12, 13)]
        lines.append("\t".join([name, *cells]) + "\n")
    table = pathlib.Path(__file__).with_name("names.tsv")
    table.write_text("".join(lines), encoding="ascii")
    print(f"{table}: {len(lines) - 1} names")


if __name__ == "__main__":
    main()
