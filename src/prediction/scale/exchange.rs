//! Gradient exchange once per step.

use super::{Layout, Link, Network, SPREAD, SPREAD_MEASURED, slowest};
use crate::sharding::Sharding;
use habitat_base::units::{Bytes, BytesPerSecond, Micros, Range};

/// Size of the communication buckets of PyTorch's `DistributedDataParallel`.
const BUCKET_BYTES: f64 = 25e6;
/// Backward share of a training step (twice the work of forward).
const BACKWARD_SHARE: f64 = 2.0 / 3.0;
/// Share of the backward pass that hides traffic (h).
const HIDING: f64 = 0.6;
/// Host cost of each doubling of the GPUs, in microseconds (o).
const HOST_US: f64 = 2200.0;

/// Data exchanged once per step, and its participants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exchange {
    link: Link,
    /// GPUs of a machine that reduce the same gradients: all of them, or one per replica.
    pub(super) gpus: u32,
    /// Machines, or groups of them, that then reduce their results.
    pub(super) machines: u32,
    /// Gradient bytes of each GPU.
    pub(super) gradients: Bytes,
    /// Gradient bytes of each machine.
    pub(super) between: Bytes,
    /// GPUs that wait for each other.
    all: u32,
    /// Processes per machine.
    processes: u32,
    sharding: Sharding,
}

impl Exchange {
    /// Exchange of the whole model's gradients. A replica on several GPUs divides them; its GPUs first reduce with
    /// their counterparts in the machine, if it has whole replicas, then with those in other machines.
    pub(super) fn new(link: Link, layout: &Layout, gradients: Bytes) -> Self {
        let replica = layout.parallel.gpus().max(1);
        let gpus = if layout.gpus.is_multiple_of(replica) { layout.gpus / replica } else { 1 };
        let of_machine = f64::from(layout.gpus) / f64::from(replica);
        Self {
            link,
            gpus,
            machines: layout.replicas() / gpus,
            gradients: gradients * (1.0 / f64::from(replica)),
            between: gradients * of_machine.min(1.0),
            all: layout.all(),
            processes: layout.gpus,
            sharding: layout.sharding,
        }
    }

    /// Increase of the step time, if a machine's network reaches `network`.
    ///
    /// Full sharding also gathers the parameters in the forward pass. That is a third of the traffic, and the pass is a
    /// third of the step, so the whole step hides the traffic.
    pub(super) fn extra(&self, step: Micros, network: BytesPerSecond) -> Micros {
        let passes = |n: u32| 2.0 * (f64::from(n) - 1.0) / f64::from(n);
        let (bandwidth, deviation) = self.link.fitted();
        let time = |inside: Bytes, between: Bytes| {
            inside * passes(self.gpus) / bandwidth + between * passes(self.machines) / network
        };
        let all = time(self.gradients, self.between) * self.sharding.traffic();
        let bucket = Bytes::known(BUCKET_BYTES);
        let last = time(bucket.min(self.gradients), bucket.min(self.between));
        let hiding = if self.sharding == Sharding::Zero3 { HIDING } else { HIDING * BACKWARD_SHARE };
        let exposed = all.checked_sub(step * hiding).unwrap_or_default().max(last);
        let waiting = step * (deviation * slowest(self.all));
        waiting + exposed + Micros::known(HOST_US * f64::from(self.processes).log2())
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
