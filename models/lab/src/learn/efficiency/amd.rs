//! Terms of AMD GPUs: their difference from NVIDIA's, from steps and operators measured on AMD GPUs.
//!
//! The terms of the shipped model are the prior mean of AMD's; terms with few measurements stay near it.

use std::collections::{BTreeMap, BTreeSet};

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::ranges::{few_gpus, spread};
use habitat_tui::predict::efficiency::{Efficiency, Factors, Id, Prior, Side, VendorTerms};
use habitat_tui::predict::learned::StepFacts;
use habitat_tui::profile::Precision;
use habitat_tui::units::GpuSlug;

use super::folds::either_way;
use super::minimise::minimise;
use super::{Design, Row};
use crate::published::{Extent, PublishedStep};

/// Prior width of an AMD term around NVIDIA's, in widths of NVIDIA's own prior. With 0.4 to 1.2 the errors of steps of
/// left-out networks differ by at most 3 points.
const WIDTH: f64 = 0.8;
/// Widths of one GPU's terms: in traffic it may differ more from others of its architecture, as software does between
/// machines. With the same width in arithmetic, steps in FP32 are 1.2 to 1.4 times too slow if their network is left
/// out.
const BOARD: [f64; 2] = [0.1, 0.3];
/// Total weight of the steps of a network on a GPU in a precision, and of the operators of a kind (a choice).
const STEPS: f64 = 1.5;
const OPERATORS: f64 = 1.0;
/// Weight of less exact steps, and of steps by libraries tuned for their shape (a choice).
const INEXACT: f64 = 0.6;
/// Logarithm of the factor by which operators are slower without that tuning. Fitted beside the terms, it is 0.10 to
/// 0.17.
const TUNED: f64 = 0.12;
/// Smaller additions change no step by a hundredth, and are left out.
const LEAST: f64 = 0.01;

/// Terms of AMD GPUs with all steps, and ln(measured / predicted) of each step by terms that did not see its family of
/// networks, or its GPU.
pub struct Amd {
    /// The shipped terms.
    pub terms: VendorTerms,
    /// The steps' errors.
    pub left_out: Vec<LeftOut>,
}

/// A step by terms that did not see it.
pub struct LeftOut {
    /// Index of the step.
    pub at: usize,
    /// ln(measured / predicted) without its family of networks.
    pub network: f64,
    /// The same without its GPU.
    pub gpu: f64,
}

/// Key of steps or operators that share one weight.
fn cell(step: &PublishedStep) -> (String, &GpuSlug, Option<&str>, &str, bool) {
    let what = if step.extent == Extent::Step { step.network.clone() } else { step.what() };
    (what, &step.gpu, step.profile.workload.precision.map(Precision::name), &step.source, step.is_compiled)
}

/// Fits the terms to steps and operators, all on AMD GPUs.
pub fn fit(steps: &[PublishedStep], catalog: &Catalog, base: &Efficiency) -> Amd {
    let mut design = Design::new(steps, catalog);
    let mut counts: BTreeMap<_, f64> = BTreeMap::new();
    for step in steps {
        *counts.entry(cell(step)).or_default() += 1.0;
    }
    for (row, step) in design.rows.iter_mut().zip(steps) {
        let is_step = step.extent == Extent::Step;
        let exact = if step.is_exact { 1.0 } else { INEXACT };
        row.weight = exact * if is_step { STEPS } else { OPERATORS } / counts[&cell(step)];
        row.log += if is_step || step.is_exact { 0.0 } else { TUNED };
    }
    let priors = priors(&design, base);
    let values = |is_in: &dyn Fn(&PublishedStep) -> bool| {
        let rows: Vec<&Row> =
            design.rows.iter().zip(steps).filter(|(_, step)| is_in(step)).map(|(row, _)| row).collect();
        let slows: Vec<bool> = design.terms.iter().map(|(_, id)| id.only_slows()).collect();
        minimise(&rows, &priors, &slows, priors.iter().map(|prior| prior.mean).collect())
    };
    let whole = || steps.iter().enumerate().filter(|(_, step)| step.extent == Extent::Step);
    let families: BTreeSet<&str> = whole().map(|(_, step)| &*step.family).collect();
    let without_family: BTreeMap<&str, Vec<f64>> = families
        .into_iter()
        .map(|family| (family, values(&|step| step.extent != Extent::Step || step.family != family)))
        .collect();
    let gpus: BTreeSet<&GpuSlug> = steps.iter().map(|step| &step.gpu).collect();
    let without_gpu: BTreeMap<&GpuSlug, Vec<f64>> =
        gpus.iter().map(|gpu| (*gpu, values(&|step| step.gpu != **gpu))).collect();
    let log = |at: usize, values: &[f64]| -design.rows[at].residual(values, None);
    let left_out: Vec<LeftOut> = whole()
        .map(|(at, step)| {
            let of_network = &without_family[&*step.family];
            LeftOut { at, network: log(at, of_network), gpu: log(at, &without_gpu[&step.gpu]) }
        })
        .collect();
    let alone: Vec<(usize, f64)> = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.extent != Extent::Step)
        .map(|(at, step)| {
            (gpus.iter().position(|gpu| **gpu == step.gpu).unwrap_or(0), log(at, &without_gpu[&step.gpu]))
        })
        .collect();
    let all = values(&|_| true);
    let boards = whole().map(|(_, step)| (step.gpu.to_string(), 1.0)).collect();
    let of = |left: &dyn Fn(&LeftOut) -> f64| by_network(steps, &left_out, left);
    // For a network, and a GPU, outside the training data.
    let networks = of(&|left| left.network);
    let seen = either_way(&networks).map(|spread| spread.widened(few_gpus(&networks)));
    let by_gpu: Vec<(usize, f64)> = left_out
        .iter()
        .map(|left| (gpus.iter().position(|gpu| **gpu == steps[left.at].gpu).unwrap_or(0), left.gpu))
        .collect();
    let unseen = either_way(&of(&|left| left.gpu)).map(|spread| spread.widened(few_gpus(&by_gpu)));
    let facts = StepFacts { boards, seen, unseen, with_origin: unseen, ..StepFacts::default() };
    let terms = terms(&design, base, &all);
    Amd { terms: VendorTerms { operators: spread(&alone), steps: facts, ..terms }, left_out }
}

/// Errors of steps by network and precision, each with the same weight.
fn by_network(steps: &[PublishedStep], left_out: &[LeftOut], log: &dyn Fn(&LeftOut) -> f64) -> Vec<(usize, f64)> {
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    left_out
        .iter()
        .map(|left| {
            let next = kinds.len();
            (*kinds.entry(cell(&steps[left.at])).or_insert(next), log(left))
        })
        .collect()
}

/// Priors of the terms: around those of the model, or the model's own priors for terms without data.
fn priors(design: &Design, base: &Efficiency) -> Vec<Prior> {
    let (own, _) = design.priors();
    let of = |((side, id), own): (&(Side, Id), &Prior)| match id {
        Id::Term(_) => Prior { mean: known(base, *side, id).unwrap_or(0.0), width: WIDTH * own.width },
        Id::Board(_) => Prior { mean: 0.0, width: BOARD[usize::from(*side == Side::Memory)] },
        Id::Generation(..) | Id::Cdna(_) => *own,
    };
    design.terms.iter().zip(&own).map(of).collect()
}

fn known(base: &Efficiency, side: Side, id: &Id) -> Option<f64> {
    base.factors(side).of(id)
}

/// Differences of fitted values from the terms of the model.
fn terms(design: &Design, base: &Efficiency, values: &[f64]) -> VendorTerms {
    let of = |wanted: Side| -> Factors {
        let added = design.terms.iter().zip(values).map(|((side, id), value)| {
            (side, id, ((value - known(base, *side, id).unwrap_or(0.0)) * 1e3).round() / 1e3)
        });
        // The terms of one architecture predict those without measurements, however small they are.
        let is_told = |id: &Id, added: f64| added.abs() >= LEAST || matches!(id, Id::Cdna(_));
        let kept = added.filter(|(side, id, added)| **side == wanted && is_told(id, *added));
        kept.map(|(_, id, added)| (id.clone(), added)).collect()
    };
    VendorTerms {
        compute: of(Side::Compute),
        memory: of(Side::Memory),
        latency: of(Side::Latency),
        ..VendorTerms::default()
    }
}
