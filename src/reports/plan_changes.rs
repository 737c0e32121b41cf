//! Changes of a plan since its file was written, priced again, and offers that disappeared.

use std::io::{self, Write};

use super::format;
use super::plan_toml::{self, FilePart, PlanFile};
use super::table::{Cell, Column, Table};
use super::words::Words;
use habitat_base::text;
use habitat_base::units::{Hours, Micros, Usd, UsdPerHour};
use habitat_planning::plan::{Part, Plan};
use habitat_planning::pricing::PriceBook;

/// Relative changes below the rounding of the file are ignored.
const ROUNDED: f64 = 1e-3;

/// Writes the changes from the plan of a file to the plan of today.
///
/// # Errors
/// Write errors of `out`.
pub fn write(before: &PlanFile, now: &Plan, prices: &PriceBook, out: &mut dyn Write) -> io::Result<()> {
    let made = before.plan.created.strftime("%Y-%m-%d");
    let table = table(before, now);
    let gone = gone(before, prices);
    if gone.is_empty() && table.rows.iter().all(|row| row.last().is_some_and(|cell| cell.text == SAME)) {
        return writeln!(out, "Nothing changed since the plan of {made}.");
    }
    writeln!(out, "Since the plan of {made}:")?;
    table.write_text(out)?;
    for part in &before.parts {
        write_fate(part, now, prices, out)?;
    }
    match &gone[..] {
        [] => Ok(()),
        offers => writeln!(out, "no longer offered: {}", offers.join(", ")),
    }
}

const SAME: &str = "same";

fn table(before: &PlanFile, now: &Plan) -> Table {
    let mut table = Table::new(&[
        Column::text("item", "item"),
        Column::text("then", "then"),
        Column::text("now", "now"),
        Column::text("change", "change"),
    ]);
    let totals = (before.totals, now.total);
    let dollars = |value| format::usd(Usd::known(value));
    let hours = |value| format::hours(Hours::known(value));
    let then = totals.0.map(|totals| (totals.cost_usd[1].get(), totals.hours[1].get()));
    let today = totals.1.map(|total| (total.cost.mid.get(), total.hours.mid.get()));
    number(&mut table, "cost", then.map(|t| t.0), today.map(|t| t.0), dollars);
    number(&mut table, "hours", then.map(|t| t.1), today.map(|t| t.1), hours);
    for index in 0..before.parts.len().max(now.parts.len()) {
        rows_of_part(&mut table, index + 1, before.parts.get(index), now.parts.get(index));
    }
    table
}

fn rows_of_part(table: &mut Table, number_of: usize, then: Option<&FilePart>, now: Option<&Part>) {
    let name = |what: &str| format!("part {number_of}, {what}");
    let offers = (then.map(|part| part.offer.as_str()), now.map(|part| part.offer.id.as_str()));
    let change = if offers.0 == offers.1 { SAME } else { "another offer" };
    let cell = |offer: Option<&str>| Cell::maybe(offer, |offer| Cell::text(text::clean(offer, 80)));
    table.push(vec![Cell::text(name("offer")), cell(offers.0), cell(offers.1), Cell::text(change)]);
    let step = |time| format::time(Micros::known(time));
    number(table, &name("step"), then.map(|p| p.step_time_us[1]), now.map(|p| p.step_time_us.mid), step);
    let price = |price| format::price(UsdPerHour::known(price));
    let then = then.map(|part| part.price_usd_per_hour.get());
    number(table, &name("price"), then, now.map(|part| plan_toml::price(part.price()).get()), price);
}

fn number(table: &mut Table, what: &str, then: Option<f64>, now: Option<f64>, show: impl Fn(f64) -> String) {
    let change = match (then, now) {
        (Some(then), Some(now)) if (now - then).abs() <= then.abs() * ROUNDED => SAME.to_owned(),
        (Some(then), Some(now)) if then > 0.0 => format!("{:+.1} %", (now / then - 1.0) * 100.0),
        (None, None) => SAME.to_owned(),
        (Some(_), None) => "no plan".to_owned(),
        _ => "new".to_owned(),
    };
    let cell = |value: Option<f64>| Cell::maybe(value, |value| Cell::text(show(value)));
    table.push(vec![Cell::text(what), cell(then), cell(now), Cell::text(change)]);
}

/// Writes the new price or the reason for an offer that the plan no longer uses.
fn write_fate(part: &FilePart, now: &Plan, prices: &PriceBook, out: &mut dyn Write) -> io::Result<()> {
    let name = &part.offer;
    if now.parts.iter().any(|part| part.offer.id == *name) {
        return Ok(());
    }
    let Some(offer) = prices.get(name) else { return Ok(()) };
    let then = part.price_usd_per_hour;
    if plan_toml::price(offer.price) != then {
        let dated = offer.as_of.map_or_else(String::new, |date| format!(" ({date})"));
        writeln!(out, "{name}: {} then, {} now{dated}", format::price(then), format::price(offer.price))?;
    }
    let instead = now.alternatives.iter().find(|part| part.offer.id == *name);
    let rejected = now.rejected.iter().find(|rejected| rejected.offer == *name);
    match (instead, rejected) {
        (Some(part), _) => writeln!(
            out,
            "{name}: now {} in {}",
            format::usd_with_range(&part.cost),
            format::hours_with_range(&part.hours)
        ),
        (None, Some(rejected)) => writeln!(out, "{name}: {}", rejected.reason.words()),
        (None, None) => Ok(()),
    }
}

/// Offers of the file that are missing from the price book, made safe to show.
fn gone(before: &PlanFile, prices: &PriceBook) -> Vec<String> {
    let parts = before.parts.iter().map(|part| &part.offer);
    let named = parts.chain(before.alternatives.iter().map(|part| &part.offer));
    let gone = named.filter(|name| prices.get(name).is_none());
    gone.map(|name| text::clean(name.as_str(), 120)).collect()
}
