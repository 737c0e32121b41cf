//! Parsers of typed values: `24h`, `$300`, `1.2M`, `120x40`.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Unit};

use habitat_base::units::{Bytes, Hours, KilogramsCo2e, Samples, Usd, UsdPerHour, most};
use habitat_prediction::scale::LayoutFactors;

/// Parses a duration: `24h`, `1d 12h`, `90m`, `2w`; a bare number means hours.
///
/// # Errors
/// The text, with examples of valid input.
pub fn hours(text: &str) -> Result<Hours, String> {
    let trimmed = text.trim();
    let value = if let Ok(number) = trimmed.parse::<f64>() {
        number
    } else {
        nine_decimals(&trimmed.to_lowercase())
            .parse::<Span>()
            .ok()
            .and_then(|span| span.total((Unit::Second, SpanRelativeTo::days_are_24_hours())).ok())
            .ok_or_else(|| {
                format!("{text:?} is not a valid time; expected 24h, 90m, \"1d 12h\" or 2w (a bare number means hours)")
            })?
            / 3600.0
    };
    Hours::new(value).map_err(|error| error.to_string())
}

/// Limits each number to nine decimals, the most that a span accepts.
fn nine_decimals(text: &str) -> String {
    let mut decimals = None;
    text.chars()
        .filter(|c| {
            decimals = match (decimals, c) {
                (_, '.') => Some(0),
                (Some(count), c) if c.is_ascii_digit() => Some(count + 1),
                _ => None,
            };
            decimals.is_none_or(|count| count <= 9)
        })
        .collect()
}

/// Parses a waiting time: `30s`, `10m`, `2h`. Rejects a bare number: `--deadline 48` means hours, but in other programs
/// `--timeout 30` means seconds.
///
/// # Errors
/// The text, with its possible meanings.
pub fn wait(text: &str) -> Result<Duration, String> {
    let bare = text.trim();
    if bare.parse::<f64>().is_ok() {
        return Err(format!("{bare} lacks a unit: write {bare}s, {bare}m or {bare}h"));
    }
    // Longer than any run, but short enough for every clock.
    hours(text).map(|time| Duration::from_secs_f64((time.get() * 3600.0).min(1e9)))
}

/// Parses a percentage such as `5%` as a fraction. Rejects a bare number, as both 5 and 0.05 may mean 5%.
///
/// # Errors
/// The text, with examples of valid input.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').map(str::trim_end).and_then(|number| number.parse::<f64>().ok());
    match number.filter(|number| *number >= 0.0 && *number <= most::PERCENT) {
        Some(number) => Ok(number / 100.0),
        None => Err(format!(
            "{:?} is not a percentage; expected a number with %, such as 5% or 0.5% (0 or more, at most {:e}%)",
            habitat_base::text::clean(text, 60),
            most::PERCENT
        )),
    }
}

/// Parses a timeout for a server: `30s`, `2m`; a bare number means seconds.
///
/// # Errors
/// The text, with examples of valid input.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let bare = text.trim();
    let time = if bare.parse::<f64>().is_ok() { wait(&format!("{bare}s"))? } else { wait(bare)? };
    if time.is_zero() { Err(format!("{text:?} is not a valid timeout; expected 30 or 2m")) } else { Ok(time) }
}

/// Parses an amount in US dollars: `300`, `$1,000`, `1.5k`, `300 USD`.
///
/// # Errors
/// The text, with examples of valid input.
pub fn usd(text: &str) -> Result<Usd, String> {
    let amount = number(without_currency(text)).ok_or_else(|| {
        let remedy = "expected US dollars, such as 300, $1,000, 1.5k or 300 USD";
        format!("{:?} is not a valid amount of money; {remedy}", habitat_base::text::clean(text, 60))
    })?;
    Usd::new(at_most(text, amount, most::WORK)?).map_err(|error| error.to_string())
}

/// The number in an amount, without a symbol or word for US dollars before or after it.
fn without_currency(text: &str) -> &str {
    const BEFORE: [&str; 4] = ["us$", "usd", "us-$", "$"];
    const BEHIND: [&str; 6] = ["us dollars", "usd", "us$", "dollars", "dollar", "$"];
    let text = text.trim();
    let before = BEFORE.iter().find_map(|sign| Some(&text[start_of(text, sign)?..]));
    let behind = || BEHIND.iter().find_map(|sign| Some(&text[..end_of(text, sign)?]));
    before.or_else(behind).unwrap_or(text).trim()
}

/// Byte position after a word at the start of `text`, ignoring case.
fn start_of(text: &str, beginning: &str) -> Option<usize> {
    text.get(..beginning.len())?.eq_ignore_ascii_case(beginning).then_some(beginning.len())
}

/// Byte position of a word at the end of `text`, ignoring case.
fn end_of(text: &str, ending: &str) -> Option<usize> {
    let at = text.len().checked_sub(ending.len())?;
    text.get(at..)?.eq_ignore_ascii_case(ending).then_some(at)
}

/// Parses emissions in kilograms of CO2e: `40`, `40kg`, `1.5k`.
///
/// # Errors
/// The text, with examples of valid input.
pub fn kilograms(text: &str) -> Result<KilogramsCo2e, String> {
    let amount = number(text.trim().trim_end_matches("kg").trim_end())
        .ok_or_else(|| format!("{text:?} is not a valid mass; expected 40, 40kg or 1.5k"))?;
    KilogramsCo2e::new(at_most(text, amount, most::WORK)?).map_err(|error| error.to_string())
}

/// Parses a price in US dollars per hour: `3`, `$3/h`, `3 USD per hour`.
///
/// # Errors
/// As [`usd`].
pub fn usd_per_hour(text: &str) -> Result<UsdPerHour, String> {
    const AN_HOUR: [&str; 6] = ["/h", "/hr", "/hour", "per hour", "an hour", "per h"];
    let trimmed = text.trim();
    let at = AN_HOUR.iter().find_map(|ending| end_of(trimmed, ending));
    usd(&trimmed[..at.unwrap_or(trimmed.len())])
        .and_then(|amount| UsdPerHour::new(amount.get()).map_err(|error| error.to_string()))
}

/// Parses a price of electricity in US dollars per kWh: `0.2`, `$0.20/kWh`.
///
/// # Errors
/// As [`usd`], and for implausibly high prices.
pub fn usd_per_kwh(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let amount = usd(&trimmed[..end_of(trimmed, "/kwh").unwrap_or(trimmed.len())])?.get();
    at_most(text, amount, most::USD_PER_KWH)
}

/// Parses a count: `300000`, `1,000,000`, `300k`, `1.2M`, `1e9`, `3B`, `1.28 million`.
///
/// # Errors
/// The text, with examples of valid input.
pub fn count(text: &str) -> Result<f64, String> {
    let number = number(text)
        .ok_or_else(|| format!("{text:?} is not a valid count; expected 300000, 300,000, 300k, 1.2M or 1e9"))?;
    at_most(text, number, most::WORK)
}

/// Parses a number of 0 or more, with or without grouped digits, and with a power of a thousand as a letter or word.
fn number(text: &str) -> Option<f64> {
    const POWERS: [(&str, f64); 14] = [
        ("thousand", 1e3),
        ("million", 1e6),
        ("billion", 1e9),
        ("trillion", 1e12),
        ("mio", 1e6),
        ("mln", 1e6),
        ("mn", 1e6),
        ("bn", 1e9),
        ("k", 1e3),
        ("m", 1e6),
        ("b", 1e9),
        ("g", 1e9),
        ("t", 1e12),
        ("", 1.0),
    ];
    let trimmed = text.trim();
    let (digits, factor) =
        POWERS.iter().find_map(|(word, factor)| Some((&trimmed[..end_of(trimmed, word)?], *factor)))?;
    let number: f64 = ungrouped(digits.trim())?.parse().ok()?;
    (number.is_sign_positive() && !number.is_nan()).then_some(number * factor)
}

/// Removes thousands separators: `1_000_000` anywhere, but commas only between groups of three digits, as `1,5` may
/// mean 1.5.
fn ungrouped(digits: &str) -> Option<String> {
    let digits = digits.replace('_', "");
    let end = digits.find(['.', 'e', 'E']).unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let groups: Vec<&str> = groups.collect();
    let is_group = |group: &&str| group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit());
    let is_grouped = groups.is_empty() || (1..=3).contains(&first.len());
    (is_grouped && groups.iter().all(is_group) && !rest.contains(','))
        .then(|| format!("{first}{}{rest}", groups.concat()))
}

fn at_most(text: &str, number: f64, most: f64) -> Result<f64, String> {
    if number <= most { Ok(number) } else { Err(format!("{text:?} is too large; the maximum is {most:e}")) }
}

/// Parses a count of samples.
///
/// # Errors
/// As [`count`].
pub fn samples(text: &str) -> Result<Samples, String> {
    Samples::new(count(text)?).map_err(|error| error.to_string())
}

/// Parses samples per step.
///
/// # Errors
/// As [`whole`], and for 0.
pub fn batch_size(text: &str) -> Result<u64, String> {
    // In a list, "1,024" is the two sizes 1 and 024.
    if text.len() > 1 && text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{text:?} begins with 0; commas separate sizes, so write 1024 or 1_024 instead of 1,024"));
    }
    match whole(text)? {
        0 => Err("a step processes at least one sample".to_owned()),
        batch => Ok(batch),
    }
}

/// Parses the line rate of a network above 0, Gbit/s.
///
/// # Errors
/// As [`count`], for 0, and for implausibly high rates.
pub fn network(text: &str) -> Result<f64, String> {
    let rate = number(text).filter(|rate| *rate > 0.0);
    let wrong = || format!("{text:?} is not a valid line rate above 0; expected Gbit/s, such as 100");
    at_most(text, rate.ok_or_else(wrong)?, most::NETWORK_GBIT)
}

/// Parses the factors of `calibrate-scaling`: operations and exchange, `1.05,1.2`.
///
/// # Errors
/// The text, with an example of valid input.
pub fn layout_factors(text: &str) -> Result<LayoutFactors, String> {
    let both = text.split_once(',').and_then(|(compute, exchange)| Some([number(compute)?, number(exchange)?]));
    let factors = both.map(|[compute, exchange]| LayoutFactors { compute, exchange });
    factors.filter(|factors| factors.is_valid()).ok_or_else(|| {
        format!(
            "{text:?} is not a valid pair of factors; expected operations,exchange, each 0.1 to 10, such as 1.05,1.2"
        )
    })
}

/// Parses a whole number.
///
/// # Errors
/// As [`count`], and if it is not whole.
pub fn whole(text: &str) -> Result<u64, String> {
    let number = at_most(text, count(text)?, 9e15)?;
    if number.fract() == 0.0 { Ok(number as u64) } else { Err(format!("{text:?} is not a whole number")) }
}

/// Returns a parser of whole numbers from `least` to `most`, with the syntax of [`count`].
pub fn within<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = whole(text)?;
        let found =
            Some(number).filter(|number| (least..=most).contains(number)).and_then(|number| number.try_into().ok());
        found.ok_or_else(|| match most {
            u64::MAX => format!("{number} is not in {least}.."),
            most => format!("{number} is not in {least}..={most}"),
        })
    }
}

/// Batch sizes per GPU that a plan may choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchSizes {
    /// The recorded one, halved and doubled.
    Auto,
    /// This list.
    Given(Vec<u64>),
}

/// Parses batch sizes per GPU: `auto`, or sizes with commas.
///
/// # Errors
/// The invalid batch size.
pub fn batch_sizes(text: &str) -> Result<BatchSizes, String> {
    if text.trim() == "auto" {
        return Ok(BatchSizes::Auto);
    }
    let count = text.split(',').count();
    if count > most::BATCH_SIZES {
        return Err(format!("{count} sizes, but at most {} can be predicted at once: omit some", most::BATCH_SIZES));
    }
    text.split(',').map(|size| batch_size(size.trim())).collect::<Result<_, _>>().map(BatchSizes::Given)
}

/// Parses a memory size: `24GB`, `512MB` (1 GB = 2³⁰ bytes, as in GPU specifications).
///
/// # Errors
/// The text, with examples of valid input.
pub fn bytes(text: &str) -> Result<Bytes, String> {
    let upper = text.trim().to_ascii_uppercase();
    let (digits, factor) = [("GIB", 30), ("GB", 30), ("G", 30), ("MIB", 20), ("MB", 20), ("M", 20)]
        .iter()
        .find_map(|(unit, power)| Some((upper.strip_suffix(unit)?, 2f64.powi(*power))))
        .ok_or_else(|| format!("{text:?} is not a valid memory size; expected 24GB or 512MB"))?;
    let number: f64 =
        digits.trim().parse().map_err(|_| format!("{text:?} is not a valid memory size; expected 24GB or 512MB"))?;
    Bytes::new(number * factor).map_err(|error| error.to_string())
}

/// Parses columns and rows: `120x40`.
///
/// # Errors
/// The text, with an example.
pub fn size(text: &str) -> Result<(u16, u16), String> {
    text.split_once(['x', 'X', '×'])
        .and_then(|(columns, rows)| Some((columns.trim().parse().ok()?, rows.trim().parse().ok()?)))
        .filter(|&(columns, rows)| (20..=500).contains(&columns) && (5..=200).contains(&rows))
        .ok_or_else(|| {
            format!("{text:?} is not a valid size; expected columns x rows, such as 120x40 (20x5 to 500x200)")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_spans() {
        for (text, expected) in [
            ("24h", 24.0),
            ("24", 24.0),
            ("1.5", 1.5),
            ("90m", 1.5),
            ("1d 12h", 36.0),
            ("1d12h", 36.0),
            ("2w", 336.0),
            ("30 min", 0.5),
            ("0.333333333333h", 1.0 / 3.0),
            ("1d 0.50000000000001h", 24.5),
            ("0", 0.0),
        ] {
            assert!((hours(text).unwrap().get() - expected).abs() < 1e-9, "{text}: {:?}", hours(text));
        }
        for bad in ["", "soon", "-1", "-3h", "nan", "inf", "5 parsecs"] {
            assert!(hours(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_to_wait_has_a_unit() {
        let seconds = |text: &str| wait(text).unwrap().as_secs_f64();
        assert_eq!([seconds("30s"), seconds("10m"), seconds("1h 30m"), seconds("0s")], [30.0, 600.0, 5400.0, 0.0]);
        assert_eq!(seconds("9999999h"), 1e9);
        for bare in ["30", " 1.5 ", "0"] {
            let problem = wait(bare).unwrap_err();
            let number = bare.trim();
            assert!(problem.contains(&format!("{number}s, {number}m or {number}h")), "{problem}");
        }
        assert!(wait("-3s").is_err() && wait("soon").is_err());
    }

    #[test]
    fn money_and_counts() {
        assert_eq!(usd("$1.5k").unwrap().get(), 1500.0);
        assert_eq!(usd_per_hour("$3/h").unwrap().get(), 3.0);
        assert_eq!(count("1.2M").unwrap(), 1_200_000.0);
        assert_eq!(whole("1e9").unwrap(), 1_000_000_000);
        assert_eq!(whole("300_000").unwrap(), 300_000);
        for text in [
            "$1,000",
            "1,000",
            "1_000",
            "1k",
            "1000 USD",
            "usd 1,000.00",
            "US$1000",
            "$ 1000",
            "1000$",
            "1e3",
            "0.001M",
            "1000 dollars",
            "1,000 US dollars",
            "$1K",
        ] {
            assert_eq!(usd(text).unwrap().get(), 1000.0, "{text}");
        }
        for text in ["1,280,000", "1.28M", "1_280_000", "1.28 million", "1.28m", "1,280k", "1280 thousand", "1.28e6"] {
            assert_eq!(count(text).unwrap(), 1_280_000.0, "{text}");
        }
        for text in ["$3/h", "3 USD/hour", "$3.00 per hour", "3/hr", "3$/h", "USD 3 an hour"] {
            assert_eq!(usd_per_hour(text).unwrap().get(), 3.0, "{text}");
        }
        for text in ["0.2", "$0.20/kWh", "0.20 USD/kWh"] {
            assert_eq!(usd_per_kwh(text).unwrap(), 0.2, "{text}");
        }
        for bad in [
            "", "-5", "ten", "nan", "$", "1.5.2", "k", "é", "1,5", "1,00", "1000,000", "1,000,00", ",100", "1.000,5",
            "1,,000", "million", "µ",
        ] {
            assert!(count(bad).is_err(), "{bad}");
        }
        for bad in ["€300", "300 EUR", "$$3", "-$3", "$-3", "3/day", "USD", "1,5", "$300 USD"] {
            assert!(usd(bad).is_err() && usd_per_hour(bad).is_err(), "{bad}");
        }
        assert!(batch_size("024").unwrap_err().contains("1_024") && batch_sizes("1,024").is_err());
        assert_eq!((within(1, 8)("8"), within(1, u64::MAX)("1,024")), (Ok(8_u32), Ok(1024_u64)));
        for bad in ["4", "0", "1.5", "-1"] {
            assert!(within::<u32>(1, 3)(bad).is_err(), "{bad}");
        }
        assert!(within::<u32>(1, u64::MAX)("5e9").is_err());
        assert!(whole("1.5").is_err());
        assert_eq!(bytes("24GB").unwrap().get(), 24.0 * 1_073_741_824.0);
        assert!(bytes("24").is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(size("120x40").unwrap(), (120, 40));
        for bad in ["120", "0x0", "axb", "9999x40"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
