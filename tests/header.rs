//! cuddy.h, the shared library, and the Rust source agree; and the interface only grows.

mod common;
#[path = "common/header.rs"]
mod reader;

use std::collections::BTreeSet;
use std::env;
use std::ffi::{CStr, c_int};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Folder, library, output, stranger};
use reader::Header;

const HEADER: &str = "include/cuddy.h";
/// What build.rs made of the source in this build.
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/cuddy.h"));

const STRICT: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror"];

fn text() -> String {
    fs::read_to_string(HEADER).expect("build.rs wrote it")
}

/// The names that the header puts in place of others, for per-thread default streams.
fn is_renaming(name: &str, value: &str) -> bool {
    name.starts_with("cuddy_") && value == format!("{name}_ptsz")
}

#[test]
fn the_header_is_what_the_source_says() {
    assert!(text() == GENERATED, "{HEADER} was edited by hand, or could not be written");
    // Where every change is meant to be committed, the committed header must be this one.
    if env::var_os("CI").is_some() && Path::new(".git").exists() {
        let committed = output(Command::new("git").args(["show", &format!("HEAD:{HEADER}")]));
        assert!(committed == GENERATED, "commit {HEADER}: it changed with the source");
    }
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let declared: BTreeSet<_> = Header::read(&text()).functions.into_keys().collect();
    assert!(declared.len() > 20, "{declared:?}");
    let symbols =
        output(Command::new("nm").args(["-D", "--defined-only"]).arg(library("libcuddy.so")));
    let exported: BTreeSet<_> = symbols
        .lines()
        .filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned()))
        .collect();
    assert_eq!(declared, exported);
}

#[test]
fn every_name_is_ours() {
    let header = Header::read(&text());
    for (name, value) in &header.macros {
        assert!(name.starts_with("CUDDY_") || is_renaming(name, value), "#define {name} {value}");
    }
    for name in header.functions.keys().chain(header.structs.keys()) {
        assert!(name.starts_with("cuddy_"), "{name}");
    }
    for (name, _) in &header.constants {
        assert!(name.starts_with("CUDDY_"), "{name}");
    }
}

#[test]
fn every_function_with_a_stream_has_a_per_thread_form() {
    let header = Header::read(&text());
    for (name, function) in &header.functions {
        let takes_stream = function.declaration.contains("cuddy_stream stream")
            || function.declaration.contains("cuddy_request *");
        if takes_stream && !name.ends_with("_ptsz") {
            assert!(
                header.macros.iter().any(|(from, to)| from == name && is_renaming(from, to)),
                "{name} has no #define in src/abi/closing.h"
            );
            let other = &header.functions[&format!("{name}_ptsz")];
            let renamed = other.declaration.replace("_ptsz(", "(");
            assert_eq!(renamed, function.declaration);
        }
    }
}

#[test]
fn every_function_says_what_a_reader_needs() {
    for (name, function) in Header::read(&text()).functions {
        let comment = &function.comment;
        if let Some(plain) = name.strip_suffix("_ptsz") {
            assert!(comment.starts_with(&format!("{plain}(),")), "{name}: {comment}");
            continue;
        }
        let has = |words: &[&str]| words.iter().any(|word| comment.contains(word));
        assert!(has(&["Thread-safe", "threads:", "threads and"]), "{name}: threads? {comment}");
        assert!(
            has(&["Errors", "errors", "Never fails", "Returns 0 if", "result,"]),
            "{name}: errors?"
        );
        for parameter in function.parameters {
            let told = comment.lines().any(|line| {
                line.split_once(':')
                    .is_some_and(|(names, _)| names.split(',').any(|name| name.trim() == parameter))
            });
            assert!(told, "{name}: parameter `{parameter}` is not explained:\n{comment}");
        }
        for line in comment.lines() {
            assert!(line.len() <= 97, "{name}: too long: {line}");
        }
    }
}

#[test]
fn the_header_stands_alone_in_every_language() {
    let folder = Folder::new();
    let mut compilers = vec!["cc"];
    match common::is_installed("clang") {
        true => compilers.push("clang"),
        false => common::skipped("cuddy.h under clang", "clang is not installed"),
    }
    // Twice, and next to what cuda.h and cuda_runtime.h declare: the types must be the same.
    let source = "#include <cuddy.h>\n\
                  typedef struct CUstream_st *CUstream;\n\
                  typedef struct CUstream_st *cudaStream_t;\n\
                  #include <cuddy.h>\n\
                  int use(CUstream driver, cudaStream_t runtime);\n\
                  int use(CUstream driver, cudaStream_t runtime) {\n\
                  void *p = NULL;\n\
                  return cuddy_malloc(&p, 1, 0, driver) + cuddy_record_stream(p, runtime)\n\
                  + cuddy_stream_open(CUDDY_CURRENT_DEVICE, CUDDY_STREAM_PER_THREAD);\n}\n";
    let mut compiled = 0;
    for (language, standards) in
        [("c", &["c99", "c11", "c17"][..]), ("c++", &["c++11", "c++17", "c++20"][..])]
    {
        let file = folder.file(&format!("alone.{language}"));
        fs::write(&file, source).expect("the folder is ours");
        for compiler in &compilers {
            for standard in standards {
                for define in ["-DNOTHING", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM"] {
                    let mut command = Command::new(compiler);
                    command.args(["-fsyntax-only", "-x", language, "-Iinclude", define]);
                    command.args(STRICT).arg(format!("-std={standard}")).arg(&file);
                    assert_eq!(output(&mut command), "");
                    compiled += 1;
                }
            }
        }
    }
    assert!(compiled >= 12);
}

/// Names, declarations, sizes, offsets and numbers, one a line, as a C compiler sees them.
fn interface(header: &Header) -> String {
    let mut program = String::from("#include <stdio.h>\n#include <cuddy.h>\nint main(void) {\n");
    for (name, fields) in &header.structs {
        // Writing to a String cannot fail.
        let _ = writeln!(program, "printf(\"struct {name} %zu\\n\", sizeof({name}));");
        for field in fields {
            let _ = writeln!(
                program,
                "printf(\"struct {name} {field} %zu %zu\\n\", offsetof({name}, {field}), \
                 sizeof((({name} *)0)->{field}));"
            );
        }
    }
    for (name, _) in &header.constants {
        let _ = writeln!(program, "printf(\"enum {name} %d\\n\", {name});");
    }
    program.push_str("return 0; }\n");
    let folder = Folder::new();
    let (source, binary) = (folder.file("interface.c"), folder.file("interface"));
    fs::write(&source, program).expect("the folder is ours");
    output(Command::new("cc").arg("-Iinclude").args([&source]).arg("-o").arg(&binary));
    let mut lines = output(&mut Command::new(&binary));
    for function in header.functions.values() {
        let _ = writeln!(lines, "function {}", function.declaration);
    }
    for (name, value) in &header.macros {
        // A version's numbers are meant to change.
        if !name.starts_with("CUDDY_VERSION") && name != "CUDDY_H" {
            let _ = writeln!(lines, "define {name} {value}");
        }
    }
    lines
}

/// Lines may be added to tests/abi.golden. A line that goes or changes breaks programs that are
/// compiled already: it needs a new major version.
#[test]
fn the_interface_only_grows() {
    common::compare("tests/abi.golden", &interface(&Header::read(&text())));
}

#[test]
fn c_and_rust_see_the_same_structs() {
    use cuddy::abi::memory::{cuddy_block, cuddy_request};
    use cuddy::abi::observers::cuddy_event;
    use cuddy::abi::pools::cuddy_pool_options;
    use cuddy::stats::{cuddy_host_stats, cuddy_stats};
    let lines = interface(&Header::read(&text()));
    let mut checked = 0;
    macro_rules! same {
        ($name:ident: $($field:ident)*) => {
            let whole = format!("struct {} {}\n", stringify!($name), size_of::<$name>());
            assert!(lines.contains(&whole), "{whole}");
            $(
                let offset = std::mem::offset_of!($name, $field);
                let field = format!("struct {} {} {offset} ", stringify!($name), stringify!($field));
                assert!(lines.contains(&field), "{field}");
                checked += 1;
            )*
        };
    }
    same!(cuddy_request: struct_size bytes alignment stream device flags pool wait_ms);
    same!(cuddy_pool_options: struct_size limit device flags);
    same!(cuddy_block: struct_size address bytes requested offset stream device reserved);
    same!(cuddy_stats: struct_size requested requested_peak requested_total allocated
        allocated_peak allocated_total active active_peak reserved reserved_peak reserved_total
        cached unmapped limit largest_free quarantined live_block_count live_block_peak_count
        malloc_count free_count hit_count miss_count harvest_count wait_count retry_count
        out_of_memory_count limbo_block_count driver_call_count crossing_count stream_wait_count
        rung_own_count rung_passed_count rung_growth_count rung_stream_wait_count rung_fresh_count
        rung_harvest_count rung_host_wait_count rung_callback_count);
    same!(cuddy_host_stats: struct_size requested requested_peak requested_total allocated
        allocated_peak allocated_total active active_peak reserved reserved_peak reserved_total cached
        quarantined live_block_count live_block_peak_count limbo_block_count segment_count malloc_count
        free_count hit_count miss_count release_count wait_count retry_count out_of_memory_count
        callback_count);
    same!(cuddy_event: struct_size kind device bytes allocated reserved limit stream);
    let fields: usize = Header::read(&text()).structs.values().map(Vec::len).sum();
    assert_eq!(checked, fields, "a struct or a field is missing from the list above");
}

#[test]
fn every_status_has_its_name_and_its_own_number() {
    let name = |number: c_int| {
        // SAFETY: cuddy_status_name() returns a constant text that ends with 0.
        unsafe { CStr::from_ptr(cuddy::abi::version::cuddy_status_name(number)) }.to_str()
    };
    let constants = Header::read(&text()).constants;
    assert!(constants.len() >= 18);
    let mut numbers = BTreeSet::new();
    for (constant, number) in constants {
        assert_eq!(name(c_int::try_from(number).expect("an int")), Ok(constant.as_str()));
        assert!(numbers.insert(number), "{number} twice");
    }
    for number in [-1, c_int::MAX, c_int::MIN, 1000] {
        assert_eq!(name(number), Ok("unknown status"));
    }
}

fn dynamic(library: &Path, tag: &str) -> Vec<String> {
    let text = output(Command::new("readelf").arg("-d").arg(library));
    let lines = text.lines().filter(|line| line.contains(&format!("({tag})")));
    lines
        .filter_map(|line| Some(line.split_once('[')?.1.trim_end_matches(']').to_owned()))
        .collect()
}

#[test]
fn the_library_has_its_soname_and_needs_the_c_library_alone() {
    let ours = library("libcuddy.so");
    assert_eq!(dynamic(&ours, "SONAME"), ["libcuddy.so.0"], "build inside the repository");
    for needed in dynamic(&ours, "NEEDED") {
        let base = ["libc.so.", "libgcc_s.so.", "libdl.so.", "libpthread.so.", "ld-linux"];
        assert!(base.iter().any(|name| needed.starts_with(name)), "needs {needed}");
    }
    let text = output(Command::new("readelf").arg("-d").arg(&ours));
    assert!(text.contains("NODELETE"), "threads and fork handlers point into it: {text}");
    let other = library("libsimcuda.so");
    assert!(!dynamic(&other, "SONAME").iter().any(|name| name.contains("cuddy")));
}

fn build_script(soname: Option<&str>, manifest: &Path, out: &Path) -> String {
    // OUT_DIR is target/PROFILE/build/cuddy-HASH/out; the script is in another cuddy-HASH of builds.
    let builds = Path::new(env!("OUT_DIR")).ancestors().nth(2).expect("cargo's layout");
    let scripts = fs::read_dir(builds).expect("the build folder").filter_map(|entry| {
        let folder = entry.ok()?.path();
        let hash = folder.file_name()?.to_str()?.strip_prefix("cuddy-")?;
        let ours = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let script = folder.join("build-script-build");
        (ours && script.exists()).then_some(script)
    });
    let newest = scripts.max_by_key(|script| {
        script.metadata().and_then(|data| data.modified()).expect("a file has a time")
    });
    let mut command = Command::new(newest.expect("the build script was built"));
    command.env_remove("CUDDY_SONAME").env("CARGO_MANIFEST_DIR", manifest).env("OUT_DIR", out);
    command.env("CARGO_CFG_TARGET_OS", "linux").envs(soname.map(|value| ("CUDDY_SONAME", value)));
    output(&mut command)
}

/// Cargo hands link arguments of a cdylib on to the libraries that depend on the crate.
#[test]
fn the_soname_is_given_inside_this_repository_only() {
    let (root, out) = (Path::new(env!("CARGO_MANIFEST_DIR")), Folder::new());
    let said = build_script(None, root, out.path());
    assert!(
        !said.contains("link-arg") && said.contains("rerun-if-env-changed=CUDDY_SONAME"),
        "{said}"
    );
    let said = build_script(Some("1"), root, out.path());
    assert!(said.contains("rustc-cdylib-link-arg=-Wl,-soname,libcuddy.so.0\n"), "{said}");
    assert_eq!(fs::read_to_string(out.file("cuddy.h")).expect("it was written"), GENERATED);
}

/// As when the crate is unpacked where nobody may write.
#[test]
fn a_source_that_cannot_be_written_builds_with_the_header_it_has() {
    let (source, out) = (Folder::new(), Folder::new());
    let copy = |from: &str| {
        let to = source.file(from);
        fs::create_dir_all(to.parent().expect("a folder")).expect("the folder is ours");
        fs::copy(from, to).expect("a copy");
    };
    ["cbindgen.toml", "src/error.rs", "src/stats.rs"].iter().for_each(|file| copy(file));
    for entry in fs::read_dir("src/abi").expect("src can be read") {
        copy(entry.expect("an entry").path().to_str().expect("a name in UTF-8"));
    }
    // A file where the folder should be: even root cannot write below it.
    fs::write(source.file("include"), "").expect("the folder is ours");
    let said = build_script(None, source.path(), out.path());
    assert!(said.contains("cargo::warning=") && said.contains("out of date"), "{said}");
    assert_eq!(fs::read_to_string(out.file("cuddy.h")).expect("it was written"), GENERATED);
    fs::remove_file(source.file("include")).expect("the folder is ours");
    let said = build_script(None, source.path(), out.path());
    assert!(!said.contains("warning"), "{said}");
    assert_eq!(fs::read_to_string(source.file(HEADER)).expect("it was written"), GENERATED);
}

/// The whole of it, with cargo: a stranger's library over this crate. Builds it and what it needs anew.
#[test]
fn a_library_that_depends_on_the_crate_keeps_its_own_name() {
    let built = stranger("library", "pub use cuddy::abi;\n");
    let library = built.join("liblibrary.so");
    assert_eq!(dynamic(&library, "SONAME"), [] as [String; 0]);
    let symbols = output(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    assert!(symbols.contains(" T cuddy_malloc\n"), "the C functions come with the crate");
}

/// What would be published builds from its own files alone, and is only the library.
#[test]
fn the_crate_can_be_packaged() {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["package", "--package", "cuddy", "--offline", "--allow-dirty", "--quiet"]);
    // Where the stranger's crate has what is needed built already.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger");
    output(cargo.env_remove("CUDDY_SONAME").env("CARGO_TARGET_DIR", &target));
    let package = target.join(format!("package/cuddy-{}", env!("CARGO_PKG_VERSION")));
    for (name, there) in [("src/lib.rs", true), ("LICENSE-MIT", true), ("tests", false)] {
        assert_eq!(package.join(name).exists(), there, "{name}");
    }
    let archive = target.join(format!("package/cuddy-{}.crate", env!("CARGO_PKG_VERSION")));
    let bytes = fs::metadata(&archive).expect("the archive").len();
    assert!(bytes < 2 << 20, "{bytes} bytes");
}
