//! A backup is restored: ids are given again, and what is given twice is told apart.

use crate::on_both_engines;
use crate::storage::bucket::Bucket;
use crate::support::house::House;
use crate::support::seat::Seat;
use crate::support::{Engine, World, psql, shared_server, until};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

on_both_engines![
    work_after_a_restore_is_told_apart_from_what_was_lost,
    an_operator_who_restores_all_by_hand_begins_a_timeline,
    a_server_with_a_fresh_disk_notices_a_restore_by_its_bucket,
];

const JOB: &str = "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\neffect = { append = 'effects' }";

/// A job from its submission to the delivery of its effect.
fn work(world: &World) {
    let before = world.effect_lines().len();
    world.submit(JOB);
    let idle = world.vodmill(&["worker", "--exit-when-idle", "--slots", "1"]);
    idle.env("VODMILL_ARCHIVE_AFTER_DAYS", "30").succeeds();
    until("the effect is delivered", || world.effect_lines().len() > before);
}

/// A copy of a database that no program uses.
struct Backup(Option<Vec<u8>>);

fn name(world: &World) -> (String, String) {
    let name = world.url.rsplit('/').next().unwrap().to_owned();
    (format!("{name}_backup"), name)
}

fn file(world: &World) -> PathBuf {
    world.folder.path().join("vodmill.db")
}

fn back_up(world: &World) -> Backup {
    match world.engine {
        Engine::Sqlite => Backup(Some(fs::read(file(world)).unwrap())),
        Engine::Postgres => {
            let (backup, name) = name(world);
            psql(&shared_server(), &format!("CREATE DATABASE {backup} TEMPLATE {name}"));
            Backup(None)
        }
    }
}

fn restore(world: &World, backup: &Backup) {
    match &backup.0 {
        Some(bytes) => {
            // Of a server that was killed.
            for beside in ["db-wal", "db-shm"] {
                let _ = fs::remove_file(file(world).with_extension(beside));
            }
            fs::write(file(world), bytes).unwrap();
        }
        None => {
            let (backup, name) = name(world);
            psql(&shared_server(), &format!("DROP DATABASE {name} WITH (FORCE)"));
            psql(&shared_server(), &format!("ALTER DATABASE {backup} RENAME TO {name}"));
        }
    }
}

/// The first event that a listener is told after this id.
fn told(house: &House, after: &str) -> String {
    let request = house.admin("GET", "/api/events").header("last-event-id", after);
    let mut lines = BufReader::new(request.send().unwrap()).lines().map(Result::unwrap);
    lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned)).expect("the stream goes on")
}

/// Where a listener is who has heard everything.
fn end(house: &House) -> String {
    let lines = BufReader::new(house.admin("GET", "/api/events").send().unwrap()).lines();
    lines.map(Result::unwrap).find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap()
}

fn work_after_a_restore_is_told_apart_from_what_was_lost(engine: Engine) {
    let mut house = House::new(engine);
    work(&house.world);
    house.stop();
    let backup = back_up(&house.world);
    house.start();
    let kept = end(&house);
    work(&house.world);
    let lost = end(&house);
    house.stop();

    restore(&house.world, &backup);
    house.start();
    for _ in 0..3 {
        work(&house.world);
    }

    let lines = house.world.effect_lines();
    let expected = ["1-0", "2-0", "2-0", "3-0", "4-0"].map(|task| format!("append/{task}\t{task}"));
    assert_eq!(lines, expected, "the second job of both histories has its effect");
    for place in [&kept, &lost] {
        assert_eq!(told(&house, place), "reset", "after {place}");
    }
    let now = end(&house);
    work(&house.world);
    assert_ne!(told(&house, &now), "reset", "what is of this history goes on");
    let said = house.world.vodmill(&["doctor"]).succeeds();
    assert!(said.contains("note: timeline ") && said.contains("was restored"), "{said}");
    let report = house.world.vodmill(&["doctor", "--json"]).json();
    assert_eq!(report["notes"].as_array().unwrap().len(), 1, "once: {report}");
    house.stop();
    house.start();
    assert_ne!(told(&house, &now), "reset", "a start by itself begins nothing");
}

fn an_operator_who_restores_all_by_hand_begins_a_timeline(engine: Engine) {
    let mut house = House::new(engine);
    work(&house.world);
    let before = end(&house);
    house.stop();

    let said = house.world.vodmill(&["migrate", "--new-timeline", "--json"]).json();

    assert_eq!(said["timeline"].as_str().map(str::len), Some(8), "{said}");
    house.start();
    assert_eq!(told(&house, &before), "reset");
    assert!(end(&house).starts_with(said["timeline"].as_str().unwrap()));
    house.is_healthy();
}

fn a_server_with_a_fresh_disk_notices_a_restore_by_its_bucket(engine: Engine) {
    let bucket = Bucket::start();
    let (url, endpoint) = (Bucket::url(), bucket.endpoint());
    let settings = Bucket::settings(&url, &endpoint);
    let mut house = House::of(World::new(engine), Seat::take(1), &settings);
    work(&house.world);
    house.stop();
    let backup = back_up(&house.world);
    house.start();
    let before = fs::read(bucket.path("timeline.json")).unwrap();
    work(&house.world);
    until("the bucket has a later mark", || fs::read(bucket.path("timeline.json")).unwrap() != before);
    house.kill();

    restore(&house.world, &backup);
    fs::remove_dir_all(house.data()).unwrap();
    house.start();

    let said = house.world.vodmill(&["doctor"]).succeeds();
    assert!(said.contains("note: timeline ") && said.contains("was restored"), "{said}");
    house.stop();
    house.start();
    let timelines = house.world.count("SELECT count(*) FROM timeline");
    assert_eq!(timelines, 2, "once for one restore");
}
