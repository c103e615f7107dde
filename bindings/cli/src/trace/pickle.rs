//! Plain data out of a pickle, and nothing but plain data.
//!
//! A pickle is a program for a small stack machine. This one knows the opcodes that build numbers,
//! strings, lists, tuples and dictionaries; every opcode that would import, call or look up
//! anything is refused by name. Values live in one arena and refer to each other by number, so no
//! input, however nested or cyclic, makes the reader recurse; its memory is bounded by the number
//! of opcodes and by [`MOST_VALUES`].

use std::collections::HashMap;
use std::ops::Range;

use super::TraceError;

/// Values in one pickle at most.
const MOST_VALUES: usize = 1 << 26;

/// Marks open at once at most: how deep containers nest while they are being built.
const DEEPEST: usize = 1000;

/// A value's number in its [`Pickle`].
pub type Id = u32;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `None`
    None,
    /// `True` or `False`
    Bool(bool),
    /// An integer that fits in 64 bits.
    Int(i64),
    /// A number or bytes object that nothing here asks for.
    Opaque,
    /// A string: this range of the input.
    Text(Range<usize>),
    /// A list, tuple or set.
    List(Vec<Id>),
    /// A dictionary, in order.
    Dict(Vec<(Id, Id)>),
}

/// A pickle, read.
#[derive(Debug)]
pub struct Pickle<'a> {
    input: &'a [u8],
    values: Vec<Value>,
    root: Id,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle of protocol 2 to 5.
    pub fn read(input: &'a [u8]) -> Result<Self, TraceError> {
        let mut machine = Machine { input, ..Machine::default() };
        let root = machine.run().map_err(|reason| TraceError {
            place: format!("byte {}", machine.opcode_at),
            reason,
        })?;
        Ok(Self { input, values: machine.values, root })
    }

    /// The outermost value.
    pub fn root(&self) -> Id {
        self.root
    }

    /// The value of that number.
    pub fn value(&self, id: Id) -> &Value {
        &self.values[id as usize]
    }

    /// The string, if it is one.
    pub fn text(&self, id: Id) -> Option<&'a str> {
        match self.value(id) {
            Value::Text(range) => std::str::from_utf8(&self.input[range.clone()]).ok(),
            _ => None,
        }
    }

    /// The integer, if it is one.
    pub fn integer(&self, id: Id) -> Option<i64> {
        match *self.value(id) {
            Value::Int(number) => Some(number),
            _ => None,
        }
    }

    /// The elements, if it is a list or tuple.
    pub fn list(&self, id: Id) -> Option<&[Id]> {
        match self.value(id) {
            Value::List(elements) => Some(elements),
            _ => None,
        }
    }

    /// The last value under that key, if it is a dictionary with that key.
    pub fn get(&self, id: Id, key: &str) -> Option<Id> {
        let Value::Dict(entries) = self.value(id) else { return None };
        let is_key = |&&(name, _): &&(Id, Id)| self.text(name) == Some(key);
        entries.iter().rev().find(is_key).map(|&(_, value)| value)
    }
}

#[derive(Default)]
struct Machine<'a> {
    input: &'a [u8],
    at: usize,
    opcode_at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

impl Machine<'_> {
    fn run(&mut self) -> Result<Id, String> {
        loop {
            self.opcode_at = self.at;
            let opcode = self.byte()?;
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode)?;
        }
    }

    fn step(&mut self, opcode: u8) -> Result<(), String> {
        match opcode {
            0x80 => self.protocol(),
            0x95 => self.skip(8),
            b'(' => self.mark(),
            b'0' => self.pop_or_mark(),
            b'1' => self.since_mark().map(drop),
            b'2' => self.duplicate(),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' => self.integer(4, true),
            b'K' => self.integer(1, false),
            b'M' => self.integer(2, false),
            0x8a => self.long(1),
            0x8b => self.long(4),
            b'G' => self.skip(8).and_then(|()| self.push(Value::Opaque)),
            b'X' => self.string(4),
            0x8c => self.string(1),
            0x8d => self.string(8),
            b'B' => self.bytes(4),
            b'C' => self.bytes(1),
            0x8e | 0x96 => self.bytes(8),
            b']' | b')' | 0x8f => self.push(Value::List(Vec::new())),
            b'}' => self.push(Value::Dict(Vec::new())),
            b'l' | b't' | 0x91 => self.collect(),
            b'd' => self.collect_dict(),
            0x85 => self.tuple(1),
            0x86 => self.tuple(2),
            0x87 => self.tuple(3),
            b'a' => self.append(),
            b'e' | 0x90 => self.append_many(),
            b's' => self.set_item(),
            b'u' => self.set_items(),
            b'q' => self.put(1),
            b'r' => self.put(4),
            0x94 => self.memoize(),
            b'h' => self.recall(1),
            b'j' => self.recall(4),
            _ => Err(self.refusal(opcode)),
        }
    }

    /// Why an opcode that is not among the plain ones is not followed.
    fn refusal(&self, opcode: u8) -> String {
        let named = |text: &[u8]| String::from_utf8_lossy(&text[..text.len().min(60)]).into_owned();
        let what = match opcode {
            b'c' | b'i' => {
                let mut lines = self.input[self.at..].split(|&byte| byte == b'\n');
                let module = named(lines.next().unwrap_or_default());
                let name = named(lines.next().unwrap_or_default());
                format!("it asks to import `{module}.{name}`")
            }
            0x93 => {
                let text = |depth: usize| {
                    let id = self.stack.len().checked_sub(depth).map(|at| self.stack[at])?;
                    match &self.values[id as usize] {
                        Value::Text(range) => Some(named(&self.input[range.clone()])),
                        _ => None,
                    }
                };
                let unknown = || "?".to_owned();
                let (module, name) =
                    (text(2).unwrap_or_else(unknown), text(1).unwrap_or_else(unknown));
                format!("it asks to import `{module}.{name}`")
            }
            b'R' | b'b' | b'o' | 0x81 | 0x92 => "it asks to call or build an object".to_owned(),
            b'P' | b'Q' => "it refers to an object outside itself".to_owned(),
            0x82..=0x84 => "it uses an extension registry".to_owned(),
            0x97 | 0x98 => "it refers to a buffer outside itself".to_owned(),
            _ => {
                return format!(
                    "opcode 0x{opcode:02x} is not one of a plain pickle of protocol 2 to 5"
                );
            }
        };
        format!("refused: {what}; a memory snapshot holds plain data only, and nothing else is run")
    }

    fn protocol(&mut self) -> Result<(), String> {
        match self.byte()? {
            2..=5 => Ok(()),
            other => Err(format!("pickle protocol {other} is not supported: 2 to 5 are")),
        }
    }

    fn take(&mut self, bytes: u64) -> Result<Range<usize>, String> {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        match end {
            Some(end) if end <= self.input.len() => {
                let range = self.at..end;
                self.at = end;
                Ok(range)
            }
            _ => Err("the pickle ends too early: it is truncated".to_owned()),
        }
    }

    fn skip(&mut self, bytes: u64) -> Result<(), String> {
        self.take(bytes).map(drop)
    }

    fn byte(&mut self) -> Result<u8, String> {
        let range = self.take(1)?;
        Ok(self.input[range.start])
    }

    /// A little-endian number of up to eight bytes.
    fn unsigned(&mut self, bytes: u64) -> Result<u64, String> {
        let range = self.take(bytes)?;
        Ok(self.input[range].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        if self.values.len() == MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} values"));
        }
        self.stack.push(self.values.len() as Id);
        self.values.push(value);
        Ok(())
    }

    /// The least stack that must stay: what lies below the innermost mark is out of reach.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Id, String> {
        if self.stack.len() <= self.floor() {
            return Err("the stack is empty: the pickle is damaged".to_owned());
        }
        self.stack.pop().ok_or_else(|| "the stack is empty: the pickle is damaged".to_owned())
    }

    fn top(&mut self) -> Result<Id, String> {
        let id = self.pop()?;
        self.stack.push(id);
        Ok(id)
    }

    fn mark(&mut self) -> Result<(), String> {
        if self.marks.len() == DEEPEST {
            return Err(format!("nested deeper than {DEEPEST}"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn since_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("no mark on the stack: the pickle is damaged")?;
        Ok(self.stack.split_off(mark))
    }

    fn pop_or_mark(&mut self) -> Result<(), String> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn duplicate(&mut self) -> Result<(), String> {
        let id = self.top()?;
        self.stack.push(id);
        Ok(())
    }

    fn integer(&mut self, bytes: u64, signed: bool) -> Result<(), String> {
        let number = self.unsigned(bytes)?;
        let number = if signed { i64::from(number as u32 as i32) } else { number as i64 };
        self.push(Value::Int(number))
    }

    fn long(&mut self, length_bytes: u64) -> Result<(), String> {
        let length = self.unsigned(length_bytes)?;
        let range = self.take(length)?;
        let bytes = &self.input[range];
        let negative = bytes.last().is_some_and(|&byte| byte >= 0x80);
        let fill = if negative { 0xff } else { 0 };
        let (low, high) = bytes.split_at(bytes.len().min(8));
        let mut number = [fill; 8];
        number[..low.len()].copy_from_slice(low);
        let number = i64::from_le_bytes(number);
        let fits = high.iter().all(|&byte| byte == fill) && (number < 0) == negative;
        self.push(if fits { Value::Int(number) } else { Value::Opaque })
    }

    fn string(&mut self, length_bytes: u64) -> Result<(), String> {
        let length = self.unsigned(length_bytes)?;
        let range = self.take(length)?;
        self.push(Value::Text(range))
    }

    fn bytes(&mut self, length_bytes: u64) -> Result<(), String> {
        let length = self.unsigned(length_bytes)?;
        self.skip(length)?;
        self.push(Value::Opaque)
    }

    fn collect(&mut self) -> Result<(), String> {
        let elements = self.since_mark()?;
        self.push(Value::List(elements))
    }

    fn collect_dict(&mut self) -> Result<(), String> {
        let flat = self.since_mark()?;
        let entries = pairs(&flat)?;
        self.push(Value::Dict(entries))
    }

    fn tuple(&mut self, length: usize) -> Result<(), String> {
        let at = self.stack.len().checked_sub(length).filter(|&at| at >= self.floor());
        let at = at.ok_or("the stack is too short for a tuple: the pickle is damaged")?;
        let elements = self.stack.split_off(at);
        self.push(Value::List(elements))
    }

    fn append(&mut self) -> Result<(), String> {
        let element = self.pop()?;
        self.extend(&[element])
    }

    fn append_many(&mut self) -> Result<(), String> {
        let elements = self.since_mark()?;
        self.extend(&elements)
    }

    fn extend(&mut self, elements: &[Id]) -> Result<(), String> {
        let list = self.top()?;
        match &mut self.values[list as usize] {
            Value::List(list) => {
                list.extend_from_slice(elements);
                Ok(())
            }
            _ => Err("appends to what is not a list".to_owned()),
        }
    }

    fn set_item(&mut self) -> Result<(), String> {
        let value = self.pop()?;
        let key = self.pop()?;
        self.update(&[(key, value)])
    }

    fn set_items(&mut self) -> Result<(), String> {
        let flat = self.since_mark()?;
        self.update(&pairs(&flat)?)
    }

    fn update(&mut self, entries: &[(Id, Id)]) -> Result<(), String> {
        let dict = self.top()?;
        match &mut self.values[dict as usize] {
            Value::Dict(dict) => {
                dict.extend_from_slice(entries);
                Ok(())
            }
            _ => Err("sets an item of what is not a dictionary".to_owned()),
        }
    }

    fn put(&mut self, index_bytes: u64) -> Result<(), String> {
        let index = self.unsigned(index_bytes)?;
        let id = self.top()?;
        self.memo.insert(index, id);
        Ok(())
    }

    fn memoize(&mut self) -> Result<(), String> {
        let id = self.top()?;
        self.memo.insert(self.memo.len() as u64, id);
        Ok(())
    }

    fn recall(&mut self, index_bytes: u64) -> Result<(), String> {
        let index = self.unsigned(index_bytes)?;
        let id = self.memo.get(&index).ok_or_else(|| format!("memo {index} was never stored"))?;
        self.stack.push(*id);
        Ok(())
    }
}

fn pairs(flat: &[Id]) -> Result<Vec<(Id, Id)>, String> {
    if !flat.len().is_multiple_of(2) {
        return Err("a dictionary with a key and no value: the pickle is damaged".to_owned());
    }
    Ok(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{'a': [1, -2, 300, 70000, 2**40, None, True, 2.5], 'b': ('x', b'y')}`, protocol 4.
    const PLAIN: &[u8] = b"\x80\x04\x95\x3d\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01\
        J\x70\x11\x01\0\x8a\x06\0\0\0\0\0\x01N\x88G@\x04\0\0\0\0\0\0e\x8c\x01b\x94\x8c\x01x\x94C\x01y\x94\x86\x94u.";

    #[test]
    fn plain_data_is_read() {
        let pickle = Pickle::read(PLAIN).expect("is plain");
        let a = pickle.get(pickle.root(), "a").and_then(|id| pickle.list(id)).expect("a list");
        let numbers: Vec<_> = a.iter().map(|&id| pickle.integer(id)).collect();
        assert_eq!(numbers[..5], [Some(1), Some(-2), Some(300), Some(70000), Some(1 << 40)]);
        assert_eq!(*pickle.value(a[5]), Value::None);
        assert_eq!(*pickle.value(a[6]), Value::Bool(true));
        let b = pickle.get(pickle.root(), "b").and_then(|id| pickle.list(id)).expect("a tuple");
        assert_eq!(pickle.text(b[0]), Some("x"));
    }

    #[test]
    fn whatever_would_run_is_refused_by_name() {
        for (input, reason) in [
            (&b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R."[..], "import `os.system`"),
            (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "import `os.system`"),
            (b"\x80\x02(ios\nsystem\n.", "import `os.system`"),
            (b"\x80\x02\x93.", "import `?.?`"),
            (b"\x80\x02NNR.", "call or build"),
            (b"\x80\x02NNb.", "call or build"),
            (b"\x80\x02NN\x81.", "call or build"),
            (b"\x80\x02Ps\n.", "outside itself"),
            (b"\x80\x02\x82\x01.", "extension"),
            (b"\x80\x05\x97.", "buffer"),
            (b"I1\n.", "not one of a plain pickle"),
            (b"\x80\x01N.", "protocol 1"),
        ] {
            let error = Pickle::read(input).expect_err("must be refused");
            assert!(error.reason.contains(reason), "{error}");
        }
    }

    #[test]
    fn damage_is_an_error_and_cycles_are_harmless() {
        for input in [
            &b""[..],
            b"\x80",
            b"\x80\x04",
            b"\x80\x04.",
            b"\x80\x04(.",
            b"\x80\x04e.",
            b"\x80\x04h\x05.",
            b"\x80\x04Na.",
            b"\x80\x04}(Nu.",
            b"\x80\x04NNNs.",
            b"\x80\x04N\x87.",
            b"\x80\x04N(\x85.",
            b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
            b"\x80\x04X\xff\xff\xff\x7fabc.",
            b"\x80\x04(0N0.",
        ] {
            assert!(Pickle::read(input).is_err(), "{input:?}");
        }
        assert!(Pickle::read(b"\x80\x04]\x94h\0a.").is_ok(), "a list that holds itself");
        let deep = [&b"\x80\x04"[..], &[b'('; 100_000]].concat();
        assert!(Pickle::read(&deep).is_err_and(|error| error.reason.contains("deeper")));
        let lists = [&b"\x80\x04"[..], &b"]".repeat(100_000), &b"a".repeat(99_999), b"."].concat();
        assert!(Pickle::read(&lists).is_ok(), "depth costs no stack");
    }
}
