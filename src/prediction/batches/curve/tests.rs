use super::*;
use proptest::prelude::*;

fn points(pairs: &[(u64, f64)]) -> Vec<BatchPoint> {
    pairs.iter().map(|&(batch, time)| BatchPoint::measured(batch, Micros::new(time).unwrap())).collect()
}

fn curve(pairs: &[(u64, f64)]) -> BatchCurve {
    BatchCurve::fit(&points(pairs)).unwrap()
}

fn mid(curve: &BatchCurve, batch: u64) -> f64 {
    curve.at(batch).time.range.mid.get()
}

#[test]
fn an_exact_line_comes_back_everywhere() {
    let of = |batch: u64| 500.0 + 30.0 * batch as f64;
    for batches in [&[16, 32][..], &[16, 32, 64], &[8, 24, 100, 128], &[3, 4, 5, 6, 7, 8]] {
        let curve = curve(&batches.iter().map(|&batch| (batch, of(batch))).collect::<Vec<_>>());
        for batch in [1, 2, 10, 16, 20, 48, 99, 256, 1024] {
            assert!((mid(&curve, batch) / of(batch) - 1.0).abs() < 1e-6, "{batches:?}: {batch}");
        }
        assert_eq!(curve.bend, None);
        assert!((curve.line().slope - 30.0).abs() < 1e-6 && (curve.line().intercept - 500.0).abs() < 1e-3);
    }
}

#[test]
fn a_measured_batch_is_its_measurement() {
    let curve = curve(&[(16, 100.0), (32, 190.0), (64, 410.0)]);
    let at = curve.at(32);
    assert_eq!((at.time.range.mid.get(), at.time.method, at.place), (190.0, Method::Measured, Place::Measured));
    assert_eq!(at.time.range.low, at.time.range.high);
    assert_eq!(curve.at(65).time.method, Method::BatchLine);
    assert_eq!(mid(&curve, 48), 300.0);
}

#[test]
fn repetitions_count_by_their_median() {
    let curve = curve(&[(16, 100.0), (32, 9000.0), (32, 200.0), (32, 190.0), (16, 100.0)]);
    assert_eq!(curve.points.len(), 2);
    assert_eq!(mid(&curve, 32), 200.0);
}

#[test]
fn a_step_bound_by_the_host_rises_at_least_a_little_and_says_so() {
    let flat = curve(&[(16, 100.0), (32, 100.0)]);
    assert_eq!(flat.regime(), Regime::Fixed);
    // 15 % of 100 µs grows with the batch: 15 µs for one doubling, 30 more for the next.
    assert!((mid(&flat, 64) - 115.0).abs() < 1e-9 && (mid(&flat, 128) - 145.0).abs() < 1e-9);
    assert!(matches!(flat.notes(&[64])[0], Finding::FlatStep { batch: 32, .. }), "{:?}", flat.notes(&[64]));
    assert!(flat.notes(&[24]).is_empty());
    // A falling series is not extrapolated downwards.
    assert!(mid(&curve(&[(16, 110.0), (32, 100.0)]), 64) >= 100.0);
    let growing = curve(&[(16, 100.0), (32, 190.0)]);
    let width = |curve: &BatchCurve| curve.at(128).time.range.high / curve.at(128).time.range.low;
    assert!(width(&flat) > width(&growing));
}

#[test]
fn points_that_bend_are_told() {
    // CPU-bound up to 32, GPU-bound beyond.
    let host = curve(&[(8, 100.0), (16, 100.0), (32, 105.0), (64, 200.0), (128, 400.0)]);
    assert!(host.bend.is_some_and(|bend| bend.upward), "{host:?}");
    assert!((mid(&host, 256) / 800.0 - 1.0).abs() < 1e-9, "{}", mid(&host, 256));
    assert!(matches!(host.notes(&[])[0], Finding::Bend { faster: true, .. }));
    let saturating = curve(&[(16, 100.0), (32, 180.0), (64, 250.0)]);
    assert!(saturating.bend.is_some_and(|bend| !bend.upward));
    // Noise alone is not a bend: ±3 %.
    let noisy: Vec<(u64, f64)> =
        (1..=8).map(|n| (n * 16, (50.0 + 10.0 * n as f64) * if n % 2 == 0 { 1.03 } else { 0.97 })).collect();
    assert_eq!(curve(&noisy).bend, None);
}

#[test]
fn the_devices_busy_time_tells_when_it_will_decide() {
    let mut known = points(&[(16, 100.0), (32, 101.0)]);
    for (point, busy) in known.iter_mut().zip([20.0, 40.0]) {
        point.busy = Some(Micros::new(busy).unwrap());
    }
    let with_busy = BatchCurve::fit(&known).unwrap();
    // 80 µs of work at batch 64, plus the other 61 µs of the step.
    assert!((mid(&with_busy, 64) - 141.0).abs() < 1e-9);
    known[0].busy = None;
    assert!(!BatchCurve::fit(&known).unwrap().has_busy());
}

#[test]
fn the_range_of_predicted_points_is_carried_over() {
    let predicted: Vec<BatchPoint> = [(16, 100.0), (32, 190.0)]
        .map(|(batch, time)| BatchPoint {
            batch,
            time: Estimate::with_band(Micros::new(time).unwrap(), 0.2, Method::Learned),
            busy: None,
        })
        .to_vec();
    let (of, sure) = (BatchCurve::fit(&predicted).unwrap().at(64), curve(&[(16, 100.0), (32, 190.0)]).at(64));
    assert_eq!(of.time.range.mid, sure.time.range.mid);
    assert!(of.time.range.low.get() < sure.time.range.low.get().min(sure.time.range.mid.get() * 0.8));
    assert!(of.time.range.high.get() > sure.time.range.high.get().max(sure.time.range.mid.get() * 1.2));
}

#[test]
fn what_cannot_be_fitted_is_refused() {
    assert_eq!(BatchCurve::fit(&points(&[(16, 1.0), (16, 2.0)])), Err(CurveError::TooFew(1)));
    assert_eq!(BatchCurve::fit(&points(&[(16, 0.0), (32, 2.0)])), Err(CurveError::Zero(16)));
    assert_eq!(BatchCurve::fit(&points(&[(0, 1.0), (32, 2.0)])), Err(CurveError::Zero(0)));
    assert_eq!(BatchCurve::fit(&[]), Err(CurveError::TooFew(0)));
}

proptest! {
    /// Changing the unit scales the curve; the order of the points has no effect.
    #[test]
    fn unit_and_order_do_not_matter(
        steps in proptest::collection::btree_map(1..2000_u64, 1.0..1e6_f64, 2..7),
        factor in 1e-3..1e3_f64,
        batch in 1..5000_u64,
    ) {
        let pairs: Vec<(u64, f64)> = steps.into_iter().collect();
        let plain = curve(&pairs).at(batch);
        let mut other: Vec<(u64, f64)> = pairs.iter().map(|&(batch, time)| (batch, time * factor)).collect();
        other.reverse();
        let scaled = curve(&other).at(batch);
        for (a, b) in [(plain.time.range.low, scaled.time.range.low), (plain.time.range.mid, scaled.time.range.mid), (plain.wide[1], scaled.wide[1])] {
            prop_assert!((a.get() * factor - b.get()).abs() <= 1e-6 * b.get().max(1e-9), "{a:?} {b:?}");
        }
    }

    /// A range always contains its middle value, and the wide range contains the narrow one.
    #[test]
    fn ranges_hold(
        steps in proptest::collection::btree_map(1..2000_u64, 1.0..1e6_f64, 2..7),
        batch in 1..5000_u64,
    ) {
        let at = curve(&steps.into_iter().collect::<Vec<_>>()).at(batch);
        prop_assert!(at.wide[0].get() <= at.time.range.low.get() && at.time.range.low.get() <= at.time.range.mid.get());
        prop_assert!(at.time.range.mid.get() <= at.time.range.high.get() && at.time.range.high.get() <= at.wide[1].get());
    }

    /// Beyond the measured batches, a larger batch never takes less time.
    #[test]
    fn larger_batches_take_longer(
        steps in proptest::collection::btree_map(1..2000_u64, 1.0..1e6_f64, 2..7),
        batch in 2000..5000_u64,
    ) {
        let of = curve(&steps.into_iter().collect::<Vec<_>>());
        prop_assert!(mid(&of, batch) <= mid(&of, batch + 1));
    }
}
