//! Six uses from the command line to the end of the training: the plan, its files, and a fake training with bash.

use std::path::Path;
use std::process::{Command, Output};

use super::scripts::Place;

/// The program with its own prices, in the folder of a place.
fn habitat(place: &Place, words: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_habitat-tui"));
    program.args(words).current_dir(place.path()).env("HABITAT_TUI_CONFIG_DIR", place.path().join("config"));
    program.env("HOME", place.path()).output().unwrap()
}

/// The same; must succeed. Returns its standard output.
pub(super) fn typed(place: &Place, words: &[&str]) -> String {
    let out = habitat(place, words);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{words:?}: {said}");
    String::from_utf8(out.stdout).unwrap()
}

/// Writes a jobs file beside its sample.
pub(super) fn jobs(place: &Place, text: &str) {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/profiler/samples/resnet50-b64.habitat.json.zst");
    std::fs::copy(sample, place.path().join("step.habitat.json.zst")).unwrap();
    let text = text.replace("STEP", "profile = \"step.habitat.json.zst\"");
    std::fs::write(place.path().join("jobs.toml"), text).unwrap();
}

/// Runs a script to its end; returns the log of the fake training.
fn run(place: &Place, script: &str) -> Vec<String> {
    let script = place.path().join(script);
    let out = place.bash(&script, "store");
    let text = std::fs::read_to_string(&script).unwrap();
    assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
    place.read("log").lines().map(str::to_owned).collect()
}

pub(super) fn read(place: &Place, name: impl AsRef<Path>) -> String {
    std::fs::read_to_string(place.path().join(name)).unwrap()
}

pub(crate) fn four_owned_gpus_and_a_budget() {
    let place = Place::new();
    let goal =
        ["plan", "--steps", "200k", "--own", "4x4090", "--budget", "40", "--objective", "time", "--providers", "own"];
    let start = ["--command", "python train.py --out $CHECKPOINT_DIR", "--checkpoint-dir", "$STORE"];
    typed(&place, &[&goal[..], &start, &["-o", "plan.toml"]].concat());
    // The plan file keeps the launch settings.
    assert!(read(&place, "plan.toml").contains("[launch]\ncommand = \"python train.py --out $CHECKPOINT_DIR\""));
    typed(&place, &["plan", "--from", "plan.toml", "--export", "slurm", "-o", "plan.sbatch"]);
    let script = read(&place, "plan.sbatch");
    assert!(script.contains("#SBATCH --gres=gpu:4\n") && !script.contains("--partition"), "{script}");
    let log = run(&place, "plan.sbatch");
    let store = place.path().join("store");
    assert_eq!(log, [format!("torchrun --standalone --nproc-per-node=4 train.py --out {}", store.display())]);
}

pub(crate) fn a_sweep_of_forty() {
    let place = Place::new();
    jobs(
        &place,
        "[[job]]\nname = \"sweep\"\ncount = 40\nSTEP\nsteps = 1000\nlaunch.command = \"python sweep.py --seed $COPY\"\n\
         [[machine]]\ngpu = \"rtx-4090\"\ncount = 4\n",
    );
    let said = typed(&place, &["plan-jobs", "jobs.toml", "--export", "slurm", "-o", "runs"]);
    assert!(said.contains("bash runs/start.sh"), "{said}");
    assert!(read(&place, "runs/sweep.sbatch").contains("#SBATCH --array=1-40%4\n"));
    let mut log = run(&place, "runs/start.sh");
    log.sort_unstable();
    let mut expected: Vec<String> = (1..=40).map(|seed| format!("python sweep.py --seed {seed}")).collect();
    expected.sort_unstable();
    assert_eq!(log, expected);
}

pub(crate) fn pretrain_then_fine_tune_then_evaluate() {
    let place = Place::new();
    jobs(
        &place,
        "wait = true\n\
         [[job]]\nname = \"pretrain\"\nSTEP\nsteps = \"100k\"\nproviders = [\"aws\"]\nlaunch.command = \"python pretrain.py\"\n\
         [[job]]\nname = \"fine-tune\"\nSTEP\nsteps = \"10k\"\nproviders = [\"aws\"]\nafter = [\"pretrain\"]\n\
         launch.command = \"python tune.py $CHECKPOINT_ROOT/pretrain\"\n\
         [[job]]\nname = \"evaluate\"\nSTEP\nsteps = 500\nproviders = [\"aws\"]\nafter = [\"fine-tune\"]\n\
         launch.command = \"python evaluate.py $CHECKPOINT_ROOT/fine-tune\"\n\
         [launch]\ncheckpoint_dir = \"$STORE\"\nmounts = { \"/store\" = \"s3://bucket/run\" }\n",
    );
    typed(&place, &["plan-jobs", "jobs.toml", "--accept", "doubted", "--export", "skypilot", "-o", "runs"]);
    let pipeline = read(&place, "runs/pretrain.sky.yaml");
    assert_eq!(pipeline.matches("\n---\n").count(), 3, "{pipeline}");
    let log = run(&place, "runs/start.sh");
    let store = place.path().join("store");
    let at = |name: &str| store.join(name).display().to_string();
    let expected = [
        "python pretrain.py".to_owned(),
        format!("python tune.py {}", at("pretrain")),
        format!("python evaluate.py {}", at("fine-tune")),
    ];
    assert_eq!(log, expected);
}

pub(crate) fn two_teams_with_quotas() {
    let place = Place::new();
    let team = |name: &str, gpu: &str, command: &str| {
        format!(
            "[[job]]\nname = \"{name}\"\ncount = 2\nSTEP\nsteps = \"20k\"\nproviders = [\"aws\"]\ngpus = [\"{gpu}\"]\nmax_gpus = 1\n\
             launch.command = \"{command} $COPY\"\nlaunch.queue = \"{name}\"\n"
        )
    };
    let text = format!(
        "wait = true\n[[quota]]\nprovider = \"aws\"\ngpus = 1\ngpu = \"l4\"\n{}{}[launch]\nimage = \"lab/train:1\"\n",
        team("vision", "l4", "python vision.py"),
        team("language", "a10g", "python language.py")
    );
    jobs(&place, &text);
    typed(&place, &["plan-jobs", "jobs.toml", "--accept", "doubted", "--export", "kubernetes", "-o", "runs"]);
    for (name, label) in [("vision", "NVIDIA-L4"), ("language", "NVIDIA-A10G")] {
        let manifest = read(&place, format!("runs/{name}.k8s.yaml"));
        assert!(manifest.contains(&format!("kueue.x-k8s.io/queue-name: \"{name}\"")), "{manifest}");
        assert!(manifest.contains(&format!("nvidia.com/gpu.product: \"{label}\"")), "{manifest}");
    }
    let mut log = run(&place, "runs/start.sh");
    log.sort_unstable();
    assert_eq!(log, ["python language.py 1", "python language.py 2", "python vision.py 1", "python vision.py 2"]);
}

/// Seven jobs of one or two kinds at a provider with a quota of two GPUs.
pub(crate) fn no_more_jobs_run_at_once_than_planned() {
    let place = Place::new();
    jobs(
        &place,
        "wait = true\n[[quota]]\nprovider = \"aws\"\ngpus = 2\n\
         [[job]]\nname = \"sweep\"\ncount = 5\nSTEP\nsteps = \"10k\"\nproviders = [\"aws\"]\nmax_gpus = 1\n\
         [[job]]\nname = \"long\"\nSTEP\nsteps = \"50k\"\nproviders = [\"aws\"]\nmax_gpus = 1\n\
         [[job]]\nname = \"short\"\nSTEP\nsteps = \"2k\"\nproviders = [\"aws\"]\nmax_gpus = 1\n\
         [launch]\ncommand = \"echo 1 >> $LOG; /bin/sleep 0.2; echo -1 >> $LOG\"\nimage = \"lab/train:1\"\nqueue = \"lab\"\n",
    );
    for tool in ["skypilot", "dstack", "kubernetes"] {
        let _ = std::fs::remove_file(place.path().join("log"));
        typed(&place, &["plan-jobs", "jobs.toml", "--accept", "doubted", "--export", tool, "-o", tool]);
        let log = run(&place, &format!("{tool}/start.sh"));
        assert_eq!(log.len(), 14, "{tool}: {log:?}");
        let mut running = 0;
        let counts = log.iter().map(|line| {
            running += line.parse::<i32>().unwrap();
            running
        });
        assert_eq!(counts.max(), Some(2), "{tool}: {log:?}\n{}", read(&place, format!("{tool}/start.sh")));
    }
}

pub(crate) fn a_lab_with_slurm_and_two_4090() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("config")).unwrap();
    let settings = "[launch]\npartition = \"lab\"\ncpus = 16\nmemory_gb = 96\nsetup_command = \"echo ready >> $LOG\"\n";
    std::fs::write(place.path().join("config/config.toml"), settings).unwrap();
    jobs(
        &place,
        "[[job]]\nname = \"pictures\"\nSTEP\nsteps = \"50k\"\nlaunch.command = \"python pictures.py\"\n\
         [[job]]\nname = \"faces\"\nSTEP\nsteps = \"5k\"\nafter = [\"pictures\"]\nlaunch.command = \"python faces.py\"\n\
         [[machine]]\ngpu = \"rtx-4090\"\ngpus = 2\n",
    );
    typed(&place, &["plan-jobs", "jobs.toml", "--export", "slurm", "-o", "runs"]);
    let script = read(&place, "runs/pictures.sbatch");
    for line in ["--partition=lab", "--gres=gpu:2", "--cpus-per-task=16", "--mem=96G"] {
        assert!(script.contains(&format!("#SBATCH {line}\n")), "{line}: {script}");
    }
    let log = run(&place, "runs/start.sh");
    let python = |name: &str| format!("torchrun --standalone --nproc-per-node=2 {name}.py");
    assert_eq!(log, ["ready".to_owned(), python("pictures"), "ready".to_owned(), python("faces")]);
}

pub(crate) fn a_deadline_on_friday() {
    let place = Place::new();
    let goal = ["plan", "--steps", "2M", "--deadline", "7d", "--providers", "aws", "--accept", "spot,doubted"];
    let start = ["--command", "python train.py", "--export", "skypilot", "-o", "friday.sky.yaml"];
    let two = ["--max-parts", "2"];
    // Two parts need checkpoint storage that outlives the first machine.
    let refused = habitat(&place, &[&goal[..], &two, &start].concat());
    let why = String::from_utf8_lossy(&refused.stderr);
    let is_one = refused.status.success();
    assert!(is_one || why.contains("pass --checkpoint-dir DIR"), "{why}");
    let kept = ["--checkpoint-dir", "$STORE", "--mount", "/store=s3://bucket/run", "--force"];
    let out = habitat(&place, &[&goal[..], &two, &start, &kept].concat());
    let why = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() || why.contains("pass --mount $STORE=s3://BUCKET/PATH"), "{why}");
    let at = ["--checkpoint-dir", "/store/run", "--mount", "/store=s3://bucket/run", "--force"];
    typed(&place, &[&goal[..], &two, &start, &at].concat());
    let file = read(&place, "friday.sky.yaml");
    assert!(file.contains("    mode: MOUNT_CACHED\n") && file.contains("use_spot: true"), "{file}");
    // A folder replaces the bucket.
    let store = place.path().join("store");
    std::fs::write(place.path().join("here.sky.yaml"), file.replace("/store/run", &store.display().to_string()))
        .unwrap();
    let script = place.path().join("start.sh");
    // The command in its first line.
    let flags = file.lines().find_map(|line| line.strip_prefix("# sky jobs launch FILE")).unwrap();
    let run_it = format!("cd {}\nsky jobs launch -y{flags} here.sky.yaml\n", place.path().display());
    std::fs::write(&script, run_it).unwrap();
    let log = run(&place, "start.sh");
    assert!(!log.is_empty() && log.iter().all(|line| line.ends_with("train.py")), "{log:?}");
    // A date also works as a deadline, and stays in the plan.
    let date = [
        "plan",
        "--steps",
        "100k",
        "--deadline",
        "2099-01-01",
        "--providers",
        "aws",
        "--accept",
        "doubted",
        "-o",
        "d.toml",
    ];
    typed(&place, &date);
    assert!(read(&place, "d.toml").contains("--deadline 2099-01-01"));
}
