//! Learned models of one step: which of them predict it, and their times for its operations.

use super::ensemble::maker;
use super::models::Models;
use super::query::Query;
use crate::decoded::Decoded;
use crate::efficiency::{Columns, Efficiency, Iterations};
use crate::facts::StepFacts;
use crate::features::Load;
use crate::learned_time::{LearnedTime, Spread, sum};
use crate::mlp::ModelError;
use crate::rate::Rates;
use crate::roofline::roofline;
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::profile::{DType, Mode, Phase, Precision, Workload};

/// Queries evaluated together; steps with more operations are not cached.
const AT_A_TIME: usize = 1 << 13;

impl Models {
    /// Models for a step: [`Efficiency`] or the ensembles ([`is_by_efficiency`]); `origin` is the recording GPU.
    pub fn answering(
        &self,
        operations: &[Decoded<'_>],
        precision: Option<Precision>,
        origin: Option<&GpuSpec>,
    ) -> Answering<'_> {
        let by_efficiency = is_by_efficiency(operations, precision);
        let is_mostly_tf32 = !by_efficiency && is_mostly_in_tf32(operations);
        let needs_tf32 = is_mostly_tf32 || precision.is_some_and(Precision::is_32_bits);
        // A step recorded without TF32 is compared with FP32 elsewhere.
        let is_alike = !needs_tf32 || origin.is_none_or(GpuSpec::runs_tf32);
        let efficiency = self.efficiency().filter(|_| is_alike && (by_efficiency || is_mostly_tf32));
        let updates = operations.iter().any(|decoded| decoded.operation.phase == Phase::Optimizer);
        let iterations = self.efficiency().filter(|_| (efficiency.is_none() || needs_tf32) && updates);
        Answering {
            models: self,
            efficiency,
            needs_tf32,
            // Steps of AMD GPUs in any precision were learned from, the ensembles know an MI100 in FP32.
            on_amd: self.efficiency().filter(|model| model.amd.is_some() && origin.is_none()),
            iterations: iterations.and_then(|model| model.iterations.as_ref()),
        }
    }

    /// Prepares the operations of a step for predictions GPU by GPU.
    ///
    /// FP32 convolutions also get the mean of both kinds of models ([`EFFICIENCY_WEIGHT`](super::EFFICIENCY_WEIGHT)),
    /// except on GPUs with measured operators: few kinds were measured separately (`habitat-lab evaluate published`).
    pub fn columns<'a>(
        &'a self,
        operations: &'a [Decoded<'a>],
        precision: Option<Precision>,
        origin: Option<&GpuSpec>,
    ) -> StepColumns<'a> {
        let answering = self.answering(operations, precision, origin);
        let beside = self.efficiency().filter(|_| answering.efficiency.is_none() || answering.needs_tf32);
        let in_tf32 = beside.filter(|_| operations.iter().any(Decoded::is_in_tf32));
        StepColumns {
            operations,
            answering,
            efficient: answering.efficiency.or(answering.on_amd).map(|efficiency| efficiency.columns(operations)),
            convolutions: beside.map(|efficiency| efficiency.convolutions(operations)),
            in_tf32: in_tf32.map(|efficiency| efficiency.in_tf32(operations)),
        }
    }
}

/// Operations of a step prepared for the models, independent of the GPU.
#[derive(Debug, Clone)]
pub struct StepColumns<'a> {
    operations: &'a [Decoded<'a>],
    answering: Answering<'a>,
    /// Predictions of the efficiency model, if it applies to all operations.
    efficient: Option<Columns<'a>>,
    /// Its predictions for convolutions, in addition to the ensembles.
    convolutions: Option<Columns<'a>>,
    /// Its predictions for operations that run in TF32 on a GPU with it, in addition to the ensembles.
    in_tf32: Option<Columns<'a>>,
}

impl StepColumns<'_> {
    /// Predicts one occurrence of each selected operation on each of `gpus`: a row per GPU, a column per operation;
    /// `None` if the models do not know the operator. Each network evaluates thousands of them in one pass.
    ///
    /// # Errors
    /// [`ModelError`] if a network fails.
    pub fn on(
        &self,
        gpus: &[&Rates<'_>],
        is_asked: impl Fn(&Rates<'_>, &Decoded<'_>) -> bool,
    ) -> Result<Vec<Vec<Option<LearnedTime>>>, ModelError> {
        let models = self.answering.models;
        let mut rows: Vec<Vec<Option<LearnedTime>>> = Vec::with_capacity(gpus.len());
        // Pending places in the rows, and the queries of each.
        let (mut places, mut queries) = (Vec::new(), Vec::with_capacity(AT_A_TIME));
        for (at, rates) in gpus.iter().enumerate() {
            if let Some(columns) = self.efficient.as_ref().filter(|_| self.answering.on(rates.gpu).is_some()) {
                rows.push(columns.on(rates));
                continue;
            }
            // Predictions of the efficiency model, until the ensembles add theirs.
            let others = self.convolutions.as_ref().filter(|_| models.measured_on(rates.gpu).is_none());
            rows.push(others.map_or_else(|| vec![None; self.operations.len()], |columns| columns.on(rates)));
            let gpu = models.on(rates);
            for (column, decoded) in self.operations.iter().enumerate() {
                if !is_asked(rates, decoded) {
                    rows[at][column] = None;
                    continue;
                }
                places.push((at, column));
                let rate = gpu.rate(decoded.dtype.as_ref(), decoded.without_tf32());
                queries.extend(decoded.parts.iter().map(|&part| Query { part, gpu, rate, load: Load::Step }));
                if queries.len() >= AT_A_TIME {
                    self.fill(&mut rows, &mut places, &mut queries)?;
                }
            }
        }
        self.fill(&mut rows, &mut places, &mut queries)?;
        for (row, rates) in rows.iter_mut().zip(gpus) {
            self.to_tf32(row, rates);
        }
        Ok(rows)
    }

    /// Adds TF32 times to FP32 predictions of the ensembles, on a GPU with TF32. They come from the efficiency model,
    /// or without one from the ratio of rooflines, and never exceed FP32, whose kernels libraries may also choose.
    fn to_tf32(&self, row: &mut [Option<LearnedTime>], rates: &Rates<'_>) {
        if !rates.gpu.runs_tf32() || self.answering.on(rates.gpu).is_some() {
            return;
        }
        let learned = self.in_tf32.as_ref().map(|columns| columns.on(rates));
        for ((at, place), decoded) in row.iter_mut().enumerate().zip(self.operations) {
            let (Some(time), true) = (place.as_mut(), decoded.is_in_tf32()) else { continue };
            let of = |work, arithmetic| roofline(rates, work, decoded.dtype.as_ref(), Some(arithmetic));
            let by_rates = |work| time.without_tf32() * (of(work, Precision::Tf32) / of(work, Precision::Fp32Strict));
            let by_model = learned.as_ref().and_then(|row| row[at]).map(|learned| learned.without_tf32());
            let in_tf32 = by_model.or_else(|| decoded.work.as_ref().map(by_rates));
            time.tf32 = in_tf32.map(|in_tf32| in_tf32.min(time.without_tf32()));
        }
    }

    /// Moves the ensembles' predictions to their places.
    fn fill(
        &self,
        rows: &mut [Vec<Option<LearnedTime>>],
        places: &mut Vec<(usize, usize)>,
        queries: &mut Vec<Query<'_>>,
    ) -> Result<(), ModelError> {
        let models = self.answering.models;
        let times = models.times_of(queries, self.operations.len() <= AT_A_TIME)?;
        let mut rest = &times[..];
        for (row, column) in places.drain(..) {
            let parts = &self.operations[column].parts;
            let (own, after) = rest.split_at(parts.len());
            rest = after;
            let place = &mut rows[row][column];
            *place = match (sum(own, parts), *place) {
                (Some(own), Some(other)) => Some(own.with(other)),
                (own, _) => own,
            };
        }
        queries.clear();
        Ok(())
    }
}

/// Whether [`Efficiency`] predicts a step: its products do not run in FP32, which the ensembles were trained on. Steps
/// in TF32 run in FP32 on GPUs without it ([`Answering::on`]).
pub fn is_by_efficiency(operations: &[Decoded<'_>], precision: Option<Precision>) -> bool {
    let narrow = |decoded: &Decoded<'_>| {
        decoded.family.varies_kernels()
            && decoded.dtype.as_ref().and_then(DType::size_bytes).is_some_and(|size| size < 4)
    };
    match precision {
        Some(precision) => !precision.is_32_bits() || precision == Precision::Tf32,
        None => operations.iter().any(narrow),
    }
}

/// Whether most product and convolution arithmetic of a step is in TF32 on a GPU with it, as for convolutional networks
/// with `PyTorch`'s defaults. The steps that [`Efficiency`] learned from ran like this on such GPUs.
fn is_mostly_in_tf32(operations: &[Decoded<'_>]) -> bool {
    let (mut all, mut in_tf32) = (0.0, 0.0);
    for one in operations.iter().filter(|one| one.family.varies_kernels()) {
        let flops = one.work.map_or(0.0, |work| work.flops.get() * f64::from(one.operation.count));
        all += flops;
        in_tf32 += if one.is_in_tf32() { flops } else { 0.0 };
    }
    in_tf32 > 0.5 * all
}

/// Models that predict one step.
#[derive(Debug, Clone, Copy)]
pub struct Answering<'a> {
    /// All models.
    pub models: &'a Models,
    efficiency: Option<&'a Efficiency>,
    /// Whether the efficiency model applies only on GPUs with TF32.
    needs_tf32: bool,
    /// Efficiency model with terms of AMD GPUs.
    on_amd: Option<&'a Efficiency>,
    /// Figures for steps with an optimizer that the ensembles predict.
    iterations: Option<&'a Iterations>,
}

impl<'a> Answering<'a> {
    /// Efficiency model, if it applies on `gpu`; if operators were measured there, the corrected ensembles apply
    /// instead.
    pub fn on(&self, gpu: &GpuSpec) -> Option<&'a Efficiency> {
        let is_new = || gpu.vendor == Vendor::Amd && !self.models.has_seen(gpu);
        let answering = self.efficiency.filter(|_| !self.needs_tf32 || gpu.runs_tf32());
        answering.or_else(|| self.on_amd.filter(|_| is_new())).filter(|_| self.models.measured_on(gpu).is_none())
    }

    /// Learned figures of steps like this one.
    pub(crate) fn steps(&self, gpu: &GpuSpec) -> &'a StepFacts {
        self.on(gpu).map_or(self.models.steps(), |efficiency| efficiency.steps_on(gpu))
    }

    /// Whether such steps or their operators were measured on the GPU.
    pub(crate) fn has_seen(&self, gpu: &GpuSpec) -> bool {
        match self.on(gpu) {
            Some(efficiency) => efficiency.steps_on(gpu).boards.contains_key(gpu.slug.as_str()),
            None => self.models.has_seen(gpu),
        }
    }

    /// 80 % range of measured over predicted time of a step from one on another GPU; `None` if no steps were measured.
    /// That of the ensembles is of inference for the most part. For training, another GPU's step adds no more than
    /// the shapes (`habitat-lab evaluate steps`: 11 and 12 %), whose range holds as well.
    pub(crate) fn with_origin(&self, gpu: &GpuSpec, mode: Mode) -> Option<Spread> {
        let steps = self.steps(gpu);
        let of_shapes = steps.unseen.filter(|_| mode == Mode::Training && self.on(gpu).is_none());
        steps.with_origin.map(|spread| of_shapes.map_or(spread, |other| spread.or_wider(other)))
    }

    /// 80 % range of measured over predicted time of a step from its shapes; `None` if no steps were measured.
    pub(crate) fn range(&self, gpu: &GpuSpec, workload: &Workload) -> Option<Spread> {
        let steps = self.models.steps();
        // No such steps were measured on AMD GPUs.
        let whole = self.iterations(gpu, workload.mode).filter(|_| gpu.vendor == Vendor::Nvidia);
        if let Some(iterations) = whole {
            return Some(iterations.unseen);
        }
        match self.on(gpu) {
            Some(efficiency) if efficiency.vendor(gpu).is_some() => efficiency.range(gpu, workload),
            // Of NVIDIA's 32-bit precisions it knows TF32 alone.
            Some(efficiency) if workload.precision.is_none_or(Precision::is_32_bits) => {
                efficiency.range(gpu, &Workload { precision: Some(Precision::Tf32), ..workload.clone() })
            }
            Some(efficiency) => efficiency.range(gpu, workload),
            None if self.models.has_seen(gpu) => steps.seen,
            None => steps.unseen,
        }
    }

    /// Figures of whole FP32 training iterations, if the step is one: with an optimizer. The ensembles' training steps
    /// had none.
    pub(crate) fn iterations(&self, gpu: &GpuSpec, mode: Mode) -> Option<&'a Iterations> {
        self.iterations.filter(|_| mode == Mode::Training && self.on(gpu).is_none())
    }

    /// Ratio of step to sum of operators on `gpu`.
    pub fn step_factor(&self, gpu: &GpuSpec, mode: Mode) -> f64 {
        if let Some(iterations) = self.iterations(gpu, mode) {
            return iterations.factor;
        }
        let steps = self.steps(gpu);
        let maker = || steps.makers.get(maker(gpu.vendor));
        let board = *steps.boards.get(gpu.slug.as_str()).or_else(maker).unwrap_or(&steps.typical);
        board * if mode == Mode::Training { steps.training } else { 1.0 }
    }
}
