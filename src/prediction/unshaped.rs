//! Measured operations without shapes, which may be compute- or memory-bound.
//!
//! Elementwise operations, normalisations and look-ups are memory-bound for any shapes. A product, a convolution, an
//! attention, a recurrent layer or an unknown kernel may be bound by either. On another GPU its time is between its
//! time scaled by the ratio of memory bandwidths and by the ratio of arithmetic rates.

use super::decoded::Decoded;
use super::finding::Finding;
use super::method::COVERED;
use habitat_base::units::Micros;
use habitat_step::op::Family;

/// Whether an operation may be compute- or memory-bound.
pub(super) fn is_undecided(decoded: &Decoded<'_>) -> bool {
    let operation = decoded.operation;
    let counted = |kernel: &habitat_step::profile::Kernel| kernel.flops.is_some() && kernel.dram_bytes.is_some();
    decoded.work.is_none()
        && (decoded.family.varies_kernels() || decoded.family == Family::Unknown)
        && (operation.kernels.is_empty() || !operation.kernels.iter().all(counted))
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
