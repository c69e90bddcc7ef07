//! docs/conformance.md names for each requirement the file that meets it and the tests that prove it, or says why not.

use crate::security::proofs;
use std::collections::BTreeSet;
use std::path::Path;

const PAGE: &str = include_str!("../../../../docs/conformance.md");

struct Row<'a> {
    id: &'a str,
    place: &'a str,
    proof: &'a str,
}

impl<'a> Row<'a> {
    /// Cells beyond the fifth are part of the last one, so that nothing of a row is passed over.
    fn parse(line: &'a str) -> Option<Self> {
        let mut cells = line.strip_prefix('|')?.strip_suffix('|')?.splitn(5, '|').map(str::trim);
        let id = cells.next().filter(|id| is_id(id))?;
        let place = cells.nth(2).unwrap_or_default();
        Some(Row { id, place, proof: cells.next().unwrap_or_default() })
    }
}

/// Such as `LEASE-3`.
fn is_id(text: &str) -> bool {
    text.split_once('-').is_some_and(|(topic, number)| {
        !topic.is_empty()
            && topic.bytes().all(|byte| byte.is_ascii_uppercase())
            && number.parse::<u32>().is_ok()
    })
}

fn read(file: &str) -> Option<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).ok()
}

fn files(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| quoted.starts_with("crates/"));
    quoted.filter_map(|quoted| quoted.split("::").next())
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == word)
}

/// What is wrong with a page, and in which row.
fn mistakes(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for Row { id, place, proof } in page.lines().filter_map(Row::parse) {
        if !ids.insert(id) {
            found.push(format!("{id}: a second row has this id"));
        }
        if proofs(proof).next().is_none() && !proof.contains("differs: ") && !proof.contains("open: ") {
            found.push(format!("{id}: it has neither a test nor `differs:` nor `open:`"));
        }
        let missing = files(place).chain(files(proof)).filter(|file| read(file).is_none());
        found.extend(missing.map(|file| format!("{id}: there is no file {file}")));
        let is_there = |file: &str, is_in: &dyn Fn(&str) -> bool| read(file).is_none_or(|text| is_in(&text));
        let missing = proofs(place).filter(|(file, name)| !is_there(file, &|text| has_word(text, name)));
        found.extend(missing.map(|(file, name)| format!("{id}: there is no {name} in {file}")));
        let is_test = |name: &str, text: &str| text.contains(&format!("fn {name}("));
        let missing = proofs(proof).filter(|(file, name)| !is_there(file, &|text| is_test(name, text)));
        found.extend(missing.map(|(file, name)| format!("{id}: there is no test {name} in {file}")));
    }
    found
}

#[test]
fn every_requirement_has_a_proof_or_a_reason() {
    let found = mistakes(PAGE);

    assert!(found.is_empty(), "docs/conformance.md: {found:#?}");
    let count = PAGE.lines().filter_map(Row::parse).count();
    assert!(count >= 400, "of some rows the id cannot be read: {count}");
}

#[test]
fn a_mistake_in_the_page_is_named_with_its_row() {
    let file = "crates/cli/tests/program/conformance.rs";
    let good = format!(
        "| A-1 | x | x | `crates/cli/tests/program/arrows.rs::ARROWS` | `{file}::a_mistake_in_the_page_is_named_with_its_row` |"
    );
    assert_eq!(mistakes(&good), [""; 0]);
    assert_eq!(mistakes("| id | requirement | our name for it | where | proof |"), [""; 0]);

    for (row, mistake) in [
        ("| A-1 | x | x | x | differs: it need not |", "A-1: a second row has this id"),
        ("| A-2 | x | x | x | some day |", "A-2: it has neither a test"),
        ("| A-3 | x | x | x |", "A-3: it has neither a test"),
        ("| A-4 | x | x | `crates/no.rs` | open: all |", "A-4: there is no file crates/no.rs"),
        ("| A-5 | x | x | x | `crates/no.rs::x` |", "A-5: there is no file crates/no.rs"),
        (&good.replace("::ARROWS", "::BOWS").replace("A-1", "A-6"), "A-6: there is no BOWS in"),
        (&good.replace("_row`", "`").replace("A-1", "A-7"), "A-7: there is no test a_mistake_in"),
    ] {
        let found = mistakes(&format!("{good}\n{row}"));
        assert!(found.len() == 1 && found[0].starts_with(mistake), "{row}: {found:?}");
    }
}
