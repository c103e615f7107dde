//! The **settings** of a run: `SIMCUDA_*` variables, of options that the simulator itself has judged.

use std::ffi::OsString;

use crate::cli::SimArgs;

/// What the options and the environment say, checked before anything runs. The checker is on unless
/// somebody says otherwise.
pub fn of(args: &SimArgs) -> Result<Vec<(String, OsString)>, String> {
    let schedule = args.seed.map(|seed| format!("random:{seed}")).or(args.schedule.clone());
    let driver = args.driver.as_deref().map(version).transpose()?;
    let checker = args.checker.clone().or_else(|| match std::env::var_os("SIMCUDA_CHECKER") {
        Some(_) => None,
        None => Some("log".to_owned()),
    });
    // The program may change its folder before it initialises the driver.
    let kernels =
        args.kernels.as_ref().map(|file| std::path::absolute(file).unwrap_or(file.clone()));
    let kernels = kernels.map(|file| file.to_string_lossy().into_owned());
    let given = [
        ("devices", args.devices.clone()),
        ("memory", args.memory.clone()),
        ("schedule", schedule),
        ("checker", checker),
        ("faults", args.faults.clone()),
        ("driver", driver),
        ("kernels", kernels),
    ];
    let simulator = simcuda_control::load().map_err(|error| error.to_string())?;
    let mut settings: Vec<(String, OsString)> = Vec::new();
    for (key, value) in given {
        let Some(value) = value else { continue };
        simulator.configure(key, &value).map_err(|error| format!("--{error}"))?;
        settings.push((format!("{PREFIX}{}", key.to_uppercase()), value.into()));
    }
    for (name, value) in std::env::vars_os() {
        let Some(key) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        // An option comes before it, and the report is the command's own.
        if settings.iter().any(|(given, _)| name == given.as_str()) || key == "REPORT" {
            continue;
        }
        let shown = value.to_string_lossy();
        let judged = simulator.configure(&key.to_lowercase(), &shown);
        judged.map_err(|error| {
            let why = error.to_string();
            let why = why.split_once(": ").map_or(&*why, |(_, why)| why);
            format!("{PREFIX}{key}={shown}: {why}")
        })?;
    }
    settings.push(("ASAN_OPTIONS".to_owned(), sanitizer_options()));
    Ok(settings)
}

/// The beginning of the simulator's variables.
const PREFIX: &str = "SIMCUDA_";

/// AddressSanitizer wants to be the first library of a program that it is built into; what is
/// preloaded here allocates nothing of the program's, so it may come first. What the user has set
/// comes later, and holds.
fn sanitizer_options() -> OsString {
    let mut options = OsString::from("verify_asan_link_order=0");
    if let Some(theirs) = std::env::var_os("ASAN_OPTIONS").filter(|it| !it.is_empty()) {
        options.push(":");
        options.push(theirs);
    }
    options
}

/// `12.8` or `12080` as the driver counts its versions.
fn version(text: &str) -> Result<String, String> {
    let wrong = || format!("--driver={text}: expected a version such as 11.4, 12.8 or 13.0");
    let Some((major, minor)) = text.split_once('.') else { return Ok(text.to_owned()) };
    let (major, minor): (u32, u32) =
        (major.parse().map_err(|_| wrong())?, minor.parse().map_err(|_| wrong())?);
    if major > 99 || minor > 9 { Err(wrong()) } else { Ok((1000 * major + 10 * minor).to_string()) }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read() {
        assert_eq!(version("12.8").as_deref(), Ok("12080"));
        assert_eq!(version("11.4").as_deref(), Ok("11040"));
        assert_eq!(version("13000").as_deref(), Ok("13000"));
        for wrong in ["12.", ".8", "12.x", "12.80", "100.1", "12.8.1"] {
            assert!(version(wrong).is_err(), "{wrong}");
        }
    }
}
