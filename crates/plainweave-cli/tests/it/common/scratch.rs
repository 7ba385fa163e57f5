//! Files that go away with the test.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A directory of its own; empty at first.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(TempDir::with_prefix("plainweave-").unwrap())
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    /// The path of that name in it, for an argument.
    pub(crate) fn path(&self, name: &str) -> String {
        self.root().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path, for an argument.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }
}
