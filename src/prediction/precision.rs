//! Predicts a recorded step in another precision.
//!
//! Uses Daydream's rule as combined with Habitat (USENIX ATC '21, section 6.1.2): the step is predicted on the
//! destination in its recorded precision, then each operation is scaled by the effect of the other precision on that
//! GPU. Those papers use fixed factors; here the factor is the ratio of two rooflines of the same GPU. Compute-bound
//! products scale with the sustained rates of both precisions, memory-bound operations with the bytes of their
//! elements. With an efficiency model, its times replace the rooflines.
//!
//! Under automatic mixed precision, element types follow PyTorch's autocast. Products, convolutions, attention,
//! recurrent layers and operations on their results run in 16 bits. Layer, group and RMS norms, softmax, losses, sums
//! and some functions stay in 32 bits, as do table look-ups and the optimizer. Batch norm follows its input. In FP8
//! the products of linear layers run, after casts of their operands ([`eight`]); the rest as under autocast.

mod casts;
mod eight;

use habitat_base::units::{Bytes, Flops, Micros, Range};
use habitat_step::catalog::GpuSpec;
use habitat_step::profile::{DType, Mode, Operation, Phase, Precision, Profile, Workload, is_host_transfer};

use super::decoded::Decoded;
use super::efficiency::{Board, Efficiency, WithTf32};
use super::estimate::{Estimate, OperationPrediction};
use super::finding::Finding;
use super::rate::Rates;
use super::roofline::roofline;
use habitat_step::op::name::{self, Form, Name, NormalisationForm};
use habitat_step::op::{ALLOW_TF32, Arithmetic, Family, Work};

/// Mean error of whole steps converted to another precision, predicted from another GPU (Habitat section 6.1.2).
const CHANGED_STEP_ERROR: f64 = 0.161;
/// Mean error without a change of precision: Habitat's over all pairs of GPUs.
const SAME_STEP_ERROR: f64 = 0.118;

/// Slowdown in FP8 that is reported (a choice).
const NOTICEABLE: f64 = 0.005;

/// Conversion from the recorded precision to the requested one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    from: Precision,
    to: Precision,
    /// Whether the profile names its precision.
    recorded: bool,
    /// Changes by operation; `None` if an operation does not change.
    operations: Vec<Option<Changed>>,
    /// Which products run in FP8.
    eight: eight::Step,
}

/// Factors on the recorded memory of a step for numbers of another width: lower and upper end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Resized {
    /// Parameters, gradients and optimizer state.
    pub(super) states: [f64; 2],
    /// Activations and everything else.
    pub(super) rest: [f64; 2],
    /// Temporary memory beside the activations, if known apart.
    pub(super) temporary: [f64; 2],
    /// Upper end of the copies of the weights in the other type.
    pub(super) copies: Bytes,
}

/// Operation in the requested precision.
#[derive(Debug, Clone, PartialEq)]
struct Changed {
    dtype: DType,
    work: Work,
    /// Elements of each cast added to it.
    casts: Vec<f64>,
    /// Elements of each operand that is cast to FP8.
    operands: Vec<f64>,
    /// Whether it is a cast that is no longer needed.
    is_gone: bool,
    /// Inputs of the efficiency model, in the recorded and the requested precision.
    asked: Option<[WithTf32; 2]>,
    /// Precision of its arithmetic on a GPU with TF32.
    arithmetic: Option<Precision>,
}

impl Change {
    /// Conversion for the requested precision; `None` if nothing changes.
    pub(super) fn requested(
        profile: &Profile,
        to: Option<Precision>,
        decoded: &[Decoded<'_>],
        efficiency: Option<&Efficiency>,
    ) -> Option<Self> {
        let mut change = Self::of_numbers(profile, to)?;
        let Self { from, to, .. } = change;
        change.eight = eight::Step::new(decoded);
        change.operations = decoded.iter().map(|one| change.changed(one, efficiency)).collect();
        if mixes(to) && is_wide(from) {
            let added = casts::added(decoded, profile.workload.parameter_count);
            for (changed, casts) in change.operations.iter_mut().zip(added) {
                if let Some(changed) = changed {
                    changed.casts = casts;
                }
            }
        }
        Some(change)
    }

    /// The change of precision alone, without its operations: enough to resize the memory. `None` if the precision stays.
    pub(super) fn of_numbers(profile: &Profile, to: Option<Precision>) -> Option<Self> {
        let to = to?;
        let recorded = profile.workload.precision;
        let from = recorded.unwrap_or_else(|| infer(&profile.operations));
        (from != to).then(|| Self {
            from,
            to,
            recorded: recorded.is_some(),
            operations: Vec::new(),
            eight: eight::Step::default(),
        })
    }

    /// The requested precision.
    pub(super) const fn to(&self) -> Precision {
        self.to
    }

    /// Note for every converted prediction.
    pub(super) fn note(&self) -> Finding {
        Finding::ConvertedPrecision { from: self.from, to: self.to }
    }

    /// Effect of the change on the memory of the step; `None` if the numbers are as wide as before.
    ///
    /// Training in FP8 keeps weights, gradients and optimizer state as they were, adds the weights in 8 bits and
    /// their transposes (Transformer Engine; autocast to 16 bits has copies as large), and keeps activations
    /// that are not inputs of products in 16 bits: at least half, or a quarter, of what was recorded.
    pub(super) fn resized(&self, workload: &Workload) -> Option<Resized> {
        let is_training = workload.mode == Mode::Training;
        let to_fp8 = self.to == Precision::Fp8 && is_training;
        let states = |precision| match precision {
            // Weights in 16 bits or in 32.
            Precision::Fp8 if is_training => 2.0,
            Precision::Fp8 => 1.0,
            Precision::Fp16 | Precision::Bf16 => 2.0,
            _ => 4.0,
        };
        let rest = |precision| match precision {
            // Products keep their inputs in 8 bits, or in 16 (torchtitan takes as much memory as in BF16: 76.8 and 77.0
            // GiB, 61.8 and 62.0); normalisations, gates and logits stay wider.
            Precision::Fp8 if is_training => 1.5,
            Precision::Fp8 => 1.0,
            _ if is_wide(precision) => 4.0,
            _ => 2.0,
        };
        let ends = |of_to: f64, of_from: f64| [(of_to / of_from).min(1.0), (of_to / of_from).max(1.0)];
        let copies = if to_fp8 && !mixes(self.from) { 2.0 } else { 0.0 };
        let parameters = workload.parameter_count.unwrap_or(0) as f64;
        let resized = Resized {
            states: if to_fp8 { [1.0, 1.0] } else { ends(states(self.to), states(self.from)) },
            rest: ends(rest(self.to), rest(self.from)),
            // The loss stays in 32 bits.
            temporary: if to_fp8 { [1.0, 1.0] } else { ends(rest(self.to), rest(self.from)) },
            copies: Bytes::known(parameters * copies),
        };
        (resized.states != [1.0, 1.0] || resized.rest != [1.0, 1.0]).then_some(resized)
    }

    /// Notes that apply to every GPU.
    pub(super) fn notes(&self, decoded: &[Decoded<'_>]) -> Vec<Finding> {
        let &Self { from, to, recorded, .. } = self;
        let mut notes = vec![Finding::PrecisionChanged { from, recorded, to, mean_error: CHANGED_STEP_ERROR }];
        let casts = |told: bool| -> u64 {
            let of = |one: &&Decoded<'_>| name::is_cast(&one.operation.name) && casts::is_told(one) == told;
            decoded.iter().filter(of).map(|one| u64::from(one.operation.count)).sum()
        };
        if mixes(from) && !mixes(to) {
            match (casts(true), casts(false)) {
                (0, 0) => {}
                (0, copies) => notes.push(Finding::PossibleCasts { copies, to }),
                (casts, _) => notes.push(Finding::CastsDropped { casts, to }),
            }
        }
        // Elements that the operations cast.
        let elements = |of: fn(&Changed) -> &[f64]| -> f64 {
            let counted = decoded.iter().zip(&self.operations).map(|(one, changed)| {
                f64::from(one.operation.count) * changed.as_ref().map_or(0.0, |changed| of(changed).iter().sum())
            });
            counted.sum()
        };
        if to == Precision::Fp8 {
            let elements = elements(|changed| &changed.operands);
            let bytes = Bytes::known(elements * eight::BYTES);
            notes.extend((elements > 0.0).then_some(Finding::OperandsCast { bytes }));
        }
        if mixes(to) && is_wide(from) {
            let elements = elements(|changed| &changed.casts);
            let bytes = Bytes::known(elements * casts::BYTES);
            notes.extend((elements > 0.0).then_some(Finding::CastsAdded { bytes, to }));
        } else if autocasts(to) && !mixes(from) {
            notes.push(Finding::CastsMissing { to });
        }
        notes
    }

    /// Whether anything changes on a GPU. Between 32-bit precisions, that requires TF32 and an operation that runs in
    /// it in only one of the two.
    pub(super) fn changes(&self, gpu: &GpuSpec) -> bool {
        let is_within_32_bits = self.from.is_32_bits() && self.to.is_32_bits();
        !is_within_32_bits || gpu.runs_tf32() && self.operations.iter().any(Option::is_some)
    }

    /// Note listing the GPUs that keep the recorded precision; `None` if all change.
    pub(super) fn kept_on(&self, refused: &[&GpuSpec]) -> Option<Finding> {
        let gpus = refused.iter().map(|gpu| gpu.slug.clone()).collect();
        (!refused.is_empty()).then_some(Finding::PrecisionKeptOn { from: self.from, to: self.to, gpus })
    }

    /// Reason that `gpu` cannot run in the requested precision, if it cannot.
    pub(super) fn refused_by(&self, gpu: &GpuSpec) -> Option<Finding> {
        let (peak, &Self { from, to, .. }) = (&gpu.peak, self);
        let (dtype, rate) = match to {
            Precision::Fp32 | Precision::Fp32Strict => return None,
            Precision::Tf32 | Precision::Tf32Products => ("tf32", peak.tf32_tensor.filter(|_| gpu.runs_tf32())),
            Precision::AmpFp16 | Precision::Fp16 => ("fp16", peak.fp16_tensor),
            Precision::AmpBf16 | Precision::Bf16 => ("bf16", peak.bf16_tensor),
            Precision::Fp8 => ("fp8", peak.fp8_tensor),
        };
        rate.is_none().then(|| Finding::PrecisionKept { gpu: gpu.slug.clone(), dtype, from, to })
    }

    /// Scales the predictions of one GPU, operation by operation, with the reason if it `explains`. Returns notes.
    pub(super) fn apply(
        &self,
        rates: &Rates<'_>,
        (decoded, efficiency): (&[Decoded<'_>], Option<&Efficiency>),
        operations: &mut [OperationPrediction],
        explains: bool,
    ) -> Vec<Finding> {
        let board = efficiency.map(|model| model.board(rates));
        let (mut all, mut unknown, mut after) = (Micros::ZERO, Micros::ZERO, Micros::ZERO);
        for ((decoded, changed), prediction) in decoded.iter().zip(&self.operations).zip(operations) {
            let Some(time) = &mut prediction.time else { continue };
            let total = time.range.mid * f64::from(prediction.count);
            all += total;
            let Some(work) = &decoded.work else {
                unknown += if decoded.family == Family::View { Micros::ZERO } else { total };
                after += total;
                continue;
            };
            let factor =
                changed.as_ref().map_or(1.0, |changed| self.factor((rates, board.as_ref()), decoded, work, changed));
            after += total * factor;
            if (factor - 1.0).abs() > 1e-9 {
                let range = time.range.map(|time| time * factor);
                *time = widened(Estimate { range, ..*time });
                if explains {
                    prediction.why = format!("{}; {} → {}: × {factor:.2}", prediction.why, self.from, self.to);
                }
            }
        }
        let share = if all.get() > 0.0 { unknown / all } else { 0.0 };
        let factor = if all.get() > 0.0 { after / all } else { 1.0 };
        let is_slower = self.to == Precision::Fp8 && !is_wide(self.from) && factor > 1.0 + NOTICEABLE;
        let slower = is_slower.then_some(Finding::SlowerInFp8 { factor, from: self.from });
        let shapeless = (share > 0.01).then_some(Finding::ShapelessOperators { share, from: self.from });
        slower.into_iter().chain(shapeless).collect()
    }

    /// Time in the requested precision over time in the recorded one.
    fn factor(
        &self,
        (rates, board): (&Rates<'_>, Option<&Board<'_>>),
        decoded: &Decoded<'_>,
        work: &Work,
        changed: &Changed,
    ) -> f64 {
        if changed.is_gone {
            return 0.0;
        }
        let here = roofline(rates, work, decoded.dtype.as_ref(), decoded.arithmetic);
        let there = roofline(rates, &changed.work, Some(&changed.dtype), changed.arithmetic);
        let learned = changed.asked.as_ref().zip(board).and_then(|([before, after], board)| {
            Some([
                board.time(before.on(rates), decoded.dtype.as_ref())?,
                board.time(after.on(rates), Some(&changed.dtype))?,
            ])
        });
        let [here, there] = learned.unwrap_or([here, there]);
        let cast = |elements: &f64| {
            let bytes = Bytes::known(elements * casts::BYTES);
            let work = Work { flops: Flops::known(0.0), bytes, arithmetic: Arithmetic::Vector };
            roofline(rates, &work, Some(&DType::Float32), Some(self.to))
        };
        let operand = |elements: &f64| match board {
            Some(board) => board.cast(Bytes::known(elements * eight::BYTES), eight::KERNELS),
            None => cast(elements) * (eight::BYTES / casts::BYTES),
        };
        let casts = changed.casts.iter().map(cast).chain(changed.operands.iter().map(operand));
        let factor = (there + casts.fold(Micros::ZERO, |all, one| all + one)) / here;
        // Libraries choose the faster kernel: TF32 is never slower than FP32.
        match (decoded.arithmetic, changed.arithmetic) {
            (Some(Precision::Fp32Strict), Some(Precision::Tf32)) => factor.min(1.0),
            (Some(Precision::Tf32), Some(Precision::Fp32Strict)) => factor.max(1.0),
            _ => factor,
        }
    }

    /// Operation in the requested precision; `None` if no change is known.
    fn changed(&self, decoded: &Decoded<'_>, efficiency: Option<&Efficiency>) -> Option<Changed> {
        let before = decoded.dtype.as_ref().filter(|before| is_floating(before))?;
        let (size, work, operation) = (before.size_bytes()?, decoded.work?, decoded.operation);
        if is_host_transfer(&operation.name) || operation.kernels.iter().any(|kernel| is_host_transfer(&kernel.name)) {
            return None;
        }
        let is_gone = mixes(self.from) && !mixes(self.to) && casts::is_told(decoded);
        let dtype = self.element(decoded, before);
        let element = dtype.size_bytes().unwrap_or(size) as f64;
        // Tensors of other types, such as masks and statistics, keep their type.
        let work = if element == size as f64 { work } else { decoded.op.work(element)? };
        let mut operation = Operation { dtype: Some(dtype.clone()), ..operation.clone() };
        // The requested precision replaces the flag of the recording.
        operation.attributes.remove(ALLOW_TF32);
        let after = Decoded::new(decoded.index, &operation, Some(self.to));
        let is_tf32_alone = self.from.is_32_bits() && self.to.is_32_bits();
        if is_tf32_alone && decoded.is_in_tf32() == after.is_in_tf32() {
            return None;
        }
        let asked = efficiency.map(|model| [decoded, &after].map(|one| model.with_tf32_or_without(one)));
        let is_eight = dtype == DType::Float8E4m3 && *before != dtype;
        let operands = if is_eight { eight::operands(decoded) } else { Vec::new() };
        Some(Changed { dtype, work, casts: Vec::new(), operands, is_gone, asked, arithmetic: after.arithmetic })
    }

    /// Element type of an operation in the requested precision.
    fn element(&self, decoded: &Decoded<'_>, recorded: &DType) -> DType {
        let operation = decoded.operation;
        let half = match self.to {
            precision if precision.is_32_bits() => None,
            Precision::Fp16 | Precision::AmpFp16 => Some(DType::Float16),
            _ => Some(DType::Bfloat16),
        };
        let Some(half) = half else {
            // A cast involves the sizes of both sides.
            return if name::is_cast(&operation.name) { recorded.clone() } else { DType::Float32 };
        };
        if self.to == Precision::Fp8 && decoded.family == Family::Gemm && self.eight.runs(decoded) {
            return DType::Float8E4m3;
        }
        // A recording in mixed or pure 16-bit precision already shows which operations run in 16 bits.
        let is_narrow = matches!(self.from, Precision::Fp16 | Precision::Bf16) && self.to == Precision::Fp8;
        let lowered = match (mixes(self.from) || is_narrow, mixes(self.to)) {
            (true, true) => *recorded != DType::Float32,
            (_, true) => lowered_by_autocast(operation),
            (_, false) => true,
        };
        if lowered { half } else { DType::Float32 }
    }
}

/// Infers the precision of products if the recording does not name it.
pub(super) fn infer(operations: &[Operation]) -> Precision {
    let half = |dtype: &DType| operations.iter().any(|operation| operation.dtype.as_ref() == Some(dtype));
    match (half(&DType::Bfloat16), half(&DType::Float16), half(&DType::Float32)) {
        (true, _, true) => Precision::AmpBf16,
        (true, _, false) => Precision::Bf16,
        (_, true, true) => Precision::AmpFp16,
        (_, true, false) => Precision::Fp16,
        _ => Precision::Fp32,
    }
}

const fn is_wide(precision: Precision) -> bool {
    precision.is_32_bits()
}

/// Whether autocast chooses the types.
const fn autocasts(precision: Precision) -> bool {
    matches!(precision, Precision::AmpFp16 | Precision::AmpBf16)
}

/// Whether some operations run in 16 bits or less and others in 32.
const fn mixes(precision: Precision) -> bool {
    matches!(precision, Precision::AmpFp16 | Precision::AmpBf16 | Precision::Fp8)
}

const fn is_floating(dtype: &DType) -> bool {
    matches!(dtype, DType::Float32 | DType::Float16 | DType::Bfloat16 | DType::Float8E4m3 | DType::Float8E5m2)
}

/// Whether an operation recorded in 32 bits runs in 16 bits under autocast.
fn lowered_by_autocast(operation: &Operation) -> bool {
    if !matches!(operation.phase, Phase::Forward | Phase::Backward | Phase::Other) {
        return false;
    }
    let name = Name::of(&operation.name);
    match name.form {
        Form::Normalisation(form) => {
            matches!(form, NormalisationForm::Channel | NormalisationForm::ChannelWithStatistics)
        }
        // Sums of 16-bit gradients stay in 16 bits; losses and sums of the forward pass do not.
        Form::Reduction(_) => operation.phase == Phase::Backward && !name.loss,
        Form::Stream(_) => !name::is_kept_wide(&operation.name),
        Form::Pooling => true,
        _ => name.family().varies_kernels(),
    }
}

/// Adds the error of the conversion to a range, assumed independent of it.
pub(super) fn widened(estimate: Estimate) -> Estimate {
    let more = CHANGED_STEP_ERROR.powi(2) - SAME_STEP_ERROR.powi(2);
    let mid = estimate.range.mid.get();
    if mid <= 0.0 {
        return estimate;
    }
    let wider = |end: Micros| ((end.get() / mid - 1.0).powi(2) + more).sqrt();
    let Range { low, mid, high } = estimate.range;
    let range = Range { low: mid * (1.0 - wider(low)).max(0.0), mid, high: mid * (1.0 + wider(high)) };
    Estimate { range, ..estimate }
}
