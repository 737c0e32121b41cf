//! Solver for a [`Program`]; the only file that uses `good_lp`.
//!
//! microlp is always available; HiGHS comes with the feature `highs` and is used if microlp runs out of time.
//! Continuous variables are scaled by their upper bounds and rows by their largest coefficients, which makes the result
//! independent of the model's units up to rounding.
//!
//! Scaled variables range up to 0.1. microlp compares with an absolute tolerance of 1e-10. With larger values, its
//! rounding error can make a program with two nearly equal choices look infeasible, as seen in about one of several
//! hundred thousand random problems at a range of 100. A result of infeasibility counts only if a second scale confirms
//! it.

use good_lp::solvers::SolutionStatus;
use good_lp::{
    Constraint, Expression, ProblemVariables, ResolutionError, Solution, Solver, SolverModel, WithMipGap,
    WithTimeLimit, variable,
};

use super::problem::{Program, Relation};

/// Ranges of a scaled continuous variable: for the first attempt and for the confirmation.
const SCALES: [f64; 2] = [0.1, 3.0];

/// Limits on one solve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Time limit in seconds.
    pub seconds: f64,
    /// Relative gap to the best possible value at which to stop; 0 = prove the optimum.
    pub gap: f32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seconds: 5.0, gap: 0.0 }
    }
}

/// Quality of a solution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Proven optimal.
    Optimal,
    /// Within the allowed gap.
    Gap,
    /// Best solution found within the time limit.
    Time,
}

/// Values of the variables.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// One value per variable; integers are rounded.
    pub values: Vec<f64>,
    /// Objective at these values.
    pub objective: f64,
    /// Quality of the solution.
    pub proof: Proof,
    /// Name of the solver.
    pub solver: &'static str,
}

/// Reason for the lack of a solution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SolveError {
    /// No values satisfy all rows.
    #[error("no values satisfy all rows")]
    Infeasible,
    /// The time limit was reached without a solution.
    #[error("the time limit was reached without a solution")]
    OutOfTime,
    /// The solver failed.
    #[error("the solver failed: {0}")]
    Failed(String),
}

/// Solves with microlp; if that runs out of time, with HiGHS if the feature is enabled.
///
/// # Errors
/// [`SolveError`], which distinguishes infeasibility from lack of time.
pub fn solve(program: &Program, settings: Settings) -> Result<Answer, SolveError> {
    let answer = solve_with_microlp(program, settings);
    #[cfg(feature = "highs")]
    if matches!(&answer, Err(SolveError::OutOfTime) | Ok(Answer { proof: Proof::Time, .. })) {
        return solve_with_highs(program, settings).or(answer);
    }
    answer
}

/// Solves with microlp.
///
/// # Errors
/// Errors of [`solve`].
pub fn solve_with_microlp(program: &Program, settings: Settings) -> Result<Answer, SolveError> {
    match run(program, settings, SCALES[0], good_lp::microlp, "microlp") {
        Err(SolveError::Infeasible) => run(program, settings, SCALES[1], good_lp::microlp, "microlp"),
        answer => answer,
    }
}

/// Solves with HiGHS.
///
/// # Errors
/// Errors of [`solve`].
#[cfg(feature = "highs")]
pub fn solve_with_highs(program: &Program, settings: Settings) -> Result<Answer, SolveError> {
    run(program, settings, 100.0, good_lp::highs, "HiGHS")
}

fn run<S>(
    program: &Program,
    settings: Settings,
    range: f64,
    solver: S,
    name: &'static str,
) -> Result<Answer, SolveError>
where
    S: Solver,
    S::Model: SolverModel<Error = ResolutionError> + WithTimeLimit + WithMipGap,
{
    let mut variables = ProblemVariables::new();
    let scales: Vec<f64> =
        program.variables.iter().map(|v| if v.integer || v.upper <= 0.0 { 1.0 } else { v.upper / range }).collect();
    let handles: Vec<_> = program
        .variables
        .iter()
        .zip(&scales)
        .map(|(v, scale)| {
            let definition = variable().clamp(0.0, v.upper / scale);
            variables.add(if v.integer { definition.integer() } else { definition })
        })
        .collect();
    let sum = |terms: &[(usize, f64)]| -> (Expression, f64) {
        let size = terms.iter().map(|(v, factor)| (factor * scales[*v]).abs()).fold(0.0, f64::max);
        let size = if size > 0.0 { size } else { 1.0 };
        let mut expression = Expression::with_capacity(terms.len());
        for (v, factor) in terms {
            expression.add_mul(factor * scales[*v] / size, handles[*v]);
        }
        (expression, size)
    };
    let mut model = variables
        .minimise(sum(&program.objective).0)
        .using(solver)
        .with_time_limit(settings.seconds)
        .with_mip_gap(settings.gap)
        .map_err(|error| SolveError::Failed(error.to_string()))?;
    for row in &program.rows {
        let (expression, size) = sum(&row.terms);
        let bound = row.bound / size;
        let constraint: Constraint = match row.relation {
            Relation::AtMost => expression.leq(bound),
            Relation::AtLeast => expression.geq(bound),
            Relation::Equal => expression.eq(bound),
        };
        model.add_constraint(constraint);
    }
    let solution = model.solve().map_err(|error| match error {
        ResolutionError::Infeasible => SolveError::Infeasible,
        // good_lp reports microlp's time limit without a solution this way.
        ResolutionError::Other(text) if text.contains("Time limit") => SolveError::OutOfTime,
        other => SolveError::Failed(other.to_string()),
    })?;
    let proof = match solution.status() {
        SolutionStatus::Optimal => Proof::Optimal,
        SolutionStatus::GapLimit => Proof::Gap,
        SolutionStatus::TimeLimit => Proof::Time,
    };
    let values: Vec<f64> = handles
        .iter()
        .zip(&program.variables)
        .zip(&scales)
        .map(|((handle, v), scale)| {
            let value = solution.value(*handle) * scale;
            if v.integer { value.round() } else { value.clamp(0.0, v.upper) }
        })
        .collect();
    let objective = program.objective.iter().map(|(v, factor)| factor * values[*v]).sum();
    Ok(Answer { values, objective, proof, solver: name })
}
