use super::*;
use crate::plan_toml::parse;
use habitat_base::units::{GpuSlug, Micros, Samples};

/// 1,000 steps of 36 s on 2 GPUs: 10 h, plus 1 h of set-up and losses; 2 dollars per hour.
const PLAN: &str = r#"
[plan]
format = "habitat-plan"
version = 2
status = "optimal"
created = "2026-11-01T00:00:00Z"
tool = "habitat-tui"
command = "habitat-tui plan"
currency = "USD"
workload = "x"
solver = "none"
[request]
method = "auto"
waves = "many"
host = "as-recorded"
[goal]
objective = "cost"
confidence = "high"
max_parts = 1
[goal.work]
samples = 64000
[totals]
hours = [9.0, 11.0, 14.0]
cost_usd = [18.0, 22.0, 28.0]
[[part]]
offer = "a/b/c/spot"
gpu = "l4"
gpu_count = 2
nodes = 1
tier = "spot"
batch_size = 32
global_batch_size = 64
samples = 64000.0
step_time_us = [30e6, 36e6, 45e6]
hours = [9.0, 11.0, 14.0]
cost_usd = [18.0, 22.0, 28.0]
price_usd_per_hour = 2.0
market = "provider"
"#;

fn run(hours: f64, cost: f64) -> Run {
    Run { hours: Hours::new(hours).ok(), cost_usd: Usd::new(cost).ok(), ..Run::default() }
}

fn share(outcome: &Outcome, cause: &str) -> (Option<f64>, Option<f64>) {
    let share = outcome.shares.iter().find(|share| share.cause == cause);
    let share = share.unwrap_or_else(|| panic!("no {cause}: {:?}", outcome.shares));
    let round = |value: f64| (value * 1e9).round() / 1e9;
    (share.hours.map(round), share.cost_usd.map(round))
}

/// Checks that both columns add up to the actual values minus the planned ones.
fn assert_complete(outcome: &Outcome, hours: f64, cost: f64) {
    let sum = |pick: fn(&Share) -> Option<f64>| outcome.shares.iter().filter_map(pick).sum::<f64>();
    assert!((sum(|share| share.hours) - hours).abs() < 1e-9, "{:?}", outcome.shares);
    assert!((sum(|share| share.cost_usd) - cost).abs() < 1e-9, "{:?}", outcome.shares);
}

#[test]
fn shares_are_those_worked_out_by_hand_and_add_up() {
    let plan = parse(PLAN).unwrap();
    // Half the work, steps of 45 s instead of 36 s, 2 h beyond the steps, 3 dollars per hour.
    let happened = Run {
        steps: Some(500),
        step_time_us: Micros::new(45e6).ok(),
        gpu: GpuSlug::new("l4").ok(),
        ..run(8.25, 24.75)
    };
    let outcome = outcome(&plan, &happened).unwrap();
    assert_eq!(share(&outcome, "amount of work"), (Some(-5.0), Some(-10.0)));
    assert_eq!(share(&outcome, "step time"), (Some(1.25), Some(2.5)));
    assert_eq!(share(&outcome, "start-up and losses"), (Some(1.0), Some(2.0)));
    assert_eq!(share(&outcome, "price"), (None, Some(8.25)));
    assert_complete(&outcome, 8.25 - 11.0, 24.75 - 22.0);
    let step = outcome.step_time_us.unwrap();
    assert_eq!((step.planned, step.happened, step.within), ([30e6, 36e6, 45e6], 45e6, true));
    assert!(!outcome.hours.unwrap().within && outcome.cost_usd.unwrap().within && outcome.notes.is_empty());
    let samples = Run { steps: None, samples: Samples::new(32_000.0).ok(), ..happened };
    assert_eq!(super::outcome(&plan, &samples).unwrap(), outcome);
}

#[test]
fn what_is_not_known_is_not_divided() {
    let plan = parse(PLAN).unwrap();
    let bare = outcome(&plan, &run(13.0, 26.0)).unwrap();
    assert_eq!(share(&bare, "step time, pauses, start-up and losses"), (Some(2.0), Some(4.0)));
    assert!(bare.notes[0].contains("assuming that all planned work was done"));
    assert_complete(&bare, 2.0, 4.0);
    // With the hours lost, the step time follows; with both known, the rest lies between the steps.
    let lost = Run { lost_hours: Hours::new(1.5).ok(), ..run(13.0, 26.0) };
    let with_lost = outcome(&plan, &lost).unwrap();
    assert_eq!(share(&with_lost, "step time and pauses").0, Some(1.5));
    let both = Run { step_time_us: Micros::new(36e6).ok(), ..lost };
    let with_both = outcome(&plan, &both).unwrap();
    assert_eq!(share(&with_both, "pauses between steps (evaluation, checkpoints)").0, Some(1.5));
    assert_complete(&with_both, 2.0, 4.0);
    let step_alone = Run { step_time_us: Micros::new(50e6).ok(), ..Run::default() };
    let only = outcome(&plan, &step_alone).unwrap();
    assert!(only.shares.is_empty() && only.hours.is_none() && !only.step_time_us.unwrap().within);
    let no_cost = outcome(&plan, &Run { cost_usd: None, ..run(13.0, 1.0) }).unwrap();
    assert!(no_cost.shares.iter().all(|share| share.cost_usd.is_none()));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let plan = parse(PLAN).unwrap();
    let step = Run { step_time_us: Micros::new(36e6).ok(), ..Run::default() };
    let refused = |run: Run| outcome(&plan, &run).unwrap_err();
    assert_eq!(refused(Run::default()), OutcomeError::NothingMeasured);
    let t4 = Run { gpu: GpuSlug::new("t4").ok(), ..step.clone() };
    assert_eq!(refused(t4).to_string(), "the step was measured on t4, the plan uses l4");
    let batch = Run { batch_size: Some(64), ..step.clone() };
    assert_eq!(refused(batch), OutcomeError::OtherBatch { measured: 64, planned: 32 });
    let mut two = plan.clone();
    two.parts.push(two.parts[0].clone());
    assert!(matches!(outcome(&two, &step), Err(OutcomeError::WhichPart(2, _))));
    assert!(matches!(outcome(&two, &Run { steps: Some(1), ..run(1.0, 1.0) }), Err(OutcomeError::WhichPart(2, _))));
    let none = PlanFile { parts: Vec::new(), ..plan.clone() };
    assert_eq!(outcome(&none, &step), Err(OutcomeError::NoPlan));
    let mut counted = plan.clone();
    counted.parts[0].steps = counted.parts[0].samples.take();
    assert_eq!(outcome(&counted, &Run { samples: Samples::new(1.0).ok(), ..step }), Err(OutcomeError::Samples));
}

#[test]
fn files_of_runs_are_read_or_refused_with_the_field() {
    let good = r#"{"format": "habitat-run", "version": 1, "hours": 12.5, "steps": 10, "losses": 3}"#;
    let run = Run::parse(good).unwrap();
    assert_eq!((run.hours, run.steps, run.losses), (Hours::new(12.5).ok(), Some(10), Some(3)));
    for (from, to, words) in [
        ("12.5", "-1", "not a valid time"),
        ("12.5", "0", "hours: must be above 0"),
        ("hours", "hour", "unknown field `hour`"),
        ("version\": 1", "version\": 2", "found \"habitat-run\" and 2"),
        ("habitat-run", "x", "found \"x\" and 1"),
        ("3}", "3", "habitat-run"),
    ] {
        let error = Run::parse(&good.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

/// The output of `run --json` for two ranks has the time, the cost and the steps.
#[test]
fn what_run_says_of_a_job_is_what_happened() {
    let job = r#"{"format": "habitat-job", "version": 1, "command": ["x"], "elapsed_s": 5400.0, "cost_usd": 3.3,
        "processes": [{"pid": 1, "steps": 990}, {"pid": 2, "steps": 1000}]}"#;
    let run = Run::parse(job).unwrap();
    assert_eq!((run.hours, run.cost_usd, run.steps), (Hours::new(1.5).ok(), Usd::new(3.3).ok(), Some(1000)));
    for (from, to, words) in [
        ("5400.0", "-1", "elapsed_s"),
        ("5400.0", "0", "hours: must be above 0"),
        ("{\"pid\": 1, \"steps\": 990}, {\"pid\": 2, \"steps\": 1000}", "", "no step of the job was seen"),
        ("1000", "\"many\"", "invalid type"),
        ("version\": 1", "version\": 2", "found \"habitat-job\" and 2"),
    ] {
        let error = Run::parse(&job.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

/// A damaged plan file ends in an error or in numbers, never in a panic.
#[test]
fn damaged_files_are_refused_or_compared() {
    let happened = Run { step_time_us: Micros::new(36e6).ok(), ..run(13.0, 26.0) };
    let mut compared = 0;
    for (at, _) in PLAN.char_indices().filter(|(_, c)| c.is_ascii_digit()) {
        for other in ["0", "9", "-", "1e300", "nan", "inf", ""] {
            let text = format!("{}{other}{}", &PLAN[..at], &PLAN[at + 1..]);
            let Ok(plan) = parse(&text) else { continue };
            let Ok(outcome) = outcome(&plan, &happened) else { continue };
            let mut shown = Vec::new();
            write(&outcome, &happened, &mut shown).unwrap();
            assert!(!String::from_utf8(shown).unwrap().contains("NaN"), "{text}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

/// 1,000 steps of 40 s at the median and 45 s in the mean, a tenth of it waiting; 6 minutes of recording.
#[test]
fn every_hour_of_a_job_that_was_followed_has_a_cause() {
    let plan = parse(PLAN).unwrap();
    let job = r#"{"format": "habitat-job", "version": 1, "elapsed_s": 50400, "cost_usd": 35.0, "processes": [
        {"steps": 3}, {"steps": 1000, "step_time_us": 40e6, "mean_step_time_us": 45e6, "window_costs_us": [180e6, 180e6],
         "waiting_for_data": {"share": 0.1}}]}"#;
    let run = Run::parse(job).unwrap();
    let found = outcome(&plan, &run).unwrap();
    let hours = |cause| share(&found, cause).0.unwrap();
    let near = |cause, expected: f64| assert!((hours(cause) - expected).abs() < 1e-6, "{cause}: {}", hours(cause));
    // 11.1111 h of medians, of which 1.25 h wait, instead of 10 h.
    near("step time", 11.111_111_1 - 1.25 - 10.0);
    near("waiting for data", 1.25);
    near("pauses between steps (evaluation, checkpoints)", 12.5 - 11.111_111_1);
    near("recording", 0.1);
    near("start-up and losses", 14.0 - 12.5 - 0.1 - 1.0);
    assert_complete(&found, 14.0 - 11.0, 35.0 - 22.0);
    assert_eq!(found.step_time_us.unwrap().happened, 40e6);
    // 1.2 h of set-up and losses, of which 0.3 h are set-up: the plan has 0.1 h for it, and 0.9 h for losses.
    let lost = Run { lost_hours: Hours::new(1.2).ok(), setup_hours: Hours::new(0.3).ok(), ..run };
    let found = outcome(&plan, &lost).unwrap();
    assert_eq!(share(&found, "start-up").0, Some(0.2));
    assert_eq!(share(&found, "losses").0, Some(0.0));
    assert_eq!(share(&found, "after the last step").0, Some(0.2));
    assert_complete(&found, 14.0 - 11.0, 35.0 - 22.0);
}
