//! Dated offers of GPU machines.
//!
//! A [`PriceBook`] is read from snapshots in `pricing/<provider>.toml`, shipped ones first, then the user's own. Prices
//! are for the whole offer, in US dollars per hour.

mod evaluate;
pub mod import;
mod intensity;
mod offer;
mod ownership;
pub mod region;
mod snapshot;
pub mod spot;
mod terms;
mod tier;
mod trust;

pub use intensity::{Intensities, Intensity};
pub use offer::{OWN_PLACE, Offer, OfferId, ShareOf, Unusable};
pub use ownership::Ownership;
pub use snapshot::{Recalled, Row, Scope, Snapshot, SnapshotError};
pub(crate) use terms::begun;
pub use terms::{Billing, Terms};
pub use tier::Tier;
pub use trust::{Market, PriceIssue, Trust};

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::Date;

/// All known offers, including the user's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PriceBook {
    offers: Vec<Arc<Offer>>,
    terms: BTreeMap<String, Terms>,
    intensities: Intensities,
}

impl PriceBook {
    /// Builds a book of these offers. A later offer replaces an earlier one with the same id, so the user's files
    /// override the shipped ones.
    pub fn new(offers: impl IntoIterator<Item = impl Into<Arc<Offer>>>) -> Self {
        let mut book: Vec<Arc<Offer>> = Vec::new();
        let mut places = std::collections::HashMap::new();
        for offer in offers {
            let offer = offer.into();
            match places.entry(offer.id.clone()) {
                std::collections::hash_map::Entry::Occupied(place) => book[*place.get()] = offer,
                std::collections::hash_map::Entry::Vacant(place) => {
                    place.insert(book.len());
                    book.push(offer);
                }
            }
        }
        evaluate::evaluate(&mut book, None);
        Self { offers: book, ..Self::default() }
    }

    /// Adds offers, which replace those with the same id. Call [`on`](Self::on) again afterwards to evaluate the
    /// prices.
    #[must_use]
    pub fn with_offers(self, offers: impl IntoIterator<Item = impl Into<Arc<Offer>>>) -> Self {
        let Self { offers: known, terms, intensities } = self;
        Self { terms, intensities, ..Self::new(known.into_iter().chain(offers.into_iter().map(Into::into))) }
    }

    /// Adds terms of a provider, which apply to all of its offers.
    #[must_use]
    pub fn with_terms(mut self, provider: &str, terms: Terms) -> Self {
        let known = self.terms.entry(provider.to_owned()).or_default();
        *known = terms.or(*known);
        self
    }

    /// Sets the carbon intensities of places.
    #[must_use]
    pub fn with_intensities(self, intensities: Intensities) -> Self {
        Self { intensities, ..self }
    }

    /// Carbon intensity at an offer: from the price file of its provider, or otherwise by its place; `None` if unknown.
    pub(crate) fn intensity(&self, offer: &Offer) -> Option<Intensity> {
        let stated = self.terms_of(&offer.provider).kg_co2_per_kwh;
        let stated = stated.map(|kg_per_kwh| Intensity { kg_per_kwh, average: None });
        stated.or_else(|| self.intensities.of(&offer.provider, &offer.region))
    }

    /// Terms of an offer besides its price. A contract is billed by its terms, a machine of the user's own by the time
    /// used.
    pub(crate) fn terms(&self, offer: &Offer) -> Terms {
        let of_provider = self.terms_of(&offer.provider);
        let billing = match (offer.term_hours, offer.held) {
            (Some(hours), _) => Billing::Term(hours),
            (None, Some(_)) => Billing::Exact,
            (None, None) => of_provider.billing,
        };
        Terms { billing, ..of_provider }
    }

    /// Evaluates the prices on the day of planning.
    #[must_use]
    pub fn on(mut self, day: Date) -> Self {
        evaluate::evaluate(&mut self.offers, Some(day));
        self
    }

    /// Terms of a provider, ignoring case.
    pub fn terms_of(&self, provider: &str) -> Terms {
        let known = self.terms.iter().find(|(name, _)| name.eq_ignore_ascii_case(provider));
        known.map(|(_, terms)| *terms).unwrap_or_default()
    }

    /// Whether any offer's provider has a known storage price.
    pub(crate) fn knows_storage(&self) -> bool {
        let priced = |offer: &Arc<Offer>| self.terms_of(&offer.provider).storage_usd_per_gb_month.is_some();
        self.terms.values().any(|terms| terms.storage_usd_per_gb_month.is_some()) && self.offers.iter().any(priced)
    }

    /// Offers in the order of the snapshots.
    pub fn offers(&self) -> &[Arc<Offer>] {
        &self.offers
    }

    /// The offer with this id.
    pub fn get(&self, id: &OfferId) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.id == *id).map(AsRef::as_ref)
    }
}

/// The prices of this repository.
#[cfg(test)]
mod shipped {
    use super::{Intensities, Snapshot};

    fn text(file: std::path::PathBuf) -> String {
        std::fs::read_to_string(file).unwrap()
    }

    fn folder() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pricing")
    }

    /// All price files.
    pub(super) fn prices() -> Vec<Snapshot> {
        let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
        files.map(|path| Snapshot::parse(&text(path)).unwrap()).collect()
    }

    /// The emissions of a kWh.
    pub(super) fn intensities() -> Intensities {
        Intensities::parse(&text(folder().join("grid/intensity.toml"))).unwrap()
    }
}
