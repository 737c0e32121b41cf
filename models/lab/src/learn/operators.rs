//! Trains an ensemble of networks on measured operators, with or without one of the GPUs.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use habitat_tui::catalog::Vendor;
use habitat_tui::predict::features::{Features, OperatorModel};
use habitat_tui::predict::head::Head;
use habitat_tui::predict::learned::{Ensemble, ModelFacts};
use habitat_tui::predict::mlp::{Activation, ModelError};

use super::data::{Dataset, Row, Session, shortest_times};
use super::fit::fit;
use super::options::{Decay, FitError, FitOptions, Loss, Rows, Schedule};
use habitat_tui::predict::rate::LONGEST_LAUNCH_US;

/// Networks of one ensemble.
const NETWORKS: u64 = 4;
/// Weight of a row of real sizes relative to one of random sizes.
const REAL_SIZES_WEIGHT: f32 = 3.0;

/// The same for tables of other programs, whose overhead is unknown.
const FOREIGN_WEIGHT: f32 = 0.2;

/// Quantiles of the rows at the ends of a feature's range. Small operators hidden by the host's launch were left out,
/// so the low end is thin.
const RANGE: [f64; 2] = [0.01, 0.999];

/// Trains the ensemble of `model` without `left_out` (an index into the dataset's GPUs). Calls `on_epoch` after every
/// pass over the rows, which may stop it.
///
/// # Errors
/// [`FitError`] if there is no data to learn from.
pub fn ensemble(
    data: &Dataset,
    model: OperatorModel,
    left_out: Option<usize>,
    seed: u64,
    on_epoch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Ensemble, FitError> {
    let all = data.rows.get(&model).map_or(&[][..], |rows| rows);
    let hidden = |row: &Row| left_out.is_some_and(|left_out| data.is_same_gpu(row, left_out));
    let chosen: Vec<&Row> = all.iter().filter(|row| !hidden(row) && !row.is_host_bound).collect();
    let mut sessions: Vec<(usize, Session)> = chosen.iter().map(|row| (row.gpu, row.session)).collect();
    sessions.sort_unstable();
    sessions.dedup();
    let rows = Rows {
        features: chosen.iter().flat_map(|row| row.features.values().iter().copied()).collect(),
        floor_us: chosen.iter().map(|row| row.session.launch_us() as f32).collect(),
        bound_us: chosen.iter().map(|row| row.features.bound_us).collect(),
        group: chosen.iter().map(|row| sessions.binary_search(&(row.gpu, row.session)).unwrap_or(0) as u32).collect(),
        measured_us: chosen.iter().map(|row| row.measured_us as f32).collect(),
        weight: chosen
            .iter()
            .map(|row| match row.session {
                Session::Test | Session::Step => REAL_SIZES_WEIGHT,
                Session::Train | Session::Queued => 1.0,
                Session::Other => FOREIGN_WEIGHT,
            })
            .collect(),
    };
    let (mut networks, mut offsets) = (Vec::new(), vec![0.0; sessions.len()]);
    for network in 0..NETWORKS {
        let options = options(model, seed + network);
        let head = Head::Bounded { upper: model.upper() };
        let fitted = fit(&rows, head, &options, None, &mut |_| on_epoch())?;
        for (sum, offset) in offsets.iter_mut().zip(&fitted.offsets) {
            *sum += f64::from(*offset) / NETWORKS as f64;
        }
        networks.push(fitted.network);
    }
    let mut facts = ModelFacts { ranges: ranges(&chosen, model), ..ModelFacts::default() };
    facts.boards = offsets_by_gpu(data, &sessions, &offsets);
    facts.makers = makers(data, &facts.boards);
    // Only tables of kernels; other programs have their own overhead.
    let kernels: Vec<Row> = all.iter().filter(|row| row.session != Session::Other).cloned().collect();
    let launches: Vec<f64> = shortest_times(&kernels)
        .into_iter()
        .filter(|((gpu, _), _)| Some(*gpu) != left_out)
        // A table may have no short operators.
        .map(|(_, time)| time.min(LONGEST_LAUNCH_US))
        .collect();
    facts.host_us = habitat_tui::learn::ranges::quantile(launches.into_iter().map(|time| (time, 1.0)).collect(), 0.3)
        .unwrap_or(0.0);
    Ok(Ensemble { networks, facts })
}

fn options(model: OperatorModel, seed: u64) -> FitOptions {
    let (width, batch, epochs) = match model {
        // Wider networks and longer training are better on seen GPUs, worse on others.
        OperatorModel::Product => (64, 1024, 10),
        OperatorModel::BatchedProduct | OperatorModel::Convolution => (32, 1024, 8),
        OperatorModel::Stream => (32, 512, 20),
        OperatorModel::Softmax | OperatorModel::Normalisation => (32, 512, 40),
    };
    FitOptions {
        hidden: vec![width; 3],
        activation: Activation::Silu,
        loss: Loss::SymmetricRelative { delta: 0.1 },
        standardise: true,
        decay: Decay::Decoupled(1e-3),
        schedule: Schedule::Cosine { first: 2e-3, last: 1e-5 },
        offset_penalty: 2e-3,
        batch,
        epochs,
        seed,
    }
}

/// Range of every feature that contains nearly all rows; networks are not used outside.
fn ranges(rows: &[&Row], model: OperatorModel) -> Vec<[f64; 2]> {
    (0..model.width())
        .map(|index| {
            let mut values: Vec<f32> =
                rows.iter().filter_map(|row| row.features.values().get(index).copied()).collect();
            values.sort_by(f32::total_cmp);
            let at = |share: f64| {
                let place = ((values.len().saturating_sub(1)) as f64 * share).round() as usize;
                values.get(place).copied().map_or(0.0, f64::from)
            };
            [at(RANGE[0]), at(RANGE[1])]
        })
        .collect()
}

/// A GPU's offset is the mean over its sessions; those of steps, which have few rows, count only if there are no
/// others. Those of other programs include their overhead and do not count.
fn offsets_by_gpu(data: &Dataset, sessions: &[(usize, Session)], offsets: &[f64]) -> BTreeMap<String, f64> {
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for (index, gpu) in data.gpus.iter().enumerate() {
        let of = |steps: bool| -> Vec<f64> {
            let own =
                sessions.iter().zip(offsets).filter(|((gpu, session), _)| *gpu == index && *session != Session::Other);
            own.filter(|((_, session), _)| (*session == Session::Step) == steps).map(|(_, &offset)| offset).collect()
        };
        let own = if of(false).is_empty() { of(true) } else { of(false) };
        if !own.is_empty() {
            found.insert(gpu.slug.to_string(), own.iter().sum::<f64>() / own.len() as f64);
        }
    }
    found
}

/// AMD's GPUs have other libraries: the offset of a known one is the best guess for the others.
fn makers(data: &Dataset, by_gpu: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let amd: Vec<f64> = data
        .gpus
        .iter()
        .filter(|gpu| gpu.vendor == Vendor::Amd)
        .filter_map(|gpu| by_gpu.get(gpu.slug.as_str()).copied())
        .collect();
    if amd.is_empty() {
        return BTreeMap::new();
    }
    BTreeMap::from([("amd".to_owned(), amd.iter().sum::<f64>() / amd.len() as f64)])
}

/// Predicted times of measured rows, each operator alone, in microseconds.
///
/// # Errors
/// [`ModelError`] if a network cannot be computed.
pub fn predict_rows(
    data: &Dataset,
    model: OperatorModel,
    ensemble: &Ensemble,
    rows: &[&Row],
) -> Result<Vec<f64>, ModelError> {
    let features: Vec<Features> = rows.iter().map(|row| row.features).collect();
    let above = ensemble.above_launch(model, &features)?;
    Ok(rows
        .iter()
        .zip(above)
        .map(|(row, above)| {
            let device = row.session.launch_us() + above / ensemble.offset(&data.gpus[row.gpu]).exp();
            if row.session.has_launch() { device.max(ensemble.facts.host_us) } else { device }
        })
        .collect())
}
