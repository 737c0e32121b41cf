//! Fits the lines of one kind of layer: finds the driver of each kernel, merges similar kernels, and builds the table
//! of kernels by shape.

use std::collections::BTreeMap;

use super::{Recipe, Row};
use crate::kernelwise::{Driver, Entry, Group, Kind, Layer};
use crate::layer::tile;
use habitat_base::regress::line::{Line, Point};
use habitat_base::regress::quantile::median;

/// Minimum rows of a kernel for its own line, if there are several kernels; with fewer it has only a rate.
const LEAST_ROWS: usize = 3;
/// Maximum relative difference of two kernels' lines, over the sizes of both, to share one.
const SIMILAR: f64 = 0.10;
/// Relative errors beyond this count linearly, not squared.
const TURN: f64 = 0.02;
/// Weighting of errors.
enum Weights {
    /// Absolute errors.
    Equal,
    /// Errors relative to the time.
    Relative,
    /// Errors relative to the square root of the time. Streams are faster from cache, so a line that weights many
    /// small sizes like the few large ones is wrong for large sizes.
    Root,
}

/// Kernel with its layers and times.
struct Named<'a> {
    names: Vec<&'a str>,
    points: Vec<(&'a Layer, f64)>,
    group: Group,
}

/// Fits the rows of one kind on one GPU; `None` without rows.
pub(super) fn kind(rows: &[&Row], recipe: Recipe) -> Option<Kind> {
    let all: Vec<(f64, f64)> = rows.iter().map(|row| (row.layer.operations, row.time())).collect();
    let layers = of_points(Driver::Operations, &all, recipe, rows.iter().all(|row| row.layer.is_streaming));
    let mut by_kernel: BTreeMap<&str, Vec<(&Layer, f64)>> = BTreeMap::new();
    for row in rows {
        for (name, time) in &row.kernels {
            by_kernel.entry(name).or_default().push((&row.layer, *time));
        }
    }
    let mut named: Vec<Named<'_>> = Vec::new();
    let alone = by_kernel.len() == 1;
    for (name, points) in by_kernel {
        named.extend(best(name, &points, alone, recipe).map(|group| Named { names: vec![name], points, group }));
    }
    let merged = merge(named, recipe);
    let place: BTreeMap<&str, usize> = merged
        .iter()
        .enumerate()
        .flat_map(|(index, named)| named.names.iter().map(move |name| (*name, index)))
        .collect();
    let table = if merged.len() > 1 { table(rows, &place) } else { Vec::new() };
    let groups: Vec<Group> = merged
        .into_iter()
        .map(|Named { names, group, .. }| Group {
            kernels: names.iter().map(|name| habitat_base::text::clean(name, 120)).collect(),
            ..group
        })
        .collect();
    (layers.is_some() || !groups.is_empty()).then_some(Kind { layers, groups, table })
}

/// Fits the best line of a kernel: the driver with the highest R².
fn best(name: &str, points: &[(&Layer, f64)], alone: bool, recipe: Recipe) -> Option<Group> {
    let streams = points.iter().all(|(layer, _)| layer.is_streaming);
    if points.len() < LEAST_ROWS && !alone {
        // Any line fits two points, so the time is proportional to the typical driver of such layers.
        let driver = if streams { Driver::Bytes } else { Driver::Operations };
        let sizes: Option<Vec<(f64, f64)>> =
            points.iter().map(|(layer, time)| Some((layer.size(driver)?, *time))).collect();
        return in_proportion(driver, &sizes?);
    }
    let mut drivers = vec![Driver::Input, Driver::Operations, Driver::Output];
    if !recipe.published {
        drivers.push(Driver::Bytes);
        drivers.extend(tile(name).map(Driver::Tiles));
    }
    let fitted = drivers.into_iter().filter_map(|driver| {
        let points: Option<Vec<(f64, f64)>> =
            points.iter().map(|(layer, time)| Some((layer.size(driver)?, *time))).collect();
        of_points(driver, &points?, recipe, streams)
    });
    // The first of equal drivers; `max_by` would choose the last.
    fitted.reduce(|best, other| if other.r_squared > best.r_squared { other } else { best })
}

/// Fits a line through (size, microseconds), through the origin if all sizes are equal. `None` without points.
pub(super) fn of_points(driver: Driver, points: &[(f64, f64)], recipe: Recipe, streams: bool) -> Option<Group> {
    let weights = match (recipe.published, streams) {
        (true, _) => Weights::Equal,
        (false, true) => Weights::Root,
        (false, false) => Weights::Relative,
    };
    let largest = points.iter().map(|(size, _)| *size).fold(0.0, f64::max);
    let middle = median(&mut points.iter().map(|(_, time)| *time).collect::<Vec<_>>())?;
    let points: Vec<Point> = points
        .iter()
        .map(|&(size, time)| match weights {
            Weights::Equal => Point::new(size, time),
            Weights::Relative => Point::relative(size, time),
            Weights::Root => Point { x: size, y: time, weight: 1.0 / (time * middle) },
        })
        .collect();
    let line = if recipe.published { Line::fit(&points) } else { Line::robust(&points, TURN) };
    let line = line.or_else(|_| Line::through_origin(&points)).ok()?;
    Some(Group { driver, line, r_squared: line.r_squared(&points), rows: points.len(), largest, kernels: Vec::new() })
}

/// Fits a line through the origin; `None` without points.
fn in_proportion(driver: Driver, points: &[(f64, f64)]) -> Option<Group> {
    let largest = points.iter().map(|(size, _)| *size).fold(0.0, f64::max);
    let points: Vec<Point> = points.iter().map(|&(size, time)| Point::relative(size, time)).collect();
    let line = Line::through_origin(&points).ok()?;
    let r_squared = line.r_squared(&points);
    Some(Group { driver, line, r_squared, rows: points.len(), largest, kernels: Vec::new() })
}

/// Fits the line of steps through (operations, microseconds): ordinary least squares as in the paper, without negative
/// coefficients. No network counts as an outlier.
pub(super) fn of_steps(points: &[(f64, f64)], recipe: Recipe) -> Option<Group> {
    if recipe.published {
        return of_points(Driver::Operations, points, recipe, false);
    }
    let largest = points.iter().map(|(size, _)| *size).fold(0.0, f64::max);
    let points: Vec<Point> = points.iter().map(|&(size, time)| Point::new(size, time)).collect();
    let line = Line::non_negative(&points).or_else(|_| Line::through_origin(&points)).ok()?;
    let r_squared = line.r_squared(&points);
    Some(Group { driver: Driver::Operations, line, r_squared, rows: points.len(), largest, kernels: Vec::new() })
}

/// Merges kernels of one driver in the order of their slopes: a kernel joins the previous group if their lines are
/// similar.
fn merge<'a>(mut named: Vec<Named<'a>>, recipe: Recipe) -> Vec<Named<'a>> {
    named.sort_by(|a, b| {
        a.group.driver.cmp(&b.group.driver).then_with(|| a.group.line.slope.total_cmp(&b.group.line.slope))
    });
    let mut merged: Vec<Named<'a>> = Vec::new();
    for kernel in named {
        if let Some(last) = merged.last_mut()
            && is_similar(last, &kernel)
        {
            let points: Vec<(&Layer, f64)> = last.points.iter().chain(&kernel.points).copied().collect();
            let streams = points.iter().all(|(layer, _)| layer.is_streaming);
            let sizes: Option<Vec<(f64, f64)>> =
                points.iter().map(|(layer, time)| Some((layer.size(kernel.group.driver)?, *time))).collect();
            if let Some(group) = sizes.and_then(|sizes| of_points(kernel.group.driver, &sizes, recipe, streams)) {
                last.names.extend(&kernel.names);
                last.points = points;
                last.group = group;
                continue;
            }
        }
        merged.push(kernel);
    }
    merged
}

/// Whether two lines are similar at the ends and in the middle of the sizes of both.
fn is_similar(a: &Named<'_>, b: &Named<'_>) -> bool {
    if a.group.driver != b.group.driver {
        return false;
    }
    let sizes = || a.points.iter().chain(&b.points).filter_map(|(layer, _)| layer.size(a.group.driver));
    let (low, high) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    [low, (low * high).sqrt(), high].into_iter().all(|size| {
        let (one, other) = (a.group.line.at(size), b.group.line.at(size));
        one.min(other) > 0.0 && one.max(other) <= (1.0 + SIMILAR) * one.min(other)
    })
}

/// Kernels of layers by the octaves of their shapes; the most common list of each class.
fn table(rows: &[&Row], place: &BTreeMap<&str, usize>) -> Vec<Entry> {
    let mut classes: BTreeMap<Vec<i8>, BTreeMap<Vec<usize>, usize>> = BTreeMap::new();
    for row in rows {
        let class: Vec<i8> = row.layer.shape.iter().map(|size| size.log2().round() as i8).collect();
        let groups: Vec<usize> = row.kernels.iter().filter_map(|(name, _)| place.get(name.as_str()).copied()).collect();
        if !groups.is_empty() {
            *classes.entry(class).or_default().entry(groups).or_default() += 1;
        }
    }
    classes
        .into_iter()
        .filter_map(|(class, lists)| {
            let (groups, _) = lists.into_iter().max_by_key(|(_, count)| *count)?;
            Some(Entry { class, groups })
        })
        .collect()
}
