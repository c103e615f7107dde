//! The **settings** of a run: `SIMCUDA_*` variables, of options that the simulator itself has judged.

use crate::cli::SimArgs;

/// What the options say, checked before anything runs. The checker is on unless somebody says
/// otherwise.
pub fn of(args: &SimArgs) -> Result<Vec<(String, String)>, String> {
    let schedule = args.seed.map(|seed| format!("random:{seed}")).or(args.schedule.clone());
    let driver = args.driver.as_deref().map(version).transpose()?;
    let checker = args.checker.clone().or_else(|| match std::env::var_os("SIMCUDA_CHECKER") {
        Some(_) => None,
        None => Some("log".to_owned()),
    });
    let given = [
        ("devices", args.devices.clone()),
        ("memory", args.memory.clone()),
        ("schedule", schedule),
        ("checker", checker),
        ("faults", args.faults.clone()),
        ("driver", driver),
    ];
    let simulator = simcuda_control::load().map_err(|error| error.to_string())?;
    let mut settings = Vec::new();
    for (key, value) in given {
        let Some(value) = value else { continue };
        simulator.configure(key, &value).map_err(|error| format!("--{error}"))?;
        settings.push((format!("SIMCUDA_{}", key.to_uppercase()), value));
    }
    Ok(settings)
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
