//! Assignment of several jobs to offers or machines within shared limits, as an integer linear program.
//!
//! | row | formula |
//! | --- | --- |
//! | one way | Σ y = 1 over the ways of a job |
//! | shared limit | Σ u·y ≤ B: dollars, dollars per hour, GPUs at once, or hours until a deadline |
//! | load | Σ p·y ≤ T over the ways on a machine |
//!
//! with y ∈ {0, 1} for each way. If machines are rented, the program minimises the cost Σ c·y; with given machines, it
//! minimises the makespan T, the load of the busiest machine (unrelated parallel machines, R‖Cmax; Lenstra, Shmoys and
//! Tardos 1990; for jobs on a cluster of GPUs Li et al., MICRO 2023). Jobs on one machine run in order of their
//! deadlines. All of them are in time if and only if, for each deadline d, the jobs due by d take at most d hours
//! together (Jackson 1955), which is a row of the program.
//!
//! Machines of a kind are interchangeable, so the k-th longest job may only use the first k machines of a kind.

use super::PlanNote;
use super::problem::{Program, Relation, SAME, Variable};
use super::solve::{Proof, Settings, SolveError, solve};
use habitat_base::random::Random;

/// Relative gain below which a move is not made.
const GAIN: f64 = 1e-9;
/// Factor on a known makespan, to allow for the solver's rounding.
const SLACK: f64 = 1.0 + 1e-6;
/// Number of bisections to find the lower bound of the makespan.
const HALVINGS: u32 = 10;
/// Restarts of the local search, and the number of jobs that each reassigns.
const KICKS: usize = 400;
const KICKED: usize = 4;
/// Upper limit on restarts times the square of the number of ways, which the time of a search grows with.
const WORK: usize = 25_000_000;
/// Maximum sweeps of the local search.
const SWEEPS: usize = 1000;

/// One way to run a job: a configuration, or a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Way {
    /// Cost in dollars.
    pub cost: f64,
    /// Hours that count for the deadline.
    pub hours: f64,
    /// The machine that it occupies, if machines are given.
    pub machine: Option<usize>,
    /// Indices of the bounds that it uses, and the amounts.
    pub uses: Vec<(usize, f64)>,
}

/// An upper bound shared by the jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Maximum for all chosen ways together.
    pub most: f64,
    /// Limit that the bound belongs to; bounds of one limit are relaxed together.
    pub limit: usize,
}

/// Jobs with their possible ways, and the shared bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignment {
    /// Possible ways of each job.
    pub jobs: Vec<Vec<Way>>,
    /// Shared bounds.
    pub bounds: Vec<Bound>,
    /// Kind of each machine. If empty, machines are rented and the cost is minimised; otherwise the makespan.
    pub machines: Vec<usize>,
}

/// A chosen way for each job, and its quality.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// Chosen way of each job.
    pub ways: Vec<usize>,
    /// Quality of the solution.
    pub proof: Proof,
    /// Lower bound on any assignment: dollars, or hours of the makespan.
    pub bound: f64,
    /// Name of the solver.
    pub solver: &'static str,
    /// Fallbacks.
    pub notes: Vec<PlanNote>,
}

impl Assignment {
    /// Finds the best way for each job.
    ///
    /// # Errors
    /// [`SolveError`], which distinguishes infeasibility from lack of time. If the solver fails, returns the greedy
    /// solution with a note, if there is one.
    pub fn best(&self, settings: Settings) -> Result<Assigned, SolveError> {
        let quick = self.quick();
        let floor = self.floor();
        if let Some(ways) = &quick
            && self.objective(ways) <= floor * (1.0 + SAME)
        {
            let (ways, solver) = (ways.clone(), "filter and sort");
            return Ok(Assigned { ways, proof: Proof::Optimal, bound: floor, solver, notes: Vec::new() });
        }
        let program = self.program(quick.as_ref().map(|ways| self.objective(ways)));
        let bound = || self.relaxed_bound(&program, quick.as_deref(), settings).max(floor);
        let answer = solve(&program, settings).and_then(|answer| {
            let ways = self
                .ways(&answer.values)
                .ok_or_else(|| SolveError::Failed(format!("the answer of {} violates the limits", answer.solver)))?;
            Ok((ways, answer))
        });
        match (answer, &quick) {
            (Ok((ways, answer)), quick) => {
                let objective = self.objective(&ways);
                if let Some(quick) = quick.as_ref().filter(|quick| self.objective(quick) < objective * (1.0 - 1e-6)) {
                    return Ok(fall_back(quick.clone(), bound(), PlanNote::NothingBetter { solver: answer.solver }));
                }
                let bound = if answer.proof == Proof::Optimal { objective } else { bound().min(objective) };
                let ways = self.improved(ways);
                Ok(Assigned { ways, proof: answer.proof, bound, solver: answer.solver, notes: Vec::new() })
            }
            (Err(error), Some(quick)) => {
                let why = match error {
                    SolveError::Infeasible => PlanNote::SolverMissedGreedy,
                    other => PlanNote::Greedy { why: other.to_string() },
                };
                Ok(fall_back(quick.clone(), bound(), why))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Lower bound on any assignment, from the program without integrality. For a makespan with a known solution: the
    /// largest makespan without a fractional solution, found by bisection (Lenstra, Shmoys and Tardos), where ways
    /// longer than the makespan are excluded.
    fn relaxed_bound(&self, program: &Program, known: Option<&[usize]>, settings: Settings) -> f64 {
        let whole = solve(&program.clone().relaxed(), settings).map_or(0.0, |answer| answer.objective);
        let Some(known) = known.filter(|_| !self.machines.is_empty()) else { return whole };
        let (mut low, mut high) = (whole.max(self.floor()), self.objective(known));
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(low, high);
            match solve(&self.program(Some(middle)).relaxed(), settings) {
                Err(SolveError::Infeasible) => low = middle,
                _ => high = middle,
            }
        }
        low
    }

    /// Smallest amounts by which these limits have to be exceeded while the others are kept. Minimises the sum, each in
    /// units of its own bound.
    ///
    /// # Errors
    /// Errors of [`solve`].
    pub fn excess(&self, limits: &[usize], settings: Settings) -> Result<Vec<f64>, SolveError> {
        let mut program = self.program(None);
        let first = program.variables.len();
        // Skip one row per job; the bounds follow in order.
        for (row, bound) in program.rows[self.jobs.len()..].iter_mut().zip(&self.bounds) {
            if let Some(place) = limits.iter().position(|limit| *limit == bound.limit) {
                row.terms.push((first + place, -1.0));
            }
        }
        program.objective.clear();
        for (place, limit) in limits.iter().enumerate() {
            let rows = || self.bounds.iter().enumerate().filter(|(_, bound)| bound.limit == *limit);
            let of_all = |row: usize| {
                let most = |ways: &Vec<Way>| ways.iter().map(|way| way.used(row)).fold(0.0, f64::max);
                self.jobs.iter().map(most).sum::<f64>()
            };
            let upper = rows().map(|(row, _)| of_all(row)).fold(0.0, f64::max);
            program.variables.push(Variable { upper, integer: false });
            let size = rows().map(|(_, bound)| bound.most).fold(0.0, f64::max);
            program.objective.push((first + place, if size > 0.0 { 1.0 / size } else { 1.0 }));
        }
        let answer = solve(&program, settings)?;
        Ok(answer.values[first..].to_vec())
    }

    /// Cost in dollars, or the makespan in hours.
    pub fn objective(&self, ways: &[usize]) -> f64 {
        self.value(ways)[0]
    }

    /// Whether all bounds are kept.
    pub fn fits(&self, ways: &[usize]) -> bool {
        let mut used = vec![0.0; self.bounds.len()];
        for (row, amount) in self.chosen(ways).flat_map(|way| &way.uses) {
            used[*row] += amount;
        }
        used.iter().zip(&self.bounds).all(|(used, bound)| *used <= bound.most * (1.0 + SAME))
    }

    /// The program. Variable `i` selects way `i`, counted over all jobs; with machines, the makespan is the last
    /// variable. `at_most`: a known makespan.
    pub(crate) fn program(&self, at_most: Option<f64>) -> Program {
        let mut program = Program::default();
        let mut bounds: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.bounds.len()];
        let mut loads: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.machines.len()];
        let rank = self.ranks();
        let copy = self.copies();
        let slow = at_most.filter(|_| !self.machines.is_empty()).unwrap_or(f64::INFINITY) * SLACK;
        let mut costs = Vec::new();
        for (job, ways) in self.jobs.iter().enumerate() {
            let mut one = Vec::new();
            for way in ways {
                let i = program.variables.len();
                let is_needed = way.hours <= slow && way.machine.is_none_or(|machine| copy[machine] <= rank[job]);
                program.variables.push(Variable { upper: f64::from(is_needed), integer: true });
                one.push((i, 1.0));
                costs.push((i, way.cost));
                for (row, amount) in &way.uses {
                    bounds[*row].push((i, *amount));
                }
                if let Some(machine) = way.machine {
                    loads[machine].push((i, way.hours));
                }
            }
            program.row(one, Relation::Equal, 1.0);
        }
        for (terms, bound) in bounds.into_iter().zip(&self.bounds) {
            program.row(terms, Relation::AtMost, bound.most);
        }
        program.objective = costs;
        if !self.machines.is_empty() {
            let makespan = program.variables.len();
            let longest = |ways: &Vec<Way>| ways.iter().map(|way| way.hours).fold(0.0, f64::max);
            let upper = at_most.unwrap_or_else(|| self.jobs.iter().map(longest).sum());
            program.variables.push(Variable { upper: upper * SLACK, integer: false });
            for mut terms in loads {
                // A machine has at most one (two) ways longer than a half (a third) of the makespan.
                for parts in [1.0, 2.0] {
                    let is_long = |(i, hours): &(usize, f64)| {
                        let longer = *hours > slow / (parts + 1.0) && program.variables[*i].upper > 0.0;
                        longer.then_some((*i, 1.0))
                    };
                    let long: Vec<(usize, f64)> = terms.iter().filter_map(is_long).collect();
                    if long.len() as f64 > parts {
                        program.row(long, Relation::AtMost, parts);
                    }
                }
                terms.push((makespan, -1.0));
                program.row(terms, Relation::AtMost, 0.0);
            }
            program.row(vec![(makespan, 1.0)], Relation::AtLeast, self.floor());
            program.objective = vec![(makespan, 1.0)];
        }
        program
    }

    /// Lower bound on any assignment from each job alone: its cheapest or fastest way.
    fn floor(&self) -> f64 {
        let least =
            |of: fn(&Way) -> f64| self.jobs.iter().map(move |ways| ways.iter().map(of).fold(f64::INFINITY, f64::min));
        if self.machines.is_empty() { least(|way| way.cost).sum() } else { least(|way| way.hours).fold(0.0, f64::max) }
    }

    /// Rank of each job by length, longest first.
    fn ranks(&self) -> Vec<usize> {
        let mut ranks = vec![0; self.jobs.len()];
        for (rank, job) in self.longest_first().into_iter().enumerate() {
            ranks[job] = rank;
        }
        ranks
    }

    fn longest_first(&self) -> Vec<usize> {
        let least = |job: &usize| self.jobs[*job].iter().map(|way| way.hours).fold(f64::INFINITY, f64::min);
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        order.sort_by(|a, b| least(b).total_cmp(&least(a)));
        order
    }

    /// Index of each machine among those of its kind.
    fn copies(&self) -> Vec<usize> {
        let earlier = |m: usize| self.machines[..m].iter().filter(|kind| **kind == self.machines[m]).count();
        (0..self.machines.len()).map(earlier).collect()
    }

    fn chosen<'a>(&'a self, ways: &'a [usize]) -> impl Iterator<Item = &'a Way> {
        self.jobs.iter().zip(ways).map(|(of_job, way)| &of_job[*way])
    }

    /// Objective, then a tie-breaker that keeps a search moving: cost and hours, or makespan and the sum of squared
    /// loads.
    fn value(&self, ways: &[usize]) -> [f64; 2] {
        if self.machines.is_empty() {
            return self.chosen(ways).fold([0.0; 2], |sum, way| [sum[0] + way.cost, sum[1] + way.hours]);
        }
        let loads = self.loads(ways);
        [loads.iter().copied().fold(0.0, f64::max), loads.iter().map(|load| load * load).sum()]
    }

    fn loads(&self, ways: &[usize]) -> Vec<f64> {
        let mut loads = vec![0.0; self.machines.len()];
        for way in self.chosen(ways) {
            if let Some(machine) = way.machine {
                loads[machine] += way.hours;
            }
        }
        loads
    }

    /// Ways selected by the solver's values; `None` if they are not an assignment within the bounds.
    fn ways(&self, values: &[f64]) -> Option<Vec<usize>> {
        let mut first = 0;
        let mut ways = Vec::with_capacity(self.jobs.len());
        for of_job in &self.jobs {
            let taken: Vec<usize> = (0..of_job.len()).filter(|way| values[first + way] > 0.5).collect();
            let [way] = taken[..] else { return None };
            ways.push(way);
            first += of_job.len();
        }
        self.fits(&ways).then_some(ways)
    }

    /// Greedy assignment without the solver: the longest job first to the machine that finishes it earliest (LPT,
    /// Graham 1969), or the job first that loses most without its cheapest way; then improving moves of one job and
    /// swaps of two.
    fn quick(&self) -> Option<Vec<usize>> {
        let mut by_regret: Vec<usize> = (0..self.jobs.len()).collect();
        by_regret.sort_by(|a, b| self.regret(*b).total_cmp(&self.regret(*a)));
        let found = [by_regret, self.longest_first()].into_iter().filter_map(|order| self.in_order(&order));
        let found =
            found.map(|ways| self.improved(ways)).min_by(|a, b| self.objective(a).total_cmp(&self.objective(b)))?;
        Some(if self.machines.is_empty() { found } else { self.kicked(found) })
    }

    /// Iterated local search (Lourenço, Martin and Stützle 2003): reassigns a few jobs, searches locally from there,
    /// and keeps the result if it is better. Deterministic.
    fn kicked(&self, mut best: Vec<usize>) -> Vec<usize> {
        let mut random = Random::new(1);
        let jobs = self.jobs.len();
        let all: usize = self.jobs.iter().map(Vec::len).sum();
        let mut value = self.value(&best);
        let floor = self.floor() * (1.0 + SAME);
        for _ in 0..(WORK / (all * all).max(1)).clamp(1, KICKS) {
            if value[0] <= floor {
                break;
            }
            let mut ways = best.clone();
            for _ in 0..KICKED {
                let job = random.below(jobs);
                ways[job] = random.below(self.jobs[job].len());
            }
            if !self.fits(&ways) {
                continue;
            }
            ways = self.improved(ways);
            let now = self.value(&ways);
            if now[0] < value[0] * (1.0 - GAIN) || (now[0] <= value[0] && now[1] < value[1]) {
                (best, value) = (ways, now);
            }
        }
        best
    }

    /// Loss of a job if it has to use its second best way.
    fn regret(&self, job: usize) -> f64 {
        let own = |way: &Way| if self.machines.is_empty() { way.cost } else { way.hours };
        let mut all: Vec<f64> = self.jobs[job].iter().map(own).collect();
        all.sort_by(f64::total_cmp);
        all.get(1).map_or(f64::INFINITY, |second| second - all[0])
    }

    fn in_order(&self, order: &[usize]) -> Option<Vec<usize>> {
        let mut ways = vec![0; self.jobs.len()];
        let mut left: Vec<f64> = self.bounds.iter().map(|bound| bound.most * (1.0 + SAME)).collect();
        let mut loads = vec![0.0; self.machines.len()];
        for job in order {
            let of_job = &self.jobs[*job];
            let value = |way: &Way| way.machine.map_or(way.cost, |machine| loads[machine] + way.hours);
            let fits = |way: &Way| way.uses.iter().all(|(row, amount)| *amount <= left[*row]);
            let best = (0..of_job.len())
                .filter(|way| fits(&of_job[*way]))
                .min_by(|a, b| value(&of_job[*a]).total_cmp(&value(&of_job[*b])))?;
            ways[*job] = best;
            for (row, amount) in &of_job[best].uses {
                left[*row] -= amount;
            }
            if let Some(machine) = of_job[best].machine {
                loads[machine] += of_job[best].hours;
            }
        }
        Some(ways)
    }

    /// Local search by moves of one job and swaps of two jobs between machines.
    fn improved(&self, ways: Vec<usize>) -> Vec<usize> {
        let mut search = Search::new(self, ways);
        for _ in 0..SWEEPS {
            let before = search.value;
            for job in 0..self.jobs.len() {
                for way in 0..self.jobs[job].len() {
                    search.try_moves(&[(job, way)]);
                }
                for other in job + 1..self.jobs.len() {
                    let on = |of: usize, like: usize, ways: &[usize]| {
                        let machine = self.jobs[like][ways[like]].machine?;
                        self.jobs[of].iter().position(|way| way.machine == Some(machine))
                    };
                    if let (Some(own), Some(others)) = (on(job, other, &search.ways), on(other, job, &search.ways)) {
                        search.try_moves(&[(job, own), (other, others)]);
                    }
                }
            }
            if search.value == before {
                break;
            }
            // Recompute the sums, which collect rounding errors over many moves.
            search = Search::new(self, search.ways);
        }
        search.ways
    }
}

/// An assignment with its sums, which a move updates incrementally.
struct Search<'a> {
    of: &'a Assignment,
    ways: Vec<usize>,
    value: [f64; 2],
    /// Dollars and hours of all jobs, if machines are rented.
    sums: [f64; 2],
    /// Hours of each machine.
    loads: Vec<f64>,
    /// Amount used of each bound.
    used: Vec<f64>,
}

impl<'a> Search<'a> {
    fn new(of: &'a Assignment, ways: Vec<usize>) -> Self {
        let none = (vec![0.0; of.machines.len()], vec![0.0; of.bounds.len()]);
        let mut search = Self { of, ways: Vec::new(), value: [0.0; 2], sums: [0.0; 2], loads: none.0, used: none.1 };
        for (job, way) in ways.iter().enumerate() {
            search.add((job, *way), 1.0);
        }
        search.ways = ways;
        search.value = search.value();
        search
    }

    /// Adds a job's way to the sums, or subtracts it (`times` = -1).
    fn add(&mut self, (job, way): (usize, usize), times: f64) {
        let way = &self.of.jobs[job][way];
        self.sums = [self.sums[0] + times * way.cost, self.sums[1] + times * way.hours];
        if let Some(machine) = way.machine {
            self.loads[machine] += times * way.hours;
        }
        for (row, amount) in &way.uses {
            self.used[*row] += times * amount;
        }
    }

    /// Same as [`Assignment::value`].
    fn value(&self) -> [f64; 2] {
        if self.of.machines.is_empty() {
            return self.sums;
        }
        let loads = self.loads.iter().copied();
        [loads.clone().fold(0.0, f64::max), loads.map(|load| load * load).sum()]
    }

    /// Makes the moves if they improve the value and keep all bounds.
    fn try_moves(&mut self, moves: &[(usize, usize)]) {
        let before: Vec<(usize, usize)> = moves.iter().map(|(job, _)| (*job, self.ways[*job])).collect();
        self.replace(&before, moves);
        let (now, value) = (self.value(), self.value);
        let less = |place: usize| now[place] < value[place] * (1.0 - GAIN);
        let gains = less(0) || (now[0] <= value[0] && less(1));
        let fits = || self.used.iter().zip(&self.of.bounds).all(|(used, bound)| *used <= bound.most * (1.0 + SAME));
        if gains && fits() {
            self.value = now;
        } else {
            self.replace(moves, &before);
        }
    }

    fn replace(&mut self, old: &[(usize, usize)], new: &[(usize, usize)]) {
        for of_job in old {
            self.add(*of_job, -1.0);
        }
        for of_job in new {
            self.add(*of_job, 1.0);
            self.ways[of_job.0] = of_job.1;
        }
    }
}

impl Way {
    /// Amount used of a bound.
    fn used(&self, row: usize) -> f64 {
        self.uses.iter().filter(|(of, _)| *of == row).map(|(_, amount)| amount).sum()
    }
}

fn fall_back(ways: Vec<usize>, bound: f64, why: PlanNote) -> Assigned {
    Assigned { ways, proof: Proof::Time, bound, solver: "greedy", notes: vec![why] }
}
