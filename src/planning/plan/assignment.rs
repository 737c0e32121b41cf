//! Assignment of several jobs to offers or machines within shared limits, as an integer linear program.
//!
//! | row | formula |
//! | --- | --- |
//! | one mode | Σ y = 1 over the modes of a job |
//! | shared limit | Σ u·y ≤ B: dollars, dollars per hour, GPUs at once, or hours until a deadline |
//! | load | Σ p·y ≤ T over the modes on a machine |
//!
//! with y ∈ {0, 1} for each mode. If machines are rented, the program minimises the cost Σ c·y; with given machines, it
//! minimises the makespan T, the load of the busiest machine (unrelated parallel machines, R‖Cmax; Lenstra, Shmoys and
//! Tardos 1990; for jobs on a cluster of GPUs Li et al., MICRO 2023). Jobs on one machine run in order of their
//! deadlines. All of them are in time if and only if, for each deadline d, the jobs due by d take at most d hours
//! together (Jackson 1955), which is a row of the program.
//!
//! Machines of a kind are interchangeable, so the k-th longest job may only use the first k machines of a kind.

use super::PlanNote;
use super::problem::{Program, RELATIVE_TOLERANCE, Relation, Variable};
use super::solve::{Proof, Settings, SolveError, solve};

/// Factor on a known makespan, to allow for the solver's rounding.
const SLACK: f64 = 1.0 + 1e-6;
/// Maximum number of modes of all jobs for the integer program.
const MAX_MODES: usize = 3000;
/// Terms of deadlines up to which it is solved.
const MOST_TERMS: usize = 30_000;

/// One mode to run a job: a configuration, or a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Mode {
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
    /// Maximum for all chosen modes together.
    pub most: f64,
    /// Limit that the bound belongs to; bounds of one limit are relaxed together.
    pub limit: usize,
}

/// Jobs with their possible modes, and the shared bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Assignment {
    /// Possible modes of each job.
    pub jobs: Vec<Vec<Mode>>,
    /// Shared bounds.
    pub bounds: Vec<Bound>,
    /// Kind of each machine. If empty, machines are rented and the cost is minimised; otherwise the makespan.
    pub machines: Vec<usize>,
    /// Deadline of each job on machines, in hours; infinite without one. Empty if machines are rented.
    pub due: Vec<f64>,
}

/// A chosen mode for each job, and its quality.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// Chosen mode of each job.
    pub modes: Vec<usize>,
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
    /// Finds the best mode for each job.
    ///
    /// # Errors
    /// [`SolveError`], which distinguishes infeasibility from lack of time. If the solver fails or the program is too
    /// large for it, returns the solution of the search without it, with a note if it failed.
    pub fn best(&self, settings: Settings) -> Result<Assigned, SolveError> {
        let quick = self.quick(settings);
        let floor = self.floor();
        let at = |modes: &Vec<usize>| self.objective(modes);
        if let Some(modes) = quick.as_ref().filter(|modes| at(modes) <= floor * (1.0 + RELATIVE_TOLERANCE)) {
            let (modes, solver) = (modes.clone(), "filter and sort");
            return Ok(Assigned { modes, proof: Proof::Optimal, bound: floor, solver, notes: Vec::new() });
        }
        if !self.has_program() {
            let modes = quick.ok_or(SolveError::OutOfTime)?;
            let bound = self.relaxed_bound(&modes).max(floor);
            let proof = if at(&modes) <= bound * (1.0 + RELATIVE_TOLERANCE) { Proof::Optimal } else { Proof::Gap };
            return Ok(Assigned { modes, proof, bound, solver: "local search", notes: Vec::new() });
        }
        let program = self.program(quick.as_ref().map(at));
        let bound = |modes: &Vec<usize>| {
            if !self.machines.is_empty() {
                return self.relaxed_bound(modes).max(floor);
            }
            solve(&program.clone().relaxed(), settings).map_or(floor, |answer| answer.objective.max(floor))
        };
        let answer = solve(&program, settings).and_then(|answer| {
            let modes = self
                .modes(&answer.values)
                .ok_or_else(|| SolveError::Failed(format!("the answer of {} violates the limits", answer.solver)))?;
            Ok((modes, answer))
        });
        match (answer, quick) {
            (Ok((modes, answer)), quick) => {
                let objective = self.objective(&modes);
                if let Some(quick) = quick.filter(|quick| at(quick) < objective * (1.0 - 1e-6)) {
                    let bound = bound(&quick);
                    return Ok(fall_back(quick, bound, PlanNote::NothingBetter { solver: answer.solver }));
                }
                let bound = if answer.proof == Proof::Optimal { objective } else { bound(&modes).min(objective) };
                Ok(Assigned { modes, proof: answer.proof, bound, solver: answer.solver, notes: Vec::new() })
            }
            (Err(error), Some(quick)) => {
                let why = match error {
                    SolveError::Infeasible => PlanNote::SolverMissedGreedy,
                    other => PlanNote::Greedy { why: other.to_string() },
                };
                let bound = bound(&quick);
                Ok(fall_back(quick, bound, why))
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Whether the integer program is small enough to solve.
    pub(super) fn has_program(&self) -> bool {
        let modes = self.jobs.iter().map(Vec::len).sum::<usize>();
        // Each deadline is a row on each machine, with terms for most modes.
        let deadlines =
            if self.machines.is_empty() { 0 } else { self.due.iter().filter(|due| due.is_finite()).count() };
        modes <= MAX_MODES && modes * deadlines <= MOST_TERMS
    }

    /// Shared bounds with their terms. Variable `i` selects mode `i`, counted over all jobs. On machines, one bound per
    /// machine for each deadline.
    fn rows(&self) -> Vec<(Bound, Vec<(usize, f64)>)> {
        let mut rows: Vec<(Bound, Vec<(usize, f64)>)> = self.bounds.iter().map(|bound| (*bound, Vec::new())).collect();
        let mut deadlines: Vec<f64> = self.due.iter().copied().filter(|due| due.is_finite()).collect();
        deadlines.sort_by(f64::total_cmp);
        deadlines.dedup();
        let machines = self.machines.len();
        for (limit, most) in deadlines.iter().enumerate() {
            rows.extend((0..machines).map(|_| (Bound { most: *most, limit }, Vec::new())));
        }
        let mut variable = 0;
        for (job, modes) in self.jobs.iter().enumerate() {
            let first = self.due.get(job).map_or(0, |due| deadlines.partition_point(|other| other < due));
            for mode in modes {
                for (row, amount) in &mode.uses {
                    rows[*row].1.push((variable, *amount));
                }
                if let Some(machine) = mode.machine {
                    for number in first..deadlines.len() {
                        rows[number * machines + machine].1.push((variable, mode.hours));
                    }
                }
                variable += 1;
            }
        }
        rows
    }

    /// Smallest amounts by which these limits have to be exceeded while the others are kept. Minimises the sum, each in
    /// units of its own bound.
    ///
    /// # Errors
    /// Errors of [`solve`].
    pub fn excess(&self, limits: &[usize], settings: Settings) -> Result<Vec<f64>, SolveError> {
        let mut program = self.program(None);
        let first = program.variables.len();
        let rows = self.rows();
        // Skip one row per job; the bounds follow in order.
        for (row, (bound, _)) in program.rows[self.jobs.len()..].iter_mut().zip(&rows) {
            if let Some(place) = limits.iter().position(|limit| *limit == bound.limit) {
                row.terms.push((first + place, -1.0));
            }
        }
        program.objective.clear();
        for (place, limit) in limits.iter().enumerate() {
            let of_limit = || rows.iter().filter(|(bound, _)| bound.limit == *limit);
            let all = |terms: &Vec<(usize, f64)>| terms.iter().map(|(_, amount)| amount).sum::<f64>();
            let upper = of_limit().map(|(_, terms)| all(terms)).fold(0.0, f64::max);
            program.variables.push(Variable { upper, integer: false });
            let size = of_limit().map(|(bound, _)| bound.most).fold(0.0, f64::max);
            program.objective.push((first + place, if size > 0.0 { 1.0 / size } else { 1.0 }));
        }
        let answer = solve(&program, settings)?;
        Ok(answer.values[first..].to_vec())
    }

    /// Cost in dollars, or the makespan in hours.
    pub fn objective(&self, modes: &[usize]) -> f64 {
        let chosen = self.jobs.iter().zip(modes).map(|(of_job, mode)| &of_job[*mode]);
        if self.machines.is_empty() {
            return chosen.map(|mode| mode.cost).sum();
        }
        let mut loads = vec![0.0; self.machines.len()];
        for mode in chosen {
            if let Some(machine) = mode.machine {
                loads[machine] += mode.hours;
            }
        }
        loads.into_iter().fold(0.0, f64::max)
    }

    /// Whether all bounds are kept.
    pub fn fits(&self, modes: &[usize]) -> bool {
        let mut first = 0;
        let mut is_taken = vec![false; self.jobs.iter().map(Vec::len).sum()];
        for (of_job, mode) in self.jobs.iter().zip(modes) {
            is_taken[first + mode] = true;
            first += of_job.len();
        }
        let used = |terms: &Vec<(usize, f64)>| -> f64 {
            terms.iter().filter(|(variable, _)| is_taken[*variable]).map(|(_, amount)| amount).sum()
        };
        self.rows().iter().all(|(bound, terms)| used(terms) <= bound.most * (1.0 + RELATIVE_TOLERANCE))
    }

    /// The program. Variable `i` selects mode `i`, counted over all jobs; with machines, the makespan is the last
    /// variable. `at_most`: a known makespan.
    pub(crate) fn program(&self, at_most: Option<f64>) -> Program {
        let mut program = Program::default();
        let mut loads: Vec<Vec<(usize, f64)>> = vec![Vec::new(); self.machines.len()];
        let rank = self.ranks();
        let copy = self.copies();
        let slow = at_most.filter(|_| !self.machines.is_empty()).unwrap_or(f64::INFINITY) * SLACK;
        let mut costs = Vec::new();
        for (job, modes) in self.jobs.iter().enumerate() {
            let mut one = Vec::new();
            for mode in modes {
                let i = program.variables.len();
                let is_needed = mode.hours <= slow && mode.machine.is_none_or(|machine| copy[machine] <= rank[job]);
                program.variables.push(Variable { upper: f64::from(is_needed), integer: true });
                one.push((i, 1.0));
                costs.push((i, mode.cost));
                if let Some(machine) = mode.machine {
                    loads[machine].push((i, mode.hours));
                }
            }
            program.row(one, Relation::Equal, 1.0);
        }
        for (bound, terms) in self.rows() {
            program.row(terms, Relation::AtMost, bound.most);
        }
        program.objective = costs;
        if !self.machines.is_empty() {
            let makespan = program.variables.len();
            let longest = |modes: &Vec<Mode>| modes.iter().map(|mode| mode.hours).fold(0.0, f64::max);
            let upper = at_most.unwrap_or_else(|| self.jobs.iter().map(longest).sum());
            program.variables.push(Variable { upper: upper * SLACK, integer: false });
            for mut terms in loads {
                // A machine has at most one (two) modes longer than a half (a third) of the makespan.
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

    /// Lower bound on any assignment from each job alone: its cheapest or fastest mode.
    pub(super) fn floor(&self) -> f64 {
        let least = |of: fn(&Mode) -> f64| {
            self.jobs.iter().map(move |modes| modes.iter().map(of).fold(f64::INFINITY, f64::min))
        };
        if self.machines.is_empty() {
            least(|mode| mode.cost).sum()
        } else {
            least(|mode| mode.hours).fold(0.0, f64::max)
        }
    }

    /// Rank of each job by length, longest first.
    fn ranks(&self) -> Vec<usize> {
        let mut ranks = vec![0; self.jobs.len()];
        for (rank, job) in self.longest_first().into_iter().enumerate() {
            ranks[job] = rank;
        }
        ranks
    }

    pub(super) fn longest_first(&self) -> Vec<usize> {
        let least = |job: &usize| self.jobs[*job].iter().map(|mode| mode.hours).fold(f64::INFINITY, f64::min);
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        order.sort_by(|a, b| least(b).total_cmp(&least(a)));
        order
    }

    /// Index of each machine among those of its kind.
    fn copies(&self) -> Vec<usize> {
        let earlier = |m: usize| self.machines[..m].iter().filter(|kind| **kind == self.machines[m]).count();
        (0..self.machines.len()).map(earlier).collect()
    }

    /// Ways selected by the solver's values; `None` if they are not an assignment within the bounds.
    fn modes(&self, values: &[f64]) -> Option<Vec<usize>> {
        let mut first = 0;
        let mut modes = Vec::with_capacity(self.jobs.len());
        for of_job in &self.jobs {
            let taken: Vec<usize> = (0..of_job.len()).filter(|mode| values[first + mode] > 0.5).collect();
            let [mode] = taken[..] else { return None };
            modes.push(mode);
            first += of_job.len();
        }
        self.fits(&modes).then_some(modes)
    }

    /// Assignment without the solver: by search on machines; for rented jobs, the job first that loses most without its
    /// cheapest mode.
    fn quick(&self, settings: Settings) -> Option<Vec<usize>> {
        if !self.machines.is_empty() {
            return self.searched(settings.seconds);
        }
        let mut order: Vec<usize> = (0..self.jobs.len()).collect();
        order.sort_by(|a, b| self.regret(*b).total_cmp(&self.regret(*a)));
        let mut modes = vec![0; self.jobs.len()];
        let mut left: Vec<f64> = self.bounds.iter().map(|bound| bound.most * (1.0 + RELATIVE_TOLERANCE)).collect();
        for job in order {
            let of_job = &self.jobs[job];
            let fits = |mode: &Mode| mode.uses.iter().all(|(row, amount)| *amount <= left[*row]);
            let best = (0..of_job.len())
                .filter(|mode| fits(&of_job[*mode]))
                .min_by(|a, b| of_job[*a].cost.total_cmp(&of_job[*b].cost))?;
            modes[job] = best;
            for (row, amount) in &of_job[best].uses {
                left[*row] -= amount;
            }
        }
        Some(modes)
    }

    /// Loss of a job if it has to use its second best mode.
    fn regret(&self, job: usize) -> f64 {
        let mut all: Vec<f64> = self.jobs[job].iter().map(|mode| mode.cost).collect();
        all.sort_by(f64::total_cmp);
        all.get(1).map_or(f64::INFINITY, |second| second - all[0])
    }
}

fn fall_back(modes: Vec<usize>, bound: f64, why: PlanNote) -> Assigned {
    Assigned { modes, proof: Proof::Time, bound, solver: "greedy", notes: vec![why] }
}
