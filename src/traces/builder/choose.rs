//! Chooses recorded steps that are alike enough to form one profile.

use super::timing::{StepWork, median};
use crate::Span;

/// Allowed relative difference in the number of kernels: a scheduler or a metric occasionally adds some.
const KERNEL_TOLERANCE: f64 = 0.1;
/// Allowed relative difference in device time.
const TIME_TOLERANCE: f64 = 0.25;
/// Allowed extra share of a step's launches without kernels, if every step has lost some.
const LOST_TOLERANCE: f64 = 0.01;
/// Multiple of the median deviation beyond which a device time counts as a stall.
const STALL: f64 = 5.0;
/// Maximum number of steps that the notes name individually.
const NAMED: usize = 3;

/// Chooses the steps to use, and gives the reasons for leaving others out.
///
/// Leaves out steps that lost kernels, then uses the largest group of the others that agree: first in the kernels of
/// the backward pass and update, then in those before, then in device time.
pub(super) fn choose(work: &[StepWork], spans: &[Span]) -> (Vec<usize>, Vec<String>) {
    let kept: Vec<usize> = (0..work.len()).filter(|step| work[*step].device_time > 0.0).collect();
    let empty = work.len() - kept.len();
    let mut choice = Choice { work, spans, kept, notes: Vec::new() };
    if empty > 0 && !choice.kept.is_empty() {
        choice.notes.push(format!("{empty} of {} steps have no work and were left out", work.len()));
    }
    choice.without_damage();
    let rest = |work: &StepWork| (work.kernels - work.forward) as f64;
    choice.alike(rest, KERNEL_TOLERANCE, "backward pass and update", Tie::Most);
    if choice.kept.iter().any(|step| rest(&work[*step]) > 0.0) {
        choice.without_validation();
        let tie = choice.tie();
        choice.alike(|work| work.forward as f64, KERNEL_TOLERANCE, "operators before its backward pass", tie);
    } else {
        choice.alike(|work| work.forward as f64, KERNEL_TOLERANCE, "number of operators", Tie::Most);
    }
    choice.alike(|work| work.device_time, TIME_TOLERANCE, "device time", Tie::Least);
    choice.without_stalls();
    (choice.kept, choice.notes)
}

/// Which of two equally large groups to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tie {
    /// The smaller measure: the other group stalled or did additional work.
    Least,
    /// The larger measure: the other group may be truncated.
    Most,
}

struct Choice<'a> {
    work: &'a [StepWork],
    spans: &'a [Span],
    kept: Vec<usize>,
    notes: Vec<String>,
}

impl Choice<'_> {
    /// Leaves out steps that lost kernels, if other steps lost fewer.
    fn without_damage(&mut self) {
        let missing = |step: usize| self.work[step].lost + self.work[step].untimed;
        let launched = |step: usize| self.work[step].kernels + self.work[step].lost;
        let share = |step: usize| missing(step) as f64 / launched(step).max(1) as f64;
        let least = self.kept.iter().map(|step| share(*step)).fold(f64::INFINITY, f64::min);
        let allowed = if least > 0.0 { least + LOST_TOLERANCE } else { 0.0 };
        let (damaged, whole): (Vec<usize>, Vec<usize>) = self.kept.iter().partition(|step| share(**step) > allowed);
        let why = |step: usize| {
            format!("{} of its {} kernels are not in the recording or have no times", missing(step), launched(step))
        };
        let mut notes: Vec<String> = damaged.iter().take(NAMED).map(|step| self.left_out(*step, &why(*step))).collect();
        if damaged.len() > NAMED {
            let more = damaged.len() - NAMED;
            notes.push(format!("{more} more steps were left out: some of their kernels are not in the recording"));
        }
        self.kept = whole;
        self.notes.extend(notes);
    }

    /// Leaves out steps with a validation: more than twice the kernels of other steps before the backward pass, and
    /// more than the backward pass and update have.
    fn without_validation(&mut self) {
        let least = self.kept.iter().map(|step| self.work[*step].forward).min().unwrap_or(0) as f64;
        let validates = |step: &usize| {
            let StepWork { forward, kernels, .. } = self.work[*step];
            forward as f64 > 2.0 * (1.0 + KERNEL_TOLERANCE) * least && forward > kernels - forward
        };
        let (unlike, like): (Vec<usize>, Vec<usize>) = self.kept.iter().partition(|step| validates(step));
        self.keep(like, &unlike, "in operators before its backward pass: a validation, or longer sequences", |work| {
            work.device_time
        });
    }

    /// Tie rule for groups with different kernels. If a step has the same operators but fewer of them launched work, it
    /// lost launches and kernels.
    fn tie(&self) -> Tie {
        let of = |measure: fn(&StepWork) -> u64| {
            let values = || self.kept.iter().map(|step| measure(&self.work[*step]));
            (values().min().unwrap_or(0), values().max().unwrap_or(0))
        };
        let ((least, most), (fewest, all)) = (of(|work| work.operators), of(|work| work.calls));
        if least == most && least > 0 && fewest < all { Tie::Most } else { Tie::Least }
    }

    /// Keeps the largest group of steps that agree in a measure.
    fn alike(&mut self, measure: impl Fn(&StepWork) -> f64 + Copy, tolerance: f64, what: &str, tie: Tie) {
        let values: Vec<f64> = self.kept.iter().map(|step| measure(&self.work[*step])).collect();
        let Some(centre) = centre(&values, tolerance, tie) else { return };
        let (like, unlike): (Vec<usize>, Vec<usize>) =
            self.kept.iter().partition(|step| (measure(&self.work[**step]) - centre).abs() <= tolerance * centre);
        let why = format!("in {what} by more than {:.0} %", tolerance * 100.0);
        self.keep(like, &unlike, &why, measure);
    }

    /// Leaves out steps whose device time is far from the others', relative to their spread: their kernels waited.
    fn without_stalls(&mut self) {
        if self.kept.len() < 3 {
            return;
        }
        let time = |step: &usize| self.work[*step].device_time;
        let middle = median(self.kept.iter().map(time));
        let deviation = median(self.kept.iter().map(|step| (time(step) - middle).abs()));
        let allowed = (KERNEL_TOLERANCE * middle).max(STALL * deviation);
        let (like, unlike): (Vec<usize>, Vec<usize>) =
            self.kept.iter().partition(|step| (time(step) - middle).abs() <= allowed);
        self.keep(like, &unlike, "in device time, which is alike in the others", |work| work.device_time);
    }

    /// Keeps the steps `like`. The steps `unlike` differ from them in a measure; the notes give the reason.
    fn keep(&mut self, like: Vec<usize>, unlike: &[usize], why: &str, measure: impl Fn(&StepWork) -> f64) {
        if unlike.is_empty() {
            return;
        }
        if unlike.len() <= NAMED {
            let notes: Vec<String> = unlike
                .iter()
                .map(|step| self.left_out(*step, &format!("it {}differs {why}", self.slower(*step, &like))))
                .collect();
            self.notes.extend(notes);
        } else {
            let names: Vec<String> = unlike.iter().take(NAMED).map(|step| name(self.spans, *step)).collect();
            let of = |steps: &[usize]| median(steps.iter().map(|step| measure(&self.work[*step])));
            self.notes.push(format!(
                "{} of {} steps were left out ({}, …): they differ {why} ({:.2} times in the median); a profile has one kind of step",
                unlike.len(),
                like.len() + unlike.len(),
                names.join(", "),
                of(unlike) / of(&like)
            ));
        }
        self.kept = like;
    }

    fn left_out(&self, step: usize, why: &str) -> String {
        format!("{} was left out: {why}", name(self.spans, step))
    }

    /// Text for a step that took much longer than others; empty otherwise.
    fn slower(&self, step: usize, like: &[usize]) -> String {
        let times = self.spans[step].duration / median(like.iter().map(|step| self.spans[*step].duration));
        if times.is_finite() && times >= 1.5 {
            let places = usize::from(times < 10.0);
            format!("took {times:.places$} times as long as the others, and ")
        } else {
            String::new()
        }
    }
}

/// The value with the most values within tolerance; of several, the one nearest the median, then by `tie`. `None`
/// without values.
fn centre(values: &[f64], tolerance: f64, tie: Tie) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = median(values.iter().copied());
    let near = |centre: f64| {
        let from = sorted.partition_point(|value| *value < centre - tolerance * centre);
        sorted.partition_point(|value| *value <= centre + tolerance * centre) - from
    };
    let mut candidates = sorted.clone();
    if tie == Tie::Most {
        candidates.reverse();
    }
    // `min_by` keeps the first of equals.
    let rank = |centre: &f64| (std::cmp::Reverse(near(*centre)), (centre - middle).abs());
    candidates.iter().copied().min_by(|a, b| {
        let ((near_a, far_a), (near_b, far_b)) = (rank(a), rank(b));
        near_a.cmp(&near_b).then(far_a.total_cmp(&far_b))
    })
}

/// Name of a step in notes.
pub(super) fn name(spans: &[Span], step: usize) -> String {
    match spans[step].number {
        Some(number) => format!("step {number}"),
        None => format!("step {} of the {} recorded", step + 1, spans.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(durations: &[f64]) -> Vec<Span> {
        let span = |(number, duration): (u64, &f64)| Span {
            start: 0.0,
            end: *duration,
            duration: *duration,
            followed: true,
            number: Some(number),
        };
        (11..).zip(durations).map(span).collect()
    }

    fn step(forward: u64, rest: u64, time: f64) -> StepWork {
        StepWork { kernels: forward + rest, forward, device_time: time, ..StepWork::default() }
    }

    fn kept(steps: &[StepWork]) -> Vec<usize> {
        choose(steps, &spans(&vec![1.0; steps.len()])).0
    }

    #[test]
    fn odd_steps_are_left_out() {
        let steps = [step(0, 4, 9.0), step(0, 10, 20.0), step(0, 10, 21.0), step(0, 10, 60.0), step(0, 10, 20.0)];
        let (kept, notes) = choose(&steps, &spans(&[1.0, 2.0, 2.0, 6.0, 2.0]));
        assert_eq!(kept, [1, 2, 4]);
        assert_eq!(
            notes,
            [
                "step 11 was left out: it differs in backward pass and update by more than 10 %",
                "step 14 was left out: it took 3.0 times as long as the others, and differs in device time by more than 25 %"
            ]
        );
    }

    #[test]
    fn of_two_steps_the_whole_one_is_used() {
        assert_eq!(kept(&[step(0, 4, 9.0), step(0, 10, 20.0)]), [1], "cut off");
        assert_eq!(kept(&[step(4, 6, 30.0), step(4, 6, 20.0)]), [1], "stalled");
        assert_eq!(kept(&[step(4, 6, 21.0), step(4, 6, 20.0)]), [0, 1]);
    }

    /// The result does not depend on whether one or two of three steps have a validation.
    #[test]
    fn a_validation_is_no_part_of_a_step() {
        let step = |forward| step(forward, 20, 1.0);
        let (kept, notes) = choose(&[step(9), step(477), step(9)], &spans(&[2.0, 52.0, 2.0]));
        assert_eq!(kept, [0, 2]);
        assert!(notes[0].starts_with("step 12 was left out: it took 26 times as long as the others"), "{notes:?}");
        let (kept, notes) = choose(&[step(477), step(9), step(477)], &spans(&[52.0, 2.0, 52.0]));
        assert_eq!((kept, notes.len()), (vec![1], 2), "{notes:?}");
    }

    #[test]
    fn a_step_with_fewer_kernels_than_most_is_left_out() {
        assert_eq!(kept(&[step(1, 6, 32.0), step(4, 6, 53.0), step(4, 6, 53.0)]), [1, 2]);
        assert_eq!(kept(&[step(4, 6, 53.0), step(3, 6, 43.0), step(4, 6, 53.0), step(2, 6, 43.0)]), [0, 2]);
    }

    #[test]
    fn steps_that_lost_kernels_are_left_out_where_others_are_whole() {
        let damaged = |lost| StepWork { lost, ..step(40, 60 - lost, 53.0) };
        let (kept, notes) = choose(&[damaged(1), damaged(0), damaged(3), damaged(2)], &spans(&[1.0; 4]));
        assert_eq!(kept, [1]);
        assert_eq!(notes[1], "step 13 was left out: 3 of its 100 kernels are not in the recording or have no times");
        // Every step lost some: the times are too short, and another note reports that.
        assert_eq!(choose(&[damaged(2), damaged(3), damaged(2)], &spans(&[1.0; 3])).0, [0, 1, 2]);
        assert_eq!(choose(&[damaged(2), damaged(9), damaged(2)], &spans(&[1.0; 3])).0, [0, 2]);
    }

    #[test]
    fn two_kinds_of_steps_in_turns_are_not_mixed() {
        let steps: Vec<StepWork> = (0..12).map(|n| step(4, 6, if n % 2 == 0 { 53.0 } else { 106.0 })).collect();
        let (kept, notes) = choose(&steps, &spans(&[1.0; 12]));
        assert_eq!(kept, [0, 2, 4, 6, 8, 10]);
        assert!(notes[0].starts_with("6 of 12 steps were left out (step 12, step 14, step 16, …)"), "{notes:?}");
        assert!(notes[0].contains("(2.00 times in the median)"), "{notes:?}");
        // One more of the longer ones.
        assert_eq!(kept_of(&[106.0, 53.0, 106.0, 53.0, 106.0]), [0, 2, 4]);
    }

    fn kept_of(times: &[f64]) -> Vec<usize> {
        kept(&times.iter().map(|time| step(4, 6, *time)).collect::<Vec<_>>())
    }

    #[test]
    fn a_stall_is_left_out_and_slightly_different_steps_are_not() {
        assert_eq!(kept_of(&[53.0, 53.0, 64.0]), [0, 1]);
        assert_eq!(kept_of(&[53.0, 54.0, 56.0, 58.0, 60.0]), [0, 1, 2, 3, 4]);
        assert_eq!(kept_of(&[50.0, 56.0, 62.0, 70.0, 64.0]), [0, 1, 2, 3, 4], "dynamic shapes");
        // Far apart: keeps those around the median.
        assert_eq!(kept_of(&[30.0, 40.0, 50.0, 60.0, 70.0]), [1, 2, 3]);
        assert_eq!(kept_of(&[30.0, 60.0, 120.0]), [1]);
    }
}
