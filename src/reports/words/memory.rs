//! Sentences for verdicts on memory.

use super::Words;
use habitat_base::units::{Bytes, GIB};
use habitat_prediction::Fits;
use habitat_prediction::memory::{Division, GpuMemory, MemoryBasis, PeakSource, Stage, StateKept};
use habitat_step::catalog::Vendor;
use habitat_step::profile::MemorySource;

impl Words for MemoryBasis {
    fn words(&self) -> String {
        match self {
            Self::Peak { fits, needed, allocated, source, vendor, of } => format!(
                "{} {} GB in {} ({} GB allocated, {}); {}",
                needs(*fits),
                gib(*needed),
                if *vendor == Vendor::Amd { "rocm-smi" } else { "nvidia-smi" },
                gib(*allocated),
                peak(*source),
                available(of)
            ),
            Self::OtherPrecision { fits, least, most, source, from_narrower, of } => format!(
                "{} {} to {} GB, {} in a {} precision; {}",
                needs(*fits),
                gib(*least),
                gib(*most),
                match source {
                    MemorySource::Recorded => "recorded",
                    MemorySource::Computed => "computed",
                },
                if *from_narrower { "narrower" } else { "wider" },
                available(of)
            ),
            Self::RanOn { gpu, memory } => {
                format!("at least as much memory as the recording GPU ({gpu}, {} GB)", gib(*memory))
            }
            Self::State { kept, needed, of } => {
                format!("does not fit: {} alone need {} GB; {}", state(*kept), gib(*needed), available(of))
            }
            Self::Shapes { is_enough: true, most, of } => {
                format!("at most {} GB, estimated from shapes; {}", gib(*most), available(of))
            }
            Self::Shapes { most, of, .. } => {
                format!("no recorded peak; up to {} GB estimated from shapes; {}", gib(*most), available(of))
            }
            Self::Unknown => "no recorded peak, and too few shapes or parameters to estimate one".to_owned(),
            Self::Share { fits, needed, is_least, division, usable, assumes_adam } => format!(
                "{} {} GB with {}, {} GB usable{}",
                if *is_least && *fits == Fits::Unknown { "may fit: needs at least" } else { needs(*fits) },
                gib(*needed),
                division.words(),
                gib(*usable),
                if *assumes_adam { " (no optimizer found: assuming Adam)" } else { "" },
            ),
            Self::Between { least, widest } => format!(
                "may fit: at least {} GB in the narrowest precision; in the widest, {}",
                gib(*least),
                widest.words()
            ),
            Self::UnknownState { gpus, whole } => {
                format!("unknown state size, so the share of one of {gpus} GPUs is unknown: {}", whole.words())
            }
            Self::OneRank { fits: true, on } => {
                format!("one rank's share of the model: {}; the whole was not recorded", on.words())
            }
            Self::OneRank { on, .. } => format!("one rank's share was recorded; the whole model {}", on.words()),
        }
    }
}

/// To follow an amount.
impl Words for Stage {
    fn words(&self) -> String {
        match self {
            Self::First => " on the first stage",
            Self::Last => " on the last stage",
        }
        .to_owned()
    }
}

impl Words for Division {
    fn words(&self) -> String {
        match self {
            Self::Sharded { sharding, gpus } => format!("{} on {gpus} GPUs", sharding.name()),
            Self::Replica { parallel, stage, sharded, without_sequences } => {
                let stage = stage.as_ref().map(Words::words).unwrap_or_default();
                let sharded = sharded.map(|(sharding, gpus)| format!(", {} over {gpus} GPUs", sharding.name()));
                let without = without_sequences.map(|most| format!(", {} without sequence parallelism", gib(most)));
                format!("{}{stage}{}{}", parallel.words(), sharded.unwrap_or_default(), without.unwrap_or_default())
            }
        }
    }
}

/// Verdict that precedes an amount.
const fn needs(fits: Fits) -> &'static str {
    match fits {
        Fits::Yes => "needs",
        Fits::No => "does not fit: needs",
        Fits::Unknown => "may fit: needs",
    }
}

const fn peak(source: PeakSource) -> &'static str {
    match source {
        PeakSource::Step(MemorySource::Recorded) => "recorded peak",
        PeakSource::Step(MemorySource::Computed) => "peak computed from shapes, not checked on a GPU",
        PeakSource::Interpolated(MemorySource::Recorded) => "interpolated between recorded peaks",
        PeakSource::Interpolated(MemorySource::Computed) => {
            "interpolated between peaks computed from shapes, not checked on a GPU"
        }
        PeakSource::Scaled(MemorySource::Recorded) => "recorded peak scaled",
        PeakSource::Scaled(MemorySource::Computed) => "peak computed from shapes, scaled",
    }
}

const fn state(kept: StateKept) -> &'static str {
    match kept {
        StateKept::Parameters => "parameters",
        StateKept::Gradients => "parameters and gradients",
        StateKept::OneState => "parameters, gradients and one optimizer state per parameter",
        StateKept::TwoStates => "parameters, gradients and Adam's two moments",
    }
}

fn available(of: &GpuMemory) -> String {
    format!("{} of {} GB usable", gib(of.usable), gib(of.nominal))
}

fn gib(bytes: Bytes) -> String {
    format!("{:.1}", bytes.get() / GIB)
}
