//! Purchase options.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Purchase option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr, strum::Display)]
#[strum(serialize_all = "kebab-case")]
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
    pub fn name(self) -> &'static str {
        self.into()
    }
}
