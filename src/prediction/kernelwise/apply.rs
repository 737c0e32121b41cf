//! Predicts times of operations, and of whole steps from their operations, by fitted lines.

use crate::decoded::Decoded;
use crate::learned::{Spread, WIDE};
use crate::method::Method;
use crate::rate::Rates;
use crate::roofline::roofline;
use habitat_base::units::{Flops, Micros};
use habitat_step::op::Family;
use habitat_step::profile::{Operation, Precision, Profile};

use super::{AcrossLine, GpuLines, Group, KernelWise, Kind, LEAST_GPUS, Property};
use crate::layer::{Layer, Layers};

/// Maximum distance (in octaves of its sizes) of a layer from those in the table to run the same kernels.
const REACH: f64 = 4.0;
/// Multiple of the largest measured size beyond which a line is extrapolated too far.
const STRETCHED: f64 = 4.0;
/// Multiple beyond which a stream was measured only at sizes dominated by the launch.
const LAUNCHES_ONLY: f64 = 256.0;
/// Minimum rate as a share of the lowest measured one, because lines may become negative.
const SLOWEST_SHARE: f64 = 0.2;

/// Granularity of the prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// One line per kernel.
    Kernels,
    /// One line per kind of layer.
    Layers,
}

/// Model of rates across GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Across {
    /// Proportional to bandwidth or product rate, but limited by the bandwidth.
    #[default]
    Proportional,
    /// Linear in the memory bandwidth, as published.
    Published,
}

/// Predicted time of one occurrence.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The time.
    pub time: Micros,
    /// [`Method::KernelWise`] or [`Method::LayerWise`].
    pub method: Method,
    /// Lines used, and why others were not.
    pub why: String,
    /// Its size over the largest measured one; 0 if unknown.
    pub beyond: f64,
}

impl Answer {
    /// Whether it is far beyond the measured sizes.
    pub(crate) fn is_far(&self) -> bool {
        self.beyond > STRETCHED
    }
}

/// Fitted lines for one GPU.
#[derive(Debug, Clone, Copy)]
pub struct FittedLines<'a> {
    model: &'a KernelWise,
    rates: Rates<'a>,
    own: Option<&'a GpuLines>,
    across: Across,
}

impl KernelWise {
    /// Lines for a GPU: its own if it was measured.
    pub fn on<'a>(&'a self, gpu: impl Into<Rates<'a>>) -> FittedLines<'a> {
        let rates = gpu.into();
        FittedLines { model: self, rates, own: self.gpus.get(&rates.gpu.slug), across: Across::default() }
    }

    /// Lines across GPUs, even if `gpu` was measured.
    pub fn across_to<'a>(&'a self, gpu: impl Into<Rates<'a>>, across: Across) -> FittedLines<'a> {
        FittedLines { model: self, rates: gpu.into(), own: None, across }
    }
}

impl FittedLines<'_> {
    /// Whether the GPU was measured.
    pub const fn is_measured(&self) -> bool {
        self.own.is_some()
    }

    /// Number of GPUs behind the lines across GPUs.
    pub(crate) fn gpus(&self) -> usize {
        self.model.gpus.len()
    }

    /// Ratio of a step to the sum of its layers.
    pub(crate) fn step_factor(&self) -> f64 {
        self.own.map_or(1.0, |own| own.step_factor)
    }

    /// Range of a step by a method; for any other value, of one operation.
    pub(crate) fn range(&self, method: Option<Method>) -> Spread {
        let ranges = if self.is_measured() { self.model.seen } else { self.model.unseen };
        match method {
            Some(Method::KernelWise) => ranges.kernel_wise,
            Some(Method::LayerWise) => ranges.layer_wise,
            Some(Method::EndToEnd) => ranges.end_to_end,
            _ => ranges.operation,
        }
        .unwrap_or(WIDE)
    }

    /// Predicts one occurrence of an operation.
    ///
    /// # Errors
    /// Reason that no line applies: the kind was not measured.
    pub fn time(&self, operation: &Operation, precision: Option<Precision>, level: Level) -> Result<Answer, String> {
        self.time_of(&Layers::of(operation, precision), level)
    }

    /// Predicts one occurrence of a decoded operation.
    ///
    /// # Errors
    /// As [`Self::time`].
    pub(crate) fn time_of(&self, layers: &Layers, level: Level) -> Result<Answer, String> {
        let Layers { whole, pieces } = layers;
        let layer = whole.as_ref().ok_or_else(|| "shapes do not determine the layer's work".to_owned())?;
        if let Some(answer) = self.layer(layer, level) {
            // Small streams are mostly launches, so their line does not apply to large ones.
            let streams = (answer.beyond > LAUNCHES_ONLY && layer.is_streaming)
                .then(|| self.layer(&layer.as_stream(), level))
                .flatten();
            return Ok(match streams {
                Some(all) if !all.is_far() => Answer {
                    method: Method::LayerWise,
                    why: format!(
                        "{} measured only at much smaller sizes: line of all streaming kinds, by bytes",
                        layer.kind
                    ),
                    ..all
                },
                _ => answer,
            });
        }
        let answers: Option<Vec<(Answer, f64)>> =
            pieces.iter().map(|(piece, times)| Some((self.layer(piece, level)?, *times))).collect();
        if let Some(answers) = answers.filter(|answers| !answers.is_empty()) {
            let time: Micros = answers.iter().map(|(answer, times)| answer.time * *times).sum();
            let kinds: Vec<&str> = pieces.iter().map(|(piece, _)| piece.kind.as_str()).collect();
            return Ok(Answer {
                time,
                method: Method::LayerWise,
                why: format!("{} not measured: lines of its parts ({})", layer.kind, kinds.join(", ")),
                beyond: answers.iter().map(|(answer, _)| answer.beyond).fold(0.0, f64::max),
            });
        }
        if let Some(forward) = layer.as_forward()
            && let Some(answer) = self.layer(&forward, level)
        {
            return Ok(Answer {
                method: Method::LayerWise,
                why: format!("{} not measured: line of {}", layer.kind, forward.kind),
                ..answer
            });
        }
        if layer.is_streaming
            && let Some(answer) = self.layer(&layer.as_stream(), level)
        {
            return Ok(Answer {
                method: Method::LayerWise,
                why: format!("{} not measured: line of all streaming kinds, by bytes", layer.kind),
                ..answer
            });
        }
        Err(format!("{} not measured", layer.kind))
    }

    /// Whole step by its operations; those without a line use their rooflines.
    pub fn step(&self, profile: &Profile, level: Level) -> Micros {
        let decoded = Decoded::all(profile);
        let each = decoded.iter().filter(|one| one.family != Family::View).filter_map(|one| {
            let by_line = self.time_of(one.layers(), level).map(|answer| answer.time).ok();
            let by_roofline = || {
                let work = one.work.as_ref()?;
                Some(roofline(&self.rates, work, one.dtype.as_ref(), one.arithmetic))
            };
            Some(by_line.or_else(by_roofline)? * f64::from(one.operation.count))
        });
        each.sum::<Micros>() * self.step_factor()
    }

    /// Whole step by its floating-point operations; `None` if no steps were measured.
    pub(crate) fn end_to_end(&self, operations: Flops) -> Option<Micros> {
        let operations = operations.get();
        let time = match self.own {
            Some(own) => own.end_to_end.as_ref()?.line.at(operations),
            None => self.rated(self.model.across_steps.as_ref()?, operations, None),
        };
        Micros::checked(time)
    }

    fn layer(&self, layer: &Layer, level: Level) -> Option<Answer> {
        let Some(own) = self.own else { return self.elsewhere(layer, level) };
        let Some(kind) = own.kinds.get(&layer.kind) else {
            let mut answer = self.elsewhere(layer, level)?;
            answer.why = format!("not measured on this GPU: {}", answer.why);
            return Some(answer);
        };
        let method = |method| Answer { time: Micros::ZERO, method, why: String::new(), beyond: 0.0 };
        if level == Level::Kernels {
            let name = |group: &Group| {
                let first = group.kernels.first().map_or(layer.kind.as_str(), String::as_str);
                let first = habitat_base::text::clean(first, 48);
                let more = group.kernels.len().saturating_sub(1);
                let more = if more == 0 { String::new() } else { format!(" and {more} alike") };
                format!("{first}{more} by {}", group.driver)
            };
            match kind.kernels(layer) {
                Ok(groups) => {
                    let mut answer = method(Method::KernelWise);
                    let mut sizes = Vec::with_capacity(groups.len());
                    for group in &groups {
                        sizes.push(layer.size(group.driver)?);
                    }
                    for (group, size) in groups.iter().zip(sizes) {
                        answer.time += Micros::checked(group.line.at(size))?;
                        answer.beyond = answer.beyond.max(size / group.largest.max(1.0));
                    }
                    answer.why = groups.iter().map(|group| name(group)).collect::<Vec<_>>().join("; ");
                    return Some(answer);
                }
                Err(why) => {
                    let mut answer = by_layers(kind, layer)?;
                    answer.why = format!("{why}: line of its kind");
                    return Some(answer);
                }
            }
        }
        by_layers(kind, layer)
    }

    /// Predicts a layer by the lines of other GPUs.
    fn elsewhere(&self, layer: &Layer, level: Level) -> Option<Answer> {
        let lines = if level == Level::Kernels { &self.model.across } else { &self.model.across_layers };
        let line = lines.get(&layer.kind)?;
        if self.across == Across::Published && line.gpus < LEAST_GPUS {
            return None;
        }
        let size = layer.size(line.driver)?;
        let time = self.rated(line, size, Some(layer.bytes));
        let by = match self.across {
            Across::Proportional => line.property.to_string(),
            Across::Published => "memory bandwidth, linear".to_owned(),
        };
        let method = if level == Level::Kernels { Method::KernelWise } else { Method::LayerWise };
        let why = format!("{} of {} other GPUs by {}, with the {by}", layer.kind, line.gpus, line.driver);
        Some(Answer { time: Micros::checked(time)?, method, why, beyond: 0.0 })
    }

    /// Microseconds by a line across GPUs.
    fn rated(&self, line: &AcrossLine, size: f64, bytes: Option<f64>) -> f64 {
        match self.across {
            Across::Proportional => {
                let rate = line.rate * line.property.of(&self.rates);
                let time = line.intercept.min(line.offset / rate) + size / rate;
                // Arithmetic cannot be faster than memory delivers its data.
                let least = bytes
                    .filter(|_| line.property == Property::ProductRate)
                    .map_or(0.0, |bytes| bytes / self.rates.streaming.value.get() * 1e6);
                time.max(least)
            }
            Across::Published => {
                let rate = line.by_bandwidth.at(self.rates.gpu.memory_bandwidth.get() / 1e9);
                line.intercept + size / rate.max(SLOWEST_SHARE * line.slowest)
            }
        }
    }
}

fn by_layers(kind: &Kind, layer: &Layer) -> Option<Answer> {
    let line = kind.layers.as_ref()?;
    let size = layer.size(line.driver)?;
    Some(Answer {
        time: Micros::checked(line.line.at(size))?,
        method: Method::LayerWise,
        why: format!("{} by {}", layer.kind, line.driver),
        beyond: size / line.largest.max(1.0),
    })
}

impl Kind {
    /// Groups of kernels that a layer runs, by the nearest shape in the table.
    ///
    /// # Errors
    /// Reason that no kernel is known.
    pub(crate) fn kernels(&self, layer: &Layer) -> Result<Vec<&Group>, String> {
        if self.table.is_empty() {
            let only = self.groups.first().ok_or("none of its kernels was measured")?;
            return Ok(vec![only]);
        }
        let place: Vec<f64> = layer.shape.iter().map(|size| size.log2()).collect();
        let distance = |class: &[i8]| -> f64 {
            class.iter().zip(&place).map(|(&octave, place)| (f64::from(octave) - place).powi(2)).sum::<f64>().sqrt()
        };
        let nearest = self
            .table
            .iter()
            .filter(|entry| entry.class.len() == place.len())
            .map(|entry| (distance(&entry.class), entry))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        match nearest {
            Some((far, entry)) if far <= REACH => {
                Ok(entry.groups.iter().filter_map(|&group| self.groups.get(group)).collect())
            }
            _ => Err("kernel unknown, no layer of similar shape was measured".to_owned()),
        }
    }
}
