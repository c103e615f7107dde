//! **Personas**: drivers of other versions and devices of fewer abilities. On each the same program
//! runs under the checker, and the calls that were made show which way the library took.

mod machine;

use std::collections::HashMap;

use cuddy::error::Error;
use cuddy::process;
use machine::*;

/// What a persona has. The sizes are such that memory runs short.
#[derive(Clone, Copy, Debug)]
struct Persona {
    version: i32,
    pages: bool,
    stream_ids: bool,
    context_events: bool,
    /// Whether the driver has `cuCtxRecordEvent` and always refuses it.
    refuses_context_events: bool,
}

const fn persona(version: i32, pages: bool) -> Persona {
    Persona {
        version,
        pages,
        stream_ids: version >= 12000,
        context_events: version >= 12050,
        refuses_context_events: false,
    }
}

const PERSONAS: [Persona; 10] = [
    persona(11040, true),
    persona(11040, false),
    persona(12000, true),
    persona(12000, false),
    persona(12080, true),
    persona(12080, false),
    persona(13000, true),
    persona(13000, false),
    Persona { refuses_context_events: true, ..persona(13000, true) },
    Persona { refuses_context_events: true, ..persona(13000, false) },
];

const SCHEDULES: [&str; 4] = ["eager", "lazy", "lag:5", "random:3"];

/// Runs a scenario on every persona, and insists on the checker's approval.
fn on_every_persona(test: &str, schedules: &[&str], body: impl Fn(&Machine, Persona)) {
    for persona in PERSONAS {
        for schedule in schedules {
            let (version, vmm) = (persona.version.to_string(), u8::from(persona.pages).to_string());
            let environment = [
                ("SIMCUDA_MEMORY", "128MiB"),
                ("SIMCUDA_CHECKER", "log"),
                ("SIMCUDA_SCHEDULE", *schedule),
                ("SIMCUDA_DRIVER", version.as_str()),
                ("SIMCUDA_VMM", vmm.as_str()),
            ];
            isolated(test, &environment, |machine| {
                machine.use_device(0);
                if persona.refuses_context_events {
                    let refused = machine.sim.fault("cuCtxRecordEvent", 1, 1, 801, false);
                    refused.expect("a right rule");
                }
                body(machine, persona);
                machine.assert_clean();
            });
        }
    }
}

/// How often each driver function was called by the library.
fn calls() -> impl Fn(&str) -> u64 {
    let calls: HashMap<_, _> = process::driver_calls().into_iter().collect();
    move |name| calls.get(name).copied().unwrap_or(0)
}

/// Writes and reads back a block, and gives it back.
fn use_and_free(machine: &Machine, stream: usize, block: u64, bytes: u64, value: u8) {
    machine.fill(stream, block, value, bytes);
    process::free(block).expect("live");
}

#[test]
fn the_driver_is_what_it_says() {
    on_every_persona("the_driver_is_what_it_says", &["eager"], |machine, persona| {
        assert_eq!(process::driver_version(), Ok(persona.version));
        let facts = process::device_facts(0).expect("a device");
        assert_eq!(facts.virtual_memory, persona.pages);
        assert_eq!(facts.stream_ids, persona.stream_ids);
        assert_eq!(facts.context_events, persona.context_events);
        assert_eq!(facts.backing, if persona.pages { "pages" } else { "segments" });
        use_and_free(machine, 0, malloc(MIB, 0).expect("fits"), MIB, 1);
    });
}

#[test]
fn memory_comes_as_pages_or_as_segments() {
    on_every_persona("memory_comes_as_pages_or_as_segments", &SCHEDULES, |machine, persona| {
        let stream = machine.held_stream();
        let mut random = Random(7);
        let mut live = Vec::new();
        for round in 0..300u64 {
            let bytes = 512 << random.below(16);
            match malloc_on(bytes, stream) {
                Ok(block) => {
                    machine.fill(stream, block, round as u8, bytes);
                    live.push(block);
                }
                Err(Error::OutOfMemory(_)) => {
                    let block = live.swap_remove(random.below(live.len() as u64) as usize);
                    process::free(block).expect("live");
                }
                Err(error) => panic!("{error}"),
            }
            if random.below(2) == 0 && !live.is_empty() {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                process::free(block).expect("live");
            }
        }
        live.into_iter().for_each(|block| process::free(block).expect("live"));
        process::empty_cache(0).expect("the driver works");
        assert_eq!(machine.holdings(), (0, 0, 0));
        let calls = calls();
        let of_pages =
            ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"];
        for name in of_pages {
            assert_eq!(calls(name) > 0, persona.pages, "{name} on {persona:?}");
        }
        for name in ["cuMemAlloc", "cuMemFree"] {
            assert_eq!(calls(name) > 0, !persona.pages, "{name} on {persona:?}");
        }
    });
}

#[test]
fn streams_are_told_apart_by_id_or_must_be_opened() {
    let test = "streams_are_told_apart_by_id_or_must_be_opened";
    on_every_persona(test, &SCHEDULES, |machine, persona| {
        let (borrowed, held) = (machine.stream(), machine.stream());
        process::stream_open(0, held).expect("a stream");
        match malloc_on(MIB, borrowed) {
            Ok(block) => {
                assert!(persona.stream_ids, "{persona:?}");
                use_and_free(machine, borrowed, block, MIB, 1);
                // The handle's value comes back for another stream: the block does not go to it
                // as if it were the same.
                machine.destroy_stream(borrowed);
                let next = machine.stream();
                assert_eq!(next, borrowed, "the simulated driver gives handles again");
                use_and_free(machine, next, malloc_on(MIB, next).expect("fits"), MIB, 2);
            }
            Err(error) => {
                assert!(!persona.stream_ids, "{persona:?}: {error}");
                let text = error.to_string();
                assert!(matches!(error, Error::InvalidStream(_)), "{text}");
                assert!(text.contains("CUDA 11.4") && text.contains("cuddy_stream_open"), "{text}");
            }
        }
        for stream in [0, 1, 2, held] {
            use_and_free(machine, stream, malloc_on(MIB, stream).expect("fits"), MIB, 3);
        }
        process::stream_retire(0, held).expect("open");
        let calls = calls();
        assert_eq!(calls("cuStreamGetId") > 0, persona.stream_ids, "{persona:?}");
        assert_eq!(calls("cuCtxGetId") > 0, persona.stream_ids, "{persona:?}");
    });
}

/// A block is freed whose other user is a stream that this thread cannot record on, and memory is so
/// short that it has to be waited for: by an event over the context, or by the whole context.
#[test]
fn what_cannot_be_recorded_is_waited_for_over_the_context() {
    let test = "what_cannot_be_recorded_is_waited_for_over_the_context";
    on_every_persona(test, &SCHEDULES, |machine, persona| {
        let owner = machine.held_stream();
        const BIG: u64 = 80 * MIB;
        for round in 0..4u8 {
            let block = malloc_on(BIG, owner).expect("the device has it");
            machine.fill(owner, block, round, BIG);
            machine.synchronize(owner);
            let context = machine.context();
            std::thread::scope(|scope| {
                let other = scope.spawn(|| {
                    machine.set_context(context);
                    machine.fill(2, block, round, BIG);
                    process::record_stream(block, 2).expect("live");
                });
                other.join().expect("it does not panic");
            });
            process::free(block).expect("live");
            assert_eq!(stats(0).limbo_block_count, 1);
            let next = malloc_on(BIG, owner).expect("the other user is waited for");
            use_and_free(machine, owner, next, BIG, round);
            machine.synchronize(owner);
        }
        let calls = calls();
        assert_eq!(calls("cuCtxRecordEvent") > 0, persona.context_events, "{persona:?}");
        if !persona.context_events || persona.refuses_context_events {
            assert!(calls("cuCtxSynchronize") > 0, "{persona:?}: the whole context is waited for");
        } else {
            assert_eq!(calls("cuCtxSynchronize"), 0, "{persona:?}: the event is enough");
        }
    });
}

/// The personas cover what the library asks a driver for.
#[test]
fn every_ability_is_there_and_missing_once() {
    let abilities: [fn(&Persona) -> bool; 4] = [
        |persona| persona.pages,
        |persona| persona.stream_ids,
        |persona| persona.context_events,
        |persona| persona.refuses_context_events,
    ];
    for ability in abilities {
        let has = PERSONAS.iter().filter(|persona| ability(persona)).count();
        assert!(0 < has && has < PERSONAS.len());
    }
}
