//! Time to a plan, on synthetic offers from a fixed seed: `cargo bench --bench solve`.

#[path = "../plan/build.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "shared with the tests, which use more of it")]
mod build;

use build::{goal, hours, predicted, predictions};
use divan::{Bencher, black_box};
use habitat_tui::plan::{Goal, Prepared, plan};
use habitat_tui::predict::{AtBatch, Estimate, Predictions};
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier};

fn main() {
    divan::main();
}

/// Numbers of a linear congruential generator (Knuth's MMIX constants), 0 to 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// 40 GPUs, each rented by 10 providers on demand and on spot, with 1 to 8 GPUs: prices
/// follow the speed with a spread of ±50 %.
fn synthetic_market() -> (Predictions, PriceBook) {
    let mut numbers = Numbers(7);
    let rates: Vec<f64> = (0..40).map(|_| 100.0 * 50f64.powf(numbers.next())).collect();
    let mut all =
        predictions(rates.iter().enumerate().map(|(gpu, rate)| predicted(&format!("gpu-{gpu:02}"), *rate, 0.2)));
    all.workload.parameter_count = Some(110_000_000);
    let mut offers = Vec::new();
    for (gpu, rate) in rates.iter().enumerate() {
        for provider in 0..10 {
            let gpu_count = 1 << (numbers.next() * 4.0) as u32;
            let price = rate / 400.0 * f64::from(gpu_count) * (0.5 + numbers.next());
            for (tier, factor) in [(Tier::OnDemand, 1.0), (Tier::Spot, 0.3 + 0.3 * numbers.next())] {
                let name = format!("provider-{provider}");
                let base = build::offer(&format!("gpu-{gpu:02}"), price * factor, tier);
                let id = OfferId::new(&name, &base.region, &base.instance_type, tier);
                offers.push(Offer { id, provider: name, gpu_count, ..base });
            }
        }
    }
    (all, PriceBook::new(offers))
}

fn job(max_parts: u32) -> Goal {
    Goal { deadline: Some(hours(30.0)), ..goal(100_000.0, max_parts) }
}

/// The same with six batches a GPU, each somewhat faster a sample than the one before.
#[divan::bench(args = [1, 2])]
fn plan_800_synthetic_offers_of_6_batches(bencher: Bencher, parts: u32) {
    let ((mut predictions, prices), goal) = (synthetic_market(), job(parts));
    for prediction in &mut predictions.predictions {
        let single = prediction.planning_step();
        prediction.at_batches = (1..6)
            .map(|doublings| AtBatch {
                batch_size: 1 << doublings,
                step: Estimate {
                    range: single.range.map(|time| time * 1.9_f64.powi(doublings)),
                    method: single.method,
                },
                memory: prediction.memory.clone(),
                why: "shapes scaled".to_owned(),
            })
            .collect();
    }
    bencher.bench(|| plan(black_box(&predictions), black_box(&prices), black_box(&goal)));
}

/// The whole call: what a command line pays.
#[divan::bench(args = [1, 2])]
fn plan_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let ((predictions, prices), goal) = (synthetic_market(), job(parts));
    assert!(prices.offers().len() == 800);
    bencher.bench(|| plan(black_box(&predictions), black_box(&prices), black_box(&goal)));
}

/// A new deadline on prepared configurations: what a key press on a slider pays.
#[divan::bench(args = [1, 2])]
fn solve_again_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let prepared = Prepared::new(&predictions, &prices, &job(parts)).expect("the goal is complete");
    let mut deadline = 10.0;
    bencher.bench_local(|| {
        deadline = if deadline > 100.0 { 10.0 } else { deadline * 1.07 };
        prepared.solve(Some(hours(black_box(deadline))), None)
    });
}

/// No plan: the reasons need several solves.
#[divan::bench(args = [1, 2])]
fn explain_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let prepared = Prepared::new(&predictions, &prices, &job(parts)).expect("the goal is complete");
    bencher.bench(|| prepared.solve(Some(hours(0.01)), Some(build::usd(1.0))));
}

#[divan::bench(args = [1, 2])]
fn frontier_800_synthetic_offers(bencher: Bencher, parts: u32) {
    let (predictions, prices) = synthetic_market();
    let prepared = Prepared::new(&predictions, &prices, &job(parts)).expect("the goal is complete");
    bencher.bench(|| prepared.frontier());
}
