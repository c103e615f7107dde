//! The **exit report**: findings, calls and virtual time, written when the process ends if
//! `SIMCUDA_REPORT` asks for it.

use crate::call::Call;
use crate::checker::Mode;
use crate::journal;
use std::fmt::Write;

/// Sees to it that what is asked for is written.
pub fn begin(call: &mut Call) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: `write_now` stays loaded: the library is never unloaded. It lets no panic out.
        unsafe { libc::atexit(write_now) };
    });
    journal::begin(call);
}

extern "C" fn write_now() {
    // A panic at exit has nowhere to go.
    let _ = std::panic::catch_unwind(|| {
        if crate::call::forked() {
            return;
        }
        let mut call = Call::internal("exit");
        let to = call.config.report.clone();
        match to.as_str() {
            "" => {}
            "stderr" => eprint!("{}", text(&mut call)),
            file if file.ends_with(journal::EXTENSION) => journal::end(&mut call),
            file => {
                if let Err(why) = std::fs::write(file, text(&mut call)) {
                    eprintln!("simcuda: SIMCUDA_REPORT={file}: {why}");
                }
            }
        }
    });
}

/// The report, as it stands.
pub fn text(call: &mut Call) -> String {
    let mut out = verdict(call);
    let checker = call.engine.checker_ref();
    for (number, report) in checker.reports().iter().enumerate() {
        let _ = writeln!(out, "[{}] {report}", number + 1);
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    if let Some(touch) = crate::host_touch::told() {
        let _ = writeln!(out, "[{}] {touch}", checker.reports().len() + 1);
    }
    let _ = writeln!(
        out,
        "simcuda: virtual time {:.3} ms, {:.3} ms of it in {} driver calls; {} made to fail",
        ms(call.engine.now_ns()),
        ms(call.books.driver_ns),
        call.books.total,
        call.faults.fired
    );
    for function in call.books.called() {
        let _ = writeln!(out, "{:>10} {}", function.calls, function.name);
    }
    for (name, launches) in unknown(call) {
        let _ = writeln!(out, "{launches:>10} launches of {name}, whose accesses are not known");
    }
    for (device, budget) in call.memory.budgets.iter().enumerate() {
        let _ = writeln!(
            out,
            "simcuda: device {device}: {} bytes in use, {} at most",
            budget.used, budget.peak
        );
    }
    out
}

/// The kernels launched most of those that nothing is known of.
pub fn unknown(call: &Call) -> Vec<(&str, u64)> {
    const MOST: usize = 50;
    let all = &call.kernels.unknown;
    let mut all: Vec<_> = all.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    all.sort_by_key(|&(name, count)| (std::cmp::Reverse(count), name));
    all.truncate(MOST);
    all
}

/// What the checker says. Nothing that was not checked may read as clean.
fn verdict(call: &Call) -> String {
    let checker = call.engine.checker_ref();
    let touches = usize::from(crate::host_touch::told().is_some());
    let (found, checked) = (checker.reports().len() + touches, checker.accesses_checked());
    let mut out = match (found, checked, checker.mode()) {
        (0, 0, Mode::Off) => {
            "simcuda: NOT CHECKED: the checker was off (SIMCUDA_CHECKER=log switches it on)"
                .to_owned()
        }
        (0, 0, _) => "simcuda: NOT CHECKED: no access to memory was seen".to_owned(),
        _ => format!("simcuda: {found} findings in {checked} accesses"),
    };
    let _ = match checker.overflowed() {
        0 => Ok(()),
        more => write!(out, ", and {more} more that were not kept"),
    };
    let _ = writeln!(out, "; {} launches whose accesses are not known", checker.unknown_launches());
    out
}
