//! Offers that the user must accept first.

use super::{goal, gpus_width, gpus_words, lower};
use crate::app::App;
use habitat_base::text::clean;
use habitat_planning::plan::{Accept, Beside, Instead, Setback};
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::theme::Role;
use habitat_reports::{beside, format, words};

/// Offers that the user must accept first: key, cost, and cost if things go wrong.
pub fn beside_table(app: &App) -> Table {
    let columns = vec![
        Column::words("key", 3, 0),
        Column::words("accept", 16, 0),
        Column::figures("cost", 0),
        Column::figures("time", 2),
        Column::words("GPUs", gpus_width(app), 1),
        Column::words("provider", 10, 5),
        Column::words("if", 18, 4),
        Column::figures("then cost", 0),
        Column::figures("then time", 3),
    ];
    let rows = app.plan.value().map(|plan| plan.beside.iter()).into_iter().flatten();
    let rows = rows.map(|one| {
        let then = |words: &dyn Fn(&Instead) -> String| one.then.as_ref().map_or_else(|| "–".to_owned(), words);
        let mark = |exceeds: bool, mark: &'static str| if exceeds { mark } else { "" };
        vec![
            Cell::styled(Role::Key, keys(app, one)),
            Cell::text(clean(&beside::what(one), 60)),
            Cell::styled(Role::Good, format::usd(one.part.cost.mid)),
            Cell::text(format::hours_mid(&one.part.hours)),
            Cell::text(gpus_words(&one.part)),
            Cell::text(clean(&one.part.offer.provider, 24)),
            Cell::styled(Role::Muted, beside::setback_words(one.setback())),
            Cell::text(then(&|then| format!("{}{}", format::usd(then.cost), mark(then.over.is_some(), " over")))),
            Cell::text(then(&|then| {
                format!("{}{}", format::hours_mid(&then.hours), mark(then.late.is_some(), " late"))
            })),
        ]
    });
    lower(app, columns, rows.collect(), "No other offer is clearly better than the plan.")
}

/// Keys that accept everything that an offer needs.
fn keys(app: &App, beside: &Beside) -> String {
    let key = |accept: &Accept| app.setup.keymap.hint(goal::action(*accept));
    beside.accept().iter().map(key).collect::<Vec<_>>().join(" ")
}

/// The same as lines of keys and costs; also a plan that is much faster or cheaper for a small increase of the other. Each
/// with its rank on a small screen: the price of failing comes first.
pub fn beside_words(app: &App) -> Vec<(u8, String)> {
    let Some(plan) = app.plan.value() else { return Vec::new() };
    let fails = |one: &Beside| {
        let then = one.then.as_ref().map_or_else(|| "no firm offer".to_owned(), |then| beside::instead(then, ""));
        format!(" (if it fails: {then})")
    };
    // Most have the same way out, the plan or a firm offer: it is named once. A larger batch has its own.
    let same = plan.beside.iter().find(|one| one.setback() != Setback::SameUpdates).map(fails).unwrap_or_default();
    let one = |one: &Beside| {
        let fails = Some(fails(one)).filter(|fails| *fails != same).unwrap_or_default();
        format!("[{}] {} {}{fails}", keys(app, one), format::usd(one.part.cost.mid), clean(&beside::what(one), 60))
    };
    let all: Vec<String> = plan.beside.iter().map(one).collect();
    // The plan's own risk may have the same way out.
    let is_known = plan.fallback.as_ref().is_some_and(|own| plan.beside.iter().any(|one| one.then == own.then));
    let same = if is_known { "" } else { &same };
    let all = (!all.is_empty()).then(|| format!("{}{same}: {}", beside::heading(plan), all.join(" · ")));
    let accepted: Vec<&str> = plan.goal.limits.accept.iter().map(|one| words::plan::accept(*one)).collect();
    let is_some = !accepted.is_empty() && !Accept::are_all(&plan.goal.limits.accept);
    let accepted = is_some.then(|| format!("accepted: {}", accepted.join(", ")));
    let mut caveats = beside::caveats(plan);
    let fails = plan.fallback.as_ref().and_then(|_| caveats.pop());
    let accepted = accepted.into_iter().chain(caveats);
    let own = beside::own(plan, &app.setup.prices);
    let ranked = [(2, fails.into_iter().collect()), (4, accepted.collect()), (6, own), (2, Vec::from_iter(all))];
    let ranked = ranked.into_iter().chain([(5, beside::concessions(plan))]);
    ranked.flat_map(|(rank, lines): (u8, Vec<String>)| lines.into_iter().map(move |line| (rank, line))).collect()
}
