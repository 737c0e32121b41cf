//! Sources and ages of prices, and the changes made by an update.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;

use jiff::civil::Date;
use serde::Serialize;

use super::format;
use super::table::{Cell, Column, Table};
use super::words;
use habitat_base::text;
use habitat_planning::pricing::Offer;
use habitat_planning::pricing::import::{Change, Changes, Counts};

/// Number of the largest changes of each kind to show.
const SHOWN: usize = 3;
/// Maximum width of a name in a list, in characters.
const WIDTH: usize = 30;
/// Number of names of unknown GPUs to show.
const NAMES: usize = 8;

/// Prices of one provider.
#[derive(Debug, Serialize)]
pub struct ProviderJson {
    provider: String,
    /// The user's files, or `shipped`.
    files: Vec<String>,
    offers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    newest: Option<String>,
    undated: usize,
    /// Offers with a usable price in doubt.
    in_doubt: usize,
    /// Offers without a usable price.
    unusable: usize,
}

/// A row for each provider, with its files (by provider) and its offers in the price book.
pub fn providers(files: BTreeMap<String, Vec<String>>, offers: &[Arc<Offer>]) -> Vec<ProviderJson> {
    let one = |(provider, files): (String, Vec<String>)| {
        let own: Vec<&Arc<Offer>> = offers.iter().filter(|offer| offer.provider == provider).collect();
        let dates = || own.iter().filter_map(|offer| offer.as_of);
        ProviderJson {
            files,
            offers: own.len(),
            oldest: dates().min().map(|date| date.to_string()),
            newest: dates().max().map(|date| date.to_string()),
            undated: own.iter().filter(|offer| offer.as_of.is_none()).count(),
            in_doubt: own.iter().filter(|offer| is_doubted(offer)).count(),
            unusable: own.iter().filter(|offer| offer.unusable.is_some()).count(),
            provider,
        }
    };
    files.into_iter().map(one).collect()
}

fn is_doubted(offer: &Offer) -> bool {
    offer.unusable.is_none() && !offer.trust.doubts.is_empty()
}

/// Upper ends of the age classes, in days.
const AGES: [i32; 4] = [30, 90, 180, 365];

/// Counts of all offers by age and doubt.
#[derive(Debug, Serialize)]
pub struct SummaryJson {
    offers: usize,
    providers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    newest: Option<String>,
    /// Offers without a usable price.
    unusable: usize,
    /// Usable offers with a price in doubt.
    in_doubt: usize,
    /// Usable offers in doubt, by kind of doubt; an offer may have several.
    doubts: BTreeMap<&'static str, usize>,
    /// All offers by age in days; the last entry has those without a date.
    ages: Vec<AgeJson>,
}

#[derive(Debug, Serialize)]
struct AgeJson {
    days: String,
    offers: usize,
}

/// Counts all offers by age and doubt.
pub fn summary(offers: &[Arc<Offer>]) -> SummaryJson {
    let mut doubts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for doubt in offers.iter().filter(|offer| is_doubted(offer)).flat_map(|offer| &offer.trust.doubts) {
        *doubts.entry(words::price::mark(doubt)).or_default() += 1;
    }
    let mut ages = Vec::new();
    let mut count = |days: String, is: &dyn Fn(Option<i32>) -> bool| {
        ages.push(AgeJson { days, offers: offers.iter().filter(|offer| is(offer.trust.age_days)).count() });
    };
    let mut least = 0;
    for most in AGES {
        count(format!("{least}–{most}"), &|age| age.is_some_and(|age| (least..=most).contains(&age)));
        least = most + 1;
    }
    count(format!("{least} or more"), &|age| age.is_some_and(|age| age >= least));
    count("no date".to_owned(), &|age| age.is_none());
    SummaryJson {
        offers: offers.len(),
        providers: offers.iter().map(|offer| &offer.provider).collect::<BTreeSet<_>>().len(),
        newest: offers.iter().filter_map(|offer| offer.as_of).max().map(|date| date.to_string()),
        unusable: offers.iter().filter(|offer| offer.unusable.is_some()).count(),
        in_doubt: offers.iter().filter(|offer| is_doubted(offer)).count(),
        doubts,
        ages,
    }
}

impl SummaryJson {
    /// Writes the summary as text.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let newest = self.newest.as_ref().map_or_else(String::new, |date| format!(", newest price of {date}"));
        writeln!(out, "{} offers of {} providers{newest}", format::grouped(self.offers as f64), self.providers)?;
        let ages = self.ages.iter().filter(|age| age.offers > 0);
        let ages: Vec<String> = ages.map(|age| format!("{} ({})", age.offers, age.days)).collect();
        writeln!(out, "  age in days: {}", ages.join(", "))?;
        writeln!(out, "  not used in plans: {} (`habitat-tui offers --all` shows why)", self.unusable)?;
        let doubts: Vec<String> = self.doubts.iter().map(|(doubt, count)| format!("{count} {doubt}")).collect();
        let of = format::grouped((self.offers - self.unusable) as f64);
        let kinds = if doubts.is_empty() { String::new() } else { format!(": {}", doubts.join(", ")) };
        writeln!(out, "  in doubt: {} of the other {of}{kinds}", self.in_doubt)
    }
}

/// A row for each provider.
pub fn table(providers: &[ProviderJson]) -> Table {
    let mut table = Table::new(&[
        Column::text("provider", "provider"),
        Column::number("offers", "offers"),
        Column::text("oldest", "oldest"),
        Column::text("newest", "newest"),
        Column::number("no date", "undated").dropped(1),
        Column::number("in doubt", "in_doubt"),
        Column::number("not used", "unusable"),
        Column::text("from", "files"),
    ]);
    for row in providers {
        table.push(vec![
            Cell::text(&row.provider),
            Cell::text(row.offers),
            Cell::maybe(row.oldest.as_ref(), Cell::text),
            Cell::maybe(row.newest.as_ref(), Cell::text),
            Cell::text(row.undated),
            Cell::text(row.in_doubt),
            Cell::text(row.unusable),
            Cell::text(row.files.join(", ")),
        ]);
    }
    table
}

/// Changes to the prices of one provider in an update.
#[derive(Debug, Serialize)]
pub struct UpdateJson {
    provider: String,
    /// Sources of the prices.
    sources: Vec<String>,
    /// Output file.
    file: String,
    /// Whether the file was written; false with `--dry-run`.
    written: bool,
    /// Offers read, one for each combination of machine, region and tier.
    offers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<String>,
    /// Source of that date.
    #[serde(skip_serializing_if = "Option::is_none")]
    dated_by: Option<&'static str>,
    skipped: SkippedJson,
    /// Machines with a GPU whose board is ambiguous, by name.
    board_not_known: BTreeMap<String, usize>,
    /// Machines with a GPU that is not in the catalog, by name.
    gpu_not_known: BTreeMap<String, usize>,
    /// Warning if the update removes most of the previous offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    changes: ChangesJson,
}

#[derive(Debug, Serialize)]
struct SkippedJson {
    without_gpu: usize,
    part_of_gpu: usize,
    without_price: usize,
    worse_than_shipped: usize,
}

#[derive(Debug, Serialize)]
struct ChangesJson {
    new: KindJson,
    gone: KindJson,
    dearer: KindJson,
    cheaper: KindJson,
    same: usize,
}

#[derive(Debug, Serialize)]
struct KindJson {
    count: usize,
    largest: Vec<ChangeJson>,
}

#[derive(Debug, Serialize)]
struct ChangeJson {
    offer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before_usd_per_hour: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after_usd_per_hour: Option<f64>,
    #[serde(skip)]
    shown: String,
}

/// Result of an update.
#[derive(Debug)]
pub struct Update<'a> {
    /// Provider.
    pub provider: &'a str,
    /// Sources of the prices.
    pub sources: Vec<String>,
    /// Output file.
    pub file: String,
    /// Whether the file was written.
    pub written: bool,
    /// Offers read.
    pub offers: usize,
    /// Date of the prices, and the source of that date.
    pub dated: Option<(Date, &'static str)>,
    /// Counts of skipped rows.
    pub counts: Counts,
    /// Rows skipped because the shipped price of the machine is more reliable.
    pub worse_than_shipped: usize,
    /// Warning if the update removes most of the previous offers.
    pub lost: Option<String>,
    /// Changes to the offers.
    pub changes: Changes,
}

impl From<Update<'_>> for UpdateJson {
    fn from(update: Update<'_>) -> Self {
        let Counts { without_gpu, part_of_gpu, without_price, unknown, ambiguous } = update.counts;
        let changes = update.changes;
        Self {
            provider: update.provider.to_owned(),
            sources: update.sources,
            file: update.file,
            written: update.written,
            offers: update.offers,
            as_of: update.dated.map(|(date, _)| date.to_string()),
            dated_by: update.dated.map(|(_, how)| how),
            skipped: SkippedJson {
                without_gpu,
                part_of_gpu,
                without_price,
                worse_than_shipped: update.worse_than_shipped,
            },
            board_not_known: ambiguous,
            gpu_not_known: unknown,
            lost: update.lost,
            changes: ChangesJson {
                new: kind(&changes.new),
                gone: kind(&changes.gone),
                dearer: kind(&changes.dearer),
                cheaper: kind(&changes.cheaper),
                same: changes.same,
            },
        }
    }
}

fn kind(changes: &[Change]) -> KindJson {
    let one = |change: &Change| ChangeJson {
        offer: change.id.to_string(),
        before_usd_per_hour: change.before.map(habitat_base::units::UsdPerHour::get),
        after_usd_per_hour: change.after.map(habitat_base::units::UsdPerHour::get),
        shown: [change.before, change.after].into_iter().flatten().map(format::price).collect::<Vec<_>>().join(" → "),
    };
    KindJson { count: changes.len(), largest: changes.iter().take(SHOWN).map(one).collect() }
}

impl UpdateJson {
    /// Writes the changes as text.
    ///
    /// # Errors
    /// Write errors of `out`.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let verb = if self.written { "written to" } else { "not written (--dry-run) to" };
        let date = match (&self.as_of, self.dated_by) {
            (Some(date), Some(how)) => format!("of {date} ({how})"),
            _ => "dated by their rows, if at all (--as-of dates the others),".to_owned(),
        };
        let sources = self.sources.join(", ");
        writeln!(out, "{}: {} offers {date} from {sources}, {verb} {}", self.provider, self.offers, self.file)?;
        let changes = &self.changes;
        let kinds = [
            ("new", &changes.new),
            ("gone", &changes.gone),
            ("dearer", &changes.dearer),
            ("cheaper", &changes.cheaper),
        ];
        let counts: Vec<String> = kinds.iter().map(|(name, kind)| format!("{} {name}", kind.count)).collect();
        writeln!(out, "  {}, {} unchanged", counts.join(", "), changes.same)?;
        if let Some(lost) = &self.lost {
            let refused = if self.written { "" } else { "; refused without --accept-loss" };
            writeln!(out, "  warning: {sources} {lost}{refused}")?;
        }
        for (name, kind) in kinds {
            for change in &kind.largest {
                writeln!(out, "    {name:<8}{}  {}", change.offer, change.shown)?;
            }
        }
        self.write_left_out(out)
    }

    fn write_left_out(&self, out: &mut dyn Write) -> io::Result<()> {
        let skipped = [
            (self.skipped.without_gpu, "without a GPU"),
            (self.skipped.part_of_gpu, "with a fraction of a GPU"),
            (self.skipped.without_price, "without a price"),
            (self.skipped.worse_than_shipped, "with a suspect price (shipped price kept)"),
        ];
        let skipped: Vec<String> =
            skipped.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        if !skipped.is_empty() {
            writeln!(out, "  rows skipped: {}", skipped.join(", "))?;
        }
        for (names, what) in [
            (&self.board_not_known, "unknown board, not used in plans"),
            (&self.gpu_not_known, "GPU not in the catalog, not used in plans"),
        ] {
            if !names.is_empty() {
                writeln!(out, "  {what}: {}", listed(names))?;
            }
        }
        Ok(())
    }
}

/// Names with their counts, most frequent first.
fn listed(names: &BTreeMap<String, usize>) -> String {
    let mut all: Vec<(&String, &usize)> = names.iter().collect();
    all.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
    let shown: Vec<String> =
        all.iter().take(NAMES).map(|(name, count)| format!("{} ({count})", text::clean(name, WIDTH))).collect();
    let rest = all.len().saturating_sub(NAMES);
    if rest == 0 { shown.join(", ") } else { format!("{} and {rest} more", shown.join(", ")) }
}
