#![forbid(unsafe_code)]
//! Sizes: what a request is rounded to.
//!
//! `round_up(b)` is the least multiple of [`GRANULE`] that is `>= b`, for `0 < b`.

/// Every block's size is a multiple of this, and every address is aligned to it. In bytes.
/// cbindgen:ignore
pub const GRANULE: u64 = 512;

/// The largest request that is not refused outright: half of the 64-bit address space, in bytes.
///
/// No device has it, and sums of two sizes below it never overflow.
/// cbindgen:ignore
pub const LARGEST_REQUEST: u64 = 1 << 62;

/// Rounds a request up to whole granules; `None` if it is beyond [`LARGEST_REQUEST`].
pub fn round_up(bytes: u64) -> Option<u64> {
    (bytes <= LARGEST_REQUEST).then(|| align_up(bytes, GRANULE))
}

/// Rounds `value` up to a multiple of `alignment`, a power of two.
///
/// The caller keeps `value` below 2^63, as [`round_up`] does for every request.
pub fn align_up(value: u64, alignment: u64) -> u64 {
    debug_assert!(alignment.is_power_of_two());
    (value + (alignment - 1)) & !(alignment - 1)
}

/// Rounds `value` down to a multiple of `alignment`, a power of two.
pub fn align_down(value: u64, alignment: u64) -> u64 {
    debug_assert!(alignment.is_power_of_two());
    value & !(alignment - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_never_wraps() {
        assert_eq!(round_up(1), Some(512));
        assert_eq!(round_up(512), Some(512));
        assert_eq!(round_up(513), Some(1024));
        assert_eq!(round_up(LARGEST_REQUEST), Some(LARGEST_REQUEST));
        for below in [0, 1, 7, 255, 510, 511, 512, (2 << 20) - 1, 2 << 20, 1 << 62] {
            assert_eq!(round_up(u64::MAX - below), None);
        }
    }

    #[test]
    fn aligning_keeps_the_inequality() {
        for alignment in [512, 4096, 2 << 20] {
            for value in [0, 1, 511, 512, 4095, 4096, 4097, 1 << 40] {
                let (down, up) = (align_down(value, alignment), align_up(value, alignment));
                assert!(down <= value && value <= up && up - down <= alignment);
                assert!(up % alignment == 0 && down % alignment == 0);
            }
        }
    }
}
