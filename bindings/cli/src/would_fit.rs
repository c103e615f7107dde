//! The verdict on a program that ran short of memory: what would have let its last request fit.
//!
//! Three replays decide: one on as small a device as serves everything (the fit), one in the memory that
//! there was, and one in that memory with the program's own way of sharing.

use crate::table::bytes_text;
use crate::trace::Short;

/// Whether the replays in the memory that there was completed: with the default way of sharing, and
/// with the program's own.
#[derive(Clone, Copy)]
pub struct Again {
    /// With the default.
    pub shared: bool,
    /// With the program's.
    pub as_it_was: bool,
}

/// The verdict, as a sentence. `fit` is the memory that serves everything.
pub fn verdict(short: &Short, fit: u64, again: Again) -> String {
    let shortage = &short.shortage;
    let needs = shortage.allocated.saturating_add(shortage.requested);
    let memory = shortage.memory().unwrap_or(0);
    let there = bytes_text(memory);
    match shortage.device_total {
        Some(total) if needs > total => format!(
            "never on this device: what was live and the request need {}, the device has {}",
            bytes_text(needs),
            bytes_text(total)
        ),
        _ if shortage.cause == "pool_limit" => {
            let limit = shortage.pool_limit.unwrap_or(0);
            let needs = shortage.pool_allocated.unwrap_or(0).saturating_add(shortage.requested);
            let more = bytes_text(needs.saturating_sub(limit));
            format!("with {more} more for the private pool, whose limit was {}", bytes_text(limit))
        }
        _ if again.shared && !again.as_it_was => {
            let share = short.options.get("share").map_or("", String::as_str);
            format!(
                "with sharing on: with share:wait these operations complete in the {there} that there \
                 were; the program ran with share:{share}"
            )
        }
        _ if again.shared && shortage.active > shortage.allocated => format!(
            "with a wait: these operations complete in the {there} that there were, once {} of freed memory \
             are not in use any more",
            bytes_text(shortage.active - shortage.allocated)
        ),
        _ if again.shared => format!(
            "replayed from the beginning of the history, these operations complete in the {there} that there \
             were: what lay badly then was allocated before it, or other programs had more of the device"
        ),
        _ => format!(
            "with {} more: in {}; there were {there}",
            bytes_text(fit.saturating_sub(memory)),
            bytes_text(fit)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Shortage;

    const GIB: u64 = 1 << 30;

    fn short() -> Short {
        let shortage = Shortage {
            requested: 4 * GIB,
            allocated: 5 * GIB,
            active: 5 * GIB,
            reserved: 7 * GIB,
            limit: Some(8 * GIB),
            device_free: Some(2 * GIB),
            device_total: Some(10 * GIB),
            cause: "limit".into(),
            ..Shortage::default()
        };
        Short { shortage, options: [("share".to_owned(), "never".to_owned())].into() }
    }

    #[test]
    fn each_case_is_told_apart() {
        let no = Again { shared: false, as_it_was: false };
        let mut short = short();
        assert!(
            verdict(&short, 9 * GIB, no)
                .starts_with("with 1.00 GiB more: in 9.00 GiB; there were 8.00 GiB")
        );
        let shared = Again { shared: true, as_it_was: false };
        let said = verdict(&short, 8 * GIB, shared);
        assert!(said.starts_with("with sharing on") && said.ends_with("share:never"), "{said}");
        let both = Again { shared: true, as_it_was: true };
        assert!(verdict(&short, 8 * GIB, both).starts_with("replayed from the beginning"));
        short.shortage.active += GIB;
        assert!(verdict(&short, 8 * GIB, both).contains("once 1.00 GiB of freed memory"));
        short.shortage.cause = "pool_limit".into();
        (short.shortage.pool_limit, short.shortage.pool_allocated) = (Some(3 * GIB), Some(GIB));
        assert!(
            verdict(&short, 8 * GIB, both).starts_with("with 2.00 GiB more for the private pool")
        );
        short.shortage.requested = 6 * GIB;
        assert!(verdict(&short, 12 * GIB, no).starts_with("never on this device"));
    }
}
