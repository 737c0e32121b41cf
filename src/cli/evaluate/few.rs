//! What a few operators measured on a GPU make of models that never saw it.

use super::super::CliError;
use super::super::operators::Judges;
use super::ops::{in_range, judged_rows};
use super::tally::Groups;
use crate::catalog::{Catalog, GpuSpec};
use crate::predict::measured::Measurement;
use crate::predict::random::Random;
use crate::profile::Operation;
use crate::store::operator_tables::{Row, Split};
use crate::units::GpuSlug;

/// Draws that errors are gathered over.
const DRAWS: u64 = 5;

/// How it was done.
pub(super) const NOTE: &str = "measured: so many operators of each table, drawn 5 times from the GPU's rows outside the judged split (where it has none, from the judged rows, which are then not judged)";

/// The learned models on the judged rows of every GPU, after `count` of its rows were measured.
pub(super) fn judge(
    family: &str,
    rows: &[Row],
    count: usize,
    catalog: &Catalog,
    judges: &Judges,
    groups: &mut Groups,
) -> Result<(), CliError> {
    let method = format!("learned, {count} measured");
    let judged = judged_rows(rows);
    let mut slugs: Vec<&GpuSlug> = judged.iter().map(|row| &row.gpu).collect();
    slugs.sort();
    slugs.dedup();
    for (index, slug) in slugs.into_iter().enumerate() {
        let Some(models) = judges.of(slug) else { continue };
        let gpu = catalog.find(slug.as_str()).map_err(CliError::of)?;
        let own: Vec<&Row> = judged.iter().filter(|row| row.gpu == *slug).copied().collect();
        let others: Vec<&Row> = if judged.len() == rows.len() || std::env::var("FEW_SAME").is_ok() {
            Vec::new()
        } else {
            rows.iter().filter(|row| row.gpu == *slug && row.split != Split::Test).collect()
        };
        for draw in 0..DRAWS {
            let mut random = Random::of(draw, index as u64);
            let pool = if others.is_empty() { &own } else { &others };
            let mut places: Vec<usize> = (0..pool.len()).collect();
            random.shuffle(&mut places);
            places.truncate(count);
            let measured: Vec<Measurement<'_>> = places
                .iter()
                .map(|&place| {
                    let Row { operation, time, .. } = pool[place];
                    Measurement { operation, precision: None, gpu, time: *time }
                })
                .collect();
            let models = models.with_measured(&measured).map_err(CliError::of)?;
            let left: Vec<&Row> = own
                .iter()
                .enumerate()
                .filter(|(place, _)| !others.is_empty() || !places.contains(place))
                .map(|(_, row)| *row)
                .collect();
            let pairs: Vec<(&Operation, &GpuSpec)> = left.iter().map(|row| (&row.operation, gpu)).collect();
            for (row, time) in left.iter().zip(models.alone(&pairs).map_err(CliError::of)?) {
                let Some(time) = time else { continue };
                let label = || format!("{} {:?} on {slug}, draw {}", row.operation.name, row.operation.inputs, draw + 1);
                let predicted = in_range(time.time, time.spread);
                for group in [family, &format!("{family} on {slug}")] {
                    groups.add(group, &method, predicted, row.time.as_millis(), &label);
                }
            }
        }
    }
    Ok(())
}
