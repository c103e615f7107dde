//! The program's side of the device: streams and their lives, the order that the program makes, and
//! patterns that kernels write to memory and compare.
//!
//! Of every stream that ended, an event that was recorded at its end is kept: what comes after it can
//! still be ordered after it.

use std::ffi::c_void;

use crate::host::Hosts;
use crate::machine::{MIB, Machine};

/// A stream's number in this program; handles come back, numbers do not.
pub type Sid = usize;

/// A stream of the program.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    pub handle: usize,
    /// The only thread that can use it: it is this one's default stream.
    pub thread: Option<usize>,
    pub built_in: bool,
    /// It takes turns with the legacy stream.
    pub blocking: bool,
    /// Opened, and not retired.
    pub held: bool,
    pub alive: bool,
    /// Its work is captured at the moment.
    pub captured: bool,
    /// Recorded at its end.
    last: usize,
}

/// Words for the counters of comparisons.
const COUNTERS: u64 = 65536;

pub struct World {
    pub machine: &'static Machine,
    pub hosts: Hosts,
    /// The thread whose turn it is.
    pub turn: usize,
    pub streams: Vec<Stream>,
    kernels: [usize; 2],
    counters: u64,
    /// What was compared since the counters were looked at.
    compared: Vec<String>,
    pub comparisons: u64,
}

/// Makes a context current on the calling thread.
fn enter(context: usize) {
    Machine::new().set_context(context);
}

impl World {
    /// So many host threads.
    pub fn new(machine: &'static Machine, threads: usize) -> Self {
        let hosts = Hosts::new(threads, enter, machine.context());
        let mut world = Self {
            machine,
            hosts,
            turn: 0,
            streams: Vec::new(),
            kernels: [0; 2],
            counters: 0,
            compared: Vec::new(),
            comparisons: 0,
        };
        world.begin();
        world
    }

    /// What a context that was just made needs.
    fn begin(&mut self) {
        let machine = self.machine;
        let mut module = 0usize;
        let to = &mut module;
        let image = c"image".as_ptr() as usize;
        assert_eq!(cu!(machine, "cuModuleLoadData"(to => *mut usize, image => usize)), 0);
        let names = [c"cuddy_pattern_write", c"cuddy_pattern_check"];
        self.kernels = names.map(|name| {
            let mut function = 0usize;
            let (to, name) = (&mut function, name.as_ptr() as usize);
            let code = cu!(machine, "cuModuleGetFunction"(
                to => *mut usize, module => usize, name => usize
            ));
            assert_eq!(code, 0);
            function
        });
        let (to, bytes) = (&mut self.counters, (COUNTERS * 8) as usize);
        assert_eq!(cu!(machine, "cuMemAlloc_v2"(to => *mut u64, bytes => usize)), 0);
        self.clear_counters();
    }

    fn clear_counters(&mut self) {
        let zeros = vec![0u8; (COUNTERS * 8) as usize];
        self.machine.sim.poke(self.counters, &zeros).expect("it is mapped");
        self.compared.clear();
    }

    /// Adds a stream that is there without being made: a default one.
    pub fn built_in(&mut self, handle: usize, thread: Option<usize>) -> Sid {
        self.add(handle, thread, (true, true))
    }

    fn add(
        &mut self,
        handle: usize,
        thread: Option<usize>,
        (built_in, blocking): (bool, bool),
    ) -> Sid {
        self.streams.push(Stream {
            handle,
            thread,
            built_in,
            blocking,
            held: false,
            alive: true,
            captured: false,
            last: 0,
        });
        self.streams.len() - 1
    }

    /// A new stream; one that is `blocking` takes turns with the legacy one.
    pub fn create(&mut self, blocking: bool) -> Sid {
        let (machine, mut handle) = (self.machine, 0usize);
        let (to, flags) = (&mut handle, u32::from(!blocking));
        assert_eq!(cu!(machine, "cuStreamCreate"(to => *mut usize, flags => u32)), 0);
        self.add(handle, None, (false, blocking))
    }

    /// Records the stream's end; its thread, or the program, ends it after that.
    pub fn note_end(&mut self, stream: Sid) {
        let last = self.record(stream);
        let stream = &mut self.streams[stream];
        stream.last = last;
        stream.alive = false;
    }

    /// Destroys a stream whose work may be under way.
    pub fn destroy(&mut self, stream: Sid) {
        self.note_end(stream);
        self.machine.destroy_stream(self.streams[stream].handle);
    }

    /// The streams that can be given work now.
    pub fn usable(&self) -> impl Iterator<Item = Sid> + '_ {
        let usable = |stream: &(Sid, &Stream)| stream.1.alive && !stream.1.captured;
        self.streams.iter().enumerate().filter(usable).map(|(sid, _)| sid)
    }

    pub fn is_usable(&self, stream: Sid) -> bool {
        self.streams[stream].alive && !self.streams[stream].captured
    }

    /// The thread that uses the stream.
    pub fn thread_of(&self, stream: Sid) -> usize {
        self.streams[stream].thread.unwrap_or(self.turn)
    }

    pub fn handle(&self, stream: Sid) -> usize {
        self.streams[stream].handle
    }

    /// An event that was recorded on a stream.
    pub fn record(&self, stream: Sid) -> usize {
        let (machine, handle) = (self.machine, self.handle(stream));
        self.hosts.on(self.thread_of(stream), move || machine.event(handle))
    }

    /// What `second` is given from now on comes after what `first` has been given.
    pub fn order(&self, first: Sid, second: Sid) {
        if first == second {
            return;
        }
        let kept = self.streams[first].last;
        let event = if kept != 0 { kept } else { self.record(first) };
        self.wait_event(second, event);
        if kept == 0 {
            self.machine.destroy_event(event);
        }
    }

    /// What the stream is given from now on comes after the event.
    pub fn wait_event(&self, stream: Sid, event: usize) {
        let (machine, handle) = (self.machine, self.handle(stream));
        self.hosts.on(self.thread_of(stream), move || {
            let code = cu!(machine, "cuStreamWaitEvent"(
                handle => usize, event => usize, 0 => u32
            ));
            assert_eq!(code, 0);
        });
    }

    fn launch(&self, kernel: usize, stream: Sid, values: Vec<u64>) {
        let (machine, handle) = (self.machine, self.handle(stream));
        let function = self.kernels[kernel];
        let code = self.hosts.on(self.thread_of(stream), move || {
            let parameters: Vec<usize> =
                values.iter().map(|value| &raw const *value as usize).collect();
            let parameters = parameters.as_ptr() as usize;
            cu!(machine, "cuLaunchKernel"(
                function => usize, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32,
                0 => u32, handle => usize, parameters => usize, 0 => usize
            ))
        });
        assert_eq!(code, 0, "a launch on stream {stream}");
    }

    /// Fills memory with a seed's pattern.
    pub fn write(&self, stream: Sid, at: u64, bytes: u64, seed: u64) {
        self.launch(0, stream, vec![at, bytes, stride(bytes), seed]);
    }

    /// Compares memory with a seed's pattern; what was wrong is said at the next look.
    pub fn compare(&mut self, stream: Sid, at: u64, bytes: u64, seed: u64, what: String) {
        assert!((self.compared.len() as u64) < COUNTERS, "a program that compares so much");
        let counter = self.counters + self.compared.len() as u64 * 8;
        self.launch(1, stream, vec![at, bytes, stride(bytes), seed, counter]);
        self.compared.push(what);
        self.comparisons += 1;
    }

    /// Waits for everything, and says what was found wrong.
    pub fn look(&mut self) {
        self.machine.synchronize_all();
        let mut words = vec![0u8; (COUNTERS * 8) as usize];
        self.machine.sim.peek(self.counters, &mut words).expect("it is mapped");
        for (at, word) in words.chunks(8).enumerate() {
            let what = self.compared.get(at).map_or("of a graph", String::as_str);
            assert!(word.iter().all(|&byte| byte == 0), "memory was overwritten: {what}");
        }
    }

    /// Begins a capture, by the thread whose turn it is.
    pub fn begin_capture(&mut self, stream: Sid, mode: i32) {
        let (machine, handle) = (self.machine, self.handle(stream));
        self.hosts.on(self.turn, move || machine.begin_capture_in(handle, mode));
    }

    /// Ends it, by the thread that began it: nothing may have spoilt it. What can be launched.
    pub fn end_capture(&mut self, stream: Sid, thread: usize) -> usize {
        let (machine, handle) = (self.machine, self.handle(stream));
        self.hosts.on(thread, move || machine.instantiate_capture(handle))
    }

    pub fn launch_graph(&self, launchable: usize, stream: Sid) {
        let (machine, handle) = (self.machine, self.handle(stream));
        self.hosts.on(self.thread_of(stream), move || machine.launch(launchable, handle));
    }

    /// Nobody launches it any more; what was launched goes on.
    pub fn destroy_launchable(&self, launchable: usize) {
        self.machine.destroy_launchable(launchable);
    }

    pub fn synchronize(&self, stream: Sid) {
        let (machine, handle) = (self.machine, self.handle(stream));
        self.hosts.on(self.thread_of(stream), move || machine.synchronize(handle));
    }

    /// The program made a new context: everything of the old one is gone.
    pub fn start_anew(&mut self) {
        let context = self.machine.use_device(0);
        for thread in 1..self.hosts.count() {
            self.hosts.on(thread, move || enter(context));
        }
        for stream in &mut self.streams {
            stream.alive &= stream.built_in;
            stream.captured = false;
            stream.last = 0;
        }
        self.compared.clear();
        self.begin();
    }

    /// What the program itself holds on the device, in bytes.
    pub const OWN_BYTES: u64 = COUNTERS * 8;
}

/// Some 32 words of a block are looked at; all of a small one.
fn stride(bytes: u64) -> u64 {
    (bytes / 32).max(8)
}

const _: () = assert!(World::OWN_BYTES <= MIB);
