//! PostgreSQL's own disk is full: work pauses, says why, and goes on when there is room.

use crate::support::house::House;
use crate::support::seat::Seat;
use crate::support::{Process, Server, World, psql, until};
use serde_json::json;
use std::path::PathBuf;

const TASKS: usize = 4_000;

fn submit(world: &World) -> u64 {
    world.submit(&format!(
        "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\nsegments = {TASKS}\neffect = {{ append = 'effects' }}\n"
    ))
}

fn log(world: &World) -> PathBuf {
    world.folder.path().join("worker.log")
}

fn worker(world: &World) -> Process {
    world.vodmill(&["worker", "--exit-when-idle", "--slots", "8"]).start_logged(&log(world))
}

fn has_begun(world: &World) {
    until("some work is done", || !world.effect_lines().is_empty());
}

/// Everything was done, each once, by the worker that lived through it.
fn is_done(world: &World, job: u64, mut worker: Process) {
    assert_eq!(worker.ends(), Some(0));
    assert_eq!(world.job_state(job), "completed");
    let (mut lines, all) = (world.effect_lines(), world.effect_lines().len());
    lines.dedup();
    assert_eq!((lines.len(), all), (TASKS, TASKS));
    world.is_healthy();
}

#[test]
fn work_waits_while_the_disk_of_the_tables_is_full() {
    let server = Server::with_small_disk(48);
    let place = server.folder_on_disk("tables");
    psql(&server.url(), &format!("CREATE TABLESPACE small LOCATION '{}'", place.display()));
    psql(&server.url(), "CREATE DATABASE small TABLESPACE small");
    let world = World::at(server.url().replace("/postgres", "/small"), server);
    let house = House::of(world, Seat::take(1), &[]);
    let (world, disk) = (&house.world, house.world.server.as_ref().unwrap().disk());
    let job = submit(world);
    let worker = worker(world);
    has_begun(world);

    disk.fill();
    let said = || std::fs::read_to_string(log(world)).unwrap();
    until("the worker says why it waits", || said().contains("the disk that holds the database is full"));
    let spec = json!({ "name": "y", "stage": [{ "name": "a", "kind": "noop", "segments": 20 }] });
    until("clients are told", || {
        let answer = house.admin("POST", "/api/jobs").json(&spec).send().unwrap();
        let status = answer.status();
        assert!(status == 201 || status == 507, "{status}");
        status == 507 && answer.text().unwrap().contains("make room")
    });
    let health = house.anyone("GET", "/health").send().unwrap();
    assert_eq!(health.status(), 503);
    let health = health.text().unwrap();
    assert!(health.contains("the disk that holds the database is full"), "{health}");
    disk.make_room();

    is_done(world, job, worker);
}

/// PostgreSQL cannot live without a log: it dies, and may be started again when there is room.
#[test]
fn work_waits_while_the_disk_of_the_log_is_full() {
    let server = Server::with_small_disk(64);
    let place = server.folder_on_disk("log");
    server.stop("fast");
    let log_of_writes = server.data().join("pg_wal");
    let moved = server.disk().command("sh".as_ref());
    let script = "cp -a \"$0\"/. \"$1\" && rm -r \"$0\" && ln -s \"$1\" \"$0\"";
    let mut moved = moved;
    assert!(moved.args(["-c", script]).args([&log_of_writes, &place]).status().unwrap().success());
    server.start_again();
    let world = World::at(server.url(), server);
    let server = world.server.as_ref().unwrap();
    let job = submit(&world);
    let worker = worker(&world);
    has_begun(&world);

    server.disk().fill();
    until("PostgreSQL dies of it", || server.log().contains("PANIC"));
    let said = || std::fs::read_to_string(log(&world)).unwrap();
    until("the worker says that it is away", || said().contains("the database cannot be reached"));
    server.disk().make_room();
    server.restart("immediate");

    is_done(&world, job, worker);
}
