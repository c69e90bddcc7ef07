//! Writes `docs/state-machines.md`: every state × command, as the rules decide it, and the diagrams that
//! follow.
//!
//! Each machine has its file, with an [`every!`] list of its states and one of its commands. A variant that
//! is missing there does not compile.

mod execution;
mod job;
mod machine;
mod page;
mod phase;
mod task;
mod video;
mod worker;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/state-machines.md");
const REWRITE: &str = "UPDATE_DOCS=1 cargo test -p vodmill-rules";

const INTRODUCTION: &str = "\
# State machines

Written by `crates/rules/tests/tables` from the rules themselves; a test fails when this page and the code
differ. To rewrite it: `UPDATE_DOCS=1 cargo test -p vodmill-rules`.

A cell says what a command makes of a state: the state that follows in **bold**, or the name of the refusal.
The diagrams are drawn from the same cells. That these machines keep their promises together, whatever
crashes, is shown by `crates/rules/tests/model`.
";

fn page() -> String {
    let sections = [
        page::section::<video::Machine>(),
        page::section::<job::Machine>(),
        page::section::<task::Machine>(),
        page::section::<execution::Machine>(),
        page::section::<worker::Machine>(),
        page::section::<phase::Machine>(),
    ];
    format!("{INTRODUCTION}\n{}", sections.join("\n"))
}

#[test]
fn the_page_on_state_machines_says_what_the_rules_do() {
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"))
            .expect("docs can be made");
        std::fs::write(PATH, &page).expect("the page can be written");
    }

    let written = std::fs::read_to_string(PATH).unwrap_or_default();

    let differs = page.lines().zip(written.lines().chain(std::iter::repeat(""))).find(|(a, b)| a != b);
    let wanted = differs.map_or("the end of the page", |(line, _)| line);
    assert!(
        page == written,
        "docs/state-machines.md is stale; rewrite it: {REWRITE}\nFirst missing: {wanted}"
    );
}
