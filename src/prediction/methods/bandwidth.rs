//! Ratio of memory bandwidths, for measured operations without launches and shapes, and for copies over the host link.

use super::{Facts, Inputs, Predictor, Verdict};
use crate::decoded::Decoded;
use crate::method::Method;
use crate::rate::Rates;

const FACTS: Facts = Facts::scaling(Method::BandwidthScaling, "unshaped kernels, copies", "ratio of bandwidths");

pub(super) struct Bandwidth;

impl Predictor for Bandwidth {
    const FACTS: &'static [Facts] = &[FACTS];

    fn verdict(inputs: &Inputs<'_>, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> Verdict {
        let Some((origin, time)) = inputs.measured(decoded) else { return Verdict::Pass };
        if decoded.is_host_copy {
            let why = inputs.say(|| "copy over the host link, same time as on the origin".to_owned());
            return Verdict::by(&FACTS, time, why);
        }
        let ratio = origin.bandwidth.value / gpu.bandwidth.value;
        let why = inputs.say(|| "no launch and no shapes: scaled by memory bandwidth".to_owned());
        inputs.scaled(&FACTS, decoded, time * ratio, why)
    }
}
