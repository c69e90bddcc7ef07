//! The admin's commands, over HTTP to a real server, on both engines.

mod faults;
mod jobs;
mod proxy;
mod videos;
mod workers;

use crate::support::Program;
use crate::support::house::{House, SECRET};

/// A command that asks the server.
fn there(house: &House, args: &[&str]) -> Program {
    asking(house, &house.url(""), args)
}

/// As [`there`], at another address.
fn asking(house: &House, url: &str, args: &[&str]) -> Program {
    let program = house.world.vodmill(args).env("VODMILL_SERVER", url).env("VODMILL_ADMIN_SECRET", SECRET);
    // Nothing but the server can answer.
    program.env("VODMILL_DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing")
}

/// The same command, at the server's database.
fn here(house: &House, args: &[&str]) -> Program {
    house.world.vodmill(args).env("VODMILL_DATA_FOLDER", house.data().to_str().unwrap())
}

/// The answer as JSON, the same from both, and a table of the same columns.
#[track_caller]
fn both(house: &House, args: &[&str]) -> serde_json::Value {
    let json = without_heartbeats(there(house, args).arg("--json").json());
    assert_eq!(json, without_heartbeats(here(house, args).arg("--json").json()), "{args:?}");
    let first = |program: Program| -> Vec<String> {
        let said = program.succeeds();
        said.lines().next().unwrap_or_default().split_whitespace().map(str::to_owned).take(5).collect()
    };
    assert_eq!(first(there(house, args)), first(here(house, args)), "{args:?}");
    json
}

/// What a worker says of itself may be different a moment later.
fn without_heartbeats(mut listed: serde_json::Value) -> serde_json::Value {
    for row in listed.as_array_mut().into_iter().flatten().filter_map(|row| row.as_object_mut()) {
        row.retain(|key, _| !matches!(key.as_str(), "last_heartbeat" | "phase" | "running"));
    }
    listed
}
