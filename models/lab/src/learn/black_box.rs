//! The black-box model on networks outside its training data.

use std::collections::{BTreeMap, BTreeSet};

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::blackbox::{BlackBoxFitError, fit};
use habitat_tui::predict::blackbox::{Anatomy, BlackBoxModel, OperatorKind, Recorded, Settings};
use habitat_tui::units::{GpuSlug, Micros};

/// A row with its prediction on one GPU.
#[derive(Debug, Clone)]
pub struct Evaluated<'a> {
    /// The row.
    pub row: &'a Recorded,
    /// The GPU.
    pub target: GpuSlug,
    /// Low, mid and high in microseconds.
    pub predicted: [f64; 3],
    /// In microseconds.
    pub measured: f64,
}

/// Predictions of `model` for rows, on every GPU that it covers and that has measurements.
pub fn evaluate<'a>(model: &BlackBoxModel, rows: &[&'a Recorded]) -> Vec<Evaluated<'a>> {
    let mut evaluated = Vec::new();
    for gpu in model.anchors() {
        let Some(anchor) = model.anchor(&gpu) else { continue };
        let fitted = anchor.fitted();
        for row in rows.iter().filter(|row| row.totals.gpu == gpu) {
            let steps = fitted.predict_all(&Anatomy::of(&row.totals));
            for (target, measured) in &row.elsewhere {
                let Some(step) = steps.get(target) else { continue };
                let predicted = [step.time.range.low, step.time.range.mid, step.time.range.high].map(Micros::get);
                evaluated.push(Evaluated { row, target: target.clone(), predicted, measured: measured.get() });
            }
        }
    }
    evaluated
}

/// Leaves out every group of rows (`group` of their network) in turn, fits on the others and predicts it; calls
/// `on_group` after each group.
///
/// # Errors
/// As [`fit`].
pub fn cross_validate<'a>(
    rows: &'a [Recorded],
    catalog: &Catalog,
    group: &dyn Fn(&str) -> String,
    on_group: &mut dyn FnMut(&str, Settings),
) -> Result<Vec<Evaluated<'a>>, BlackBoxFitError> {
    let groups: BTreeSet<String> = rows.iter().map(|row| group(&row.network)).collect();
    let mut evaluated = Vec::new();
    for name in groups {
        let (held, fitted): (Vec<&Recorded>, Vec<&Recorded>) = rows.iter().partition(|row| group(&row.network) == name);
        let model = fit(&fitted, catalog, "", Vec::new())?;
        evaluated.extend(evaluate(&model, &held));
        on_group(&name, model.settings());
    }
    Ok(evaluated)
}

/// Kinds of operators that some networks lack, each with its gradient.
const KINDS: [&[OperatorKind]; 5] = [
    &[OperatorKind::Normalisation, OperatorKind::NormalisationBackward],
    &[OperatorKind::Window, OperatorKind::WindowBackward],
    &[OperatorKind::MatrixProduct],
    &[OperatorKind::Optimizer],
    &[OperatorKind::Transfer],
];
/// A network has a kind from this share of its device time on.
const HAS: f64 = 0.03;

/// Leaves out every kind of operators in turn: fits on the networks that hardly use it, minus its times, and predicts
/// the networks that use it. Skips kinds with fewer than four networks to fit on.
///
/// # Errors
/// As [`fit`].
pub fn kinds_left_out<'a>(
    rows: &'a [Recorded],
    catalog: &Catalog,
) -> Result<Vec<(&'static str, Vec<Evaluated<'a>>)>, BlackBoxFitError> {
    let mut found = Vec::new();
    for kinds in KINDS {
        let mut shares: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for row in rows {
            let of: f64 = kinds.iter().filter_map(|kind| row.totals.kinds.get(kind)).map(|time| time.get()).sum();
            let share = shares.entry(&row.network).or_default();
            *share = (share.0 + of / row.totals.device_time().get(), share.1 + 1.0);
        }
        let has = |row: &Recorded| shares.get(&*row.network).is_some_and(|(sum, rows)| sum / rows >= HAS);
        let fitted: Vec<Recorded> = rows
            .iter()
            .filter(|row| !has(row))
            .map(|row| {
                let mut row = row.clone();
                row.totals.kinds.retain(|kind, _| !kinds.contains(kind));
                row
            })
            .collect();
        let networks: BTreeSet<&str> = fitted.iter().map(|row| &*row.network).collect();
        let held: Vec<&Recorded> = rows.iter().filter(|row| has(row)).collect();
        if let (Some(kind), false, 4..) = (kinds.first(), held.is_empty(), networks.len()) {
            let model = fit(&fitted.iter().collect::<Vec<_>>(), catalog, "", Vec::new())?;
            found.push((kind.name(), evaluate(&model, &held)));
        }
    }
    Ok(found)
}
