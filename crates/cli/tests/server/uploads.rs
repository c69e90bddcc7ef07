//! Videos come in: in one request, as a form, by tus; and what is no video, or breaks off, leaves nothing.

use crate::elsewhere::Elsewhere;
use crate::house::{House, good, problem};
use crate::on_both_engines;
use crate::support::{Engine, until};
use serde_json::json;
use std::io::Write;
use std::process::Command;

on_both_engines![
    an_upload_is_hashed_on_the_way_and_becomes_a_stream,
    an_upload_that_breaks_off_or_is_refused_leaves_nothing,
    a_video_is_fetched_from_its_address_whatever_happens_on_the_way,
    what_cannot_be_fetched_is_told_and_leaves_nothing,
    a_tus_client_goes_on_after_the_server_was_killed,
    the_tus_protocol_is_kept_to,
    a_file_in_the_watched_folder_becomes_a_video_once_it_is_written,
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
        crate::house::SECRET
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
    uploading.arg(client).arg(house.url("/api/uploads")).arg(&file).arg(crate::house::SECRET);
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
    let at = create("10").headers()["location"].to_str().unwrap().to_owned();
    assert_eq!(patch(&at, "0", b"hello").headers()["upload-offset"], "5");
    problem(patch(&at, "0", b"hello"), 409, "offset_mismatch");
    problem(patch(&at, "5", b"too much for it"), 413, "too_large");
    let look = tus("HEAD", &at).send().unwrap();
    assert_eq!(
        (&look.headers()["upload-offset"], &look.headers()["upload-length"]),
        (&"5".parse().unwrap(), &"10".parse().unwrap())
    );
    assert_eq!(tus("DELETE", &at).send().unwrap().status(), 204);
    assert_eq!(tus("HEAD", &at).send().unwrap().status(), 404);
    assert_eq!(std::fs::read_dir(house.data().join("uploads")).unwrap().count(), 0);
    problem(patch("/api/uploads/..%2f..%2fx", "0", b"x"), 404, "not_found");
}

fn a_file_in_the_watched_folder_becomes_a_video_once_it_is_written(engine: Engine) {
    let inbox = tempfile::tempdir().unwrap();
    let house = House::with(
        engine,
        &[("VODMILL_WATCH_FOLDER", inbox.path().to_str().unwrap()), ("VODMILL_SERVER_SLOTS", "2")],
    );
    let bytes = std::fs::read(house.sample("a.mp4", 4)).unwrap();
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
