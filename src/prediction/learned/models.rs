//! All learned models, and their predicted times.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

use super::corrections::{Corrections, Counts};
use super::ensemble::Ensemble;
use super::query::{Key, ModelGpu, Query};
use crate::efficiency::Efficiency;
use crate::facts::StepFacts;
use crate::features::{Features, Hardware, Load, OperatorModel, features};
use crate::learned_time::{LearnedTime, sum};
use crate::mlp::ModelError;
use crate::rate::Rates;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::GpuSpec;
use habitat_step::op::{element_type, parts};
use habitat_step::profile::{Operation, Precision};

/// Number of entries at which the cache is cleared.
const MOST_CACHED: usize = 1 << 16;

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
        self.times_of(queries, true)
    }

    /// Predicts many primitives at once; the cache is used only if `remembers`.
    pub(super) fn times_of(
        &self,
        queries: &[Query<'_>],
        remembers: bool,
    ) -> Result<Vec<Option<LearnedTime>>, ModelError> {
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
            let model = match self.model_for(query) {
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
    fn model_for(&self, query: &Query<'_>) -> Result<OperatorModel, Option<LearnedTime>> {
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
