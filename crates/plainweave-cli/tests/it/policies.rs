//! `--policy` and `plainweave policies`, as their users run them.

use crate::common::child;
use std::process::Command;

fn plainweave(args: &[&str]) -> (Option<i32>, String, String) {
    let output = child::output(Command::new(env!("CARGO_BIN_EXE_plainweave")).args(args)).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn all_are_listed() {
    let (code, table, said) = plainweave(&["policies"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    for preset in plainweave::policy::PRESETS {
        let line = table
            .lines()
            .find(|line| line.split_whitespace().next() == Some(preset.name));
        assert!(line.is_some(), "{}: {table}", preset.name);
    }

    assert!(table.lines().all(|line| line.len() <= 100), "{table}");
}

#[test]
fn the_list_is_had_as_json() {
    let (code, text, _) = plainweave(&["policies", "--json"]);
    let list: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, list.as_array().unwrap().len()),
        (Some(0), plainweave::policy::PRESETS.len())
    );
    assert_eq!(list[0]["name"], "fifo");
    assert_eq!(list[0]["bounded"], true);
    let conserves = |name| {
        list.as_array()
            .unwrap()
            .iter()
            .find(|preset| preset["name"] == name)
            .unwrap()["conservation"]
            .clone()
    };

    for (name, class) in [
        ("fifo", "always"),
        ("ot-fifo-near-13", "after-searches"),
        ("local-fifo", "never"),
    ] {
        assert_eq!(conserves(name), class, "{name}");
    }

    assert!(
        list[0]["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .any(|p| p["name"] == "victim")
    );
}

#[test]
fn one_is_shown_with_its_parameters() {
    let (code, text, _) = plainweave(&["policies", "helping"]);
    assert_eq!(code, Some(0));
    for part in [
        "CFA",
        "factor=1..1000",
        "every=0..65535",
        "hard bound",
        "no worker sleeps beside work",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn what_is_wrong_is_told_with_what_is_valid() {
    let (code, _, said) = plainweave(&["policies", "fivo"]);
    assert!(
        code == Some(1) && said.contains("'fivo'") && said.contains("fifo, lifo-slot"),
        "{said}"
    );
    let (code, _, said) = plainweave(&["web", "--policy", "fivo"]);
    assert!(
        code == Some(2) && said.contains("'fivo'") && said.contains("fifo, lifo-slot"),
        "{said}"
    );
    let (code, _, said) = plainweave(&["web", "--policy", "fifo:poll=0"]);

    assert!(code == Some(2) && said.contains("1..65535"), "{said}");
}
