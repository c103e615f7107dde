//! **Who was not simulated**, and why: processes that the driver refused, the vendor's runtime, programs
//! into which nothing can be preloaded.

use super::journal::Journal;
use crate::cli::SimArgs;

/// Why no process initialised the driver.
pub fn why(args: &SimArgs, journal: &Journal) -> String {
    let nobody = "NOT CHECKED: no process initialised the simulated driver";
    if !journal.refused.is_empty() || !journal.proofs.is_empty() {
        return nobody.to_owned();
    }
    let obstacles = args.command.first().map(|word| crate::preload::why::obstacles(word));
    match obstacles.unwrap_or_default().first() {
        Some(obstacle) => format!("{nobody}: {obstacle}"),
        None => format!("{nobody}. Does the program use CUDA? (cuddy sim --help)"),
    }
}

/// Who was refused, whether others were simulated or not.
pub fn notes(journal: &Journal) -> Vec<String> {
    const SHOWN: usize = 3;
    let refused = journal
        .refused
        .iter()
        .map(|(program, why)| format!("cuInit was refused in `{program}`: {why}"));
    let proofs = journal.proofs.iter().map(|(file, program)| {
        let name = file.rsplit('/').next().unwrap_or(file);
        let hint = match name.starts_with("libcudart.so") {
            true => "It is the vendor's runtime; a substitute for libcudart.so.12 and .13 is preloaded unless \
                     --runtime says otherwise",
            false => "If the vendor's runtime is linked into it, link that dynamically (nvcc -cudart shared)",
        };
        format!(
            "{file} asked the driver to prove that it is genuine, as the vendor's CUDA runtime and libraries do. \
             simcuda does not answer, so they fail. {hint}. It was in `{program}`"
        )
    });
    refused.take(SHOWN).chain(proofs.take(SHOWN)).collect()
}
