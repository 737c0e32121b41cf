//! Several machines: how many GPUs on each, what is between them, what is divided among all.
//!
//! The exchange has two levels (planner note B0): inside each machine, then each of its g GPUs
//! with its counterparts in the other machines on 1/g of the gradients, all through the network of
//! the machine. What programs reach of a network's line rate: 35 to 50 % over TCP, 60 to 80 % with
//! RDMA (`nccl-tests` issues 22 and 290, `nccl` issues 450 and 495).

use super::ModelParallel;
use crate::sharding::Sharding;
use habitat_base::units::{BytesPerSecond, Range};

/// The network of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Network {
    /// Its line rate, in Gbit/s.
    Rate(f64),
    /// Not known: Ethernet of 10 to 100 Gbit/s is assumed.
    #[default]
    Unknown,
}

/// Shares of the line rate that are reached: TCP at its worst, in between, RDMA at its best.
const REACHED: [f64; 3] = [0.35, 0.5, 0.8];
/// Line rates of a network that nothing is known of, in Gbit/s, and the shares reached over TCP.
const ASSUMED: [(f64, f64); 3] = [(10.0, 0.35), (25.0, 0.42), (100.0, 0.5)];

impl Network {
    /// Of an offer that says its rate, else of the user's assumption, in Gbit/s.
    pub fn new(offer: Option<f64>, assumed: Option<f64>) -> Self {
        offer.or(assumed).map_or(Self::Unknown, Self::Rate)
    }

    /// What the exchange of gradients reaches: worst, expected, best.
    pub fn reached(self) -> Range<BytesPerSecond> {
        let [low, mid, high] = match self {
            Self::Rate(rate) => REACHED.map(|share| rate * share),
            Self::Unknown => ASSUMED.map(|(rate, share)| rate * share),
        }
        .map(|gbit| BytesPerSecond::known(gbit / 8.0 * 1e9));
        Range { low, mid, high }
    }

    /// In words, after `over`.
    pub(super) fn words(self) -> String {
        let Range { low, mid, high } = self.reached().map(|rate| rate.get() / 1e9);
        let of = match self {
            Self::Rate(rate) => format!("of a network of {rate} Gbit/s, of which programs reach 35 to 80 %"),
            Self::Unknown => "as the network is not known: 10 to 100 Gbit/s over TCP assumed".to_owned(),
        };
        format!("{mid:.1} GB/s between machines ({low:.1} to {high:.1}, {of})")
    }
}

/// On which GPUs a step runs, and how its state is kept on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Machines.
    pub machines: u32,
    /// GPUs of each.
    pub gpus: u32,
    /// The network of each.
    pub network: Network,
    /// Which state is divided among all replicas.
    pub sharding: Sharding,
    /// How many GPUs share one replica of the model.
    pub parallel: ModelParallel,
}

impl Layout {
    /// So many GPUs of one machine, all state on each.
    pub const fn one_machine(gpus: u32) -> Self {
        Self { machines: 1, gpus, network: Network::Unknown, sharding: Sharding::None, parallel: ModelParallel::NONE }
    }

    /// GPUs in all.
    pub const fn all(&self) -> u32 {
        self.machines.saturating_mul(self.gpus)
    }

    /// Replicas of the model: data parallel.
    pub const fn replicas(&self) -> u32 {
        self.all() / if self.parallel.gpus() == 0 { 1 } else { self.parallel.gpus() }
    }

    /// `8 GPUs`, `2 machines with 8 GPUs each`.
    pub(super) fn words(&self) -> String {
        match (self.machines, self.gpus) {
            (1, gpus) => format!("{gpus} GPUs"),
            (machines, 1) => format!("{machines} machines with 1 GPU each"),
            (machines, gpus) => format!("{machines} machines with {gpus} GPUs each"),
        }
    }
}
