//! The API does what its document says: schemathesis asks it everything the document allows, and much that it does not.

use crate::support::house::{House, SECRET};
use crate::support::seat::Seat;
use crate::support::{Engine, said};
use std::process::Command;

/// Installed by `make test`; `make contract` looks for longer.
const FUZZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/tools/bin/schemathesis");

/// What it has to be told.
const HOOKS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/server/contract.py");

const CHECKS: &str =
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";

#[test]
fn the_api_is_what_its_document_says() {
    let house = House::seated(Seat::take(2), Engine::Sqlite, &[]);
    let worker = house.worker("fuzzed", &["sleep"]);
    let phases = std::env::var("VODMILL_CONTRACT_PHASES").unwrap_or_else(|_| "coverage".into());
    let mut fuzz = Command::new(FUZZER);
    fuzz.env("SCHEMATHESIS_HOOKS", HOOKS).env("PYTHONDONTWRITEBYTECODE", "1");
    fuzz.args([
        "run",
        &house.url("/api/openapi.json"),
        "--phases",
        &phases,
        "--checks",
        CHECKS,
        "--no-color",
    ]);
    // Events go on for ever.
    // One at a time: its Python breaks down when several read source code at once.
    fuzz.args(["--exclude-path", "/api/events", "--workers", "1"]);
    fuzz.args([
        "-H",
        &format!("X-Admin-Secret: {SECRET}"),
        "-H",
        &format!("Authorization: Bearer {}", worker.key),
    ]);

    let found = fuzz.current_dir(house.world.folder.path()).output();

    let found = found.expect("schemathesis is missing: `make test` installs it");
    assert!(found.status.success(), "{}", said(&found));
    house.is_healthy();
}
