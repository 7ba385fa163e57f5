//! Which of a request's fields the file handler has to look at, found in one pass.
//!
//! Most requests have none of them that matters, and then nothing more is read. What is there is
//! fetched by name.

use crate::message::head::RequestHead;

/// A set of header fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(u8);

impl Fields {
    pub(super) const IF_MATCH: Self = Self(1);
    pub(super) const IF_UNMODIFIED_SINCE: Self = Self(1 << 1);
    pub(super) const IF_NONE_MATCH: Self = Self(1 << 2);
    pub(super) const IF_MODIFIED_SINCE: Self = Self(1 << 3);
    pub(super) const RANGE: Self = Self(1 << 4);
    pub(super) const IF_RANGE: Self = Self(1 << 5);
    pub(super) const ACCEPT: Self = Self(1 << 6);
    pub(super) const ACCEPT_ENCODING: Self = Self(1 << 7);
    /// Those that can make of a file's answer anything but the whole file. If-Range alone means
    /// nothing.
    pub(super) const CONDITIONAL: Self = Self(0b1_1111);

    /// Returns the fields of this request.
    pub(super) fn of(head: &RequestHead<'_>) -> Self {
        Self(
            head.headers()
                .fold(0, |found, (name, _)| found | Self::named(name).0),
        )
    }

    /// By length, then by the letter that decides, then by name.
    fn named(name: &str) -> Self {
        let (field, full) = match (name.len(), name.as_bytes()) {
            (5, _) => (Self::RANGE, "range"),
            (6, _) => (Self::ACCEPT, "accept"),
            (8, [_, _, _, b'm' | b'M', ..]) => (Self::IF_MATCH, "if-match"),
            (8, _) => (Self::IF_RANGE, "if-range"),
            (13, _) => (Self::IF_NONE_MATCH, "if-none-match"),
            (15, _) => (Self::ACCEPT_ENCODING, "accept-encoding"),
            (17, _) => (Self::IF_MODIFIED_SINCE, "if-modified-since"),
            (19, _) => (Self::IF_UNMODIFIED_SINCE, "if-unmodified-since"),
            _ => return Self(0),
        };

        if name.eq_ignore_ascii_case(full) {
            field
        } else {
            Self(0)
        }
    }

    /// Takes them out, as if the request did not have them.
    pub(super) fn remove(&mut self, fields: Self) {
        self.0 &= !fields.0;
    }

    /// Returns whether one of these is there.
    pub(super) fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }
}

/// Returns the value of a field that may occur only once; two of them count as none.
pub(super) fn single<'b>(head: &RequestHead<'b>, name: &str) -> Option<&'b [u8]> {
    let mut values = head.header_all(name);
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_by_its_name_in_any_case() {
        for (name, field) in [
            ("Range", Fields::RANGE),
            ("RANGE", Fields::RANGE),
            ("accept", Fields::ACCEPT),
            ("If-Match", Fields::IF_MATCH),
            ("if-range", Fields::IF_RANGE),
            ("If-None-Match", Fields::IF_NONE_MATCH),
            ("Accept-Encoding", Fields::ACCEPT_ENCODING),
            ("If-Modified-Since", Fields::IF_MODIFIED_SINCE),
            ("If-Unmodified-Since", Fields::IF_UNMODIFIED_SINCE),
            ("", Fields::default()),
            ("Host", Fields::default()),
            ("If-Mitch", Fields::default()),
            ("Connection", Fields::default()),
            ("Accept-Language", Fields::default()),
        ] {
            assert_eq!(Fields::named(name), field, "{name}");
        }

        for field in [
            Fields::IF_MATCH,
            Fields::IF_UNMODIFIED_SINCE,
            Fields::IF_NONE_MATCH,
            Fields::RANGE,
        ] {
            assert!(Fields::CONDITIONAL.has(field));
        }

        assert!(!Fields::CONDITIONAL.has(Fields::IF_RANGE));
    }
}
