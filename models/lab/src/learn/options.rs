//! Training data, options and results.

use habitat_tui::predict::mlp::{Activation, Mlp, ModelError};
use habitat_tui::random::Random;

/// Measured training rows. Row `i` has `width` features from `i · width` on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// Inputs of the network, row-major; [`super::fit::fit`] normalises them (see [`FitOptions::standardise`]).
    pub features: Vec<f32>,
    /// Cost of a launch, in microseconds; empty for [`habitat_tui::predict::head::Head::Direct`].
    pub floor_us: Vec<f32>,
    /// Time at full use of the hardware, in microseconds; empty likewise.
    pub bound_us: Vec<f32>,
    /// Group (GPU) of a row, counted from 0; empty without groups.
    pub group: Vec<u32>,
    /// Measured times in microseconds, above 0.
    pub measured_us: Vec<f32>,
    /// Weight of a row; empty if all are equal.
    pub weight: Vec<f32>,
}

/// The minimised loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// √(r² + δ²) − δ with r = ln(predicted / measured): twice too long is as bad as half as long. Needs a head with
    /// positive times.
    SymmetricRelative {
        /// Below this the loss is quadratic.
        delta: f32,
    },
    /// |predicted − measured| / measured.
    Mape,
    /// 100 · |predicted − measured| / measured, plus the root mean square of predicted −
    /// measured in milliseconds over the batch (PROFET's loss).
    MapeAndRmse,
}

/// Weight decay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decay {
    /// Subtracts rate · decay · w from the weights in each step (`AdamW`, Loshchilov and Hutter 2019), not from biases.
    Decoupled(f32),
    /// Adds decay · w to the gradient, of biases too (Adam with an L2 penalty, as in `PyTorch`'s `Adam(weight_decay)`).
    Penalty(f32),
}

/// Learning rate by epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum Schedule {
    /// Each rate from its epoch (counted from 0) on; the first begins at 0.
    Steps(Vec<(u32, f32)>),
    /// From `first` down to `last` along half a cosine.
    Cosine {
        /// Rate of the first epoch.
        first: f32,
        /// Rate of the last epoch.
        last: f32,
    },
}

impl Schedule {
    /// The rate of `epoch` of `epochs`.
    pub fn rate(&self, epoch: u32, epochs: u32) -> f32 {
        match self {
            Self::Steps(steps) => steps.iter().rev().find(|(from, _)| *from <= epoch).map_or(0.0, |(_, rate)| *rate),
            Self::Cosine { first, last } => {
                let done = f64::from(epoch) / f64::from(epochs.saturating_sub(1).max(1));
                let share = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
                (f64::from(*last) + f64::from(first - last) * share) as f32
            }
        }
    }
}

/// Training options.
#[derive(Debug, Clone, PartialEq)]
pub struct FitOptions {
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// Activation after every hidden layer.
    pub activation: Activation,
    /// The minimised loss.
    pub loss: Loss,
    /// Whether features are standardised to mean 0 and standard deviation 1.
    pub standardise: bool,
    /// Weight decay.
    pub decay: Decay,
    /// Learning rate.
    pub schedule: Schedule,
    /// Penalty on the sizes of the groups' offsets.
    pub offset_penalty: f32,
    /// Rows of a batch.
    pub batch: usize,
    /// Passes over the rows.
    pub epochs: u32,
    /// Seed of the initial weights and the shuffling.
    pub seed: u64,
}

impl Default for FitOptions {
    /// Three hidden layers of 64, for a bounded head.
    fn default() -> Self {
        Self {
            hidden: vec![64; 3],
            activation: Activation::Relu,
            loss: Loss::SymmetricRelative { delta: 0.1 },
            standardise: true,
            decay: Decay::Decoupled(1e-2),
            schedule: Schedule::Cosine { first: 3e-3, last: 1e-5 },
            offset_penalty: 1e-3,
            batch: 1024,
            epochs: 60,
            seed: 1,
        }
    }
}

/// Result of a training.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The network, with the normalisation of its inputs.
    pub network: Mlp,
    /// The groups' offsets (see [`habitat_tui::predict::head::Head::Bounded`]).
    pub offsets: Vec<f32>,
    /// Epochs done.
    pub epochs: u32,
    /// Mean loss during the last epoch.
    pub loss: f64,
    /// Whether all epochs ran (the caller may stop the training).
    pub finished: bool,
}

/// Why training fails.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    /// Rows that cannot be learned from.
    #[error("rows to learn from: {0}")]
    Rows(String),
    /// Options that contradict each other.
    #[error("training: {0}")]
    Options(String),
    /// A checkpoint of other rows or options.
    #[error("the checkpoint belongs to another training (other rows or options); delete it to begin anew")]
    OtherTraining,
    /// The loss is not finite.
    #[error("the training diverged in epoch {0}; use a lower learning rate")]
    Diverged(u32),
    /// The network or the checkpoint.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.measured_us.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.measured_us.is_empty()
    }

    /// Features of a row.
    pub fn width(&self) -> usize {
        self.features.len().checked_div(self.len()).unwrap_or(0)
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.group.iter().max().map_or(0, |&last| last as usize + 1)
    }

    /// Weight of row `index`.
    pub(super) fn weight(&self, index: usize) -> f64 {
        self.weight.get(index).map_or(1.0, |&weight| f64::from(weight))
    }

    /// A sample of at most `count` rows in their order, the same for the same seed.
    #[must_use]
    pub fn sample(&self, count: usize, seed: u64) -> Self {
        let mut chosen: Vec<usize> = (0..self.len()).collect();
        if count >= chosen.len() {
            return self.clone();
        }
        Random::new(seed).shuffle(&mut chosen);
        chosen.truncate(count);
        chosen.sort_unstable();
        let width = self.width();
        let pick = |numbers: &[f32]| chosen.iter().filter_map(|&row| numbers.get(row).copied()).collect();
        Self {
            features: chosen.iter().flat_map(|&row| &self.features[row * width..(row + 1) * width]).copied().collect(),
            floor_us: pick(&self.floor_us),
            bound_us: pick(&self.bound_us),
            group: chosen.iter().filter_map(|&row| self.group.get(row).copied()).collect(),
            measured_us: pick(&self.measured_us),
            weight: pick(&self.weight),
        }
    }

    /// Refuses rows whose columns differ in length or hold NaN or infinity.
    pub(super) fn check(&self, bounded: bool) -> Result<(), FitError> {
        let rows = self.len();
        let wrong = |what: String| Err(FitError::Rows(what));
        if rows == 0 {
            return wrong("there are none".to_owned());
        }
        if self.features.is_empty() || !self.features.len().is_multiple_of(rows) {
            return wrong(format!("{} features are not the same number for each of {rows} rows", self.features.len()));
        }
        let may_lack = !bounded;
        for (name, column, may_lack, may_be_zero) in [
            ("floor_us", &self.floor_us, may_lack, true),
            ("bound_us", &self.bound_us, may_lack, false),
            ("measured_us", &self.measured_us, false, false),
            ("weight", &self.weight, true, true),
        ] {
            if column.len() != rows && !(may_lack && column.is_empty()) {
                return wrong(format!("{name} has {} numbers for {rows} rows", column.len()));
            }
            let fine = |value: &f32| value.is_finite() && (*value > 0.0 || may_be_zero && *value == 0.0);
            if let Some(row) = column.iter().position(|value| !fine(value)) {
                return wrong(format!("{name} of row {row} is {}", column[row]));
            }
        }
        if !self.group.is_empty() && self.group.len() != rows {
            return wrong(format!("group has {} numbers for {rows} rows", self.group.len()));
        }
        if self.groups() > rows {
            return wrong("groups must be counted from 0".to_owned());
        }
        if let Some(place) = self.features.iter().position(|value| !value.is_finite()) {
            return wrong(format!("a feature of row {} is not finite", place / self.width()));
        }
        Ok(())
    }
}

/// The loss of one row, and its derivative with respect to the predicted time (given the root mean square of its batch,
/// if the loss uses it).
pub(super) fn value_and_slope(loss: Loss, predicted: f64, measured: f64, rmse_us: f64) -> (f64, f64) {
    match loss {
        Loss::Mape => {
            let error = predicted / measured - 1.0;
            let sign = if error > 0.0 { 1.0 } else { -1.0 };
            (error.abs(), if error == 0.0 { 0.0 } else { sign / measured })
        }
        Loss::MapeAndRmse => {
            let (relative, slope) = value_and_slope(Loss::Mape, predicted, measured, 0.0);
            // Derivative of the root of a mean of squares: the row's error over the root.
            let by_root = if rmse_us > 0.0 { (predicted - measured) / rmse_us } else { 0.0 };
            (100.0 * relative + rmse_us * 1e-3, 100.0 * slope + by_root * 1e-3)
        }
        Loss::SymmetricRelative { delta } => {
            let (ratio, delta) = ((predicted / measured).ln(), f64::from(delta));
            let root = ratio.hypot(delta);
            (root - delta, ratio / root / predicted)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let habitat = Schedule::Steps(vec![(0, 5e-4), (40, 1e-4)]);
        assert_eq!([0, 39, 40, 79].map(|epoch| habitat.rate(epoch, 80)), [5e-4, 5e-4, 1e-4, 1e-4]);
        let cosine = Schedule::Cosine { first: 1e-2, last: 1e-4 };
        assert!((cosine.rate(0, 11) - 1e-2).abs() < 1e-8);
        assert!((cosine.rate(5, 11) - 5.05e-3).abs() < 1e-8);
        assert!((cosine.rate(10, 11) - 1e-4).abs() < 1e-8);
        assert_eq!(cosine.rate(0, 1), 1e-2);
    }

    #[test]
    fn rows_that_do_not_fit_are_named() {
        let rows = Rows {
            features: vec![0.0; 6],
            floor_us: vec![0.0; 3],
            bound_us: vec![1.0; 3],
            group: vec![0, 1, 0],
            measured_us: vec![1.0; 3],
            weight: Vec::new(),
        };
        assert_eq!((rows.check(true), rows.width(), rows.groups()), (Ok(()), 2, 2));
        let message = |change: &dyn Fn(&mut Rows)| {
            let mut wrong = rows.clone();
            change(&mut wrong);
            wrong.check(true).unwrap_err().to_string()
        };
        assert!(message(&|rows| rows.bound_us.clear()).contains("bound_us has 0 numbers"));
        assert!(message(&|rows| rows.measured_us[1] = 0.0).contains("measured_us of row 1 is 0"));
        assert!(message(&|rows| rows.features[3] = f32::NAN).contains("row 1"));
        assert!(message(&|rows| rows.weight = vec![1.0]).contains("weight"));
        assert!(message(&|rows| rows.group[0] = 9).contains("groups"));
        assert!(message(&|rows| rows.measured_us.clear()).contains("none"));
        let sample = rows.sample(2, 4);
        assert_eq!((sample.len(), sample.features.len(), sample.group.len()), (2, 4, 2));
    }

    /// The loss of a batch of three by hand, and its slopes against finite differences.
    #[test]
    fn slopes_of_the_loss_with_a_root_mean_square() {
        let measured = [1000.0, 4000.0, 20_000.0];
        let rmse = |predicted: &[f64; 3]| {
            (predicted.iter().zip(measured).map(|(p, m)| (p - m).powi(2)).sum::<f64>() / 3.0).sqrt()
        };
        let loss = |predicted: &[f64; 3]| {
            let rmse = rmse(predicted);
            let all = predicted.iter().zip(measured).map(|(&p, m)| value_and_slope(Loss::MapeAndRmse, p, m, rmse).0);
            all.sum::<f64>() / 3.0
        };
        // 10 %, 25 % and 5 % off; √((0.1² + 1² + 1²) / 3) ms.
        let at = [1100.0, 3000.0, 21_000.0];
        assert!((loss(&at) - (40.0 / 3.0 + (2.01_f64 / 3.0).sqrt())).abs() < 1e-9, "{}", loss(&at));
        for index in 0..3 {
            let shifted = |by: f64| {
                let mut moved = at;
                moved[index] += by;
                loss(&moved)
            };
            let slope = value_and_slope(Loss::MapeAndRmse, at[index], measured[index], rmse(&at)).1 / 3.0;
            let difference = (shifted(0.01) - shifted(-0.01)) / 0.02;
            assert!((slope - difference).abs() < 1e-8, "{index}: {slope} {difference}");
        }
    }
}
