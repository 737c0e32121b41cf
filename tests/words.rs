//! Typed input: dates, amounts, names of GPUs, own machines, and files to write.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::Folder;
use serde_json::Value;

/// Friday 27 November 2026, 19:00 UTC.
const NOW: &str = "1795806000";

fn place() -> Folder {
    Folder::at(NOW)
}

#[test]
fn a_deadline_may_be_a_date() {
    let place = place();
    let plan = |deadline: &str| ["plan", "--steps", "1k", "--deadline", deadline].map(str::to_owned);
    for (deadline, hours) in [("Friday 18:00", 167.0), ("2026-12-04T18:00", 167.0), ("2026-11-28", 29.0), ("24h", 24.0)]
    {
        let args = [&plan(deadline)[..], &["--json".to_owned()]].concat();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let answer: Value = serde_json::from_str(&place.ok(&args)).unwrap();
        assert_eq!(answer["deadline_hours"].as_f64(), Some(hours), "{deadline}");
    }
    let said = place.ok(&["plan", "--steps", "1k", "--deadline", "Friday 18:00"]);
    assert!(said.contains("\nDeadline: Friday 4 December 2026, 18:00 UTC, 7 days from now\n"), "{said}");
    assert!(!place.ok(&["plan", "--steps", "1k", "--deadline", "24h"]).contains("Deadline: "));
    // The spare time before a deadline belongs to the end that must meet it, and the text says so.
    let room = |more: &[&str]| place.ok(&[&["plan", "--steps", "1k", "--deadline", "24h"], more].concat());
    assert!(room(&["--confidence", "high"]).contains("; at least 2"));
    let expected = room(&["--confidence", "expected"]);
    assert!(expected.contains(" before the deadline (expected; high end "), "{expected}");
    let past = place.error(&["plan", "--steps", "1k", "--deadline", "2026-11-20"]);
    assert!(past.contains("the end of Friday 20 November 2026 (UTC), which is in the past"), "{past}");
}

#[test]
fn own_machines_need_no_file() {
    let place = place();
    let owned = ["plan", "--steps", "1k", "--tiers", "owned", "--own"];
    let plan = |machines: &str, more: &[&str]| place.ok(&[&owned[..], &[machines], more].concat());
    let assumed = plan("2x3090", &[]);
    // Both of them, or one, which uses less electricity.
    for machine in ["own/here/2x-rtx-3090/owned", "own/here/1x-rtx-3090/owned"] {
        assert!(assumed.contains(machine) && assumed.contains("$0.16/kWh assumed"), "{assumed}");
    }
    // The answer shows the choice between them, with cost and time of each.
    let choice = assumed.lines().find(|line| line.starts_with("Your own machines: 2 × rtx-3090: $"));
    assert!(choice.is_some_and(|line| line.contains("; 1 × rtx-3090: $")), "{assumed}");
    // Offers rejected for the same reason share it.
    let small = place.ok(&["plan", "--steps", "1k", "--layout", "given", "--own", "4xm60"]);
    let small = small.lines().find(|line| line.starts_with("Your own machines: ")).unwrap_or_else(|| panic!("{small}"));
    assert!(small.contains("4 × m60, 2 × m60, 1 × m60: needs ") && small.matches("needs ").count() == 1, "{small}");
    // The gain of two cards over one is shown, with its range and the flag that selects both; a larger batch is
    // suggested.
    let choice = choice.unwrap();
    assert!(
        choice.contains(" × as fast as 1 (") && choice.contains(" (--offer own/here/2x-rtx-3090/owned)"),
        "{choice}"
    );
    // The flags of each suggestion, instead of those of the work, give it.
    let larger = assumed.lines().find(|line| line.contains(", 4 times fewer updates: 2 × rtx-3090: "));
    let larger = larger.unwrap_or_else(|| panic!("{assumed}"));
    assert!(larger.contains(" × as fast as 1 at batch 32 ("), "{larger}");
    let cost = |line: &str| line.split('$').nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let taken = |flags: &str, work: &[&str]| {
        let flags: Vec<&str> = flags.split(' ').collect();
        let text = place.ok(&[&["plan", "--tiers", "owned", "--own", "2x3090"], work, &flags].concat());
        cost(
            text.lines()
                .find(|line| line.starts_with("Take 2 × rtx-3090 on your own machine: "))
                .unwrap_or_else(|| panic!("{text}")),
        )
    };
    let flags = larger.split_once("with ").and_then(|(_, rest)| rest.split_once(", ")).unwrap().0;
    assert!(flags.starts_with("--steps 250 --global-batch 128 --offer "), "{flags}");
    assert_eq!(taken(flags, &[]), cost(larger), "{larger}");
    let flags = choice.split_once(" (--offer ").and_then(|(_, rest)| rest.split_once(')')).unwrap().0;
    assert_eq!(taken(&format!("--offer {flags}"), &["--steps", "1k"]), cost(choice), "{choice}");
    // Two cards train by data parallelism, which every program can use: no pipeline stages that are barely faster.
    let plan_json: Value = serde_json::from_str(&place.ok(&[&owned[..], &["2x3090", "--json"]].concat())).unwrap();
    let both = plan_json["alternatives"].as_array().unwrap().iter().find(|it| it["gpu_count"] == 2).unwrap();
    assert!(both["pipeline_parallel"].is_null() && both["tensor_parallel"].is_null(), "{both}");
    // An accepted batch need not be used: 16 samples fit, and two batches of them make the recorded 32.
    let cost = |more: &[&str]| {
        let found: Value =
            serde_json::from_str(&place.ok(&[&owned[..], &["2x3090", "--json"], more].concat())).unwrap();
        found["total"]["cost_usd"]["mid"].as_f64().unwrap()
    };
    assert!(cost(&["--accept", "batch"]) <= cost(&[]) * (1.0 + 1e-9));
    let given = plan("2x rtx-3090", &["--usd-per-kwh", "$0.40/kWh"]);
    assert!(given.contains(", $0.4/kWh)") && !given.contains("kWh assumed"), "{given}");
    // Beside a file of own machines, each of which can be selected.
    std::fs::create_dir_all(place.path("config/pricing")).unwrap();
    let file = "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"office\"\ninstance_type = \"box\"\ngpu = \"rtx-4090\"\n\
                gpu_count = 1\ntier = \"owned\"\nkw = 0.5\nusd_per_kwh = 0.01\nscope = \"instance_total\"\nsource = \"meter\"\n";
    std::fs::write(place.path("config/pricing/lab.toml"), file).unwrap();
    let both = plan("2x3090", &[]);
    assert!(both.contains("lab/office/box/owned") && both.contains("own/here/2x-rtx-3090/owned"), "{both}");
    // A plan's file keeps them.
    plan("2x3090", &["--providers", "own", "-o", "plan.toml"]);
    let again = place.ok(&["plan", "--from", "plan.toml"]);
    assert!(again.contains("own/here/2x-rtx-3090/owned"), "{again}");
    let several = place.error(&[&owned[..], &["8xh100"]].concat());
    assert!(several.contains("--own 8xh100-nvl"), "{several}");
}

#[test]
fn a_gpu_that_does_not_exist_has_near_ones() {
    let place = place();
    let error = place.error(&["predict", "--to", "4090ti"]);
    assert!(error.contains("(near: rtx-4090, rtx-4080"), "{error}");
    let several = place.run(&["predict", "--csv", "--to", "a100-80gb"]);
    let said = String::from_utf8_lossy(&several.stderr);
    assert!(said.ends_with("\n--to a100-80gb: matches a100-pcie-80gb, a100-sxm4-80gb\n"), "{said}");
}

#[test]
fn every_document_goes_to_a_file_whole_or_not_at_all() {
    let place = place();
    for (args, file, start) in [
        (&["gpus"][..], "gpus.csv", "slug,"),
        (&["gpus", "--toml", "b200"], "b200.toml", ""),
        (&["offers", "h100"], "offers.json", "{"),
        (&["prices"], "prices.md", "|"),
        (&["schema", "plan"], "schema.json", "{"),
        (&["completions", "bash"], "complete", "_habitat"),
        (&["man"], "habitat.1", ".ie"),
        (&["predict", "--to", "3090"], "predict.json", "{"),
        (&["plan", "--steps", "1k"], "plan.json", "{"),
        (&["plan", "--steps", "1k"], "plan.toml", ""),
        (&["plan", "--steps", "1k", "--frontier"], "frontier.csv", "hours"),
        (&["config"], "config.txt", ""),
    ] {
        let to = [args, &["-o", file]].concat();
        assert_eq!(place.ok(&to), "", "{to:?}");
        let written = std::fs::read_to_string(place.path(file)).unwrap();
        assert!(
            written.len() > 50 && written.trim_start().starts_with(start),
            "{file}: {}",
            written.chars().take(50).collect::<String>()
        );
        let refused = place.error(&to);
        assert!(refused.contains("already exists"), "{refused}");
        assert_eq!(place.ok(&[&to[..], &["--force"]].concat()), "");
    }
    place.error(&["predict", "--to", "4090ti", "-o", "none.json"]);
    assert!(!place.path("none.json").exists());
}

#[test]
fn amounts_and_precisions_are_those_of_people() {
    let place = place();
    let plan = |args: &[&str]| -> Value {
        serde_json::from_str(&place.ok(&[&["plan", "--json", "--samples", "1,000,000"], args].concat())).unwrap()
    };
    assert_eq!(plan(&["--budget", "$1,000"])["budget_usd"].as_f64(), Some(1000.0));
    assert_eq!(plan(&["--budget", "1.5k USD"])["budget_usd"].as_f64(), Some(1500.0));
    for word in ["bf16-mixed", "amp-bf16", "BF16-Mixed"] {
        let answer = place.ok(&["predict", "--to", "h100-nvl", "--precision", word, "--csv"]);
        assert_eq!(answer, place.ok(&["predict", "--to", "h100-nvl", "--precision", "amp-bf16", "--csv"]), "{word}");
    }
    let unknown = place.error(&["predict", "--precision", "int8"]);
    assert!(unknown.contains("amp-bf16") && unknown.contains("fp32"), "{unknown}");
}

#[cfg(unix)]
#[test]
fn a_job_runs_without_two_dashes() {
    let place = place();
    let output = place.run(&["run", "--quiet", "sh", "-c", "echo \"$0 $1\"; exit 3", "-q", "--json"]);
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stdout).trim()),
        (Some(3), "-q --json"),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Remedies only name existing flags.
#[test]
fn every_flag_of_a_reason_exists() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/reports/words");
    let place = place();
    let help = ["plan", "run", "predict"].map(|command| place.ok(&[command, "--help", "all"])).concat();
    let mut flags = 0;
    for file in ["no_plan.rs", "plan.rs", "reason.rs"] {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).unwrap();
        for at in text.match_indices(" --").chain(text.match_indices("(--")).map(|(at, _)| at + 1) {
            let flag: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            assert!(help.contains(&flag), "{file}: {flag}");
            flags += 1;
        }
    }
    assert!(flags > 30, "{flags}");
}
