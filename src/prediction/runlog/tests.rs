use super::*;
use proptest::prelude::*;

fn run(batch: f64, iterations: f64, time: f64) -> Run {
    Run { batch: Some(batch), iterations: Some(iterations), time: Micros::new(time).unwrap() }
}

fn surface(x: f64, y: f64) -> f64 {
    30.0 * x * y + 200.0 * x + 4000.0 * y + 1e6
}

fn grid(time: impl Fn(f64, f64) -> f64) -> Vec<Run> {
    let mut runs = Vec::new();
    for x in [8.0, 16.0, 32.0, 64.0] {
        for y in [10.0, 50.0, 200.0] {
            runs.push(run(x, y, time(x, y)));
        }
    }
    runs
}

#[test]
fn a_surface_comes_back_and_holds_far_beyond() {
    for weighting in [Weighting::Relative, Weighting::Absolute] {
        let model = RunModel::fit(&grid(surface), None, weighting).unwrap();
        assert_eq!((model.form, model.runs, model.degrees_of_freedom), (Form::Full, 12, 8));
        for (found, expected) in model.coefficients().iter().zip([30.0, 200.0, 4000.0, 1e6]) {
            assert!((found.value / expected - 1.0).abs() < 1e-6, "{model:?}");
        }
        let far = model.at(Some(512.0), Some(10_000.0)).unwrap();
        assert!((far.time.range.mid.get() / surface(512.0, 10_000.0) - 1.0).abs() < 1e-6);
        assert_eq!((far.time.method, far.beyond), (Method::RunLog, 50.0));
        assert!(model.quality.r_squared > 1.0 - 1e-9 && model.quality.worst_error < 1e-6);
    }
}

#[test]
fn one_variable_where_only_one_varies() {
    let same_batch: Vec<Run> = [10.0, 50.0, 200.0].map(|y| run(32.0, y, 7.0 * y + 90.0)).to_vec();
    let model = RunModel::fit(&same_batch, None, Weighting::Relative).unwrap();
    assert_eq!(model.form, Form::Iterations);
    assert!((model.at(None, Some(1000.0)).unwrap().time.range.mid.get() - 7090.0).abs() < 1e-6);
    let same_length: Vec<Run> = [8.0, 16.0, 64.0].map(|x| run(x, 100.0, 3.0 * x + 5.0)).to_vec();
    let model = RunModel::fit(&same_length, None, Weighting::Relative).unwrap();
    assert_eq!(model.form, Form::Batch);
    assert!((model.at(Some(128.0), None).unwrap().time.range.mid.get() - 389.0).abs() < 1e-6);
    assert_eq!(model.at(None, Some(3.0)), None);
}

/// By hand: times 4, 7, 9 at 1, 2, 3 give the line 5/3 + 5/2 y with residual variance 1/6 and one degree of freedom. At
/// 4 the leverage is 1/3 + 2²/2, so the standard error of a new run is √(1/6 · (1 + 7/3)), and the 80 % range is 3.0777
/// times that on both sides of 35/3.
#[test]
fn the_interval_of_a_new_run_worked_out_by_hand() {
    let runs: Vec<Run> = [(1.0, 4.0), (2.0, 7.0), (3.0, 9.0)].map(|(y, time)| run(8.0, y, time)).to_vec();
    let model = RunModel::fit(&runs, None, Weighting::Absolute).unwrap();
    let at = model.at(None, Some(4.0)).unwrap();
    let half = 3.077_683_5 * (1.0_f64 / 6.0 * (10.0 / 3.0)).sqrt();
    assert!((at.time.range.mid.get() - 35.0 / 3.0).abs() < 1e-9);
    assert!((at.time.range.high.get() - (35.0 / 3.0 + half)).abs() < 1e-5, "{at:?}");
    assert!((at.time.range.low.get() - (35.0 / 3.0 - half)).abs() < 1e-5);
    assert!(at.wide[1].get() > at.time.range.high.get() && at.wide[0].get() < at.time.range.low.get());
}

#[test]
fn beyond_the_logged_batches_the_line_itself_is_doubted() {
    let model = RunModel::fit(&grid(surface), None, Weighting::Relative).unwrap();
    let width = |batch: f64, iterations: f64| {
        let at = model.at(Some(batch), Some(iterations)).unwrap();
        assert!(at.time.range.low.get() < at.time.range.mid.get() && at.wide[0].get() <= at.time.range.low.get());
        (at.time.range.high / at.time.range.low).ln()
    };
    // The log has no noise: inside it, and at more iterations, the range has no width.
    assert!(width(32.0, 100.0) < 1e-6 && width(64.0, 100_000.0) < 1e-6);
    assert!(width(128.0, 100.0) > 0.05 && width(256.0, 100.0) > width(128.0, 100.0));
    assert!(width(4.0, 100.0) > 0.05);
}

#[test]
fn logs_that_tell_nothing_are_refused() {
    let fit = |runs: &[Run]| RunModel::fit(runs, None, Weighting::Relative).unwrap_err();
    assert_eq!(fit(&[run(8.0, 10.0, 1.0), run(8.0, 10.0, 2.0)]), RunLogError::NothingVaries);
    assert_eq!(fit(&[]), RunLogError::NothingVaries);
    assert!(matches!(fit(&grid(surface)[..4]), RunLogError::TooFew { found: 4, needed: 5, .. }));
    let together: Vec<Run> = (1..9).map(|n| run(f64::from(n), 10.0 * f64::from(n), f64::from(n))).collect();
    assert_eq!(fit(&together), RunLogError::Confounded);
    assert_eq!(fit(&[run(8.0, 10.0, 1.0), run(8.0, 20.0, 0.0)]), RunLogError::NotPositive(2));
    let bare = [1.0, 2.0, 3.0].map(|y| Run { batch: None, ..run(1.0, y, y) });
    assert!(RunModel::fit(&bare, None, Weighting::Relative).is_ok());
    assert!(matches!(RunModel::fit(&bare, Some(Form::Full), Weighting::Relative), Err(RunLogError::Missing(..))));
}

#[test]
fn no_part_of_a_run_takes_time_away() {
    let runs: Vec<Run> = [(10.0, 1.0), (20.0, 11.0), (30.0, 21.0)].map(|(y, time)| run(8.0, y, time)).to_vec();
    let model = RunModel::fit(&runs, None, Weighting::Absolute).unwrap();
    let [slope, start] = model.coefficients()[..] else { panic!("{model:?}") };
    assert_eq!((start.value, start.error), (0.0, 0.0));
    // Through the origin: (10·1 + 20·11 + 30·21) / (100 + 400 + 900).
    assert!((slope.value - 860.0 / 1400.0).abs() < 1e-12);
    assert!(model.at(None, Some(2.0)).unwrap().time.range.mid.get() > 0.0);
    // Runs that get shorter with more iterations have a mean, but no slope.
    let falling: Vec<Run> = [(10.0, 3.0), (20.0, 2.0), (30.0, 1.0)].map(|(y, time)| run(8.0, y, time)).to_vec();
    let model = RunModel::fit(&falling, None, Weighting::Absolute).unwrap();
    assert!((model.at(None, Some(99.0)).unwrap().time.range.mid.get() - 2.0).abs() < 1e-12);
}

proptest! {
    /// Changing the unit of time scales the model; the order of runs has no effect.
    #[test]
    fn unit_and_order_do_not_matter(
        noise in proptest::collection::vec(0.9..1.1_f64, 12),
        factor in 1e-3..1e3_f64,
    ) {
        let runs: Vec<Run> = grid(surface).into_iter().zip(&noise).map(|(run, noise)| Run { time: run.time * *noise, ..run }).collect();
        let mut scaled: Vec<Run> = runs.iter().map(|run| Run { time: run.time * factor, ..*run }).collect();
        scaled.reverse();
        for weighting in [Weighting::Relative, Weighting::Absolute] {
            let a = RunModel::fit(&runs, None, weighting).unwrap().at(Some(100.0), Some(500.0)).unwrap();
            let b = RunModel::fit(&scaled, None, weighting).unwrap().at(Some(100.0), Some(500.0)).unwrap();
            for (a, b) in [(a.time.range.mid, b.time.range.mid), (a.time.range.low, b.time.range.low), (a.wide[1], b.wide[1])] {
                prop_assert!((a.get() * factor - b.get()).abs() <= 1e-6 * b.get().max(1e-9), "{a:?} {b:?}");
            }
        }
    }
}
