//! When does a schedule fire? Cron expressions in named time zones.
//!
//! Five fields, `minute hour day-of-month month day-of-week`, or a macro such as `@daily`. A field is `*`, a value, a
//! range `a-b`, a step (`*/n`, `a-b/n`, or `a/n` for "from a to the end"), or a list of these. Months and weekdays may
//! be named, Sunday is 0 or 7, case does not matter. When both day fields are restricted (neither begins with `*`) a
//! day matches if *either* does, otherwise if *both* do: the rule of Vixie cron. An expression that no calendar can
//! satisfy, such as 31 February, is refused when it is read.
//!
//! # When the clocks change
//!
//! What happens depends on the minute and hour fields. A field is *wild* if it begins with `*` or holds every value.
//!
//! - **Neither is wild** (`30 2 * * *`): the times are appointments, and each is kept once. One that the clocks skip is
//!   kept at the moment the gap ends, and several that fall into one gap become one fire; one that comes twice is kept
//!   the first time only.
//! - **At least one is wild** (`*/15 * * * *`, `0 * * * *`, `*/15 2 * * *`): the schedule is a rhythm, and it fires
//!   whenever the clock on the wall shows a matching minute. What the clocks skip is left out, what comes twice fires
//!   twice, so `*/15 * * * *` goes on every fifteen minutes of elapsed time through both changes. A rhythm confined
//!   to an hour that is skipped does not fire that day.
//!
//! Everything here is a pure function of the expression, the zone and the moments passed in. The zones are those
//! compiled into the program, never those of the machine, so that all processes of one version agree. Keeping
//! `last_fire` and storing the event belong to the store; [`Cron::latest_at_or_before`] is what it asks after downtime.
//!
//! Written by hand because the `cron` and `croner` crates both bring in chrono, which is being retired, while the
//! calendar and the zones that they would add to it are already here with jiff.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use jiff::civil::{Date, DateTime, Time, time};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp as Moment};
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// The longest useful expressions list every value of a field, about 600 bytes; one much longer is a mistake.
pub const CRON_BYTES_MAX: usize = 1_024;
/// The longest zone names have about 30 bytes.
pub const ZONE_BYTES_MAX: usize = 64;
/// How far a search looks, in years. 29 February comes after at most 8 years (2096 to 2104), and 29 February on a given
/// weekday (`0 0 29 2 */7`) after at most 40: whatever was not refused fires within this time or never.
pub const HORIZON_YEARS: i16 = 40;

const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 366 * (HORIZON_YEARS as i64 + 1));
const SECOND: SignedDuration = SignedDuration::from_secs(1);
const MILLISECOND: SignedDuration = SignedDuration::from_millis(1);

const MACROS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// A checked cron expression; `Display` gives back its text. Two that are written differently are different.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cron {
    /// As written, with single spaces.
    text: String,
    minutes: Values,
    hours: Values,
    days: Values,
    months: Values,
    /// 0 is Sunday, 6 is Saturday.
    weekdays: Values,
    /// Both day fields are restricted, so that either is enough.
    either_day: bool,
    /// Minute or hour is wild: fires by the clock on the wall instead of keeping appointments.
    rhythm: bool,
}

/// Why a cron expression was refused; the texts say what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the text of each error says what its fields are")]
pub enum CronProblem {
    /// So many bytes, and that is too many.
    #[error("a cron expression of {0} bytes is longer than {CRON_BYTES_MAX}")]
    TooLong(usize),
    /// Begins with `@` and is none of those that are known.
    #[error(
        "unknown macro {0:?}; allowed are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually"
    )]
    Macro(String),
    /// So many fields, and five are wanted.
    #[error(
        "a cron expression has five fields, minute hour day-of-month month day-of-week, and this one has {0}; \
         there are no seconds and no years"
    )]
    FieldCount(usize),
    /// A part of a field cannot be read, or is out of its range.
    #[error("{field} {part:?}: {what}; allowed are {allowed}, *, ranges a-b, steps /n and lists of these")]
    Field { field: &'static str, part: String, what: String, allowed: &'static str },
    /// No year has such a day.
    #[error("{0:?} never fires: none of its months has any of its days of the month")]
    NeverFires(String),
}

impl Cron {
    /// The first fire strictly after `after`. None only when no fire comes within [`HORIZON_YEARS`]: at the end of the
    /// calendar, or for a rhythm that the zone's clock changes skip every time.
    pub fn next_after(&self, zone: &Zone, after: Timestamp) -> Option<Timestamp> {
        let mut at = moment(after).checked_add(MILLISECOND).ok()?;
        let last = at.saturating_add(HORIZON).ok()?;
        while at <= last {
            let stretch = Stretch::around(&zone.rules, at);
            let mut from = stretch.first_local(self.rhythm);
            if at > stretch.start {
                from = from.max(stretch.offset.to_datetime(at));
            }
            let fire = stretch.fire(self.local_at_or_after(from)?)?;
            match stretch.end {
                Some(end) if fire >= end => at = end,
                _ => return Some(Timestamp::from_millis(fire.as_millisecond())),
            }
        }
        None
    }

    /// The latest fire after `after` and not after `now`: the one that runs when earlier ones were missed.
    pub fn latest_at_or_before(&self, zone: &Zone, after: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let mut at = moment(now);
        let first = moment(after).checked_add(MILLISECOND).ok()?.max(at.saturating_sub(HORIZON).ok()?);
        while at >= first {
            let stretch = Stretch::around(&zone.rules, at);
            let local = self.local_at_or_before(stretch.offset.to_datetime(at))?;
            if local >= stretch.first_local(self.rhythm) {
                let fire = stretch.fire(local)?;
                return (fire >= first).then(|| Timestamp::from_millis(fire.as_millisecond()));
            }
            at = stretch.start.checked_sub(MILLISECOND).ok()?;
        }
        None
    }

    fn local_at_or_after(&self, from: DateTime) -> Option<DateTime> {
        let whole = from.second() == 0 && from.subsec_nanosecond() == 0;
        let minute = if whole { from.minute() } else { from.minute() + 1 };
        let day = self.day_at_or_after(from.date())?;
        if day > from.date() {
            return Some(day.to_datetime(self.time_at_or_after(0, 0)?));
        }
        if let Some(time) = self.time_at_or_after(from.hour(), minute) {
            return Some(day.to_datetime(time));
        }
        let day = self.day_at_or_after(day.tomorrow().ok()?)?;
        Some(day.to_datetime(self.time_at_or_after(0, 0)?))
    }

    fn local_at_or_before(&self, until: DateTime) -> Option<DateTime> {
        let day = self.day_at_or_before(until.date())?;
        if day < until.date() {
            return Some(day.to_datetime(self.time_at_or_before(23, 59)?));
        }
        if let Some(time) = self.time_at_or_before(until.hour(), until.minute()) {
            return Some(day.to_datetime(time));
        }
        let day = self.day_at_or_before(day.yesterday().ok()?)?;
        Some(day.to_datetime(self.time_at_or_before(23, 59)?))
    }

    fn time_at_or_after(&self, hour: i8, minute: i8) -> Option<Time> {
        if self.hours.has(hour)
            && let Some(minute) = self.minutes.at_or_after(minute)
        {
            return Some(time(hour, minute, 0, 0));
        }
        Some(time(self.hours.at_or_after(hour + 1)?, self.minutes.at_or_after(0)?, 0, 0))
    }

    fn time_at_or_before(&self, hour: i8, minute: i8) -> Option<Time> {
        if self.hours.has(hour)
            && let Some(minute) = self.minutes.at_or_before(minute)
        {
            return Some(time(hour, minute, 0, 0));
        }
        Some(time(self.hours.at_or_before(hour - 1)?, self.minutes.at_or_before(59)?, 0, 0))
    }

    fn day_at_or_after(&self, from: Date) -> Option<Date> {
        let (mut month, mut day) = (from.first_of_month(), from.day());
        while month.year() <= from.year() + HORIZON_YEARS {
            if let Some(day) = self.days_of(month).at_or_after(day) {
                return Date::new(month.year(), month.month(), day).ok();
            }
            (month, day) = (month.last_of_month().tomorrow().ok()?, 1);
        }
        None
    }

    fn day_at_or_before(&self, until: Date) -> Option<Date> {
        let (mut month, mut day) = (until.first_of_month(), until.day());
        while month.year() >= until.year() - HORIZON_YEARS {
            if let Some(day) = self.days_of(month).at_or_before(day) {
                return Date::new(month.year(), month.month(), day).ok();
            }
            (month, day) = (month.yesterday().ok()?.first_of_month(), 31);
        }
        None
    }

    /// The matching days of the month that begins with `first`.
    fn days_of(&self, first: Date) -> Values {
        let mut matching = Values::NONE;
        if !self.months.has(first.month()) {
            return matching;
        }
        let weekday = first.weekday().to_sunday_zero_offset();
        for day in 1..=first.days_in_month() {
            let (by_day, by_weekday) = (self.days.has(day), self.weekdays.has((weekday + day - 1) % 7));
            let matches = if self.either_day { by_day || by_weekday } else { by_day && by_weekday };
            if matches {
                matching.insert(day);
            }
        }
        matching
    }

    /// Whether some month has a matching day. Weekdays need no look: every date falls on each of them in time.
    fn can_fire(&self) -> bool {
        const LONGEST: [i8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let has_day = |longest| self.days.at_or_after(1).is_some_and(|first| first <= longest);
        self.either_day
            || (1..).zip(LONGEST).any(|(month, longest)| self.months.has(month) && has_day(longest))
    }
}

impl FromStr for Cron {
    type Err = CronProblem;

    fn from_str(text: &str) -> Result<Self, CronProblem> {
        if text.len() > CRON_BYTES_MAX {
            return Err(CronProblem::TooLong(text.len()));
        }
        let text = text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let lower = text.to_ascii_lowercase();
        let plain = match MACROS.iter().find(|(name, _)| *name == lower) {
            Some((_, plain)) => plain,
            None if lower.starts_with('@') => return Err(CronProblem::Macro(text)),
            None => lower.as_str(),
        };
        let fields: Vec<&str> = plain.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(CronProblem::FieldCount(fields.len()));
        };
        let (minutes, hours) = (MINUTE.parse(minute)?, HOUR.parse(hour)?);
        let wild = |field: &Field, text: &str, values| text.starts_with('*') || values == field.all();
        let cron = Cron {
            minutes,
            hours,
            days: DAY.parse(day)?,
            months: MONTH.parse(month)?,
            weekdays: WEEKDAY.parse(weekday)?,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            rhythm: wild(&MINUTE, minute, minutes) || wild(&HOUR, hour, hours),
            text,
        };
        if cron.can_fire() { Ok(cron) } else { Err(CronProblem::NeverFires(cron.text)) }
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?})", self.text)
    }
}

impl Serialize for Cron {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A time zone that exists, by its name in the IANA database; UTC unless one is named. Names are read in any case and
/// given back as the database spells them.
#[derive(Clone)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

/// Why a time zone was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZoneProblem {
    /// So many bytes, and that is too many.
    #[error("a time zone name of {0} bytes is longer than {ZONE_BYTES_MAX}")]
    TooLong(usize),
    /// The compiled-in database has no such zone.
    #[error(
        "time zone {0:?} is not in the IANA database; allowed are its names, such as \"UTC\" or \"Europe/Berlin\""
    )]
    Unknown(String),
}

impl Zone {
    /// The zone without summer time.
    pub fn utc() -> Self {
        Zone { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// As it was written, such as `Europe/Berlin`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Default for Zone {
    fn default() -> Self {
        Zone::utc()
    }
}

impl FromStr for Zone {
    type Err = ZoneProblem;

    fn from_str(name: &str) -> Result<Self, ZoneProblem> {
        if name.len() > ZONE_BYTES_MAX {
            return Err(ZoneProblem::TooLong(name.len()));
        }
        let rules = match TimeZoneDatabase::bundled().get(name) {
            Ok(rules) if !rules.is_unknown() => rules,
            _ => return Err(ZoneProblem::Unknown(name.to_owned())),
        };
        Ok(Zone { name: rules.iana_name().unwrap_or(name).to_owned(), rules })
    }
}

/// The name decides: all zones come from the one database of the program.
impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Zone {}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({:?})", self.name)
    }
}

impl Serialize for Zone {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The time between two clock changes of a zone, in which local time is moment plus `offset`. A search goes from
/// stretch to stretch, at most a few per year, and inside one it is plain calendar arithmetic.
struct Stretch {
    /// The first moment of the stretch.
    start: Moment,
    /// The first moment after it.
    end: Option<Moment>,
    offset: Offset,
    /// The offset until `start`.
    before: Offset,
}

impl Stretch {
    fn around(rules: &TimeZone, at: Moment) -> Self {
        let second = floor_second(at);
        let next_second = second.saturating_add(SECOND).unwrap_or(Moment::MAX);
        let following = |moment| rules.following(moment).next().map(|change| change.timestamp());
        let mut start = rules.preceding(next_second).next().map_or(Moment::MIN, |change| change.timestamp());
        // `preceding` of jiff 0.2.39 can answer with a change of the zone's present rule from before that rule was in
        // force, and so miss the last real one (Pacific/Norfolk, July 2019). `following` lists them all.
        while let Some(change) = following(start)
            && change <= second
        {
            start = change;
        }
        let end = following(second);
        let offset = rules.to_offset(at);
        let before = start.checked_sub(SECOND).map_or(offset, |m| rules.to_offset(m));
        Stretch { start, end, offset, before }
    }

    /// The first local time that belongs to this stretch. For a rhythm that is what the clock shows at its start. For
    /// appointments it is what the clock *would* have shown without the change, so that the stretches share out local
    /// time without a hole and without an overlap: what was skipped belongs here, what is repeated does not.
    fn first_local(&self, rhythm: bool) -> DateTime {
        if rhythm { self.offset.to_datetime(self.start) } else { self.before.to_datetime(self.start) }
    }

    /// When a local time of this stretch fires: at that time, or at the start of the stretch if it was skipped.
    fn fire(&self, local: DateTime) -> Option<Moment> {
        Some(self.offset.to_timestamp(local).ok()?.max(self.start))
    }
}

/// The nearest moment that the calendar knows: years -9999 to 9999.
fn moment(at: Timestamp) -> Moment {
    let nearest = if at.as_millis() < 0 { Moment::MIN } else { Moment::MAX };
    Moment::from_millisecond(at.as_millis()).unwrap_or(nearest)
}

/// Clock changes happen at whole seconds.
fn floor_second(at: Moment) -> Moment {
    Moment::from_second(at.as_millisecond().div_euclid(1_000)).unwrap_or(Moment::MIN)
}

/// A set of small numbers: the values of a field, or days of a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Values(u64);

impl Values {
    const NONE: Values = Values(0);

    fn insert(&mut self, value: i8) {
        self.0 |= 1 << value;
    }

    fn has(self, value: i8) -> bool {
        self.0 & (1 << value) != 0
    }

    fn at_or_after(self, value: i8) -> Option<i8> {
        let rest = self.0 & (u64::MAX << value);
        if rest == 0 { None } else { i8::try_from(rest.trailing_zeros()).ok() }
    }

    fn at_or_before(self, value: i8) -> Option<i8> {
        let rest = self.0 & !(u64::MAX << (value + 1));
        if rest == 0 { None } else { i8::try_from(rest.ilog2()).ok() }
    }
}

/// What may stand in one place of an expression.
struct Field {
    name: &'static str,
    low: i8,
    /// The end of `*` and of `a/n`.
    end: i8,
    /// The highest number that may be written: for weekdays one more than `end`, and it means `low`.
    high: i8,
    /// The names of the values from `low` on.
    names: &'static [&'static str],
    allowed: &'static str,
}

const MINUTE: Field = Field { name: "minute", low: 0, end: 59, high: 59, names: &[], allowed: "0 to 59" };
const HOUR: Field = Field { name: "hour", low: 0, end: 23, high: 23, names: &[], allowed: "0 to 23" };
const DAY: Field = Field { name: "day-of-month", low: 1, end: 31, high: 31, names: &[], allowed: "1 to 31" };
const MONTH: Field = Field {
    name: "month",
    low: 1,
    end: 12,
    high: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    allowed: "1 to 12 or jan to dec",
};
const WEEKDAY: Field = Field {
    name: "day-of-week",
    low: 0,
    end: 6,
    high: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    allowed: "0 to 7 (0 and 7 are Sunday) or sun to sat",
};

impl Field {
    /// Reads the lower-case text of the whole field.
    fn parse(&self, text: &str) -> Result<Values, CronProblem> {
        let mut values = Values::NONE;
        for part in text.split(',') {
            self.insert_part(part, &mut values).map_err(|what| CronProblem::Field {
                field: self.name,
                part: part.to_owned(),
                what,
                allowed: self.allowed,
            })?;
        }
        Ok(values)
    }

    fn all(&self) -> Values {
        let mut values = Values::NONE;
        (self.low..=self.end).for_each(|value| values.insert(value));
        values
    }

    fn insert_part(&self, part: &str, values: &mut Values) -> Result<(), String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        let (first, last) = if range == "*" {
            (self.low, self.end)
        } else if let Some((first, last)) = range.split_once('-') {
            let (first, last) = (self.value(first)?, self.value(last)?);
            // `fri-sun` is what people write and mean: Sunday also ends the week.
            let wraps = self.high > self.end && last == self.low && first > last;
            (first, if wraps { self.high } else { last })
        } else {
            let first = self.value(range)?;
            (first, if step.is_some() { self.end.max(first) } else { first })
        };
        if first > last {
            return Err(format!("{range} runs backwards; write two ranges instead"));
        }
        for value in (first..=last).step_by(step.unwrap_or(1)) {
            values.insert(if value > self.end { self.low } else { value });
        }
        Ok(())
    }

    fn value(&self, text: &str) -> Result<i8, String> {
        if let Some((value, _)) = (self.low..).zip(self.names).find(|(_, name)| **name == text) {
            return Ok(value);
        }
        if text.is_empty() {
            return Err("a value is missing".to_owned());
        }
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("{text:?} is not a value"));
        }
        match text.parse() {
            Ok(value) if (self.low..=self.high).contains(&value) => Ok(value),
            _ => Err(format!("{text} is out of range")),
        }
    }

    /// A step beyond the highest value could never be taken: `*/90` in minutes is a mistake worth naming.
    fn step(&self, text: &str) -> Result<usize, String> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<i8>().map(|step| (step, usize::try_from(step))) {
            Ok((step, Ok(size))) if digits && (1..=self.high).contains(&step) => Ok(size),
            _ => Err(format!("the step {text:?} is not between 1 and {}", self.high)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::sample::select;

    const BERLIN: &str = "Europe/Berlin";
    const NEW_YORK: &str = "America/New_York";
    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;

    fn cron(text: &str) -> Cron {
        text.parse().unwrap()
    }

    fn zone(name: &str) -> Zone {
        name.parse().unwrap()
    }

    /// A moment written with its offset, so that both halves of a repeated hour can be named.
    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<Moment>().unwrap().as_millisecond())
    }

    fn refused(text: &str) -> String {
        text.parse::<Cron>().unwrap_err().to_string()
    }

    /// Checks the fires after the first moment one by one, forwards and then backwards.
    fn check(text: &str, zone_name: &str, after: &str, fires: &[&str]) {
        let (cron, zone) = (cron(text), zone(zone_name));
        let (start, mut last) = (at(after), at(after));
        for &fire in fires {
            last = cron.next_after(&zone, last).unwrap();
            assert_eq!(last, at(fire), "{text} in {zone_name}");
        }
        for &fire in fires.iter().rev() {
            assert_eq!(
                cron.latest_at_or_before(&zone, start, last),
                Some(at(fire)),
                "{text} in {zone_name}, back"
            );
            last = Timestamp::from_millis(at(fire).as_millis() - 1);
        }
        assert_eq!(cron.latest_at_or_before(&zone, start, last), None);
    }

    #[test]
    fn fields_take_lists_ranges_steps_and_names() {
        let same = |a: &str, b: &str| {
            let (a, b) = (cron(a), cron(b));
            assert_eq!((a.minutes, a.hours, a.days), (b.minutes, b.hours, b.days), "{a:?} {b:?}");
            assert_eq!((a.months, a.weekdays), (b.months, b.weekdays), "{a:?} {b:?}");
        };
        same("*/20 * * * *", "0,20,40 * * * *");
        same("5/15 * * * *", "5,20,35,50 * * * *");
        same("1-10/3 22-23,3 * * *", "1,4,7,10 3,22,23 * * *");
        same("0 0 * JAN-mar,Dec Mon-FRI", "0 0 * 1-3,12 1-5");
        same("0 0 * * 7", "0 0 * * SUN");
        same("0 0 * * fri-sun", "0 0 * * 5,6,0");
        same("0 0 * * 5-7", "0 0 * * 0,5,6");
        same("0 0 * * 1/2", "0 0 * * 1,3,5");
        same("0 0 * * 7/2", "0 0 * * 0");
        same("0 0 */10 * *", "0 0 1,11,21,31 * *");
        same("@Weekly", "0 0 * * 0");
        same("@annually", "@yearly");
        same("@midnight", "@daily");
    }

    #[test]
    fn a_refusal_names_the_field_the_fault_and_what_is_allowed() {
        assert_eq!(
            refused("61 * * * *"),
            "minute \"61\": 61 is out of range; allowed are 0 to 59, *, ranges a-b, steps /n and lists of these"
        );
        assert_eq!(
            refused("0 22-4 * * *"),
            "hour \"22-4\": 22-4 runs backwards; write two ranges instead; allowed are 0 to 23, *, ranges a-b, \
             steps /n and lists of these"
        );
        assert!(refused("*/0 * * * *").contains("minute \"*/0\": the step \"0\" is not between 1 and 59"));
        assert!(refused("*/90 * * * *").contains("the step \"90\" is not between 1 and 59"));
        assert!(refused("0 24 * * *").contains("hour \"24\": 24 is out of range"));
        assert!(refused("0 0 0 * *").contains("day-of-month \"0\": 0 is out of range; allowed are 1 to 31"));
        assert!(refused("0 0 L * *").contains("day-of-month \"l\": \"l\" is not a value"));
        assert!(refused("0 0 * januar *").contains("allowed are 1 to 12 or jan to dec"));
        assert!(refused("0 0 * * 8").contains("day-of-week \"8\": 8 is out of range"));
        assert!(refused("0 0 * * 6-2").contains("runs backwards"));
        assert!(refused("0, * * * *").contains("minute \"\": a value is missing"));
        assert!(refused("1- * * * *").contains("a value is missing"));
        assert!(refused("+1 * * * *").contains("\"+1\" is not a value"));
        assert!(refused("* * * *").contains("this one has 4"));
        assert!(refused("0 * * * * *").contains("this one has 6; there are no seconds"));
        assert!(refused("").contains("this one has 0"));
        assert!(refused("@reboot").contains("unknown macro \"@reboot\"; allowed are @hourly"));
        assert_eq!("*,".repeat(600).parse::<Cron>(), Err(CronProblem::TooLong(1_200)));
    }

    #[test]
    fn what_can_never_fire_is_refused_and_nothing_else() {
        assert_eq!(
            refused("0 0 31 2 *"),
            "\"0 0 31 2 *\" never fires: none of its months has any of its days of the month"
        );
        assert!(refused("0 0 31 feb,apr,jun,sep,nov *").contains("never fires"));
        assert!(refused("0 0 30 2 */7").contains("never fires"));
        for month in 1..=12i8 {
            for day in 1..=31i8 {
                let exists = Date::new(2024, month, day).is_ok();
                assert_eq!(format!("0 0 {day} {month} *").parse::<Cron>().is_ok(), exists);
                assert!(format!("0 0 {day} {month} mon").parse::<Cron>().is_ok(), "the weekday is enough");
            }
        }
    }

    #[test]
    fn text_is_given_back_and_survives_json() {
        let nightly = cron("  0  3 * *   Mon-Fri ");
        assert_eq!(nightly.to_string(), "0 3 * * Mon-Fri");
        assert_eq!(serde_json::to_string(&nightly).unwrap(), "\"0 3 * * Mon-Fri\"");
        assert_eq!(serde_json::from_str::<Cron>("\"0 3 * * Mon-Fri\"").unwrap(), nightly);
        assert_eq!(cron("@daily").to_string(), "@daily");
        let error = serde_json::from_str::<Cron>("\"0 3 * *\"").unwrap_err();
        assert!(error.to_string().contains("five fields"));
    }

    #[test]
    fn zones_are_known_names_and_utc_by_default() {
        assert_eq!(Zone::default(), zone("utc"));
        assert_eq!(Zone::default().name(), "UTC");
        assert_eq!(zone("europe/berlin").to_string(), BERLIN);
        assert_eq!(serde_json::to_string(&zone(BERLIN)).unwrap(), "\"Europe/Berlin\"");
        assert_eq!(serde_json::from_str::<Zone>("\"Europe/Berlin\"").unwrap(), zone(BERLIN));
        for unknown in ["", "Europe/Berln", "Etc/Unknown", "CET-1CEST", "+01:00", "../../etc/passwd"] {
            assert_eq!(unknown.parse::<Zone>(), Err(ZoneProblem::Unknown(unknown.to_owned())));
        }
        assert_eq!("x".repeat(65).parse::<Zone>(), Err(ZoneProblem::TooLong(65)));
        assert!(
            serde_json::from_str::<Zone>("\"Mars\"").unwrap_err().to_string().contains("such as \"UTC\"")
        );
    }

    #[test]
    fn two_restricted_day_fields_match_either_and_a_star_asks_for_both() {
        let after = "2024-09-01T00:00Z"; // A Sunday.
        check("0 0 13 * fri", "UTC", after, &["2024-09-06T00:00Z", "2024-09-13T00:00Z", "2024-09-20T00:00Z"]);
        check(
            "0 0 13 10 fri",
            "UTC",
            after,
            &["2024-10-04T00:00Z", "2024-10-11T00:00Z", "2024-10-13T00:00Z"],
        );
        check(
            "0 0 */12 * fri",
            "UTC",
            after,
            &["2024-09-13T00:00Z", "2024-10-25T00:00Z", "2024-11-01T00:00Z"],
        );
        check("0 0 13 * */5", "UTC", after, &["2024-09-13T00:00Z", "2024-10-13T00:00Z", "2024-12-13T00:00Z"]);
        check("0 0 13 * *", "UTC", after, &["2024-09-13T00:00Z", "2024-10-13T00:00Z"]);
    }

    #[test]
    fn a_fire_is_strictly_after_and_the_latest_may_be_now() {
        let (hourly, utc) = (cron("@hourly"), Zone::utc());
        let noon = at("2025-06-01T12:00Z");
        let step = |ms| Timestamp::from_millis(noon.as_millis() + ms);
        assert_eq!(hourly.next_after(&utc, noon), Some(step(HOUR_MS)));
        assert_eq!(hourly.next_after(&utc, step(-1)), Some(noon));
        assert_eq!(hourly.latest_at_or_before(&utc, step(-1), noon), Some(noon));
        assert_eq!(hourly.latest_at_or_before(&utc, noon, noon), None);
        assert_eq!(hourly.latest_at_or_before(&utc, noon, step(HOUR_MS - 1)), None);
        assert_eq!(hourly.latest_at_or_before(&utc, step(5), step(-5)), None);
    }

    #[test]
    fn after_downtime_only_the_latest_missed_fire_is_named() {
        let (nightly, berlin) = (cron("0 3 * * *"), zone(BERLIN));
        let (last_fire, now) = (at("2025-01-02T03:00+01:00"), at("2025-07-09T01:00+02:00"));
        assert_eq!(nightly.latest_at_or_before(&berlin, last_fire, now), Some(at("2025-07-08T03:00+02:00")));
    }

    #[test]
    fn a_skipped_appointment_is_kept_once_when_the_gap_ends() {
        let days = ["2025-03-29T02:30+01:00", "2025-03-30T03:00+02:00", "2025-03-31T02:30+02:00"];
        check("30 2 * * *", BERLIN, "2025-03-29T00:00+01:00", &days);
        let days = ["2025-03-08T02:30-05:00", "2025-03-09T03:00-04:00", "2025-03-10T02:30-04:00"];
        check("30 2 * * *", NEW_YORK, "2025-03-08T00:00-05:00", &days);
        // Several in one gap, and one that is due at its end anyway, are one fire.
        let fires = ["2025-03-30T01:20+01:00", "2025-03-30T03:00+02:00", "2025-03-30T03:20+02:00"];
        check("0,20 1-3 30 3 *", BERLIN, "2025-03-30T01:00+01:00", &fires);
        // A gap at midnight, and a whole day that the calendar of Samoa leaves out.
        check("0 0 4 11 *", "America/Sao_Paulo", "2018-11-01T00:00-03:00", &["2018-11-04T01:00-02:00"]);
        check("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00-10:00", &["2011-12-31T00:00+14:00"]);
    }

    #[test]
    fn a_repeated_appointment_is_kept_the_first_time_only() {
        let days = ["2025-10-25T02:30+02:00", "2025-10-26T02:30+02:00", "2025-10-27T02:30+01:00"];
        check("30 2 * * *", BERLIN, "2025-10-25T00:00+02:00", &days);
        let days = ["2025-11-01T01:30-04:00", "2025-11-02T01:30-04:00", "2025-11-03T01:30-05:00"];
        check("30 1 * * *", NEW_YORK, "2025-11-01T00:00-04:00", &days);
        let (half_past, berlin) = (cron("30 2 * * *"), zone(BERLIN));
        let second = at("2025-10-26T02:30+01:00");
        assert_eq!(half_past.latest_at_or_before(&berlin, at("2025-10-26T02:30+02:00"), second), None);
        assert_eq!(
            half_past.next_after(&berlin, at("2025-10-26T02:10+01:00")),
            Some(at("2025-10-27T02:30+01:00"))
        );
    }

    #[test]
    fn a_rhythm_goes_on_by_elapsed_time_through_both_changes() {
        let evenly = |text: &str, zone_name: &str, from: &str, apart: i64| {
            let (cron, zone, from) = (cron(text), zone(zone_name), at(from).as_millis());
            for i in 0..40 {
                let (one, two) = (from + i * apart, from + (i + 1) * apart);
                assert_eq!(
                    cron.next_after(&zone, Timestamp::from_millis(one)),
                    Some(Timestamp::from_millis(two))
                );
            }
        };
        for (zone_name, from) in [
            (BERLIN, "2025-03-30T00:00+01:00"),
            (BERLIN, "2025-10-26T00:00+02:00"),
            (NEW_YORK, "2025-03-09T00:00-05:00"),
            (NEW_YORK, "2025-11-02T00:00-04:00"),
        ] {
            evenly("*/15 * * * *", zone_name, from, HOUR_MS / 4);
            evenly("0 * * * *", zone_name, from, HOUR_MS);
            evenly("0 0-23 * * *", zone_name, from, HOUR_MS);
        }
        evenly("*/30 * * * *", "Australia/Lord_Howe", "2025-04-05T20:00+11:00", HOUR_MS / 2);
    }

    #[test]
    fn a_rhythm_within_an_hour_follows_the_clock_on_the_wall() {
        let after = "2025-03-29T02:00+01:00";
        check("*/30 2 * * *", BERLIN, after, &["2025-03-29T02:30+01:00", "2025-03-31T02:00+02:00"]);
        let twice = [
            "2025-11-02T01:00-04:00",
            "2025-11-02T01:30-04:00",
            "2025-11-02T01:00-05:00",
            "2025-11-02T01:30-05:00",
            "2025-11-03T01:00-05:00",
        ];
        check("*/30 1 * * *", NEW_YORK, "2025-11-02T00:00-04:00", &twice);
    }

    #[test]
    fn a_rhythm_that_a_zone_always_skips_ends_the_search() {
        // The last Sunday of March at two is exactly the hour that Berlin leaves out.
        let (skipped, berlin) = (cron("*/5 2 25-31 3 */7"), zone(BERLIN));
        assert_eq!(skipped.next_after(&berlin, at("2025-01-01T00:00Z")), None);
        assert_eq!(
            skipped.latest_at_or_before(&berlin, at("2000-01-01T00:00Z"), at("2025-01-01T00:00Z")),
            None
        );
        assert!(skipped.next_after(&Zone::utc(), at("2025-01-01T00:00Z")).is_some());
    }

    #[test]
    fn a_leap_day_is_found_across_a_century_without_one() {
        let fires = ["2096-02-29T12:00Z", "2104-02-29T12:00Z", "2108-02-29T12:00Z"];
        check("0 12 29 2 *", "UTC", "2095-01-01T00:00Z", &fires);
        let fires = ["2096-02-29T12:00+01:00", "2104-02-29T12:00+01:00"];
        check("0 12 29 2 *", BERLIN, "2095-01-01T00:00Z", &fires);
    }

    #[test]
    fn the_horizon_covers_the_rarest_day_of_a_whole_calendar_cycle() {
        for weekday in 0..7 {
            // `*` at the start asks for both day fields; the mask is set by hand to one weekday.
            let mut rare = cron("0 0 29 2 */7");
            rare.weekdays = Values(1 << weekday);
            let mut fire = at("2000-01-01T00:00Z");
            while fire < at("2400-01-01T00:00Z") {
                let next = rare.next_after(&Zone::utc(), fire).unwrap();
                assert_eq!(rare.latest_at_or_before(&Zone::utc(), fire, next), Some(next));
                fire = next;
            }
        }
    }

    #[test]
    fn the_ends_of_time_are_no_trap() {
        let (least, most) = (Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX));
        for name in ["UTC", BERLIN, NEW_YORK, "Pacific/Kiritimati", "Pacific/Pago_Pago"] {
            for text in ["* * * * *", "0 0 1 1 *", "30 2 29 2 *"] {
                let (cron, zone) = (cron(text), zone(name));
                assert_eq!(cron.next_after(&zone, most), None);
                assert!(cron.next_after(&zone, least).is_some());
                assert!(cron.latest_at_or_before(&zone, least, most).is_some());
                assert_eq!(cron.latest_at_or_before(&zone, least, least), None);
                assert_eq!(cron.latest_at_or_before(&zone, most, most), None);
            }
        }
    }

    #[test]
    fn a_zone_that_changed_its_rule_keeps_its_real_clock_changes() {
        // Norfolk moved to +11 in 2015 and began daylight saving in October 2019.
        let days = ["2019-07-01T02:30+11:00", "2019-07-02T02:30+11:00"];
        check("30 2 * * *", "Pacific/Norfolk", "2019-07-01T00:00+11:00", &days);
        check("30 2 6 10 *", "Pacific/Norfolk", "2019-07-01T00:00+11:00", &["2019-10-06T03:00+12:00"]);
        for name in ["Pacific/Norfolk", "Europe/Chisinau", "Europe/Kyiv", "America/St_Johns", NEW_YORK] {
            let zone = zone(name);
            let changes: Vec<Moment> = zone
                .rules
                .following(moment(at("1880-01-01T00:00Z")))
                .map(|c| c.timestamp())
                .take(300)
                .collect();
            for pair in changes.windows(2) {
                for inside in [pair[0], pair[1].checked_sub(MILLISECOND).unwrap()] {
                    let stretch = Stretch::around(&zone.rules, inside);
                    assert_eq!((stretch.start, stretch.end), (pair[0], Some(pair[1])), "{name} at {inside}");
                }
            }
        }
    }

    /// A random field with its text and, worked out apart from the parser, its values.
    fn field(low: i8, end: i8) -> impl Strategy<Value = (String, Vec<i8>)> {
        let value = move || low..=end;
        let part = (0..8u8, value(), value(), 1..=end).prop_map(move |(kind, a, b, step)| {
            let (a, b) = (a.min(b), a.max(b));
            let stepped = |a: i8, b: i8| (a..=b).filter(|v| (v - a) % step == 0).collect::<Vec<_>>();
            match kind {
                0..2 => ("*".to_owned(), (low..=end).collect()),
                2..4 => (format!("*/{step}"), stepped(low, end)),
                4 => (format!("{a}"), vec![a]),
                5 => (format!("{a}-{b}"), (a..=b).collect()),
                6 => (format!("{a}-{b}/{step}"), stepped(a, b)),
                _ => (format!("{a}/{step}"), stepped(a, end)),
            }
        });
        prop::collection::vec(part, 1..3).prop_map(|parts| {
            let (texts, values): (Vec<String>, Vec<Vec<i8>>) = parts.into_iter().unzip();
            (texts.join(","), values.concat())
        })
    }

    #[derive(Debug, Clone)]
    struct Model {
        fields: [(String, Vec<i8>); 5],
    }

    impl Model {
        fn text(&self) -> String {
            self.fields.each_ref().map(|(text, _)| text.as_str()).join(" ")
        }

        fn is_wild(&self, field: usize, size: usize) -> bool {
            let (text, values) = &self.fields[field];
            let mut values = values.clone();
            values.sort_unstable();
            values.dedup();
            text.starts_with('*') || values.len() == size
        }

        fn matches_day(&self, day: Date) -> bool {
            let [_, _, days, months, weekdays] = &self.fields;
            let by_day = days.1.contains(&day.day());
            let by_weekday = weekdays.1.contains(&day.weekday().to_sunday_zero_offset());
            let both = days.0.starts_with('*') || weekdays.0.starts_with('*');
            months.1.contains(&day.month()) && if both { by_day && by_weekday } else { by_day || by_weekday }
        }

        fn matches(&self, local: DateTime) -> bool {
            let [minutes, hours, ..] = &self.fields;
            minutes.1.contains(&local.minute())
                && hours.1.contains(&local.hour())
                && self.matches_day(local.date())
        }

        /// Someone looks at the clock on the wall once a minute. An appointment is kept when the clock first shows it
        /// or has jumped over it; a rhythm fires at what the clock shows.
        fn naive_next(&self, zone: &Zone, after: Timestamp, limit: Timestamp) -> Option<Timestamp> {
            let rhythm = self.is_wild(0, 60) || self.is_wild(1, 24);
            let show = |ms: i64| zone.rules.to_datetime(Moment::from_millisecond(ms).unwrap());
            let mut now = after.as_millis().div_euclid(60_000) * 60_000 - 2 * DAY_MS;
            let mut furthest = show(now);
            while now + 60_000 <= limit.as_millis() {
                now += 60_000;
                let shown = show(now);
                let mut fires = rhythm && self.matches(shown);
                while furthest < shown {
                    furthest = furthest.checked_add(SignedDuration::from_mins(1)).unwrap();
                    fires |= !rhythm && now > after.as_millis() && self.matches(furthest);
                }
                if fires && now > after.as_millis() {
                    return Some(Timestamp::from_millis(now));
                }
            }
            None
        }
    }

    /// Half of them early in the morning, when clocks change, and half on any day, so that a fire is near.
    fn model() -> impl Strategy<Value = Model> {
        let early =
            (0..=2i8, 0..=2i8).prop_map(|(a, more)| (format!("{a}-{}", a + more), (a..=a + more).collect()));
        let hour = prop_oneof![field(0, 23), early];
        let date = (field(1, 31), field(1, 12), field(0, 6));
        let any_day = |low: i8, end: i8| ("*".to_owned(), (low..=end).collect());
        let date = prop_oneof![date, Just((any_day(1, 31), any_day(1, 12), any_day(0, 6)))];
        (field(0, 59), hour, date)
            .prop_map(|(minute, hour, (day, month, weekday))| Model {
                fields: [minute, hour, day, month, weekday],
            })
            .prop_filter("can fire", |model| model.text().parse::<Cron>().is_ok())
    }

    /// Any time of these years, or one within six hours of a clock change of the zone.
    fn time_in(zone: &Zone) -> impl Strategy<Value = Timestamp> + use<> {
        let (from, to) = (at("1990-01-01T00:00Z"), at("2060-01-01T00:00Z"));
        let changes: Vec<i64> =
            zone.rules.following(moment(from)).take(100).map(|c| c.timestamp().as_millisecond()).collect();
        let anywhere = from.as_millis()..to.as_millis();
        (anywhere, any::<prop::sample::Index>(), -6 * HOUR_MS..6 * HOUR_MS, any::<bool>()).prop_map(
            move |(anywhere, index, near, close)| {
                let change = if close && !changes.is_empty() { Some(*index.get(&changes)) } else { None };
                Timestamp::from_millis(change.map_or(anywhere, |change| change + near))
            },
        )
    }

    fn zone_and_time(names: &'static [&'static str]) -> impl Strategy<Value = (Zone, Timestamp)> {
        select(names).prop_flat_map(|name| {
            let zone = zone(name);
            let time = time_in(&zone);
            (Just(zone), time)
        })
    }

    const ZONES: &[&str] = &[BERLIN, NEW_YORK, "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia"];

    fn agrees_with_the_naive_search(
        model: &Model,
        zone: &Zone,
        after: Timestamp,
    ) -> Result<(), TestCaseError> {
        let limit = Timestamp::from_millis(after.as_millis() + 4 * DAY_MS);
        let found = cron(&model.text()).next_after(zone, after);
        let naive = model.naive_next(zone, after, limit);
        prop_assert_eq!(
            found.filter(|&fire| fire <= limit),
            naive,
            "{} in {} after {}",
            model.text(),
            zone,
            after
        );
        prop_assert!(found.is_none_or(|fire| fire > after));
        Ok(())
    }

    proptest! {
        #[test]
        fn the_next_fire_in_utc_is_the_one_a_naive_search_finds(
            model in model(), (zone, after) in zone_and_time(&["UTC"]),
        ) {
            agrees_with_the_naive_search(&model, &zone, after)?;
        }

        #[test]
        fn the_next_fire_in_a_zone_is_the_one_a_naive_search_finds(
            model in model(), (zone, after) in zone_and_time(ZONES),
        ) {
            agrees_with_the_naive_search(&model, &zone, after)?;
        }

        #[test]
        fn the_next_day_is_the_one_a_naive_search_finds(
            mut model in model(), (zone, after) in zone_and_time(&["UTC"]),
        ) {
            model.fields[0] = ("0".to_owned(), vec![0]);
            model.fields[1] = ("0".to_owned(), vec![0]);
            let day_of = |at| zone.rules.to_datetime(moment(at)).date();
            let found = cron(&model.text()).next_after(&zone, after).map(day_of);
            let mut day = day_of(after).tomorrow().unwrap();
            while !model.matches_day(day) {
                day = day.tomorrow().unwrap();
            }
            prop_assert_eq!(found, Some(day));
        }

        #[test]
        fn the_latest_fire_is_the_last_of_all_next_fires(
            model in model(), (zone, after) in zone_and_time(ZONES), minutes in 0i64..3 * 24 * 60, years in 0i64..10,
        ) {
            let cron = cron(&model.text());
            // Long spans only for what fires at most a few times a day.
            let dense = model.fields[0].1.len() * model.fields[1].1.len() > 4;
            let span = if dense { minutes * 60_000 } else { years * 365 * DAY_MS + minutes * 60_000 };
            let now = Timestamp::from_millis(after.as_millis() + span);
            let (mut latest, mut fire) = (None, cron.next_after(&zone, after));
            while let Some(found) = fire.filter(|&fire| fire <= now) {
                prop_assert!(latest.is_none_or(|latest| latest < found));
                latest = Some(found);
                fire = cron.next_after(&zone, found);
            }
            prop_assert_eq!(cron.latest_at_or_before(&zone, after, now), latest, "{} in {}", cron, zone);
        }
    }
}
