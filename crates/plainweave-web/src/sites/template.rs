//! Where a redirect or a rewrite leads: a text with places for what the rule's regular expression
//! took.

use plainweave_http::files::push_encoded;
use regex::Captures;

/// A text with places in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template {
    parts: Vec<TemplatePart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    /// The whole path.
    Path,
    Number(usize),
    Name(String),
}

impl Template {
    /// Takes a text apart: `$1`, `$name` and `${name}` are what was taken, `$path` is the path,
    /// `$$` a dollar. `has` says whether the expression takes something by that number or name.
    pub(super) fn parse(text: &str, has: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            push_text(&mut parts, &rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(behind) = rest.strip_prefix('$') {
                push_text(&mut parts, "$");
                rest = behind;
                continue;
            }
            let (name, behind) = named(rest);
            if name.is_empty() {
                return Err("write $$ for a dollar, or a name or a number behind it".to_owned());
            }
            if name != "path" && !has(name) {
                return Err(format!(
                    "${name}: the rule's regex takes nothing by that name or number"
                ));
            }
            parts.push(match name.parse() {
                Ok(number) => TemplatePart::Number(number),
                Err(_) if name == "path" => TemplatePart::Path,
                Err(_) => TemplatePart::Name(name.to_owned()),
            });
            rest = behind;
        }

        push_text(&mut parts, rest);
        Ok(Self { parts })
    }

    /// Returns whether the text has this character as it is.
    pub(super) fn contains(&self, character: char) -> bool {
        let texts = self.parts.iter();
        texts
            .filter_map(|part| match part {
                TemplatePart::Text(text) => Some(text),
                _ => None,
            })
            .any(|text| text.contains(character))
    }

    /// Fills the places in, percent-encoded: a path has no character then that begins something
    /// else in a URL, or ends a header line.
    pub(super) fn fill(&self, path: &[u8], captures: Option<&Captures<'_>>) -> String {
        let mut filled = String::new();
        for part in &self.parts {
            let taken = match part {
                TemplatePart::Text(text) => {
                    filled.push_str(text);
                    continue;
                }
                TemplatePart::Path => Some(path),
                TemplatePart::Number(number) => captures
                    .and_then(|taken| taken.get(*number))
                    .map(|taken| taken.as_str().as_bytes()),
                TemplatePart::Name(name) => captures
                    .and_then(|taken| taken.name(name))
                    .map(|taken| taken.as_str().as_bytes()),
            };
            push_encoded(&mut filled, taken.unwrap_or_default());
        }

        filled
    }
}

/// Splits behind a name, which may have braces.
fn named(text: &str) -> (&str, &str) {
    if let Some((name, behind)) = text
        .strip_prefix('{')
        .and_then(|inside| inside.split_once('}'))
    {
        return (name, behind);
    }

    let end = text.find(|end: char| !end.is_ascii_alphanumeric() && end != '_');
    text.split_at(end.unwrap_or(text.len()))
}

fn push_text(parts: &mut Vec<TemplatePart>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(TemplatePart::Text(last)) => last.push_str(text),
        _ => parts.push(TemplatePart::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn places_are_filled_with_what_was_taken() {
        let regex = Regex::new("^/(?<year>[0-9]+)/(.*)$").unwrap();
        let path = "/2026/a b/ü?\r";
        let captures = regex.captures(path);
        for (text, filled) in [
            ("/x/$year/$2", "/x/2026/a%20b/%C3%BC%3F%0D"),
            ("/${year}s$$1", "/2026s$1"),
            ("https://h$path", "https://h/2026/a%20b/%C3%BC%3F%0D"),
            ("/", "/"),
        ] {
            let has = |name: &str| matches!(name, "year" | "1" | "2");
            let template = Template::parse(text, has).unwrap();
            assert_eq!(
                template.fill(path.as_bytes(), captures.as_ref()),
                filled,
                "{text}"
            );
        }
    }

    #[test]
    fn places_of_nothing_are_refused() {
        for text in ["/$", "/$3", "/$nothing", "/${}", "/$ "] {
            assert!(Template::parse(text, |name| name == "1").is_err(), "{text}");
        }
    }
}
