//! Corrections of a machine and its programs by measured runs, relative to the prediction.

use serde::{Deserialize, Serialize};

use super::ScaleError;
use habitat_base::units::Micros;

/// Corrections of a prediction on several GPUs. At most one applies to a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Factors {
    /// Extra time of several GPUs of a machine with the whole model on each ([`super::scaling_factor`]).
    pub scaling: Option<f64>,
    /// Parts of the step of a language model ([`fit_layouts`]), instead of its extra time.
    pub layouts: Option<LayoutFactors>,
}

/// Times of a language model's step on several GPUs relative to the predicted ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LayoutFactors {
    /// Of operations, the update and the program.
    pub compute: f64,
    /// Of traffic between GPUs, hidden or not.
    pub exchange: f64,
}

impl LayoutFactors {
    /// As predicted.
    pub const NONE: Self = Self { compute: 1.0, exchange: 1.0 };
    /// Range of either factor (a choice).
    pub const ENDS: [f64; 2] = [0.1, 10.0];

    /// Whether both are within their range.
    pub fn is_valid(self) -> bool {
        let [least, most] = Self::ENDS;
        [self.compute, self.exchange].iter().all(|factor| (least..=most).contains(factor))
    }
}

/// Ratios of the two factors to try: 4 to either side, in steps of a ninth power of 4 (a choice).
const RATIOS: i32 = 9;
const WIDEST: f64 = 4.0;
/// Weight of the ratio's distance from 1: that of a run that is off by 5 %, if ratios differ by 50 % (a choice).
const ALIKE: f64 = 0.01;
/// Corrections of the common factor until it no longer changes.
const ROUNDS: u32 = 12;

/// Factors with which predicted steps are nearest to the `measured` ones: one for both parts from one run, one for each
/// from several. `predicted` is the step of a run with factors.
///
/// # Errors
/// What `predicted` returns; [`ScaleError::NoResponse`] for a step that does not change with its factors.
pub fn fit_layouts(
    measured: &[Micros],
    predicted: impl Fn(usize, LayoutFactors) -> Result<Micros, ScaleError>,
) -> Result<LayoutFactors, ScaleError> {
    let few = if measured.len() > 1 { RATIOS } else { 0 };
    let [least, most] = LayoutFactors::ENDS;
    let mut best: Option<(f64, LayoutFactors)> = None;
    for step in -few..=few {
        let ratio = WIDEST.powf(f64::from(step) / f64::from(RATIOS));
        let of = |compute: f64| LayoutFactors { compute, exchange: (compute * ratio).clamp(least, most) };
        let distances = |factors| -> Result<Vec<f64>, ScaleError> {
            let one = |(run, measured): (usize, &Micros)| -> Result<f64, ScaleError> {
                Ok((measured.get() / predicted(run, factors)?.get()).ln())
            };
            measured.iter().enumerate().map(one).collect()
        };
        let mut compute = 1.0f64;
        for _ in 0..ROUNDS {
            let all = distances(of(compute))?;
            compute = (compute * (all.iter().sum::<f64>() / all.len().max(1) as f64).exp()).clamp(least, most);
        }
        let distance = distances(of(compute))?.iter().map(|one| one * one).sum::<f64>() + ALIKE * ratio.ln().powi(2);
        if best.is_none_or(|(nearest, _)| distance < nearest) {
            best = Some((distance, of(compute)));
        }
    }
    let factors = best.map_or(LayoutFactors::NONE, |(_, factors)| factors);
    let halved = LayoutFactors { compute: factors.compute / 2.0, exchange: factors.exchange / 2.0 };
    for run in 0..measured.len() {
        if predicted(run, factors)? == predicted(run, halved)? {
            return Err(ScaleError::NoResponse { run: run + 1 });
        }
    }
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of 100 ms of operations and 20 or 80 of traffic.
    #[allow(clippy::unnecessary_wraps, reason = "as a prediction's step")]
    fn step(run: usize, factors: LayoutFactors) -> Result<Micros, ScaleError> {
        let traffic = [20e3, 80e3][run];
        Ok(Micros::known(100e3 * factors.compute + traffic * factors.exchange))
    }

    #[test]
    fn one_run_gives_one_factor_and_two_give_both() {
        let one = fit_layouts(&[Micros::known(150e3)], step).unwrap();
        assert!((one.compute - 1.25).abs() < 1e-6 && one.exchange == one.compute, "{one:?}");
        // 1.1 times 100 and twice 20 or 80.
        let two = fit_layouts(&[Micros::known(150e3), Micros::known(270e3)], step).unwrap();
        assert!((two.compute - 1.1).abs() < 0.08 && (two.exchange - 2.0).abs() < 0.25, "{two:?}");
        for (run, measured) in [150e3, 270e3].into_iter().enumerate() {
            assert!((step(run, two).unwrap().get() / measured - 1.0).abs() < 0.03, "{two:?}");
        }
        assert_eq!(fit_layouts(&[], step), Ok(LayoutFactors::NONE));
        // The second run waits for its data.
        let waits = |run, factors| if run == 1 { Ok(Micros::known(270e3)) } else { step(run, factors) };
        let measured = [Micros::known(150e3), Micros::known(280e3)];
        assert_eq!(fit_layouts(&measured, waits), Err(ScaleError::NoResponse { run: 2 }));
    }
}
