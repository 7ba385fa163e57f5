//! No import cycle between the files of the HTTP library, the programs and the benches.
//!
//! A file imports another if its code names an item that the other defines: by `use`, or by a path
//! in place. Names are followed through re-exports to the file that defines them, so a `mod.rs`
//! that only declares and re-exports ties nothing together, while one that defines what its
//! children use and uses what they define is a cycle. Code under `#[cfg(test)]` does not count.
//! Methods are not paths: an `impl` of a type in another file is seen only through the import of
//! the type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::source::{File, read, rust_files};
use crate::{Report, is_test, lists};

const CRATES: [&str; 7] = [
    "crates/plainweave-bench/src/",
    "crates/plainweave-cache/src/",
    "crates/plainweave-cli/src/",
    "crates/plainweave-daemon/src/",
    "crates/plainweave-http/src/",
    "crates/plainweave-load/src/",
    "crates/plainweave-web/src/",
];

/// A module by its names from the root of the crate; empty for the root.
pub(crate) type Module = Vec<String>;

#[test]
fn files_do_not_import_in_a_circle() {
    let mut report = Report::default();
    let files = rust_files();
    let mut cycles = Vec::new();

    for root in CRATES {
        let program = Crate::read(root, &files);
        let imports = program.imports();
        for cycle in circles(&imports) {
            let names: Vec<_> = cycle
                .iter()
                .map(|module| program.0[module].path.as_str())
                .collect();
            if !lists::CYCLES.iter().any(|listed| names == *listed) {
                for (from, to, import) in ties(&imports, &cycle) {
                    let what = format!(
                        "takes {} from {}, which leads back here: move what both need to a file below them",
                        import.names(),
                        program.0[to].path,
                    );
                    report.add(&program.0[from].path, import.line, what);
                }
            }
            cycles.push(names.into_iter().map(str::to_owned).collect::<Vec<_>>());
        }
    }

    let architecture = read("ARCHITECTURE.md");
    for listed in lists::CYCLES {
        if !cycles.iter().any(|cycle| cycle == listed) {
            report.add(
                listed[0],
                0,
                "no longer in this cycle: take it out of tidy/lists.rs and ARCHITECTURE.md",
            );
        }

        for path in listed
            .iter()
            .filter(|path| !architecture.contains(&format!("`{path}`")))
        {
            report.add(
                path,
                0,
                "listed as part of a cycle in tidy/lists.rs: give the reason in ARCHITECTURE.md",
            );
        }
    }

    report.done();
}

/// The files of a crate by the module that each is.
pub(crate) struct Crate(BTreeMap<Module, Scope>);

/// One file, as far as names are concerned.
#[derive(Default)]
struct Scope {
    path: String,
    imports: Vec<Binding>,
    /// Paths outside `use`, with their lines.
    paths: Vec<(Vec<String>, usize)>,
    /// Single names outside `use`.
    names: BTreeSet<String>,
    /// Macros that `#[macro_export]` puts at the crate's root.
    exported: BTreeSet<String>,
}

/// A name that a `use` brings into a file.
struct Binding {
    name: String,
    path: Vec<String>,
    line: usize,
    public: bool,
}

/// What a file takes from another: the names, and the first line that has one.
#[derive(Default)]
pub(crate) struct Import {
    pub(crate) line: usize,
    names: BTreeSet<String>,
}

impl Import {
    pub(crate) fn names(&self) -> String {
        let mut text = String::new();
        for name in &self.names {
            let _ = write!(text, "{}`{name}`", if text.is_empty() { "" } else { ", " });
        }
        text
    }
}

/// Where a path leads.
enum Target {
    Module(Module),
    /// An item of this name that this module defines.
    Item(Module, String),
}

pub(crate) type Imports = BTreeMap<Module, BTreeMap<Module, Import>>;

impl Crate {
    pub(crate) fn read(root: &str, files: &[File]) -> Self {
        let own: Vec<_> = files
            .iter()
            .filter(|file| file.path.starts_with(root) && !is_test(file))
            .collect();
        let library = own.iter().any(|file| file.path[root.len()..] == *"lib.rs");
        // Beside a library, `main.rs` is a crate of its own that no file can import.
        let own = own
            .into_iter()
            .filter(|file| !library || file.path[root.len()..] != *"main.rs");
        Self(
            own.map(|file| (module(&file.path[root.len()..]), Scope::read(file)))
                .collect(),
        )
    }

    /// Returns the path of a module's file.
    pub(crate) fn path(&self, module: &[String]) -> &str {
        &self.0[module].path
    }

    /// Returns what each file takes from which other files.
    pub(crate) fn imports(&self) -> Imports {
        let mut imports = Imports::new();
        for (module, scope) in &self.0 {
            let mut tie = |to: &Module, name: &str, line: usize| {
                if to != module {
                    let import = imports
                        .entry(module.clone())
                        .or_default()
                        .entry(to.clone())
                        .or_default();
                    import.line = if import.names.is_empty() {
                        line
                    } else {
                        import.line.min(line)
                    };
                    import.names.insert(name.to_owned());
                }
            };

            for binding in &scope.imports {
                // A child's item that is passed on, and not used.
                let passed = |to: &Module| binding.public && to.starts_with(module);
                match self.target(module, &binding.path, 0) {
                    Some(Target::Item(to, name))
                        if !passed(&to) || scope.names.contains(&binding.name) =>
                    {
                        tie(&to, &name, binding.line);
                    }
                    Some(Target::Module(to)) if binding.name == "*" && !passed(&to) => {
                        tie(&to, "*", binding.line)
                    }
                    // What is named through an imported module is among the paths.
                    _ => {}
                }
            }

            for (path, line) in &scope.paths {
                match self.target(module, path, 0) {
                    Some(Target::Item(to, name)) => tie(&to, &name, *line),
                    Some(Target::Module(to)) => tie(&to, "self", *line),
                    None => {}
                }
            }
        }
        imports
    }

    /// Returns where a path leads that is named in `from`; `None` if it leaves the crate or is a
    /// local name.
    fn target(&self, from: &[String], path: &[String], depth: usize) -> Option<Target> {
        if depth > 16 {
            // `use log::log` of another crate names itself for ever.
            return None;
        }

        let mut at = from.to_vec();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &path[1..]),
            "super" | "self" => {}
            first => {
                let child = [from, &[first.to_owned()]].concat();
                if !self.0.contains_key(&child) {
                    self.binding(from, first)?;
                }
            }
        }

        while let Some((name, after)) = rest.split_first() {
            rest = after;
            match name.as_str() {
                "self" => {}
                "*" => return Some(Target::Module(at)),
                "super" => drop(at.pop()?),
                name => {
                    at.push(name.to_owned());
                    if !self.0.contains_key(&at) {
                        at.pop();
                        let Some(binding) = self.binding(&at, name) else {
                            let home = at.is_empty().then(|| self.exports(name)).flatten();
                            return Some(Target::Item(
                                home.cloned().unwrap_or(at),
                                name.to_owned(),
                            ));
                        };

                        if binding.path == [name] {
                            // A macro that its own file passes on.
                            return Some(Target::Item(at, name.to_owned()));
                        }

                        match self.target(&at, &binding.path, depth + 1)? {
                            Target::Module(module) => at = module,
                            item @ Target::Item(..) => return Some(item),
                        }
                    }
                }
            }
        }

        Some(Target::Module(at))
    }

    /// Returns the module of the file that exports this macro.
    fn exports(&self, name: &str) -> Option<&Module> {
        self.0
            .iter()
            .find(|(_, scope)| scope.exported.contains(name))
            .map(|(module, _)| module)
    }

    fn binding(&self, module: &[String], name: &str) -> Option<&Binding> {
        self.0
            .get(module)?
            .imports
            .iter()
            .find(|binding| binding.name == name)
    }
}

/// Returns the module that a file is, by its path within `src`.
fn module(path: &str) -> Module {
    let mut names: Module = path
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if matches!(
        names.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        names.pop();
    }
    names
}

/// Returns the groups of files that reach each other.
fn circles(imports: &Imports) -> Vec<Vec<Module>> {
    let reach = |from: &Module| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            next.extend(
                imports
                    .get(module)
                    .into_iter()
                    .flat_map(BTreeMap::keys)
                    .filter(|to| seen.insert((*to).clone())),
            );
        }

        seen
    };

    let reached: BTreeMap<_, _> = imports
        .keys()
        .map(|module| (module.clone(), reach(module)))
        .collect();
    let mut circles = Vec::new();
    let mut done = BTreeSet::new();

    for (module, others) in &reached {
        let circle: Vec<_> = others
            .iter()
            .filter(|other| {
                reached
                    .get(*other)
                    .is_some_and(|back| back.contains(module))
            })
            .collect();
        if circle.len() > 1 && done.insert(circle[0].clone()) {
            circles.push(circle.into_iter().cloned().collect());
        }
    }

    circles
}

/// Returns the imports among the files of a circle.
fn ties<'a>(
    imports: &'a Imports,
    circle: &'a [Module],
) -> impl Iterator<Item = (&'a Module, &'a Module, &'a Import)> {
    circle.iter().flat_map(move |from| {
        let own = imports
            .get(from)
            .into_iter()
            .flatten()
            .filter(|(to, _)| circle.contains(to));
        own.map(move |(to, import)| (from, to, import))
    })
}

impl Scope {
    fn read(file: &File) -> Self {
        let tokens = without_tests(&tokens(&file.code));
        let mut scope = Self {
            path: file.path.clone(),
            ..Self::default()
        };

        let mut i = 0;
        let mut public = false;
        while i < tokens.len() {
            let token = tokens[i].text.as_str();
            let line = tokens[i].line;
            let before = |n: usize| i.checked_sub(n).map_or("", |i| tokens[i].text.as_str());

            match token {
                // `pub`, `pub(crate)`, `pub(in a::b)`.
                "pub" => {
                    let bracket = tokens.get(i + 1).is_some_and(|token| token.text == "(");
                    let visibility = tokens.get(i + 2).map_or("", |token| token.text.as_str());
                    let restricted =
                        bracket && matches!(visibility, "crate" | "super" | "self" | "in");
                    let end = tokens[i..]
                        .iter()
                        .position(|token| token.text == ")")
                        .unwrap_or(0);
                    (i, public) = (if restricted { i + end + 1 } else { i + 1 }, true);
                    continue;
                }
                "use" => {
                    let end = tokens[i..]
                        .iter()
                        .position(|token| token.text == ";")
                        .map_or(tokens.len(), |n| i + n);
                    let mut at = i + 1;
                    scope.imports_of(&tokens[..end], &mut at, &[], public);
                    i = end;
                }
                // `#[macro_export] macro_rules! name`.
                "macro_export" => scope
                    .exported
                    .extend(tokens.get(i + 4).map(|token| token.text.clone())),
                _ if is_name(token) && before(1) != "::" && before(1) != "." => {
                    let mut path = vec![token.to_owned()];
                    while tokens.get(i + 1).is_some_and(|token| token.text == "::")
                        && tokens.get(i + 2).is_some_and(|token| is_name(&token.text))
                    {
                        path.push(tokens[i + 2].text.clone());
                        i += 2;
                    }
                    scope.names.insert(path[0].clone());
                    if path.len() > 1 {
                        scope.paths.push((path, line));
                    }
                }
                _ => {}
            }

            (i, public) = (i + 1, false);
        }

        scope
    }

    /// Reads a tree of a `use` at `at`, behind `prefix`.
    fn imports_of(&mut self, tokens: &[Token], at: &mut usize, prefix: &[String], public: bool) {
        let mut path = prefix.to_vec();
        while let Some(Token { text, line }) = tokens.get(*at) {
            *at += 1;
            match text.as_str() {
                "::" => {}
                "{" => {
                    while tokens.get(*at).is_some_and(|token| token.text != "}") {
                        self.imports_of(tokens, at, &path, public);
                        *at += usize::from(tokens.get(*at).is_some_and(|token| token.text == ","));
                    }

                    *at += 1;
                    return;
                }
                "," | "}" => {
                    *at -= 1;
                    break;
                }
                "as" => {
                    let name = tokens
                        .get(*at)
                        .map_or_else(String::new, |token| token.text.clone());
                    *at += 1;
                    return self.imports.push(Binding {
                        name,
                        path,
                        line: *line,
                        public,
                    });
                }
                name => path.push(name.to_owned()),
            }
        }

        let line = tokens
            .get(at.saturating_sub(1))
            .map_or(0, |token| token.line);
        let name = path
            .iter()
            .rev()
            .find(|name| *name != "self")
            .cloned()
            .unwrap_or_default();
        self.imports.push(Binding {
            name,
            path,
            line,
            public,
        });
    }
}

/// A name, `::`, or one other character.
#[derive(Clone)]
struct Token {
    text: String,
    line: usize,
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (n, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len());
            let len = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                _ => word,
            };

            tokens.push(Token {
                text: rest[..len].to_owned(),
                line: n + 1,
            });
            rest = rest[len..].trim_start();
        }
    }
    tokens
}

/// Leaves out items under `#[cfg(test)]` and `#[cfg(all(test, ...))]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let starts = |i: usize, text: &[&str]| {
        text.iter()
            .enumerate()
            .all(|(n, text)| tokens.get(i + n).is_some_and(|token| token.text == *text))
    };

    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        let attribute = ["#", "[", "cfg", "("];
        if starts(i, &attribute)
            && (starts(i + 4, &["test", ")"]) || starts(i + 4, &["all", "(", "test"]))
        {
            let mut depth = 0;
            while i < tokens.len() {
                match tokens[i].text.as_str() {
                    "{" | "(" | "[" => depth += 1,
                    "}" | ")" | "]" => depth -= 1,
                    _ => {}
                }

                let last = depth == 0 && matches!(tokens[i].text.as_str(), "}" | ";");
                i += 1;
                if last {
                    break;
                }
            }
        } else {
            kept.push(tokens[i].clone());
            i += 1;
        }
    }

    kept
}

#[test]
fn imports_are_followed_to_the_file_that_defines_them() {
    let file = |path: &str, code: &str| File {
        path: path.to_owned(),
        text: String::new(),
        code: code.to_owned(),
    };

    let files = [
        file(
            "lib.rs",
            "mod a; mod b; pub use b::{Deep, low}; pub(crate) use a::top;",
        ),
        file(
            "a.rs",
            "use crate::{Deep, b::{self, inner as other}};\npub fn top() { b::low(); other::x() }",
        ),
        file(
            "b/mod.rs",
            "mod inner; pub use inner::Deep;\npub fn low() {}",
        ),
        file(
            "b/inner.rs",
            "pub struct Deep; #[cfg(test)] mod tests { use crate::a::top; }\nfn x() { super::low() }",
        ),
    ];
    let imports = Crate::read("", &files).imports();
    let seen = imports.iter().flat_map(|(from, to)| {
        to.iter().map(|(to, import)| {
            format!(
                "{} {} {} {}",
                from.join("/"),
                to.join("/"),
                import.line,
                import.names()
            )
        })
    });

    let seen: Vec<_> = seen.collect();
    assert_eq!(
        seen,
        [
            "a b 2 `low`",
            "a b/inner 1 `Deep`, `x`",
            "b/inner b 2 `low`"
        ]
    );
    assert!(circles(&imports).is_empty());

    // A macro stands at the root, and is its own file's all the same.
    let exporting = [
        file("lib.rs", "mod e; mod f;"),
        file(
            "e.rs",
            "#[macro_export]\nmacro_rules! pick { () => { $crate::pick!(1) }; }",
        ),
        file("f.rs", "fn f() { crate::pick!() }"),
    ];
    let imports = Crate::read("", &exporting).imports();
    assert_eq!(
        imports
            .iter()
            .map(|(from, to)| (from, to.keys().collect()))
            .collect::<Vec<_>>(),
        [(&vec!["f".to_owned()], vec![&vec!["e".to_owned()]])]
    );
    let files = files.into_iter().chain([
        file("c.rs", "use crate::d::D;"),
        file("d.rs", "fn d() { crate::c::c() }"),
    ]);
    let imports = Crate::read("", &files.collect::<Vec<_>>()).imports();

    assert_eq!(circles(&imports), [[["c"], ["d"]]]);
}
