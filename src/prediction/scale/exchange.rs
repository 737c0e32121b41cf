//! Gradient exchange once per step.

use super::{Layout, Link, Network, SPREAD, SPREAD_MEASURED, slowest};
use crate::fabric::{Collective, Fabric, Group, Reduced};
use crate::gpu::GpuFacts;
use habitat_base::units::{Bytes, BytesPerSecond, Micros, Range};

/// Size of the communication buckets of PyTorch's `DistributedDataParallel`.
const BUCKET_BYTES: f64 = 25e6;
/// Backward share of a training step (twice the work of forward).
const BACKWARD_SHARE: f64 = 2.0 / 3.0;
/// Share of the backward pass that hides traffic (h).
const HIDING: f64 = 0.6;

/// Data exchanged once per step, and its participants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    link: Link,
    fabric: Fabric,
    /// GPUs of a machine that reduce the same gradients.
    gpus: u32,
    /// Machines that then reduce their results.
    machines: u32,
    /// Gradient bytes of each GPU.
    gradients: Bytes,
    /// GPUs that wait for each other.
    all: u32,
}

impl Exchange {
    /// Exchange of the whole model's gradients by GPUs that each have all of it.
    pub(super) fn new(gpu: &GpuFacts, layout: &Layout, gradients: Bytes) -> Self {
        let GpuFacts { link, fabric, .. } = *gpu;
        Self { link, fabric, gpus: layout.gpus, machines: layout.machines, gradients, all: layout.all() }
    }

    /// Increase of the step time, if a machine's network reaches `network`.
    pub(super) fn extra(&self, step: Micros, network: BytesPerSecond) -> Micros {
        let passes = |n: u32| 2.0 * (f64::from(n) - 1.0) / f64::from(n);
        let fitted = self.link.fitted();
        let bucket = Bytes::known(BUCKET_BYTES).min(self.gradients);
        let group = Group { inside: self.gpus, machines: 1 };
        let inside = match fitted.rate {
            Reduced::At(bandwidth) => bucket * passes(self.gpus) / bandwidth,
            Reduced::Share(share) => self.fabric.times(share).time(Collective::AllReduce, bucket, group, network),
        };
        let last = inside + bucket * passes(self.machines) / network;
        let time = |bytes: Bytes| if bucket == Bytes::ZERO { Micros::ZERO } else { last * (bytes / bucket) };
        let hidden = step * (HIDING * BACKWARD_SHARE);
        let exposed = time(self.gradients).checked_sub(hidden).unwrap_or_default().max(last);
        let waiting = step * (fitted.deviation * slowest(self.all));
        waiting + exposed + fitted.host * f64::from(self.gpus).log2()
    }

    /// Increase with its range, and with the factor measured on one machine.
    pub(super) fn added(&self, step: Micros, network: Network, factor: Option<f64>) -> Range<Micros> {
        let inside = Self { machines: 1, all: self.all / self.machines, ..*self };
        let factor = factor.filter(|_| self.gpus > 1);
        let corrected = |network| {
            let (all, one) = (self.extra(step, network), inside.extra(step, network));
            factor.map_or(all, |factor| one * factor + all.checked_sub(one).unwrap_or_default())
        };
        let reached = network.reached();
        let mid = corrected(reached.mid);
        let [least, most] = if factor.is_some() { SPREAD_MEASURED } else { SPREAD };
        let [mut low, mut high] = [mid * least, mid * most];
        if self.machines > 1 {
            low = corrected(reached.high) * least;
            high = high.max(corrected(reached.low));
        }
        Range { low, mid, high }
    }
}
