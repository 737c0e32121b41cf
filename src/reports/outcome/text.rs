//! Comparison of a plan with what happened, as text.

use std::io::{self, Write};

use super::{Compared, Outcome, Run};
use crate::format;
use crate::table::{Cell, Column, Table};
use habitat_base::units::{Hours, Micros, Usd};

/// Writes the comparison.
///
/// # Errors
/// Write errors of `out`.
pub fn write(outcome: &Outcome, run: &Run, out: &mut dyn Write) -> io::Result<()> {
    compared(outcome).write_text(out)?;
    if !outcome.shares.is_empty() {
        writeln!(out, "\nCauses of the difference:")?;
        shares(outcome).write_text(out)?;
    }
    if let Some(losses) = run.losses {
        let times = if losses == 1 { "once".to_owned() } else { format!("{losses} times") };
        writeln!(out, "A machine was lost {times}.")?;
    }
    for note in &outcome.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(())
}

fn compared(outcome: &Outcome) -> Table {
    let mut table = Table::new(&[
        Column::text("item", "item"),
        Column::text("planned", "planned"),
        Column::text("actual", "happened"),
        Column::text("difference", "difference"),
    ]);
    let mut row = |item: &str, compared: Option<Compared>, show: &dyn Fn(f64) -> String| {
        let Some(Compared { planned: [low, mid, high], happened, within }) = compared else { return };
        let range = format!("{} ({})", show(mid), format::low_high(show(low), show(high)));
        let place = if within { "within the range" } else { "outside the range" };
        let by =
            if mid > 0.0 { format!("{:+.1} %, {place}", (happened / mid - 1.0) * 100.0) } else { place.to_owned() };
        table.push([item.to_owned(), range, show(happened), by].map(Cell::text).to_vec());
    };
    row("step", outcome.step_time_us, &|value| format::time(Micros::known(value)));
    row("hours", outcome.hours, &|value| format::hours(Hours::known(value)));
    row("cost", outcome.cost_usd, &|value| format::usd(Usd::known(value)));
    table
}

fn shares(outcome: &Outcome) -> Table {
    let mut table = Table::new(&[
        Column::text("cause", "cause"),
        Column::number("hours", "hours"),
        Column::number("cost", "cost_usd"),
    ]);
    let total = |pick: fn(&super::Share) -> Option<f64>| outcome.shares.iter().filter_map(pick).reduce(|a, b| a + b);
    let together = (total(|share| share.hours), total(|share| share.cost_usd));
    let rows = outcome.shares.iter().map(|share| (share.cause, share.hours, share.cost_usd));
    for (cause, hours, cost) in rows.chain([("total", together.0, together.1)]) {
        let hours = Cell::maybe(hours, |hours| Cell::new(signed(hours, &|size| format!("{size:.2} h")), hours));
        let cost = Cell::maybe(cost, |cost| Cell::new(signed(cost, &|size| format::usd(Usd::known(size))), cost));
        table.push(vec![Cell::text(cause), hours, cost]);
    }
    table
}

fn signed(value: f64, show: &dyn Fn(f64) -> String) -> String {
    format!("{}{}", if value < 0.0 { "-" } else { "+" }, show(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_their_sign_in_front() {
        let dollars = |value| signed(value, &|size| format::usd(Usd::known(size)));
        assert_eq!((dollars(1.5), dollars(-250.4), dollars(0.0)), ("+$1.50".into(), "-$250".into(), "+$0.00".into()));
    }
}
