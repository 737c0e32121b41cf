//! `habitat-lab train --amd`: the efficiency model's terms of AMD GPUs, with a card of their errors.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::efficiency::{Efficiency, Side, VendorTerms};
use habitat_tui::predict::learned::Spread;
use habitat_tui::profile::Precision;
use habitat_tui::store::{self, EFFICIENCY, Limit, StoreError};

use crate::learn::efficiency::amd::{Amd, LeftOut, fit};
use crate::published::{Extent, PublishedStep, read_on_amd};

/// The card beside the model.
const CARD: &str = "amd.md";

pub(super) fn run(files: &[PathBuf], dir: &Path, catalog: &Catalog, out: &mut dyn Write) -> Result<u8, CliError> {
    let path = dir.join(EFFICIENCY);
    let json = store::read_as_it_is(&path, Limit::WEIGHTS)?;
    let mut model = Efficiency::from_json(&json).map_err(|error| StoreError::content(&path, error))?;
    let steps = read_on_amd(files, catalog)?;
    if steps.is_empty() {
        return Err(CliError::Refused("no step of these files ran on an AMD GPU".to_owned()));
    }
    let Amd { terms, left_out } = fit(&steps, catalog, &model);
    let card = card(&steps, &left_out, &terms)?;
    model.amd = Some(terms);
    let mut json = serde_json::to_vec_pretty(&model).map_err(CliError::other)?;
    json.push(b'\n');
    store::save_atomically(&path, &json, true)?;
    store::save_atomically(&dir.join(CARD), &card, true)?;
    writeln!(out, "{} steps and operators on AMD GPUs; {EFFICIENCY} and {CARD} in {}", steps.len(), dir.display())?;
    Ok(0)
}

/// Mean error, and median of predicted over measured, from logarithms of measured over predicted.
fn figures(mut logs: Vec<f64>) -> (f64, f64) {
    logs.sort_by(f64::total_cmp);
    let mean = logs.iter().map(|log| ((-log).exp() - 1.0).abs()).sum::<f64>() / logs.len().max(1) as f64;
    (mean, (-logs.get(logs.len() / 2).copied().unwrap_or_default()).exp())
}

fn card(steps: &[PublishedStep], left_out: &[LeftOut], terms: &VendorTerms) -> Result<Vec<u8>, CliError> {
    let mut card = Vec::new();
    let added: usize = Side::ALL.iter().map(|side| terms.factors(*side).iter().count()).sum();
    let operators = steps.iter().filter(|step| step.extent != Extent::Step).count();
    writeln!(
        card,
        "# AMD GPUs in the efficiency model\n\n\
         [`{EFFICIENCY}`](efficiency.md) has under `amd` what {added} of its terms add on AMD GPUs: libraries there (rocBLAS,\n\
         hipBLASLt, MIOpen, Composable Kernel, Triton) reach other shares of the rates than NVIDIA's. Each term of NVIDIA's\n\
         is the middle of what is expected of AMD's. Channels-last images count as channels first, and TF32 as FP32, as in\n\
         PyTorch on ROCm. The rates themselves are the catalog's, by architecture.\n\n\
         ## Train\n\n    \
         habitat-lab train --amd models/lab/samples/published/milabench.jsonl.zst --amd models/lab/samples/published/amd.jsonl.zst --force --out models\n\n\
         after `train --efficiency`, whose terms it keeps.\n\n\
         ## Data\n\n\
         {} steps and {operators} operators on AMD GPUs ([sources](lab/steps/README.md)). Steps of MI325X are eager ones\n\
         by PyTorch 2.5.1 with ROCm 6.2.\n\n\
         ## Errors\n\n\
         Mean of absolute relative errors · median of predicted over measured, with the network's family left out and with\n\
         the GPU left out, whose other data are then kernels and steps of inference alone.\n\n\
         | GPU | network | precision | n | network left out | GPU left out |\n| --- | --- | --- | ---: | ---: | ---: |",
        left_out.len(),
    )?;
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&LeftOut>> = BTreeMap::new();
    for left in left_out {
        let step = &steps[left.at];
        let precision = step.profile.workload.precision.map_or("", Precision::name);
        groups.entry((step.gpu.as_str(), &*step.network, precision)).or_default().push(left);
    }
    let cell = |logs: Vec<f64>| {
        let (mean, ratio) = figures(logs);
        format!("{:.1} % · {ratio:.2}", mean * 100.0)
    };
    let row = |lefts: &[&LeftOut]| {
        let of = |log: &dyn Fn(&LeftOut) -> f64| cell(lefts.iter().map(|left| log(left)).collect());
        format!("{} | {} | {}", lefts.len(), of(&|left| left.network), of(&|left| left.gpu))
    };
    for ((gpu, network, precision), lefts) in &groups {
        writeln!(card, "| {gpu} | {network} | {precision} | {} |", row(lefts))?;
    }
    writeln!(card, "| all | | | {} |", row(&left_out.iter().collect::<Vec<_>>()))?;
    let inside = |spread: Option<Spread>, log: &dyn Fn(&LeftOut) -> f64| {
        let is_in =
            |left: &&LeftOut| spread.is_some_and(|spread| (spread.low..=spread.high).contains(&log(left).exp()));
        100.0 * left_out.iter().filter(is_in).count() as f64 / left_out.len().max(1) as f64
    };
    let ninth = |log: &dyn Fn(&LeftOut) -> f64| {
        let mut errors: Vec<f64> = left_out.iter().map(|left| ((-log(left)).exp() - 1.0).abs() * 100.0).collect();
        errors.sort_by(f64::total_cmp);
        errors.get((errors.len().saturating_sub(1) as f64 * 0.9).round() as usize).copied().unwrap_or_default()
    };
    let count = left_out.len();
    let (of_network, of_gpu) = (ninth(&|left| left.network), ninth(&|left| left.gpu));
    writeln!(card, "| nine tenths are closer than | | | {count} | {of_network:.1} % | {of_gpu:.1} % |")?;
    let (seen, unseen) = (terms.steps.seen, terms.steps.unseen);
    writeln!(
        card,
        "| in the ranges below, which are of these errors | | | {count} | {:.0} % | {:.0} % |",
        inside(seen, &|left| left.network),
        inside(unseen, &|left| left.gpu)
    )?;
    let range = |spread: Option<Spread>| {
        spread.map_or_else(String::new, |spread| format!("{:.2} to {:.2}", spread.low, spread.high))
    };
    writeln!(
        card,
        "\n80 % ranges of measured over predicted steps: {} times on GPUs with steps above, {} times on others, as far\n\
         down as up.\n\n\
         ## Limits\n\n\
         - Eager training was measured on one GPU with one release of ROCm; inference, compiled steps and kernels on others\n  \
           are nearer to NVIDIA's.\n\
         - Convolutions were measured on MI100 and MI210, with libraries that were tuned for each shape.\n\
         - No step on CDNA 4.",
        range(seen),
        range(unseen)
    )?;
    Ok(card)
}
