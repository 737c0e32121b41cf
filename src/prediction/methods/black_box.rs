//! The black-box model ([`blackbox`](crate::blackbox)): whole steps from the totals of operator kinds.

use super::{Facts, Inputs, Known, Predictor, Preparation, WholeStep};
use crate::blackbox::{self, OperatorTotals};
use crate::error::PredictError;
use crate::host::Host;
use crate::memory::MemoryNeed;
use crate::method::Method;
use crate::options::Options;
use crate::origin::origin;
use crate::predictions::Predictions;
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

pub(super) struct BlackBox;

impl Predictor for BlackBox {
    const FACTS: &'static [Facts] = &[Facts {
        summary: "The black-box model (PROFET), from the totals of operator kinds: on its GPUs only",
        needs: "a training step in FP32, measured on a GPU of the black-box model",
        missing: |known, options| match options.black_box {
            _ if known == Known::Shapes => Some("no measurements"),
            Some(_) => None,
            None => Some("no black-box model; make one with `fit black-box`"),
        },
        ..Facts::new(Method::BlackBox, "whole steps", "PROFET")
    }];

    const STEP: Option<WholeStep> = Some(by_totals);

    fn prepare<'a>(_: &Inputs<'a>) -> Result<Preparation<'a>, PredictError> {
        Ok(Preparation::Out)
    }
}

/// Predicts the recorded step from its totals alone, on the requested GPUs or on all that the black-box model can
/// predict. The model was fitted on another framework.
fn by_totals(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Predictions, PredictError> {
    if options.host == Host::KeepsUp {
        return Err(PredictError::WholeSteps);
    }
    let model = options.black_box.as_ref().ok_or(PredictError::NoBlackBox)?;
    let origin = origin(profile, catalog, options)?;
    let totals = OperatorTotals::of_profile(profile, origin.map(|gpu| &gpu.slug))?;
    // The shapes are known here, so they give the memory need.
    let need = MemoryNeed::of(profile, origin);
    let mut predictions = blackbox::predict_within(&totals, model, catalog, &options.targets, &need)?;
    predictions.workload = profile.workload.clone();
    predictions.origin.clone_from(&profile.origin);
    Ok(predictions)
}
