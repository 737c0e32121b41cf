//! Sharding of training state over GPUs: replicated or divided.
//!
//! Stage 1 of `ZeRO` divides the optimizer state among the GPUs, stage 2 also the gradients, stage 3 (PyTorch's FSDP
//! with full sharding) also the parameters ("`ZeRO`: Memory Optimizations Toward Training Trillion Parameter Models",
//! SC20, section 5). With P parameters in mixed precision and Adam, N GPUs hold 16P, 4P + 12P/N, 2P + 14P/N and 16P/N
//! bytes each. Stages 1 and 2 move as many bytes as an all-reduce, stage 3 half as many again: it gathers the
//! parameters twice and scatters the gradients (section 7).

use serde::{Deserialize, Serialize};

use habitat_base::units::Bytes;

/// State divided among the GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharding {
    /// Nothing is divided: each GPU has everything.
    #[default]
    None,
    /// Optimizer state (`ZeRO` stage 1).
    Zero1,
    /// Also the gradients (`ZeRO` stage 2).
    Zero2,
    /// Also the parameters (`ZeRO` stage 3, FSDP).
    Zero3,
    /// All of it within each machine, with a copy on each (FSDP's hybrid sharding: Zhao et al. 2023, arXiv:2304.11277,
    /// section 3.2.2).
    Hsdp,
}

impl Sharding {
    /// All levels.
    pub const ALL: [Self; 5] = [Self::None, Self::Zero1, Self::Zero2, Self::Zero3, Self::Hsdp];

    /// Name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zero1 => "zero1",
            Self::Zero2 => "zero2",
            Self::Zero3 => "zero3",
            Self::Hsdp => "hsdp",
        }
    }
}

/// Training state that does not depend on the batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelStates {
    /// Parameters, as the forward pass reads them.
    pub parameters: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// Optimizer state, with the 32-bit copy of 16-bit parameters.
    pub optimizer: Bytes,
    /// Whether Adam was assumed, because no optimizer was detected.
    pub is_assumed: bool,
}

impl ModelStates {
    /// Sum of all state.
    pub fn total(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer
    }

    /// Each part scaled by `factor`.
    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            parameters: self.parameters * factor,
            gradients: self.gradients * factor,
            optimizer: self.optimizer * factor,
            ..self
        }
    }

    /// Bytes that each of `gpus` GPUs keeps.
    pub(crate) fn on_each(&self, sharding: Sharding, gpus: u32) -> Bytes {
        let share = 1.0 / f64::from(gpus.max(1));
        let of = |bytes: Bytes, from: Sharding| if sharding >= from { bytes * share } else { bytes };
        of(self.parameters, Sharding::Zero3) + of(self.gradients, Sharding::Zero2) + of(self.optimizer, Sharding::Zero1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 7.5 billion parameters on 64 GPUs: 120, 31.4, 16.6 and 1.9 GB, figure 1 of the paper.
    #[test]
    fn the_figures_of_the_paper() {
        let billions = |bytes: f64| Bytes::known(7.5e9 * bytes);
        let states = ModelStates {
            parameters: billions(2.0),
            gradients: billions(2.0),
            optimizer: billions(12.0),
            is_assumed: false,
        };
        let each = Sharding::ALL.map(|stage| (states.on_each(stage, 64).get() / 1e8).round() / 10.0);
        assert_eq!(each.map(|gb| format!("{gb}")), ["120", "31.4", "16.6", "1.9", "1.9"]);
        for stage in Sharding::ALL {
            assert_eq!(states.on_each(stage, 1), states.total());
        }
    }
}
