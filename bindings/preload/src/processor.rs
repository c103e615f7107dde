//! What depends on the **processor**: functions that look at where they were called from, and then
//! either answer or become another function, with everything as the caller left it.
//!
//! `dlsym` must not simply call the next one: that would take us for the caller, and RTLD_NEXT would
//! mean another library. The aarch64 text has never been run.

// The names are the vendor's.
#![allow(non_snake_case)]

use std::arch::naked_asm;

use crate::doors::{decide_dlsym, decide_dlvsym};
use crate::runtime::real_of;

/// An exported function that asks `decide(its first arguments, the return address)`: with a second
/// word of 0 the first word is the answer, else the first word is where to go on.
#[cfg(target_arch = "x86_64")]
macro_rules! look_up {
    ($name:ident, $arguments:literal, $decide:ident) => {
        /// The loader's function, with an eye on names of CUDA.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                concat!("mov ", $arguments, ", [rsp + 24]"),
                "call {decide}",
                "mov r11, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test r11, r11",
                "jne 2f",
                "ret",
                "2:",
                "jmp rax",
                decide = sym $decide,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! look_up {
    ($name:ident, $arguments:literal, $decide:ident) => {
        /// The loader's function, with an eye on names of CUDA.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                concat!("mov ", $arguments, ", x30"),
                "bl {decide}",
                "mov x16, x0",
                "mov x17, x1",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "cbnz x17, 2f",
                "mov x0, x16",
                "ret",
                "2:",
                "br x16",
                decide = sym $decide,
            )
        }
    };
}

#[cfg(target_arch = "x86_64")]
look_up!(dlsym, "rdx", decide_dlsym);
#[cfg(target_arch = "x86_64")]
look_up!(dlvsym, "rcx", decide_dlvsym);
#[cfg(target_arch = "aarch64")]
look_up!(dlsym, "x2", decide_dlsym);
#[cfg(target_arch = "aarch64")]
look_up!(dlvsym, "x3", decide_dlvsym);

/// An exported function that becomes the one of the same name that its caller would have reached.
#[cfg(target_arch = "x86_64")]
macro_rules! become_real {
    ($($number:literal $name:ident)*) => { $(
        /// The runtime's function: noted, and passed on with all that it was given.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "mov rsi, [rsp + 40]",
                concat!("mov rdi, ", $number),
                "call {real}",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "jmp rax",
                real = sym real_of,
            )
        }
    )* };
}

#[cfg(target_arch = "aarch64")]
macro_rules! become_real {
    ($($number:literal $name:ident)*) => { $(
        /// The runtime's function: noted, and passed on with all that it was given.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                "stp x29, x30, [sp, #-64]!",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "str x4, [sp, #48]",
                concat!("mov x0, ", $number),
                "mov x1, x30",
                "bl {real}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldr x4, [sp, #48]",
                "ldp x29, x30, [sp], #64",
                "br x16",
                real = sym real_of,
            )
        }
    )* };
}

// The order of `runtime::NAMES`.
become_real! {
    0 cudaMalloc
    1 cudaFree
    2 cudaMallocPitch
    3 cudaMemGetInfo
    4 cudaMallocAsync
    5 cudaFreeAsync
    6 cudaMallocAsync_ptsz
    7 cudaFreeAsync_ptsz
}
