//! Time and cost of a plan by use, as a table for the screen and for text.

use super::format;
use super::parts::gpu_words;
use super::table::{Cell, Column, Table};
use super::timeline::{self, Lane};
use crate::theme::Role;
use habitat_base::text::clean;
use habitat_base::units::{Hours, Range, Usd};
use habitat_planning::plan::{Part, Plan, Total, Use};

/// Bars of the parts, one after another at their expected hours.
pub(crate) fn lanes(plan: &Plan) -> Vec<Lane> {
    let Some(total) = &plan.total else { return Vec::new() };
    let axis = timeline::axis([total.hours.high], plan.goal.deadline);
    let mut start = Range::<Hours>::default();
    let bar = |part: &Part| {
        let from = start.mid.get();
        start = start + part.hours;
        // If another machine takes over by the deadline, no part runs longer.
        let latest = start.high.min(total.hours.high).get();
        Lane {
            range: Some([start.low.get(), latest]),
            deadline: plan.goal.deadline.map(Hours::get),
            ..lane(part, from, axis)
        }
    };
    plan.parts.iter().map(bar).collect()
}

/// Bar of a part that starts at hour `from`.
pub(super) fn lane(part: &Part, from: f64, axis: f64) -> Lane {
    let mut at = from;
    let mut until = |uses: &[Use]| {
        at += uses.iter().map(|what| part.hours_by.of(*what).mid.get()).sum::<f64>();
        at
    };
    let ends = [
        until(&[Use::Setup, Use::Data]),
        until(&[Use::Training, Use::Checkpoints]),
        until(&[Use::Repeated]),
        until(&[Use::Waiting]),
    ];
    Lane { from, ends, range: None, deadline: None, axis }
}

/// Each part as a bar over time with its uses below, then the total of all parts; empty without a plan. The bars of the
/// uses explain the marks in the bar of the part.
pub fn table(plan: &Plan) -> Table {
    let lanes = lanes(plan);
    let heading = timeline::heading(lanes.first().map_or(0.0, |lane| lane.axis));
    let mut table = Table::new(&[
        Column::words("", 14, 0),
        Column { heading: heading.into(), ..Column::graphic("", 16, 4) },
        Column::figures("time", 0),
        Column::figures("low–high", 5),
        Column::figures("cost", 0),
        Column::figures("low–high, $", 3),
        Column::figures("of cost", 6),
    ]);
    table.columns[0].heading = "what".into();
    let Some(total) = &plan.total else { return table };
    for (part, lane) in plan.parts.iter().zip(&lanes) {
        let name = format!("{} {} {}", gpu_words(part), clean(&part.offer.provider, 20), part.offer.tier);
        let share = part.cost.mid / total.cost.mid.max(Usd::known(f64::MIN_POSITIVE));
        table.push(row(Role::Title, name, Some(Cell::lane(*lane)), Some(part.hours), part.cost, share));
        for what in Use::ALL {
            let (hours, cost) = (part.hours_by.of(what), part.cost_by.of(what));
            if (hours, cost) == (Range::default(), Range::default()) {
                continue;
            }
            table.push(used(what, own_bar(part, lane, what), Some(hours), cost, total));
        }
    }
    if plan.parts.len() > 1 {
        table.push(row(Role::Title, "all parts".to_owned(), None, Some(total.hours), total.cost, 1.0));
        for (what, cost) in total.cost_by.iter() {
            table.push(used(what, None, None, in_order(cost), total));
        }
    }
    table
}

/// Least and most cost of a use. Spot costs least if it does all the work and most if it does none, so a use of spot
/// machines, such as checkpoints, may cost more at the low end of the plan than at its high end.
fn in_order(cost: Range<Usd>) -> Range<Usd> {
    let Range { low, mid, high } = cost;
    Range { low: low.min(mid).min(high), mid, high: low.max(mid).max(high) }
}

/// Legend of the bars, with a deadline that is beyond the axis.
pub fn legend(plan: &Plan, ascii: bool) -> String {
    let lanes = lanes(plan);
    let far = plan.goal.deadline.filter(|deadline| lanes.first().is_some_and(|lane| deadline.get() > lane.axis));
    let far = far.map(|deadline| format!("the deadline, {}, is beyond the chart", format::hours(deadline)));
    let signs = Some(timeline::legend(&lanes, ascii, false)).filter(|signs| !signs.is_empty());
    signs.into_iter().chain(far).collect::<Vec<_>>().join(" · ")
}

/// Bar of a use within the bar of its part; `None` if it takes no time.
fn own_bar(part: &Part, lane: &Lane, what: Use) -> Option<Cell> {
    let place = match what {
        Use::Setup | Use::Data => 0,
        Use::Training | Use::Checkpoints => 1,
        Use::Repeated => 2,
        Use::Waiting => 3,
        Use::Unused | Use::Storage => return None,
    };
    let mut own = lane.only(place);
    let taken = part.hours_by.of(what).mid.get();
    if taken == 0.0 {
        return None;
    }
    match what {
        Use::Setup => own.ends.fill(own.from + taken),
        Use::Data => own.from = own.ends[0] - taken,
        Use::Training => own.ends[1..].fill(own.from + taken),
        Use::Checkpoints => {
            own.from = own.ends[1] - taken;
            own.ends[0] = own.from;
        }
        _ => {}
    }
    Some(Cell::lane(own))
}

fn used(what: Use, bar: Option<Cell>, hours: Option<Range<Hours>>, cost: Range<Usd>, total: &Total) -> Vec<Cell> {
    let share = cost.mid / total.cost.mid.max(Usd::known(f64::MIN_POSITIVE));
    let hours = hours.filter(|hours| *hours != Range::default());
    row(Role::Text, format!("  {}", what.words()), bar, hours, cost, share)
}

fn row(
    role: Role,
    name: String,
    bar: Option<Cell>,
    hours: Option<Range<Hours>>,
    cost: Range<Usd>,
    share: f64,
) -> Vec<Cell> {
    let none = || Cell::text("");
    vec![
        Cell::styled(role, name),
        bar.unwrap_or_else(none),
        hours.map_or_else(none, |hours| Cell::styled(role, format::hours(hours.mid))),
        hours
            .filter(|hours| hours.low != hours.high)
            .map_or_else(none, |hours| Cell::styled(Role::Muted, format::hours_range(&hours))),
        Cell::styled(role, format::usd(cost.mid)),
        range_cell(&cost),
        Cell::styled(Role::Muted, format::percent(share)),
    ]
}

/// The ends of a cost without the dollar sign; empty if they are equal.
pub(super) fn range_cell(cost: &Range<Usd>) -> Cell {
    if cost.low == cost.high {
        return Cell::text("");
    }
    Cell::styled(Role::Muted, format::usd_range(cost).replace('$', ""))
}
