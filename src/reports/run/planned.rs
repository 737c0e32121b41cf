//! A running job beside the plan that it follows: work, time and money left, and what will be missed.

use super::{Price, cost, left};
use crate::plan_toml::PlanFile;
use crate::{format, outcome};
use habitat_base::text::clean;
use habitat_base::units::{GpuSlug, Hours, Micros, Range, Usd};
use habitat_recorder::live::{Aim, PlanFigures, Snapshot};
use habitat_step::profile::Profile;

/// The aim of a job that does all the work of a plan: its steps and the plan.
///
/// # Errors
/// The reason if the file has no plan.
pub fn aim(file: &PlanFile) -> Result<Aim, &'static str> {
    let plan = file.totals.zip(file.parts.first());
    let (totals, first) = plan.ok_or("the file has no plan: no offer met its limits")?;
    let steps: f64 = file.parts.iter().map(outcome::steps_of).sum();
    let range = |[low, mid, high]: [f64; 3]| Range { low, mid, high };
    // The machine is set up before the program starts, which the plan's hours, dollars and limits include. Own machines
    // need no set-up, so the plan may have less than assumed.
    let steps_only = steps * range(first.step_time_us).mid / 3.6e9;
    let before = (totals.hours[1].get() - steps_only).clamp(0.0, file.goal.assumptions.setup.get());
    let spent = first.price_usd_per_hour.get() * before;
    let plan = PlanFigures {
        gpu: GpuSlug::new(&first.gpu).ok(),
        price: Some(first.price_usd_per_hour),
        hours: range(totals.hours.map(|hours| (hours.get() - before).max(0.0))).map(Hours::known),
        cost: range(totals.cost_usd.map(|usd| (usd.get() - spent).max(0.0))).map(Usd::known),
        step: range(first.step_time_us).map(Micros::known),
        deadline: file.goal.deadline.map(|deadline| Hours::known((deadline.get() - before).max(0.0))),
        budget: file.goal.budget.map(|budget| Usd::known((budget.get() - spent).max(0.0))),
    };
    Ok(Aim { steps: Some(steps.round().max(1.0) as u64), price: None, plan: Some(plan) })
}

/// Name of the device that a step of the job was recorded on, if that is not the GPU of its plan.
pub(super) fn other_device(plan: &PlanFigures, profile: Option<&Profile>) -> Option<String> {
    let planned = plan.gpu.as_ref()?;
    let Some(origin) = &profile?.origin else { return Some("a CPU".to_owned()) };
    match (&origin.gpu, &origin.gpu_name) {
        (Some(gpu), _) => (gpu != planned).then(|| gpu.to_string()),
        (None, name) => name.as_ref().map(|name| clean(name, 40)),
    }
}

/// A line beside the job: its label, the words, and whether a limit will be missed.
pub type Line = (&'static str, String, bool);

/// Lines about the plan; empty without one. On another device than the plan's, they say so and compare neither speed nor
/// cost.
pub fn lines(aim: &Aim, seen: &Snapshot, price: Option<&Price>, profile: Option<&Profile>) -> Vec<Line> {
    let Some(plan) = &aim.plan else { return Vec::new() };
    let elapsed = seen.hours();
    let rest = left(aim, seen).ok().filter(|_| !seen.is_over());
    let end = rest.map(|rest| rest.map(|hours| hours + elapsed));
    let deadline = plan.deadline.zip(end).map(|(deadline, end)| time(deadline, &end));
    let other = other_device(plan, profile).zip(plan.gpu.as_ref());
    let Some((device, gpu)) = other else {
        let mut lines = vec![work(aim, seen, plan, end.as_ref(), elapsed)];
        lines.extend(step(seen, plan));
        lines.extend(deadline);
        lines.push(money(plan, price, seen, rest.as_ref()));
        return lines;
    };
    let words = format!("the plan is for {gpu}, and the job runs on {device}: speed and cost are not compared");
    let mut lines = vec![("plan", words, true)];
    let share = format!("{} of the work left", format::percent(1.0 - done(aim, seen)));
    let end = match end {
        Some(end) => format!(" · ends after {}", format::hours_with_range(&end)),
        None if seen.is_over() => format!(" · took {}", format::hours(elapsed)),
        None => String::new(),
    };
    lines.push(("", format!("{share}{end}"), false));
    lines.extend(deadline);
    lines
}

/// Share of the steps that are done.
fn done(aim: &Aim, seen: &Snapshot) -> f64 {
    (seen.steps as f64 / aim.steps.unwrap_or(1).max(1) as f64).min(1.0)
}

/// Work done, beside the share that the plan has by now, and the end.
fn work(aim: &Aim, seen: &Snapshot, plan: &PlanFigures, end: Option<&Range<Hours>>, elapsed: Hours) -> Line {
    let by_now = (elapsed.get() / plan.hours.mid.get().max(1e-9)).min(1.0);
    let (share, planned) = (format::percent(1.0 - done(aim, seen)), format::percent(1.0 - by_now));
    let hours = format::hours_with_range(&plan.hours);
    let end = match end {
        Some(end) => format!("ends after {}, planned {hours}", format::hours_with_range(end)),
        None if seen.is_over() => format!("took {}, planned {hours}", format::hours(elapsed)),
        None => format!("planned {hours}"),
    };
    ("plan", format!("{share} of the work left, {planned} by the plan · {end}"), false)
}

/// The mean step beside the planned one, if it is outside the plan's range.
fn step(seen: &Snapshot, plan: &PlanFigures) -> Option<Line> {
    let mean = seen.times?.mean;
    let is_planned = (plan.step.low.get()..=plan.step.high.get()).contains(&mean.get());
    let more = mean.get() / plan.step.mid.get() - 1.0;
    let [planned, now] = [plan.step.mid, mean].map(format::time);
    let words = format!("step {now}, planned {planned} ({:+.0} %)", more * 100.0);
    (!is_planned).then_some(("", words, more > 0.0))
}

/// Whether the deadline will be met.
fn time(deadline: Hours, end: &Range<Hours>) -> Line {
    let [late, spare] = [end.mid.get() - deadline.get(), deadline.get() - end.mid.get()].map(|hours| hours.max(0.0));
    let at = format!("deadline {} after the start", format::hours(deadline));
    if late > 0.0 {
        return ("", format!("will be late by {}: {at}", format::hours(Hours::known(late))), true);
    }
    let doubt = if end.high.get() > deadline.get() { ", late at the slow end" } else { "" };
    ("", format!("in time, {} to spare{doubt}: {at}", format::hours(Hours::known(spare))), !doubt.is_empty())
}

/// Money spent and left.
fn money(plan: &PlanFigures, price: Option<&Price>, seen: &Snapshot, rest: Option<&Range<Hours>>) -> Line {
    let Some(price) = price else { return ("", format!("planned cost {}", format::usd_with_range(&plan.cost)), false) };
    let spent = cost(price, seen);
    let all = rest.map_or(spent, |rest| spent + price.per_hour * rest.mid);
    let planned = format::usd(plan.cost.mid);
    let of_all = if rest.is_some() { format!(", {} in total", format::usd(all)) } else { String::new() };
    let words = format!("{} spent{of_all}, planned {planned}", format::usd(spent));
    let Some(budget) = plan.budget else { return ("", words, false) };
    let over = all.get() - budget.get();
    if over > 0.0 {
        let over = format::usd(Usd::known(over));
        return ("", format!("{words} · will exceed the budget of {} by {over}", format::usd(budget)), true);
    }
    let free = format::usd(Usd::known(budget.get() - spent.get()));
    ("", format!("{words} · {free} of {} left", format::usd(budget)), false)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use habitat_base::units::UsdPerHour;
    use habitat_recorder::live::{State, Times};

    /// 100 of 1,000 steps in one hour: nine more hours at 36 s a step.
    fn seen() -> Snapshot {
        let step = Micros::known(36e6);
        let times = Times {
            now: step,
            median: step,
            mean: step,
            pace: Range { low: step, mid: step, high: Micros::known(40e6) },
            range: [step, step],
            count: 90,
            only_last: false,
        };
        Snapshot { steps: 100, times: Some(times), elapsed: Duration::from_secs(3600), ..Snapshot::default() }
    }

    fn aim(deadline: f64, budget: f64) -> Aim {
        let plan = PlanFigures {
            gpu: GpuSlug::new("l4").ok(),
            price: Some(UsdPerHour::known(2.0)),
            hours: Range { low: 7.0, mid: 8.0, high: 9.0 }.map(Hours::known),
            cost: Range { low: 14.0, mid: 16.0, high: 18.0 }.map(Usd::known),
            step: Range { low: 25e6, mid: 28.8e6, high: 32e6 }.map(Micros::known),
            deadline: Some(Hours::known(deadline)),
            budget: Some(Usd::known(budget)),
        };
        Aim { steps: Some(1000), price: None, plan: Some(plan) }
    }

    fn words_on(aim: &Aim, seen: &Snapshot, profile: Option<&Profile>) -> Vec<Line> {
        let price = super::super::price(aim, profile, &habitat_planning::pricing::PriceBook::default());
        lines(aim, seen, price.as_ref(), profile)
    }

    fn words(aim: &Aim, seen: &Snapshot) -> Vec<Line> {
        words_on(aim, seen, None)
    }

    /// A step recorded on a device.
    fn recorded(origin: &str) -> Profile {
        let text = format!(
            r#"{{"format": "habitat-profile", "version": 1, {origin} "workload": {{"name": "x", "mode": "training"}},
            "operations": [{{"name": "work", "phase": "forward", "inputs": [[64]], "outputs": [[64]]}}]}}"#
        );
        Profile::from_json(text.as_bytes()).unwrap().0
    }

    #[test]
    fn another_device_than_the_planned_one_is_named_and_not_compared() {
        let aim = aim(7.0, 15.0);
        let others = [
            ("", "a CPU"),
            (r#""origin": {"gpu": "t4"},"#, "t4"),
            (r#""origin": {"gpu_name": "Quadro X"},"#, "Quadro X"),
        ];
        for (origin, name) in others {
            let said = words_on(&aim, &seen(), Some(&recorded(origin)));
            let texts: Vec<&str> = said.iter().map(|(_, text, _)| text.as_str()).collect();
            let first = format!("the plan is for l4, and the job runs on {name}: speed and cost are not compared");
            assert_eq!(
                texts,
                [
                    &first,
                    "90.0 % of the work left · ends after 10 h (10–11 h)",
                    "will be late by 3 h: deadline 7 h after the start"
                ]
            );
            assert!(said[0].2 && said[2].2);
        }
        let over = Snapshot { state: State::Ended { words: String::new(), well: true }, ..seen() };
        let over = words_on(&aim, &over, Some(&recorded("")));
        assert_eq!(over[1].1, "90.0 % of the work left · took 1 h");
        let same = recorded(r#""origin": {"gpu": "l4"},"#);
        assert_eq!(words_on(&aim, &seen(), Some(&same)), words(&aim, &seen()));
        // A price of the user's own is that of this machine.
        let own = Aim { price: Some(UsdPerHour::known(1.0)), ..aim };
        let none = habitat_planning::pricing::PriceBook::default();
        let price = super::super::price(&own, Some(&recorded("")), &none).unwrap();
        assert_eq!(price.per_hour, UsdPerHour::known(1.0));
    }

    #[test]
    fn what_will_be_missed_is_said_with_its_amount() {
        let said = words(&aim(7.0, 15.0), &seen());
        let texts: Vec<&str> = said.iter().map(|(_, text, _)| text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "90.0 % of the work left, 87.5 % by the plan · ends after 10 h (10–11 h), planned 8 h (7–9 h)",
                "step 36.00 s, planned 28.80 s (+25 %)",
                "will be late by 3 h: deadline 7 h after the start",
                "$2.00 spent, $20.00 in total, planned $16.00 · will exceed the budget of $15.00 by $5.00",
            ]
        );
        assert_eq!(said.iter().map(|(.., bad)| *bad).collect::<Vec<_>>(), [false, true, true, true]);
        let said = words(&aim(24.0, 40.0), &seen());
        assert_eq!(said[2].1, "in time, 14 h to spare: deadline 24 h after the start");
        assert!(said[3].1.ends_with("$38.00 of $40.00 left") && !said[3].2, "{said:?}");
        assert!(words(&aim(10.5, 40.0), &seen())[2].1.contains("late at the slow end"));
        assert!(lines(&Aim::default(), &seen(), None, None).is_empty());
    }
}
