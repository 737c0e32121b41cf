//! Training recovers known functions, and gives the same bits every time.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::ops::ControlFlow;

use habitat_tui::catalog::Catalog;
use habitat_tui::predict::bundle::Bundle;
use habitat_tui::predict::habitat::{Kind, Trained};
use habitat_tui::predict::head::Head;
use habitat_tui::predict::measured::Split;
use habitat_tui::predict::mlp::Activation;
use habitat_tui::profile::Profile;
use habitat_tui::random::Random;
use habitat_tui::store::bundled;
use habitat_tui::units::{GpuSlug, Micros};
use habitat_tui_lab::learn::fit::{Decay, FitError, FitOptions, Fitted, Loss, Progress, Rows, Schedule, fit};
use habitat_tui_lab::learn::habitat::{HabitatOptions, Part, Sample, evaluate, prepare, weights};

const BOUNDED: Head = Head::Bounded { upper: 1.0 };

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

/// Rows of a bounded function of two features, with a third of noise; three groups reach e^−0.3, 1 and e^0.3 times the
/// share.
fn rows(count: usize) -> Rows {
    let mut random = Random::new(11);
    let mut rows = Rows::default();
    for _ in 0..count {
        let [a, b, c] = std::array::from_fn(|_| (random.unit() * 4.0 - 2.0) as f32);
        let bound = 10_f32.powf((random.unit() * 4.0) as f32);
        let group = random.below(3);
        rows.features.extend([10.0 * a, b, c]);
        rows.floor_us.push(5.0);
        rows.bound_us.push(bound);
        rows.group.push(group as u32);
        rows.measured_us.push(5.0 + bound / (share(a, b) * [-0.3_f32, 0.0, 0.3][group].exp()));
    }
    rows
}

fn share(a: f32, b: f32) -> f32 {
    0.6 * sigmoid(1.5 * a - b * b + 1.0)
}

fn options() -> FitOptions {
    FitOptions {
        hidden: vec![32, 32],
        batch: 128,
        epochs: 25,
        schedule: Schedule::Cosine { first: 1e-2, last: 1e-4 },
        decay: Decay::Decoupled(1e-4),
        offset_penalty: 1e-5,
        ..FitOptions::default()
    }
}

fn whole(rows: &Rows, head: Head, options: &FitOptions) -> Fitted {
    fit(rows, head, options, None, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn a_bounded_function_and_the_offsets_of_groups_are_found() {
    for activation in [Activation::Relu, Activation::Silu] {
        let fitted = whole(&rows(6000), BOUNDED, &FitOptions { activation, ..options() });
        let points: Vec<[f32; 2]> =
            (0..100).map(|i| [(i / 10) as f32 * 0.4 - 1.8, (i % 10) as f32 * 0.4 - 1.8]).collect();
        let features: Vec<f32> = points.iter().flat_map(|[a, b]| [10.0 * a, *b, 0.3]).collect();
        let outputs = fitted.network.forward(&features).unwrap();
        // The network may carry a part common to all groups.
        let middle = fitted.offsets[1];
        let errors = points.iter().zip(&outputs).map(|([a, b], output)| {
            let (time, _) = BOUNDED.time(*output, 5.0, 100.0, middle);
            (time / f64::from(5.0 + 100.0 / share(*a, *b)) - 1.0).abs()
        });
        let mean = errors.sum::<f64>() / 100.0;
        assert!(mean < 0.03, "{activation:?}: mean error {mean}");
        let apart = [fitted.offsets[0] - middle, fitted.offsets[2] - middle];
        assert!((apart[0] + 0.3).abs() < 0.02 && (apart[1] - 0.3).abs() < 0.02, "{activation:?}: {:?}", fitted.offsets);
    }
}

#[test]
fn a_strong_penalty_leaves_the_offsets_at_nought() {
    let fitted = whole(&rows(2000), BOUNDED, &FitOptions { offset_penalty: 100.0, epochs: 5, ..options() });
    assert!(fitted.offsets.iter().all(|offset| offset.abs() < 0.02), "{:?}", fitted.offsets);
}

#[test]
fn a_direct_head_learns_times() {
    let mut rows = rows(4000);
    for row in 0..rows.len() {
        let [a, b] = [rows.features[row * 3] / 10.0, rows.features[row * 3 + 1]];
        rows.measured_us[row] = 1000.0 * (3.0 + a + 0.5 * b * b);
    }
    let options = FitOptions { loss: Loss::Mape, decay: Decay::Penalty(1e-6), ..options() };
    let fitted = whole(&rows, Head::Direct, &options);
    assert!(fitted.loss < 0.02, "{}", fitted.loss);
    assert!(fitted.offsets.is_empty());
}

#[test]
fn the_same_bits_every_time_and_after_every_interruption() {
    let (rows, options) = (rows(3000), FitOptions { epochs: 6, ..options() });
    let once = whole(&rows, BOUNDED, &options);
    assert_eq!(once, whole(&rows, BOUNDED, &options));
    assert_ne!(once.network, whole(&rows, BOUNDED, &FitOptions { seed: 2, ..options.clone() }).network);
    let mut saved: Option<Vec<u8>> = None;
    let mut runs = 0;
    let resumed = loop {
        let from = saved.take();
        let mut stop = |progress: &Progress<'_>| {
            saved = Some(progress.checkpoint().unwrap());
            if progress.epoch.is_multiple_of(2) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        runs += 1;
        let part = fit(&rows, BOUNDED, &options, from.as_deref(), &mut stop).unwrap();
        if part.finished {
            break part;
        }
    };
    assert_eq!(runs, 3);
    assert_eq!(resumed, once);
}

#[test]
fn a_checkpoint_of_another_training_is_refused() {
    let (rows, options) = (rows(300), FitOptions { epochs: 2, ..options() });
    let mut saved = Vec::new();
    let mut keep = |progress: &Progress<'_>| {
        saved = progress.checkpoint().unwrap();
        ControlFlow::Break(())
    };
    fit(&rows, BOUNDED, &options, None, &mut keep).unwrap();
    let again = |rows: &Rows, options: &FitOptions, bytes: &[u8]| {
        fit(rows, BOUNDED, options, Some(bytes), &mut |_| ControlFlow::Continue(())).map(|fitted| fitted.epochs)
    };
    assert_eq!(again(&rows, &options, &saved), Ok(2));
    assert_eq!(again(&rows, &FitOptions { batch: 64, ..options.clone() }, &saved), Err(FitError::OtherTraining));
    assert_eq!(again(&rows.sample(200, 1), &options, &saved), Err(FitError::OtherTraining));
    assert!(matches!(again(&rows, &options, &saved[..saved.len() - 9]), Err(FitError::Model(_))));
}

#[test]
fn contradictions_are_refused() {
    let refused = |head, options: FitOptions| {
        fit(&rows(10), head, &options, None, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string()
    };
    assert!(refused(Head::Direct, options()).contains("direct head"));
    assert!(refused(BOUNDED, FitOptions { batch: 0, ..options() }).contains("batch"));
    assert!(refused(Head::Bounded { upper: 0.0 }, options()).contains("upper"));
    assert!(refused(BOUNDED, FitOptions { hidden: vec![0], ..options() }).contains("layer sizes"));
    let wild = FitOptions { loss: Loss::Mape, schedule: Schedule::Steps(vec![(0, f32::MAX)]), ..options() };
    assert!(refused(Head::Direct, wild).contains("diverged"));
}

/// A product of `rows × 64` by `64 × 32`.
fn sample(gpu: &str, rows: usize, split: Split) -> Sample {
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "inference"}},
        "operations": [{{"name": "aten::linear", "phase": "forward", "inputs": [[{rows}, 64], [32, 64]], "dtype": "float32"}}]}}"#
    );
    let operation = Profile::from_json(json.as_bytes()).unwrap().0.operations.remove(0);
    Sample { operation, gpu: GpuSlug::new(gpu).unwrap(), time: Micros::new(50.0 + rows as f64).unwrap(), split }
}

#[test]
fn habitats_rows_are_kept_apart_by_gpu_and_split() {
    let catalog = Catalog::new(bundled::gpus());
    let mut samples = Vec::new();
    for rows in 1..=200 {
        for gpu in ["t4", "v100-pcie-32gb", "h100-sxm5-80gb", "k40"] {
            samples.push(sample(gpu, rows, Split::Train));
        }
        samples.push(sample("t4", 1000 + rows, Split::Test));
    }
    let left_out = GpuSlug::new("h100-sxm5-80gb").unwrap();
    let options = HabitatOptions {
        layers: 2,
        width: 8,
        epochs: 2,
        leave_out: vec![left_out.clone()],
        ..HabitatOptions::default()
    };
    let prepared = prepare(Kind::Linear, &samples, &catalog, &options).unwrap();
    assert_eq!(prepared.unknown[&GpuSlug::new("k40").unwrap()], 200);
    assert!(!prepared.trained_on.contains_key(&left_out));
    let trained = prepared.trained_on.values().sum::<usize>();
    assert_eq!(trained, prepared.rows.len());
    assert!((330..390).contains(&trained), "{trained}");
    // A configuration is held out on all GPUs or on none.
    let counts: Vec<usize> = prepared.trained_on.values().copied().collect();
    assert_eq!(counts[0], counts[1]);

    let fitted = whole(&prepared.rows, Head::Direct, &options.fit());
    let errors = evaluate(&fitted.network, &prepared).unwrap();
    let found: Vec<_> = errors.iter().map(|row| (row.gpu.as_str(), row.part, row.seen, row.rows)).collect();
    assert_eq!(found[0], ("h100-sxm5-80gb", Part::HeldOut, false, 200));
    assert_eq!(found[1], ("t4", Part::HeldOut, true, 200 - counts[0]));
    assert_eq!(found[2], ("t4", Part::Test, true, 200));

    let bytes = weights(&fitted, &prepared, [].into()).to_bytes().unwrap();
    let bundle = Bundle::from_bytes(&bytes).unwrap();
    let read = Trained::of(&bundle, Kind::Linear).unwrap();
    assert_eq!(read.network, fitted.network);
    assert_eq!((read.lowest[1], read.highest[2]), (64.0, 32.0));
    assert!(Trained::of(&bundle, Kind::Bmm).unwrap_err().to_string().contains("bmm"));

    let few = prepare(Kind::Linear, &samples, &catalog, &HabitatOptions { rows: Some(50), ..options.clone() }).unwrap();
    assert_eq!(few.rows.len(), 50);
    assert!(prepare(Kind::Conv2d, &samples, &catalog, &options).is_err());
}
