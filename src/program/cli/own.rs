//! `--own`: the user's own machines as offers, without a price file.

use std::fmt::Write;
use std::sync::Arc;

use super::error::{At, CliError};
use super::gpu;
use super::hints::with_flag;
use crate::settings::args::{OwnArgs, OwnMachine};
use crate::store;
use habitat_base::units::Watts;
use habitat_planning::plan::WITH_REST;
use habitat_planning::pricing::{OWN_PLACE, Offer, OfferId, PriceBook, ShareOf, Snapshot, Tier};
use habitat_prediction::scale::Link;
use habitat_screens::app::engine::Added;
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
    let mut whole = Vec::new();
    let machines = own.own.iter().enumerate().flat_map(|(at, machine)| fewer(machine).map(move |fewer| (at, fewer)));
    for (at, machine) in machines {
        let gpu = gpu_of(own, at, &machine, catalog)?;
        let kw = power(&machine, own.own[at].count, gpu)?.all / 1e3;
        let (machines, count, slug) = (machine.machines, machine.count, &gpu.slug);
        let all = own.own[at].count;
        let id = OfferId::new(provider, region, &format!("{all}x-{slug}"), Tier::Owned);
        whole.push((count < all).then_some(ShareOf { machine: id, gpus: all }));
        let (usd_per_kwh, note) = (own.usd_per_kwh.unwrap_or(USD_PER_KWH), note(own, &machine, all, gpu)?);
        let _ = write!(
            file,
            "[[offer]]\nregion = \"{region}\"\ninstance_type = \"{count}x-{slug}\"\ngpu_name = \"{slug}\"\ngpu = \"{slug}\"\n\
             gpu_count = {count}\nmachines = {machines}\ntier = \"owned\"\nkw = {kw:.3}\nusd_per_kwh = {usd_per_kwh:?}\nscope = \"instance_total\"\n\
             note = \"{note}\"\nsource = \"--own\"\n"
        );
    }
    let snapshot = Snapshot::parse(&file).at("--own")?;
    let offers = snapshot.offers().zip(whole).map(|(offer, share_of)| Offer { share_of, ..offer });
    Ok(prices.with_offers(offers).on(store::today()))
}

/// The offers with own machines as typed on the screens, at this price of a kWh in US dollars.
///
/// # Errors
/// The machine that is invalid, in words for a dialog.
pub fn typed(
    text: &str,
    (usd_per_kwh, knows_network): (Option<f64>, bool),
    listed: &PriceBook,
    catalog: &Catalog,
) -> Result<Added, String> {
    let names: Vec<String> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let own = OwnArgs::new(&names, usd_per_kwh)?;
    let prices = add(&own, listed.clone(), catalog).map_err(|error| match error {
        // The dialog takes names, not command lines.
        CliError::Choose { error, .. } => error.to_string(),
        error => error.to_string(),
    })?;
    let lines = lines(&own, knows_network, catalog).map_err(|error| error.to_string())?;
    Ok(Added { names: own.names(), prices: Arc::new(prices), lines })
}

/// The machine with all its GPUs, then with half of them, a quarter and so on, down to one.
fn fewer(machine: &OwnMachine) -> impl Iterator<Item = OwnMachine> {
    let counts = std::iter::successors(Some(machine.count), |count| (*count > 1).then_some(count / 2));
    let machines = |count| if count == machine.count { machine.machines } else { 1 };
    counts.map(move |count| OwnMachine { machines: machines(count), count, gpu: machine.gpu.clone() })
}

/// The assumptions behind the prices of own machines, one line each.
pub(super) fn lines(own: &OwnArgs, knows_network: bool, catalog: &Catalog) -> Result<Vec<String>, CliError> {
    let line = |(at, machine): (usize, &OwnMachine)| {
        let gpu = gpu_of(own, at, machine, catalog)?;
        let power = power(machine, machine.count, gpu)?;
        let cost = power.all / 1e3 * own.usd_per_kwh.unwrap_or(USD_PER_KWH);
        let (count, slug, words) = (machine.count, &gpu.slug, power.words);
        let price = match own.usd_per_kwh {
            Some(price) => format!("${price}/kWh"),
            None => format!("${USD_PER_KWH}/kWh assumed; --usd-per-kwh sets yours"),
        };
        let each =
            if machine.machines > 1 { format!("{} machines, each", machine.machines) } else { "machine".to_owned() };
        let network = if machine.machines > 1 && !knows_network {
            "; unknown network: --network-gbit lets them share a job"
        } else {
            ""
        };
        Ok(format!("Own {each} {count} × {slug}: ${cost:.3}/h ({words}, {price}){network}"))
    };
    own.own.iter().enumerate().map(line).collect()
}

/// The parts of a machine's price, with the assumptions; it has `all` GPUs.
fn note(own: &OwnArgs, machine: &OwnMachine, all: u32, gpu: &GpuSpec) -> Result<String, CliError> {
    let power = format!("draws {} (assumed)", power(machine, all, gpu)?.words);
    Ok(match own.usd_per_kwh {
        Some(price) => format!("{power}, at ${price}/kWh"),
        None => format!(
            "{power}, at ${USD_PER_KWH}/kWh (assumed: average of US households in 2023, EIA; --usd-per-kwh sets yours)"
        ),
    })
}

/// Power of a machine under load.
struct Power {
    /// Watts.
    all: f64,
    /// Its parts.
    words: String,
}

/// Most GPUs of a workstation, which has one processor. Those of a server grow with its GPUs.
const WORKSTATION: u32 = 4;

/// Power of a machine with `all` GPUs under load, if it uses those of `machine`. A workstation with boards draws the
/// rest once, whether one GPU works or all: as much as beside one GPU ([`WITH_REST`]). Modules and more GPUs are in
/// servers, whose rest is shared by their GPUs.
fn power(machine: &OwnMachine, all: u32, gpu: &GpuSpec) -> Result<Power, CliError> {
    let Some(watts) = gpu.power.map(Watts::get) else {
        return Err(CliError::Refused(format!(
            "--own {}: its power limit is not in the catalog, so its electricity cost is unknown; set kw in a price file (`habitat-tui config` shows the folder)",
            gpu.slug
        )));
    };
    let gpus = watts * f64::from(machine.count);
    let is_board = matches!(Link::new(gpu), Link::HostMemory | Link::PciExpress);
    let rest = (WITH_REST - 1.0) * if is_board && all <= WORKSTATION { watts } else { gpus };
    let words = format!("{} × {watts:.0} W (power limit) + {rest:.0} W for the rest of the machine", machine.count);
    Ok(Power { all: gpus + rest, words })
}

/// The single GPU model of a machine.
fn gpu_of<'a>(own: &OwnArgs, at: usize, machine: &OwnMachine, catalog: &'a Catalog) -> Result<&'a GpuSpec, CliError> {
    gpu::one_of(catalog, "--own", &machine.gpu, |gpu| {
        let machines = own.own.iter().enumerate().map(|(other, machine)| {
            let gpu = if other == at { gpu.slug.to_string() } else { machine.gpu.clone() };
            OwnMachine { gpu, ..machine.clone() }.to_string()
        });
        Some(with_flag("--own", &machines.collect::<Vec<_>>().join(",")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::bundled;
    use habitat_planning::pricing::Tier;

    fn own(machines: &[(u32, &str)], usd_per_kwh: Option<f64>) -> OwnArgs {
        let own = machines
            .iter()
            .map(|(count, gpu)| OwnMachine { machines: 1, count: *count, gpu: (*gpu).to_owned() })
            .collect();
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
        // 2 × 350 W and 175 W for the rest of the machine, at $0.30 a kWh.
        assert!((offers[1].1 - 0.2625).abs() < 1e-12, "{offers:?}");
        // One of the two can be used alone; the rest of the machine draws as much.
        assert_eq!(offers[2].0, "own/here/1x-rtx-3090/owned");
        assert!((offers[2].1 - 0.1575).abs() < 1e-12, "{offers:?}");
        assert_eq!((offers[3].0, book.offers()[3].tier), ("own/here/1x-rtx-4090/owned", Tier::Owned));
    }

    /// A server's processors, fans and network grow with its GPUs, so each has its share.
    #[test]
    fn the_rest_of_a_server_is_shared_by_its_gpus() {
        let catalog = Catalog::new(bundled::gpus());
        let kw = |machines: &[(u32, &str)]| {
            let book = add(&own(machines, Some(1.0)), PriceBook::default(), &catalog).unwrap();
            book.offers().iter().map(|offer| offer.price.get()).collect::<Vec<_>>()
        };
        assert_eq!(kw(&[(2, "h100-sxm5-80gb")]), [2.1, 1.05]);
        assert_eq!(kw(&[(8, "rtx-3090")]), [4.2, 2.1, 1.05, 0.525]);
        assert_eq!(kw(&[(4, "rtx-3090")]), [1.575, 0.875, 0.525]);
    }

    #[test]
    fn several_own_machines_can_run_one_job() {
        let own = OwnArgs::new(&["2x8xh100-sxm5-80gb".to_owned()], None).unwrap();
        assert_eq!(own.names(), ["2x8xh100-sxm5-80gb"]);
        let book = add(&own, PriceBook::default(), &Catalog::new(bundled::gpus())).unwrap();
        let machines: Vec<_> = book.offers().iter().map(|offer| (offer.gpu_count, offer.most_machines())).collect();
        assert_eq!(machines, [(8, Some(2)), (4, Some(1)), (2, Some(1)), (1, Some(1))]);
        // Fewer GPUs leave the others of their machine to other jobs.
        let whole: Vec<_> = book.offers().iter().map(|offer| offer.share_of.as_ref()).collect();
        let whole = whole.iter().map(|share| share.map(|share| (share.machine.as_str(), share.gpus)));
        let share = Some(("own/here/8x-h100-sxm5-80gb/owned", 8));
        assert_eq!(whole.collect::<Vec<_>>(), [None, share, share, share]);
        let said = |knows| lines(&own, knows, &Catalog::new(bundled::gpus())).unwrap().concat();
        assert!(said(false).contains("--network-gbit") && !said(true).contains("--network-gbit"));
    }

    #[test]
    fn an_assumed_price_is_named() {
        let catalog = Catalog::new(bundled::gpus());
        let assumed = lines(&own(&[(2, "3090")], None), false, &catalog).unwrap().concat();
        assert!(assumed.contains("2 × 350 W") && assumed.contains("$0.16/kWh assumed"), "{assumed}");
        let given = lines(&own(&[(2, "3090")], Some(0.4)), false, &catalog).unwrap().concat();
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
