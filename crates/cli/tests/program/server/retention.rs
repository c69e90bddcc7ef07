//! What is old leaves the database, as soon as it may, while everything goes on: nothing that is needed goes with it.

use crate::on_both_engines;
use crate::support::house::{House, good};
use crate::support::seat::Seat;
use crate::support::{Engine, World, psql, until};
use reqwest::blocking::Response;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};

on_both_engines![what_is_needed_outlives_archive_history_and_janitor];

/// As soon as it is over.
const AT_ONCE: [(&str, &str); 4] = [
    ("VODMILL_ARCHIVE_AFTER_DAYS", "0.000001"),
    ("VODMILL_HISTORY_AFTER_DAYS", "0.000001"),
    ("VODMILL_HOUSEKEEPING_SECONDS", "0.2"),
    ("VODMILL_SAFE_AGE_SECONDS", "1"),
];

/// A PostgreSQL in whose time it is another month until [`next_month`], for history goes by the month there.
fn last_month(world: &World) {
    if world.engine == Engine::Postgres {
        let name = world.url.rsplit('/').next().unwrap();
        psql(
            &world.url,
            &format!(
                "CREATE TABLE late (by INTERVAL); INSERT INTO late VALUES ('-40 days');
                 CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE
                 AS 'SELECT pg_catalog.clock_timestamp() + (SELECT by FROM public.late)';
                 ALTER DATABASE {name} SET search_path = public, pg_catalog"
            ),
        );
    }
}

fn next_month(house: &House) {
    if house.world.engine == Engine::Postgres {
        psql(&house.world.url, "UPDATE late SET by = '0'");
    }
}

fn first(response: Response, field: &str) -> String {
    let field = format!("{field}: ");
    let mut lines = BufReader::new(response).lines().map(Result::unwrap);
    lines.find_map(|line| line.strip_prefix(&field).map(str::to_owned)).expect("the stream goes on")
}

fn command(house: &House, name: &str) -> u64 {
    let go = house.world.folder.path().join(format!("{name}.go"));
    house.world.submit(&format!(
        "name = '{name}'\nmax_attempts = 1\n[[stage]]\nname = 'before'\nkind = 'noop'\n[[stage]]\nname = 'a'\n\
         run = ['test', '-e', '{}']\neffect = {{ append = 'effects' }}\n",
        go.display()
    ))
}

/// Every file that its playlists name is served.
pub fn plays(house: &House, slug: &str) {
    let mut open = vec![format!("/videos/{slug}/master.m3u8")];
    let mut read = 0;
    while let Some(address) = open.pop() {
        let answer = house.anyone("GET", &address).send().unwrap();
        assert_eq!(answer.status(), 200, "{address}");
        read += 1;
        if address.ends_with(".m3u8") {
            let text = answer.text().unwrap();
            let folder = address.rsplit_once('/').unwrap().0;
            let quoted = text.split("URI=\"").skip(1).filter_map(|it| it.split('"').next());
            let named = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
            open.extend(named.chain(quoted).map(|it| format!("{folder}/{it}")));
        }
    }
    assert!(read > 4, "{slug}: {read} files");
}

fn archived(house: &House) -> i64 {
    house.world.count("SELECT count(*) FROM job_archive")
}

fn what_is_needed_outlives_archive_history_and_janitor(engine: Engine) {
    // Before anything runs there: a time that was is never gone back behind.
    let world = World::new(engine);
    last_month(&world);
    // A task is held while the janitor goes round.
    let settings = [("VODMILL_SERVER_SLOTS", "2"), ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1")];
    let mut house = House::of(world, Seat::take(2), &settings);
    let work = |house: &House| {
        house.world.vodmill(&["worker", "--exit-when-idle", "--slots", "1"]).succeeds();
    };
    house.upload(&house.sample("old.mp4", 4), "slug=old");
    house.video_is(1, "ready");
    let failed = command(&house, "failed");
    let started = house.world.vodmill(&["worker", "--slots", "1"]).start();
    until("the job has failed", || house.world.job_state(failed) == "failed");
    drop(started);
    let spec = json!({ "name": "keyed", "stage": [{ "name": "a", "sleep_ms": 1 }] });
    let keyed = |house: &House| {
        let request = house.admin("POST", "/api/jobs").header("idempotency-key", "one").json(&spec);
        good(request.send().unwrap())["id"].clone()
    };
    let waiting = keyed(&house);
    let listener = first(house.admin("GET", "/api/events").send().unwrap(), "id");
    house.upload(&house.sample("old2.mp4", 3), "slug=old2");
    house.video_is(2, "ready");

    house.stop();
    next_month(&house);
    for (name, value) in AT_ONCE {
        house.set(name, value);
    }
    house.start();
    let film = std::fs::read(house.sample("tus.mp4", 4)).unwrap();
    let tus =
        |house: &House, method: &str, at: &str| house.admin(method, at).header("tus-resumable", "1.0.0");
    let begun = tus(&house, "POST", "/api/uploads")
        .header("upload-length", film.len())
        .header("upload-metadata", "slug dHVz")
        .send()
        .unwrap();
    let upload = begun.headers()["location"].to_str().unwrap().to_owned();
    let upload = upload.strip_prefix(&house.url("")).unwrap_or(&upload).to_owned();
    let send = |house: &House, from: usize, to: usize| {
        let request = tus(house, "PATCH", &upload).header("upload-offset", from);
        let request = request.header("content-type", "application/offset+octet-stream");
        request.body(film[from..to].to_vec()).send().unwrap()
    };
    assert_eq!(send(&house, 0, film.len() / 2).status(), 204);
    until("old jobs are archived", || archived(&house) >= 2);
    until("old history is gone", || {
        house.world.count("SELECT count(*) FROM audit WHERE command = 'submit' AND job_id = 1") == 0
    });

    // A listener that missed what is not known any more is told so.
    let missed = house.admin("GET", "/api/events").header("last-event-id", &listener).send().unwrap();
    assert_eq!(first(missed, "event"), "reset");
    // What was under way goes on.
    assert_eq!(send(&house, film.len() / 2, film.len()).status(), 204);
    house.upload(&house.sample_of("early.mp4", "320x180", 24), "slug=early&early_playback=true");
    let hand = house.worker("hand", &["sleep"]);
    assert_eq!(keyed(&house), waiting, "its key is known, and it is not over");
    let task = hand.claim_one();
    house.janitor_goes_round();
    good(hand.complete(&task, Value::Null));
    until("it is archived in its turn", || {
        house.get(&format!("/api/jobs/{waiting}"))["state"] == "completed"
            && house.world.count("SELECT count(*) FROM job") < 4
    });
    assert_eq!(keyed(&house), waiting, "its key is known, and it is archived");
    // A failed job that is archived says so; a newer one is tried again as ever.
    let said = house.world.vodmill(&["job", "retry", &failed.to_string()]).ends_with(1);
    assert!(said.contains("archived"), "{said}");
    let shown = house.get(&format!("/api/jobs/{failed}"));
    assert_eq!(shown["state"], "failed", "{shown}");
    for id in [3, 4] {
        house.video_is(id, "ready");
    }
    for slug in ["old", "old2", "tus", "early"] {
        plays(&house, slug);
    }
    let job =
        house.post("/api/videos/old/retranscode", json!({ "settings": { "mp4": true } }))["job"].clone();
    until("it is made again", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    plays(&house, "old");
    let generations = house.get("/api/videos/1")["generations"].as_array().unwrap().clone();
    assert_eq!(generations.len(), 2);
    good(
        house
            .admin("POST", "/api/videos/1/rollback")
            .json(&json!({ "generation": generations[1]["id"] }))
            .send()
            .unwrap(),
    );
    plays(&house, "old");
    house.janitor_goes_round();
    plays(&house, "old");

    // Retention as anybody has it: what has just failed can be tried again.
    house.stop();
    house.set("VODMILL_ARCHIVE_AFTER_DAYS", "1");
    house.start();
    let again = command(&house, "again");
    let started = house.world.vodmill(&["worker", "--slots", "1"]).start();
    until("the job has failed", || house.world.job_state(again) == "failed");
    std::fs::write(house.world.folder.path().join("again.go"), "").unwrap();
    house.world.vodmill(&["job", "retry", &again.to_string()]).succeeds();
    until("the job is done", || house.world.job_state(again) == "completed");
    drop(started);
    work(&house);
    assert_eq!(house.world.effect_lines().len(), 1);
    one_video_is_purged_and_no_other(&mut house);
    let doctor = house.world.vodmill(&["doctor", "--files", "--deep"]);
    doctor.env("VODMILL_DATA_FOLDER", house.data().to_str().unwrap()).succeeds();
}

/// A round of the janitor removes what was deleted long enough ago, while a job of another video runs, and a third one is
/// deleted and restored.
fn one_video_is_purged_and_no_other(house: &mut House) {
    let sources = |house: &House| std::fs::read_dir(house.data().join("sources")).unwrap().count();
    let folder = house.data().join("videos/2");
    assert!(folder.exists());
    assert_eq!(sources(house), 4);
    house.stop();
    house.set("VODMILL_ARCHIVE_AFTER_DAYS", "0.000001");
    // Seven seconds.
    house.set("VODMILL_RETENTION_DAYS", "0.00008");
    house.start();

    assert_eq!(house.admin("DELETE", "/api/videos/2").send().unwrap().status(), 204);
    assert_eq!(house.admin("DELETE", "/api/videos/3").send().unwrap().status(), 204);
    house.post("/api/videos/3/restore", json!({}));
    let again = json!({ "settings": { "mp4": true } });
    let job = house.post("/api/videos/4/retranscode", again)["job"].clone();
    until("the deleted one is purged", || {
        house.admin("GET", "/api/videos/2").send().unwrap().status() == 404
    });

    assert!(!folder.exists());
    until("the job goes on", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    house.janitor_goes_round();
    for slug in ["old", "tus", "early"] {
        plays(house, slug);
    }
    assert_eq!(sources(house), 3);
    assert_eq!(house.world.count("SELECT count(*) FROM video"), 3);
}
