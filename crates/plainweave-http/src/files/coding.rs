//! Content codings in which a file can be had, and the choice among them, sans I/O.

use super::accept::{Weight, elements};
use crate::message::head::RequestHead;

/// A content coding, in the order in which they are preferred when a client likes them equally: by
/// the size that is usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Brotli (RFC 7932), `br`.
    Br,
    /// Zstandard (RFC 8878), `zstd`.
    Zstd,
    /// `gzip` (RFC 1952).
    Gzip,
}

impl Coding {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Br, Self::Zstd, Self::Gzip];

    /// Its name in HTTP, which stands in the entity tag too.
    pub fn name(self) -> &'static str {
        match self {
            Self::Br => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// Returns the suffix of the twin's name.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Br => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// Returns the coding that one of our entity tags stands for.
    pub(super) fn of_tag(tag: &[u8]) -> Option<Self> {
        let tag = tag.strip_suffix(b"\"")?;
        let speaks_of = |coding: &Self| {
            tag.strip_suffix(coding.name().as_bytes())
                .is_some_and(|tag| tag.ends_with(b"-"))
        };
        Self::ALL.into_iter().find(speaks_of)
    }
}

/// A set of codings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Codings(u8);

impl Codings {
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn contains(self, coding: Coding) -> bool {
        self.0 & 1 << coding as u8 != 0
    }

    pub(super) fn insert(&mut self, coding: Coding) {
        self.0 |= 1 << coding as u8;
    }

    pub(super) fn insert_all(&mut self, others: Self) {
        self.0 |= others.0;
    }

    pub(super) fn remove(&mut self, coding: Coding) {
        self.0 &= !(1 << coding as u8);
    }
}

/// What a request accepts. Weights count half thousandths, to leave room for the least of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    codings: [Weight; 3],
    /// The file as it is.
    identity: Weight,
}

/// Acceptable because nothing was said of it.
const UNSAID: Weight = 1;

impl Accepted {
    /// Of a request without Accept-Encoding: it takes anything, and may understand nothing.
    pub(super) const IDENTITY: Self = Self {
        codings: [0; 3],
        identity: UNSAID,
    };

    /// RFC 9110, 12.5.3.
    pub(super) fn of(head: &RequestHead<'_>) -> Self {
        Self::from_elements(elements(head, "accept-encoding"))
    }

    fn from_elements<'b>(elements: impl Iterator<Item = (&'b [u8], Weight)>) -> Self {
        let mut codings = [None; 3];
        let mut identity = None;
        let mut others = None;
        for (name, weight) in elements {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            let coding = Coding::ALL.into_iter().find(|coding| is(coding.name()));
            let place = match coding.or(is("x-gzip").then_some(Coding::Gzip)) {
                Some(coding) => &mut codings[coding as usize],
                None if is("identity") => &mut identity,
                None if is("*") => &mut others,
                None => continue,
            };

            *place = Some(2 * weight);
        }

        Self {
            codings: codings.map(|weight| weight.or(others).unwrap_or(0)),
            identity: identity.or(others).unwrap_or(UNSAID),
        }
    }

    pub(super) fn accepts(&self, coding: Coding) -> bool {
        self.codings[coding as usize] > 0
    }

    pub(super) fn accepts_identity(&self) -> bool {
        self.identity > 0
    }

    /// Returns the best of the available codings. The inner `None`: the file as it is; the outer
    /// one: nothing.
    pub(super) fn best(&self, available: Codings) -> Option<Option<Coding>> {
        let mut best = self.identity;
        let mut choice = self.accepts_identity().then_some(None);
        // From the least preferred on: what comes later wins a tie.
        for coding in Coding::ALL
            .into_iter()
            .rev()
            .filter(|coding| available.contains(*coding))
        {
            let weight = self.codings[coding as usize];
            if weight > 0 && weight >= best {
                (best, choice) = (weight, Some(Some(coding)));
            }
        }

        choice
    }
}

#[cfg(test)]
mod tests {
    use super::Coding::{Br, Gzip, Zstd};
    use super::*;

    fn set(codings: &[Coding]) -> Codings {
        let mut set = Codings::default();
        codings.iter().for_each(|coding| set.insert(*coding));
        set
    }

    /// Elements with weights in thousandths.
    fn best(elements: &[(&str, Weight)], available: &[Coding]) -> Option<Option<Coding>> {
        let elements = elements
            .iter()
            .map(|(name, weight)| (name.as_bytes(), *weight));
        Accepted::from_elements(elements).best(set(available))
    }

    #[test]
    fn choices() {
        let all = [Br, Zstd, Gzip];
        for (elements, available, expected) in [
            (&[][..], &all[..], Some(None)),
            (&[("gzip", 1000)], &all, Some(Some(Gzip))),
            (&[("GZIP", 1000)], &all, Some(Some(Gzip))),
            (&[("x-gzip", 1000)], &all, Some(Some(Gzip))),
            (
                &[("gzip", 1000), ("br", 1000), ("zstd", 1000)],
                &all,
                Some(Some(Br)),
            ),
            (
                &[("gzip", 1000), ("br", 1000), ("zstd", 1000)],
                &[Zstd, Gzip],
                Some(Some(Zstd)),
            ),
            (&[("gzip", 1000), ("br", 500)], &all, Some(Some(Gzip))),
            (&[("gzip", 1)], &all, Some(Some(Gzip))), // Better than what nothing was said of.
            (&[("gzip", 0)], &all, Some(None)),
            (&[("gzip", 500), ("identity", 1000)], &all, Some(None)),
            (&[("gzip", 500), ("identity", 500)], &all, Some(Some(Gzip))),
            (&[("*", 1000)], &all, Some(Some(Br))),
            (&[("*", 1000), ("br", 0)], &all, Some(Some(Zstd))),
            (&[("*", 0)], &all, None),
            (&[("identity", 0)], &all, None),
            (&[("identity", 0), ("gzip", 1000)], &all, Some(Some(Gzip))),
            (&[("identity", 0), ("gzip", 1000)], &[Br], None),
            (&[("identity", 1000), ("*", 0)], &all, Some(None)),
            (&[("deflate", 1000), ("compress", 1000)], &all, Some(None)),
        ] {
            assert_eq!(
                best(elements, available),
                expected,
                "{elements:?} of {available:?}"
            );
        }
    }

    #[test]
    fn tags_say_their_coding() {
        assert_eq!(Coding::of_tag(b"\"1.2-3-br\""), Some(Br));
        assert_eq!(Coding::of_tag(b"\"1.2-3-gzip\""), Some(Gzip));
        for tag in [&b"\"1.2-3\""[..], b"\"1.2-3-bro\"", b"\"\"", b"", b"-br"] {
            assert_eq!(Coding::of_tag(tag), None);
        }
    }

    #[test]
    fn sets() {
        let mut set = set(&[Br, Gzip]);
        assert!(set.contains(Br) && !set.contains(Zstd) && set.contains(Gzip));
        set.remove(Br);
        set.remove(Gzip);
        assert!(set.is_empty());
    }
}
