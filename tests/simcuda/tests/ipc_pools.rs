//! Memory pools between processes: this one exports, one more imports, and the other way round.

mod common;
#[path = "common/other.rs"]
mod other;

use common::{IpcHandle, MIB, PAGE, Session, code, properties, session};
use other::{Other, words};

/// What the other process can do; see `other::serve`.
#[test]
#[ignore = "started by the other tests as a process of its own"]
fn the_other_process() {
    let s = session(&[]);
    s.use_device(0);
    let stream = s.stream();
    other::serve(|command, n| {
        let (mut at, mut data) = (0u64, IpcHandle::default());
        let code = match command {
            "pool_import" => {
                let path = format!("/proc/{}/fd/{}", n[0], n[1]);
                let file = std::fs::File::options().read(true).write(true).open(path);
                let file = file.expect("the first process has it open");
                let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
                s.cuMemPoolImportFromShareableHandle(&mut at, fd, 1, 0)
            }
            "import" => {
                let data = IpcHandle(n[1..9].try_into().expect("a pointer's data"));
                s.cuMemPoolImportPointer(&mut at, n[0], &data)
            }
            "export" => {
                let code = s.cuMemPoolExportPointer(&mut data, n[0]);
                return [&[code as u64], &data.0[..]].concat();
            }
            "alloc_from" => s.cuMemAllocFromPoolAsync(&mut at, MIB, n[0], stream),
            "set_pool" => s.cuDeviceSetMemPool(0, n[0]),
            "pool_export" => {
                let mut fd = -1;
                s.cuMemPoolExportToShareableHandle(&mut fd, n[0], 1, 0)
            }
            "pool_destroy" => s.cuMemPoolDestroy(n[0]),
            "access" => s.cuMemPoolSetAccess(n[0], &[1, n[1] as i32, n[2] as i32], 1),
            "fill" => s.cuMemsetD8Async(n[0], n[1] as u8, n[2] as usize, stream),
            "touch_from_1" => {
                s.use_device(1);
                let stream = s.stream();
                let touch = s.function("simcuda_touch");
                let code = s.try_launch(touch, &[n[0], 64, 1], stream);
                s.use_device(0);
                code
            }
            "wait" => s.cuStreamSynchronize(stream),
            "free" => s.cuMemFree_v2(n[0]),
            "free_async" => s.cuMemFreeAsync(n[0], stream),
            "peek" => return vec![u64::from(s.peek(n[0], 1)[0])],
            "pool_of" => {
                let code = s.cuPointerGetAttribute((&raw mut at).cast(), 17, n[0]);
                return vec![code as u64, at];
            }
            "imports" => return vec![s.sim.objects("imports"), s.sim.objects("pools")],
            "event_open" => {
                s.cuIpcOpenEventHandle(&mut at, IpcHandle(n[..8].try_into().expect("a handle")))
            }
            "record" => s.cuEventRecord(n[0], stream),
            "reports" => {
                let reports = s.sim.reports();
                let told = reports.iter().filter(|it| it.contains("use after free")).count();
                return vec![reports.len() as u64, told as u64];
            }
            _ => panic!("{command} is no command"),
        };
        vec![code as u64, at]
    });
}

fn other(schedule: &str) -> Other {
    Other::start(&[
        ("SIMCUDA_DEVICES", "2"),
        ("SIMCUDA_MEMORY", "1GiB"),
        ("SIMCUDA_CHECKER", "log"),
        ("SIMCUDA_SCHEDULE", schedule),
    ])
}

fn ours(schedule: &str) -> Session {
    session(&[("devices", "2"), ("memory", "1GiB"), ("checker", "log"), ("schedule", schedule)])
}

/// `CUmemPoolProps` of a pool on device 0.
fn asked(handle_types: u64) -> [u64; 11] {
    let mut asked = [0; 11];
    asked[0] = 1 | handle_types << 32;
    asked[1] = 1;
    asked
}

impl Session {
    fn pool(&self, handle_types: u64) -> u64 {
        let mut pool = 0;
        ok!(self.cuMemPoolCreate(&mut pool, &asked(handle_types)));
        pool
    }

    fn block(&self, pool: u64, bytes: usize, stream: u64) -> u64 {
        let mut at = 0;
        ok!(self.cuMemAllocFromPoolAsync(&mut at, bytes, pool, stream));
        at
    }

    fn data(&self, address: u64) -> IpcHandle {
        let mut data = IpcHandle::default();
        ok!(self.cuMemPoolExportPointer(&mut data, address));
        data
    }

    /// Exports a pool and has the other process import it; its handle there.
    fn share(&self, pool: u64, other: &mut Other) -> u64 {
        let mut fd = -1;
        ok!(self.cuMemPoolExportToShareableHandle(&mut fd, pool, 1, 0));
        let answer = other.ask(&format!("pool_import {} {fd}", std::process::id()));
        assert_eq!(answer[0], 0, "the pool is imported");
        answer[1]
    }
}

fn import(other: &mut Other, pool: u64, data: &IpcHandle) -> Vec<u64> {
    other.ask(&format!("import {pool} {}", words(&data.0)))
}

#[test]
fn blocks_of_a_shared_pool_are_the_same_bytes_in_both_processes() {
    let (s, mut other) = (ours("eager"), other("eager"));
    let (pool, stream) = (s.pool(1), s.stream());
    let there = s.share(pool, &mut other);
    // Blocks lie at no page's beginning, and some in chunks that came after the pool was shared.
    let sizes = [512, 1000, MIB, 3 * PAGE, 512, 40 * MIB];
    for (number, bytes) in (1..).zip(sizes) {
        let block = s.block(pool, bytes, stream);
        ok!(s.cuMemsetD8Async(block, number, bytes, stream));
        ok!(s.cuStreamSynchronize(stream));
        let answer = import(&mut other, there, &s.data(block + bytes as u64 / 2));
        assert_eq!(answer[0], 0, "{bytes} bytes");
        let at = answer[1];
        assert_eq!(other.number(&format!("peek {at}")), u64::from(number));
        assert_eq!(other.number(&format!("peek {}", at + bytes as u64 - 1)), u64::from(number));
        assert_eq!(other.number(&format!("fill {at} 99 {bytes}")), 0);
        assert_eq!(other.number("wait"), 0);
        assert_eq!(s.peek(block, bytes), vec![99; bytes]);
        assert_eq!(other.ask(&format!("pool_of {at}")), [0, there]);
        assert_eq!(other.number(&format!("free {at}")), 0);
        assert_eq!(s.peek(block, 1), [99], "the exporter's memory stays");
    }
    assert_eq!(other.ask("imports"), [0, 3], "two default pools and the imported one");
    assert_eq!((s.sim.reports(), other.ask("reports")), (vec![], vec![0, 0]));
}

#[test]
fn an_imported_pool_gives_out_nothing() {
    let (s, mut other) = (ours("eager"), other("eager"));
    let there = s.share(s.pool(1), &mut other);
    for command in ["alloc_from", "set_pool", "pool_export"] {
        let code = other.number(&format!("{command} {there}")) as i32;
        assert_eq!(code, code::INVALID_VALUE, "{command}");
    }
    assert_eq!(other.number(&format!("pool_destroy {there}")), 0);
    assert_eq!(other.ask("imports"), [0, 2]);
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let (s, mut other) = (ours("eager"), other("eager"));
    let (plain, shared, stream) = (s.pool(0), s.pool(1), s.stream());
    let (mut fd, mut data, mut at) = (-1, IpcHandle::default(), 0);
    let wrong = code::INVALID_VALUE;
    assert_eq!(s.cuMemPoolExportToShareableHandle(&mut fd, plain, 1, 0), wrong, "not made for it");
    let mut default = 0;
    ok!(s.cuDeviceGetDefaultMemPool(&mut default, 0));
    assert_eq!(s.cuMemPoolExportToShareableHandle(&mut fd, default, 1, 0), wrong);
    for (kind, flags) in [(0, 0), (2, 0), (1, 1)] {
        assert_eq!(s.cuMemPoolExportToShareableHandle(&mut fd, shared, kind, flags), wrong);
    }
    assert_eq!(s.cuMemPoolExportToShareableHandle(&mut fd, 77, 1, 0), wrong);
    assert_eq!(s.cuMemPoolExportToShareableHandle(std::ptr::null_mut(), shared, 1, 0), wrong);
    for address in [0, s.alloc(MIB), s.pinned(MIB), s.block(plain, MIB, stream)] {
        assert_eq!(s.cuMemPoolExportPointer(&mut data, address), wrong, "{address:#x}");
    }
    let block = s.block(shared, MIB, stream);
    let mut handle = IpcHandle::default();
    assert_eq!(s.cuIpcGetMemHandle(&mut handle, block), wrong, "not by a legacy handle");
    // Imports of what is no pool, of one's own, and of the wrong pool.
    let mut object = -1;
    let mut physical = 0;
    ok!(s.cuMemCreate(&mut physical, PAGE, &properties(0, 1), 0));
    ok!(s.cuMemExportToShareableHandle(&mut object, physical, 1, 0));
    ok!(s.cuMemPoolExportToShareableHandle(&mut fd, shared, 1, 0));
    for fd in [object as usize, fd as usize, 0, 9999] {
        assert_eq!(s.cuMemPoolImportFromShareableHandle(&mut at, fd, 1, 0), wrong);
    }
    let (there, second) = (s.share(shared, &mut other), s.share(s.pool(1), &mut other));
    assert_eq!(import(&mut other, second, &s.data(block))[0] as i32, wrong, "of the wrong pool");
    let mut broken = s.data(block);
    broken.0[4] ^= 1;
    assert_eq!(import(&mut other, there, &broken)[0] as i32, wrong);
    assert_eq!(import(&mut other, there, &s.data(block))[0], 0);
}

#[test]
fn a_freed_block_is_imported_no_more() {
    let (s, mut other) = (ours("eager"), other("eager"));
    let (pool, stream) = (s.pool(1), s.stream());
    let there = s.share(pool, &mut other);
    let block = s.block(pool, MIB, stream);
    let data = s.data(block);
    assert_eq!(s.data(block), data);
    ok!(s.cuMemFreeAsync(block, stream));
    assert_eq!(import(&mut other, there, &data)[0] as i32, code::INVALID_VALUE);
    let again = s.block(pool, MIB, stream);
    assert_eq!(again, block, "the bytes come back");
    assert_eq!(import(&mut other, there, &data)[0] as i32, code::INVALID_VALUE, "not by old data");
    assert_eq!(import(&mut other, there, &s.data(again))[0], 0);
}

#[test]
fn the_importer_frees_first_or_both_sides_are_told() {
    for schedule in ["eager", "lazy"] {
        let (s, mut other) = (ours(schedule), other(schedule));
        let (pool, stream) = (s.pool(1), s.stream());
        let there = s.share(pool, &mut other);
        let right = s.block(pool, MIB, stream);
        let at = import(&mut other, there, &s.data(right))[1];
        assert_eq!(other.number(&format!("fill {at} 1 {MIB}")), 0);
        assert_eq!(other.number(&format!("free_async {at}")), 0);
        ok!(s.cuMemFreeAsync(right, stream));
        assert_eq!(s.sim.reports(), Vec::<String>::new(), "{schedule}");
        let wrong = s.block(pool, MIB, stream);
        let at = import(&mut other, there, &s.data(wrong))[1];
        ok!(s.cuMemFreeAsync(wrong, stream));
        let reports = s.sim.reports();
        assert_eq!(reports.len(), 1, "{schedule}: {reports:?}");
        for part in [&format!("process {}", other.pid()), "cuMemFreeAsync"] {
            assert!(reports[0].contains(part), "{part} in {}", reports[0]);
        }
        assert_eq!(other.ask("reports"), [0, 0]);
        assert_eq!(other.number(&format!("fill {at} 2 {MIB}")), 0);
        assert_eq!(other.ask("reports"), [1, 1], "{schedule}");
    }
}

#[test]
fn a_use_after_the_importers_own_free_is_a_finding() {
    for free in ["free", "free_async"] {
        let (s, mut other) = (ours("eager"), other("lazy"));
        let (pool, stream) = (s.pool(1), s.stream());
        let there = s.share(pool, &mut other);
        let at = import(&mut other, there, &s.data(s.block(pool, MIB, stream)))[1];
        assert_eq!(other.number(&format!("{free} {at}")), 0);
        assert_eq!(other.number(&format!("{free} {at}")) as i32, code::INVALID_VALUE, "{free}");
        other.number(&format!("fill {at} 1 64"));
        assert_eq!(other.ask("reports")[1], 1, "{free}");
    }
}

#[test]
fn an_imported_pool_is_at_first_for_its_own_device_only() {
    let (s, mut other) = (ours("eager"), other("eager"));
    let (pool, stream) = (s.pool(1), s.stream());
    ok!(s.cuMemPoolSetAccess(pool, &[1, 1, 3], 1));
    let there = s.share(pool, &mut other);
    let at = import(&mut other, there, &s.data(s.block(pool, MIB, stream)))[1];
    // What the exporter allowed is not inherited; what the importer allows holds for what it has.
    assert_eq!(other.number(&format!("access {there} 1 3")), 0);
    other.number(&format!("touch_from_1 {at}"));
    assert_eq!(other.ask("reports"), [0, 0]);
    assert_eq!(other.number(&format!("access {there} 1 0")), 0);
    other.number(&format!("touch_from_1 {at}"));
    assert_eq!(other.ask("reports")[0], 1, "no access any more");
}

#[test]
fn when_the_exporter_is_gone_so_is_its_pool() {
    let s = ours("eager");
    let (mut first, mut second) = (other("eager"), other("eager"));
    let (pool, stream) = (s.pool(1), s.stream());
    let there = s.share(pool, &mut first);
    let data = s.data(s.block(pool, MIB, stream));
    let at = import(&mut first, there, &data)[1];
    let mut fd = -1;
    ok!(s.cuMemPoolExportToShareableHandle(&mut fd, pool, 1, 0));
    // To the others this is what the end of the process is: nothing is exported any more.
    s.sim.reset();
    assert_eq!(first.number(&format!("fill {at} 1 64")), 0);
    assert_eq!(first.ask("reports"), [1, 1]);
    assert_eq!(import(&mut first, there, &data)[0] as i32, code::INVALID_VALUE);
    let answer = second.ask(&format!("pool_import {} {fd}", std::process::id()));
    assert_eq!(answer[0] as i32, code::INVALID_VALUE);
}
