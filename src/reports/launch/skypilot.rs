//! `SkyPilot` task YAML (`sky launch`, `sky jobs launch`), as of 0.14: one task for each part. Several parts are
//! documents of one pipeline, which `sky jobs launch` runs one after another.

use std::collections::BTreeSet;

use super::names::{instance_type, is_fast_network, mounts_buckets, provider, skypilot_gpu};
use super::yaml::{block, mapping, quoted};
use super::{Job, LaunchError, Launcher};
use habitat_planning::pricing::region;

/// File with all parts.
pub(super) fn file(jobs: &[Job<'_>]) -> Result<String, LaunchError> {
    let tasks: Vec<String> = jobs.iter().map(task).collect::<Result<_, _>>()?;
    if let [first, _, ..] = jobs {
        let name = Job { place: (1, 1), ..*first }.name();
        return Ok(format!(
            "# sky jobs launch FILE{}{}\nname: {}\n---\n{}",
            secrets(jobs),
            if jobs.iter().any(|job| job.limit().is_some()) { " --env SUBMITTED=$(date +%s)" } else { "" },
            quoted(&name),
            tasks.join("---\n")
        ));
    }
    Ok(tasks.concat())
}

/// Variables that the user's environment has, as flags.
pub(super) fn secrets(jobs: &[Job<'_>]) -> String {
    let names: BTreeSet<&str> = jobs.iter().flat_map(|job| job.variables()[1].clone()).map(|(name, _)| name).collect();
    names.iter().map(|name| format!(" --secret {name}")).collect::<Vec<_>>().concat()
}

fn task(job: &Job<'_>) -> Result<String, LaunchError> {
    let launch = &job.start.launch;
    let spot = job.is_spot(Launcher::SkyPilot)?;
    let [given, passed] = job.variables();
    let secrets = secrets(std::slice::from_ref(job));
    let how = match (job.place.1, job.is_managed) {
        (1, true) => format!("# sky jobs launch FILE{secrets}   (restarts after the machine is lost)\n"),
        (1, false) => format!("# sky launch FILE{secrets}   (ends the machine 10 minutes after the job)\n"),
        _ => String::new(),
    };
    // Each copy starts with its own number (--env COPY=N).
    let copy = job.copies.map(|copies| copies.first().to_string());
    let resources = resources(job, spot)?;
    let setup =
        launch.setup_command.as_ref().map_or_else(String::new, |setup| format!("setup: |\n  set -e\n  {setup}\n"));
    let workdir = launch.workdir.as_ref().map_or_else(String::new, |dir| format!("workdir: {}\n", quoted(dir)));
    Ok(format!(
        "{}{how}name: {}\nnum_nodes: {}\n{workdir}{}{}{}{resources}{setup}run: |\n{}",
        job.comments(Launcher::SkyPilot),
        quoted(&job.name()),
        job.part.machines,
        mapping(
            "envs",
            copy.as_deref()
                .map(|number| ("COPY", Some(number)))
                .into_iter()
                .chain(given.iter().map(|(name, value)| (*name, Some(*value))))
                .chain(job.limit().map(|_| ("SUBMITTED", None)))
        ),
        mapping("secrets", passed.iter().map(|(name, _)| (*name, None))),
        mounts(job),
        block(&job.lines(Launcher::SkyPilot)?, 2),
    ))
}

/// The bucket of the checkpoints: its path and its URL.
fn bucket<'a>(job: &Job<'a>) -> Option<(&'a String, &'a String)> {
    job.start.launch.checkpoint_mount().filter(|(_, source)| source.contains("://"))
}

/// Files that the task finds: the bucket of checkpoints takes writes in the background.
fn mounts(job: &Job<'_>) -> String {
    let launch = &job.start.launch;
    let bucket = bucket(job);
    let one = |(path, source): (&String, &String)| {
        if bucket == Some((path, source)) {
            format!("  {}:\n    source: {}\n    mode: MOUNT_CACHED\n", quoted(path), quoted(source))
        } else {
            format!("  {}: {}\n", quoted(path), quoted(source))
        }
    };
    let all: String = launch.mounts.iter().map(one).collect();
    if all.is_empty() { all } else { format!("file_mounts:\n{all}") }
}

fn resources(job: &Job<'_>, spot: bool) -> Result<String, LaunchError> {
    let (part, launch) = (job.part, &job.start.launch);
    let refused = |reason: &str| job.unknown(Launcher::SkyPilot, reason);
    let cloud = provider(Launcher::SkyPilot, &part.offer.provider)
        .ok_or_else(|| refused("it does not support this provider"))?;
    job.check_machines(Launcher::SkyPilot)?;
    if let Some((path, source)) = bucket(job).filter(|_| !mounts_buckets(&part.offer.provider)) {
        let reason = format!(
            "it cannot mount a bucket at this provider (--mount {path}={source}); leave it out and copy checkpoints to the bucket in --command, or plan with other --providers"
        );
        return Err(job.refused(Launcher::SkyPilot, reason));
    }
    let gpu = skypilot_gpu(&part.offer.provider, part.gpu.as_str(), &part.offer.instance_type).map_err(refused)?;
    let infra = match region::single(&part.offer.provider, &part.offer.region) {
        Some(region) => format!("  infra: {}\n", quoted(&format!("{cloud}/{region}"))),
        None => format!("  # Any region: the price is not for a single region.\n  infra: {}\n", quoted(cloud)),
    };
    let machine = match (instance_type(&part.offer), launch.cpus) {
        (Some(name), _) => format!("  instance_type: {}\n", quoted(name)),
        (None, Some(cpus)) => format!("  cpus: {cpus}+\n"),
        // Its own catalog may round the number or count other CPUs, so half of them is required.
        (None, None) => part.offer.vcpus.map_or_else(String::new, |cpus| format!("  cpus: {}+\n", (cpus / 2.0).ceil())),
    };
    let image = launch
        .image
        .as_ref()
        .map_or_else(String::new, |image| format!("  image_id: {}\n", quoted(&format!("docker:{image}"))));
    let disk = job.disk_gb().map_or_else(String::new, |gb| format!("  disk_size: {gb}\n"));
    let is_joined = part.machines > 1 && is_fast_network(&part.offer.provider, gpu, part.offer.gpu_count);
    let network = if is_joined { "  network_tier: best\n" } else { "" };
    // An error of the job is repeated only if it goes on from a checkpoint.
    let errors = if launch.checkpoint_dir.is_some() { "    max_restarts_on_errors: 3\n" } else { "" };
    let kept = if job.is_managed {
        format!("  job_recovery:\n    strategy: FAILOVER\n{errors}")
    } else {
        "  autostop:\n    idle_minutes: 10\n    down: true\n".to_owned()
    };
    Ok(format!(
        "resources:\n{infra}{machine}  accelerators: {}\n{disk}{image}{network}  use_spot: {spot}\n  max_hourly_cost: {}\n{kept}",
        quoted(&format!("{gpu}:{}", part.offer.gpu_count)),
        job.highest_price(),
    ))
}
