//! The self-test of the command, tested: every mistake is reported by the part that is there for it.

mod common;

use common::run;

#[test]
fn three_mistakes_are_reported_and_none_is_not() {
    for schedule in ["eager", "lazy", "random:5"] {
        let ended = run(&["replay", "--self-test", "--on", "sim", "--schedule", schedule]);
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
        assert_eq!(ended.out.matches("ok    ").count(), 4, "{}", ended.out);
        for row in [
            "no mistake",
            "a flipped byte (line 18)",
            "a dropped `s` (line 6)",
            "an early free (line ",
        ] {
            assert!(ended.out.contains(row), "{row} in {}", ended.out);
        }
        assert!(ended.out.contains("was read back with 1 wrong word"), "{}", ended.out);
        let overlap = "line 25: the block was given memory of the block of line 23";
        assert!(ended.out.contains(overlap), "{}", ended.out);
        assert!(!ended.out.contains("MISSED"));
    }
}

#[test]
fn a_trace_with_no_place_for_a_mistake_is_not_called_tested() {
    // One stream: there is no `s` to drop.
    let ended = run(&["replay", "--self-test", "--on", "sim", "synth_checkerboard"]);
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    assert!(ended.out.contains("MISSED  a dropped `s`"), "{}", ended.out);
}

#[test]
fn a_real_trace_has_them_all() {
    let ended = run(&["replay", "--self-test", "--on", "sim", "dlrm_train_b2048_multihot"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
}
