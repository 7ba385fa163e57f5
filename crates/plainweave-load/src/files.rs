//! Files that a load is made from: lists, bodies, header fields, session logs. An agent reads none
//! of its own: it has what came with its orders.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;

/// Where files come from.
#[derive(Debug)]
pub(super) enum Files {
    /// This machine. What was read is kept, to be sent to agents.
    Own(RefCell<BTreeMap<String, Vec<u8>>>),
    /// Another machine, by path there.
    Sent(BTreeMap<String, Vec<u8>>),
}

impl Files {
    pub(super) fn own() -> Self {
        Files::Own(RefCell::default())
    }

    /// Reads a file.
    pub(super) fn read(&self, path: &Path) -> anyhow::Result<Vec<u8>> {
        let name = path.to_string_lossy().into_owned();
        match self {
            Files::Own(read) => {
                let bytes = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
                read.borrow_mut().insert(name, bytes.clone());
                Ok(bytes)
            }
            Files::Sent(files) => files
                .get(&name)
                .cloned()
                .with_context(|| format!("{name} did not come with the load")),
        }
    }

    /// Reads a text file.
    pub(super) fn text(&self, path: &Path) -> anyhow::Result<String> {
        let text = String::from_utf8(self.read(path)?);
        text.map_err(|error| {
            let line = error.as_bytes()[..error.utf8_error().valid_up_to()]
                .iter()
                .filter(|b| **b == b'\n')
                .count()
                + 1;
            anyhow::anyhow!("{}:{line}: this line is not UTF-8", path.display())
        })
    }

    /// Returns the paths of a folder's files with this extension, in order; or the path itself, if
    /// it is no folder.
    pub(super) fn within(
        &self,
        path: &Path,
        extension: &str,
    ) -> anyhow::Result<Vec<std::path::PathBuf>> {
        let fits = |file: &Path| file.extension().is_some_and(|is| is == extension);
        let mut found = Vec::new();
        match self {
            Files::Own(_) if path.is_dir() => {
                for entry in std::fs::read_dir(path)
                    .with_context(|| format!("cannot read {}", path.display()))?
                {
                    found.extend(Some(entry?.path()).filter(|file| fits(file)));
                }
            }
            Files::Sent(files) if !files.contains_key(path.to_string_lossy().as_ref()) => {
                let within = files
                    .keys()
                    .map(Path::new)
                    .filter(|file| file.parent() == Some(path) && fits(file));
                found.extend(within.map(Path::to_owned));
            }
            _ => return Ok(vec![path.to_owned()]),
        }

        anyhow::ensure!(
            !found.is_empty(),
            "{} has no file that ends with .{extension}",
            path.display()
        );
        found.sort();
        Ok(found)
    }

    /// Returns what was read, or came.
    pub(super) fn all(&self) -> BTreeMap<String, Vec<u8>> {
        match self {
            Files::Own(read) => read.borrow().clone(),
            Files::Sent(files) => files.clone(),
        }
    }
}
