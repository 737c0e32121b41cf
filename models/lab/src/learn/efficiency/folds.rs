//! Steps by models that did not see them, and what those err by.

use std::collections::{BTreeMap, BTreeSet};

use habitat_tui::catalog::Catalog;
use habitat_tui::learn::ranges::{few_gpus, spread};
use habitat_tui::predict::decoded::Decoded;
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::learned::{Spread, StepFacts, is_by_efficiency};
use habitat_tui::units::GpuSlug;

use super::Design;
use crate::learn::residuals::shared_deviation;
use crate::published::PublishedStep;

/// Parts that families of networks are left out in.
const FOLDS: u32 = 6;

/// Which part a family of networks is left out with.
fn fold(family: &str) -> u32 {
    // FNV-1a.
    family.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)) % FOLDS
}

/// Models that were fitted without some of the steps.
#[derive(Debug)]
pub struct Folds {
    /// On everything.
    pub all: Efficiency,
    without_family: Vec<Efficiency>,
    without_gpu: BTreeMap<GpuSlug, Efficiency>,
    without_both: BTreeMap<(GpuSlug, u32), Efficiency>,
}

impl Folds {
    /// Fits all of them, and the ranges of the one that is shipped.
    pub fn new(steps: &[PublishedStep], catalog: &Catalog) -> Self {
        let design = Design::new(steps, catalog);
        let gpus: BTreeSet<&GpuSlug> = steps.iter().map(|step| &step.gpu).collect();
        let folds: Vec<u32> = steps.iter().map(|step| fold(&step.family)).collect();
        let mut found = Self {
            all: design.fit(&|_| true),
            without_family: (0..FOLDS).map(|out| design.fit(&|step| folds[step] != out)).collect(),
            without_gpu: BTreeMap::new(),
            without_both: BTreeMap::new(),
        };
        for gpu in gpus {
            found.without_gpu.insert(gpu.clone(), design.fit(&|step| steps[step].gpu != *gpu));
            for out in 0..FOLDS {
                if steps.iter().zip(&folds).any(|(step, fold)| step.gpu == *gpu && *fold == out) {
                    let both = design.fit(&|step| steps[step].gpu != *gpu && folds[step] != out);
                    found.without_both.insert((gpu.clone(), out), both);
                }
            }
        }
        let facts = found.facts(steps, &design);
        let operators = found.operators(steps, &design);
        let models = found.without_family.iter_mut().chain(found.without_gpu.values_mut());
        for model in models.chain(found.without_both.values_mut()).chain([&mut found.all]) {
            model.steps = facts.clone();
            model.operators = operators;
        }
        for (gpu, model) in &mut found.without_gpu {
            model.steps.boards.remove(gpu.as_str());
        }
        for ((gpu, _), model) in &mut found.without_both {
            model.steps.boards.remove(gpu.as_str());
        }
        found
    }

    /// The model that saw no network of the step's family.
    pub fn without_family(&self, step: &PublishedStep) -> &Efficiency {
        &self.without_family[fold(&step.family) as usize]
    }

    /// The model that saw nothing on the step's GPU.
    pub fn without_gpu(&self, step: &PublishedStep) -> &Efficiency {
        &self.without_gpu[&step.gpu]
    }

    /// The model that saw neither.
    pub fn without_both(&self, step: &PublishedStep) -> &Efficiency {
        &self.without_both[&(step.gpu.clone(), fold(&step.family))]
    }

    /// How far operators deviate that were measured alone, by models that saw no operator of
    /// the kind.
    fn operators(&self, steps: &[PublishedStep], design: &Design) -> Option<Spread> {
        let gpus: Vec<&GpuSlug> = self.without_gpu.keys().collect();
        let operators = steps.iter().enumerate().filter(|(_, step)| step.is_operator);
        let logs: Vec<(usize, f64)> = operators
            .map(|(at, step)| {
                let place = gpus.binary_search(&&step.gpu).unwrap_or(0);
                (place, -design.residual(at, self.without_family(step)))
            })
            .collect();
        spread(&logs)
    }

    /// How far steps deviate from the sum of their operators.
    fn facts<'m>(&'m self, steps: &[PublishedStep], design: &Design) -> StepFacts {
        let gpus: Vec<&GpuSlug> = self.without_gpu.keys().collect();
        let place = |gpu: &GpuSlug| gpus.binary_search(&gpu).unwrap_or(0);
        // The others are answered by other models.
        let is_answered =
            |step: &PublishedStep| is_by_efficiency(&Decoded::all(&step.profile), step.profile.workload.precision);
        let judged: Vec<usize> =
            (0..steps.len()).filter(|&at| !steps[at].is_operator && is_answered(&steps[at])).collect();
        let logs = |model: &dyn Fn(&PublishedStep) -> &'m Efficiency| -> Vec<(usize, f64)> {
            judged.iter().map(|&at| (place(&steps[at].gpu), -design.residual(at, model(&steps[at])))).collect()
        };
        let (seen, unseen) = (logs(&|step| self.without_family(step)), logs(&|step| self.without_both(step)));
        // A step's deviation, with its GPU known and not.
        let mut alike: BTreeMap<String, Vec<[(usize, f64); 2]>> = BTreeMap::new();
        for ((&at, &here), &there) in judged.iter().zip(&seen).zip(&unseen) {
            let workload = &steps[at].profile.workload;
            let key = format!("{} {:?}", workload.name, workload.precision);
            alike.entry(key).or_default().push([here, there]);
        }
        // The origin is a GPU that is known, the destination is not.
        let mut pairs = Vec::new();
        for same in alike.values() {
            for [here, _] in same {
                let others = same.iter().filter(|[_, there]| there.0 != here.0);
                pairs.extend(others.map(|[_, there]| (here.1, there.0, there.1)));
            }
        }
        let (shared_deviation, left) = shared_deviation(&pairs);
        StepFacts {
            typical: 1.0,
            training: 1.0,
            boards: judged.iter().map(|&at| (steps[at].gpu.to_string(), 1.0)).collect(),
            makers: BTreeMap::new(),
            seen: spread(&seen),
            unseen: spread(&unseen),
            shared_deviation,
            with_origin: spread(&left).map(|spread| spread.widened(few_gpus(&left))),
        }
    }
}
