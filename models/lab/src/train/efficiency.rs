//! `habitat-lab train --efficiency`: the efficiency model, with a card of its errors.

use std::io::Write;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::store::{self, EFFICIENCY, Limit, StoreError};

use super::sha256;
use crate::evaluate::published::{self, Judge};
use crate::models::ModelsByGpu;
use crate::published::{Extent, PublishedStep, read_all};

/// The card beside the model.
const CARD: &str = "efficiency.md";

pub(super) fn run(
    (file, recorded): (&Path, Option<&Path>),
    dir: &Path,
    force: bool,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let path = dir.join(EFFICIENCY);
    if path.exists() && !force {
        return Err(StoreError::Exists { path }.into());
    }
    let mut steps = read_all(file, recorded, catalog)?;
    // What is said of FP32 rests on operator models without the GPU, where such lie beside.
    let models = ModelsByGpu::open(dir)?;
    let judge = Judge::new(&models, catalog);
    let folds = judge.folds(&steps)?;
    // Their parts were to learn from.
    steps.retain(|step| step.extent != Extent::Part);
    let count = |is: &dyn Fn(&PublishedStep) -> bool| steps.iter().filter(|step| is(step)).count();
    let operators = count(&|step| !step.is_step());
    let learned = count(&|step| step.extent == Extent::Step);
    let elsewhere = steps.len() - operators - learned;
    let mut json = serde_json::to_vec_pretty(&folds.all).map_err(CliError::other)?;
    json.push(b'\n');
    store::save_atomically(&path, &json, true)?;
    let mut card = Vec::new();
    writeln!(
        card,
        "# Efficiency in mixed and reduced precision\n\n\
         Written by `habitat-lab train --efficiency steps.jsonl.zst --recorded DIR --force --out models` with\n\
         `{EFFICIENCY}`; the same steps and catalog give the same bytes. What the terms stand for is in `src/predict/efficiency/terms.rs`.\n\n\
         {} terms of arithmetic and {} of traffic, fitted to {} published steps on {} GPUs\n\
         (DeepLearningExamples, Lambda's logs, timm's tables and others, and steps recorded here, named in\n\
         `models/lab/steps/README.md`), whose parts are learned from too where they were recorded, and {}\n\
         operators that were measured alone. {} steps by other frameworks than PyTorch, whose operators they are\n\
         predicted from, are evaluated and not learned from.\n\
         SHA-256 of the file `{}`.\n\n\
         Steps in FP32 are answered by the operator models, their convolutions by a mean of both. What whole\n\
         training iterations in FP32 take of the sum of their operators is learned here too (`iterations`).\n\n\
         ## Errors\n",
        folds.all.compute.len(),
        folds.all.memory.len(),
        learned,
        folds.all.steps.boards.len(),
        operators,
        elsewhere,
        sha256(&store::read_as_it_is(file, Limit::WEIGHTS)?),
    )?;
    for (index, evaluation) in published::evaluations(&steps, &folds, &judge)?.iter().enumerate() {
        if index > 0 {
            writeln!(card)?;
        }
        evaluation.write_markdown(&|_| true, &mut card)?;
    }
    store::save_atomically(&dir.join(CARD), &card, true)?;
    writeln!(
        out,
        "{} steps on {} GPUs and {operators} operators; {EFFICIENCY} and {CARD} in {}",
        learned,
        folds.all.steps.boards.len(),
        dir.display()
    )?;
    Ok(0)
}
