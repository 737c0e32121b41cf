//! A recorded step in another precision.
//!
//! Daydream's rule as Habitat combines it with its own (USENIX ATC '21, section 6.1.2):
//! the step is predicted on the destination in the precision it was recorded in, then each
//! operation is scaled by what the other precision changes on that GPU. Where those papers
//! take fixed factors, the ratio of two rooflines of the same GPU is taken here: products
//! by the sustained rates of the two precisions unless memory bounds them, operations bound
//! by memory by the bytes of their elements. The efficiency model, where it is there, says both
//! more closely.
//!
//! Which elements change under automatic mixed precision follows PyTorch's autocast:
//! products, convolutions, attention, recurrent layers and what works on their results run
//! in 16 bits; layer, group and RMS norms, softmax, losses, sums and some functions stay in
//! 32 bits, as do table look-ups and the optimizer. Batch norm follows its input.

mod casts;

use crate::catalog::GpuSpec;
use crate::profile::{DType, Mode, Operation, Phase, Precision, Profile, Workload, is_host_transfer};
use crate::units::{Bytes, Flops, Micros, Range};

use super::decoded::Decoded;
use super::efficiency::{Board, Efficiency, WithTf32};
use super::estimate::{Estimate, OperationPrediction};
use super::memory::Resized;
use super::rate::Rates;
use super::roofline::roofline;
use crate::op::name::{self, Form, Name, NormalisationForm};
use crate::op::{ALLOW_TF32, Arithmetic, Family, Work};

/// Mean error of whole steps predicted so, from another GPU (Habitat section 6.1.2).
const CHANGED_STEP_ERROR: f64 = 0.161;
/// The same without a change of precision: Habitat's mean error over all pairs of GPUs.
const SAME_STEP_ERROR: f64 = 0.118;

/// GPUs that a note names one by one.
const GPUS_NAMED: usize = 6;

/// From the recorded precision to the one asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    from: Precision,
    to: Precision,
    /// Whether the profile says what it was recorded in.
    recorded: bool,
    /// By operation; `None` where nothing changes.
    operations: Vec<Option<Changed>>,
}

/// An operation in the precision asked for.
#[derive(Debug, Clone, PartialEq)]
struct Changed {
    dtype: DType,
    work: Work,
    /// Elements of each cast that comes with it.
    casts: Vec<f64>,
    /// Whether it is itself a cast that is not needed.
    is_gone: bool,
    /// What the efficiency model takes it for, as recorded and as asked for.
    asked: Option<[WithTf32; 2]>,
    /// Its arithmetic on a GPU with TF32.
    arithmetic: Option<Precision>,
}

impl Change {
    /// What is to be changed; `None` where nothing is.
    pub(super) fn asked(
        profile: &Profile,
        to: Option<Precision>,
        decoded: &[Decoded<'_>],
        efficiency: Option<&Efficiency>,
    ) -> Option<Self> {
        let mut change = Self::of_numbers(profile, to)?;
        let Self { from, to, .. } = change;
        change.operations = decoded.iter().map(|one| change.changed(one, efficiency)).collect();
        if autocasts(to) && is_wide(from) {
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
        (from != to).then(|| Self { from, to, recorded: recorded.is_some(), operations: Vec::new() })
    }

    /// The precision asked for.
    pub(super) const fn to(&self) -> Precision {
        self.to
    }

    /// What is said with every prediction so changed.
    pub(super) fn note(&self) -> String {
        format!("predicted in {}, recorded in {}", self.to, self.from)
    }

    /// What the change makes of the memory of the step; `None` if the numbers are as wide as before.
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
            copies: Bytes::known(parameters * copies),
        };
        (resized.states != [1.0, 1.0] || resized.rest != [1.0, 1.0]).then_some(resized)
    }

    /// What holds on every GPU.
    pub(super) fn notes(&self, decoded: &[Decoded<'_>]) -> Vec<String> {
        let &Self { from, to, recorded, .. } = self;
        let source = if recorded { "as recorded" } else { "taken from the element types; the profile does not say" };
        let mut notes = vec![format!(
            "precision changed from {from} ({source}) to {to} by the rates and element sizes of both on each GPU (Daydream's rule; Habitat found {:.1} % mean error with it), ranges widened for it",
            CHANGED_STEP_ERROR * 100.0
        )];
        let casts = |told: bool| -> u64 {
            let of = |one: &&Decoded<'_>| name::is_cast(&one.operation.name) && casts::is_told(one) == told;
            decoded.iter().filter(of).map(|one| u64::from(one.operation.count)).sum()
        };
        if mixes(from) && !mixes(to) {
            match (casts(true), casts(false)) {
                (0, 0) => {}
                (0, untold) => notes.push(format!(
                    "{untold} copies of the recording may be casts, which {to} would not need; they are counted all the same"
                )),
                (told, _) => notes.push(format!("{told} casts of the recording, which {to} does not need, are left out")),
            }
        }
        if autocasts(to) && is_wide(from) {
            let counted = decoded.iter().zip(&self.operations);
            let elements = counted.map(|(one, changed)| {
                let casts = changed.as_ref().map_or(0.0, |changed| changed.casts.iter().sum());
                casts * f64::from(one.operation.count)
            });
            let moved = elements.sum::<f64>() * casts::BYTES / 1e6;
            notes.push(format!(
                "casts that {to} adds are not in the recording; they follow from its operations by the rules of PyTorch's autocast and move {moved:.1} MB, counted with the operations that need them"
            ));
        } else if mixes(to) && !mixes(from) {
            notes.push(format!("casts that {to} would add are not in the recording and are not counted"));
        }
        notes
    }

    /// Whether anything changes on a GPU: between precisions of 32 bits, only where TF32 is there and an
    /// operation runs in it in one of the two alone.
    pub(super) fn changes(&self, gpu: &GpuSpec) -> bool {
        let is_within_32_bits = self.from.is_32_bits() && self.to.is_32_bits();
        !is_within_32_bits || gpu.runs_tf32() && self.operations.iter().any(Option::is_some)
    }

    /// The GPUs that keep the recorded precision, in one line; `None` where all change.
    pub(super) fn kept_on(&self, refused: &[&GpuSpec]) -> Option<String> {
        let shown = refused.iter().take(GPUS_NAMED).map(|gpu| gpu.slug.as_str()).collect::<Vec<_>>().join(", ");
        let more = match refused.len().saturating_sub(GPUS_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!refused.is_empty())
            .then(|| format!("no {} matrix rate, so predicted in {}: {shown}{more}", self.to, self.from))
    }

    /// Why `gpu` cannot run in the precision asked for, where it cannot.
    pub(super) fn refused_by(&self, gpu: &GpuSpec) -> Option<String> {
        let peak = &gpu.peak;
        let (name, rate) = match self.to {
            Precision::Fp32 | Precision::Fp32Strict => return None,
            Precision::Tf32 | Precision::Tf32Products => ("tf32", peak.tf32_tensor.filter(|_| gpu.runs_tf32())),
            Precision::AmpFp16 | Precision::Fp16 => ("fp16", peak.fp16_tensor),
            Precision::AmpBf16 | Precision::Bf16 => ("bf16", peak.bf16_tensor),
            Precision::Fp8 => ("fp8", peak.fp8_tensor),
        };
        rate.is_none()
            .then(|| format!("{} has no {name} matrix rate: predicted in {}, not in {}", gpu.slug, self.from, self.to))
    }

    /// Scales the predictions of one GPU, operation by operation, with the reason where it `explains`; gives
    /// what to note.
    pub(super) fn apply(
        &self,
        rates: &Rates<'_>,
        (decoded, efficiency): (&[Decoded<'_>], Option<&Efficiency>),
        operations: &mut [OperationPrediction],
        explains: bool,
    ) -> Option<String> {
        let board = efficiency.map(|model| model.board(rates));
        let (mut all, mut unknown) = (Micros::ZERO, Micros::ZERO);
        for ((decoded, changed), prediction) in decoded.iter().zip(&self.operations).zip(operations) {
            let Some(time) = &mut prediction.time else { continue };
            let total = time.range.mid * f64::from(prediction.count);
            all += total;
            let Some(work) = &decoded.work else {
                unknown += if decoded.family == Family::View { Micros::ZERO } else { total };
                continue;
            };
            let factor =
                changed.as_ref().map_or(1.0, |changed| self.factor((rates, board.as_ref()), decoded, work, changed));
            if (factor - 1.0).abs() > 1e-9 {
                let range = time.range.map(|time| time * factor);
                *time = widened(Estimate { range, ..*time });
                if explains {
                    prediction.why = format!("{}; {} → {}: × {factor:.2}", prediction.why, self.from, self.to);
                }
            }
        }
        let share = if all.get() > 0.0 { unknown / all } else { 0.0 };
        (share > 0.01).then(|| {
            let share = share * 100.0;
            format!("{share:.0} % of the device time is of operators without shapes: taken as in {}", self.from)
        })
    }

    /// Time in the precision asked for over time in the recorded one.
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
        let factor = (there + changed.casts.iter().map(cast).fold(Micros::ZERO, |all, one| all + one)) / here;
        // Libraries take the faster kernel: TF32 is never slower than FP32.
        match (decoded.arithmetic, changed.arithmetic) {
            (Some(Precision::Fp32Strict), Some(Precision::Tf32)) => factor.min(1.0),
            (Some(Precision::Tf32), Some(Precision::Fp32Strict)) => factor.max(1.0),
            _ => factor,
        }
    }

    /// An operation in the precision asked for; `None` where nothing is known to change.
    fn changed(&self, decoded: &Decoded<'_>, efficiency: Option<&Efficiency>) -> Option<Changed> {
        let before = decoded.dtype.as_ref().filter(|before| is_floating(before))?;
        let (size, work, operation) = (before.size_bytes()?, decoded.work?, decoded.operation);
        if is_host_transfer(&operation.name) || operation.kernels.iter().any(|kernel| is_host_transfer(&kernel.name)) {
            return None;
        }
        let is_gone = mixes(self.from) && !mixes(self.to) && casts::is_told(decoded);
        let dtype = self.element(operation, decoded.family, before);
        let element = dtype.size_bytes().unwrap_or(size) as f64;
        // Tensors of other types, such as masks and statistics, keep theirs.
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
        Some(Changed { dtype, work, casts: Vec::new(), is_gone, asked, arithmetic: after.arithmetic })
    }

    /// The element type of an operation in the precision asked for.
    fn element(&self, operation: &Operation, family: Family, recorded: &DType) -> DType {
        let half = match self.to {
            precision if precision.is_32_bits() => None,
            Precision::Fp16 | Precision::AmpFp16 => Some(DType::Float16),
            _ => Some(DType::Bfloat16),
        };
        let Some(half) = half else {
            // A cast has the sizes of both sides.
            return if name::is_cast(&operation.name) { recorded.clone() } else { DType::Float32 };
        };
        if self.to == Precision::Fp8 && family == Family::Gemm {
            return DType::Float8E4m3;
        }
        // What was mixed already says itself which operations run in 16 bits, as does what has 16 throughout.
        let is_narrow = matches!(self.from, Precision::Fp16 | Precision::Bf16) && self.to == Precision::Fp8;
        let lowered = match (mixes(self.from) || is_narrow, mixes(self.to)) {
            (true, true) => *recorded != DType::Float32,
            (_, true) => lowered_by_autocast(operation),
            (_, false) => true,
        };
        if lowered { half } else { DType::Float32 }
    }
}

/// Precision of the products of a recording that does not name it.
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

/// Whether an operation recorded in 32 bits runs in 16 under autocast.
fn lowered_by_autocast(operation: &Operation) -> bool {
    if !matches!(operation.phase, Phase::Forward | Phase::Backward | Phase::Other) {
        return false;
    }
    let name = Name::of(&operation.name);
    match name.form {
        Form::Normalisation(form) => {
            matches!(form, NormalisationForm::Channel | NormalisationForm::ChannelWithStatistics)
        }
        // Sums of 16-bit gradients stay so; losses and sums of the forward pass do not.
        Form::Reduction(_) => operation.phase == Phase::Backward && !name.loss,
        Form::Stream(_) => !name::is_kept_wide(&operation.name),
        Form::Pooling => true,
        _ => name.family().varies_kernels(),
    }
}

/// A range with the error of the change added, taken as independent of what is in it.
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
