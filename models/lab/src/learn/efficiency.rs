//! Fits the terms of [`Efficiency`] to whole published steps.
//!
//! The sum of a step's operators is a smooth function of the terms, so the error of the step reaches each of them. The
//! objective is Σ ρ(ln(predicted / measured) / σ), with ρ quadratic near 0 and linear beyond, plus the squares of the
//! terms over their priors' deviations: a term with little data stays near 0. The same steps give the same bits.

pub mod amd;
pub mod folds;
mod minimise;

use std::collections::BTreeMap;

use habitat_tui::catalog::{Catalog, GpuSpec, Vendor};
use habitat_tui::predict::decoded::Decoded;
use habitat_tui::predict::efficiency::{
    Amount, Demand, Efficiency, FORMAT, Factors, Id, ON_GPU, Prior, Side, Sides, Term, VERSION, demands,
    demands_on_amd, is_mixed, roofline_of,
};
use habitat_tui::predict::learned::between;
use habitat_tui::predict::rate::Rates;
use habitat_tui::profile::Precision;
use habitat_tui::units::{GpuSlug, Micros};

use self::minimise::minimise;
use super::host::{LAUNCH_US, with_host};
use crate::published::{Extent, PublishedStep};

/// Weight of an operator that was measured alone, relative to a step; and of all collected ones of a kind on a GPU in a
/// precision together. From 0.05 to 0.1 predictions of steps hardly differ; with the weight of a step, collected
/// operators make those of other GPUs worse (training in FP16 with the GPU left out 11.1 % instead of 10.3).
const OPERATOR: f64 = 0.07;
/// Weight of all kinds of operations of a recorded network on a GPU in a precision together, relative to a step. With
/// 1, errors of steps recorded in BF16 whose network was left out are 7.8 % instead of 7.0, those of others within 0.6
/// points (`habitat-lab evaluate published` with either).
const PARTS: f64 = 2.0;
/// Weight of the roofline beside the terms, which are fitted without it, in inference. With 0.1, steps whose GPU was
/// left out are predicted better than with 0 or 0.3 (`habitat-lab evaluate published` with either). In training the
/// roofline is too fast, and a share of it makes the A100 worse.
const ROOFLINE: f64 = 0.1;

/// Smaller values of a GPU or its architecture change no step by a hundredth, and are left out.
const LEAST_OF_GPU: f64 = 0.01;

/// A part of a step at full rates, and the index of the sum of terms of each side in [`Row::sums`].
struct Part {
    full: Sides,
    times: f64,
    compute: usize,
    memory: usize,
    latency: usize,
}

impl Part {
    fn sides(&self, factors: &[f64]) -> Sides {
        Sides {
            compute_us: self.full.compute_us * factors[self.compute],
            memory_us: self.full.memory_us * factors[self.memory],
            latency_us: self.full.latency_us * factors[self.latency],
        }
    }
}

/// An operation: its number of parts, and the roofline of all its occurrences.
struct Whole {
    parts: usize,
    roofline: Option<Micros>,
}

/// A step as a function of the terms.
pub struct Row {
    /// Sums of terms by index, each with its amount. Many parts of a step share one.
    sums: Vec<Vec<(usize, f64)>>,
    parts: Vec<Part>,
    wholes: Vec<Whole>,
    is_mixed: bool,
    host_us: f64,
    log: f64,
    weight: f64,
}

/// Steps prepared for fitting.
pub struct Design {
    terms: Vec<(Side, Id)>,
    /// One row per step, in their order.
    pub rows: Vec<Row>,
}

impl Design {
    /// Prepares steps on GPUs of the catalog.
    pub fn new(steps: &[PublishedStep], catalog: &Catalog) -> Self {
        let mut indices: BTreeMap<(Side, Id), usize> = BTreeMap::new();
        let mut index = |side, id: Id| {
            let next = indices.len();
            *indices.entry((side, id)).or_insert(next)
        };
        let mut rows = Vec::new();
        let mut repeated: BTreeMap<_, f64> = BTreeMap::new();
        for step in steps.iter().filter(|step| !step.is_step()) {
            *repeated.entry(same_operator(step)).or_default() += 1.0;
        }
        for step in steps {
            let catalog = step.catalog(catalog);
            let Some(gpu) = catalog.get(&step.gpu) else { continue };
            let mut row = row(step, gpu, &mut index);
            row.weight /= repeated.get(&same_operator(step)).filter(|_| !step.is_step()).unwrap_or(&1.0);
            rows.push(row);
        }
        let mut terms: Vec<((Side, Id), usize)> = indices.into_iter().collect();
        terms.sort_by_key(|(_, at)| *at);
        Self { terms: terms.into_iter().map(|(term, _)| term).collect(), rows }
    }

    /// Fits the model to the rows for which `is_in` holds.
    pub fn fit(&self, is_in: &dyn Fn(usize) -> bool) -> Efficiency {
        self.model(&self.values(is_in, None), is_in)
    }

    fn rows<'a>(&'a self, is_in: &dyn Fn(usize) -> bool) -> Vec<&'a Row> {
        let told = self.rows.iter().enumerate().filter(|(index, row)| row.weight > 0.0 && is_in(*index));
        told.map(|(_, row)| row).collect()
    }

    /// Fits the terms' values to the rows for which `is_in` holds, from `start` or from the prior means. The start
    /// changes predictions little, but the number of passes much.
    pub fn values(&self, is_in: &dyn Fn(usize) -> bool, start: Option<&[f64]>) -> Vec<f64> {
        let (priors, slows) = self.priors();
        let start = start.map_or_else(|| priors.iter().map(|prior| prior.mean).collect(), <[f64]>::to_vec);
        minimise(&self.rows(is_in), &priors, &slows, start)
    }

    /// Priors of the terms, and whether each can only make a part slower.
    fn priors(&self) -> (Vec<Prior>, Vec<bool>) {
        let prior = |(side, id): &(Side, Id)| id.prior(*side).expect("a side on which the term has a prior");
        (self.terms.iter().map(prior).collect(), self.terms.iter().map(|(_, id)| id.only_slows()).collect())
    }

    /// The model with these values, which were fitted to the rows for which `is_in` holds.
    pub fn model(&self, values: &[f64], is_in: &dyn Fn(usize) -> bool) -> Efficiency {
        // A term without steps is unknown, except if its prior comes from published figures.
        let mut used: Vec<bool> = self.terms.iter().map(|(_, id)| *id == Id::Term(Term::ForAmpere)).collect();
        for row in self.rows(is_in) {
            row.sums.iter().flatten().for_each(|&(at, _)| used[at] = true);
        }
        let of = |wanted: Side| -> Factors {
            let all = self.terms.iter().zip(values.iter().zip(&used));
            let is_told = |id: &Id, value: f64| matches!(id, Id::Term(_)) || value.abs() >= LEAST_OF_GPU;
            all.filter(|((side, id), (value, used))| *side == wanted && **used && is_told(id, **value))
                .map(|((_, id), (value, _))| (id.clone(), (value * 1e4).round() / 1e4))
                .collect()
        };
        Efficiency {
            format: FORMAT.to_owned(),
            version: VERSION,
            compute: of(Side::Compute),
            memory: of(Side::Memory),
            latency: of(Side::Latency),
            roofline: ROOFLINE,
            ..Efficiency::default()
        }
    }

    /// The terms' values in a model; 0 for terms that it lacks.
    pub fn values_of(&self, model: &Efficiency) -> Vec<f64> {
        self.terms.iter().map(|(side, id)| model.factors(*side).of(id).unwrap_or(0.0)).collect()
    }

    /// ln(predicted / measured) of a row by a model, with this share of the roofline in inference.
    pub fn residual(&self, row: usize, model: &Efficiency, roofline: f64) -> f64 {
        self.rows[row].residual_with(&self.values_of(model), roofline)
    }
}

/// Key of an operator that several programs measured; all of them count as one.
fn same_operator(step: &PublishedStep) -> (&str, &GpuSlug, Option<&str>) {
    (&step.network, &step.gpu, step.profile.workload.precision.map(Precision::name))
}

fn row(step: &PublishedStep, gpu: &GpuSpec, index: &mut dyn FnMut(Side, Id) -> usize) -> Row {
    let rates = Rates::new(gpu);
    let board = Efficiency::default().board(&rates);
    let (mut parts, mut wholes, mut launches) = (Vec::new(), Vec::new(), 0.0);
    let mut sums: Vec<Vec<(usize, f64)>> = Vec::new();
    let decoded = Decoded::all(&step.profile);
    let is_mixed = is_mixed(&decoded);
    for decoded in decoded {
        let count = f64::from(decoded.operation.count);
        let arithmetic = if gpu.runs_tf32() { decoded.arithmetic } else { decoded.without_tf32() };
        let is_amd = gpu.vendor == Vendor::Amd;
        let asked = if is_amd { demands_on_amd(&decoded) } else { demands(&decoded, arithmetic) };
        if !asked.is_empty() {
            launches += count;
            let roofline = roofline_of(&decoded, &rates).map(|time| time * count);
            wholes.push(Whole { parts: asked.len(), roofline });
        }
        for Demand { flops, bytes, times, units, limits, compute, memory } in asked {
            let full = Sides::at_full_rate((flops, bytes), units, &board, (decoded.dtype.as_ref(), arithmetic));
            let mut sum = |terms: Vec<(usize, f64)>| {
                sums.iter().position(|sum| *sum == terms).unwrap_or_else(|| {
                    sums.push(terms);
                    sums.len() - 1
                })
            };
            let latency = memory.iter().filter(|(term, _)| term.prior(Side::Latency).is_some());
            let latency = sum(latency.map(|&(term, amount)| (index(Side::Latency, Id::Term(term)), amount)).collect());
            let mut indexed = |side, terms: Vec<Amount>| {
                let has_some = side == Side::Memory || flops > 0.0;
                let terms = terms.into_iter().map(|(term, amount)| (Id::Term(term), amount));
                let all = terms.chain(Id::of_gpu(gpu).map(|id| (id, 1.0))).filter(|_| has_some);
                sum(all.map(|(id, amount)| (index(side, id), amount)).collect())
            };
            let own = ON_GPU.into_iter().zip(limits.on(gpu, full.compute_us));
            let compute = compute.into_iter().chain(own.filter(|(_, amount)| *amount > 0.0)).collect();
            parts.push(Part {
                full,
                times: times * count,
                compute: indexed(Side::Compute, compute),
                latency,
                memory: indexed(Side::Memory, memory),
            });
        }
    }
    let host_us = if step.is_compiled { 0.0 } else { launches * LAUNCH_US };
    let weight = match step.extent {
        Extent::Part => PARTS,
        Extent::Operator | Extent::Collected => OPERATOR,
        Extent::Step if step.is_exact => 1.0,
        Extent::Step => 0.5,
        Extent::Elsewhere => 0.0,
    };
    Row { sums, parts, wholes, is_mixed, host_us, log: step.time.get().ln(), weight }
}

impl Row {
    /// Factor of each sum of terms.
    fn factors(&self, values: &[f64]) -> Vec<f64> {
        let factor = |terms: &Vec<(usize, f64)>| terms.iter().map(|&(at, amount)| values[at] * amount).sum::<f64>();
        self.sums.iter().map(|terms| factor(terms).exp()).collect()
    }

    /// ln(predicted / measured) with a share of the roofline in every operation.
    fn residual_with(&self, values: &[f64], share: f64) -> f64 {
        let (mut total, mut rest) = (0.0, &self.parts[..]);
        let share = if self.is_mixed { share } else { 0.0 };
        let factors = self.factors(values);
        for whole in &self.wholes {
            let (own, after) = rest.split_at(whole.parts);
            rest = after;
            let time: f64 = own.iter().map(|part| part.times * part.sides(&factors).time_us()).sum();
            let mixed = whole.roofline.zip(Micros::new(time).ok());
            total += mixed.map_or(time, |(roofline, own)| between(own, roofline, share).get());
        }
        with_host(total, self.host_us).0.ln() - self.log
    }

    /// ln(predicted / measured) without the roofline, and its derivatives by term if requested.
    fn residual(&self, values: &[f64], slopes: Option<&mut [f64]>) -> f64 {
        let factors = self.factors(values);
        let mut by_sum = vec![0.0; slopes.as_ref().map_or(0, |_| self.sums.len())];
        let mut total = 0.0;
        for part in &self.parts {
            let sides = part.sides(&factors);
            total += part.times * sides.time_us();
            if !by_sum.is_empty() {
                let Sides { compute_us, memory_us, latency_us } = sides;
                let rest = compute_us.hypot(memory_us).max(f64::MIN_POSITIVE);
                by_sum[part.compute] += part.times * compute_us * compute_us / rest;
                by_sum[part.memory] += part.times * memory_us * memory_us / rest;
                by_sum[part.latency] += part.times * latency_us;
            }
        }
        let (step, by_device) = with_host(total, self.host_us);
        if let Some(slopes) = slopes {
            for (terms, slope) in self.sums.iter().zip(by_sum) {
                for &(at, amount) in terms {
                    slopes[at] += slope * amount * by_device / step;
                }
            }
        }
        step.ln() - self.log
    }
}

#[cfg(test)]
mod tests {
    use super::minimise::{bounded_step, held_equations, objective};
    use super::*;
    use habitat_tui::profile::Profile;
    use habitat_tui::store::bundled;
    use habitat_tui::units::{GpuSlug, Micros};

    pub(super) fn step(slug: &str, rows: u64, product_factor: f64, stream_factor: f64) -> PublishedStep {
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1,
                "workload": {{"name": "w{rows}", "mode": "training", "precision": "amp-fp16"}},
                "operations": [
                  {{"name": "aten::mm", "phase": "forward", "count": 4, "inputs": [[{rows}, 4096], [4096, 4096]], "dtype": "float16"}},
                  {{"name": "aten::relu", "phase": "forward", "count": 40, "inputs": [[{rows}, 4096]], "dtype": "float16"}}]}}"#
        );
        let profile = Profile::from_json(json.as_bytes()).unwrap().0;
        let catalog = Catalog::new(bundled::gpus());
        let mut step = PublishedStep {
            network: "w".to_owned(),
            family: "w".to_owned(),
            source: "made".to_owned(),
            gpu: GpuSlug::new(slug).unwrap(),
            locked: None,
            software: String::new(),
            is_compiled: true,
            extent: Extent::Step,
            is_exact: true,
            time: Micros::new(1.0).unwrap(),
            memory: None,
            profile,
        };
        let made = Design::new(std::slice::from_ref(&step), &catalog);
        let known = Efficiency {
            compute: [(Id::named("product").unwrap(), product_factor)].into_iter().collect(),
            memory: [(Id::named("elementwise").unwrap(), stream_factor)].into_iter().collect(),
            ..Efficiency::default()
        };
        step.time = Micros::new(made.residual(0, &known, 0.0).exp()).unwrap();
        step
    }

    /// Steps generated by known terms: the fit recovers their predictions, also on another GPU, and twice the same.
    #[test]
    fn terms_that_steps_were_made_by_are_found() {
        let catalog = Catalog::new(bundled::gpus());
        let steps: Vec<PublishedStep> = ["v100-sxm2-16gb", "a100-sxm4-80gb", "rtx-3090", "t4"]
            .into_iter()
            .flat_map(|slug| [64, 256, 1024, 4096, 16_384].map(|rows| step(slug, rows, 0.5, -0.2)))
            .collect();
        let design = Design::new(&steps, &catalog);
        let is_seen = |row: usize| steps[row].gpu.as_str() != "t4";
        let found = design.fit(&is_seen);
        for (row, step) in steps.iter().enumerate() {
            let limit = if is_seen(row) { 0.02 } else { 0.06 };
            let residual = design.residual(row, &found, 0.0);
            assert!(residual.abs() < limit, "{}: {residual}", step.gpu);
        }
        assert_eq!(found, design.fit(&is_seen));
        // A GPU without steps has no term, nor has one that is like the others.
        let of = |model: &Efficiency, slug: &str| model.compute.of(&Id::named(slug).unwrap());
        assert_eq!(["t4", "rtx-3090"].map(|slug| of(&found, slug)), [None, None]);
        let mut slow = steps.clone();
        slow.iter_mut().filter(|step| step.gpu.as_str() == "rtx-3090").for_each(|step| step.time = step.time * 1.5);
        assert!(of(&Design::new(&slow, &catalog).fit(&is_seen), "rtx-3090").is_some_and(|value| value > 0.0));
    }

    /// Steps of other frameworks change nothing, and leave no term.
    #[test]
    fn nothing_is_learned_from_other_frameworks() {
        let catalog = Catalog::new(bundled::gpus());
        let mut steps = vec![step("a100-sxm4-80gb", 1024, 0.5, -0.2)];
        let alone = Design::new(&steps, &catalog).fit(&|_| true);
        steps.push(PublishedStep { extent: Extent::Elsewhere, ..step("t4", 4096, 2.0, 1.0) });
        assert_eq!(Design::new(&steps, &catalog).fit(&|_| true), alone);
    }

    /// For arithmetic, traffic and latency: a small change of a term changes the residual by its slope.
    #[test]
    fn slopes_are_those_of_the_residual() {
        let steps = [step("a100-sxm4-80gb", 64, 0.5, -0.2)];
        let design = Design::new(&steps, &Catalog::new(bundled::gpus()));
        let values: Vec<f64> = design.priors().0.iter().map(|prior| prior.mean + 0.1).collect();
        let mut slopes = vec![0.0; values.len()];
        design.rows[0].residual(&values, Some(&mut slopes));
        assert!(design.terms.iter().zip(&slopes).any(|((side, _), slope)| *side == Side::Latency && *slope > 0.0));
        for (at, slope) in slopes.iter().enumerate() {
            let moved = |by: f64| {
                let mut values = values.clone();
                values[at] += by;
                design.rows[0].residual(&values, None)
            };
            let found = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((found - slope).abs() < 1e-7, "{:?}: {found} {slope}", design.terms[at]);
        }
    }

    /// On a third of the sample, with a GPU left out, the equations expect at most another two-thousandth of the
    /// objective.
    #[test]
    fn fits_stand_still() {
        let catalog = Catalog::new(bundled::gpus());
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/samples/published/steps.jsonl.zst");
        let steps = crate::published::read(std::path::Path::new(file), &catalog).unwrap();
        let steps: Vec<PublishedStep> = steps.into_iter().step_by(3).collect();
        let design = Design::new(&steps, &catalog);
        let (priors, slows) = design.priors();
        let is_in = |step: &PublishedStep| step.gpu.as_str() != "a100-sxm4-80gb";
        let rows: Vec<&Row> =
            design.rows.iter().zip(&steps).filter(|(_, step)| is_in(step)).map(|(row, _)| row).collect();
        let start = priors.iter().map(|prior| prior.mean).collect();
        let values = minimise(&rows, &priors, &slows, start);
        // From the values of all steps, the fit predicts the same within 0.4 % in the mean.
        let all: Vec<&Row> = design.rows.iter().collect();
        let of_all = minimise(&all, &priors, &slows, priors.iter().map(|prior| prior.mean).collect());
        let from_all = minimise(&rows, &priors, &slows, of_all);
        let apart = rows.iter().map(|row| (row.residual(&values, None) - row.residual(&from_all, None)).abs());
        let mean = apart.sum::<f64>() / rows.len() as f64;
        assert!(mean < 0.004, "{mean}");
        let (normal, gradient) = held_equations(&rows, &values, &priors, &slows);
        let step = bounded_step((&normal, &gradient), 0.0, &values, &slows);
        let dot = |row: &[f64]| row.iter().zip(&step).map(|(a, b)| a * b).sum::<f64>();
        let curved: f64 = normal.iter().zip(&step).map(|(row, step)| dot(row) * step).sum();
        let gain = dot(&gradient) - curved / 2.0;
        let cost = objective(&rows, &values, &priors);
        assert!(gain < cost / 2000.0, "{gain} of {cost}");
    }
}
