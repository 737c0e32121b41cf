//! Terms of another vendor's GPUs: additions to those of NVIDIA's, learned from its own measurements.
//!
//! AMD's libraries (rocBLAS, hipBLASLt, `MIOpen`, Composable Kernel and Triton) reach other shares of the rates than
//! NVIDIA's: attention, depthwise convolutions and batch norms take up to several times as long. The shape of the
//! model is the same, so each term of NVIDIA's is the prior mean of AMD's, and only what measurements on AMD GPUs move
//! away from it is stored.

use serde::{Deserialize, Serialize};

use super::demand::Demand;
use super::factors::Factors;
use super::prior::Side;
use super::terms::demands;
use crate::decoded::Decoded;
use crate::facts::StepFacts;
use crate::learned_time::Spread;
use habitat_step::profile::tensors::{MEMORY_FORMAT, is_channels_last};

/// Additions to the terms, and errors of operators and steps, on GPUs of a vendor.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct VendorTerms {
    /// Additions to the terms of arithmetic.
    pub compute: Factors,
    /// Additions to the terms of traffic.
    pub memory: Factors,
    /// Additions to the terms of latency.
    pub latency: Factors,
    /// Measured over predicted time of single operators.
    pub operators: Option<Spread>,
    /// Errors of whole steps, and the GPUs they were measured on.
    pub steps: StepFacts,
}

impl VendorTerms {
    /// Additions on a side.
    pub const fn factors(&self, side: Side) -> &Factors {
        match side {
            Side::Compute => &self.compute,
            Side::Memory => &self.memory,
            Side::Latency => &self.latency,
        }
    }

    /// Whether the figures of steps and operators are valid.
    pub(super) fn is_sound(&self) -> bool {
        self.operators.is_none_or(Spread::is_sound) && self.steps.check().is_ok()
    }
}

/// Parts of an operation on an AMD GPU. TF32 is off there, and `PyTorch` copies channels-last images into channels-first
/// order for `MIOpen` unless `PYTORCH_MIOPEN_SUGGEST_NHWC` is set (`aten/src/ATen/native/ConvUtils.h`), so that the rest of
/// the network has that order too.
pub fn demands_on_amd(decoded: &Decoded<'_>) -> Vec<Demand> {
    let arithmetic = decoded.without_tf32();
    if !is_channels_last(&decoded.operation.attributes) {
        return demands(decoded, arithmetic);
    }
    let mut operation = decoded.operation.clone();
    operation.attributes.remove(MEMORY_FORMAT);
    demands(&decoded.of(&operation), arithmetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::efficiency::{Efficiency, Id};
    use crate::rate::Rates;
    use habitat_step::catalog::{GpuSpec, Layer};
    use habitat_step::profile::tensors::note_channels_last;
    use habitat_step::profile::{DType, Operation, Phase, Profile};

    fn operation(json: &str) -> Operation {
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}}, "operations": [{json}]}}"#
        );
        Profile::from_json(json.as_bytes()).unwrap().0.operations.remove(0)
    }

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    #[test]
    fn channels_last_images_are_copied() {
        let mut image = operation(
            r#"{"name": "aten::convolution", "phase": "forward", "inputs": [[8, 64, 56, 56], [64, 64, 3, 3]], "dtype": "float16"}"#,
        );
        assert_eq!(image.phase, Phase::Forward);
        let first = demands_on_amd(&Decoded::new(0, &image, None));
        note_channels_last(&mut image.attributes);
        let last = Decoded::new(0, &image, None);
        assert_eq!(demands_on_amd(&last), first);
        assert_ne!(demands(&last, None), first);
    }

    /// Terms of AMD GPUs change the times of these alone.
    #[test]
    fn additions_are_of_amd_alone() {
        let product = operation(
            r#"{"name": "aten::mm", "phase": "forward", "inputs": [[4096, 4096], [4096, 4096]], "dtype": "float16"}"#,
        );
        let decoded = Decoded::new(0, &product, None);
        let added = |name: &str, by: f64| [(Id::named(name).unwrap(), by)].into_iter().collect();
        let amd = VendorTerms { compute: added("product", 2.0_f64.ln()), ..VendorTerms::default() };
        let [plain, with_amd] = [None, Some(amd)].map(|amd| Efficiency { amd, ..Efficiency::default() });
        let time = |model: &Efficiency, slug: &str| {
            let gpu = spec(slug);
            let rates = Rates::new(&gpu);
            let asked = model.with_tf32_or_without(&decoded);
            model.board(&rates).time(asked.on(&rates), Some(&DType::Float16)).unwrap().get()
        };
        assert_eq!(time(&plain, "h100-sxm5-80gb"), time(&with_amd, "h100-sxm5-80gb"));
        let ratio = time(&with_amd, "mi300x") / time(&plain, "mi300x");
        assert!((1.8..2.0).contains(&ratio), "{ratio}");
        // No step was measured on CDNA 4, which is expected to be like the mean of CDNA 2 and 3.
        let of = |values: &[(&str, f64)]| {
            let compute = values.iter().map(|(name, by)| (Id::named(name).unwrap(), *by)).collect();
            Efficiency { amd: Some(VendorTerms { compute, ..VendorTerms::default() }), ..Efficiency::default() }
        };
        let others = of(&[("CDNA 2", 0.1), ("CDNA 3", 0.3)]);
        let same = of(&[("CDNA 2", 0.2), ("CDNA 3", 0.2)]);
        assert_eq!(time(&others, "mi355x"), time(&same, "mi355x"));
        assert!(time(&others, "mi355x") > 1.1 * time(&plain, "mi355x"));
        assert!(time(&others, "mi300x") > 1.05 * time(&same, "mi300x"));
    }
}
