//! What a program does with its memory: every block is really used.
//!
//! A block is written on its stream at once, read back on each stream that it is recorded on, and
//! read back on its own stream just before it is freed. What is written is sparse: the first and
//! the last word of the block, and the first word of each 2 MiB of device address space inside it.
//! Words at fixed addresses keep the simulator small: an 80 GiB device has 40,960 of them. To the
//! simulator's checker each use is of the whole block: one kernel more says so and moves no data.
//!
//! Each reading has a counter of its own, to which the kernel adds the words that were wrong; so a
//! corrupt block is known by name, and readings on several streams share nothing.

use std::ffi::CStr;

use crate::gpu::{Counters, Gpu, GpuError, Kernel, Stream};

/// Distance of the words inside a block, in bytes: the usual page of a device.
const STRIDE: u64 = 2 << 20;

/// Bytes of a word.
const WORD: u64 = 8;

/// The kernels, for real GPUs: assembled for several architectures, not yet run on one. The
/// simulated driver has its own under the same names.
const PTX: &str = concat!(include_str!("pattern.ptx"), "\0");

/// A block as the workload sees it.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// Its first byte.
    pub address: u64,
    /// The bytes that were asked for.
    pub bytes: u64,
    /// What its pattern is made from.
    pub seed: u64,
}

/// A kernel's share of a region: words at `address + k * STRIDE`, and the last word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    address: u64,
    bytes: u64,
    stride: u64,
    words: u64,
}

/// The first and last word of a region.
fn edges(region: &Region) -> Part {
    let Region { address, bytes, .. } = *region;
    match bytes {
        // Single bytes.
        0..WORD => Part { address, bytes, stride: WORD, words: 1 },
        // Two words would overlap.
        WORD..16 => Part { address, bytes: WORD, stride: WORD, words: 1 },
        _ => Part { address, bytes, stride: bytes.next_multiple_of(WORD), words: 2 },
    }
}

/// The words at multiples of the stride strictly between the edges, if there are any.
fn inside(region: &Region) -> Option<Part> {
    let first = (region.address + WORD).next_multiple_of(STRIDE);
    let end = (region.address + region.bytes).saturating_sub(WORD);
    // The last word must end before the edge begins.
    let room = end.checked_sub(first + WORD)?;
    let words = room / STRIDE + 1;
    Some(Part { address: first, bytes: (words - 1) * STRIDE + WORD, stride: STRIDE, words })
}

/// Queues the writing and reading of blocks, and knows which reading came out wrong.
pub struct Workload<'g> {
    gpu: &'g Gpu,
    write: Kernel,
    check: Kernel,
    /// Tells the checker of the simulated device that the whole block is used.
    touch: Option<Kernel>,
    counters: Counters,
    readings: usize,
    /// Bytes of pattern written.
    pub bytes_written: u64,
    /// Bytes of pattern read back and compared.
    pub bytes_read_back: u64,
}

impl<'g> Workload<'g> {
    /// For at most `readings` readings.
    pub fn new(gpu: &'g Gpu, readings: usize) -> Result<Self, GpuError> {
        let ptx = CStr::from_bytes_with_nul(PTX.as_bytes()).unwrap_or(c"");
        let write = gpu.kernel(ptx, c"cuddy_pattern_write")?;
        let check = gpu.kernel(ptx, c"cuddy_pattern_check")?;
        let touch = match gpu.simulated() {
            true => Some(gpu.kernel(ptx, c"simcuda_touch")?),
            false => None,
        };
        let counters = gpu.counters(readings)?;
        let (readings, bytes_written, bytes_read_back) = (0, 0, 0);
        Ok(Self { gpu, write, check, touch, counters, readings, bytes_written, bytes_read_back })
    }

    fn touch(&self, region: &Region, stream: Stream, writes: bool) -> Result<(), GpuError> {
        let Some(touch) = self.touch else { return Ok(()) };
        self.gpu.launch(touch, stream, 1, [region.address, region.bytes, u64::from(writes)])
    }

    /// Writes the block's pattern on `stream`.
    pub fn write(&mut self, region: &Region, stream: Stream) -> Result<(), GpuError> {
        self.touch(region, stream, true)?;
        for part in [Some(edges(region)), inside(region)].into_iter().flatten() {
            let parameters = [part.address, part.bytes, part.stride, region.seed];
            self.gpu.launch(self.write, stream, part.words + 1, parameters)?;
            self.bytes_written += part.words * WORD.min(part.bytes);
        }
        Ok(())
    }

    /// Reads the block back on `stream`; the answer's place among all readings is returned.
    pub fn check(&mut self, region: &Region, stream: Stream) -> Result<usize, GpuError> {
        let reading = self.readings;
        let counter = self.counters.address(reading);
        self.readings += 1;
        self.touch(region, stream, false)?;
        for part in [Some(edges(region)), inside(region)].into_iter().flatten() {
            let parameters = [part.address, part.bytes, part.stride, region.seed, counter];
            self.gpu.launch(self.check, stream, part.words + 1, parameters)?;
            self.bytes_read_back += part.words * WORD.min(part.bytes);
        }
        Ok(reading)
    }

    /// Wrong words of each reading so far. Only after a synchronise is this complete.
    pub fn wrong_words(&self) -> Vec<u64> {
        let mut wrong = self.counters.read();
        wrong.truncate(self.readings);
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(part: Part) -> Vec<u64> {
        let mut at: Vec<u64> =
            (0..).map(|k| k * part.stride).take_while(|k| k + WORD <= part.bytes).collect();
        at.push(part.bytes - WORD.min(part.bytes));
        at.dedup();
        at.into_iter().map(|offset| part.address + offset).collect()
    }

    #[test]
    fn words_stay_inside_and_never_overlap() {
        let sizes = [
            1,
            7,
            8,
            9,
            15,
            16,
            17,
            511,
            512,
            STRIDE - 8,
            STRIDE,
            STRIDE + 1,
            STRIDE + 8,
            STRIDE + 15,
            STRIDE + 16,
            STRIDE + 17,
            3 * STRIDE,
            5 * STRIDE + 12345,
        ];
        for start in [0, 512, STRIDE - 512, STRIDE / 2] {
            for bytes in sizes {
                let region = Region { address: 4 * STRIDE + start, bytes, seed: 0 };
                let mut all = words(edges(&region));
                let edge_words = all.len();
                assert_eq!(all[0], region.address);
                if bytes >= 16 {
                    assert_eq!(all[1], region.address + bytes - WORD);
                }
                all.extend(inside(&region).map(words).unwrap_or_default());
                let width = WORD.min(bytes);
                all.sort_unstable();
                assert!(
                    all.windows(2).all(|pair| pair[0] + width <= pair[1]),
                    "{region:?} {all:?}"
                );
                assert!(all.iter().all(|&at| at + width <= region.address + bytes), "{region:?}");
                // No page start inside is left out, unless an edge covers or touches it.
                let starts = (0..16).map(|page| page * STRIDE);
                let within = starts.filter(|&at| {
                    at >= region.address + WORD && at + WORD + WORD <= region.address + bytes
                });
                assert_eq!(within.count(), all.len() - edge_words, "{region:?} {all:?}");
            }
        }
    }
}
