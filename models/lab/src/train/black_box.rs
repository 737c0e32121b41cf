//! `habitat-lab train --black-box`: the black-box model, with a card of its errors.

use std::io::Write;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{self, CliError};
use habitat_tui::predict::blackbox::BlackBoxModel;
use habitat_tui::store::{self, Limit, profet};

use crate::evaluate::{Evaluation, card};
use crate::hash::sha256;

/// The card beside the model.
const CARD: &str = "blackbox.md";

pub(super) fn run(
    (data, tables): (&Path, Option<&Path>),
    dir: &Path,
    force: bool,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let (model, rows) = cli::fit_black_box(data, dir, force, catalog, out)?;
    let errors = card::black_box(data, &rows, catalog)?;
    store::save_atomically(&dir.join(CARD), &text(data, &model, &errors)?, true)?;
    if let Some(path) = tables {
        let mut text = Vec::new();
        writeln!(text, "# Errors of the black-box model")?;
        for evaluation in &errors {
            writeln!(text)?;
            evaluation.write_markdown(&|_| true, &mut text)?;
        }
        store::save_atomically(path, &text, true)?;
    }
    Ok(0)
}

/// Text of the model's card.
fn text(data: &Path, model: &BlackBoxModel, errors: &[Evaluation]) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    let settings = model.settings();
    writeln!(
        text,
        "# Black-box model\n\n\
         Step times on another GPU from the total device time of each kind of operator, the step time and the batch\n\
         size on an anchor GPU (the task of \"PROFET: PROFiling-based CNN Training Latency prophET for GPU Cloud\n\
         Instances\"). Non-negative factors by kind, drawn to the ratios of the data sheets, and a Gaussian\n\
         process on the rest. Form: `habitat-black-box-model`, version 1.\n\n\
         ## Train\n\n    \
         habitat-lab train --black-box DIR --out models --force --tables black-box-errors.md\n\n\
         Nothing is random in the fit. Ridge {}, length {}, noise {}: the settings with the smallest mean error on\n\
         networks left out one after the other. The errors below choose them again without the network (or family)\n\
         that is evaluated. The form of the model was found on these networks. `--tables FILE` also writes the\n\
         errors by pair of GPUs; `habitat-lab evaluate black-box DIR --families --kinds` prints them.\n\n\
         ## Data\n\n\
         {}.\n\
         Tables of https://github.com/ddps-lab/profet, commit ace81bf245608908b2971d049bd6c85a8eb9ba80 (MIT licence):\n\
         FP32, SGD, synthetic pictures, one GPU. The model holds the shares of operator kinds of every\n\
         workload, without names.\n",
        settings.ridge,
        settings.length,
        settings.noise,
        model.trained_on()
    )?;
    for (name, hash) in hashes(data)? {
        writeln!(text, "- `{name}`, SHA-256 `{hash}`")?;
    }
    writeln!(
        text,
        "\n## Errors\n\n\
         Absolute relative errors of the step on another GPU, every row and ordered pair pooled: mean · p90 · share in\n\
         the 80 % range."
    )?;
    card::write_black_box(errors, &mut text)?;
    writeln!(
        text,
        "\n## Limits\n\n\
         - Only from and to the GPUs named above.\n\
         - Fitted on convolutional networks in TensorFlow, FP32, with small networks fed from the host. Other\n  \
           frameworks, transformers and mixed precision were not measured.\n\
         - A mix of operators unlike those fitted on gets a wider range and a note.\n\
         - Small steps that wait for the CPU err most."
    )?;
    Ok(text)
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
