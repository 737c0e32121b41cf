//! Errors on left-out networks and GPUs, and the ranges derived from them.

use std::collections::BTreeSet;

use super::across::{Measured, fill};
use super::{Data, FitError, Recipe, gpu_lines};
use crate::Method;
use crate::compare::StepKind;
use crate::decoded::{Decoded, step_operations};
use crate::kernelwise::{Across, Evaluated, FittedLines, KernelWise, Level, Ranges};
use crate::learn::ranges::{few_gpus, spread};
use crate::learned::Spread;
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::profile::Profile;

/// Step predicted by lines fitted without its network or its GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOut {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Index in [`Data::steps`].
    pub step: usize,
    /// Vendor of its GPU, mode and precision.
    pub kind: StepKind,
    /// Lines that predicted it.
    pub method: Method,
    /// Predicted step time.
    pub predicted: Micros,
    /// Measured step time.
    pub measured: Micros,
}

impl HeldOut {
    fn log(&self) -> f64 {
        (self.measured / self.predicted).ln()
    }

    /// Absolute relative error, |predicted / measured − 1|.
    pub fn error(&self) -> f64 {
        (self.predicted / self.measured - 1.0).abs()
    }
}

/// Results of leaving out each network and each GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CrossValidation {
    /// Steps of left-out networks, on measured GPUs.
    pub networks: Vec<HeldOut>,
    /// Steps on left-out GPUs.
    pub gpus: Vec<HeldOut>,
    /// Logarithms of measured over predicted operators of left-out networks, with their GPU.
    operations: Vec<(usize, f64)>,
    /// The same for left-out GPUs.
    operations_elsewhere: Vec<(usize, f64)>,
}

/// Part left out of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// The step's network, on its own GPU.
    Network,
    /// The GPU.
    Gpu,
}

/// Leaves out each network and each GPU in turn.
///
/// # Errors
/// A GPU that is not in the catalog.
pub fn held_out(data: &Data, catalog: &Catalog, recipe: Recipe) -> Result<CrossValidation, FitError> {
    let mut held = CrossValidation::default();
    (held.networks, held.operations) = networks(data, catalog, recipe)?;
    let measured = Measured::new(data, catalog, recipe, &|_| true)?;
    let across = if recipe.published { Across::Published } else { Across::Proportional };
    for (index, slug) in data.gpus().into_iter().enumerate() {
        let gpu = catalog.find(slug.as_str())?;
        let mut model = KernelWise::default();
        fill(&mut model, &measured, Some(gpu));
        if model.across.is_empty() {
            continue;
        }
        let lines = model.across_to(gpu, across);
        for (step, (of, profile)) in data.steps.iter().enumerate() {
            if of == slug {
                held.gpus.extend(evaluated(&lines, gpu, step, profile));
                held.operations_elsewhere.extend(operations(&lines, profile).into_iter().map(|log| (index, log)));
            }
        }
    }
    Ok(held)
}

/// Steps, and the logarithms of operators with their GPU.
type StepsAndLogs = (Vec<HeldOut>, Vec<(usize, f64)>);

fn networks(data: &Data, catalog: &Catalog, recipe: Recipe) -> Result<StepsAndLogs, FitError> {
    let (mut steps, mut logs) = (Vec::new(), Vec::new());
    for (index, slug) in data.gpus().into_iter().enumerate() {
        let gpu = catalog.find(slug.as_str())?;
        let own = || data.steps.iter().enumerate().filter(|(_, (of, _))| of == slug);
        let names: BTreeSet<&str> = own().map(|(_, (_, profile))| profile.workload.name.as_str()).collect();
        for name in &names {
            // With a single network, no data remains for the fit.
            if names.len() < 2 {
                continue;
            }
            let mut model = KernelWise::default();
            model.gpus.insert(slug.clone(), gpu_lines(data, gpu, recipe, &|network| network != *name));
            let lines = model.on(gpu);
            for (step, (_, profile)) in own().filter(|(_, (_, profile))| profile.workload.name == *name) {
                steps.extend(evaluated(&lines, gpu, step, profile));
                logs.extend(operations(&lines, profile).into_iter().map(|log| (index, log)));
            }
        }
    }
    Ok((steps, logs))
}

/// Predicts one step by each of the three methods.
fn evaluated(lines: &FittedLines<'_>, gpu: &GpuSpec, step: usize, profile: &Profile) -> Vec<HeldOut> {
    let Some(measured) = profile.measured_step() else { return Vec::new() };
    [
        (Method::KernelWise, Some(lines.step(profile, Level::Kernels))),
        (Method::LayerWise, Some(lines.step(profile, Level::Layers))),
        (Method::EndToEnd, lines.end_to_end(step_operations(&Decoded::all(profile)))),
    ]
    .into_iter()
    .filter_map(|(method, predicted)| Some((method, predicted?)))
    .filter(|(_, predicted)| predicted.get() > 0.0)
    .map(|(method, predicted)| HeldOut {
        gpu: gpu.slug.clone(),
        step,
        kind: StepKind::of(profile, gpu),
        method,
        predicted,
        measured,
    })
    .collect()
}

/// Minimum share of its step for an operator to count for the range of operators.
const LEAST_SHARE: f64 = 0.001;

/// Logarithms of measured over predicted times of operators above [`LEAST_SHARE`].
fn operations(lines: &FittedLines<'_>, profile: &Profile) -> Vec<f64> {
    let of = |operation: &habitat_step::profile::Operation| {
        let least = profile.measured_step()? * LEAST_SHARE;
        let counts = |time: &Micros| time.get() * f64::from(operation.count) >= least.get();
        let measured = operation.device_time.filter(counts)?;
        let answer = lines.time(operation, profile.workload.precision, Level::Kernels).ok()?;
        (answer.time.get() > 0.0).then(|| (measured / answer.time).ln())
    };
    profile.operations.iter().filter_map(of).collect()
}

impl CrossValidation {
    /// Steps for one way of leaving out.
    pub fn steps(&self, left_out: LeftOut) -> &[HeldOut] {
        match left_out {
            LeftOut::Network => &self.networks,
            LeftOut::Gpu => &self.gpus,
        }
    }

    /// Range for a step from the other steps: those of other networks if networks were left out, on other GPUs if GPUs
    /// were. `None` if there are none.
    pub fn range_without(&self, left_out: LeftOut, of: &HeldOut, data: &Data) -> Option<Spread> {
        let network = |step: &HeldOut| data.steps[step.step].1.workload.name.as_str();
        let is_other = |other: &HeldOut| match left_out {
            LeftOut::Network => network(other) != network(of),
            LeftOut::Gpu => other.gpu != of.gpu,
        };
        let others = self.steps(left_out).iter().filter(|other| other.method == of.method && is_other(other));
        let ranges = range(&others.cloned().collect::<Vec<_>>(), &[], left_out);
        ranges.kernel_wise.or(ranges.layer_wise).or(ranges.end_to_end)
    }

    /// 80 % ranges: on measured GPUs, and on others.
    pub(super) fn ranges(&self) -> (Ranges, Ranges) {
        (
            range(&self.networks, &self.operations, LeftOut::Network),
            range(&self.gpus, &self.operations_elsewhere, LeftOut::Gpu),
        )
    }

    /// Mean errors: on each measured GPU, and on left-out GPUs.
    pub(super) fn errors(&self) -> Vec<Evaluated> {
        let mut groups: Vec<(Evaluated, f64)> = Vec::new();
        let within = self.networks.iter().map(|step| (Some(&step.gpu), step));
        for (gpu, step) in within.chain(self.gpus.iter().map(|step| (None, step))) {
            let StepKind { vendor, mode, precision } = step.kind;
            let is_of = |(of, _): &(Evaluated, f64)| {
                (of.gpu.as_ref(), of.method, of.mode) == (gpu, step.method, mode)
                    && (of.vendor, of.precision) == (Some(vendor), Some(precision))
            };
            let index = groups.iter().position(is_of).unwrap_or_else(|| {
                let (gpu, vendor, precision) = (gpu.cloned(), Some(vendor), Some(precision));
                let none = Evaluated { gpu, vendor, precision, method: step.method, mode, error: 0.0, steps: 0 };
                groups.push((none, 0.0));
                groups.len() - 1
            });
            groups[index].0.steps += 1;
            groups[index].1 += step.error();
        }
        groups.into_iter().map(|(of, sum)| Evaluated { error: sum / f64::from(of.steps), ..of }).collect()
    }
}

fn range(steps: &[HeldOut], operations: &[(usize, f64)], left_out: LeftOut) -> Ranges {
    let gpus: Vec<&GpuSlug> = steps.iter().map(|step| &step.gpu).collect::<BTreeSet<_>>().into_iter().collect();
    let of = |method: Method| -> Option<Spread> {
        let logs: Vec<(usize, f64)> = steps
            .iter()
            .filter(|step| step.method == method)
            .map(|step| (gpus.iter().position(|gpu| **gpu == step.gpu).unwrap_or(0), step.log()))
            .collect();
        let spread = spread(&logs)?;
        // Another network on a measured GPU varies less than an unmeasured GPU.
        let widening = if left_out == LeftOut::Gpu { few_gpus(&logs) } else { 1.0 };
        Some(around_one(spread.widened(widening)))
    };
    Ranges {
        kernel_wise: of(Method::KernelWise),
        layer_wise: of(Method::LayerWise),
        end_to_end: of(Method::EndToEnd),
        operation: spread(operations).map(around_one),
    }
}

/// Extends a range to contain the prediction.
fn around_one(spread: Spread) -> Spread {
    Spread { low: spread.low.min(1.0), high: spread.high.max(1.0), ..spread }
}
