//! A command line, cut at blanks.

/// The number of words of a line that are split; the rest stays in one piece.
pub(crate) const MAX: usize = 23;

/// The words of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tokens<'a> {
    words: [&'a [u8]; MAX],
    len: usize,
    line: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// Cuts at blanks; other white space belongs to a word.
    pub(crate) fn cut(line: &'a [u8]) -> Self {
        let mut tokens = Self {
            words: [b""; MAX],
            len: 0,
            line,
        };

        for word in line
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty())
            .take(MAX)
        {
            tokens.words[tokens.len] = word;
            tokens.len += 1;
        }
        tokens
    }

    pub(crate) fn words(&self) -> &[&'a [u8]] {
        &self.words[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns word `n`; empty behind the last.
    pub(crate) fn word(&self, number: usize) -> &'a [u8] {
        self.words().get(number).copied().unwrap_or_default()
    }

    pub(crate) fn last(&self) -> &'a [u8] {
        self.words().last().copied().unwrap_or_default()
    }

    /// Returns what follows the first `words` words.
    pub(crate) fn after(&self, words: usize) -> Keys<'a> {
        let mut rest = Keys(self.line);
        rest.by_ref().take(words).for_each(drop);
        rest
    }

    /// Returns whether the last word asks for no reply.
    pub(crate) fn noreply(&self) -> bool {
        self.last() == b"noreply"
    }
}

/// Words one after the other, however many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Keys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.0.iter().position(|byte| *byte != b' ')?;
        let rest = &self.0[start..];
        let len = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        self.0 = &rest[len..];
        Some(&rest[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_cut_at_blanks_alone() {
        let tokens = Tokens::cut(b"  get a\tb   c ");
        assert_eq!(tokens.words(), [&b"get"[..], b"a\tb", b"c"]);
        assert_eq!((tokens.word(9), tokens.last()), (&b""[..], &b"c"[..]));
        assert_eq!(
            Keys(b" a  bb c ").collect::<Vec<_>>(),
            [&b"a"[..], b"bb", b"c"]
        );
        let many = b"x ".repeat(99);

        assert_eq!(Tokens::cut(&many).len(), MAX);
    }
}
