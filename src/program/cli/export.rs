//! `habitat-tui export --black-box`: an anonymised summary of a profile.

use std::io::Write;

use super::error::{At, CliError};
use super::gpu;
use super::input::load;
use crate::settings::args::{ExportArgs, InputArgs, RecordedArgs};
use crate::store::{self, Paths};
use habitat_prediction::blackbox::{OperatorTotals, TotalsError};

pub(super) fn run(args: &ExportArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    let recorded = RecordedArgs { batch_size: args.batch_size, ..RecordedArgs::default() };
    let input = InputArgs { file: args.file.clone(), sample: args.sample, recorded, ..InputArgs::default() };
    let loaded = load(&input, &catalog)?;
    loaded.warn();
    let named = args.origin.as_ref().map(|name| gpu::one(&catalog, "--origin", name)).transpose()?;
    let recorded = loaded.profile.origin.as_ref().and_then(|origin| origin.gpu.as_ref());
    let gpu = named.or_else(|| recorded.and_then(|slug| catalog.get(slug)));
    let gpu = gpu.ok_or(TotalsError::NoGpu).at(&loaded.label)?;
    let totals = OperatorTotals::of_profile(&loaded.profile, Some(&gpu.slug)).at(&loaded.label)?;
    let json = totals.to_json()?;
    match &args.output {
        Some(path) => {
            store::save_atomically(path, &json, args.force)?;
            writeln!(
                out,
                "{}: {} kinds of operators with their total times, step time ({:.2} ms), batch size and GPU ({}); nothing else",
                path.display(),
                totals.kinds.len(),
                totals.step.as_millis(),
                totals.gpu
            )?;
        }
        None => out.write_all(habitat_base::text::json_escaped(&String::from_utf8_lossy(&json)).as_bytes())?,
    }
    Ok(0)
}
