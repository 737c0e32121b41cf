mod frameworks;
mod limits;

use std::sync::Arc;

use super::*;
use habitat_base::units::{GpuSlug, Range, Usd, UsdPerHour};
use habitat_planning::plan::{Amount, ByUse, Footprint, Goal, PlanStatus, Total, Work};
use habitat_planning::pricing::{Billing, Offer, OfferId, Snapshot};
use habitat_prediction::Sharding;
use habitat_prediction::scale::ModelParallel;

fn part(provider: &str, region: &str, machine: &str, gpu: &str, tier: Tier) -> Part {
    let hours = Range { low: 10.0, mid: 12.3, high: 30.26 }.map(Hours::known);
    let file = format!(
        "schema = 1\nprovider = \"{provider}\"\n[[offer]]\nregion = \"{region}\"\ninstance_type = \"{machine}\"\n\
         gpu_count = 8\non_demand_usd_per_hour = 10.012345\nspot_usd_per_hour = 10.012345\n\
         scope = \"instance_total\"\nas_of = \"2026-07-20\"\nsource = \"s\""
    );
    let offer = Snapshot::parse(&file).unwrap().offers().next().unwrap();
    Part {
        offer: Arc::new(Offer { id: OfferId::new(provider, region, machine, tier), tier, ..offer }),
        gpu: GpuSlug::new(gpu).unwrap(),
        machines: 1,
        sharding: Sharding::None,
        parallel: ModelParallel::NONE,
        batch_size: Some(32),
        accumulation: 1,
        global_batch_size: Some(256),
        work: Amount::Steps(12_345.0),
        step_time_us: Range { low: 1.0, mid: 2.0, high: 3.0 },
        hours,
        cost: hours.map(|hours| Usd::known(hours.get() * 10.0)),
        billing: Billing::Exact,
        hours_by: ByUse::default(),
        cost_by: ByUse::default(),
        data_cost: Usd::ZERO,
        checkpoint_write: Hours::known(1.0 / 60.0),
        storage: UsdPerHour::ZERO,
        draw: None,
        footprint: Footprint::default(),
        notes: Vec::new(),
    }
}

/// The part on a changed offer.
fn changed(mut part: Part, change: impl FnOnce(&mut Offer)) -> Part {
    change(Arc::make_mut(&mut part.offer));
    part
}

fn plan(parts: Vec<Part>) -> Plan {
    Plan {
        status: PlanStatus::Optimal,
        parts,
        ..Plan::without_parts(Goal::new(Work::Steps(12_345)), Amount::Steps(12_345.0))
    }
}

fn spot() -> Part {
    part("aws", "us-east-1", "p4de.24xlarge", "a100-sxm4-80gb", Tier::Spot)
}

#[test]
fn skypilot_gets_a_task_and_of_several_parts_a_pipeline() {
    let one = texts(&plan(vec![spot()]), "BERT: large\n- x", Launcher::SkyPilot, &Start::default()).unwrap().concat();
    assert_eq!(
        one.replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        r#"# Made by habitat-tui VERSION: part 1 of 1 of the plan for BERT: large�- x.
# aws/us-east-1/p4de.24xlarge/spot, $10.01/h, price of 2026-07-20.
# 12,345 steps of one GPU in 12.3 h (10–30.3 h), $123 ($100–303).
# sky jobs launch FILE   (restarts after the machine is lost)
name: "bert-large-x"
num_nodes: 1
resources:
  infra: "aws/us-east-1"
  instance_type: "p4de.24xlarge"
  accelerators: "A100-80GB:8"
  use_spot: true
  max_hourly_cost: 10.0124
  job_recovery:
    strategy: FAILOVER
run: |
  echo 'put the training command here' >&2
  exit 1
"#
    );
    let second = part("runpod", "US", "8x_H100-SXM_SECURE", "h100-sxm5-80gb", Tier::OnDemand);
    let two = texts(&plan(vec![spot(), second]), "bert", Launcher::SkyPilot, &Start::default()).unwrap();
    assert_eq!(two.len(), 1);
    assert!(two[0].starts_with("# sky jobs launch FILE\nname: \"bert\"\n---\n"), "{}", two[0]);
    assert!(two[0].contains("name: \"bert-2\"") && two[0].contains("\"H100-SXM:8\""), "{}", two[0]);
}

#[test]
fn dstack_gets_a_task_a_part() {
    let texts = texts(&plan(vec![spot(), spot()]), "1", Launcher::Dstack, &Start::default()).unwrap();
    assert_eq!(texts.len(), 2);
    assert_eq!(
        texts[0].replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        r#"# Made by habitat-tui VERSION: part 1 of 2 of the plan for 1.
# aws/us-east-1/p4de.24xlarge/spot, $10.01/h, price of 2026-07-20.
# 12,345 steps of one GPU in 12.3 h (10–30.3 h), $123 ($100–303).
# It needs a fleet with room at aws (dstack fleet list); one for any machine has type: fleet and nodes: 0..4.
# dstack apply -f FILE
type: task
name: "training-1-1"
nodes: 1
resources:
  gpu: "A100:80GB:8"
spot_policy: spot
# Restarts after the machine is lost.
retry:
  on_events: [interruption, no-capacity]
max_price: 10.0124
backends: [aws]
regions: ["us-east-1"]
instance_types: ["p4de.24xlarge"]
# Upper end of the predicted time and 10 %; dstack stops the task then.
max_duration: 1998m
commands:
  - |
    echo 'put the training command here' >&2
    exit 1
"#
    );
}

#[test]
fn slurm_gets_a_script_for_a_partition_or_owned_machines() {
    let rented = plan(vec![spot()]);
    let on = |plan, partition: Option<&str>| {
        let launch = Launch { partition: partition.map(str::to_owned), ..Launch::default() };
        texts(plan, "bert $(rm)", Launcher::Slurm, &Start { launch, ..Start::default() }).map(|texts| texts.concat())
    };
    assert_eq!(
        on(&rented, Some("gpu")).unwrap().replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        r"#!/bin/bash
# Made by habitat-tui VERSION: part 1 of 1 of the plan for bert $(rm).
# aws/us-east-1/p4de.24xlarge/spot, $10.01/h, price of 2026-07-20.
# 12,345 steps of one GPU in 12.3 h (10–30.3 h), $123 ($100–303).
# The plan rents this machine; Slurm needs one like it.
# sbatch FILE
#SBATCH --job-name=bert-rm
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
# a100-sxm4-80gb; if the cluster names its GPUs, use gpu:NAME:8
#SBATCH --gres=gpu:8
# Upper end of the predicted time and 10 %; Slurm stops the job then, and does not requeue it.
#SBATCH --time=1-09:18:00

echo 'put the training command here' >&2
exit 1
"
    );
    assert!(matches!(on(&rented, None), Err(LaunchError::NoPlace { .. })));
    assert!(matches!(on(&rented, Some("gpu\n#SBATCH --x")), Err(LaunchError::Invalid { key: "partition", .. })));
    let owned = plan(vec![changed(spot(), |offer| offer.tier = Tier::Owned)]);
    assert!(!on(&owned, None).unwrap().contains("partition"));
}

/// `SkyPilot` has one name for both boards of lambda, and would take the cheaper one.
#[test]
fn boards_of_one_name_have_their_machine_type() {
    for (gpu, machine) in [("h100-sxm5-80gb", "gpu_1x_h100_sxm5"), ("h100-pcie-80gb", "gpu_1x_h100_pcie")] {
        let one = changed(part("lambda", "all regions", "1x H100", gpu, Tier::OnDemand), |offer| {
            (offer.gpu, offer.gpu_count) = (GpuSlug::new(gpu).ok(), 1);
        });
        let text = texts(&plan(vec![one]), "x", Launcher::SkyPilot, &Start::default()).unwrap().concat();
        assert!(text.contains(&format!("  instance_type: \"{machine}\"\n")), "{text}");
    }
}

#[test]
fn what_a_tool_cannot_rent_is_refused_by_name() {
    let why =
        |part: Part, launcher| texts(&plan(vec![part]), "x", launcher, &Start::default()).unwrap_err().to_string();
    let jarvis = || part("jarvislabs", "IN2", "8x_H100", "h100-sxm5-80gb", Tier::OnDemand);
    assert_eq!(
        why(jarvis(), Launcher::SkyPilot),
        "SkyPilot cannot start jarvislabs/IN2/8x_H100/on-demand: it does not support this provider; --export dstack has it, or plan with --providers aws,azure,do,fluidstack,gcp,hyperbolic,lambda,nebius,oci,paperspace,primeintellect,runpod,vast,verda,yottalabs (or fewer, or the key of a job)"
    );
    let vast = part("vast", "Japan, JP, AS", "8x-H100_NVL", "h100-nvl", Tier::OnDemand);
    assert!(why(vast, Launcher::SkyPilot).contains("is ambiguous at this provider"));
    let old = part("aws", "us-east-1", "p2.xlarge", "k80", Tier::OnDemand);
    assert!(why(old, Launcher::Dstack).contains("does not know this GPU"));
    let reserved = changed(jarvis(), |offer| offer.tier = Tier::Reserved);
    assert!(why(reserved, Launcher::Dstack).contains("reserved, not rented by the hour"));
    assert_eq!(
        texts(&plan(Vec::new()), "x", Launcher::Dstack, &Start::default()),
        Err(LaunchError::NoPlan(String::new()))
    );
}

#[test]
fn names_are_those_that_all_tools_take() {
    let spot = spot();
    let name = |workload, place| {
        Job { place, ..Job::new(&spot, &Goal::new(Work::Steps(1)), workload, &Start::default()) }.name()
    };
    assert_eq!(name("ResNet-50 (v1.5)", (1, 1)), "resnet-50-v1-5");
    assert_eq!(name("50", (2, 2)), "training-50-2");
    assert_eq!(name("…", (1, 1)), "training");
    assert_eq!(name(&"a".repeat(99), (1, 2)).len(), 40);
}

#[test]
fn a_price_limit_is_never_below_the_price() {
    let spot = spot();
    let limit = |price| {
        let part = changed(spot.clone(), |offer| offer.price = UsdPerHour::known(price));
        Job::new(&part, &Goal::new(Work::Steps(1)), "x", &Start::default()).highest_price()
    };
    assert_eq!((limit(1.006), limit(0.508_91), limit(40.0)), (1.006, 0.509, 40.0));
}

/// Two machines with 4 GPUs each, at half the price of one with 8.
#[test]
fn a_job_on_several_machines_says_so_to_every_tool() {
    let half = changed(spot(), |offer| {
        (offer.gpu_count, offer.price, offer.tier) = (4, UsdPerHour::known(5.006_172_5), Tier::OnDemand);
    });
    let several = Part { machines: 2, sharding: Sharding::Zero3, ..half };
    for (launcher, lines) in [
        (Launcher::SkyPilot, ["num_nodes: 2", "accelerators: \"A100-80GB:4\"", "max_hourly_cost: 5.0062"]),
        (Launcher::Dstack, ["nodes: 2", "gpu: \"A100:80GB:4\"", "max_price: 5.0062"]),
        (Launcher::Slurm, ["#SBATCH --nodes=2", "#SBATCH --gres=gpu:4", "#SBATCH --ntasks-per-node=1"]),
    ] {
        let text = texts(&plan(vec![several.clone()]), "gpt", launcher, &on_gpu()).unwrap().concat();
        let own =
            ["# One job on 2 machines with 4 GPUs each: the command runs on every machine.", "# Planned with zero3"];
        for line in lines.into_iter().chain(own) {
            assert!(text.contains(line), "{launcher}: {line}: {text}");
        }
    }
    let at_verda = Part { machines: 2, ..part("verda", "FIN-01", "8V100.48V", "v100-sxm2-16gb", Tier::OnDemand) };
    for launcher in [Launcher::SkyPilot, Launcher::Dstack] {
        let refused = texts(&plan(vec![at_verda.clone()]), "gpt", launcher, &Start::default()).unwrap_err().to_string();
        assert!(
            refused.contains("cannot start a job on several machines of this provider (--max-machines 1"),
            "{refused}"
        );
        let one = Part { machines: 1, ..at_verda.clone() };
        assert!(texts(&plan(vec![one]), "gpt", launcher, &Start::default()).is_ok());
    }
}

/// A part on 2 machines of 8 GPUs: 2 replicas of 4-way tensor parallel and 2 stages of 2 chunks.
fn divided() -> Part {
    Part {
        machines: 2,
        sharding: Sharding::Zero1,
        parallel: ModelParallel { tensor: 4, pipeline: 2, chunks: 2, ..ModelParallel::NONE },
        batch_size: Some(1),
        accumulation: 16,
        global_batch_size: Some(32),
        work: Amount::Samples(habitat_base::units::Samples::known(3200.5)),
        ..spot()
    }
}

fn on_gpu() -> Start {
    Start { launch: Launch { partition: Some("gpu".to_owned()), ..Launch::default() }, ..Start::default() }
}

fn with(command: &str) -> Start {
    let start = on_gpu();
    Start { launch: Launch { command: Some(command.to_owned()), ..start.launch }, ..start }
}

/// The last lines of a text: the command.
fn last(part: Part, launcher: Launcher, start: &Start, lines: usize) -> Vec<String> {
    let text = texts(&plan(vec![part]), "gpt", launcher, start).unwrap().concat();
    let all: Vec<&str> = text.lines().map(str::trim).collect();
    all[all.len() - lines..].iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_python_program_starts_on_every_gpu() {
    let start = with("python3 train.py --lr 1e-4");
    assert_eq!(
        last(spot(), Launcher::Slurm, &start, 1),
        ["srun torchrun --standalone --nproc-per-node=8 train.py --lr 1e-4"]
    );
    assert_eq!(
        last(divided(), Launcher::Slurm, &start, 2),
        [
            r#"head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"#,
            r#"srun torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" --rdzv-endpoint="$head:29500" train.py --lr 1e-4"#,
        ]
    );
    let sky = last(divided(), Launcher::SkyPilot, &start, 2);
    assert!(
        sky[0].starts_with("head=$(echo \"$SKYPILOT_NODE_IPS\"") && sky[1].contains("$SKYPILOT_NODE_RANK"),
        "{sky:?}"
    );
    let dstack = last(divided(), Launcher::Dstack, &start, 1);
    assert!(dstack[0].contains("--nnodes=2 --nproc-per-node=8 --node-rank=\"$DSTACK_NODE_RANK"), "{dstack:?}");
    let one = changed(spot(), |offer| offer.gpu_count = 1);
    assert_eq!(last(one, Launcher::SkyPilot, &start, 1), ["python3 train.py --lr 1e-4"]);
    // With variables, an interpreter of its own, and steps before it; options of Python are not torchrun's.
    let of = |command| last(spot(), Launcher::Slurm, &with(command), 2);
    let python =
        "srun env A=1 B='x' /opt/venv/bin/python -m torch.distributed.run --standalone --nproc-per-node=8 t.py";
    assert_eq!(of("cd /x && A=1 B='x' /opt/venv/bin/python -u t.py"), ["cd /x", python]);
    assert_eq!(of("srun python t.py")[1], "srun torchrun --standalone --nproc-per-node=8 t.py");
    let alone = of("python -c 'import t'");
    assert!(alone[0].contains("a process on each of 8 GPUs") && alone[1] == "srun python -c 'import t'", "{alone:?}");
    assert_eq!(of("A='x y' python t.py")[1], "srun env A='x y' torchrun --standalone --nproc-per-node=8 t.py");
    let piped = "srun torchrun --standalone --nproc-per-node=8 t.py --name 'a|b' 2>&1 | tee log";
    assert_eq!(of("python t.py --name 'a|b' 2>&1 | tee log")[1], piped);
    let other = of("./train | tee log");
    assert!(
        other[0].contains("a process on each of 8 GPUs") && other[1] == "srun bash -c './train | tee log'",
        "{other:?}"
    );
    // Another launcher starts its own processes.
    let own = with("accelerate launch train.py");
    assert_eq!(last(divided(), Launcher::Slurm, &own, 1), ["srun accelerate launch train.py"]);
}

#[test]
fn a_command_of_several_lines_is_refused() {
    for command in ["", "  ", "python a.py\nrm -r /", "python a.py --x \"a b", "echo 'a && b'"] {
        let error = texts(&plan(vec![spot()]), "gpt", Launcher::SkyPilot, &with(command)).unwrap_err();
        assert!(matches!(error, LaunchError::Invalid { key: "command", .. }), "{error}");
    }
}

/// Everything that a job needs to start, as settings have it. The program is in the image of Kubernetes.
fn all(launcher: Launcher) -> Launch {
    let text = r#"
        command = "python train.py"
        setup_command = "pip install -r requirements.txt"
        workdir = "."
        checkpoint_dir = "/checkpoints/run"
        image = "pytorch/pytorch:latest"
        disk_gb = 300
        queue = "lab"
        partition = "gpu"
        env = { LR = "it's \"0.1\"", WANDB_API_KEY = "" }
        mounts = { "/checkpoints" = "kept" }
    "#;
    let all: Launch = toml::from_str(text).unwrap();
    let workdir = if launcher == Launcher::Kubernetes { Some("/workspace".to_owned()) } else { all.workdir.clone() };
    Launch { workdir, ..all }
}

#[test]
fn a_job_gets_its_set_up_folder_variables_and_storage() {
    for (launcher, lines) in [
        (
            Launcher::SkyPilot,
            "workdir: \".\"~  \"LR\": \"it's \\\"0.1\\\"\"~secrets:\n  \"WANDB_API_KEY\": null~  \"/checkpoints\": \"kept\"~  disk_size: 300~  image_id: \"docker:pytorch/pytorch:latest\"~    max_restarts_on_errors: 3~setup: |\n  set -e\n  pip install~  export CHECKPOINT_DIR=/checkpoints/run~# sky jobs launch FILE --secret WANDB_API_KEY",
        ),
        (
            Launcher::Dstack,
            "image: \"pytorch/pytorch:latest\"~shell: bash~  - \".:/workflow\"~  - \"WANDB_API_KEY\"~  - \"kept:/checkpoints\"~  disk: 300GB..~    pip install -r requirements.txt~    mkdir -p \"$CHECKPOINT_DIR\"",
        ),
        (
            Launcher::Slurm,
            "#SBATCH --chdir=.~#SBATCH --requeue~# Slurm mounts nothing: /checkpoints has~export LR='it'\\''s \"0.1\"'~pip install",
        ),
        (
            Launcher::Kubernetes,
            "    kueue.x-k8s.io/queue-name: \"lab\"~  suspend: true~        nvidia.com/gpu.product: \"NVIDIA-A100-SXM4-80GB\"~  backoffLimit: 10~                  key: WANDB_API_KEY~            claimName: \"kept\"~              ephemeral-storage: 300G~              nvidia.com/gpu: 8",
        ),
    ] {
        let start = Start { launch: all(launcher), ..Start::default() };
        let text = texts(&plan(vec![spot()]), "bert", launcher, &start).unwrap().concat();
        for line in lines.split('~') {
            assert!(text.contains(line), "{launcher}: {line}\n{text}");
        }
    }
    let mut bucket = all(Launcher::Kubernetes);
    bucket.mounts = [("/checkpoints".to_owned(), "s3://bucket/x".to_owned())].into();
    let start = Start { launch: bucket, ..Start::default() };
    let sky = texts(&plan(vec![spot()]), "bert", Launcher::SkyPilot, &start).unwrap().concat();
    assert!(sky.contains("    source: \"s3://bucket/x\"\n    mode: MOUNT_CACHED\n"), "{sky}");
    for launcher in [Launcher::Dstack, Launcher::Kubernetes] {
        let refused = texts(&plan(vec![spot()]), "bert", launcher, &start).unwrap_err().to_string();
        assert!(refused.starts_with("invalid --mount \"/checkpoints=s3://bucket/x\": PATH="), "{refused}");
    }
}

/// Spot for 10 hours, until an on-demand machine has to take over.
fn switched() -> Plan {
    let to = changed(spot(), |offer| offer.tier = Tier::OnDemand);
    let switch = Switch { to: to.offer.id.clone(), latest: Hours::known(0.5), is_expected: true };
    let slow = Part { step_time_us: Range { low: 1e6, mid: 1e6, high: 2e6 }, ..to };
    let hours = Range { low: 20.0, mid: 30.0, high: 40.0 }.map(Hours::known);
    let cost = Range { low: Usd::ZERO, mid: Usd::ZERO, high: Usd::ZERO };
    let total = Total { hours, cost, cost_by: ByUse::default(), footprint: Footprint::default() };
    Plan { switch: Some(switch), total: Some(total), ..plan(vec![spot(), slow]) }
}

#[test]
fn a_spot_part_ends_in_time_for_the_next() {
    for launcher in Launcher::ALL {
        let mut start = Start { launch: all(launcher), ..Start::default() };
        if launcher == Launcher::SkyPilot {
            start.launch.mounts = [("/checkpoints".to_owned(), "s3://bucket".to_owned())].into();
        }
        let all = texts(&switched(), "bert", launcher, &start).unwrap();
        let text = all.concat();
        // Half an hour, and two seconds for each update that is done.
        assert_eq!(text.matches("SUBMITTED + 1800 + 10#$updates * 2000000 / 1000000").count(), 1, "{launcher}: {text}");
        let waits = "# It has to end 30 min after its submission, or later by the work done. If no spot machine runs it then, cancel it and start part 2 alone.";
        assert_eq!(text.matches(waits).count(), 1, "{launcher}: {text}");
        // The command in its first lines writes the time.
        let submits = match launcher {
            Launcher::SkyPilot => {
                "# sky jobs launch FILE --secret WANDB_API_KEY --env SUBMITTED=$(date +%s)\n~  \"SUBMITTED\": null\n"
            }
            Launcher::Dstack => "# dstack apply -f FILE -e SUBMITTED=$(date +%s)\n~  - \"SUBMITTED\"\n",
            Launcher::Slurm => "# sbatch --export=ALL,SUBMITTED=$(date +%s) FILE\n",
            Launcher::Kubernetes => {
                "# sed \"s/SUBMISSION_TIME/$(date +%s)/\" FILE | kubectl apply -f -\n~value: \"SUBMISSION_TIME\"\n"
            }
        };
        for line in submits.split('~') {
            assert_eq!(text.matches(line).count(), 1, "{launcher}: {line}\n{text}");
        }
    }
    // Spot ends by the deadline, and the other machine may have to do everything after half an hour; with 10 % each.
    let start = Start { launch: all(Launcher::Slurm), ..Start::default() };
    let [first, last] = &texts(&switched(), "bert", Launcher::Slurm, &start).unwrap()[..] else { panic!() };
    assert!(first.contains("--time=1-20:00:00\n") && last.contains("--time=1-19:27:00\n"), "{first}{last}");
    let launch = Launch { mounts: std::collections::BTreeMap::default(), ..all(Launcher::SkyPilot) };
    let no_mount = Start { launch, ..Start::default() };
    let refused = texts(&switched(), "bert", Launcher::SkyPilot, &no_mount).unwrap_err().to_string();
    assert!(refused.contains("pass --mount /checkpoints/run=s3://BUCKET/PATH"), "{refused}");
    assert!(texts(&switched(), "bert", Launcher::Slurm, &no_mount).is_ok());
}

#[test]
fn only_one_python_program_starts_on_all_gpus() {
    let of = |part: Part, command: &str| texts(&plan(vec![part]), "gpt", Launcher::Slurm, &with(command));
    let one = || changed(spot(), |offer| offer.gpu_count = 1);
    for command in [
        "python train.py && python eval.py",
        "cd x; A=1 srun python train.py && ./eval",
        "python train.py; python eval.py # x",
        "python train.py&&python eval.py",
        "python train.py || python again.py",
        "python data.py | python train.py",
        "python train.py &",
    ] {
        let refused = of(spot(), command).unwrap_err().to_string();
        assert!(refused.contains("Only one Python program") && refused.contains("--setup-command"), "{refused}");
        assert!(of(one(), command).is_ok(), "{command}");
    }
    for command in [
        "mkdir -p x && python train.py --name 'a;b' &> log # all; of it",
        "python train.py --run $(date | cut -c 1-3) --text \\; 2>&1 | tee log",
        "./train; python eval.py",
    ] {
        assert!(of(spot(), command).is_ok(), "{command}");
    }
    for command in ["(cd x && python train.py)", "python train.py # one && two", "python train.py \\"] {
        assert!(matches!(of(one(), command), Err(LaunchError::Invalid { key: "command", .. })), "{command}");
    }
}
