//! Parser of plan files.

use serde::Deserialize;

use super::super::launch::LaunchError;
use super::{FORMAT, OLDEST, PlanFile, Request, VERSION};
use habitat_base::units::{Micros, most};
use habitat_planning::plan::PlanError;

/// Error in a plan file, with its place and a remedy.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanFileError {
    /// Not TOML, or a field is missing or invalid.
    #[error("{0}\nthe file is damaged or was changed: write it again with `habitat-tui plan … -o FILE`")]
    Damaged(String),
    /// Another kind of file.
    #[error("format: found {0:?}, a plan file has {FORMAT:?}; write one with `habitat-tui plan … -o plan.toml`")]
    Format(String),
    /// A version before plans contained the request.
    #[error(
        "version: found {0}, which does not contain the request; plan again with this habitat-tui (`habitat-tui plan … -o FILE`)"
    )]
    Older(u32),
    /// A version newer than this program.
    #[error(
        "version: found {0}, this habitat-tui reads {OLDEST} to {VERSION}; use the newer habitat-tui that wrote the file"
    )]
    Newer(u32),
    /// A list in the limits is too long.
    #[error("goal.limits.{0}")]
    List(PlanError),
    /// More batch sizes than can be predicted at once.
    #[error("request.batch_sizes: {0} sizes; at most {most} can be predicted at once: remove some", most = most::BATCH_SIZES)]
    BatchSizes(usize),
    /// A value of `[launch]`.
    #[error("launch: {0}")]
    Launch(#[from] LaunchError),
    /// A number that is out of range.
    #[error("{place}: {problem}")]
    Number {
        /// Table and key.
        place: String,
        /// Problem with the number.
        problem: &'static str,
    },
}

/// Part of the file that is read first.
#[derive(Deserialize)]
struct Probe {
    plan: ProbeHead,
}

#[derive(Deserialize)]
struct ProbeHead {
    format: String,
    version: u32,
}

/// Parses a plan of version 2 to 5.
///
/// # Errors
/// [`PlanFileError`] for another format or version, or if a field is missing or invalid.
pub fn parse(text: &str) -> Result<PlanFile, PlanFileError> {
    let damaged = |error: toml::de::Error| PlanFileError::Damaged(error.to_string().trim_end().to_owned());
    let Probe { plan: head } = toml::from_str(text).map_err(damaged)?;
    match head.version {
        _ if head.format != FORMAT => return Err(PlanFileError::Format(habitat_base::text::clean(&head.format, 40))),
        version if version < OLDEST => return Err(PlanFileError::Older(version)),
        version if version > VERSION => return Err(PlanFileError::Newer(version)),
        _ => {}
    }
    let mut file: PlanFile = toml::from_str(text).map_err(damaged)?;
    file.request.command.clone_from(&file.plan.command);
    file.launch.check()?;
    check(&file)?;
    Ok(file)
}

/// Checks the numbers of the request.
fn check_request(request: &Request) -> Result<(), PlanFileError> {
    if request.batch_sizes.len() > most::BATCH_SIZES {
        return Err(PlanFileError::BatchSizes(request.batch_sizes.len()));
    }
    let sizes = request.batch_sizes.iter().copied();
    for (key, values, largest, problem) in [
        ("batch_sizes", sizes.collect::<Vec<_>>(), most::BATCH, "each must be 1 to 1,000,000,000 samples"),
        ("batch_size", Vec::from_iter(request.batch_size), most::BATCH, "must be 1 to 1,000,000,000 samples"),
        (
            "sequence_length",
            Vec::from_iter(request.sequence_length),
            most::SEQUENCE,
            "must be 1 to 1,000,000,000 tokens",
        ),
        ("parameters", Vec::from_iter(request.parameters), most::PARAMETERS, "must be 1 to 1e15"),
    ] {
        if values.iter().any(|value| !(1..=largest).contains(value)) {
            return Err(PlanFileError::Number { place: format!("request.{key}"), problem });
        }
    }
    Ok(())
}

/// Checks numbers that the types allow but a plan cannot have.
fn check(file: &PlanFile) -> Result<(), PlanFileError> {
    let wrong = |place: String, problem| Err(PlanFileError::Number { place, problem });
    if !(1..=3).contains(&file.goal.max_parts) {
        return wrong("goal.max_parts".to_owned(), "must be 1, 2 or 3");
    }
    file.goal.limits.check_lists().map_err(PlanFileError::List)?;
    check_request(&file.request)?;
    if !(1..=most::MACHINES).contains(&file.goal.limits.max_machines) {
        return wrong("goal.limits.max_machines".to_owned(), "must be 1 to 1024");
    }
    if file.goal.data.as_ref().is_some_and(|data| data.provider.is_none() && data.region.is_some()) {
        return wrong("goal.data.region".to_owned(), "needs goal.data.provider, the provider of the data");
    }
    for (index, part) in file.parts.iter().enumerate() {
        let at = |key: &str| format!("part {}, {key}", index + 1);
        let within = |value: f64, most: f64| value > 0.0 && value <= most;
        if !part.step_time_us.iter().all(|time| within(*time, Micros::MOST)) {
            return wrong(at("step_time_us"), "must be above 0 and at most a year");
        }
        if !part.samples.or(part.steps).is_some_and(|work| within(work, most::WORK)) {
            return wrong(at("samples"), "samples or steps must be above 0 and at most 1e18");
        }
        if part.model_parallel.machines(part.all_gpus) != 1 {
            return wrong(
                at("model_parallel"),
                "the GPUs must be a multiple of tensor × pipeline × context, and those with the same layers of expert, all above 0",
            );
        }
        if part.all_gpus == 0 || part.machines == 0 || part.global_batch_size == Some(0) || part.accumulation == 0 {
            return wrong(at("gpu_count"), "GPUs, nodes, batches and samples per step must be above 0");
        }
    }
    Ok(())
}
