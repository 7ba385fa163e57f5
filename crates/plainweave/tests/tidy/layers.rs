//! Who may use what: `unsafe`, imports, atomics, thread-locals, the terminal.

use crate::cycles::Crate;
use crate::source::{File, files, has_word, lines_with, read, rust_files};
use crate::{Report, is_library, is_test, lists};

/// `unsafe_code` is denied (Cargo.toml), and a file that needs it expects it, with a reason. Nothing
/// else lifts that: what is allowed stays so when it is not needed any more.
#[test]
fn unsafe_is_expected_with_a_reason() {
    let mut report = Report::default();
    let lint = concat!("unsafe", "_code");
    for file in rust_files() {
        for (n, line) in file.text.lines().enumerate() {
            let lifts = line.trim_start().starts_with("#") && line.contains(lint);
            let says_why = line.contains("expect(") && line.contains("reason = \"");
            if lifts && !says_why && !line.contains("deny(") {
                report.add(&file.path, n + 1, "expect it, with a reason");
            }
        }
    }

    report.done();
}

#[test]
fn imports_lead_downwards() {
    let mut report = Report::default();
    let files = rust_files();
    for layers in lists::CRATES {
        let program = Crate::read(layers.root, &files);
        let imports = program.imports();
        for (from, to, import) in imports
            .iter()
            .flat_map(|(from, to)| to.iter().map(move |(to, import)| (from, to, import)))
        {
            if !may_import(layers, room(from), room(to)) {
                let what = format!(
                    "takes {} from `{}`, which `{}` may not know: see tidy/lists.rs",
                    import.names(),
                    room(to),
                    room(from)
                );
                report.add(program.path(from), import.line, what);
            }
        }
    }
    report.done();
}

fn may_import(layers: &lists::Layers, above: &str, below: &str) -> bool {
    let row = |room: &str| layers.rows.iter().position(|row| row.contains(&room));
    let downwards = match (row(above), row(below)) {
        (Some(0), Some(_)) => true,
        (Some(from), Some(to)) => from < to,
        _ => false,
    };
    let is_runtime = layers.rows == lists::LAYERS;
    let narrow = lists::NARROW
        .iter()
        .find(|(room, _)| is_runtime && *room == above);
    above == below || downwards && narrow.is_none_or(|(_, rooms)| rooms.contains(&below))
}

/// Returns the first name of a module's path: a folder or a file of `src`. What stands in for it in
/// a build without it has its place.
fn room(module: &[String]) -> &str {
    let name = module.first().map_or("", String::as_str);
    name.strip_suffix("_absent").unwrap_or(name)
}

#[test]
fn policies_import_their_parent_and_queues() {
    let mut report = Report::default();
    for file in rust_files()
        .iter()
        .filter(|file| file.path.starts_with("crates/plainweave/src/policy/"))
    {
        for (n, line) in file.code.lines().enumerate() {
            if let Some(path) = foreign_import(file, line) {
                let what = format!(
                    "a policy uses `{path}`: it may use its parent, `crate::queue`, `crate::shim` and `std`"
                );
                report.add(&file.path, n + 1, what);
            }
        }
    }
    report.done();
}

/// The path of a policy's line that leads elsewhere. (`crossbeam_utils` pads to cache lines.)
fn foreign_import<'a>(file: &File, line: &'a str) -> Option<&'a str> {
    if let Some(at) = line.find("crate::") {
        let path = &line[at..];
        // Not `pub(crate)`, which has no path behind it.
        let allowed = ["crate::policy", "crate::queue", "crate::shim"];
        return (!allowed.iter().any(|layer| path.starts_with(layer))).then_some(path);
    }

    let import = line
        .trim_start()
        .trim_start_matches("pub ")
        .trim_start_matches("pub(super) ");
    let path = import.strip_prefix("use ")?;
    let first = path.split([':', ';', ' ']).next()?;
    let own = lines_with(&file.code, &format!("mod {first}"));

    (!matches!(
        first,
        "super" | "self" | "std" | "core" | "alloc" | "crossbeam_utils"
    ) && own.is_empty())
    .then_some(path)
}

#[test]
fn lock_free_code_comes_through_the_shim() {
    let mut report = Report::default();
    let forbidden = [
        "std::sync::atomic",
        "core::sync::atomic",
        "std::cell::UnsafeCell",
        "std::sync::Mutex",
        "std::sync::Arc",
    ];
    let lock_free = |file: &&File| {
        lists::LOCK_FREE
            .iter()
            .any(|path| file.path.starts_with(path))
            && !is_test(file)
    };

    for file in rust_files().iter().filter(lock_free) {
        // Models stand at the end and talk to loom itself.
        let code = file
            .code
            .split("mod loom_models")
            .next()
            .unwrap_or_default();
        for (n, line) in code.lines().enumerate() {
            for path in forbidden
                .iter()
                .chain(&["loom::"])
                .filter(|path| line.contains(**path))
            {
                report.add(
                    &file.path,
                    n + 1,
                    format!("`{path}` in lock-free code: take it from `crate::shim`"),
                );
            }
            if line.contains("std::sync::{")
                && (has_word(line, "atomic") || has_word(line, "Mutex"))
            {
                report.add(
                    &file.path,
                    n + 1,
                    "lock-free code: take atomics and locks from `crate::shim`",
                );
            }
        }
    }

    report.done();
}

#[test]
fn thread_locals_are_few() {
    let mut report = Report::default();
    for file in rust_files().iter().filter(|file| is_library(file)) {
        for line in lines_with(&file.code, "thread_local!") {
            if !lists::THREAD_LOCAL.contains(&file.path.as_str()) {
                report.add(
                    &file.path,
                    line,
                    "a thread-local: keep it in the fiber's header or the worker's context",
                );
            }
        }
    }
    report.done();
}

#[test]
fn libraries_neither_print_nor_exit() {
    let mut report = Report::default();
    let calls = [
        "println!",
        "eprintln!",
        "print!",
        "eprint!",
        "process::exit",
        "process::abort",
        "stdout(",
        "stderr(",
    ];
    for file in rust_files().iter().filter(|file| is_library(file)) {
        for (n, line) in file.code.lines().enumerate() {
            for call in calls.iter().filter(|call| has_word(line, call)) {
                if !lists::LAST_WORDS.contains(&(file.path.as_str(), call)) {
                    report.add(
                        &file.path,
                        n + 1,
                        format!("`{call}` in a library: return an error instead"),
                    );
                }
            }
        }
    }

    report.done();
}

/// The workspaces under `tools` have lock files of their own, which nothing that runs often would
/// find out of date.
#[test]
fn lock_files_of_the_tools_know_what_the_crates_depend_on() {
    let mut report = Report::default();
    for lock in files("tools", "lock") {
        for package in lock.text.split("[[package]]\n").skip(1) {
            let name = package.split('"').nth(1).unwrap_or_default();
            if !name.starts_with("plainweave") {
                continue;
            }

            let locked = package.split("dependencies = [").nth(1).unwrap_or_default();
            // With a version behind it where there are several.
            let locked: Vec<&str> = locked
                .split('"')
                .skip(1)
                .step_by(2)
                .filter_map(|entry| entry.split(' ').next())
                .collect();
            let manifest = read(&format!("crates/{name}/Cargo.toml"));
            let (all, needed) = dependencies(&manifest);
            let is_current = locked.iter().all(|one| all.contains(one))
                && needed.iter().all(|one| locked.contains(one));
            if !is_current {
                let remedy = "`cargo metadata` in its folder brings it up to date";
                report.add(&lock.path, 0, format!("{name} depends on others: {remedy}"));
            }
        }
    }
    report.done();
}

/// The dependencies of a manifest, and those among them that are not optional.
fn dependencies(manifest: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut all, mut needed) = (Vec::new(), Vec::new());
    let mut is_inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_inside = line.ends_with("dependencies]") && !line.contains("dev-");
        } else if let Some(name) = line.split(['.', ' ', '=']).next()
            && is_inside
            && !name.is_empty()
            && !name.starts_with('#')
        {
            all.push(name);
            if !line.contains("optional = true") {
                needed.push(name);
            }
        }
    }
    (all, needed)
}
