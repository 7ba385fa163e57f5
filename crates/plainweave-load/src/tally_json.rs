//! What was counted, as JSON: histograms as pairs of a value and its count, the rest as numbers.
//!
//! HdrHistogram's own form would be shorter. But a few bytes of it claim any size, and its reader
//! takes that memory: what an agent sends is read into a histogram of ours instead, which no value
//! makes larger than half a megabyte.

use anyhow::{Context, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::tally::{Failure, Tally};

/// Writes a tally.
pub(super) fn write(tally: &mut Tally) -> Value {
    let failures: Vec<_> = tally
        .failures
        .by_kind()
        .map(|(failure, count)| json!([failure.code(), count]))
        .collect();
    let statuses: Vec<_> = tally
        .statuses
        .by_status()
        .map(|(status, count)| json!([status, count]))
        .collect();
    json!({
        "latency": pairs(&tally.latency),
        "lateness": pairs(&tally.lateness),
        "connect": pairs(&tally.connect),
        "handshake": pairs(&tally.handshake),
        "failures": failures,
        "statuses": statuses,
        "counts": counts(tally).map(|count| *count),
        "last": tally.last,
    })
}

/// Reads a tally. All that it counts is taken from `room`, so that no sum of several overflows.
pub(super) fn read(value: &Value, room: &mut u64) -> anyhow::Result<Tally> {
    let mut tally = Tally::new();
    let mut take = |count: u64| -> anyhow::Result<u64> {
        *room = room
            .checked_sub(count)
            .context("more is counted than can be")?;
        Ok(count)
    };

    let Tally {
        latency,
        lateness,
        connect,
        handshake,
        ..
    } = &mut tally;
    for (histogram, name) in [
        (latency, "latency"),
        (lateness, "lateness"),
        (connect, "connect"),
        (handshake, "handshake"),
    ] {
        for (value, count) in pairs_of(&value[name])? {
            histogram.record_n(value, take(count)?)?;
        }
    }

    for (code, count) in pairs_of(&value["failures"])? {
        tally.failures.add(
            Failure::of_code(code).context("an unknown kind of failure")?,
            take(count)?,
        );
    }

    for (status, count) in pairs_of(&value["statuses"])? {
        let status = u16::try_from(status)
            .ok()
            .filter(|status| *status < 1000)
            .context("a status")?;
        tally.statuses.add(status, take(count)?);
    }

    let given = value["counts"].as_array().context("no counts")?;
    let own = counts(&mut tally);
    ensure!(given.len() == own.len(), "counts of another version");
    for (own, given) in own.into_iter().zip(given) {
        *own = take(given.as_u64().context("a count")?)?;
    }
    tally.last = value["last"]
        .as_u64()
        .context("no time of the last answer")?;

    Ok(tally)
}

/// The plain numbers, in the order in which they are sent.
fn counts(tally: &mut Tally) -> [&mut u64; 10] {
    let Tally {
        ok,
        ok_in_time,
        answers_in_time,
        warming,
        unanswered,
        misses,
        bytes,
        ..
    } = tally;
    let Tally {
        reconnects,
        failed_connects,
        resumed,
        ..
    } = tally;
    [
        ok,
        ok_in_time,
        answers_in_time,
        warming,
        unanswered,
        misses,
        bytes,
        reconnects,
        failed_connects,
        resumed,
    ]
}

fn pairs(histogram: &Histogram<u64>) -> Vec<[u64; 2]> {
    histogram
        .iter_recorded()
        .map(|step| [step.value_iterated_to(), step.count_at_value()])
        .collect()
}

fn pairs_of(value: &Value) -> anyhow::Result<Vec<(u64, u64)>> {
    let all = value.as_array().context("no list")?.iter();
    all.map(|pair| {
        pair[0]
            .as_u64()
            .zip(pair[1].as_u64())
            .context("no pair of numbers")
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut tally = Tally::new();
        for n in 0..1000 {
            tally.answered(n * n * 1000);
            tally.late(n);
            tally.connect.record(n).unwrap();
            tally.handshake.record(2 * n).unwrap();
        }

        for (n, failure) in Failure::ALL
            .into_iter()
            .chain([Failure::Status(503), Failure::GoneAway(11)])
            .enumerate()
        {
            tally.failures.add(failure, n as u64 + 1);
        }
        tally.statuses.add(200, 7);
        for (n, count) in counts(&mut tally).into_iter().enumerate() {
            *count = n as u64 + 10;
        }
        tally.last = 7;
        let mut room = 1_000_000;
        let mut read = read(&write(&mut tally), &mut room).unwrap();

        assert_eq!(read.latency, tally.latency);
        assert_eq!(read.lateness, tally.lateness);
        assert_eq!(
            (&read.connect, &read.handshake),
            (&tally.connect, &tally.handshake)
        );
        assert_eq!(read.failures.to_string(), tally.failures.to_string());
        assert_eq!(read.statuses.to_string(), "200 OK: 7");
        assert_eq!(
            (counts(&mut read).map(|count| *count), read.last),
            ([10, 11, 12, 13, 14, 15, 16, 17, 18, 19], 7)
        );
        let failures = tally.failures.total();

        assert_eq!(
            room,
            1_000_000 - 4 * 1000 - failures - 7 - (10..=19).sum::<u64>()
        );
        let empty = super::read(&write(&mut Tally::new()), &mut 0).unwrap();
        assert!(empty.latency.is_empty() && empty.failures.total() == 0);
    }

    #[test]
    fn what_is_none_is_refused() {
        let good = write(&mut Tally::new());
        for (name, value) in [
            ("latency", json!("x")),
            ("latency", json!([[1]])),
            ("latency", json!([[1, -1]])),
            // HdrHistogram's own form, with a payload of 4 GB.
            ("latency", json!("HISTEwAAAAb//////wAAAAAAAAAD")),
            ("lateness", Value::Null),
            ("lateness", json!([[1, 600], [2, 600]])),
            ("failures", json!([[0, u64::MAX]])),
            ("failures", json!([[5000, 1]])),
            ("failures", json!([1])),
            ("statuses", json!([[1000, 1]])),
            ("statuses", json!([[70_000, 1]])),
            ("counts", json!([1])),
            ("counts", json!([0, 1, 2, 3, 4, 5, 6, 7, 8, "x"])),
            ("counts", json!([1000, 1, 0, 0, 0, 0, 0, 0, 0, 0])),
            ("last", json!(-1)),
        ] {
            let mut bad = good.clone();
            bad[name] = value;
            assert!(read(&bad, &mut 1000).is_err(), "{bad}");
        }
        assert!(read(&Value::Null, &mut 1000).is_err());
    }

    #[test]
    fn no_value_makes_a_histogram_large() {
        let mut bad = write(&mut Tally::new());
        bad["latency"] = json!([[u64::MAX, 1], [0, 1]]);
        let read = read(&bad, &mut 2).unwrap();
        assert!(
            read.latency.distinct_values() * size_of::<u64>() < 512 << 10,
            "{}",
            read.latency.distinct_values()
        );
    }
}
