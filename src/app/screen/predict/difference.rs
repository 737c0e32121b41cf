//! Two GPUs compared: which operations make the difference between their steps.

use crate::app::App;
use crate::predict::Prediction;
use crate::predict::difference::Difference;
use crate::report::{Table, difference};
use crate::units::GpuSlug;

/// What a GPU is compared with: the one that is marked, else the one that the step was recorded on.
pub(super) fn other(app: &App, gpu: &GpuSlug) -> Option<GpuSlug> {
    let recorded = || {
        let row = app.predict.rows.iter().find(|row| row.step.method.is_of_origin())?;
        Some(row.slug.clone())
    };
    app.predict.marked.clone().or_else(recorded).filter(|other| other != gpu)
}

fn compared(app: &App) -> Option<Difference<'_>> {
    let (gpus, _) = app.predict.difference.as_ref()?;
    let all = &app.predictions.value()?.predictions;
    let of = |slug: &GpuSlug| -> Option<&Prediction> { all.iter().find(|prediction| prediction.gpu.slug == *slug) };
    Some(Difference::between(of(&gpus[0])?, of(&gpus[1])?))
}

/// The waterfall from one to the other; `None` where nothing is compared.
pub fn table(app: &App) -> Option<Table> {
    let (_, list) = app.predict.difference.as_ref()?;
    let mut table = difference::table(&compared(app)?);
    table.selected = list.selected;
    Some(table)
}

/// Both steps in a sentence.
pub fn headline(app: &App) -> Option<String> {
    compared(app).map(|difference| difference::headline(&difference))
}
