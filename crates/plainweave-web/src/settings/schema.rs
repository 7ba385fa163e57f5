//! `--print-schema`: the JSON schema of the file, for editors that complete and check what one
//! writes.

use clap::{Arg, ArgAction};
use schemars::schema_for;
use serde_json::{Map, Value, json};

use super::gathered::{all, command, takes_nothing};
use crate::config::Tables;

/// Returns the schema: the tables', with the flags' settings beside them.
pub(crate) fn schema() -> Value {
    let mut schema = Value::from(schema_for!(Tables));
    let command = command();
    let settings = all(&command).map(|(name, argument)| (name, setting(argument)));
    let settings: Map<_, _> = settings.collect();
    if let Some(tables) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        tables.extend(settings);
    }

    schema["title"] = json!("plainweave web");
    schema["description"] = json!("The configuration of plainweave web --config FILE.");
    schema
}

fn setting(argument: &Arg) -> Value {
    let one = json!(["string", "number"]);
    let mut setting = match argument.get_action() {
        ArgAction::SetTrue => json!({ "type": "boolean" }),
        ArgAction::Append => json!({
            "anyOf": [{ "type": one }, { "type": "array", "items": { "type": one } }],
        }),
        _ if takes_nothing(argument) => json!({ "type": ["string", "number", "boolean"] }),
        _ => json!({ "type": one }),
    };

    if let Some(help) = argument.get_help() {
        setting["description"] = json!(help.to_string());
    }
    let mut defaults = argument.get_default_values().iter();
    if let Some(default) = defaults.next().filter(|_| setting["type"] != "boolean") {
        setting["default"] = json!(default.to_string_lossy());
    }
    setting
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;
    use std::path::PathBuf;

    use super::super::shown::wrapped;
    use super::*;

    /// The reference as a page: the settings in the order of `--help`, then the tables.
    fn reference(schema: &Value) -> String {
        let mut page = String::from(
            "# The file of `plainweave web --config`\n\n\
             Made of the program's own schema (`--print-schema`); a test says when it is not\n\
             current. [A whole site](../web-sites.md) says what it is for.\n",
        );
        section(&mut page, "Settings", schema, &["site", "rule"]);
        let tables = [
            ("`[[site]]`", "SiteTable"),
            ("`[[rule]]` and `[[site.rule]]`", "RuleTable"),
            ("`cors`", "CorsTable"),
            ("`basic-auth`", "BasicAuthTable"),
            ("`rate`", "RateTable"),
        ];
        for (title, name) in tables {
            section(&mut page, title, &schema["$defs"][name], &[]);
        }
        page
    }

    fn section(page: &mut String, title: &str, table: &Value, others: &[&str]) {
        let _ = write!(page, "\n## {title}\n\n");
        let text = table["description"].as_str().filter(|_| others.is_empty());
        for line in text.iter().flat_map(|text| wrapped(text)) {
            let _ = writeln!(page, "{line}");
        }
        if text.is_some() {
            page.push('\n');
        }

        let required = table["required"].as_array().cloned().unwrap_or_default();
        let keys = table["properties"].as_object().expect("it is a table");
        for (key, value) in keys
            .iter()
            .filter(|(key, _)| !others.contains(&key.as_str()))
        {
            let text = value["description"].as_str().unwrap_or_default();
            let must = if required.contains(&json!(key)) {
                "; required"
            } else {
                ""
            };
            let default = match value["default"].as_str() {
                Some(default) => format!(" [default: {default}]"),
                None => String::new(),
            };
            let item = format!("* `{key}` ({}{must}): {text}{default}", kind(value));
            for (number, line) in wrapped(&item).into_iter().enumerate() {
                let indent = if number == 0 { "" } else { "  " };
                let _ = writeln!(page, "{indent}{line}");
            }
        }
    }

    /// In a word, what a value is.
    fn kind(value: &Value) -> String {
        let either = value["anyOf"]
            .as_array()
            .or_else(|| value["oneOf"].as_array());
        if let Some(either) = either {
            let kinds: Vec<_> = either
                .iter()
                .map(kind)
                .filter(|kind| kind != "null")
                .collect();
            return kinds.join(" or ");
        }
        if let Some(name) = value["$ref"].as_str() {
            let name = name.rsplit('/').next().unwrap_or_default();
            return match name {
                "Compress" => "boolean or string".to_owned(),
                "OneOrMany" => "string or array".to_owned(),
                _ => "table".to_owned(),
            };
        }
        let named = |kind: &str| match kind {
            "object" => "table".to_owned(),
            kind => kind.to_owned(),
        };
        match &value["type"] {
            Value::String(kind) => named(kind),
            Value::Array(kinds) => {
                let kinds = kinds.iter().filter_map(Value::as_str);
                let kinds: Vec<_> = kinds.filter(|kind| *kind != "null").map(named).collect();
                kinds.join(" or ")
            }
            _ => "any".to_owned(),
        }
    }

    #[test]
    fn the_reference_is_current() {
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/web.md");
        let page = reference(&schema());
        if std::env::var_os("WRITE_REFERENCE").is_some() {
            std::fs::write(&file, &page).expect("written");
        }
        let there = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            there == page,
            "docs/reference/web.md is not current: \
             WRITE_REFERENCE=1 cargo test -p plainweave-web the_reference_is_current"
        );
    }

    /// Nobody can guess what a key without a word is for.
    #[test]
    fn each_key_is_explained() {
        let schema = schema();
        let mut tables = vec![&schema];
        tables.extend(schema["$defs"].as_object().expect("definitions").values());
        for table in tables {
            let keys = table["properties"].as_object().into_iter().flatten();
            for (key, value) in keys {
                let text = value["description"].as_str().unwrap_or_default();
                assert!(text.len() > 10, "{key} is not explained");
            }
        }
    }
}
