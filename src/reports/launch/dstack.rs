//! dstack task YAML (`dstack apply -f FILE`), as of 0.22: one file for each part.

use super::names::{PROVIDERS, dstack_gpu};
use super::yaml::quoted;
use super::{Job, LaunchError, Launcher};
use habitat_planning::pricing::region;

/// File of one part.
pub(super) fn task(job: &Job<'_>) -> Result<String, LaunchError> {
    let part = job.part;
    let refused = |reason: &str| job.unknown(Launcher::Dstack, reason);
    let spot = job.is_spot(Launcher::Dstack)?;
    let backend =
        PROVIDERS.iter().find(|(provider, ..)| *provider == part.offer.provider).map_or("", |(.., name)| name);
    if backend.is_empty() {
        return Err(refused("it has no backend for this provider"));
    }
    job.check_machines(Launcher::Dstack)?;
    let gpu = dstack_gpu(&part.offer.provider, part.gpu.as_str()).map_err(refused)?;
    let region = region_of(job).map_or_else(
        || "# Any region: the price is not for a single region that dstack knows.\n".to_owned(),
        |region| format!("regions: [{}]\n", quoted(region)),
    );
    Ok(format!(
        "{}# dstack apply -f FILE\ntype: task\nname: {}\nnodes: {}\nresources:\n  gpu: {}\nspot_policy: {}\n{}max_price: {}\nbackends: [{backend}]\n{region}# Upper end of the predicted time; dstack stops the task then.\nmax_duration: {}m\ncommands:\n{}",
        job.comments(),
        quoted(&job.name()),
        part.machines,
        quoted(&format!("{gpu}:{}", part.offer.gpu_count)),
        if spot { "spot" } else { "on-demand" },
        // Without a retry, a task that loses its machine fails.
        if spot {
            "# Restarts after the machine is lost.\nretry:\n  on_events: [interruption, no-capacity]\n"
        } else {
            ""
        },
        job.highest_price(),
        job.most_minutes(),
        job.lines(Launcher::Dstack)?.iter().map(|line| format!("  - {}\n", quoted(line))).collect::<Vec<_>>().concat(),
    ))
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
