#!/usr/bin/env python3
"""Writes names.tsv: what a CUDA driver exports, and what cuGetProcAddress picks.

One line is one fact: exported symbol, the base name that is asked for, the CUDA
version from which the symbol is the answer, and the stream flag ("default", or
"per-thread" for the variants whose stream 0 is the calling thread's own).

    asked(base, version, flag) = the line of that base and flag with the
                                 greatest version that is not above the asked one

Symbols come from the declarations and the renaming macros of the driver headers,
versions from the function-pointer types of their ...Typedefs.h. Within one base
and flag the two lists rise together (cuX, cuX_v2, ... against 2000, 3020, ...);
where their lengths differ the script stops.
"""

import argparse
import pathlib
import re
import sys

HEADERS = ("cuda", "cudaGL", "cudaEGL", "cudaVDPAU", "cudaProfiler")
HOW_TO = """
The headers are in the runtime's wheels on PyPI, one of CUDA 12 and one of CUDA 13:

    pip download --no-deps nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-runtime==13.0.96
    for wheel in *.whl; do python3 -m zipfile -e "$wheel" unpacked; done
    make_names.py unpacked/nvidia/cuda_runtime/include unpacked/nvidia/cu13/include

Give the folders of every CUDA that the driver answers for: the union is written.
"""
DEFAULT, PER_THREAD = "default", "per-thread"


def fail(why):
    sys.exit(f"make_names.py: {why}")


def code_of(path):
    """The text without comments and without what only Windows compiles."""
    text = path.read_text(encoding="utf-8", errors="replace")
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    kept, stack = [], []
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", line)
        if not directive:
            if all(stack):
                kept.append(line)
            continue
        word, condition = directive.groups()
        if word in ("if", "ifdef"):
            stack.append(not re.fullmatch(r"\s*(defined)?\s*\(?\s*_WIN32\s*\)?\s*", condition))
        elif word == "ifndef":
            stack.append(True)
        elif not stack:
            fail(f"{path}: #{word} without #if")
        elif word == "endif":
            stack.pop()
        else:
            stack[-1] = True
    return "\n".join(kept)


def symbols_of(text):
    """Every symbol that a header declares or renames to."""
    found = set(re.findall(r"\bCUresult\s+CUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    for target in re.findall(r"#\s*define\s+cu[A-Z]\w*[ \t]+(\S+)", text):
        macro = re.fullmatch(r"__CUDA_API_(PTDS|PTSZ)\((cu\w+)\)", target)
        if macro:
            found |= {macro[2], f"{macro[2]}_{macro[1].lower()}"}
        elif not target.endswith(("_ptds", "_ptsz")):  # those are inline functions
            found.add(target)
    return found


def versions_of(text):
    """Every (base, flag, version) that has a function-pointer type."""
    versionless = dict(re.findall(r"#\s*define\s+PFN_(cu\w+)\s+PFN_\1_v(\d{4,5})\s", text))
    for name in re.findall(r"\(\s*CUDAAPI\s*\*\s*PFN_(cu\w+)\s*\)", text):
        parts = re.fullmatch(r"(\w+?)(?:_v(\d{4,5}))?(_ptds|_ptsz)?", name)
        version = parts[2] or versionless.get(parts[1])
        if version is None:
            fail(f"PFN_{name} says no version")
        yield parts[1], PER_THREAD if parts[3] else DEFAULT, int(version)


def base_and_flag(symbol):
    parts = re.fullmatch(r"(\w+?)(?:_v\d)?(_ptds|_ptsz)?", symbol)
    return parts[1], PER_THREAD if parts[2] else DEFAULT


def read(folders):
    symbols, versions = {}, {}
    for folder in folders:
        if not (folder / "cuda.h").is_file() or not (folder / "cudaTypedefs.h").is_file():
            fail(f"no cuda.h and cudaTypedefs.h in {folder}; see --help for where to get them")
        for header in HEADERS:
            plain, types = folder / f"{header}.h", folder / f"{header}Typedefs.h"
            if plain.is_file():
                for symbol in symbols_of(code_of(plain)):
                    symbols.setdefault(base_and_flag(symbol), set()).add(symbol)
            if types.is_file():
                for base, flag, version in versions_of(code_of(types)):
                    versions.setdefault((base, flag), set()).add(version)
    # A header that the wheels leave out (cudaProfiler.h): a type alone is an unsuffixed symbol.
    for base, flag in versions:
        if (base, DEFAULT) not in symbols:
            symbols[base, DEFAULT] = {base}
    return symbols, versions


def rows(symbols, versions):
    for key in sorted(symbols.keys() | versions.keys()):
        names, since = sorted(symbols.get(key, ())), sorted(versions.get(key, ()))
        if len(names) != len(since):
            fail(f"{key[0]} ({key[1]}): symbols {names} against versions {since}")
        for symbol, version in zip(names, since):
            yield f"{symbol}\t{key[0]}\t{version}\t{key[1]}\n"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=HOW_TO, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", nargs="+", type=pathlib.Path, help="folders with cuda.h and cudaTypedefs.h"
    )
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path(__file__).with_name("names.tsv"),
        help="where the table goes (default: names.tsv beside this script)",
    )
    arguments = parser.parse_args()
    table = list(rows(*read(arguments.folders)))
    arguments.output.write_text("symbol\tbase\tversion\tflag\n" + "".join(table), encoding="ascii")
    functions = {row.split("\t")[1] for row in table}
    print(f"{arguments.output}: {len(table)} symbols of {len(functions)} functions")


if __name__ == "__main__":
    main()
