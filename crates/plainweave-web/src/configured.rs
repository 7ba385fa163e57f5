//! What the configuration comes to: the sites, made when the server starts, and made anew when it
//! reloads.
//!
//! A reload reads the file, the environment and the flags again, and makes all of the sites before
//! it replaces one: of a configuration with a mistake nothing is taken. All files are looked at
//! again, as after any HUP. Settings of the server itself, such as addresses, are those that it was
//! started with; that they have changed is said.

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};
use clap::ValueEnum;
use plainweave_http::files::{Caching, Compression, DiskWaits, StaticFiles};
use plainweave_serve::accept::InProgress;
use toml::Spanned;

use super::compress::{compress, encoder};
use super::config::{Compress, Mistake, RuleTable, SiteTable, beside, log_beside};
use super::content::{
    ALL_CODINGS, Codings, Content, MissingPage, Prefix, codings, error_page, file_name, prefix,
};
use super::faults::Faults;
use super::flags::Flags;
use super::line::Format;
use super::pool::Pool;
use super::settings::{Gathered, reread};
use super::site_logs::{SiteLog, SiteLogs};
use super::sites::{Extras, Files, Live, Origin, Rule, Site, Sites};
use super::upstream::Upstreams;

/// The settings of the flags' own site, which a reload takes up.
const OF_SITE: [&str; 10] = [
    "root",
    "compress",
    "listing",
    "no-listing",
    "index",
    "clean-urls",
    "precompressed",
    "fallback",
    "error-page",
    "prefix",
];

/// Smaller files gain nothing: they leave in one packet either way.
const LEAST_COMPRESSED: u64 = 1024;

/// Answers that are compressed as they are sent, for each worker; by br each has some 5 MB.
const STREAMS: usize = 8;

/// What all sites share.
#[derive(Clone, Debug)]
pub(super) struct Resources {
    /// For all of them together.
    caching: Caching,
    faults: Arc<Faults>,
    disk_waits: Arc<DiskWaits>,
    /// Of sites with logs of their own.
    logs: Arc<SiteLogs>,
    /// Files that are compressed.
    compressed: Arc<InProgress>,
    /// Answers that are compressed as they are sent.
    streams: Arc<InProgress>,
}

impl Resources {
    /// `workers`: as many files are compressed at once.
    pub(super) fn new(
        caching: Caching,
        faults: &Arc<Faults>,
        disk_waits: &Arc<DiskWaits>,
        logs: SiteLogs,
        workers: usize,
    ) -> Self {
        Self {
            caching,
            faults: faults.clone(),
            disk_waits: disk_waits.clone(),
            logs: Arc::new(logs),
            compressed: Arc::new(InProgress::new(workers)),
            streams: Arc::new(InProgress::new(workers * STREAMS)),
        }
    }

    pub(super) fn logs(&self) -> &Arc<SiteLogs> {
        &self.logs
    }

    fn compression(&self, codings: &Codings) -> Compression {
        Compression {
            codings: codings.0.clone(),
            least_bytes: LEAST_COMPRESSED,
            at_once: self.compressed.clone(),
            compress,
            streams: self.streams.clone(),
            encoder,
        }
    }
}

/// Makes sites of what is configured, with the files of `before` where these are the same.
/// `private`: only this machine's programs reach the server.
pub(super) fn sites(
    gathered: Option<&Gathered>,
    flags: &Flags,
    private: bool,
    resources: &Resources,
    before: Option<&Sites>,
) -> anyhow::Result<Sites> {
    let tables = gathered.map(Gathered::tables).transpose()?;
    let tables = tables.unwrap_or_default();
    let (file, text) = gathered
        .and_then(Gathered::file)
        .unwrap_or((Path::new(""), ""));

    let placed = |mistake: Mistake| anyhow::Error::from(mistake.of(file, text));
    let known = before.map(Sites::upstreams);
    let upstreams = Upstreams::of(&tables.upstream, file, known, &resources.faults);
    let upstreams = upstreams.map_err(placed)?;
    let has_own = tables.site.is_empty() || gathered.is_some_and(|gathered| gathered.has("root"));
    // An emptied file is a mistake, and the current directory is not what is meant by it.
    let loses_all = before.is_some_and(Sites::are_named) && tables.site.is_empty();
    let has_root = gathered.is_some_and(|gathered| gathered.has("root"));
    ensure!(
        !loses_all || has_root,
        "no [[site]] is left, and no root says what else to serve"
    );
    let count = tables.site.len() + usize::from(has_own);
    let maker = Maker {
        resources,
        caching: part_of(&resources.caching, count),
        before,
        file,
        log_format: flags.observation.log_format,
        everywhere: rules(&tables.rule, file, &upstreams).map_err(placed)?,
        upstreams: &upstreams,
    };

    let mut named = Vec::new();
    for table in &tables.site {
        let site = maker.named(table).map_err(placed)?;
        named.push((Arc::new(site), table.get_ref().names.clone()));
    }

    let other = has_own.then(|| {
        let origin = Origin {
            root: Some(flags.root.clone()),
            content: flags.content.content(private),
            caching: maker.caching.clone(),
        };

        let files = maker.files(&origin).map_err(Unserved::said)?;
        let extras = Extras {
            rules: maker.everywhere.clone(),
            ..Extras::default()
        };
        Site::new(files, origin, extras).map(Arc::new)
    });

    Sites::new(named, other.transpose()?, upstreams.clone()).map_err(placed)
}

/// Compiles rules, each once: what is counted for one of all sites is counted for all of them.
fn rules(
    tables: &[Spanned<RuleTable>],
    file: &Path,
    upstreams: &Upstreams,
) -> Result<Vec<Arc<Rule>>, Mistake> {
    let rules = tables
        .iter()
        .map(|table| Rule::of(table, file, upstreams).map(Arc::new));
    rules.collect()
}

/// Makes sites.
struct Maker<'m> {
    resources: &'m Resources,
    /// For each.
    caching: Caching,
    before: Option<&'m Sites>,
    /// Where the tables stand.
    file: &'m Path,
    /// Of logs that have none of their own.
    log_format: Format,
    upstreams: &'m Upstreams,
    /// The rules of all sites.
    everywhere: Vec<Arc<Rule>>,
}

impl Maker<'_> {
    /// Makes one of a table.
    fn named(&self, table: &Spanned<SiteTable>) -> Result<Site, Mistake> {
        let span = table.span();
        let table = table.get_ref();
        if table.names.is_empty() {
            let what = "a site needs names, as in [\"example.org\"]";
            return Err(Mistake::new(span, what));
        }

        if table.root.is_none() && table.proxy.is_none() {
            let what = "a site needs a root, or a proxy for all that is asked for";
            return Err(Mistake::new(span, what));
        }
        let root = table.root.as_ref();
        let origin = Origin {
            root: root.map(|root| beside(self.file, root.get_ref())),
            content: content(table)?,
            caching: self.caching.clone(),
        };

        let files = self.files(&origin).map_err(|error| {
            let place = match &error {
                Unserved::Root(_) => root.map_or(span.clone(), Spanned::span),
                Unserved::Page(page) => page_place(table, page).unwrap_or(span.clone()),
            };
            Mistake::new(place, format!("{:#}", error.said()))
        })?;

        let mut rules = rules(&table.rule, self.file, self.upstreams)?;
        rules.extend_from_slice(&self.everywhere);
        if let Some(name) = &table.proxy {
            let upstream = self.upstreams.named(name)?;
            rules.push(Arc::new(Rule::passing(upstream)?));
        }
        let extras = Extras {
            rules,
            log: self.log(table)?,
            in_progress: self.in_progress(table, &origin),
        };
        let site = Site::new(files, origin, extras);
        site.map_err(|error| Mistake::new(span, format!("{error:#}")))
    }

    /// Opens the site's own log, if it has one.
    fn log(&self, table: &SiteTable) -> Result<Option<Arc<SiteLog>>, Mistake> {
        let named = table.log_format.as_ref();
        let Some(path) = &table.access_log else {
            return match named {
                None => Ok(None),
                Some(format) => Err(Mistake::new(
                    format.span(),
                    "log-format goes with access-log",
                )),
            };
        };

        let format = match named {
            None => self.log_format,
            Some(named) => Format::from_str(named.get_ref(), false)
                .map_err(|_| Mistake::new(named.span(), "write combined or json"))?,
        };
        let wanted = path.get_ref().as_path();
        if wanted.as_os_str().is_empty() {
            return Err(Mistake::new(
                path.span(),
                "write a file, or - for standard output",
            ));
        }
        let named = log_beside(self.file, wanted);
        let log = self.resources.logs.open(&named, format);
        log.map_err(|error| Mistake::new(path.span(), format!("{error:#}")))
    }

    /// Returns what counts the site's requests; a reload does not begin anew.
    fn in_progress(&self, table: &SiteTable, origin: &Origin) -> Option<Arc<InProgress>> {
        let max = table.max_in_progress?.get() as usize;
        let before = self.before.and_then(|before| before.same(origin));
        let counted = before.and_then(|site| site.in_progress());
        let counted = counted.filter(|counted| counted.max() == max).cloned();
        Some(counted.unwrap_or_else(|| Arc::new(InProgress::new(max))))
    }

    /// Returns the files of a site, made anew unless the same are there.
    fn files(&self, origin: &Origin) -> Result<Option<Arc<Files>>, Unserved> {
        if let Some(same) = self.before.and_then(|before| before.same(origin)) {
            return Ok(same.files().cloned());
        }

        let Some(root) = &origin.root else {
            return Ok(None);
        };
        let files = StaticFiles::with_blocking(root, Pool);
        let files = files.with_context(|| root_remedy(root));
        let files = files.map_err(Unserved::Root)?;
        let reporter = self.resources.faults.clone();
        let files = files
            .with_caching(origin.caching.clone())
            .with_disk_waits(self.resources.disk_waits.clone())
            .on_fault(move |status, path| reporter.file(status, path));
        let files = match &origin.content.compress {
            Some(codings) => files.with_compression(self.resources.compression(codings)),
            None => files,
        };

        let files = origin.content.apply(files).map_err(Unserved::Page)?;
        Ok(Some(Arc::new(files)))
    }
}

/// Why the files of a site are not served.
enum Unserved {
    Root(anyhow::Error),
    Page(MissingPage),
}

impl Unserved {
    fn said(self) -> anyhow::Error {
        match self {
            Self::Root(error) => error,
            Self::Page(page) => page.into(),
        }
    }
}

/// Returns where a site names a page.
fn page_place(table: &SiteTable, page: &MissingPage) -> Option<Range<usize>> {
    let named = match page {
        MissingPage::Fallback(_) => table.fallback.as_ref(),
        MissingPage::Error(number, _) => table.error_page.get(*number),
    };
    named.map(Spanned::span)
}

fn root_remedy(root: &Path) -> String {
    format!(
        "cannot serve {} (give an existing directory: plainweave web DIR)",
        root.display()
    )
}

fn content(table: &SiteTable) -> Result<Content, Mistake> {
    let mut error_pages = Vec::new();
    for page in &table.error_page {
        let parsed = error_page(page.get_ref());
        error_pages.push(parsed.map_err(|what| Mistake::new(page.span(), what))?);
    }

    let index = match &table.index {
        Some(name) => file_name(name.get_ref()).map_err(|what| Mistake::new(name.span(), what))?,
        None => "index.html".to_owned(),
    };

    Ok(Content {
        listing: table.listing,
        precompressed: table.precompressed,
        compress: compressed(table)?,
        index,
        clean_urls: table.clean_urls,
        fallback: table.fallback.as_ref().map(|path| path.get_ref().clone()),
        error_pages,
        prefix: match &table.prefix {
            Some(text) => prefix(text.get_ref()).map_err(|what| Mistake::new(text.span(), what))?,
            None => Prefix::default(),
        },
    })
}

fn compressed(table: &SiteTable) -> Result<Option<Codings>, Mistake> {
    let Some(compress) = &table.compress else {
        return Ok(None);
    };

    let text = match compress.get_ref() {
        Compress::Whether(false) => return Ok(None),
        Compress::Whether(true) => ALL_CODINGS,
        Compress::In(text) => text,
    };

    let codings = codings(text).map_err(|what| Mistake::new(compress.span(), what))?;
    Ok(Some(codings))
}

/// Returns what each of a number of sites keeps.
fn part_of(caching: &Caching, sites: usize) -> Caching {
    let sites = sites.max(1);
    Caching {
        bytes: caching.bytes / sites,
        open_files: caching.open_files.div_ceil(sites),
        ..caching.clone()
    }
}

/// Takes up a changed configuration while the server runs.
#[derive(Debug)]
pub(super) struct Reload {
    live: Live,
    resources: Resources,
    /// As the server was started: it listens where it did then.
    private: bool,
    /// What the server was started with; one reload at a time.
    started: Mutex<Gathered>,
}

impl Reload {
    pub(super) fn new(live: Live, resources: Resources, private: bool, started: Gathered) -> Self {
        Self {
            live,
            resources,
            private,
            started: Mutex::new(started),
        }
    }

    /// Reads everything again, and says what came of it.
    pub(super) fn run(&self) -> String {
        let started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread that reloads is the one that every other signal is for.
        let taken = catch_unwind(AssertUnwindSafe(|| self.taken(&started)));
        match taken {
            Ok(Ok(done)) => done,
            Ok(Err(error)) => format!("{error:#}; the sites stay as they were"),
            Err(_) => "a fault of this program; the sites stay as they were".to_owned(),
        }
    }

    fn taken(&self, started: &Gathered) -> anyhow::Result<String> {
        let (gathered, flags) = reread()?;
        let before = self.live.now();
        let before = Some(&**before);
        let sites = sites(
            Some(&gathered),
            &flags,
            self.private,
            &self.resources,
            before,
        )?;

        for root in sites.roots() {
            let reopened = root.reopen();
            reopened.with_context(|| format!("{} cannot be opened", root.path().display()))?;
        }

        let count = sites.count();
        self.live.replace(sites);
        if let Some(before) = before {
            before
                .upstreams()
                .retire_unless_in(self.live.now().upstreams());
        }
        let file = gathered.file().map_or(Path::new(""), |(file, _)| file);
        let plural = if count == 1 { "site" } else { "sites" };
        let done = format!("{} is loaded, {count} {plural}", file.display());
        let changed = started.changed(&gathered);
        let later: BTreeSet<_> = changed.filter(|name| !OF_SITE.contains(name)).collect();
        Ok(match later.is_empty() {
            true => done,
            false => {
                let names: Vec<_> = later.into_iter().collect();
                let names = names.join(", ");
                format!("{done}; what it says of {names} is for the next start")
            }
        })
    }
}

/// Says that a configuration is good, for `--check`.
pub(super) fn good(gathered: &Gathered, sites: &Sites) -> anyhow::Result<String> {
    let rules = gathered.tables()?.rules();
    let file = match gathered.file() {
        Some((file, _)) => PathBuf::from(file),
        None => "the command line".into(),
    };

    let count = sites.count();
    Ok(format!(
        "plainweave web: {} is good: {count} {}, {rules} {}",
        file.display(),
        if count == 1 { "site" } else { "sites" },
        if rules == 1 { "rule" } else { "rules" },
    ))
}
