//! Habitat's networks for products and convolutions ([`habitat`](crate::habitat)), if requested.

use super::{Facts, Inputs, Need, Predictor, Preparation, Prepared, Verdict, Verdicts};
use crate::decoded::Decoded;
use crate::error::PredictError;
use crate::habitat::HabitatTimes;
use crate::method::{Method, MethodChoice};
use crate::rate::Rates;
use habitat_step::catalog::GpuSpec;

/// 10 to 18 % on GPUs and sizes like those of training, by the networks' authors, but most are not like them.
/// `NeuSight`'s reimplementation has 123 % on batched products outside the training sizes and 799 % on linear layers;
/// the smaller figure is used. Steps use the same (`NeuSight` found 726 %, too wide for a useful range).
const FACTS: Facts = Facts {
    needs: &[Need::Networks],
    operation_band: 1.23,
    step_band: 1.23,
    ..Facts::new(Method::HabitatMlp, "products, convolutions", "Habitat (USENIX ATC '21)")
};

pub(super) struct Networks<'a>(Inputs<'a>, HabitatTimes);

impl Predictor for Networks<'_> {
    const FACTS: &'static [Facts] = &[FACTS];

    fn prepare<'a>(inputs: &Inputs<'a>) -> Preparation<'a> {
        if inputs.options.method != MethodChoice::HabitatMlp {
            return Ok(None);
        }
        let networks = inputs.options.habitat.as_ref().ok_or(PredictError::NoWeights)?;
        let gpus: Vec<&GpuSpec> = inputs.targets.iter().chain(inputs.origin).map(|rates| rates.gpu).collect();
        let times = HabitatTimes::new(networks, inputs.decoded, &gpus)?;
        Ok(Some(Box::new(Networks(*inputs, times))))
    }
}

impl Prepared for Networks<'_> {
    fn on<'s>(&'s self, gpus: &'s [Rates<'s>]) -> Result<Vec<Verdicts<'s>>, PredictError> {
        let on = |gpu| Box::new(move |decoded: &Decoded<'_>| self.verdict(gpu, decoded)) as Verdicts<'s>;
        Ok(gpus.iter().map(on).collect())
    }
}

impl Networks<'_> {
    fn verdict(&self, gpu: &Rates<'_>, decoded: &Decoded<'_>) -> Verdict {
        let Self(inputs, times) = self;
        match times.of(decoded.index, &gpu.gpu.slug) {
            Some(Ok((time, why))) => Verdict::by(&FACTS, *time, inputs.say(|| why.clone())),
            Some(Err(why)) => Verdict::Unknown(why.clone()),
            None => Verdict::Pass,
        }
    }
}
