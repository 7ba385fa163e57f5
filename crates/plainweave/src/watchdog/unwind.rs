//! Finds who called a sampled function: from its registers and a copy of its stack, by the tables that panics use.
//!
//! Frame pointers would need no copy, but most programs are compiled without them, and then their callers, which are
//! what a reader recognises, are missing. The tables are exact at every instruction. They are read from the files of
//! the program and its libraries, once, when the first sample comes from one; `framehop` interprets them. A library
//! whose file is gone by then has no callers.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Module, ModuleSectionInfo, Unwinder};
use object::{Object, ObjectSection, ObjectSegment, ReadCache};

use super::sample::Sample;

/// Limit on the addresses of a sample.
const MOST_FRAMES: usize = 64;

/// The tables of the program and its libraries.
#[derive(Default)]
pub(super) struct Tables {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    /// Where they are that were read, or could not be.
    known: Vec<Range<u64>>,
}

impl Tables {
    /// Returns where the thread was, then the return addresses, innermost first. They end where the copy of the stack
    /// does, or at code without tables.
    pub(super) fn addresses(&mut self, sample: &Sample) -> Vec<usize> {
        let mut found = self.walk(sample);
        if !found.iter().all(|address| self.known.iter().any(|range| range.contains(&(*address as u64)))) {
            self.read();
            found = self.walk(sample);
        }
        found
    }

    fn walk(&mut self, sample: &Sample) -> Vec<usize> {
        let registers = UnwindRegsX86_64::new(sample.instruction as u64, sample.stack as u64, sample.frame as u64);
        let mut word = |address: u64| {
            let offset = usize::try_from(address).ok().and_then(|address| address.checked_sub(sample.stack));
            let at = offset.filter(|offset| offset.is_multiple_of(size_of::<usize>())).ok_or(())? / size_of::<usize>();
            sample.copy.get(at).map(|word| *word as u64).ok_or(())
        };
        let mut frames = self.unwinder.iter_frames(sample.instruction as u64, registers, &mut self.cache, &mut word);
        let mut found = Vec::new();
        while found.len() < MOST_FRAMES
            && let Ok(Some(frame)) = frames.next()
        {
            found.push(frame.address() as usize);
        }
        found
    }

    /// Reads the tables of what is loaded and not known yet.
    fn read(&mut self) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for (path, range) in loaded(&maps) {
            if self.known.contains(&range) {
                continue;
            }
            if let Some(sections) = Sections::read(path) {
                let base = range.start;
                self.unwinder.add_module(Module::new(path.to_owned(), range.clone(), base, sections));
            }
            self.known.push(range);
        }
    }
}

/// Returns the files that are mapped with executable pages, and from where to where, by the lines of `maps` in proc(5).
fn loaded(maps: &str) -> impl Iterator<Item = (&str, Range<u64>)> {
    let mut all: HashMap<&str, (Range<u64>, bool)> = HashMap::new();
    for line in maps.lines() {
        let Some((range, code, path)) = mapping(line) else { continue };
        let (whole, has_code) = all.entry(path).or_insert((range.clone(), false));
        *whole = whole.start.min(range.start)..whole.end.max(range.end);
        *has_code |= code;
    }
    all.into_iter().filter(|(_, (_, code))| *code).map(|(path, (range, _))| (path, range))
}

/// Returns a mapping of a file: its addresses, whether they can be executed, the file.
fn mapping(line: &str) -> Option<(Range<u64>, bool, &str)> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let code = fields.next()?.contains('x');
    let path = fields.nth(3)?.trim_start();
    path.starts_with('/').then_some((address(start)?..address(end)?, code, path))
}

/// The sections with a file's tables.
struct Sections {
    base: u64,
    /// Each with its name, addresses and data.
    all: Vec<(&'static [u8], Range<u64>, Vec<u8>)>,
}

impl Sections {
    const NAMES: [&'static str; 2] = [".eh_frame", ".eh_frame_hdr"];

    fn read(path: &str) -> Option<Self> {
        let file = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&file).ok()?;
        let section = |name: &'static str| {
            let section = file.section_by_name(name)?;
            let range = section.address()..section.address() + section.size();
            Some((name.as_bytes(), range, section.data().ok()?.to_vec()))
        };
        // Where the file wants to begin, which is 0 unless it cannot be moved.
        let base = file.segments().map(|segment| segment.address() & !0xfff).min()?;
        Some(Self { base, all: Self::NAMES.into_iter().filter_map(section).collect() })
    }
}

impl ModuleSectionInfo<Vec<u8>> for Sections {
    fn base_svma(&self) -> u64 {
        self.base
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.all.iter().find(|section| section.0 == name).map(|section| section.1.clone())
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        self.all.iter_mut().find(|section| section.0 == name).map(|section| std::mem::take(&mut section.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
        let (function, data) = (loaded as *const () as u64, (&raw const maps).addr() as u64);
        assert!(loaded(&maps).any(|(_, range)| range.contains(&function)));
        assert!(!loaded(&maps).any(|(_, range)| range.contains(&data)));
        let lines = "7f00-8f00 r--p 00000000 00:00 7    /lib/a b\n8f00-9000 r-xp 00001000 00:00 7    /lib/a b\n\
                     a000-b000 r-xp 00000000 00:00 0 \nc000-d000 rw-p 00000000 00:00 0    /data\n\
                     e000-f000 r-xp 00000000 00:00 0    [vdso]";
        assert_eq!(loaded(lines).collect::<Vec<_>>(), [("/lib/a b", 0x7f00..0x9000)]);
    }
}
