use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;

use habitat_tui::catalog::{Catalog, DeviceIdentity};
use habitat_tui::plan::{Amount, ByUse, Footprint, Goal, Part, Plan, PlanStatus, Work};
use habitat_tui::predict::Sharding;
use habitat_tui::predict::scale::ModelParallel;
use habitat_tui::pricing::{Billing, Offer, Tier, region};
use habitat_tui::report::launch::{Launch, LaunchError, Launcher, Start, files, texts};
use habitat_tui::store::bundled;
use habitat_tui::units::{Hours, Range, Usd, UsdPerHour};
use serde_json::{Value, json};

use super::{optimizer, scripts, slurm, stories};
use crate::needs::Need;

trials! {
    always () => [
        stories::four_owned_gpus_and_a_budget,
        stories::a_sweep_of_forty,
        stories::pretrain_then_fine_tune_then_evaluate,
        stories::two_teams_with_quotas,
        stories::no_more_jobs_run_at_once_than_planned,
        stories::a_lab_with_slurm_and_two_4090,
        stories::a_deadline_on_friday,
        scripts::jobs_run_in_their_order, scripts::a_killed_start_goes_on_where_it_stopped, scripts::a_spot_part_ends_and_the_next_goes_on, every_provider_of_the_price_book_is_named_or_refused, labels_of_kubernetes_name_gpus_of_the_catalog],
    when (slurm::installed()) => [slurm::slurm_runs_a_chain_and_a_sweep],
    with (crate::needs::torch()) => [a_slurm_script_starts_ranks_that_meet],
    with (readers()) => [
        every_offer_is_read_or_refused,
        parts_follow_one_another,
        names_from_outside_stay_names,
        everything_that_a_job_needs_is_read,
        jobs_in_a_chain_are_read_as_one_pipeline,
        optimizer::skypilot_finds_the_same_offer,
    ],
}

/// The interpreter with `SkyPilot` and dstack.
fn readers() -> Need<String> {
    let python = std::env::var("HABITAT_TUI_TEST_EXPORTS_PYTHON").ok().filter(|python| !python.is_empty());
    python.ok_or_else(|| "HABITAT_TUI_TEST_EXPORTS_PYTHON names no Python with SkyPilot and dstack".to_owned())
}

/// The tools that rent machines and have a reader.
const TOOLS: [Launcher; 2] = [Launcher::SkyPilot, Launcher::Dstack];

/// A text for a tool, and its offer.
type Text<'a> = (Launcher, String, Option<&'a Offer>);

/// A part with the whole offer for 10 hours.
pub(crate) fn part(offer: &Offer) -> Option<Part> {
    let hours = Range { low: 9.0, mid: 10.0, high: 12.5 }.map(|hours| Hours::new(hours).unwrap());
    Some(Part {
        offer: Arc::new(offer.clone()),
        gpu: offer.gpu.clone()?,
        machines: 1,
        sharding: Sharding::None,
        parallel: ModelParallel::NONE,
        batch_size: None,
        accumulation: 1,
        global_batch_size: None,
        work: Amount::Steps(1000.0),
        step_time_us: Range { low: 1.0, mid: 1.0, high: 1.0 },
        hours,
        cost: hours.map(|hours| Usd::new(hours.get() * offer.price.get()).unwrap()),
        billing: Billing::Exact,
        hours_by: ByUse::default(),
        cost_by: ByUse::default(),
        data_cost: Usd::ZERO,
        checkpoint_write: Hours::known(1.0 / 60.0),
        storage: UsdPerHour::ZERO,
        draw: None,
        footprint: Footprint::default(),
        notes: Vec::new(),
    })
}

pub(crate) fn plan(parts: Vec<Part>) -> Plan {
    Plan {
        status: PlanStatus::Optimal,
        parts,
        ..Plan::without_parts(Goal::new(Work::Steps(1000)), Amount::Steps(1000.0))
    }
}

/// The tools' reading of the texts.
fn read(python: &str, texts: &[Text<'_>]) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/exports/read.py");
    let mut reader = Command::new(python)
        .arg(script)
        // Both create folders in the user's home.
        .env("HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = reader.stdin.take().unwrap();
    let of = |offer: &Offer| {
        json!({
            "region": region::single(&offer.provider, &offer.region).unwrap_or("any"),
            "instance_type": offer.instance_type,
            "vcpus": offer.vcpus,
            "memory": offer.host_memory.map(|memory| memory.get() / f64::from(1 << 30)),
            "price": offer.price.get(),
            "spot": u8::from(offer.tier == Tier::Spot),
        })
    };
    let line = |(tool, text, offer): &Text<'_>| json!([tool.name(), text, offer.map(of)]).to_string();
    let lines: Vec<String> = texts.iter().map(line).collect();
    let lines = lines.join("\n");
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = reader.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), texts.len());
    answers
}

fn is_of(offer: &Offer, gpu: &str) -> bool {
    offer.gpu.as_ref().is_some_and(|slug| slug.as_str() == gpu)
}

fn every_provider_of_the_price_book_is_named_or_refused() {
    let offers = bundled::offers();
    for tool in TOOLS {
        let mut exported: BTreeMap<&str, bool> = BTreeMap::new();
        for (offer, part) in offers.iter().filter_map(|offer| Some((offer, part(offer)?))) {
            let done = exported.entry(&offer.provider).or_default();
            match texts(&plan(vec![part]), "x", tool, &Start::default()) {
                Ok(_) => *done = true,
                Err(LaunchError::Refused { offer: id, reason, .. }) => {
                    assert!(id == offer.id.as_str() && !reason.is_empty());
                    let is_new = ["gb200", "gb300", "mi325x", "mi355x"].iter().any(|gpu| is_of(offer, gpu));
                    assert!(is_new || !reason.contains("its name for this GPU is unknown"), "{tool} {id}");
                }
                Err(other) => panic!("{tool} {}: {other}", offer.id),
            }
        }
        let done: Vec<&str> = exported.iter().filter(|(_, done)| **done).map(|(provider, _)| *provider).collect();
        let expected = match tool {
            Launcher::SkyPilot => {
                "aws azure do fluidstack gcp hyperbolic lambda nebius oci paperspace primeintellect runpod vast verda yottalabs"
            }
            _ => "aws azure crusoe do gcp hotaisle jarvislabs lambda nebius oci runpod vast verda vultr",
        };
        assert_eq!(done.join(" "), expected, "{tool}");
    }
}

fn every_offer_is_read_or_refused(python: &str) {
    let offers = bundled::offers();
    let mut asked = Vec::new();
    for offer in &offers {
        for tool in TOOLS {
            let Some(part) = part(offer) else { continue };
            if let Ok(text) = texts(&plan(vec![part]), "ResNet-50, batch 32", tool, &Start::default()) {
                asked.push((tool, text.concat(), Some(offer)));
            }
        }
    }
    let count = |tool| asked.iter().filter(|(other, ..)| *other == tool).count();
    println!("{} offers: SkyPilot {}, dstack {}", offers.len(), count(TOOLS[0]), count(TOOLS[1]));
    assert!(TOOLS.iter().all(|tool| count(*tool) > offers.len() / 2));
    for ((tool, text, offer), understood) in asked.iter().zip(read(python, &asked)) {
        let offer = offer.unwrap();
        let part = &understood[0];
        let is = |key: &str, expected: Value| assert_eq!(part[key], expected, "{tool} {key}: {understood}\n{text}");
        is("name", json!("resnet-50-batch-32"));
        is("nodes", json!(1));
        let price = part["price"].as_f64().unwrap();
        assert!(price >= offer.price.get() && price < offer.price.get() + 2e-4, "{text}");
        if *tool == Launcher::SkyPilot {
            is("spot", json!(offer.tier == Tier::Spot));
            // A spot machine restarts; others end with their job.
            is("ends", json!(offer.tier != Tier::Spot));
            assert_eq!(part["recovery"]["strategy"] == json!("FAILOVER"), offer.tier == Tier::Spot, "{understood}");
            is("region", json!(region::single(&offer.provider, &offer.region)));
            is("provider", json!(if offer.provider == "yottalabs" { "yotta" } else { &offer.provider }));
            assert_eq!(part["gpu"][1].as_f64(), Some(f64::from(offer.gpu_count)), "{text}");
        } else {
            is("spot", json!(offer.tier.name()));
            is("seconds", json!(825 * 60));
            let memory = offer.gpu_memory.unwrap().get() / (1024.0 * 1024.0 * 1024.0);
            // The memory is the provider's figure, unless dstack has another one for this GPU (179 instead of 180 GB
            // for a B200 at AWS); for a GPU that dstack knows, the filter must match one.
            let list = |key: &str| part[key].as_array().unwrap().len();
            assert!(part["gpu"][1].as_f64() == Some(memory) || list("taken") > 0, "{memory}: {text}");
            assert!(list("known") == 0 || list("taken") > 0, "{text}");
            let count = json!(offer.gpu_count);
            assert!(part["gpu"][2] == count && part["gpu"][3] == count, "{text}");
        }
    }
}

fn parts_follow_one_another(python: &str) {
    let offers = bundled::offers();
    let is = |offer: &Offer, tier| offer.instance_type == "g5.xlarge" && offer.tier == tier;
    let on = |tier| offers.iter().find(|offer| is(offer, tier)).and_then(part).unwrap();
    // Without machine types, which come from catalogs.
    let worded = |mut part: Part| {
        Arc::make_mut(&mut part.offer).instance_type = String::from("4 GPUs");
        part
    };
    let plan = plan(vec![worded(on(Tier::Spot)), worded(on(Tier::OnDemand))]);
    let files =
        |tool| texts(&plan, "bert", tool, &Start::default()).unwrap().into_iter().map(move |text| (tool, text, None));
    let parts = read(python, &TOOLS.into_iter().flat_map(files).collect::<Vec<_>>());
    let parts = parts.iter().flat_map(|answer| answer.as_array().unwrap());
    let names: Vec<&str> = parts.map(|part| part["name"].as_str().unwrap()).collect();
    // One pipeline, and two files.
    assert_eq!(names, ["bert-1", "bert-2"].repeat(2));
}

fn names_from_outside_stay_names(python: &str) {
    let offers = bundled::offers();
    let mut part =
        offers.iter().find(|offer| offer.id.as_str().starts_with("aws/us-east-1/g5.xlarge/")).and_then(part).unwrap();
    Arc::make_mut(&mut part.offer).instance_type = String::from("one GPU");
    Arc::make_mut(&mut part.offer).region = String::from("x:\"y\"\\é'\u{85}\u{2028}#\n-run:z");
    let workloads = ["a\nrun: rm -rf ~\n", "$(rm -rf ~)", "no", "---", "\u{1f680}\u{0}: &a *a"];
    let plan = plan(vec![part]);
    let files = TOOLS
        .map(|tool| workloads.map(|name| (tool, texts(&plan, name, tool, &Start::default()).unwrap().concat(), None)));
    let files = files.concat();
    for ((tool, ..), answer) in files.iter().zip(read(python, &files)) {
        let task = &answer[0];
        let region = if *tool == Launcher::SkyPilot { &task["region"] } else { &task["region"][0] };
        assert_eq!(region.as_str(), Some(plan.parts[0].offer.region.as_str()), "{tool}: {answer}");
        assert!(!task["run"].to_string().contains("rm -rf"), "{answer}");
    }
}

/// The driver's names, with dashes for spaces, match the catalog.
fn labels_of_kubernetes_name_gpus_of_the_catalog() {
    let catalog = Catalog::new(bundled::gpus());
    let queue = Launch { queue: Some("lab".to_owned()), ..Launch::default() };
    let start = Start { launch: queue, ..Start::default() };
    let offer = bundled::offers().into_iter().find(|offer| offer.gpu.is_some()).unwrap();
    let mut labels = 0;
    for gpu in catalog.iter() {
        let part = part(&Offer { gpu: Some(gpu.slug.clone()), ..offer.clone() }).unwrap();
        let text = texts(&plan(vec![part]), "x", Launcher::Kubernetes, &start).unwrap().concat();
        let Some((_, rest)) = text.split_once("nvidia.com/gpu.product: \"") else { continue };
        let label = rest.split('"').next().unwrap();
        labels += 1;
        let identity = DeviceIdentity { name: label.replace('-', " "), ..DeviceIdentity::default() };
        let alike = catalog.alike(&identity);
        assert!(alike.iter().any(|found| found.slug == gpu.slug), "{label}: {alike:?}");
    }
    assert!(labels > 50, "{labels}");
}

/// Set-up, folder, variables, secrets, image, disk and storage, in each tool's form.
fn everything_that_a_job_needs_is_read(python: &str) {
    let offers = bundled::offers();
    let offer = offers.iter().find(|offer| offer.instance_type == "g5.xlarge" && offer.tier == Tier::Spot).unwrap();
    let launch = |mount: &str| -> Launch {
        toml::from_str(&format!(
            "command = \"python train.py --name 'a b' \\\"$LR\\\"\"\nsetup_command = \"pip install x\"\nworkdir = \".\"\n\
             checkpoint_dir = \"/checkpoints/run\"\nimage = \"pytorch/pytorch:latest\"\ndisk_gb = 300\nqueue = \"lab\"\n\
             env = {{ LR = \"it's: 0.1\", TOKEN = \"\" }}\nmounts = {{ \"/checkpoints\" = \"{mount}\" }}"
        ))
        .unwrap()
    };
    let one = part(offer).unwrap();
    let two = Part { machines: 2, ..one.clone() };
    let text = |tool, mount: &str, part: &Part| {
        let mut start = Start { launch: launch(mount), ..Start::default() };
        if tool == Launcher::Kubernetes {
            start.launch.workdir = Some("/workspace".to_owned());
        }
        (tool, texts(&plan(vec![part.clone()]), "bert", tool, &start).unwrap().concat(), Some(offer))
    };
    let asked = [
        text(Launcher::SkyPilot, "/home/me/kept", &one),
        text(Launcher::Dstack, "kept", &one),
        text(Launcher::Kubernetes, "kept", &one),
        text(Launcher::Kubernetes, "kept", &two),
    ];
    let answers = read(python, &asked);
    for ((tool, text, _), answer) in asked.iter().zip(&answers) {
        let part = &answer[0];
        let is = |key: &str, expected: Value| assert_eq!(part[key], expected, "{tool} {key}: {answer}\n{text}");
        let run = part["run"].as_str().unwrap();
        let line = if part["nodes"] == 2 { "torchrun --nnodes=2 --nproc-per-node=1" } else { "python train.py" };
        assert!(run.contains(line) && run.contains(r#" --name 'a b' "$LR""#), "{run}");
        assert!(run.contains("export CHECKPOINT_DIR=/checkpoints/run\n"), "{run}");
        assert_eq!(part["env"]["LR"], "it's: 0.1", "{answer}");
        is("image", json!("pytorch/pytorch:latest"));
        match tool {
            Launcher::SkyPilot => {
                is("machine", json!("g5.xlarge"));
                is("disk", json!(300));
                is("workdir", json!("."));
                is("mounts", json!({ "/checkpoints": "/home/me/kept" }));
                is("recovery", json!({ "strategy": "FAILOVER", "max_restarts_on_errors": 3 }));
            }
            Launcher::Dstack => {
                is("machine", json!(["g5.xlarge"]));
                is("disk", json!(300.0));
                is("workdir", json!([[".", "/workflow"]]));
                is("mounts", json!([["kept", "/checkpoints"]]));
                assert_eq!(part["env"].get("TOKEN"), Some(&Value::Null), "{answer}");
            }
            _ => {
                is("gpu", json!(["nvidia.com/gpu", 1]));
                is("product", json!("NVIDIA-A10G"));
                is("queue", json!("lab"));
                is("mounts", json!(["kept"]));
                is("seconds", json!(825 * 60));
            }
        }
    }
    assert_eq!(answers[3][0]["nodes"], json!(2));
}

/// A chain of three jobs as a `SkyPilot` pipeline, with copies beside it.
fn jobs_in_a_chain_are_read_as_one_pipeline(python: &str) {
    let (plan, starts) = scripts::chain_and_copies();
    let all = files(&plan, &starts, Launcher::SkyPilot).unwrap().0;
    let names: Vec<&str> = all.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["pretrain.sky.yaml", "sweep.sky.yaml", "start.sh"]);
    let offer = &plan.jobs[0].part.offer;
    let texts: Vec<Text<'_>> =
        all[..2].iter().map(|file| (Launcher::SkyPilot, file.text.clone(), Some(&**offer))).collect();
    let answers = read(python, &texts);
    let parts: Vec<_> = answers[0].as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(parts, ["pretrain", "fine-tune", "evaluate"], "{answers:?}");
    assert_eq!(answers[1][0]["env"]["COPY"], "1", "{answers:?}");
    assert_eq!(answers[1][0]["recovery"]["strategy"], "FAILOVER", "{answers:?}");
}

/// Prints the sum of the ranks, once for each rank.
const ADDS_RANKS: &str = "import os, torch, torch.distributed as all
all.init_process_group('gloo')
rank = torch.tensor([float(all.get_rank())])
all.all_reduce(rank)
os.write(1, f'sum {int(rank)} of {all.get_world_size()}\\n'.encode())
all.destroy_process_group()
";

/// The Slurm script of a part with 2 GPUs runs its program on 2 connected ranks, with `srun` and `scontrol` of one
/// machine.
fn a_slurm_script_starts_ranks_that_meet(pytorch: &str) {
    let dir = tempfile::tempdir().unwrap();
    let offer = bundled::offers().into_iter().find(|offer| offer.gpu.is_some()).unwrap();
    let two = part(&Offer { gpu_count: 2, ..offer }).unwrap();
    let (train, script) = (dir.path().join("train.py"), dir.path().join("plan.sbatch"));
    std::fs::write(&train, ADDS_RANKS).unwrap();
    for (name, text) in [("srun", "#!/bin/sh\nexec \"$@\"\n"), ("scontrol", "#!/bin/sh\necho localhost\n")] {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let bin = std::path::Path::new(pytorch).parent().unwrap();
    let path = format!("{}:{}:{}", dir.path().display(), bin.display(), std::env::var("PATH").unwrap());
    // One machine, and the first of several.
    for machines in [1, 2] {
        let command = format!("python {}", train.display());
        let launch = Launch { partition: Some("gpu".to_owned()), command: Some(command.clone()), ..Launch::default() };
        let start = Start { launch, ..Start::default() };
        let plan = plan(vec![Part { machines, ..two.clone() }]);
        let text = texts(&plan, "ranks", Launcher::Slurm, &start).unwrap().concat();
        std::fs::write(&script, text.replace("--nnodes=2", "--nnodes=1")).unwrap();
        let out = Command::new("bash").arg(&script).env("PATH", &path).env("SLURM_JOB_ID", "7").output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        assert_eq!(said.matches("sum 1 of 2").count(), 2, "{said}{}", String::from_utf8_lossy(&out.stderr));
    }
}
