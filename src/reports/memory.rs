//! Peak memory and ways to reduce it, in words.

use std::io::{self, Write};

use super::format;
use habitat_base::units::Bytes;
use habitat_prediction::{Fits, MemoryFit, Prediction, Predictions, Sharding};
use habitat_step::profile::{Memory, MemorySource, Mode, Profile, Workload};

/// Peak memory with its kinds and source if known; `None` without a peak.
pub(crate) fn words(profile: &Profile) -> Option<String> {
    let step = profile.step.as_ref()?;
    let memory = step.memory.as_ref();
    let peak = step.peak_memory_bytes.or_else(|| memory.map(Memory::total))?;
    let source = if is_computed(profile) { ", computed from shapes" } else { "" };
    let kinds = memory.map_or_else(String::new, |memory| format!(": {}", kinds(memory)));
    Some(format!("peak memory {peak}{source}{kinds}"))
}

/// The kinds of memory in at most `width` characters; drops the smallest kinds if they do not fit.
pub fn kinds_within(memory: &Memory, width: usize) -> String {
    let mut left: Vec<_> = memory.kinds().into_iter().filter(|(_, bytes)| bytes.get() > 0.0).collect();
    let mut dropped = false;
    loop {
        let parts: Vec<String> = left.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
        let words = format!("{}{}", parts.join(" · "), if dropped { " · …" } else { "" });
        if words.chars().count() <= width || left.len() <= 1 {
            return words;
        }
        let smallest = left.iter().map(|(_, bytes)| bytes.get()).fold(f64::INFINITY, f64::min);
        left.retain(|(_, bytes)| bytes.get() > smallest);
        dropped = true;
        if left.is_empty() {
            return String::new();
        }
    }
}

/// The kinds of memory that are not zero, in the order in which a job allocates them.
pub(crate) fn kinds(memory: &Memory) -> String {
    kinds_within(memory, usize::MAX)
}

/// Largest share of the activations that activation checkpointing frees. A transformer layer keeps 2 of the 34 bytes
/// per token and element of width (Korthikanti et al. 2022, arXiv:2205.05198, section 5).
const FREED_BY_CHECKPOINTS: f64 = 32.0 / 34.0;
/// Largest number of GPUs to try for sharding.
const MOST_SHARDED: u32 = 64;

/// A kind of change that makes a step need less memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    MicroBatch,
    Checkpoints,
    EightBits,
    Sharding,
}

/// The changes with which a step would fit that does not, judged by the parts of its memory: a smaller
/// micro-batch, activation checkpointing, an optimizer with 8-bit state, sharding. For a step in another
/// precision than recorded: first the changes that are enough for the most that it may need, then those that are enough
/// for the least. `None` for a step that fits, or if too little is known.
pub fn remedies(prediction: &Prediction, workload: &Workload) -> Option<String> {
    let fit = &prediction.memory;
    let needed = fit.needed.filter(|_| fit.fits == Fits::No)?;
    let excess = needed.checked_sub(fit.usable)?;
    let recomputes = prediction.transformer.is_some_and(|model| model.recomputes);
    let words =
        |found: &[(Remedy, String)]| found.iter().map(|(_, words)| words.as_str()).collect::<Vec<_>>().join(", or ");
    let (sure, likely, excess) = match (&fit.narrowest, fit.at_most) {
        (Some(narrowest), Some(at_most)) => {
            let widest = MemoryFit { needed: Some(at_most), narrowest: None, ..fit.clone() };
            let sure = possible_remedies(&widest, workload, recomputes);
            let mut likely = possible_remedies(narrowest, workload, recomputes);
            likely.retain(|(remedy, _)| sure.iter().all(|(other, _)| other != remedy));
            let most = at_most.checked_sub(fit.usable).filter(|most| most.get() > excess.get());
            (sure, likely, most.map_or_else(|| excess.to_string(), |most| format::bytes_range(excess, most)))
        }
        _ => (possible_remedies(fit, workload, recomputes), Vec::new(), excess.to_string()),
    };
    let too_much = format!("{excess} too much{}", parts_of(fit));
    Some(match (&sure[..], &likely[..]) {
        ([], []) => {
            let instead = match prediction.transformer {
                Some(_) => "`plan` divides the model over several GPUs".to_owned(),
                None => format!("it needs a GPU with over {needed} of usable memory"),
            };
            format!("{too_much}: no single change to the program is known to be enough; {instead}")
        }
        ([], likely) => format!("{too_much}; may fit with {}", words(likely)),
        (sure, []) => format!("{too_much}; would fit with {}", words(sure)),
        (sure, likely) => format!("{too_much}; would fit with {}; may fit with {}", words(sure), words(likely)),
    })
}

/// The changes with which a step would fit that needs what `fit` says.
fn possible_remedies(fit: &MemoryFit, workload: &Workload, recomputes: bool) -> Vec<(Remedy, String)> {
    // Changes save tensors only, so compare them with the tensors' share of the excess.
    let excess = fit.needed.and_then(|needed| fit.tensors(needed).checked_sub(fit.tensors(fit.usable)));
    let Some(excess) = excess else { return Vec::new() };
    let can_recompute = workload.mode == Mode::Training && !recomputes;
    let kept = fit.activations.map(|kept| kept.least).or_else(|| beside_states(fit)).filter(|_| can_recompute);
    let kept = kept.filter(|kept| kept.get() > 0.0);
    let mut found = Vec::new();
    found.extend(micro_batch_words(fit, workload, kept, excess).map(|words| (Remedy::MicroBatch, words)));
    if let Some(kept) = kept.filter(|kept| (*kept * FREED_BY_CHECKPOINTS).get() >= excess.get()) {
        let up_to = if fit.activations.is_some() { "" } else { "up to " };
        let words = format!(
            "activation checkpointing (has to free {excess} of {up_to}{kept} of activations; computes up to a third more)"
        );
        found.push((Remedy::Checkpoints, words));
    }
    let eight_bits = eight_bit_saving(fit, workload);
    if let Some(saved) = eight_bits.filter(|saved| saved.get() > 0.0) {
        if saved.get() >= excess.get() {
            found.push((Remedy::EightBits, format!("an 8-bit optimizer (saves about {saved} of its state)")));
        } else if let Some(kept) = kept.filter(|kept| (saved + *kept * FREED_BY_CHECKPOINTS).get() >= excess.get())
            && found.is_empty()
        {
            let words = format!(
                "activation checkpointing and an 8-bit optimizer together ({kept} of activations, about {saved} of optimizer state)"
            );
            found.push((Remedy::Checkpoints, words));
        }
    }
    let counts =
        std::iter::successors(Some(2_u32), |gpus| gpus.checked_mul(2)).take_while(|gpus| *gpus <= MOST_SHARDED);
    let mut sharded = counts.flat_map(|gpus| Sharding::ALL[1..].iter().map(move |stage| (*stage, gpus)));
    if let Some((stage, gpus)) = sharded.find(|(stage, gpus)| fit.sharded(*stage, *gpus).fits == Fits::Yes) {
        found.push((Remedy::Sharding, format!("--sharding {} on {gpus} GPUs or more", stage.name())));
    }
    found
}

/// The largest micro-batch with which a step would fit that does not, of a training one that divides the batch.
/// `None` for a step that fits, or where memory over the batch size is not known.
pub fn micro_batch(fit: &MemoryFit, workload: &Workload) -> Option<u64> {
    let batch = workload.batch_size?;
    let largest = fit.largest_batch.filter(|largest| fit.fits == Fits::No && (1..batch).contains(largest))?;
    // Whole micro-batches make the same update.
    let divides = |size: &u64| workload.mode != Mode::Training || batch.is_multiple_of(*size);
    Some((1..=largest).rev().find(divides).unwrap_or(1))
}

/// Words for the mark `≤ N` of GPUs on which a step needs micro-batches; `None` without one.
pub(crate) fn micro_batch_note(predictions: &Predictions) -> Option<String> {
    let workload = &predictions.workload;
    predictions.predictions.iter().find_map(|one| micro_batch(&one.memory, workload))?;
    let batch = workload.batch_size.unwrap_or_default();
    let divides = if workload.mode == Mode::Training { " (the largest divisor that fits)" } else { "" };
    Some(format!("fits ≤ N: the batch of {batch} does not fit; micro-batches of N do{divides}"))
}

/// A smaller micro-batch that fits: the size where memory over the batch is known, else the bare advice where what
/// the forward pass keeps (`kept`) is more than `excess` is even with one sample.
fn micro_batch_words(fit: &MemoryFit, workload: &Workload, kept: Option<Bytes>, excess: Bytes) -> Option<String> {
    let batch = workload.batch_size?;
    match micro_batch(fit, workload) {
        Some(size) => {
            let how = if workload.mode == Mode::Training {
                format!(", accumulated {} times (plan --global-batch {batch} --batch-sizes {size})", batch / size)
            } else {
                String::new()
            };
            Some(format!("a micro-batch of {size} instead of {batch}{how}"))
        }
        None if batch > 1
            && fit.largest_batch.is_none()
            && kept.is_some_and(|kept| kept.get() * (1.0 - 1.0 / batch as f64) >= excess.get()) =>
        {
            Some("a smaller micro-batch with gradient accumulation".to_owned())
        }
        _ => None,
    }
}

/// Writes the remedies as text, for at most a few of the selected GPUs on which the step does not fit.
///
/// # Errors
/// Write errors of `out`.
pub fn write_remedies(
    predictions: &Predictions,
    of: impl Fn(&Prediction) -> bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    const SHOWN: usize = 3;
    let mut found: Vec<(&Prediction, String)> = predictions
        .predictions
        .iter()
        .filter(|one| of(one))
        .filter_map(|one| Some((one, remedies(one, &predictions.workload)?)))
        .collect();
    let count = found.len();
    if count > SHOWN {
        // Show the GPU with the most memory, which is closest to fitting.
        found.sort_by(|(a, _), (b, _)| b.memory.usable.get().total_cmp(&a.memory.usable.get()));
        found.truncate(1);
    }
    for (prediction, remedies) in &found {
        let others =
            if count > found.len() { format!(" (closest of {count} GPUs that are too small)") } else { String::new() };
        writeln!(out, "\nDoes not fit on {}{others}: {remedies}", prediction.gpu.slug)?;
    }
    Ok(())
}

/// Memory besides the model state: mostly activations, if the peak was measured in training.
fn beside_states(fit: &MemoryFit) -> Option<Bytes> {
    fit.tensors(fit.at_most.filter(|_| fit.narrowest.is_none())?).checked_sub(fit.states?.total())
}

/// The known parts of the memory needed, in parentheses.
fn parts_of(fit: &MemoryFit) -> String {
    let mut parts = Vec::new();
    if let Some(states) = &fit.states {
        let most = if fit.narrowest.is_some() { "up to " } else { "" };
        parts.push(format!("parameters and gradients {most}{}", states.parameters + states.gradients));
        if states.optimizer.get() > 0.0 {
            let assumed = if states.is_assumed { " (assuming Adam)" } else { "" };
            parts.push(format!("optimizer state {most}{}{assumed}", states.optimizer));
        }
    }
    parts.extend(
        fit.activations.filter(|kept| kept.least.get() > 0.0).map(|kept| format!("activations {}", kept.least)),
    );
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Memory saved by an optimizer with 8-bit state: per parameter 6 of the 8 bytes of two FP32 moments, or 2 of 4 bytes
/// (Dettmers et al. 2022, arXiv:2110.02861).
fn eight_bit_saving(fit: &MemoryFit, workload: &Workload) -> Option<Bytes> {
    let states = fit.states.filter(|_| workload.mode == Mode::Training)?;
    let count = workload.parameter_count.filter(|count| *count > 0)? as f64;
    let saved = match states.optimizer.get() / count {
        8.0.. => 6.0,
        4.0.. => 2.0,
        _ => return None,
    };
    Some(Bytes::known(count * saved))
}

/// Whether the peak was computed from shapes rather than measured on a device.
pub fn is_computed(profile: &Profile) -> bool {
    let memory = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    memory.is_some_and(|memory| memory.source == MemorySource::Computed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;
    use habitat_base::units::GIB;

    #[test]
    fn what_is_held_and_where_it_is_from() {
        let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
            "operations": [{"name": "aten::mm", "phase": "forward"}]}"#;
        let mut profile = Profile::from_json(json.as_bytes()).unwrap().0;
        assert_eq!(words(&profile), None);
        let step = profile.step.get_or_insert_default();
        step.peak_memory_bytes = Some(Bytes::known(6.0 * GIB));
        assert_eq!(words(&profile).as_deref(), Some("peak memory 6.00 GB"));
        let mib = |count: f64| Bytes::known(count * 1_048_576.0);
        profile.step.as_mut().unwrap().memory = Some(Memory {
            source: MemorySource::Computed,
            parameters: mib(98.0),
            gradients: mib(0.5),
            optimizer_state: Bytes::ZERO,
            activations: mib(5120.0),
            temporary: mib(51.0),
            working: None,
        });
        assert_eq!(
            words(&profile).as_deref(),
            Some(
                "peak memory 6.00 GB, computed from shapes: parameters 98.0 MB · gradients 512 KB · \
                 activations 5.00 GB · temporary 51.0 MB"
            )
        );
    }

    #[test]
    fn the_smallest_kinds_give_way() {
        let gib = |count: f64| Bytes::known(count * GIB);
        let memory = Memory {
            source: MemorySource::Recorded,
            parameters: gib(0.5),
            gradients: gib(0.4),
            optimizer_state: gib(1.0),
            activations: gib(5.0),
            temporary: gib(0.2),
            working: None,
        };
        assert_eq!(kinds_within(&memory, 60), "optimizer state 1.00 GB · activations 5.00 GB · …");
        assert_eq!(kinds_within(&memory, 30), "activations 5.00 GB · …");
        assert_eq!(kinds_within(&memory, 3), "activations 5.00 GB · …");
    }

    /// Training of a model with 1 B parameters in FP32 with Adam at batch 8: 4 + 4 + 8 GB of state, 20 GB of
    /// activations, with a reserve of a tenth and 1 GB of the process. The usable memory is that of tensors and 1 GB.
    fn prediction(usable_gb: f64, largest_batch: Option<u64>) -> (Prediction, Workload) {
        let json = r#"{"format": "habitat-profile", "version": 1,
            "workload": {"name": "w", "mode": "training", "batch_size": 8, "parameter_count": 1000000000},
            "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[64, 64], [64, 64]], "dtype": "float32"}]}"#;
        let profile = Profile::from_json(json.as_bytes()).unwrap().0;
        let catalog = shipped::catalog();
        let options = habitat_prediction::Options {
            targets: vec![habitat_base::units::GpuSlug::new("rtx-3090").unwrap()],
            ..habitat_prediction::Options::default()
        };
        let mut found = habitat_prediction::predict(&profile, &catalog, &options).unwrap();
        let mut prediction = found.predictions.remove(0);
        let gb = |gb: f64| Bytes::known(gb * 1e9);
        let shown = |tensors: f64| gb(tensors * 1.1 + 1.0);
        prediction.memory = MemoryFit {
            fits: Fits::No,
            needed: Some(shown(36.0)),
            allocated: None,
            process: gb(1.0),
            at_most: Some(shown(36.0)),
            usable: shown(usable_gb - 1.0),
            basis: habitat_prediction::memory::MemoryBasis::Unknown,
            largest_batch,
            states: Some(habitat_prediction::sharding::ModelStates {
                parameters: gb(4.0),
                gradients: gb(4.0),
                optimizer: gb(8.0),
                is_assumed: false,
            }),
            activations: Some(habitat_prediction::memory::Activations { least: gb(20.0), most: gb(20.0) }),
            working: None,
            narrowest: None,
        };
        (prediction, found.workload)
    }

    /// After a change of precision the advice still names the micro-batch that a plan would use.
    #[test]
    fn a_change_of_precision_keeps_the_advice() {
        use habitat_step::profile::Precision::{Bf16, Fp8, Fp16, Fp32};

        let catalog = shipped::catalog();
        let advice = |sample: &str, gpu: &str, precision| {
            let options = habitat_prediction::Options {
                targets: vec![habitat_base::units::GpuSlug::new(gpu).unwrap()],
                precision,
                ..habitat_prediction::Options::default()
            };
            let profile = shipped::sample(sample);
            let found = habitat_prediction::predict(&profile, &catalog, &options).unwrap();
            remedies(&found.predictions[0], &found.workload).unwrap()
        };
        let bert = "bert-large-h100-b32";
        for precision in [Some(Bf16), Some(Fp16), Some(Fp8), Some(Fp32)] {
            let said = advice(bert, "rtx-3060", precision);
            assert!(said.contains("would fit with a micro-batch of "), "{precision:?}: {said}");
        }
        let narrow = advice(bert, "rtx-3060", Some(Bf16));
        assert!(
            narrow.contains("15.1–17.9 GB too much") && narrow.contains("a micro-batch of 4 instead of 32"),
            "{narrow}"
        );
        assert!(narrow.contains("or activation checkpointing"), "{narrow}");
        let resnet = "resnet50-h200-b256";
        let wide = advice(resnet, "rtx-3060", Some(Fp32));
        assert!(wide.contains("micro-batch of 64") && wide.contains("activation checkpointing"), "{wide}");
        // A GPU without a rate for the precision keeps the recorded one.
        assert!(advice(bert, "t4", Some(Bf16)).contains("a micro-batch of "));
    }

    #[test]
    fn each_remedy_is_judged_by_its_part() {
        let said = |usable: f64, largest| {
            let (prediction, workload) = prediction(usable, largest);
            remedies(&prediction, &workload).unwrap()
        };
        // 5 GB too much: each remedy alone is enough.
        let all = said(32.0, Some(6));
        for word in [
            "micro-batch of 4 instead of 8, accumulated 2 times",
            "activation checkpointing",
            "8-bit",
            "--sharding zero2 on 2 GPUs",
        ] {
            assert!(all.contains(word), "{word}: {all}");
        }
        // 12 GB too much: the optimizer's 6 GB are not enough, half of the state is.
        let some = said(25.0, None);
        assert!(
            some.contains("checkpointing") && some.contains("smaller micro-batch") && !some.contains("8-bit"),
            "{some}"
        );
        assert!(some.contains("--sharding zero3 on 4 GPUs"), "{some}");
        // 19 GB too much: even a micro-batch of 1 is not enough, which keeps 2.5 of the 20 GB.
        assert!(!said(18.0, None).contains("smaller micro-batch"), "{}", said(18.0, None));
        // 23 GB too much: only two remedies together; sharding does not help, as the activations alone are too large.
        let both = said(14.0, None);
        assert!(both.contains("together") && !both.contains("--sharding"), "{both}");
        // 33 GB too much: no remedy.
        assert!(said(4.0, None).contains("it needs a GPU with over"), "{}", said(4.0, None));
        let (mut fits, workload) = prediction(40.0, None);
        fits.memory.fits = Fits::Yes;
        assert_eq!(remedies(&fits, &workload), None);
        let (large, inference) = prediction(32.0, None);
        let inference = Workload { mode: Mode::Inference, ..inference };
        let of_inference = remedies(&large, &inference).unwrap();
        assert!(
            !of_inference.contains("checkpointing (") && !of_inference.contains("8-bit optimizer ("),
            "{of_inference}"
        );
    }
}
