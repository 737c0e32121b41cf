//! Limits that cluster and cloud tools get: time, copies at once, shares of a machine, storage and network.

use super::*;
use habitat_planning::plan::jobs::{Aim, JobsPlan, PlannedJob, Shared, Turn};
use habitat_planning::plan::{Confidence, SolverReport};
use habitat_planning::pricing::ShareOf;

fn own(gpus: u32, of: u32) -> Part {
    changed(spot(), |offer| {
        let machine = OfferId::new("own", "here", "box", Tier::Owned);
        (offer.tier, offer.gpu_count) = (Tier::Owned, gpus);
        offer.share_of = (gpus < of).then_some(ShareOf { machine, gpus: of });
    })
}

fn text(part: Part, launcher: Launcher, launch: &str) -> Result<String, LaunchError> {
    let start = Start { launch: toml::from_str(launch).unwrap(), ..Start::default() };
    texts(&plan(vec![part]), "bert", launcher, &start).map(|texts| texts.concat())
}

/// A job of ten hours that starts at an hour, and the number of a copy.
fn planned(name: &str, start: f64, part: &Part, copy: Option<u64>) -> (PlannedJob, JobStart) {
    let at = |hours| Range { low: hours, mid: hours, high: hours }.map(Hours::known);
    let job = PlannedJob {
        name: name.to_owned(),
        machine: None,
        part: Part { hours: at(10.0), ..part.clone() },
        earliest: Hours::ZERO,
        after: Vec::new(),
        turn: Turn::default(),
        priority: 1.0,
        soft_deadlines: Vec::new(),
        hour_value: None,
        start: at(start),
        end: at(start + 10.0),
        deadline: None,
        goal: Goal::new(Work::Steps(1000)),
        notes: Vec::new(),
    };
    (job, JobStart { name: name.to_owned(), copy, start: on_gpu() })
}

fn exported(
    jobs: Vec<(PlannedJob, JobStart)>,
    launcher: Launcher,
) -> Result<(Vec<LaunchFile>, Vec<String>), LaunchError> {
    let (jobs, starts): (Vec<PlannedJob>, Vec<JobStart>) = jobs.into_iter().unzip();
    let plan = JobsPlan {
        status: PlanStatus::Optimal,
        aim: Aim::Cost,
        jobs,
        time_cost: None,
        total: None,
        bound: None,
        reasons: Vec::new(),
        shared: Shared {
            deadline: None,
            budget: None,
            max_price: None,
            quotas: Vec::new(),
            wait: true,
            confidence: Confidence::High,
            late_price: None,
            hour_value: None,
        },
        solver: SolverReport { name: String::new(), offers: 0, configurations: 0, gap: None },
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    files(&plan, &starts, launcher)
}

fn written(jobs: Vec<(PlannedJob, JobStart)>, launcher: Launcher) -> Vec<LaunchFile> {
    exported(jobs, launcher).unwrap().0
}

/// Copies that start at these hours.
fn copies(starts: &[f64], launcher: Launcher) -> String {
    let jobs = (1..).zip(starts).map(|(number, start)| planned("sweep", *start, &own(1, 2), Some(number)));
    written(jobs.collect(), launcher).swap_remove(0).text
}

#[test]
fn copies_of_another_layout_or_on_several_machines_are_jobs_of_their_own() {
    let of = |part: &Part, copy| planned("sweep", 0.0, part, Some(copy));
    let other = Part { accumulation: 4, ..own(1, 2) };
    let files = written(vec![of(&own(1, 2), 1), of(&own(1, 2), 2), of(&other, 3)], Launcher::Kubernetes);
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["sweep.k8s.yaml", "sweep-part2.k8s.yaml", "start.sh"]);
    // Kubernetes knows a job by this name.
    for (file, name) in files.iter().zip(["sweep", "sweep-part2"]) {
        assert!(file.text.contains(&format!("metadata:\n  name: \"{name}\"\n")), "{}", file.text);
    }
    let joined = Part { machines: 2, ..own(8, 8) };
    let mut set = vec![of(&joined, 1), of(&joined, 2)];
    for (_, start) in &mut set {
        start.start.launch = toml::from_str("command = \"python a.py\"\nimage = \"b\"").unwrap();
    }
    let set = written(set, Launcher::Kubernetes);
    assert!(set[1].text.contains("completions: 2\n") && set[1].text.contains("export COPY=2\n"), "{}", set[1].text);
}

#[test]
fn no_two_runs_have_one_name() {
    let jobs = vec![
        planned("a", 0.0, &own(1, 2), Some(1)),
        planned("a", 0.0, &own(1, 2), Some(2)),
        planned("a-1", 0.0, &own(1, 2), None),
    ];
    let names: Vec<String> = written(jobs, Launcher::Slurm).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["a.sbatch", "a-1-part2.sbatch", "start.sh"]);
}

#[test]
fn jobs_do_not_wait_for_a_chain_that_arrives_later() {
    let rented = || {
        let [(mut first, a), (mut second, b)] = ["a", "b"].map(|name| planned(name, 0.0, &spot(), None));
        first.turn.not_before = Hours::known(2.0);
        second.after = vec![0];
        vec![(first, a), (second, b), planned("c", 0.0, &spot(), None)]
    };
    let script = written(rented(), Launcher::SkyPilot).pop().unwrap().text;
    assert!(script.contains("job a 'after 7200 && launch a sky jobs launch -y -d -n a a.sky.yaml' &\n"), "{script}");
    // A job of a chain that arrives later is started by the script.
    let mut late = rented();
    late[1].0.turn.not_before = Hours::known(3.0);
    let names: Vec<String> = written(late, Launcher::SkyPilot).into_iter().map(|file| file.name).collect();
    assert!(names.contains(&"b.sky.yaml".to_owned()), "{names:?}");
}

/// A job that takes the places of others.
fn taking(ends: &[usize], (job, start): (PlannedJob, JobStart)) -> (PlannedJob, JobStart) {
    (PlannedJob { turn: Turn { ends: ends.iter().copied().collect(), ..Turn::default() }, ..job }, start)
}

/// The script that starts jobs.
fn started(jobs: Vec<(PlannedJob, JobStart)>, launcher: Launcher) -> String {
    written(jobs, launcher).pop().unwrap().text
}

#[test]
fn a_job_waits_for_the_end_of_those_whose_place_it_takes() {
    let jobs = || {
        let mut c = taking(&[0], planned("c", 10.0, &spot(), None));
        c.0.turn.not_before = Hours::known(8.0);
        let b = taking(&[1], planned("b", 20.0, &spot(), None));
        vec![planned("a", 0.0, &spot(), None), c, b]
    };
    let says = "# Shared limits hold: a job waits for the ends of those whose place it takes in the plan.\n";
    for (launcher, lines) in [
        (
            Launcher::Slurm,
            "submit 1 c --begin=now+480minutes --dependency=afterany:${job[0]} --kill-on-invalid-dep=yes c.sbatch\n~submit 2 b --dependency=afterany:${job[1]} --kill-on-invalid-dep=yes b.sbatch\n",
        ),
        // The script waits for the end of a job that others wait for.
        (
            Launcher::SkyPilot,
            "job a 'launch a sky jobs launch -y -d -n a a.sky.yaml && finish a' &\n~job c 'after 28800 && ends a && launch c sky jobs launch -y -d -n c c.sky.yaml && finish c' &\n~job b 'ends c && launch b sky jobs launch -y -d -n b b.sky.yaml' &\n",
        ),
        (Launcher::Dstack, "job b 'ends c && launch b dstack apply -y -d -n b -f b.dstack.yml' &\n"),
        (Launcher::Kubernetes, "ends a && launch c.k8s.yaml && finish job/c' &\n"),
    ] {
        let mut jobs = jobs();
        for (_, start) in &mut jobs {
            start.start.launch.queue = Some("lab".to_owned());
        }
        let script = started(jobs, launcher);
        for line in lines.split('~').chain([says]) {
            assert!(script.contains(line), "{launcher}: {line}\n{script}");
        }
    }
    // One that waits for a job to end well takes its place anyway.
    let (mut next, start) = taking(&[0], planned("b", 10.0, &own(1, 2), None));
    next.after = vec![0];
    let script = started(vec![planned("a", 0.0, &own(1, 2), None), (next, start)], Launcher::Slurm);
    assert!(script.contains("--dependency=afterok:${job[0]} --kill-on-invalid-dep=yes b.sbatch\n"), "{script}");
}

/// Two copies at once; another job takes the place of the first, before the third copy.
#[test]
fn copies_whose_places_others_take_start_one_by_one() {
    let jobs = || {
        let copy = |number: u64, start| planned("sweep", start, &own(1, 4), Some(number));
        let other = taking(&[0], planned("other", 10.0, &own(2, 4), None));
        vec![copy(1, 0.0), copy(2, 0.0), other, taking(&[1], copy(3, 10.0)), taking(&[3], copy(4, 20.0))]
    };
    let script = started(jobs(), Launcher::Slurm);
    for line in [
        "submit 0 sweep-1 --array=1 sweep.sbatch\n",
        "submit 1 sweep-2 --array=2 sweep.sbatch\n",
        "submit 2 other --dependency=afterany:${job[0]} --kill-on-invalid-dep=yes other.sbatch\n",
        "submit 3 sweep-3 --array=3 --dependency=afterany:${job[1]} --kill-on-invalid-dep=yes sweep.sbatch\n",
    ] {
        assert!(script.contains(line), "{line}\n{script}");
    }
    let files = written(jobs(), Launcher::Kubernetes);
    assert_eq!(files.iter().filter(|file| file.text.contains("completions: 1\n")).count(), 4, "{files:?}");
    assert!(files[5].text.contains("'ends sweep && launch other.k8s.yaml"), "{}", files[5].text);
}

#[test]
fn a_tool_starts_what_it_can_and_names_the_rest() {
    let rented = || part("runpod", "US", "8x_H100-SXM_SECURE", "h100-sxm5-80gb", Tier::OnDemand);
    let jobs = || vec![planned("y", 0.0, &own(1, 2), Some(1)), planned("y", 0.0, &rented(), Some(2))];
    for (launcher, file, left) in [
        (
            Launcher::SkyPilot,
            "y-part2.sky.yaml",
            "the machine is owned, not rented by the hour; --export slurm and --export kubernetes start jobs on machines that you have",
        ),
        (
            Launcher::Slurm,
            "y.sbatch",
            "the machine is rented, and others of the plan are your own; --export skypilot or --export dstack starts it",
        ),
    ] {
        let (files, all) = exported(jobs(), launcher).unwrap();
        assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), [file, "start.sh"]);
        let [one] = &all[..] else { panic!("{all:?}") };
        assert!(one.starts_with("not started: y: ") && one.ends_with(left), "{one}");
        assert!(files[1].text.contains(&format!("# {one}\n")), "{}", files[1].text);
    }
    // One that waits for a job of another tool is refused.
    let (mut next, start) = planned("z", 10.0, &rented(), None);
    next.after = vec![0];
    let refused = exported(vec![planned("y", 0.0, &own(1, 2), None), (next, start)], Launcher::SkyPilot);
    let why = refused.unwrap_err().to_string();
    assert!(
        why.starts_with("SkyPilot cannot start z: it waits for y, which SkyPilot cannot start; plan both"),
        "{why}"
    );
    // Without own machines, the cluster is one with the planned GPUs, and the file says so.
    let script = written(vec![planned("z", 0.0, &rented(), None)], Launcher::Slurm).swap_remove(0).text;
    assert!(script.contains("# The plan rents this machine; Slurm needs one like it.\n"), "{script}");
}

#[test]
fn as_many_copies_run_at_once_as_in_the_plan() {
    for (starts, at_once) in [([0.0, 10.0, 20.0], 1), ([0.0, 0.0, 10.0], 2), ([0.0, 4.0, 8.0], 3)] {
        let manifest = copies(&starts, Launcher::Kubernetes);
        assert!(manifest.contains(&format!("completions: 3\n  parallelism: {at_once}\n")), "{manifest}");
        // The time of as many copies as run one after another.
        let deadline = format!("\n  activeDeadlineSeconds: {}\n", 39_600 * 3_usize.div_ceil(at_once));
        assert!(manifest.matches("activeDeadlineSeconds").count() == 1 && manifest.contains(&deadline), "{manifest}");
        let script = copies(&starts, Launcher::Slurm);
        let array = if at_once < 3 { format!("--array=1-3%{at_once}\n") } else { "--array=1-3\n".to_owned() };
        assert!(script.contains(&array), "{script}");
    }
}

#[test]
fn a_slurm_job_takes_a_whole_machine_only_for_all_its_gpus() {
    for (part, is_whole) in [(own(8, 8), true), (own(4, 8), false), (own(1, 1), false)] {
        let script = text(part, Launcher::Slurm, "").unwrap();
        assert_eq!(script.contains("--exclusive\n#SBATCH --mem=0\n"), is_whole, "{script}");
        assert!(is_whole || !(script.contains("--exclusive") || script.contains("--mem=")), "{script}");
        assert_eq!(script.contains("# Other jobs may use the rest of the machine."), !is_whole, "{script}");
    }
    let script = text(own(4, 8), Launcher::Slurm, "cpus = 8\nmemory_gb = 64").unwrap();
    assert!(script.contains("--cpus-per-task=8\n#SBATCH --mem=64G\n") && !script.contains("Other jobs"), "{script}");
}

#[test]
fn skypilot_joins_machines_by_the_fast_network_of_a_provider_that_has_one() {
    let nebius =
        |gpu, count| changed(part("nebius", "eu-north1", "", gpu, Tier::OnDemand), |offer| offer.gpu_count = count);
    for (part, machines, is_fast) in [
        (spot(), 2, true),
        (spot(), 1, false),
        (nebius("h200-sxm-141gb", 8), 2, true),
        (nebius("h200-sxm-141gb", 1), 2, false),
        (nebius("l40s", 8), 2, false),
        (part("gcp", "us-central1", "a2-ultragpu-8g", "a100-sxm4-80gb", Tier::OnDemand), 2, false),
    ] {
        let task = text(Part { machines, ..part }, Launcher::SkyPilot, "").unwrap();
        assert_eq!(task.contains("  network_tier: best\n"), is_fast, "{task}");
    }
}

#[test]
fn a_bucket_is_refused_at_providers_that_cannot_mount_it() {
    let launch = "command = \"python a.py\"\ncheckpoint_dir = \"/c/run\"\nmounts = { \"/c\" = \"s3://b\" }";
    for (provider, machine, gpu) in
        [("runpod", "8x_H100-SXM", "h100-sxm5-80gb"), ("verda", "8V100.48V", "v100-sxm2-16gb")]
    {
        let part = part(provider, "FIN-01", machine, gpu, Tier::OnDemand);
        let why = text(part.clone(), Launcher::SkyPilot, launch).unwrap_err().to_string();
        assert!(why.starts_with(&format!("SkyPilot cannot start {provider}/")), "{why}");
        assert!(why.contains("(--mount /c=s3://b)") && why.contains("--providers"), "{why}");
        // Copies do not count as mounts.
        let data = "command = \"python a.py\"\nmounts = { \"/data\" = \"s3://b\" }";
        assert!(text(part, Launcher::SkyPilot, data).is_ok());
    }
}

#[test]
fn kubernetes_gets_a_folder_of_the_image_and_a_secret_that_exists() {
    let launch = "command = \"python a.py\"\nimage = \"x\"\nenv = { KEY = \"\", LR = \"1\", TOKEN = \"\" }";
    let refused = text(own(1, 1), Launcher::Kubernetes, &format!("workdir = \".\"\n{launch}")).unwrap_err().to_string();
    assert!(refused.starts_with("invalid --workdir \".\": expected a folder of the image"), "{refused}");
    let manifest = text(own(1, 1), Launcher::Kubernetes, &format!("workdir = \"/app\"\n{launch}")).unwrap();
    assert!(manifest.contains("workingDir: \"/app\"\n"), "{manifest}");
    let head = manifest.split_once("apiVersion").unwrap().0;
    let create = "kubectl create secret generic bert-env --from-literal=KEY=\"$KEY\" --from-literal=TOKEN=\"$TOKEN\"\n";
    assert!(head.contains(create), "{manifest}");
}

#[test]
fn a_file_warns_of_checkpoints_that_end_with_the_machine() {
    let launch =
        "command = \"python a.py\"\npartition = \"gpu\"\nqueue = \"lab\"\nimage = \"x\"\ncheckpoint_dir = \"/c\"";
    for (launcher, source) in [
        (Launcher::SkyPilot, Some("s3://BUCKET/PATH")),
        (Launcher::Dstack, Some("VOLUME")),
        (Launcher::Kubernetes, Some("CLAIM")),
        (Launcher::Slurm, None),
    ] {
        let file = text(spot(), launcher, launch).unwrap();
        let remedy = source.map(|source| format!("--mount /c={source} keeps them."));
        assert_eq!(file.contains("# /c ends with the machine"), source.is_some(), "{file}");
        assert!(remedy.is_none_or(|remedy| file.contains(&remedy)), "{file}");
    }
    let kept = format!("{launch}\nmounts = {{ \"/c\" = \"s3://b\" }}");
    assert!(!text(spot(), Launcher::SkyPilot, &kept).unwrap().contains("ends with the machine"));
}
