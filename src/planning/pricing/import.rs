//! Import of price catalogs of other programs, and of this program's price files, as rows of a price file.
//!
//! The format is detected from the content:
//!
//! - SkyPilot: CSV with `InstanceType`, `AcceleratorName`, `Price` and more, in any order;
//! - `gpuhunt`: CSV or JSON lines with `instance_name`, `location`, `price` and more;
//! - price files: TOML, as described in `pricing/README.md`.

mod board;
mod gcp;
mod gpuhunt;
mod skypilot;
mod table;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::civil::Date;

use super::offer::OfferId;
use super::snapshot::{Row, Scope, Snapshot};
use super::terms::Billing;
use super::tier::Tier;
use super::trust::Market;
use board::Board;
use habitat_base::text;
use habitat_base::units::{UsdPerHour, most};

/// Prices with a smaller relative difference are equal, since catalogs round differently.
const PRICE_TOLERANCE: f64 = 1e-4;
/// Maximum length of a text from a catalog, in characters.
const WIDTH: usize = 200;

/// Import error with line, column and value, and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImportError(String);

/// Facts about a catalog that are not in its content.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Provider of the rows; optional for formats that contain it.
    pub provider: Option<&'a str>,
    /// Source of the catalog, for the `source` of each row.
    pub source: &'a str,
    /// Date of the prices.
    pub as_of: Option<Date>,
    /// Source of that date, for the `note` of each row.
    pub dated_by: Option<&'a str>,
}

impl Origin<'_> {
    /// Note on the source of the date.
    fn remark(self) -> Option<String> {
        self.dated_by.map(|how| format!("date: {how}"))
    }
}

/// Offers of one provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// Prices of the provider.
    pub snapshot: Snapshot,
    /// Numbers of skipped rows and of unknown boards.
    pub counts: Counts,
}

/// Numbers of rows that are not offers, and of offers with unknown boards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows without a GPU.
    pub without_gpu: usize,
    /// Rows with a fraction of a GPU.
    pub part_of_gpu: usize,
    /// Rows without a price.
    pub without_price: usize,
    /// Machines with GPUs that are not in the catalog, by name.
    pub unknown: BTreeMap<String, usize>,
    /// Machines with GPUs that exist as several boards (SXM, `PCIe`), by name.
    pub ambiguous: BTreeMap<String, usize>,
}

impl Imported {
    /// Rejects an import without offers, which as a price file would only remove existing ones.
    ///
    /// # Errors
    /// [`ImportError`] with the numbers of skipped rows.
    pub fn check(&self) -> Result<(), ImportError> {
        if !self.snapshot.offers.is_empty() {
            return Ok(());
        }
        let Counts { without_gpu, part_of_gpu, without_price, .. } = self.counts;
        Err(ImportError(format!(
            "has no offer of a whole GPU with a price (rows without a GPU: {without_gpu}, with a fraction of one: \
             {part_of_gpu}, without a price: {without_price})"
        )))
    }
}

impl Counts {
    /// Adds the counts of another file.
    pub fn add(&mut self, other: Self) {
        self.without_gpu += other.without_gpu;
        self.part_of_gpu += other.part_of_gpu;
        self.without_price += other.without_price;
        for (names, more) in [(&mut self.unknown, other.unknown), (&mut self.ambiguous, other.ambiguous)] {
            for (name, count) in more {
                *names.entry(name).or_default() += count;
            }
        }
    }
}

/// A row of a catalog, before rows of the same machine are merged.
#[derive(Debug, Clone, Default)]
struct Listed {
    region: String,
    zone: String,
    instance_type: String,
    gpu_name: String,
    gpu_count: u32,
    /// Name and memory of one GPU, if the catalog describes them outside the name.
    described: String,
    memory_gib: Option<f64>,
    vcpus: Option<f64>,
    host_memory_gib: Option<f64>,
    on_demand: Option<f64>,
    spot: Option<f64>,
    is_composed: bool,
    is_without_host: bool,
    suspect: Option<&'static str>,
    note: Option<String>,
}

/// Reads a catalog in any supported format.
///
/// # Errors
/// [`ImportError`] if it is not a catalog or a value is invalid.
pub fn read(bytes: &[u8], origin: Origin<'_>) -> Result<Vec<Imported>, ImportError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        ImportError(format!("line {line}: not UTF-8 text, so not a catalog of prices"))
    })?;
    let text = text.trim_start_matches('\u{feff}');
    if is_price_file(text) {
        return Ok(vec![price_file(text, origin)?]);
    }
    if text.trim_start().starts_with('{') {
        return gpuhunt::json_lines(text, origin);
    }
    let table = table::Table::read(text)?;
    if table.has(&["InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"]) {
        return Ok(vec![skypilot::rows(&table, origin)?]);
    }
    if table.has(&["instance_name", "location", "price", "gpu_count"]) {
        return gpuhunt::table(&table, origin);
    }
    Err(no_catalog(text))
}

fn no_catalog(text: &str) -> ImportError {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let problem = if first.is_empty() {
        "the file is empty".to_owned()
    } else if first.trim_start().starts_with('<') {
        format!("the file is a web page, not a catalog (line 1: {:?})", text::clean(first, 60))
    } else {
        format!("line 1: {:?} is not the header of a catalog", text::clean(first, 60))
    };
    ImportError(format!(
        "{problem}; expected CSV of SkyPilot (InstanceType, AcceleratorName, AcceleratorCount, Price, Region …), \
         rows of gpuhunt (instance_name, location, price, gpu_count …) or a price file in TOML"
    ))
}

fn is_price_file(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| line == "[[offer]]" || line.starts_with("schema ="))
}

/// Reads a price file; rows without a date get that of the origin.
fn price_file(text: &str, origin: Origin<'_>) -> Result<Imported, ImportError> {
    let mut snapshot = Snapshot::parse(text).map_err(|error| ImportError(error.to_string()))?;
    if let Some(provider) = origin.provider
        && provider != snapshot.provider
    {
        let found = text::clean(&snapshot.provider, 60);
        return Err(ImportError(format!("provider: is {found:?}, not {provider:?}; remove --provider")));
    }
    check_provider(&snapshot.provider)?;
    for row in snapshot.offers.iter_mut().filter(|row| row.as_of.is_none()) {
        row.as_of = origin.as_of;
        row.note = joined([row.note.take(), origin.remark()]);
    }
    Ok(Imported { snapshot, counts: Counts::default() })
}

/// Checks the name of a provider, which becomes the name of a file.
///
/// # Errors
/// [`ImportError`] unless it consists of lower-case letters, digits and dashes.
pub fn check_provider(name: &str) -> Result<(), ImportError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-') {
        return Ok(());
    }
    Err(ImportError(format!(
        "provider: invalid name {:?}; use lower-case letters, digits and dashes, as in \"lambda\" (--provider NAME)",
        text::clean(name, 60)
    )))
}

fn required(origin: Origin<'_>) -> Result<&str, ImportError> {
    let missing = || ImportError("unknown provider of the catalog; pass --provider NAME".to_owned());
    let provider = origin.provider.ok_or_else(missing)?;
    check_provider(provider).map(|()| provider)
}

fn joined(parts: [Option<String>; 2]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Market of a row. All machines of Vast and the community's of `RunPod` are peer-to-peer.
fn market(provider: &str, instance_type: &str) -> Market {
    match provider {
        "vast" => Market::PeerToPeer,
        "runpod" if instance_type.ends_with("_COMMUNITY") => Market::PeerToPeer,
        _ => Market::Provider,
    }
}

/// Merges rows of the same machine and region, with the lowest prices over zones and hosts. Drops spot prices that
/// repeat the on-demand price.
fn snapshot(provider: &str, listed: Vec<Listed>, origin: Origin<'_>, mut counts: Counts) -> Imported {
    let mut machines: Vec<Listed> = Vec::new();
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for row in listed {
        if row.on_demand.is_none() && row.spot.is_none() {
            counts.without_price += 1;
            continue;
        }
        let place = *places.entry((row.region.clone(), row.instance_type.clone())).or_insert(machines.len());
        if let Some(known) = machines.get_mut(place) {
            known.on_demand = lowest(known.on_demand, row.on_demand);
            known.spot = lowest(known.spot, row.spot);
            known.suspect = known.suspect.or(row.suspect);
        } else {
            machines.push(row);
        }
    }
    let offers = machines.into_iter().map(|machine| machine.row(provider, origin, &mut counts)).collect();
    // Keep the shipped prices of Google's whole machines: catalogs have sums, some of them suspect.
    let complete = provider != "gcp";
    Imported {
        snapshot: Snapshot {
            schema: 1,
            provider: provider.to_owned(),
            complete,
            billing: Billing::Exact,
            egress_usd_per_gb: None,
            egress_other_region_usd_per_gb: None,
            storage_usd_per_gb_month: None,
            recalled: Vec::new(),
            pue: None,
            kg_co2_per_kwh: None,
            until: None,
            offers,
        },
        counts,
    }
}

fn lowest(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    [one, other].into_iter().flatten().min_by(f64::total_cmp)
}

impl Listed {
    fn row(self, provider: &str, origin: Origin<'_>, counts: &mut Counts) -> Row {
        let board = board::find(provider, &self);
        let (gpu, nominal) = match &board {
            Board::Known { slug, memory_gib } => (slug.clone(), Some(*memory_gib)),
            Board::Ambiguous { memory_gib } => (None, *memory_gib),
            Board::Unknown => (None, board::memory_in(&self.gpu_name).or(self.memory_gib)),
        };
        let not_known = match board {
            Board::Known { .. } => None,
            Board::Ambiguous { .. } => Some(&mut counts.ambiguous),
            Board::Unknown => Some(&mut counts.unknown),
        };
        if let Some(names) = not_known {
            *names.entry(self.gpu_name.clone()).or_default() += 1;
        }
        let scope = match (self.is_without_host, self.is_composed) {
            (true, _) => Scope::GpuOnly,
            (_, true) => Scope::Composed,
            _ => Scope::InstanceTotal,
        };
        let is_discount =
            |spot: &f64| self.on_demand.is_none_or(|on_demand| *spot < on_demand) || self.suspect.is_some();
        let spot = self.spot.filter(is_discount);
        let price = |price: Option<f64>| price.and_then(|price| UsdPerHour::new(price).ok());
        Row {
            market: market(provider, &self.instance_type),
            region: self.region,
            instance_type: self.instance_type,
            gpu_name: Some(self.gpu_name),
            gpu,
            gpu_count: self.gpu_count,
            gpu_memory_gib: nominal,
            vcpus: self.vcpus,
            host_memory_gib: self.host_memory_gib,
            machines: None,
            network_gbit_per_second: None,
            on_demand: price(self.on_demand),
            spot: price(spot),
            tier: None,
            kw: None,
            pue: None,
            usd_per_kwh: None,
            wear_usd_per_hour: None,
            paid_usd_per_hour: None,
            usd_per_hour: None,
            term_hours: None,
            scope,
            suspect: self.suspect.map(str::to_owned),
            note: joined([self.note, origin.remark()]),
            as_of: origin.as_of,
            until: None,
            source: text::clean(origin.source, WIDTH),
        }
    }
}

/// Kind of GPU count.
#[derive(Clone, Copy)]
enum Count {
    None,
    Part,
    Whole(u32),
}

/// Checks a count; the error explains the problem.
fn count(count: f64) -> Result<Count, String> {
    if !(count.is_finite() && (0.0..=f64::from(most::GPUS)).contains(&count)) {
        return Err(format!("use a number from 0 to {}", most::GPUS));
    }
    Ok(match count {
        0.0 => Count::None,
        count if count.fract() == 0.0 => Count::Whole(count as u32),
        _ => Count::Part,
    })
}

/// Checks a price, with `None` for 0; the error explains the problem.
fn price(price: f64) -> Result<Option<f64>, String> {
    match UsdPerHour::new(price) {
        Ok(price) if price.get() == 0.0 => Ok(None),
        Ok(price) => Ok(Some(price.get())),
        Err(error) => Err(error.to_string()),
    }
}

/// GPU, number of GPUs and purchase option.
pub type Machine = (String, u32, Tier);

/// Offers that an update would remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    offers: [usize; 2],
    /// Kinds of machines without any offer left, and all previous kinds.
    kinds: [usize; 2],
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ([before, after], [gone, kinds]) = (self.offers, self.kinds);
        write!(f, "has {after} offers instead of {before}, and none for {gone} of the {kinds} kinds of machines")
    }
}

/// Checks whether an update would remove most offers: more than half of their number, or of the kinds of machines (in
/// case a catalog renamed the machines).
pub fn lost(before: &[Machine], after: &[Machine]) -> Option<Lost> {
    let kinds: BTreeSet<&Machine> = before.iter().collect();
    let left: BTreeSet<&Machine> = after.iter().collect();
    let gone = kinds.difference(&left).count();
    let is_most = after.len() * 2 < before.len() || gone * 2 > kinds.len();
    is_most.then_some(Lost { offers: [before.len(), after.len()], kinds: [gone, kinds.len()] })
}

/// Differences between the offers of two snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// New offers.
    pub new: Vec<Change>,
    /// Removed offers.
    pub gone: Vec<Change>,
    /// Offers with a higher price.
    pub dearer: Vec<Change>,
    /// Offers with a lower price.
    pub cheaper: Vec<Change>,
    /// Number of offers with the same price.
    pub same: usize,
}

/// Price of an offer before and after.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The offer.
    pub id: OfferId,
    /// Price before; `None` for a new offer.
    pub before: Option<UsdPerHour>,
    /// Price after; `None` for a removed offer.
    pub after: Option<UsdPerHour>,
}

impl Change {
    /// Change of the price in dollars per hour; the whole price for a new or removed offer.
    pub(crate) fn size(&self) -> f64 {
        (self.after.map_or(0.0, UsdPerHour::get) - self.before.map_or(0.0, UsdPerHour::get)).abs()
    }
}

impl Changes {
    /// Compares the prices before and after, largest change first.
    pub fn between(before: &[(OfferId, UsdPerHour)], after: &[(OfferId, UsdPerHour)]) -> Self {
        let old: HashMap<&OfferId, UsdPerHour> = before.iter().map(|(id, price)| (id, *price)).collect();
        let now: HashMap<&OfferId, UsdPerHour> = after.iter().map(|(id, price)| (id, *price)).collect();
        let mut changes = Self::default();
        for (id, price) in after {
            let change = Change { id: id.clone(), before: old.get(id).copied(), after: Some(*price) };
            match change.before {
                None => changes.new.push(change),
                Some(before) if (price.get() - before.get()).abs() <= PRICE_TOLERANCE * before.get() => {
                    changes.same += 1;
                }
                Some(before) if before.get() < price.get() => changes.dearer.push(change),
                Some(_) => changes.cheaper.push(change),
            }
        }
        for (id, price) in before.iter().filter(|(id, _)| !now.contains_key(id)) {
            changes.gone.push(Change { id: id.clone(), before: Some(*price), after: None });
        }
        for list in [&mut changes.new, &mut changes.gone, &mut changes.dearer, &mut changes.cheaper] {
            list.sort_by(|a, b| b.size().total_cmp(&a.size()).then_with(|| a.id.cmp(&b.id)));
        }
        changes
    }
}

#[cfg(test)]
mod tests;
