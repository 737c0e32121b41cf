//! The single-GPU plan beside `SkyPilot`'s own optimizer, on the same offers with the same step times.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use habitat_tui::catalog::Catalog;
use habitat_tui::plan::{Confidence, Goal, Objective, Work, plan};
use habitat_tui::predict::{Options, predict};
use habitat_tui::pricing::{Offer, PriceBook, Tier};
use habitat_tui::profile::Sample;
use habitat_tui::report::launch::{Launcher, Start, texts};
use habitat_tui::store::bundled;
use habitat_tui::units::Hours;
use serde_json::json;

use super::tests::part;

const STEPS: u64 = 1_000_000;

/// Both pick the same machine, for the lowest cost and for the earliest end. The start of a machine, which `SkyPilot`
/// does not know, is left out of the plan.
pub(crate) fn skypilot_finds_the_same_offer(python: &str) {
    let is_meant = |offer: &Offer| {
        offer.provider == "aws" && offer.region == "us-east-1" && offer.tier == Tier::OnDemand && offer.gpu_count == 1
    };
    let offers: Vec<Offer> = bundled::offers().into_iter().filter(is_meant).collect();
    // A step that fits on every GPU.
    let sample = Sample::ALL.into_iter().find(|sample| sample.name() == "resnet50-v100").unwrap();
    let predictions = predict(&bundled::sample(sample), &Catalog::new(bundled::gpus()), &Options::default()).unwrap();
    let mut goal = Goal::new(Work::Steps(STEPS));
    (goal.assumptions.setup, goal.confidence) = (Hours::ZERO, Confidence::Expected);
    let (mut rows, mut hours) = (Vec::new(), BTreeMap::new());
    for offer in &offers {
        let one = PriceBook::new([offer.clone()]);
        // Steps that do not fit and GPUs without a prediction are in neither.
        let Some(planned) = plan(&predictions, &one, &goal).unwrap().parts.into_iter().next() else { continue };
        let alone = super::tests::plan(vec![part(offer).unwrap()]);
        let Ok(text) = texts(&alone, "x", Launcher::SkyPilot, &Start::default()) else { continue };
        let text = text.concat();
        let gpu = text.split_once("accelerators: \"").unwrap().1.split(':').next().unwrap().to_owned();
        let memory = offer.host_memory.map_or(64.0, |memory| memory.get() / f64::from(1 << 30));
        rows.push(json!([offer.instance_type, gpu, offer.vcpus, memory, offer.price.get(), offer.region]));
        hours.insert(gpu, planned.hours.mid.get());
    }
    assert!(hours.len() >= 5, "{hours:?}");
    let home = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exports/optimize.py");
    let mut optimizer = Command::new(python);
    optimizer.arg(script).env("HOME", home.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut optimizer = optimizer.spawn().unwrap();
    let asked = json!({ "offers": rows, "hours": hours }).to_string();
    optimizer.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
    let said = String::from_utf8(optimizer.wait_with_output().unwrap().stdout).unwrap();
    let found = said.lines().find_map(|line| line.strip_prefix("found ")).unwrap_or_else(|| panic!("{said}"));
    let found: [String; 2] = serde_json::from_str(found).unwrap();
    let book = PriceBook::new(offers);
    for (objective, theirs) in [Objective::Cost, Objective::Time].into_iter().zip(found) {
        let ours = plan(&predictions, &book, &Goal { objective, ..goal.clone() }).unwrap();
        assert_eq!(ours.parts[0].offer.instance_type, theirs, "{objective:?}: {hours:?}");
    }
}
