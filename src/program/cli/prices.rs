//! `habitat-tui prices`: lists price sources and updates prices.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use jiff::civil::Date;

use super::error::{At, CliError};
use super::output::{print_json, print_table};
use crate::settings::args::{PricesArgs, PricesCommand, PricesUpdateArgs, TableArgs};
use crate::store::download::{self, Download};
use crate::store::prices::{self as files, PriceFile};
use crate::store::{self, Limit, Paths, StoreError};
use habitat_base::text;
use habitat_base::units::UsdPerHour;
use habitat_planning::pricing::import::{self, Changes, Imported, Origin};
use habitat_planning::pricing::{OfferId, Row, Snapshot};
use habitat_reports::prices::{self as report, Update, UpdateJson};

/// SkyPilot's public catalog.
const CATALOG: &str =
    "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v8/{provider}/vms.csv";
/// Providers that it covers, among those with shipped prices.
const IN_CATALOG: [&str; 16] = [
    "aws",
    "azure",
    "do",
    "fluidstack",
    "gcp",
    "hyperbolic",
    "hyperstack",
    "jarvislabs",
    "lambda",
    "nebius",
    "oci",
    "paperspace",
    "primeintellect",
    "runpod",
    "vast",
    "verda",
];
/// Placeholder for the provider in a URL.
const PROVIDER: &str = "{provider}";

pub(super) fn run(args: &PricesArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    match &args.command {
        None => list(&args.list, out),
        Some(PricesCommand::List(args)) => list(args, out),
        Some(PricesCommand::Update(args)) => update(args, out),
    }
}

fn list(args: &TableArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let all = files::files(&Paths::find())?;
    let mut by_provider: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in &all {
        let place = file.path.as_ref().map_or_else(|| "shipped".to_owned(), |path| path.display().to_string());
        by_provider.entry(file.snapshot.provider.clone()).or_default().push(place);
    }
    let book = files::book(&all);
    let rows = report::providers(by_provider, book.offers());
    let summary = report::summary(book.offers());
    if args.form.json {
        let (format, version) = ("habitat-prices", 1);
        return print_json(
            &serde_json::json!({"format": format, "version": version, "providers": rows, "all": summary}),
            out,
        );
    }
    print_table(&report::table(&rows), args.form, out)?;
    if args.form.is_text() {
        summary.write_text(out)?;
    }
    Ok(0)
}

fn update(args: &PricesUpdateArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    for name in &args.provider {
        import::check_provider(name).at("--provider")?;
    }
    if let Some(date) = args.as_of.filter(|date| *date > latest()) {
        return Err(CliError::Refused(format!("--as-of {date} is in the future; today is {}", store::today())));
    }
    let jobs = jobs(args)?;
    let paths = Paths::find();
    if !args.dry_run {
        files::check_folder(&paths)?;
    }
    let mut updating = Updating { args, files: files::files(&paths)?, paths };
    let (mut done, mut errors) = (Vec::new(), Vec::new());
    let mut unreachable = None;
    'jobs: for job in &jobs {
        for result in updating.run(job) {
            match result {
                Ok(update) => {
                    if !args.json {
                        update.write_text(out)?;
                        out.flush()?;
                    }
                    done.push(update);
                }
                // Report it once: the other providers are on the same server.
                Err(CliError::Download(error)) if error.is_unreachable() => {
                    unreachable = Some(error);
                    break 'jobs;
                }
                Err(error) => {
                    out.flush()?;
                    error.print();
                    errors.push(error.to_string());
                }
            }
        }
    }
    let unreachable = unreachable.map(|error| {
        let which = if done.is_empty() { "prices are unchanged" } else { "other prices are unchanged" };
        format!("{error}; {which}. Try again with a network connection, or pass a local copy with --from FILE")
    });
    errors.extend(unreachable.clone());
    if args.json {
        let (format, version) = ("habitat-prices-update", 1);
        print_json(
            &serde_json::json!({"format": format, "version": version, "providers": done, "errors": errors}),
            out,
        )?;
    }
    if errors.is_empty() {
        return Ok(0);
    }
    if let Some(problem) = unreachable {
        return Err(CliError::Refused(problem));
    }
    let all = done.len() + errors.len();
    Err(CliError::Refused(format!(
        "{} of {all} providers could not be updated; their prices are unchanged",
        errors.len()
    )))
}

/// Files with the prices of one provider.
struct Job {
    /// The provider; `None` if the file names it.
    provider: Option<String>,
    places: Vec<PathBuf>,
}

/// The updates to run.
fn jobs(args: &PricesUpdateArgs) -> Result<Vec<Job>, CliError> {
    let from = args.from.clone().unwrap_or_else(|| CATALOG.into());
    let text = from.to_string_lossy();
    if download::is_url(&from) && text.contains(PROVIDER) {
        let shipped = || store::bundled::prices().into_iter().map(|file| file.provider);
        let names: Vec<String> = match (args.provider.as_slice(), &args.from) {
            ([], Some(_)) => shipped().collect(),
            ([], None) => IN_CATALOG.map(str::to_owned).to_vec(),
            (names, _) => names.to_vec(),
        };
        let one = |name: String| Job { places: vec![text.replace(PROVIDER, &name).into()], provider: Some(name) };
        return Ok(names.into_iter().map(one).collect());
    }
    if let Some((scheme, _)) = text.split_once("://").filter(|_| !download::is_url(&from)) {
        return Err(CliError::Refused(format!(
            "--from {scheme}://…: only http and https are supported; download the file and pass its path"
        )));
    }
    if !download::is_url(&from) && from.is_dir() {
        return in_folder(&from, &args.provider);
    }
    match args.provider.as_slice() {
        [] => Ok(vec![Job { provider: named(&from).filter(|_| !is_price_file(&from)), places: vec![from] }]),
        [one] => Ok(vec![Job { provider: Some(one.clone()), places: vec![from] }]),
        _ => Err(CliError::Refused(
            "--provider: a file has the prices of one provider; for several, pass a folder or a URL with {provider} to --from".to_owned(),
        )),
    }
}

/// The provider at the start of a file's name. For `vms.csv`, the folder's name is the provider.
fn named(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let name = name.split(['?', '#']).next().unwrap_or_default();
    if name == "vms.csv" {
        return Some(path.parent()?.file_name()?.to_string_lossy().into_owned());
    }
    name.split(['_', '.']).next().filter(|stem| !stem.is_empty()).map(str::to_lowercase)
}

/// Whether a file is a price file, which names its provider.
fn is_price_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// One job for each provider with files in the folder, or with a `vms.csv` in a subfolder.
fn in_folder(folder: &Path, wanted: &[String]) -> Result<Vec<Job>, CliError> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| StoreError::read(folder, error))? {
        let path = entry.map_err(|error| StoreError::read(folder, error))?.path();
        entries.push(if path.is_dir() { path.join("vms.csv") } else { path });
    }
    entries.sort();
    let is_one = |path: &Path| {
        let extension = path.extension().unwrap_or_default();
        ["csv", "json", "jsonl", "toml"].iter().any(|known| extension == *known) && path.is_file()
    };
    let mut jobs: BTreeMap<(bool, String), Job> = BTreeMap::new();
    for path in entries.into_iter().filter(|path| is_one(path)) {
        let Some(name) = named(&path).filter(|name| wanted.is_empty() || wanted.contains(name)) else { continue };
        let is_price_file = is_price_file(&path);
        let provider = (!is_price_file).then(|| name.clone());
        jobs.entry((is_price_file, name)).or_insert(Job { provider, places: Vec::new() }).places.push(path);
    }
    if jobs.is_empty() {
        let which = if wanted.is_empty() { String::new() } else { format!(" of {}", wanted.join(", ")) };
        let problem = format!(
            "has no prices{which}: expected CSV, JSON or TOML files whose names begin with a provider, such as lambda.csv"
        );
        return Err(CliError::Refused(problem).at(folder.display()));
    }
    Ok(jobs.into_values().collect())
}

/// A downloaded or read file with prices.
struct Fetched {
    bytes: Vec<u8>,
    /// Source for the rows: the URL or the file name.
    source: String,
    /// Source for messages: the URL or the path as given.
    place: String,
    dated: Option<(Date, &'static str)>,
}

struct Updating<'a> {
    args: &'a PricesUpdateArgs,
    paths: Paths,
    /// Price files with the updates so far.
    files: Vec<PriceFile>,
}

impl Updating<'_> {
    /// Fetches, reads and writes the prices of a job, separately for each provider.
    fn run(&mut self, job: &Job) -> Vec<Result<UpdateJson, CliError>> {
        let mut merged: BTreeMap<String, (Imported, Vec<String>)> = BTreeMap::new();
        let mut dated = None;
        for place in &job.places {
            let read = self.fetch(place).and_then(|fetched| {
                let origin = Origin {
                    provider: job.provider.as_deref(),
                    source: &fetched.source,
                    as_of: fetched.dated.map(|(date, _)| date),
                    dated_by: fetched.dated.map(|(_, how)| how),
                };
                let imported = import::read(&fetched.bytes, origin).at(&fetched.place)?;
                Ok((imported, fetched))
            });
            match read {
                Ok((imported, fetched)) => {
                    dated = fetched.dated;
                    for one in imported {
                        merge(&mut merged, one, &fetched.place);
                    }
                }
                Err(error) => return vec![Err(error)],
            }
        }
        if merged.is_empty() {
            let places: Vec<String> =
                job.places.iter().map(|place| download::shown(&place.to_string_lossy())).collect();
            return vec![Err(CliError::Refused(format!("{}: has no prices for this provider", places.join(", "))))];
        }
        merged.into_values().map(|(imported, sources)| self.write(imported, sources, dated)).collect()
    }

    fn fetch(&self, place: &Path) -> Result<Fetched, CliError> {
        let asked = self.args.as_of.map(|date| (date, "from --as-of"));
        if !download::is_url(place) {
            let bytes = store::read(place, Limit::prices(self.args.max_size))?;
            let name = place.file_name().unwrap_or(place.as_os_str()).to_string_lossy().into_owned();
            return Ok(Fetched { bytes, source: name, place: place.display().to_string(), dated: asked });
        }
        let url = place.to_string_lossy();
        let cache = Paths::cache().map(|cache| cache.join("prices"));
        let PricesUpdateArgs { timeout, max_time: whole, max_size: most, .. } = *self.args;
        let got = Download { url: &url, timeout, whole, most, cache }.run()?;
        let changed = got.last_modified.map(|date| (date, "last change according to the server"));
        let dated = asked.or(changed).or_else(|| Some((store::today(), "day of the download")));
        let source = download::shown(&url);
        Ok(Fetched { bytes: got.bytes, place: source.clone(), source, dated })
    }

    fn write(
        &mut self,
        mut imported: Imported,
        sources: Vec<String>,
        dated: Option<(Date, &'static str)>,
    ) -> Result<UpdateJson, CliError> {
        imported.check().at(sources.join(", "))?;
        let worse_than_shipped = keep_better(&mut imported.snapshot.offers, &imported.snapshot.provider);
        let provider = imported.snapshot.provider.clone();
        let path = files::file_of(&self.paths, &provider);
        files::check_replaceable(&path, self.args.force)?;
        let offers = imported.snapshot.offers().count();
        let new = files::with(&self.files, &path, imported.snapshot.clone());
        check_dates(&imported.snapshot, dated).at(sources.join(", "))?;
        let [before, after] = [&self.files, &new].map(|files| of(files, &provider));
        let lost = import::lost(&machines(&self.files, &provider), &machines(&new, &provider));
        if let Some(lost) = lost.as_ref().filter(|_| !(self.args.accept_loss || self.args.dry_run)) {
            let problem = format!("{lost}; check that the file is complete, or accept this with --accept-loss");
            return Err(CliError::Refused(problem).at(sources.join(", ")));
        }
        let changes = Changes::between(&before, &after);
        if !self.args.dry_run {
            files::save(&path, &imported.snapshot)?;
        }
        self.files = new;
        Ok(Update {
            provider: &provider,
            sources,
            file: path.display().to_string(),
            written: !self.args.dry_run,
            offers,
            dated,
            counts: imported.counts,
            worse_than_shipped,
            lost: lost.map(|lost| lost.to_string()),
            changes,
        }
        .into())
    }
}

/// Merges a file into earlier files of the same provider. For the same machine, later rows win.
fn merge(all: &mut BTreeMap<String, (Imported, Vec<String>)>, new: Imported, source: &str) {
    let Some((known, sources)) = all.get_mut(&new.snapshot.provider) else {
        all.insert(new.snapshot.provider.clone(), (new, vec![source.to_owned()]));
        return;
    };
    sources.push(source.to_owned());
    let machines: HashSet<(String, String)> = new.snapshot.offers.iter().map(machine).collect();
    known.snapshot.offers.retain(|row| !machines.contains(&machine(row)));
    known.snapshot.offers.extend(new.snapshot.offers);
    known.counts.add(new.counts);
}

fn machine(row: &Row) -> (String, String) {
    (row.region.clone(), row.instance_type.clone())
}

/// Drops suspect prices for which a shipped price is better, and returns their number.
fn keep_better(rows: &mut Vec<Row>, provider: &str) -> usize {
    let shipped = store::bundled::prices().into_iter().filter(|file| file.provider == provider);
    let better: HashSet<(String, String)> =
        shipped.flat_map(|file| file.offers).filter(|row| row.suspect.is_none()).map(|row| machine(&row)).collect();
    let before = rows.len();
    rows.retain(|row| row.suspect.is_none() || !better.contains(&machine(row)));
    before - rows.len()
}

/// Latest date that is not in the future in any time zone.
fn latest() -> Date {
    store::today().tomorrow().unwrap_or(Date::MAX)
}

/// Refuses prices with a date in the future.
fn check_dates(snapshot: &Snapshot, dated: Option<(Date, &str)>) -> Result<(), CliError> {
    let today = store::today();
    if let Some((date, how)) = dated.filter(|(date, _)| *date > latest()) {
        let problem =
            format!("its date, {date} ({how}), is in the future; today is {today}: pass the right one with --as-of");
        return Err(CliError::Refused(problem));
    }
    let rows = snapshot.offers.iter().enumerate();
    let Some((place, row)) = rows.clone().find(|(_, row)| row.as_of.is_some_and(|date| date > latest())) else {
        return Ok(());
    };
    let count = rows.filter(|(_, row)| row.as_of.is_some_and(|date| date > latest())).count();
    let date = row.as_of.map_or_else(String::new, |date| date.to_string());
    Err(CliError::Refused(format!(
        "offer {} ({} in {}): as_of {date} is in the future, as are {} others; today is {today}: correct the dates",
        place + 1,
        text::clean(&row.instance_type, 60),
        text::clean(&row.region, 60),
        count - 1
    )))
}

/// Machines of a provider in these files: GPU, number of GPUs and tier.
fn machines(files: &[PriceFile], provider: &str) -> Vec<import::Machine> {
    let book = files::book(files);
    let own = book.offers().iter().filter(|offer| offer.provider == provider);
    own.map(|offer| {
        let gpu = offer.gpu.as_ref().map_or_else(|| offer.gpu_name.clone(), ToString::to_string);
        (gpu, offer.gpu_count, offer.tier)
    })
    .collect()
}

/// Offers of a provider in these files, with their prices.
fn of(files: &[PriceFile], provider: &str) -> Vec<(OfferId, UsdPerHour)> {
    let book = files::book(files);
    let own = book.offers().iter().filter(|offer| offer.provider == provider);
    own.map(|offer| (offer.id.clone(), offer.price)).collect()
}
