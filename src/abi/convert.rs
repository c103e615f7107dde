//! Pointers from C: checked for NULL, then trusted for what the header says of them.

use std::ffi::{CStr, c_char, c_void};
use std::fmt::Arguments;

use crate::error::{Error, compose};

/// A stream's handle, as the CUDA driver and runtime give it out: `CUstream`, `cudaStream_t`.
///
/// cbindgen:ignore
#[allow(non_camel_case_types)]
pub type cuddy_stream = *mut c_void;

/// An argument outside what is accepted.
pub(super) fn invalid(argument: &'static str, why: Arguments<'_>) -> Error {
    Error::InvalidArgument { argument, why: compose(why) }
}

/// Refuses a NULL pointer by the name of its argument.
pub(super) fn given<T>(pointer: *const T, argument: &'static str) -> Result<(), Error> {
    if pointer.is_null() {
        Err(invalid(argument, format_args!("it is NULL, and must not be")))
    } else {
        Ok(())
    }
}

/// Writes an output that the caller may have left out.
///
/// # Safety
/// `to` is NULL or valid for writing.
pub(super) unsafe fn write_if_wanted(to: *mut usize, value: u64) {
    if !to.is_null() {
        // SAFETY: not NULL, and valid for writing by the function's contract.
        unsafe { to.write(value as usize) };
    }
}

/// The bytes of a C string argument, without the 0.
///
/// # Safety
/// `text` is NULL or ends with 0, and outlives `'a` unchanged.
pub(super) unsafe fn text<'a>(
    text: *const c_char,
    argument: &'static str,
) -> Result<&'a [u8], Error> {
    given(text, argument)?;
    // SAFETY: not NULL, and a C string by the function's contract.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The characters of a C string argument.
///
/// # Safety
/// `from` is NULL or ends with 0, and outlives `'a` unchanged.
pub(super) unsafe fn characters<'a>(
    from: *const c_char,
    argument: &'static str,
) -> Result<&'a str, Error> {
    // SAFETY: by the function's contract.
    let bytes = unsafe { text(from, argument) }?;
    std::str::from_utf8(bytes).map_err(|_| invalid(argument, format_args!("it is no UTF-8")))
}

/// The same, of an argument that may be NULL.
///
/// # Safety
/// As [`characters`].
pub(super) unsafe fn characters_or_null<'a>(
    from: *const c_char,
    argument: &'static str,
) -> Result<Option<&'a str>, Error> {
    match from.is_null() {
        true => Ok(None),
        // SAFETY: by the function's contract.
        false => unsafe { characters(from, argument) }.map(Some),
    }
}

/// Refuses a buffer that is NULL and yet has bytes.
fn buffer_given(buffer: *const c_char, size: usize) -> Result<(), Error> {
    if size > 0 { given(buffer, "buffer") } else { Ok(()) }
}

/// Copies `text` to a buffer of `size` bytes, cut if need be and ended by 0, and writes the bytes
/// that the whole of it needs, the 0 included.
///
/// # Safety
/// `buffer` is valid for writing `size` bytes, or `size` is 0; `needed` is NULL or valid for
/// writing.
unsafe fn copy_text(text: &str, buffer: *mut c_char, size: usize, needed: *mut usize) {
    if size > 0 {
        let count = text.floor_char_boundary(size - 1);
        // SAFETY: `count < size` bytes are the caller's to write; `text` is ours, so the two do not
        // overlap.
        unsafe { text.as_ptr().cast::<c_char>().copy_to_nonoverlapping(buffer, count) };
        // SAFETY: `count < size`, so the byte after the text is the caller's too.
        unsafe { buffer.add(count).write(0) };
    }
    // SAFETY: by the function's contract.
    unsafe { write_if_wanted(needed, text.len() as u64 + 1) };
}

/// Tells the caller a text, as [`copy_text`] does; a buffer that is NULL and yet has bytes is refused
/// before the text is made.
///
/// # Safety
/// As [`copy_text`].
pub(super) unsafe fn tell(
    buffer: *mut c_char,
    size: usize,
    needed: *mut usize,
    text: impl FnOnce() -> Result<String, Error>,
) -> Result<(), Error> {
    buffer_given(buffer, size)?;
    // SAFETY: by the function's contract.
    unsafe { copy_text(&text()?, buffer, size, needed) };
    Ok(())
}

/// A `#[repr(C)]` struct of plain numbers and pointers whose first field is `struct_size: u64`.
///
/// # Safety
/// That is so, and every bit pattern is a value of it.
pub(super) unsafe trait Growing: Copy {
    /// The struct's name in the header.
    const NAME: &'static str;
}

/// The bytes that the caller's struct has, by its first field.
///
/// # Safety
/// `pointer` is valid for reading a `u64`.
unsafe fn size_given<T: Growing>(
    pointer: *const T,
    argument: &'static str,
) -> Result<usize, Error> {
    given(pointer, argument)?;
    // SAFETY: not NULL; the first field is a u64 by the contract of `Growing`.
    let size = unsafe { pointer.cast::<u64>().read() };
    match usize::try_from(size) {
        // No header declares a struct without a field behind the size, or one of more than a page:
        // that is a struct_size which was never set.
        Ok(size) if (2 * size_of::<u64>()..=4096).contains(&size) => Ok(size),
        _ => Err(invalid(
            argument,
            format_args!(
                "its struct_size is {size}; set it to sizeof({}) before the call",
                T::NAME
            ),
        )),
    }
}

/// Fills the caller's struct as far as both sides know it; `struct_size` becomes the bytes filled.
///
/// # Safety
/// `to` is NULL, or valid for reading its `struct_size` and for writing that many bytes.
pub(super) unsafe fn fill<T: Growing>(
    to: *mut T,
    argument: &'static str,
    fresh: impl FnOnce() -> Result<T, Error>,
) -> Result<(), Error> {
    // SAFETY: NULL is refused there, else by the function's contract.
    let size = unsafe { size_given(to, argument) }?.min(size_of::<T>());
    let fresh = fresh()?;
    // SAFETY: the caller's struct has at least `size` bytes, `fresh` too, and it is ours.
    unsafe { (&raw const fresh).cast::<u8>().copy_to_nonoverlapping(to.cast(), size) };
    // SAFETY: the first field is a u64 by the contract of `Growing`.
    unsafe { to.cast::<u64>().write(size as u64) };
    Ok(())
}

/// Reads the caller's struct; fields that it does not have are taken from `absent`, and what it has
/// beyond the fields known here must be 0: a request that is not understood is not half obeyed.
///
/// # Safety
/// `from` is NULL, or valid for reading its `struct_size` and that many bytes.
pub(super) unsafe fn read<T: Growing>(
    from: *const T,
    argument: &'static str,
    absent: T,
) -> Result<T, Error> {
    // SAFETY: NULL is refused there, else by the function's contract.
    let size = unsafe { size_given(from, argument) }?;
    for beyond in size_of::<T>()..size {
        // SAFETY: the caller's struct has `size` bytes, and `beyond` is below.
        if unsafe { from.cast::<u8>().add(beyond).read() } != 0 {
            return Err(invalid(
                argument,
                format_args!(
                    "its byte {beyond} is set, but this version of Cuddy knows the first {} bytes \
                     of {} only; is struct_size right?",
                    size_of::<T>(),
                    T::NAME
                ),
            ));
        }
    }
    let mut value = absent;
    let known = size.min(size_of::<T>());
    // SAFETY: both have `known` bytes, `value` is ours, and any bytes make a value by the contract
    // of `Growing`.
    unsafe { from.cast::<u8>().copy_to_nonoverlapping((&raw mut value).cast(), known) };
    Ok(value)
}
