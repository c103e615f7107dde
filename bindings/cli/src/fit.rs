//! The fit: the smallest device on which a trace completes.
//!
//! Found by bisection between what the live blocks alone need and what an unhurried replay held, in
//! steps of 2 MiB or 0.1 % of `peak_allocated`, whichever is more. A trace may complete on a device
//! and fail on a slightly larger one, where blocks come to lie otherwise: so the next few steps
//! down are tried too, and the answer is a size on which it completes and below which it does on none
//! of those.

use crate::report::Report;

/// Devices have whole pages of this many bytes.
const PAGE: u64 = 2 << 20;

/// How many steps below the answer are tried.
const BELOW: u64 = 4;

/// What the search found.
pub struct Fit {
    /// Memory of the smallest device, in bytes.
    pub bytes: u64,
    /// The replay on it.
    pub report: Report,
}

/// Finds the fit of a trace. `unhurried` is a completed replay with memory to spare; `replay` does
/// one on a device of so many bytes; `say` hears how far the search is.
pub fn find(
    unhurried: Report,
    mut replay: impl FnMut(u64) -> Result<Report, String>,
    mut say: impl FnMut(u64, u64),
) -> Result<Fit, String> {
    let ideal = unhurried.peak_allocated;
    let precision = PAGE.max(ideal / 1000);
    let least = ideal.next_multiple_of(PAGE).max(PAGE);
    // What is enough, with the replay that shows it; what was not.
    let mut enough = unhurried.peak_reserved.next_multiple_of(PAGE).max(least);
    let mut shown = unhurried;
    let mut short = least - PAGE;
    let mut next = least;
    while enough - short > precision {
        say(short, enough);
        let report = replay(next)?;
        if !report.sound() {
            return Ok(Fit { bytes: next, report });
        }
        if report.completed {
            enough = next;
            shown = report;
        } else {
            short = next;
        }
        let middle = short + (enough - short) / 2;
        next = middle.next_multiple_of(PAGE).min(enough - PAGE);
        if next <= short {
            break;
        }
    }
    let step = precision.next_multiple_of(PAGE);
    let mut down = 1;
    while down <= BELOW && enough >= least + down * step {
        say(enough - down * step, enough);
        let report = replay(enough - down * step)?;
        if !report.sound() {
            return Ok(Fit { bytes: enough - down * step, report });
        }
        if report.completed {
            enough -= down * step;
            shown = report;
            down = 1;
        } else {
            down += 1;
        }
    }
    Ok(Fit { bytes: enough, report: shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit_of(ideal: u64, reserved: u64, needs: u64) -> (u64, u32) {
        let base = Report {
            peak_allocated: ideal,
            peak_reserved: reserved,
            completed: true,
            ..Report::default()
        };
        let mut tries = 0;
        let replay = |bytes| {
            tries += 1;
            Ok(Report { completed: bytes >= needs, ..base.clone() })
        };
        let fit = find(base.clone(), replay, |_, _| ()).expect("replays cannot fail here");
        assert!(fit.report.completed);
        (fit.bytes, tries)
    }

    #[test]
    fn the_smallest_is_found() {
        let gib = 1 << 30;
        // It fits at once.
        assert_eq!(fit_of(gib, 2 * gib, gib).0, gib);
        for needs in [gib + 1, gib + gib / 100, gib + gib / 2, 2 * gib] {
            let (bytes, tries) = fit_of(gib, 2 * gib, needs);
            assert!(bytes >= needs && bytes - needs <= PAGE, "{needs}: {bytes}");
            assert!(tries <= 16, "{tries}");
        }
        let (bytes, tries) = fit_of(64 * gib, 68 * gib, 65 * gib);
        assert!(bytes >= 65 * gib && bytes - 65 * gib <= 64 * gib / 1000 + PAGE && tries <= 13);
        // Enough at one size, not at the next larger ones.
        let base = Report {
            peak_allocated: gib,
            peak_reserved: 2 * gib,
            completed: true,
            ..Report::default()
        };
        let lucky = gib + gib / 2 - 3 * PAGE;
        let completes = |bytes| bytes >= gib + gib / 2 || bytes == lucky;
        let replay = |bytes| Ok(Report { completed: completes(bytes), ..base.clone() });
        let fit = find(base.clone(), replay, |_, _| ()).expect("replays cannot fail here");
        assert_eq!((fit.bytes, fit.report.completed), (lucky, true));
        // Smaller than a page.
        assert_eq!(fit_of(1000, PAGE, 1000).0, PAGE);
    }
}
