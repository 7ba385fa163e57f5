//! `trace-svg`: a trace becomes a picture, and what is none is refused.

use std::path::PathBuf;

use super::tiny::run;

#[test]
fn a_trace_is_drawn() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trace-svg");
    std::fs::create_dir_all(&folder).unwrap();
    let good = folder.join("good.json");
    let bad = folder.join("bad.json");
    let events = r#"[{"ph":"M","pid":1,"tid":0,"ts":0,"name":"thread_name","args":{"name":"worker 0"}},
        {"ph":"X","pid":1,"tid":0,"ts":1,"dur":8,"name":"main","cat":"fiber","args":{"then":"ended"}}]"#;

    std::fs::write(&good, format!("{{\"traceEvents\":{events}}}")).unwrap();
    std::fs::write(&bad, "{}").unwrap();
    let (code, said) = run(&["trace-svg", good.to_str().unwrap()]);

    assert_eq!(code, Some(0), "{said}");
    let svg = std::fs::read_to_string(folder.join("good.svg")).unwrap();
    assert!(
        svg.contains("<title>main: 8.000 \u{b5}s, ended</title>"),
        "{svg}"
    );

    for (file, complaint) in [
        (bad.to_str().unwrap(), "is not a trace"),
        ("/nowhere", "cannot read /nowhere"),
    ] {
        let (code, said) = run(&["trace-svg", file]);
        assert!(code == Some(1) && said.contains(complaint), "{said}");
    }
}
