//! Rows of machines that the user already has, and of contracts to buy.

use super::Row;
use crate::pricing::ownership::Ownership;
use crate::pricing::tier::Tier;
use habitat_base::units::{UsdPerHour, most};

/// Maximum power of one machine, in kilowatts.
const MOST_KW: f64 = 1e6;

/// Maximum hours of a contract's term: ten years.
const MOST_TERM: u32 = 87_600;

/// Tier of a row, with its price.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tiered {
    pub(super) tier: Tier,
    pub(super) price: UsdPerHour,
    /// Cost of a machine that the user already has.
    pub(super) held: Option<Ownership>,
    /// Hours per term of a contract to buy.
    pub(super) term_hours: Option<u32>,
}

/// Reads a row with a machine that the user has, or a contract to buy; `None` for a machine rented by the hour.
///
/// # Errors
/// Error with the key that is missing, out of range, or belongs to another kind of offer.
pub(super) fn read(row: &Row) -> Result<Option<Tiered>, String> {
    let power = [("kw", row.kw), ("pue", row.pue), ("usd_per_kwh", row.usd_per_kwh)];
    let wear = ("wear_usd_per_hour", row.wear_usd_per_hour.map(UsdPerHour::get));
    let own = [power[0], power[1], power[2], wear];
    let contract = [
        ("paid_usd_per_hour", row.paid_usd_per_hour.map(UsdPerHour::get)),
        ("usd_per_hour", row.usd_per_hour.map(UsdPerHour::get)),
        ("term_hours", row.term_hours.map(f64::from)),
    ];
    let refused = |keys: &[(&str, Option<f64>)], of: &str| match keys.iter().find(|(_, value)| value.is_some()) {
        Some((key, _)) => Err(format!("{key}: only allowed with tier = \"{of}\"")),
        None => Ok(()),
    };
    let Some(tier) = row.tier else {
        refused(&own, "owned")?;
        refused(&contract, "reserved")?;
        return Ok(None);
    };
    if row.on_demand.is_some() || row.spot.is_some() {
        return Err(format!(
            "tier: {tier:?} excludes on_demand_usd_per_hour and spot_usd_per_hour",
            tier = tier.name()
        ));
    }
    let held = match tier {
        Tier::Owned => {
            refused(&contract, "reserved")?;
            let kw = row.kw.ok_or("kw: missing; set the power of the whole machine under load, in kW")?;
            let usd_per_kwh = row.usd_per_kwh.ok_or("usd_per_kwh: missing; set the price of electricity per kWh")?;
            let pue = row.pue.unwrap_or(1.0);
            for (key, value, least, most) in [
                ("kw", kw, 0.0, MOST_KW),
                ("pue", pue, 1.0, 100.0),
                ("usd_per_kwh", usd_per_kwh, 0.0, most::USD_PER_KWH),
            ] {
                if !(least..=most).contains(&value) || (key == "kw" && value <= 0.0) {
                    let above = if key == "kw" { "above" } else { "from" };
                    return Err(format!("{key}: {value:?}; use a number {above} {least} and at most {most:e}"));
                }
            }
            Ownership::Owned { kw, pue, usd_per_kwh, wear: row.wear_usd_per_hour.unwrap_or(UsdPerHour::ZERO) }
        }
        Tier::Reserved => {
            refused(&own, "owned")?;
            match (row.paid_usd_per_hour, row.usd_per_hour, row.term_hours) {
                (Some(paid), None, None) => Ownership::Contract { paid },
                (Some(_), ..) => {
                    return Err(
                        "paid_usd_per_hour is for a contract that is already paid; usd_per_hour and term_hours are for a contract to buy"
                            .to_owned(),
                    );
                }
                (None, Some(price), Some(hours)) => return to_buy(price, hours).map(Some),
                (None, Some(_), None) => {
                    return Err("term_hours: missing; set the hours of the contract".to_owned());
                }
                (None, None, Some(_)) => {
                    return Err("usd_per_hour: missing; set the price per hour of the term".to_owned());
                }
                (None, None, None) => {
                    return Err(
                        "paid_usd_per_hour: missing; set the amount paid per hour (for a contract to buy: usd_per_hour and term_hours)"
                            .to_owned(),
                    );
                }
            }
        }
        Tier::OnDemand | Tier::Spot => {
            let key = if tier == Tier::Spot { "spot_usd_per_hour" } else { "on_demand_usd_per_hour" };
            return Err(format!(
                "tier: {:?} is not a value of this key; set {key} instead (tier is for owned and reserved)",
                tier.name()
            ));
        }
    };
    Ok(Some(Tiered { tier, price: held.price(), held: Some(held), term_hours: None }))
}

/// Reads a contract to buy, with this price per hour of its term.
fn to_buy(price: UsdPerHour, hours: u32) -> Result<Tiered, String> {
    if price.get() <= 0.0 {
        return Err("usd_per_hour: 0 is not a valid price; for a contract that is already paid, set paid_usd_per_hour"
            .to_owned());
    }
    if !(1..=MOST_TERM).contains(&hours) {
        return Err(format!("term_hours: {hours}; use whole hours, 1 to {MOST_TERM} (ten years)"));
    }
    Ok(Tiered { tier: Tier::Reserved, price, held: None, term_hours: Some(hours) })
}
