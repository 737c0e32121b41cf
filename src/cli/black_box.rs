//! `predict --black-box`, `plan --black-box` and `models train --black-box`.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use super::train::sha256;
use super::{CliError, evaluate, gpu};
use crate::catalog::Catalog;
use crate::learn::blackbox::{fit, sizes};
use crate::predict::Predictions;
use crate::predict::blackbox::{Axis, BlackBoxModel, OperatorTotals, Recorded, between, predict};
use crate::report::format;
use crate::settings::args::{BlackBoxArgs, BlackBoxEvaluateArgs, InputArgs};
use crate::store::{self, Kind, Limit, StoreError, profet};

/// The card beside the model.
const CARD: &str = "blackbox.md";

/// Predictions from the black box of `args`, and a line on what it is.
pub(super) fn answers(
    args: &BlackBoxArgs,
    file: &Path,
    input: &InputArgs,
    models: &Path,
    to: &[String],
    catalog: &Catalog,
) -> Result<(Predictions, String), CliError> {
    let model = store::black_box(models)?;
    let targets = gpu::all(catalog, "--to", to)?;
    let one = |path: &Path| -> Result<(OperatorTotals, Predictions), CliError> {
        let totals = match store::kind(path)? {
            Kind::BlackBox => store::read_totals(path)?,
            other => return Err(other.refused(path, "a black box, as `habitat-tui export --black-box` writes").into()),
        };
        let named = |error| CliError(format!("{}: {error}", path.display()));
        let predictions = predict(&totals, &model, catalog, &targets, input.peak_memory).map_err(named)?;
        Ok((totals, predictions))
    };
    let (totals, mut predictions) = one(file)?;
    let mut line = format!(
        "{}: black box, {} kinds of operators on {}, {} a step, batch {}",
        file.display(),
        totals.kinds.len(),
        totals.gpu,
        format::time(totals.step),
        totals.batch_size
    );
    if let Some(path) = &args.up_to {
        let (largest, at_largest) = one(path)?;
        let (axis, sizes, size) = match (args.at_batch, args.at_pixels, &args.pixels[..]) {
            (Some(size), None, _) => (Axis::Batch, [totals.batch_size, largest.batch_size], size),
            (None, Some(size), &[small, large]) => (Axis::Pixels, [small, large], size),
            _ => {
                return Err(CliError(
                    "--up-to: which size between? give --at-batch N, or --at-pixels N with --pixels SMALL,LARGE"
                        .to_owned(),
                ));
            }
        };
        predictions = between(&model, axis, &predictions, &at_largest, sizes, size).map_err(CliError::of)?;
        let what = if axis == Axis::Batch { "batch" } else { "pictures of side" };
        line = format!("{line}; up to {}: {what} {size}", path.display());
    }
    Ok((predictions, line))
}

/// `models train --black-box DIR`.
pub(super) fn train(
    data: &Path,
    dir: &Path,
    force: bool,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let path = dir.join(store::BLACK_BOX);
    if path.exists() && !force {
        return Err(StoreError::Exists { path }.into());
    }
    let rows = profet::read(data)?;
    let sizes = sizes::fit(&profet::read_latencies(data)?);
    let all: Vec<&Recorded> = rows.iter().collect();
    let model = fit(&all, catalog, &trained_on(&rows), sizes).map_err(CliError::of)?;
    let json = model.to_json().map_err(CliError::of)?;
    let card = card(data, &model, &rows, catalog)?;
    store::save_atomically(&path, &json, true)?;
    store::save_atomically(&dir.join(CARD), card.as_bytes(), true)?;
    writeln!(out, "{}: {}, {} kB", path.display(), model.trained_on(), json.len() / 1000)?;
    Ok(0)
}

fn trained_on(rows: &[Recorded]) -> String {
    let workloads: BTreeSet<_> = rows.iter().map(|row| (&row.network, row.pixels, row.totals.batch_size)).collect();
    let networks: BTreeSet<_> = rows.iter().map(|row| &row.network).collect();
    let gpus: BTreeSet<_> = rows.iter().map(|row| row.totals.gpu.as_str()).collect();
    format!(
        "{} workloads of {} convolutional networks trained in TensorFlow on {}",
        workloads.len(),
        networks.len(),
        gpus.into_iter().collect::<Vec<_>>().join(", ")
    )
}

/// What a user of the model should know.
fn card(data: &Path, model: &BlackBoxModel, rows: &[Recorded], catalog: &Catalog) -> Result<String, CliError> {
    let mut text = Vec::new();
    writeln!(
        text,
        "# The black-box model\n\n\
         Step times on another GPU from the total device time of each kind of operator, the step time and the batch\n\
         size on an anchor GPU (the case of \"PROFET: PROFiling-based CNN Training Latency prophET for GPU Cloud\n\
         Instances\"). Non-negative factors by kind, drawn to the ratios of the data sheets, and a Gaussian\n\
         process on what they leave. Form: `habitat-black-box-model`, version 1.\n\n\
         ## Data\n\n\
         {}.\n\
         Tables of https://github.com/ddps-lab/profet, commit ace81bf245608908b2971d049bd6c85a8eb9ba80 (MIT licence):\n\
         FP32, SGD, synthetic pictures, one GPU. The model holds the shares of operator kinds of every\n\
         workload, without names.\n",
        model.trained_on()
    )?;
    for (name, hash) in hashes(data)? {
        writeln!(text, "- `{name}`, SHA-256 `{hash}`")?;
    }
    let settings = model.settings();
    writeln!(
        text,
        "\n## Protocol\n\n\
         Ridge {}, length {}, noise {}: the settings with the smallest mean error on networks left out one after the\n\
         other. The tables below choose them anew without the network (or family) that is judged. The form of the\n\
         model itself was found on these networks. There is nothing random in the fit; made with\n\n    \
         habitat-tui models train --black-box DIR --out models\n\n\
         ## Errors\n",
        settings.ridge, settings.length, settings.noise
    )?;
    let args = BlackBoxEvaluateArgs { families: true, ..BlackBoxEvaluateArgs::default() };
    evaluate::write_black_box_card(data, rows, &args, catalog, &mut text)?;
    writeln!(
        text,
        "\n## Limits\n\n\
         Only from and to the GPUs named above. Fitted on convolutional networks in TensorFlow with FP32 and small\n\
         networks fed from the host: on other frameworks, transformers or mixed precision nothing was measured. A mix of\n\
         operators unlike those fitted on gets a wider range and a note. Small steps that wait for the host err most."
    )?;
    String::from_utf8(text).map_err(CliError::of)
}

/// Hashes of the tables of a folder, by name.
fn hashes(dir: &Path) -> Result<Vec<(String, String)>, CliError> {
    let mut found = Vec::new();
    for path in profet::files(dir)? {
        let bytes = store::read_as_it_is(&path, Limit::TABLE)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, sha256(&bytes)));
    }
    Ok(found)
}
