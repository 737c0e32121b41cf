//! `habitat-lab train --black-box`: the black-box model, with a card of its errors.

use std::io::Write;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::{self, CliError};
use habitat_tui::predict::blackbox::{BlackBoxModel, Recorded};
use habitat_tui::store::{self, Limit, profet};

use super::sha256;
use crate::args::BlackBoxArgs;
use crate::evaluate::card;

/// The card beside the model.
const CARD: &str = "blackbox.md";

pub(super) fn run(
    data: &Path,
    dir: &Path,
    force: bool,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let (model, rows) = cli::fit_black_box(data, dir, force, catalog, out)?;
    let card = text(data, &model, &rows, catalog)?;
    store::save_atomically(&dir.join(CARD), card.as_bytes(), true)?;
    Ok(0)
}

/// What a user of the model should know.
fn text(data: &Path, model: &BlackBoxModel, rows: &[Recorded], catalog: &Catalog) -> Result<String, CliError> {
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
         other. The tables below choose them anew without the network (or family) that is evaluated. The form of the\n\
         model itself was found on these networks. There is nothing random in the fit; made with\n\n    \
         habitat-lab train --black-box DIR --out models\n\n\
         ## Errors\n",
        settings.ridge, settings.length, settings.noise
    )?;
    let args = BlackBoxArgs { families: true, kinds: true, ..BlackBoxArgs::default() };
    card::write_black_box(data, rows, &args, catalog, &mut text)?;
    writeln!(
        text,
        "\n## Limits\n\n\
         Only from and to the GPUs named above. Fitted on convolutional networks in TensorFlow with FP32 and small\n\
         networks fed from the host: on other frameworks, transformers or mixed precision nothing was measured. A mix of\n\
         operators unlike those fitted on gets a wider range and a note. Small steps that wait for the host err most."
    )?;
    String::from_utf8(text).map_err(CliError::other)
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
