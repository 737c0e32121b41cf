//! Trustworthiness of a price: its age on the day of planning, its kind of market, and reasons to doubt it. Every
//! display of a price also shows it.

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trust {
    /// Days from the date of the price to the day of planning; `None` if the source has no date.
    pub age_days: Option<i32>,
    /// Seller.
    pub market: Market,
    /// Reasons to doubt the price.
    pub doubts: Vec<PriceIssue>,
    /// Whether the user entered it in a price file. Doubts about it are shown, but it is used until it ends.
    pub is_own: bool,
}

impl Trust {
    /// An unevaluated price of this market.
    pub fn new(market: Market) -> Self {
        Self { market, ..Self::default() }
    }

    /// Whether it is a provider's own price without doubts, or one that the user entered and that applies on this day.
    pub fn is_firm(&self) -> bool {
        self.market == Market::Provider && self.counted().next().is_none()
    }

    /// Doubts that count: all, but of a price that the user entered only its end and a date in the future.
    pub fn counted(&self) -> impl Iterator<Item = &PriceIssue> {
        self.doubts
            .iter()
            .filter(|doubt| !self.is_own || matches!(doubt, PriceIssue::Superseded { .. } | PriceIssue::Future { .. }))
    }
}

/// A reason to doubt a price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PriceIssue {
    /// The source has no date.
    NoDate,
    /// The date of the price is in the future.
    Future {
        /// Days from the day of planning to it.
        days: i32,
    },
    /// The price is old.
    Old {
        /// Age in days.
        days: i32,
    },
    /// The price has ended: a newer price list applies.
    Superseded {
        /// First day of the newer list.
        since: Date,
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
