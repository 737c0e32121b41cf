//! Offer: a machine with GPUs in a region, with a price and its date.

use std::fmt;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::ownership::Ownership;
use super::tier::Tier;
use super::trust::{Market, Trust};
use habitat_base::units::{Bytes, GpuSlug, UsdPerHour};

/// A priced offer: one tier of one instance type in one region.
///
/// A machine with an on-demand and a spot price is two offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Stable name, unique in a price book: `provider/region/instance_type/tier`, plus the hours per term for a
    /// contract to buy.
    pub id: OfferId,
    /// Provider, such as `aws`.
    pub provider: String,
    /// Region in the provider's spelling.
    pub region: String,
    /// Instance type in the provider's spelling.
    pub instance_type: String,
    /// Name of the GPU in the provider's spelling.
    pub gpu_name: String,
    /// Slug of the GPU in the catalog; `None` if the board is unknown.
    pub gpu: Option<GpuSlug>,
    /// GPUs of one machine.
    pub gpu_count: u32,
    /// Number of machines; `None` if the price list does not have it.
    pub machines: Option<u32>,
    /// Machine whose GPUs several offers share; `None` = the machine is whole.
    pub share_of: Option<ShareOf>,
    /// Memory of one GPU, nominal.
    pub gpu_memory: Option<Bytes>,
    /// Virtual CPUs of the host.
    pub vcpus: Option<f64>,
    /// Memory of the host.
    pub host_memory: Option<Bytes>,
    /// Line rate of the network to other machines, in Gbit/s; `None` if unknown.
    pub network_gbit_per_second: Option<f64>,
    /// Purchase option.
    pub tier: Tier,
    /// Price of the whole offer, including all GPUs and the host.
    pub price: UsdPerHour,
    /// Hours per term of a contract to buy, which are paid whether used or not.
    pub term_hours: Option<u32>,
    /// Date of the snapshot; `None` if the source has none.
    pub as_of: Option<Date>,
    /// Last day on which the price applies; `None` if no end is known.
    pub until: Option<Date>,
    /// Trustworthiness of the price.
    pub trust: Trust,
    /// Cost of a machine that the user already has.
    pub held: Option<Ownership>,
    /// Source of the price: repository, path and commit.
    pub source: String,
    /// Reason why the price cannot be used in a plan. Such offers are kept and rejected with this reason.
    pub unusable: Option<Unusable>,
    /// Remarks.
    pub note: Option<String>,
}

/// A machine whose GPUs several offers share, each with some of them.
#[derive(Debug, Clone, PartialEq)]
pub struct ShareOf {
    /// The offer with all its GPUs.
    pub machine: OfferId,
    /// All its GPUs.
    pub gpus: u32,
}

/// Why a price cannot be used in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Unusable {
    /// It is for the GPUs only, without a host.
    GpusOnly,
    /// It is for a host without GPUs.
    HostOnly,
    /// The price list doubts it.
    Suspect {
        /// Why.
        why: String,
    },
    /// A spot price that is not below the on-demand price.
    NoDiscount,
    /// It is of a host on a peer-to-peer market, which the user excludes.
    PeerToPeerExcluded,
}

/// Provider and region of the user's own machines that no price file describes.
pub const OWN_PLACE: [&str; 2] = ["own", "here"];

impl Offer {
    /// Whether it is an own machine that no price file describes ([`OWN_PLACE`]).
    pub fn is_at_own_place(&self) -> bool {
        [self.provider.as_str(), self.region.as_str()] == OWN_PLACE
    }

    /// Number of machines that one job can have; `None` if it is unlimited. An own machine and a marketplace host are
    /// one machine unless the price list has more.
    pub fn most_machines(&self) -> Option<u32> {
        let is_one = matches!(self.tier, Tier::Owned | Tier::Reserved) || self.trust.market == Market::PeerToPeer;
        self.machines.or(is_one.then_some(1))
    }

    /// Location of the region in plain words; `None` if unknown.
    pub fn region_name(&self) -> Option<&'static str> {
        super::region::name(&self.provider, &self.region)
    }

    /// Whether a filter matches its region, by the rules of [`super::region`].
    pub fn is_in(&self, filter: &str) -> bool {
        super::region::is_named(&self.provider, &self.region, filter)
    }
}

/// Name of an offer, unique in its price book.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OfferId(String);

impl OfferId {
    /// Builds `provider/region/instance_type/tier`.
    pub fn new(provider: &str, region: &str, instance_type: &str, tier: Tier) -> Self {
        Self(format!("{provider}/{region}/{instance_type}/{tier}"))
    }

    /// Adds the hours of a contract to buy, since one machine may be available for several terms.
    pub(super) fn with_term(self, hours: u32) -> Self {
        Self(format!("{}-{hours}h", self.0))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
