//! Models that never saw a GPU, after a few operators were measured on it.

use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::predict::learned::{Models, Run};
use habitat_tui::predict::measured::Measurement;
use habitat_tui::random::Random;
use habitat_tui::store::operator_tables::{Row, Split};
use habitat_tui::units::GpuSlug;

use super::tally::{Groups, Predicted};
use crate::models::ModelsByGpu;

/// Numbers of measured operators of each table.
pub(super) const FEW: [u32; 2] = [5, 20];
/// Draws per number.
const DRAWS: u64 = 5;

/// Note on the protocol.
pub(super) const NOTE: &str = "\"measured\": this number of operators of each table, drawn 5 times from the GPU's rows outside the evaluated split, if it has such rows (random sizes, another session), else as \"measured alike\": from the evaluated rows, which are then not evaluated";

/// The learned models on the evaluated rows of every GPU, after `count` of its rows were measured.
pub(super) fn evaluate(
    family: &str,
    rows: &[Row],
    count: usize,
    catalog: &Catalog,
    models: &ModelsByGpu,
    groups: &mut Groups,
) -> Result<(), CliError> {
    let chosen = test_rows(rows);
    let mut slugs: Vec<&GpuSlug> = chosen.iter().map(|row| &row.gpu).collect();
    slugs.sort();
    slugs.dedup();
    for (index, slug) in slugs.into_iter().enumerate() {
        let Some(models) = models.for_gpu(slug) else { continue };
        let gpu = catalog.find(slug.as_str()).map_err(CliError::other)?;
        let own: Vec<&Row> = chosen.iter().filter(|row| row.gpu == *slug).copied().collect();
        let mut others: Vec<&Row> = Vec::new();
        if chosen.len() < rows.len() {
            others.extend(rows.iter().filter(|row| row.gpu == *slug && row.split != Split::Test));
        }
        for draw in 0..DRAWS {
            let mut random = Random::of(draw, index as u64);
            let mut add = |method: &str, measured: &[&Row], left: &[&Row]| -> Result<(), CliError> {
                let case = Case { family, method, gpu, models: &models };
                case.add(measured, left, groups)
            };
            let (alike, rest) = drawn(&own, count, &mut random);
            add(&format!("learned, {count} measured alike"), &alike, &rest)?;
            let method = format!("learned, {count} measured");
            if others.is_empty() {
                add(&method, &alike, &rest)?;
            } else {
                add(&method, &drawn(&others, count, &mut random).0, &own)?;
            }
        }
    }
    Ok(())
}

/// A random sample of rows, and the others in their order.
fn drawn<'a>(rows: &[&'a Row], count: usize, random: &mut Random) -> (Vec<&'a Row>, Vec<&'a Row>) {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    random.shuffle(&mut places);
    let (taken, left) = places.split_at(count.min(places.len()));
    let mut left = left.to_vec();
    left.sort_unstable();
    let pick = |places: &[usize]| places.iter().map(|&place| rows[place]).collect();
    (pick(taken), pick(&left))
}

struct Case<'a> {
    family: &'a str,
    method: &'a str,
    gpu: &'a GpuSpec,
    models: &'a Models,
}

impl Case<'_> {
    fn add(&self, measured: &[&Row], left: &[&Row], groups: &mut Groups) -> Result<(), CliError> {
        let Self { family, method, gpu, models } = *self;
        let measured: Vec<Measurement<'_>> = measured
            .iter()
            .map(|row| Measurement {
                operation: &row.operation,
                precision: row.precision,
                gpu,
                time: row.time,
                queued: row.queued,
            })
            .collect();
        let models = models.with_measured(&measured).map_err(CliError::other)?;
        let runs: Vec<Run<'_>> = left.iter().map(|row| run(row, gpu)).collect();
        for (row, time) in left.iter().zip(models.runs(&runs).map_err(CliError::other)?) {
            let Some(time) = time else { continue };
            let label = || format!("{} {:?} on {}", row.operation.name, row.operation.inputs, gpu.slug);
            let predicted = Predicted::in_range(time.time, time.spread);
            for group in [family, &format!("{family} on {}", gpu.slug)] {
                groups.add(group, method, predicted, row.time.as_millis(), &label);
            }
        }
        Ok(())
    }
}

/// A row as it was run.
pub(super) fn run<'a>(row: &'a Row, gpu: &'a GpuSpec) -> Run<'a> {
    Run { operation: &row.operation, precision: row.precision, gpu, queued: row.queued }
}

/// The authors' test split, if a table has one; else all rows.
pub(super) fn test_rows(rows: &[Row]) -> Vec<&Row> {
    let has_test = rows.iter().any(|row| row.split == Split::Test);
    rows.iter().filter(|row| !has_test || row.split == Split::Test).collect()
}
