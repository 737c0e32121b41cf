//! The longer of the time of the arithmetic and that of the memory traffic, from shapes
//! ([`roofline`](crate::roofline)).

use super::{Facts, Inputs, Predictor, Preparation, Verdict};
use crate::decoded::Decoded;
use crate::error::PredictError;
use crate::method::Method;
use crate::rate::Rates;
use crate::roofline::roofline;
use habitat_base::units::Micros;
use habitat_step::op::Family;

const FACTS: Facts = Facts {
    summary: "The roofline from shapes, ignoring measurements",
    needs: "shapes",
    error_key: Some("roofline"),
    uses_rates: true,
    ignores_origin: true,
    corrected: Some(Method::RooflineRatio),
    ..Facts::new(Method::Roofline, "known shapes", "Williams (CACM '09)")
};

pub(super) struct Roofline;

impl Predictor for Roofline {
    const FACTS: &'static [Facts] = &[FACTS];

    fn prepare<'a>(_: &Inputs<'a>) -> Result<Preparation<'a>, PredictError> {
        Ok(Preparation::Inputs)
    }

    fn verdict(inputs: &Inputs<'_>, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> Verdict {
        if decoded.family == Family::View {
            let why = inputs.say(|| "a view: nothing runs on the device".to_owned());
            return Verdict::by(&FACTS, Micros::ZERO, why);
        }
        let Some(work) = &decoded.work else {
            return Verdict::Unknown("no measured time and no shapes: left out of the step".to_owned());
        };
        let time = roofline(gpu, work, decoded.dtype.as_ref(), decoded.arithmetic);
        let why = inputs.say(|| {
            let megabytes = work.bytes.get() / 1e6;
            if decoded.family == Family::Unknown {
                format!("unknown operator, assumed memory-bound: {megabytes:.3} MB")
            } else {
                format!("{}: {:.3} GFLOP, {megabytes:.3} MB", decoded.family.name(), work.flops.get() / 1e9)
            }
        });
        Verdict::by(&FACTS, time, why)
    }
}
