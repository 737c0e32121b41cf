//! Latest finish of a plan: a duration from its start (`24h`), or a date (`Friday 18:00`, `2026-12-04`,
//! `2026-12-04T18:00`).

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::values;
use habitat_base::units::Hours;

/// A deadline.
#[derive(Debug, Clone, PartialEq)]
pub enum Deadline {
    /// Hours from the start of the work.
    Within(Hours),
    /// A date and time.
    By(Moment),
}

/// A date and time, with the typed text.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    typed: String,
    when: When,
}

/// Parsed date and time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum When {
    /// With an offset from UTC.
    Instant(Timestamp),
    /// A date and a time of day in the local time zone; without a time of day, the end of the day.
    Date(Date, Option<Time>),
    /// The next such day of the year: month and day.
    Month(i8, i8, Option<Time>),
    /// The next such weekday; today counts only if the flag is not set.
    Weekday(Weekday, Option<Time>, bool),
    /// A number of days from today.
    Days(i8, Option<Time>),
}

/// Words to ignore: `by Friday at 18:00`.
const FILLERS: [&str; 4] = ["by", "at", "on", "this"];
const WEEKDAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Parses a deadline: a duration as for [`values::hours`], or a date. A date without a time of day means its end, as in
/// "by Friday".
///
/// # Errors
/// The text, with examples of valid input.
pub fn deadline(text: &str) -> Result<Deadline, String> {
    let problem = match values::hours(text) {
        Ok(hours) => return Ok(Deadline::Within(hours)),
        Err(problem) => problem,
    };
    let words: String = text.trim().to_lowercase().replace(',', " ");
    if let Some(when) = when(&words) {
        return Ok(Deadline::By(Moment { typed: text.trim().to_owned(), when }));
    }
    if text.trim().starts_with('-') {
        return Err(problem);
    }
    let examples = "expected a duration (24h, \"1d 12h\") or a date (\"Friday 18:00\", 2026-12-04, 2026-12-04T18:00)";
    if clock(&words).is_some() {
        return Err(format!(
            "{text:?} is ambiguous: a duration or a time of day; write \"today {}\" or a duration such as 24h",
            words.trim()
        ));
    }
    Err(format!("{:?} is not a valid deadline; {examples}", habitat_base::text::clean(text, 60)))
}

impl Deadline {
    /// Hours from `now`, in its time zone.
    ///
    /// # Errors
    /// The typed text and its meaning, if it is in the past or not a valid date.
    pub fn hours(&self, now: &Zoned) -> Result<Hours, String> {
        let moment = match self {
            Self::Within(hours) => return Ok(*hours),
            Self::By(moment) => moment,
        };
        let time = moment.zoned(now)?;
        let seconds = time.timestamp().duration_since(now.timestamp()).as_secs_f64();
        if seconds <= 0.0 {
            return Err(format!(
                "{:?} means {}, which is in the past: now is {}",
                habitat_base::text::clean(&moment.typed, 60),
                words(&time),
                words(now)
            ));
        }
        Hours::new(seconds / 3600.0).map_err(|error| error.to_string())
    }

    /// Meaning of a date, with weekday, date, time and time zone; `None` for a duration.
    pub fn meaning(&self, now: &Zoned) -> Option<String> {
        match self {
            Self::Within(_) => None,
            Self::By(moment) => moment.zoned(now).ok().map(|time| words(&time)),
        }
    }

    /// Whether a weekday means today, since it has not ended.
    pub fn is_weekday_of_today(&self, now: &Zoned) -> bool {
        let Self::By(Moment { when: When::Weekday(weekday, ..), .. }) = self else { return false };
        *weekday == now.weekday() && self.hours(now).is_ok_and(|hours| hours.get() <= 24.0)
    }
}

impl Moment {
    fn zoned(&self, now: &Zoned) -> Result<Zoned, String> {
        let today = now.date();
        let (date, time) = match self.when {
            When::Instant(instant) => return Ok(instant.to_zoned(now.time_zone().clone())),
            When::Date(date, time) => (Ok(date), time),
            When::Days(days, time) => (today.checked_add(i64::from(days).days()), time),
            When::Month(month, day, time) => {
                let of = |year: i16| Date::new(year, month, day);
                let is_over = of(today.year()).is_ok_and(|date| date < today);
                (of(if is_over { today.year().saturating_add(1) } else { today.year() }), time)
            }
            When::Weekday(weekday, time, is_next) => {
                let days = i64::from(today.weekday().until(weekday));
                // Today counts until the time of day has passed. Of the meanings of "next", the earliest is the safe one.
                let is_over = days == 0 && (is_next || time.is_some_and(|time| time <= now.time()));
                (today.checked_add((if is_over { 7 } else { days }).days()), time)
            }
        };
        let point = date.and_then(|date| match time {
            Some(time) => Ok(DateTime::from_parts(date, time)),
            None => Ok(DateTime::from_parts(date.checked_add(1.day())?, Time::midnight())),
        });
        let zoned = point.and_then(|point| point.to_zoned(now.time_zone().clone()));
        zoned.map_err(|error| {
            format!("{:?} is not a valid deadline: {error}", habitat_base::text::clean(&self.typed, 60))
        })
    }
}

/// Text such as `Friday 4 December 2026, 18:00 CET`; midnight is the end of the day before.
fn words(time: &Zoned) -> String {
    let zone = if time.time_zone() == &TimeZone::UTC || time.time_zone().is_unknown() {
        "UTC".to_owned()
    } else {
        time.strftime("%Z").to_string()
    };
    if time.time() == Time::midnight()
        && let Ok(before) = time.date().yesterday()
    {
        return format!("the end of {} ({zone})", before.strftime("%A %-d %B %Y"));
    }
    format!("{} {zone}", time.strftime("%A %-d %B %Y, %H:%M"))
}

fn when(text: &str) -> Option<When> {
    if let Ok(instant) = text.to_uppercase().trim().parse::<Timestamp>() {
        return Some(When::Instant(instant));
    }
    if let Ok(zoned) = text.trim().parse::<Zoned>() {
        return Some(When::Instant(zoned.timestamp()));
    }
    if let Some((date, time)) = text.trim().split_once('t')
        && let (Some(date), Some(time)) = (iso_date(date), clock(time))
    {
        return Some(When::Date(date, Some(time)));
    }
    let words: Vec<&str> = text.split_whitespace().filter(|word| !FILLERS.contains(word)).collect();
    // The time of day is at the end or at the beginning; "6 pm" is two words.
    let split = |at: usize| (words.get(..at).unwrap_or_default(), words.get(at..).unwrap_or_default());
    for count in [1, 2] {
        let Some(at) = words.len().checked_sub(count) else { continue };
        for (day, time) in [split(at), (split(count).1, split(count).0)] {
            if let (Some(when), Some(time)) = (day_of(day, None), clock(&time.concat())) {
                return day_of(day, Some(time)).or(Some(when));
            }
        }
    }
    day_of(&words, None)
}

/// Parses a day: `friday`, `tomorrow`, `2026-12-04`, `4 dec 2026`, `december 4 2026`.
fn day_of(words: &[&str], time: Option<Time>) -> Option<When> {
    match *words {
        ["today"] => Some(When::Days(0, time)),
        ["tonight"] if time.is_none() => Some(When::Days(0, None)),
        ["tomorrow"] => Some(When::Days(1, time)),
        ["next", "week"] => Some(When::Days(7, time)),
        ["next", word] => weekday(word).map(|day| When::Weekday(day, time, true)),
        [word] => weekday(word)
            .map(|day| When::Weekday(day, time, false))
            .or_else(|| iso_date(word).map(|date| When::Date(date, time))),
        [a, b] => month_and_day(a, b).map(|(month, day)| When::Month(month, day, time)),
        [a, b, year] => {
            let (month, day) = month_and_day(a, b)?;
            Some(When::Date(Date::new(year.parse().ok()?, month, day).ok()?, time))
        }
        _ => None,
    }
}

fn weekday(word: &str) -> Option<Weekday> {
    named(word, WEEKDAYS.iter().map(|(name, _)| *name)).map(|at| WEEKDAYS[at].1)
}

/// Parses a month and a day in either order, `4th dec` or `december 4`.
fn month_and_day(a: &str, b: &str) -> Option<(i8, i8)> {
    let month = |word| named(word, MONTHS.into_iter()).and_then(|at| i8::try_from(at + 1).ok());
    let day = |word: &str| word.trim_end_matches(['.', 's', 't', 'n', 'd', 'r', 'h']).parse::<i8>().ok();
    let (month, day) = month(b).zip(day(a)).or_else(|| month(a).zip(day(b)))?;
    // A leap year contains all days.
    Date::new(2024, month, day).is_ok().then_some((month, day))
}

/// Index of a name, abbreviated to three letters or more.
fn named<'a>(word: &str, mut names: impl Iterator<Item = &'a str>) -> Option<usize> {
    let word = word.trim_end_matches('.');
    names.position(|name| word.len() >= 3 && name.starts_with(word))
}

/// Parses `2026-12-04`, with all digits.
fn iso_date(text: &str) -> Option<Date> {
    (text.len() == 10).then(|| text.parse().ok()).flatten()
}

/// Parses `18:00`, `18:00:30`, `6pm`, `6:30pm`, `noon`; rejects `midnight`, which is ambiguous.
fn clock(text: &str) -> Option<Time> {
    let text = text.trim();
    if text == "noon" {
        return Some(Time::constant(12, 0, 0, 0));
    }
    let (digits, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(digits), _) => (digits, Some(0)),
        (_, Some(digits)) => (digits, Some(12)),
        _ => (text, None),
    };
    let mut parts = digits.trim().split(':');
    let hour: i8 = parts.next()?.parse().ok()?;
    let mut part = || parts.next().map(|part| if part.len() == 2 { part.parse::<i8>().ok() } else { None });
    let (minute, second) = (part(), part());
    let hour = if let Some(half) = half {
        (1..=12).contains(&hour).then_some(hour % 12 + half)?
    } else {
        // A bare number is ambiguous.
        minute?;
        hour
    };
    if parts.next().is_some() {
        return None;
    }
    Time::new(hour, minute.unwrap_or(Some(0))?, second.unwrap_or(Some(0))?, 0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Friday 27 November 2026, 19:00, one hour east of Greenwich.
    fn now() -> Zoned {
        "2026-11-27T19:00:00+01:00[+01:00]".parse().unwrap()
    }

    fn hours(text: &str) -> f64 {
        deadline(text).unwrap().hours(&now()).unwrap_or_else(|why| panic!("{text}: {why}")).get()
    }

    #[test]
    fn a_span_is_a_span() {
        assert_eq!((hours("24h"), hours("1d 12h"), hours("48")), (24.0, 36.0, 48.0));
        assert_eq!(deadline("24h").unwrap().meaning(&now()), None);
    }

    #[test]
    fn points_of_time_count_from_now() {
        let day = 24.0;
        for (text, expected) in [
            ("Friday 18:00", 7.0 * day - 1.0),
            ("friday 20:00", 1.0),
            ("Fri 8pm", 1.0),
            ("8 pm Friday", 1.0),
            ("by Friday at 8:30 PM", 1.5),
            ("Friday", 5.0),
            ("next Friday", 7.0 * day + 5.0),
            ("next Friday 18:00", 7.0 * day - 1.0),
            ("by next Sat", day + 5.0),
            ("next week", 7.0 * day + 5.0),
            ("Sat", day + 5.0),
            ("Thursday, 19:00", 6.0 * day),
            ("today 23:00", 4.0),
            ("tonight", 5.0),
            ("tomorrow", day + 5.0),
            ("tomorrow noon", 17.0),
            ("2026-12-04", 7.0 * day + 5.0),
            ("2026-12-04T18:00", 7.0 * day - 1.0),
            ("2026-12-04t18:00:30", 7.0 * day - 1.0 + 30.0 / 3600.0),
            ("2026-12-04 18:00", 7.0 * day - 1.0),
            ("2026-12-04T18:00Z", 7.0 * day),
            ("2026-12-04T18:00:00+01:00", 7.0 * day - 1.0),
            ("4 Dec 2026", 7.0 * day + 5.0),
            ("4 Dec", 7.0 * day + 5.0),
            ("Dec 4 6pm", 7.0 * day - 1.0),
            ("27 nov 20:00", 1.0),
            ("26 nov", 364.0 * day + 5.0),
            ("2026-12-04T18:00[+01:00]", 7.0 * day - 1.0),
            ("December 4th, 2026 18:00", 7.0 * day - 1.0),
        ] {
            assert!((hours(text) - expected).abs() < 1e-9, "{text}: {}", hours(text));
        }
    }

    #[test]
    fn what_is_past_is_refused_with_its_date() {
        for text in ["2026-11-26", "2026-11-27T18:00", "today 19:00", "2025-12-04 18:00", "27 Nov 2026 7pm"] {
            let why = deadline(text).unwrap().hours(&now()).unwrap_err();
            assert!(why.contains("past") && why.contains("now is Friday 27 November 2026, 19:00"), "{why}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "",
            "soon",
            "-3h",
            "2026-13-04",
            "2026-02-30",
            "18:00",
            "Fr",
            "next",
            "next December",
            "Friday 25:00",
            "Friday 18",
            "2026-12-4",
            "December",
            "12/04/2026",
            "Friday 13pm",
            "2026-12-04T",
            "T18:00",
            "日曜日",
        ] {
            assert!(deadline(text).is_err(), "{text}: {:?}", deadline(text));
        }
        assert!(deadline("18:00").unwrap_err().contains("\"today 18:00\""));
    }

    #[test]
    fn a_date_is_named_in_full() {
        let meaning = |text: &str| deadline(text).unwrap().meaning(&now()).unwrap();
        assert_eq!(meaning("Friday 18:00"), "Friday 4 December 2026, 18:00 +01");
        assert_eq!(meaning("2026-12-04"), "the end of Friday 4 December 2026 (+01)");
    }
}
