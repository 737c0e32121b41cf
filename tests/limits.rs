//! Limits of a plan: typed, in the settings, and in price files.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::{Folder, PROFILE};
use serde_json::Value;

const OWN: &str = r#"schema = 1
provider = "lab"
[[offer]]
region = "office"
instance_type = "box"
gpu = "v100-sxm2-16gb"
gpu_count = 1
tier = "owned"
kw = 0.35
usd_per_kwh = 0.20
scope = "instance_total"
source = "meter"
[[offer]]
region = "office"
instance_type = "contract"
gpu = "v100-sxm2-16gb"
gpu_count = 1
tier = "reserved"
paid_usd_per_hour = 1.5
scope = "instance_total"
source = "contract 17"
"#;

const PLAN: [&str; 4] = ["plan", "p.habitat.json", "--samples", "1e9"];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("p.habitat.json", PROFILE);
    folder.write("config/pricing/own.toml", OWN);
    folder
}

fn plan(folder: &Folder, more: &[&str]) -> Value {
    folder.json(&[&PLAN[..], more].concat())
}

fn refused(folder: &Folder, more: &[&str]) -> String {
    folder.error(&[&PLAN[..], more].concat())
}

#[test]
fn own_machines_are_checked_listed_and_planned_with() {
    let folder = folder();
    assert!(folder.ok(&["check", "config/pricing/own.toml"]).contains("price file of lab, 2 offers"));
    folder.write("wrong.toml", &OWN.replace("kw = 0.35\n", ""));
    assert!(folder.error(&["check", "wrong.toml"]).contains("offer 1 (box in office): kw: missing"));

    let listed = folder.ok(&["offers", "lab"]);
    assert!(listed.contains("lab/office/box/owned") && listed.contains("0.35 kW × PUE 1 × $0.2/kWh"), "{listed}");
    assert!(!folder.ok(&["offers", "aws", "--gpu", "t4"]).contains("price breakdown"));
    let offers = folder.json(&["offers", "lab"]);
    assert_eq!(offers["offers"][0]["paid_usd_per_hour"], 1.5);
    assert_eq!(offers["offers"][0]["price_usd_per_hour"], 0.0);

    let own = plan(&folder, &["--tiers", "owned"]);
    let part = &own["parts"][0];
    assert_eq!((part["offer"].as_str(), part["tier"].as_str()), (Some("lab/office/box/owned"), Some("owned")));
    let (hours, cost) = (&part["hours"]["mid"], &part["cost_usd"]["mid"]);
    assert!((cost.as_f64().unwrap() - hours.as_f64().unwrap() * 0.07).abs() < 1e-9, "{part}");
    // A paid contract costs nothing more, and its past cost is reported.
    let paid = plan(&folder, &["--tiers", "reserved,owned"]);
    assert_eq!(paid["parts"][0]["offer"], "lab/office/contract/reserved");
    assert_eq!(paid["parts"][0]["cost_usd"]["mid"], 0.0);
    assert!(paid["parts"][0]["notes"].to_string().contains("$1.5/h already paid, not in the cost"), "{paid}");
}

#[test]
fn names_that_fit_nothing_are_met_with_near_ones() {
    let folder = folder();
    for (typed, said) in [
        (["--regions", "us-esat-1"], "unknown region: \"us-esat-1\" (near: us-east-1"),
        (["--exclude-regions", "frankfrut"], "(near: Frankfurt"),
        (["--exclude-gpus", "h100x"], "h100-sxm5-80gb"),
        (["--offer", "lab/office/bx/owned"], "unknown offer \"lab/office/bx/owned\" (near: lab/office/box/owned"),
        (["--exclude-providers", "aw"], "unknown provider \"aw\" (near: aws"),
        (["--providers", "Amazon"], "unknown provider \"Amazon\" (meant: aws?)"),
        (["--exclude-providers", "google cloud"], "unknown provider \"google cloud\" (meant: gcp?)"),
    ] {
        let error = refused(&folder, &typed);
        assert!(error.contains(said), "{typed:?}: {error}");
    }
    let none = String::from_utf8(folder.run(&["offers", "amazon"]).stderr).unwrap();
    assert!(none.contains("no offer matches \"amazon\" (meant: aws?)"), "{none}");
}

#[test]
fn limits_that_rule_each_other_out_are_named_before_anything_is_solved() {
    let folder = folder();
    for (typed, said) in [
        (&["--deadline", "0"][..], "--deadline 0: leaves no time for any work"),
        (&["--min-gpus", "8", "--max-gpus", "4"], "--min-gpus 8 and --max-gpus 4"),
        (&["--max-gpus", "0"], "--max-gpus 0: every offer has a GPU; pass 1 or more"),
        (
            &["--providers", "aws", "--exclude-providers", "AWS"],
            "--providers and --exclude-providers: both contain aws",
        ),
        (&["--gpus", "l4", "--exclude-gpus", "l4"], "--gpus and --exclude-gpus"),
        (&["--regions", "oregon", "--exclude-regions", "us"], "--regions and --exclude-regions"),
    ] {
        let error = refused(&folder, typed);
        assert!(error.contains(said), "{typed:?}: {error}");
    }
    // With a paid contract, the plan costs nothing.
    assert_eq!(plan(&folder, &["--budget", "0"])["parts"][0]["offer"], "lab/office/contract/reserved");
    folder.write(
        "config/pricing/own.toml",
        OWN.split("[[offer]]\nregion = \"office\"\ninstance_type = \"contract\"").next().unwrap(),
    );
    assert!(refused(&folder, &["--budget", "0"]).contains("--budget 0: no offer is free"));
    assert!(refused(&folder, &["--max-price", "0"]).contains("--max-price 0: no offer is free"));
    // A family without one of its boards and a continent without a country do not contradict each other.
    let some = ["--gpus", "h100", "--exclude-gpus", "h100-nvl", "--regions", "us", "--exclude-regions", "oregon"];
    plan(&folder, &some);
}

/// A foreign file must not take minutes, or all memory.
#[test]
fn lists_that_are_too_long_name_their_limit() {
    let folder = folder();
    let long = "a".repeat(1_000_000);
    let names = |count: usize| (0..count).map(|number| format!("r{number}")).collect::<Vec<_>>();
    let typed = refused(&folder, &["--regions", &names(201).join(",")]);
    assert!(typed.contains("regions: 201 entries; at most 200"), "{typed}");
    folder.ok(&["plan", "p.habitat.json", "--samples", "1e6", "-o", "plan.toml"]);
    let written = std::fs::read_to_string(folder.0.path().join("plan.toml")).unwrap();
    let with = |table: &str, line: &str| {
        folder.write("other.toml", &written.replacen(table, &format!("{table}\n{line}"), 1));
        folder.error(&["plan", "--from", "other.toml"])
    };
    for list in ["gpus", "exclude_gpus", "providers", "exclude_providers", "regions", "exclude_regions", "offers"] {
        let error = with("[goal.limits]", &format!("{list} = {:?}", names(20_000)));
        let said = format!("other.toml: goal.limits.{list}: 20000 entries; at most 200");
        assert!(error.contains(&said), "{list}: {error}");
    }
    let error = with("[goal.limits]", &format!("regions = [\"us\", {long:?}]"));
    assert!(error.contains("goal.limits.regions: entry 2 has 1000000 bytes"), "{error}");
    let quota = vec!["{ provider = \"aws\", gpus = 1 }"; 201].join(", ");
    let error = with("[goal.limits]", &format!("quota = [{quota}]"));
    assert!(error.contains("goal.limits.quota: 201 entries"), "{error}");
    let sizes: Vec<u64> = (1..=2000).collect();
    let error = with("[request]", &format!("batch_sizes = {sizes:?}"));
    assert!(error.contains("other.toml: request.batch_sizes: 2000 sizes; at most 100"), "{error}");
    let error = with("[request]", "batch_sizes = [0]");
    assert!(error.contains("request.batch_sizes: each must be 1 to"), "{error}");
    folder.write("config/config.toml", &format!("[plan]\nregions = {:?}\n", names(201)));
    let error = refused(&folder, &[]);
    assert!(error.contains("config.toml: regions: 201 entries"), "{error}");
    folder.write("config/config.toml", "");
    let job = format!("[[job]]\nname = \"a\"\nprofile = \"p.habitat.json\"\nsteps = 10\ngpus = {:?}\n", names(201));
    folder.write("jobs.toml", &job);
    let error = folder.error(&["plan-jobs", "jobs.toml"]);
    assert!(error.contains("jobs.toml: line 1: job \"a\": gpus: 201 entries"), "{error}");
    let sizes = (1..=101).map(|size| size.to_string()).collect::<Vec<_>>().join(",");
    for command in
        [&["batches", "p.habitat.json", "--at", &sizes][..], &[&PLAN[..], &["--batch-sizes", &sizes]].concat()]
    {
        let error = folder.error(command);
        assert!(error.contains("101") && error.contains("at most 100"), "{error}");
    }
}

#[test]
fn what_is_named_is_all_that_is_used() {
    let folder = folder();
    let used = |more: &[&str]| plan(&folder, more)["parts"][0]["offer"].as_str().unwrap().to_owned();
    assert_eq!(used(&["--offer", "aws/us-east-1/g5.xlarge/spot"]), "aws/us-east-1/g5.xlarge/spot");
    let two = ["--offer", "aws/us-east-1/g5.xlarge/spot", "--offer", "lab/office/box/owned"];
    let both = plan(&folder, &two);
    assert_eq!(both["alternatives"].as_array().unwrap().len(), 1);
    let of_germany = plan(&folder, &["--regions", "de", "--no-marketplace"]);
    let region = of_germany["parts"][0]["region"].as_str().unwrap();
    assert!(["germanywestcentral", "europe-west3", "eu-frankfurt-1"].contains(&region), "{region}");
    assert!(!used(&["--exclude-providers", "lab", "--exclude-regions", "us,ca"]).contains("us-"));
    let host = plan(&folder, &["--min-vcpus", "16", "--min-host-memory", "100GB"]);
    assert_eq!(host["limits"]["min_vcpus"], 16);
    let unknown = |plan: &Value| plan["rejected"].to_string().contains("unknown vCPUs");
    assert!(unknown(&host));
    assert!(!unknown(&plan(&folder, &["--min-vcpus", "16", "--allow-unknown-host"])));
}

#[test]
fn quotas_of_the_settings_hold_and_are_in_the_reason() {
    let folder = folder();
    let quota = |text: &str| folder.write("config/config.toml", text);
    quota(
        "[[plan.quota]]\nprovider = \"aws\"\nregion = \"virginia\"\ngpu = \"t4\"\ntier = \"spot\"\ngpus = 1\n[[plan.quota]]\nprovider = \"lab\"\ngpus = 0\n",
    );
    let plan = plan(&folder, &[]);
    let rejected = plan["rejected"].as_array().unwrap();
    let of = |offer: &str| &rejected.iter().find(|one| one["offer"] == offer).unwrap()["reason"];
    let reason = |offer: &str| of(offer)["text"].as_str().unwrap();
    assert_eq!(of("lab/office/box/owned")["quota"]["provider"], "lab");
    assert_eq!(reason("lab/office/box/owned"), "1 GPUs, more than the quota of 0 at lab");
    assert_eq!(
        reason("aws/us-east-1/g4dn.12xlarge/spot"),
        "4 GPUs, more than the quota of 1 at aws, virginia, t4, spot"
    );
    assert!(!reason("aws/us-east-1/g4dn.12xlarge/on-demand").contains("quota"));
    assert!(refused(&folder, &["--providers", "lab"]).contains("--providers and quota: lab is listed"));
    for (wrong, said) in [
        ("[[plan.quota]]\nprovider = \"awz\"\ngpus = 1\n", "config.toml: unknown provider \"awz\""),
        (
            "[[plan.quota]]\nprovider = \"aws\"\nregion = \"mars\"\ngpus = 1\n",
            "config.toml: unknown region of aws: \"mars\"",
        ),
        ("[[plan.quota]]\nprovider = \"aws\"\ngpu = \"h1000\"\ngpus = 1\n", "config.toml: quota: no GPU"),
        ("[[plan.quota]]\nprovider = \"aws\"\ngpus = -1\n", "gpus"),
    ] {
        quota(wrong);
        let error = refused(&folder, &[]);
        assert!(error.contains(said), "{wrong}: {error}");
    }
}

/// The request is in the plan's file, and read back from it.
#[test]
fn limits_are_kept_in_files_of_plans() {
    let folder = folder();
    folder.write("config/config.toml", "[[plan.quota]]\nprovider = \"aws\"\nregion = \"us\"\ngpus = 4\n");
    let asked = [
        "--regions",
        "us,eu",
        "--exclude-regions",
        "oregon",
        "--exclude-gpus",
        "t4",
        "--min-vcpus",
        "4",
        "--min-host-memory",
        "16GB",
        "--allow-unknown-host",
        "-o",
        "plan.toml",
    ];
    folder.ok(&[&PLAN[..], &asked].concat());
    let read =
        |name: &str| -> toml::Table { std::fs::read_to_string(folder.0.path().join(name)).unwrap().parse().unwrap() };
    let first = read("plan.toml");
    let limits = &first["goal"]["limits"];
    assert_eq!(limits["exclude_gpus"][0].as_str(), Some("t4"));
    assert_eq!(limits["quota"][0]["gpus"].as_integer(), Some(4));
    assert_eq!(limits["min_host_memory_bytes"].as_float(), Some(16.0 * 1_073_741_824.0));
    // The settings are not read again.
    folder.write("config/config.toml", "");
    folder.ok(&["plan", "--from", "plan.toml", "-o", "again.toml"]);
    let again = read("again.toml");
    assert_eq!(again["goal"], first["goal"]);
    assert_eq!(again["part"], first["part"]);
    // A contradiction in the file is reported with the file.
    let text = std::fs::read_to_string(folder.0.path().join("plan.toml")).unwrap();
    folder.write("none.toml", &text.replace("min_gpus = 1", "min_gpus = 8\nmax_gpus = 4"));
    let error = folder.error(&["plan", "--from", "none.toml"]);
    assert!(error.contains("none.toml: --min-gpus 8 and --max-gpus 4"), "{error}");
}

/// A file may state how a provider bills without any offer.
#[test]
fn hours_begun_are_billed_where_the_provider_does_so() {
    let folder = folder();
    let offer = ["--offer", "aws/us-east-1/g5.xlarge/on-demand"];
    let cost = |plan: &Value| {
        let part = &plan["parts"][0];
        let number = |value: &Value| value.as_f64().unwrap();
        (number(&part["cost_usd"]["mid"]), number(&part["hours"]["mid"]), number(&part["price_usd_per_hour"]))
    };
    let exact = plan(&folder, &offer);
    let (usd, hours, price) = cost(&exact);
    assert!((usd - hours * price).abs() < 1e-9 && hours.fract() > 0.01);
    assert_eq!(exact["parts"][0].get("billing"), None);

    folder.write("config/pricing/terms.toml", "schema = 1\nprovider = \"aws\"\nbilling = \"hour\"\n");
    assert!(folder.ok(&["check", "config/pricing/terms.toml"]).contains("price file of aws, 0 offers"));
    let whole = plan(&folder, &offer);
    let (usd, hours, price) = cost(&whole);
    assert!((usd - hours.ceil() * price).abs() < 1e-9, "{whole}");
    assert_eq!(whole["parts"][0]["billing"], "hour");
    assert!(whole["parts"][0]["notes"].to_string().contains("each started hour is billed in full"));

    folder.write("empty.toml", "schema = 1\nprovider = \"aws\"\n");
    assert!(folder.error(&["check", "empty.toml"]).contains("offer: missing"));
    folder.write("day.toml", "schema = 1\nprovider = \"aws\"\nbilling = \"day\"\n");
    assert!(folder.error(&["check", "day.toml"]).contains("billing"));
}

#[test]
fn data_have_a_place_and_leaving_it_a_price() {
    let folder = folder();
    // Copied in no time.
    let data = ["--data-gb", "500", "--data-at", "aws/virginia", "--data-gbit", "1e6"];
    let elsewhere = ["--offer", "lab/office/box/owned"];
    let cost = |plan: &Value| plan["parts"][0]["cost_usd"]["mid"].as_f64().unwrap();
    let free = plan(&folder, &elsewhere);
    let unknown =
        plan(&folder, &[&["--data-gb", "500", "--data-at", "crusoe", "--data-gbit", "1e6"], &elsewhere[..]].concat());
    assert!((cost(&unknown) - cost(&free)).abs() < 1e-5);
    assert!(unknown["parts"][0]["notes"].to_string().contains("unknown, not included"));

    folder.write("config/pricing/terms.toml", "schema = 1\nprovider = \"aws\"\negress_usd_per_gb = 0.1\n");
    let known = plan(&folder, &[&data[..], &elsewhere].concat());
    assert!((cost(&known) - cost(&free) - 50.0).abs() < 1e-5, "{known}");
    assert_eq!((known["parts"][0]["data_cost_usd"].as_f64(), known["data"]["gb"].as_f64()), (Some(50.0), Some(500.0)));
    // At 1 Gbit/s they take 1.1 h more, in which the machine is paid.
    let slower = plan(&folder, &[&data[..4], &elsewhere].concat());
    let part = &slower["parts"][0];
    let hours = |plan: &Value| plan["parts"][0]["hours"]["high"].as_f64().unwrap();
    let copying = 500.0 * 8.0 / 3600.0;
    assert!((hours(&slower) - hours(&free) - copying).abs() < 1e-5, "{slower}");
    assert!((cost(&slower) - cost(&known) - copying * part["price_usd_per_hour"].as_f64().unwrap()).abs() < 1e-5);
    assert!(part["notes"].to_string().contains("data: copying 500 GB takes 1.1 h before the first step"), "{part}");
    let there = plan(&folder, &[&data[..], &["--offer", "aws/us-east-1/g5.xlarge/on-demand"]].concat());
    assert_eq!(there["parts"][0].get("data_cost_usd"), None);

    // Stored at the machine for a month of 730 hours: $0.0365 × 500 GB are $0.025 per hour.
    folder.write("config/pricing/storage.toml", "schema = 1\nprovider = \"lab\"\nstorage_usd_per_gb_month = 0.0365\n");
    let kept = plan(&folder, &[&data[..], &elsewhere].concat());
    let hours = kept["parts"][0]["hours"]["mid"].as_f64().unwrap();
    assert!((kept["parts"][0]["storage_usd_per_hour"].as_f64().unwrap() - 0.025).abs() < 1e-12, "{kept}");
    assert!((cost(&kept) - cost(&known) - 0.025 * hours).abs() < 1e-5, "{kept}");
    let anywhere = plan(&folder, &[&["--data-gb", "500"], &elsewhere[..]].concat());
    assert!((cost(&anywhere) - cost(&free) - 0.025 * hours).abs() < 1e-5, "{anywhere}");
    folder.ok(&[&PLAN[..], &["--data-gb", "500", "-o", "kept.toml"]].concat());
    folder.ok(&["plan", "--from", "kept.toml", "-o", "kept-again.toml"]);

    folder.ok(&[&PLAN[..], &data[..4], &["-o", "plan.toml"]].concat());
    folder.ok(&["plan", "--from", "plan.toml", "-o", "again.toml"]);
    let read =
        |name: &str| -> toml::Table { std::fs::read_to_string(folder.0.path().join(name)).unwrap().parse().unwrap() };
    assert_eq!(read("plan.toml")["goal"]["data"]["region"].as_str(), Some("virginia"));
    assert_eq!(read("again.toml")["goal"], read("plan.toml")["goal"]);
    assert_eq!(read("kept-again.toml")["goal"], read("kept.toml")["goal"]);
    let version = |name: &str| read(name)["plan"]["version"].as_integer();
    assert_eq!((version("plan.toml"), version("kept.toml")), (Some(4), Some(4)));
    let kept = std::fs::read_to_string(folder.0.path().join("kept.toml")).unwrap();
    for (gb, said) in
        [("-500.0", "data of -500 GB"), ("nan", "data of NaN GB"), ("500.0\nregion = \"eu\"", "goal.data.region")]
    {
        folder.write("damaged.toml", &kept.replace("gb = 500.0", &format!("gb = {gb}")));
        let error = folder.error(&["plan", "--from", "damaged.toml"]);
        assert!(error.contains(said), "{gb}: {error}");
    }

    for (typed, said) in [
        (&["--data-at", "aws"][..], "--data-gb"),
        (&["--data-gb", "-5"], "-5"),
        (&["--data-gb", "nan"], "nan"),
        (&["--data-gb", "5", "--data-gbit", "0"], "--data-gbit"),
        (&["--data-gb", "5", "--data-at", "awz"], "unknown provider \"awz\""),
        (&["--data-gb", "5", "--data-at", "aws/mars"], "unknown region of aws: \"mars\""),
    ] {
        let error = refused(&folder, typed);
        assert!(error.contains(said), "{typed:?}: {error}");
    }
    folder.write("wrong.toml", "schema = 1\nprovider = \"aws\"\negress_usd_per_gb = -1\n");
    assert!(folder.error(&["check", "wrong.toml"]).contains("egress_usd_per_gb: -1.0"));
    folder.write("wrong.toml", "schema = 1\nprovider = \"aws\"\nstorage_usd_per_gb_month = nan\n");
    assert!(folder.error(&["check", "wrong.toml"]).contains("storage_usd_per_gb_month: NaN"));
}

#[test]
fn emissions_are_said_limited_and_minimised() {
    let folder = folder();
    let mid = |value: &Value| value["mid"].as_f64().unwrap();
    let own = ["--offer", "lab/office/box/owned"];
    let unknown = plan(&folder, &own);
    let kwh = mid(&unknown["parts"][0]["energy_kwh"]);
    assert!((kwh - 0.35 * mid(&unknown["parts"][0]["hours"])).abs() < 1e-9, "{unknown}");
    assert_eq!((unknown["total"].get("co2_kg"), unknown["parts"][0].get("co2_kg")), (None, None));
    assert!(folder.ok(&[&PLAN[..], &own].concat()).contains("emissions unknown"));
    let refused_offers = folder.run(&[&PLAN[..], &own, &["--max-co2-kg", "1e6", "--json"]].concat());
    assert_eq!(refused_offers.status.code(), Some(1));

    folder.write("config/pricing/grid.toml", "schema = 1\nprovider = \"lab\"\nkg_co2_per_kwh = 0.4\n");
    let known = plan(&folder, &own);
    let kg = mid(&known["total"]["co2_kg"]);
    assert!((kg - 0.4 * kwh).abs() < 1e-9 && (mid(&known["parts"][0]["co2_kg"]) - kg).abs() < 1e-12, "{known}");
    let csv = folder.ok(&[&PLAN[..], &own, &["--csv"]].concat());
    assert!(csv.lines().next().unwrap().ends_with(",energy_kwh,co2_kg"), "{csv}");

    // A shipped region has the average of its state, but the provider's own number takes precedence.
    let virginia = ["--offer", "aws/us-east-1/g5.xlarge/on-demand"];
    let rented = plan(&folder, &virginia);
    assert!(rented["parts"][0]["notes"].to_string().contains("0.2448 kg CO2e/kWh (US-VA, 2023)"), "{rented}");
    let least = plan(&folder, &["--objective", "co2"]);
    assert!(mid(&least["total"]["co2_kg"]) <= mid(&rented["total"]["co2_kg"]));
    assert_ne!(least["parts"][0]["offer"], rented["parts"][0]["offer"]);

    // Kept in the file of a plan, and read back.
    let cap = (mid(&least["total"]["co2_kg"]) * 1.01).to_string();
    let capped = ["--max-co2-kg", &cap, "--max-parts", "2", "-o", "plan.toml"];
    folder.ok(&[&PLAN[..], &capped].concat());
    folder.ok(&["plan", "--from", "plan.toml", "-o", "again.toml"]);
    let read =
        |name: &str| -> toml::Table { std::fs::read_to_string(folder.0.path().join(name)).unwrap().parse().unwrap() };
    let (first, again) = (read("plan.toml"), read("again.toml"));
    assert_eq!((&first["goal"], first["plan"]["version"].as_integer()), (&again["goal"], Some(4)));
    assert!(first["goal"]["limits"]["max_co2_kg"].is_float(), "{first}");
    let emitted = first["totals"]["co2_kg"][1].as_float().unwrap();
    assert!(emitted <= first["goal"]["limits"]["max_co2_kg"].as_float().unwrap() * 1.001, "{emitted}");

    for typed in ["-1", "nan", "much"] {
        assert!(refused(&folder, &["--max-co2-kg", typed]).contains(typed), "{typed}");
    }
    folder.write("config/config.toml", "[plan]\nmax_co2_kg = -1\n");
    assert!(refused(&folder, &[]).contains("max_co2_kg"));
    folder.write("config/config.toml", "[plan]\nmax_co2_kg = 0.001\n");
    let none = folder.run(&PLAN);
    let said = String::from_utf8_lossy(&none.stdout);
    assert!(none.status.code() == Some(1) && said.contains("allow ") && said.contains(" kg CO2e ("), "{said}");
}
