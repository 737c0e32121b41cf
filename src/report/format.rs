//! Quantities as people read them, always with their unit.

use crate::plan::Range;
use crate::units::{Bytes, GIB, Hours, Micros, Usd, UsdPerHour};

/// A time with three significant digits: `841 ms`, `12.3 µs`, `2.35 s`.
pub fn time(time: Micros) -> String {
    let us = time.get();
    let (value, unit) = if us < 1e3 {
        (us, "µs")
    } else if us < 1e6 {
        (us / 1e3, "ms")
    } else {
        (us / 1e6, "s")
    };
    format!("{} {unit}", significant(value))
}

/// Three significant digits without an exponent: `0.0123`, `1.23`, `12.3`, `123`, `1234`.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.09995 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// `1.2 h`, `3.4 d` from three days on, `12 min` under an hour.
pub fn hours(hours: Hours) -> String {
    let h = hours.get();
    if h < 1.0 {
        format!("{} min", significant(h * 60.0))
    } else if h < 72.0 {
        format!("{} h", significant(h))
    } else {
        format!("{} d", significant(h / 24.0))
    }
}

/// `$12.34`, `$1,234` from a thousand on, `$0.0123` under ten cents.
pub fn usd(amount: Usd) -> String {
    let value = amount.get();
    if value >= 999.5 {
        format!("${}", thousands(value.round()))
    } else if value >= 0.1 || value == 0.0 {
        format!("${value:.2}")
    } else {
        format!("${value:.4}")
    }
}

/// `$1.23/h`.
pub fn price(price: UsdPerHour) -> String {
    let value = price.get();
    if value >= 0.1 { format!("${value:.2}/h") } else { format!("${value:.3}/h") }
}

/// `15.9 GB` (of 2³⁰ bytes, as GPU memory is sold).
pub fn memory(bytes: Bytes) -> String {
    format!("{} GB", significant(bytes.get() / GIB))
}

/// `1,281,167`.
pub fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `mid (low–high)` by `show`, the unit of `mid` standing for all three where it is shared.
pub fn range<T: Copy>(range: &Range<T>, show: impl Fn(T) -> String) -> String {
    let (low, mid, high) = (show(range.low), show(range.mid), show(range.high));
    if low == mid && mid == high {
        return mid;
    }
    let unit = mid.rsplit_once(' ').map(|(_, unit)| unit);
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((low, low_unit)), Some((high, high_unit))) if Some(low_unit) == unit && low_unit == high_unit => {
            format!("{mid} ({low}–{high})")
        }
        _ => format!("{mid} ({low}–{high})"),
    }
}

/// A share as `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_carry_units_and_three_digits() {
        for (us, text) in [
            (0.0, "0 µs"),
            (1.234, "1.23 µs"),
            (999.0, "999 µs"),
            (12_345.0, "12.3 ms"),
            (841_123.6, "841 ms"),
            (2_345_000.0, "2.35 s"),
        ] {
            assert_eq!(time(Micros::new(us).unwrap()), text);
        }
        for (h, text) in [(0.2, "12.0 min"), (1.5, "1.50 h"), (71.0, "71.0 h"), (240.0, "10.0 d")] {
            assert_eq!(hours(Hours::new(h).unwrap()), text);
        }
        for (d, text) in [(0.0, "$0.00"), (0.0123, "$0.0123"), (12.345, "$12.35"), (1_234_567.0, "$1,234,567")] {
            assert_eq!(usd(Usd::new(d).unwrap()), text);
        }
    }

    #[test]
    fn a_range_repeats_no_unit() {
        let shown = |low, mid, high| range(&Range { low, mid, high }, |h| hours(Hours::new(h).unwrap()));
        assert_eq!(shown(1.0, 2.0, 3.0), "2.00 h (1.00–3.00)");
        assert_eq!(shown(2.0, 2.0, 2.0), "2.00 h");
        assert_eq!(shown(0.5, 2.0, 3.0), "2.00 h (30.0 min–3.00 h)");
    }
}
