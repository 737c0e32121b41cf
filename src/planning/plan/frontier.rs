//! Cost–time frontier: the Pareto front of plans by finish and cost.
//!
//! For one part, a sort finds it. For several parts, the ε-constraint method bisects the deadline between the fastest
//! and the cheapest plan, largest gap first. A gap whose ends use the same offers contains only mixtures of them and is
//! not split further.

use serde::Serialize;

use super::prepared::Prepared;
use super::problem::{Aim, Limit, RELATIVE_TOLERANCE};
use super::search::{best, solve_one};
use super::switch::Switched;
use super::{Objective, Total};
use crate::pricing::{OfferId, Tier};
use habitat_base::units::{GpuSlug, Hours, Range, Samples, Usd};

/// Maximum number of solves for a frontier of plans with several parts, including both ends.
const SOLVES: usize = 16;

/// Share of the time by which the next, cheaper point has to be later (a choice: ranges are many times as wide).
const SOON: f64 = 0.005;

/// A plan on the frontier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrontierPoint {
    /// Elapsed hours.
    #[serde(rename = "hours")]
    pub hours: Range<Hours>,
    /// Cost.
    #[serde(rename = "cost_usd")]
    pub cost: Range<Usd>,
    /// Parts, one after another.
    pub parts: Vec<FrontierPart>,
}

/// Summary of a part of a plan on the frontier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FrontierPart {
    /// The offer.
    pub offer: OfferId,
    /// The GPU.
    pub gpu: GpuSlug,
    /// GPUs of all machines.
    #[serde(rename = "gpu_count")]
    pub all_gpus: u32,
    /// Number of machines.
    #[serde(rename = "nodes")]
    pub machines: u32,
    /// Purchase option.
    pub tier: Tier,
    /// Samples to process.
    pub samples: Samples,
    /// Elapsed hours.
    pub hours: Range<Hours>,
    /// Cost.
    #[serde(rename = "cost_usd")]
    pub cost: Range<Usd>,
}

/// A plan as hours of each configuration, with its finish and cost.
#[derive(Debug, Clone)]
struct Candidate {
    hours: Vec<(usize, f64)>,
    switched: Option<Switched>,
    finish: f64,
    cost: f64,
}

impl Prepared {
    /// The frontier from the fastest to the cheapest plan. Ignores deadline and budget, which screens draw as lines.
    /// Time is at the goal's confidence; each next point is later by at least `SOON` and cheaper.
    pub fn frontier(&self) -> Vec<FrontierPoint> {
        let mut candidates = if self.goal.max_parts > 1 { self.bisected() } else { self.sorted() };
        candidates.sort_by(|a, b| a.finish.total_cmp(&b.finish).then(a.cost.total_cmp(&b.cost)));
        let mut lowest = f64::INFINITY;
        candidates.retain(|candidate| {
            let better = candidate.cost < lowest * (1.0 - RELATIVE_TOLERANCE);
            lowest = lowest.min(candidate.cost);
            better
        });
        // A little later and cheaper: nobody would choose the dearer one.
        let mut after = f64::INFINITY;
        candidates.reverse();
        candidates.retain(|candidate| {
            let much_earlier = candidate.finish * (1.0 + SOON) < after;
            after = if much_earlier { candidate.finish } else { after };
            much_earlier
        });
        candidates.reverse();
        candidates.iter().map(|candidate| self.point(candidate)).collect()
    }

    fn sorted(&self) -> Vec<Candidate> {
        let problem = self.problem();
        let whole = |c: usize| Some((c, problem.whole(c)?));
        (0..problem.choices.len())
            .filter_map(whole)
            .map(|(c, (finish, cost))| Candidate {
                hours: vec![(c, problem.work / problem.choices[c].rate)],
                switched: None,
                finish,
                cost,
            })
            .collect()
    }

    fn bisected(&self) -> Vec<Candidate> {
        let problem = self.problem();
        let candidate = |hours: Vec<(usize, f64)>| {
            let (finish, cost) = (problem.value(Aim::Finish, &hours), problem.value(Aim::Cost, &hours));
            Candidate { hours: self.by_configuration(&hours), switched: None, finish, cost }
        };
        let switched = |deadline: f64| {
            let limit = Limit { deadline: Some(deadline), ..Limit::default() };
            let found = self.switched(Objective::Cost, &limit)?;
            let hours = vec![(found.spot, found.useful[0]), (found.to, found.useful[1])];
            Some(Candidate { hours, switched: Some(found), finish: deadline, cost: found.cost })
        };
        let end = |objective| best(problem, objective, &Limit::default()).map(|found| candidate(found.hours));
        let (Some(fastest), Some(cheapest)) = (end(Objective::Time), end(Objective::Cost)) else { return Vec::new() };
        let mut points = vec![fastest, cheapest];
        // Plans between two ends with the same offers are mixtures of them.
        let split = |a: &Candidate, b: &Candidate| {
            let same = a.hours.iter().map(|(c, _)| c).eq(b.hours.iter().map(|(c, _)| c));
            let is_mixture = same && a.switched.is_none() && b.switched.is_none();
            !is_mixture && b.finish > a.finish * (1.0 + 1e-6) && a.cost > b.cost * (1.0 + 1e-6)
        };
        let mut done: Vec<f64> = Vec::new();
        for _ in 2..SOLVES {
            let (from, span) = (points[0].finish, points[points.len() - 1].finish - points[0].finish);
            let range = (points[0].cost - points[points.len() - 1].cost).max(f64::MIN_POSITIVE);
            let size = |a: &Candidate, b: &Candidate| (b.finish - a.finish) / span + (a.cost - b.cost) / range;
            let widest = points
                .windows(2)
                .filter(|pair| split(&pair[0], &pair[1]))
                .map(|pair| (f64::midpoint(pair[0].finish, pair[1].finish), size(&pair[0], &pair[1])))
                .filter(|(middle, _)| !done.iter().any(|tried| (tried - middle).abs() <= 1e-9 * (middle - from).abs()))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            let Some((middle, _)) = widest else { break };
            done.push(middle);
            let limit = Limit { deadline: Some(middle), ..Limit::default() };
            let mixed = solve_one(problem, Aim::Cost, &limit).ok().map(|found| candidate(found.hours));
            let both = mixed.into_iter().chain(switched(middle));
            if let Some(cheapest) = both.min_by(|a, b| a.cost.total_cmp(&b.cost)) {
                points.push(cheapest);
                points.sort_by(|a, b| a.finish.total_cmp(&b.finish));
            }
        }
        points
    }

    fn point(&self, candidate: &Candidate) -> FrontierPoint {
        let parts: Vec<FrontierPart> = self
            .counted(&candidate.hours)
            .map(|(configuration, useful, first)| {
                let (hours, cost) = configuration.ranges(useful, first);
                FrontierPart {
                    offer: configuration.offer.id.clone(),
                    gpu: configuration.gpu.clone(),
                    all_gpus: configuration.all_gpus(),
                    machines: configuration.machines,
                    tier: configuration.offer.tier,
                    samples: Samples::known(useful * configuration.rate()),
                    hours,
                    cost,
                }
            })
            .collect();
        let (hours, cost) = match &candidate.switched {
            Some(switched) => {
                let Total { hours, cost, .. } = self.of_switched(switched).1;
                (hours, cost)
            }
            None => (parts.iter().map(|part| part.hours).sum(), parts.iter().map(|part| part.cost).sum()),
        };
        FrontierPoint { hours, cost, parts }
    }
}
