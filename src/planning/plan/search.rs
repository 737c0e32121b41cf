//! The best hours of each choice: filter and sort for one part, the solver for more.
//!
//! Objectives are lexicographic (planner note B4), by solving in sequence with the earlier
//! value as a row, not by weights:
//!
//! | objective | first | then | then |
//! | --- | --- | --- | --- |
//! | cost | cost | earliest finish | fewest parts |
//! | time | finish | lowest cost | fewest parts |
//! | cost plus time | their sum | earliest finish | fewest parts |
//! | CO2 | emissions | lowest cost | fewest parts |
//!
//! A later aim never trades away more than a relative 1e-9 of an earlier one: the first value is
//! the true optimum, so it can be compared between solves.

use super::goal::Objective;
use super::problem::{Aim, Choice, Limit, Problem};
use super::solve::{Proof, Settings, SolveError, solve};

/// Relative difference below which two values are the same.
pub(crate) const SAME: f64 = 1e-9;
/// Relative gain of a later aim below which it is the tolerance of the row before that
/// was used up, not a better plan.
const GAIN: f64 = 1e-6;

/// Useful hours by choice, and how good they are known to be.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Choice and its useful hours, in the order of the choices.
    pub hours: Vec<(usize, f64)>,
    /// How good it is.
    pub proof: Proof,
    /// Relative distance to the bound of the relaxed program, where not proved.
    pub gap: Option<f64>,
    /// What answered.
    pub solver: &'static str,
    /// Fall-backs taken.
    pub notes: Vec<String>,
}

/// The best plan for an objective within the limits; `None` where there is none.
///
/// One part is found by filter and sort. More parts are the solver's, compared with the
/// best single choice, which is used (with a note) where the solver fails or is worse.
pub fn best(problem: &Problem, objective: Objective, limit: &Limit) -> Option<Found> {
    let single = best_single(problem, objective, limit);
    if problem.max_parts <= 1 {
        return single;
    }
    match solve_in_sequence(problem, objective, limit) {
        Ok(found) => match single {
            Some(single) if worse(problem, objective, &found, &single) => {
                let why = format!("{} gave a plan of several parts that is worse", found.solver);
                Some(fall_back(single, &why))
            }
            _ => Some(found),
        },
        // A single choice is itself proof that the verdict is wrong.
        Err(SolveError::Infeasible) => {
            single.map(|single| fall_back(single, "the solver found no plan, although this offer alone is one"))
        }
        Err(error) => {
            let why = format!("plans of several parts were not searched: {error}");
            single.map(|single| fall_back(single, &why))
        }
    }
}

/// The best single choice that does all the work, by filter and sort.
pub fn best_single(problem: &Problem, objective: Objective, limit: &Limit) -> Option<Found> {
    let [first, second, _] = aims(objective);
    let mut wholes: Vec<(usize, f64, f64)> = problem
        .choices
        .iter()
        .enumerate()
        .filter_map(|(c, choice)| within(problem, c, choice, limit))
        .map(|found| (found[0].0, problem.value(first, &found), problem.value(second, &found)))
        .collect();
    let lowest = wholes.iter().map(|(_, value, _)| *value).min_by(f64::total_cmp)?;
    wholes.retain(|(_, value, _)| *value <= lowest * (1.0 + SAME));
    let (choice, ..) = wholes.into_iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let hours = vec![(choice, problem.work / problem.choices[choice].rate)];
    Some(Found { hours, proof: Proof::Optimal, gap: None, solver: "filter and sort", notes: Vec::new() })
}

/// The most work that the limits allow.
///
/// # Errors
/// As [`solve`].
pub fn most_work(problem: &Problem, limit: &Limit) -> Result<f64, SolveError> {
    if problem.max_parts > 1 {
        return solve(&problem.program(Aim::Work, limit), Settings::default()).map(|answer| -answer.objective);
    }
    let most = problem.choices.iter().map(|choice| {
        let once = choice.hours_once + choice.hours_shared;
        let in_time = limit.deadline.map(|deadline| ((deadline - once) / choice.hours).max(0.0));
        let paid = limit.budget.map(|budget| choice.hours_for(budget));
        let emitted = problem.most_kg.map(|most| choice.hours_emitting(most));
        let useful = [in_time, paid, emitted].into_iter().flatten().fold(choice.most_hours, f64::min);
        (useful * choice.rate).min(problem.work)
    });
    Ok(most.fold(0.0, f64::max))
}

/// Aims in the order they count.
pub(crate) fn aims(objective: Objective) -> [Aim; 3] {
    match objective {
        Objective::Cost => [Aim::Cost, Aim::Finish, Aim::Parts],
        Objective::Time => [Aim::Finish, Aim::Cost, Aim::Parts],
        Objective::CostPlusTime(worth) => [Aim::Weighted(worth.get()), Aim::Finish, Aim::Parts],
        Objective::Emissions => [Aim::Emissions, Aim::Cost, Aim::Parts],
    }
}

/// The solver's answer alone: each aim in turn, the earlier values as rows.
///
/// # Errors
/// As [`solve`], of the first aim; a later one that fails leaves the plan before it.
pub fn solve_in_sequence(problem: &Problem, objective: Objective, limit: &Limit) -> Result<Found, SolveError> {
    let aims = aims(objective);
    let mut limit = limit.clone();
    let mut found = solve_one(problem, aims[0], &limit)?;
    for (stage, aim) in aims.into_iter().enumerate().skip(1) {
        let before = aims[stage - 1];
        limit.ceilings.push((before, problem.value(before, &found.hours) * (1.0 + SAME)));
        let now = problem.value(aim, &found.hours);
        if aim == Aim::Parts && now <= 1.0 {
            break;
        }
        if let Ok(next) = solve_one(problem, aim, &limit)
            && problem.value(aim, &next.hours) < now * (1.0 - GAIN)
        {
            found.hours = next.hours;
        }
    }
    Ok(found)
}

/// One solve, its binaries rounded and the work shared out exactly.
///
/// # Errors
/// As [`solve`].
pub fn solve_one(problem: &Problem, aim: Aim, limit: &Limit) -> Result<Found, SolveError> {
    let program = problem.program(aim, limit);
    let answer = solve(&program, Settings::default())?;
    let n = problem.choices.len();
    let used = |c: usize| answer.values[c] > 0.5 && answer.values[n + c] > SAME * program.variables[n + c].upper;
    let mut hours: Vec<(usize, f64)> = (0..n).filter(|c| used(*c)).map(|c| (c, answer.values[n + c])).collect();
    let done = problem.value(Aim::Work, &hours);
    // Rounding must not have taken away a part that did some of the work.
    if (done / problem.work - 1.0).abs() > GAIN {
        return Err(SolveError::Failed(format!("its plan does {done} of {} samples", problem.work)));
    }
    for (_, h) in &mut hours {
        *h *= problem.work / done;
    }
    let gap = match answer.proof {
        Proof::Optimal => None,
        Proof::Gap => Some(f64::from(Settings::default().gap)),
        Proof::Time => solve(&program.relaxed(), Settings::default())
            .ok()
            .map(|bound| (answer.objective - bound.objective).max(0.0) / answer.objective.abs().max(f64::MIN_POSITIVE)),
    };
    Ok(Found { hours, proof: answer.proof, gap, solver: answer.solver, notes: Vec::new() })
}

/// The choice with all the work, where it can do it within the limits.
fn within(problem: &Problem, c: usize, choice: &Choice, limit: &Limit) -> Option<Vec<(usize, f64)>> {
    choice.whole(problem.work)?;
    let hours = vec![(c, problem.work / choice.rate)];
    let keeps = |aim: Aim, bound: f64| problem.value(aim, &hours) <= bound * (1.0 + SAME);
    (limit.deadline.is_none_or(|deadline| keeps(Aim::Finish, deadline))
        && limit.budget.is_none_or(|budget| keeps(Aim::Cost, budget))
        && problem.keeps_emissions(&hours)
        && limit.ceilings.iter().all(|(aim, ceiling)| keeps(*aim, *ceiling)))
    .then_some(hours)
}

fn worse(problem: &Problem, objective: Objective, found: &Found, single: &Found) -> bool {
    let aim = aims(objective)[0];
    problem.value(aim, &found.hours) > problem.value(aim, &single.hours) * (1.0 + GAIN)
}

fn fall_back(mut single: Found, why: &str) -> Found {
    single.notes.push(format!("fell back to the best single offer: {why}"));
    single.proof = Proof::Time;
    single
}
