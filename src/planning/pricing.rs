//! Dated offers of GPU machines.
//!
//! A [`PriceBook`] is read from `pricing/<provider>.toml` snapshots (shipped, and overlaid
//! by the user's own). Prices are of the whole offer, in US dollars per hour.

mod held;
pub mod import;
mod intensity;
mod offer;
pub mod region;
mod snapshot;
pub mod spot;
mod terms;
mod trust;

pub use held::Held;
pub use intensity::{Intensities, Intensity};
pub use offer::{Offer, OfferId, Tier};
pub use snapshot::{Recalled, Row, Scope, Snapshot, SnapshotError};
pub(crate) use terms::begun;
pub use terms::{Billing, Terms};
pub use trust::{Doubt, Market, Trust};

use std::collections::BTreeMap;

use jiff::civil::Date;

/// All offers known, the user's own included.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PriceBook {
    offers: Vec<Offer>,
    terms: BTreeMap<String, Terms>,
    intensities: Intensities,
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
        Self { offers: book, ..Self::default() }
    }

    /// The same with more offers, of which one replaces another of its id. Evaluate the book [`on`](Self::on)
    /// its day again.
    #[must_use]
    pub fn with_offers(self, offers: impl IntoIterator<Item = Offer>) -> Self {
        let Self { offers: known, terms, intensities } = self;
        Self { terms, intensities, ..Self::new(known.into_iter().chain(offers)) }
    }

    /// The same with terms of a provider, which count for all of its offers.
    #[must_use]
    pub fn with_terms(mut self, provider: &str, terms: Terms) -> Self {
        let known = self.terms.entry(provider.to_owned()).or_default();
        *known = terms.or(*known);
        self
    }

    /// The same with what a kWh emits at the places of offers.
    #[must_use]
    pub fn with_intensities(self, intensities: Intensities) -> Self {
        Self { intensities, ..self }
    }

    /// What a kWh emits where an offer is: as the price file of its provider says, else by its
    /// place; `None` where that is not known.
    pub fn intensity(&self, offer: &Offer) -> Option<Intensity> {
        let said = self.terms_of(&offer.provider).kg_co2_per_kwh;
        let said = said.map(|kg_per_kwh| Intensity { kg_per_kwh, average: None });
        said.or_else(|| self.intensities.of(&offer.provider, &offer.region))
    }

    /// How an offer is charged for beside its price: a contract by its terms, a machine of the
    /// user's own by use alone.
    pub fn terms(&self, offer: &Offer) -> Terms {
        let of_provider = self.terms_of(&offer.provider);
        let billing = match (offer.term_hours, offer.held) {
            (Some(hours), _) => Billing::Term(hours),
            (None, Some(_)) => Billing::Exact,
            (None, None) => of_provider.billing,
        };
        Terms { billing, ..of_provider }
    }

    /// The same, its prices evaluated on the day of planning.
    #[must_use]
    pub fn on(mut self, day: Date) -> Self {
        trust::evaluate(&mut self.offers, Some(day));
        self
    }

    /// The terms of a provider, in small or capital letters.
    pub fn terms_of(&self, provider: &str) -> Terms {
        let known = self.terms.iter().find(|(name, _)| name.eq_ignore_ascii_case(provider));
        known.map(|(_, terms)| *terms).unwrap_or_default()
    }

    /// Whether any offer is of a provider whose price of keeping data is known.
    pub fn knows_storage(&self) -> bool {
        let priced = |offer: &Offer| self.terms_of(&offer.provider).storage_usd_per_gb_month.is_some();
        self.terms.values().any(|terms| terms.storage_usd_per_gb_month.is_some()) && self.offers.iter().any(priced)
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
