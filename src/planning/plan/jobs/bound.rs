//! Lower bound on the cost of rented jobs, and proofs that no plan exists.
//!
//! Between two times, a limit provides its amount times the hours in between. All jobs that may only run in that time
//! have to share it, however they are scheduled (the energy of cumulative scheduling; Baptiste, Le Pape and Nuijten
//! 2001). With a price λ ≥ 0 for each such amount B, the cost of any plan is at least
//!
//! Σ min (c + Σ λ·a) − Σ λ·B,
//!
//! where each job chooses its cheapest way at these prices (Lagrangian relaxation; Fisher 1981). The prices follow the
//! subgradient. Any prices give a valid bound; the best ones give that of the linear relaxation. If the bound without
//! the costs is above 0, the jobs need more than there is, and no plan exists.

use super::super::assignment::Way;
use super::super::problem::SAME;
use super::super::{Quota, SharedLimit};
use super::schedule::{Preference, Tasks};

/// Iterations of the subgradient, and those without a better bound after which the step is halved.
const ITERATIONS: usize = 200;
const STUCK: usize = 8;
/// Maximum numbers of times at which rows begin and end, and of rows.
const MOST_TIMES: usize = 12;
const MOST_ROWS: usize = 240;
/// Smallest share by which the need exceeds the amounts to be a proof, beyond rounding.
const PROOF: f64 = 1e-6;

/// Amount of a limit for the jobs that may only run between two times.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) limit: usize,
    pub(super) until: f64,
    /// Amount times hours; dollars for a budget; the amount alone if all jobs start together.
    most: f64,
    pub(super) jobs: Vec<usize>,
}

/// A proof that no plan exists.
#[derive(Debug, Clone)]
pub(super) struct Overload {
    /// Limits that do not provide enough together.
    pub(super) limits: Vec<usize>,
    /// Jobs that need more.
    pub(super) jobs: usize,
    /// Latest of their deadlines; infinite without one.
    pub(super) until: f64,
    /// Their need at least, as a multiple of what the limits provide.
    pub(super) times: f64,
}

/// Bound on the cost and the prices that give it.
#[derive(Debug, Clone)]
pub(super) struct Relaxed<'a> {
    tasks: &'a Tasks,
    rows: Vec<Row>,
    /// Rows of each job.
    rows_of: Vec<Vec<usize>>,
    /// Price of each row, in dollars for all that it provides.
    prices: Vec<f64>,
    pub(super) bound: f64,
}

impl<'a> Relaxed<'a> {
    /// Relaxation of a problem, at prices of 0.
    pub(super) fn new(tasks: &'a Tasks) -> Self {
        let rows = rows(tasks);
        let mut rows_of = vec![Vec::new(); tasks.jobs.len()];
        for (row, of) in rows.iter().enumerate() {
            for job in &of.jobs {
                rows_of[*job].push(row);
            }
        }
        let prices = vec![0.0; rows.len()];
        Self { tasks, rows, rows_of, prices, bound: tasks.cheapest_each() }
    }

    /// Raises the bound, given the cost of a plan or an estimate of it.
    pub(super) fn raise(&mut self, cost: f64) {
        let mut prices = self.prices.clone();
        let (mut scale, mut stuck) = (1.0, 0);
        for _ in 0..ITERATIONS {
            let (bound, excess) = self.at(&prices, 1.0);
            stuck += 1;
            if bound > self.bound + SAME * (1.0 + bound.abs()) {
                self.bound = bound;
                self.prices.clone_from(&prices);
                stuck = 0;
            } else if stuck >= STUCK {
                scale /= 2.0;
                stuck = 0;
                prices.clone_from(&self.prices);
                continue;
            }
            let length: f64 =
                excess.iter().zip(&prices).filter(|(e, p)| **e > 0.0 || **p > 0.0).map(|(e, _)| e * e).sum();
            let missing = cost - bound;
            if length <= SAME || missing <= SAME * cost.abs() {
                return;
            }
            for (price, excess) in prices.iter_mut().zip(&excess) {
                *price = (*price + scale * missing / length * excess).max(0.0);
            }
        }
    }

    /// Proof that the jobs need more than the limits provide, if the relaxation has one.
    pub(super) fn overload(&self) -> Option<Overload> {
        let rows = self.rows.len();
        if rows == 0 {
            return None;
        }
        let mut prices = vec![1.0 / rows as f64; rows];
        let mut best: Option<(f64, Vec<f64>)> = None;
        for step in 1..=ITERATIONS {
            let (need, excess) = self.at(&prices, 0.0);
            if need > best.as_ref().map_or(PROOF, |(most, _)| *most) {
                best = Some((need, prices.clone()));
            }
            let length = excess.iter().map(|e| e * e).sum::<f64>().sqrt().max(SAME);
            for (price, excess) in prices.iter_mut().zip(&excess) {
                *price = (*price + excess / length / (step as f64).sqrt()).max(0.0);
            }
            let all: f64 = prices.iter().sum();
            if all <= 0.0 {
                break;
            }
            for price in &mut prices {
                *price /= all;
            }
        }
        best.map(|(need, prices)| self.proof(&prices, need))
    }

    /// The proof of the fewest rows that these prices give.
    fn proof(&self, prices: &[f64], need: f64) -> Overload {
        let (mut prices, mut need) = (prices.to_vec(), need);
        let mut order: Vec<usize> = (0..prices.len()).filter(|row| prices[*row] > 0.0).collect();
        order.sort_by(|a, b| prices[*a].total_cmp(&prices[*b]));
        for row in order {
            let price = std::mem::take(&mut prices[row]);
            match self.at(&prices, 0.0).0 {
                without if without > PROOF * prices.iter().sum::<f64>() => need = without,
                _ => prices[row] = price,
            }
        }
        let rows: Vec<&Row> =
            self.rows.iter().zip(&prices).filter(|(_, price)| **price > 0.0).map(|(row, _)| row).collect();
        let mut limits: Vec<usize> = rows.iter().map(|row| row.limit).collect();
        limits.sort_unstable();
        limits.dedup();
        let mut jobs: Vec<usize> = rows.iter().flat_map(|row| &row.jobs).copied().collect();
        jobs.sort_unstable();
        jobs.dedup();
        let until = rows.iter().map(|row| row.until).fold(0.0, f64::max);
        Overload { limits, jobs: jobs.len(), until, times: 1.0 + need / prices.iter().sum::<f64>() }
    }

    /// Ways by cost plus the price of what they use.
    pub(super) fn preference(&self) -> Preference {
        let prices = self.prices_of_limits(&self.prices);
        self.tasks.by_price(|job, way| self.price(way, &prices[job], 1.0))
    }

    /// Bound at these prices, with the costs times a factor; and the excess of each row as a share of what it provides.
    fn at(&self, prices: &[f64], costs: f64) -> (f64, Vec<f64>) {
        let mut bound = -prices.iter().sum::<f64>();
        let mut excess = vec![-1.0; self.rows.len()];
        let of_limits = self.prices_of_limits(prices);
        for (job, task) in self.tasks.jobs.iter().enumerate() {
            let ways = task.ways.iter().map(|way| (self.price(way, &of_limits[job], costs), way));
            let Some((price, way)) = ways.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
            bound += price;
            for row in &self.rows_of[job] {
                let of = &self.rows[*row];
                let used = way.uses.iter().filter(|(limit, _)| *limit == of.limit);
                let used: f64 = used.map(|(limit, amount)| amount * self.tasks.hours(*limit, way.hours)).sum();
                excess[*row] += used / of.most;
            }
        }
        (bound, excess)
    }

    /// Price of one unit of each limit for each job, of the limits that have one.
    fn prices_of_limits(&self, prices: &[f64]) -> Vec<Vec<(usize, f64)>> {
        let of_job = |rows: &Vec<usize>| {
            let mut of_limits: Vec<(usize, f64)> = Vec::new();
            for row in rows.iter().filter(|row| prices[**row] > 0.0) {
                let (limit, price) = (self.rows[*row].limit, prices[*row] / self.rows[*row].most);
                match of_limits.iter_mut().find(|(other, _)| *other == limit) {
                    Some(known) => known.1 += price,
                    None => of_limits.push((limit, price)),
                }
            }
            of_limits
        };
        self.rows_of.iter().map(of_job).collect()
    }

    fn price(&self, way: &Way, prices: &[(usize, f64)], costs: f64) -> f64 {
        let of = |(limit, price): &(usize, f64)| {
            let used: f64 = way.uses.iter().filter(|(own, _)| own == limit).map(|(_, amount)| amount).sum();
            price * used * self.tasks.hours(*limit, way.hours)
        };
        costs * way.cost + prices.iter().map(of).sum::<f64>()
    }
}

impl Tasks {
    /// Hours that count for a limit: one for a budget, and if all jobs start together.
    fn hours(&self, limit: usize, hours: f64) -> f64 {
        if self.wait && self.limits[limit].span().is_some() { hours } else { 1.0 }
    }

    /// Amount of a limit times hours between two times; infinite if it does not apply all the time. Quotas for the same
    /// machines apply together.
    fn provided(&self, limit: usize, [from, until]: [f64; 2]) -> f64 {
        if !self.wait {
            return self.most[limit];
        }
        let is_alike = |other: &usize| self.limits[*other].is_alike(&self.limits[limit]);
        let alike: Vec<([f64; 2], f64)> = (0..self.limits.len())
            .filter(is_alike)
            .filter_map(|other| Some((self.limits[other].span()?, self.most[other])))
            .collect();
        let spans = alike.iter().map(|(span, _)| *span);
        let mut times: Vec<f64> =
            spans.flatten().filter(|time| from < *time && *time < until).chain([from, until]).collect();
        times.sort_by(f64::total_cmp);
        let mut sum = 0.0;
        for pair in times.windows(2) {
            let applies = |([from, until], _): &&([f64; 2], f64)| *from <= pair[0] && pair[0] < *until;
            let most = alike.iter().filter(applies).map(|(_, most)| *most).fold(f64::INFINITY, f64::min);
            // Nothing for any time is nothing.
            sum += if most > 0.0 { most * (pair[1] - pair[0]) } else { 0.0 };
        }
        sum
    }
}

impl SharedLimit {
    /// Whether two limits are about the same machines.
    fn is_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quota(a), Self::Quota(b)) => {
                let of = |quota: &Quota| {
                    (quota.provider.to_lowercase(), quota.region.clone(), quota.gpu.clone(), quota.tier)
                };
                of(a) == of(b)
            }
            _ => self == other,
        }
    }
}

/// Rows that may bind, tightest first: for each limit, from each earliest start to each deadline.
fn rows(tasks: &Tasks) -> Vec<Row> {
    let some = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.dedup();
        let every = times.len().div_ceil(MOST_TIMES).max(1);
        // The last time always is among them.
        times.into_iter().rev().step_by(every).collect::<Vec<f64>>()
    };
    let from = some(tasks.jobs.iter().map(|task| task.earliest).chain([0.0]).collect());
    let until = some(tasks.jobs.iter().map(|task| task.due).collect());
    let mut rows = Vec::new();
    for (limit, of) in tasks.limits.iter().enumerate() {
        let spans: Vec<[f64; 2]> = if of.span().is_none() || !tasks.wait {
            vec![[0.0, f64::INFINITY]]
        } else {
            from.iter().flat_map(|from| until.iter().map(move |until| [*from, *until])).filter(|[a, b]| a < b).collect()
        };
        // Largest use of each job, and that of its cheapest way.
        let used = |way: &Way| {
            let amount: f64 = way.uses.iter().filter(|(own, _)| *own == limit).map(|(_, amount)| amount).sum();
            amount * tasks.hours(limit, way.hours)
        };
        let most: Vec<f64> = tasks.jobs.iter().map(|task| task.ways.iter().map(used).fold(0.0, f64::max)).collect();
        if most.iter().all(|most| *most <= 0.0) {
            continue;
        }
        let usual: Vec<f64> = tasks.jobs.iter().map(|task| task.ways.first().map_or(0.0, used)).collect();
        for [from, until] in spans {
            let provided = if of.span().is_none() { tasks.most[limit] } else { tasks.provided(limit, [from, until]) };
            let is_inside = |job: &usize| {
                let task = &tasks.jobs[*job];
                most[*job] > 0.0 && (!tasks.wait || of.span().is_none() || (from <= task.earliest && task.due <= until))
            };
            let jobs: Vec<usize> = (0..tasks.jobs.len()).filter(is_inside).collect();
            let needed: f64 = jobs.iter().map(|job| most[*job]).sum();
            if provided > 0.0 && needed > provided * (1.0 + SAME) {
                let ratio = jobs.iter().map(|job| usual[*job]).sum::<f64>() / provided;
                rows.push((ratio, needed / provided, Row { limit, until, most: provided, jobs }));
            }
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    rows.truncate(MOST_ROWS);
    rows.into_iter().map(|(.., row)| row).collect()
}
