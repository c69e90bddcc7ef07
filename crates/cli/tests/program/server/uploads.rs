//! Videos come in: in one request, as a form, by tus; and what is no video, or breaks off, leaves nothing.

use super::elsewhere::Elsewhere;
use crate::on_both_engines;
use crate::support::house::{House, good, problem};
use crate::support::{Engine, until};
use serde_json::json;
use std::io::Write;
use std::process::Command;

on_both_engines![
    an_upload_is_hashed_on_the_way_and_becomes_a_stream,
    an_upload_that_breaks_off_or_is_refused_leaves_nothing,
    a_video_is_fetched_from_its_address_whatever_happens_on_the_way,
    a_fetch_that_is_interrupted_after_more_has_arrived_uses_up_no_attempt,
    what_cannot_be_fetched_is_told_and_leaves_nothing,
    a_tus_client_goes_on_after_the_server_was_killed,
    the_tus_protocol_is_kept_to,
    what_cannot_become_a_video_is_refused_before_it_is_sent,
    an_upload_is_kept_when_its_last_byte_meets_trouble,
    a_client_that_falls_silent_is_given_up_and_another_goes_on,
    a_client_that_falls_silent_does_not_keep_the_server_from_ending,
    a_file_in_the_watched_folder_becomes_a_video_once_it_is_written,
    a_file_in_the_watched_folder_is_never_lost_and_becomes_one_video,
];

fn an_upload_is_hashed_on_the_way_and_becomes_a_stream(engine: Engine) {
    use sha2::{Digest, Sha256};
    let house = House::encoding(engine);
    let file = house.sample("My talk.mp4", 4);
    let bytes = std::fs::read(&file).unwrap();

    let raw = house.upload(&file, "name=My%20talk.mp4");
    let part = reqwest::blocking::multipart::Part::bytes(bytes.clone()).file_name("Other.mov");
    let form = reqwest::blocking::multipart::Form::new()
        .text("title", "A form")
        .text("slug", "by-form")
        .part("file", part);
    let formed = good(house.admin("POST", "/api/videos").multipart(form).send().unwrap());

    assert_eq!(raw["sha256"], hex::encode(Sha256::digest(&bytes)));
    assert_eq!((raw["slug"].as_str(), formed["slug"].as_str()), (Some("my-talk"), Some("by-form")));
    for id in [1, 2] {
        let video = house.video_is(id, "ready");
        assert_eq!(video["source_bytes"], bytes.len());
    }
    assert_eq!(house.get("/api/videos/by-form")["title"], "A form");
    assert_eq!(
        house.upload(&file, "name=My%20talk.mp4")["slug"],
        "my-talk-2",
        "each video has a slug of its own"
    );
    house.is_healthy();
}

fn a_video_is_fetched_from_its_address_whatever_happens_on_the_way(engine: Engine) {
    use sha2::{Digest, Sha256};
    let mut house =
        House::with(engine, &[("VODMILL_SERVER_SLOTS", "2"), ("VODMILL_IMPORT_ALLOW_PRIVATE", "true")]);
    let bytes = std::fs::read(house.sample("talk.mp4", 2)).unwrap();
    let elsewhere = Elsewhere::with(bytes.clone());
    let import = |path: &str| {
        let answer = house.admin("POST", "/api/videos").json(&json!({ "url": elsewhere.url(path) })).send();
        let answer = answer.unwrap();
        assert_eq!(answer.status(), 202);
        good(answer)
    };

    import("/moved.mp4");
    import("/unversioned.mp4");
    house.kill();
    house.start();

    for id in [1, 2] {
        let video = house.video_is(id, "ready");
        assert_eq!(video["source_sha256"], hex::encode(Sha256::digest(&bytes)));
        assert_eq!(video["source_bytes"], bytes.len());
    }
    let went_on = elsewhere.asked("/cut.mp4").iter().filter(|range| !range.is_empty()).count();
    assert!(went_on >= 2, "{:?}", elsewhere.asked("/cut.mp4"));
    assert!(elsewhere.asked("/unversioned.mp4").iter().all(String::is_empty));
    assert_eq!(house.get("/api/videos/1")["title"], "moved");
    house.is_healthy();
}

fn a_fetch_that_is_interrupted_after_more_has_arrived_uses_up_no_attempt(engine: Engine) {
    use sha2::{Digest, Sha256};
    let settings = [
        ("VODMILL_SERVER_SLOTS", "2"),
        ("VODMILL_IMPORT_ALLOW_PRIVATE", "true"),
        ("VODMILL_BACKOFF_SECONDS", "0.3"),
    ];
    let mut house = House::with(engine, &settings);
    let bytes = std::fs::read(house.sample("talk.mp4", 2)).unwrap();
    let elsewhere = Elsewhere::with(bytes.clone());
    let url = elsewhere.url("/slow.mp4");
    let video = good(house.admin("POST", "/api/videos").json(&json!({ "url": url })).send().unwrap());

    let kept = |house: &House| house.world.count("SELECT max(kept) FROM task");
    for _ in 0..4 {
        let before = kept(&house);
        until("more has arrived", || kept(&house) > before);
        house.kill();
        house.start();
    }

    let video = house.video_is(video["id"].as_i64().unwrap(), "ready");
    assert_eq!(video["source_sha256"], hex::encode(Sha256::digest(&bytes)));
    let executions = house.get(&format!("/api/jobs/{}/executions", video["job"]));
    let failures = executions.as_array().unwrap().iter().filter_map(|it| it["failure"].as_str());
    assert_eq!(failures.collect::<Vec<_>>(), ["interrupted"; 4], "{executions}");
    let asked = elsewhere.asked("/slow.mp4");
    assert_eq!(asked.iter().map(String::is_empty).collect::<Vec<_>>(), [true, false, false, false, false]);
    let left = std::fs::read_dir(house.world.folder.path().join("work/kept")).unwrap().count();
    assert_eq!(left, 0, "what is fetched is not kept twice");
    house.is_healthy();
}

fn what_cannot_be_fetched_is_told_and_leaves_nothing(engine: Engine) {
    let settings = [("VODMILL_IMPORT_ALLOW_PRIVATE", "true"), ("VODMILL_MAX_UPLOAD_GB", "0.001")];
    let mut house = House::with(engine, &settings);
    let elsewhere = Elsewhere::with(Vec::new());
    let import = |house: &House, url: &str| {
        house.admin("POST", "/api/videos").json(&json!({ "url": url })).send().unwrap()
    };

    for (path, why) in [
        ("/nothing", "404"),
        ("/page", "a web page"),
        ("/round", "without end"),
        ("/huge.mp4", "larger than"),
        ("/empty.mp4", "empty"),
    ] {
        let video = good(import(&house, &format!("{}?secret=1", elsewhere.url(path))));
        house.video_is(video["id"].as_i64().unwrap(), "failed");
        let told = house.get(&format!("/api/jobs/{}/why", video["job"])).to_string();
        assert!(told.contains(why) && !told.contains("secret"), "{path}: {told}");
    }
    assert_eq!(std::fs::read_dir(house.data().join("sources")).unwrap().count(), 0);

    house.stop();
    house.set("VODMILL_IMPORT_ALLOW_PRIVATE", "false");
    house.start();
    for url in [
        "file:///etc/passwd",
        "no address",
        "http://[::1]/x",
        "http://169.254.169.254/latest",
        &elsewhere.url("/cut.mp4"),
    ] {
        problem(import(&house, url), 422, "bad_url");
    }
    problem(
        house.admin("POST", "/api/videos").json(&json!({ "title": "x" })).send().unwrap(),
        400,
        "invalid_request",
    );
    let local = good(import(&house, "http://localhost:1/talk.mp4"));
    house.video_is(local["id"].as_i64().unwrap(), "failed");
    let told = house.get(&format!("/api/jobs/{}/why", local["job"])).to_string();
    assert!(told.contains("not allowed"), "{told}");
    house.is_healthy();
}

fn an_upload_that_breaks_off_or_is_refused_leaves_nothing(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_MAX_UPLOAD_GB", "0.001")]);
    let sources = || std::fs::read_dir(house.data().join("sources")).unwrap().count();
    let post = |query: &str, body: Vec<u8>| {
        house.admin("POST", &format!("/api/videos?{query}")).body(body).send().unwrap()
    };

    problem(post("", vec![7; 2_000_000]), 413, "too_large");
    problem(post("", Vec::new()), 422, "empty");
    problem(post("slug=Not%20A%20Slug", vec![7; 10]), 422, "bad_slug");
    problem(post("priority=99", vec![7; 10]), 422, "bad_priority");
    problem(post("settings=%7B%22codecs%22%3A%5B%5D%7D", vec![7; 10]), 422, "bad_settings");
    // Chunked, so that its length is not known before; and cut off in the middle.
    let address = house.url("").trim_start_matches("http://").to_owned();
    let mut cut = std::net::TcpStream::connect(&address).unwrap();
    let head = format!(
        "POST /api/videos HTTP/1.1\r\nhost: {address}\r\nx-admin-secret: {}\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        crate::support::house::SECRET
    );
    cut.write_all(head.as_bytes()).unwrap();
    until("the server has begun to write", || sources() == 1);
    drop(cut);

    until("nothing is left of it", || sources() == 0);
    assert_eq!(house.get("/api/videos")["items"].as_array().unwrap().len(), 0);
    let taken = house.upload(&house.world.write("a.mp4", "no video"), "slug=taken");
    problem(post("slug=taken", b"another".to_vec()), 409, "slug_taken");
    assert_eq!(sources(), 1);
    let failed = house.video_is(taken["id"].as_i64().unwrap(), "failed");
    let why = house.get(&format!("/api/jobs/{}/why", failed["job"]));
    assert!(why["reasons"].to_string().len() > 10, "{why}");
}

/// The real client, which keeps nothing but the upload's address.
fn a_tus_client_goes_on_after_the_server_was_killed(engine: Engine) {
    let mut house = House::encoding(engine);
    let file = house.sample("long.mp4", 20);
    let client = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/tus.mjs");
    let mut uploading = Command::new("node");
    uploading.arg(client).arg(house.url("/api/uploads")).arg(&file).arg(crate::support::house::SECRET);
    uploading.stdout(std::process::Stdio::piped());
    let mut child = uploading.spawn().expect("node is needed");
    let uploads = house.data().join("uploads");
    until("the upload has begun", || {
        std::fs::read_dir(&uploads)
            .unwrap()
            .flatten()
            .any(|entry| entry.metadata().is_ok_and(|it| it.len() > 0))
    });

    house.kill();
    house.start();

    assert!(child.wait().unwrap().success());
    let video = house.video_is(1, "ready");
    assert_eq!(video["title"], "By tus");
    assert_eq!(video["source_bytes"], std::fs::metadata(&file).unwrap().len());
    assert_eq!(
        house.get("/api/videos")["items"].as_array().unwrap().len(),
        1,
        "one video, however often it was tried"
    );
    house.is_healthy();
}

fn the_tus_protocol_is_kept_to(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_MAX_UPLOAD_GB", "0.001")]);
    let tus = |method: &str, path: &str| house.admin(method, path).header("tus-resumable", "1.0.0");
    let create = |length: &str| tus("POST", "/api/uploads").header("upload-length", length).send().unwrap();
    let patch = |at: &str, offset: &str, bytes: &'static [u8]| {
        let request = tus("PATCH", at)
            .header("upload-offset", offset)
            .header("content-type", "application/offset+octet-stream");
        request.body(bytes).send().unwrap()
    };

    let abilities = house.anyone("OPTIONS", "/api/uploads").send().unwrap();
    assert_eq!(abilities.headers()["tus-version"], "1.0.0");
    problem(
        house.admin("POST", "/api/uploads").header("upload-length", "5").send().unwrap(),
        412,
        "tus_version",
    );
    problem(create("2000000"), 413, "too_large");
    problem(create("many"), 400, "invalid_request");
    problem(create("0"), 422, "empty");
    assert!(create("1").headers()["upload-expires"].to_str().unwrap().ends_with(" GMT"));
    let at = create("10").headers()["location"].to_str().unwrap().to_owned();
    let appended = patch(&at, "0", b"hello");
    assert_eq!(appended.headers()["upload-offset"], "5");
    assert_eq!(
        appended.headers()["upload-expires"],
        tus("HEAD", &at).send().unwrap().headers()["upload-expires"],
        "it is told all the while"
    );
    problem(patch(&at, "0", b"hello"), 409, "offset_mismatch");
    problem(patch(&at, "5", b"too much for it"), 413, "too_large");
    let look = tus("HEAD", &at).send().unwrap();
    assert_eq!(
        (&look.headers()["upload-offset"], &look.headers()["upload-length"]),
        (&"5".parse().unwrap(), &"10".parse().unwrap())
    );
    assert_eq!(tus("DELETE", &at).send().unwrap().status(), 204);
    assert_eq!(tus("HEAD", &at).send().unwrap().status(), 404);
    assert_eq!(std::fs::read_dir(house.data().join("uploads")).unwrap().count(), 1, "the other");
    problem(patch("/api/uploads/..%2f..%2fx", "0", b"x"), 404, "not_found");
}

/// `Upload-Metadata` of one name.
fn metadata(name: &str, value: &str) -> String {
    use base64::Engine;
    format!("{name} {}", base64::engine::general_purpose::STANDARD.encode(value))
}

fn begin(house: &House, length: &str, metadata: &str) -> reqwest::blocking::Response {
    let request = house.admin("POST", "/api/uploads").header("tus-resumable", "1.0.0");
    request.header("upload-length", length).header("upload-metadata", metadata).send().unwrap()
}

fn append(house: &House, at: &str, offset: &str, bytes: &'static [u8]) -> reqwest::blocking::Response {
    let request = house.admin("PATCH", at).header("tus-resumable", "1.0.0").header("upload-offset", offset);
    request.header("content-type", "application/offset+octet-stream").body(bytes).send().unwrap()
}

fn offset(house: &House, at: &str) -> String {
    let look = house.admin("HEAD", at).header("tus-resumable", "1.0.0").send().unwrap();
    assert_eq!(look.status(), 200);
    look.headers()["upload-offset"].to_str().unwrap().to_owned()
}

fn place_of(begun: reqwest::blocking::Response) -> String {
    assert_eq!(begun.status(), 201);
    begun.headers()["location"].to_str().unwrap().to_owned()
}

fn what_cannot_become_a_video_is_refused_before_it_is_sent(engine: Engine) {
    let house = House::new(engine);
    house.upload(&house.world.write("a.mp4", "no video"), "slug=taken");

    problem(begin(&house, "10", &metadata("slug", "Not A Slug")), 422, "bad_slug");
    problem(begin(&house, "10", &metadata("slug", "taken")), 409, "slug_taken");
    problem(begin(&house, "10", &metadata("priority", "99")), 422, "bad_priority");
    problem(begin(&house, "10", &metadata("settings", r#"{"codecs":[]}"#)), 422, "bad_settings");

    assert_eq!(std::fs::read_dir(house.data().join("uploads")).unwrap().count(), 0);
}

fn an_upload_is_kept_when_its_last_byte_meets_trouble(engine: Engine) {
    let house = House::new(engine);
    let at = place_of(begin(&house, "10", &metadata("slug", "talk")));
    let late = place_of(begin(&house, "10", &metadata("slug", "talk")));
    append(&house, &at, "0", b"01234");

    house.world.execute("ALTER TABLE video RENAME TO video_away");
    problem(append(&house, &at, "5", b"56789"), 500, "internal");
    house.world.execute("ALTER TABLE video_away RENAME TO video");
    assert_eq!(offset(&house, &at), "10");
    let finished = append(&house, &at, "10", b"");
    assert_eq!(
        (finished.status().as_u16(), &finished.headers()["x-vodmill-video"]),
        (204, &"1".parse().unwrap())
    );

    problem(append(&house, &late, "0", b"0123456789"), 409, "slug_taken");
    assert_eq!(offset(&house, &late), "10", "the other may be purged yet");
    assert_eq!(house.get("/api/videos")["items"].as_array().unwrap().len(), 1);
    let count = |folder: &str| std::fs::read_dir(house.data().join(folder)).unwrap().count();
    assert_eq!((count("sources"), count("uploads")), (1, 1));
}

/// Sends the first five bytes of a piece of ten, and nothing more.
fn fall_silent(house: &House, at: &str) -> std::net::TcpStream {
    let address = house.url("").trim_start_matches("http://").to_owned();
    let mut silent = std::net::TcpStream::connect(&address).unwrap();
    let head = format!(
        "PATCH {at} HTTP/1.1\r\nhost: {address}\r\nx-admin-secret: {}\r\ntus-resumable: 1.0.0\r\nupload-offset: 0\r\n\
         content-type: application/offset+octet-stream\r\ncontent-length: 10\r\n\r\n01234",
        crate::support::house::SECRET
    );
    silent.write_all(head.as_bytes()).unwrap();
    until("the five bytes are there", || offset(house, at) == "5");
    silent
}

fn a_client_that_falls_silent_is_given_up_and_another_goes_on(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_UPLOAD_SILENCE_SECONDS", "2")]);
    let at = place_of(begin(&house, "10", ""));
    let _silent = fall_silent(&house, &at);
    problem(append(&house, &at, "5", b"56789"), 423, "upload_busy");

    until("another can go on", || match append(&house, &at, "5", b"56789") {
        busy if busy.status() == 423 => false,
        done => {
            assert_eq!(
                (done.status().as_u16(), &done.headers()["upload-offset"]),
                (204, &"10".parse().unwrap())
            );
            true
        }
    });
}

fn a_client_that_falls_silent_does_not_keep_the_server_from_ending(engine: Engine) {
    let mut house = House::with(engine, &[("VODMILL_UPLOAD_SILENCE_SECONDS", "3600")]);
    let at = place_of(begin(&house, "10", ""));
    let _silent = fall_silent(&house, &at);

    assert_eq!(house.stop(), Some(0));
    house.start();

    assert_eq!(offset(&house, &at), "5", "what has come is kept");
}

fn a_file_in_the_watched_folder_is_never_lost_and_becomes_one_video(engine: Engine) {
    let inbox = tempfile::tempdir().unwrap();
    let settings = [("VODMILL_WATCH_FOLDER", inbox.path().to_str().unwrap()), ("VODMILL_SERVER_SLOTS", "2")];
    let mut house = House::with(engine, &settings);
    let (sample, talk) = (house.sample("a.mp4", 2), inbox.path().join("talk.mp4"));
    // Nobody is told of what is there at the start, so it must be old; and so old that the janitor might take it for left.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 3600);
    house.kill();
    std::fs::copy(&sample, &talk).unwrap();
    std::fs::File::options().append(true).open(&talk).unwrap().set_modified(old).unwrap();
    for moment in ["submit_video.before", "submit_video.after"] {
        house.set("VODMILL_FAILPOINT", moment);
        house.start();
        house.dies();
        assert!(talk.exists(), "{moment}");
    }
    house.set("VODMILL_FAILPOINT", "never.before");
    house.start();

    until("the file is gone", || !talk.exists());
    house.video_is(house.get("/api/videos/talk")["id"].as_i64().unwrap(), "ready");
    assert_eq!(house.get("/api/videos")["items"].as_array().unwrap().len(), 1);
    assert_eq!(std::fs::read_dir(house.data().join("sources")).unwrap().count(), 1);
    house.is_healthy();
}

/// With a database that may be stopped, which only PostgreSQL is.
#[test]
fn a_file_in_the_watched_folder_waits_for_the_database_and_stays_if_it_is_refused() {
    let world = crate::support::World::with_server();
    let inbox = tempfile::tempdir().unwrap();
    let settings =
        [("VODMILL_WATCH_FOLDER", inbox.path().to_str().unwrap()), ("VODMILL_MAX_UPLOAD_GB", "0.001")];
    let house = House::of(world, crate::support::seat::Seat::take(1), &settings);
    let said = |what: &str| std::fs::read_to_string(house.log()).unwrap().contains(what);
    let (talk, large) = (inbox.path().join("talk.mp4"), inbox.path().join("large.mp4"));

    house.world.server.as_ref().unwrap().stop("immediate");
    std::fs::write(&talk, "no video").unwrap();
    until("it was tried", || said("talk.mp4, trying again"));
    assert!(talk.exists());
    house.world.server.as_ref().unwrap().start_again();
    until("it is taken", || !talk.exists());
    std::fs::write(&large, vec![7; 2_000_000]).unwrap();
    until("it was tried", || said("large.mp4, leaving it there"));
    std::fs::write(&talk, "another").unwrap();
    until("others are taken", || !talk.exists());

    assert_eq!(house.get("/api/videos")["items"].as_array().unwrap().len(), 2);
    assert!(large.exists());
    assert_eq!(std::fs::read_to_string(house.log()).unwrap().matches("leaving it there").count(), 1);
}

fn a_file_in_the_watched_folder_becomes_a_video_once_it_is_written(engine: Engine) {
    let inbox = tempfile::tempdir().unwrap();
    let house = House::with(
        engine,
        &[("VODMILL_WATCH_FOLDER", inbox.path().to_str().unwrap()), ("VODMILL_SERVER_SLOTS", "2")],
    );
    let bytes = std::fs::read(house.sample("a.mp4", 4)).unwrap();
    // What is closed before is taken after a while, and so would be what is still open.
    until("it watches", || std::fs::read_to_string(house.log()).unwrap().contains("watching "));
    let videos = || house.get("/api/videos")["items"].as_array().unwrap().len();
    let mut slow = std::fs::File::create(inbox.path().join("slow.mp4")).unwrap();
    slow.write_all(&bytes[..bytes.len() / 2]).unwrap();
    std::fs::write(inbox.path().join("quick.mp4"), &bytes).unwrap();

    until("the finished file is a video", || videos() == 1);
    slow.write_all(&bytes[bytes.len() / 2..]).unwrap();
    assert_eq!((videos(), inbox.path().join("slow.mp4").exists()), (1, true), "it is still open");
    drop(slow);

    until("the other is one, too", || videos() == 2);
    assert_eq!(std::fs::read_dir(inbox.path()).unwrap().count(), 0);
    for id in [1, 2] {
        assert_eq!(house.video_is(id, "ready")["source_bytes"], bytes.len());
    }
}
