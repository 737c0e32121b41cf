//! Predicts run times from logs of runs: batch size, iterations, time.
//!
//! time = a·x·y + b·x + c·y + d for batch size x and iterations y, or in one variable: time = c·y + d at one batch
//! size, time = b·x + d at one number of iterations (Gianniti, Zhang, Ardagna: "Performance Prediction of GPU-based
//! Deep Learning Applications", SBAC-PAD 2018). Fitted by least squares, by default of relative errors, because a log
//! spans orders of magnitude and noise grows with the time of a run. Coefficients are not negative: none of them can
//! reduce a time, and a falling line is wrong far beyond the log.
//!
//! Ranges are prediction intervals of a new run by Student's t: the residual variance (proportional to the squared
//! time, or constant) plus that of the coefficients. They cover the noise of the log, but not whether the line holds
//! beyond it. Beyond the logged batch sizes, the measured deviation of steps from lines ([`super::batches::spread`]) is
//! added as independent; in the iterations a run is inherently linear.

use super::batches::Regime;
use super::batches::spread::{SHIPPED, Spread};
use super::estimate::Estimate;
use super::method::Method;
use habitat_base::regress::RegressError;
use habitat_base::regress::least_squares;
use habitat_base::regress::student::{Confidence, half_width};
use habitat_base::units::{Micros, Range};

/// One logged run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// Samples per step.
    pub batch: Option<f64>,
    /// Number of steps.
    pub iterations: Option<f64>,
    /// Time of the run.
    pub time: Micros,
}

/// Terms of a run's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// a·x·y + b·x + c·y + d.
    Full,
    /// b·x + d: all runs have the same iterations.
    Batch,
    /// c·y + d: all runs have the same batch size.
    Iterations,
}

impl Form {
    /// Formula.
    pub const fn formula(self) -> &'static str {
        match self {
            Self::Full => "time = a·x·y + b·x + c·y + d",
            Self::Batch => "time = b·x + d",
            Self::Iterations => "time = c·y + d",
        }
    }

    /// Letters of its coefficients.
    pub(crate) const fn letters(self) -> &'static [char] {
        match self {
            Self::Full => &['a', 'b', 'c', 'd'],
            Self::Batch => &['b', 'd'],
            Self::Iterations => &['c', 'd'],
        }
    }

    const fn uses_batch(self) -> bool {
        matches!(self, Self::Full | Self::Batch)
    }

    const fn uses_iterations(self) -> bool {
        matches!(self, Self::Full | Self::Iterations)
    }

    fn row(self, batch: Option<f64>, iterations: Option<f64>) -> Option<Vec<f64>> {
        Some(match self {
            Self::Full => {
                let (x, y) = (batch?, iterations?);
                vec![x * y, x, y, 1.0]
            }
            Self::Batch => vec![batch?, 1.0],
            Self::Iterations => vec![iterations?, 1.0],
        })
    }
}

/// Errors that a fit minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weighting {
    /// Relative to the time of the run.
    #[default]
    Relative,
    /// Errors in seconds, dominated by long runs.
    Absolute,
}

/// Reason that a log gives no model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunLogError {
    /// Too few runs.
    #[error(
        "{found} runs are too few for {formula}: {needed} are needed, one more than its coefficients, to estimate the error"
    )]
    TooFew {
        /// Number of runs.
        found: usize,
        /// Minimum number of runs.
        needed: usize,
        /// Formula of the form.
        formula: &'static str,
    },
    /// Neither batch size nor iterations vary.
    #[error(
        "all runs have the same batch size and iterations, so other values cannot be predicted; log runs that differ in one of them"
    )]
    NothingVaries,
    /// The requested form needs a column that is missing.
    #[error("{0} needs {1} in every run")]
    Missing(&'static str, &'static str),
    /// A time, batch size or number of iterations is not above zero.
    #[error("run {0}: time, batch size and iterations must be above zero")]
    NotPositive(usize),
    /// Batch size and iterations vary only together.
    #[error(
        "batch size and iterations always vary together, so their effects cannot be separated; log runs at two or more batch sizes with two or more numbers of iterations each, or choose a form in one of them"
    )]
    Confounded,
    /// The fit failed.
    #[error(transparent)]
    Regress(#[from] RegressError),
}

/// Coefficient in µs, with its standard error.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coefficient {
    /// a, b, c or d.
    pub letter: char,
    /// µs per unit of its variables.
    pub value: f64,
    /// Standard error; 0 if it is held at 0.
    pub error: f64,
}

impl Coefficient {
    /// Whether it is held at 0 because it would be negative.
    pub fn is_held(&self) -> bool {
        self.value == 0.0 && self.error == 0.0
    }
}

/// Fitted model of a run's time by batch size and iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct RunModel {
    /// Form of the model.
    pub form: Form,
    weighting: Weighting,
    coefficients: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    /// Residual variance of an observation with weight 1.
    variance: f64,
    /// Runs minus coefficients: the basis of the ranges.
    pub degrees_of_freedom: usize,
    /// Number of fitted runs.
    pub runs: usize,
    /// Quality of the fit on its own runs.
    pub quality: Quality,
    /// Smallest and largest batch size of the log.
    pub batches: Option<[f64; 2]>,
    /// Smallest and largest number of iterations in the log.
    pub iterations: Option<[f64; 2]>,
}

/// Quality of the fit on its own runs.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Quality {
    /// R² of the times, unweighted.
    pub r_squared: f64,
    /// Mean absolute relative error.
    pub mean_error: f64,
    /// Largest absolute relative error.
    pub worst_error: f64,
}

/// Prediction of a run that was not logged.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTime {
    /// Time with its 80 % range.
    pub time: Estimate,
    /// The 90 % range.
    pub wide: [Micros; 2],
    /// Factor beyond the largest logged batch size or iterations, or below the smallest; 1 inside.
    pub beyond: f64,
}

impl RunModel {
    /// Fits a log; by default with the fullest form that its runs can determine.
    ///
    /// # Errors
    /// Fails if runs are too few or too similar, or values are not above zero.
    pub fn fit(runs: &[Run], form: Option<Form>, weighting: Weighting) -> Result<Self, RunLogError> {
        let positive = |value: Option<f64>| value.is_none_or(|value| value.is_finite() && value > 0.0);
        let sound = |run: &Run| run.time.get() > 0.0 && positive(run.batch) && positive(run.iterations);
        if let Some(index) = runs.iter().position(|run| !sound(run)) {
            return Err(RunLogError::NotPositive(index + 1));
        }
        let batches = ends(runs, |run| run.batch);
        let iterations = ends(runs, |run| run.iterations);
        let form = match form {
            Some(form) => form,
            None => choose(batches, iterations)?,
        };
        let rows: Option<Vec<Vec<f64>>> = runs.iter().map(|run| form.row(run.batch, run.iterations)).collect();
        let rows = rows.ok_or(match form {
            Form::Full => RunLogError::Missing("the full form", "batch size and iterations"),
            Form::Batch => RunLogError::Missing("the form in the batch size", "a batch size"),
            Form::Iterations => RunLogError::Missing("the form in the iterations", "iterations"),
        })?;
        let width = form.letters().len();
        if runs.len() <= width {
            return Err(RunLogError::TooFew { found: runs.len(), needed: width + 1, formula: form.formula() });
        }
        let y: Vec<f64> = runs.iter().map(|run| run.time.get()).collect();
        let weights: Option<Vec<f64>> =
            (weighting == Weighting::Relative).then(|| y.iter().map(|y| 1.0 / (y * y)).collect());
        let problem = |error| match (error, form) {
            (RegressError::Degenerate(_), Form::Full) => RunLogError::Confounded,
            (RegressError::Degenerate(_), _) => RunLogError::NothingVaries,
            (error, _) => RunLogError::Regress(error),
        };
        let (coefficients, chosen) = least_squares::fit_non_negative(&rows, &y, weights.as_deref()).map_err(problem)?;
        let narrow: Vec<Vec<f64>> = rows.iter().map(|row| pick(row, &chosen)).collect();
        let inverse = least_squares::unscaled_covariance(&narrow, weights.as_deref()).map_err(problem)?;
        let covariance = spread_out(&inverse, &chosen);
        let degrees = runs.len() - width;
        let fitted: Vec<f64> = rows.iter().map(|row| dot(row, &coefficients)).collect();
        let weight = |index: usize| weights.as_ref().map_or(1.0, |weights| weights[index]);
        let squares: f64 =
            fitted.iter().zip(&y).enumerate().map(|(index, (f, y))| weight(index) * (f - y).powi(2)).sum();
        let relative: Vec<f64> = fitted.iter().zip(&y).map(|(f, y)| (f / y - 1.0).abs()).collect();
        let mean = y.iter().sum::<f64>() / y.len() as f64;
        let total: f64 = y.iter().map(|y| (y - mean).powi(2)).sum();
        let left: f64 = fitted.iter().zip(&y).map(|(f, y)| (f - y).powi(2)).sum();
        Ok(Self {
            form,
            weighting,
            coefficients,
            covariance,
            variance: squares / degrees as f64,
            degrees_of_freedom: degrees,
            runs: runs.len(),
            quality: Quality {
                r_squared: if total > 0.0 { 1.0 - left / total } else { 0.0 },
                mean_error: relative.iter().sum::<f64>() / relative.len() as f64,
                worst_error: relative.iter().copied().fold(0.0, f64::max),
            },
            batches,
            iterations,
        })
    }

    /// Coefficients in the order of the formula.
    pub fn coefficients(&self) -> Vec<Coefficient> {
        let of = self.form.letters().iter().zip(&self.coefficients).enumerate();
        of.map(|(index, (&letter, &value))| Coefficient {
            letter,
            value,
            error: (self.variance * self.covariance[index][index]).sqrt(),
        })
        .collect()
    }

    /// Predicts a run at a batch size and number of iterations; `None` if the form needs a missing value, or if the
    /// time is not above zero (the form does not hold there).
    pub fn at(&self, batch: Option<f64>, iterations: Option<f64>) -> Option<RunTime> {
        let row = self.form.row(batch, iterations)?;
        let mid = dot(&row, &self.coefficients);
        if !mid.is_finite() || mid <= 0.0 {
            return None;
        }
        let of_fit: f64 = self.covariance.iter().zip(&row).map(|(inverse, x)| x * dot(inverse, &row)).sum();
        let own = if self.weighting == Weighting::Relative { mid * mid } else { 1.0 };
        let error = (self.variance * (own + of_fit.max(0.0))).sqrt();
        let spread = self.beyond_batches(&row, batch);
        let ends = |confidence, [below, above]: [f64; 2]| {
            let half = half_width(confidence, self.degrees_of_freedom) * error / mid;
            let low = if half < 1.0 { mid * (-(1.0 - half).ln().hypot(below)).exp() } else { 0.0 };
            Some([Micros::checked(low)?, Micros::checked(mid * half.ln_1p().hypot(above).exp())?])
        };
        let [low, high] = ends(Confidence::Eighty, spread.usual)?;
        let outside = |value: Option<f64>, ends: Option<[f64; 2]>| match (value, ends) {
            (Some(value), Some([least, most])) => (value / most).max(least / value).max(1.0),
            _ => 1.0,
        };
        let in_batch = if self.form.uses_batch() { outside(batch, self.batches) } else { 1.0 };
        let in_iterations = if self.form.uses_iterations() { outside(iterations, self.iterations) } else { 1.0 };
        Some(RunTime {
            time: Estimate { range: Range { low, mid: Micros::checked(mid)?, high }, method: Method::RunLog },
            wide: ends(Confidence::Ninety, spread.wide)?,
            beyond: in_batch.max(in_iterations),
        })
    }
}

impl RunModel {
    /// Deviation of steps from lines at this distance beyond the logged batch sizes.
    fn beyond_batches(&self, row: &[f64], batch: Option<f64>) -> Spread {
        let (Some(batch), Some([least, most])) = (batch.filter(|_| self.form.uses_batch()), self.batches) else {
            return Spread::default();
        };
        let grows: f64 = self
            .form
            .letters()
            .iter()
            .zip(row.iter().zip(&self.coefficients))
            .filter(|(letter, _)| matches!(letter, 'a' | 'b'))
            .map(|(_, (x, of))| x * of)
            .sum();
        let regime = |at: f64| {
            let there = grows / batch * at;
            Regime::of(there / (dot(row, &self.coefficients) - grows + there))
        };
        if batch > most {
            SHIPPED.beyond.at(regime(most), (batch / most).log2())
        } else if batch < least {
            SHIPPED.below.at(regime(least), (least / batch).log2())
        } else {
            Spread::default()
        }
    }
}

/// Form that the runs can determine.
fn choose(batches: Option<[f64; 2]>, iterations: Option<[f64; 2]>) -> Result<Form, RunLogError> {
    let varies = |ends: Option<[f64; 2]>| ends.is_some_and(|[least, most]| most > least);
    match (varies(batches), varies(iterations)) {
        (true, true) => Ok(Form::Full),
        (true, false) => Ok(Form::Batch),
        (false, true) => Ok(Form::Iterations),
        (false, false) => Err(RunLogError::NothingVaries),
    }
}

/// Smallest and largest value; `None` if a run has none.
fn ends(runs: &[Run], of: impl Fn(&Run) -> Option<f64>) -> Option<[f64; 2]> {
    let values: Vec<f64> = runs.iter().map(of).collect::<Option<_>>()?;
    let least = values.iter().copied().min_by(f64::total_cmp)?;
    let most = values.iter().copied().max_by(f64::total_cmp)?;
    Some([least, most])
}

/// Values of the chosen columns.
fn pick(row: &[f64], chosen: &[bool]) -> Vec<f64> {
    row.iter().zip(chosen).filter(|(_, chosen)| **chosen).map(|(x, _)| *x).collect()
}

/// Expands a matrix of the chosen columns to all columns; a coefficient held at 0 has no variance.
fn spread_out(inverse: &[Vec<f64>], chosen: &[bool]) -> Vec<Vec<f64>> {
    let mut rows = inverse.iter();
    chosen
        .iter()
        .map(|row_chosen| {
            let mut values = if *row_chosen { rows.next() } else { None }.into_iter().flatten();
            let of = |column_chosen: &bool| {
                if *row_chosen && *column_chosen { values.next().copied().unwrap_or_default() } else { 0.0 }
            };
            chosen.iter().map(of).collect()
        })
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests;
