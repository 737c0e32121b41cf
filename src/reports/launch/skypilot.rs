//! `SkyPilot` task YAML (`sky launch`, `sky jobs launch`), as of 0.14: one task for each part. Several parts are
//! documents of one pipeline, which `sky jobs launch` runs one after another.

use super::names::{PROVIDERS, skypilot_gpu};
use super::yaml::quoted;
use super::{Job, LaunchError, Launcher};
use habitat_planning::pricing::region;

/// File with all parts.
pub(super) fn file(jobs: &[Job<'_>]) -> Result<String, LaunchError> {
    let tasks: Vec<String> = jobs.iter().map(task).collect::<Result<_, _>>()?;
    if let [first, _, ..] = jobs {
        let name = Job { place: (1, 1), ..*first }.name();
        return Ok(format!("# sky jobs launch FILE\nname: {}\n---\n{}", quoted(&name), tasks.join("---\n")));
    }
    Ok(tasks.concat())
}

fn task(job: &Job<'_>) -> Result<String, LaunchError> {
    let part = job.part;
    let refused = |reason: &str| job.unknown(Launcher::SkyPilot, reason);
    let spot = job.is_spot(Launcher::SkyPilot)?;
    let cloud =
        PROVIDERS.iter().find(|(provider, ..)| *provider == part.offer.provider).map_or("", |(_, cloud, _)| cloud);
    if cloud.is_empty() {
        return Err(refused("it does not support this provider"));
    }
    job.check_machines(Launcher::SkyPilot)?;
    let gpu = skypilot_gpu(&part.offer.provider, part.gpu.as_str(), &part.offer.instance_type).map_err(refused)?;
    let how = match (job.place.1, spot) {
        (1, true) => "# sky jobs launch FILE   (restarts after the machine is lost)\n",
        (1, false) => "# sky launch FILE\n",
        _ => "",
    };
    let (infra, any) = match region::single(&part.offer.provider, &part.offer.region) {
        Some(region) => (quoted(&format!("{cloud}/{region}")), ""),
        None => (quoted(cloud), "# Any region: the price is not for a single region.\n"),
    };
    Ok(format!(
        "{}{any}{how}name: {}\nnum_nodes: {}\nresources:\n  infra: {infra}\n  accelerators: {}\n  use_spot: {spot}\n  max_hourly_cost: {}\nrun: |\n{}",
        job.comments(),
        quoted(&job.name()),
        part.machines,
        quoted(&format!("{gpu}:{}", part.offer.gpu_count)),
        job.highest_price(),
        job.lines(Launcher::SkyPilot)?.iter().map(|line| format!("  {line}\n")).collect::<Vec<_>>().concat(),
    ))
}
