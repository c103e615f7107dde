//! **Another process**: this test program once more, which does what it is told line by line.
//!
//! A test file that uses it has an ignored test named [`ENTRY`], which calls [`serve`] with the
//! commands that it knows.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The ignored test that is the other process.
pub const ENTRY: &str = "the_other_process";
/// Answers begin with it: the test harness writes lines of its own.
const MARK: &str = ">> ";

/// The other process; killed when dropped.
pub struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    /// Starts it, with these variables in its environment.
    pub fn start(variables: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("a test has a path");
        let mut child = Command::new(program)
            .args([ENTRY, "--exact", "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let to = child.stdin.take().expect("a pipe");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, to, from }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it to do something, and does not wait for the answer.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.to, "{command}").expect("the other process listens");
    }

    /// The answer to what it was told: numbers.
    pub fn answer(&mut self) -> Vec<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.from.read_line(&mut line).expect("the other process speaks UTF-8");
            assert_ne!(read, 0, "the other process ended without an answer");
            if let Some((_, answer)) = line.split_once(MARK) {
                let words = answer.split_whitespace();
                return words.map(|word| word.parse().expect("a number")).collect();
            }
        }
    }

    /// Tells it to do something; the answer.
    pub fn ask(&mut self, command: &str) -> Vec<u64> {
        self.tell(command);
        self.answer()
    }

    /// Asks for something that answers one number.
    pub fn number(&mut self, command: &str) -> u64 {
        self.ask(command)[0]
    }

    /// Kills it and waits for its end.
    pub fn kill(mut self) {
        self.child.kill().expect("our own child");
        self.child.wait().expect("our own child");
    }

    /// Kills it, and leaves the dead process to be waited for later.
    pub fn kill_only(&mut self) {
        self.child.kill().expect("our own child");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process's side: a line is a command and its numbers; until the first process is done
/// with it.
pub fn serve(mut act: impl FnMut(&str, &[u64]) -> Vec<u64>) {
    // A wait for ever fails the test: nobody waits for a process that has ended.
    // SAFETY: the alarm ends this process, which is what it is for.
    unsafe { libc::alarm(60) };
    for line in std::io::stdin().lines() {
        let line = line.expect("UTF-8");
        let mut words = line.split_whitespace();
        let command = words.next().expect("a command");
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        let answer = act(command, &numbers);
        let words: Vec<_> = answer.iter().map(u64::to_string).collect();
        println!("{MARK}{}", words.join(" "));
    }
}

/// Numbers as words.
pub fn words(numbers: &[u64]) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}
