//! Third screen: the step on every GPU, its value for money, and how it was predicted.

use crate::action::Action;
use crate::app::App;
use crate::app::job::JobState;
use crate::app::list::{Cell, Column, Graphic, ListState, Table};
use crate::app::screen::profile::{phase_role, phase_word};
use crate::op;
use crate::plan::Range;
use crate::plan::value::best_value as value_of;
use crate::predict::{Estimate, Fits, Method, Prediction, Warning};
use crate::pricing::Tier;
use crate::report::format::{self, TimeUnit};
use crate::settings::theme::Role;
use crate::text::clean;
use crate::units::{GpuSlug, Micros, SamplesPerSecond, UsdPerHour};

/// What the list can be sorted by, in the order of `s`.
pub const SORTS: [&str; 4] = ["step time", "samples per dollar", "memory", "name"];

/// What the operations of one GPU can be sorted by.
pub const OPERATION_SORTS: [&str; 3] = ["predicted time", "measured time", "name"];

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct PredictState {
    /// Selection, filter, order of the GPUs.
    pub list: ListState,
    /// The rows before filter and order.
    pub rows: Vec<Row>,
    /// The GPU whose operations are shown.
    pub opened: Option<GpuSlug>,
    /// Selection, filter, order of those operations.
    pub operations: ListState,
    /// The GPU to select once there are rows.
    pub wanted: Option<GpuSlug>,
}

/// What a dollar buys.
#[derive(Debug, Clone, PartialEq)]
pub struct RowValue {
    /// Price of one GPU.
    pub price: UsdPerHour,
    /// Samples for a dollar; `None` where the batch size is not known.
    pub per_usd: Option<Range<f64>>,
    /// Who sells it.
    pub provider: String,
    /// How it is paid for.
    pub tier: Tier,
    /// The offer's full name, with its date.
    pub offer: String,
    /// What speaks against the price, in a word each; empty where nothing does.
    pub marks: String,
    /// The same with the reasons.
    pub doubts: String,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Position in the predictions.
    pub index: usize,
    /// The GPU.
    pub slug: GpuSlug,
    /// Its name.
    pub name: String,
    /// Whether the step was recorded on it.
    pub measured: bool,
    /// Whether its catalog row has doubtful figures.
    pub doubtful: bool,
    /// The step.
    pub step: Estimate<Micros>,
    /// Samples a second.
    pub throughput: Option<Estimate<SamplesPerSecond>>,
    /// The cheapest usable offer on demand.
    pub value: Option<RowValue>,
    /// Whether there are offers on spot, whatever there is on demand.
    pub on_spot: bool,
    /// Whether the step fits in memory.
    pub fits: Fits,
    /// Device memory in GiB.
    pub memory_gib: f64,
}

impl PredictState {
    /// Makes the rows anew from predictions and prices.
    pub fn rebuild(app: &mut App) {
        let before = selected(app).map(|row| row.slug.clone()).or_else(|| app.predict.wanted.take());
        let Some(predictions) = app.predictions.shared() else { return };
        let row = |(index, prediction): (usize, &Prediction)| Row {
            index,
            slug: prediction.gpu.slug.clone(),
            name: clean(&prediction.gpu.name, 60),
            measured: prediction.step.is_measured(),
            doubtful: prediction.gpu.doubtful,
            step: prediction.step.as_estimate(),
            throughput: prediction.throughput.clone(),
            value: value_of(prediction, &app.setup.prices).map(|value| RowValue {
                price: value.price_per_gpu,
                per_usd: value.samples_per_usd,
                provider: clean(&value.offer.provider, 24),
                tier: value.offer.tier,
                offer: format!(
                    "{}{}{}",
                    clean(value.offer.id.as_str(), 100),
                    value.offer.as_of.map_or_else(|| ", no date".to_owned(), |date| format!(", {date}")),
                    value.offer.trust.age_days.map_or_else(String::new, |days| format!(", {days} days old")),
                ),
                marks: value.offer.trust.marks(),
                doubts: value.offer.trust.reasons(),
            }),
            on_spot: app.setup.prices.offers().iter().any(|offer| {
                offer.gpu.as_ref() == Some(&prediction.gpu.slug) && offer.unusable.is_none() && offer.tier == Tier::Spot
            }),
            fits: prediction.memory.fits,
            memory_gib: prediction.gpu.memory.get() / crate::units::GIB,
        };
        app.predict.rows = predictions.predictions.iter().enumerate().map(row).collect();
        app.predict.list.selected =
            before.and_then(|slug| rows(app).iter().position(|row| row.slug == slug)).unwrap_or(0);
    }
}

/// The rows shown, filtered and in order.
pub fn rows(app: &App) -> Vec<&Row> {
    let list = &app.predict.list;
    let words = |row: &Row| {
        let fits = match row.fits {
            Fits::Yes => "fits",
            Fits::No => "too small",
            Fits::Unknown => "memory unknown",
        };
        let sold = row.value.as_ref().map(|value| value.provider.as_str()).unwrap_or_default();
        format!("{} {} {fits} {} {sold}", row.name, row.slug, row.step.method)
    };
    let meant = app.setup.catalog.named(&list.filter);
    let passes = |row: &&Row| list.passes(&words(row)) || meant.iter().any(|gpu| gpu.slug == row.slug);
    let mut rows: Vec<&Row> = app.predict.rows.iter().filter(passes).collect();
    // Where nothing is known the row goes last, whichever the order.
    let known = |row: &Row| row.step.mid.get() > 0.0;
    match list.sort {
        1 => rows.sort_by(|a, b| {
            let per_usd = |row: &Row| row.value.as_ref().and_then(|value| value.per_usd).map_or(0.0, |it| it.mid);
            per_usd(b).total_cmp(&per_usd(a))
        }),
        2 => rows.sort_by(|a, b| b.memory_gib.total_cmp(&a.memory_gib).then(a.step.mid.total_cmp(&b.step.mid))),
        3 => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        _ => rows.sort_by(|a, b| known(b).cmp(&known(a)).then(a.step.mid.total_cmp(&b.step.mid))),
    }
    if list.reversed {
        rows.reverse();
    }
    rows
}

/// The selected row.
pub fn selected(app: &App) -> Option<&Row> {
    rows(app).get(app.predict.list.selected).copied()
}

/// The prediction of the selected row, or of the opened GPU.
pub fn selected_prediction(app: &App) -> Option<&Prediction> {
    let predictions = app.predictions.value()?;
    match &app.predict.opened {
        Some(slug) => predictions.predictions.iter().find(|prediction| prediction.gpu.slug == *slug),
        None => predictions.predictions.get(selected(app)?.index),
    }
}

/// The fastest GPU the step fits on (or may fit on).
pub fn fastest(app: &App) -> Option<&Row> {
    let usable = |row: &&Row| row.fits != Fits::No && row.step.mid.get() > 0.0;
    app.predict.rows.iter().filter(usable).min_by(|a, b| a.step.mid.total_cmp(&b.step.mid))
}

/// The GPU with the most work for a dollar among those the step fits on (or may fit on), and
/// how much that is.
pub fn best_value(app: &App) -> Option<(&Row, &RowValue, Range<f64>)> {
    let usable = |row: &&Row| row.fits != Fits::No && row.step.mid.get() > 0.0;
    app.predict
        .rows
        .iter()
        .filter(usable)
        .filter_map(|row| row.value.as_ref().and_then(|value| Some((row, value, value.per_usd?))))
        .max_by(|a, b| a.2.mid.total_cmp(&b.2.mid))
}

/// Why nothing can be said of the work for a dollar, with what gives it.
pub fn no_value(app: &App) -> &'static str {
    if app.predict.rows.iter().any(|row| row.value.is_some()) {
        "needs the batch size: start with --batch-size N"
    } else {
        "no usable offer on demand"
    }
}

/// What the job does, where it is not simply done.
pub fn state_line(app: &App) -> Option<String> {
    match app.predictions.state() {
        JobState::Running => Some(format!("predicting the step on {} GPUs …", app.setup.catalog.len())),
        JobState::Failed(reason) => {
            let key = app.setup.keymap.hint(Action::Origin);
            let choose = if app.unavailable(Action::Origin).is_none() {
                format!(" · {key} chooses it here")
            } else {
                String::new()
            };
            Some(format!("prediction failed: {}{choose}", clean(reason, 500)))
        }
        JobState::Cancelled => Some(format!("cancelled; {} runs it again", app.setup.keymap.hint(Action::Rerun))),
        JobState::Idle => None,
    }
}

/// Whether there are no predictions because they failed.
pub fn failed(app: &App) -> bool {
    app.predictions.value().is_none() && matches!(app.predictions.state(), JobState::Failed(_))
}

/// Said where something waits for predictions that failed: the reason stands elsewhere.
pub const NEEDS_PREDICTION: &str = "needs the prediction";

/// Low–high and method of a step.
pub fn range_and_method(step: &Estimate<Micros>) -> String {
    format!("{} · {}", format::time_range(step.low, step.high), method_words(step))
}

/// The method in words that cannot be misread.
pub fn method_words(step: &Estimate<Micros>) -> String {
    match step.method {
        Method::Measured => "measured".to_owned(),
        Method::Derived => "derived from one rank of several".to_owned(),
        method => format!("predicted, {method}"),
    }
}

/// The table of GPUs.
pub fn table(app: &App) -> Table {
    let shown = rows(app);
    let ends = shown.iter().filter(|row| row.step.low.get() > 0.0);
    let longest = ends.clone().map(|row| row.step.high.get()).fold(0.0, f64::max);
    let shortest = ends.map(|row| row.step.low.get()).fold(f64::INFINITY, f64::min);
    let scale = Scale::of(&app.predict.rows);
    let columns = vec![
        Column::words("GPU", 21, 0).sorts(3),
        Column::number(format!("step, {}", scale.unit.symbol()), 0).sorts(0),
        Column::number(format!("low–high, {}", scale.unit.symbol()), 1),
        Column::graphic("log scale", 9, 6),
        Column::number("samples/s", 4),
        Column::number("samples/$", 2).sorts(1),
        Column::number("$/GPU/h", 5),
        Column::number("memory fits", 3).sorts(2),
        Column::words("how", 8, 1),
    ];
    let rows = shown.iter().map(|row| cells(row, scale, shortest, longest)).collect();
    Table {
        columns,
        rows,
        selected: app.predict.list.selected,
        sorted: Some((app.predict.list.sort, (1..=2).contains(&app.predict.list.sort) != app.predict.list.reversed)),
        empty: if app.predict.rows.is_empty() {
            state_line(app).unwrap_or_else(|| "No prediction yet; r runs it.".to_owned())
        } else {
            "No GPU passes the filter; Esc clears it.".to_owned()
        },
    }
}

/// Samples for a dollar from which on not every digit is shown.
const MANY: f64 = 1e8;

fn per_usd(samples: f64, most: f64) -> String {
    if most < MANY { format::grouped(samples) } else { format::short_count(samples) }
}

/// The unit of a column of times, and its decimals: the shortest time has two digits or three.
#[derive(Debug, Clone, Copy)]
struct Scale {
    unit: TimeUnit,
    decimals: usize,
    /// The most samples for a dollar.
    per_usd: f64,
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let mids = rows.iter().map(|row| row.step.mid.get()).filter(|mid| *mid > 0.0);
        let (shortest, longest) = mids.fold((f64::INFINITY, 0.0), |(low, high), mid| (mid.min(low), mid.max(high)));
        let values = rows.iter().filter_map(|row| row.value.as_ref());
        let per_usd = values.filter_map(|value| value.per_usd).map(|it| it.high).fold(0.0, f64::max);
        let (unit, decimals) = match shortest {
            us if us < 1e3 && longest < 1e4 => (TimeUnit::Micros, usize::from(us < 100.0)),
            us if us < 1e3 => (TimeUnit::Millis, 2),
            _ => (TimeUnit::Millis, 1),
        };
        Self { unit, decimals, per_usd }
    }

    fn bare(self, time: Micros) -> String {
        format!("{:.*}", self.decimals, self.unit.value(time))
    }
}

/// What is to be said with any of the times: in whole sentences, or in a few words.
pub fn warnings(app: &App, brief: bool) -> Vec<String> {
    let Some(all) = app.predictions.value() else { return Vec::new() };
    if brief { one_line(&all.brief_warnings()) } else { words(&all.warnings(), false) }
}

/// Warnings in whole sentences, or in a few words and on one line.
pub fn words(warnings: &[Warning], brief: bool) -> Vec<String> {
    if !brief {
        return warnings.iter().map(ToString::to_string).collect();
    }
    one_line(&warnings.iter().map(|warning| warning.kind.brief().to_owned()).collect::<Vec<_>>())
}

fn one_line(briefs: &[String]) -> Vec<String> {
    if briefs.is_empty() { Vec::new() } else { vec![briefs.join(" · ")] }
}

fn cells(row: &Row, scale: Scale, shortest: f64, longest: f64) -> Vec<Cell> {
    let known = row.step.mid.get() > 0.0;
    let role = if row.measured { Role::Measured } else { Role::Predicted };
    let mark = if row.doubtful { " ?" } else { "" };
    // Logarithmic: the GPUs of a catalog lie two decades apart.
    let part = |time: Micros| {
        if longest > shortest { (time.get() / shortest).ln() / (longest / shortest).ln() } else { 0.5 }
    };
    let range = Graphic::Range { low: part(row.step.low), mid: part(row.step.mid), high: part(row.step.high) };
    let range_text = if row.step.low == row.step.high {
        "one value".to_owned()
    } else {
        format!("{}–{}", scale.bare(row.step.low), scale.bare(row.step.high))
    };
    let value = row.value.as_ref();
    let (fits_role, fits) = match row.fits {
        Fits::Yes => (Role::Muted, "yes"),
        Fits::No => (Role::Error, " no"),
        Fits::Unknown => (Role::Warning, "  ?"),
    };
    if !known {
        let mut cells = vec![Cell::of(Role::Muted, row.name.clone()), Cell::of(Role::Muted, "unknown")];
        cells.resize(9, Cell::text(""));
        return cells;
    }
    vec![
        Cell::of(role, format!("{}{mark}", row.name)),
        Cell::of(role, scale.bare(row.step.mid)),
        Cell::of(Role::Muted, range_text),
        Cell::draw(role, range),
        Cell::text(row.throughput.as_ref().map_or_else(|| "–".to_owned(), |rate| format::number(rate.mid.get()))),
        Cell::text(
            value.and_then(|value| value.per_usd).map_or_else(|| "–".to_owned(), |it| per_usd(it.mid, scale.per_usd)),
        ),
        match value {
            None => Cell::of(Role::Muted, if row.on_spot { "spot only" } else { "no offer" }),
            Some(value) if value.marks.is_empty() => Cell::of(Role::Muted, format!("{:.3} ", value.price.get())),
            Some(value) => Cell::of(Role::Warning, format!("{:.3}?", value.price.get())),
        },
        Cell::of(fits_role, format!("{:.0} GB {fits}", row.memory_gib)),
        Cell::of(if row.measured { Role::Measured } else { Role::Muted }, row.step.method.name()),
    ]
}

/// Facts and doubts about the selected GPU, a line each: a label and a text.
pub fn facts(app: &App) -> Vec<(String, String)> {
    let Some(prediction) = selected_prediction(app) else { return Vec::new() };
    let mut lines: Vec<(String, String)> = Vec::new();
    let step = prediction.step.as_estimate();
    let mut line = |label: &str, text: String| lines.push((label.to_owned(), text));
    let mut words = format!("{} ({})", format::time(step.mid), range_and_method(&step));
    if let Some(rate) = &prediction.throughput {
        words = format!(
            "{words} · {} samples/s ({}–{})",
            format::number(rate.mid.get()),
            format::number(rate.low.get()),
            format::number(rate.high.get())
        );
    }
    line("step", words);
    for brief in self::words(&prediction.warnings, true) {
        line("warning", brief);
    }
    let row = app.predict.rows.iter().find(|row| row.slug == prediction.gpu.slug);
    if let Some(value) = row.and_then(|row| row.value.as_ref()) {
        let amount = value.per_usd.map_or_else(
            || "samples/$ need the batch size (--batch-size N)".to_owned(),
            |it| {
                let range = if it.high < MANY {
                    format!("{}–{}", format::grouped(it.low), format::grouped(it.high))
                } else {
                    format::short_range(it.low, it.high)
                };
                format!("{} samples/$ ({range})", per_usd(it.mid, it.high))
            },
        );
        line("value", format!("{amount} · {} per GPU · {}", format::price(value.price), value.offer));
        if !value.doubts.is_empty() {
            line("price", format!("in doubt: {}", value.doubts));
        }
    } else if row.is_some_and(|row| row.on_spot) {
        line("value", "no usable offer on demand; the plan knows those on spot".to_owned());
    } else {
        line("value", "no usable offer in the price book".to_owned());
    }
    line("memory", clean(&prediction.memory.reason, 300));
    if prediction.shares.len() > 1 {
        let shares: Vec<String> = prediction
            .shares
            .iter()
            .map(|share| format!("{} {}", share.method, format::percent(share.share)))
            .collect();
        line("methods", format!("{} of device time", shares.join(" · ")));
    }
    if prediction.host_idle.get() > 0.0 {
        line("host", format!("GPU idle, waiting for the CPU: {} of the step", format::time(prediction.host_idle)));
    }
    for text in self::words(&prediction.warnings, false) {
        line("warning", text);
    }
    for note in &prediction.notes {
        line("note", clean(note, 400));
    }
    if let Some(predictions) = app.predictions.value() {
        for note in &predictions.notes {
            line("note", clean(note, 400));
        }
    }
    lines
}

/// The rows of the opened GPU's operations, filtered and in order.
fn operation_rows(app: &App) -> Vec<&crate::predict::OperationPrediction> {
    let list = &app.predict.operations;
    let Some(prediction) = selected_prediction(app) else { return Vec::new() };
    let total = |time: Option<Micros>, count: u32| time.map_or(0.0, |time| time.get() * f64::from(count));
    let words = |operation: &crate::predict::OperationPrediction| {
        let method = operation.time.as_ref().map_or("unknown", |time| time.method.name());
        format!("{} {} {method} {}", clean(&operation.name, 200), operation.phase.name(), clean(&operation.why, 300))
    };
    let mut rows: Vec<_> = prediction.operations.iter().filter(|operation| list.passes(&words(operation))).collect();
    match list.sort {
        1 => rows.sort_by(|a, b| total(b.origin_time, b.count).total_cmp(&total(a.origin_time, a.count))),
        2 => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        _ => rows.sort_by(|a, b| {
            let mid = |operation: &crate::predict::OperationPrediction| {
                total(operation.time.as_ref().map(|time| time.mid), operation.count)
            };
            mid(b).total_cmp(&mid(a))
        }),
    }
    if list.reversed {
        rows.reverse();
    }
    rows
}

/// Operation by operation on the opened GPU.
pub fn operations_table(app: &App) -> Table {
    let shown = operation_rows(app);
    let origin = "measured, ms";
    let columns = vec![
        Column::words("operation", 14, 0).sorts(2),
        Column::number("count", 4),
        Column::number(origin, 2).sorts(1),
        Column::number("here, ms", 0).sorts(0),
        Column::number("low–high, ms", 1),
        Column::number("speed-up", 3),
        Column::words("how", 14, 1),
        Column::words("phase", 8, 5),
    ];
    let rows = shown
        .iter()
        .map(|operation| {
            let count = f64::from(operation.count);
            let millis = |time: Micros| format!("{:.3}", (time * count).as_millis());
            let time = operation.time.as_ref();
            let speed_up = operation
                .origin_time
                .zip(time)
                .filter(|(origin, here)| origin.get() > 0.0 && here.mid.get() > 0.0)
                .map(|(origin, here)| format!("{}×", format::number(origin / here.mid)));
            vec![
                Cell::text(op::name::short(&clean(&operation.name, 200)).to_owned()),
                Cell::of(Role::Muted, operation.count.to_string()),
                Cell::of(Role::Muted, operation.origin_time.map_or_else(|| "–".to_owned(), millis)),
                Cell::text(time.map_or_else(|| "left out".to_owned(), |time| millis(time.mid))),
                Cell::of(
                    Role::Muted,
                    time.map_or_else(String::new, |time| format!("{}–{}", millis(time.low), millis(time.high))),
                ),
                Cell::text(speed_up.unwrap_or_default()),
                Cell::of(Role::Muted, time.map_or("unknown", |time| time.method.name())),
                Cell::of(phase_role(Some(operation.phase)), phase_word(operation.phase)),
            ]
        })
        .collect();
    let list = &app.predict.operations;
    Table {
        columns,
        rows,
        selected: list.selected,
        sorted: Some((list.sort, (list.sort != 2) != list.reversed)),
        empty: if list.filter.is_empty() {
            "This method does not predict single operations.".to_owned()
        } else {
            "No operation passes the filter; Esc clears it.".to_owned()
        },
    }
}

/// Why the selected operation of the opened GPU has its time.
pub fn why(app: &App) -> Option<String> {
    operation_rows(app).get(app.predict.operations.selected).map(|operation| clean(&operation.why, 600))
}

/// How many rows are predicted, derived or measured, for the line above the table.
pub fn summary(app: &App) -> String {
    if app.predict.rows.is_empty() {
        return String::new();
    }
    let shown = rows(app);
    let of = |row: &&&Row| match row.step.method {
        Method::Measured => "measured",
        Method::Derived => "derived",
        _ => "predicted",
    };
    let count = |kind: &'static str| (kind, shown.iter().filter(|row| of(row) == kind).count());
    let words = ["predicted", "derived", "measured"].map(count).into_iter().filter(|(_, count)| *count > 0);
    let words: Vec<String> = words.map(|(name, count)| format!("{count} {name}")).collect();
    format!("{} of {} GPUs · {}", shown.len(), app.predict.rows.len(), words.join(", "))
}
