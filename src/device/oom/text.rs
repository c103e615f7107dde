#![forbid(unsafe_code)]
//! The explanation of a request that found no memory, as sentences for people.

use std::fmt::Write;

use super::super::human::{exact, short};
use super::{Cause, Scene};
use crate::error::{Words, sentence};

impl Scene {
    /// The explanation, as sentences.
    pub(crate) fn text(&self) -> String {
        let mut text = Words::default();
        let _ = write!(
            text,
            "{} were asked for on device {}, and could not be had. ",
            exact(self.asked),
            self.device
        );
        self.in_pool(&mut text);
        self.reason(&mut text);
        self.holdings(&mut text);
        self.ranges(&mut text);
        self.outside(&mut text);
        let _ = text.write_str(self.advice());
        text.into_string()
    }

    /// How the private pool stands that the request was for.
    fn in_pool(&self, text: &mut Words) {
        let Some((limit, reserved, live)) = self.pool else { return };
        let _ = write!(
            text,
            "The request was for a private pool, which has reserved {}, {} of it in live blocks",
            exact(reserved),
            exact(live)
        );
        let _ = match limit {
            u64::MAX => text.write_str(", and has no limit of its own. "),
            limit => write!(text, ", and whose own limit is {}. ", exact(limit)),
        };
    }

    fn reason(&self, text: &mut Words) {
        let limit = self.stats.limit;
        let left = limit.saturating_sub(self.stats.reserved);
        let _ = match self.cause() {
            Cause::PoolLimit => Ok(()), // it has been said
            Cause::Driver(error) => write!(text, "The driver gave no more memory: {error}. "),
            Cause::Addresses => {
                write!(text, "The driver gave no addresses for a block of this size. ")
            }
            Cause::Device => write!(text, "The device has too little memory left. "),
            Cause::Limit if self.asked > limit => {
                write!(text, "The limit of this device is {}. ", exact(limit))
            }
            Cause::Limit => write!(
                text,
                "The limit of this device is {}, of which {} are not reserved yet. ",
                exact(limit),
                exact(left)
            ),
        };
    }

    fn holdings(&self, text: &mut Words) {
        let stats = &self.stats;
        let blocks = if stats.live_block_count == 1 { "block" } else { "blocks" };
        let _ = write!(
            text,
            "Cuddy has reserved {}: {} in {} live {blocks}, {} cached",
            exact(stats.reserved),
            exact(stats.allocated),
            stats.live_block_count,
            exact(self.cached()),
        );
        let limbo = stats.active - stats.allocated;
        if limbo > 0 {
            let _ = write!(
                text,
                ", {} in {} freed blocks that streams still use",
                exact(limbo),
                stats.limbo_block_count
            );
            self.waits(text);
        }
        if stats.unmapped > 0 {
            let _ = write!(text, " (of it {} without an address)", exact(stats.unmapped));
        }
        if stats.quarantined > 0 {
            let _ = write!(
                text,
                ", and {} lost because the driver failed to take them back",
                exact(stats.quarantined)
            );
        }
        let _ = text.write_str(". ");
    }

    /// Which streams the freed blocks wait for.
    fn waits(&self, text: &mut Words) {
        let mut mark = " (";
        for (handle, bytes) in self.waiting.iter().filter(|(_, bytes)| *bytes > 0) {
            let _ = write!(text, "{mark}{} for stream {handle:#x}", short(*bytes));
            mark = ", ";
        }
        if mark == ", " {
            let _ = text.write_str(")");
        }
    }

    fn ranges(&self, text: &mut Words) {
        let (own, any) = self.largest;
        if any == 0 {
            let _ = text.write_str("No range of its memory is free. ");
            return;
        }
        let _ = write!(text, "The largest free range is {}", exact(any));
        let _ = match own {
            own if own == any => write!(text, ", on the stream that asked"),
            own => {
                write!(text, ", on another stream; on the stream that asked it is {}", exact(own))
            }
        };
        let aligned = if self.alignment > 512 {
            sentence!(" aligned to {} bytes", self.alignment)
        } else {
            String::new()
        };
        let _ = match any {
            any if any < self.asked && !self.pages && self.figures.free >= self.asked => write!(
                text,
                ": smaller than the request, and segments cannot be joined, although {} are free \
                 in {} ranges. ",
                exact(self.figures.free),
                self.figures.free_blocks
            ),
            any if any < self.asked => write!(text, ": smaller than the request{aligned}. "),
            _ => write!(text, ", which does not fit the request{aligned}. "),
        };
    }

    fn outside(&self, text: &mut Words) {
        let (Some((free, total)), Some(used)) = (self.driver, self.used_elsewhere()) else {
            return;
        };
        let _ = write!(
            text,
            "The device has {}, of which {} are free and {} are used outside Cuddy (CUDA contexts, \
             libraries, other allocators, other processes). ",
            exact(total),
            exact(free),
            exact(used)
        );
    }

    /// What to do.
    pub(super) fn advice(&self) -> &'static str {
        let total = self.driver.map_or(u64::MAX, |(_, total)| total);
        if self.asked > total {
            "Ask for less: the whole device is smaller than this."
        } else if self.is_pools_limit() {
            "Free blocks of the pool that are not needed, ask for less, or raise its limit with \
             cuddy_pool_set_limit()."
        } else if self.is_limited() {
            "Free blocks that are not needed, ask for less, or raise the limit with \
             cuddy_set_memory_limit() or cuddy_set_memory_fraction()."
        } else if self.used_elsewhere().unwrap_or(0) > self.stats.reserved {
            "Most of the memory is used outside Cuddy: end other processes on this device, or free \
             what other libraries hold; else ask for less."
        } else {
            "Free blocks that are not needed, or ask for less; cuddy_memory_summary() shows what \
             is held."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::scene;
    use crate::error::DriverError;

    #[test]
    fn every_figure_is_there_in_both_forms() {
        let text = scene().text();
        for part in [
            "512.0 MiB (536870912 bytes) were asked for on device 3",
            "The limit of this device is 1.00 GiB (1073741824 bytes), of which 0 bytes",
            "reserved 1.00 GiB (1073741824 bytes): 512.0 MiB (536870912 bytes) in 1 live block,",
            "256.0 MiB (268435456 bytes) cached",
            "256.0 MiB (268435456 bytes) in 3 freed blocks that streams still use (128.0 MiB for \
             stream 0x7f10, 64.0 MiB for stream 0x1)",
            "The largest free range is 256.0 MiB (268435456 bytes), on another stream",
            "it is 1.00 MiB (1048576 bytes): smaller than the request",
            "has 4.00 GiB (4294967296 bytes), of which 2.00 GiB (2147483648 bytes) are free",
            "1.00 GiB (1073741824 bytes) are used outside Cuddy",
            "raise the limit",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_pools_own_limit_is_named() {
        let mut pooled = scene();
        pooled.pool = Some((1 << 29, 1 << 28, 1 << 20));
        let text = pooled.text();
        for part in [
            "for a private pool, which has reserved 256.0 MiB (268435456 bytes)",
            "whose own limit is 512.0 MiB (536870912 bytes)",
            "cuddy_pool_set_limit()",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("The limit of this device"), "{text}");
        pooled.pool = Some((u64::MAX, 1 << 28, 1 << 20));
        assert!(pooled.text().contains("no limit of its own"), "{}", pooled.text());
        assert!(pooled.text().contains("The limit of this device"), "{}", pooled.text());
    }

    #[test]
    fn the_cause_decides_the_advice() {
        let mut full = scene();
        full.stats.limit = u64::MAX;
        full.refused = Some(DriverError { function: "cuMemCreate", code: 2 });
        let text = full.text();
        assert!(text.contains("cuMemCreate returned 2 (CUDA_ERROR_OUT_OF_MEMORY)"), "{text}");
        assert!(!text.contains("limit"), "{text}");
        full.driver = Some((0, 8 << 30));
        assert!(full.text().contains("end other processes"), "{}", full.text());
        full.asked = 9 << 30;
        assert!(full.text().ends_with("the whole device is smaller than this."), "{}", full.text());
    }
}
