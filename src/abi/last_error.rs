//! The last failure's sentence, one a thread, in a buffer of fixed size: to tell about an error
//! must not allocate, least of all when the error is that memory ran out.
//!
//! `bytes[length] == 0` and no byte before it is 0, at every moment that C can look.

use std::cell::UnsafeCell;
use std::ffi::c_char;
use std::fmt::{self, Write};

/// Room for the longest explanation of an out-of-memory error, in bytes.
const ROOM: usize = 4096;

struct Message {
    bytes: [u8; ROOM],
    length: usize,
}

thread_local! {
    // No destructor: the text can be set and read even while the thread ends.
    static MESSAGE: UnsafeCell<Message> =
        const { UnsafeCell::new(Message { bytes: [0; ROOM], length: 0 }) };
}

impl Write for Message {
    /// Appends what fits; the rest is cut off at a character's edge.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = ROOM - 1 - self.length;
        let taken = text.floor_char_boundary(room);
        for (to, &from) in self.bytes[self.length..].iter_mut().zip(&text.as_bytes()[..taken]) {
            *to = if from == 0 { b'?' } else { from };
        }
        self.length += taken;
        self.bytes[self.length] = 0;
        if taken < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// Makes `text` this thread's last error.
pub(super) fn set(text: fmt::Arguments<'_>) {
    MESSAGE.with(|message| {
        // SAFETY: the cell is this thread's own, and no other reference to its content exists: the
        // only other function here returns a pointer, and formatting an error calls neither.
        let message = unsafe { &mut *message.get() };
        message.length = 0;
        message.bytes[0] = 0;
        // An error only says that the text was cut.
        let _ = message.write_fmt(text);
    });
}

/// This thread's last error; the text changes with the thread's next failure.
pub(super) fn pointer() -> *const c_char {
    MESSAGE.with(|message| {
        // SAFETY: the cell is valid for as long as the thread; no reference is made, only a pointer
        // to the first byte.
        unsafe { (&raw const (*message.get()).bytes).cast() }
    })
}

/// A copy of this thread's last error.
#[cfg(test)]
pub(super) fn copied() -> String {
    // SAFETY: the text ends with 0 within the buffer, which outlives this call.
    unsafe { std::ffi::CStr::from_ptr(pointer()) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{ROOM, copied as get, set};

    #[test]
    fn the_text_is_whole_or_cut_at_a_character() {
        set(format_args!("short {}", 1));
        assert_eq!(get(), "short 1");
        set(format_args!("{}{}", "x".repeat(ROOM - 2), "éé"));
        assert_eq!(get(), "x".repeat(ROOM - 2));
        set(format_args!("{}é!", "x".repeat(ROOM - 3)));
        assert_eq!(get(), format!("{}é", "x".repeat(ROOM - 3)));
        set(format_args!("a\0b"));
        assert_eq!(get(), "a?b");
        set(format_args!(""));
        assert_eq!(get(), "");
    }

    #[test]
    fn each_thread_has_its_own() {
        set(format_args!("mine"));
        std::thread::spawn(|| {
            assert_eq!(get(), "");
            set(format_args!("theirs"));
        })
        .join()
        .expect("the thread's assertion holds");
        assert_eq!(get(), "mine");
    }
}
