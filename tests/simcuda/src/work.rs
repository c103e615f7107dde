//! **Work**: what a stream can be asked to do, and the bytes that it uses.
//!
//! Addresses in it are the program's; they are looked up twice: when the work is submitted, so that
//! the checker can judge the physical bytes, and when it runs, so that what was unmapped meanwhile
//! is really gone.

use crate::checker::AccessKind::{self, Read, Write};
use crate::kernels::Use;
use crate::memory::ipc::SharedEvent;
use crate::memory::table::Actor;

/// One piece of work.
#[derive(Debug)]
pub struct Work {
    /// Who does it.
    pub actor: Actor,
    /// What.
    pub body: Body,
    /// Set when an address was already wrong at submission: running it faults whatever is mapped by
    /// then.
    pub poisoned: bool,
}

/// What is done.
#[derive(Clone, Debug)]
pub enum Body {
    /// Rows of a repeated value of 1, 2 or 4 bytes.
    Fill {
        /// First address.
        at: u64,
        /// From row to row.
        pitch: u64,
        /// Elements in a row.
        width: u64,
        /// Number of rows.
        rows: u64,
        /// Bytes in an element.
        size: u64,
        /// The element.
        value: u32,
    },
    /// Rows of bytes, from one place to another.
    Copy {
        /// Whither.
        to: Plane,
        /// Whence; when `staged`, addresses count within that.
        from: Plane,
        /// Bytes in a row.
        width: u64,
        /// Number of rows.
        rows: u64,
        /// Pageable host memory, taken when the call was made.
        staged: Option<Vec<u8>>,
    },
    /// A kernel.
    Kernel(Kernel),
    /// A kernel that is known by what it uses; it changes nothing.
    Declared(Vec<Use>),
    /// A function of the program.
    Host(HostFunction),
    /// A kernel that takes real time.
    SpinReal {
        /// How long.
        ns: u64,
    },
    /// A record of an interprocess event is done.
    Publish(SharedEvent, u64),
    /// Waits for a record that another process made.
    Await(SharedEvent, u64),
    /// Nothing.
    Nothing,
}

/// Rows in memory.
#[derive(Clone, Copy, Debug)]
pub struct Plane {
    /// First byte.
    pub at: u64,
    /// From row to row.
    pub pitch: u64,
}

/// `cuLaunchHostFunc` and `cuStreamAddCallback`.
#[derive(Clone, Copy, Debug)]
pub enum HostFunction {
    /// `f(data)`.
    Function {
        /// Address of the function.
        f: u64,
        /// Its argument.
        data: u64,
    },
    /// `f(stream, status, data)`.
    Callback {
        /// Address of the function.
        f: u64,
        /// Its first argument.
        stream: u64,
        /// Its last argument.
        data: u64,
    },
}

/// A kernel whose name is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kernel {
    Fill { at: u64, bytes: u64, value: u8 },
    Copy { to: u64, from: u64, bytes: u64 },
    Add { to: u64, a: u64, b: u64, count: u64 },
    Spin { ns: u64 },
    SpinReal { ns: u64 },
    Touch { at: u64, bytes: u64, write: bool },
    Gate { id: u64 },
    PatternWrite { at: u64, bytes: u64, stride: u64, seed: u64 },
    PatternCheck { at: u64, bytes: u64, stride: u64, seed: u64, counter: u64 },
    Unknown,
}

/// The width of each parameter of a kernel, by name; `None` for a name that is not known.
pub fn signature(name: &str) -> Option<&'static [usize]> {
    Some(match name {
        "simcuda_fill" => &[8, 8, 1],
        "simcuda_copy" => &[8, 8, 8],
        "simcuda_add" => &[8, 8, 8, 8],
        "simcuda_spin" | "simcuda_spin_real" | "simcuda_gate" => &[8],
        "simcuda_touch" => &[8, 8, 4],
        "cuddy_pattern_write" => &[8, 8, 8, 8],
        "cuddy_pattern_check" => &[8, 8, 8, 8, 8],
        _ => return None,
    })
}

impl Kernel {
    /// The kernel of a name with the parameters of its [`signature`].
    pub fn new(name: &str, p: &[u64]) -> Self {
        match (name, p) {
            ("simcuda_fill", &[at, bytes, value]) => Self::Fill { at, bytes, value: value as u8 },
            ("simcuda_copy", &[to, from, bytes]) => Self::Copy { to, from, bytes },
            ("simcuda_add", &[to, a, b, count]) => Self::Add { to, a, b, count },
            ("simcuda_spin", &[ns]) => Self::Spin { ns },
            ("simcuda_spin_real", &[ns]) => Self::SpinReal { ns },
            ("simcuda_gate", &[id]) => Self::Gate { id },
            ("simcuda_touch", &[at, bytes, w]) => Self::Touch { at, bytes, write: w != 0 },
            ("cuddy_pattern_write", &[at, bytes, stride, seed]) => {
                Self::PatternWrite { at, bytes, stride, seed }
            }
            ("cuddy_pattern_check", &[at, bytes, stride, seed, counter]) => {
                Self::PatternCheck { at, bytes, stride, seed, counter }
            }
            _ => Self::Unknown,
        }
    }

    /// Virtual time that it takes.
    pub fn duration_ns(&self) -> u64 {
        match *self {
            Self::Spin { ns } | Self::SpinReal { ns } => ns,
            _ => KERNEL_NS,
        }
    }
}

/// A kernel's default duration: a round figure, measured nowhere.
pub const KERNEL_NS: u64 = 5_000;

/// The words of a pattern: every `stride` bytes, and the last eight; none overlaps another. A stride
/// below the length of a word is taken for that.
pub fn pattern_offsets(bytes: u64, stride: u64) -> impl Iterator<Item = u64> {
    let last = bytes.checked_sub(8);
    let stride = stride.max(8);
    let room = last.and_then(|last| last.checked_sub(8));
    let strided = room.map_or(0, |room| room / stride + 1);
    (0..strided).map(move |k| k * stride).chain(last)
}

impl Body {
    /// Visits the ranges that this work uses: address, bytes, kind.
    pub fn uses(&self, mut each: impl FnMut(u64, u64, AccessKind)) {
        match self {
            Self::Fill { at, pitch, width, rows, size, .. } => {
                plane(Plane { at: *at, pitch: *pitch }, width * size, *rows, Write, each);
            }
            Self::Copy { to, from, width, rows, staged } => {
                if staged.is_none() {
                    plane(*from, *width, *rows, Read, &mut each);
                }
                plane(*to, *width, *rows, Write, each);
            }
            Self::Kernel(kernel) => kernel.uses(each),
            Self::Declared(uses) => uses.iter().for_each(|it| each(it.at, it.bytes, it.kind())),
            Self::Host(_) | Self::SpinReal { .. } | Self::Nothing => {}
            Self::Publish(..) | Self::Await(..) => {}
        }
    }
}

/// The rows of a plane, as one range when nothing lies between them.
fn plane(
    p: Plane,
    width: u64,
    rows: u64,
    kind: AccessKind,
    mut each: impl FnMut(u64, u64, AccessKind),
) {
    if p.pitch == width || rows == 1 {
        each(p.at, width * rows, kind);
    } else {
        (0..rows).for_each(|row| each(p.at + row * p.pitch, width, kind));
    }
}

impl Kernel {
    fn uses(&self, mut each: impl FnMut(u64, u64, AccessKind)) {
        match *self {
            Self::Fill { at, bytes, .. } => each(at, bytes, Write),
            Self::Copy { to, from, bytes } => {
                each(from, bytes, Read);
                each(to, bytes, Write);
            }
            Self::Add { to, a, b, count } => {
                let bytes = count.saturating_mul(4);
                each(a, bytes, Read);
                each(b, bytes, Read);
                each(to, bytes, Write);
            }
            Self::Touch { at, bytes, write } => each(at, bytes, if write { Write } else { Read }),
            Self::PatternWrite { at, bytes, stride, .. } => {
                pattern_uses(at, bytes, stride, Write, each);
            }
            Self::PatternCheck { at, bytes, stride, .. } => {
                pattern_uses(at, bytes, stride, Read, each);
            }
            Self::Spin { .. } | Self::SpinReal { .. } | Self::Gate { .. } | Self::Unknown => {}
        }
    }
}

fn pattern_uses(
    at: u64,
    bytes: u64,
    stride: u64,
    kind: AccessKind,
    mut each: impl FnMut(u64, u64, AccessKind),
) {
    if bytes < 8 {
        each(at, bytes, kind);
    } else {
        pattern_offsets(bytes, stride).for_each(|offset| each(at + offset, 8, kind));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_holds_both_edges_once() {
        let offsets = |bytes, stride| pattern_offsets(bytes, stride).collect::<Vec<_>>();
        assert_eq!(offsets(7, 8), []);
        assert_eq!(offsets(8, 4096), [0]);
        assert_eq!(offsets(9, 8), [1], "one word, and no room for two");
        assert_eq!(offsets(20, 8), [0, 12]);
        assert_eq!(offsets(24, 8), [0, 8, 16]);
        assert_eq!(offsets(512, 200), [0, 200, 400, 504]);
        assert_eq!(offsets(512, 0), offsets(512, 8));
        for (bytes, stride) in (8..200).flat_map(|b| [1, 8, 24, 64].map(|s| (b, s))) {
            let all = offsets(bytes, stride);
            assert!(all.windows(2).all(|pair| pair[0] + 8 <= pair[1]), "{bytes} {stride}: {all:?}");
            assert_eq!(all.last(), Some(&(bytes - 8)));
        }
    }
}
