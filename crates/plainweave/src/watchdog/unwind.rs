//! Finds who called a sampled function: from its registers and a copy of its stack, by the tables
//! that panics use.
//!
//! Frame pointers would need no copy, but most programs are compiled without them, and then their
//! callers, which are what a reader recognises, are missing. The tables are exact at every
//! instruction. They are read from the files of the program and its libraries, once, when the first
//! sample comes from one; `framehop` interprets them. A library whose file is gone by then has no
//! callers.

use std::fs::File;
use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{Module, ModuleSectionInfo, Unwinder};
use object::{Object, ObjectSection, ObjectSegment, ReadCache, SegmentFlags, elf};

use super::reporter::NAMES;
use super::sample::Sample;
use crate::sys;

/// Limit on the addresses of a sample.
const MOST_FRAMES: usize = 64;

/// The tables of the program and its libraries.
#[derive(Default)]
pub(crate) struct Tables {
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64,
    /// Where they are that were read, or could not be.
    known: Vec<Range<u64>>,
}

impl Tables {
    /// Returns where the thread was, then the return addresses, innermost first. They end where the
    /// copy of the stack does, or at code without tables.
    pub(crate) fn addresses(&mut self, sample: &Sample) -> Vec<usize> {
        let mut found = self.walk(sample);
        if !found.iter().all(|address| {
            self.known
                .iter()
                .any(|range| range.contains(&(*address as u64)))
        }) {
            self.read();
            found = self.walk(sample);
        }
        found
    }

    fn walk(&mut self, sample: &Sample) -> Vec<usize> {
        let registers = UnwindRegsX86_64::new(
            sample.instruction as u64,
            sample.stack as u64,
            sample.frame as u64,
        );
        let mut word = |address: u64| {
            let offset = usize::try_from(address)
                .ok()
                .and_then(|address| address.checked_sub(sample.stack));
            let at = offset
                .filter(|offset| offset.is_multiple_of(size_of::<usize>()))
                .ok_or(())?
                / size_of::<usize>();
            sample.copy.get(at).map(|word| *word as u64).ok_or(())
        };

        let mut frames = self.unwinder.iter_frames(
            sample.instruction as u64,
            registers,
            &mut self.cache,
            &mut word,
        );
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
        if !sys::has_memory(NAMES) {
            return;
        }
        // A library may have a name that is not UTF-8; it has no callers then.
        let maps = std::fs::read("/proc/self/maps").unwrap_or_default();
        for code in String::from_utf8_lossy(&maps)
            .lines()
            .filter_map(Code::parse)
        {
            if self.known.contains(&code.range) {
                continue;
            }
            if let Some((sections, bias)) = Sections::read(&code) {
                let name = code.path.to_owned();
                let base = bias.wrapping_add(sections.base);
                self.unwinder
                    .add_module(Module::new(name, code.range.clone(), base, sections));
            }
            self.known.push(code.range);
        }
    }
}

/// A file's code in memory. (Its other parts may be mapped more than once: who looks up names does
/// so.)
#[derive(Debug, PartialEq, Eq)]
struct Code<'a> {
    range: Range<u64>,
    /// Where it begins in the file.
    offset: u64,
    path: &'a str,
}

impl<'a> Code<'a> {
    /// Parses a line of `maps` in proc(5), if it is of a file's code.
    fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let code = fields.next()?.contains('x');
        let offset = number(fields.next()?)?;
        let path = fields.nth(2)?.trim_start();

        (code && path.starts_with('/')).then_some(Self {
            range: number(start)?..number(end)?,
            offset,
            path,
        })
    }
}

/// The sections with a file's tables.
struct Sections {
    base: u64,
    /// Each with its name, addresses and data.
    all: Vec<(&'static [u8], Range<u64>, Vec<u8>)>,
}

impl Sections {
    const NAMES: [&'static str; 2] = [".eh_frame", ".eh_frame_hdr"];

    /// Returns the sections, and by how much the file lies above the addresses in it.
    fn read(code: &Code<'_>) -> Option<(Self, u64)> {
        let file = ReadCache::new(File::open(code.path).ok()?);
        let file = object::File::parse(&file).ok()?;
        let section = |name: &'static str| {
            let section = file.section_by_name(name)?;
            let range = section.address()..section.address() + section.size();
            Some((name.as_bytes(), range, section.data().ok()?.to_vec()))
        };

        // Segments are mapped by whole pages.
        let page = |number: u64| number & !0xfff;
        let mapped = file.segments().find(|segment| {
            let executable =
                matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags.0 & elf::PF_X.0 != 0);
            executable && page(segment.file_range().0) == code.offset
        })?;
        // Where the file wants to begin, which is 0 unless it cannot be moved.
        let base = file
            .segments()
            .map(|segment| page(segment.address()))
            .min()?;
        let sections = Self {
            base,
            all: Self::NAMES.into_iter().filter_map(section).collect(),
        };

        Some((
            sections,
            code.range.start.wrapping_sub(page(mapped.address())),
        ))
    }
}

impl ModuleSectionInfo<Vec<u8>> for Sections {
    fn base_svma(&self) -> u64 {
        self.base
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.all
            .iter()
            .find(|section| section.0 == name)
            .map(|section| section.1.clone())
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        self.all
            .iter_mut()
            .find(|section| section.0 == name)
            .map(|section| std::mem::take(&mut section.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_where_it_is_mapped() {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("proc");
        let all: Vec<_> = maps.lines().filter_map(Code::parse).collect();
        let function = Code::parse as *const () as u64;
        let data = (&raw const maps).addr() as u64;
        let own = all
            .iter()
            .find(|code| code.range.contains(&function))
            .expect("this program");

        assert!(!all.iter().any(|code| code.range.contains(&data)));
        let (sections, bias) = Sections::read(own).expect("its tables");

        assert_eq!(sections.all.len(), Sections::NAMES.len());
        assert!(bias.wrapping_add(sections.base) <= own.range.start);
        let code = Code {
            range: 0x8f00..0x9000,
            offset: 0x1000,
            path: "/lib/a b",
        };

        assert_eq!(
            Code::parse("8f00-9000 r-xp 00001000 00:00 7    /lib/a b"),
            Some(code)
        );
        for other in [
            "7f00-8f00 r--p 00000000 00:00 7    /lib/a b",
            "a000-b000 r-xp 00000000 00:00 0 ",
            "e000-f000 r-xp 00000000 00:00 0    [vdso]",
            "",
        ] {
            assert_eq!(Code::parse(other), None, "{other}");
        }
    }
}
