//! The goal as sliders and switches.

use super::Pane;
use crate::action::Action;
use crate::app::App;
use crate::app::Tone;
use crate::app::msg::Effect;
use crate::app::slider::{Knob, Ladder, parse};
use habitat_base::units::{Hours, Samples, Usd, most};
use habitat_planning::deadline::deadline;
use habitat_planning::plan::{Accept, Confidence, Objective, Part, Work};
use habitat_planning::pricing::Tier;
use habitat_planning::values;
use habitat_reports::format;

/// Highest number of parts to choose on screen.
const MOST_PARTS: u32 = 3;

/// The amount of work in words.
pub fn work_words(app: &App) -> String {
    match app.goal().work {
        Work::Samples(samples) => format!("{} samples", format::grouped(samples.get())),
        Work::Steps(steps) => {
            let of = app.goal().global_batch.map(|batch| format!(" of {} samples", format::grouped(batch as f64)));
            format!("{} steps{}", format::grouped(steps as f64), of.unwrap_or_default())
        }
        Work::Epochs { epochs, dataset } => {
            format!("{} epochs of {} samples", format::number(epochs), format::grouped(dataset.get()))
        }
        Work::Tokens(tokens) => format!("{} tokens", format::short_count(tokens)),
    }
}

/// The value of a slider in words.
pub fn knob_words(app: &App, knob: Knob) -> String {
    let goal = app.goal();
    match knob {
        Knob::Work => work_words(app),
        Knob::Deadline => goal.deadline.map_or_else(|| "no limit".to_owned(), format::hours),
        Knob::Budget => goal.budget.map_or_else(|| "no limit".to_owned(), format::usd),
        Knob::Gpus => goal.limits.max_gpus.map_or_else(|| "no limit".to_owned(), |most| format!("at most {most}")),
    }
}

/// Values of a slider.
pub fn ladder(app: &App, knob: Knob) -> Ladder {
    match knob {
        Knob::Work => match app.goal().work {
            Work::Samples(_) => Ladder::Powers { from: 3, to: 12 },
            Work::Steps(_) => Ladder::Powers { from: 2, to: 9 },
            Work::Epochs { .. } => Ladder::Powers { from: 0, to: 4 },
            Work::Tokens(_) => Ladder::Powers { from: 6, to: 14 },
        },
        Knob::Deadline => Ladder::Hours,
        Knob::Budget => Ladder::Powers { from: 0, to: 7 },
        Knob::Gpus => Ladder::Gpus,
    }
}

/// The value of a slider; `None` = no limit.
pub fn value(app: &App, knob: Knob) -> Option<f64> {
    let goal = app.goal();
    match knob {
        Knob::Work => Some(match goal.work {
            Work::Samples(samples) => samples.get(),
            Work::Steps(steps) => steps as f64,
            Work::Epochs { epochs, .. } => epochs,
            Work::Tokens(tokens) => tokens,
        }),
        Knob::Deadline => goal.deadline.map(Hours::get),
        Knob::Budget => goal.budget.map(Usd::get),
        Knob::Gpus => goal.limits.max_gpus.map(f64::from),
    }
}

/// Sets a slider; `None` = no limit (the amount of work is then unchanged).
fn set_value(app: &mut App, knob: Knob, value: Option<f64>) {
    let goal = &mut app.setup.goal;
    match (knob, value) {
        (Knob::Deadline, value) => goal.deadline = value.and_then(|hours| Hours::new(hours).ok()),
        (Knob::Budget, value) => goal.budget = value.and_then(|money| Usd::new(money).ok()),
        (Knob::Gpus, value) => goal.limits.max_gpus = value.map(|gpus| (gpus.floor() as u32).clamp(1, most::GPUS)),
        (Knob::Work, None) => {}
        (Knob::Work, Some(value)) => match &mut goal.work {
            Work::Samples(samples) => *samples = Samples::new(value.round()).unwrap_or(*samples),
            Work::Steps(steps) => *steps = value.round().clamp(1.0, 9e15) as u64,
            Work::Epochs { epochs, .. } => *epochs = value,
            Work::Tokens(tokens) => *tokens = value,
        },
    }
}

/// Moves the current slider by a small or large step.
pub(super) fn move_knob(app: &mut App, up: bool, far: bool, effects: &mut Vec<Effect>) {
    let knob = app.planner.knob;
    let ladder = ladder(app, knob);
    let next = match value(app, knob) {
        Some(now) => ladder.step(now, up, far),
        None if up => return,
        None => {
            // From "no limit" downwards: the first limit that the current plan still meets.
            let total = app.plan.value().and_then(|plan| plan.total);
            let gpus = app.plan.value().and_then(|plan| plan.parts.iter().map(Part::all_gpus).max());
            let start = match knob {
                Knob::Deadline => total.map(|total| total.hours.high.get()),
                Knob::Gpus => gpus.map(f64::from),
                _ => total.map(|total| total.cost.high.get()),
            };
            let start = start.unwrap_or(f64::MAX);
            Some(ladder.at_or_above(start))
        }
    };
    set_knob(app, knob, next, effects);
}

/// Adjusts the goal so that the plan under the cursor becomes its answer: sets the deadline to the plan's time, drops a
/// budget below its cost, and minimises cost.
pub(super) fn take(app: &mut App) {
    let confidence = super::confidence(app);
    let Some((hours, cost)) = super::frontier_point(app).map(|point| (confidence.end(&point.hours), point.cost.mid))
    else {
        return;
    };
    let goal = &mut app.setup.goal;
    goal.deadline = Some(hours);
    goal.budget = goal.budget.filter(|budget| budget.get() >= cost.get());
    goal.objective = Objective::Cost;
}

/// Sets a slider to a position from 0 to 1; the far end means no limit.
pub fn slide(app: &mut App, knob: Knob, position: f64, effects: &mut Vec<Effect>) {
    (app.planner.pane, app.planner.knob) = (Pane::Goal, knob);
    let value = ladder(app, knob).at_position(position);
    let open_end = position >= 0.995 && knob != Knob::Work;
    set_knob(app, knob, (!open_end).then_some(value), effects);
}

/// Sets a slider, and plans again if the goal changed.
pub fn set_knob(app: &mut App, knob: Knob, value: Option<f64>, effects: &mut Vec<Effect>) {
    let before = app.setup.goal.clone();
    set_value(app, knob, value);
    if app.setup.goal != before {
        app.start_plan(effects);
    }
}

/// Words that begin a deadline in a typed goal: `by Friday 18:00`, `in 48h`.
const DEADLINE: [&str; 5] = ["by", "before", "until", "in", "within"];
/// Words that begin a budget in a typed goal: `under $300`.
const BUDGET: [&str; 3] = ["under", "below", "for"];
/// Examples of a typed goal.
const EXAMPLES: &str = "enter 1M steps, 1B tokens, or 90 epochs of 1.28M by Friday under $300";
/// Words that may follow the size of a data set.
const ITEMS: [&str; 3] = ["sample", "samples", "images"];

/// Sets the work to a number with its unit: `1M steps`, `2.5M samples`, `1B tokens`, `90 epochs of 1.28M`, or `90
/// epochs` of the goal's data set. A deadline and a budget may follow, or stand alone: `by Friday 18:00 under $300`.
///
/// # Errors
/// The first word that is not understood, with examples; the goal is unchanged then.
pub fn set_work(app: &mut App, text: &str, effects: &mut Vec<Effect>) -> Result<(), String> {
    let is_start = |word: &&str| DEADLINE.contains(word) || BUDGET.contains(word);
    let text = text.to_lowercase();
    let words: Vec<&str> = text.split_whitespace().map(|word| word.trim_end_matches(',')).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty() && *word != "and").collect();
    let (work, mut rest) = words.split_at(words.iter().position(is_start).unwrap_or(words.len()));
    let mut goal = app.setup.goal.clone();
    if !work.is_empty() || rest.is_empty() {
        goal.work = self::work(work, goal.work)?;
    }
    let (now, mut meaning) = ((app.setup.now)(), None);
    while let Some((start, after)) = rest.split_first() {
        // A deadline may begin with another such word: `before by Friday`.
        let end = after.iter().skip(1).position(is_start).map_or(after.len(), |at| at + 1);
        let value = after[..end].join(" ");
        if BUDGET.contains(start) {
            goal.budget = Some(values::usd(&value)?);
        } else {
            let date = deadline(&value)?;
            (goal.deadline, meaning) = (Some(date.hours(&now)?), date.meaning(&now));
        }
        rest = &after[end..];
    }
    if let Some(meaning) = meaning {
        app.tell(Tone::Good, format!("deadline: {meaning}"));
    }
    if app.setup.goal != goal {
        app.setup.goal = goal;
        app.start_plan(effects);
    }
    Ok(())
}

/// Reads an amount of work; a number alone has the unit of the amount `now`.
fn work(words: &[&str], now: Work) -> Result<Work, String> {
    let unknown = |word: &str| {
        let word = habitat_base::text::clean(word, 20);
        format!("\"{word}\" is not understood; {EXAMPLES}")
    };
    let number = |word: &str| parse(word, false).ok_or_else(|| unknown(word));
    let samples = |word: &str| Samples::new(number(word)?.round()).map_err(|_| unknown(word));
    let steps = |word: &str| number(word).map(|count| Work::Steps(count.round().clamp(1.0, 9e15) as u64));
    let [count, after @ ..] = words else { return Err(EXAMPLES.to_owned()) };
    let dataset = match now {
        Work::Epochs { dataset, .. } => Some(dataset),
        _ => None,
    };
    let epochs = |dataset| number(count).map(|epochs| Work::Epochs { epochs, dataset });
    let (work, rest) = match after {
        ["step" | "steps", rest @ ..] => (steps(count)?, rest),
        ["sample" | "samples", rest @ ..] => (Work::Samples(samples(count)?), rest),
        ["token" | "tokens", rest @ ..] => (Work::Tokens(number(count)?), rest),
        ["epoch" | "epochs", "of", size, item, rest @ ..] if ITEMS.contains(item) => (epochs(samples(size)?)?, rest),
        ["epoch" | "epochs", "of", size, rest @ ..] => (epochs(samples(size)?)?, rest),
        ["epoch" | "epochs", rest @ ..] => {
            let missing = || format!("epochs need a size: {count} epochs of 1.28M samples");
            (epochs(dataset.ok_or_else(missing)?)?, rest)
        }
        rest => {
            let work = match now {
                Work::Samples(_) => Work::Samples(samples(count)?),
                Work::Steps(_) => steps(count)?,
                Work::Tokens(_) => Work::Tokens(number(count)?),
                Work::Epochs { dataset, .. } => epochs(dataset)?,
            };
            (work, rest)
        }
    };
    rest.first().map_or(Ok(work), |word| Err(unknown(word)))
}

/// Changes a part of the goal that has no slider.
pub(super) fn toggle(app: &mut App, action: Action) {
    let goal = &mut app.setup.goal;
    match action {
        Action::Objective => {
            goal.objective = match goal.objective {
                Objective::Cost => Objective::Time,
                Objective::Time | Objective::CostPlusTime(_) | Objective::Emissions => Objective::Cost,
            };
        }
        Action::Confidence => {
            goal.confidence = match goal.confidence {
                Confidence::Expected => Confidence::High,
                Confidence::High => Confidence::Expected,
            };
        }
        Action::Parts => goal.max_parts = goal.max_parts % MOST_PARTS + 1,
        Action::OnDemand => switch(&mut goal.limits.tiers, Tier::OnDemand),
        _ => {
            let Some(accept) = Accept::ALL.into_iter().find(|accept| self::action(*accept) == action) else { return };
            switch(&mut goal.limits.accept, accept);
            let is_spot = accept == Accept::Spot && goal.limits.accept.contains(&accept);
            if is_spot && !goal.limits.tiers.contains(&Tier::Spot) {
                switch(&mut goal.limits.tiers, Tier::Spot);
            }
        }
    }
}

/// Removes a value from a list, or adds it.
fn switch<T: Ord>(list: &mut Vec<T>, value: T) {
    if list.contains(&value) {
        list.retain(|other| *other != value);
    } else {
        list.push(value);
        list.sort();
    }
}

/// The action that accepts something, or withdraws that.
pub(super) const fn action(accept: Accept) -> Action {
    match accept {
        Accept::Spot => Action::Spot,
        Accept::Marketplace => Action::Marketplace,
        Accept::Doubted => Action::Doubted,
        Accept::Platform => Action::Platform,
        Accept::Batch => Action::GlobalBatch,
    }
}

/// Objective, tiers, confidence and parts, each with the action that changes it.
pub fn toggles(app: &App) -> Vec<(Action, &'static str, String, bool)> {
    let goal = app.goal();
    let objective = match goal.objective {
        Objective::Cost => "cheapest".to_owned(),
        Objective::Time => "fastest".to_owned(),
        Objective::Emissions => "least CO2e".to_owned(),
        Objective::CostPlusTime(price) => format!("cost + {} of waiting", format::price(price)),
    };
    let tier = |tier| goal.limits.tiers.contains(&tier);
    let spot = tier(Tier::Spot) && goal.limits.accept.contains(&Accept::Spot);
    let confidence = match goal.confidence {
        Confidence::Expected => "expected time",
        Confidence::High => "high end",
    };
    let on_off = |on: bool| if on { "yes" } else { "no" }.to_owned();
    vec![
        (Action::Objective, "objective", objective, true),
        (Action::OnDemand, "on-demand", on_off(tier(Tier::OnDemand)), tier(Tier::OnDemand)),
        (Action::Spot, "spot", on_off(spot), spot),
        (Action::Confidence, "deadline at", confidence.to_owned(), true),
        (Action::Parts, "parts", format!("≤ {}", goal.max_parts), true),
    ]
}
