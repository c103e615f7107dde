//! The traces inside this program, so that the demo runs wherever the program does.

use crate::trace::{self, Trace, TraceError};

/// Training steps of real models, largest first.
const TRACES: [(&str, &str, &[u8]); 4] = [
    (
        "bertlarge_mlm_amp_varlen",
        "BERT-large, 25 training steps of varying length (mixed precision, AdamW)",
        include_bytes!("../../../tests/traces/bertlarge_mlm_amp_varlen.gz"),
    ),
    (
        "llama7b_lora_varlen_ckpt",
        "Llama-7B with LoRA, 30 training steps of varying length (bf16, checkpointed)",
        include_bytes!("../../../tests/traces/llama7b_lora_varlen_ckpt.gz"),
    ),
    (
        "dlrm_train_b2048_multihot",
        "DLRM, 20 training steps with data copied on a stream of its own",
        include_bytes!("../../../tests/traces/dlrm_train_b2048_multihot.gz"),
    ),
    (
        "resnet50_train_b64_adam",
        "ResNet-50, five training steps (fp32, Adam)",
        include_bytes!("../../../tests/traces/resnet50_train_b64_adam.gz"),
    ),
];

/// A trace inside this program.
pub struct Bundled {
    /// Its name.
    pub name: &'static str,
    /// What it is, for people.
    pub what: &'static str,
    /// The trace.
    pub trace: Trace,
}

/// Opens one by name.
pub fn open(name: &str) -> Result<Trace, TraceError> {
    let found = TRACES.iter().find(|(its_name, ..)| *its_name == name);
    let (_, _, bytes) = found.ok_or_else(|| TraceError::whole("not among the bundled traces"))?;
    trace::read(*bytes, name)
}

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    TRACES.iter().map(|(name, ..)| *name)
}

/// The largest whose live memory fits in so many bytes.
pub fn largest_within(bytes: u64) -> Result<Option<Bundled>, TraceError> {
    for (name, what, _) in TRACES {
        let trace = open(name)?;
        if trace.ideal().allocated <= bytes {
            return Ok(Some(Bundled { name, what, trace }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_open_and_stand_in_order() {
        let peaks: Vec<u64> = TRACES
            .iter()
            .map(|(name, ..)| open(name).expect("is well formed").ideal().allocated)
            .collect();
        assert!(peaks.is_sorted_by(|larger, smaller| larger > smaller), "{peaks:?}");
        assert!(largest_within(1 << 30).is_ok_and(|found| found.is_none()));
        let all = largest_within(u64::MAX).expect("all are well formed");
        assert!(all.is_some_and(|found| found.name == TRACES[0].0));
    }
}
