//! Range between the ratio of memory bandwidths and that of arithmetic rates, for measured operations without shapes
//! that may be bound by either ([`unshaped`](crate::unshaped)).

use super::{Facts, Inputs, Predictor, StepParts, StepRange, Verdict};
use crate::decoded::Decoded;
use crate::estimate::Estimate;
use crate::method::Method;
use crate::rate::Rates;
use crate::shares::sum_of;
use crate::unshaped::is_undecided;
use habitat_base::units::Range;
use habitat_step::op::{Arithmetic, Family};
use habitat_step::profile::DType;

/// The band widens the range beyond both ratios: on measured steps without their shapes (`habitat-lab evaluate
/// methods`, "no shapes"), four of five then lie in the range.
const FACTS: Facts =
    Facts { bands: [0.35; 2], ..Facts::new(Method::BetweenRates, "unshaped kernels", "ratios of rates") };

pub(super) struct Between;

impl Predictor for Between {
    const FACTS: &'static [Facts] = &[FACTS];

    fn verdict(inputs: &Inputs<'_>, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> Verdict {
        if decoded.is_host_copy || !is_undecided(decoded) {
            return Verdict::Pass;
        }
        let measured =
            inputs.measured(decoded).filter(|(origin, time)| origin.gpu.slug != gpu.gpu.slug && time.get() > 0.0);
        let Some((origin, time)) = measured else { return Verdict::Pass };
        let memory = origin.bandwidth.value / gpu.bandwidth.value;
        let arithmetic = match decoded.family {
            Family::Convolution => Arithmetic::Convolution,
            family if family.varies_kernels() => Arithmetic::Product,
            _ => Arithmetic::Vector,
        };
        let rate = |dtype: Option<&DType>| {
            let rate = |gpu: &Rates<'_>| gpu.arithmetic(arithmetic, dtype, decoded.arithmetic);
            rate(origin) / rate(gpu)
        };
        // Without an element type, products may run in 32 or 16 bits.
        let rates = match &decoded.dtype {
            None if arithmetic != Arithmetic::Vector => [rate(None), rate(Some(&DType::Float16))],
            dtype => [rate(dtype.as_ref()); 2],
        };
        let ends = |fold: fn(f64, f64) -> f64| rates.iter().copied().fold(memory, fold);
        let (fastest, slowest) = (ends(f64::min), ends(f64::max));
        let mid = (fastest * slowest).sqrt();
        let band = FACTS.bands[0];
        let range =
            Range { low: time * (fastest * (1.0 - band)), mid: time * mid, high: time * (slowest * (1.0 + band)) };
        let why = inputs.say(|| {
            format!(
                "{}: no shapes, so it may be compute- or memory-bound: {fastest:.2} to {slowest:.2} times the measured time, {mid:.2} assumed",
                decoded.family.name()
            )
        });
        Verdict::Time { estimate: Estimate { range, method: Method::BetweenRates }, why, is_far: false }
    }

    /// These errors are fully correlated, wherever the times lie between the two ratios.
    fn step_range(_: &Facts, parts: &StepParts<'_>) -> StepRange {
        let Range { low, mid, high } = sum_of(parts.operations, Method::BetweenRates);
        StepRange { factor: 1.0, low: low / mid, high: high / mid }
    }
}
