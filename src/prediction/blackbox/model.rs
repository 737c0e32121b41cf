//! The fitted model: factors by kind, and a Gaussian process on what they leave.
//!
//! For every ordered pair of GPUs, ln step on the target = ln Σ factor · column + f(place),
//! with the columns and places of [`Anatomy`]. f is a Gaussian process of mean 0 and
//! covariance exp(−d²/2) (Rasmussen and Williams 2006, chapter 2), in units of its prior
//! variance. The file (`habitat-black-box-model`, version 1, JSON) holds the places and what
//! the mean left at each; the process is made from them when it is used.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::min_max::MinMax;
use super::{Anatomy, BlackBoxStep, OperatorKind};
use crate::gaussian::{Prior, Process};
use habitat_base::units::GpuSlug;

/// Name of the file form.
pub const FORMAT: &str = "habitat-black-box-model";
/// Its version.
pub const VERSION: u64 = 1;
/// Columns of the mean.
pub(crate) const COLUMNS: usize = OperatorKind::ALL.len() + 3;
/// Coordinates of a place.
const COORDINATES: usize = OperatorKind::ALL.len() + 4;
/// A mean below this share of the anchor's step is raised to it.
const FLOOR: f64 = 1e-3;
/// Share of the device time below which a kind of operators does not matter.
const TRIFLE: f64 = 0.02;
/// Part of a range's width that is there however near the fitted steps are.
const NEAR: f64 = 0.1;

/// What was chosen by validation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// How strongly factors are drawn to the ratios of the data sheets.
    pub ridge: f64,
    /// Length over which what the mean leaves changes, in units of [`Anatomy`]'s places.
    pub length: f64,
    /// Variance of a single step's own deviation over that of the process.
    pub noise: f64,
}

/// Where 80 % of the steps of networks left out are to be: quantiles of ln(measured /
/// predicted) over the width, which is 0.1 + the share of the prior variance that was left.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The lower quantile.
    pub low: f64,
    /// The upper quantile.
    pub high: f64,
}

impl Range {
    /// What errors are divided by.
    pub fn width(unfamiliar: f64) -> f64 {
        NEAR + unfamiliar
    }

    /// Ends of the range over its middle.
    pub(super) fn factors(self, unfamiliar: f64) -> [f64; 2] {
        let width = Self::width(unfamiliar);
        [(self.low * width).exp(), (self.high * width).exp()]
    }
}

/// Why bytes are no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Not the form.
    #[error("{0}")]
    Form(String),
    /// A version that this program does not know.
    #[error("version {0} of {FORMAT}, but this program reads version {VERSION}; a newer habitat-tui may")]
    Version(u64),
}

/// The model, as it is in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlackBoxModel {
    format: String,
    version: u64,
    /// On what it was fitted, in words.
    trained_on: String,
    settings: Settings,
    /// The vocabulary, in the order of the columns.
    kinds: Vec<OperatorKind>,
    anchors: Vec<Anchor>,
    /// How steps grow between two sizes, by GPU.
    sizes: Vec<Sizes>,
}

/// How the steps of a GPU grow between two sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Between two batch sizes.
    pub batch: Shape,
    /// Between two sides of square pictures.
    pub pixels: Shape,
}

/// A shape with what it was off by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// The polynomial between 0 and 1.
    pub polynomial: MinMax,
    /// 80 % of the sizes of networks left out were within this, relative.
    pub error: f64,
}

/// What is known from one GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    gpu: GpuSlug,
    /// Places of the steps it was fitted on.
    places: Vec<Vec<f64>>,
    targets: Vec<Target>,
    #[serde(skip)]
    settings: Option<Settings>,
}

/// A GPU that is reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// The GPU.
    pub gpu: GpuSlug,
    /// Of the columns, all ≥ 0.
    pub factors: Vec<f64>,
    /// What the mean left at each place, as a logarithm.
    pub left: Vec<f64>,
    /// Of held-out steps.
    pub range: Range,
}

impl Anchor {
    /// Checked parts; numbers are rounded as the file has them.
    pub(crate) fn new(gpu: GpuSlug, places: Vec<Vec<f64>>, targets: Vec<Target>) -> Self {
        Self { gpu, places, targets, settings: None }
    }

    /// GPUs that are reached.
    pub fn targets(&self) -> Vec<GpuSlug> {
        self.targets.iter().map(|target| target.gpu.clone()).collect()
    }

    /// The factors by which the mean scales each column, by target.
    pub fn factors(&self) -> impl Iterator<Item = (&GpuSlug, &[f64])> {
        self.targets.iter().map(|target| (&target.gpu, target.factors.as_slice()))
    }

    /// Kinds that take more than 2 % of the device time and that no fitted step has, with
    /// their shares: their factors are from data sheets alone.
    pub fn unseen(&self, anatomy: &Anatomy) -> Vec<(OperatorKind, f64)> {
        let is_seen = |column: usize| self.places.iter().any(|place| place.get(column).is_some_and(|x| *x > 0.0));
        let shares = OperatorKind::ALL.into_iter().zip(anatomy.shares()).enumerate();
        let unseen = shares.filter(|(column, (_, share))| *share > TRIFLE && !is_seen(*column));
        unseen.map(|(_, of)| of).collect()
    }

    /// The model ready to predict.
    pub fn fitted(&self) -> Fitted<'_> {
        let settings = self.settings.unwrap_or(Settings { ridge: 0.05, length: 1.0, noise: 0.5 });
        let process = Residuals::new(settings, self.places.iter());
        let weights = self.targets.iter().map(|target| process.weights_of(&target.left)).collect();
        Fitted { anchor: self, process, weights }
    }
}

/// The process over places, for any values at them.
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

    /// Values at a place for several weights, and the share of the variance that is left.
    pub(crate) fn at(&self, place: &[f64], weights: &[Vec<f64>]) -> (Vec<f64>, f64) {
        let scaled: Vec<f64> = place.iter().map(|x| x / self.length).collect();
        self.process.at_with(&scaled, weights)
    }
}

/// Σ factor · column, never below a thousandth of the anchor's step; and whether it was.
pub(crate) fn mean(anatomy: &Anatomy, factors: &[f64]) -> (f64, bool) {
    let sum: f64 = anatomy.columns().iter().zip(factors).map(|(column, factor)| column * factor).sum();
    let floor = FLOOR * anatomy.step();
    if sum > floor { (sum, false) } else { (floor, true) }
}

/// An anchor with its process made.
#[derive(Debug)]
pub struct Fitted<'a> {
    anchor: &'a Anchor,
    process: Residuals,
    /// By target.
    weights: Vec<Vec<f64>>,
}

impl Fitted<'_> {
    /// The step on `target`; `None` where it is not reached.
    pub fn predict(&self, anatomy: &Anatomy, target: &GpuSlug) -> Option<BlackBoxStep> {
        self.predict_all(anatomy).remove(target)
    }

    /// The step on every GPU that is reached.
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
    /// Of fitted anchors.
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

    /// How steps of a GPU grow between two sizes, where that was fitted.
    pub fn sizes(&self, gpu: &GpuSlug) -> Option<&Sizes> {
        self.sizes.iter().find(|sizes| sizes.gpu == *gpu)
    }

    /// On what it was fitted, in words.
    pub fn trained_on(&self) -> &str {
        &self.trained_on
    }

    /// What validation chose.
    pub const fn settings(&self) -> Settings {
        self.settings
    }

    /// The GPUs it starts from.
    pub fn anchors(&self) -> Vec<GpuSlug> {
        self.anchors.iter().map(|anchor| anchor.gpu.clone()).collect()
    }

    /// What it knows from one GPU.
    pub fn anchor(&self, gpu: &GpuSlug) -> Option<&Anchor> {
        self.anchors.iter().find(|anchor| anchor.gpu == *gpu)
    }

    /// Reads the file form.
    ///
    /// # Errors
    /// [`ModelError`] naming the field, or the version.
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
            None => return form("\"version\" is missing or no whole number".to_owned()),
        }
        let mut model: Self =
            serde_path_to_error::deserialize(value).map_err(|error| ModelError::Form(error.to_string()))?;
        if model.kinds != OperatorKind::ALL {
            return form("\"kinds\" is another vocabulary than this program's".to_owned());
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
                return form(format!("anchor {gpu}: a place has not {COORDINATES} coordinates"));
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

    /// The file form: one line a place and a list of numbers.
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

    /// Convolutions half as long, normalisation a third, waiting as it is; 10 % more at the
    /// one place that is known.
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

    /// 0.5 · 600 + 300 / 3 + 100 = 500 µs, and 10 % on top where it was fitted.
    #[test]
    fn a_step_by_hand() {
        let model = model();
        let anchor = model.anchor(&slug("t4")).unwrap();
        let fitted = anchor.fitted();
        let v100 = slug("v100-sxm2-16gb");
        let here = fitted.predict(&Anatomy::of(&totals(600.0, 300.0)), &v100).unwrap();
        assert!((here.time.range.mid.get() - 550.0).abs() < 1e-3 && here.unfamiliar < 1e-6, "{here:?}");
        assert!((here.time.range.low.get() / here.time.range.mid.get() - (-0.02_f64).exp()).abs() < 1e-6);
        // A step of 90 s is far from it: the mean, with a range eleven times as wide.
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
        // As fitted models have them: a few decimals, which any reader of numbers gives back.
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
