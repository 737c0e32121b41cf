//! `--own`: the user's own machines as offers, without a price file.

use std::fmt::Write;

use super::error::{At, CliError};
use super::hints::with_flag;
use crate::settings::args::{OwnArgs, OwnMachine};
use crate::store;
use habitat_base::text;
use habitat_base::units::Watts;
use habitat_planning::plan::WITH_REST;
use habitat_planning::pricing::{OWN_PLACE, PriceBook, Snapshot};
use habitat_step::catalog::{Catalog, GpuSpec};

/// Default electricity price, US dollars per kWh: the average for households in the USA in 2023 (US Energy Information
/// Administration, Electric Power Annual 2023).
const USD_PER_KWH: f64 = 0.16;

/// Adds the own machines to the prices.
///
/// # Errors
/// [`CliError`] for a name that matches no GPU or several, and for a GPU without a known power limit.
pub(super) fn add(own: &OwnArgs, prices: PriceBook, catalog: &Catalog) -> Result<PriceBook, CliError> {
    if own.own.is_empty() {
        return Ok(prices);
    }
    let [provider, region] = OWN_PLACE;
    let mut file = format!("schema = 1\nprovider = \"{provider}\"\n");
    let machines = own.own.iter().enumerate().flat_map(|(at, machine)| fewer(machine).map(move |fewer| (at, fewer)));
    for (at, machine) in machines {
        let gpu = gpu_of(own, at, &machine, catalog)?;
        let kw = kilowatts(&machine, gpu)?;
        let (count, slug) = (machine.count, &gpu.slug);
        let (usd_per_kwh, note) = (own.usd_per_kwh.unwrap_or(USD_PER_KWH), note(own, &machine, gpu));
        let _ = write!(
            file,
            "[[offer]]\nregion = \"{region}\"\ninstance_type = \"{count}x-{slug}\"\ngpu_name = \"{slug}\"\ngpu = \"{slug}\"\n\
             gpu_count = {count}\ntier = \"owned\"\nkw = {kw:.3}\nusd_per_kwh = {usd_per_kwh:?}\nscope = \"instance_total\"\n\
             note = \"{note}\"\nsource = \"--own\"\n"
        );
    }
    let snapshot = Snapshot::parse(&file).at("--own")?;
    Ok(prices.with_offers(snapshot.offers()).on(store::today()))
}

/// The machine with all its GPUs, then with half of them, a quarter and so on, down to one.
fn fewer(machine: &OwnMachine) -> impl Iterator<Item = OwnMachine> {
    let counts = std::iter::successors(Some(machine.count), |count| (*count > 1).then_some(count / 2));
    counts.map(|count| OwnMachine { count, gpu: machine.gpu.clone() })
}

/// The assumptions behind the prices of own machines, one line each.
pub(super) fn lines(own: &OwnArgs, catalog: &Catalog) -> Result<Vec<String>, CliError> {
    let line = |(at, machine): (usize, &OwnMachine)| {
        let gpu = gpu_of(own, at, machine, catalog)?;
        let cost = kilowatts(machine, gpu)? * own.usd_per_kwh.unwrap_or(USD_PER_KWH);
        let (count, slug, watts) = (machine.count, &gpu.slug, gpu.power.map_or(0.0, Watts::get));
        let price = match own.usd_per_kwh {
            Some(price) => format!("${price}/kWh"),
            None => format!("${USD_PER_KWH}/kWh assumed; --usd-per-kwh sets yours"),
        };
        Ok(format!("Own machine {count} × {slug}: ${cost:.3}/h ({count} × {watts:.0} W × {WITH_REST}, {price})"))
    };
    own.own.iter().enumerate().map(line).collect()
}

/// The parts of a machine's price, with the assumptions.
fn note(own: &OwnArgs, machine: &OwnMachine, gpu: &GpuSpec) -> String {
    let watts = gpu.power.map_or(0.0, Watts::get);
    let power = format!(
        "draws {} × {watts:.0} W (power limit) × {WITH_REST} for the rest of the machine (assumed)",
        machine.count
    );
    match own.usd_per_kwh {
        Some(price) => format!("{power}, at ${price}/kWh"),
        None => format!(
            "{power}, at ${USD_PER_KWH}/kWh (assumed: average of US households in 2023, EIA; --usd-per-kwh sets yours)"
        ),
    }
}

/// Power of the whole machine under load, kW.
fn kilowatts(machine: &OwnMachine, gpu: &GpuSpec) -> Result<f64, CliError> {
    let Some(watts) = gpu.power else {
        return Err(CliError::Refused(format!(
            "--own {}: its power limit is not in the catalog, so its electricity cost is unknown; set kw in a price file (`habitat-tui config` shows the folder)",
            gpu.slug
        )));
    };
    Ok(watts.get() / 1e3 * f64::from(machine.count) * WITH_REST)
}

/// The single GPU model of a machine.
fn gpu_of<'a>(own: &OwnArgs, at: usize, machine: &OwnMachine, catalog: &'a Catalog) -> Result<&'a GpuSpec, CliError> {
    match catalog.named(&machine.gpu)[..] {
        [gpu] => Ok(gpu),
        [] => Ok(catalog.find(&machine.gpu).at("--own")?),
        ref several => {
            let problem = format!("matches {} GPUs; choose one", several.len());
            let error = CliError::Refused(problem).at(format_args!("--own {}", text::clean(&machine.gpu, 40)));
            let with = |gpu: &&GpuSpec| {
                let machines = own.own.iter().enumerate().map(|(other, machine)| {
                    let name = if other == at { gpu.slug.as_str() } else { machine.gpu.as_str() };
                    format!("{}x{name}", machine.count)
                });
                with_flag("--own", &machines.collect::<Vec<_>>().join(","))
            };
            Err(CliError::Choose { error: Box::new(error), commands: several.iter().map(with).collect() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::bundled;
    use habitat_planning::pricing::Tier;

    fn own(machines: &[(u32, &str)], usd_per_kwh: Option<f64>) -> OwnArgs {
        let own = machines.iter().map(|(count, gpu)| OwnMachine { count: *count, gpu: (*gpu).to_owned() }).collect();
        OwnArgs { own, usd_per_kwh }
    }

    #[test]
    fn own_machines_stand_beside_those_of_files() {
        let catalog = Catalog::new(bundled::gpus());
        let file = "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"office\"\ninstance_type = \"box\"\n\
                    gpu = \"rtx-3090\"\ngpu_count = 2\ntier = \"owned\"\nkw = 1.0\nusd_per_kwh = 0.3\n\
                    scope = \"instance_total\"\nsource = \"meter\"\n";
        let snapshot = Snapshot::parse(file).unwrap();
        let book = PriceBook::new(snapshot.offers()).with_terms("lab", snapshot.terms());
        let book = add(&own(&[(2, "3090"), (1, "RTX 4090")], Some(0.3)), book, &catalog).unwrap();
        let offers: Vec<_> = book.offers().iter().map(|offer| (offer.id.as_str(), offer.price.get())).collect();
        assert_eq!(offers[0], ("lab/office/box/owned", 0.3));
        assert_eq!(offers[1].0, "own/here/2x-rtx-3090/owned");
        // 2 × 350 W × 1.5 at $0.30 a kWh.
        assert!((offers[1].1 - 0.315).abs() < 1e-12, "{offers:?}");
        // One of the two can be used alone, at half the power.
        assert_eq!(offers[2].0, "own/here/1x-rtx-3090/owned");
        assert!((offers[2].1 - 0.1575).abs() < 1e-12, "{offers:?}");
        assert_eq!((offers[3].0, book.offers()[3].tier), ("own/here/1x-rtx-4090/owned", Tier::Owned));
    }

    #[test]
    fn an_assumed_price_is_named() {
        let catalog = Catalog::new(bundled::gpus());
        let assumed = lines(&own(&[(2, "3090")], None), &catalog).unwrap().concat();
        assert!(assumed.contains("2 × 350 W") && assumed.contains("$0.16/kWh assumed"), "{assumed}");
        let given = lines(&own(&[(2, "3090")], Some(0.4)), &catalog).unwrap().concat();
        assert!(given.contains("$0.4/kWh") && !given.contains("assumed"), "{given}");
    }

    #[test]
    fn a_name_of_several_or_no_gpus_is_refused() {
        let catalog = Catalog::new(bundled::gpus());
        let of = |gpu: &str| add(&own(&[(1, "4090"), (8, gpu)], None), PriceBook::default(), &catalog).unwrap_err();
        let several = of("h100").to_string();
        assert!(several.contains("--own 1x4090,8xh100-nvl"), "{several}");
        assert!(of("4090ti").to_string().contains("rtx-4090"));
    }
}
