//! Details of one offer: the dialog that opens from a row of the lower pane.

use super::{Lower, Pane, beside_words, candidates, confidence, machine_words, method_of, rejected, warnings};
use crate::app::App;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_planning::plan::{Confidence, Part, Plan, Total};
use habitat_planning::pricing::{Offer, OfferId, Tier};
use habitat_reports::words::{self, Words};
use habitat_reports::{format, parts};

/// The offer of the selected row, or of the plan if the sliders have the focus; `None` without one.
pub fn selected(app: &App) -> Option<&OfferId> {
    let state = &app.planner;
    let row = state.list.selected;
    match state.lower {
        _ if state.pane != Pane::Lower => app.plan.value()?.parts.first().map(|part| &part.offer.id),
        Lower::Alternatives => candidates(app).get(row).map(|(part, _)| &part.offer.id),
        Lower::Beside => app.plan.value()?.beside.get(row).map(|beside| &beside.part.offer.id),
        Lower::Rejected => rejected(app).get(row).map(|rejection| &rejection.offer),
        Lower::Timeline | Lower::Chart | Lower::Layouts | Lower::Notes => None,
    }
}

/// Details as label and text per line: the machine, its price and doubts about it, then the job on it compared with the
/// plan, or why it was rejected.
pub fn lines(app: &App, id: &OfferId) -> Vec<(String, String)> {
    let offer = app.setup.prices.get(id);
    let mut lines = offer.map_or_else(Vec::new, machine);
    let remark = || offer.and_then(|offer| offer.note.as_ref()).map(|note| line("remark", clean(note, 300)));
    let Some(plan) = app.plan.value() else {
        lines.extend(remark());
        return lines;
    };
    match candidates(app).into_iter().find(|(part, _)| part.offer.id == *id) {
        // The job's notes contain the remark.
        Some((part, own)) => lines.extend(job(app, plan, part, own)),
        None => lines.extend(remark()),
    }
    let reason = plan.rejected.iter().find(|rejection| rejection.offer == *id);
    lines.extend(reason.map(|rejection| line("rejected", clean(&rejection.reason.words(), 600))));
    lines
}

fn line(label: &str, text: String) -> (String, String) {
    (label.to_owned(), text)
}

fn machine(offer: &Offer) -> Vec<(String, String)> {
    let place = offer.region_name().map_or_else(String::new, |name| format!(" ({name})"));
    let gpu = offer.gpu.as_ref().map_or_else(|| clean(&offer.gpu_name, 60), ToString::to_string);
    let known = |value: Option<String>, what: &str| value.unwrap_or_else(|| format!("{what} unknown"));
    let host = [
        known(offer.vcpus.map(|vcpus| format!("{vcpus} vCPUs")), "CPUs"),
        known(offer.host_memory.map(format::memory), "memory"),
    ];
    let undated = if offer.tier == Tier::Owned { "your own machine" } else { "undated" };
    let date = offer.as_of.map_or_else(|| undated.to_owned(), |date| format!("of {date}"));
    let age = offer.trust.age_days.map_or_else(String::new, |days| format!(", {days} days old"));
    let mut lines = vec![
        line(
            "where",
            format!("{}, {}{place}", clean(&offer.provider, 60), clean(words::price::region(&offer.region), 80)),
        ),
        line("machine", format!("{}: {} × {gpu}", clean(&offer.instance_type, 80), offer.gpu_count)),
        line("host", host.join(", ")),
        line("price", format!("{}, {}, {date}{age}", format::price(offer.price), offer.tier)),
    ];
    if !offer.trust.doubts.is_empty() {
        lines.push(line("in doubt", words::price::doubts(&offer.trust.doubts)));
    }
    lines.push(line("source", clean(&offer.source, 300)));
    lines
}

fn job(app: &App, plan: &Plan, part: &Part, own: bool) -> Vec<(String, String)> {
    let step = part.step_time_us.map(Micros::known);
    let mut lines = vec![
        line("time", format::hours_with_range(&part.hours)),
        line("cost", format::usd_with_range(&part.cost)),
        line("energy", parts::footprint_words(&part.footprint)),
        line(
            "step",
            format!(
                "{} ({}), {}",
                format::time(step.mid),
                format::time_range(step.low, step.high),
                method_of(app, part)
            ),
        ),
    ];
    if part.machines > 1 {
        lines.push(line("machines", machine_words(part)));
    }
    lines.extend(parts::batch_words(part).map(|words| line("batch", words)));
    lines.extend(words::of_all(&part.notes).map(|note| line("", clean(&note, 400))));
    lines.extend(warnings(app, false).into_iter().map(|warning| line("warning", warning)));
    lines.extend(match plan.total {
        _ if own => {
            let of =
                line("chosen", format!("this is {} plan", if plan.parts.len() > 1 { "part of the" } else { "the" }));
            let beside = beside_words(app).into_iter().map(|(_, text)| line("", text));
            std::iter::once(of).chain(beside).collect()
        }
        Some(total) => vec![line("beside", against(app, part, &total))],
        None => Vec::new(),
    });
    lines
}

/// Difference between an alternative and the plan, at the end of the range at which they are compared.
fn against(app: &App, part: &Part, total: &Total) -> String {
    let end = confidence(app);
    let [own, plan] = [end.end(&part.hours), end.end(&total.hours)];
    let apart = |more: Option<String>, less: Option<String>, [later, sooner]: [&str; 2]| {
        more.map(|by| format!("{by} {later}")).or_else(|| less.map(|by| format!("{by} {sooner}"))).unwrap_or_default()
    };
    let [later, sooner] = [own.checked_sub(plan), plan.checked_sub(own)].map(|hours| hours.map(format::hours));
    let (own, plan) = (part.cost.mid, total.cost.mid);
    let [more, less] = [own.checked_sub(plan), plan.checked_sub(own)].map(|cost| cost.map(format::usd));
    let (cost, time) = (apart(more, less, ["more", "less"]), apart(later, sooner, ["later", "sooner"]));
    let at = if end == Confidence::High { "at the high end " } else { "" };
    format!("{cost} than the plan, {at}done {time}")
}
