//! The files of Unix sockets, which go with their servers.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plainweave_serve::Address;

use crate::sharing::Sharing;

/// The file of a Unix socket of ours. Its drop removes it, unless there is another one in its
/// place, or another process has the socket too.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    sharing: Sharing,
}

impl SocketFile {
    /// Takes what stands at `path` now as ours.
    pub(crate) fn own(path: &Path, sharing: &Sharing) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            id: id(path)?,
            sharing: sharing.clone(),
        })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_shared = self.sharing.is_handed_over() || self.sharing.is_managed(&self.address());
        if !is_shared && id(&self.path).is_ok_and(|id| id == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns which file stands there: its device and inode.
pub(crate) fn id(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}
