//! `habitat-lab evaluate accuracy`: the table of docs/accuracy.md, each row from the evaluation that has its figures.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;

use super::published::{BOTH, NETWORK};
use super::tally::{Evaluation, Groups, Predicted, share};
use super::{batches, black_box, kernelwise, llm, published, scaling, steps};
use crate::args::BlackBoxArgs;
use crate::learn::efficiency::amd::{Amd, fit};
use crate::models::ModelsByGpu;
use crate::published::{FILE, ON_AMD, read_on_amd};

/// Evaluation with a row's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    /// NeuSight's steps by models without their GPU.
    Steps,
    /// The same by the shipped models, which saw the GPU.
    StepsSeen,
    /// Steps recorded by this project.
    Recorded,
    Published,
    Amd,
    /// Linear models of kernels within a GPU.
    Kernels,
    /// The same on a GPU left out.
    KernelsUnseen,
    BlackBox,
    Batches,
    Scaling,
    Machines,
    LanguageModels,
}

/// First cells of a row, evaluation, group and method.
type Row = ([&'static str; 4], Of, &'static str, &'static str);

const ANOTHER: &str = "the step on another GPU";
const SHAPES: &str = "shapes alone";
const KERNELS: &str = "several recorded steps (`fit kernelwise`)";
const DENSE: &str = "the dimensions of a dense language model";
const SAME: &str = "same GPU";

/// The rows of the table.
const ROWS: &[Row] = &[
    ([ANOTHER, "inference, transformers †", "FP32", "no"], Of::Steps, "inference", "from another GPU"),
    ([ANOTHER, "training, transformers †", "FP32", "no"], Of::Steps, "training", "from another GPU"),
    (
        [ANOTHER, "training, H100 ↔ H200 †", "BF16, 3 of 20 in 32 bits", "yes"],
        Of::Recorded,
        "training",
        "from another GPU",
    ),
    ([SHAPES, "inference, transformers †", "FP32", "yes"], Of::StepsSeen, "inference", SHAPES),
    ([SHAPES, "inference, transformers †", "FP32", "no"], Of::Steps, "inference", SHAPES),
    ([SHAPES, "training, transformers, no optimizer †", "FP32", "no"], Of::Steps, "training", SHAPES),
    ([SHAPES, "training", "FP32", "yes"], Of::Published, "training, fp32", NETWORK),
    ([SHAPES, "training", "FP32", "no"], Of::Published, "training, fp32", BOTH),
    ([SHAPES, "inference, image networks", "FP16 autocast", "yes"], Of::Published, "inference, amp-fp16", NETWORK),
    ([SHAPES, "inference, image networks", "FP16 autocast", "no"], Of::Published, "inference, amp-fp16", BOTH),
    ([SHAPES, "training", "FP16 autocast", "yes"], Of::Published, "training, amp-fp16", NETWORK),
    ([SHAPES, "training", "FP16 autocast", "no"], Of::Published, "training, amp-fp16", BOTH),
    ([SHAPES, "training, H100 and H200", "BF16 autocast", "yes"], Of::Published, "training, amp-bf16", NETWORK),
    ([SHAPES, "training, H100 and H200", "BF16 autocast", "no"], Of::Published, "training, amp-bf16", BOTH),
    ([SHAPES, "training, Llama 3.2 1B on an H200", "BF16 weights", "yes"], Of::Published, "training, bf16", NETWORK),
    ([SHAPES, "training, Llama 3.2 1B on an H200", "BF16 weights", "no"], Of::Published, "training, bf16", BOTH),
    ([SHAPES, "training", "TF32", "yes"], Of::Published, "training, tf32", NETWORK),
    ([SHAPES, "training", "TF32", "no"], Of::Published, "training, tf32", BOTH),
    (
        [SHAPES, "training and inference, AMD GPUs (MI325X, MI300X, MI210)", "FP16, BF16, FP32", "yes"],
        Of::Amd,
        AMD,
        NETWORK,
    ),
    ([SHAPES, "training and inference, AMD GPUs (MI325X, MI300X, MI210)", "FP16, BF16, FP32", "no"], Of::Amd, AMD, GPU),
    ([KERNELS, "transformers", "FP32", "yes"], Of::Kernels, "all", "kernel-wise"),
    ([KERNELS, "the same †", "FP32", "no"], Of::KernelsUnseen, "all", "kernel-wise"),
    (
        ["totals by kind of operator (black box)", "training, CNNs in TensorFlow", "FP32", "yes"],
        Of::BlackBox,
        "all",
        "black box",
    ),
    (["two or three batch sizes", "twice the batch", "FP32", SAME], Of::Batches, "all, 2 times", "batch line"),
    (["two or three batch sizes", "four times the batch", "FP32", SAME], Of::Batches, "all, 4 times", "batch line"),
    (["the step on one GPU", "several GPUs of the machine", "all", SAME], Of::Scaling, "pairs fitted to", "model"),
    (
        ["and on two GPUs", "more GPUs of the machine", "all", SAME],
        Of::Scaling,
        "pairs fitted to",
        "calibrated on 2 GPUs",
    ),
    (
        ["the step on one machine", "several machines, FSDP", "BF16", SAME],
        Of::Machines,
        "all pairs",
        "1,600 Gbit/s assumed",
    ),
    (
        [DENSE, "training on 8 to 3,360 GPUs, any layout ‡", "FP16", "yes"],
        Of::LanguageModels,
        "dense in fp16",
        "layout",
    ),
    ([DENSE, "the same ‡", "BF16", "yes"], Of::LanguageModels, "dense in bf16", "layout"),
    ([DENSE, "the same ‡", "FP8", "yes"], Of::LanguageModels, "dense in fp8", "layout"),
    (
        ["the dimensions of one with experts", "training on 8 to 1,024 GPUs ‡", "BF16, FP8", "yes"],
        Of::LanguageModels,
        "experts",
        "layout",
    ),
];

/// Group of the steps on AMD GPUs, and their method without the GPU.
const AMD: &str = "AMD GPUs";
const GPU: &str = "learned, GPU left out";

/// Writes the table with the tables in `data` (`neusight`, `profet`, `llm`) and the committed ones in `samples`.
pub(super) fn write(
    (data, samples): (&Path, &Path),
    catalog: &Catalog,
    models: &ModelsByGpu,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let mut done: BTreeMap<Of, Vec<Evaluation>> = BTreeMap::new();
    writeln!(out, "{HEADING}")?;
    let mut above = [""; 4];
    for &(cells, of, group, method) in ROWS {
        // One evaluation has several tables; of linear models, the first is of operators.
        let (from, table) = match of {
            Of::Kernels => (of, 1),
            Of::KernelsUnseen => (Of::Kernels, 2),
            _ => (of, 0),
        };
        let found = match done.entry(from) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => place.insert(evaluate(from, (data, samples), catalog, models)?),
        };
        let row = found.get(table).and_then(|found| found.row(group, method)).ok_or_else(|| {
            CliError::Refused(format!("{of:?}: no figures of {method:?} on {group:?}; the data may lack them"))
        })?;
        // Cells that repeat the row above are empty.
        let same = cells.iter().zip(above).take_while(|(here, above)| **here == *above).count().min(3);
        let first: Vec<&str> = (0..4).map(|at| if at < same { "" } else { cells[at] }).collect();
        above = cells;
        let figures = ["mean_absolute_error", "p90_absolute_error"].map(|key| share(row, key)).join(" | ");
        let inside = row["coverage"].as_f64().map_or_else(|| "–".to_owned(), |it| format!("{:.0} %", it * 100.0));
        let count = habitat_tui::report::format::grouped(row["pairs"].as_f64().unwrap_or_default());
        writeln!(out, "| {} | {figures} | {inside} | {count} |", first.join(" | "))?;
    }
    Ok(0)
}

const HEADING: &str = "| you have | step | precision | GPU seen | mean | p90 | in range | n |\n| --- | --- | --- | --- | ---: | ---: | ---: | ---: |";

fn evaluate(
    of: Of,
    (data, samples): (&Path, &Path),
    catalog: &Catalog,
    models: &ModelsByGpu,
) -> Result<Vec<Evaluation>, CliError> {
    let shipped = Some(Arc::new(habitat_tui::store::bundled::models()));
    let seen = ModelsByGpu { shipped, ..ModelsByGpu::default() };
    let at = |name: &str| samples.join("published").join(name);
    Ok(match of {
        Of::Steps => vec![steps::evaluate(&data.join("neusight/steps"), &steps::BOTH, catalog, models)?],
        Of::StepsSeen => vec![steps::evaluate(&data.join("neusight/steps"), &[steps::ALONE], catalog, &seen)?],
        Of::Recorded => vec![steps::evaluate(&samples.join("recorded"), &[steps::ELSEWHERE], catalog, &seen)?],
        Of::Published => vec![published::left_out(&at(FILE), &samples.join("recorded"), catalog, models)?],
        Of::Amd => vec![amd(&ON_AMD.map(at), catalog)?],
        Of::Kernels | Of::KernelsUnseen => kernelwise::evaluate(&data.join("neusight"), catalog, models)?,
        Of::BlackBox => {
            black_box::evaluate(&BlackBoxArgs { dir: Some(data.join("profet")), ..BlackBoxArgs::default() }, catalog)?
        }
        Of::Batches => batches::evaluate(&data.join("profet"))?,
        Of::Scaling => vec![scaling::evaluate(&at("scaling.csv"), catalog)?],
        Of::Machines => vec![scaling::evaluate(&at("machines.csv"), catalog)?],
        Of::LanguageModels => vec![llm::evaluate(&data.join("llm"), catalog, &seen)?],
    })
}

/// Steps on AMD GPUs by terms that did not see their family of networks, or their GPU.
fn amd(files: &[std::path::PathBuf], catalog: &Catalog) -> Result<Evaluation, CliError> {
    let shipped = habitat_tui::store::bundled::models();
    let model = shipped.efficiency().ok_or_else(|| CliError::other("no efficiency model is shipped"))?;
    let steps = read_on_amd(files, catalog)?;
    let Amd { terms, left_out } = fit(&steps, catalog, model);
    let mut groups = Groups::default();
    for left in &left_out {
        let step = &steps[left.at];
        let label = || format!("{} on {}", step.profile.workload.name, step.gpu);
        for (method, log, spread) in [(NETWORK, left.network, terms.steps.seen), (GPU, left.gpu, terms.steps.unseen)] {
            let mid = step.time.as_millis() * (-log).exp();
            let range = spread.map(|spread| [mid * spread.low, mid * spread.high]);
            groups.add(AMD, method, Predicted { mid, range }, step.time.as_millis(), &label);
        }
    }
    Ok(groups.evaluation("steps on AMD GPUs".to_owned(), Vec::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/accuracy.md has the rows of this command, in their order.
    #[test]
    fn the_rows_are_those_of_the_document() {
        let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/accuracy.md")).unwrap();
        let table = document.split("| you have |").nth(1).unwrap().split("\n\n").next().unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        let mut above = [""; 4];
        assert_eq!(rows.len(), ROWS.len());
        for (row, (cells, ..)) in rows.iter().zip(ROWS) {
            let found: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let full: Vec<&str> = (0..4).map(|at| if found[at].is_empty() { above[at] } else { found[at] }).collect();
            assert_eq!(full, cells);
            above = *cells;
        }
    }
}
