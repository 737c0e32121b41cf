//! Purchase options.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Purchase option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Started and stopped at any time, at list price.
    OnDemand,
    /// Cheaper, but the provider can take it away at short notice.
    Spot,
    /// Paid for a whole term.
    Reserved,
    /// The user's own GPU.
    Owned,
}

impl Tier {
    /// All tiers.
    pub const ALL: [Self; 4] = [Self::OnDemand, Self::Spot, Self::Reserved, Self::Owned];

    /// Name in files and on screen.
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
