//! Dated offers of GPU machines.
//!
//! A [`PriceBook`] is read from `pricing/<provider>.toml` snapshots (shipped, and overlaid
//! by the user's own). Prices are of the whole offer, in US dollars per hour.

mod held;
pub mod import;
mod offer;
pub mod region;
mod snapshot;
mod trust;

pub use held::Held;
pub use offer::{Offer, OfferId, Tier};
pub use snapshot::{Row, Scope, Snapshot, SnapshotError};
pub use trust::{Doubt, Market, Trust};

use jiff::civil::Date;

/// All offers known, the user's own included.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PriceBook {
    offers: Vec<Offer>,
}

impl PriceBook {
    /// A book of these offers; of two with one id the later wins (the user's overlay comes
    /// after what is shipped).
    pub fn new(offers: impl IntoIterator<Item = Offer>) -> Self {
        let mut book: Vec<Offer> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for offer in offers {
            match places.entry(offer.id.clone()) {
                std::collections::hash_map::Entry::Occupied(place) => book[*place.get()] = offer,
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(book.len());
                    book.push(offer);
                }
            }
        }
        trust::evaluate(&mut book, None);
        Self { offers: book }
    }

    /// The same, its prices evaluated on the day of planning.
    #[must_use]
    pub fn on(mut self, day: Date) -> Self {
        trust::evaluate(&mut self.offers, Some(day));
        self
    }

    /// The offers, in the order of the snapshots.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// The offer of that name.
    pub fn get(&self, id: &OfferId) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.id == *id)
    }
}
