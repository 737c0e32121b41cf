//! How the state of a training is kept on several GPUs: all of it on each, or each a share.
//!
//! Stage 1 of `ZeRO` divides what the optimizer keeps among the GPUs, stage 2 the gradients too,
//! stage 3 (PyTorch's FSDP with full sharding) the parameters too ("`ZeRO`: Memory Optimizations
//! Toward Training Trillion Parameter Models", SC20, section 5). With P parameters in mixed
//! precision and Adam, N GPUs hold 16P, 4P + 12P/N, 2P + 14P/N and 16P/N bytes each. Stages 1 and 2
//! move as many bytes as an all-reduce, stage 3 half as many again: it gathers the parameters
//! twice and scatters the gradients (section 7).

use serde::{Deserialize, Serialize};

use super::estimate::{Fits, MemoryFit};
use crate::units::{Bytes, GIB};

/// Which state is divided among the GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharding {
    /// None: each GPU has all of it.
    #[default]
    None,
    /// What the optimizer keeps (`ZeRO` stage 1).
    Zero1,
    /// The gradients too (`ZeRO` stage 2).
    Zero2,
    /// The parameters too (`ZeRO` stage 3, FSDP).
    Zero3,
}

impl Sharding {
    /// All of them, by how little stays on each GPU.
    pub const ALL: [Self; 4] = [Self::None, Self::Zero1, Self::Zero2, Self::Zero3];

    /// The name on the command line and in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Zero1 => "zero1",
            Self::Zero2 => "zero2",
            Self::Zero3 => "zero3",
        }
    }

    /// What is divided, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Zero1 => "optimizer state",
            Self::Zero2 => "optimizer state and gradients",
            Self::Zero3 => "optimizer state, gradients and parameters",
        }
    }

    /// Bytes moved in a step, in times of an all-reduce of the gradients.
    pub(super) const fn traffic(self) -> f64 {
        if matches!(self, Self::Zero3) { 1.5 } else { 1.0 }
    }
}

/// What a training keeps whatever its batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ModelStates {
    /// Parameters, as the forward pass reads them.
    pub parameters: Bytes,
    /// Gradients.
    pub gradients: Bytes,
    /// What the optimizer keeps, with the 32-bit copy of 16-bit parameters.
    pub optimizer: Bytes,
    /// Whether the optimizer is taken for Adam, as none was found.
    pub is_assumed: bool,
}

impl ModelStates {
    /// All of it.
    pub fn total(&self) -> Bytes {
        self.parameters + self.gradients + self.optimizer
    }

    /// What each of so many GPUs keeps.
    pub fn on_each(&self, sharding: Sharding, gpus: u32) -> Bytes {
        let share = 1.0 / f64::from(gpus.max(1));
        let of = |bytes: Bytes, from: Sharding| if sharding >= from { bytes * share } else { bytes };
        of(self.parameters, Sharding::Zero3) + of(self.gradients, Sharding::Zero2) + of(self.optimizer, Sharding::Zero1)
    }
}

impl MemoryFit {
    /// The answer for one of so many GPUs that divide the state: what was needed, less what the
    /// others keep. As it is where the state is not known.
    ///
    /// The parameters that stage 3 gathers while a layer runs are not counted.
    #[must_use]
    pub fn sharded(&self, sharding: Sharding, gpus: u32) -> Self {
        let Some(states) = self.states.filter(|_| sharding != Sharding::None && gpus > 1) else {
            return self.clone();
        };
        let saved = states.total().checked_sub(states.on_each(sharding, gpus)).unwrap_or_default();
        let less = |bytes: Bytes| bytes.checked_sub(saved).unwrap_or_default();
        let (needed, at_most) = (self.needed.map(less), self.at_most.map(less));
        let is_within = |bytes: Bytes| bytes.get() <= self.usable.get();
        let fits = match self.fits {
            Fits::Yes => Fits::Yes,
            _ if at_most.is_some_and(is_within) => Fits::Yes,
            Fits::No if needed.is_some_and(|needed| !is_within(needed)) => Fits::No,
            Fits::No | Fits::Unknown => Fits::Unknown,
        };
        let of_gpu = [needed.or(at_most).unwrap_or_default(), self.usable].map(|bytes| bytes.get() / GIB);
        let reason = format!(
            "{} {:.1} GB with {} on {gpus} GPUs, {:.1} GB may be used{}",
            match fits {
                Fits::Yes => "needs",
                Fits::No => "does not fit: needs",
                Fits::Unknown => "needs at least",
            },
            of_gpu[0],
            sharding.name(),
            of_gpu[1],
            if states.is_assumed { " (no optimizer was found: as with Adam)" } else { "" },
        );
        let reason = if needed.or(at_most).is_some() { reason } else { self.reason.clone() };
        Self { fits, needed, at_most, reason, ..self.clone() }
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
        assert_eq!(each.map(|gb| format!("{gb}")), ["120", "31.4", "16.6", "1.9"]);
        for stage in Sharding::ALL {
            assert_eq!(states.on_each(stage, 1), states.total());
        }
    }
}
