//! Fitted black-box model: factors by kind, and a Gaussian process on their residuals.
//!
//! For each ordered pair of GPUs, ln step on the target = ln Σ factor · column + f(place), with the columns and
//! coordinates of [`Anatomy`]. f is a Gaussian process of mean 0 and covariance exp(−d²/2) (Rasmussen and Williams
//! 2006, chapter 2), in units of its prior variance. The file (`habitat-black-box-model`, version 1, JSON) stores the
//! coordinates of the training steps and the residual at each; the process is rebuilt from them on use.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::min_max::MinMax;
use super::{Anatomy, BlackBoxStep, OperatorKind};
use habitat_base::regress::gaussian::{Prior, Process};
use habitat_base::units::GpuSlug;

/// Name of the file format.
pub(crate) const FORMAT: &str = "habitat-black-box-model";
/// Version of the file format.
pub(crate) const VERSION: u64 = 1;
/// Number of inputs of the mean.
pub(crate) const COLUMNS: usize = OperatorKind::ALL.len() + 3;
/// Number of coordinates of a step.
const COORDINATES: usize = OperatorKind::ALL.len() + 4;
/// A mean below this share of the anchor's step is raised to it.
const FLOOR: f64 = 1e-3;
/// Share of the device time below which a kind is ignored.
const TRIFLE: f64 = 0.02;
/// Range width that remains even next to training steps.
const NEAR: f64 = 0.1;

/// Hyperparameters chosen by cross-validation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Strength of regularisation towards data sheet ratios.
    pub ridge: f64,
    /// Correlation length of the residuals, in units of [`Anatomy`]'s coordinates.
    pub length: f64,
    /// Noise variance of a single step over the variance of the process.
    pub noise: f64,
}

/// Range that holds 80 % of the steps of left-out networks: quantiles of ln(measured / predicted) over the width, which
/// is 0.1 + the share of the prior variance left.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The lower quantile.
    pub low: f64,
    /// The upper quantile.
    pub high: f64,
}

impl Range {
    /// Divisor of the errors.
    pub(crate) fn width(unfamiliar: f64) -> f64 {
        NEAR + unfamiliar
    }

    /// Ends of the range relative to its middle.
    pub(super) fn factors(self, unfamiliar: f64) -> [f64; 2] {
        let width = Self::width(unfamiliar);
        [(self.low * width).exp(), (self.high * width).exp()]
    }
}

/// Reason that bytes are not a valid model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The content is invalid.
    #[error("{0}")]
    Form(String),
    /// The version is not supported.
    #[error("version {0} of {FORMAT}, but this program reads version {VERSION}; a newer habitat-tui may read it")]
    Version(u64),
}

/// Black-box model as stored in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlackBoxModel {
    format: String,
    version: u64,
    /// Description of the training data.
    trained_on: String,
    settings: Settings,
    /// Operator kinds in the order of the columns.
    kinds: Vec<OperatorKind>,
    anchors: Vec<Anchor>,
    /// Growth between two sizes, by GPU.
    sizes: Vec<Sizes>,
}

/// Growth of the steps of a GPU between two sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Between two batch sizes.
    pub batch: Shape,
    /// Between two sides of square images.
    pub pixels: Shape,
}

/// Growth polynomial with its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Polynomial between 0 and 1.
    pub polynomial: MinMax,
    /// Relative error that 80 % of the sizes of left-out networks stay within.
    pub error: f64,
}

/// Models that start from one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    gpu: GpuSlug,
    /// Coordinates of the training steps.
    places: Vec<Vec<f64>>,
    targets: Vec<Target>,
    #[serde(skip)]
    settings: Option<Settings>,
}

/// Model for one target GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Factors of the columns, all ≥ 0.
    pub factors: Vec<f64>,
    /// Residual of the mean at each training step, as a logarithm.
    pub left: Vec<f64>,
    /// Range from left-out steps.
    pub range: Range,
}

impl Anchor {
    /// Assembles an anchor from checked parts, with numbers rounded as in the file.
    pub(crate) fn new(gpu: GpuSlug, places: Vec<Vec<f64>>, targets: Vec<Target>) -> Self {
        Self { gpu, places, targets, settings: None }
    }

    /// GPUs that this anchor can predict.
    pub(crate) fn targets(&self) -> Vec<GpuSlug> {
        self.targets.iter().map(|target| target.gpu.clone()).collect()
    }

    /// Factor of the mean for each column, by target.
    pub fn factors(&self) -> impl Iterator<Item = (&GpuSlug, &[f64])> {
        self.targets.iter().map(|target| (&target.gpu, target.factors.as_slice()))
    }

    /// Kinds above 2 % of the device time that no training step has, with their shares: their factors come from data
    /// sheets alone.
    pub(crate) fn unseen(&self, anatomy: &Anatomy) -> Vec<(OperatorKind, f64)> {
        let is_seen = |column: usize| self.places.iter().any(|place| place.get(column).is_some_and(|x| *x > 0.0));
        let shares = OperatorKind::ALL.into_iter().zip(anatomy.shares()).enumerate();
        let unseen = shares.filter(|(column, (_, share))| *share > TRIFLE && !is_seen(*column));
        unseen.map(|(_, of)| of).collect()
    }

    /// Prepares the model for predictions.
    pub fn fitted(&self) -> Fitted<'_> {
        let settings = self.settings.unwrap_or(Settings { ridge: 0.05, length: 1.0, noise: 0.5 });
        let process = Residuals::new(settings, self.places.iter());
        let weights = self.targets.iter().map(|target| process.weights_of(&target.left)).collect();
        Fitted { anchor: self, process, weights }
    }
}

/// Gaussian process over coordinates, independent of the values.
#[derive(Debug)]
pub(crate) struct Residuals {
    process: Process,
    length: f64,
}

impl Residuals {
    pub(crate) fn new<'a>(settings: Settings, places: impl Iterator<Item = &'a Vec<f64>>) -> Self {
        let scaled: Vec<Vec<f64>> = places.map(|place| place.iter().map(|x| x / settings.length).collect()).collect();
        let none = vec![(0.0, 0.0); scaled.len()];
        let prior = Prior { board: 0.0, local: 1.0, noise: settings.noise };
        Self { process: Process::new(prior, scaled, &none), length: settings.length }
    }

    pub(crate) fn weights_of(&self, values: &[f64]) -> Vec<f64> {
        self.process.weights_of(values)
    }

    /// Posterior means at a place for several weight vectors, and the share of the prior variance left.
    pub(crate) fn at(&self, place: &[f64], weights: &[Vec<f64>]) -> (Vec<f64>, f64) {
        let scaled: Vec<f64> = place.iter().map(|x| x / self.length).collect();
        self.process.at_with(&scaled, weights)
    }
}

/// Σ factor · column, raised to at least a thousandth of the anchor's step; and whether it was raised.
pub(crate) fn mean(anatomy: &Anatomy, factors: &[f64]) -> (f64, bool) {
    let sum: f64 = anatomy.columns().iter().zip(factors).map(|(column, factor)| column * factor).sum();
    let floor = FLOOR * anatomy.step();
    if sum > floor { (sum, false) } else { (floor, true) }
}

/// Anchor with its Gaussian process ready.
#[derive(Debug)]
pub struct Fitted<'a> {
    anchor: &'a Anchor,
    process: Residuals,
    /// Weights by target.
    weights: Vec<Vec<f64>>,
}

impl Fitted<'_> {
    /// Step on `target`; `None` if the anchor cannot predict it.
    pub fn predict(&self, anatomy: &Anatomy, target: &GpuSlug) -> Option<BlackBoxStep> {
        self.predict_all(anatomy).remove(target)
    }

    /// Steps on all targets.
    pub fn predict_all(&self, anatomy: &Anatomy) -> BTreeMap<GpuSlug, BlackBoxStep> {
        let (left, unfamiliar) = self.process.at(&anatomy.coordinates(), &self.weights);
        self.anchor
            .targets
            .iter()
            .zip(left)
            .filter_map(|(target, left)| {
                let (mean, is_floored) = mean(anatomy, &target.factors);
                let step = BlackBoxStep::new(mean * left.exp(), target.range, unfamiliar, is_floored)?;
                Some((target.gpu.clone(), step))
            })
            .collect()
    }
}

impl BlackBoxModel {
    /// Assembles a model from fitted anchors.
    pub(crate) fn new(trained_on: String, settings: Settings, anchors: Vec<Anchor>, sizes: Vec<Sizes>) -> Self {
        let anchors = anchors.into_iter().map(|anchor| Anchor { settings: Some(settings), ..anchor }).collect();
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            trained_on,
            settings,
            kinds: OperatorKind::ALL.to_vec(),
            anchors,
            sizes,
        }
    }

    /// Growth of steps on a GPU between two sizes, if fitted.
    pub fn sizes(&self, gpu: &GpuSlug) -> Option<&Sizes> {
        self.sizes.iter().find(|sizes| sizes.gpu == *gpu)
    }

    /// Description of the training data.
    pub fn trained_on(&self) -> &str {
        &self.trained_on
    }

    /// Hyperparameters chosen by validation.
    pub const fn settings(&self) -> Settings {
        self.settings
    }

    /// Anchor GPUs.
    pub fn anchors(&self) -> Vec<GpuSlug> {
        self.anchors.iter().map(|anchor| anchor.gpu.clone()).collect()
    }

    /// Models that start from one GPU.
    pub fn anchor(&self, gpu: &GpuSlug) -> Option<&Anchor> {
        self.anchors.iter().find(|anchor| anchor.gpu == *gpu)
    }

    /// Parses the file format.
    ///
    /// # Errors
    /// [`ModelError`] naming the invalid field or the version.
    pub fn from_json(json: &[u8]) -> Result<Self, ModelError> {
        let form = |what: String| Err(ModelError::Form(what));
        let value: serde_json::Value = match serde_json::from_slice(json) {
            Ok(value) => value,
            Err(error) => return form(format!("not JSON: {error}")),
        };
        if value["format"] != FORMAT {
            return form(format!("\"format\" is not {FORMAT:?}"));
        }
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(other) => return Err(ModelError::Version(other)),
            None => return form("\"version\" is missing or not a whole number".to_owned()),
        }
        let mut model: Self =
            serde_path_to_error::deserialize(value).map_err(|error| ModelError::Form(error.to_string()))?;
        if model.kinds != OperatorKind::ALL {
            return form("\"kinds\" does not match this program's vocabulary".to_owned());
        }
        let Settings { ridge, length, noise } = model.settings;
        if !(ridge >= 0.0 && length > 0.0 && noise > 0.0) {
            return form("settings: ridge must be at least 0, length and noise above 0".to_owned());
        }
        for Sizes { gpu, batch, pixels } in &model.sizes {
            if ![batch, pixels]
                .iter()
                .all(|shape| shape.error >= 0.0 && shape.polynomial.0.iter().all(|c| c.is_finite()))
            {
                return form(format!("sizes of {gpu}: a polynomial has three numbers and an error of at least 0"));
            }
        }
        for anchor in &mut model.anchors {
            let gpu = anchor.gpu.clone();
            if anchor.places.iter().any(|place| place.len() != COORDINATES) {
                return form(format!("anchor {gpu}: each place needs {COORDINATES} coordinates"));
            }
            for target in &anchor.targets {
                let fine = target.factors.len() == COLUMNS
                    && target.factors.iter().all(|&factor| factor >= 0.0)
                    && target.left.len() == anchor.places.len()
                    && target.range.low <= target.range.high;
                if !fine {
                    return form(format!(
                        "anchor {gpu}, target {}: needs {COLUMNS} factors of at least 0, {} values in \"left\" and a range with low ≤ high",
                        target.gpu,
                        anchor.places.len()
                    ));
                }
            }
            anchor.settings = Some(model.settings);
        }
        Ok(model)
    }

    /// Writes the file format.
    ///
    /// # Errors
    /// None for fitted models.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec(self)?;
        json.push(b'\n');
        Ok(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blackbox::OperatorTotals;
    use habitat_base::units::Micros;

    fn slug(text: &str) -> GpuSlug {
        GpuSlug::new(text).unwrap()
    }

    fn totals(convolution: f64, norm: f64) -> OperatorTotals {
        let micros = |value: f64| Micros::new(value).unwrap();
        let kinds = [(OperatorKind::Convolution, micros(convolution)), (OperatorKind::Normalisation, micros(norm))];
        let step = micros(convolution + norm + 100.0);
        OperatorTotals::new(slug("t4"), step, 32, Some(micros(100.0)), kinds.into()).unwrap()
    }

    /// Convolutions half as long, normalisation a third, waiting unchanged; 10 % more at the only training step.
    fn model() -> BlackBoxModel {
        let mut factors = vec![0.0; COLUMNS];
        (factors[0], factors[2], factors[17]) = (0.5, 1.0 / 3.0, 1.0);
        let target = Target {
            gpu: slug("v100-sxm2-16gb"),
            factors,
            left: vec![1.1_f64.ln()],
            range: Range { low: -0.2, high: 0.3 },
        };
        let places = vec![Anatomy::of(&totals(600.0, 300.0)).coordinates()];
        let settings = Settings { ridge: 0.0, length: 1.0, noise: 1e-9 };
        let shape = Shape { polynomial: MinMax([0.0, 0.9, 0.1]), error: 0.05 };
        let sizes = Sizes { gpu: slug("t4"), batch: shape, pixels: shape };
        BlackBoxModel::new(
            "one step".into(),
            settings,
            vec![Anchor::new(slug("t4"), places, vec![target])],
            vec![sizes],
        )
    }

    /// 0.5 · 600 + 300 / 3 + 100 = 500 µs, plus 10 % at the training step.
    #[test]
    fn a_step_by_hand() {
        let model = model();
        let anchor = model.anchor(&slug("t4")).unwrap();
        let fitted = anchor.fitted();
        let v100 = slug("v100-sxm2-16gb");
        let here = fitted.predict(&Anatomy::of(&totals(600.0, 300.0)), &v100).unwrap();
        assert!((here.time.range.mid.get() - 550.0).abs() < 1e-3 && here.unfamiliar < 1e-6, "{here:?}");
        assert!((here.time.range.low.get() / here.time.range.mid.get() - (-0.02_f64).exp()).abs() < 1e-6);
        // A step of 90 s is far away: the mean, with a range eleven times as wide.
        let far = fitted.predict(&Anatomy::of(&totals(60e6, 30e6)), &v100).unwrap();
        assert!((far.time.range.mid.get() - 40_000_100.0).abs() < 1.0 && far.unfamiliar > 0.999, "{far:?}");
        assert!((far.time.range.high.get() / far.time.range.mid.get() - (0.33_f64).exp()).abs() < 1e-3);
        assert_eq!(fitted.predict(&Anatomy::of(&totals(1.0, 1.0)), &slug("k80")), None);
        let micros = |value: f64| Micros::new(value).unwrap();
        let kinds = [(OperatorKind::Convolution, micros(300.0)), (OperatorKind::Depthwise, micros(100.0))];
        let depthwise = OperatorTotals::new(slug("t4"), micros(400.0), 32, None, kinds.into()).unwrap();
        assert_eq!(anchor.unseen(&Anatomy::of(&depthwise)), [(OperatorKind::Depthwise, 0.25)]);
        assert_eq!(anchor.unseen(&Anatomy::of(&totals(600.0, 300.0))), []);
    }

    #[test]
    fn the_file_form_comes_back() {
        // Like fitted models: rounded to a few decimals, which every JSON parser reproduces.
        let mut model = model();
        let rounded = |values: &mut Vec<f64>| values.iter_mut().for_each(|x| *x = (*x * 1e5).round() / 1e5);
        for anchor in &mut model.anchors {
            anchor.places.iter_mut().for_each(rounded);
            for target in &mut anchor.targets {
                rounded(&mut target.factors);
                rounded(&mut target.left);
            }
        }
        assert_eq!(BlackBoxModel::from_json(&model.to_json().unwrap()).unwrap(), model);
    }

    #[test]
    fn bad_files_are_refused() {
        let good = String::from_utf8(model().to_json().unwrap()).unwrap();
        let error = |from: &str, to: &str| {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from}");
            BlackBoxModel::from_json(bad.as_bytes()).unwrap_err().to_string()
        };
        assert!(error("\"version\":1", "\"version\":7").contains("version 7"));
        assert!(error("\"format\":\"habitat-black-box-model\"", "\"format\":\"x\"").contains("format"));
        assert!(error("\"convolution\",", "").contains("vocabulary"));
        assert!(error("\"left\":[", "\"left\":[0.5,").contains("v100"));
        assert!(error("\"factors\":[0.5", "\"factors\":[-0.5").contains("factors"));
        assert!(error("\"noise\":1e-9", "\"noise\":0.0").contains("noise"));
        assert!(error("\"error\":0.05", "\"error\":-1").contains("sizes of t4"));
        assert!(error("\"low\":-0.2", "\"low\":\"x\"").contains("range.low"));
    }
}
