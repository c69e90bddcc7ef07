//! A claim does not wait for the disk, so a crash of the database may forget it and give its number again. The two
//! executions of that number never meet.

use crate::on_both_engines;
use crate::support::house::{Badge, Hand, House, good, problem, usage};
use crate::support::seat::Seat;
use crate::support::{Engine, World, kill, psql, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::PathBuf;

on_both_engines![a_forgotten_execution_never_meets_its_successor];

fn house(engine: Engine) -> House {
    let world = match engine {
        Engine::Postgres => World::with_server(),
        Engine::Sqlite => World::new(engine),
    };
    // The janitor would remove the files of the forgotten execution, which is right, and before this test has looked.
    let settings = [("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"), ("VODMILL_JANITOR_INTERVAL", "3600")];
    House::of(world, Seat::take(1), &settings)
}

/// Claims and uploads; then the database crashes and has forgotten the claim.
fn claim_and_forget(house: &mut House, hand: &Badge) -> Value {
    match house.world.engine {
        Engine::Postgres => loop {
            let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
            let wal_writer: u32 = psql(&house.world.url, sql).trim().parse().unwrap();
            kill(wal_writer, libc::SIGSTOP);
            let task = claim_and_upload(&house.again(hand), b"forgotten");
            // Its end is a crash to the others: shared memory is given up, and what is on disk is all there is.
            kill(wal_writer, libc::SIGKILL);
            until("the database is back", || leases(house).is_some());
            if leases(house) == Some(0) {
                return task;
            }
            // Something else wrote the claim to disk after all: given back, it is claimed once more.
            good(house.again(hand).release(&task).unwrap());
        },
        Engine::Sqlite => {
            house.kill();
            let (database, kept) = (house.world.folder.path().join("vodmill.db"), ["", "-wal"]);
            let copy = |suffix: &str| PathBuf::from(format!("{}{suffix}", database.display()));
            let before = kept.map(|suffix| fs::read(copy(suffix)).ok());
            house.start();
            let task = claim_and_upload(&house.again(hand), b"forgotten");
            house.kill();
            for (suffix, before) in kept.into_iter().zip(before) {
                let _ = fs::remove_file(copy(suffix));
                if let Some(bytes) = before {
                    fs::write(copy(suffix), bytes).unwrap();
                }
            }
            house.start();
            task
        }
    }
}

/// How many there are, once the database answers.
fn leases(house: &House) -> Option<usize> {
    let sql = "SELECT count(*) FROM task WHERE leased_at IS NOT NULL";
    let asked = std::process::Command::new("psql").args([&house.world.url, "-XAtqc", sql]).output().unwrap();
    asked.status.success().then(|| String::from_utf8(asked.stdout).unwrap().trim().parse().unwrap())
}

fn claim_and_upload(hand: &Hand<'_>, content: &[u8]) -> Value {
    let task = hand.claim_one();
    good(hand.put(&task, "720p/seg.m4s", content).send().unwrap());
    task
}

fn completion(task: &Value, content: &[u8]) -> Value {
    let sha256 = hex::encode(Sha256::digest(content));
    let output = json!({ "path": "720p/seg.m4s", "bytes": content.len(), "sha256": sha256 });
    json!({ "proof": task["proof"], "result": null, "outputs": [output], "usage": usage() })
}

/// All that the holder of an execution can still say about it.
fn says_everything(hand: &Hand<'_>, task: &Value) {
    problem(hand.say("complete", completion(task, b"forgotten")), 409, "refused");
    problem(hand.say("complete", completion(task, b"second")), 409, "refused");
    problem(hand.put(task, "720p/seg.m4s", b"late").send().unwrap(), 409, "refused");
    problem(hand.fail(task, "permanent", "no"), 409, "refused");
    problem(hand.release(task).unwrap(), 409, "refused");
    assert_eq!(hand.progress(task, 9)["answer"], "refused");
}

fn a_forgotten_execution_never_meets_its_successor(engine: Engine) {
    let mut house = house(engine);
    let (first, second) = (house.worker("first", &["sleep"]).badge, house.worker("second", &["sleep"]).badge);
    let stage = json!({ "name": "only", "sleep_ms": 1, "segments": 2 });
    let job = house.post("/api/jobs", json!({ "name": "x", "stage": [stage] }))["id"].as_i64().unwrap();
    let forgotten = claim_and_forget(&mut house, &first);
    let (first, second) = (house.again(&first), house.again(&second));
    let successor = claim_and_upload(&second, b"second");
    let number = |task: &Value| (task["proof"]["task"].clone(), task["proof"]["fence"].clone());
    assert_eq!(number(&forgotten), number(&successor), "the same number is given again");
    let file = |folder: &str, hand: &Hand<'_>, task: &Value| {
        fs::read(house.data().join(folder).join(hand.execution(task)).join("720p/seg.m4s"))
    };

    // On SQLite the server was started again: its janitor has removed what no execution of the database needs.
    if engine == Engine::Postgres {
        assert_eq!(file("incoming", &first, &forgotten).unwrap(), b"forgotten");
    }
    assert_eq!(file("incoming", &second, &successor).unwrap(), b"second");
    says_everything(&first, &forgotten);
    assert_eq!(file("incoming", &second, &successor).unwrap(), b"second");
    good(second.say("complete", completion(&successor, b"second")));
    says_everything(&first, &forgotten);

    assert_eq!(file("parts", &second, &successor).unwrap(), b"second");
    assert!(file("parts", &first, &forgotten).is_err(), "it never committed");
    let shown = house.get(&format!("/api/jobs/{job}/executions"));
    assert_eq!(shown[0]["id"], json!(second.execution(&successor)), "{shown}");
    good(second.complete(&second.claim_one(), Value::Null));
    until("the job completes", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    house.is_healthy();
}
