//! All learned models, and their predicted times.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

use super::corrections::{Corrections, Counts};
use super::ensemble::{Ensemble, maker};
use super::query::{Key, ModelGpu, Query};
use crate::decoded::Decoded;
use crate::efficiency::{Columns, Efficiency, Iterations};
use crate::facts::StepFacts;
use crate::features::{Features, Hardware, Load, OperatorModel, features};
use crate::learned_time::{LearnedTime, Spread, sum};
use crate::mlp::ModelError;
use crate::rate::Rates;
use crate::roofline::roofline;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::{GpuSpec, Vendor};
use habitat_step::op::{element_type, parts};
use habitat_step::profile::{DType, Mode, Operation, Phase, Precision, Workload};

/// Number of entries at which the cache is cleared.
const MOST_CACHED: usize = 1 << 16;
/// Queries evaluated together; steps with more operations are not cached.
const AT_A_TIME: usize = 1 << 13;

/// All learned models.
#[derive(Debug)]
pub struct Models {
    ensembles: BTreeMap<OperatorModel, Ensemble>,
    steps: StepFacts,
    efficiency: Option<Efficiency>,
    corrections: Corrections,
    cache: Mutex<Cache>,
}

/// Cache of computed times. GPUs are numbered by slug and figures, since a GPU may return with other figures; a key is
/// then a few numbers.
#[derive(Debug, Default)]
struct Cache {
    gpus: BTreeMap<GpuSlug, Vec<(Hardware, u64)>>,
    numbers: u64,
    times: HashMap<Key, LearnedTime>,
}

/// Pending queries of one model: their indices and features.
#[derive(Debug, Default)]
struct Waiting {
    places: Vec<usize>,
    rows: Vec<Features>,
}

impl Waiting {
    fn push(&mut self, place: usize, query: &Query<'_>) {
        let Query { part, gpu, rate, load } = query;
        if let Some(features) = features(&part.primitive, part.element_bytes, &gpu.hardware, *rate, *load) {
            self.places.push(place);
            self.rows.push(features);
        }
    }
}

impl Cache {
    /// Number of a GPU.
    fn number(&mut self, gpu: &ModelGpu<'_>) -> u64 {
        let known = self.gpus.entry(gpu.slug().clone()).or_default();
        if let Some((_, number)) = known.iter().find(|(hardware, _)| *hardware == gpu.hardware) {
            return *number;
        }
        self.numbers += 1;
        known.push((gpu.hardware, self.numbers));
        self.numbers
    }
}

/// Models are equal if they predict alike; the cache does not count.
impl PartialEq for Models {
    fn eq(&self, other: &Self) -> bool {
        (&self.ensembles, &self.steps, &self.efficiency, &self.corrections)
            == (&other.ensembles, &other.steps, &other.efficiency, &other.corrections)
    }
}

impl Models {
    /// Builds models from ensembles and figures of whole steps.
    pub fn new(ensembles: BTreeMap<OperatorModel, Ensemble>, steps: StepFacts) -> Self {
        Self { ensembles, steps, efficiency: None, corrections: Corrections::default(), cache: Mutex::default() }
    }

    /// Adds a model of steps that do not run in FP32.
    #[must_use]
    pub fn with_efficiency(self, efficiency: Efficiency) -> Self {
        Self { efficiency: Some(efficiency), ..self }
    }

    /// Model of steps that do not run in FP32.
    pub const fn efficiency(&self) -> Option<&Efficiency> {
        self.efficiency.as_ref()
    }

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
        let efficiency = self.efficiency.as_ref().filter(|_| is_alike && (by_efficiency || is_mostly_tf32));
        let updates = operations.iter().any(|decoded| decoded.operation.phase == Phase::Optimizer);
        let iterations = self.efficiency.as_ref().filter(|_| (efficiency.is_none() || needs_tf32) && updates);
        Answering {
            models: self,
            efficiency,
            needs_tf32,
            iterations: iterations.and_then(|model| model.iterations.as_ref()),
        }
    }

    /// Replaces the corrections and clears the cache.
    pub(crate) fn corrected_by(self, corrections: Corrections) -> Self {
        Self { corrections, cache: Mutex::default(), ..self }
    }

    /// Corrections from measurements on the user's GPUs.
    pub(crate) const fn corrections(&self) -> &Corrections {
        &self.corrections
    }

    /// Number of measured operators that correct the models for a GPU; `None` if none was measured.
    pub(crate) fn measured_on(&self, gpu: &GpuSpec) -> Option<Counts> {
        self.corrections.counts(&gpu.slug)
    }

    /// Figures of whole steps.
    pub const fn steps(&self) -> &StepFacts {
        &self.steps
    }

    /// Ensembles by model.
    pub const fn ensembles(&self) -> &BTreeMap<OperatorModel, Ensemble> {
        &self.ensembles
    }

    /// Whether steps or operators were measured on the GPU.
    pub(crate) fn has_seen(&self, gpu: &GpuSpec) -> bool {
        self.steps.boards.contains_key(gpu.slug.as_str())
            || self.ensembles.values().any(|ensemble| ensemble.facts.boards.contains_key(gpu.slug.as_str()))
    }

    /// Inputs of the models for a GPU.
    pub(crate) fn on<'a>(&self, rates: &'a Rates<'a>) -> ModelGpu<'a> {
        ModelGpu::new(rates, self.has_seen(rates.gpu))
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
        let beside = self.efficiency.as_ref().filter(|_| answering.efficiency.is_none() || answering.needs_tf32);
        let in_tf32 = beside.filter(|_| operations.iter().any(Decoded::is_in_tf32));
        StepColumns {
            operations,
            answering,
            efficient: answering.efficiency.map(|efficiency| efficiency.columns(operations)),
            convolutions: beside.map(|efficiency| efficiency.convolutions(operations)),
            in_tf32: in_tf32.map(|efficiency| efficiency.in_tf32(operations)),
        }
    }

    /// Predicts separately measured operators, as in tables of operators, for pairs of operation and GPU. Times are at
    /// least the host's launch.
    ///
    /// # Errors
    /// [`ModelError`] if a network fails.
    pub fn alone(&self, pairs: &[(&Operation, &GpuSpec)]) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        let run = |&(operation, gpu): &(_, _)| Run { operation, precision: None, gpu, queued: false };
        self.runs(&pairs.iter().map(run).collect::<Vec<_>>())
    }

    /// Predicts operators in a precision that the element type does not show, or with queued calls. Queued calls run as
    /// in a step and take device time only.
    ///
    /// # Errors
    /// [`ModelError`] if a network fails.
    pub fn runs(&self, runs: &[Run<'_>]) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        let (mut queries, mut counts) = (Vec::new(), Vec::new());
        let rates: BTreeMap<&GpuSlug, Rates<'_>> =
            runs.iter().map(|run| (&run.gpu.slug, Rates::new(run.gpu))).collect();
        for &Run { operation, precision, gpu, queued } in runs {
            let Some(rates) = rates.get(&gpu.slug) else { continue };
            let gpu = self.on(rates);
            let rate = gpu.rate(element_type(operation, precision).as_ref(), precision);
            let parts = parts(operation, precision);
            let load = if queued { Load::Step } else { Load::Alone };
            queries.extend(parts.iter().map(|&part| Query { part, gpu, rate, load }));
            counts.push((parts, queued));
        }
        let times = self.times(&queries)?;
        let mut rest = &times[..];
        Ok(counts
            .iter()
            .map(|(parts, queued)| {
                let (own, after) = rest.split_at(parts.len());
                rest = after;
                let mut time = sum(own, parts)?;
                if *queued {
                    return Some(time);
                }
                let facts = parts.first().and_then(|part| self.ensembles.get(&OperatorModel::of(&part.primitive)?));
                time.time = time.time.max(Micros::known(facts.map_or(0.0, |ensemble| ensemble.facts.host_us)));
                Some(time)
            })
            .collect())
    }

    /// Predicts many primitives at once, with one pass through each network; cached times are reused.
    ///
    /// # Errors
    /// [`ModelError`] if a network fails.
    pub(crate) fn times(&self, queries: &[Query<'_>]) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        self.found(queries, true)
    }

    /// Predicts many primitives at once; the cache is used only if `remembers`.
    fn found(&self, queries: &[Query<'_>], remembers: bool) -> Result<Vec<Option<LearnedTime>>, ModelError> {
        let mut answers: Vec<Option<LearnedTime>> = vec![None; queries.len()];
        // First index of each key, and indices of its repetitions.
        let mut first: HashMap<Key, usize> = HashMap::default();
        let mut again: Vec<(usize, usize)> = Vec::new();
        let mut waiting: BTreeMap<OperatorModel, Waiting> = BTreeMap::new();
        let mut cache = self.cache();
        if cache.times.len() > MOST_CACHED {
            // The numbers of GPUs stay, because keys of other threads contain them.
            cache.times.clear();
        }
        // Queries are ordered by GPU.
        let mut latest: Option<(&GpuSlug, u64)> = None;
        for (index, query) in queries.iter().enumerate() {
            let model = match self.asked(query) {
                Ok(model) => model,
                Err(answer) => {
                    answers[index] = answer;
                    continue;
                }
            };
            let slug = query.gpu.slug();
            let number = match latest {
                Some((same, number)) if std::ptr::eq(same, slug) => number,
                _ => cache.number(&query.gpu),
            };
            latest = Some((slug, number));
            let key = query.key(number);
            if let Some(known) = cache.times.get(&key).filter(|_| remembers) {
                answers[index] = Some(*known);
                continue;
            }
            match first.entry(key) {
                Entry::Occupied(earlier) => again.push((index, *earlier.get())),
                Entry::Vacant(place) => {
                    place.insert(index);
                    waiting.entry(model).or_default().push(index, query);
                }
            }
        }
        // Networks run without the lock, so that other threads can use the cache.
        drop(cache);
        self.answer(queries, waiting, &mut answers)?;
        for (index, earlier) in again {
            answers[index] = answers[earlier];
        }
        if remembers {
            let found = first.into_iter().filter_map(|(key, index)| Some((key, answers[index]?)));
            self.cache().times.extend(found);
        }
        Ok(answers)
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Model whose networks predict the query, or the prediction of a rule if there is none.
    fn asked(&self, query: &Query<'_>) -> Result<OperatorModel, Option<LearnedTime>> {
        let Some(model) = OperatorModel::of(&query.part.primitive) else { return Err(query.by_rule()) };
        match query.small() {
            Some(small) => Err(Some(small)),
            None => self.ensembles.contains_key(&model).then_some(model).ok_or(None),
        }
    }

    /// Fills in the predictions of the networks.
    fn answer(
        &self,
        queries: &[Query<'_>],
        waiting: BTreeMap<OperatorModel, Waiting>,
        answers: &mut [Option<LearnedTime>],
    ) -> Result<(), ModelError> {
        for (model, Waiting { places, rows }) in waiting {
            let Some(ensemble) = self.ensembles.get(&model) else { continue };
            let bounded = ensemble.above_launch(model, &rows)?;
            for ((index, features), above) in places.into_iter().zip(&rows).zip(bounded) {
                let corrected = self.corrections.of(model, &queries[index]);
                answers[index] = ensemble.evaluate(&queries[index], features, above, corrected);
            }
        }
        Ok(())
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
                let arithmetic =
                    decoded.arithmetic.map(|own| if own == Precision::Tf32 { Precision::Fp32Strict } else { own });
                let rate = gpu.rate(decoded.dtype.as_ref(), arithmetic);
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
        let times = models.found(queries, self.operations.len() <= AT_A_TIME)?;
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
    /// Figures for steps with an optimizer that the ensembles predict.
    iterations: Option<&'a Iterations>,
}

impl<'a> Answering<'a> {
    /// Efficiency model, if it applies on `gpu`; if operators were measured there, the corrected ensembles apply
    /// instead.
    pub(crate) fn on(&self, gpu: &GpuSpec) -> Option<&'a Efficiency> {
        self.efficiency.filter(|_| self.models.measured_on(gpu).is_none() && (!self.needs_tf32 || gpu.runs_tf32()))
    }

    /// Learned figures of steps like this one.
    pub(crate) fn steps(&self, gpu: &GpuSpec) -> &'a StepFacts {
        self.on(gpu).map_or(&self.models.steps, |efficiency| &efficiency.steps)
    }

    /// Whether such steps or their operators were measured on the GPU.
    pub(crate) fn has_seen(&self, gpu: &GpuSpec) -> bool {
        match self.on(gpu) {
            Some(efficiency) => efficiency.steps.boards.contains_key(gpu.slug.as_str()),
            None => self.models.has_seen(gpu),
        }
    }

    /// 80 % range of measured over predicted time of a step from its shapes; `None` if no steps were measured.
    pub(crate) fn range(&self, gpu: &GpuSpec, workload: &Workload) -> Option<Spread> {
        let steps = &self.models.steps;
        // No such steps were measured on AMD GPUs.
        let whole = self.iterations(gpu, workload.mode).filter(|_| gpu.vendor == Vendor::Nvidia);
        if let Some(iterations) = whole {
            return Some(iterations.unseen);
        }
        match self.on(gpu) {
            // TF32 is the only 32-bit precision that it knows.
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

/// Operator run separately on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// Operator call.
    pub operation: &'a Operation,
    /// Precision, if the element type does not show it (TF32).
    pub precision: Option<Precision>,
    /// GPU that it runs on.
    pub gpu: &'a GpuSpec,
    /// Whether calls were queued ahead of it.
    pub queued: bool,
}
