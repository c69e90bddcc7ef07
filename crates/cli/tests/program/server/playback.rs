//! Streams as players fetch them: types, ranges, caches, captions.

use crate::on_both_engines;
use crate::support::Engine;
use crate::support::house::{House, good, problem};

on_both_engines![
    a_stream_is_served_as_players_and_caches_expect_it,
    captions_belong_to_the_video_and_outlive_its_generations
];

fn a_stream_is_served_as_players_and_caches_expect_it(engine: Engine) {
    let house = House::encoding(engine);
    let file = house.sample("a.mp4", 8);
    house.upload(&file, "slug=talk&settings=%7B%22dash%22%3Atrue%7D");
    house.video_is(1, "ready");
    let get = |path: &str| house.anyone("GET", &format!("/videos/talk/{path}"));
    let master = get("master.m3u8").header("accept-encoding", "gzip").send().unwrap();
    let header = |answer: &reqwest::blocking::Response, name: &str| {
        answer.headers()[name].to_str().unwrap().to_owned()
    };

    assert_eq!(header(&master, "content-type"), "application/vnd.apple.mpegurl");
    assert_eq!(header(&master, "content-encoding"), "gzip");
    assert!(header(&master, "cache-control").contains("max-age=2"));
    assert_eq!(header(&master, "access-control-allow-origin"), "*");
    let etag = header(&get("master.m3u8").send().unwrap(), "etag");
    assert_eq!(get("master.m3u8").header("if-none-match", &etag).send().unwrap().status(), 304);
    assert_eq!(header(&get("manifest.mpd").send().unwrap(), "content-type"), "application/dash+xml");

    let text = get("master.m3u8").send().unwrap().text().unwrap();
    let generation =
        text.lines().find(|line| line.starts_with("g-")).unwrap().split('/').next().unwrap().to_owned();
    let segment = format!("{generation}/180p/seg-00001.m4s");
    let segment = if get(&segment).send().unwrap().status() == 200 {
        segment
    } else {
        segment.replace("180p", &rung(&text))
    };
    let whole = get(&segment).send().unwrap();
    assert_eq!(header(&whole, "content-type"), "video/mp4");
    assert!(header(&whole, "cache-control").contains("immutable"));
    let bytes = whole.bytes().unwrap();
    let part = get(&segment).header("range", "bytes=10-19").send().unwrap();
    assert_eq!(
        (part.status().as_u16(), header(&part, "content-range")),
        (206, format!("bytes 10-19/{}", bytes.len()))
    );
    assert_eq!(part.bytes().unwrap(), bytes.slice(10..20));
    assert_eq!(get(&segment).header("range", "bytes=99999999-").send().unwrap().status(), 416);
    let head = house.anyone("HEAD", &format!("/videos/talk/{segment}")).send().unwrap();
    assert_eq!(header(&head, "content-length"), bytes.len().to_string());
    for path in ["..%2f..%2fvodmill.db", "g-x/..%2f..%2fvodmill.db", "%2e%2e/1", "g-x/.hidden"] {
        assert_eq!(get(path).send().unwrap().status(), 404, "{path}");
    }
    assert!(house.anyone("GET", "/watch/talk").send().unwrap().text().unwrap().contains("/assets/hls.js"));
}

fn rung(master: &str) -> String {
    let variant = master.lines().find(|line| line.starts_with("g-")).unwrap();
    variant.split('/').nth(1).unwrap().to_owned()
}

fn captions_belong_to_the_video_and_outlive_its_generations(engine: Engine) {
    let house = House::encoding(engine);
    let file = house.sample("a.mp4", 4);
    house.upload(&file, "slug=talk");
    house.video_is(1, "ready");
    let put = |language: &str, text: &'static str| {
        house
            .admin("PUT", &format!("/api/videos/talk/captions/{language}?label=English"))
            .body(text)
            .send()
            .unwrap()
    };
    let vtt = "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n";
    problem(put("en", "hello"), 422, "not_webvtt");
    let raw = |body: Vec<u8>| house.admin("PUT", "/api/videos/talk/captions/en").body(body).send().unwrap();
    problem(raw(b"WEBVTT \xff".to_vec()), 400, "invalid_request");
    problem(raw(vec![b'x'; 5 << 20]), 413, "too_large");
    problem(put("not%20a%20language", vtt), 422, "bad_language");

    good(put("en", vtt));

    let master = || house.anyone("GET", "/videos/talk/master.m3u8").send().unwrap().text().unwrap();
    assert!(master().contains("URI=\"captions/en.m3u8\""), "{}", master());
    assert_eq!(house.anyone("GET", "/videos/talk/captions/en.vtt").send().unwrap().text().unwrap(), vtt);
    let again = |more: serde_json::Value| {
        let job = house.post("/api/videos/1/retranscode", more)["job"].clone();
        crate::support::until("the job ends", || {
            house.get(&format!("/api/jobs/{job}"))["state"] == "completed"
        });
    };
    again(serde_json::json!({}));
    assert!(master().contains("captions/en.m3u8"));
    again(serde_json::json!({ "delete_transcription": true }));
    assert!(!master().contains("captions/"));
}
