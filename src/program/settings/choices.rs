//! Choices of the other crates as values on the command line, under the same names as in files.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use habitat_base::units::TimeUnit;
use habitat_planning::plan::{Accept, Confidence, LayoutChoice, Objective, ShardingChoice};
use habitat_planning::pricing::Tier;
use habitat_prediction::{Host, MethodChoice, Mode, Precision, Sharding, WaveForm};
use habitat_reports::launch::{Framework, Launcher};
use habitat_screens::action::Screen;
use habitat_step::decoder::{Loss, Recompute};
use habitat_step::profile::Sample;
use habitat_step::profile::breakdown::GroupBy;

/// A type whose values are typed by name.
pub(super) trait Choice: Copy + Send + Sync + 'static {
    /// Its values, in the order of the help.
    fn all() -> &'static [Self];

    /// A value's name, with other words for it and a line of help.
    fn word(self) -> PossibleValue;
}

/// The parser of a choice. (`clap::ValueEnum` would have to be implemented where the type is.)
pub(super) fn choice<T: Choice>() -> impl TypedValueParser<Value = T> {
    let words = PossibleValuesParser::new(T::all().iter().map(|value| value.word()));
    words.try_map(|typed| named(&typed).ok_or("not among the words just checked"))
}

/// The value with that name, or with that other word for it.
fn named<T: Choice>(word: &str) -> Option<T> {
    T::all().iter().copied().find(|value| value.word().matches(word, true))
}

/// All values of a type by name.
macro_rules! named {
    ($($type:ty),+) => {$(
        impl Choice for $type {
            fn all() -> &'static [Self] {
                &Self::ALL
            }

            fn word(self) -> PossibleValue {
                PossibleValue::new(self.name())
            }
        }
    )+};
}

/// Selected values of a type, with name and help.
macro_rules! described {
    ($type:ty { $($variant:ident $name:literal $help:literal $(or $alias:literal)?),+ }) => {
        impl Choice for $type {
            fn all() -> &'static [Self] {
                &[$(Self::$variant),+]
            }

            fn word(self) -> PossibleValue {
                match self {
                    $(Self::$variant => PossibleValue::new($name)$(.alias($alias))?.help($help),)+
                    #[allow(unreachable_patterns, reason = "values with data are not typed by name")]
                    _ => PossibleValue::new("").hide(true),
                }
            }
        }
    };
}

named!(GroupBy, Loss, Mode, Recompute, Sharding, Tier, TimeUnit);

impl Choice for Sample {
    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn word(self) -> PossibleValue {
        PossibleValue::new(self.name()).help(self.about())
    }
}

described!(Screen {
    Overview "overview" "Recording and recommendation",
    Profile "profile" "Operations of the step",
    Predict "predict" "The step on every GPU",
    Plan "plan" "The plan",
    Jobs "jobs" "Several jobs (--jobs)"
});
described!(Accept {
    Spot "spot" "Machines that can be lost at short notice",
    Marketplace "marketplace" "Hosts rented out through a marketplace",
    Doubted "doubted" "Doubtful prices: undated, old, or far from others",
    Platform "platform" "GPUs of another vendor than the recorded one, and ARM hosts",
    Batch "batch" "A global batch other than the recorded one"
});
described!(Objective {
    Cost "cost" "Lowest cost",
    Time "time" "Earliest finish",
    Emissions "co2" "Lowest emissions, then lowest cost"
});
described!(Confidence {
    Expected "expected" "The expected time meets the deadline",
    High "high" "The upper end of the range meets the deadline"
});
described!(LayoutChoice {
    Auto "auto" "the fastest layout within memory, for models that no single GPU holds",
    Given "given" "only the given degrees"
});
described!(ShardingChoice {
    None "none" "Full copy on each GPU",
    Zero1 "zero1" "Optimizer state divided (ZeRO stage 1)",
    Zero2 "zero2" "Gradients too (ZeRO stage 2)",
    Zero3 "zero3" "Parameters too (ZeRO stage 3, FSDP)" or "fsdp",
    Hsdp "hsdp" "Like zero3 within each machine, with a copy on each (HSDP)",
    Auto "auto" "Per offer, the lowest stage that fits"
});

described!(Framework {
    Megatron "megatron" "Megatron-LM, Megatron Core 0.12 or later (0.13 for unequal stages)",
    Torchtitan "torchtitan" "torchtitan 0.2; 0.3 sets recomputation in its own configuration"
});
described!(Launcher {
    SkyPilot "skypilot" "Task YAML for `sky launch` and `sky jobs launch`",
    Dstack "dstack" "Task YAML for `dstack apply`",
    Slurm "slurm" "A script for `sbatch`, on your own machines",
    Kubernetes "kubernetes" "A Job or `JobSet` for `kubectl apply`, on your own cluster"
});

impl Choice for Precision {
    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn word(self) -> PossibleValue {
        PossibleValue::new(self.name()).aliases(words_for(self))
    }
}

/// Names for a precision in PyTorch (`torch.bfloat16`), Lightning (`bf16-mixed`, `bf16-true`), Keras (`mixed_bfloat16`)
/// and others. Ambiguous names, such as Lightning's `16`, are left out.
const fn words_for(precision: Precision) -> &'static [&'static str] {
    match precision {
        Precision::Fp32 => &["float32", "torch.float32", "torch.float", "float", "32", "32-true", "fp32-true", "full"],
        Precision::Fp32Strict => &["strict-fp32", "ieee"],
        Precision::Tf32 => &["tensorfloat32", "tensorfloat-32", "tf-32"],
        Precision::Tf32Products => &[],
        Precision::AmpFp16 => &[
            "amp",
            "16-mixed",
            "fp16-mixed",
            "float16-mixed",
            "mixed-fp16",
            "mixed_fp16",
            "mixed-float16",
            "mixed_float16",
            "amp-float16",
            "amp_fp16",
        ],
        Precision::AmpBf16 => &[
            "bf16-mixed",
            "bfloat16-mixed",
            "mixed-bf16",
            "mixed_bf16",
            "mixed-bfloat16",
            "mixed_bfloat16",
            "amp-bfloat16",
            "amp_bf16",
        ],
        Precision::Fp16 => &["float16", "torch.float16", "half", "torch.half", "16-true", "fp16-true"],
        Precision::Bf16 => &["bfloat16", "torch.bfloat16", "bf16-true", "bfloat16-true", "brain-float"],
        Precision::Fp8 => &["float8", "fp8-mixed", "8-mixed", "transformer-engine", "torch.float8_e4m3fn"],
    }
}

impl Choice for Host {
    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn word(self) -> PossibleValue {
        PossibleValue::new(self.name()).help(self.summary())
    }
}

described!(WaveForm { WholeWaves "whole" "Whole waves (equation 1)", ManyWaves "many" "Many waves (equation 2)" });

impl Choice for MethodChoice {
    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn word(self) -> PossibleValue {
        PossibleValue::new(self.name()).help(self.summary())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precisions_in_the_words_of_frameworks() {
        for (word, precision) in [
            ("bfloat16", Precision::Bf16),
            ("torch.bfloat16", Precision::Bf16),
            ("bf16-true", Precision::Bf16),
            ("bf16-mixed", Precision::AmpBf16),
            ("mixed_bfloat16", Precision::AmpBf16),
            ("16-mixed", Precision::AmpFp16),
            ("fp16-mixed", Precision::AmpFp16),
            ("float16", Precision::Fp16),
            ("half", Precision::Fp16),
            ("BF16", Precision::Bf16),
            ("32-true", Precision::Fp32),
            ("float32", Precision::Fp32),
            ("transformer-engine", Precision::Fp8),
        ] {
            assert_eq!(named(word), Some(precision), "{word}");
        }
        // Mixed precision in old versions of Lightning, FP16 throughout elsewhere.
        assert_eq!([named::<Precision>("16"), named("int8")], [None, None]);
    }

    #[test]
    fn no_word_means_two_precisions() {
        let words = Precision::ALL.iter().flat_map(|one| words_for(*one).iter().copied().chain([one.name()]));
        let mut words: Vec<&str> = words.collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }
}
