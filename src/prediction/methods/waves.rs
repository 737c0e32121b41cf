//! Habitat's wave scaling ([`wave`](crate::wave)), kernel by kernel, for measured operations that run the same kernel
//! on every GPU.

use super::{Facts, Inputs, Known, Predictor, Verdict};
use crate::decoded::Decoded;
use crate::method::Method;
use crate::method::MethodChoice;
use crate::rate::Rates;
use crate::roofline::roofline;
use crate::wave::{GammaSource, choose_gamma, scale_kernel};
use habitat_base::units::Micros;
use habitat_step::op::{Arithmetic, Work};
use habitat_step::profile::Precision;

const FACTS: Facts = Facts {
    summary: "Wave scaling wherever launches are known",
    needs: "a trace with the launches of its kernels",
    missing: |known, _| match known {
        Known::Shapes => Some("no measurements: same as roofline"),
        Known::Step => Some("no launches were recorded: same as a ratio of rooflines"),
        Known::Trace | Known::Unshaped => None,
    },
    error_key: Some("wave-scaling"),
    ..Facts::scaling(Method::WaveScaling, "measured launches", "Habitat (USENIX ATC '21)")
};

pub(super) struct Waves;

impl Predictor for Waves {
    const FACTS: &'static [Facts] = &[FACTS];

    fn verdict(inputs: &Inputs<'_>, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> Verdict {
        let Some((origin, time)) = inputs.measured(decoded) else { return Verdict::Pass };
        if time.get() == 0.0 {
            return Verdict::by(&FACTS, time, inputs.say(|| "no device time on the origin".to_owned()));
        }
        let is_requested = inputs.options.method == MethodChoice::WaveScaling;
        let is_same_kernel = is_requested || !decoded.family.varies_kernels() || decoded.work.is_none();
        if decoded.is_host_copy || !is_same_kernel {
            return Verdict::Pass;
        }
        match scaled(inputs, (origin, gpu), decoded, time) {
            Some((time, why)) => inputs.scaled(&FACTS, decoded, time, why),
            None => Verdict::Pass,
        }
    }
}

/// Scales kernel by kernel; `None` unless all launches and both GPUs' limits are known.
fn scaled(
    inputs: &Inputs<'_>,
    (origin, gpu): (&Rates<'_>, &Rates<'_>),
    decoded: &Decoded<'_>,
    time: Micros,
) -> Option<(Micros, String)> {
    let kernels = &decoded.operation.kernels;
    if kernels.is_empty() {
        return None;
    }
    let intensity = decoded.work.as_ref().and_then(Work::intensity);
    let arithmetic = decoded.work.as_ref().map_or(Arithmetic::Vector, |work| work.arithmetic);
    let rate = gpu.arithmetic(arithmetic, decoded.dtype.as_ref(), decoded.arithmetic);
    let ridge = rate.get() / gpu.bandwidth.value.get();
    let (mut before, mut after) = (Micros::ZERO, Micros::ZERO);
    let (mut smallest, mut largest, mut source, mut refitted) = (f64::INFINITY, 0.0_f64, GammaSource::Unknown, false);
    for kernel in kernels {
        let (gamma, from) = choose_gamma(kernel, intensity, ridge);
        let scaled = scale_kernel(kernel, origin, gpu, gamma, inputs.options.wave_form)?;
        before += kernel.duration * f64::from(kernel.count);
        after += scaled.time * f64::from(kernel.count);
        (smallest, largest, source) = (smallest.min(gamma), largest.max(gamma), from);
        refitted |= scaled.refitted;
    }
    // Kernels and operation may be averaged differently, so the operation is scaled by the kernels' ratio.
    let time = if before.get() > 0.0 { time * (after / before) } else { after };
    let (time, tf32) = match by_tf32((origin, gpu), decoded) {
        Some(factor) if (factor - 1.0).abs() > 0.005 => {
            (time * factor, format!("; TF32 on one of the two GPUs: × {factor:.2}"))
        }
        _ => (time, String::new()),
    };
    let why = inputs.say(|| {
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
        let count = kernels.len();
        let plural = if count == 1 { "" } else { "s" };
        let fit = if refitted { "; a block does not fit unchanged: assuming one per multiprocessor" } else { "" };
        format!("{count} kernel{plural}, {gamma} {from}{fit}{tf32}")
    });
    Some((time, why))
}

/// Factor for a kernel that runs in TF32 on only one of the GPUs: the ratio of the rooflines on the GPU with TF32.
fn by_tf32((origin, gpu): (&Rates<'_>, &Rates<'_>), decoded: &Decoded<'_>) -> Option<f64> {
    let (here, there) = (origin.gpu.runs_tf32(), gpu.gpu.runs_tf32());
    let work = decoded.work.filter(|_| decoded.is_in_tf32() && here != there)?;
    let both = |rates: &Rates<'_>| {
        let of = |arithmetic| roofline(rates, &work, decoded.dtype.as_ref(), Some(arithmetic));
        of(Precision::Tf32) / of(Precision::Fp32Strict)
    };
    Some(if there { both(gpu) } else { 1.0 / both(origin) })
}
