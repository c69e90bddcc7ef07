//! Edge cases of document 001 and more of the worker protocol, over real HTTP with a real server; workers are played by
//! hand where the moment matters. Cases 2, 4, 6 and 8, and the moment inside of 1, are in `races`.

use crate::on_both_engines;
use crate::support::house::{Hand, House, Remote, good, problem, usage};
use crate::support::seat::Seat;
use crate::support::{Engine, World, until};
use serde_json::{Value, json};

on_both_engines![
    double_claim_one_of_two_workers_gets_a_task,
    offline_but_not_released_a_silent_worker_keeps_its_live_lease,
    gpu_starvation_a_cpu_worker_waits_for_an_idle_gpu_worker_and_not_for_ever,
    completion_after_expiry_is_refused_and_leaves_no_file,
    a_non_critical_quality_fails_and_the_video_is_ready_without_it,
    a_critical_quality_fails_and_nothing_is_published,
    null_heartbeat_a_worker_that_never_came_is_offline,
    a_word_said_twice_is_said_once,
    what_a_worker_brings_must_be_what_it_said,
    an_interrupted_upload_goes_on_where_it_was,
    a_result_may_name_only_what_its_execution_brought,
    the_result_of_an_older_worker_names_its_files,
    outputs_come_as_one_archive_and_only_plain_files_of_it,
    outputs_whose_paths_exclude_each_other_are_refused,
    what_a_worker_tells_of_itself_has_a_limit,
    a_worker_too_old_is_told_so,
    a_second_process_with_the_same_key_replaces_the_first,
    a_worker_elsewhere_cannot_claim_durable_progress,
    a_claim_waits_for_work_and_is_answered_at_once_when_there_is_some,
];

pub fn sleeper(house: &House) -> i64 {
    let job = json!({ "name": "x", "backoff_initial_ms": 10, "stage": [{ "name": "only", "sleep_ms": 1 }] });
    house.post("/api/jobs", job)["id"].as_i64().unwrap()
}

pub fn ends(house: &House, job: i64, state: &str) {
    until(&format!("job {job} is {state}"), || house.get(&format!("/api/jobs/{job}"))["state"] == state);
    house.is_healthy();
}

pub fn executions(house: &House, job: i64) -> Vec<Value> {
    house.get(&format!("/api/jobs/{job}/executions")).as_array().unwrap().clone()
}

pub fn is_online(house: &House, hand: &Hand<'_>) -> bool {
    let workers = house.get("/api/workers?all=true");
    let own = workers.as_array().unwrap().iter().find(|it| it["id"] == hand.id.as_str()).unwrap();
    own["status"] != "offline"
}

fn double_claim_one_of_two_workers_gets_a_task(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hands: Vec<_> = (0..4).map(|n| house.worker(&format!("w{n}"), &["sleep"])).collect();
    let jobs: Vec<i64> = (0..20).map(|_| sleeper(&house)).collect();

    let claimed: Vec<Value> = std::thread::scope(|scope| {
        let claims: Vec<_> = hands
            .iter()
            .map(|hand| scope.spawn(|| (0..10).flat_map(|_| hand.claim(1, 0)).collect::<Vec<_>>()))
            .collect();
        claims.into_iter().flat_map(|claim| claim.join().unwrap()).collect()
    });

    let mut tasks: Vec<String> = claimed.iter().map(|it| it["proof"]["task"].to_string()).collect();
    tasks.sort();
    tasks.dedup();
    assert_eq!((claimed.len(), tasks.len()), (jobs.len(), jobs.len()), "each task once");
}

fn offline_but_not_released_a_silent_worker_keeps_its_live_lease(engine: Engine) {
    let house = House::with(
        engine,
        &[
            ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"),
            ("VODMILL_WORKER_OFFLINE_THRESHOLD_MINUTES", "0.01"),
        ],
    );
    let (silent, other) = (house.worker("silent", &["sleep"]), house.worker("other", &["sleep"]));
    let job = sleeper(&house);
    let held = silent.claim_one();

    until("the silent worker is offline", || !is_online(&house, &silent));

    assert_eq!(other.claim(1, 0).len(), 0, "offline alone frees nothing");
    good(silent.complete(&held, Value::Null));
    ends(&house, job, "completed");
}

fn gpu_starvation_a_cpu_worker_waits_for_an_idle_gpu_worker_and_not_for_ever(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_HEARTBEAT_INTERVAL", "1")]);
    let (cpu, gpu) = (house.worker("cpu", &["sleep"]), house.worker("gpu", &["sleep", "gpu"]));
    let job = json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1, "prefer_gpu": true }] });
    good(gpu.heartbeat(0));

    house.post("/api/jobs", job.clone());
    assert_eq!(cpu.claim(1, 0).len(), 0, "left to the idle GPU worker");
    assert_eq!(gpu.claim(1, 0).len(), 1);

    // It says that it is idle and takes nothing.
    house.post("/api/jobs", job);
    until("the CPU worker has waited long enough", || {
        good(gpu.heartbeat(0));
        cpu.claim(1, 0).len() == 1
    });
}

fn completion_after_expiry_is_refused_and_leaves_no_file(engine: Engine) {
    let house = House::new(engine);
    let (late, other) = (house.worker("late", &["sleep"]), house.worker("other", &["sleep"]));
    let job = sleeper(&house);
    let lost = late.claim_one();
    good(late.put(&lost, "a/b.txt", b"late").send().unwrap());
    let incoming = house.data().join("incoming");
    assert_eq!(std::fs::read_dir(&incoming).unwrap().count(), 1);

    let again = other.claim_one();
    let refused = problem(late.complete(&lost, Value::Null), 409, "refused");

    assert!(refused["refusal"].is_string());
    assert_eq!(std::fs::read_dir(&incoming).unwrap().count(), 0, "nothing of the loser is left");
    problem(late.put(&lost, "a/b.txt", b"late").send().unwrap(), 409, "refused");
    problem(late.fail(&lost, "transient", "too late"), 409, "refused");
    good(other.complete(&again, Value::Null));
    ends(&house, job, "completed");
}

fn null_heartbeat_a_worker_that_never_came_is_offline(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_OFFLINE_THRESHOLD_MINUTES", "0.01")]);

    let id = house.post("/api/worker/register", json!({ "name": "never came" }))["worker_id"].clone();

    until("it is offline", || {
        let workers = house.get("/api/workers?all=true");
        let own = workers.as_array().unwrap().iter().find(|it| it["id"] == id).unwrap().clone();
        own["last_heartbeat"].is_null() && own["status"] == "offline"
    });
}

/// A server and a worker on whose machines one quality, 120p, cannot be made; and the video that is to have it.
fn house_without_120p(engine: Engine, is_optional: bool) -> (House, Remote, i64) {
    let world = World::new(engine);
    let path =
        world.with_ffmpeg("case \"$*\" in *120p.mp4*) echo 'the encoder fell over' >&2; exit 1;; esac");
    let settings =
        [("PATH", path.as_str()), ("VODMILL_SERVER_SLOTS", "1"), ("VODMILL_MAX_RETRY_ATTEMPTS", "1")];
    let house = House::of(world, Seat::take(2), &settings);
    let worker = house.remote_worker("far", &settings[..1]);
    let file = house.sample("talk.mp4", 2);
    let rung = |name: &str, height: u32, optional: bool| {
        format!(r#"{{"name":"{name}","height":{height},"kbps":300,"optional":{optional}}}"#)
    };
    let ladder = format!(r#"{{"rung":[{},{}]}}"#, rung("180p", 180, false), rung("120p", 120, is_optional));
    let asked = [("slug", "talk"), ("settings", &ladder)];
    let asked = reqwest::Url::parse_with_params("http://server", asked).unwrap();
    let video = house.upload(&file, asked.query().unwrap())["id"].as_i64().unwrap();
    (house, worker, video)
}

fn qualities(house: &House, job: &Value) -> Vec<(String, String, i64)> {
    let all = house.get(&format!("/api/jobs/{job}/qualities"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |it: &Value| (text(&it["name"]), text(&it["state"]), it["percent"].as_i64().unwrap());
    all.as_array().unwrap().iter().map(one).collect()
}

fn a_non_critical_quality_fails_and_the_video_is_ready_without_it(engine: Engine) {
    let (house, _worker, video) = house_without_120p(engine, true);

    let ready = house.video_is(video, "ready");

    let job = &ready["job"];
    let expected = [("180p", "completed", 100), ("120p", "failed", 0)];
    assert_eq!(
        qualities(&house, job),
        expected.map(|(name, state, percent)| (name.to_owned(), state.to_owned(), percent))
    );
    let why = house.get(&format!("/api/jobs/{job}/qualities"))[1]["reason"].as_str().unwrap().to_owned();
    assert!(why.contains("the encoder fell over"), "{why}");
    let shown = house.world.vodmill(&["job", "qualities", &job.to_string()]).succeeds();
    assert!(shown.contains("120p") && shown.contains("the encoder fell over"), "{shown}");
    let far =
        house.get("/api/workers").as_array().unwrap().iter().find(|it| it["name"] == "far").unwrap().clone();
    assert!(far["load"]["memory_free_bytes"].is_u64() && far["metadata"]["cores"].is_u64(), "{far}");
    let log = house.get(&format!("/api/jobs/{job}/logs?level=warn&stage=encode_optional")).to_string();
    assert!(log.contains("the job goes on without task"), "{log}");
    let master = house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().text().unwrap();
    assert!(master.contains("180p/") && !master.contains("120p/"), "{master}");
    house.is_healthy();
}

fn a_critical_quality_fails_and_nothing_is_published(engine: Engine) {
    let (house, _worker, video) = house_without_120p(engine, false);

    let failed = house.video_is(video, "failed");

    let job = house.get(&format!("/api/jobs/{}", failed["job"]));
    assert_eq!(job["state"], "failed");
    assert!(job["error"].as_str().unwrap().contains("the encoder fell over"), "{job}");
    let of_the_broken = qualities(&house, &failed["job"]).into_iter().filter(|(name, ..)| name == "120p");
    assert!(of_the_broken.map(|(_, state, _)| state).eq(["failed"]));
    assert_eq!(house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().status(), 404);
    house.is_healthy();
}

fn a_word_said_twice_is_said_once(engine: Engine) {
    let house = House::new(engine);
    let hand = house.worker("w", &["sleep"]);
    let job = sleeper(&house);
    let held = hand.claim_one();

    let answers = [good(hand.complete(&held, Value::Null)), good(hand.complete(&held, Value::Null))];

    assert_eq!(answers.map(|it| it["answer"].clone()), [json!("accepted"), json!("already_accepted")]);
    ends(&house, job, "completed");
}

fn what_a_worker_brings_must_be_what_it_said(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    sleeper(&house);
    let held = hand.claim_one();

    let html = hand.put(&held, "seg.m4s", b"media").body("<html>502 Bad Gateway</html>").send().unwrap();
    problem(html, 422, "hash_mismatch");
    for path in ["..%2f..%2fetc%2fpasswd", "%2e%2e/x", ".hidden", "a%00b", "a%5cb"] {
        let answer = hand.put(&held, path, b"x").send().unwrap();
        assert!(answer.status().is_client_error(), "{path}: {}", answer.status());
    }
    good(hand.put(&held, "seg.m4s", b"media").send().unwrap());
    good(hand.put(&held, "more.m4s", b"more").send().unwrap());
    let output = |path: &str, bytes: usize, of: &[u8]| {
        use sha2::{Digest, Sha256};
        json!({ "path": path, "bytes": bytes, "sha256": hex::encode(Sha256::digest(of)) })
    };
    let complete = |outputs: Value| {
        hand.say(
            "complete",
            json!({ "proof": held["proof"], "result": null, "outputs": outputs, "usage": usage() }),
        )
    };
    let (seg, more) = (output("seg.m4s", 5, b"media"), output("more.m4s", 4, b"more"));

    problem(complete(json!([seg])), 422, "output_mismatch");
    problem(complete(json!([seg, more, output("absent", 1, b"x")])), 422, "output_mismatch");
    problem(complete(json!([seg, output("more.m4s", 4, b"other")])), 422, "output_mismatch");
    problem(complete(json!([seg, output("more.m4s", 5, b"more")])), 422, "output_mismatch");
    assert!(
        !house.data().join("parts").join(hand.execution(&held)).exists(),
        "nothing is kept before all is right"
    );
    good(complete(json!([seg, more])));
}

fn an_interrupted_upload_goes_on_where_it_was(engine: Engine) {
    use sha2::{Digest, Sha256};
    use std::io::Write;
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    sleeper(&house);
    let held = hand.claim_one();
    let whole: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (proof, sha256) = (hand.proof_header(&held), hex::encode(Sha256::digest(&whole)));
    // A proxy that cuts the connection after a third.
    let address = house.url("").trim_start_matches("http://").to_owned();
    let mut cut = std::net::TcpStream::connect(&address).unwrap();
    let head = format!(
        "PUT /api/worker/outputs/big.m4s HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\nx-vodmill-proof: {proof}\r\nx-vodmill-sha256: {sha256}\r\ncontent-length: {}\r\n\r\n",
        hand.key,
        whole.len()
    );
    cut.write_all(head.as_bytes()).unwrap();
    cut.write_all(&whole[..1_000_000]).unwrap();
    drop(cut);

    let look = || {
        hand.request("HEAD", "/api/worker/outputs/big.m4s").header("x-vodmill-proof", &proof).send().unwrap()
    };
    let mut has = 0;
    until("the server has what came", || {
        has = look().headers().get("upload-offset").map_or(0, |it| it.to_str().unwrap().parse().unwrap());
        has == 1_000_000
    });
    let range = format!("bytes {has}-{}/{}", whole.len() - 1, whole.len());
    let rest = hand.put(&held, "big.m4s", &whole).header("content-range", range).body(whole[has..].to_vec());

    good(rest.send().unwrap());

    let kept =
        std::fs::read(house.data().join("incoming").join(hand.execution(&held)).join("big.m4s")).unwrap();
    assert!(kept == whole);
    let gap = hand
        .put(&held, "gap.m4s", &whole)
        .header("content-range", format!("bytes 5-{}/{}", whole.len() - 1, whole.len()));
    problem(gap.body(whole[5..].to_vec()).send().unwrap(), 409, "offset_mismatch");
}

fn a_result_may_name_only_what_its_execution_brought(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    sleeper(&house);
    let held = hand.claim_one();

    let elsewhere = json!({ "execution": "9-9.9", "tracks": [] });
    problem(hand.complete(&held, elsewhere), 422, "bad_result");
    let forgotten = json!({ "execution": "1-0.1-0000000000000001", "tracks": [] });
    problem(hand.complete(&held, forgotten), 422, "bad_result");
    let stolen = json!({ "execution": hand.execution(&held), "files": [{ "path": "../../vodmill.db", "bytes": 1, "sha256": "00" }] });
    problem(hand.complete(&held, stolen), 422, "bad_result");
}

fn the_result_of_an_older_worker_names_its_files(engine: Engine) {
    use sha2::{Digest, Sha256};
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    let job = house.post(
        "/api/jobs",
        json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1, "segments": 2 }] }),
    );
    let held = hand.claim_one();
    good(hand.put(&held, "seg.m4s", b"media").send().unwrap());

    let file = json!({ "path": "seg.m4s", "bytes": 5, "sha256": hex::encode(Sha256::digest(b"media")) });
    let result = json!({ "execution": "1-0.1", "tracks": [{ "file": file }] });
    let said = json!({ "proof": held["proof"], "result": result, "outputs": [file], "usage": usage() });
    good(hand.say("complete", said));

    let named = hand.execution(&held);
    assert_eq!(std::fs::read(house.data().join("parts").join(&named).join("seg.m4s")).unwrap(), b"media");
    let executions = house.get(&format!("/api/jobs/{}/executions", job["id"]));
    assert_eq!(executions[0]["id"], json!(named));
    let sql = "SELECT count(*) FROM task WHERE result LIKE '%\"execution\":\"1-0.1-%'";
    assert_eq!(house.world.count(sql), 1, "others read what it made by its whole name");
}

fn outputs_come_as_one_archive_and_only_plain_files_of_it(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    let job = sleeper(&house);
    let held = hand.claim_one();
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("720p")).unwrap();
    std::fs::write(folder.path().join("720p/a.m4s"), "picture").unwrap();
    let bring = |name: &str| {
        let packed =
            std::process::Command::new("tar").args(["-cz", name]).current_dir(folder.path()).output();
        let request = hand.request("POST", "/api/worker/outputs").header("content-type", "application/gzip");
        request
            .header("x-vodmill-proof", hand.proof_header(&held))
            .body(packed.unwrap().stdout)
            .send()
            .unwrap()
    };

    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
    assert_eq!(bring("link").status(), 422);
    let brought = good(bring("720p"));

    assert_eq!((&brought[0]["path"], &brought[0]["bytes"]), (&json!("720p/a.m4s"), &json!(7)));
    let usage = crate::support::house::usage();
    let done = json!({ "proof": held["proof"], "result": null, "outputs": brought, "usage": usage });
    good(hand.say("complete", done));
    ends(&house, job, "completed");
}

fn outputs_whose_paths_exclude_each_other_are_refused(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    sleeper(&house);
    let held = hand.claim_one();
    for (first, then) in [("q/a", "q"), ("f", "f/x"), ("g", "g/x/y")] {
        assert_eq!(hand.put(&held, first, b"x").send().unwrap().status(), 201);
        problem(hand.put(&held, then, b"y").send().unwrap(), 422, "path_conflict");
    }

    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), Default::default()));
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    builder.append_data(&mut header, "f/x", &b"z"[..]).unwrap();
    let request = hand.request("POST", "/api/worker/outputs").header("content-type", "application/gzip");
    let request = request.header("x-vodmill-proof", hand.proof_header(&held));
    let archive = builder.into_inner().unwrap().finish().unwrap();
    problem(request.body(archive).send().unwrap(), 422, "path_conflict");
}

fn what_a_worker_tells_of_itself_has_a_limit(engine: Engine) {
    let house = House::new(engine);
    let hand = house.worker("w", &["sleep"]);
    let much = json!({ "much": "x".repeat(10 << 10) });
    let register = json!({ "name": "chatty", "metadata": much });
    let hello = json!({ "hostname": "h", "version": env!("CARGO_PKG_VERSION"), "slots": 1, "capabilities": ["sleep"], "metadata": much });
    let heartbeat =
        json!({ "incarnation": hand.incarnation, "phase": "Polling", "running": 0, "hello": hello });

    problem(house.admin("POST", "/api/worker/register").json(&register).send().unwrap(), 422, "invalid");
    problem(hand.say("heartbeat", heartbeat), 422, "invalid");

    assert_eq!(house.get("/api/workers?all=true").to_string().matches("chatty").count(), 0);
}

fn a_worker_too_old_is_told_so(engine: Engine) {
    let house = House::new(engine);
    let hand = house.worker("w", &[]);
    let hello =
        json!({ "hostname": "h", "version": "0.0.9", "slots": 1, "capabilities": [], "metadata": {} });

    let answer = hand.say(
        "heartbeat",
        json!({ "incarnation": hand.incarnation, "phase": "Startup", "running": 0, "hello": hello }),
    );

    let told = problem(answer, 426, "worker_too_old");
    assert!(told["detail"].as_str().unwrap().contains("0.0.9"));
}

fn a_second_process_with_the_same_key_replaces_the_first(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    let job = sleeper(&house);
    let lost = hand.claim_one();
    let newer = uuid::Uuid::now_v7().to_string();
    let hello = json!({ "hostname": "h", "version": env!("CARGO_PKG_VERSION"), "slots": 1, "capabilities": ["sleep"], "metadata": {} });

    good(
        hand.say(
            "heartbeat",
            json!({ "incarnation": newer, "phase": "Startup", "running": 0, "hello": hello }),
        ),
    );

    problem(hand.heartbeat(1), 409, "superseded");
    problem(hand.say("claim", json!({ "incarnation": hand.incarnation, "max": 1 })), 409, "superseded");
    problem(hand.complete(&lost, Value::Null), 409, "refused");
    let claim = || good(hand.say("claim", json!({ "incarnation": newer, "max": 1, "wait_ms": 60000 })));
    let again = claim()["assignments"][0].clone();
    assert_eq!(
        (&again["proof"]["task"], &again["attempt"]),
        (&lost["proof"]["task"], &json!(2)),
        "the lease is free at once, and the death was an attempt"
    );
    good(hand.complete(&again, Value::Null));
    ends(&house, job, "completed");
}

/// Durable progress spares attempts, so the protocol has no word for it: a hostile worker could go on for ever.
fn a_worker_elsewhere_cannot_claim_durable_progress(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    let job = sleeper(&house);
    let task = hand.claim_one();

    let said = json!({ "proof": task["proof"], "progress": 1, "step": "x", "kept": 1_000_000 });
    good(hand.say("progress", json!({ "reports": [said] })));
    let mut badge = hand.badge.clone();
    badge.incarnation = uuid::Uuid::now_v7().to_string();
    good(house.again(&badge).declare(1));

    assert_eq!(executions(&house, job)[0]["failure"], "worker_lost");
    assert_eq!(house.world.count("SELECT max(kept) FROM task"), 0);
}

fn a_claim_waits_for_work_and_is_answered_at_once_when_there_is_some(engine: Engine) {
    let house = House::new(engine);
    let hand = house.worker("w", &["sleep"]);

    // Longer than the client's own patience: an answer that came only at the end would be none.
    let claimed = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| hand.claim(1, 60_000));
        sleeper(&house);
        waiting.join().unwrap()
    });

    assert_eq!(claimed.len(), 1);
    assert_eq!(hand.claim(1, 100).len(), 0);
}
