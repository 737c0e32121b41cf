//! `habitat-tui gpus` and `habitat-tui offers`.

use std::io::Write;

use super::{CliError, print_json};
use crate::report::table::Table;
use crate::report::{gpus as gpus_report, offers as offers_report};
use crate::settings::args::{GpusArgs, OffersArgs, TableForm};
use crate::store::{self, Limit, Paths, bundled};

pub(super) fn gpus(args: &GpusArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    if let Some(name) = &args.toml {
        let gpu = catalog.find(name).map_err(CliError::of)?;
        let text = match &gpu.layer {
            crate::catalog::Layer::Shipped => bundled::gpu_text(&gpu.slug).unwrap_or_default().to_owned(),
            crate::catalog::Layer::User(path) => store::read_text(path.as_ref(), Limit::CATALOG)?,
        };
        out.write_all(text.as_bytes())?;
        return Ok(0);
    }
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let found: Vec<_> = catalog
        .iter()
        .filter(|gpu| {
            [gpu.slug.as_str(), &gpu.name, &gpu.architecture].iter().any(|text| text.to_lowercase().contains(&wanted))
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
    let gpu = match &args.gpu {
        Some(name) => Some(store::catalog(&paths)?.find(name).map_err(CliError::of)?.slug.clone()),
        None => None,
    };
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let mut found: Vec<_> = prices
        .offers()
        .iter()
        .filter(|offer| args.all || offer.unusable.is_none())
        .filter(|offer| gpu.is_none() || offer.gpu == gpu)
        .filter(|offer| [offer.id.as_str(), &offer.gpu_name].iter().any(|text| text.to_lowercase().contains(&wanted)))
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

fn write(table: &Table, form: TableForm, out: &mut dyn Write) -> Result<(), CliError> {
    match form {
        TableForm { csv: true, .. } => table.write_csv(out)?,
        TableForm { markdown: true, .. } => table.write_markdown(out)?,
        _ => table.write_text(out)?,
    }
    Ok(())
}
