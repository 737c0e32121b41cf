//! Evaluates prices: their age, and their distance from the prices of others. Prices are evaluated only here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::civil::Date;

use super::offer::Offer;
use super::tier::Tier;
use super::trust::{Market, PriceIssue, Trust};
use habitat_base::regress::quantile::median;
use habitat_base::units::GpuSlug;

/// Clouds with stable list prices: of 97 prices at AWS, Azure and Google read twice, 4 to 173 days apart, one had
/// changed (`pricing/README.md`).
const STEADY: [&str; 4] = ["aws", "azure", "gcp", "oci"];
/// Days after which a list price of these clouds counts as old (a choice).
const OLD_STEADY_DAYS: i32 = 365;
/// Days after which other list prices count as old: in 50 days of autumn 2026 several rose by 10 to 40 %.
const OLD_DAYS: i32 = 90;
/// Days after which a spot price counts as old: in 80 to 170 days, 8 of 12 at AWS and Azure moved by 9 to 80 %.
const OLD_SPOT_DAYS: i32 = 90;
/// Days after which a spot price of Google counts as old: in 54 days one moved by 4 %.
const OLD_GOOGLE_SPOT_DAYS: i32 = 180;
/// Spot prices below this share of the same machine's on-demand price are in doubt. Most are a fifth to a half of it.
const LEAST_SPOT: f64 = 1.0 / 6.0;
/// A price is in doubt if the median of the others is this many times as high, or if it is this many times the highest
/// of the others. Large clouds charge three to four times the price of small ones for the same GPU.
const FAR: f64 = 3.0;
/// Number of other providers below which their prices say little about a usual one: two may differ by three times (a
/// choice).
const MANY: usize = 4;
/// The same with fewer others, but at least two (a choice).
const FAR_FROM_FEW: f64 = 10.0;

/// Evaluates each price relative to the others on a day.
pub(super) fn evaluate(offers: &mut [Arc<Offer>], day: Option<Date>) {
    let others = Others::of(offers);
    let on_demand: HashMap<(String, String, String), f64> =
        offers.iter().filter(|offer| offer.tier == Tier::OnDemand).map(|o| (machine(o), o.price.get())).collect();
    for offer in offers.iter_mut().map(Arc::make_mut) {
        let days = offer.as_of.zip(day).map(|(date, day)| (day - date).get_days());
        // A day earlier, it may be that day already elsewhere.
        let future = days.filter(|days| *days < -1).map(|days| PriceIssue::Future { days: -days });
        let age_days = days.filter(|_| future.is_none()).map(|days| days.max(0));
        let oldest = keeps_days(&offer.provider, offer.tier);
        let list = on_demand.get(&machine(offer)).filter(|list| offer.tier == Tier::Spot && **list > 0.0);
        let since =
            offer.until.filter(|until| day.is_some_and(|day| day > *until)).and_then(|until| until.tomorrow().ok());
        let superseded = since.map(|since| PriceIssue::Superseded { since });
        if offer.held.is_some() || offer.tier == Tier::Owned {
            // An own machine or a contract cannot be compared with the prices of others.
            offer.trust = Trust { age_days, doubts: superseded.into_iter().chain(future).collect(), ..offer.trust };
            continue;
        }
        let doubts = [
            offer.as_of.is_none().then_some(PriceIssue::NoDate),
            future,
            age_days.filter(|days| *days > oldest).map(|days| PriceIssue::Old { days }),
            superseded,
            (offer.trust.market == Market::PeerToPeer).then_some(PriceIssue::PeerToPeer),
            list.map(|list| offer.price.get() / list)
                .filter(|share| *share < LEAST_SPOT)
                .map(|share| PriceIssue::LowSpot { share }),
            others.far(offer),
        ];
        offer.trust = Trust { age_days, doubts: doubts.into_iter().flatten().collect(), ..offer.trust };
    }
}

/// Days after which a price counts as old.
fn keeps_days(provider: &str, tier: Tier) -> i32 {
    match (provider, tier) {
        ("gcp", Tier::Spot) => OLD_GOOGLE_SPOT_DAYS,
        (_, Tier::Spot) => OLD_SPOT_DAYS,
        (provider, _) if STEADY.contains(&provider) => OLD_STEADY_DAYS,
        _ => OLD_DAYS,
    }
}

fn machine(offer: &Offer) -> (String, String, String) {
    (offer.provider.clone(), offer.region.clone(), offer.instance_type.clone())
}

/// Median price per GPU of each provider, by GPU and tier.
struct Others(HashMap<(GpuSlug, Tier), BTreeMap<String, f64>>);

impl Others {
    fn of(offers: &[Arc<Offer>]) -> Self {
        let mut asked: HashMap<(GpuSlug, Tier), BTreeMap<String, Vec<f64>>> = HashMap::new();
        for offer in offers.iter().filter(|offer| offer.unusable.is_none() && offer.held.is_none()) {
            if let Some((gpu, price)) = offer.gpu.clone().zip(per_gpu(offer)) {
                let of_gpu = asked.entry((gpu, offer.tier)).or_default();
                of_gpu.entry(offer.provider.clone()).or_default().push(price);
            }
        }
        let middles = |by: BTreeMap<String, Vec<f64>>| {
            by.into_iter().filter_map(|(who, mut prices)| Some((who, median(&mut prices)?)))
        };
        Self(asked.into_iter().map(|(key, by)| (key, middles(by).collect())).collect())
    }

    fn far(&self, offer: &Offer) -> Option<PriceIssue> {
        let (gpu, price) = offer.gpu.clone().zip(per_gpu(offer))?;
        let mut others: Vec<f64> = self
            .0
            .get(&(gpu, offer.tier))?
            .iter()
            .filter(|(provider, _)| **provider != offer.provider)
            .map(|(_, price)| *price)
            .collect();
        let count = others.len();
        let dearest = others.iter().copied().fold(0.0, f64::max);
        let times = price / median(&mut others)?;
        let far = if count >= MANY { FAR } else { FAR_FROM_FEW };
        let is_far = count > 1 && (times < 1.0 / far || price > dearest * far);
        is_far.then_some(PriceIssue::FarOff { times, others: count })
    }
}

fn per_gpu(offer: &Offer) -> Option<f64> {
    (offer.gpu_count > 0 && offer.price.get() > 0.0).then(|| offer.price.get() / f64::from(offer.gpu_count))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::pricing::{PriceBook, Snapshot};

    /// A provider's machine with one V100, with its prices and further keys.
    fn offers(provider: &str, on_demand: f64, rest: &str) -> Vec<Offer> {
        let text = format!(
            "schema = 1\nprovider = \"{provider}\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"m\"\ngpu = \"v100\"\n\
             gpu_count = 1\non_demand_usd_per_hour = {on_demand}\nscope = \"instance_total\"\nsource = \"s\"\n{rest}"
        );
        Snapshot::parse(&text).unwrap().offers().collect()
    }

    fn trust(offers: impl IntoIterator<Item = Offer>, place: usize) -> Trust {
        PriceBook::new(offers).on(date(2026, 11, 22)).offers()[place].trust.clone()
    }

    #[test]
    fn the_age_is_that_of_the_day_of_planning() {
        let dated =
            |day: &str, place| trust(offers("aws", 3.0, &format!("spot_usd_per_hour = 1.0\nas_of = \"{day}\"")), place);
        assert_eq!((dated("2026-11-01", 0).age_days, dated("2026-11-01", 0).doubts.len()), (Some(21), 0));
        // List prices of large clouds stay valid longer than spot prices.
        assert_eq!(dated("2026-07-20", 0).doubts, []);
        assert_eq!(dated("2026-07-20", 1).doubts, [PriceIssue::Old { days: 125 }]);
        assert_eq!(dated("2025-11-01", 0).doubts, [PriceIssue::Old { days: 386 }]);
        let none = trust(offers("aws", 3.0, ""), 0);
        assert_eq!((none.age_days, none.doubts), (None, vec![PriceIssue::NoDate]));
        // One day ahead it may be that day elsewhere.
        assert_eq!((dated("2026-11-23", 0).age_days, dated("2026-11-23", 0).doubts), (Some(0), vec![]));
        let own = dated("2027-11-22", 0);
        assert_eq!((own.age_days, own.doubts), (None, vec![PriceIssue::Future { days: 365 }]));
        assert!(!Trust { is_own: true, ..dated("2027-11-22", 0) }.is_firm());
    }

    #[test]
    fn an_age_is_a_doubt_where_prices_of_that_kind_have_moved_by_then() {
        let doubts = |provider: &str, day: &str| {
            let rest = format!("spot_usd_per_hour = 1.0\nas_of = \"{day}\"");
            [0, 1].map(|place| trust(offers(provider, 3.0, &rest), place).doubts.len())
        };
        // Ages of 49, 116 and 157 days; number of doubts for on-demand and spot.
        for (provider, ages) in [
            ("aws", [[0, 0], [0, 1], [0, 1]]),
            ("gcp", [[0, 0], [0, 0], [0, 0]]),
            ("oci", [[0, 0], [0, 1], [0, 1]]),
            ("lambda", [[0, 0], [1, 1], [1, 1]]),
        ] {
            assert_eq!(["2026-10-04", "2026-07-29", "2026-06-18"].map(|day| doubts(provider, day)), ages, "{provider}");
        }
    }

    #[test]
    fn a_price_is_in_doubt_after_its_end() {
        let on = |until: &str, place| {
            trust(offers("aws", 3.0, &format!("as_of = \"2026-11-01\"\nuntil = \"{until}\"")), place)
        };
        // Planned with on 22 November: the last day still counts.
        assert_eq!((on("2026-11-22", 0).doubts, on("2026-11-23", 0).is_firm()), (Vec::new(), true));
        let ended = on("2026-11-21", 0);
        assert_eq!(
            (ended.is_firm(), ended.doubts),
            (false, vec![PriceIssue::Superseded { since: date(2026, 11, 22) }])
        );
        // Without a day of planning, all lists still apply.
        let rest = "as_of = \"2026-11-01\"\nuntil = \"2026-11-15\"";
        assert!(PriceBook::new(offers("aws", 3.0, rest)).offers()[0].trust.is_firm());
        // The user is believed about the end of an own price, as about the price.
        let own = |rest: &str| {
            let own = offers("aws", 3.0, rest).into_iter().map(|mut offer| {
                offer.trust.is_own = true;
                offer
            });
            trust(own, 0).is_firm()
        };
        assert_eq!((own(""), own("until = \"2026-11-21\"")), (true, false));
    }

    #[test]
    fn hosts_of_a_peer_to_peer_market_are_marked() {
        let host = trust(offers("vast", 3.0, "market = \"peer-to-peer\"\nas_of = \"2026-11-20\""), 0);
        assert_eq!((host.market, host.doubts), (Market::PeerToPeer, vec![PriceIssue::PeerToPeer]));
    }

    #[test]
    fn a_spot_price_of_a_tenth_of_the_list_price_is_doubted() {
        let spot =
            |price| trust(offers("aws", 3.0, &format!("spot_usd_per_hour = {price}\nas_of = \"2026-11-20\"")), 1);
        assert!(matches!(spot(0.3).doubts[..], [PriceIssue::LowSpot { share }] if (share - 0.1).abs() < 1e-12));
        assert_eq!(spot(0.6).doubts, []);
    }

    #[test]
    fn a_price_far_from_the_others_of_the_same_gpu_is_doubted() {
        let fresh = "as_of = \"2026-11-20\"";
        let among = |own: f64, others: &[(&str, f64)]| {
            let others = others.iter().flat_map(|(who, price)| offers(who, *price, fresh));
            trust(offers("own", own, fresh).into_iter().chain(others), 0)
        };
        let book = |own: f64| among(own, &[("a", 3.0), ("b", 4.0), ("c", 4.0), ("d", 5.0)]);
        assert_eq!(book(0.4).doubts, [PriceIssue::FarOff { times: 0.1, others: 4 }]);
        assert_eq!(book(16.0).doubts, [PriceIssue::FarOff { times: 4.0, others: 4 }]);
        // Two or three others are too few to compare with, unless the price cannot be right.
        let few = |own: f64| among(own, &[("a", 2.95), ("b", 2.95), ("c", 3.06)]).doubts;
        assert_eq!((few(0.79), few(10.0)), (Vec::new(), Vec::new()));
        assert!(matches!(few(0.2)[..], [PriceIssue::FarOff { others: 3, .. }]), "{:?}", few(0.2));
        assert!(matches!(few(40.0)[..], [PriceIssue::FarOff { others: 3, .. }]), "{:?}", few(40.0));
        // A large cloud may charge three times the median, but not three times the highest price.
        assert_eq!((book(1.4).doubts, book(14.9).doubts), (Vec::new(), Vec::new()));
        // With only one other price, either of the two may be far off.
        assert_eq!(trust(offers("own", 0.4, fresh).into_iter().chain(offers("a", 3.0, fresh)), 0).doubts, []);
    }
}
