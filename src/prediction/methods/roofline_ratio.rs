//! Ratio of the rooflines of two GPUs, for measured operations with shapes whose kernels libraries choose by GPU, or
//! whose launches were not recorded.

use super::{Facts, Inputs, Predictor, Verdict};
use crate::decoded::Decoded;
use crate::method::Method;
use crate::rate::Rates;
use crate::roofline::roofline;

const FACTS: Facts =
    Facts { uses_rates: true, ..Facts::scaling(Method::RooflineRatio, "measured, with shapes", "ratio of rooflines") };

pub(super) struct RooflineRatio;

impl Predictor for RooflineRatio {
    const FACTS: &'static [Facts] = &[FACTS];

    fn verdict(inputs: &Inputs<'_>, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> Verdict {
        let measured = inputs.measured(decoded).filter(|_| !decoded.is_host_copy);
        let Some(((origin, time), work)) = measured.zip(decoded.work.as_ref()) else { return Verdict::Pass };
        let on = |gpu| roofline(gpu, work, decoded.dtype.as_ref(), decoded.arithmetic);
        let (here, there) = (on(origin), on(gpu));
        let why = inputs.say(|| {
            let cause = if decoded.family.varies_kernels() {
                "libraries choose the kernel by GPU"
            } else {
                "no launch recorded"
            };
            format!("{}: {cause}; rooflines {:.1} → {:.1} µs", decoded.family.name(), here.get(), there.get())
        });
        inputs.scaled(&FACTS, decoded, time * (there / here), why)
    }
}
