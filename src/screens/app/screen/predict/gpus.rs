//! The table of GPUs.

use super::{Row, rows, speed_up, state_line};
use crate::app::App;
use habitat_base::units::Micros;
use habitat_prediction::Fits;
use habitat_reports::format::{self, TimeUnit};
use habitat_reports::table::{Cell, Column, Graphic, Table};
use habitat_reports::theme::Role;

/// One GPU per row.
pub fn table(app: &App) -> Table {
    let shown = rows(app);
    let ends = shown.iter().filter(|row| row.step.range.low.get() > 0.0);
    let longest = ends.clone().map(|row| row.step.range.high.get()).fold(0.0, f64::max);
    let shortest = ends.map(|row| row.step.range.low.get()).fold(f64::INFINITY, f64::min);
    let scale = Scale::of(&app.predict.rows);
    // In another precision, its speed-up is next to the step.
    let recorded =
        app.setup.profile.workload.precision.filter(|_| shown.iter().any(|row| speed_up(app, row).is_some()));
    let mut columns = vec![
        Column::words("GPU", 21, 0).sorts(3),
        Column::figures(format!("step, {}", scale.unit.symbol()), 0).sorts(0),
        Column::figures(format!("low–high, {}", scale.unit.symbol()), 1).sorts(5),
        Column::graphic("log scale", 9, 6),
        Column::figures("samples/s", 5),
        Column::figures("samples/$", 2).sorts(1),
        Column::figures("$/GPU-h", 3).sorts(4),
        Column::figures("memory fits", 1).sorts(2),
        Column::words("method", 8, 4),
    ];
    if let Some(recorded) = recorded {
        columns.insert(2, Column::figures(format!("× {recorded}"), 0).sorts(6));
    }
    let marked = app.predict.marked.as_ref();
    let cells = |row: &&Row| {
        let mut cells = cells(row, scale, shortest, longest);
        if recorded.is_some() {
            let times = speed_up(app, row).map_or_else(|| "–".to_owned(), |times| format!("{times:.2}"));
            cells.insert(2, Cell::text(times));
        }
        if marked == Some(&row.slug) {
            cells[0].text.insert_str(0, "* ");
        }
        cells
    };
    let rows = shown.iter().map(cells).collect();
    Table {
        columns,
        rows,
        selected: app.predict.list.selected,
        sorted: Some((app.predict.list.sort, [1, 2, 6].contains(&app.predict.list.sort) != app.predict.list.reversed)),
        empty: if app.predict.rows.is_empty() {
            state_line(app).unwrap_or_else(|| "No prediction yet; press r to run it.".to_owned())
        } else {
            "No GPU matches the filter; press Esc to clear it.".to_owned()
        },
        ..Table::default()
    }
}

/// Unit and decimals of a column of times: the shortest time has two or three digits.
#[derive(Debug, Clone, Copy)]
struct Scale {
    unit: TimeUnit,
    decimals: usize,
}

impl Scale {
    fn of(rows: &[Row]) -> Self {
        let mids = rows.iter().map(|row| row.step.range.mid.get()).filter(|mid| *mid > 0.0);
        let (shortest, longest) = mids.fold((f64::INFINITY, 0.0), |(low, high), mid| (mid.min(low), mid.max(high)));
        let (unit, decimals) = match shortest {
            us if us < 1e3 && longest < 1e4 => (TimeUnit::Micros, usize::from(us < 100.0)),
            us if us < 1e3 => (TimeUnit::Millis, 2),
            _ => (TimeUnit::Millis, 1),
        };
        Self { unit, decimals }
    }

    fn bare(self, time: Micros) -> String {
        format!("{:.*}", self.decimals, self.unit.value(time))
    }
}

fn cells(row: &Row, scale: Scale, shortest: f64, longest: f64) -> Vec<Cell> {
    let known = row.step.range.mid.get() > 0.0;
    let role = if row.measured { Role::Measured } else { Role::Predicted };
    let mark = if row.doubtful { " ?" } else { "" };
    // Logarithmic: GPUs of a catalog span two orders of magnitude.
    let part = |time: Micros| {
        if longest > shortest { (time.get() / shortest).ln() / (longest / shortest).ln() } else { 0.5 }
    };
    let range = Graphic::Range([row.step.range.low, row.step.range.mid, row.step.range.high].map(part));
    let range_text = if row.step.range.low == row.step.range.high {
        "one value".to_owned()
    } else {
        format::low_high(scale.bare(row.step.range.low), scale.bare(row.step.range.high))
    };
    let value = row.value.as_ref();
    let (fits_role, fits) = match row.fits {
        Fits::Yes => (Role::Muted, "yes"),
        Fits::No => (Role::Error, " no"),
        Fits::Unknown => (Role::Warning, "  ?"),
    };
    if !known {
        let mut cells = vec![Cell::styled(Role::Muted, row.name.clone()), Cell::styled(Role::Muted, "unknown")];
        cells.resize(9, Cell::text(""));
        return cells;
    }
    vec![
        Cell::styled(role, format!("{}{mark}", row.name)),
        Cell::styled(role, scale.bare(row.step.range.mid)),
        Cell::styled(Role::Muted, range_text),
        Cell::draw(role, range),
        Cell::text(row.throughput.as_ref().map_or_else(|| "–".to_owned(), |rate| format::number(rate.mid.get()))),
        // A narrow screen has no column of prices with their marks.
        match value.and_then(|value| Some((value, value.per_usd?))) {
            None => Cell::text("–"),
            Some((value, it)) if value.marks.is_empty() => Cell::text(format::short_count(it.mid)),
            Some((_, it)) => Cell::styled(Role::Warning, format!("?{}", format::short_count(it.mid))),
        },
        match value {
            None => Cell::styled(Role::Muted, if row.on_spot { "spot only" } else { "no offer" }),
            Some(value) if value.marks.is_empty() => Cell::styled(Role::Muted, format!("{:.3} ", value.price.get())),
            Some(value) => Cell::styled(Role::Warning, format!("{:.3}?", value.price.get())),
        },
        Cell::styled(fits_role, format!("{:.0} GB {fits}", row.memory_gib)),
        if row.keeps_precision {
            Cell::styled(Role::Warning, "unchanged")
        } else {
            Cell::styled(if row.measured { Role::Measured } else { Role::Muted }, row.step.method.name())
        },
    ]
}
