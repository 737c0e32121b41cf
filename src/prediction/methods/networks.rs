//! Habitat's networks for products and convolutions ([`habitat`](crate::habitat)), if requested.

use super::{Facts, Inputs, Predictor, Preparation, Prepared, Verdict, Verdicts};
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
    summary: "Habitat's networks for products and convolutions in FP32 (`habitat-lab train --habitat` makes them), the rest as auto",
    needs: "shapes, and networks trained with `habitat-lab train --habitat`",
    missing: |_, options| match options.habitat {
        Some(_) => None,
        None => Some("no networks; train them with `habitat-lab train --habitat`"),
    },
    bands: [1.23; 2],
    ..Facts::new(Method::HabitatMlp, "products, convolutions", "Habitat (USENIX ATC '21)")
};

pub(super) struct Networks<'a>(Inputs<'a>, HabitatTimes);

impl Predictor for Networks<'_> {
    const FACTS: &'static [Facts] = &[FACTS];

    fn prepare<'a>(inputs: &Inputs<'a>) -> Result<Preparation<'a>, PredictError> {
        if inputs.options.method != MethodChoice::HabitatMlp {
            return Ok(Preparation::Out);
        }
        let networks = inputs.options.habitat.as_ref().ok_or(PredictError::NoWeights)?;
        let gpus: Vec<&GpuSpec> = inputs.targets.iter().chain(inputs.origin).map(|rates| rates.gpu).collect();
        let times = HabitatTimes::new(networks, inputs.decoded, &gpus)?;
        Ok(Preparation::Step(Box::new(Networks(*inputs, times))))
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
