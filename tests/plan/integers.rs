//! The solver: programs with known optima, and each verdict.

use habitat_tui::plan::problem::{Aim, Choice, Limit, Problem, Program, Relation, Row, Variable};
use habitat_tui::plan::solve::{Answer, Proof, Settings, SolveError, solve, solve_with_microlp};

/// C.6: rate 10 from machines of 8 GPUs at $20 and of 1 GPU at $3.
fn machines() -> Program {
    Program {
        variables: vec![Variable { upper: 10.0, integer: true }; 2],
        rows: vec![Row { terms: vec![(0, 8.0), (1, 1.0)], relation: Relation::AtLeast, bound: 10.0 }],
        objective: vec![(0, 20.0), (1, 3.0)],
    }
}

#[test]
fn whole_machines_cost_more_than_parts_of_them() {
    let answer = solve(&machines(), Settings::default()).unwrap();
    assert_eq!(answer.values, [1.0, 2.0]);
    assert_eq!((answer.objective, answer.proof), (26.0, Proof::Optimal));
    let relaxed = solve(&machines().relaxed(), Settings::default()).unwrap();
    assert!((relaxed.objective - 25.0).abs() < 1e-9, "{relaxed:?}");
}

#[test]
fn no_values_at_all_is_told_as_such() {
    let mut program = machines();
    program.rows.push(Row { terms: vec![(0, 1.0), (1, 1.0)], relation: Relation::AtMost, bound: 1.0 });
    assert_eq!(solve(&program, Settings::default()), Err(SolveError::Infeasible));
}

#[test]
fn lack_of_time_is_not_infeasibility() {
    let settings = Settings { seconds: 0.0, ..Settings::default() };
    assert_eq!(solve_with_microlp(&machines(), settings), Err(SolveError::OutOfTime));
}

/// The knapsack of `good_lp`'s own test of gaps: (value, cost), with a budget of 25.
fn knapsack() -> Program {
    const OBJECTS: [(f64, f64); 20] = [
        (1.87, 6.03),
        (3.22, 8.03),
        (9.91, 5.16),
        (8.31, 1.72),
        (7.00, 6.33),
        (5.15, 8.20),
        (8.01, 4.63),
        (2.22, 1.50),
        (7.04, 6.26),
        (8.99, 9.62),
        (2.13, 4.00),
        (8.02, 8.02),
        (3.07, 1.92),
        (1.98, 9.03),
        (7.23, 9.51),
        (4.08, 3.24),
        (9.65, 5.13),
        (6.53, 3.07),
        (6.76, 3.84),
        (9.63, 8.33),
    ];
    let terms = |of: fn(&(f64, f64)) -> f64| OBJECTS.iter().map(of).enumerate().collect::<Vec<_>>();
    Program {
        variables: vec![Variable { upper: 1.0, integer: true }; OBJECTS.len()],
        rows: vec![Row { terms: terms(|o| o.1), relation: Relation::AtMost, bound: 25.0 }],
        objective: terms(|o| -o.0),
    }
}

#[test]
fn an_answer_within_the_gap_is_not_called_optimal() {
    let proved = solve(&knapsack(), Settings::default()).unwrap();
    let near = solve(&knapsack(), Settings { gap: 0.5, ..Settings::default() }).unwrap();
    assert_eq!((proved.proof, near.proof), (Proof::Optimal, Proof::Gap));
    assert!(proved.objective <= near.objective && near.objective <= 0.5 * proved.objective);
    // Every subset of the 20 objects.
    let program = knapsack();
    let best = (0u32..1 << 20)
        .filter_map(|subset| {
            let sum = |terms: &[(usize, f64)]| -> f64 {
                terms.iter().filter(|(v, _)| subset >> v & 1 == 1).map(|(_, factor)| factor).sum()
            };
            (sum(&program.rows[0].terms) <= 25.0).then(|| sum(&program.objective))
        })
        .fold(0.0, f64::min);
    assert!((proved.objective - best).abs() < 1e-9, "{} instead of {best}", proved.objective);
}

/// B5: scaling a row by 10⁻⁶…10⁹ changes nothing.
#[test]
fn the_scale_of_a_row_does_not_matter() {
    for exponent in -6..=9 {
        let mut program = machines();
        let factor = 10f64.powi(exponent);
        for (_, coefficient) in &mut program.rows[0].terms {
            *coefficient *= factor;
        }
        program.rows[0].bound *= factor;
        let Answer { values, .. } = solve(&program, Settings::default()).unwrap();
        assert_eq!(values, [1.0, 2.0], "10^{exponent}");
    }
}

/// A fast choice whose limit of hours falls just short of all the work: at a range of 100 microlp called this
/// infeasible, although the slow choice alone is a plan.
#[test]
fn a_limit_just_short_of_the_work_is_not_infeasible() {
    let choice = |rate: f64, most_hours: f64| Choice {
        rate,
        hours: 1.0,
        hours_once: 0.0,
        hours_shared: 0.0,
        usd: 0.1,
        usd_once: 0.0,
        kg: 0.0,
        kg_once: 0.0,
        most_hours,
        blocks: None,
    };
    for exponent in 1..=8 {
        let most = 100.0 / 14.950_793_787_108_99 * (1.0 - 10f64.powi(-exponent));
        let choices = vec![choice(5.555_932_382_486_656, f64::INFINITY), choice(14.950_793_787_108_99, most)];
        let limit = Limit { deadline: Some(21.89), budget: Some(1.94), ..Limit::default() };
        let answer = solve(
            &Problem { work: 100.0, choices, max_parts: 1, most_kg: None }.program(Aim::Cost, &limit),
            Settings::default(),
        )
        .unwrap();
        assert_eq!(answer.values[..2], [1.0, 0.0], "10^-{exponent}");
    }
}
