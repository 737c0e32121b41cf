//! `habitat-tui compare`: a plan against the actual run.

use std::io::Write;
use std::path::Path;

use super::error::{At, CliError};
use super::gpu;
use super::hints::command_of;
use super::input::load;
use super::output::print_json;
use crate::settings::args::{CompareArgs, InputArgs};
use crate::store::{self, Kind, Limit, Paths};
use habitat_reports::outcome::{self, Run};
use habitat_reports::plan_toml;
use habitat_step::catalog::Catalog;

pub(super) fn run(args: &CompareArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    let plan = plan_toml::parse(&store::kind::read_toml(&args.plan, store::kind::PLAN)?).at(args.plan.display())?;
    let (mut happened, mut recorded) = (Run::default(), None);
    for path in &args.runs {
        let (run, is_step) = read(args, path, &catalog)?;
        happened = happened.or(&run);
        recorded = recorded.or(is_step.then_some(path.as_path()));
    }
    let outcome = outcome::outcome(&plan, &happened).at(args.plan.display())?;
    if args.json {
        return print_json(&outcome, out);
    }
    outcome::write(&outcome, &happened, out)?;
    let file = recorded.unwrap_or_else(|| Path::new("STEP"));
    let next =
        ["plan", &file.to_string_lossy(), "--from", &args.plan.to_string_lossy(), "--other-profile"].map(str::to_owned);
    match recorded {
        Some(_) => writeln!(out, "next, plan from the measured step: {}", command_of(&next))?,
        None => writeln!(
            out,
            "next, record a step of this run (`habitat-tui run` or `attach`) and plan from it: {}",
            command_of(&next)
        )?,
    }
    Ok(0)
}

/// Reads facts about the run from a file, and whether the file is a recorded step.
fn read(args: &CompareArgs, path: &Path, catalog: &Catalog) -> Result<(Run, bool), CliError> {
    if let Kind::Other(_) = store::kind(path)? {
        return Ok((Run::parse(&store::read_text(path, Limit::PLAN)?).at(path.display())?, false));
    }
    let input = InputArgs { file: Some(path.to_owned()), ..InputArgs::default() };
    let loaded = load(&input, catalog)?;
    loaded.warn();
    if loaded.profile.measured_step().is_none() {
        let problem = "contains no measured step time; record a step of the run (`habitat-tui run`, `attach`)";
        return Err(CliError::Refused(problem.to_owned()).at(path.display()));
    }
    let run = Run::of_profile(&loaded.profile);
    let gpu = gpu::maybe(catalog, "--origin", args.origin.as_ref())?.or(run.gpu);
    Ok((Run { gpu, ..run }, true))
}
