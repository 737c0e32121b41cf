//! Words for prices: their doubts, what they are made of, and losses of spot machines.

use std::collections::BTreeSet;

use super::Words;
use habitat_planning::pricing::spot::{self, SpotSource, Watched};
use habitat_planning::pricing::{Intensity, Offer, Ownership, PriceIssue, Unusable};

/// Remedy for a price that has ended.
const RENEW: &str = "run `habitat-tui prices update`, or enter its price in a price file";

/// One or two words for a doubt.
pub const fn mark(doubt: &PriceIssue) -> &'static str {
    match doubt {
        PriceIssue::NoDate => "no date",
        PriceIssue::Future { .. } => "future date",
        PriceIssue::Old { .. } => "old",
        PriceIssue::Superseded { .. } => "superseded",
        PriceIssue::PeerToPeer => "peer-to-peer",
        PriceIssue::LowSpot { .. } => "low spot",
        PriceIssue::FarOff { times, .. } if *times < 1.0 => "far below others",
        PriceIssue::FarOff { .. } => "far above others",
    }
}

/// A region as it is shown: hosts of marketplaces that do not name their town leave its place in the
/// name empty (`, US, NA`). A list with one price for all hosts says which one.
pub fn region(region: &str) -> &str {
    match region {
        "all (median)" => "(median of its hosts)",
        "all (average)" => "(average of its hosts)",
        named => named.trim_start_matches([',', ' ']),
    }
}

/// One or two words for each doubt; empty without doubts.
pub fn marks(doubts: &[PriceIssue]) -> String {
    doubts.iter().map(mark).collect::<Vec<_>>().join(", ")
}

/// Explanations of the doubts; empty without doubts.
pub fn doubts(doubts: &[PriceIssue]) -> String {
    super::joined(doubts, "; ")
}

impl Words for PriceIssue {
    fn words(&self) -> String {
        match self {
            Self::NoDate => "its source has no date".to_owned(),
            Self::Future { days } => format!("its date is {days} days in the future: correct as_of"),
            Self::Old { days } => format!("{days} days old"),
            Self::Superseded { since } => format!("a newer price list applies since {since}: {RENEW}"),
            Self::PeerToPeer => "of a host on a peer-to-peer market".to_owned(),
            Self::LowSpot { share } => format!("{:.0} % of the same machine's on-demand price", share * 100.0),
            Self::FarOff { times, others } => {
                let shown =
                    if *times < 1.0 { format!("{:.0} % of", times * 100.0) } else { format!("{times:.1} times") };
                format!("{shown} the median price of {others} other providers for this GPU")
            }
        }
    }
}

impl Words for Unusable {
    fn words(&self) -> String {
        match self {
            Self::GpusOnly => "the price is for the GPUs only, without a host".to_owned(),
            Self::HostOnly => "the price is for a host without GPUs".to_owned(),
            Self::Suspect { why } => format!("suspect price: {why}"),
            Self::NoDiscount => "the spot price is not below the on-demand price: no discount is published".to_owned(),
            Self::PeerToPeerExcluded => "from a peer-to-peer host (--no-marketplace)".to_owned(),
        }
    }
}

impl Words for Ownership {
    fn words(&self) -> String {
        match self {
            Self::Owned { kw, pue, usd_per_kwh, wear } => {
                let wear = Some(wear.get()).filter(|wear| *wear > 0.0);
                let wear = wear.map_or_else(String::new, |wear| format!(" + ${wear}/h of wear"));
                format!("{kw} kW × PUE {pue} × ${usd_per_kwh}/kWh{wear}")
            }
            Self::Contract { paid } => format!("${}/h already paid, not in the cost", paid.get()),
        }
    }
}

/// Breakdown of the price of a machine that is not rented by the hour.
pub fn made_of(offer: &Offer) -> Option<String> {
    let term = |hours| format!("for each of the {hours} h of a term, used or not");
    offer.held.map(|held| held.words()).or(offer.term_hours.map(term))
}

impl Words for Intensity {
    fn words(&self) -> String {
        let Self { kg_per_kwh, average } = self;
        let source = match average {
            Some((place, year)) => format!("{}, {year}", place.to_uppercase()),
            None => "price file".to_owned(),
        };
        format!("{kg_per_kwh} kg CO2e/kWh ({source})")
    }
}

impl Words for SpotSource {
    fn words(&self) -> String {
        let times = self.times;
        let is_same = (times - 1.0).abs() < 1e-9;
        let grown = if is_same { String::new() } else { format!(" (losses × {times:.2} for {} GPUs)", self.gpus) };
        let all = |of: fn(&Watched) -> &str| self.observed.iter().map(|row| of(row)).collect::<BTreeSet<_>>();
        let listed = |all: BTreeSet<&str>| all.into_iter().collect::<Vec<_>>().join(" and ");
        let why = self.observed.first().map_or_else(
            || format!("as in four zones of aws, V100 with 1 GPU, 2023{grown}"),
            |first| {
                let place = if all(|row| row.zone).len() > 1 { first.region() } else { first.zone };
                let kinds = listed(all(|row| row.gpu));
                let years = listed(all(|row| row.since.split('-').next().unwrap_or_default()));
                let gpus = if first.gpus == 1 { "1 GPU".to_owned() } else { format!("{} GPUs", first.gpus) };
                format!("measured in {} {place}, {kinds} with {gpus}, {years}{grown}", first.provider)
            },
        );
        match (self.sets_losses, self.sets_wait) {
            (false, false) => why,
            (true, false) => format!("losses set by the user, wait {why}"),
            (false, true) => format!("losses {why}, wait set by the user"),
            (true, true) => "set by the user".to_owned(),
        }
    }
}

/// Words for the regions in which spot machines were observed.
pub(super) fn spot_regions() -> String {
    spot::regions().into_iter().map(|(provider, region)| format!("{provider} {region}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_base::units::UsdPerHour;
    use habitat_planning::pricing::spot::SpotMachine;

    #[test]
    fn doubts_name_their_figures() {
        for (doubt, mark_of, words) in [
            (PriceIssue::Old { days: 386 }, "old", "386 days old"),
            (
                PriceIssue::Superseded { since: jiff::civil::date(2026, 11, 16) },
                "superseded",
                "a newer price list applies since 2026-11-16: run `habitat-tui prices update`, or enter its price in a \
                 price file",
            ),
            (PriceIssue::LowSpot { share: 0.1 }, "low spot", "10 % of the same machine's on-demand price"),
            (
                PriceIssue::FarOff { times: 0.1, others: 3 },
                "far below others",
                "10 % of the median price of 3 other providers for this GPU",
            ),
            (
                PriceIssue::FarOff { times: 4.0, others: 3 },
                "far above others",
                "4.0 times the median price of 3 other providers for this GPU",
            ),
        ] {
            assert_eq!((mark(&doubt), doubt.words().as_str()), (mark_of, words));
        }
        assert_eq!(
            [", US, NA", "us-east-1", "all (median)"].map(region),
            ["US, NA", "us-east-1", "(median of its hosts)"]
        );
        assert_eq!(marks(&[PriceIssue::NoDate, PriceIssue::PeerToPeer]), "no date, peer-to-peer");
        assert_eq!(doubts(&[PriceIssue::Future { days: 365 }]), "its date is 365 days in the future: correct as_of");
        assert_eq!(doubts(&[PriceIssue::NoDate, PriceIssue::Old { days: 91 }]), "its source has no date; 91 days old");
    }

    #[test]
    fn an_own_machine_shows_what_its_hour_is_made_of() {
        let held = |wear| Ownership::Owned { kw: 0.9, pue: 1.2, usd_per_kwh: 0.3, wear: UsdPerHour::known(wear) };
        assert_eq!(held(0.05).words(), "0.9 kW × PUE 1.2 × $0.3/kWh + $0.05/h of wear");
        assert_eq!(held(0.0).words(), "0.9 kW × PUE 1.2 × $0.3/kWh");
    }

    #[test]
    fn losses_name_where_they_were_observed() {
        let words = |region, gpus| SpotMachine::new("aws", region, gpus).source.words();
        assert_eq!(words("us-east-2", 1), "measured in aws us-east-2, V100 with 1 GPU, 2023");
        assert_eq!(words("us-west-2", 8), "measured in aws us-west-2, K80 and V100 with 8 GPUs, 2022");
        assert_eq!(words("us-east-2", 8), format!("{} (losses × 2.71 for 8 GPUs)", words("us-east-2", 1)));
        assert_eq!(words("eu-west-1", 1), "as in four zones of aws, V100 with 1 GPU, 2023");
        assert_eq!(spot_regions(), "aws us-east-1, aws us-east-2, aws us-west-2");
    }
}
