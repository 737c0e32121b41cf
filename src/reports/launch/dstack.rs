//! dstack task YAML (`dstack apply -f FILE`), as of 0.22: one file for each part.

use super::names::{dstack_gpu, instance_type, provider};
use super::yaml::{block, quoted};
use super::{Job, LaunchError, Launcher};
use habitat_base::units::Hours;
use habitat_planning::pricing::region;

/// Folder of the program in the container.
const WORKFLOW: &str = "/workflow";

/// Backends with network volumes.
const VOLUMES: [&str; 3] = ["aws", "gcp", "runpod"];

/// File of one part.
pub(super) fn task(job: &Job<'_>) -> Result<String, LaunchError> {
    let part = job.part;
    let refused = |reason: &str| job.unknown(Launcher::Dstack, reason);
    let spot = job.is_spot(Launcher::Dstack)?;
    let backend = provider(Launcher::Dstack, &part.offer.provider)
        .ok_or_else(|| refused("it has no backend for this provider"))?;
    job.check_machines(Launcher::Dstack)?;
    let gpu = dstack_gpu(&part.offer.provider, part.gpu.as_str()).map_err(refused)?;
    let region = region_of(job).map_or_else(
        || "# Any region: the price is not for a single region that dstack knows.\n".to_owned(),
        |region| format!("regions: [{}]\n", quoted(region)),
    );
    let machine = instance_type(&part.offer).filter(|_| ["aws", "azure", "gcp", "oci"].contains(&backend));
    let machine = machine.map_or_else(String::new, |name| format!("instance_types: [{}]\n", quoted(name)));
    Ok(format!(
        "{}{}# dstack apply -f FILE{}{}\ntype: task\nname: {}\nnodes: {}\n{}resources:\n  gpu: {}\n{}spot_policy: {}\n{}max_price: {}\nbackends: [{backend}]\n{region}{machine}# Upper end of the predicted time and 10 %; dstack stops the task then.\nmax_duration: {}m\ncommands:\n  - |\n{}",
        job.comments(Launcher::Dstack),
        needs(job, backend),
        if job.limit().is_some() { " -e SUBMITTED=$(date +%s)" } else { "" },
        job.after_words(),
        quoted(&job.name()),
        part.machines,
        container(job)?,
        quoted(&format!("{gpu}:{}", part.offer.gpu_count)),
        host(job),
        if spot { "spot" } else { "on-demand" },
        retry(job, spot),
        job.highest_price(),
        job.most_minutes(),
        block(&job.lines(Launcher::Dstack)?, 4),
    ))
}

/// Comments on what has to be there before: a fleet, and volumes.
fn needs(job: &Job<'_>, backend: &str) -> String {
    let volumes = job.start.launch.mounts.values().filter(|source| !source.starts_with('/'));
    let volumes: Vec<&str> = volumes.map(String::as_str).collect();
    let place = if VOLUMES.contains(&backend) { "there" } else { "at aws, gcp and runpod only, so not there" };
    let volumes = if volumes.is_empty() {
        String::new()
    } else {
        format!("# It needs the volume {}; dstack has volumes {place}.\n", volumes.join(", "))
    };
    format!(
        "# It needs a fleet with room at {backend} (dstack fleet list); one for any machine has type: fleet and nodes: 0..4.\n{volumes}"
    )
}

/// Without a retry, a task that loses its machine fails.
fn retry(job: &Job<'_>, spot: bool) -> String {
    if !spot {
        return String::new();
    }
    // Waiting for a spot machine ends in time for the next part.
    let limit = job.switch.filter(|_| job.next.is_some()).map_or_else(String::new, |switch| {
        format!("  duration: {}m\n", (Hours::get(switch.latest) * 60.0).floor().max(1.0))
    });
    format!("# Restarts after the machine is lost.\nretry:\n  on_events: [interruption, no-capacity]\n{limit}")
}

/// CPUs, memory and disk of the machine. Processes that load data share memory.
fn host(job: &Job<'_>) -> String {
    let launch = &job.start.launch;
    let cpus = launch.cpus.map_or_else(String::new, |cpus| format!("  cpu: {cpus}..\n"));
    let memory = launch.memory_gb.map_or_else(String::new, |gb| format!("  memory: {gb}GB..\n"));
    let disk = job.disk_gb().map_or_else(String::new, |gb| format!("  disk: {gb}GB..\n"));
    let shared = if launch.command.is_some() { "  shm_size: 16GB\n" } else { "" };
    format!("{cpus}{memory}{disk}{shared}")
}

/// Image, files, variables and volumes.
fn container(job: &Job<'_>) -> Result<String, LaunchError> {
    let launch = &job.start.launch;
    let mut lines: Vec<String> = launch.image.iter().map(|image| format!("image: {}\n", quoted(image))).collect();
    if launch.command.is_some() {
        lines.push("shell: bash\n".to_owned());
    }
    if let Some(dir) = &launch.workdir {
        lines.push(format!("files:\n  - {}\nworking_dir: {WORKFLOW}\n", quoted(&format!("{dir}:{WORKFLOW}"))));
    }
    let [given, passed] = job.variables();
    let variables = given
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .chain(passed.iter().map(|(name, _)| (*name).to_owned()));
    // Each copy starts with its own number (-e COPY=N).
    let copy = job.copies.map(|copies| format!("COPY={}", copies.first()));
    let own = copy.into_iter().chain(job.limit().map(|_| "SUBMITTED".to_owned()));
    let mut variables = own.chain(variables).map(|one| format!("  - {}\n", quoted(&one))).peekable();
    lines.extend(variables.peek().is_some().then(|| "env:\n".to_owned()));
    lines.extend(variables);
    lines.extend((!launch.mounts.is_empty()).then(|| "volumes:\n".to_owned()));
    for (path, source) in &launch.mounts {
        if source.contains(':') {
            return Err(LaunchError::invalid(
                "mount",
                &format!("{path}={source}"),
                "PATH=VOLUME for dstack, such as /data=my-volume, or a folder of the machine",
            ));
        }
        lines.push(format!("  - {}\n", quoted(&format!("{source}:{path}"))));
    }
    Ok(lines.concat())
}

/// The region as dstack names it. dstack has its own names for hosts of Vast and regions of `JarvisLabs`, and for
/// `RunPod` a country is a region only for community machines. `None` for a list of regions.
fn region_of<'a>(job: &Job<'a>) -> Option<&'a str> {
    let part = job.part;
    match part.offer.provider.as_str() {
        "vast" | "jarvislabs" => None,
        "runpod" => Some(part.offer.region.as_str()).filter(|_| part.offer.instance_type.ends_with("_COMMUNITY")),
        provider => region::single(provider, &part.offer.region),
    }
}
