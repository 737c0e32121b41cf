//! Measured operators and steps, as training rows.

use std::collections::BTreeMap;

use habitat_tui::catalog::{Catalog, GpuSpec, UnknownGpu};
use habitat_tui::op::{Part, parts};
use habitat_tui::predict::features::{Features, Hardware, Load, OperatorModel, features};
use habitat_tui::predict::rate::{ALONE_LAUNCH_US, LONGEST_LAUNCH_US, Rates, STEP_LAUNCH_US};
use habitat_tui::profile::{Operation, Phase, Precision, Profile};
use habitat_tui::random::Random;
use habitat_tui::units::{GpuSlug, Micros};

/// One operator, measured on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The operator.
    pub operation: Operation,
    /// Its precision, if it is TF32: the element type does not show that.
    pub precision: Option<Precision>,
    /// The GPU.
    pub gpu: GpuSlug,
    /// Measured time.
    pub time: Micros,
    /// The measuring session.
    pub session: Session,
}

/// Measurements of one session: a GPU runs hotter on some days, and a table of one program includes that program's
/// overhead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Session {
    /// Random sizes, the authors' training split.
    Train,
    /// The sizes of real models, the authors' test split, for evaluation.
    Test,
    /// Operators of whole steps.
    Step,
    /// Operators whose calls were queued, so that times exclude launches.
    Queued,
    /// Other measurements.
    Other,
}

impl Session {
    /// Whether the times include the host's launch.
    pub(super) const fn has_launch(self) -> bool {
        !matches!(self, Self::Step | Self::Queued)
    }

    /// Conditions of the GPU: queued calls follow each other as in a step.
    const fn load(self) -> Load {
        if matches!(self, Self::Queued) { Load::Step } else { Load::Alone }
    }

    /// Launch time added to the device's work, in microseconds.
    pub(super) const fn launch_us(self) -> f64 {
        match self {
            Self::Queued => STEP_LAUNCH_US,
            _ => ALONE_LAUNCH_US,
        }
    }
}

/// A measured operator in the form of the networks.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Features and time at full rates.
    pub features: Features,
    /// Equal for the same work on other GPUs.
    pub key: [u64; 7],
    /// Index into [`Dataset::gpus`].
    pub gpu: usize,
    /// The measuring session.
    pub session: Session,
    /// Microseconds.
    pub measured_us: f64,
    /// Whether the host's launch is most of the time, so that it does not show the device's speed.
    pub is_host_bound: bool,
}

/// Data to learn from and to evaluate on.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// The measured GPUs.
    pub gpus: Vec<GpuSpec>,
    /// Operators by the model that predicts them.
    pub rows: BTreeMap<OperatorModel, Vec<Row>>,
    /// Measured steps, each with its index into the GPUs and its name.
    pub steps: Vec<MeasuredStep>,
}

/// A measured step.
#[derive(Debug, Clone)]
pub struct MeasuredStep {
    /// The profile.
    pub profile: Profile,
    /// Index into [`Dataset::gpus`].
    pub gpu: usize,
    /// Equal for the same step on other GPUs (its file's name).
    pub name: String,
    /// The measured time.
    pub time: Micros,
}

/// Below this multiple of a session's shortest times, an operator was mostly its launch.
const HOST_BOUND: f64 = 1.25;
/// Most rows of one session to learn from: of products, of the others.
const MOST_ROWS: (usize, usize) = (8000, 4000);
/// Shortest operator of a step to learn from; shorter ones are mostly launch.
const SHORTEST_IN_STEP_US: f64 = 150.0;
/// The same if the sum of operators far exceeds the step: they were CPU-bound.
const SHORTEST_IN_SLOW_STEP_US: f64 = 1000.0;

impl Dataset {
    /// From measured operators and steps of GPUs in the catalog. Leaves out operators that consist of several parts,
    /// because the times of the parts are unknown.
    ///
    /// # Errors
    /// [`UnknownGpu`] if the catalog lacks the GPU of a measurement.
    pub fn new(samples: &[Sample], steps: Vec<(String, Profile)>, catalog: &Catalog) -> Result<Self, UnknownGpu> {
        let mut data = Self { gpus: Vec::new(), rows: BTreeMap::new(), steps: Vec::new() };
        for sample in samples {
            let gpu = data.index(&sample.gpu, catalog)?;
            data.add(&sample.operation, sample.precision, gpu, sample.time, sample.session);
        }
        for (name, profile) in steps {
            let slug = profile.origin.as_ref().and_then(|origin| origin.gpu.clone());
            let (Some(slug), Some(time)) = (slug, profile.measured_step()) else { continue };
            let gpu = data.index(&slug, catalog)?;
            data.add_operators(&profile, gpu, time);
            data.steps.push(MeasuredStep { profile, gpu, name, time });
        }
        data.mark_host_bound();
        data.thin();
        Ok(data)
    }

    /// Whether a row is of this GPU, or of one that tables of other programs name only by the chip.
    pub fn is_same_gpu(&self, row: &Row, gpu: usize) -> bool {
        let (a, b) = (&self.gpus[row.gpu], &self.gpus[gpu]);
        row.gpu == gpu || row.session == Session::Other && a.architecture == b.architecture && a.sm_count == b.sm_count
    }

    /// Whether the GPU's kernels or steps were measured, so that it can be evaluated on.
    pub fn is_evaluated(&self, gpu: usize) -> bool {
        self.steps.iter().any(|step| step.gpu == gpu)
            || self.rows.values().flatten().any(|row| row.gpu == gpu && row.session != Session::Other)
    }

    fn index(&mut self, slug: &GpuSlug, catalog: &Catalog) -> Result<usize, UnknownGpu> {
        if let Some(index) = self.gpus.iter().position(|gpu| gpu.slug == *slug) {
            return Ok(index);
        }
        self.gpus.push(catalog.find(slug.as_str())?.clone());
        Ok(self.gpus.len() - 1)
    }

    fn add(&mut self, operation: &Operation, precision: Option<Precision>, gpu: usize, time: Micros, session: Session) {
        let spec = &self.gpus[gpu];
        let parts = parts(operation, precision);
        let [part] = &parts[..] else { return };
        let Some(model) = OperatorModel::of(&part.primitive).filter(|_| part.times == 1.0 && time.get() > 0.0) else {
            return;
        };
        let rates = Rates::new(spec);
        let rate = rates.product(operation.dtype.as_ref(), precision, true);
        let hardware = Hardware::new(&rates, true);
        let Some(features) = features(&part.primitive, part.element_bytes, &hardware, rate, session.load()) else {
            return;
        };
        self.rows.entry(model).or_default().push(Row {
            features,
            key: key(part, precision),
            gpu,
            session,
            measured_us: time.get(),
            is_host_bound: false,
        });
    }

    /// Adds the forward operators of a step that are alone in their module: for others only the module's sum was
    /// measured.
    fn add_operators(&mut self, profile: &Profile, gpu: usize, step: Micros) {
        let mut sharing: BTreeMap<(&str, Phase), usize> = BTreeMap::new();
        let mut sum = Micros::ZERO;
        for operation in &profile.operations {
            *sharing.entry((operation.module.as_deref().unwrap_or_default(), operation.phase)).or_default() += 1;
            sum += operation.total_device_time().unwrap_or(Micros::ZERO);
        }
        let shortest = if sum / step > 1.15 { SHORTEST_IN_SLOW_STEP_US } else { SHORTEST_IN_STEP_US };
        for operation in &profile.operations {
            let place = (operation.module.as_deref().unwrap_or_default(), operation.phase);
            let alone = operation.phase == Phase::Forward && sharing.get(&place) == Some(&1);
            if let Some(time) = operation.device_time.filter(|time| alone && time.get() >= shortest) {
                self.add(operation, None, gpu, time, Session::Step);
            }
        }
    }

    fn mark_host_bound(&mut self) {
        for rows in self.rows.values_mut() {
            let shortest = shortest_times(rows);
            for row in rows.iter_mut().filter(|row| row.session.has_launch()) {
                let launch = shortest.get(&(row.gpu, row.session)).copied().unwrap_or(0.0).min(LONGEST_LAUNCH_US);
                row.is_host_bound = row.measured_us < HOST_BOUND * launch;
            }
        }
    }

    /// Thins out large tables of random sizes, always to the same rows.
    fn thin(&mut self) {
        for (model, rows) in &mut self.rows {
            let most = match model {
                OperatorModel::Product | OperatorModel::BatchedProduct | OperatorModel::Convolution => MOST_ROWS.0,
                _ => MOST_ROWS.1,
            };
            let mut random = Random::new(7);
            let mut counts: BTreeMap<(usize, Session), usize> = BTreeMap::new();
            for row in rows.iter() {
                *counts.entry((row.gpu, row.session)).or_default() += 1;
            }
            rows.retain(|row| {
                let count = counts.get(&(row.gpu, row.session)).copied().unwrap_or(0);
                row.session == Session::Test || count <= most || random.below(count) < most
            });
        }
    }
}

/// Equal for the same work in the same arithmetic: the bits of its sizes (whole numbers, whose last bits are 0) and, in
/// the last bits of the first, the arithmetic if it is not FP32.
fn key(part: &Part, precision: Option<Precision>) -> [u64; 7] {
    let mut key = part.primitive.sizes().map(f64::to_bits);
    key[0] ^= (4.0_f64.to_bits() ^ part.element_bytes.to_bits()) >> 48 | u64::from(precision.is_some());
    key
}

/// The 5th percentile of the times of every session on every GPU, in microseconds.
pub(super) fn shortest_times(rows: &[Row]) -> BTreeMap<(usize, Session), f64> {
    let mut times: BTreeMap<(usize, Session), Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.session.has_launch()) {
        times.entry((row.gpu, row.session)).or_default().push(row.measured_us);
    }
    times
        .into_iter()
        .map(|(key, mut times)| {
            times.sort_by(f64::total_cmp);
            (key, times[times.len() / 20])
        })
        .collect()
}
