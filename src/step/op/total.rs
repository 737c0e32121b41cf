//! Work of a whole step.

use super::{Arithmetic, Family, Op, element_bytes};
use crate::profile::{Phase, Profile};
use habitat_base::units::{Bytes, Flops};

/// Minimum work of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepWork {
    /// FLOPs of the products of the forward pass (matrix products, convolutions, attention, recurrent layers). A
    /// multiply-add counts as two: twice the multiply-adds that model tables list.
    pub forward: Flops,
    /// FLOPs of the products of the backward pass.
    pub backward: Flops,
    /// FLOPs of the products of other phases.
    pub other: Flops,
    /// Bytes read and written by all operations.
    pub bytes: Bytes,
    /// Calls with device work.
    pub calls: u64,
    /// Calls among them with unknown or only roughly known work.
    pub unknown: u64,
}

impl StepWork {
    /// Total work of a profile.
    pub fn of(profile: &Profile) -> Self {
        let mut sum = Self::default();
        for operation in &profile.operations {
            let count = f64::from(operation.count);
            let op = Op::of(operation);
            let Some(work) = op.work(element_bytes(operation, profile.workload.precision)) else {
                if !matches!(op.family(), Family::View | Family::Communication) {
                    sum.calls += u64::from(operation.count);
                    sum.unknown += u64::from(operation.count);
                }
                continue;
            };
            sum.calls += u64::from(operation.count);
            if op.doubt() > 1.0 {
                sum.unknown += u64::from(operation.count);
            }
            sum.bytes += work.bytes * count;
            if work.arithmetic == Arithmetic::Vector {
                continue;
            }
            let place = match operation.phase {
                Phase::Forward => &mut sum.forward,
                Phase::Backward | Phase::GradientAccumulation => &mut sum.backward,
                _ => &mut sum.other,
            };
            *place += work.flops * count;
        }
        sum
    }

    /// FLOPs of all products.
    pub fn flops(&self) -> Flops {
        self.forward + self.backward + self.other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 32 × 64 by 64 × 16 twice: 2 · 2 · 32 · 64 · 16; the addition is not a product.
    #[test]
    fn products_are_counted_by_phase_and_bytes_of_everything() {
        let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"}, "operations": [
            {"name": "aten::mm", "phase": "forward", "count": 2, "inputs": [[32, 64], [64, 16]], "dtype": "float32"},
            {"name": "aten::mm", "phase": "backward", "inputs": [[64, 32], [32, 16]], "dtype": "float32"},
            {"name": "aten::add", "phase": "forward", "inputs": [[32, 16], [32, 16]], "outputs": [[32, 16]], "dtype": "float32"},
            {"name": "aten::view", "phase": "forward", "inputs": [[32, 16]]},
            {"name": "aten::mm", "phase": "forward"}]}"#;
        let sum = StepWork::of(&Profile::from_json(json.as_bytes()).unwrap().0);
        assert_eq!((sum.forward.get(), sum.backward.get(), sum.other.get()), (131_072.0, 65_536.0, 0.0));
        let moved = 2.0 * (2048.0 + 1024.0 + 512.0) + (2048.0 + 512.0 + 1024.0) + 3.0 * 512.0;
        assert_eq!(sum.bytes.get(), 4.0 * moved);
        assert_eq!((sum.calls, sum.unknown, sum.flops().get()), (5, 1, 196_608.0));
    }
}
