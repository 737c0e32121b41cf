//! Several machines: GPUs per machine, the network between them, and the state divided among all.
//!
//! The exchange has two levels: inside each machine, then each of its g GPUs with its counterparts in the other
//! machines on 1/g of the gradients, all through the machine's network. Programs reach 35 to 50 % of a network's line
//! rate over TCP, 60 to 80 % with RDMA (`nccl-tests` issues 22 and 290, `nccl` issues 450 and 495).

use super::ModelParallel;
use crate::sharding::Sharding;
use habitat_base::units::{BytesPerSecond, Range};

/// Network of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Network {
    /// Line rate, in Gbit/s.
    Rate(f64),
    /// Unknown: assumes Ethernet of 10 to 100 Gbit/s.
    #[default]
    Unknown,
}

/// Shares of the line rate that programs reach: worst TCP, expected, best RDMA.
const REACHED: [f64; 3] = [0.35, 0.5, 0.8];
/// Assumed line rates of an unknown network, in Gbit/s, and the shares reached over TCP.
const ASSUMED: [(f64, f64); 3] = [(10.0, 0.35), (25.0, 0.42), (100.0, 0.5)];

impl Network {
    /// Network from the offer's rate, otherwise from the user's assumption, in Gbit/s.
    pub fn new(offer: Option<f64>, assumed: Option<f64>) -> Self {
        offer.or(assumed).map_or(Self::Unknown, Self::Rate)
    }

    /// Bandwidth that the gradient exchange reaches: worst, expected, best.
    pub fn reached(self) -> Range<BytesPerSecond> {
        let [low, mid, high] = match self {
            Self::Rate(rate) => REACHED.map(|share| rate * share),
            Self::Unknown => ASSUMED.map(|(rate, share)| rate * share),
        }
        .map(|gbit| BytesPerSecond::known(gbit / 8.0 * 1e9));
        Range { low, mid, high }
    }

    /// Description, to follow `over`.
    pub(super) fn words(self) -> String {
        let Range { low, mid, high } = self.reached().map(|rate| rate.get() / 1e9);
        let of = match self {
            Self::Rate(rate) => format!("35 to 80 % of a {rate} Gbit/s network"),
            Self::Unknown => "unknown network: assuming 10 to 100 Gbit/s over TCP".to_owned(),
        };
        format!("{mid:.1} GB/s between machines ({low:.1} to {high:.1}, {of})")
    }
}

/// GPUs that a step runs on, and the division of its state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Number of machines.
    pub machines: u32,
    /// GPUs per machine.
    pub gpus: u32,
    /// Network of each machine.
    pub network: Network,
    /// State divided among all replicas.
    pub sharding: Sharding,
    /// GPUs that share one replica of the model.
    pub parallel: ModelParallel,
}

impl Layout {
    /// Layout on one machine, with all state on each GPU.
    pub const fn one_machine(gpus: u32) -> Self {
        Self { machines: 1, gpus, network: Network::Unknown, sharding: Sharding::None, parallel: ModelParallel::NONE }
    }

    /// Total number of GPUs.
    pub const fn all(&self) -> u32 {
        self.machines.saturating_mul(self.gpus)
    }

    /// Data parallel replicas of the model.
    pub const fn replicas(&self) -> u32 {
        self.all() / if self.parallel.gpus() == 0 { 1 } else { self.parallel.gpus() }
    }

    /// Description: `8 GPUs`, `2 machines with 8 GPUs each`.
    pub(super) fn words(&self) -> String {
        match (self.machines, self.gpus) {
            (1, gpus) => format!("{gpus} GPUs"),
            (machines, 1) => format!("{machines} machines with 1 GPU each"),
            (machines, gpus) => format!("{machines} machines with {gpus} GPUs each"),
        }
    }
}
