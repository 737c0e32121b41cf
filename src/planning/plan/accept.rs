//! Risks that the user has to accept before money is spent.
//!
//! A plan uses firm offers: on-demand, from a provider itself, at a price not in doubt, on the platform of the
//! recording, with the recorded global batch. All others are offers *beside* the plan, which the user has to accept
//! ([`Accept`]). Naming providers accepts their marketplace hosts if they have no firm offer. The plan
//! shows how much they save, and the cost of the work if they fail.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pricing::PriceIssue;
use habitat_prediction::Vendor;

/// A risk to accept before an offer is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Accept {
    /// A machine that the provider can take away at short notice.
    Spot,
    /// A marketplace host, rented out by its owner at the owner's price.
    Marketplace,
    /// A price in doubt.
    Doubted,
    /// A GPU of another vendor than the recorded one, or a host with ARM CPUs instead of x86.
    Platform,
    /// A global batch other than the recorded one.
    Batch,
}

impl Accept {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Spot, Self::Marketplace, Self::Doubted, Self::Platform, Self::Batch];

    /// Whether the list has all kinds.
    pub fn are_all(accepted: &[Self]) -> bool {
        Self::ALL.iter().all(|one| accepted.contains(one))
    }

    /// Name in files and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Event in which an accepted offer fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, strum::VariantNames)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Setback {
    /// The global batch needs as many updates as the recorded one.
    SameUpdates,
    /// The marketplace host is gone.
    HostGone,
    /// No spot machine is available.
    NoSpot,
    /// The price is gone.
    PriceGone,
    /// The program does not run on the platform.
    DoesNotRun,
}

impl Setback {
    /// Event in which an offer with these risks fails.
    pub(crate) fn of(accept: &[Accept]) -> Self {
        match accept {
            [Accept::Batch] => Self::SameUpdates,
            _ if accept.contains(&Accept::Marketplace) => Self::HostGone,
            _ if accept.contains(&Accept::Spot) => Self::NoSpot,
            _ if accept.contains(&Accept::Doubted) => Self::PriceGone,
            _ => Self::DoesNotRun,
        }
    }
}

/// Software platform of a step: vendor of the GPU, and whether the host has ARM CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Platform {
    /// Vendor of the GPU.
    pub vendor: Vendor,
    /// Whether the host has ARM CPUs.
    pub arm: bool,
}

/// A risk of an offer that the user has to accept.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// [`Accept::Spot`].
    Spot,
    /// [`Accept::Marketplace`].
    Marketplace,
    /// [`Accept::Doubted`], with the doubts.
    Doubted(Vec<PriceIssue>),
    /// [`Accept::Platform`], with the platform.
    Platform(Platform),
    /// [`Accept::Batch`], with the samples of the global batch; `None` if unknown.
    Batch(Option<u64>),
}

impl Risk {
    /// The kind to accept.
    pub const fn kind(&self) -> Accept {
        match self {
            Self::Spot => Accept::Spot,
            Self::Marketplace => Accept::Marketplace,
            Self::Doubted(_) => Accept::Doubted,
            Self::Platform(_) => Accept::Platform,
            Self::Batch(_) => Accept::Batch,
        }
    }

    /// The kinds to accept for several.
    pub(crate) fn kinds(risks: &[Self]) -> Vec<Accept> {
        risks.iter().map(Self::kind).collect()
    }
}
