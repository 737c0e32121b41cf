//! Predicts the step on one GPU from its operations, with its range.

use super::decoded::Decoded;
use super::efficiency::{Efficiency, roofline_of};
use super::estimate::{Estimate, MethodShare, OperationPrediction, StepTime};
use super::finding::Finding;
use super::gpu::GpuFacts;
use super::host::Host;
use super::launches::HostWork;
use super::memory::{Fits, MemoryBasis, MemoryFit, MemoryNeed};
use super::method::Method;
use super::methods::{Inputs, OnGpu, StepParts};
use super::notes;
use super::pace::Pace;
use super::precision::{self, Change};
use super::predictions::Prediction;
use super::rate::Rates;
use super::recorded_step::RecordedStep;
use super::shares::{self, shares, update_share};
use super::transformer::Layers;
use habitat_base::units::Micros;
use habitat_step::profile::{Operation, Profile};

/// Inputs that all predictions of a profile share.
pub(super) struct Context<'a> {
    pub(super) base: Option<&'a RecordedStep>,
    pub(super) need: &'a MemoryNeed,
    /// Layers that GPUs can share.
    pub(super) layers: Option<&'a Layers>,
    /// Work of a host whose pace is assumed: the step was not recorded on a GPU, and its host is not to keep up.
    pub(super) host_work: Option<&'a HostWork>,
    /// Warnings for the times of every GPU.
    pub(super) warnings: &'a [Finding],
}

/// Predicts the step on one GPU by the methods prepared for it.
pub(super) fn predict_one(context: &Context<'_>, on: &OnGpu<'_>, change: Option<&Change>) -> Prediction {
    let Context { base, need, .. } = *context;
    let &Inputs { profile, decoded, origin, options, models, .. } = on.inputs();
    let (rates, gpu, host, explains) = (on.gpu, on.gpu.gpu, options.host, !options.steps_only);
    let is_origin = origin.is_some_and(|origin| origin.gpu.slug == gpu.slug);
    let mut operations: Vec<OperationPrediction> = decoded.iter().map(|decoded| on.predict(decoded)).collect();
    let taken_over = change.map_or_else(Vec::new, |change| {
        let efficiency = models.and_then(|models| models.models.efficiency());
        change.apply(rates, (decoded, efficiency), &mut operations, explains)
    });
    // Lines keep the measured step, rooflines replace it.
    let keeps = options.method.facts().is_none_or(|facts| facts.is_fitted || !facts.ignores_origin);
    let measured = profile.measured_step().filter(|_| is_origin && keeps && change.is_none());
    for operation in operations.iter_mut().filter(|_| measured.is_some()) {
        keep_measured(operation, explains);
    }
    let shares = shares(&operations);
    let host_idle = base.map_or(Micros::ZERO, |base| base.host_idle);
    let left_out = base.map_or(Micros::ZERO, |base| base.left_out);
    let mut warnings = context.warnings.to_vec();
    let step = measured.map_or_else(
        || {
            let parts = StepParts { on, operations: &operations, is_measured: base.is_some() };
            predicted_step(&shares, &parts, base, change.is_some())
        },
        |measured| recorded_step(measured, profile, base),
    );
    // Steps recorded on this GPU have their waits; predicted ones get that for data below.
    let waited = base.filter(|_| step.is_of_origin()).map_or(Micros::ZERO, |base| base.data_wait);
    let device = step.mid().checked_sub(host_idle + waited).unwrap_or_default();
    let pace = Pace::new(profile, base, &operations, (context.host_work, gpu));
    let (step, data, of_host) = match host {
        Host::AsRecorded => pace.as_recorded(step),
        Host::KeepsUp => (pace.kept_up(step), None, Vec::new()),
    };
    warnings.extend(of_host);
    // Measured steps include their own GPU's rates, and converted steps are no longer in the recorded precision.
    if measured.is_none() && change.is_none() {
        warnings.extend(notes::without_matrix_cores(on, &operations));
    }
    let is_launched = host == Host::AsRecorded && profile.step.as_ref().is_none_or(|step| step.execution.is_none());
    let together = |place: usize, operation: &Operation| {
        let other = Decoded::new(place, operation, profile.workload.precision);
        relative_time([&decoded[place], &other], rates, models.and_then(|models| models.models.efficiency()))
    };
    let transformer = context.layers.and_then(|layers| layers.on(&operations, is_launched, together));
    let throughput = profile.workload.batch_size.and_then(|batch| step.as_estimate().throughput(batch));
    let mut notes = notes::of_gpu(rates, &operations, profile);
    if measured.is_none() {
        notes.extend(notes::of_models(on, &operations, &shares, base));
    }
    if let Some(lines) = on.lines().filter(|_| measured.is_none()) {
        notes.extend(notes::of_lines(&lines, &shares));
    }
    notes.splice(0..0, taken_over);
    if measured.is_some() && left_out.get() > 0.0 {
        notes.insert(0, Finding::BusyTime);
    }
    let mut memory = need.changed(change, &profile.workload).fit(rates);
    if warnings.iter().any(Finding::is_sharded) {
        may_fit(&mut memory, need);
    }
    Prediction {
        gpu: GpuFacts::new(rates),
        notes,
        step,
        throughput,
        host_idle: host_idle + data.map_or(Micros::ZERO, |data| data.wait()),
        device,
        data,
        shares,
        update_share: update_share(&operations),
        left_out: shares::left_out(&operations),
        operations: if explains { operations } else { Vec::new() },
        precision_note: None,
        keeps_precision: false,
        at_batches: Vec::new(),
        transformer,
        memory,
        warnings,
    }
}

/// Keeps the measured time of an operation on its own GPU.
fn keep_measured(operation: &mut OperationPrediction, explains: bool) {
    let Some(time) = operation.origin_time else { return };
    operation.time = Some(Estimate::with_band(time, 0.0, Method::Measured));
    if explains {
        "measured on this GPU".clone_into(&mut operation.why);
    }
}

/// The recorded step on its own GPU, less what a prediction leaves out: communication, and waits that do not count.
fn recorded_step(median: Micros, profile: &Profile, base: Option<&RecordedStep>) -> StepTime {
    let left_out = base.map_or(Micros::ZERO, |base| base.left_out);
    let busy = median.checked_sub(left_out).unwrap_or_default();
    match base.and_then(|base| base.doubt) {
        Some(doubt) => StepTime::Predicted(doubt.derived(busy)),
        None if left_out.get() > 0.0 => StepTime::Predicted(Estimate::with_band(busy, 0.0, Method::Derived)),
        None => StepTime::Measured { median, range: profile.step.as_ref().and_then(|step| step.duration_range) },
    }
}

/// The step predicted from its operations.
fn predicted_step(
    shares: &[MethodShare],
    parts: &StepParts<'_>,
    base: Option<&RecordedStep>,
    is_changed: bool,
) -> StepTime {
    let step = step_estimate(shares, parts, base);
    let step = if is_changed { precision::widened(step) } else { step };
    let step = base.map_or(step, |base| base.with_unassigned(step));
    StepTime::Predicted(base.and_then(|base| base.doubt).map_or(step, |doubt| doubt.widened(step)))
}

/// Time of an operation relative to another one's; 1 if it is unknown.
fn relative_time([one, other]: [&Decoded<'_>; 2], rates: &Rates<'_>, efficiency: Option<&Efficiency>) -> f64 {
    let time = |decoded: &Decoded<'_>| match efficiency {
        Some(model) => model.board(rates).time(model.with_tf32_or_without(decoded).on(rates), decoded.dtype.as_ref()),
        None => roofline_of(decoded, rates),
    };
    time(other).zip(time(one)).map_or(1.0, |(other, one)| other / one)
}

/// Sets the fit of one rank's share of a model to unknown: the whole may not fit even if the share does. Without a
/// peak, all parameters were counted.
fn may_fit(memory: &mut MemoryFit, need: &MemoryNeed) {
    let fits = match memory.fits {
        Fits::Yes => true,
        Fits::No if !need.has_peak() => false,
        _ => return,
    };
    memory.basis = MemoryBasis::OneRank { fits, on: Box::new(memory.basis.clone()) };
    memory.fits = Fits::Unknown;
    (memory.at_most, memory.states, memory.activations, memory.narrowest) = (None, None, None, None);
}

/// Step time with its range. Each method's part has the range validated for steps by that method, added as fully
/// correlated. Ranges are calibrated for the learned models and fitted lines, published step errors otherwise; these
/// are errors of whole iterations, in which the host's part varies too.
fn step_estimate(shares: &[MethodShare], parts: &StepParts<'_>, base: Option<&RecordedStep>) -> Estimate {
    // Lines were fitted to steps that overlap as they do.
    let recorded = base.filter(|_| parts.on.lines().is_none());
    let (overlap, deviation) = recorded.map_or((1.0, 1.0), |base| (base.overlap, base.deviation));
    let idle = base.map_or(Micros::ZERO, |base| base.host_idle);
    let (mut device, mut low, mut high) = (Micros::ZERO, 0.0, 0.0);
    for share in shares {
        let range = share.method.step_range(parts);
        device += share.device_time * range.factor;
        low += share.share * range.low;
        high += share.share * range.high;
    }
    let is_by_layers = |share: &MethodShare| matches!(share.method, Method::KernelWise | Method::LayerWise);
    let method = match shares {
        [only] if only.method == Method::Learned && base.is_some() => Method::LearnedRatio,
        // Ignores a few fallback layers when naming the method.
        [largest, rest @ ..] if rest.iter().all(is_by_layers) => largest.method,
        _ => Method::Mixed,
    };
    Estimate::with_factors(device * (overlap * deviation) + idle, low, high, method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rates;
    use habitat_step::catalog::{GpuSpec, Layer};
    use habitat_step::profile::Profile;

    /// 7 billion parameters of which a rank kept a share: unknown, with or without a peak.
    #[test]
    fn a_share_of_a_model_says_neither_yes_nor_no_of_the_whole() {
        let json = r#"{"format": "habitat-profile", "version": 1, "operations": [{"name": "aten::relu", "phase": "forward"}],
            "workload": {"name": "w", "mode": "training", "precision": "fp32", "parameter_count": 7000000000}}"#;
        let mut profile = Profile::from_json(json.as_bytes()).unwrap().0;
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../catalog/t4.toml");
        let gpu = GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap();
        let share = |profile: &Profile| {
            let need = MemoryNeed::of(profile, None);
            let mut memory = need.fit(&Rates::new(&gpu));
            let alone = memory.fits;
            may_fit(&mut memory, &need);
            (alone, memory.fits)
        };
        assert_eq!(share(&profile), (Fits::No, Fits::Unknown));
        let peak = |bytes: f64| Some(habitat_base::units::Bytes::known(bytes));
        profile.step.get_or_insert_default().peak_memory_bytes = peak(4e9);
        assert_eq!(share(&profile), (Fits::Yes, Fits::Unknown));
        // If the share does not fit, as many or fewer GPUs do not fit either.
        profile.step.get_or_insert_default().peak_memory_bytes = peak(40e9);
        assert_eq!(share(&profile), (Fits::No, Fits::No));
    }
}
