//! `habitat-lab train`: the operator models, with a card of their errors.

use std::io::Write;
use std::path::{Path, PathBuf};

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::store::{self, WEIGHTS};

use crate::evaluate::card::OperatorErrors;
use crate::models::ModelsByGpu;
use crate::operators::{Data, FOLDERS, finish, read, train};

/// The card beside the weights.
const CARD: &str = "operators.md";

pub(super) fn run(
    (dir, collected, tables): (&Path, &[PathBuf], Option<&Path>),
    to: &Path,
    seed: u64,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let data = read(dir, collected, catalog)?;
    let trained = train(&data, to, seed, catalog)?;
    let size = finish(&data, &trained, to, seed)?;
    let errors = OperatorErrors::evaluate(dir, catalog, &ModelsByGpu::open(to)?)?;
    store::save_atomically(&to.join(CARD), &card(&data, seed, size, &errors)?, true)?;
    if let Some(path) = tables {
        store::save_atomically(path, &all_tables(&data, &errors)?, true)?;
    }
    writeln!(
        out,
        "{} GPUs, {} files; weights {:.1} MB and {CARD} in {}",
        data.set.gpus.len(),
        data.files.len(),
        size as f64 / 1e6,
        to.display()
    )?;
    Ok(0)
}

/// Text of the card.
fn card(data: &Data, seed: u64, size: u64, errors: &OperatorErrors) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    writeln!(
        text,
        "# Operator models\n\n\
         Times of single operators in FP32 on any GPU: products, batched products, convolutions, softmax,\n\
         normalisation and elementwise. time = launch + bound / (use · gpu): `bound` is the time at the rates that\n\
         the GPU sustains (`src/prediction/rate.rs`), `use` a bounded utilisation by four small networks from\n\
         scale-free features (`src/prediction/features.rs`), `gpu` a factor of a measured GPU.\n\n\
         ## Train\n\n    \
         habitat-lab train --data DIR --seed {seed} --out models --force --tables operator-errors.md\n\n\
         writes the weights ({:.1} MB in all) and this card. The same data and seed give the same bytes.\n\
         `{WEIGHTS}` is shipped; `without/` has, for each measured GPU, the models that never saw it, from\n\
         which errors and ranges come. `--tables FILE` also writes every table of errors by GPU;\n\
         `habitat-lab evaluate ops` and `habitat-lab evaluate steps` print the same.\n\n\
         ## Data\n\n\
         | model | rows | GPUs |\n| --- | ---: | --- |",
        size as f64 / 1e6
    )?;
    for (model, rows) in &data.set.rows {
        let mut slugs: Vec<&str> = rows.iter().map(|row| data.set.gpus[row.gpu].slug.as_str()).collect();
        slugs.sort_unstable();
        slugs.dedup();
        writeln!(text, "| {} | {} | {} |", model.name(), rows.len(), slugs.join(", "))?;
    }
    let is_step = |name: &str| name.starts_with(FOLDERS[2]);
    let steps = data.files.iter().filter(|(name, _)| is_step(name)).count();
    writeln!(
        text,
        "\n{} tables and {steps} profiles of steps; SHA-256 of all files\n\
         `{}`. The shipped weights are from NeuSight (Lee, Phanishayee, Mahajan,\n\
         ASPLOS 2025; MIT licence; PyTorch 2.1, TF32 off) and MLPredict (Justus et al., 2018; Apache-2.0; TensorFlow 1.10).\n\n\
         ## Errors\n\n\
         Absolute relative errors on a GPU that was left out of the training: mean · p90 · share in the 80 % range.\n\
         Operators are those of the tables' test split.\n",
        data.files.len() - steps,
        data.hash,
    )?;
    errors.write_summary(&mut text)?;
    writeln!(
        text,
        "\n## Limits\n\n\
         - Only FP32 was measured, except in files of `habitat-tui collect`: other precisions use the rates of\n  \
           the catalog and wider ranges.\n\
         - Convolutions: 3 × 3 on five GPUs by kernel times; other sizes from the host times of one program.\n\
         - Backward products and convolutions are assumed to run like forward ones of their shapes.\n\
         - Heat slows a GPU in its own way: a P4's matrix products ran at 1.0 TFLOP/s on one occasion and\n  \
           at 4.5 on another, its steps at 2.1.\n\
         - The sizes of the networks were chosen by the errors above.\n\
         - Steps measured after this training are in [accuracy.md](../docs/accuracy.md) alone."
    )?;
    Ok(text)
}

/// All tables of errors, and the training files.
fn all_tables(data: &Data, errors: &OperatorErrors) -> Result<Vec<u8>, CliError> {
    let mut text = Vec::new();
    writeln!(text, "# Errors of the operator models\n")?;
    errors.write_all(&mut text)?;
    writeln!(text, "\n## Data\n\nAll files together: SHA-256 `{}`.\n\n| file | SHA-256 |\n| --- | --- |", data.hash)?;
    for (name, hash) in &data.files {
        writeln!(text, "| {name} | `{hash}` |")?;
    }
    Ok(text)
}
