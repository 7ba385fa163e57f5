//! A file whose blocks are read, each once, and how long that takes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use rustix::fs::{Advice, fadvise};

use super::turn::cpu_ns;

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;

/// Memory for a block, as `O_DIRECT` wants it.
#[derive(Clone)]
#[repr(align(4096))]
pub(super) struct Buffer(pub(super) [u8; BLOCK]);

/// A file whose blocks say where they are, deleted already.
pub(super) struct Blocks {
    pub(super) file: Arc<File>,
    pub(super) count: usize,
    /// Coprime to the count, so that it leads to each block.
    pub(super) step: usize,
}

impl Blocks {
    pub(super) fn new(count: usize) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("plainweave-blocks-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let file = file.with_context(|| format!("cannot create {}", path.display()))?;
        std::fs::remove_file(&path)?;
        for number in 0..count {
            file.write_all_at(&[mark(number); BLOCK], (number * BLOCK) as u64)?;
        }

        // Pages that are not on the disk yet cannot be dropped from the cache.
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::Random)?;
        let step = [7_368_787, 15_485_863]
            .into_iter()
            .find(|step| step % count != 0 || count == 1);
        Ok(Self {
            file: Arc::new(file),
            count,
            step: step.context("no step leads to all blocks")?,
        })
    }

    /// The same file without the page cache.
    ///
    /// # Errors
    /// The file system has no `O_DIRECT`.
    pub(super) fn direct(&self) -> anyhow::Result<Self> {
        let mut options = File::options();
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = options.read(true).custom_flags(libc::O_DIRECT).open(path);
        Ok(Self {
            file: Arc::new(file.context("O_DIRECT")?),
            ..*self
        })
    }

    /// The block that is the `nth` to be read.
    pub(super) fn block(&self, nth: usize) -> usize {
        nth * self.step % self.count
    }

    /// Puts all of it into the page cache, or nothing.
    pub(super) fn prepare(&self, cached: bool) -> anyhow::Result<()> {
        if !cached {
            fadvise(&self.file, 0, None, Advice::DontNeed)?;
            let all = 0..(self.count * BLOCK) as u64;
            let resident = plainweave::fs::is_resident(&*self.file, all).unwrap_or(false);
            ensure!(!resident, "the kernel keeps the file in memory");
            return Ok(());
        }

        let mut buf = [0; BLOCK];
        for number in 0..self.count {
            self.file.read_exact_at(&mut buf, (number * BLOCK) as u64)?;
        }
        Ok(())
    }
}

fn mark(number: usize) -> u8 {
    (number % 251) as u8
}

/// # Errors
/// The block is not what stands there.
pub(super) fn check(number: usize, buf: &[u8]) -> anyhow::Result<()> {
    let right = buf[0] == mark(number) && buf[BLOCK - 1] == mark(number);
    ensure!(right, "block {number} has {} in it", buf[0]);
    Ok(())
}

/// What all blocks took, in nanoseconds.
pub(super) struct Read {
    pub(super) wall: u64,
    pub(super) cpu: u64,
    pub(super) kernel_workers: usize,
}

/// Measures the reads themselves, without what comes before and after.
pub(super) fn measure(read: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Read> {
    let cpu = cpu_ns();
    let start = Instant::now();
    read()?;
    Ok(Read {
        wall: start.elapsed().as_nanos() as u64,
        cpu: cpu_ns().saturating_sub(cpu),
        kernel_workers: kernel_workers()?,
    })
}

/// Threads of this process that io_uring has started.
fn kernel_workers() -> anyhow::Result<usize> {
    let mut count = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        // One that ends meanwhile has none.
        let name = std::fs::read_to_string(task?.path().join("comm")).unwrap_or_default();
        count += usize::from(name.starts_with("iou-wrk"));
    }
    Ok(count)
}
