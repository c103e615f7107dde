//! `cuddy doctor -- ./app`: would the preload library serve this program, and if not, why.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::elf::Elf;
use crate::cli::Outcome;
use crate::outln;

/// What is found out about a program.
#[derive(Debug, Default)]
struct Findings {
    /// What is so, and harmless.
    notes: Vec<String>,
    /// Why the program would not be served.
    obstacles: Vec<String>,
}

/// Prints what is found; healthy is a program that would be served.
pub fn run(word: &OsStr) -> Result<Outcome, String> {
    let program =
        find(word).ok_or_else(|| format!("there is no program {}", Path::new(word).display()))?;
    let mut findings = Findings::default();
    match super::library() {
        Ok(file) => findings.notes.push(format!("the preload library is {}", file.display())),
        Err(why) => findings.obstacles.push(why),
    }
    look(&program, &mut findings, 0);
    neighbours(&mut findings);
    outln!("{}", program.display());
    findings.notes.iter().for_each(|note| outln!("  {note}"));
    if findings.obstacles.is_empty() {
        outln!("\n`cuddy run` would serve it.");
        return Ok(Outcome::Well);
    }
    outln!("\n`cuddy run` would not serve it:");
    findings.obstacles.iter().for_each(|obstacle| outln!("  {obstacle}"));
    Ok(Outcome::Wrong)
}

/// Why nothing can be preloaded into a program; nothing if it can.
pub fn obstacles(word: &OsStr) -> Vec<String> {
    let mut findings = Findings::default();
    if let Some(program) = find(word) {
        look(&program, &mut findings, 0);
    }
    findings.obstacles
}

/// The file that a word of the command line names.
fn find(word: &OsStr) -> Option<PathBuf> {
    let file = Path::new(word);
    if file.components().count() > 1 {
        return file.is_file().then(|| file.to_path_buf());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(file)).find(|it| it.is_file())
}

fn look(program: &Path, findings: &mut Findings, depth: u32) {
    let obstacles = &mut findings.obstacles;
    let name = program.display();
    match std::fs::metadata(program).map(|it| it.permissions().mode()) {
        Ok(mode) if mode & 0o6000 != 0 => obstacles.push(format!(
            "{name} is setuid or setgid: for such programs the loader ignores LD_PRELOAD"
        )),
        Ok(_) => {}
        Err(error) => return obstacles.push(format!("{name}: {error}")),
    }
    if has_capabilities(program) {
        obstacles.push(format!(
            "{name} has file capabilities: for such programs the loader ignores LD_PRELOAD"
        ));
    }
    let Some(elf) = Elf::read(program) else { return script(program, findings, depth) };
    let ours = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    if !elf.ordinary || elf.machine != ours {
        return obstacles.push(format!(
            "{name} is for another processor, or has 32 bits: the library cannot be loaded into it"
        ));
    }
    match &elf.loader {
        None => obstacles.push(format!(
            "{name} is linked statically: it has no loader that could load another library"
        )),
        Some(loader) if loader.contains("musl") => obstacles.push(format!(
            "{name} uses the musl C library ({loader}): the preload library is made for glibc"
        )),
        Some(_) => {}
    }
    let by = |start: &str| elf.needed.iter().find(|needed| needed.starts_with(start));
    let note = if let Some(runtime) = by("libcudart.so") {
        format!(
            "it links the CUDA runtime dynamically ({runtime}), which asks for the driver by dlsym"
        )
    } else if let Some(driver) = by("libcuda.so") {
        format!("it links the driver ({driver})")
    } else if elf.opens_driver {
        "it opens libcuda.so.1 itself, as programs with the CUDA runtime inside do".to_owned()
    } else {
        "no trace of CUDA in the file itself: a library or a module that it loads may use it"
            .to_owned()
    };
    findings.notes.push(note);
}

/// A script is what its interpreter is.
fn script(program: &Path, findings: &mut Findings, depth: u32) {
    let start = std::fs::read(program).unwrap_or_default();
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Some(words) = line.strip_prefix(b"#!") else {
        let name = program.display();
        return findings.obstacles.push(format!("{name} is neither a program nor a script"));
    };
    let mut words = words.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut interpreter = words.next().unwrap_or_default();
    if interpreter.ends_with(b"/env") {
        interpreter = words.find(|word| !word.starts_with(b"-")).unwrap_or(interpreter);
    }
    match find(OsStr::from_bytes(interpreter)) {
        Some(file) if depth < 4 => {
            findings.notes.push(format!("it is a script for {}", file.display()));
            look(&file, findings, depth + 1);
        }
        _ => {
            let interpreter = String::from_utf8_lossy(interpreter);
            findings.obstacles.push(format!("its interpreter {interpreter} is not there"));
        }
    }
}

fn has_capabilities(program: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(program.as_os_str().as_bytes()) else { return false };
    // SAFETY: two C strings; with no room given, only the length is asked for.
    let length = unsafe {
        libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0)
    };
    length > 0
}

/// What else stands between programs and their libraries here.
fn neighbours(findings: &mut Findings) {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    for other in preloaded.split([' ', ':']).filter(|word| !word.is_empty()) {
        findings
            .notes
            .push(format!("LD_PRELOAD has {other} too: it will come after Cuddy's library"));
    }
    if std::fs::read_to_string("/etc/ld.so.preload").is_ok_and(|text| !text.trim().is_empty()) {
        findings
            .notes
            .push("/etc/ld.so.preload names a library too: it comes after Cuddy's".to_owned());
    }
    for tool in ["CUDA_INJECTION64_PATH", "NV_SANITIZER_INJECTION_PORT_BASE"] {
        if std::env::var_os(tool).is_some() {
            findings.obstacles.push(format!(
                "{tool} is set: under a tool that watches every allocation, every call is the driver's"
            ));
        }
    }
    findings.notes.push(
        "not to be seen from outside: plug-ins that are loaded with RTLD_DEEPBIND are not served"
            .to_owned(),
    );
}
