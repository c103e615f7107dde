//! The **exit report**: findings, calls and virtual time, written when the process ends if
//! `SIMCUDA_REPORT` asks for it.

use crate::call::Call;
use std::fmt::Write;

/// Sees to it that the report is written.
pub fn at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: `write_now` stays loaded: the library is never unloaded. It lets no panic out.
        unsafe { libc::atexit(write_now) };
    });
}

extern "C" fn write_now() {
    // A panic at exit has nowhere to go.
    let _ = std::panic::catch_unwind(|| {
        if crate::call::forked() {
            return;
        }
        let mut call = Call::internal("exit");
        let to = call.config.report.clone();
        if to.is_empty() {
            return;
        }
        let text = text(&mut call);
        match to.as_str() {
            "stderr" => eprint!("{text}"),
            file => {
                if let Err(why) = std::fs::write(file, text) {
                    eprintln!("simcuda: SIMCUDA_REPORT={file}: {why}");
                }
            }
        }
    });
}

/// The report, as it stands.
pub fn text(call: &mut Call) -> String {
    let mut out = String::new();
    let checker = call.engine.checker_ref();
    let (found, checked, unknown) =
        (checker.reports().len(), checker.accesses_checked(), checker.unknown_launches());
    let _ = writeln!(
        out,
        "simcuda: {found} findings in {checked} accesses; {unknown} launches whose accesses are not known"
    );
    for (number, report) in checker.reports().iter().enumerate() {
        let _ = writeln!(out, "[{}] {report}", number + 1);
    }
    let ms = |ns: u64| ns as f64 / 1e6;
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
    for (device, budget) in call.memory.budgets.iter().enumerate() {
        let _ = writeln!(
            out,
            "simcuda: device {device}: {} bytes in use, {} at most",
            budget.used, budget.peak
        );
    }
    out
}
