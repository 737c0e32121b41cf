//! Lower bound on the cost of rented jobs, and proofs that no plan exists.
//!
//! Between two times, a limit provides its amount times the hours in between. All jobs that may only run in that time
//! have to share it, however they are scheduled (the energy of cumulative scheduling; Baptiste, Le Pape and Nuijten
//! 2001). With a price λ ≥ 0 for each such amount B, the cost of any plan is at least
//!
//! Σ min (c + Σ λ·a) − Σ λ·B,
//!
//! where each job chooses its cheapest mode at these prices (Lagrangian relaxation; Fisher 1981). The prices follow the
//! subgradient. Any prices give a valid bound; the best ones give that of the linear relaxation. If the bound without
//! the costs is above 0, the jobs need more than there is, and no plan exists.
//!
//! A job that may end late, at a price, uses at least a·max(0, h − max(0, e − u)) of the amount until the time u if it
//! ends at e. Its share of the sum is then the minimum over e too, which is at the soonest end, at a deadline that it
//! may miss, or at u + h for some u. With a price V of each hour until all jobs have ended, the sum has V·T, and only
//! modes that can end by T count; the bound is the minimum over T.

use super::super::assignment::Mode;
use super::super::problem::RELATIVE_TOLERANCE;
use super::super::{Quota, SharedLimit};
use super::schedule::{Preference, Task, Tasks};

/// Iterations of the subgradient, and those without a better bound after which the step is halved.
const ITERATIONS: usize = 200;
const STUCK: usize = 8;
/// Maximum numbers of times at which rows begin and end, and of rows.
const MOST_TIMES: usize = 12;
/// Times of a schedule at which rows end if time has a price (a choice).
const ENDS: u32 = 8;
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
    /// Their least need, as a multiple of the amount that the limits provide.
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
    /// Relaxation of a problem, at prices of 0. `last`: an estimate of the last end.
    pub(super) fn new(tasks: &'a Tasks, last: f64) -> Self {
        let rows = rows(tasks, last);
        let mut rows_of = vec![Vec::new(); tasks.jobs.len()];
        for (row, of) in rows.iter().enumerate() {
            for job in &of.jobs {
                rows_of[*job].push(row);
            }
        }
        let prices = vec![0.0; rows.len()];
        Self { tasks, rows, rows_of, prices, bound: tasks.least_each().max(tasks.busy()) }
    }

    /// Raises the bound, given the cost of a plan or an estimate of it.
    pub(super) fn raise(&mut self, cost: f64) {
        let mut prices = self.prices.clone();
        let (mut scale, mut stuck) = (1.0, 0);
        for _ in 0..ITERATIONS {
            let (bound, excess) = self.at(&prices, 1.0);
            stuck += 1;
            if bound > self.bound + RELATIVE_TOLERANCE * (1.0 + bound.abs()) {
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
            if length <= RELATIVE_TOLERANCE || missing <= RELATIVE_TOLERANCE * cost.abs() {
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
            let length = excess.iter().map(|e| e * e).sum::<f64>().sqrt().max(RELATIVE_TOLERANCE);
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
        // Jobs that may end later are not due.
        let is_due = |row: &Row, job: usize| {
            let task = &self.tasks.jobs[job];
            task.rates.is_empty() || task.due <= row.until
        };
        let all = rows.iter().flat_map(|row| row.jobs.iter().copied().filter(|job| is_due(row, *job)));
        let mut jobs: Vec<usize> = all.collect();
        jobs.sort_unstable();
        jobs.dedup();
        let until = rows.iter().map(|row| row.until).fold(0.0, f64::max);
        Overload { limits, jobs: jobs.len(), until, times: 1.0 + need / prices.iter().sum::<f64>() }
    }

    /// Ways by cost plus the price of what they use.
    pub(super) fn preference(&self) -> Preference {
        let prices = self.prices_of_limits(&self.prices);
        self.tasks.by_price(|job, mode| self.price(&self.tasks.jobs[job], mode, &prices[job], 1.0).0)
    }

    /// Bound at these prices, with the costs times a factor; and the excess of each row as a share of what it provides.
    fn at(&self, prices: &[f64], costs: f64) -> (f64, Vec<f64>) {
        let mut bound = -prices.iter().sum::<f64>();
        let mut excess = vec![-1.0; self.rows.len()];
        let of_limits = self.prices_of_limits(prices);
        let hour_value = costs * self.tasks.hour_value;
        let by = if hour_value > 0.0 { self.horizon(&of_limits, costs) } else { f64::INFINITY };
        if by.is_finite() {
            bound += hour_value * by;
        }
        for (job, task) in self.tasks.jobs.iter().enumerate() {
            let modes = task.modes.iter().filter(|mode| task.earliest + mode.hours <= by);
            let modes = modes.map(|mode| (self.price(task, mode, &of_limits[job], costs), mode));
            let Some(((price, end), mode)) = modes.min_by(|a, b| a.0.0.total_cmp(&b.0.0)) else { continue };
            bound += price;
            for row in &self.rows_of[job] {
                let of = &self.rows[*row];
                excess[*row] += self.used(task, mode, (of.limit, of.until), end) / of.most;
            }
        }
        (bound, excess)
    }

    /// Time of the last end with the lowest bound: the dollars until then, and those of the modes that can end by then.
    fn horizon(&self, of_limits: &[Vec<Priced>], costs: f64) -> f64 {
        let mut ends: Vec<(f64, usize, f64)> = Vec::new();
        for (job, task) in self.tasks.jobs.iter().enumerate() {
            let end = |mode: &Mode| (task.earliest + mode.hours, job, self.price(task, mode, &of_limits[job], costs).0);
            ends.extend(task.modes.iter().map(end));
        }
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut least = vec![f64::INFINITY; self.tasks.jobs.len()];
        let (mut open, mut sum, mut best) = (least.len(), 0.0, (f64::INFINITY, f64::INFINITY));
        for (end, job, price) in ends {
            if least[job].is_infinite() {
                open -= 1;
                sum += price;
                least[job] = price;
            } else if price < least[job] {
                sum += price - least[job];
                least[job] = price;
            }
            let all = sum + costs * self.tasks.hour_value * end;
            if open == 0 && all < best.0 {
                best = (all, end);
            }
        }
        best.1
    }

    /// Price of one unit of each limit for each job, of the limits that have one.
    fn prices_of_limits(&self, prices: &[f64]) -> Vec<Vec<Priced>> {
        let of_job = |(rows, task): (&Vec<usize>, &Task)| {
            let mut of_limits: Vec<Priced> = Vec::new();
            for row in rows.iter().filter(|row| prices[**row] > 0.0) {
                let of = &self.rows[*row];
                // Only jobs that may end late can end after the row.
                let until = if task.rates.is_empty() { f64::INFINITY } else { of.until };
                let price = prices[*row] / of.most;
                match of_limits.iter_mut().find(|other| (other.limit, other.until) == (of.limit, until)) {
                    Some(known) => known.price += price,
                    None => of_limits.push(Priced { limit: of.limit, until, price }),
                }
            }
            of_limits
        };
        self.rows_of.iter().zip(&self.tasks.jobs).map(of_job).collect()
    }

    /// Fewest dollars of a mode with its time and what it uses, and the end that has them.
    fn price(&self, task: &Task, mode: &Mode, prices: &[Priced], costs: f64) -> (f64, f64) {
        let at = |end: f64| {
            let used = |of: &Priced| of.price * self.used(task, mode, (of.limit, of.until), end);
            (costs * (mode.cost + task.time_cost(end)) + prices.iter().map(used).sum::<f64>(), end)
        };
        let soonest = task.earliest + mode.hours;
        let best = at(soonest);
        if task.rates.is_empty() || !self.tasks.wait {
            return best;
        }
        let after = prices.iter().map(|of| of.until + mode.hours);
        let ends = after.chain(task.rates.iter().map(|rate| rate.from)).filter(|end| end.is_finite());
        let ends = ends.map(|end| end.min(task.due)).filter(|end| *end > soonest);
        ends.map(at).fold(best, |a, b| if b.0 < a.0 { b } else { a })
    }

    /// Least use of a limit until a time, if the job ends at `end`.
    fn used(&self, task: &Task, mode: &Mode, (limit, until): (usize, f64), end: f64) -> f64 {
        let used = mode.uses.iter().filter(|(own, _)| *own == limit).map(|(_, amount)| amount).sum::<f64>();
        if used <= 0.0 {
            return 0.0;
        }
        let hours = self.tasks.hours(limit, mode.hours);
        if task.rates.is_empty() || !self.tasks.wait || self.tasks.limits[limit].span().is_none() {
            return used * hours;
        }
        used * (hours - (end - until).max(0.0)).max(0.0)
    }
}

/// Price of one unit of a limit until a time.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Priced {
    limit: usize,
    until: f64,
    price: f64,
}

impl Tasks {
    /// Hours that count for a limit: one for a budget, and if all jobs start together.
    fn hours(&self, limit: usize, hours: f64) -> f64 {
        if self.wait && self.limits[limit].span().is_some() { hours } else { 1.0 }
    }

    /// Fewest dollars if some limit is in use until the last end: each of its units then costs its share of the hour.
    fn busy(&self) -> f64 {
        let lasts = |limit: &usize| self.limits[*limit].span() == Some([0.0, f64::INFINITY]);
        let limits = (0..self.limits.len()).filter(|limit| self.hour_value > 0.0 && self.wait && lasts(limit));
        let least = |limit: usize| -> f64 {
            let share = self.hour_value / self.most[limit];
            let of_mode = |task: &Task, mode: &Mode| {
                let used: f64 = mode.uses.iter().filter(|(own, _)| *own == limit).map(|(_, amount)| amount).sum();
                mode.cost
                    + task.time_cost(task.earliest + mode.hours)
                    + if used > 0.0 { share * used * mode.hours } else { 0.0 }
            };
            let of_task = |task: &Task| task.modes.iter().map(|mode| of_mode(task, mode)).fold(f64::INFINITY, f64::min);
            self.jobs.iter().map(of_task).sum()
        };
        limits.map(least).filter(|least| least.is_finite()).fold(0.0, f64::max)
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
fn rows(tasks: &Tasks, last: f64) -> Vec<Row> {
    let some = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.dedup();
        let every = times.len().div_ceil(MOST_TIMES).max(1);
        // The last time always is among them.
        times.into_iter().rev().step_by(every).collect::<Vec<f64>>()
    };
    let from = some(tasks.jobs.iter().map(|task| task.earliest).chain([0.0]).collect());
    let rates = || tasks.jobs.iter().flat_map(|task| &task.rates);
    let soft = rates().map(|rate| rate.from).filter(|from| *from > 0.0);
    let ends = (1..=ENDS)
        .map(|end| last * f64::from(end) / f64::from(ENDS))
        .filter(|end| *end > 0.0 && rates().next().is_some());
    let until = some(tasks.jobs.iter().map(|task| task.due).chain(soft).chain(ends).collect());
    let mut rows = Vec::new();
    for (limit, of) in tasks.limits.iter().enumerate() {
        let spans: Vec<[f64; 2]> = if of.span().is_none() || !tasks.wait {
            vec![[0.0, f64::INFINITY]]
        } else {
            from.iter().flat_map(|from| until.iter().map(move |until| [*from, *until])).filter(|[a, b]| a < b).collect()
        };
        // Largest use of each job, and that of its cheapest mode.
        let used = |mode: &Mode| {
            let amount: f64 = mode.uses.iter().filter(|(own, _)| *own == limit).map(|(_, amount)| amount).sum();
            amount * tasks.hours(limit, mode.hours)
        };
        let most: Vec<f64> = tasks.jobs.iter().map(|task| task.modes.iter().map(used).fold(0.0, f64::max)).collect();
        if most.iter().all(|most| *most <= 0.0) {
            continue;
        }
        let usual: Vec<f64> = tasks.jobs.iter().map(|task| task.modes.first().map_or(0.0, used)).collect();
        for [from, until] in spans {
            let provided = if of.span().is_none() { tasks.most[limit] } else { tasks.provided(limit, [from, until]) };
            let is_inside = |job: &usize| {
                let task = &tasks.jobs[*job];
                most[*job] > 0.0
                    && (!tasks.wait
                        || of.span().is_none()
                        || (from <= task.earliest && (task.due <= until || !task.rates.is_empty())))
            };
            let jobs: Vec<usize> = (0..tasks.jobs.len()).filter(is_inside).collect();
            let needed: f64 = jobs.iter().map(|job| most[*job]).sum();
            if provided > 0.0 && needed > provided * (1.0 + RELATIVE_TOLERANCE) {
                let ratio = jobs.iter().map(|job| usual[*job]).sum::<f64>() / provided;
                rows.push((ratio, needed / provided, Row { limit, until, most: provided, jobs }));
            }
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    rows.truncate(MOST_ROWS);
    rows.into_iter().map(|(.., row)| row).collect()
}
