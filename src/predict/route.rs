//! Which method answers for which operation, and why.
//!
//! With a measured time: wave scaling where the kernels' launches are known and libraries
//! run the same kernel everywhere; the learned models' ratio where they choose another
//! kernel on another GPU (gemm, convolution, recurrent, attention) or no launch was
//! recorded; where not even shapes are known the ratio of bandwidths, or anything between
//! that and the ratio of arithmetic rates ([`unshaped`](super::unshaped)). Without: the learned
//! models on shapes. Rooflines stand in for operators that the models do not know.
//! Habitat's networks and fitted lines answer first where they are asked for.

use crate::catalog::GpuSpec;
use crate::profile::{DType, Operation, Precision};
use crate::units::{Flops, Micros};

use super::estimate::{Estimate, Method, OperationPrediction};
use super::habitat::HabitatTimes;
use super::kernelwise::{Level, Lines};
use super::learned::LearnedTime;
use super::roofline::{SHORTEST_KERNEL_US, attained_bandwidth, roofline, sustained_rate};
use super::unshaped;
use super::wave::{GammaSource, WaveForm, choose_gamma, scale_kernel};
use crate::op::{Arithmetic, Family, Work, element_type, family, work};

/// Which methods may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MethodChoice {
    /// The best available for each operation.
    #[default]
    Auto,
    /// The learned models wherever they know the operator, even where wave scaling could be
    /// used.
    Learned,
    /// Wave scaling wherever a launch is known, whatever the operation.
    WaveScaling,
    /// The roofline on shapes, even where times were measured.
    Roofline,
    /// Habitat's networks for products and convolutions, the rest as `Auto`.
    HabitatMlp,
    /// Fitted lines of kernels, on shapes, even where times were measured.
    KernelWise,
    /// Fitted lines of kinds of layers, likewise.
    LayerWise,
    /// The fitted line of whole steps, likewise.
    EndToEnd,
    /// The black-box model, from the totals of operator kinds (PROFET); only on its GPUs.
    BlackBox,
}

impl MethodChoice {
    /// All of them, in the order they are listed in.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Learned,
        Self::WaveScaling,
        Self::Roofline,
        Self::HabitatMlp,
        Self::KernelWise,
        Self::LayerWise,
        Self::EndToEnd,
        Self::BlackBox,
    ];

    /// The name in files, on screen and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Learned => "learned",
            Self::WaveScaling => "wave-scaling",
            Self::Roofline => "roofline",
            Self::HabitatMlp => "habitat-mlp",
            Self::KernelWise => "kernel-wise",
            Self::LayerWise => "layer-wise",
            Self::EndToEnd => "end-to-end",
            Self::BlackBox => "black-box",
        }
    }

    /// What it is, in words.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Auto => "The best available for each operation",
            Self::Learned => "The learned models wherever they know the operator",
            Self::WaveScaling => "Wave scaling wherever launches are known",
            Self::Roofline => "The roofline on shapes, whatever was measured",
            Self::HabitatMlp => {
                "Habitat's networks for products and convolutions in FP32 (`habitat-lab train --habitat` makes them), the rest as auto"
            }
            Self::KernelWise => "Lines of kernels that `fit kernelwise` fitted to measured steps, on shapes",
            Self::LayerWise => "Lines of kinds of layers, of the same file",
            Self::EndToEnd => "The line of whole steps by their operations, of the same file",
            Self::BlackBox => "The black-box model (PROFET), from the totals of operator kinds: on its GPUs only",
        }
    }

    /// What has to be there for it, in words.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Auto => "a recorded step, or shapes",
            Self::Learned => "shapes; better with a step measured on any GPU",
            Self::WaveScaling => "a trace with the launches of its kernels",
            Self::Roofline => "shapes",
            Self::HabitatMlp => "shapes, and networks trained with `habitat-lab train --habitat`",
            Self::KernelWise | Self::LayerWise | Self::EndToEnd => {
                "shapes; better with lines fitted to your own steps by `fit kernelwise`"
            }
            Self::BlackBox => "a training step in FP32, measured on a GPU of the black-box model",
        }
    }

    /// Whether the learned models may answer.
    pub(super) const fn is_learned(self) -> bool {
        matches!(self, Self::Auto | Self::Learned | Self::HabitatMlp)
    }

    /// Whether lines that were fitted to other recordings answer.
    pub const fn is_fitted(self) -> bool {
        matches!(self, Self::KernelWise | Self::LayerWise | Self::EndToEnd)
    }

    /// Whether what was measured on the origin is left aside.
    const fn ignores_origin(self) -> bool {
        matches!(self, Self::Roofline) || self.is_fitted()
    }
}

/// An operation with what does not depend on the GPU worked out once.
pub(super) struct Routed<'a> {
    pub(super) operation: &'a Operation,
    index: usize,
    pub(super) family: Family,
    pub(super) work: Option<Work>,
    pub(super) dtype: Option<DType>,
}

impl<'a> Routed<'a> {
    pub(super) fn new(index: usize, operation: &'a Operation, precision: Option<Precision>) -> Self {
        Self {
            operation,
            index,
            family: family(operation),
            work: work(operation, precision),
            dtype: element_type(operation, precision),
        }
    }
}

/// One way of getting from the profile to a destination.
pub(super) struct Route<'a> {
    pub(super) origin: Option<&'a GpuSpec>,
    pub(super) destination: &'a GpuSpec,
    pub(super) precision: Option<Precision>,
    pub(super) choice: MethodChoice,
    pub(super) form: WaveForm,
    pub(super) learned: Option<LearnedColumns<'a>>,
    /// The answers of Habitat's networks, where they were asked for.
    pub(super) habitat: Option<&'a HabitatTimes>,
    /// Fitted lines for the destination, where they were asked for.
    pub(super) fitted: Option<Fitted<'a>>,
}

/// Fitted lines for one GPU.
#[derive(Clone, Copy)]
pub(super) struct Fitted<'a> {
    pub(super) lines: Lines<'a>,
    /// The step by its operations, and those operations, for [`MethodChoice::EndToEnd`].
    pub(super) whole: Option<(Micros, Flops)>,
}

/// What the learned models say of every operation.
#[derive(Clone, Copy)]
pub(super) struct LearnedColumns<'a> {
    /// On the destination.
    pub(super) there: &'a [Option<LearnedTime>],
    /// On the origin, where its operators were measured within the step: then each is
    /// corrected by itself. Operators measured apart correct the step as a whole.
    pub(super) here: Option<&'a [Option<LearnedTime>]>,
}

impl Route<'_> {
    /// The device time of one occurrence on the destination.
    pub(super) fn predict(&self, routed: &Routed<'_>) -> OperationPrediction {
        let operation = routed.operation;
        let (unknown, answer) = match self.by_lines(routed) {
            Ok(answer) => (None, answer),
            Err(why) => (Some(why), None),
        };
        let (time, mut why, is_far) = match answer.or_else(|| self.learned(routed)).or_else(|| self.undecided(routed)) {
            Some((estimate, why, is_far)) => (Some(estimate), why, is_far),
            None => match self.time(routed) {
                Ok((time, method, why)) => {
                    (Some(Estimate::with_band(time, method.operation_band(), method)), why, false)
                }
                Err(why) => (None, why, false),
            },
        };
        if let Some(unknown) = unknown {
            why = format!("{unknown}; {why}");
        }
        OperationPrediction {
            index: routed.index,
            name: operation.name.clone(),
            phase: operation.phase,
            count: operation.count,
            time,
            origin_time: operation.device_time,
            is_far,
            why,
        }
    }

    /// By fitted lines, where those were asked for; `None` where they were not, or have
    /// nothing to say of views and communication.
    fn by_lines(&self, routed: &Routed<'_>) -> Result<Option<(Estimate, String, bool)>, String> {
        let Some(Fitted { lines, whole }) = self.fitted else { return Ok(None) };
        if matches!(routed.family, Family::View | Family::Communication) || is_host_copy(routed.operation) {
            return Ok(None);
        }
        if self.choice == MethodChoice::EndToEnd {
            let (time, all) = whole.ok_or("no whole steps were fitted")?;
            let own = routed.work.map_or(Flops::ZERO, |work| work.flops);
            let share = if all.get() > 0.0 { own / all } else { 0.0 };
            let estimate = Estimate::with_band(time * share, Method::EndToEnd.operation_band(), Method::EndToEnd);
            return Ok(Some((
                estimate,
                "its share of the step's operations: only steps were fitted".to_owned(),
                false,
            )));
        }
        let level = if self.choice == MethodChoice::LayerWise { Level::Layers } else { Level::Kernels };
        let answer = lines.time(routed.operation, self.precision, level)?;
        let spread = lines.range(None);
        let estimate = Estimate::with_factors(answer.time, spread.low, spread.high, answer.method);
        let far = if answer.is_far() { "; far beyond the measured sizes" } else { "" };
        Ok(Some((estimate, format!("{}{far}", answer.why), answer.is_far())))
    }

    /// By the learned models, where they are the method of choice and know the operator; the
    /// last value tells whether it lies outside what they were trained on.
    fn learned(&self, routed: &Routed<'_>) -> Option<(Estimate, String, bool)> {
        let asked = self.habitat.and_then(|networks| networks.of(routed.index, &self.destination.slug));
        if !self.choice.is_learned() || matches!(asked, Some(Ok(_))) {
            return None;
        }
        let columns = self.learned?;
        let there = (*columns.there.get(routed.index)?)?;
        let name = routed.family.name();
        let far = if there.is_far { "; outside the training data: range widened" } else { "" };
        let measured = routed.operation.device_time.filter(|_| self.origin.is_some());
        if let (Some(here), Some(time)) = (columns.here, measured) {
            if time.get() == 0.0 || is_host_copy(routed.operation) {
                return None;
            }
            let kept = matches!(routed.family, Family::Softmax | Family::Normalisation);
            // Wave scaling needs the launches, and what both GPUs can hold of them.
            let limits = |gpu: &GpuSpec| gpu.limits.is_some();
            let launches_known = limits(self.destination)
                && self.origin.is_some_and(limits)
                && routed.operation.kernels.iter().any(|kernel| kernel.grid.is_some());
            if self.choice != MethodChoice::Learned && launches_known && !routed.family.varies_kernels() && !kept {
                return None;
            }
            let here = (*here.get(routed.index)?)?;
            let deviation = (time / here.time).powf(there.shared_deviation);
            let why = format!(
                "{name}: models {:.1} → {:.1} µs, corrected by {deviation:.2} as measured on the origin{far}",
                here.time.get(),
                there.time.get()
            );
            let spread = there.with_origin;
            let time = there.time * deviation;
            return Some((
                Estimate::with_factors(time, spread.low, spread.high, Method::LearnedRatio),
                why,
                there.is_far,
            ));
        }
        let estimate = Estimate::with_factors(there.time, there.spread.low, there.spread.high, Method::Learned);
        Some((estimate, format!("{name}: learned models on shapes{far}"), there.is_far))
    }

    /// A measured time of which no shapes tell what bounds it.
    fn undecided(&self, routed: &Routed<'_>) -> Option<(Estimate, String, bool)> {
        if self.choice.ignores_origin() || !unshaped::is_undecided(routed) || is_host_copy(routed.operation) {
            return None;
        }
        let origin = self.origin.filter(|origin| origin.slug != self.destination.slug)?;
        let time = routed.operation.device_time.filter(|time| time.get() > 0.0)?;
        let (estimate, why) = unshaped::between(routed, self.precision, (origin, self.destination), time);
        Some((estimate, why, false))
    }

    fn time(&self, routed: &Routed<'_>) -> Result<(Micros, Method, String), String> {
        match self.habitat.and_then(|networks| networks.of(routed.index, &self.destination.slug)) {
            Some(Ok((time, why))) => Ok((*time, Method::HabitatMlp, why.clone())),
            Some(Err(refused)) => {
                self.without_networks(routed).map(|(time, method, why)| (time, method, format!("{refused}; {why}")))
            }
            None => self.without_networks(routed),
        }
    }

    fn without_networks(&self, routed: &Routed<'_>) -> Result<(Micros, Method, String), String> {
        if routed.family == Family::Communication {
            return Err("communication between GPUs: added by the plan for its number of GPUs".to_owned());
        }
        let measured = self.origin.zip(routed.operation.device_time).filter(|_| !self.choice.ignores_origin());
        let Some((origin, time)) = measured else { return self.shapes_alone(routed) };
        if time.get() == 0.0 {
            return Ok((time, Method::WaveScaling, "no device time on the origin".to_owned()));
        }
        if is_host_copy(routed.operation) {
            return Ok((time, Method::BandwidthScaling, "copy over the host link, taken as on the origin".to_owned()));
        }
        let by_launch =
            self.choice == MethodChoice::WaveScaling || !routed.family.varies_kernels() || routed.work.is_none();
        let (scaled, method, why) = by_launch
            .then(|| self.by_waves(routed, origin))
            .flatten()
            .unwrap_or_else(|| self.by_ratio(routed, origin, time));
        // No launch is shorter than the shortest kernels, unless it already was.
        let launches: f64 = routed.operation.kernels.iter().map(|kernel| f64::from(kernel.count)).sum();
        let floor = Micros::known(SHORTEST_KERNEL_US * launches.max(1.0)).min(time);
        if scaled.get() < floor.get() {
            return Ok((floor, method, format!("{why}; raised to the shortest kernels")));
        }
        Ok((scaled, method, why))
    }

    /// Kernel by kernel; `None` unless every kernel's launch is known on GPUs with known
    /// limits.
    fn by_waves(&self, routed: &Routed<'_>, origin: &GpuSpec) -> Option<(Micros, Method, String)> {
        let operation = routed.operation;
        if operation.kernels.is_empty() {
            return None;
        }
        let intensity = routed.work.as_ref().and_then(Work::intensity);
        let arithmetic = routed.work.as_ref().map_or(Arithmetic::Vector, |work| work.arithmetic);
        let (rate, _) = sustained_rate(self.destination, arithmetic, routed.dtype.as_ref(), self.precision);
        let ridge = rate.get() / attained_bandwidth(self.destination).get();
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
        // Kernels and operation may have been averaged differently: scale by their ratio.
        let time = if before.get() > 0.0 { operation.device_time? * (after / before) } else { after };
        let gamma = if largest - smallest < 0.005 {
            format!("γ {largest:.2}")
        } else {
            format!("γ {smallest:.2}–{largest:.2}")
        };
        let from = match source {
            GammaSource::Counters => "from counters",
            GammaSource::Shapes => "from shapes",
            GammaSource::Unknown => "(intensity not known)",
        };
        let kernels = operation.kernels.len();
        let plural = if kernels == 1 { "" } else { "s" };
        let mut why = format!("{kernels} kernel{plural}, {gamma} {from}");
        if refitted {
            why.push_str("; a block does not fit there unchanged: one a multiprocessor taken");
        }
        Some((time, Method::WaveScaling, why))
    }

    fn by_ratio(&self, routed: &Routed<'_>, origin: &GpuSpec, time: Micros) -> (Micros, Method, String) {
        let dtype = routed.dtype.as_ref();
        if let Some(work) = &routed.work {
            let (there, note) = roofline(self.destination, work, dtype, self.precision);
            let (here, _) = roofline(origin, work, dtype, self.precision);
            let cause = if routed.family.varies_kernels() {
                "libraries choose the kernel by GPU"
            } else {
                "no launch recorded"
            };
            let mut why =
                format!("{}: {cause}; rooflines {:.1} → {:.1} µs", routed.family.name(), here.get(), there.get());
            if let Some(note) = note {
                why.push_str("; ");
                why.push_str(&note);
            }
            return (time * (there / here), Method::RooflineRatio, why);
        }
        let ratio = attained_bandwidth(origin) / attained_bandwidth(self.destination);
        (time * ratio, Method::BandwidthScaling, "no launch and no shapes: scaled by memory bandwidth".to_owned())
    }

    fn shapes_alone(&self, routed: &Routed<'_>) -> Result<(Micros, Method, String), String> {
        if routed.family == Family::View {
            return Ok((Micros::ZERO, Method::Roofline, "a view: nothing runs on the device".to_owned()));
        }
        let work = routed.work.as_ref().ok_or("no measured time and no shapes: left out of the step")?;
        let (time, note) = roofline(self.destination, work, routed.dtype.as_ref(), self.precision);
        let mut why =
            format!("{}: {:.3} GFLOP, {:.3} MB", routed.family.name(), work.flops.get() / 1e9, work.bytes.get() / 1e6);
        if routed.family == Family::Unknown {
            why = format!("operator not known, taken as memory-bound: {:.3} MB", work.bytes.get() / 1e6);
        }
        if let Some(note) = note {
            why.push_str("; ");
            why.push_str(&note);
        }
        Ok((time, Method::Roofline, why))
    }
}

/// Copies between host and device go over PCI Express, not through device memory.
fn is_host_copy(operation: &Operation) -> bool {
    crate::profile::is_host_transfer(&operation.name)
        || (!operation.kernels.is_empty()
            && operation.kernels.iter().all(|kernel| crate::profile::is_host_transfer(&kernel.name)))
}
