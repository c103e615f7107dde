//! Where traces are found: a path, or a name in the first folder that has it.

use std::path::{Path, PathBuf};

use crate::job::Source;

/// Environment variable that names a folder of traces.
pub const VARIABLE: &str = "CUDDY_TRACES";

/// The folders in which names are looked up, in order: `$CUDDY_TRACES` if it is set; else the
/// folder beside the workspace that this program was built in, and the workspace's own.
pub fn folders() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        return vec![folder.into()];
    }
    let Some(workspace) = workspace() else { return Vec::new() };
    let beside = workspace.parent().map(|parent| parent.join("shared/traces"));
    beside.into_iter().chain([workspace.join("tests/traces")]).filter(|it| it.is_dir()).collect()
}

/// The workspace in which the program runs: the nearest folder above the working directory, or
/// above the program's own file, that has `tests/traces`.
fn workspace() -> Option<PathBuf> {
    let has_traces = |start: PathBuf| {
        start.ancestors().find(|folder| folder.join("tests/traces").is_dir()).map(Path::to_path_buf)
    };
    let here = std::env::current_dir().ok().and_then(has_traces);
    here.or_else(|| std::env::current_exe().ok().and_then(has_traces))
}

/// The trace that a word of the command line means.
pub fn find(word: &str) -> Result<Source, String> {
    let path = Path::new(word);
    if path.is_file() {
        return Ok(Source::File(path.to_path_buf()));
    }
    let folders = folders();
    if path.components().count() == 1 {
        for folder in &folders {
            for name in [format!("{word}.gz"), word.to_owned()] {
                let candidate = folder.join(name);
                if candidate.is_file() {
                    return Ok(Source::File(candidate));
                }
            }
        }
        if crate::bundled::open(word).is_ok() {
            return Ok(Source::Bundled(word.to_owned()));
        }
    }
    let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let looked = if looked.is_empty() { "no folder of traces".into() } else { looked.join(", ") };
    Err(format!(
        "{word}: no such file, and no trace of that name (looked in {looked}; ${VARIABLE} names \
         another folder, `cuddy replay --list` lists what there is)"
    ))
}

/// Every known trace, by name; of equal names the one that `find` would take.
pub fn all() -> Vec<Source> {
    let files = files();
    let is_file = |name: &str| files.iter().any(|it| it.file_stem().is_some_and(|it| it == name));
    let bundled = crate::bundled::names().filter(|name| !is_file(name));
    let bundled: Vec<Source> = bundled.map(|name| Source::Bundled(name.to_owned())).collect();
    let mut all: Vec<Source> = files.into_iter().map(Source::File).chain(bundled).collect();
    all.sort_by_key(Source::short_name);
    all
}

/// Every trace in the folders.
fn files() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for folder in folders() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_trace =
                path.extension().is_some_and(|it| it == "gz" || it == "csv" || it == "pickle");
            let known = found.iter().any(|other| other.file_name() == path.file_name());
            if is_trace && !known {
                found.push(path);
            }
        }
    }
    found
}
