//! A workload at several batch sizes on several GPUs: the step, the memory, and the largest
//! batch that fits.
//!
//! From profiles at two or more batch sizes: on the GPU they were recorded on a
//! [`BatchCurve`] through the measured steps, on every other one through the steps that the
//! ordinary predictor gives for each of them. From one profile: its shapes scaled
//! ([`rebatch`]); operation by operation the time at the recorded batch times the ratio of
//! the two predictions from shapes, what the device waits for the host taken over unchanged.

use super::curve::{BatchCurve, BatchPoint, CurveError, Place};
use super::rebatch::{RebatchError, Rebatched, rebatch};
use crate::catalog::{Catalog, GpuSpec};
use crate::op::{Family, family};
use crate::predict::compare::predict;
use crate::predict::error::PredictError;
use crate::predict::estimate::{Estimate, GpuFacts, MemoryFit, Prediction, StepTime};
use crate::predict::memory::{MemoryLine, MemoryNeed};
use crate::predict::method::Method;
use crate::predict::options::Options;
use crate::predict::origin::origin;
use crate::predict::rate::Rates;
use crate::predict::warning::{Warning, distinct};
use crate::profile::{Profile, Workload};
use crate::regress::line::{Line, Point};
use crate::text;
use crate::units::{Micros, OpenRange, Range, SamplesPerSecond};

/// What the error of a step from scaled shapes is, as ln(measured ÷ predicted) at the ends of
/// the 80 and 90 % ranges, one doubling or halving of the batch away: on 45 pairs of measured
/// steps of one network on one GPU (`NeuSight`'s, 7 GPUs; `habitat-lab evaluate batches … --steps`)
/// these hold 87 and 93 % at one doubling and all at two, where the errors are hardly larger:
/// the ranges grow with the root of the doublings.
const BY_SHAPES: [f64; 2] = [0.08, 0.11];

/// Why there is no sweep.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SweepError {
    /// No profile at all.
    #[error("no profile")]
    Nothing,
    /// A profile without its batch size.
    #[error(
        "{0}: the batch size of the recording is not known; give it with --batch-size (one file), or correct the file"
    )]
    NoBatch(String),
    /// Profiles that are not of one workload.
    #[error(
        "{first} and {other} differ in {what}: {of_first} and {of_other}; a line goes through steps of one workload, recorded alike"
    )]
    Differ {
        /// The first profile's name.
        first: String,
        /// The other one's.
        other: String,
        /// In what.
        what: &'static str,
        /// The first one's value.
        of_first: String,
        /// The other one's.
        of_other: String,
    },
    /// A profile cannot be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// No line.
    #[error("{0}: {1}")]
    Curve(String, CurveError),
    /// The one profile cannot be scaled.
    #[error(transparent)]
    Rebatch(#[from] RebatchError),
}

/// What a sweep rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Profiles at several batch sizes.
    Lines,
    /// One profile, shapes scaled.
    Shapes,
}

/// A workload at several batch sizes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// The workload of the first profile.
    pub workload: Workload,
    /// What it rests on.
    pub basis: Basis,
    /// The recorded batch sizes, ascending.
    pub recorded: Vec<u64>,
    /// Whether nothing of it was measured on a GPU.
    pub shapes_only: bool,
    /// GPU by GPU.
    pub gpus: Vec<GpuSweep>,
    /// Memory by batch size, where anything is known of it.
    pub memory: Option<MemoryLine>,
    /// What is to be shown with any of the times.
    pub warnings: Vec<Warning>,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// One GPU of a sweep.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuSweep {
    /// The GPU.
    pub gpu: GpuFacts,
    /// By batch size, ascending.
    pub rows: Vec<SweepRow>,
    /// µs, and µs a sample, beyond the largest recorded batch, with the share of the step
    /// there that grows with the batch; `None` from one profile.
    pub line: Option<(Line, f64)>,
    /// Lines by family of operators; empty from one profile.
    pub families: Vec<FamilyLine>,
    /// The largest batch that fits, where the memory is known.
    pub largest: Option<u64>,
    /// Warnings and fall-backs.
    pub notes: Vec<String>,
}

/// One batch size on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepRow {
    /// Samples in a step.
    pub batch: u64,
    /// The step; of [`Method::Measured`] where it was recorded here.
    pub step: Estimate,
    /// The 90 % range.
    pub wide: [Micros; 2],
    /// Samples a second; `None` where the step takes no time.
    pub throughput: Option<OpenRange<SamplesPerSecond>>,
    /// Whether it fits.
    pub memory: MemoryFit,
}

/// Device time of a family of operators over the batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct FamilyLine {
    /// The family.
    pub family: Family,
    /// µs, and µs a sample.
    pub line: Line,
    /// How well a line fits.
    pub r_squared: f64,
    /// At each recorded batch size.
    pub times: Vec<(u64, Micros)>,
}

/// The sweep of one workload at `batches` (and at the recorded ones) on the GPUs of `options`.
///
/// # Errors
/// Profiles that are not of one workload, of unknown batch size, or that cannot be predicted.
pub fn sweep(
    profiles: &[(String, Profile)],
    catalog: &Catalog,
    options: &Options,
    batches: &[u64],
) -> Result<Sweep, SweepError> {
    let mut sorted: Vec<(u64, &(String, Profile))> = Vec::new();
    for named in profiles {
        let batch = named.1.workload.batch_size.ok_or_else(|| SweepError::NoBatch(named.0.clone()))?;
        sorted.push((batch, named));
    }
    sorted.sort_by_key(|(batch, _)| *batch);
    let Some((_, (first_name, first))) = sorted.first() else { return Err(SweepError::Nothing) };
    for (_, (name, other)) in &sorted[1..] {
        same((first_name, first), (name, other))?;
    }
    let mut recorded: Vec<u64> = sorted.iter().map(|(batch, _)| *batch).collect();
    recorded.dedup();
    let mut wanted: Vec<u64> = recorded.iter().chain(batches).copied().filter(|&batch| batch > 0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let own: Vec<(u64, &Profile)> = sorted.iter().map(|(batch, (_, profile))| (*batch, profile)).collect();
    let memory = memory_line(&own, origin(first, catalog, options)?);
    let mut notes = Vec::new();
    let answers: Vec<Vec<Prediction>> = own
        .iter()
        .map(|(_, profile)| Ok(predict(profile, catalog, options)?.predictions))
        .collect::<Result<_, PredictError>>()?;
    let shown = distinct(answers.iter().flatten().map(|prediction| prediction.warnings.as_slice()));
    let warnings = shown.into_iter().map(|(warning, _)| warning.clone()).collect();
    let basis = if recorded.len() > 1 { Basis::Lines } else { Basis::Shapes };
    notes.extend(far_beyond(&recorded, &wanted));
    let mut scaled = Vec::new();
    if basis == Basis::Shapes {
        notes.push(format!(
            "one batch size recorded ({}): shapes scaled to the others; a second recording at another batch size would say how the step really grows",
            recorded[0]
        ));
        for &batch in &wanted {
            scaled.push((batch, ScaledShapes::of(first, batch, catalog, options)?));
        }
        notes.extend(scaled.iter().find(|(batch, _)| *batch != recorded[0]).and_then(|(_, shapes)| shapes.note(first)));
    } else {
        notes.extend(other_operations(&own));
    }
    let count = answers.first().map_or(0, Vec::len);
    let mut gpus = Vec::with_capacity(count);
    for index in 0..count {
        let of_gpu: Vec<(u64, &Prediction)> =
            own.iter().zip(&answers).map(|((batch, _), answers)| (*batch, &answers[index])).collect();
        let mut sweep = if basis == Basis::Lines {
            by_line(&of_gpu, &own, &wanted)?
        } else {
            by_shapes(of_gpu[0].1, &scaled, index, recorded[0])
        };
        finish(&mut sweep, memory.as_ref(), catalog, &own);
        gpus.push(sweep);
    }
    if let Some(memory) = &memory {
        notes.push(memory.to_string());
    }
    let shapes_only = first.origin.is_none();
    Ok(Sweep { workload: first.workload.clone(), basis, recorded, shapes_only, gpus, memory, warnings, notes })
}

/// Times the largest recorded batch from which on nothing seen says anything.
const FAR: u64 = 64;

/// What is to be said of batches that nobody trains with on one GPU.
fn far_beyond(recorded: &[u64], wanted: &[u64]) -> Option<String> {
    let largest = *recorded.iter().max()?;
    let far = *wanted.iter().max().filter(|batch| **batch / FAR > largest)?;
    Some(format!(
        "batch {} is {} times the largest recorded: time and memory there are extrapolated",
        text::grouped(far as f64),
        text::grouped(far as f64 / largest as f64)
    ))
}

/// Whether two profiles are of one workload, recorded alike.
fn same((first, a): (&str, &Profile), (other, b): (&str, &Profile)) -> Result<(), SweepError> {
    let differ = |what, of_first: String, of_other: String| {
        if of_first == of_other {
            return Ok(());
        }
        Err(SweepError::Differ { first: first.to_owned(), other: other.to_owned(), what, of_first, of_other })
    };
    differ("mode", a.workload.mode.to_string(), b.workload.mode.to_string())?;
    let precision = |profile: &Profile| profile.workload.precision.map_or("unknown".to_owned(), |it| it.to_string());
    differ("precision", precision(a), precision(b))?;
    let gpu = |profile: &Profile| {
        let origin = profile.origin.as_ref();
        let name =
            origin.and_then(|origin| origin.gpu.as_ref().map(ToString::to_string).or_else(|| origin.gpu_name.clone()));
        name.unwrap_or_else(|| "none".to_owned())
    };
    differ("the GPU they were recorded on", gpu(a), gpu(b))?;
    let text = |value: Option<u64>| value.map_or("unknown".to_owned(), |value| value.to_string());
    if let (Some(_), Some(_)) = (a.workload.sequence_length, b.workload.sequence_length) {
        differ("sequence length", text(a.workload.sequence_length), text(b.workload.sequence_length))?;
    }
    if let (Some(_), Some(_)) = (a.workload.parameter_count, b.workload.parameter_count) {
        differ("parameters", text(a.workload.parameter_count), text(b.workload.parameter_count))?;
    }
    Ok(())
}

/// That the profiles do not have the same operators, where they have not.
fn other_operations(profiles: &[(u64, &Profile)]) -> Option<String> {
    let calls = |profile: &Profile| {
        let mut calls = std::collections::BTreeMap::<&str, u64>::new();
        for operation in &profile.operations {
            *calls.entry(operation.name.as_str()).or_default() += u64::from(operation.count);
        }
        calls.into_iter().map(|(name, count)| (name.to_owned(), count)).collect::<Vec<_>>()
    };
    let (first, rest) = profiles.split_first()?;
    let own = calls(first.1);
    let (batch, differing) = rest
        .iter()
        .map(|(batch, profile)| {
            let other = calls(profile);
            let missing = own.iter().filter(|call| !other.contains(call)).count();
            (*batch, missing.max(other.iter().filter(|call| !own.contains(call)).count()))
        })
        .max_by_key(|(_, differing)| *differing)?;
    (differing > 0).then(|| {
        format!(
            "{differing} operators are called more or less often at batch {batch} than at {}: where it is not the same network, the line means nothing",
            first.0
        )
    })
}

fn busy(prediction: &Prediction, profile: &Profile) -> Option<Micros> {
    if prediction.step.is_measured() {
        return profile.step.as_ref().and_then(|step| step.device_busy);
    }
    let busy = prediction.step.mid() - prediction.host_idle;
    Some(busy).filter(|_| prediction.host_idle.get() > 0.0)
}

fn by_line(
    predictions: &[(u64, &Prediction)],
    profiles: &[(u64, &Profile)],
    wanted: &[u64],
) -> Result<GpuSweep, SweepError> {
    let points: Vec<BatchPoint> = predictions
        .iter()
        .zip(profiles)
        .map(|((batch, prediction), (_, profile))| BatchPoint {
            batch: *batch,
            time: prediction.step.as_estimate(),
            busy: busy(prediction, profile),
        })
        .collect();
    let first = predictions[0].1;
    let curve = BatchCurve::fit(&points).map_err(|error| SweepError::Curve(first.gpu.slug.to_string(), error))?;
    let rows = wanted
        .iter()
        .map(|&batch| {
            let at = curve.at(batch);
            row(batch, at.time, at.wide, first)
        })
        .collect();
    let mut notes = curve.notes(wanted);
    if curve.has_busy() && wanted.iter().any(|&batch| matches!(curve.at(batch).place, Place::Beyond(_))) {
        notes.push("beyond the recorded batches the device's busy time has a line of its own".to_owned());
    }
    if predictions.iter().any(|(_, prediction)| !prediction.step.is_measured()) {
        notes.push("the line goes through predicted steps: their range is in its range".to_owned());
    }
    Ok(GpuSweep {
        gpu: first.gpu.clone(),
        rows,
        line: Some((curve.line(), curve.share())),
        families: families(predictions, profiles),
        largest: None,
        notes,
    })
}

/// A line a family through its device time at each batch size.
fn families(predictions: &[(u64, &Prediction)], profiles: &[(u64, &Profile)]) -> Vec<FamilyLine> {
    let mut found: Vec<(Family, Vec<(u64, f64)>)> = Vec::new();
    for ((batch, prediction), (_, profile)) in predictions.iter().zip(profiles) {
        for of in &prediction.operations {
            let (Some(time), Some(operation)) = (&of.time, profile.operations.get(of.index)) else { continue };
            let kind = family(operation);
            let total = time.range.mid.get() * f64::from(of.count);
            let index = found.iter().position(|(other, _)| *other == kind).unwrap_or_else(|| {
                found.push((kind, Vec::new()));
                found.len() - 1
            });
            let sums = &mut found[index].1;
            match sums.iter_mut().find(|(other, _)| other == batch) {
                Some((_, sum)) => *sum += total,
                None => sums.push((*batch, total)),
            }
        }
    }
    let mut lines: Vec<FamilyLine> = found
        .into_iter()
        .filter(|(_, sums)| sums.iter().any(|(_, sum)| *sum > 0.0))
        .filter_map(|(family, sums)| {
            let points: Vec<Point> =
                sums.iter().map(|&(batch, sum)| Point { x: batch as f64, y: sum, weight: batch as f64 }).collect();
            let line = Line::non_negative(&points).ok()?;
            let times = sums.iter().map(|&(batch, sum)| (batch, Micros::known(sum))).collect();
            Some(FamilyLine { family, line, r_squared: line.r_squared(&points), times })
        })
        .collect();
    let last = |line: &FamilyLine| line.times.last().map_or(0.0, |(_, time)| time.get());
    lines.sort_by(|a, b| last(b).total_cmp(&last(a)));
    lines
}

fn row(batch: u64, step: Estimate, wide: [Micros; 2], prediction: &Prediction) -> SweepRow {
    SweepRow { batch, step, wide, throughput: step.throughput(batch), memory: prediction.memory.clone() }
}

/// What the shapes at another batch size say, with those at the recorded one.
pub struct ScaledShapes {
    scaled: Rebatched,
    /// From shapes alone, by GPU: at the recorded batch size.
    before: Vec<Prediction>,
    /// At the other.
    after: Vec<Prediction>,
}

impl ScaledShapes {
    /// Both predictions from shapes alone, on the GPUs of `options`.
    ///
    /// # Errors
    /// Where the profile cannot be scaled or predicted.
    pub fn of(profile: &Profile, batch: u64, catalog: &Catalog, options: &Options) -> Result<Self, SweepError> {
        let scaled = rebatch(profile, batch)?;
        let alone = Options { ignore_origin: true, origin: None, ..options.clone() };
        let bare = |profile: &Profile| -> Result<Vec<Prediction>, PredictError> {
            Ok(predict(&profile.without_origin(), catalog, &alone)?.predictions)
        };
        Ok(Self { before: bare(profile)?, after: bare(&scaled.profile)?, scaled })
    }

    /// The step on GPU number `index`, from the prediction at the recorded batch size.
    pub fn step(&self, index: usize, recorded: &Prediction) -> Estimate {
        let (before, after) = (&self.before[index], &self.after[index]);
        let (mut was, mut becomes) = (0.0, 0.0);
        for ((of, before), after) in recorded.operations.iter().zip(&before.operations).zip(&after.operations) {
            let Some(time) = &of.time else { continue };
            let time = time.range.mid.get() * f64::from(of.count);
            let ratio = match (&before.time, &after.time) {
                (Some(before), Some(after)) if before.range.mid.get() > 0.0 => after.range.mid / before.range.mid,
                _ => 1.0,
            };
            was += time;
            becomes += time * ratio;
        }
        let step = recorded.step.as_estimate();
        let idle = match &recorded.step {
            StepTime::Measured { .. } => recorded.host_idle,
            StepTime::Predicted(_) => recorded.host_idle.min(step.range.mid),
        };
        let device = step.range.mid - idle;
        let ratio = if was > 0.0 { becomes / was } else { 1.0 };
        let mid = device * ratio + idle;
        let (low, high) = (step.range.low / step.range.mid, step.range.high / step.range.mid);
        let method = match (step.method, after.step.as_estimate().method) {
            (recorded, of_shapes) if recorded == of_shapes => recorded,
            (Method::Measured | Method::LearnedRatio, Method::Learned) => Method::LearnedRatio,
            (Method::Measured | Method::RooflineRatio, Method::Roofline) => Method::RooflineRatio,
            _ => Method::Mixed,
        };
        Estimate { range: Range { low: mid * low, mid, high: mid * high }, method }
    }

    /// The part of the recorded time that no extent of the batch was found in.
    fn note(&self, profile: &Profile) -> Option<String> {
        let time = |index: &usize| profile.operations[*index].total_device_time().map_or(0.0, Micros::get);
        let kept: Vec<usize> = (0..self.scaled.scaled.len()).filter(|index| !self.scaled.scaled[*index]).collect();
        let all: f64 = (0..profile.operations.len()).map(|index| time(&index)).sum();
        let of_time = if all > 0.0 {
            format!(", {:.0} % of the measured device time", kept.iter().map(time).sum::<f64>() / all * 100.0)
        } else {
            String::new()
        };
        (!kept.is_empty()).then(|| {
            format!(
                "{} of {} operations have no batch in their shapes{of_time}: taken as they are",
                kept.len(),
                profile.operations.len()
            )
        })
    }
}

/// A step from scaled shapes with the range of the step it starts from and of the scaling.
pub fn with_scaling_range(step: &Estimate, recorded: u64, batch: u64) -> (Estimate, [Micros; 2]) {
    let doublings = (batch as f64 / recorded as f64).log2().abs();
    let ends = |by: f64| {
        let of = |end: Micros| if end.get() > 0.0 { (end / step.range.mid).ln().abs() } else { f64::INFINITY };
        let (below, above) = (of(step.range.low).hypot(by), of(step.range.high).hypot(by));
        [step.range.mid * (-below).exp(), step.range.mid * above.exp()]
    };
    let [usual, wide] = BY_SHAPES.map(|by| ends(by * doublings.sqrt()));
    let [low, high] = usual;
    (Estimate { range: Range { low, mid: step.range.mid, high }, ..*step }, wide)
}

fn by_shapes(recorded: &Prediction, scaled: &[(u64, ScaledShapes)], index: usize, batch: u64) -> GpuSweep {
    let rows = scaled
        .iter()
        .map(|(to, shapes)| {
            if *to == batch {
                let step = recorded.step.as_estimate();
                let wide = [step.range.low, step.range.high];
                return row(*to, step, wide, recorded);
            }
            let (step, wide) = with_scaling_range(&shapes.step(index, recorded), batch, *to);
            row(*to, step, wide, recorded)
        })
        .collect();
    GpuSweep {
        gpu: recorded.gpu.clone(),
        rows,
        line: None,
        families: Vec::new(),
        largest: None,
        notes: recorded.notes.clone(),
    }
}

/// Fills in the memory of every row and the largest batch.
fn finish(sweep: &mut GpuSweep, memory: Option<&MemoryLine>, catalog: &Catalog, profiles: &[(u64, &Profile)]) {
    let Some(gpu) = catalog.get(&sweep.gpu.slug) else { return };
    let rates = Rates::new(gpu);
    for row in &mut sweep.rows {
        // What ran here says by itself what it needs, whatever a line says.
        let ran = profiles.iter().find(|(batch, _)| row.step.method == Method::Measured && *batch == row.batch);
        row.memory = match (ran, memory) {
            (Some((_, profile)), _) => MemoryNeed::of(profile, Some(gpu)).fit(&rates),
            (None, Some(memory)) => memory.need(row.batch).fit(&rates),
            (None, None) => MemoryNeed::unseen(None, None).fit(&rates),
        };
    }
    sweep.largest = memory.and_then(|memory| memory.largest(&rates));
}

/// Memory over the batch size: through the peaks, from one peak, or from shapes.
fn memory_line(profiles: &[(u64, &Profile)], origin: Option<&GpuSpec>) -> Option<MemoryLine> {
    let (batch, first) = *profiles.first()?;
    MemoryLine::of_profiles(profiles).or_else(|| {
        let most = |profile: &Profile| MemoryNeed::of(profile, origin).most();
        let (other, of_other) = match profiles.iter().find(|(other, _)| *other != batch) {
            Some((other, profile)) => (*other, most(profile)),
            None => (batch * 2, rebatch(first, batch * 2).ok().and_then(|twice| most(&twice.profile))),
        };
        MemoryLine::at_most([(batch, most(first)?), (other, of_other?)])
    })
}
