"""_abi.py says what cuddy.h says: every function, type, struct and constant."""

import ctypes
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import cuddy
from cuddy import _abi

HEADER = pathlib.Path(__file__).parents[2] / "include" / "cuddy.h"
TEXT = re.sub(r"//[^\n]*", "", HEADER.read_text())

# Not bound: twins of the same signature, which C code reaches by a macro.
LEFT_OUT = re.compile(r"_ptsz$")
TYPES = {
    "int": ctypes.c_int,
    "cuddy_status": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "cuddy_stream": ctypes.c_void_p,
    "cuddy_pool": ctypes.c_uint64,
    "cuddy_graph": ctypes.c_uint64,
    "cuddy_observer": ctypes.c_uint64,
    "cuddy_callback": _abi.CALLBACK,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "uint32_t": ctypes.c_uint32,
    "const char *": ctypes.c_char_p,
    "char *": ctypes.POINTER(ctypes.c_char),
    "void *": ctypes.c_void_p,
    "const void *": ctypes.c_void_p,
    "void **": ctypes.POINTER(ctypes.c_void_p),
    "size_t *": ctypes.POINTER(ctypes.c_size_t),
    "cuddy_observer *": ctypes.POINTER(ctypes.c_uint64),
    "cuddy_pool *": ctypes.POINTER(ctypes.c_uint64),
    "cuddy_graph *": ctypes.POINTER(ctypes.c_uint64),
    **{f"{c}{s}{name} *": ctypes.POINTER(struct) for name, struct in _abi.STRUCTS.items() for c in ("", "const ") for s in ("", "struct ")},
}


def declared():
    """The header's functions: name, result, arguments, as C types."""
    for result, name, arguments in re.findall(r"^((?:const )?\w+ \*?)(cuddy_\w+)\(([^)]*)\);", TEXT, re.M):
        types = [] if arguments.strip() == "void" else [parameter(word) for word in arguments.split(",")]
        yield name, result.strip(), types


def parameter(text):
    """Its type, without its name."""
    return re.sub(r"\s+", " ", re.sub(r"\w+$", "", text.strip())).strip().replace("* *", "**")


def bless():
    """Writes the counters of the header into _abi.py: CUDDY_BLESS=1, as for what Rust's tests compare."""
    path = pathlib.Path(_abi.__file__)
    body = re.search(r"typedef struct cuddy_stats \{(.*?)\}", TEXT, re.S).group(1)
    names = "".join(f'            "{name}",\n' for name in re.findall(r"(\w+);", body))
    old = path.read_text()
    new = re.sub(r"(class Stats\(.*?for name in \(\n)(.*?)( *\)\n)", rf"\1{names}\3", old, count=1, flags=re.S)
    if new != old:
        path.write_text(new)
        raise SystemExit("_abi.py was written anew: run the tests again")


class Abi(unittest.TestCase):
    def test_every_function_is_there_with_its_types(self):
        found = {name: (result, types) for name, result, types in declared() if not LEFT_OUT.search(name)}
        self.assertGreater(len(found), 35)
        self.assertEqual(sorted(found), sorted(_abi.SIGNATURES))
        for name, (result, types) in found.items():
            with self.subTest(name):
                self.assertEqual((TYPES[result], tuple(TYPES[each] for each in types)), _abi.SIGNATURES[name])

    def test_every_struct_is_laid_out_as_a_c_compiler_does_it(self):
        lines, expected = [], []
        for name, struct in _abi.STRUCTS.items():
            lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
            expected.append(f"{name} {ctypes.sizeof(struct)}")
            for field, kind in struct._fields_:
                lines.append(
                    f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));'
                )
                expected.append(f"{name}.{field} {getattr(struct, field).offset} {ctypes.sizeof(kind)}")
        source = f"#include <cuddy.h>\n#include <stdio.h>\nint main(void) {{ {' '.join(lines)} return 0; }}\n"
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "layout.c").write_text(source)
            subprocess.run(
                ["cc", f"-I{HEADER.parent}", str(place / "layout.c"), "-o", str(place / "layout")], check=True
            )
            printed = subprocess.run([str(place / "layout")], capture_output=True, text=True, check=True).stdout
        self.assertEqual(printed.split("\n")[:-1], expected)

    def test_every_field_of_the_header_is_there(self):
        for name, struct in _abi.STRUCTS.items():
            body = re.search(r"typedef struct %s \{(.*?)\}" % name, TEXT, re.S).group(1)
            fields = re.findall(r"(\w+);", body)
            self.assertEqual(fields, [field for field, _ in struct._fields_], name)
        found = re.findall(r"typedef struct (cuddy_\w+) \{", TEXT)
        structs = {name for name in found if not LEFT_OUT.search(name)}
        self.assertEqual(structs, set(_abi.STRUCTS))

    def test_statuses_and_constants(self):
        codes = {name: int(code) for name, code in re.findall(r"CUDDY_(?:ERROR_)?(\w+) = (\d+),", TEXT)}
        self.assertEqual(codes, {status.name: status.value for status in cuddy.Status})
        for status in cuddy.Status:
            name = _abi.lib.cuddy_status_name(status).decode()
            self.assertEqual(name.replace("ERROR_", ""), f"CUDDY_{status.name}")
        defines = dict(re.findall(r"#define CUDDY_(\w+) (\(?[^\n]+)", TEXT))
        for name, value in vars(_abi).items():
            if name in defines:
                number = re.search(r"-?\d+", defines[name].replace("(cuddy_stream)", ""))
                number = int(number.group()) if number else (1 << 64) - 1  # SIZE_MAX
                self.assertIn(value, (number, number & ((1 << 64) - 1)), name)
        self.assertTrue({"CURRENT_DEVICE", "STREAM_ANY", "POOL_DEFAULT", "NO_LIMIT"} <= defines.keys())
        self.assertEqual(cuddy.__version__, defines["VERSION_STRING"].strip('"'))

    def test_only_one_file_touches_ctypes(self):
        package = pathlib.Path(_abi.__file__).parent
        touching = [p.name for p in package.rglob("*.py") if re.search(r"\bctypes\b", p.read_text())]
        self.assertEqual(touching, ["_abi.py"])


if os.environ.get("CUDDY_BLESS") == "1":
    bless()

if __name__ == "__main__":
    unittest.main()
