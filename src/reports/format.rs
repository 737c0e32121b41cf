//! Quantities as text, always with their unit. All rounding happens here.

use std::fmt::Display;

pub use habitat_base::text::grouped;

use habitat_base::units::{Bytes, GIB, Hours, Micros, Range, Usd, UsdPerHour};

/// About three significant digits: `1,234`, `123`, `12.3`, `1.23`, `0.123`.
pub fn number(value: f64) -> String {
    match value {
        v if v >= 99.95 => grouped(v),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 || v == 0.0 => format!("{v:.2}"),
        v if v >= 0.001 => format!("{v:.3}"),
        v => format!("{v:.1e}"),
    }
}

/// A large count in words: `335 M`, `12.4 k`.
pub fn short_count(value: f64) -> String {
    for (scale, unit) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")] {
        if value >= scale {
            let scale = if unit == "k" { 1e3 } else { scale };
            return format!("{} {unit}", number(value / scale));
        }
    }
    grouped(value)
}

/// Both ends of a range, in the one style for ranges; once if they are shown alike.
pub fn low_high(low: impl Display, high: impl Display) -> String {
    let [low, high] = [low.to_string(), high.to_string()];
    if low.trim_start_matches('$') == high { low } else { format!("{low}–{high}") }
}

/// A range of sizes, with one unit if both ends have the same: `12.5–15.0 GB`.
pub(crate) fn bytes_range(low: Bytes, high: Bytes) -> String {
    let (low, high) = (low.to_string(), high.to_string());
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((value, unit)), Some((_, other))) if unit == other => low_high(value, high),
        _ => low_high(low, high),
    }
}

/// A range of large counts with one unit; `from 12 k` if the upper end is unknown.
pub fn short_range(low: f64, high: Option<f64>) -> String {
    let Some(high) = high else { return format!("from {}", short_count(low)) };
    let text = short_count(high);
    let low = match text.split_once(' ').map(|(_, unit)| unit) {
        Some("T") => number(low / 1e12),
        Some("G") => number(low / 1e9),
        Some("M") => number(low / 1e6),
        Some(_) => number(low / 1e3),
        None => grouped(low),
    };
    low_high(low, text)
}

/// Unit of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Seconds.
    Seconds,
}

impl TimeUnit {
    /// The unit in which `time` has one to three digits before the point.
    fn for_time(time: Micros) -> Self {
        match time.get() {
            t if t < 1e3 => Self::Micros,
            t if t < 1e6 => Self::Millis,
            _ => Self::Seconds,
        }
    }

    /// Symbol of the unit.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::Seconds => "s",
        }
    }

    /// The number in this unit.
    pub fn value(self, time: Micros) -> f64 {
        match self {
            Self::Micros => time.get(),
            Self::Millis => time.as_millis(),
            Self::Seconds => time.as_secs(),
        }
    }

    /// Decimals that show the resolution of this unit.
    const fn decimals(self) -> usize {
        match self {
            Self::Micros | Self::Millis => 1,
            Self::Seconds => 2,
        }
    }

    /// The number in this unit without the symbol.
    pub(crate) fn bare(self, time: Micros) -> String {
        let value = self.value(time);
        if value >= 9999.5 { grouped(value) } else { format!("{value:.*}", self.decimals()) }
    }
}

/// A time with its unit.
pub fn time(time: Micros) -> String {
    let unit = TimeUnit::for_time(time);
    format!("{} {}", unit.bare(time), unit.symbol())
}

/// A range of times with one unit, or with two if the lower end would have at most one digit in the unit of the upper
/// one and round badly.
pub fn time_range(low: Micros, high: Micros) -> String {
    let unit = TimeUnit::for_time(high);
    let coarse = 5.0 * 0.1_f64.powi(unit.decimals() as i32);
    if low.get() > 0.0 && unit.value(low) < coarse && TimeUnit::for_time(low) != unit {
        return format!("{} – {}", time(low), time(high));
    }
    format!("{} {}", low_high(unit.bare(low), unit.bare(high)), unit.symbol())
}

/// A duration: minutes below an hour, days from the third day on.
pub fn hours(hours: Hours) -> String {
    let (unit, scale) = unit_of_hours(hours);
    format!("{} {unit}", bare_hours(hours.get() * scale, unit))
}

/// Unit of a duration, and the number of such units per hour.
fn unit_of_hours(hours: Hours) -> (&'static str, f64) {
    match hours.get() {
        h if h > 0.0 && h * 60.0 < 0.995 => ("s", 3600.0),
        h if h < 0.995 => ("min", 60.0),
        h if h < 72.0 => ("h", 1.0),
        _ => ("days", 1.0 / 24.0),
    }
}

fn bare_hours(value: f64, unit: &str) -> String {
    match value {
        v if v >= 99.95 => grouped(v),
        v if matches!(unit, "s" | "min") && v >= 9.95 => format!("{v:.0}"),
        v if matches!(unit, "s" | "min") => format!("{v:.1}"),
        v => {
            let text = format!("{v:.1}");
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        }
    }
}

/// A range of durations with one unit.
pub fn hours_range(range: &Range<Hours>) -> String {
    let (unit, scale) = unit_of_hours(range.high);
    let [low, high] = [range.low, range.high].map(|end| bare_hours(end.get() * scale, unit));
    format!("{} {unit}", low_high(low, high))
}

/// Expected hours in the unit of their range: both may be on one screen.
///
/// ```
/// use habitat_base::units::{Hours, Range};
/// let range = Range { low: 60.0, mid: 70.0, high: 80.0 }.map(Hours::known);
/// assert_eq!(habitat_reports::format::hours_mid(&range), "2.9 days");
/// ```
pub fn hours_mid(range: &Range<Hours>) -> String {
    let (unit, scale) = unit_of_hours(range.high);
    let mid = bare_hours(range.mid.get() * scale, unit);
    let unit = if unit == "days" && mid == "1" { "day" } else { unit };
    format!("{mid} {unit}")
}

/// Hours with their range unless it is empty, in one unit: `12.3 h (10.1–14.5 h)`.
pub fn hours_with_range(range: &Range<Hours>) -> String {
    let mid = hours_mid(range);
    if range.low == range.high { mid } else { format!("{mid} ({})", hours_range(range)) }
}

/// Dollars: cents below $100, fractions of a cent below $1.
pub fn usd(money: Usd) -> String {
    dollars(money.get())
}

/// A range of dollars.
pub fn usd_range(range: &Range<Usd>) -> String {
    low_high(usd(range.low), usd(range.high).trim_start_matches('$'))
}

/// Dollars with their range unless it is empty: `$12.30 ($10.10–14.50)`.
pub fn usd_with_range(range: &Range<Usd>) -> String {
    if range.low == range.high { usd(range.mid) } else { format!("{} ({})", usd(range.mid), usd_range(range)) }
}

/// A price per hour.
pub fn price(price: UsdPerHour) -> String {
    format!("${:.*}/h", if price.get() < 10.0 { 3 } else { 2 }, price.get())
}

fn dollars(value: f64) -> String {
    match value {
        v if v >= 99.995 => format!("${}", grouped(v)),
        v if v >= 0.995 || v == 0.0 => format!("${v:.2}"),
        v if v >= 0.0995 => format!("${v:.3}"),
        v => format!("${v:.4}"),
    }
}

/// A memory size in the unit used for GPU memory.
pub fn memory(bytes: Bytes) -> String {
    let gib = bytes.get() / GIB;
    if gib >= 10_000.0 {
        return format!("{} TB", grouped(gib / 1024.0));
    }
    if gib >= 9.95 && (gib - gib.round()).abs() < 0.05 { format!("{gib:.0} GB") } else { format!("{gib:.1} GB") }
}

/// A share as a percentage.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A tensor shape.
pub fn shape(shape: &[u64]) -> String {
    let extents: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", extents.join("×"))
}

/// Shapes of an operation's tensors, at most six.
pub fn shapes(shapes: &[Vec<u64>]) -> String {
    let mut parts: Vec<String> = shapes.iter().take(6).map(|one| shape(one)).collect();
    if shapes.len() > 6 {
        parts.push("…".to_owned());
    }
    parts.join(" ")
}

/// A relative change, with its sign.
pub fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// A speed relative to another: `1.19 times as fast`, `6.8 times as slow`.
pub fn speed(times: f64) -> String {
    match times {
        slower if slower > 0.0 && slower < 0.995 => format!("{} times as slow", number(1.0 / slower)),
        faster => format!("{} times as fast", number(faster)),
    }
}

/// The same from the slowest to the fastest: `1.04 to 1.19 times as fast`.
pub(crate) fn speed_range(low: f64, high: f64) -> String {
    let [low, high] = [low, high].map(speed);
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((_, a)), Some((_, b))) if a == b => {
            format!("{} to {high}", low.trim_end_matches(&format!(" times as {a}")))
        }
        _ => format!("{low} to {high}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_carry_their_unit() {
        let micros = |value| Micros::new(value).unwrap();
        assert_eq!(time(micros(12.34)), "12.3 µs");
        assert_eq!(time(micros(841_123.6)), "841.1 ms");
        assert_eq!(time(micros(2_345_678.0)), "2.35 s");
        assert_eq!(time_range(micros(830_000.0), micros(1_010_000.0)), "0.83–1.01 s");
        assert_eq!(time_range(micros(2_140.0), micros(3_180_000.0)), "2.1 ms – 3.18 s");
        assert_eq!(time_range(micros(0.0), micros(3_180_000.0)), "0.00–3.18 s");
        assert_eq!(time_range(micros(33.0), micros(1_000.0)), "33.0 µs – 1.0 ms");
        assert_eq!(time_range(micros(510.0), micros(1_000.0)), "0.5–1.0 ms");
        assert_eq!(hours(Hours::new(0.5).unwrap()), "30 min");
        assert_eq!(hours(Hours::new(12.3 / 3600.0).unwrap()), "12 s");
        assert_eq!(hours(Hours::new(1.0 / 60.0).unwrap()), "1.0 min");
        assert_eq!(hours(Hours::ZERO), "0.0 min");
        assert_eq!(hours(Hours::new(48.0).unwrap()), "48 h");
        assert_eq!(hours(Hours::new(71.9).unwrap()), "71.9 h");
        assert_eq!(hours(Hours::new(544.4).unwrap()), "22.7 days");
        assert_eq!(hours(Hours::new(25.0 / 60.0).unwrap()), "25 min");
        assert_eq!(hours(Hours::new(12_000.0).unwrap()), "500 days");
        assert_eq!(usd(Usd::new(12.5).unwrap()), "$12.50");
        assert_eq!(usd(Usd::new(1_234_567.0).unwrap()), "$1,234,567");
        assert_eq!(memory(Bytes::new(80.0 * GIB).unwrap()), "80 GB");
        assert_eq!(memory(Bytes::new(785_827.6 * GIB).unwrap()), "767 TB");
        assert_eq!(short_count(335_000_000.0), "335 M");
        assert_eq!(short_count(1234.0), "1,234");
        assert_eq!(short_range(7.56e6, Some(8.97e6)), "7.56–8.97 M");
        assert_eq!(usd(Usd::new(0.0203).unwrap()), "$0.0203");
        assert_eq!(shape(&[4096, 1024]), "[4096×1024]");
        assert_eq!(number(0.0), "0.00");
    }

    #[test]
    fn a_lower_speed_is_slow() {
        assert_eq!(
            [1.19, 0.148, 1.0, 0.999].map(speed),
            ["1.19 times as fast", "6.76 times as slow", "1.00 times as fast", "0.999 times as fast"]
        );
        assert_eq!(speed_range(1.04, 1.19), "1.04 to 1.19 times as fast");
        assert_eq!(speed_range(0.1, 0.5), "10.0 to 2.00 times as slow");
        assert_eq!(speed_range(0.5, 2.0), "2.00 times as slow to 2.00 times as fast");
    }
}
