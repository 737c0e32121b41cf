//! The black-box model on networks that it was not fitted on.

use std::collections::BTreeSet;

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::blackbox::{BlackBoxFitError, fit};
use habitat_tui::predict::blackbox::{Anatomy, BlackBoxModel, Recorded, Settings};
use habitat_tui::units::{GpuSlug, Micros};

/// A row with what was predicted of it on one GPU.
#[derive(Debug, Clone)]
pub struct Evaluated<'a> {
    /// The row.
    pub row: &'a Recorded,
    /// On which GPU.
    pub target: GpuSlug,
    /// Low, mid and high in microseconds.
    pub predicted: [f64; 3],
    /// In microseconds.
    pub measured: f64,
}

/// What `model` says of rows, on every GPU that it reaches and they were measured on.
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

/// Leaves out every group of rows (`group` of their network) in turn, fits on the others and
/// predicts it; `on_group` hears of every group that is done.
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
