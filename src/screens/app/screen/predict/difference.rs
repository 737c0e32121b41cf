//! Comparison of two GPUs by operation.

use crate::app::App;
use crate::app::list::ListState;
use habitat_base::units::GpuSlug;
use habitat_prediction::difference::{Difference, between};
use habitat_reports::{Table, difference};

/// The GPU to compare with: the marked one, else the recording GPU.
pub(super) fn other(app: &App, gpu: &GpuSlug) -> Option<GpuSlug> {
    let recorded = || {
        let row = app.predict.rows.iter().find(|row| row.step.method.is_of_origin())?;
        Some(row.slug.clone())
    };
    app.predict.marked.clone().or_else(recorded).filter(|other| other != gpu)
}

/// The comparison, with a selection in its table.
#[derive(Debug, Clone, Default)]
pub struct Compared {
    /// Two GPUs of the catalog; `None` = the hypothetical GPU and the real one.
    pub gpus: Option<[GpuSlug; 2]>,
    /// The selection.
    pub list: ListState,
}

impl Compared {
    pub(super) fn new(gpus: Option<[GpuSlug; 2]>) -> Self {
        Self { gpus, list: ListState::default() }
    }
}

fn compared(app: &App) -> Option<Difference<'_>> {
    let Some(gpus) = &app.predict.difference.as_ref()?.gpus else {
        let found = super::changed(app)?;
        return Some(between(&found.real, &found.changed));
    };
    Some(between(super::detailed(app, &gpus[0])?, super::detailed(app, &gpus[1])?))
}

/// Waterfall table from one to the other; `None` without a comparison.
pub fn table(app: &App) -> Option<Table> {
    let list = &app.predict.difference.as_ref()?.list;
    let mut table = difference::table(&compared(app)?);
    table.selected = list.selected;
    Some(table)
}

/// Both steps in a sentence.
pub fn headline(app: &App) -> Option<String> {
    compared(app).map(|difference| difference::headline(&difference))
}
