//! Kernels of the program's own, declared: their uses are judged as those of copies are.

mod common;

use common::*;

const N: u64 = 1024;

fn checked() -> Session {
    let s = session(&[("checker", "log")]);
    s.sim.kernel_accesses("*scale*", "write p0 bytes=w2*4, read p1 bytes=w2*4").expect("right");
    s
}

#[test]
fn a_race_of_a_declared_kernel_is_found_and_its_order_is_respected() {
    let s = checked();
    let (to, from) = (s.alloc(MIB), s.alloc(MIB));
    let (first, second) = (s.stream(), s.stream());
    ok!(s.cuMemsetD8Async(from, 1, MIB, first));
    s.launch("_Z5scalePfPKfi", &[to, from, N], first);
    assert_eq!(s.sim.reports(), Vec::<String>::new(), "one stream");
    ok!(s.cuMemsetD8Async(to + 4 * N, 1, 64, second));
    assert_eq!(s.sim.reports(), Vec::<String>::new(), "past what it writes");
    ok!(s.cuMemsetD8Async(to + 4 * N - 1, 1, 64, second));
    let reports = s.sim.reports();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("kernel _Z5scalePfPKfi"), "{reports:?}");
    assert_eq!(s.sim.unknown_launches(), 0);
    assert!(s.sim.accesses_checked() >= 4);
}

#[test]
fn a_declared_kernel_that_uses_freed_memory_spoils_the_context() {
    let s = checked();
    let (to, from) = (s.alloc(MIB), s.alloc(MIB));
    ok!(s.cuMemFree_v2(to));
    s.launch("scale", &[to, from, N], 0);
    assert_eq!(s.sim.report_count(), 1, "{:?}", s.sim.reports());
    assert_eq!(s.cuCtxSynchronize(), code::ILLEGAL_ADDRESS);
}

#[test]
fn what_is_not_declared_is_counted_and_what_uses_nothing_is_known() {
    let s = checked();
    s.launch("other", &[], 0);
    assert_eq!(s.sim.unknown_launches(), 1);
    s.sim.kernel_accesses("other", "").expect("right");
    s.launch("other", &[], 0);
    assert_eq!(s.sim.unknown_launches(), 1);
    // Parameters in one buffer cannot be told apart.
    let (mut buffer, mut size) = ([s.alloc(MIB), 0, N], 24usize);
    let extra = [1, buffer.as_mut_ptr() as u64, 2, &raw mut size as u64, 0];
    let f = s.function("scale");
    ok!(s.cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, std::ptr::null(), &extra));
    assert_eq!(s.sim.unknown_launches(), 2);
}

#[test]
fn a_structure_and_the_size_of_the_launch_can_be_named() {
    let s = session(&[("checker", "log")]);
    s.sim.kernel_accesses("fill*", "write p0[16] bytes=threads*8").expect("right");
    let (at, stream) = (s.alloc(MIB), s.stream());
    let mut view = [0, 0, at];
    let mut parameters: Parameters = [std::ptr::null_mut(); 8];
    parameters[0] = view.as_mut_ptr().cast();
    let f = s.function("fill_view");
    ok!(s.cuLaunchKernel(f, 2, 3, 1, 32, 1, 1, 0, stream, &parameters, std::ptr::null()));
    ok!(s.cuMemsetD8Async(at + 6 * 32 * 8, 0, 8, s.stream()));
    assert_eq!(s.sim.report_count(), 0, "{:?}", s.sim.reports());
    ok!(s.cuMemsetD8Async(at + 6 * 32 * 8 - 8, 0, 8, s.stream()));
    assert_eq!(s.sim.report_count(), 1);
}

#[test]
fn a_file_declares_kernels_and_a_wrong_one_is_a_clear_error() {
    let file = std::env::temp_dir().join(format!("simcuda-kernels-{}", std::process::id()));
    std::fs::write(&file, "# two\nscale  write p0 bytes=64\nidle\n").expect("a temporary file");
    let name = file.to_str().expect("a plain name").to_owned();
    let s = session(&[("checker", "log"), ("kernels", &name)]);
    s.launch("scale", &[s.alloc(64)], 0);
    s.launch("idle", &[], 0);
    assert_eq!((s.sim.unknown_launches(), s.sim.accesses_checked() > 0), (0, true));
    drop(s);
    let s = fresh(&[("kernels", &name)]);
    std::fs::write(&file, "scale wites p0 bytes=64\n").expect("a temporary file");
    let refused = s.sim.configure("kernels", &name).expect_err("a wrong file").to_string();
    assert!(refused.contains("line 1: scale: 'wites'"), "{refused}");
    assert_eq!(s.cuInit(0), code::INVALID_VALUE);
    std::fs::remove_file(&file).expect("it is there");
    let wrong = s.sim.kernel_accesses("scale", "write p0").expect_err("no bytes");
    assert!(wrong.to_string().contains("bytes="), "{wrong}");
}

#[test]
fn a_declared_kernel_in_a_graph_is_judged_at_each_launch() {
    let s = checked();
    let (to, from, graph) = (s.alloc(MIB), s.alloc(MIB), s.graph());
    let (stream, other, mut captured) = (s.stream(), s.stream(), 0);
    ok!(s.cuStreamBeginCapture_v2(stream, 2));
    s.launch("scale", &[to, from, N], stream);
    ok!(s.cuStreamEndCapture(stream, &mut captured));
    // The same by hand.
    let (values, mut node) = ([to, from, N], 0);
    let pointers = values.each_ref().map(std::ptr::from_ref);
    let (function, parameters) = (s.function("scale"), pointers.as_ptr());
    let (grid, block) = ([1; 3], [1; 3]);
    let what = KernelNode { function, grid, block, parameters, ..KernelNode::default() };
    ok!(s.cuGraphAddKernelNode(&mut node, graph, std::ptr::null(), 0, &what));
    for exec in [s.exec(captured), s.exec(graph)] {
        for _ in 0..2 {
            ok!(s.cuCtxSynchronize());
            let before = s.sim.accesses_checked();
            ok!(s.cuGraphLaunch(exec, stream));
            assert_eq!(s.sim.accesses_checked() - before, 2, "a read and a write");
            assert_eq!(s.sim.reports(), Vec::<String>::new());
            ok!(s.cuMemsetD8Async(to, 1, 64, other));
            let reports = s.sim.reports();
            assert!(reports.len() == 1 && reports[0].contains("kernel scale"), "{reports:?}");
            s.sim.clear_reports();
        }
    }
    assert_eq!(s.sim.unknown_launches(), 0);
}
