//! What is wrong with a file, and where: line and column, and the nearest name where one is
//! unknown.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use toml::de::Error;

/// How alike two names are at least, from 0 to 1, where one is meant for the other.
const ALIKE: f64 = 0.7;

/// A mistake in a part of the file's text.
#[derive(Clone, Debug)]
pub(crate) struct Mistake {
    /// In bytes.
    span: Range<usize>,
    what: String,
}

impl Mistake {
    pub(crate) fn new(span: Range<usize>, what: impl Into<String>) -> Self {
        Self {
            span,
            what: what.into(),
        }
    }

    /// Says it as people and editors read it.
    pub(crate) fn of(self, file: &Path, text: &str) -> MistakeAt {
        let before = &text[..self.span.start.min(text.len())];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        MistakeAt(format!("{}:{line}:{column}: {}", file.display(), self.what))
    }
}

impl From<Error> for Mistake {
    fn from(error: Error) -> Self {
        let span = error.span().unwrap_or_default();
        Self::new(span, unknown(error.message()).replace('\n', "; "))
    }
}

/// A mistake, and where it is.
#[derive(Debug)]
pub(crate) struct MistakeAt(String);

impl fmt::Display for MistakeAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MistakeAt {}

/// Says which known name is meant, where the message is about one that is not known.
fn unknown(message: &str) -> String {
    let mut names = message.split('`').skip(1).step_by(2);
    let Some(name) = names
        .next()
        .filter(|_| message.starts_with("unknown field"))
    else {
        return message.to_owned();
    };

    let known: Vec<_> = names.collect();
    let what = format!("unknown key `{name}`");
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("{what}; is `{near}` meant?"),
        None => format!("{what}; known here: {}", known.join(", ")),
    }
}

/// Returns the name that is most like this one, if it is much like it.
pub(crate) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let name = name.replace('_', "-").to_lowercase();
    let alike = known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(&name, known), known));
    let best = alike.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    (best.0 >= ALIKE).then_some(best.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_are_counted_in_characters() {
        let text = "a = 1\n# ü\nü = é\n";
        let at = text.find('é').expect("there");
        let wrong = Mistake::new(at..at + 2, "no value").of(Path::new("f.toml"), text);
        assert_eq!(wrong.to_string(), "f.toml:3:5: no value");
        let behind = Mistake::new(99..99, "end").of(Path::new("f"), "a\n");
        assert_eq!(behind.to_string(), "f:2:1: end");
    }

    #[test]
    fn the_name_that_is_meant_is_found() {
        let known = ["access-log", "listen", "listing"];
        for (name, near) in [
            ("acces-log", Some("access-log")),
            ("access_log", Some("access-log")),
            ("Listen", Some("listen")),
            ("quux", None),
        ] {
            assert_eq!(nearest(name, known), near, "{name}");
        }

        let message = "unknown field `roots`, expected `root` or `names`";
        assert_eq!(unknown(message), "unknown key `roots`; is `root` meant?");
        assert_eq!(unknown("missing field `root`"), "missing field `root`");
    }
}
