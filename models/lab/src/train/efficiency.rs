//! `habitat-lab train --efficiency`: the efficiency model, with a card of its errors.

use std::io::Write;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::store::{self, EFFICIENCY, Limit, StoreError};

use crate::evaluate::Evaluation;
use crate::evaluate::judge::Judge;
use crate::evaluate::published;
use crate::hash::sha256;
use crate::learn::efficiency::folds::Folds;
use crate::models::ModelsByGpu;
use crate::published::{Extent, PublishedStep, read_all};

/// The card beside the model.
const CARD: &str = "efficiency.md";

pub(super) fn run(
    (file, recorded, tables): (&Path, Option<&Path>, Option<&Path>),
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
    // Errors in FP32 need operator models without the GPU, if those are in the folder.
    let models = ModelsByGpu::open(dir)?;
    let judge = Judge::new(&models, catalog);
    let folds = judge.folds(&steps)?;
    // Parts of steps were only for learning.
    steps.retain(|step| step.extent != Extent::Part);
    let count = |is: &dyn Fn(&PublishedStep) -> bool| steps.iter().filter(|step| is(step)).count();
    let operators = count(&|step| !step.is_step());
    let learned = count(&|step| step.extent == Extent::Step);
    let elsewhere = steps.len() - operators - learned;
    let mut json = serde_json::to_vec_pretty(&folds.all).map_err(CliError::other)?;
    json.push(b'\n');
    store::save_atomically(&path, &json, true)?;
    let evaluations = published::evaluations(&steps, &folds, &judge)?;
    let data = Data { learned, operators, elsewhere, hash: sha256(&store::read_as_it_is(file, Limit::WEIGHTS)?) };
    store::save_atomically(&dir.join(CARD), &card(&data, &folds, &evaluations)?, true)?;
    if let Some(path) = tables {
        let mut text = Vec::new();
        writeln!(text, "# Errors of the efficiency model\n")?;
        for (index, evaluation) in evaluations.iter().enumerate() {
            if index > 0 {
                writeln!(text)?;
            }
            evaluation.write_markdown(&|_| true, &mut text)?;
        }
        store::save_atomically(path, &text, true)?;
    }
    writeln!(
        out,
        "{} steps on {} GPUs and {operators} operators; {EFFICIENCY} and {CARD} in {}",
        learned,
        folds.all.steps.boards.len(),
        dir.display()
    )?;
    Ok(0)
}

/// Training data of the model.
struct Data {
    /// Steps and operators that were learned from, and steps by other frameworks.
    learned: usize,
    operators: usize,
    elsewhere: usize,
    /// SHA-256 of the published steps.
    hash: String,
}

/// Text of the model's card.
fn card(data: &Data, folds: &Folds, evaluations: &[Evaluation]) -> Result<Vec<u8>, CliError> {
    let Data { learned, operators, elsewhere, hash } = data;
    let mut card = Vec::new();
    writeln!(
        card,
        "# Efficiency model\n\n\
         Times of whole steps and operators in FP16, BF16, TF32 and FP8, and of convolutions in FP32: the time of the\n\
         arithmetic and of the traffic at the rates that the GPU sustains, each times a factor. Factors depend on\n\
         the kind of operator, its direction, memory layout, sizes, kernel and the GPU. {} terms of arithmetic and\n\
         {} of traffic; `habitat-lab terms` prints them with the reasons. `{EFFICIENCY}` also has the ratio of\n\
         whole FP32 training iterations to the sum of their operators (`iterations`).\n\n\
         ## Train\n\n    \
         habitat-lab train --efficiency STEPS/steps.jsonl.zst --recorded models/lab/samples/recorded --force --out models --tables efficiency-errors.md\n\n\
         writes `{EFFICIENCY}` and this card; the same steps and catalog give the same bytes. `--tables FILE` also\n\
         writes every table of errors, by GPU, source, release and design; `habitat-lab evaluate published` prints\n\
         them. The committed steps are `models/lab/samples/published/steps.jsonl.zst`.\n\n\
         ## Data\n\n\
         {learned} steps on {} GPUs: published ones (timm's tables, Lambda's logs and table, NVIDIA's\n\
         DeepLearningExamples, cudnn-frontend and others) and steps recorded by this project on an H100 and an H200, whose\n\
         operators are learned from too. {operators} operators that were measured alone. {elsewhere} steps by other\n\
         frameworks than PyTorch are evaluated and not learned from. SHA-256 of the published steps\n\
         `{}`.\n\n\
         Licences: timm, DeepLearningExamples, aiconfigurator-core, XLA and DeepBench Apache-2.0 or BSD; cudnn-frontend\n\
         MIT. Lambda's logs and u39kun's benchmark name no licence: their figures alone are used. Recorded steps have\n\
         the licence of this project. [models/lab/steps](lab/steps/README.md) has the sources.\n\n\
         ## Errors\n\n\
         Absolute relative errors: mean · p90 · share in the 80 % range. A network is left out with its whole design.\n\
         FP32 is predicted by the operator models, its convolutions by a mean of both. \"Collected\" operators have\n\
         random sizes, which few networks have.\n",
        folds.all.compute.iter().count(),
        folds.all.memory.iter().count(),
        folds.all.steps.boards.len(),
        hash,
    )?;
    let methods = [
        ("learned, network left out", "network left out"),
        ("learned, GPU left out", "GPU left out"),
        ("learned, both left out", "both left out"),
        ("roofline", "roofline"),
    ];
    // Totals by mode and precision; other groups name a GPU, a source or a design.
    let is_total = |group: &str| !group.contains([':', '→']) && group.matches(',').count() == 1;
    if let Some(whole) = evaluations.first() {
        whole.write_summary(&is_total, &methods, &mut card)?;
    }
    // Ratios of two GPUs.
    for note in evaluations.get(2).into_iter().flat_map(Evaluation::notes) {
        writeln!(card, "\nIn pairs of GPUs, {note}.")?;
    }
    writeln!(
        card,
        "\n## Limits\n\n\
         - No step in FP8, two through `torch.compile`: wider ranges. AMD GPUs have [terms of their own](amd.md).\n\
         - Most steps in FP16 ran on an RTX 3090 or 5090; all inference steps are image networks. BF16 ran on\n  \
           an H100 and an H200 alone.\n\
         - Old releases of PyTorch and steps by other frameworks take longer than predicted.\n\
         - Steps that wait for their CPU are predicted too fast; the range and a warning allow for it.\n\
         - Depthwise 9 × 9 convolutions, DarkNet, ConvNeXt in TF32 and operators of random sizes err most."
    )?;
    Ok(card)
}
