//! Chooses the method for each operation, and gives the reason.
//!
//! With a measured time: wave scaling if launches are known and libraries use the same kernel on every GPU. The ratio
//! of the learned models if libraries choose the kernel by GPU (gemm, convolution, recurrent, attention) or no launch
//! was recorded. Without shapes: the ratio of bandwidths, or a range between that and the ratio of arithmetic rates
//! ([`unshaped`](super::unshaped)). Without a measured time: the learned models on shapes. Rooflines replace the models
//! for operators they do not know. Habitat's networks and fitted lines come first if requested.

use habitat_base::units::{Flops, Micros};
use habitat_step::profile::Precision;

use super::decoded::Decoded;
use super::estimate::{Estimate, OperationPrediction};
use super::habitat::HabitatTimes;
use super::kernelwise::{Level, Lines};
use super::learned::LearnedTime;
use super::method::{Method, MethodChoice};
use super::rate::{Rates, SHORTEST_KERNEL_US};
use super::roofline::roofline;
use super::uncounted;
use super::unshaped;
use super::wave::{GammaSource, WaveForm, choose_gamma, scale_kernel};
use habitat_step::op::{Arithmetic, Family, Work};

/// Inputs to predict a profile on one destination.
pub(super) struct Route<'a> {
    pub(super) origin: Option<&'a Rates<'a>>,
    pub(super) destination: &'a Rates<'a>,
    pub(super) choice: MethodChoice,
    pub(super) form: WaveForm,
    /// Whether to fill in names and reasons; otherwise they stay empty.
    pub(super) explains: bool,
    pub(super) learned: Option<LearnedColumns<'a>>,
    /// Predictions of Habitat's networks, if requested.
    pub(super) habitat: Option<&'a HabitatTimes>,
    /// Fitted lines for the destination, if requested.
    pub(super) fitted: Option<Fitted<'a>>,
}

/// Fitted lines for one GPU.
#[derive(Clone, Copy)]
pub(super) struct Fitted<'a> {
    pub(super) lines: Lines<'a>,
    /// Predicted step and its operations, for [`MethodChoice::EndToEnd`].
    pub(super) whole: Option<(Micros, Flops)>,
}

/// Predictions of the learned models for all operations.
#[derive(Clone, Copy)]
pub(super) struct LearnedColumns<'a> {
    /// Predictions on the destination.
    pub(super) there: &'a [Option<LearnedTime>],
    /// Predictions on the origin, if its operators were measured within the step, to correct each one. Separately
    /// measured operators correct the step as a whole.
    pub(super) here: Option<&'a [Option<LearnedTime>]>,
}

/// Whether an operation measured within a step uses the learned models; otherwise its own measurement is better.
pub(super) fn asks_models(
    (origin, destination): (Option<&Rates<'_>>, &Rates<'_>),
    choice: MethodChoice,
    decoded: &Decoded<'_>,
) -> bool {
    let Some((origin, time)) = origin.zip(decoded.operation.device_time) else { return true };
    if time.get() == 0.0 || decoded.is_host_copy {
        return false;
    }
    let kept = matches!(decoded.family, Family::Softmax | Family::Normalisation);
    // Wave scaling needs the launches and the occupancy limits of both GPUs.
    let launches_known = [origin, destination].iter().all(|rates| rates.gpu.limits.is_some())
        && decoded.operation.kernels.iter().any(|kernel| kernel.grid.is_some());
    choice == MethodChoice::Learned || !launches_known || decoded.family.varies_kernels() || kept
}

impl Route<'_> {
    /// Predicts the device time of one occurrence on the destination.
    pub(super) fn predict(&self, decoded: &Decoded<'_>) -> OperationPrediction {
        let operation = decoded.operation;
        let (unknown, answer) = match self.by_lines(decoded) {
            Ok(answer) => (None, answer),
            Err(why) => (Some(why), None),
        };
        let (time, mut why, is_far) = match answer.or_else(|| self.learned(decoded)).or_else(|| self.undecided(decoded))
        {
            Some((estimate, why, is_far)) => (Some(estimate), why, is_far),
            None => match self.time(decoded) {
                Ok((time, method, why)) => {
                    (Some(Estimate::with_band(time, method.operation_band(), method)), why, false)
                }
                Err(why) => (None, why, false),
            },
        };
        let doubt = decoded.op.doubt();
        let time = match time {
            Some(time) if doubt > 1.0 && (self.origin.is_none() || operation.device_time.is_none()) => {
                why = self.say(|| format!("{why}; unknown lengths of packed sequences: range × {doubt:.1} both ways"));
                Some(uncounted::doubted(time, doubt))
            }
            time => time,
        };
        if let Some(unknown) = unknown {
            why = self.say(|| format!("{unknown}; {why}"));
        }
        let by_rates = time.filter(|time| time.method.uses_rates());
        if let Some(name) = by_rates.and_then(|_| self.destination.lacks(decoded)).filter(|name| *name != "tf32") {
            let gpu = &self.destination.gpu.slug;
            why = self.say(|| format!("{why}; {gpu} has no {name} tensor cores: FP32 rate"));
        }
        OperationPrediction {
            index: decoded.index,
            name: self.say(|| operation.name.clone()),
            phase: operation.phase,
            count: operation.count,
            time,
            origin_time: operation.device_time,
            is_far,
            why,
        }
    }

    /// Builds a reason if reasons are requested.
    fn say(&self, words: impl FnOnce() -> String) -> String {
        if self.explains { words() } else { String::new() }
    }

    /// Predicts by fitted lines; `None` if not requested, and for views and communication.
    fn by_lines(&self, decoded: &Decoded<'_>) -> Result<Option<(Estimate, String, bool)>, String> {
        let Some(Fitted { lines, whole }) = self.fitted else { return Ok(None) };
        if matches!(decoded.family, Family::View | Family::Communication) || decoded.is_host_copy {
            return Ok(None);
        }
        if self.choice == MethodChoice::EndToEnd {
            let (time, all) = whole.ok_or("no whole steps were fitted")?;
            let own = decoded.work.map_or(Flops::ZERO, |work| work.flops);
            let share = if all.get() > 0.0 { own / all } else { 0.0 };
            let estimate = Estimate::with_band(time * share, Method::EndToEnd.operation_band(), Method::EndToEnd);
            let why = self.say(|| "share of the step by FLOPs: only whole steps were fitted".to_owned());
            return Ok(Some((estimate, why, false)));
        }
        let level = if self.choice == MethodChoice::LayerWise { Level::Layers } else { Level::Kernels };
        let answer = lines.time_of(decoded.layers(), level)?;
        let spread = lines.range(None);
        let estimate = Estimate::with_factors(answer.time, spread.low, spread.high, answer.method);
        let far = if answer.is_far() { "; far beyond the measured sizes" } else { "" };
        Ok(Some((estimate, self.say(|| format!("{}{far}", answer.why)), answer.is_far())))
    }

    /// Predicts by the learned models, if they are chosen and know the operator. The last value is whether it is
    /// outside their training data.
    fn learned(&self, decoded: &Decoded<'_>) -> Option<(Estimate, String, bool)> {
        let asked = self.habitat.and_then(|networks| networks.of(decoded.index, &self.destination.gpu.slug));
        if !self.choice.is_learned() || matches!(asked, Some(Ok(_))) {
            return None;
        }
        let columns = self.learned?;
        let there = (*columns.there.get(decoded.index)?)?;
        let name = decoded.family.name();
        let far = if there.is_far { "; outside the training data: range widened" } else { "" };
        let measured = decoded.operation.device_time.filter(|_| self.origin.is_some());
        if let (Some(here), Some(time)) = (columns.here, measured) {
            if !asks_models((self.origin, self.destination), self.choice, decoded) {
                return None;
            }
            let here = (*here.get(decoded.index)?)?;
            let (time, models, deviation) = there.with_measured_origin(&here, time);
            let why = self.say(|| {
                let [here, there] = models.map(Micros::get);
                format!("{name}: models {here:.1} → {there:.1} µs, corrected by {deviation:.2} as measured on the origin{far}")
            });
            let spread = there.with_origin;
            return Some((
                Estimate::with_factors(time, spread.low, spread.high, Method::LearnedRatio),
                why,
                there.is_far,
            ));
        }
        let models = match (there.tf32, there.mean) {
            (Some(_), _) => "efficiency model in TF32",
            (None, Some(_)) => "mean of two models",
            (None, None) => "learned models",
        };
        let estimate = Estimate::with_factors(there.answer(), there.spread.low, there.spread.high, Method::Learned);
        Some((estimate, self.say(|| format!("{name}: {models} on shapes{far}")), there.is_far))
    }

    /// Range for a measured operation without shapes, which may be compute- or memory-bound.
    fn undecided(&self, decoded: &Decoded<'_>) -> Option<(Estimate, String, bool)> {
        if self.choice.ignores_origin() || !unshaped::is_undecided(decoded) || decoded.is_host_copy {
            return None;
        }
        let origin = self.origin.filter(|origin| origin.gpu.slug != self.destination.gpu.slug)?;
        let time = decoded.operation.device_time.filter(|time| time.get() > 0.0)?;
        let (estimate, [fastest, slowest, mid]) = unshaped::between(decoded, (origin, self.destination), time);
        let why = self.say(|| {
            format!(
                "{}: no shapes, so it may be compute- or memory-bound: {fastest:.2} to {slowest:.2} times the measured time, {mid:.2} assumed",
                decoded.family.name()
            )
        });
        Some((estimate, why, false))
    }

    fn time(&self, decoded: &Decoded<'_>) -> Result<(Micros, Method, String), String> {
        match self.habitat.and_then(|networks| networks.of(decoded.index, &self.destination.gpu.slug)) {
            Some(Ok((time, why))) => Ok((*time, Method::HabitatMlp, self.say(|| why.clone()))),
            Some(Err(refused)) => {
                let put_in = |(time, method, why)| (time, method, self.say(|| format!("{refused}; {why}")));
                self.without_networks(decoded).map(put_in)
            }
            None => self.without_networks(decoded),
        }
    }

    fn without_networks(&self, decoded: &Decoded<'_>) -> Result<(Micros, Method, String), String> {
        if decoded.family == Family::Communication {
            let why = || "communication between GPUs: a plan adds it for its number of GPUs".to_owned();
            return Err(self.say(why));
        }
        let measured = self.origin.zip(decoded.operation.device_time).filter(|_| !self.choice.ignores_origin());
        let Some((origin, time)) = measured else { return self.shapes_alone(decoded) };
        if time.get() == 0.0 {
            return Ok((time, Method::WaveScaling, self.say(|| "no device time on the origin".to_owned())));
        }
        if decoded.is_host_copy {
            let why = self.say(|| "copy over the host link, same time as on the origin".to_owned());
            return Ok((time, Method::BandwidthScaling, why));
        }
        let by_launch =
            self.choice == MethodChoice::WaveScaling || !decoded.family.varies_kernels() || decoded.work.is_none();
        let (scaled, method, why) = by_launch
            .then(|| self.by_waves(decoded, origin))
            .flatten()
            .unwrap_or_else(|| self.by_ratio(decoded, origin, time));
        // A launch takes at least the time of the shortest kernels, unless it was already shorter.
        let launches: f64 = decoded.operation.kernels.iter().map(|kernel| f64::from(kernel.count)).sum();
        let floor = Micros::known(SHORTEST_KERNEL_US * launches.max(1.0)).min(time);
        if scaled.get() < floor.get() {
            return Ok((floor, method, self.say(|| format!("{why}; raised to the shortest kernel time"))));
        }
        Ok((scaled, method, why))
    }

    /// Scales kernel by kernel; `None` unless all launches and both GPUs' limits are known.
    fn by_waves(&self, decoded: &Decoded<'_>, origin: &Rates<'_>) -> Option<(Micros, Method, String)> {
        let operation = decoded.operation;
        if operation.kernels.is_empty() {
            return None;
        }
        let intensity = decoded.work.as_ref().and_then(Work::intensity);
        let arithmetic = decoded.work.as_ref().map_or(Arithmetic::Vector, |work| work.arithmetic);
        let rate = self.destination.arithmetic(arithmetic, decoded.dtype.as_ref(), decoded.arithmetic);
        let ridge = rate.get() / self.destination.bandwidth.value.get();
        let (mut before, mut after) = (Micros::ZERO, Micros::ZERO);
        let (mut smallest, mut largest, mut source, mut refitted) =
            (f64::INFINITY, 0.0_f64, GammaSource::Unknown, false);
        for kernel in &operation.kernels {
            let (gamma, from) = choose_gamma(kernel, intensity, ridge);
            let scaled = scale_kernel(kernel, origin, self.destination, gamma, self.form)?;
            before += kernel.duration * f64::from(kernel.count);
            after += scaled.time * f64::from(kernel.count);
            (smallest, largest, source) = (smallest.min(gamma), largest.max(gamma), from);
            refitted |= scaled.refitted;
        }
        // Kernels and operation may be averaged differently, so the operation is scaled by the kernels' ratio.
        let time = if before.get() > 0.0 { operation.device_time? * (after / before) } else { after };
        let (time, tf32) = match self.by_tf32(decoded, origin) {
            Some(factor) if (factor - 1.0).abs() > 0.005 => {
                (time * factor, format!("; TF32 on one of the two GPUs: × {factor:.2}"))
            }
            _ => (time, String::new()),
        };
        let why = self.say(|| {
            let gamma = if largest - smallest < 0.005 {
                format!("γ {largest:.2}")
            } else {
                format!("γ {smallest:.2}–{largest:.2}")
            };
            let from = match source {
                GammaSource::Counters => "from counters",
                GammaSource::Shapes => "from shapes",
                GammaSource::Unknown => "(unknown intensity)",
            };
            let kernels = operation.kernels.len();
            let plural = if kernels == 1 { "" } else { "s" };
            let fit = if refitted { "; a block does not fit unchanged: assuming one per multiprocessor" } else { "" };
            format!("{kernels} kernel{plural}, {gamma} {from}{fit}{tf32}")
        });
        Some((time, Method::WaveScaling, why))
    }

    /// Factor for a kernel that runs in TF32 on only one of the GPUs: the ratio of the rooflines on the GPU with TF32.
    fn by_tf32(&self, decoded: &Decoded<'_>, origin: &Rates<'_>) -> Option<f64> {
        let (here, there) = (origin.gpu.runs_tf32(), self.destination.gpu.runs_tf32());
        let work = decoded.work.filter(|_| decoded.is_in_tf32() && here != there)?;
        let both = |rates: &Rates<'_>| {
            let of = |arithmetic| roofline(rates, &work, decoded.dtype.as_ref(), Some(arithmetic));
            of(Precision::Tf32) / of(Precision::Fp32Strict)
        };
        Some(if there { both(self.destination) } else { 1.0 / both(origin) })
    }

    fn by_ratio(&self, decoded: &Decoded<'_>, origin: &Rates<'_>, time: Micros) -> (Micros, Method, String) {
        let dtype = decoded.dtype.as_ref();
        if let Some(work) = &decoded.work {
            let there = roofline(self.destination, work, dtype, decoded.arithmetic);
            let here = roofline(origin, work, dtype, decoded.arithmetic);
            let why = self.say(|| {
                let cause = if decoded.family.varies_kernels() {
                    "libraries choose the kernel by GPU"
                } else {
                    "no launch recorded"
                };
                format!("{}: {cause}; rooflines {:.1} → {:.1} µs", decoded.family.name(), here.get(), there.get())
            });
            return (time * (there / here), Method::RooflineRatio, why);
        }
        let ratio = origin.bandwidth.value / self.destination.bandwidth.value;
        let why = self.say(|| "no launch and no shapes: scaled by memory bandwidth".to_owned());
        (time * ratio, Method::BandwidthScaling, why)
    }

    fn shapes_alone(&self, decoded: &Decoded<'_>) -> Result<(Micros, Method, String), String> {
        if decoded.family == Family::View {
            return Ok((Micros::ZERO, Method::Roofline, self.say(|| "a view: nothing runs on the device".to_owned())));
        }
        let work = decoded.work.as_ref().ok_or("no measured time and no shapes: left out of the step")?;
        let time = roofline(self.destination, work, decoded.dtype.as_ref(), decoded.arithmetic);
        let why = self.say(|| {
            let megabytes = work.bytes.get() / 1e6;
            if decoded.family == Family::Unknown {
                format!("unknown operator, assumed memory-bound: {megabytes:.3} MB")
            } else {
                format!("{}: {:.3} GFLOP, {megabytes:.3} MB", decoded.family.name(), work.flops.get() / 1e9)
            }
        });
        Ok((time, Method::Roofline, why))
    }
}
