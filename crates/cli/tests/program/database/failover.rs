//! A standby that misses the latest transactions takes over: the database goes back in time.

use crate::support::house::{Hand, House, good, problem};
use crate::support::seat::Seat;
use crate::support::{Server, World, psql, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

const JOB: &str = "name = 'x'\n[[stage]]\nname = 'a'\nkind = 'noop'\neffect = { append = 'effects' }";

fn primary(house: &House) -> &Server {
    house.world.server.as_ref().unwrap()
}

/// Everything that has been written so far is there.
fn catch_up(standby: &Server, primary: &Server) {
    let end = psql(&primary.url(), "SELECT pg_current_wal_insert_lsn()");
    let is_there = format!("SELECT pg_last_wal_replay_lsn() >= '{}'", end.trim());
    until("the standby has caught up", || {
        // What waits for no disk is sent when the next that does is.
        psql(&primary.url(), "SELECT pg_logical_emit_message(true, 'test', '')");
        psql(&standby.url(), &is_there).trim() == "t"
    });
}

/// From now on it misses what happens.
fn cut_off(standby: &Server) {
    psql(&standby.url(), "ALTER SYSTEM SET primary_conninfo = ''");
    psql(&standby.url(), "SELECT pg_reload_conf()");
    until("the standby hears nothing", || {
        psql(&standby.url(), "SELECT count(*) FROM pg_stat_wal_receiver").trim() == "0"
    });
}

/// A sequence is written down some numbers ahead. As if all of these had been given: the next is given by both.
fn meet(primary: &Server, standby: &Server) {
    let sequences =
        psql(&standby.url(), "SELECT sequencename, last_value FROM pg_sequences WHERE last_value > 0");
    for (name, last) in sequences.lines().filter_map(|line| line.split_once('|')) {
        psql(&primary.url(), &format!("SELECT setval('{name}', {last})"));
    }
}

/// The primary is gone, and programs find the standby in its place; it is not promoted yet.
fn replace(primary: &Server, standby: &Server) {
    primary.stop("immediate");
    standby.stop("fast");
    standby.move_to_port_of(primary);
    standby.start_again();
}

fn place(house: &House) -> String {
    let lines = BufReader::new(house.admin("GET", "/api/events").send().unwrap()).lines();
    lines.map(Result::unwrap).find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap()
}

/// The first event that a listener is told after this id.
fn told(house: &House, after: &str) -> String {
    let request = house.admin("GET", "/api/events").header("last-event-id", after);
    let mut lines = BufReader::new(request.send().unwrap()).lines().map(Result::unwrap);
    lines.find_map(|line| line.strip_prefix("event: ").map(str::to_owned)).expect("the stream goes on")
}

fn sleep(house: &House) -> Value {
    let spec = json!({ "name": "x", "stage": [{ "name": "a", "sleep_ms": 1 }] });
    house.post("/api/jobs", spec)["id"].clone()
}

fn timelines(house: &House) -> usize {
    house.world.vodmill(&["doctor", "--json"]).json()["notes"].as_array().unwrap().len()
}

/// What is wrong with files, as the doctor sees it.
fn strays(house: &House) -> Vec<String> {
    let doctor = house.world.vodmill(&["doctor", "--files", "--deep", "--json"]);
    let output = doctor.env("VODMILL_DATA_FOLDER", house.data().to_str().unwrap()).output();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = |it: &Value| format!("{}: {}", it["subject"].as_str().unwrap(), it["what"].as_str().unwrap());
    report["findings"].as_array().unwrap().iter().map(told).collect()
}

/// All files below, with their content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|(path, it)| (format!("{name}/{path}"), it)));
        } else {
            found.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

fn plays(house: &House, slug: &str) {
    let master = house.anyone("GET", &format!("/videos/{slug}/master.m3u8")).send().unwrap();
    assert_eq!(master.status(), 200, "{slug}");
    assert!(master.text().unwrap().contains("#EXT-X-STREAM-INF"), "{slug}");
}

fn is_refused(hand: &Hand<'_>, lost: &Value) {
    let answer = hand.complete(lost, Value::Null);
    assert!(answer.status().is_client_error(), "{}", answer.status());
}

#[test]
fn a_standby_that_lags_takes_over_and_nothing_is_taken_for_what_it_is_not() {
    let settings = [
        ("VODMILL_SERVER_SLOTS", "2"),
        ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1"),
        ("VODMILL_SAFE_AGE_SECONDS", "1"),
    ];
    let mut house = House::of(World::with_server(), Seat::take(2), &settings);
    let standby = primary(&house).standby();
    house.upload(&house.sample("kept.mp4", 2), "slug=kept");
    house.video_is(1, "ready");
    let hand = house.worker("hand", &["sleep"]);
    let known = sleep(&house);
    let held = hand.claim_one();
    catch_up(&standby, primary(&house));
    cut_off(&standby);
    meet(primary(&house), &standby);

    good(hand.complete(&held, Value::Null));
    let forgotten = sleep(&house);
    let lost = hand.claim_one();
    let lost_video = house.upload(&house.sample("lost.mp4", 3), "slug=lost")["id"].as_i64().unwrap();
    house.video_is(lost_video, "ready");
    let listener = place(&house);
    let published = files(&house.data().join("videos"));
    replace(primary(&house), &standby);
    let spec = json!({ "name": "x", "stage": [{ "name": "a", "sleep_ms": 1 }] });
    let early = house.admin("POST", "/api/jobs").json(&spec).send().unwrap();
    let said = problem(early, 503, "database_away")["detail"].as_str().unwrap().to_owned();
    assert!(said.contains("standby"), "{said}");
    standby.promote();
    until("the server notices", || {
        house.anyone("GET", "/health").send().is_ok_and(|it| it.status() == 200) && timelines(&house) == 1
    });

    // A listener may not be told what has not happened, and not miss what has.
    assert_eq!(told(&house, &listener), "reset");
    // What the standby knows completes, although its worker has said so before.
    good(hand.complete(&held, Value::Null));
    let state = |job: &Value| house.get(&format!("/api/jobs/{job}"))["state"].clone();
    until("the job that both knew completes", || state(&known) == "completed");
    // What it does not know is refused, before and after another job has its number.
    is_refused(&hand, &lost);
    assert_eq!(sleep(&house), forgotten, "numbers are given again");
    let found = hand.claim_one();
    assert_ne!(hand.execution(&found), hand.execution(&lost));
    is_refused(&hand, &lost);
    good(hand.complete(&found, Value::Null));
    until("the job with the same number completes", || state(&forgotten) == "completed");

    plays(&house, "kept");
    assert_eq!(house.anyone("GET", "/videos/lost/master.m3u8").send().unwrap().status(), 404);
    house.world.is_healthy();
    let new_video = house.upload(&house.sample("new.mp4", 2), "slug=new")["id"].as_i64().unwrap();
    assert_eq!(new_video, lost_video, "numbers are given again");
    house.video_is(new_video, "ready");
    plays(&house, "new");
    // All that was published is still there, and the doctor says what of it nobody needs.
    house.stop();
    house.start();
    house.janitor_goes_round();
    let there = files(&house.data().join("videos"));
    for (path, content) in &published {
        assert!(there.get(path) == Some(content), "{path} is gone");
    }
    let strays = strays(&house);
    assert_eq!(strays.len(), 2, "the lost video's stream and its source: {strays:?}");
    assert!(strays.iter().all(|it| it.contains("timeline")), "{strays:?}");
    assert_eq!(timelines(&house), 1, "one is enough");
    house.is_healthy();
}

/// Nobody has noted any of what is lost: it happened just before.
#[test]
fn a_standby_that_lags_by_an_instant_begins_a_timeline_too() {
    let mut house = House::of(World::with_server(), Seat::take(1), &[]);
    let standby = primary(&house).standby();
    let work = |house: &House| {
        let before = house.world.effect_lines().len();
        house.world.submit(JOB);
        house.world.vodmill(&["worker", "--exit-when-idle", "--slots", "1"]).succeeds();
        until("the effect is delivered", || house.world.effect_lines().len() > before);
    };
    work(&house);
    house.stop();
    catch_up(&standby, primary(&house));
    cut_off(&standby);
    meet(primary(&house), &standby);
    work(&house);

    replace(primary(&house), &standby);
    standby.promote();
    work(&house);

    let effects = house.world.effect_lines();
    assert_eq!(effects.len(), 3, "the second job of both histories has its effect: {effects:?}");
    assert_eq!(effects[1], effects[2], "it has the same number");
    house.start();
    assert_eq!(timelines(&house), 1);
    house.is_healthy();
}

/// A worker at the database has finished, and the database can be read and not written.
#[test]
fn a_worker_keeps_its_result_while_its_database_is_a_standby() {
    let world = World::with_server();
    let primary = world.server.as_ref().unwrap();
    let standby = primary.standby();
    let go = world.folder.path().join("go");
    let run = format!("until test -e {}; do sleep 0.05; done", go.display());
    let job = world.submit(&format!("name = 'x'\n[[stage]]\nname = 'a'\nrun = ['sh', '-c', '{run}']"));
    let log = world.folder.path().join("worker.log");
    let mut worker = world.vodmill(&["worker", "--exit-when-idle"]).start_logged(&log);
    let executions = || {
        let job = job.to_string();
        world.vodmill(&["job", "executions", &job, "--json"]).json().as_array().unwrap().clone()
    };
    until("it runs", || executions().iter().any(|it| it["status"] == "IN_PROGRESS"));
    catch_up(&standby, primary);

    replace(primary, &standby);
    std::fs::write(&go, "").unwrap();
    let said = || std::fs::read_to_string(&log).unwrap();
    until("it cannot say so", || said().contains("keeping the report"));
    standby.promote();

    assert_eq!(worker.ends(), Some(0), "{}", said());
    assert_eq!(world.job_state(job), "completed");
    assert_eq!(executions().len(), 1);
    world.is_healthy();
}
