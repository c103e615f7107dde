//! Reads gputrace 1: one event a line, in words parted by single spaces.
//!
//! `a ID BYTES STREAM`, `f ID STREAM`, `r ID STREAM`, `s A B`, `y`, `e`, `m LABEL`; header lines
//! begin with `#`, the first is `# gputrace 1`.

use std::io::BufRead;

use super::text::{Lines, word};
use super::{Builder, Trace, TraceError};

/// How the first line of every version begins.
pub const MAGIC: &[u8] = b"# gputrace ";

/// Reads a whole trace.
pub fn read(from: impl BufRead, file_name: &str) -> Result<Trace, TraceError> {
    let mut lines = Lines::new(from);
    let mut builder = Builder::new(file_name);
    match lines.next()? {
        Some((_, "# gputrace 1")) => {}
        Some((_, line)) => {
            let reason = format!("expected `# gputrace 1`, found `{}`", shortened(line));
            return Err(TraceError::line(1, reason));
        }
        None => return Err(TraceError::whole("the file is empty")),
    }
    let mut in_header = true;
    while let Some((number, line)) = lines.next()? {
        let outcome = match line.strip_prefix('#') {
            Some(_) if !in_header => Err("a header line after the first event".to_owned()),
            Some(header) => header_line(header, &mut builder),
            None if line.is_empty() => continue,
            None => {
                in_header = false;
                event_line(number, line, &mut builder)
            }
        };
        outcome.map_err(|reason| TraceError::line(number.into(), reason))?;
    }
    Ok(builder.finish())
}

fn header_line(header: &str, builder: &mut Builder) -> Result<(), String> {
    if let Some((key, value)) = header.trim_start().split_once(": ")
        && key == "name"
        && !value.trim().is_empty()
    {
        builder.rename(value.trim());
    }
    Ok(())
}

fn event_line(number: u32, line: &str, builder: &mut Builder) -> Result<(), String> {
    let mut rest = line;
    let kind = word(&mut rest).unwrap_or("");
    match kind {
        "a" => {
            let id = integer(&mut rest, "ID")?;
            let bytes = integer(&mut rest, "BYTES")?;
            let stream = integer(&mut rest, "STREAM")?;
            end(rest)?;
            builder.alloc(number, id, bytes, stream)
        }
        "f" => {
            let id = integer(&mut rest, "ID")?;
            let stream = integer(&mut rest, "STREAM")?;
            end(rest)?;
            builder.free(number, id, stream)
        }
        "r" => {
            let id = integer(&mut rest, "ID")?;
            let stream = match rest {
                "-1" => None,
                _ => {
                    let stream = integer(&mut rest, "STREAM")?;
                    end(rest)?;
                    Some(stream)
                }
            };
            builder.record(number, id, stream)
        }
        "s" => {
            let waiter = integer(&mut rest, "A")?;
            let awaited = integer(&mut rest, "B")?;
            end(rest)?;
            builder.wait(number, waiter, awaited)
        }
        "y" => end(rest).and_then(|()| builder.synchronize(number)),
        "e" => end(rest).and_then(|()| builder.empty_cache(number)),
        "m" if rest.is_empty() || rest.contains(' ') => {
            Err("`m` takes one label without spaces".to_owned())
        }
        "m" => builder.marker(number, rest),
        _ => Err(format!(
            "unknown event `{}`: an event is one of a, f, r, s, y, e, m",
            shortened(line)
        )),
    }
}

/// The next word as a number.
fn integer(rest: &mut &str, what: &str) -> Result<u64, String> {
    let word = word(rest).ok_or_else(|| format!("{what} is missing"))?;
    // parse() alone would take a plus sign, which no writer makes.
    if !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{what} is not a number: `{}`", shortened(word)));
    }
    word.parse().map_err(|_| format!("{what} is not a number below 2^64: `{}`", shortened(word)))
}

fn end(rest: &str) -> Result<(), String> {
    match rest {
        "" => Ok(()),
        _ => Err(format!("more words than the event takes: `{}`", shortened(rest))),
    }
}

/// At most 40 characters of it, so that a message stays a line.
fn shortened(text: &str) -> String {
    let mut short: String =
        text.chars().take(40).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(40).is_some() {
        short.push_str("...");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::*;

    fn parse(body: &str) -> Result<Trace, TraceError> {
        read(format!("# gputrace 1\n{body}").as_bytes(), "file")
    }

    #[test]
    fn the_example_of_the_format() {
        let text = "# name: tiny\n# kind: synthetic\n# unknown: key: with: colons\nm step_0\n\
                    a 0 1048576 1\ns 0 1\nr 0 0\na 1 4096 0\nf 0 1\na 2 2097152 1\ny\nf 2 1\nr 1 -1\ne\n";
        let trace = parse(text).expect("is well formed");
        assert_eq!(trace.name, "tiny");
        assert_eq!(trace.labels, ["step_0"]);
        assert_eq!(trace.events.len(), 11);
        assert_eq!(trace.events[1], Event::Alloc { slot: 0, stream: 1, bytes: 1048576 });
        assert_eq!(trace.events[2], Event::Wait { waiter: 0, awaited: 1 });
        assert_eq!(trace.events[9], Event::Record { slot: 1, stream: None });
        assert_eq!(trace.lines[1], 6);
        assert_eq!((trace.streams, trace.slots), (2, 2));
    }

    #[test]
    fn bad_lines_are_named() {
        for (body, line, reason) in [
            ("a 0 0 0\n", 2, "0 bytes"),
            ("a 0 1 0\na 0 1 0\n", 3, "still live"),
            ("f 3 0\n", 2, "not live"),
            ("r 3 0\n", 2, "not live"),
            ("a 0 1\n", 2, "STREAM is missing"),
            ("a 0 1 0 9\n", 2, "more words"),
            ("a 0  1 0\n", 2, "BYTES is not a number"),
            ("a -1 1 0\n", 2, "ID is not a number"),
            ("a 0 +1 0\n", 2, "BYTES is not a number"),
            ("a 0 99999999999999999999 0\n", 2, "below 2^64"),
            ("a 0 1 -1\n", 2, "STREAM is not a number"),
            ("x 1\n", 2, "unknown event"),
            ("y 1\n", 2, "more words"),
            ("m two words\n", 2, "without spaces"),
            ("m\n", 2, "one label"),
            ("y\n# late: header\n", 3, "header line after"),
        ] {
            let error = parse(body).expect_err(body);
            assert_eq!(error.place, format!("line {line}"), "{body}");
            assert!(error.reason.contains(reason), "{body}: {error}");
        }
        assert!(read(&b"# gputrace 2\n"[..], "f").is_err());
        assert!(read(&b""[..], "f").is_err_and(|error| error.reason.contains("empty")));
    }

    #[test]
    fn steps_say_where_the_steady_state_begins() {
        let trace = parse("m init\nm step_0\nm step_1\ny\nm step_2\ny\n").expect("well formed");
        assert_eq!(trace.steady_state_from(), Some(4));
        let trace = parse("m forward\nm forward\nm forward\n").expect("well formed");
        assert_eq!(trace.steady_state_from(), Some(2));
        assert_eq!(parse("m step_0\nm step_1\n").expect("well formed").steady_state_from(), None);
    }
}
