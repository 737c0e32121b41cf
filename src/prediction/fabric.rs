//! Time of collectives among GPUs: by the links of a machine and the network between machines.
//!
//! A collective takes its latency and `f·S / B`, for S bytes on each of n GPUs; f is 2(n−1)/n for an all-reduce and
//! (n−1)/n for an all-gather or a reduce-scatter (NCCL tests, `PERFORMANCE.md`). Among several machines its rings run
//! through links and network at the same time, so the slower of the two decides. B and the latency are what `nccl-tests`
//! and `rccl-tests` measured (6,386 results of many machines, 2019 to 2026): B with the largest messages, the latency
//! from those of 16 to 64 MB.

use habitat_base::units::{Bytes, BytesPerSecond, Micros};
use habitat_step::catalog::{GpuSpec, Vendor};

/// Links between the GPUs of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fabric {
    /// Bus bandwidth of an all-reduce.
    reduce: BytesPerSecond,
    /// Bus bandwidth of an all-gather or a reduce-scatter.
    gather: BytesPerSecond,
    /// Bandwidth from one GPU to another.
    send: BytesPerSecond,
    /// Latency of an all-reduce.
    reduce_start: Micros,
    /// Latency of an all-gather or a reduce-scatter.
    gather_start: Micros,
    /// GPUs that links join, if more than a machine has.
    pub(crate) domain: u32,
}

/// Movement of data among GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collective {
    /// Every GPU gets the sum.
    AllReduce,
    /// Every GPU gets all parts, or the sum of one part.
    Gather,
    /// Every GPU gets a part of its own from each (all-to-all).
    Exchange,
}

/// GPUs of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    /// In each machine.
    pub(crate) inside: u32,
    /// Machines.
    pub(crate) machines: u32,
}

/// Latency for each doubling of the machines (all-reduce of 16 MB on two machines with EFA or RoCE).
const HOP_US: f64 = 30.0;
/// Share of the bandwidth among 2 GPUs, and among up to 4: fewer links are used.
const FEW: [f64; 2] = [0.7, 0.87];
/// GPUs in the `NVLink` domain of a GB200 or GB300 NVL72.
const RACK: u32 = 72;

impl Fabric {
    /// Links of a GPU of the catalog.
    pub fn new(gpu: &GpuSpec) -> Self {
        let both_directions = gpu.nvlink.map_or(0.0, |rate| rate.get() / 1e9);
        let of = match Link::new(gpu) {
            Link::Modules if gpu.vendor == Vendor::Amd => Self::of([317.0, 300.0, 60.0], [60.0, 50.0]),
            Link::Modules if both_directions <= 300.0 => Self::of([130.0, 120.0, 40.0], [55.0, 50.0]),
            Link::Switched if both_directions > 900.0 => Self::of([700.0, 615.0, 550.0], [70.0, 45.0]),
            link => Self::typical(link),
        };
        let is_rack = gpu.name.contains("GB200") || gpu.name.contains("GB300");
        Self { domain: if is_rack { RACK } else { 1 }, ..of }
    }

    /// Links of a kind: A100 for modules, H100 for switches.
    pub fn typical(link: Link) -> Self {
        match link {
            Link::HostMemory => Self::of([6.0, 6.0, 6.0], [40.0, 30.0]),
            Link::PciExpress => Self::of([24.0, 22.0, 22.0], [40.0, 30.0]),
            Link::Modules => Self::of([240.0, 225.0, 190.0], [90.0, 70.0]),
            Link::Switched => Self::of([470.0, 355.0, 330.0], [65.0, 35.0]),
        }
    }

    /// From GB/s of an all-reduce, a gather and a copy, and the microseconds of the first two.
    fn of(rates: [f64; 3], starts: [f64; 2]) -> Self {
        let [reduce, gather, send] = rates.map(|gigabytes| BytesPerSecond::known(gigabytes * 1e9));
        let [reduce_start, gather_start] = starts.map(Micros::known);
        Self { reduce, gather, send, reduce_start, gather_start, domain: 1 }
    }

    /// GPUs that links join, on machines with `gpus` each: those of a machine, or of a rack.
    pub const fn joined(&self, gpus: u32) -> u32 {
        if self.domain > gpus { self.domain } else { gpus }
    }

    /// Bandwidths times `factor`.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { reduce: self.reduce * factor, gather: self.gather * factor, send: self.send * factor, ..self }
    }

    /// Bandwidth from one GPU to another over the links.
    pub(crate) const fn send(&self) -> BytesPerSecond {
        self.send
    }

    /// Time of a collective of `bytes` on each GPU; `network` is the share that the group has of a machine's network.
    pub(crate) fn time(&self, collective: Collective, bytes: Bytes, group: Group, network: BytesPerSecond) -> Micros {
        let gpus = f64::from(group.inside) * f64::from(group.machines);
        if gpus <= 1.0 {
            return Micros::ZERO;
        }
        let (bandwidth, start, rounds) = match collective {
            Collective::AllReduce => (self.reduce, self.reduce_start, 2.0),
            Collective::Gather | Collective::Exchange => (self.gather, self.gather_start, 1.0),
        };
        let few = match group.inside {
            ..=2 => FEW[0],
            3..=4 => FEW[1],
            _ => 1.0,
        };
        let moved = bytes * (rounds * (gpus - 1.0) / gpus);
        // A ring passes everything through each link; the parts of an exchange leave a machine only for another.
        let [of_links, of_network] = match collective {
            Collective::Exchange => {
                let inside = f64::from(group.inside);
                [bytes * ((inside - 1.0) / gpus), bytes * (inside * (gpus - inside) / gpus)]
            }
            Collective::AllReduce | Collective::Gather => [moved, moved],
        };
        let inside = if group.inside > 1 { of_links / (bandwidth * few) } else { Micros::ZERO };
        if group.machines <= 1 {
            return start + inside;
        }
        let hops = Micros::known(HOP_US * f64::from(group.machines).log2());
        start + hops + inside.max(of_network / network)
    }
}

/// Link between the GPUs of one machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// PCI Express through host memory, the only copy path in drivers of `GeForce` and `TITAN` boards.
    HostMemory,
    /// PCI Express from board to board, with or without bridges.
    PciExpress,
    /// Modules with `NVLink` 1 to 3 or Infinity Fabric.
    Modules,
    /// `NVLink` 4 or later.
    Switched,
}

/// `NVLink` bandwidth, both directions, from which [`Link::Switched`] applies.
const SWITCHED: f64 = 900e9;
/// Maximum power of a PCI Express board; above it an AMD GPU is a module.
const BOARD_WATTS: f64 = 300.0;

impl Link {
    /// Classifies a GPU by name, `NVLink` and power.
    pub fn new(gpu: &GpuSpec) -> Self {
        let starts = |word: &str| gpu.name.starts_with(word);
        if starts("GeForce") || starts("TITAN") {
            return Self::HostMemory;
        }
        if gpu.nvlink.is_some_and(|nvlink| nvlink.get() >= SWITCHED) {
            return Self::Switched;
        }
        let is_amd_module = gpu.vendor == Vendor::Amd && gpu.power.is_some_and(|power| power.get() > BOARD_WATTS);
        if gpu.name.contains("SXM") || is_amd_module { Self::Modules } else { Self::PciExpress }
    }

    /// Constants of data parallel training.
    pub(crate) fn fitted(self) -> Fitted {
        let of = |rate, deviation, host_us| Fitted { rate, deviation, host: Micros::known(host_us) };
        let gigabytes = |rate: f64| Reduced::At(BytesPerSecond::known(rate * 1e9));
        match self {
            Self::HostMemory => of(gigabytes(3.0), 0.03, 2200.0),
            Self::PciExpress => of(gigabytes(14.0), 0.02, 2200.0),
            Self::Modules => of(Reduced::Share(0.35), 0.035, 2200.0),
            Self::Switched => of(Reduced::Share(1.0), 0.004, 500.0),
        }
    }
}

/// Constants of data parallel training by link, fitted to published pairs of steps ([`scale`](crate::scale)).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fitted {
    /// Bandwidth of an all-reduce.
    pub(crate) rate: Reduced,
    /// Relative standard deviation of a step (σ).
    pub(crate) deviation: f64,
    /// Host cost of each doubling of the GPUs (o).
    pub(crate) host: Micros,
}

/// Bandwidth of an all-reduce in training programs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Reduced {
    /// The same for all GPUs with this link.
    At(BytesPerSecond),
    /// Share of what `nccl-tests` reach ([`Fabric`]). The pairs over switches hide their traffic and leave it open.
    Share(f64),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    fn millis(gpu: &str, collective: Collective, megabytes: f64, inside: u32, machines: u32) -> f64 {
        let fabric = Fabric::new(shipped::catalog().find(gpu).unwrap());
        // 85 % of 3,200 Gbit/s.
        let network = BytesPerSecond::known(340e9);
        let time = fabric.time(collective, Bytes::known(megabytes * 1e6), Group { inside, machines }, network);
        time.as_millis()
    }

    /// Bus bandwidths of `nccl-tests` at 64 MB and 1 GB, in GB/s, against the model's.
    #[test]
    fn bandwidths_of_nccl_tests() {
        for (gpu, collective, [inside, machines], megabytes, measured) in [
            ("a100-sxm4-80gb", Collective::AllReduce, [8, 1], 67.1, 199.9),
            ("a100-sxm4-80gb", Collective::AllReduce, [8, 1], 1073.7, 243.4),
            ("a100-sxm4-80gb", Collective::Gather, [8, 1], 67.1, 167.0),
            ("h100-sxm5-80gb", Collective::AllReduce, [8, 1], 67.1, 361.8),
            ("h100-sxm5-80gb", Collective::AllReduce, [8, 1], 1073.7, 466.3),
            ("h100-sxm5-80gb", Collective::Gather, [8, 1], 1073.7, 343.6),
            ("h100-sxm5-80gb", Collective::AllReduce, [2, 1], 1073.7, 320.2),
            ("h100-sxm5-80gb", Collective::AllReduce, [8, 2], 1073.7, 436.9),
            ("h100-sxm5-80gb", Collective::Exchange, [8, 1], 67.1, 270.0),
            ("h100-sxm5-80gb", Collective::Exchange, [8, 1], 1073.7, 333.0),
            ("h100-sxm5-80gb", Collective::Exchange, [8, 2], 1073.7, 91.0),
            ("a100-sxm4-80gb", Collective::Exchange, [8, 1], 1073.7, 242.0),
            ("b200", Collective::Exchange, [8, 1], 268.4, 530.0),
            ("gb200", Collective::Exchange, [4, 1], 268.4, 490.0),
            ("b200", Collective::Gather, [8, 1], 1073.7, 616.8),
            ("b200", Collective::AllReduce, [8, 1], 268.4, 652.7),
            ("mi300x", Collective::AllReduce, [8, 1], 1073.7, 313.9),
            ("v100-sxm2-16gb", Collective::AllReduce, [8, 1], 1073.7, 133.2),
        ] {
            let gpus = f64::from(inside * machines);
            let rounds = if collective == Collective::AllReduce { 2.0 } else { 1.0 };
            let bandwidth =
                megabytes * rounds * (gpus - 1.0) / gpus / millis(gpu, collective, megabytes, inside, machines);
            assert!((bandwidth / measured - 1.0).abs() < 0.25, "{gpu} {collective:?} {megabytes}: {bandwidth}");
        }
    }

    #[test]
    fn the_slower_of_links_and_network_decides() {
        let gather = |inside, machines| millis("h100-sxm5-80gb", Collective::Gather, 1000.0, inside, machines);
        assert_eq!(gather(1, 1), 0.0);
        // 340 GB/s of the network against 355 of the links.
        let two = 1000.0 * 15.0 / 16.0 / 340.0 + 0.035 + 0.03;
        assert!((gather(8, 2) - two).abs() < 1e-9, "{} {two}", gather(8, 2));
    }
}
