//! Commands that print built-in data: `gpus`, `offers`, `schema`, `completions`, `man`, `config`.

use std::io::Write;
use std::sync::Arc;

use clap::CommandFactory;
use clap_complete::Shell;

use super::error::{At, CliError};
use super::options::{settings, weights_folder};
use super::output::{print_json, print_table};
use super::{goal, gpu};
use crate::settings::args::{Cli, ConfigArgs, GpusArgs, OffersArgs, SchemaArg};
use crate::store::{self, Limit, Paths, bundled};
use crate::terminal;
use habitat_base::text;
use habitat_base::units::GpuSlug;
use habitat_planning::pricing::{Market, Offer, PriceBook, Unusable};
use habitat_prediction::blackbox::OperatorTotals;
use habitat_reports::{
    comparison, difference, gpus as gpus_report, jobs, json_schema, lines, offers as offers_report, plans, predictions,
    recordings,
};
use habitat_screens::keymap::Keymap;
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

pub(super) fn gpus(args: &GpusArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    if let Some(name) = &args.toml {
        let gpu = gpu::one(&catalog, "--toml", name)?;
        let toml = match &gpu.layer {
            habitat_step::catalog::Layer::Shipped => bundled::gpu_text(&gpu.slug).unwrap_or_default().to_owned(),
            habitat_step::catalog::Layer::User(path) => store::read_text(path.as_ref(), Limit::CATALOG)?,
        };
        out.write_all(toml.as_bytes())?;
        return Ok(0);
    }
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let meant = slugs(&catalog, &wanted);
    let found: Vec<_> = catalog
        .iter()
        .filter(|gpu| {
            let texts = [gpu.slug.as_str(), &gpu.name, &gpu.architecture];
            meant.contains(&gpu.slug) || texts.iter().any(|text| text.to_lowercase().contains(&wanted))
        })
        .collect();
    if let (true, Err(why)) = (found.is_empty(), catalog.find(&wanted)) {
        terminal::say(why);
    }
    if args.table.form.json {
        let rows: Vec<_> = found.iter().map(|gpu| gpus_report::json(gpu)).collect();
        print_json(&serde_json::json!({"format": "habitat-gpus", "version": 1, "gpus": rows}), out)?;
    } else {
        print_table(&gpus_report::table(found.iter().copied()), args.table.form, out)?;
    }
    Ok(u8::from(found.is_empty()))
}

pub(super) fn offers(args: &OffersArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let prices = store::prices(&paths)?;
    let catalog = store::catalog(&paths)?;
    let gpus = gpu::all(&catalog, "--gpu", args.gpu.as_slice())?;
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let meant = slugs(&catalog, &wanted);
    let listed = listed(&prices, args);
    let mut found: Vec<_> = listed
        .iter()
        .filter(|offer| args.all || offer.unusable.is_none())
        .filter(|offer| gpus.is_empty() || offer.gpu.as_ref().is_some_and(|gpu| gpus.contains(gpu)))
        .filter(|offer| {
            offer.gpu.as_ref().is_some_and(|gpu| meant.contains(gpu))
                || [offer.id.as_str(), &offer.gpu_name, offer.region_name().unwrap_or_default()]
                    .iter()
                    .any(|text| text.to_lowercase().contains(&wanted))
        })
        .collect();
    found.sort_by(|a, b| {
        let per_gpu = |offer: &Offer| offer.price.get() / f64::from(offer.gpu_count.max(1));
        per_gpu(a).total_cmp(&per_gpu(b)).then_with(|| a.id.cmp(&b.id))
    });
    if args.table.form.json {
        let rows: Vec<_> = found.iter().map(|offer| offers_report::json(offer)).collect();
        print_json(
            &serde_json::json!({"format": "habitat-offers", "version": 2, "currency": "USD", "offers": rows}),
            out,
        )?;
    } else {
        print_table(&offers_report::table(found.iter().map(|offer| &***offer)), args.table.form, out)?;
    }
    if found.is_empty() {
        let filter = args.filter.as_ref().or(args.gpu.as_ref()).map_or("", String::as_str);
        let (filter, hint) = (text::clean(filter, 40), goal::of_company(filter).unwrap_or_default());
        terminal::say(format_args!("no offer matches {filter:?}{hint}; `habitat-tui offers --all` lists all"));
    }
    Ok(u8::from(found.is_empty()))
}

/// All offers; with `--no-marketplace`, those of marketplaces are marked as unusable.
fn listed(prices: &PriceBook, args: &OffersArgs) -> Vec<Arc<Offer>> {
    let mut offers = prices.offers().to_vec();
    let left_out = |offer: &&mut Arc<Offer>| args.no_marketplace && offer.trust.market == Market::PeerToPeer;
    for offer in offers.iter_mut().filter(left_out) {
        Arc::make_mut(offer).unusable.get_or_insert(Unusable::PeerToPeerExcluded);
    }
    offers
}

/// GPUs that a filter matches.
fn slugs(catalog: &Catalog, filter: &str) -> Vec<GpuSlug> {
    catalog.named(filter).into_iter().map(|gpu| gpu.slug.clone()).collect()
}

pub(super) fn schema(of: SchemaArg, out: &mut dyn Write) -> Result<u8, CliError> {
    let schema = match of {
        SchemaArg::Profile => Profile::json_schema(),
        SchemaArg::Predictions => json_schema::<predictions::PredictionsJson<'_>>(),
        SchemaArg::Comparison => json_schema::<comparison::ComparisonJson<'_>>(),
        SchemaArg::Difference => json_schema::<difference::DifferenceJson<'_>>(),
        SchemaArg::Diff => json_schema::<recordings::RecordingsJson<'_>>(),
        SchemaArg::BlackBox => OperatorTotals::json_schema(),
        SchemaArg::Jobs => crate::settings::jobs::JobsFile::json_schema(),
        SchemaArg::PlanJobs => json_schema::<jobs::JobsJson<'_>>(),
        SchemaArg::Plan => json_schema::<plans::PlanJson<'_>>(),
        SchemaArg::JobLines => json_schema::<lines::JobLine>(),
    };
    print_json(&schema, out)
}

pub(super) fn completions(shell: Shell, out: &mut dyn Write) -> Result<u8, CliError> {
    // Written in one go: the generator panics if its writer fails.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "habitat-tui", &mut text);
    let text = String::from_utf8_lossy(&text);
    // clap_complete 4.6 names a program with a hyphen in two ways.
    out.write_all(text.replace("habitat__subcmd__tui", "habitat__tui").as_bytes())?;
    Ok(0)
}

/// The manual page of the program, which refers to those of its commands, or of a command.
pub(super) fn man(command: Option<&str>, out: &mut dyn Write) -> Result<u8, CliError> {
    // Names the commands as `habitat-tui-plan`.
    let mut page = Cli::command();
    page.build();
    if let Some(name) = command {
        let commands = || page.get_subcommands().filter(|one| !one.is_hide_set());
        let found = commands().find(|one| one.get_name() == name).cloned().ok_or_else(|| {
            let all: Vec<&str> = commands().map(clap::Command::get_name).collect();
            CliError::Refused(format!("no command {:?}: {}", text::clean(name, 40), all.join(", ")))
        })?;
        page = found;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    out.write_all(&text)?;
    Ok(0)
}

pub(super) fn config(args: &ConfigArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let settings = settings(&paths)?;
    if args.keys {
        let keymap = Keymap::patched(&settings.keys).at(paths.settings().display())?;
        write!(out, "{}", keymap.to_toml())?;
        return Ok(0);
    }
    for (what, path) in [
        ("settings", paths.settings()),
        ("catalog overlay", paths.catalog()),
        ("price overlay", paths.pricing()),
        ("measured operators", paths.measured()),
        ("your themes", paths.themes()),
        ("trained models", weights_folder(None, &settings, &paths)),
    ] {
        let state = if path.exists() { "" } else { "  (does not exist)" };
        writeln!(out, "{what:<18} {}{state}", path.display())?;
    }
    Ok(0)
}
