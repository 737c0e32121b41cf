//! Measured operations without shapes, which may be compute- or memory-bound.
//!
//! Elementwise operations, normalisations and look-ups are memory-bound for any shapes. A product, a convolution, an
//! attention, a recurrent layer or an unknown kernel may be bound by either. On another GPU its time is between its
//! time scaled by the ratio of memory bandwidths and by the ratio of arithmetic rates.

use super::decoded::Decoded;
use super::estimate::Estimate;
use super::finding::Finding;
use super::method::{COVERED, Method};
use super::rate::Rates;
use habitat_base::units::{Micros, Range};
use habitat_step::op::{Arithmetic, Family};
use habitat_step::profile::DType;

/// Whether an operation may be compute- or memory-bound.
pub(super) fn is_undecided(decoded: &Decoded<'_>) -> bool {
    let operation = decoded.operation;
    let counted = |kernel: &habitat_step::profile::Kernel| kernel.flops.is_some() && kernel.dram_bytes.is_some();
    decoded.work.is_none()
        && (decoded.family.varies_kernels() || decoded.family == Family::Unknown)
        && (operation.kernels.is_empty() || !operation.kernels.iter().all(counted))
}

/// Time of an undecided operation on `there`, if it took `time` on `here`; and the smallest, largest and middle ratio.
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
    // Without an element type, products may run in 32 or 16 bits.
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

/// Share of device time without shapes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Unshaped {
    /// Share of the measured device time in undecided operations.
    share: f64,
    /// Whether no operation has shapes.
    none: bool,
}

impl Unshaped {
    /// Evaluates a measured step; `None` if all or nearly all shapes are known.
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

    /// Warning for every time.
    pub(super) fn warning(self) -> Finding {
        Finding::NoShapes { all: self.none, share: self.share }
    }
}
