//! `habitat-tui gpus` and `habitat-tui offers`.

use std::io::Write;

use super::{CliError, gpu, print_json};
use crate::catalog::Catalog;
use crate::report::table::Table;
use crate::report::{gpus as gpus_report, offers as offers_report};
use crate::settings::args::{GpusArgs, OffersArgs, TableForm};
use crate::store::{self, Limit, Paths, bundled};
use crate::units::GpuSlug;

pub(super) fn gpus(args: &GpusArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    if let Some(name) = &args.toml {
        let gpu = gpu::one(&catalog, "--toml", name)?;
        let text = match &gpu.layer {
            crate::catalog::Layer::Shipped => bundled::gpu_text(&gpu.slug).unwrap_or_default().to_owned(),
            crate::catalog::Layer::User(path) => store::read_text(path.as_ref(), Limit::CATALOG)?,
        };
        out.write_all(text.as_bytes())?;
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
    if args.form.json {
        let rows: Vec<_> = found.iter().map(|gpu| gpus_report::json(gpu)).collect();
        print_json(&serde_json::json!({"format": "habitat-gpus", "version": 1, "gpus": rows}), out)?;
    } else {
        write(&gpus_report::table(found.iter().copied()), args.form, out)?;
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
    let mut found: Vec<_> = prices
        .offers()
        .iter()
        .filter(|offer| args.all || offer.unusable.is_none())
        .filter(|offer| gpus.is_empty() || offer.gpu.as_ref().is_some_and(|gpu| gpus.contains(gpu)))
        .filter(|offer| {
            offer.gpu.as_ref().is_some_and(|gpu| meant.contains(gpu))
                || [offer.id.as_str(), &offer.gpu_name].iter().any(|text| text.to_lowercase().contains(&wanted))
        })
        .collect();
    found.sort_by(|a, b| {
        let per_gpu = |offer: &crate::pricing::Offer| offer.price.get() / f64::from(offer.gpu_count.max(1));
        per_gpu(a).total_cmp(&per_gpu(b)).then_with(|| a.id.cmp(&b.id))
    });
    if args.form.json {
        let rows: Vec<_> = found.iter().map(|offer| offers_report::json(offer)).collect();
        print_json(
            &serde_json::json!({"format": "habitat-offers", "version": 1, "currency": "USD", "offers": rows}),
            out,
        )?;
    } else {
        write(&offers_report::table(found.iter().copied()), args.form, out)?;
    }
    Ok(u8::from(found.is_empty()))
}

/// The GPUs that a filter names.
fn slugs(catalog: &Catalog, filter: &str) -> Vec<GpuSlug> {
    catalog.named(filter).into_iter().map(|gpu| gpu.slug.clone()).collect()
}

fn write(table: &Table, form: TableForm, out: &mut dyn Write) -> Result<(), CliError> {
    match form {
        TableForm { csv: true, .. } => table.write_csv(out)?,
        TableForm { markdown: true, .. } => table.write_markdown(out)?,
        _ => table.write_text(out)?,
    }
    Ok(())
}
