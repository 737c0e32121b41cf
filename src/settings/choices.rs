//! The domain's own choices on the command line, with the names that they have in files.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::action::Screen;
use crate::plan::{Accept, Confidence, Objective, ShardingChoice};
use crate::predict::{Host, MethodChoice, Mode, Precision, WaveForm};
use crate::pricing::Tier;
use crate::profile::Sample;
use crate::profile::breakdown::GroupBy;
use crate::units::TimeUnit;

/// All values of a type under their names.
macro_rules! named {
    ($($type:ty),+) => {$(
        impl ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &Self::ALL
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(PossibleValue::new(self.name()))
            }
        }
    )+};
}

/// The values that can be typed, with name and help.
macro_rules! described {
    ($type:ty { $($variant:ident $name:literal $help:literal $(or $alias:literal)?),+ }) => {
        impl ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),+]
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                match self {
                    $(Self::$variant => Some(PossibleValue::new($name)$(.alias($alias))?.help($help)),)+
                    #[allow(unreachable_patterns, reason = "values with data are not typed by name")]
                    _ => None,
                }
            }
        }
    };
}

named!(GroupBy, Mode, Precision, Tier, TimeUnit);

impl ValueEnum for Sample {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.about()))
    }
}

described!(Screen {
    Overview "overview" "What was recorded, and the recommendation",
    Profile "profile" "Operation by operation",
    Predict "predict" "GPU by GPU",
    Plan "plan" "The plan",
    Jobs "jobs" "Several jobs (--jobs)"
});
described!(Accept {
    Spot "spot" "Machines that can be taken away at short notice",
    Marketplace "marketplace" "Hosts that somebody rents out through a marketplace",
    Doubted "doubted" "Prices that something speaks against: no date, old, far from others",
    Platform "platform" "GPUs of another maker than the recorded one, and ARM hosts",
    Batch "batch" "Another global batch than the recorded one"
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
described!(ShardingChoice {
    None "none" "All of it on each GPU",
    Zero1 "zero1" "Optimizer state divided (ZeRO stage 1)",
    Zero2 "zero2" "Gradients too (ZeRO stage 2)",
    Zero3 "zero3" "Parameters too (ZeRO stage 3, FSDP)" or "fsdp",
    Auto "auto" "The least that fits, offer by offer"
});

impl ValueEnum for Host {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.summary()))
    }
}

described!(WaveForm { WholeWaves "whole" "Whole waves (equation 1)", ManyWaves "many" "Many waves (equation 2)" });

impl ValueEnum for MethodChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.summary()))
    }
}
