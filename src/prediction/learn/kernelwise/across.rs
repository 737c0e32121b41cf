//! Fits lines across GPUs.

use std::collections::BTreeMap;

use super::group::{of_points, of_steps};
use super::{Data, FitError, Recipe, chosen, is_stream, steps_of};
use crate::decoded::{Decoded, step_operations};
use crate::kernelwise::{AcrossLine, Driver, Group, KernelWise, LEAST_GPUS, Property};
use crate::layer::STREAMING;
use crate::rate::Rates;
use habitat_base::regress::line::{Line, Point};
use habitat_base::regress::quantile::median;
use habitat_step::catalog::{Catalog, GpuSpec};

/// Candidate drivers of a kind; tiles are specific to a kernel.
const DRIVERS: [Driver; 4] = [Driver::Input, Driver::Operations, Driver::Output, Driver::Bytes];

/// Minimum number of GPUs with measurements of a kind of layer, among three or more.
const LEAST_OF_A_KIND: usize = 2;

/// Lines of one kind on every GPU, by driver.
type ByGpu<'a> = Vec<(&'a GpuSpec, Vec<Group>)>;

/// Lines of every kind on every GPU.
pub(super) struct Measured<'a> {
    kinds: BTreeMap<String, ByGpu<'a>>,
    steps: ByGpu<'a>,
}

impl<'a> Measured<'a> {
    /// Fits every kind of layer separately on every GPU.
    pub(super) fn new(
        data: &Data,
        catalog: &'a Catalog,
        recipe: Recipe,
        keep: &dyn Fn(&str) -> bool,
    ) -> Result<Self, FitError> {
        let mut kinds: BTreeMap<String, ByGpu<'a>> = BTreeMap::new();
        let mut steps = ByGpu::new();
        // Kernel names differ between architectures, so all kernels of a kind are combined.
        for slug in data.gpus() {
            let gpu = catalog.find(slug.as_str())?;
            let rows = chosen(data, slug, keep);
            let mut by_kind: BTreeMap<&str, Vec<&super::Row>> = BTreeMap::new();
            for row in &rows {
                by_kind.entry(&row.layer.kind).or_default().push(row);
                if is_stream(row) {
                    by_kind.entry(STREAMING).or_default().push(row);
                }
            }
            for (kind, rows) in by_kind {
                let drivers: &[Driver] = if kind == STREAMING { &[Driver::Bytes] } else { &DRIVERS };
                let groups: Vec<Group> = drivers
                    .iter()
                    .filter_map(|&driver| {
                        let points: Option<Vec<(f64, f64)>> =
                            rows.iter().map(|row| Some((row.layer.size(driver)?, row.time()))).collect();
                        of_points(driver, &points?, recipe, rows.iter().all(|row| row.layer.is_streaming))
                    })
                    .collect();
                kinds.entry(kind.to_owned()).or_default().push((gpu, groups));
            }
            let points: Vec<(f64, f64)> = steps_of(data, slug, keep)
                .filter_map(|profile| {
                    Some((step_operations(&Decoded::all(profile)).get(), profile.measured_step()?.get()))
                })
                .collect();
            steps.extend(of_steps(&points, recipe).map(|group| (gpu, vec![group])));
        }
        Ok(Self { kinds, steps })
    }
}

/// Fills in the lines across GPUs of a model, optionally leaving out one GPU.
pub(super) fn fill(model: &mut KernelWise, measured: &Measured<'_>, without: Option<&GpuSpec>) {
    let keep = |lines: &ByGpu<'_>| -> Vec<(GpuSpec, Vec<Group>)> {
        let others = lines.iter().filter(|(gpu, _)| without.is_none_or(|without| gpu.slug != without.slug));
        others.map(|(gpu, groups)| ((*gpu).clone(), groups.clone())).collect()
    };
    model.across.clear();
    model.across_layers.clear();
    model.across_steps = None;
    let mut gpus: Vec<&str> = measured
        .kinds
        .values()
        .flatten()
        .map(|(gpu, _)| gpu.slug.as_str())
        .filter(|slug| without.is_none_or(|without| without.slug.as_str() != *slug))
        .collect();
    gpus.sort_unstable();
    gpus.dedup();
    if gpus.len() < LEAST_GPUS {
        return;
    }
    for (kind, lines) in &measured.kinds {
        let lines = keep(lines);
        model.across.extend(line(&lines, &DRIVERS).map(|line| (kind.clone(), line)));
        let by_layers = if kind == STREAMING { Driver::Bytes } else { Driver::Operations };
        model.across_layers.extend(line(&lines, &[by_layers]).map(|line| (kind.clone(), line)));
    }
    model.across_steps = line(&keep(&measured.steps), &[Driver::Operations]);
}

/// Fits the line of a kind across GPUs, with the driver that explains the times best and the property that explains the
/// rates best. `None` for fewer than two GPUs.
fn line(lines: &[(GpuSpec, Vec<Group>)], drivers: &[Driver]) -> Option<AcrossLine> {
    let of = |driver: Driver| -> Vec<(&GpuSpec, &Group)> {
        lines
            .iter()
            .filter_map(|(gpu, groups)| Some((gpu, groups.iter().find(|group| group.driver == driver)?)))
            .filter(|(_, group)| group.line.slope > 0.0)
            .collect()
    };
    let explained =
        |of: &[(&GpuSpec, &Group)]| of.iter().map(|(_, group)| group.r_squared).sum::<f64>() / of.len() as f64;
    let (driver, rates) = drivers
        .iter()
        .map(|&driver| (driver, of(driver)))
        .filter(|(_, rates)| rates.len() >= LEAST_OF_A_KIND)
        .reduce(|best, other| if explained(&other.1) > explained(&best.1) { other } else { best })?;
    let intercept = median(&mut rates.iter().map(|(_, group)| group.line.intercept).collect::<Vec<_>>())?;
    let speed = |group: &Group| 1.0 / group.line.slope;
    let offset = median(&mut rates.iter().map(|(_, group)| group.line.intercept * speed(group)).collect::<Vec<_>>())?;
    let proportional = |property: Property| -> Option<(f64, f64)> {
        let mut ratios: Vec<f64> =
            rates.iter().map(|(gpu, group)| speed(group) / property.of(&Rates::new(gpu))).collect();
        let rate = median(&mut ratios)?;
        let off = ratios.iter().map(|ratio| (ratio / rate).ln().abs()).sum::<f64>() / ratios.len() as f64;
        Some((rate, off))
    };
    let (bandwidth, product) = (proportional(Property::Bandwidth)?, proportional(Property::ProductRate)?);
    let (property, rate) =
        if product.1 < bandwidth.1 { (Property::ProductRate, product.0) } else { (Property::Bandwidth, bandwidth.0) };
    let points: Vec<Point> =
        rates.iter().map(|(gpu, group)| Point::new(gpu.memory_bandwidth.get() / 1e9, speed(group))).collect();
    let slowest = rates.iter().map(|(_, group)| speed(group)).fold(f64::INFINITY, f64::min);
    let by_bandwidth = Line::fit(&points).unwrap_or(Line { intercept: slowest, slope: 0.0 });
    Some(AcrossLine {
        driver,
        intercept: intercept.max(0.0),
        offset: offset.max(0.0),
        property,
        rate,
        by_bandwidth,
        slowest,
        gpus: rates.len(),
    })
}
