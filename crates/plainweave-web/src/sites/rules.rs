//! The rules of a site: which of them are for a path.
//!
//! Which rules match is one pass of an automaton over all patterns (`globset`), and of each regular
//! expression for itself. What these rules say together is a [`Treatment`], which is made when they
//! first match together and kept: a site has few of them, whatever it has of files. For paths that
//! are asked for again even the match is left out. Each processor keeps all this for itself, so
//! that no two write to one lock for each request.
//!
//! Paths are matched as files are found: decoded once, without empty segments. So no spelling of a
//! path gets around a rule. For regular expressions what is not UTF-8 is U+FFFD, which `.` matches
//! as well.
//!
//! *Rejected:* `arc-swap` for what is kept. Its places are in thread-local storage, of which each
//! fiber has its own, so each request searched a list for a free one that is as long as there have
//! been requests at once: .7 % of a small request with 64 connections.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use globset::{Candidate, GlobSet, GlobSetBuilder};
use plainweave_serve::PerCpu;
use regex::Regex;

use super::rule::{Paths, Rule};
use super::treatment::{Matching, Treatment};

/// Treatments that each processor keeps for a site. What is more is made again for each request.
const KEPT: usize = 1024;
/// Paths that each processor keeps for a site, with their treatments; with 256 more it begins anew.
/// All of them take 50 KB.
const PATHS: usize = 256;
/// Bytes of the longest that is kept.
const LONGEST: usize = 96;

/// What a processor keeps.
#[derive(Default)]
struct KeptTreatments {
    /// Where no rule matches but those for all paths.
    plain: Option<Arc<Treatment>>,
    /// By the other rules that match.
    by_rules: HashMap<Box<[Matching]>, Arc<Treatment>, RandomState>,
    /// By the path that is asked for, of those that are asked for often: no pattern is looked at.
    by_path: HashMap<Box<[u8]>, Arc<Treatment>, RandomState>,
    /// Paths that there was no room for.
    passed: u8,
}

impl KeptTreatments {
    fn keep_path(&mut self, path: &[u8], treatment: &Arc<Treatment>) {
        if self.by_path.len() >= PATHS {
            // More paths than fit are asked for in turn: to keep each would be work for nothing.
            self.passed = self.passed.wrapping_add(1);
            if self.passed != 0 {
                return;
            }
            self.by_path.clear();
        }
        self.by_path.insert(path.into(), treatment.clone());
    }
}

/// The rules of a site, those for all sites behind its own.
pub(crate) struct Rules {
    patterns: GlobSet,
    /// The rule of each pattern.
    owners: Vec<u32>,
    regexes: Vec<(u32, Regex)>,
    everywhere: Vec<u32>,
    rules: Vec<Arc<Rule>>,
    kept: PerCpu<Mutex<KeptTreatments>>,
}

impl Rules {
    /// Takes rules in this order.
    pub(crate) fn new(rules: Vec<Arc<Rule>>) -> Result<Self, globset::Error> {
        let mut patterns = GlobSetBuilder::new();
        let mut owners = Vec::new();
        let mut regexes = Vec::new();
        let mut everywhere = Vec::new();

        for (number, rule) in (0..).zip(&rules) {
            match &rule.paths {
                Paths::All => everywhere.push(number),
                Paths::Regex(regex) => regexes.push((number, regex.clone())),
                Paths::Patterns(globs) => {
                    for glob in globs {
                        patterns.add(glob.clone());
                        owners.push(number);
                    }
                }
            }
        }

        Ok(Self {
            patterns: patterns.build()?,
            owners,
            regexes,
            everywhere,
            rules,
            kept: PerCpu::new(Mutex::default),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns what the rules say of a decoded path; `None`: one that no file could have. `others`:
    /// paths by which the same file could be asked for, too. What rules say of these holds as well,
    /// but for where they lead.
    pub(super) fn treatment(
        &self,
        path: Option<&[u8]>,
        others: impl FnOnce(&[u8]) -> Vec<Vec<u8>>,
    ) -> Arc<Treatment> {
        let path = path.filter(|_| self.has_places());
        let short = path.filter(|path| path.len() <= LONGEST);
        if let Some(path) = short
            && let Some(treatment) = self.kept().by_path.get(path)
        {
            return treatment.clone();
        }

        let others = path.map(others).unwrap_or_default();
        let matching = self.matching(path, &others);
        let mut kept = self.kept();
        if matching.is_empty() {
            let plain = kept.plain.get_or_insert_with(|| self.made(matching));
            let plain = plain.clone();
            // Of patterns alone it is found out as fast.
            if let Some(path) = short.filter(|_| !self.regexes.is_empty()) {
                kept.keep_path(path, &plain);
            }
            return plain;
        }

        let known = kept.by_rules.get(matching.as_slice());
        let treatment = known.cloned().unwrap_or_else(|| {
            let treatment = self.made(matching.clone());
            if kept.by_rules.len() < KEPT {
                kept.by_rules.insert(matching.into(), treatment.clone());
            }
            treatment
        });
        if let Some(path) = short {
            kept.keep_path(path, &treatment);
        }
        treatment
    }

    /// Returns whether any rule is for some paths.
    fn has_places(&self) -> bool {
        !(self.owners.is_empty() && self.regexes.is_empty())
    }

    fn kept(&self) -> MutexGuard<'_, KeptTreatments> {
        let kept = self.kept.own();
        kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what these say together, with those for all paths.
    fn made(&self, mut matching: Vec<Matching>) -> Arc<Treatment> {
        let everywhere = self.everywhere.iter();
        matching.extend(everywhere.map(|rule| Matching {
            rule: *rule,
            is_other: false,
        }));
        matching.sort_unstable();
        Arc::new(Treatment::of(&self.rules, &matching))
    }

    /// Returns the rules that match, in order, but for those that are for all paths.
    fn matching(&self, path: Option<&[u8]>, others: &[Vec<u8>]) -> Vec<Matching> {
        let mut matching = Vec::new();
        let mut found = |rule, is_other| matching.push(Matching { rule, is_other });
        if let Some(path) = path {
            self.match_path(path, |rule| found(rule, false));
        }

        for path in others {
            self.match_path(path, |rule| found(rule, true));
        }

        matching.sort_unstable();
        // The same rule by another path stands behind it.
        matching.dedup_by_key(|matching| matching.rule);
        matching
    }

    /// Returns the numbers of the rules that match a decoded path, in order.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn numbers(&self, path: &[u8]) -> Vec<u32> {
        let matching = self.matching(Some(path), &[]);
        matching.iter().map(|matching| matching.rule).collect()
    }

    fn match_path(&self, path: &[u8], mut found: impl FnMut(u32)) {
        if !self.owners.is_empty() {
            let candidate = Candidate::new(OsStr::from_bytes(path));
            for pattern in self.patterns.matches_candidate(&candidate) {
                found(self.owners[pattern]);
            }
        }

        if !self.regexes.is_empty() {
            let path = String::from_utf8_lossy(path);
            for (rule, regex) in &self.regexes {
                if regex.is_match(&path) {
                    found(*rule);
                }
            }
        }
    }
}
