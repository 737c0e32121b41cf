//! `habitat-tui check`: validates files.

use std::io::Write;
use std::path::Path;

use super::error::{At, CliError};
use super::input;
use crate::settings::args::CheckArgs;
use crate::settings::file::SettingsFile;
use crate::settings::jobs::JobsFile;
use crate::store::{self, Kind, Limit, Paths};
use crate::terminal;
use habitat_planning::pricing::Snapshot;
use habitat_reports::plan_toml;
use habitat_reports::theme::Theme;
use habitat_screens::keymap::Keymap;
use habitat_step::catalog::{Calibration, GpuSpec, Layer};

/// Kinds of files that can be checked.
const CHECKED: &str = "a profile, a black box, an op list, or a TOML file: catalog, prices, calibration, \
                       plan, jobs, theme or settings";

pub(super) fn run(args: &CheckArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let mut failed = 0;
    for path in &args.files {
        match check(path) {
            Ok(what) => writeln!(out, "{}: {what}", path.display())?,
            Err(error) => {
                failed += 1;
                out.flush()?;
                error.print();
            }
        }
    }
    if failed > 0 {
        return Err(CliError::Refused(format!("{failed} of {} files cannot be used", args.files.len())));
    }
    Ok(0)
}

fn check(path: &Path) -> Result<String, CliError> {
    if path.extension().is_some_and(|extension| extension == "toml") {
        return toml(&store::read_text(path, Limit::CATALOG)?, path).at(path.display());
    }
    match store::kind(path)? {
        Kind::Profile => {}
        Kind::BlackBox => {
            let totals = store::read_totals(path)?;
            return Ok(format!("black box, {} kinds of operators on {}", totals.kinds.len(), totals.gpu));
        }
        Kind::OpList => {
            let profile = input::op_list(path)?;
            let name = habitat_base::text::clean(&profile.workload.name, 60);
            return Ok(format!("op list of {name}, {} operations, none measured", profile.operations.len()));
        }
        other => return Err(other.refused(path, CHECKED).into()),
    }
    let (profile, warnings) = store::read_profile(path)?;
    for warning in warnings {
        terminal::say(format_args!("warning: {}: {warning}", path.display()));
    }
    let measured = profile.operations.iter().filter(|operation| operation.device_time.is_some()).count();
    Ok(format!(
        "profile of {}, {} operations, {measured} measured",
        habitat_base::text::clean(&profile.workload.name, 60),
        profile.operations.len()
    ))
}

/// Finds the kind of a TOML file by keys that only one kind has.
fn toml(text: &str, path: &Path) -> Result<String, CliError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| CliError::other(error))?;
    if table.get("plan").is_some_and(|plan| plan.get("format").is_some()) {
        let plan = plan_toml::parse(text)?.plan;
        return Ok(format!("plan of {} ({})", habitat_base::text::clean(&plan.workload, 60), plan.created));
    }
    if table.contains_key("provider") || table.contains_key("offer") {
        let snapshot = Snapshot::parse(text)?;
        let catalog = store::catalog(&Paths::find())?;
        for slug in snapshot.offers().filter_map(|offer| offer.gpu) {
            catalog.find(slug.as_str()).at("gpu")?;
        }
        let count = snapshot.offers().count();
        let offers = if count == 1 { "offer" } else { "offers" };
        return Ok(format!("price file of {}, {count} {offers}", snapshot.provider));
    }
    if Calibration::is_one(&table) {
        let one = Calibration::parse(text)?;
        store::catalog(&Paths::find())?.find(one.gpu.as_str()).at("gpu")?;
        let types: Vec<&str> = one.product.iter().map(|product| product.dtype.as_str()).collect();
        let rates = if types.is_empty() { "no products".to_owned() } else { types.join(", ") };
        return Ok(format!("calibration of {} of {} ({rates})", one.gpu, one.day()));
    }
    if table.contains_key("job") {
        return Ok(format!("jobs file with {} jobs", JobsFile::parse(text)?.jobs.len()));
    }
    if ["roles", "palette", "parent"].iter().any(|key| table.contains_key(*key)) {
        let themes = Theme::all(&[(path.display().to_string(), text.to_owned())])?;
        return Ok(format!("theme {}", themes.last().map_or("", |theme| theme.name.as_str())));
    }
    if SETTINGS.iter().any(|key| table.contains_key(*key)) {
        let settings = SettingsFile::parse(text)?;
        Keymap::patched(&settings.keys)?;
        return Ok("settings".to_owned());
    }
    let spec = GpuSpec::parse(text, Layer::User(path.display().to_string()))?;
    Ok(format!("catalog file of {} ({})", spec.slug, spec.name))
}

/// Top-level keys that only the settings file has.
const SETTINGS: [&str; 7] = ["theme", "color", "ascii", "mouse", "models", "plan", "keys"];
