//! The **state**: one simulated machine, as one process sees it, behind one lock.
//!
//! Contexts own streams, events and allocations; physical VMM objects, reservations and mappings
//! belong to the process.

use crate::books::Books;
use crate::by_handle::ByHandle;
use crate::config::Config;
use crate::engine::capture::Captures;
use crate::engine::{ContextKey, Engine, EventKey, OpKey, StreamKey, StreamKind, ThreadKey};
use crate::faults::{Faults, Strike};
use crate::graphs::Graphs;
use crate::kernels::Kernels;
use crate::memory::Memory;
use crate::memory::table::Kind;
use crate::slots::Slots;
use crate::types::{Code, code};
use crate::work::Work;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A device's share of the state.
#[derive(Debug, Default)]
pub struct Device {
    /// Its number in the machine; the program may see the devices in another order.
    pub number: u32,
    /// How often the primary context is retained.
    pub retained: u32,
    /// The primary context's flags.
    pub flags: u32,
    /// Contexts created since the beginning.
    pub contexts_created: u64,
    /// The error of a context that work of this process spoilt there: later ones have it too.
    pub error: Option<Code>,
}

/// A live context.
#[derive(Debug)]
pub struct Context {
    /// Its key in the engine.
    pub key: ContextKey,
    /// Its device.
    pub device: u32,
    /// `CU_CTX_*`.
    pub flags: u32,
    /// Never given twice.
    pub id: u64,
    /// Whether it is its device's primary context.
    pub primary: bool,
    /// The legacy default stream: key and id.
    pub legacy: (StreamKey, u64),
    /// The per-thread default streams, by host thread.
    pub per_thread: HashMap<u64, (StreamKey, u64)>,
    /// The error that every call answers from now on.
    pub error: Option<Code>,
    /// `cuCtxSetLimit`.
    pub limits: BTreeMap<i32, u64>,
    /// `cuCtxSetCacheConfig`.
    pub cache_config: i32,
}

/// A created stream.
#[derive(Debug)]
pub struct Stream {
    /// Its key in the engine.
    pub key: StreamKey,
    /// Its context.
    pub context: u64,
    /// 1 = non-blocking.
    pub flags: u32,
    /// Its priority, clamped to the device's range.
    pub priority: i32,
    /// Never given twice.
    pub id: u64,
}

/// An event.
#[derive(Debug)]
pub struct Event {
    /// Its key in the engine.
    pub key: EventKey,
    /// Its context.
    pub context: u64,
    /// 1 = blocking sync, 2 = no timing, 4 = interprocess.
    pub flags: u32,
    /// Whether it was ever recorded.
    pub recorded: bool,
    /// Its place on a board, if other processes may have it too.
    pub shared: Option<crate::memory::ipc::SharedEvent>,
}

/// A loaded module.
#[derive(Debug)]
pub struct Module {
    /// Its context.
    pub context: u64,
    /// The functions asked for, by name.
    pub functions: HashMap<String, u64>,
}

/// A function of a module.
#[derive(Debug)]
pub struct Function {
    /// Its module.
    pub module: u64,
    /// Its context.
    pub context: u64,
    /// Its name, as C wants it.
    pub name: Box<std::ffi::CStr>,
    /// The attributes that were set.
    pub attributes: HashMap<i32, i32>,
    /// The library's kernel that it is, if it is one.
    pub kernel: Option<u64>,
}

/// A library: code that belongs to no context.
#[derive(Debug, Default)]
pub struct Library {
    /// The kernels asked for, by name.
    pub kernels: HashMap<String, u64>,
    /// Its modules, by context.
    pub modules: HashMap<u64, u64>,
}

/// A kernel of a library.
#[derive(Debug)]
pub struct LibraryKernel {
    /// Its library.
    pub library: u64,
    /// Its name, as C wants it.
    pub name: Box<std::ffi::CStr>,
    /// The attributes that were set, by device and number.
    pub attributes: HashMap<(u32, i32), i32>,
}

/// What is known of a host thread.
#[derive(Debug, Default)]
pub struct Thread {
    /// Its contexts, the current one last.
    pub stack: Vec<u64>,
    /// `cuThreadExchangeStreamCaptureMode`: 0 global, 1 thread local, 2 relaxed.
    pub capture_mode: i32,
    key: Option<ThreadKey>,
}

/// The nodes that the next node of a stream comes after, and the data of those edges.
#[derive(Debug, Default)]
pub struct Shown {
    /// Nodes.
    pub nodes: Box<[u64]>,
    /// `CUgraphEdgeData`, all zero.
    pub edges: Box<[u64]>,
}

/// Everything.
pub struct State {
    /// The machine asked for.
    pub config: Config,
    /// What `simcuda_configure` said.
    pub overrides: Vec<(String, String)>,
    /// Whether `cuInit` has been called.
    pub started: bool,
    /// Raised by every reset, so that work in flight from before is not taken for work of now.
    pub generation: u64,
    /// The devices.
    pub devices: Vec<Device>,
    /// Live contexts by handle.
    pub contexts: ByHandle<Context>,
    /// Created streams.
    pub streams: Slots<Stream>,
    /// Events.
    pub events: Slots<Event>,
    /// Modules.
    pub modules: Slots<Module>,
    /// Functions.
    pub functions: Slots<Function>,
    /// Streams that are being captured.
    pub captures: Captures,
    /// What `cuStreamGetCaptureInfo` shows, by stream: the driver's own arrays.
    pub shown: HashMap<StreamKey, Shown>,
    /// Graphs.
    pub graphs: Graphs,
    /// Libraries.
    pub libraries: Slots<Library>,
    /// Their kernels.
    pub library_kernels: Slots<LibraryKernel>,
    /// Memory.
    pub memory: Memory,
    /// Order and time.
    pub engine: Engine<Work>,
    /// Counts and costs.
    pub books: Books,
    /// Rules for failing.
    pub faults: Faults,
    /// What kernels use.
    pub kernels: Kernels,
    /// Work that runs on another thread.
    pub in_flight: HashSet<OpKey>,
    /// What the last control call complained of.
    pub complaint: String,
    threads: Vec<Thread>,
    next_id: u64,
    next_context: u64,
}

const PRIMARY: u64 = 0x5c80_0000_0000;
const CREATED: u64 = 0x5c90_0000_0000;

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// A driver that was not initialised.
    pub fn new() -> Self {
        Self {
            config: Config::default(),
            overrides: Vec::new(),
            started: false,
            generation: 0,
            devices: Vec::new(),
            contexts: ByHandle::default(),
            streams: Slots::new(1),
            events: Slots::new(2),
            modules: Slots::new(3),
            functions: Slots::new(4),
            captures: Captures::default(),
            shown: HashMap::new(),
            graphs: Graphs::default(),
            libraries: Slots::new(20),
            library_kernels: Slots::new(21),
            memory: Memory::empty(),
            engine: Engine::new(),
            books: Books::default(),
            faults: Faults::default(),
            kernels: Kernels::default(),
            in_flight: HashSet::new(),
            complaint: String::new(),
            threads: Vec::new(),
            next_id: 1,
            next_context: CREATED,
        }
    }

    /// `cuInit`, until it succeeds. Why it does not is the complaint, if there is more to say than
    /// the code.
    pub fn start(&mut self) -> Result<(), Code> {
        self.complaint = String::new();
        let invalid = |state: &mut Self, why: String| {
            state.complaint = why;
            code::INVALID_VALUE
        };
        let config = Config::load(&self.overrides).map_err(|why| invalid(self, why))?;
        if !std::mem::replace(&mut self.faults.begun, true) {
            for rule in crate::faults::parse(&config.faults).unwrap_or_default() {
                let added = self.faults.add(rule);
                added.map_err(|why| invalid(self, format!("SIMCUDA_FAULTS: {why}")))?;
            }
            // The rules for this very call came with it.
            if let Some(Strike::Before(code) | Strike::After(code)) = self.faults.on_call("cuInit")
            {
                return Err(code);
            }
        }
        if !config.kernels.is_empty() {
            let read = self.kernels.declare_file(&config.kernels);
            read.map_err(|why| {
                invalid(self, format!("SIMCUDA_KERNELS={}: {why}", config.kernels))
            })?;
        }
        let visible = config.visible_devices();
        let totals: Vec<_> = visible.iter().map(|d| config.memory_of(*d as usize)).collect();
        self.memory = Memory::new(&totals, config.granularity).map_err(|why| {
            self.complaint = format!("no address space for the simulated devices: {why}");
            code::OUT_OF_MEMORY
        })?;
        let device = |&number: &u32| Device { number, ..Device::default() };
        self.devices = visible.iter().map(device).collect();
        self.engine.set_schedule(config.schedule);
        self.engine.checker().set_mode(config.checker);
        self.config = config;
        self.started = true;
        Ok(())
    }

    /// Everything as before `cuInit`. Call sites keep their numbers in the books.
    pub fn reset(&mut self) {
        let mut books = std::mem::take(&mut self.books);
        books.reset();
        let generation = self.generation + 1;
        *self = Self { books, generation, ..Self::new() };
    }

    /// An id that nothing else has, had or will have.
    pub fn unique(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    /// The record of a host thread.
    #[inline]
    pub fn thread(&mut self, number: u64) -> &mut Thread {
        let index = number as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Thread::default);
        }
        &mut self.threads[index]
    }

    /// The engine's key of a host thread.
    #[inline]
    pub fn thread_key(&mut self, number: u64) -> ThreadKey {
        if let Some(key) = self.thread(number).key {
            return key;
        }
        let key = self.engine.thread(number);
        self.thread(number).key = Some(key);
        key
    }

    /// The handle that a device's primary context has whenever it is active.
    pub fn primary_handle(device: u32) -> u64 {
        PRIMARY + u64::from(device) * 0x1000
    }

    /// Creates a context and its legacy stream; answers its handle.
    pub fn create_context(
        &mut self,
        thread: ThreadKey,
        device: u32,
        flags: u32,
        primary: bool,
    ) -> u64 {
        let key = self.engine.create_context(device);
        let legacy = self.engine.create_stream(thread, key, StreamKind::Legacy, 0);
        let handle = if primary {
            Self::primary_handle(device)
        } else {
            self.next_context += 0x1000;
            self.next_context
        };
        let (id, legacy_id) = (self.unique(), self.unique());
        self.engine.number_stream(legacy, legacy_id);
        let context = Context {
            key,
            device,
            flags,
            id,
            primary,
            legacy: (legacy, legacy_id),
            per_thread: HashMap::new(),
            error: self.devices[device as usize].error,
            limits: BTreeMap::new(),
            cache_config: 0,
        };
        self.contexts.insert(handle, context);
        self.devices[device as usize].contexts_created += 1;
        handle
    }

    /// Ends a context whose work is done: its streams, events, modules and allocations go with it.
    pub fn destroy_context(&mut self, handle: u64) {
        let Some(context) = self.contexts.remove(&handle) else { return };
        for graph in self.captures.context_gone(handle) {
            self.graphs.remove(graph);
        }
        for mapping in self.memory.of_context(handle) {
            let gone = match mapping.kind {
                Kind::Imported => self.memory.remove_import(mapping.start),
                _ if mapping.is_host() => self.memory.remove_host(mapping.start),
                _ => self.memory.free(mapping.start),
            };
            if let Some(object) = gone {
                self.engine.checker().object_gone(object);
            }
        }
        for stream in self.streams.remove_all(|s| s.context == handle) {
            self.engine.destroy_stream(stream.key);
        }
        for event in self.events.remove_all(|e| e.context == handle) {
            self.engine.destroy_event(event.key);
            event.shared.iter().for_each(|shared| shared.destroy());
        }
        self.modules.remove_all(|m| m.context == handle);
        self.functions.remove_all(|f| f.context == handle);
        for library in self.libraries.values_mut() {
            library.modules.remove(&handle);
        }
        self.memory.table.forget_context(handle);
        self.engine.destroy_context(context.key);
    }

    /// Live objects of a kind; `None` for an unknown name.
    pub fn count(&self, what: &str) -> Option<u64> {
        match what {
            "streams" => Some(self.streams.count() as u64),
            "events" => Some(self.events.count() as u64),
            "contexts" => Some(self.contexts.len() as u64),
            "modules" => Some(self.modules.count() as u64),
            "graphs" => Some(self.graphs.graphs.count() as u64),
            "graph_execs" => Some(self.graphs.execs.count() as u64),
            "user_objects" => Some(self.graphs.objects.count() as u64),
            "libraries" => Some(self.libraries.count() as u64),
            _ => self.memory.count(what),
        }
    }
}
