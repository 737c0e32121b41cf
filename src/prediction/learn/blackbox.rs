//! Fits the black-box model; validation chooses all hyperparameters.
//!
//! Each workload has nine repetitions; the model is fitted to their medians. The chosen settings (regularisation
//! towards data sheets, correlation length of the Gaussian process, noise of a step) have the smallest mean relative
//! error on networks left out in turn; the ranges are quantiles of those errors. A network under evaluation takes no
//! part in either.

mod mean;
pub mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::blackbox::model::{Anchor, Residuals, Target, mean as mean_of};
use crate::blackbox::{Anatomy, BlackBoxModel, OperatorTotals, Range, Recorded, Settings, Sizes};
use habitat_base::regress::quantile::{median, quantile};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::{Catalog, GpuSpec, UnknownGpu};

/// Candidate settings.
const RIDGES: [f64; 3] = [0.03, 0.05, 0.08];
const LENGTHS: [f64; 3] = [0.7, 1.0, 1.4];
const NOISES: [f64; 3] = [0.25, 0.5, 1.0];

/// Reason that a fit failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlackBoxFitError {
    /// Too few networks for cross-validation.
    #[error("rows of {0} networks; cross-validation needs at least 3")]
    Networks(usize),
    /// No row has the step on another GPU.
    #[error("no row has the step on a GPU other than its anchor")]
    NoTargets,
    /// A GPU is not in the catalog.
    #[error(transparent)]
    Gpu(#[from] UnknownGpu),
    /// The mean cannot be fitted.
    #[error("the mean of {anchor} → {target}: {error}")]
    Mean {
        /// Anchor GPU.
        anchor: GpuSlug,
        /// Target GPU.
        target: GpuSlug,
        /// Cause.
        error: habitat_base::regress::RegressError,
    },
}

/// Median of a workload's repetitions on one anchor.
#[derive(Debug, Clone)]
struct Workload {
    network: Arc<str>,
    anatomy: Anatomy,
    place: Vec<f64>,
    /// Steps on other GPUs, in microseconds.
    steps: BTreeMap<GpuSlug, f64>,
}

/// Workloads by anchor.
type Workloads = BTreeMap<GpuSlug, Vec<Workload>>;

/// Rounds to the digits stored in the file (five decimals of coordinates, six of others), so that a model predicts the
/// same after reading.
fn rounded(value: f64, decimals: i32) -> f64 {
    let unit = 10.0_f64.powi(decimals);
    (value * unit).round() / unit
}

/// Medians over repetitions, separately for each number.
fn medians(rows: &[&Recorded]) -> Workloads {
    let mut groups: BTreeMap<(GpuSlug, Arc<str>, u32, u64), Vec<&Recorded>> = BTreeMap::new();
    for row in rows {
        let key = (row.totals.gpu.clone(), Arc::clone(&row.network), row.pixels, row.totals.batch_size);
        groups.entry(key).or_default().push(row);
    }
    let mut workloads = Workloads::new();
    for ((anchor, network, _, _), rows) in groups {
        let middle = |of: &dyn Fn(&Recorded) -> Option<f64>| {
            median(&mut rows.iter().filter_map(|row| of(row)).collect::<Vec<f64>>())
        };
        let kinds: BTreeSet<_> = rows.iter().flat_map(|row| row.totals.kinds.keys().copied()).collect();
        let kinds = kinds
            .into_iter()
            .filter_map(|kind| {
                let time = middle(&|row| Some(row.totals.kinds.get(&kind).map_or(0.0, |time| time.get())))?;
                Some((kind, Micros::known(time)))
            })
            .collect();
        let step = middle(&|row| Some(row.totals.step.get())).unwrap_or_default();
        let idle = middle(&|row| row.totals.idle.map(Micros::get)).map(Micros::known);
        let batch = rows.first().map_or(1, |row| row.totals.batch_size);
        // Each row passed these checks, but the medians of all kinds may be 0.
        let Ok(totals) = OperatorTotals::new(anchor.clone(), Micros::known(step), batch, idle, kinds) else { continue };
        let targets: BTreeSet<&GpuSlug> = rows.iter().flat_map(|row| row.elsewhere.keys()).collect();
        let steps = targets
            .into_iter()
            .filter_map(|gpu| Some((gpu.clone(), middle(&|row| row.elsewhere.get(gpu).map(|step| step.get()))?)))
            .collect();
        let anatomy = Anatomy::of(&totals);
        let place = anatomy.coordinates().iter().map(|&x| rounded(x, 5)).collect();
        workloads.entry(anchor).or_default().push(Workload { network, anatomy, place, steps });
    }
    workloads
}

/// Workloads of one anchor, split into fitted and held-out ones.
struct Fold<'a> {
    anchor: &'a GpuSpec,
    fitted: Vec<&'a Workload>,
    held: Vec<&'a Workload>,
}

impl Fold<'_> {
    /// Targets for which every fitted workload has a step.
    fn targets(&self) -> Vec<GpuSlug> {
        let Some(first) = self.fitted.first() else { return Vec::new() };
        let on_all = |gpu: &&GpuSlug| self.fitted.iter().all(|workload| workload.steps.contains_key(*gpu));
        first.steps.keys().filter(on_all).cloned().collect()
    }

    /// Factors of the mean, and its residual at each fitted workload.
    fn mean(&self, target: &GpuSpec, ridge: f64) -> Result<(Vec<f64>, Vec<f64>), BlackBoxFitError> {
        let columns: Vec<Vec<f64>> = self.fitted.iter().map(|workload| workload.anatomy.columns()).collect();
        let steps: Vec<f64> =
            self.fitted.iter().map(|workload| workload.steps.get(&target.slug).copied().unwrap_or(f64::NAN)).collect();
        let factors = mean::fit(&columns, &steps, self.anchor, target, ridge).map_err(|error| {
            BlackBoxFitError::Mean { anchor: self.anchor.slug.clone(), target: target.slug.clone(), error }
        })?;
        let factors: Vec<f64> = factors.into_iter().map(|factor| rounded(factor, 6)).collect();
        let left = self
            .fitted
            .iter()
            .zip(&steps)
            .map(|(workload, step)| rounded((step / mean_of(&workload.anatomy, &factors).0).ln(), 6))
            .collect();
        Ok((factors, left))
    }
}

/// Error of a held-out step: ln(measured / predicted), and the share of the prior variance left.
#[derive(Debug, Clone, Copy)]
struct Error {
    log: f64,
    unfamiliar: f64,
}

/// Errors of held-out steps by setting, then by anchor and target.
type Errors = Vec<BTreeMap<(GpuSlug, GpuSlug), Vec<Error>>>;

fn settings() -> Vec<Settings> {
    let mut all = Vec::new();
    for ridge in RIDGES {
        for length in LENGTHS {
            for noise in NOISES {
                all.push(Settings { ridge, length, noise });
            }
        }
    }
    all
}

/// Leaves out each network in turn and predicts it with every setting.
fn held_out(workloads: &Workloads, catalog: &Catalog) -> Result<Errors, BlackBoxFitError> {
    let networks: BTreeSet<&Arc<str>> = workloads.values().flatten().map(|workload| &workload.network).collect();
    if networks.len() < 3 {
        return Err(BlackBoxFitError::Networks(networks.len()));
    }
    let settings = settings();
    let mut errors: Errors = vec![BTreeMap::new(); settings.len()];
    for (anchor, workloads) in workloads {
        let anchor = catalog.find(anchor.as_str())?;
        for network in &networks {
            let (held, fitted): (Vec<&Workload>, _) =
                workloads.iter().partition(|workload| workload.network == **network);
            if fitted.is_empty() || held.is_empty() {
                continue;
            }
            let fold = Fold { anchor, fitted, held };
            fold_errors(&fold, &settings, catalog, &mut errors)?;
        }
    }
    Ok(errors)
}

fn fold_errors(
    fold: &Fold<'_>,
    settings: &[Settings],
    catalog: &Catalog,
    errors: &mut Errors,
) -> Result<(), BlackBoxFitError> {
    let targets = fold.targets();
    let mut means = BTreeMap::new();
    for (index, ridge) in RIDGES.into_iter().enumerate() {
        for target in &targets {
            means.insert((index, target), fold.mean(catalog.find(target.as_str())?, ridge)?);
        }
    }
    for length in LENGTHS {
        for noise in NOISES {
            let at = Settings { ridge: 0.0, length, noise };
            let process = Residuals::new(at, fold.fitted.iter().map(|workload| &workload.place));
            let keys: Vec<_> = means.keys().copied().collect();
            let weights: Vec<Vec<f64>> = means.values().map(|(_, left)| process.weights_of(left)).collect();
            for held in &fold.held {
                let (left, unfamiliar) = process.at(&held.place, &weights);
                for ((ridge, target), left) in keys.iter().zip(left) {
                    let Some(step) = held.steps.get(*target) else { continue };
                    let Some((factors, _)) = means.get(&(*ridge, *target)) else { continue };
                    let log = step.ln() - mean_of(&held.anatomy, factors).0.ln() - left;
                    let place = settings
                        .iter()
                        .position(|setting| *setting == Settings { ridge: RIDGES[*ridge], length, noise });
                    if let Some(place) = place {
                        let pair = (fold.anchor.slug.clone(), (*target).clone());
                        errors[place].entry(pair).or_default().push(Error { log, unfamiliar });
                    }
                }
            }
        }
    }
    Ok(())
}

/// Mean of |predicted / measured − 1|.
fn mean_error(errors: &BTreeMap<(GpuSlug, GpuSlug), Vec<Error>>) -> f64 {
    let all = || errors.values().flatten();
    all().map(|error| ((-error.log).exp() - 1.0).abs()).sum::<f64>() / all().count().max(1) as f64
}

/// Share of steps that a range should contain.
const COVERAGE: f64 = 0.8;

/// Range that contained 80 % of a pair's held-out errors, relative to the width. Errors of one network are correlated,
/// so the sample size n is `networks`, not steps. The quantiles are those of (n + 1) / n times the share, as in
/// conformal prediction (Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005).
fn range(errors: &[Error], networks: usize) -> Range {
    let tail = 0.5 * (1.0 - (COVERAGE * (1.0 + 1.0 / networks as f64)).min(0.98));
    let mut scaled: Vec<f64> = errors.iter().map(|error| error.log / Range::width(error.unfamiliar)).collect();
    let at = |scaled: &mut Vec<f64>, q| rounded(quantile(scaled, q).unwrap_or_default(), 6);
    let (low, high) = (at(&mut scaled, tail), at(&mut scaled, 1.0 - tail));
    Range { low: low.min(0.0), high: high.max(0.0) }
}

/// Fits the model to all rows; `trained_on` describes them, `sizes` is the growth of steps between two sizes
/// ([`sizes::fit`]).
///
/// # Errors
/// [`BlackBoxFitError`] if there are too few networks, or a GPU is not in the catalog.
pub fn fit(
    rows: &[&Recorded],
    catalog: &Catalog,
    trained_on: &str,
    sizes: Vec<Sizes>,
) -> Result<BlackBoxModel, BlackBoxFitError> {
    let workloads = medians(rows);
    if workloads.values().flatten().all(|workload| workload.steps.is_empty()) {
        return Err(BlackBoxFitError::NoTargets);
    }
    let errors = held_out(&workloads, catalog)?;
    let networks = rows.iter().map(|row| &row.network).collect::<BTreeSet<_>>().len();
    let chosen = settings().into_iter().zip(errors).min_by(|(_, a), (_, b)| mean_error(a).total_cmp(&mean_error(b)));
    let Some((settings, errors)) = chosen else { return Err(BlackBoxFitError::NoTargets) };
    let mut anchors = Vec::new();
    for (slug, workloads) in &workloads {
        let fold = Fold { anchor: catalog.find(slug.as_str())?, fitted: workloads.iter().collect(), held: Vec::new() };
        let mut targets = Vec::new();
        for gpu in fold.targets() {
            let (factors, left) = fold.mean(catalog.find(gpu.as_str())?, settings.ridge)?;
            let range = errors
                .get(&(slug.clone(), gpu.clone()))
                .map_or(Range { low: 0.0, high: 0.0 }, |errors| range(errors, networks));
            targets.push(Target { gpu, factors, left, range });
        }
        let places = workloads.iter().map(|workload| workload.place.clone()).collect();
        anchors.push(Anchor::new(slug.clone(), places, targets));
    }
    Ok(BlackBoxModel::new(trained_on.to_owned(), settings, anchors, sizes))
}
