//! Minimises the objective by the Levenberg–Marquardt method over the terms, some of which cannot be below 0.

use habitat_tui::predict::efficiency::Prior;

use super::Row;

/// Standard deviation of a step's logarithm that the terms do not explain.
const SIGMA: f64 = 0.06;
/// Deviation, in units of [`SIGMA`], from which on the loss is linear.
const ROBUST: f64 = 1.0;
/// Most passes over the steps.
const PASSES: usize = 100;
/// Damping at the start, and its bounds: with less, the method overshoots the terms that cannot be below 0; with more,
/// it stalls.
const DAMPING: f64 = 1e-3;
const LEAST_DAMPING: f64 = 1e-6;
const MOST_DAMPING: f64 = 1e6;
/// Least relative gain of a pass for another to follow.
const LEAST_GAIN: f64 = 1e-8;

/// Weight and loss of a residual (Huber 1964, in units of σ).
fn robust(residual: f64) -> (f64, f64) {
    let size = (residual / SIGMA).abs();
    if size <= ROBUST { (1.0, size * size / 2.0) } else { (ROBUST / size, ROBUST * size - ROBUST * ROBUST / 2.0) }
}

/// The objective, from rows and priors.
pub(super) fn objective(rows: &[&Row], values: &[f64], priors: &[Prior]) -> f64 {
    let steps: f64 = rows.iter().map(|row| row.weight * robust(row.residual(values, None)).1).sum();
    let terms = values.iter().zip(priors).map(|(value, prior)| ((value - prior.mean) / prior.width).powi(2) / 2.0);
    steps + terms.sum::<f64>()
}

/// Values of the terms at the least objective, by the Levenberg–Marquardt method from those at the start; `slows` are
/// those that cannot be below 0.
pub(super) fn minimise(rows: &[&Row], priors: &[Prior], slows: &[bool], start: Vec<f64>) -> Vec<f64> {
    let mut values = start;
    let (mut damping, mut cost) = (DAMPING, objective(rows, &values, priors));
    for _ in 0..PASSES {
        let (normal, gradient) = held_equations(rows, &values, priors, slows);
        let mut improved = false;
        while damping < MOST_DAMPING {
            let step = bounded_step((&normal, &gradient), damping, &values, slows);
            let next: Vec<f64> = values.iter().zip(&step).map(|(value, step)| value - step).collect();
            let found = objective(rows, &next, priors);
            if found < cost {
                improved = cost - found > LEAST_GAIN * cost;
                (values, cost, damping) = (next, found, (damping * 0.2).max(LEAST_DAMPING));
                break;
            }
            damping *= 5.0;
        }
        if !improved {
            break;
        }
    }
    values
}

/// The step of the damped equations in which terms that would fall below 0 go to 0, and the others allow for that.
pub(super) fn bounded_step(
    (normal, gradient): (&[Vec<f64>], &[f64]),
    damping: f64,
    values: &[f64],
    slows: &[bool],
) -> Vec<f64> {
    let (mut normal, mut gradient) = (normal.to_vec(), gradient.to_vec());
    let mut is_fixed = vec![false; values.len()];
    loop {
        let mut step = solve(&normal, &gradient, damping);
        for at in (0..values.len()).filter(|&at| is_fixed[at]) {
            step[at] = values[at];
        }
        let below: Vec<usize> =
            (0..values.len()).filter(|&at| slows[at] && !is_fixed[at] && values[at] - step[at] < 0.0).collect();
        if below.is_empty() {
            return step;
        }
        for at in below {
            is_fixed[at] = true;
            for (row, own) in normal.iter_mut().zip(&mut gradient) {
                *own -= row[at] * values[at];
                row[at] = 0.0;
            }
            normal[at].fill(0.0);
            normal[at][at] = 1.0;
            gradient[at] = 0.0;
        }
    }
}

/// The normal equations without the terms that are at 0 and pulled below it: these keep their values, and the others do
/// not expect them to move.
pub(super) fn held_equations(
    rows: &[&Row],
    values: &[f64],
    priors: &[Prior],
    slows: &[bool],
) -> (Vec<Vec<f64>>, Vec<f64>) {
    let (mut normal, mut gradient) = normal_equations(rows, values, priors);
    for held in 0..values.len() {
        if !slows[held] || values[held] > 0.0 || gradient[held] <= 0.0 {
            continue;
        }
        for row in &mut normal {
            row[held] = 0.0;
        }
        normal[held].fill(0.0);
        normal[held][held] = 1.0;
        gradient[held] = 0.0;
    }
    (normal, gradient)
}

/// `JᵀWJ` and `Jᵀwr` of steps and priors.
fn normal_equations(rows: &[&Row], values: &[f64], priors: &[Prior]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let count = values.len();
    let mut normal = vec![vec![0.0; count]; count];
    let mut gradient = vec![0.0; count];
    let mut slopes = vec![0.0; count];
    for row in rows {
        slopes.fill(0.0);
        let residual = row.residual(values, Some(&mut slopes));
        let weight = row.weight * robust(residual).0 / (SIGMA * SIGMA);
        let present: Vec<usize> = (0..count).filter(|&at| slopes[at] != 0.0).collect();
        for &i in &present {
            gradient[i] += weight * slopes[i] * residual;
            for &j in &present {
                normal[i][j] += weight * slopes[i] * slopes[j];
            }
        }
    }
    for (at, (value, prior)) in values.iter().zip(priors).enumerate() {
        normal[at][at] += 1.0 / (prior.width * prior.width);
        gradient[at] += (value - prior.mean) / (prior.width * prior.width);
    }
    (normal, gradient)
}

/// The step of the damped normal equations, by Cholesky decomposition.
fn solve(normal: &[Vec<f64>], gradient: &[f64], damping: f64) -> Vec<f64> {
    let count = gradient.len();
    let mut lower = vec![vec![0.0; count]; count];
    for i in 0..count {
        for j in 0..=i {
            let own = if i == j { normal[i][i] * (1.0 + damping) } else { normal[i][j] };
            let rest = own - (0..j).map(|k| lower[i][k] * lower[j][k]).sum::<f64>();
            lower[i][j] = if i == j { rest.max(f64::MIN_POSITIVE).sqrt() } else { rest / lower[j][j] };
        }
    }
    let mut answer = gradient.to_vec();
    for i in 0..count {
        answer[i] = (answer[i] - (0..i).map(|k| lower[i][k] * answer[k]).sum::<f64>()) / lower[i][i];
    }
    for i in (0..count).rev() {
        answer[i] = (answer[i] - (i + 1..count).map(|k| lower[k][i] * answer[k]).sum::<f64>()) / lower[i][i];
    }
    answer
}
