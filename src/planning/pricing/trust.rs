//! Trustworthiness of a price: its age on the day of planning, its kind of market, and reasons to doubt it. Every
//! display of a price also shows it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// Seller of the machine time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Market {
    /// The provider, at a list price.
    #[default]
    Provider,
    /// A third party, through a marketplace or a community tier, at its own price.
    PeerToPeer,
}

impl Market {
    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::PeerToPeer => "peer-to-peer",
        }
    }
}

/// Trustworthiness of a price.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct Trust {
    /// Days from the date of the price to the day of planning; absent if the source has no date.
    #[serde(rename = "price_age_days", skip_serializing_if = "Option::is_none")]
    pub age_days: Option<i32>,
    /// Seller: `provider` or `peer-to-peer`.
    #[schemars(with = "String")]
    pub market: Market,
    /// Reasons to doubt the price; absent if there are none.
    #[serde(rename = "price_doubts", skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub doubts: Vec<Doubt>,
    /// Whether the user entered it in a price file. Doubts about it are shown, but it is used.
    #[serde(skip)]
    pub is_own: bool,
}

impl Trust {
    /// An unevaluated price of this market.
    pub fn new(market: Market) -> Self {
        Self { market, ..Self::default() }
    }

    /// Whether it is a provider's own price without doubts, or one that the user entered.
    pub fn is_firm(&self) -> bool {
        self.market == Market::Provider && (self.is_own || self.doubts.is_empty())
    }

    /// Short words for the doubts; empty without doubts.
    pub fn marks(&self) -> String {
        self.doubts.iter().map(Doubt::mark).collect::<Vec<_>>().join(", ")
    }

    /// Explanations of the doubts; empty without doubts.
    pub fn reasons(&self) -> String {
        self.doubts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// A reason to doubt a price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Doubt {
    /// The source has no date.
    NoDate,
    /// The price is old.
    Old {
        /// Age in days.
        days: i32,
    },
    /// A marketplace host set the price.
    PeerToPeer,
    /// A spot price far below the same machine's on-demand price.
    LowSpot {
        /// Spot price over on-demand price.
        share: f64,
    },
    /// Far from the prices of others for the same GPU and tier.
    FarOff {
        /// Price relative to the median of the others.
        times: f64,
        /// Number of other providers.
        others: usize,
    },
}

impl Doubt {
    /// One or two words for the doubt.
    pub const fn mark(&self) -> &'static str {
        match self {
            Self::NoDate => "no date",
            Self::Old { .. } => "old",
            Self::PeerToPeer => "peer-to-peer",
            Self::LowSpot { .. } => "low spot",
            Self::FarOff { times, .. } if *times < 1.0 => "far below others",
            Self::FarOff { .. } => "far above others",
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDate => f.write_str("its source has no date"),
            Self::Old { days } => write!(f, "{days} days old"),
            Self::PeerToPeer => f.write_str("of a host on a peer-to-peer market"),
            Self::LowSpot { share } => write!(f, "{:.0} % of the same machine's on-demand price", share * 100.0),
            Self::FarOff { times, others } => {
                let shown =
                    if *times < 1.0 { format!("{:.0} % of", times * 100.0) } else { format!("{times:.1} times") };
                write!(f, "{shown} the median price of {others} other providers for this GPU")
            }
        }
    }
}

impl Serialize for Doubt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
