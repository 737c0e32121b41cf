//! Best hours of each choice: by filter and sort for one part, with the solver for several.
//!
//! Objectives are lexicographic. Solves run in sequence, with earlier values as rows rather than weights:
//!
//! | objective | first | then | then |
//! | --- | --- | --- | --- |
//! | cost | cost | earliest finish | fewest parts |
//! | time | finish | lowest cost | fewest parts |
//! | cost plus time | their sum | earliest finish | fewest parts |
//! | CO2 | emissions | lowest cost | fewest parts |
//!
//! A later aim never worsens an earlier one by more than a relative 1e-9. The first value is the true optimum, so it
//! can be compared between solves.

use super::PlanNote;
use super::goal::Objective;
use super::problem::{Aim, Choice, Limit, Problem, RELATIVE_TOLERANCE};
use super::solve::{Proof, Settings, SolveError, solve};

/// Relative gain of a later aim that counts as a better plan; smaller gains may come from the tolerance of the row
/// before.
const GAIN: f64 = 1e-6;

/// Useful hours per choice, and the quality of the solution.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// Choices with their useful hours, in the order of the choices.
    pub hours: Vec<(usize, f64)>,
    /// Quality of the solution.
    pub proof: Proof,
    /// Relative distance to the bound of the relaxed program, unless proven optimal.
    pub gap: Option<f64>,
    /// Name of the solver.
    pub solver: &'static str,
    /// Fallbacks.
    pub notes: Vec<PlanNote>,
}

/// Finds the best plan for an objective within the limits; `None` if none exists.
///
/// Uses filter and sort for one part, and the solver for several. If the solver fails or is worse than the best single
/// choice, falls back to that choice with a note.
pub fn best(problem: &Problem, objective: Objective, limit: &Limit) -> Option<Solution> {
    let single = best_single(problem, objective, limit);
    if problem.max_parts <= 1 {
        return single;
    }
    match solve_in_sequence(problem, objective, limit) {
        Ok(found) => match single {
            Some(single) if worse(problem, objective, &found, &single) => {
                Some(fall_back(single, PlanNote::WorseParts { solver: found.solver }))
            }
            _ => Some(found),
        },
        // The single choice disproves the solver's result.
        Err(SolveError::Infeasible) => single.map(|single| fall_back(single, PlanNote::SolverMissedOffer)),
        Err(error) => single.map(|single| fall_back(single, PlanNote::PartsNotSearched { why: error.to_string() })),
    }
}

/// Finds the best single choice that does all the work, by filter and sort.
pub(crate) fn best_single(problem: &Problem, objective: Objective, limit: &Limit) -> Option<Solution> {
    let [first, second, _] = aims(objective);
    let mut wholes: Vec<(usize, f64, f64)> = problem
        .choices
        .iter()
        .enumerate()
        .filter_map(|(c, choice)| within(problem, c, choice, limit))
        .map(|found| (found[0].0, problem.value(first, &found), problem.value(second, &found)))
        .collect();
    let lowest = wholes.iter().map(|(_, value, _)| *value).min_by(f64::total_cmp)?;
    wholes.retain(|(_, value, _)| *value <= lowest * (1.0 + RELATIVE_TOLERANCE));
    let (choice, ..) = wholes.into_iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let hours = vec![(choice, problem.work / problem.choices[choice].rate)];
    Some(Solution { hours, proof: Proof::Optimal, gap: None, solver: "filter and sort", notes: Vec::new() })
}

/// Maximum work within the limits.
///
/// # Errors
/// Errors of [`solve`].
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

/// Aims in order of importance.
pub(crate) fn aims(objective: Objective) -> [Aim; 3] {
    match objective {
        Objective::Cost => [Aim::Cost, Aim::Finish, Aim::Parts],
        Objective::Time => [Aim::Finish, Aim::Cost, Aim::Parts],
        Objective::CostPlusTime(worth) => [Aim::Weighted(worth.get()), Aim::Finish, Aim::Parts],
        Objective::Emissions => [Aim::Emissions, Aim::Cost, Aim::Parts],
    }
}

/// Solves for each aim in turn, with the earlier values as rows.
///
/// # Errors
/// Errors of [`solve`] for the first aim. If a later one fails, the previous plan is kept.
pub fn solve_in_sequence(problem: &Problem, objective: Objective, limit: &Limit) -> Result<Solution, SolveError> {
    let aims = aims(objective);
    let mut limit = limit.clone();
    let mut found = solve_one(problem, aims[0], &limit)?;
    for (stage, aim) in aims.into_iter().enumerate().skip(1) {
        let before = aims[stage - 1];
        limit.ceilings.push((before, problem.value(before, &found.hours) * (1.0 + RELATIVE_TOLERANCE)));
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

/// Solves once, rounds the binaries and scales the hours to the exact work.
///
/// # Errors
/// Errors of [`solve`].
pub fn solve_one(problem: &Problem, aim: Aim, limit: &Limit) -> Result<Solution, SolveError> {
    let program = problem.program(aim, limit);
    let answer = solve(&program, Settings::default())?;
    let n = problem.choices.len();
    let used =
        |c: usize| answer.values[c] > 0.5 && answer.values[n + c] > RELATIVE_TOLERANCE * program.variables[n + c].upper;
    let mut hours: Vec<(usize, f64)> = (0..n).filter(|c| used(*c)).map(|c| (c, answer.values[n + c])).collect();
    let done = problem.value(Aim::Work, &hours);
    // Rounding must not drop a part with some of the work.
    if (done / problem.work - 1.0).abs() > GAIN {
        return Err(SolveError::Failed(format!("the plan covers only {done} of {} samples", problem.work)));
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
    Ok(Solution { hours, proof: answer.proof, gap, solver: answer.solver, notes: Vec::new() })
}

/// The choice with all the work, if that is within the limits.
fn within(problem: &Problem, c: usize, choice: &Choice, limit: &Limit) -> Option<Vec<(usize, f64)>> {
    choice.whole(problem.work)?;
    let hours = vec![(c, problem.work / choice.rate)];
    let keeps = |aim: Aim, bound: f64| problem.value(aim, &hours) <= bound * (1.0 + RELATIVE_TOLERANCE);
    (limit.deadline.is_none_or(|deadline| keeps(Aim::Finish, deadline))
        && limit.budget.is_none_or(|budget| keeps(Aim::Cost, budget))
        && problem.keeps_emissions(&hours)
        && limit.ceilings.iter().all(|(aim, ceiling)| keeps(*aim, *ceiling)))
    .then_some(hours)
}

fn worse(problem: &Problem, objective: Objective, found: &Solution, single: &Solution) -> bool {
    let aim = aims(objective)[0];
    problem.value(aim, &found.hours) > problem.value(aim, &single.hours) * (1.0 + GAIN)
}

fn fall_back(mut single: Solution, why: PlanNote) -> Solution {
    single.notes.push(why);
    single.proof = Proof::Time;
    single
}
