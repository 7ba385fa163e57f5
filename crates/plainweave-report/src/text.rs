//! Text in pictures: how wide it is at most, where it is broken, and numbers as people read them.

use std::fmt::Write as _;

/// Makes text harmless between the tags of HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Makes text harmless in an attribute, within quotation marks of either kind.
pub fn attribute(text: &str) -> String {
    escape(text).replace('\'', "&#39;").replace('"', "&quot;")
}

/// Returns how wide a text is at most, in pixels, in a sans-serif font of this size.
///
/// A page does not know its reader's font, so each letter counts as wide as the widest of the usual
/// ones (Verdana, DejaVu Sans) has it or the like.
pub fn width(text: &str, size: f64) -> f64 {
    let ems = text.chars().map(|c| match c {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.46,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '/' | '-' => 0.46,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.08,
        'A'..='Z' | '+' | '=' | '<' | '>' | '~' | '&' | '#' | '^' => 0.83,
        '\u{b5}' => 0.68,
        c if c.is_ascii() => 0.64,
        _ => 1.08,
    });
    ems.sum::<f64>() * size
}

/// Breaks a text into lines that have room: between words, else within them.
pub fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let line = lines.last_mut().expect("there is always one");
        let longer = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };

        if width(&longer, size) <= room {
            *line = longer;
            continue;
        }

        if !line.is_empty() {
            lines.push(String::new());
        }
        for c in word.chars() {
            let line = lines.last_mut().expect("there is always one");
            if !line.is_empty()
                && width(line, size) + width(c.encode_utf8(&mut [0; 4]), size) > room
            {
                lines.push(String::new());
            }
            lines.last_mut().expect("there is always one").push(c);
        }
    }
    lines
}

/// Where a text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At its place, and leads to the right.
    Left,
    /// Its middle is at its place.
    Middle,
    /// It ends at its place.
    Right,
}

/// Writes one line of text; `faint`: as an axis has it.
pub fn write(
    svg: &mut String,
    (x, y): (f64, f64),
    align: Align,
    size: f64,
    faint: bool,
    text: &str,
) {
    let align = match align {
        Align::Left => "",
        Align::Middle => " text-anchor='middle'",
        Align::Right => " text-anchor='end'",
    };

    let faint = if faint { " class='faint'" } else { "" };
    let _ = write!(
        svg,
        "<text{faint} x='{x:.1}' y='{y:.1}' font-size='{size}'{align}>{}</text>",
        escape(text)
    );
}

/// Three significant digits, without zeros at the end.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        big if big >= 99.95 => 0,
        big if big >= 9.995 => 1,
        big if big >= 0.9995 => 2,
        big if big > 0.0 => ((2.0 - big.log10().floor()) as usize).min(9),
        _ => 0,
    };

    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

const TIMES: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("\u{b5}s", 1e3), ("ns", 1.0)];
const BYTES: [(&str, f64); 4] = [("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)];
const LETTERS: [(&str, f64); 4] = [("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];

/// Writes a value in a unit that makes it a short number.
pub fn humane(value: f64, unit: &str) -> String {
    if value.is_nan() {
        return "no value".to_owned();
    }
    let scale = |table: &[(&'static str, f64); 4], value: f64| {
        // What rounds up to the next unit belongs there.
        let found = table.iter().find(|(_, size)| value.abs() >= size * 0.9995);
        let (name, size) = found.copied().unwrap_or(table[3]);
        (
            if value.is_infinite() {
                "\u{221e}".to_owned()
            } else {
                digits(value / size)
            },
            name,
        )
    };

    let (table, value, rest) = match unit {
        "ns" => (&TIMES, value, ""),
        "us" => (&TIMES, value * 1e3, ""),
        "ms" => (&TIMES, value * 1e6, ""),
        "s" => (&TIMES, value * 1e9, ""),
        "B" => (&BYTES, value, ""),
        "MB" => (&BYTES, value * 1e6, ""),
        "1" | "count" | "items" | "" => (&LETTERS, value, ""),
        "1/s" => (&LETTERS, value, "/s"),
        "1/cpu-s" => (&LETTERS, value, " per s of CPU"),
        other => (&LETTERS, value, other),
    };

    let (number, name) = scale(table, value);
    let gap = if rest == "/s" || rest.starts_with(' ') || rest.is_empty() {
        ""
    } else {
        " "
    };

    let after = format!("{name}{gap}{rest}");
    let after = after.trim_end();
    if after.is_empty() || after == "/s" || after.starts_with(' ') {
        format!("{number}{after}")
    } else {
        format!("{number} {after}")
    }
}

/// Writes a ratio: `2.1x`.
pub fn times(ratio: f64) -> String {
    format!(
        "{}\u{d7}",
        if ratio.is_infinite() {
            "\u{221e}".to_owned()
        } else {
            digits(ratio)
        }
    )
}

#[cfg(test)]
mod tests {
    use super::{attribute, escape, humane, times, width, wrap};

    #[test]
    fn values_are_short_and_have_their_unit() {
        let is = |value, unit, text: &str| assert_eq!(humane(value, unit), text);
        is(8.61, "us", "8.61 \u{b5}s");
        is(999.97, "us", "1 ms");
        is(211_288.063, "us", "211 ms");
        is(0.4, "ns", "0.4 ns");
        is(54_118.02, "1/s", "54.1 k/s");
        is(12.0, "1/s", "12/s");
        is(17_416_192.0, "B", "17.4 MB");
        is(0.0, "1", "0");
        is(0.012_34, "1", "0.0123");
        is(5_471_118.0, "count", "5.47 M");
        is(27_549_929.6, "1/cpu-s", "27.5 M per s of CPU");
        is(4067.0, "MiB/s", "4.07 k MiB/s");
        is(12.5, "%", "12.5 %");
        is(100.0, "%", "100 %");
        is(f64::INFINITY, "us", "\u{221e} s");
        is(f64::NAN, "us", "no value");
        assert_eq!(times(2.104), "2.1\u{d7}");
    }

    #[test]
    fn quotation_marks_end_no_attribute() {
        assert_eq!(escape("it's <b> & \"c\""), "it's &lt;b&gt; &amp; \"c\"");
        assert_eq!(attribute("it's \"c\" <"), "it&#39;s &quot;c&quot; &lt;");
    }

    #[test]
    fn lines_have_room_and_lose_nothing() {
        for text in [
            "plainweave ot-stochastic-20 before-start/shared",
            "a",
            "",
            "one-very-long-word-without-a-space",
        ] {
            for room in [20.0, 60.0, 300.0] {
                let lines = wrap(text, 12.0, room);
                assert!(
                    lines.iter().all(|line| width(line, 12.0) <= room),
                    "{lines:?}"
                );
                let bare = |text: &str| text.replace(' ', "");
                assert_eq!(bare(&lines.concat()), bare(text));
            }
        }
    }
}
