//! Peak memory and ways to reduce it, in words.

use std::io::{self, Write};

use habitat_base::units::Bytes;
use habitat_prediction::{Fits, MemoryFit, Prediction, Predictions, Sharding};
use habitat_step::profile::{Memory, MemorySource, Mode, Profile, Workload};

/// Peak memory with its kinds and source if known; `None` without a peak.
pub fn words(profile: &Profile) -> Option<String> {
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
pub fn kinds(memory: &Memory) -> String {
    kinds_within(memory, usize::MAX)
}

/// Largest share of the activations that activation checkpointing frees. A transformer layer keeps 2 of the 34 bytes
/// per token and element of width (Korthikanti et al. 2022, arXiv:2205.05198, section 5).
const FREED_BY_CHECKPOINTS: f64 = 32.0 / 34.0;
/// Largest number of GPUs to try for sharding.
const MOST_SHARDED: u32 = 64;

/// Changes with which the step would fit, judged from the parts of its memory: a smaller micro-batch, activation
/// checkpointing, an optimizer with 8-bit state, sharding. `None` if the step fits or its memory is not known well
/// enough.
pub fn remedies(prediction: &Prediction, workload: &Workload) -> Option<String> {
    let fit = &prediction.memory;
    let needed = fit.needed.filter(|_| fit.fits == Fits::No)?;
    let excess = needed.checked_sub(fit.usable)?;
    let is_training = workload.mode == Mode::Training;
    let recomputes = prediction.transformer.is_some_and(|model| model.recomputes);
    let can_recompute = is_training && !recomputes;
    let kept = fit.activations.map(|kept| kept.least).or_else(|| beside_states(fit)).filter(|_| can_recompute);
    let kept = kept.filter(|kept| kept.get() > 0.0);
    let is_known = fit.activations.is_some();
    let mut found = Vec::new();
    match (workload.batch_size, fit.largest_batch) {
        (Some(batch), Some(largest)) if (1..batch).contains(&largest) => {
            // Only whole micro-batches give the same update.
            let divides = |size: &u64| !is_training || batch.is_multiple_of(*size);
            let size = (1..=largest).rev().find(divides).unwrap_or(1);
            let how = if is_training {
                format!(", accumulated {} times (plan --global-batch {batch} --batch-sizes {size})", batch / size)
            } else {
                String::new()
            };
            found.push(format!("a micro-batch of {size} instead of {batch}{how}"));
        }
        (Some(batch @ 2..), None)
            if kept.is_some_and(|kept| kept.get() * (1.0 - 1.0 / batch as f64) >= excess.get()) =>
        {
            found.push("a smaller micro-batch with gradient accumulation".to_owned());
        }
        _ => {}
    }
    if let Some(kept) = kept.filter(|kept| (*kept * FREED_BY_CHECKPOINTS).get() >= excess.get()) {
        let of = if is_known { format!("{kept} of activations") } else { format!("up to {kept} of activations") };
        found.push(format!("activation checkpointing (has to free {excess} of {of}; up to a third more computation)"));
    }
    let eight_bits = eight_bit_saving(fit, workload);
    if let Some(saved) = eight_bits.filter(|saved| saved.get() > 0.0) {
        if saved.get() >= excess.get() {
            found.push(format!("an 8-bit optimizer (saves about {saved} of its state)"));
        } else if let Some(kept) = kept.filter(|kept| (saved + *kept * FREED_BY_CHECKPOINTS).get() >= excess.get())
            && found.is_empty()
        {
            found.push(format!(
                "activation checkpointing and an 8-bit optimizer together ({kept} of activations, about {saved} of optimizer state)"
            ));
        }
    }
    let counts =
        std::iter::successors(Some(2_u32), |gpus| gpus.checked_mul(2)).take_while(|gpus| *gpus <= MOST_SHARDED);
    let mut sharded = counts.flat_map(|gpus| Sharding::ALL[1..].iter().map(move |stage| (*stage, gpus)));
    if let Some((stage, gpus)) = sharded.find(|(stage, gpus)| fit.sharded(*stage, *gpus).fits == Fits::Yes) {
        found.push(format!("--sharding {} on {gpus} GPUs or more", stage.name()));
    }
    let parts = parts_of(fit);
    Some(match found.as_slice() {
        [] => format!(
            "{excess} too much{parts}: checkpointing, an 8-bit optimizer, a smaller micro-batch or sharding may not be enough; use a GPU with more memory"
        ),
        found => format!("{excess} too much{parts}; would fit with {}", found.join(", or ")),
    })
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
    fit.at_most.filter(|_| fit.narrowest.is_none())?.checked_sub(fit.states?.total())
}

/// The known parts of the memory needed, in parentheses.
fn parts_of(fit: &MemoryFit) -> String {
    let mut parts = Vec::new();
    if let Some(states) = &fit.states {
        parts.push(format!("parameters and gradients {}", states.parameters + states.gradients));
        if states.optimizer.get() > 0.0 {
            let assumed = if states.is_assumed { " (assuming Adam)" } else { "" };
            parts.push(format!("optimizer state {}{assumed}", states.optimizer));
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
    /// activations.
    fn prediction(usable_gb: f64, largest_batch: Option<u64>) -> (Prediction, Workload) {
        let json = r#"{"format": "habitat-profile", "version": 1,
            "workload": {"name": "w", "mode": "training", "batch_size": 8, "parameter_count": 1000000000},
            "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[64, 64], [64, 64]], "dtype": "float32"}]}"#;
        let profile = Profile::from_json(json.as_bytes()).unwrap().0;
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/rtx-3090.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let gpu = habitat_step::catalog::GpuSpec::parse(&text, habitat_step::catalog::Layer::Shipped).unwrap();
        let catalog = habitat_step::catalog::Catalog::new(vec![gpu]);
        let options = habitat_prediction::Options {
            targets: vec![habitat_base::units::GpuSlug::new("rtx-3090").unwrap()],
            ..habitat_prediction::Options::default()
        };
        let mut found = habitat_prediction::predict(&profile, &catalog, &options).unwrap();
        let mut prediction = found.predictions.remove(0);
        let gb = |gb: f64| Bytes::known(gb * 1e9);
        prediction.memory = MemoryFit {
            fits: Fits::No,
            needed: Some(gb(37.0)),
            at_most: Some(gb(37.0)),
            usable: gb(usable_gb),
            reason: String::new(),
            largest_batch,
            states: Some(habitat_prediction::sharding::ModelStates {
                parameters: gb(4.0),
                gradients: gb(4.0),
                optimizer: gb(8.0),
                is_assumed: false,
            }),
            activations: Some(habitat_prediction::sharding::Activations { least: gb(20.0), most: gb(20.0) }),
            working: None,
            narrowest: None,
        };
        (prediction, found.workload)
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
        assert!(said(4.0, None).contains("a GPU with more memory"), "{}", said(4.0, None));
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
