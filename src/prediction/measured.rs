//! Corrects the models for a GPU by a few operators measured on it.
//!
//! The residual ln(measured / predicted) of a model on a GPU is modelled as a Gaussian process: an offset of the GPU, a
//! smooth part over the sizes of the operator, and noise ([`gaussian`](habitat_base::regress::gaussian)). The prior comes from the models' errors
//! on GPUs left out of training; the posterior mean corrects a time, the posterior variance narrows its range.

use std::collections::BTreeMap;

use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::GpuSpec;
use habitat_step::profile::{Operation, Precision};

use super::features::{Load, OperatorModel};
pub use super::learned::Counts;
use super::learned::{Correction, Corrections, Models, Query, arithmetic, coordinates, is_host_bound, prior};
use super::mlp::ModelError;
use super::rate::Rates;
use habitat_base::regress::gaussian::{Prior, Process};
use habitat_step::op::{element_type, parts};

/// Operator measured separately with events.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement<'a> {
    /// Operator call.
    pub operation: &'a Operation,
    /// Precision, if the element type does not show it (TF32).
    pub precision: Option<Precision>,
    /// GPU that it ran on.
    pub gpu: &'a GpuSpec,
    /// Measured time.
    pub time: Micros,
    /// Whether calls were queued ahead of it, so that the time excludes the host's launch.
    pub queued: bool,
}

/// Intended use of a row in a published table of operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training.
    Train,
    /// Evaluation: larger sizes than those of training.
    Test,
    /// Not stated in the table; used for training.
    Other,
}

/// Standard deviation of launch times between GPUs and hosts, in microseconds. It can lengthen all short operators
/// alike without any change of the device.
const LAUNCH_DEVIATION_US: f64 = 30.0;
/// The same for queued calls, which include only the device's launch.
const QUEUED_DEVIATION_US: f64 = 1.0;
/// Minimum number of operators to detect outliers.
const FEWEST_FOR_OUTLIERS: usize = 8;
/// Multiple of the median deviation from the median that makes an outlier, in units of a standard deviation (1.4826
/// times the median deviation).
const OUTLIER: f64 = 3.0;
/// Maximum number of operators in a correction.
const MOST: usize = 200;

/// Residuals of one model on one GPU.
#[derive(Default)]
struct Residuals {
    points: Vec<Vec<f64>>,
    logs: Vec<f64>,
    /// Change of the logarithm if the launch is longer by a standard deviation.
    launches: Vec<f64>,
    prior: Option<Prior>,
}

impl Models {
    /// Returns the models corrected by measurements, replacing earlier corrections. Corrections are not saved with the
    /// weights.
    ///
    /// # Errors
    /// [`ModelError`] if a network fails.
    pub fn with_measured(&self, measured: &[Measurement<'_>]) -> Result<Self, ModelError> {
        let plain = Self::new(self.ensembles().clone(), self.steps().clone());
        let plain = match self.efficiency() {
            Some(efficiency) => plain.with_efficiency(efficiency.clone()),
            None => plain,
        };
        let mut corrections = Corrections::default();
        let (mut queries, mut times) = (Vec::new(), Vec::new());
        let rates: Vec<Rates<'_>> = measured.iter().map(|one| Rates::new(one.gpu)).collect();
        for (one, rates) in measured.iter().zip(&rates) {
            corrections.counts.entry(one.gpu.slug.clone()).or_default().passed_over += 1;
            let dtype = element_type(one.operation, one.precision);
            // For several parts only the sum is known.
            if let [part] = parts(one.operation, one.precision)[..] {
                // Queued calls run back to back, as in a step.
                let load = if one.queued { Load::Step } else { Load::Alone };
                let gpu = plain.on(rates);
                let rate = gpu.rate(dtype.as_ref(), one.precision);
                queries.push(Query { part, gpu, rate, load });
                times.push((one.time, one.queued));
            }
        }
        let mut by_model: BTreeMap<(OperatorModel, &GpuSlug, [u64; 2]), Residuals> = BTreeMap::new();
        for ((query, (time, queued)), predicted) in queries.iter().zip(&times).zip(plain.times(&queries)?) {
            let Some(model) = OperatorModel::of(&query.part.primitive) else { continue };
            let (Some(predicted), Some(ensemble)) = (predicted, plain.ensembles().get(&model)) else { continue };
            if !queued && is_host_bound(*time, &ensemble.facts) || time.get() <= 0.0 {
                continue;
            }
            // Only the device's part is corrected.
            let launch = query.launch_us();
            if predicted.time.get() <= launch {
                continue;
            }
            let device = (time.get() - launch).max(0.3 * time.get());
            let log = (device / (predicted.time.get() - launch).max(1e-3)).ln();
            let own = by_model.entry((model, query.gpu.slug(), arithmetic(query))).or_default();
            own.points.push(coordinates(&query.part));
            own.logs.push(log);
            own.launches.push(if *queued { QUEUED_DEVIATION_US } else { LAUNCH_DEVIATION_US } / device);
            own.prior = Some(prior(&ensemble.facts, query.gpu.rates.gpu));
        }
        for ((model, gpu, arithmetic), residuals) in by_model {
            let Some(prior) = residuals.prior else { continue };
            let kept = in_line(&residuals.logs);
            let points = kept.iter().map(|&index| residuals.points[index].clone()).collect();
            let values: Vec<(f64, f64)> =
                kept.iter().map(|&index| (residuals.logs[index], residuals.launches[index])).collect();
            let counts = corrections.counts.entry(gpu.clone()).or_default();
            counts.used += kept.len();
            counts.passed_over = counts.passed_over.saturating_sub(kept.len());
            let process = Process::new(prior, points, &values);
            corrections.all.push(Correction { model, gpu: gpu.clone(), arithmetic, process });
        }
        Ok(plain.corrected_by(corrections))
    }
}

/// Indices of residuals to use: without outliers and, if there are too many, an even subset.
fn in_line(logs: &[f64]) -> Vec<usize> {
    let middle = |mut values: Vec<f64>| -> f64 {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    };
    let median = middle(logs.to_vec());
    let limit = OUTLIER * 1.4826 * middle(logs.iter().map(|log| (log - median).abs()).collect());
    let few = logs.len() < FEWEST_FOR_OUTLIERS;
    let kept: Vec<usize> = (0..logs.len()).filter(|&index| few || (logs[index] - median).abs() <= limit).collect();
    let step = kept.len().div_ceil(MOST).max(1);
    kept.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learned::{Ensemble, ModelFacts, Spread, StepFacts};
    use crate::mlp::{Activation, Architecture, Mlp};
    use habitat_step::catalog::Layer;
    use habitat_step::profile::{DType, Phase};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn models() -> Models {
        let model = OperatorModel::Product;
        let network = Mlp::new(Architecture::uniform(model.width(), 1, 8, 1, Activation::Silu), 3).unwrap();
        let facts = ModelFacts {
            ranges: vec![[-20.0, 20.0]; model.width()],
            host_us: 40.0,
            seen: Some(Spread { low: 0.9, high: 1.1, cases: 100 }),
            unseen: Some(Spread { low: 0.6, high: 1.6, cases: 100 }),
            shared_deviation: 0.5,
            ..ModelFacts::default()
        };
        Models::new(BTreeMap::from([(model, Ensemble { networks: vec![network], facts })]), StepFacts::default())
    }

    fn product(rows: u64, columns: u64, reduction: u64) -> Operation {
        Operation {
            name: "aten::linear".to_owned(),
            module: None,
            phase: Phase::Forward,
            count: 1,
            inputs: vec![vec![rows, reduction], vec![columns, reduction]],
            outputs: Vec::new(),
            dtype: Some(DType::Float32),
            attributes: BTreeMap::new(),
            device_time: None,
            cpu_time: None,
            kernels: Vec::new(),
        }
    }

    fn times(models: &Models, operations: &[Operation], gpu: &GpuSpec) -> Vec<super::super::learned::LearnedTime> {
        let pairs: Vec<(&Operation, &GpuSpec)> = operations.iter().map(|operation| (operation, gpu)).collect();
        models.alone(&pairs).unwrap().into_iter().map(Option::unwrap).collect()
    }

    /// A GPU 1.4 times slower than predicted.
    #[test]
    fn a_biased_board_is_put_right_and_the_range_narrows() {
        let (models, gpu) = (models(), spec("t4"));
        let measured: Vec<Operation> = (0..6).map(|n| product(1024 << (n % 3), 2048, 1024 << (n / 3))).collect();
        let asked = [product(3072, 2048, 1024), product(1500, 4096, 2048)];
        let before = times(&models, &asked, &gpu);
        let slow = |time: Micros| time.checked_sub(Micros::known(13.0)).unwrap() * 1.4 + Micros::known(13.0);
        let predicted = times(&models, &measured, &gpu);
        let measurements: Vec<Measurement<'_>> = measured
            .iter()
            .zip(&predicted)
            .map(|(operation, time)| Measurement {
                operation,
                precision: None,
                gpu: &gpu,
                time: slow(time.time),
                queued: false,
            })
            .collect();
        let corrected = models.with_measured(&measurements).unwrap();
        assert_eq!(corrected.measured_on(&gpu), Some(Counts { used: 6, passed_over: 0 }));
        for (before, after) in before.iter().zip(times(&corrected, &asked, &gpu)) {
            let ratio = after.time / before.time;
            assert!((1.3..1.42).contains(&ratio), "{ratio}");
            let width = |spread: Spread| (spread.high / spread.low).ln();
            assert!(width(after.spread) < 0.75 * width(before.spread), "{:?}", after.spread);
            assert!(after.spread.low <= 0.9 && after.spread.high >= 1.1, "{:?}", after.spread);
            assert!(after.shared_deviation < before.shared_deviation);
        }
        // The cache is not shared, and other GPUs are unchanged.
        assert_eq!(times(&models, &asked, &gpu), before);
        let other = spec("p4");
        assert_eq!(times(&corrected, &asked, &other), times(&models, &asked, &other));
        assert_eq!(corrected.measured_on(&other), None);
        assert_ne!(corrected, models);
        // A second correction starts from the uncorrected models.
        assert_eq!(corrected.with_measured(&measurements).unwrap(), corrected);
    }

    #[test]
    fn another_precision_of_products_is_left_alone() {
        let (models, gpu) = (models(), spec("t4"));
        let one = product(4096, 4096, 1024);
        let half = Operation { dtype: Some(DType::Float16), ..one.clone() };
        let time = times(&models, std::slice::from_ref(&one), &gpu)[0].time * 2.0;
        let measurement = Measurement { operation: &one, precision: None, gpu: &gpu, time, queued: false };
        let corrected = models.with_measured(&[measurement]).unwrap();
        let asked = [half, one];
        let (before, after) = (times(&models, &asked, &gpu), times(&corrected, &asked, &gpu));
        assert_eq!(before[0], after[0]);
        assert!(after[1].time.get() > 1.4 * before[1].time.get());
    }

    #[test]
    fn what_tells_nothing_is_passed_over() {
        let (models, gpu) = (models(), spec("t4"));
        let (short, unknown) = (product(8, 8, 8), Operation { name: "x::y".to_owned(), ..product(8, 8, 8) });
        let of =
            |operation| Measurement { operation, precision: None, gpu: &gpu, time: Micros::known(45.0), queued: false };
        let corrected = models.with_measured(&[of(&short), of(&unknown)]).unwrap();
        assert_eq!(corrected.measured_on(&gpu), Some(Counts { used: 0, passed_over: 2 }));
        assert_eq!(in_line(&[0.1, 0.11, 0.12, 0.1, 0.09, 0.1, 0.11, 2.0]), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(in_line(&[0.1, 0.1, 2.0]).len(), 3);
        assert_eq!(in_line(&[0.0; 500]).len(), 167);
    }
}
