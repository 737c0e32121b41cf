//! Quantities with units, and identifiers that several modules share.
//!
//! Every quantity is a finite, non-negative `f64` in the unit that its name states. Constructors reject other values
//! ([`QuantityError`]), subtraction cannot go below zero (`checked_sub`), and arithmetic with an invalid result panics,
//! also in release builds. Public signatures use these types instead of `f64`.

mod range;

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul};

use serde::{Deserialize, Serialize};

pub use range::{OpenRange, Range};

/// Largest counts accepted from a file or a flag, far beyond any real training. Larger values are mistakes and would
/// only give invalid times or prices. Limits of times, sizes, rates and prices are at their types below.
pub mod most {
    /// Samples of a step on one GPU.
    pub const BATCH: u64 = 1_000_000_000;
    /// Samples of an optimizer step on all GPUs.
    pub const GLOBAL_BATCH: u64 = 1_000_000_000_000;
    /// Tokens of a sample.
    pub const SEQUENCE: u64 = 1_000_000_000;
    /// Parameters of a model.
    pub const PARAMETERS: u64 = 1_000_000_000_000_000;
    /// Occurrences of an operation in a step, and launches of a kernel in an operation.
    pub const OCCURRENCES: u32 = 1_000_000_000;
    /// Different operations of a step; each is predicted on every GPU.
    pub const OPERATIONS: usize = 100_000;
    /// Batch sizes predicted at once.
    pub const BATCH_SIZES: usize = 100;
    /// Operations × GPUs × batch sizes predicted at once: about a minute.
    pub const OPERATIONS_AT_SIZES: usize = 40_000_000;
    /// Names in a list of providers, regions, GPUs or offers, and quotas; each is compared with every offer.
    pub const NAMES: usize = 200;
    /// Bytes of such a name.
    pub const NAME: usize = 300;
    /// Operations × GPUs whose predictions are stored: about 700 bytes each.
    pub const PREDICTED_OPERATIONS: usize = 4_000_000;
    /// Intervals of the timeline of a step: about 50 kB of compressed JSON.
    pub const INTERVALS: usize = 8_000;
    /// Elements of a tensor.
    pub const ELEMENTS: f64 = 1e15;
    /// Dimensions of a tensor.
    pub const DIMENSIONS: usize = 64;
    /// Values in a list argument of an operator.
    pub const VALUES: usize = 65_536;
    /// Thread blocks of a kernel.
    pub const BLOCKS: f64 = 1e15;
    /// Threads of a block.
    pub const THREADS: f64 = 65_536.0;
    /// Multiprocessors of a GPU, and any resource of one of them.
    pub const OF_A_GPU: u32 = 10_000_000;
    /// US dollars per kWh of electricity.
    pub const USD_PER_KWH: f64 = 1e3;
    /// Kilograms of CO2e per kWh, above that of any power plant.
    pub const KG_CO2_PER_KWH: f64 = 10.0;
    /// GPUs of an offer.
    pub const GPUS: u32 = 100_000;
    /// Machines of an offer in a plan.
    pub const MACHINES: u32 = 16_384;
    /// GPUs that divide a layer, and stages of a model.
    pub const REPLICA: u32 = 1024;
    /// Line rate of a machine's network, in Gbit/s.
    pub const NETWORK_GBIT: f64 = 1e6;
    /// Batch sizes and iterations in a log of runs.
    pub const RUN: f64 = 1e15;
    /// Factor on the expected extra time of several GPUs.
    pub const SCALING: f64 = 1000.0;
    /// Steps, samples and other work of a plan.
    pub const WORK: f64 = 1e18;
    /// Percent of a change.
    pub const PERCENT: f64 = 1e6;
}

/// Shortest valid training step in microseconds: 1 ns, too short for any kernel launch.
pub const SHORTEST_STEP_US: f64 = 1e-3;

/// Number that is not a valid value of a quantity.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} is not a valid {what}: it must be a finite number of 0 or more, at most {most:e}, in {unit}", shown(*.value))]
pub struct QuantityError {
    /// Quantity, in words.
    pub what: &'static str,
    /// Expected unit.
    pub unit: &'static str,
    /// Largest accepted value.
    pub most: f64,
    /// Rejected number.
    pub value: f64,
}

/// Formats a number in few characters.
fn shown(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e15).contains(&value.abs()) { format!("{value:e}") } else { value.to_string() }
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $what:literal, $unit:literal, $most:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0.0);

            /// Largest value accepted from a file or a flag.
            pub const MOST: f64 = $most;

            /// Checks that an external `value` is finite, not negative (nor negative zero) and at most [`Self::MOST`].
            ///
            /// # Errors
            /// [`QuantityError`] naming the quantity, its unit and the value.
            pub fn new(value: f64) -> Result<Self, QuantityError> {
                if value.is_sign_positive() && value <= Self::MOST {
                    Ok(Self(value))
                } else {
                    Err(QuantityError { what: $what, unit: $unit, most: Self::MOST, value })
                }
            }

            /// Wraps the result of arithmetic that may be invalid: `None` if it is negative, infinite or NaN.
            #[inline]
            pub fn checked(value: f64) -> Option<Self> {
                // Adding zero turns a negative zero into a positive one.
                (value >= 0.0 && value.is_finite()).then_some(Self(value + 0.0))
            }

            /// Wraps the result of arithmetic that is always valid.
            ///
            /// # Panics
            /// If it is invalid, in every build: a wrong number must not be shown as a right one.
            #[track_caller]
            #[inline]
            pub fn known(value: f64) -> Self {
                assert!(value >= 0.0 && value.is_finite(), concat!($what, " computed as {} ", $unit), value);
                Self(value + 0.0)
            }

            /// Difference of both; `None` if it would be negative.
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                Self::checked(self.0 - other.0)
            }

            /// Value in the unit of the type.
            pub const fn get(self) -> f64 {
                self.0
            }

            /// Total order, for sorting (the value is never NaN).
            pub fn total_cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }

            /// Larger of both.
            #[must_use]
            pub fn max(self, other: Self) -> Self {
                Self(self.0.max(other.0))
            }

            /// Smaller of both.
            #[must_use]
            pub fn min(self, other: Self) -> Self {
                Self(self.0.min(other.0))
            }
        }

        impl TryFrom<f64> for $name {
            type Error = QuantityError;
            fn try_from(value: f64) -> Result<Self, QuantityError> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(quantity: $name) -> f64 {
                quantity.0
            }
        }

        impl Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self::known(self.0 + other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        /// Scales by a dimensionless factor, which must be finite and not negative.
        impl Mul<f64> for $name {
            type Output = Self;
            #[inline]
            fn mul(self, factor: f64) -> Self {
                Self::known(self.0 * factor)
            }
        }

        /// Dimensionless ratio of two quantities of one kind.
        impl Div for $name {
            type Output = f64;
            fn div(self, other: Self) -> f64 {
                self.0 / other.0
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "number", "minimum": 0, "maximum": $most,
                    "description": concat!($what, ", in ", $unit)
                })
            }
        }
    };
}

quantity!(
    /// Time in microseconds; at most a year as input.
    Micros, "time", "microseconds", 3.2e13
);
quantity!(
    /// Time in hours.
    Hours, "time", "hours", 1e9
);
quantity!(
    /// Size in bytes.
    Bytes, "size", "bytes", 1e18
);
quantity!(
    /// Floating-point operations; a fused multiply-add counts as two.
    Flops, "operation count", "floating-point operations", 1e27
);
quantity!(
    /// Compute rate in floating-point operations per second.
    FlopsPerSecond, "compute rate", "floating-point operations per second", 1e21
);
quantity!(
    /// Data rate in bytes per second.
    BytesPerSecond, "data rate", "bytes per second", 1e18
);
quantity!(
    /// Clock rate in MHz.
    Megahertz, "clock rate", "MHz", 1e6
);
quantity!(
    /// Electrical power in watts.
    Watts, "power", "watts", 1e6
);
quantity!(
    /// Electrical energy in kilowatt-hours.
    KilowattHours, "energy", "kWh", 1e12
);
quantity!(
    /// Emissions in kilograms of CO2 equivalent.
    KilogramsCo2e, "emissions", "kg of CO2e", 1e12
);
quantity!(
    /// Amount of money in US dollars.
    Usd, "amount of money", "US dollars", 1e12
);
quantity!(
    /// Price in US dollars per hour.
    UsdPerHour, "price", "US dollars per hour", 1e7
);
quantity!(
    /// Training samples (or tokens, if the work is counted in tokens).
    Samples, "amount of work", "samples", 1e18
);
quantity!(
    /// Samples processed per second.
    SamplesPerSecond, "throughput", "samples per second", 1e18
);

impl Micros {
    /// Converts from milliseconds.
    ///
    /// # Errors
    /// As [`Micros::new`].
    pub fn from_millis(millis: f64) -> Result<Self, QuantityError> {
        Self::new(millis * 1e3)
    }

    /// Value in milliseconds.
    pub fn as_millis(self) -> f64 {
        self.get() / 1e3
    }

    /// Value in seconds.
    pub fn as_secs(self) -> f64 {
        self.get() / 1e6
    }
}

impl From<Micros> for Hours {
    fn from(time: Micros) -> Self {
        Self::known(time.get() / 3.6e9)
    }
}

impl Mul<Hours> for UsdPerHour {
    type Output = Usd;
    fn mul(self, hours: Hours) -> Usd {
        Usd::known(self.get() * hours.get())
    }
}

impl Mul<Hours> for Watts {
    type Output = KilowattHours;
    fn mul(self, hours: Hours) -> KilowattHours {
        KilowattHours::known(self.get() * hours.get() / 1e3)
    }
}

impl Div<FlopsPerSecond> for Flops {
    type Output = Micros;
    fn div(self, rate: FlopsPerSecond) -> Micros {
        Micros::known(self.get() / rate.get() * 1e6)
    }
}

impl Div<BytesPerSecond> for Bytes {
    type Output = Micros;
    fn div(self, rate: BytesPerSecond) -> Micros {
        Micros::known(self.get() / rate.get() * 1e6)
    }
}

/// Gibibyte, the unit in which GPU memory is sold ("80 GB").
pub const GIB: f64 = 1_073_741_824.0;

/// Formats three significant digits in a suitable unit. Units are powers of 1024, as GPU memory is sold.
///
/// ```
/// # use habitat_base::units::Bytes;
/// let shown = [0.0, 512.0, 199_000.0, 8.4e6, 6.0e9].map(|bytes| Bytes::new(bytes).unwrap().to_string());
/// assert_eq!(shown, ["0", "0.500 KB", "194 KB", "8.01 MB", "5.59 GB"]);
/// ```
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
        if self.0 == 0.0 {
            return f.pad("0");
        }
        let (mut value, mut unit) = (self.0 / 1024.0, 0);
        while value >= 999.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let decimals = match value {
            v if v < 0.9995 => 3,
            v if v < 9.995 => 2,
            v if v < 99.95 => 1,
            _ => 0,
        };
        f.pad(&format!("{value:.decimals$} {}", UNITS[unit]))
    }
}

/// Unit in which people write times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl TimeUnit {
    /// All units, the shortest first.
    pub const ALL: [Self; 5] = [Self::Micros, Self::Millis, Self::Seconds, Self::Minutes, Self::Hours];

    /// Symbol of the unit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Micros => "us",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Minutes => "min",
            Self::Hours => "h",
        }
    }

    /// Microseconds per unit.
    pub const fn micros(self) -> f64 {
        match self {
            Self::Micros => 1.0,
            Self::Millis => 1e3,
            Self::Seconds => 1e6,
            Self::Minutes => 6e7,
            Self::Hours => 3.6e9,
        }
    }
}

/// Identifier of a GPU in the catalog: lower-case letters, digits and dashes, as in `h100-sxm5-80gb`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct GpuSlug(String);

/// Text that is not a valid GPU slug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GPU slug: use lower-case letters, digits and dashes, as in \"h100-sxm5-80gb\"")]
pub struct SlugError(pub String);

impl GpuSlug {
    /// Checks the characters (at most 64, letters `a`–`z`, digits, dashes).
    ///
    /// # Errors
    /// [`SlugError`] with the rejected text.
    pub fn new(slug: impl Into<String>) -> Result<Self, SlugError> {
        let slug = slug.into();
        let valid = !slug.is_empty()
            && slug.len() <= 64
            && slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if valid { Ok(Self(slug)) } else { Err(SlugError(slug)) }
    }

    /// Slug as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GpuSlug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl TryFrom<String> for GpuSlug {
    type Error = SlugError;
    fn try_from(slug: String) -> Result<Self, SlugError> {
        Self::new(slug)
    }
}

impl From<GpuSlug> for String {
    fn from(slug: GpuSlug) -> String {
        slug.0
    }
}

#[cfg(test)]
mod tests;
