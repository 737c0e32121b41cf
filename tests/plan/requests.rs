//! Forty plain requests, with the shipped prices and the embedded steps: what a plan leads with can be
//! signed. `cargo test --test plan requests -- --nocapture` prints them.

use habitat_tui::catalog::{Catalog, Vendor};
use habitat_tui::plan::{Accept, Goal, Objective, Part, Work, plan};
use habitat_tui::predict::batches::add_shares;
use habitat_tui::predict::{Options, Precision, Predictions, predict};
use habitat_tui::pricing::{Market, PriceBook, PriceIssue, Tier};
use habitat_tui::profile::Sample;
use habitat_tui::report::beside::{status_words, verdict};
use habitat_tui::store::bundled;
use habitat_tui::units::Samples;
use jiff::civil::date;

use crate::build::{hours, usd};

/// The embedded steps, and one of them in another precision.
fn networks() -> Vec<(&'static str, Predictions)> {
    let catalog = Catalog::new(bundled::gpus());
    let all = Sample::ALL.map(|sample| (sample, None));
    let all = all.into_iter().chain([(Sample::ResNet50V100, Some(Precision::AmpBf16))]);
    all.map(|(sample, precision)| {
        let profile = bundled::sample(sample);
        let options = Options { precision, steps_only: true, ..Options::default() };
        let mut predictions = predict(&profile, &catalog, &options).unwrap();
        add_shares(&mut predictions, (sample.name().to_owned(), profile), &catalog, &options);
        (sample.name(), predictions)
    })
    .collect()
}

fn goals() -> Vec<(&'static str, Goal)> {
    let samples = |count: f64| Goal::firm(Work::Samples(Samples::new(count).unwrap()));
    vec![
        ("a million samples, cheapest", samples(1e6)),
        ("20 million within 4 days", Goal { deadline: Some(hours(96.0)), ..samples(2e7) }),
        ("20 million, soonest for $500", Goal { budget: Some(usd(500.0)), objective: Objective::Time, ..samples(2e7) }),
        ("100,000 steps, soonest", Goal { objective: Objective::Time, ..Goal::firm(Work::Steps(100_000)) }),
        ("5 million, in up to 2 parts", Goal { max_parts: 2, deadline: Some(hours(60.0)), ..samples(5e6) }),
    ]
}

#[test]
fn forty_plain_requests_lead_with_what_can_be_signed() {
    let prices = PriceBook::new(bundled::offers()).on(date(2026, 11, 27));
    let (mut asked, mut led, mut named, mut doubted) = (0, 0, 0, 0);
    for (network, predictions) in networks() {
        for (words, goal) in goals() {
            for providers in [&[][..], &["aws", "gcp", "azure", "lambda", "nebius"]] {
                let mut goal = goal.clone();
                goal.limits.providers = providers.iter().map(ToString::to_string).collect();
                let plan = plan(&predictions, &prices, &goal).unwrap();
                asked += 1;
                led += usize::from(!plan.parts.is_empty());
                doubted += usize::from(plan.parts.iter().any(|part| !part.offer.trust.doubts.is_empty()));
                named += plan.beside.len();
                let of = format!("{network}, {words}, of {providers:?}");
                println!("{of}: {:?}", plan.parts.iter().map(|part| part.offer.id.as_str()).collect::<Vec<_>>());
                for part in &plan.parts {
                    assert_eq!(
                        (&part.offer.trust.doubts[..], part.offer.trust.market),
                        (&[][..], Market::Provider),
                        "{of}: {part:?}"
                    );
                    assert_eq!((part.offer.tier, part.offer.as_of.is_some()), (Tier::OnDemand, true), "{of}: {part:?}");
                    assert_eq!(part.global_batch_size, predictions.workload.batch_size, "{of}: {part:?}");
                    let gpu = predictions.predictions.iter().find(|one| one.gpu.slug == part.gpu).unwrap();
                    let is_arm = part.gpu.as_str().starts_with("gh") || part.gpu.as_str().starts_with("gb");
                    assert!(gpu.gpu.vendor == Vendor::Nvidia && !is_arm, "{of}: {part:?}");
                }
                // The gain, and the cost of the work if that fails.
                for one in &plan.beside {
                    println!(
                        "    {:?}: {:.2}, if {:?}: {:?}",
                        one.risks,
                        one.part.cost.mid.get(),
                        one.accept(),
                        one.then
                    );
                    assert!(one.then.is_some() || plan.parts.is_empty(), "{of}: {one:?}");
                    assert!(one.accept().iter().all(|accept| !goal.limits.accept.contains(accept)));
                }
                // There is a plan, or an offer that would do, or nothing does even where everything is accepted.
                if plan.parts.is_empty() && plan.beside.is_empty() {
                    goal.limits.accept = Accept::ALL.to_vec();
                    assert!(habitat_tui::plan::plan(&predictions, &prices, &goal).unwrap().parts.is_empty(), "{of}");
                }
            }
        }
    }
    println!("{asked} requests, {led} with a firm plan, {doubted} at a doubted price, {named} offers beside them");
    assert!(asked == 40 && led >= 30, "{led} of {asked} requests have a firm plan");
}

#[test]
fn forty_requests_that_name_providers_lead_with_a_host_only_where_nothing_else_is_left() {
    let prices = PriceBook::new(bundled::offers()).on(date(2026, 11, 27));
    let named: [&[&str]; 8] = [
        &["runpod"],
        &["salad"],
        &["lium"],
        &["runpod", "salad"],
        &["lambda", "runpod", "salad"],
        &["aws", "vast"],
        &["hyperbolic", "runpod"],
        &["thundercompute", "salad"],
    ];
    let (mut led, mut of_hosts) = (0, 0);
    for (network, predictions) in networks().into_iter().take(1) {
        for (words, goal) in goals() {
            for providers in named {
                let mut goal = goal.clone();
                goal.limits.providers = providers.iter().map(ToString::to_string).collect();
                let chosen = plan(&predictions, &prices, &goal).unwrap();
                let of = format!("{network}, {words}, of {providers:?}");
                let is_host = |part: &Part| part.offer.trust.market == Market::PeerToPeer;
                for part in &chosen.parts {
                    let doubts = part.offer.trust.doubts.iter().filter(|doubt| **doubt != PriceIssue::PeerToPeer);
                    assert_eq!(doubts.count(), 0, "{of}: {part:?}");
                }
                let Some(said) = verdict(&chosen) else { continue };
                led += 1;
                let on_host = chosen.parts.iter().any(is_host);
                assert_eq!(said.contains("a marketplace host"), on_host, "{of}: {said}");
                assert_eq!(status_words(&chosen).contains("firm"), !on_host && goal.max_parts == 1, "{of}");
                if on_host {
                    of_hosts += 1;
                    (goal.deadline, goal.budget, goal.limits.no_marketplace) = (None, None, true);
                    assert!(plan(&predictions, &prices, &goal).unwrap().parts.is_empty(), "{of}: {said}");
                }
            }
        }
    }
    assert!(led >= 25 && of_hosts >= 5, "{led} plans, {of_hosts} with hosts");
}
