//! One offer: a machine with GPUs, where, and at what price on which date.

use std::fmt;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::held::Held;
use super::trust::Trust;
use habitat_base::units::{Bytes, GpuSlug, UsdPerHour};

/// A priced offer: one tier of one instance type in one region.
///
/// The same machine on demand and on spot is two offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// Stable name, unique in a price book: `provider/region/instance_type/tier`, of a contract to
    /// be bought with the hours of its term.
    pub id: OfferId,
    /// Provider, such as `aws`.
    pub provider: String,
    /// Region as the provider names it.
    pub region: String,
    /// Instance type as the provider names it.
    pub instance_type: String,
    /// The provider's name of the GPU.
    pub gpu_name: String,
    /// The GPU's slug in the catalog; `None` where the board is not known.
    pub gpu: Option<GpuSlug>,
    /// GPUs of the whole offer.
    pub gpu_count: u32,
    /// Memory of one GPU, nominal.
    pub gpu_memory: Option<Bytes>,
    /// Virtual CPUs of the host.
    pub vcpus: Option<f64>,
    /// Memory of the host.
    pub host_memory: Option<Bytes>,
    /// Line rate of its network to other machines, in Gbit/s; `None` where it is not known.
    pub network_gbit_per_second: Option<f64>,
    /// How it is paid for.
    pub tier: Tier,
    /// Price of the whole offer, all its GPUs and the host.
    pub price: UsdPerHour,
    /// Of a contract to be bought: the hours of a term, which are paid whole, used or not.
    pub term_hours: Option<u32>,
    /// Date of the snapshot; `None` where the source gives none.
    pub as_of: Option<Date>,
    /// How far the price can be trusted.
    pub trust: Trust,
    /// Of a machine that is the user's already: what the price is made of.
    pub held: Option<Held>,
    /// Where the price comes from: repository, path and commit.
    pub source: String,
    /// Why the price or its scope must not be trusted for a plan; such offers are kept
    /// and rejected with this reason.
    pub unusable: Option<String>,
    /// Remarks.
    pub note: Option<String>,
}

impl Offer {
    /// Where its region is, in plain words; `None` where that is not known.
    pub fn region_name(&self) -> Option<&'static str> {
        super::region::name(&self.provider, &self.region)
    }

    /// Of a machine that is not rented by the hour: what its price is made of.
    pub fn price_made_of(&self) -> Option<String> {
        let term = |hours| format!("each of the {hours} h of a term, used or not");
        self.held.map(|held| held.to_string()).or(self.term_hours.map(term))
    }

    /// Whether a filter names its region, by the rule of [`super::region`].
    pub fn is_in(&self, filter: &str) -> bool {
        super::region::is_named(&self.provider, &self.region, filter)
    }
}

/// Name of an offer, unique in its price book.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct OfferId(String);

impl OfferId {
    /// `provider/region/instance_type/tier`.
    pub fn new(provider: &str, region: &str, instance_type: &str, tier: Tier) -> Self {
        Self(format!("{provider}/{region}/{instance_type}/{tier}"))
    }

    /// The same of a contract to be bought: one machine may be had for several terms.
    pub(super) fn with_term(self, hours: u32) -> Self {
        Self(format!("{}-{hours}h", self.0))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// How an offer is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Started and stopped at will, at list price.
    OnDemand,
    /// Cheaper, taken away at short notice.
    Spot,
    /// Paid for a term.
    Reserved,
    /// The user's own GPU.
    Owned,
}

impl Tier {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::OnDemand, Self::Spot, Self::Reserved, Self::Owned];

    /// The name in files and on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnDemand => "on-demand",
            Self::Spot => "spot",
            Self::Reserved => "reserved",
            Self::Owned => "owned",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
