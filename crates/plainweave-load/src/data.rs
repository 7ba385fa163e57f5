//! A file with a request a line, for data that differs by request: JSON objects, or CSV with a head.

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// One line. What it leaves out is as the flags say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// `FILE:LINE`, for messages.
    pub(super) place: String,
    /// Whole, or a path on the server that is named.
    pub(super) url: Option<String>,
    pub(super) method: Option<String>,
    pub(super) body: Option<String>,
    /// Names and values.
    pub(super) fields: Vec<(String, String)>,
}

/// Reads the lines of a file of that name: CSV if it ends so, else JSON.
///
/// # Errors
/// There is none, or one is no such line; the message says which, and what it should be.
pub(super) fn parse(file: &str, text: &str) -> anyhow::Result<Vec<Row>> {
    let rows = if file.to_ascii_lowercase().ends_with(".csv") {
        of_csv(file, text)?
    } else {
        of_json(file, text)?
    };

    ensure!(!rows.is_empty(), "{file}: there is no request in it");
    Ok(rows)
}

fn of_json(file: &str, text: &str) -> anyhow::Result<Vec<Row>> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let rows = lines.filter(|(_, line)| !line.is_empty()).map(|(n, line)| {
        let place = format!("{file}:{n}");
        let object = serde_json::from_str(line).with_context(|| {
            format!("{place}: write a JSON object a line (a file of CSV is named so: {file}.csv)")
        })?;
        let Value::Object(object) = object else {
            bail!("{place}: this is no JSON object, as {{\"url\": \"/\"}} is");
        };
        let mut row = Row {
            place,
            ..Row::default()
        };

        for (key, value) in object {
            match key.as_str() {
                "url" => row.url = Some(string(&row.place, &key, value)?),
                "method" => row.method = Some(string(&row.place, &key, value)?),
                "body" => row.body = text_of(value),
                "headers" => row.fields = fields(&row.place, value)?,
                _ => bail!(
                    "{}: '{key}' is none of url, method, body and headers",
                    row.place
                ),
            }
        }

        Ok(row)
    });
    rows.collect()
}

fn string(place: &str, key: &str, value: Value) -> anyhow::Result<String> {
    match value {
        Value::String(text) => Ok(text),
        _ => bail!("{place}: {key} must be a string"),
    }
}

/// Returns a body: a string as it is, another value as JSON.
fn text_of(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        _ => Some(value.to_string()),
    }
}

fn fields(place: &str, value: Value) -> anyhow::Result<Vec<(String, String)>> {
    let Value::Object(fields) = value else {
        bail!("{place}: headers must be an object, as {{\"Accept\": \"*/*\"}} is");
    };
    let field = |(name, value)| Ok((String::clone(&name), string(place, &name, value)?));
    fields.into_iter().map(field).collect()
}

fn of_csv(file: &str, text: &str) -> anyhow::Result<Vec<Row>> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::Headers)
        .from_reader(text.as_bytes());
    let head = reader.headers().with_context(|| file.to_owned())?.clone();
    let known = ["url", "method", "body"];
    ensure!(
        head.iter().any(|name| known.contains(&name)),
        "{file}:1: the first line names the columns: url, method, body, and header fields"
    );
    let row = |record: Result<csv::StringRecord, csv::Error>| {
        // The error says on which line.
        let record = record.with_context(|| file.to_owned())?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut row = Row {
            place: format!("{file}:{line}"),
            ..Row::default()
        };

        let cells = head.iter().zip(&record);
        for (name, cell) in cells.filter(|(_, cell)| !cell.is_empty()) {
            let cell = cell.to_owned();
            match name {
                "url" => row.url = Some(cell),
                "method" => row.method = Some(cell),
                "body" => row.body = Some(cell),
                _ => row.fields.push((name.to_owned(), cell)),
            }
        }

        Ok(row)
    };

    reader.records().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_csv_say_the_same() {
        let json = r#"
            {"url": "/a", "method": "PUT", "body": "one, \"two\"", "headers": {"X-Id": "7"}}

            {"url": "http://h/b"}
        "#;
        let csv = "url,method,body,X-Id\n/a,PUT,\"one, \"\"two\"\"\",7\nhttp://h/b,,,\n";
        let rows = parse("d.jsonl", json).unwrap();
        let without_place = |rows: Vec<Row>| -> Vec<Row> {
            let row = |row| Row {
                place: String::new(),
                ..row
            };
            rows.into_iter().map(row).collect()
        };
        assert_eq!(rows[1].place, "d.jsonl:4");
        assert_eq!(
            without_place(rows),
            without_place(parse("d.csv", csv).unwrap())
        );
        assert_eq!(
            parse("d", r#"{"body": {"n": [1, 2]}}"#).unwrap()[0].body,
            Some(r#"{"n":[1,2]}"#.to_owned())
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (file, text, what) in [
            ("d", "{}\nhttp://h/", "d:2: write a JSON object a line"),
            ("d", "[]", "d:1: this is no JSON object"),
            ("d", "{\"url\": 1}", "d:1: url must be a string"),
            ("d", "{\"uri\": \"/\"}", "d:1: 'uri' is none of url,"),
            ("d", "{\"headers\": []}", "d:1: headers must be an object"),
            ("d", "\n", "d: there is no request"),
            ("d.csv", "/a\n/b\n", "d.csv:1: the first line names"),
            ("d.csv", "url\n", "d.csv: there is no request"),
            ("d.csv", "url,method\n/a,GET\n/b\n", "line: 3"),
        ] {
            let error = format!("{:#}", parse(file, text).unwrap_err());
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
