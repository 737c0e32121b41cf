//! Device time of a step by method.

use super::estimate::{MethodShare, OperationPrediction};
use super::method::Method;
use habitat_base::units::{Micros, Range};
use habitat_step::profile::Phase;

/// Device time of one step by method, largest first.
pub(super) fn shares(operations: &[OperationPrediction]) -> Vec<MethodShare> {
    let mut by_method: Vec<MethodShare> = Vec::new();
    for operation in operations {
        let Some(time) = &operation.time else { continue };
        let total = time.range.mid * f64::from(operation.count);
        match by_method.iter_mut().find(|share| share.method == time.method) {
            Some(share) => share.device_time += total,
            None => by_method.push(MethodShare { method: time.method, device_time: total, share: 0.0 }),
        }
    }
    let all: Micros = by_method.iter().map(|share| share.device_time).sum();
    if all.get() > 0.0 {
        by_method.retain(|share| share.device_time.get() > 0.0);
        for share in &mut by_method {
            share.share = share.device_time / all;
        }
    }
    by_method.sort_by(|a, b| b.share.total_cmp(&a.share));
    by_method
}

/// Sum of all times by one method, end by end.
pub(super) fn sum_of(operations: &[OperationPrediction], method: Method) -> Range<Micros> {
    operations
        .iter()
        .filter_map(|operation| Some((operation.time.filter(|time| time.method == method)?, operation.count)))
        .map(|(time, count)| time.range.map(|time| time * f64::from(count)))
        .sum()
}

/// Share of the operators' time in the optimizer update.
pub(super) fn update_share(operations: &[OperationPrediction]) -> f64 {
    let (mut updates, mut all) = (0.0, 0.0);
    for operation in operations {
        let time = operation.time.map_or(0.0, |time| time.range.mid.get()) * f64::from(operation.count);
        all += time;
        updates += if operation.phase == Phase::Optimizer { time } else { 0.0 };
    }
    if all > 0.0 { updates / all } else { 0.0 }
}

/// Share of the measured device time on the origin in operations without a predicted time.
pub(super) fn left_out(operations: &[OperationPrediction]) -> f64 {
    let (mut out, mut all) = (0.0, 0.0);
    for operation in operations.iter().filter(|operation| operation.phase != Phase::Communication) {
        let time = operation.origin_time.map_or(0.0, Micros::get) * f64::from(operation.count);
        all += time;
        out += if operation.time.is_none() { time } else { 0.0 };
    }
    if all > 0.0 { out / all } else { 0.0 }
}

/// Share of the device time in operations outside the models' training data.
pub(super) fn far_share(operations: &[OperationPrediction]) -> f64 {
    let (mut far, mut all) = (0.0, 0.0);
    for operation in operations {
        let Some(time) = &operation.time else { continue };
        let total = time.range.mid.get() * f64::from(operation.count);
        all += total;
        far += if operation.is_far { total } else { 0.0 };
    }
    if all > 0.0 { far / all } else { 0.0 }
}
