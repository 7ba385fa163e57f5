//! What was counted, as JSON: histograms in HdrHistogram's compressed form, the rest as numbers.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde_json::{Value, json};

use super::tally::{Failure, Tally};

/// Writes a tally.
pub(super) fn write(tally: &mut Tally) -> anyhow::Result<Value> {
    let failures: Vec<_> = tally.failures.by_kind().map(|(failure, count)| json!([failure.code(), count])).collect();
    let statuses: Vec<_> = tally.statuses.by_status().map(|(status, count)| json!([status, count])).collect();
    Ok(json!({
        "latency": histogram(&tally.latency)?,
        "lateness": histogram(&tally.lateness)?,
        "failures": failures,
        "statuses": statuses,
        "counts": counts(tally).map(|count| *count),
    }))
}

/// Reads a tally.
pub(super) fn read(value: &Value) -> anyhow::Result<Tally> {
    let mut tally = Tally::new();
    tally.latency.add(&histogram_of(&value["latency"])?)?;
    tally.lateness.add(&histogram_of(&value["lateness"])?)?;
    for (code, count) in pairs(&value["failures"])? {
        tally.failures.add(Failure::of_code(code).context("an unknown kind of failure")?, count);
    }
    for (status, count) in pairs(&value["statuses"])? {
        tally.statuses.add(u16::try_from(status).context("a status")?, count);
    }
    let given = value["counts"].as_array().context("no counts")?;
    let own = counts(&mut tally);
    anyhow::ensure!(given.len() == own.len(), "counts of another version");
    for (own, given) in own.into_iter().zip(given) {
        *own = given.as_u64().context("a count")?;
    }
    Ok(tally)
}

/// The plain numbers, in the order in which they are sent.
fn counts(tally: &mut Tally) -> [&mut u64; 9] {
    let Tally { ok, ok_in_time, answers_in_time, warming, unanswered, misses, bytes, reconnects, last, .. } = tally;
    [ok, ok_in_time, answers_in_time, warming, unanswered, misses, bytes, reconnects, last]
}

fn pairs(value: &Value) -> anyhow::Result<Vec<(u64, u64)>> {
    let all = value.as_array().context("no list")?.iter();
    all.map(|pair| pair[0].as_u64().zip(pair[1].as_u64()).context("no pair of numbers")).collect()
}

fn histogram(histogram: &Histogram<u64>) -> anyhow::Result<Value> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).context("cannot write a histogram")?;
    Ok(json!(STANDARD.encode(bytes)))
}

fn histogram_of(value: &Value) -> anyhow::Result<Histogram<u64>> {
    let bytes =
        STANDARD.decode(value.as_str().context("no histogram")?).context("a histogram that is not in base64")?;
    Deserializer::new().deserialize(&mut bytes.as_slice()).context("a histogram that cannot be read")
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
        }
        for (n, failure) in Failure::ALL.into_iter().chain([Failure::Status(503)]).enumerate() {
            tally.failures.add(failure, n as u64 + 1);
        }
        tally.statuses.add(200, 7);
        for (n, count) in counts(&mut tally).into_iter().enumerate() {
            *count = n as u64 + 10;
        }
        let mut read = read(&write(&mut tally).unwrap()).unwrap();
        assert_eq!(read.latency, tally.latency);
        assert_eq!(read.lateness, tally.lateness);
        assert_eq!(read.failures.to_string(), tally.failures.to_string());
        assert_eq!(read.statuses.to_string(), "200 OK: 7");
        assert_eq!(counts(&mut read).map(|count| *count), [10, 11, 12, 13, 14, 15, 16, 17, 18]);
        let empty = super::read(&write(&mut Tally::new()).unwrap()).unwrap();
        assert!(empty.latency.is_empty() && empty.failures.total() == 0);
    }

    #[test]
    fn what_is_none_is_refused() {
        let good = write(&mut Tally::new()).unwrap();
        for (name, value) in [
            ("latency", json!("x")),
            ("latency", json!("AAAA")),
            ("lateness", Value::Null),
            ("failures", json!([[5000, 1]])),
            ("failures", json!([1])),
            ("statuses", json!([[70_000, 1]])),
            ("counts", json!([1])),
            ("counts", json!([0, 1, 2, 3, 4, 5, 6, 7, "x"])),
        ] {
            let mut bad = good.clone();
            bad[name] = value;
            assert!(read(&bad).is_err(), "{bad}");
        }
        assert!(read(&Value::Null).is_err());
    }
}
