//! Whatever clients bring, a part of the server's disk stays free for its database.

use crate::support::house::{Hand, House, good, problem};
use crate::support::until;
use serde_json::{Value, json};

const DISK_MB: u32 = 96;

/// Incompressible, and larger than what may be written.
const TOO_MUCH: usize = 80 << 20;

fn house() -> House {
    let settings = [
        ("VODMILL_SERVER_DISK_RESERVE_MB", "32"),
        ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "10"),
        ("VODMILL_SERVER_SLOTS", "0"),
    ];
    House::on_own_disk(DISK_MB, &settings)
}

fn submit(house: &House) -> i64 {
    let job = json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1 }] });
    house.post("/api/jobs", job)["id"].as_i64().unwrap()
}

fn is_well(house: &House) {
    good(house.anyone("GET", "/health").send().unwrap());
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let block = |state: &mut u64| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as u8
    };
    (0..bytes).map(|_| block(&mut state)).collect()
}

fn archive(content: &[u8]) -> Vec<u8> {
    let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    let mut builder = tar::Builder::new(gzip);
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "noise", content).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

/// Brings outputs until it is stopped; how many megabytes it brought.
fn bring_without_end(hand: &Hand<'_>, task: &Value, block: &[u8]) -> usize {
    for n in 0..DISK_MB as usize {
        let answer = hand.put(task, &format!("f{n}"), block).send().unwrap();
        if !answer.status().is_success() {
            let why = problem(answer, 507, "disk_full")["detail"].to_string();
            assert!(
                why.contains("MiB are free on the disk of the data folder, and 32 are to stay free"),
                "{why}"
            );
            return (n * block.len()) >> 20;
        }
    }
    panic!("nothing stopped it");
}

#[test]
fn a_worker_that_uploads_without_end_leaves_the_server_room_to_go_on() {
    let house = house();
    let (greedy, honest) = (house.worker("greedy", &["sleep"]), house.worker("honest", &["sleep"]));
    let endless = submit(&house);
    let (task, noise) = (greedy.claim_one(), noise(TOO_MUCH));
    let small = submit(&house);

    let packed = greedy.request("POST", "/api/worker/outputs").header("content-type", "application/gzip");
    let packed = packed.header("x-vodmill-proof", greedy.proof_header(&task)).body(archive(&noise));
    problem(packed.send().unwrap(), 507, "disk_full");
    is_well(&house);
    let brought = bring_without_end(&greedy, &task, &noise[..4 << 20]);
    assert!((32..64).contains(&brought), "what the archive left behind was removed: {brought}");
    is_well(&house);

    problem(
        house.admin("POST", "/api/videos").body(noise[..48 << 20].to_vec()).send().unwrap(),
        507,
        "disk_full",
    );
    let tus = house.admin("POST", "/api/uploads").header("tus-resumable", "1.0.0");
    problem(tus.header("upload-length", 48 << 20).send().unwrap(), 507, "disk_full");

    let other = honest.claim_one();
    assert_eq!(honest.put(&other, "small", b"small").send().unwrap().status(), 201);
    let output = json!([{ "path": "small", "bytes": 5, "sha256": sha256(b"small") }]);
    let done = json!({ "proof": other["proof"], "outputs": output, "usage": crate::support::house::usage() });
    good(honest.say("complete", done));
    until("the small job completes", || house.get(&format!("/api/jobs/{small}"))["state"] == "completed");

    good(greedy.release(&task).unwrap());
    let again = honest.claim_one();
    assert_eq!(again["job"], endless);
    problem(greedy.put(&task, "more", b"more").send().unwrap(), 409, "refused");
    let large = honest.put(&again, "large", &noise[..12 << 20]).send().unwrap();
    assert_eq!(large.status(), 201, "what the other brought is gone with its lease");
}

/// Many at a time, each of which would fit: they are counted together.
#[test]
fn uploads_at_one_time_do_not_break_the_reserve() {
    let house = house();
    let hand = house.worker("hand", &["sleep"]);
    submit(&house);
    let (task, noise) = (hand.claim_one(), noise(12 << 20));

    let (hand, task, noise) = (&hand, &task, &noise);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let bring = move |n: usize| hand.put(task, &format!("f{n}"), noise).send().unwrap();
        let all: Vec<_> = (0..12).map(|n| scope.spawn(move || bring(n))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });

    let refused: Vec<_> = answers.into_iter().filter(|answer| answer.status() != 201).collect();
    assert!(refused.len() >= 7, "the others have no place beside the reserve");
    for answer in refused {
        let why = problem(answer, 507, "disk_full")["detail"].to_string();
        assert!(why.contains("are to stay free"), "the disk was never full: {why}");
    }
    is_well(&house);
    good(hand.release(task).unwrap());
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(Sha256::digest(bytes))
}
