use super::*;

fn window(schedule: &str, duration: &str, zone: &str) -> Window {
    Window {
        schedule: schedule.to_owned(),
        duration: duration.parse().unwrap(),
        time_zone: Some(zone.to_owned()),
    }
}

fn windows(written: &[(&str, &str, &str)]) -> Windows {
    let written: Vec<_> = written
        .iter()
        .map(|(schedule, duration, zone)| window(schedule, duration, zone))
        .collect();
    Windows::read(&written, "windows").unwrap()
}

/// How windows stand, in a few letters.
fn stand(windows: &Windows, at: &str) -> String {
    match windows.at(at.parse().unwrap()) {
        Now::Unbound => "unbound".to_owned(),
        Now::Open { closes: None } => "open".to_owned(),
        Now::Open {
            closes: Some(closes),
        } => format!("open until {closes}"),
        Now::Closed { opens } => format!("closed until {opens}"),
    }
}

#[test]
fn a_window_opens_by_the_clock_of_its_zone() {
    let weekly = windows(&[("0 22 * * 6", "4h", "Europe/Berlin")]);
    for (at, expected) in [
        (
            "2026-06-05T12:00:00Z",
            "closed until 2026-06-06T22:00:00+02:00",
        ),
        (
            "2026-06-06T19:59:59.9Z",
            "closed until 2026-06-06T22:00:00+02:00",
        ),
        (
            "2026-06-06T20:00:00Z",
            "open until 2026-06-07T02:00:00+02:00",
        ),
        (
            "2026-06-06T23:59:59Z",
            "open until 2026-06-07T02:00:00+02:00",
        ),
        (
            "2026-06-07T00:00:00Z",
            "closed until 2026-06-13T22:00:00+02:00",
        ),
        // In winter the same hour is another instant.
        (
            "2026-12-05T20:30:00Z",
            "closed until 2026-12-05T22:00:00+01:00",
        ),
    ] {
        assert_eq!(stand(&weekly, at), expected, "{at}");
    }
    assert_eq!(
        stand(&Windows::default(), "2026-06-06T20:00:00Z"),
        "unbound"
    );
}

/// In Berlin 02:00 is followed by 03:00 on the 29th of March 2026.
#[test]
fn a_time_that_the_clock_jumps_over_opens_where_the_jump_ends() {
    let daily = windows(&[("30 2 * * *", "1h", "Europe/Berlin")]);
    for (at, expected) in [
        (
            "2026-03-28T12:00:00Z",
            "closed until 2026-03-29T03:00:00+02:00",
        ),
        (
            "2026-03-29T00:59:59Z",
            "closed until 2026-03-29T03:00:00+02:00",
        ),
        (
            "2026-03-29T01:00:00Z",
            "open until 2026-03-29T04:00:00+02:00",
        ),
        (
            "2026-03-29T02:00:00Z",
            "closed until 2026-03-30T02:30:00+02:00",
        ),
    ] {
        assert_eq!(stand(&daily, at), expected, "{at}");
    }
    // One that is open over the jump is as long as ever.
    let over = windows(&[("0 1 * * *", "3h", "Europe/Berlin")]);
    assert_eq!(
        stand(&over, "2026-03-29T00:30:00Z"),
        "open until 2026-03-29T05:00:00+02:00"
    );
}

/// In Berlin 03:00 is followed by 02:00 on the 25th of October 2026.
#[test]
fn an_hour_that_comes_twice_opens_once_and_counts_twice() {
    let daily = windows(&[("30 2 * * *", "30m", "Europe/Berlin")]);
    for (at, expected) in [
        (
            "2026-10-25T00:29:00Z",
            "closed until 2026-10-25T02:30:00+02:00",
        ),
        (
            "2026-10-25T00:30:00Z",
            "open until 2026-10-25T02:00:00+01:00",
        ),
        (
            "2026-10-25T01:00:00Z",
            "closed until 2026-10-26T02:30:00+01:00",
        ),
        (
            "2026-10-25T01:30:00Z",
            "closed until 2026-10-26T02:30:00+01:00",
        ),
    ] {
        assert_eq!(stand(&daily, at), expected, "{at}");
    }
    let over = windows(&[("0 22 * * 6", "6h", "Europe/Berlin")]);
    assert_eq!(
        stand(&over, "2026-10-25T02:00:00Z"),
        "closed until 2026-10-31T22:00:00+01:00"
    );
    assert_eq!(
        stand(&over, "2026-10-25T01:30:00Z"),
        "open until 2026-10-25T03:00:00+01:00"
    );
}

#[test]
fn ends_of_months_are_where_they_are() {
    let last = windows(&[("0 1 L * *", "2h", "UTC")]);
    for (at, expected) in [
        (
            "2026-02-01T00:00:00Z",
            "closed until 2026-02-28T01:00:00+00:00",
        ),
        (
            "2028-02-01T00:00:00Z",
            "closed until 2028-02-29T01:00:00+00:00",
        ),
        (
            "2026-04-30T01:00:00Z",
            "open until 2026-04-30T03:00:00+00:00",
        ),
        (
            "2026-12-01T00:00:00Z",
            "closed until 2026-12-31T01:00:00+00:00",
        ),
        (
            "2026-12-31T03:00:00Z",
            "closed until 2027-01-31T01:00:00+00:00",
        ),
    ] {
        assert_eq!(stand(&last, at), expected, "{at}");
    }
    let short = windows(&[("0 1 31 * *", "2h", "UTC")]);
    assert_eq!(
        stand(&short, "2026-04-01T00:00:00Z"),
        "closed until 2026-05-31T01:00:00+00:00"
    );
    let leap = windows(&[("0 1 29 2 *", "2h", "UTC")]);
    assert_eq!(
        stand(&leap, "2026-04-01T00:00:00Z"),
        "closed until 2028-02-29T01:00:00+00:00"
    );
    // From one year into the next.
    let year = windows(&[("0 20 31 12 *", "12h", "Pacific/Auckland")]);
    assert_eq!(
        stand(&year, "2026-12-31T12:00:00Z"),
        "open until 2027-01-01T08:00:00+13:00"
    );
}

#[test]
fn the_shortest_gap_of_a_year_is_found_where_months_and_clocks_make_it() {
    let gap = |schedule: &str, zone: &str| {
        let read = Recurrence::read((schedule, "schedule"), (Some(zone), "zone")).unwrap();
        read.shortest_gap(SignedDuration::from_mins(5)).unwrap()
    };
    for (schedule, zone, hours) in [
        ("0 3 * * *", "UTC", 24),
        // The night in which the clock jumps.
        ("0 3 * * *", "Europe/Berlin", 23),
        ("0 3 * * 1,4", "UTC", 3 * 24),
        ("0 3 1 * *", "UTC", 29 * 24),
        ("0 3 1,31 * *", "UTC", 24),
        ("0 3 1 1 *", "UTC", 366 * 24),
        ("0 3 29 2 *", "UTC", (3 * 365 + 366) * 24),
    ] {
        let expected = SignedDuration::from_hours(hours);
        assert_eq!(gap(schedule, zone), expected, "{schedule} {zone}");
    }
    // What is denser than is asked for is not searched for what is denser still.
    assert_eq!(gap("* * * * *", "UTC"), SignedDuration::from_mins(1));
}

#[test]
fn windows_that_overlap_are_one() {
    let both = windows(&[
        ("0 22 * * 6", "4h", "UTC"),
        ("0 1 * * 0", "3h", "UTC"),
        ("0 5 * * 0", "1h", "Europe/Berlin"),
    ]);
    // The third opens at 04:00 UTC in winter, as the second closes.
    for (at, expected) in [
        (
            "2026-01-10T21:00:00Z",
            "closed until 2026-01-10T22:00:00+00:00",
        ),
        (
            "2026-01-10T22:30:00Z",
            "open until 2026-01-11T06:00:00+01:00",
        ),
        (
            "2026-01-11T05:00:00Z",
            "closed until 2026-01-17T22:00:00+00:00",
        ),
        (
            "2026-07-11T22:30:00Z",
            "open until 2026-07-12T04:00:00+00:00",
        ),
    ] {
        assert_eq!(stand(&both, at), expected, "{at}");
    }
    // One that opens again while it is open.
    let weekend = windows(&[("0 22 * * 5,6", "30h", "UTC")]);
    assert_eq!(
        stand(&weekend, "2026-01-09T23:00:00Z"),
        "open until 2026-01-12T04:00:00+00:00"
    );
}

#[test]
fn what_is_no_window_is_named_with_its_remedy() {
    let cases = [
        (
            ("0 22 30 2 *", "4h", "UTC"),
            "windows[0].schedule",
            "never comes",
        ),
        (
            ("0 22 31 4,6 *", "4h", "UTC"),
            "windows[0].schedule",
            "never comes",
        ),
        (
            ("0 * * * *", "1h", "UTC"),
            "windows[0].duration",
            "never close",
        ),
        (
            ("0 22 * * *", "2d", "UTC"),
            "windows[0].duration",
            "never close",
        ),
        (
            ("* * * * *", "1m", "UTC"),
            "windows[0].duration",
            "never close",
        ),
        (
            ("0 22 * *", "4h", "UTC"),
            "windows[0].schedule",
            "five fields",
        ),
        (
            ("0 0 22 * * 6", "4h", "UTC"),
            "windows[0].schedule",
            "five fields",
        ),
        (
            ("@weekly", "4h", "UTC"),
            "windows[0].schedule",
            "five fields",
        ),
        (
            ("0 25 * * *", "4h", "UTC"),
            "windows[0].schedule",
            "no schedule of cron",
        ),
        (
            ("0 22 * * MOO", "4h", "UTC"),
            "windows[0].schedule",
            "no schedule of cron",
        ),
        (("0 22 * * 6", "30s", "UTC"), "windows[0].duration", "1m to"),
        (("0 22 1 1 *", "60d", "UTC"), "windows[0].duration", "1m to"),
        (
            ("0 22 * * 6", "4h", "Berlin"),
            "windows[0].timeZone",
            "write Europe/Berlin",
        ),
        (
            ("0 22 * * 6", "4h", "Europe/Atlantis"),
            "windows[0].timeZone",
            "write UTC",
        ),
        (
            ("0 22 * * 6", "4h", "../../etc/passwd"),
            "windows[0].timeZone",
            "write UTC",
        ),
    ];
    for ((schedule, duration, zone), field, part) in cases {
        let wrong = Windows::read(&[window(schedule, duration, zone)], "windows").unwrap_err();
        let [problem] = wrong.as_slice() else {
            panic!("{schedule}: {wrong:?}");
        };
        assert_eq!(problem.field, field, "{schedule}");
        assert!(problem.to_string().contains(part), "{problem}");
        assert!(!problem.remedy.is_empty() && !problem.value.is_empty());
    }
    // All at once.
    let bad = [window("x", "1s", "y"), window("0 22 * * 6", "4h", "z")];
    assert_eq!(Windows::read(&bad, "windows").unwrap_err().len(), 4);
}

#[test]
fn windows_that_never_close_together_are_refused() {
    let day = window("0 6 * * *", "12h", "UTC");
    let night = window("0 18 * * *", "12h", "UTC");
    let wrong = Windows::read(&[day.clone(), night], "windows").unwrap_err();
    let told: Vec<_> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(wrong.len(), 1, "{told:?}");
    assert!(
        told[0].contains("together they would never close"),
        "{told:?}"
    );
    let late = window("0 18 * * *", "11h", "UTC");
    assert!(Windows::read(&[day, late], "windows").is_ok());
}

/// A window of a minute on each minute of the working week closes, if late.
#[test]
fn a_dense_schedule_is_told_from_one_that_never_closes() {
    let week = windows(&[("* * * * 1-5", "1m", "UTC")]);
    assert_eq!(
        stand(&week, "2026-01-05T00:00:00Z"),
        "open until 2026-01-10T00:00:00+00:00"
    );
}

#[test]
fn whatever_is_written_is_read_or_refused() {
    let fields = [
        "",
        "0",
        "*",
        "*/0",
        "*/61",
        "5-1",
        "1-",
        "-1",
        "99999999999999999999",
        "L",
        "LW",
        "15W",
        "L-3",
        "#",
        "1#9",
        "MON-",
        "?",
        "+",
        "1,,2",
        "\u{e9}",
        "\u{1F4A5}",
        "@daily",
        "1/2/3",
        "JAN",
        "\0",
        "1L",
    ];
    for (at, field) in fields.iter().enumerate() {
        for place in 0..5 {
            let mut parts = ["0", "0", "1", "*", "*"];
            parts[place] = field;
            let schedule = parts.join(" ");
            let zone = if at % 2 == 0 { "UTC" } else { field };
            let window = window(&schedule, "1h", zone);
            if let Ok(windows) = Windows::read(&[window], "windows") {
                assert_ne!(stand(&windows, "2026-06-06T20:00:00Z"), "unbound");
            }
        }
    }
}

#[test]
fn what_does_not_fit_into_one_waits_for_one_that_is_long_enough() {
    let both = windows(&[("0 22 * * *", "1h", "UTC"), ("0 20 * * 6", "8h", "UTC")]);
    for (at, hours, expected) in [
        ("2026-06-01T22:00:00Z", 1, None),
        ("2026-06-01T22:00:01Z", 1, Some("2026-06-02T22:00:00+00:00")),
        // Saturday.
        ("2026-06-01T22:00:00Z", 2, Some("2026-06-06T20:00:00+00:00")),
        ("2026-06-01T12:00:00Z", 2, Some("2026-06-06T20:00:00+00:00")),
        ("2026-06-06T21:00:00Z", 2, None),
        ("2026-06-01T22:00:00Z", 9, None),
    ] {
        let room = both.room(at.parse().unwrap(), SignedDuration::from_hours(hours));
        let room = room.map(|moment| moment.to_string());
        assert_eq!(room.as_deref(), expected, "{hours} h at {at}");
    }
    let now = "2026-06-01T22:00:00Z".parse().unwrap();
    let none = Windows::default();
    assert_eq!(none.room(now, SignedDuration::from_hours(9)), None);
}
