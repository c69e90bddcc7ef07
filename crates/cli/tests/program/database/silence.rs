//! A connection to PostgreSQL that falls silent: the machine is gone, or a firewall has forgotten it, and nobody says so.

use crate::support::house::House;
use crate::support::seat::Seat;
use crate::support::silent_line::{SilentLine, Way};
use crate::support::{Engine, World, until};
use serde_json::json;
use std::time::Duration;

/// A second is long, for the test.
const PATIENCE: (&str, &str) = ("VODMILL_DATABASE_SILENCE_SECONDS", "1");

fn world_behind_a_line() -> (World, SilentLine) {
    let mut world = World::new(Engine::Postgres);
    let (before, after) = world.url.split_once('@').unwrap();
    let (address, name) = after.split_once('/').unwrap();
    let line = SilentLine::to(address);
    world.url = format!("{before}@{}/{name}", line.address());
    (world, line)
}

#[test]
fn a_database_that_falls_silent_hangs_nobody() {
    let (world, line) = world_behind_a_line();
    let house = House::of(world, Seat::take(1), &[PATIENCE]);
    let world = &house.world;
    let job = world.submit(
        "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'sleep'\nwith = { ms = 100 }\nsegments = 300\neffect = { append = 'effects' }\n",
    );
    let log = world.folder.path().join("worker.log");
    let worker = world.vodmill(&["worker", "--exit-when-idle", "--slots", "4"]).env(PATIENCE.0, PATIENCE.1);
    let mut worker = worker.start_logged(&log);
    until("some work is done", || !world.effect_lines().is_empty());

    // Questions and answers that are on their way are lost with their connections.
    line.stand_still(Way::Back);
    std::thread::sleep(Duration::from_millis(500));
    line.lose_connections();
    line.go_on();
    until("the server answers", || {
        let spec = json!({ "name": "y", "stage": [{ "name": "a", "kind": "noop" }] });
        house.admin("POST", "/api/jobs").json(&spec).send().is_ok_and(|it| it.status() == 201)
    });

    assert_eq!(worker.ends(), Some(0));
    assert_eq!(world.job_state(job), "completed");
    assert_eq!(world.effect_lines().len(), 300);
    house.is_healthy();
}
