//! Measured operations without shapes: nothing tells whether memory or arithmetic bounds
//! their kernels.
//!
//! An elementwise operation, a normalisation or a look-up is bound by memory whatever its
//! shapes. A product, a convolution, an attention, a recurrent layer or a kernel that is not
//! known may be bound by either: on another GPU it takes anything between its time scaled by
//! the ratio of memory bandwidths and its time scaled by the ratio of arithmetic rates.

use super::decoded::Decoded;
use super::estimate::Estimate;
use super::method::{COVERED, Method};
use super::rate::Rates;
use super::warning::{Warning, WarningKind};
use habitat_base::units::{Micros, Range};
use habitat_step::op::{Arithmetic, Family};
use habitat_step::profile::DType;

/// Whether nothing tells what bounds an operation.
pub(super) fn is_undecided(decoded: &Decoded<'_>) -> bool {
    let operation = decoded.operation;
    let counted = |kernel: &habitat_step::profile::Kernel| kernel.flops.is_some() && kernel.dram_bytes.is_some();
    decoded.work.is_none()
        && (decoded.family.varies_kernels() || decoded.family == Family::Unknown)
        && (operation.kernels.is_empty() || !operation.kernels.iter().all(counted))
}

/// The time of an undecided operation on `there`, of which it took `time` on `here`; and the least, the
/// greatest and the middle ratio of the two.
pub(super) fn between(
    decoded: &Decoded<'_>,
    (here, there): (&Rates<'_>, &Rates<'_>),
    time: Micros,
) -> (Estimate, [f64; 3]) {
    let memory = here.bandwidth.value / there.bandwidth.value;
    let arithmetic = match decoded.family {
        Family::Convolution => Arithmetic::Convolution,
        family if family.varies_kernels() => Arithmetic::Product,
        _ => Arithmetic::Vector,
    };
    let rate = |dtype: Option<&DType>| {
        let rate = |gpu: &Rates<'_>| gpu.arithmetic(arithmetic, dtype, decoded.arithmetic);
        rate(here) / rate(there)
    };
    // Where not even the element type is known, products may run in 32 bits or in 16.
    let rates = match &decoded.dtype {
        None if arithmetic != Arithmetic::Vector => [rate(None), rate(Some(&DType::Float16))],
        dtype => [rate(dtype.as_ref()); 2],
    };
    let ends = |fold: fn(f64, f64) -> f64| rates.iter().copied().fold(memory, fold);
    let (fastest, slowest) = (ends(f64::min), ends(f64::max));
    let mid = (fastest * slowest).sqrt();
    let band = Method::BetweenRates.operation_band();
    let range = Range { low: time * (fastest * (1.0 - band)), mid: time * mid, high: time * (slowest * (1.0 + band)) };
    (Estimate { range, method: Method::BetweenRates }, [fastest, slowest, mid])
}

/// Which part of a recording nothing is known of but its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unshaped {
    /// Share of the measured device time in undecided operations.
    share: f64,
    /// Whether no operation has shapes at all.
    none: bool,
}

impl Unshaped {
    /// Of a measured step's operations; `None` where shapes are there, or next to all.
    pub(super) fn of(decoded: &[Decoded<'_>]) -> Option<Self> {
        let measured = || decoded.iter().filter(|decoded| decoded.family != Family::Communication);
        let time = |of: &dyn Fn(&Decoded<'_>) -> bool| -> f64 {
            let times = measured().filter(|decoded| of(decoded)).filter_map(|it| it.operation.total_device_time());
            times.map(Micros::get).sum()
        };
        let (all, undecided) = (time(&|_| true), time(&is_undecided));
        let none = measured().all(|decoded| decoded.operation.inputs.is_empty());
        let share = if all > 0.0 { undecided / all } else { return None };
        (none || share > 1.0 - COVERED).then_some(Self { share, none })
    }

    /// What is to be said with every time.
    pub(super) fn warning(self) -> Warning {
        let of = if self.none { "no shapes were recorded" } else { "shapes are missing" };
        let text = format!(
            "{of}: {:.0} % of the device time is in products, convolutions and kernels of which nothing tells whether memory or arithmetic bounds them; on other GPUs they may take any time between the ratios of the two; what only shapes show, such as the memory, is not known; record with record_shapes=True",
            self.share * 100.0
        );
        Warning { kind: WarningKind::NoShapes, text }
    }
}
