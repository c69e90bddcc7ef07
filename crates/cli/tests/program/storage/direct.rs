//! What a worker may do with the URLs it is given: this test plays the worker.

use super::site::{Server, Site, good};
use crate::support::{Engine, until};
use reqwest::blocking::Response;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

struct Hand<'a> {
    server: &'a Server<'a>,
    key: String,
    incarnation: String,
}

impl<'a> Hand<'a> {
    fn new(server: &'a Server<'a>, name: &str) -> Self {
        let registered = server.post("/api/worker/register", json!({ "name": name }));
        let key = registered["api_key"].as_str().unwrap().to_owned();
        let hand = Hand { server, key, incarnation: uuid::Uuid::now_v7().to_string() };
        let hello = json!({
            "hostname": "test", "version": env!("CARGO_PKG_VERSION"), "slots": 1, "capabilities": ["encode", "libx264", "sleep"], "metadata": {},
        });
        let body =
            json!({ "incarnation": hand.incarnation, "phase": "Polling", "running": 0, "hello": hello });
        good(hand.say("heartbeat", body));
        hand
    }

    fn say(&self, word: &str, body: Value) -> Response {
        self.server
            .anyone("POST", &format!("/api/worker/{word}"))
            .bearer_auth(&self.key)
            .json(&body)
            .send()
            .unwrap()
    }

    fn claim(&self) -> Value {
        let body = json!({ "incarnation": self.incarnation, "max": 1, "wait_ms": 10_000 });
        good(self.say("claim", body))["assignments"][0].clone()
    }

    /// Where a file with this content may be put.
    fn place(&self, proof: &Value, path: &str, content: &[u8], md5: &str) -> Value {
        let output = json!({
            "path": path, "bytes": content.len(), "sha256": hex::encode(Sha256::digest(content)), "md5": md5,
        });
        good(self.say("direct", json!({ "proof": proof, "outputs": [output] })))["outputs"][0].clone()
    }

    fn complete(&self, proof: &Value, outputs: Value) -> Response {
        let usage =
            json!({ "wall_ms": 1, "cpu_ms": 1, "peak_memory_bytes": 1, "bytes_in": 0, "bytes_out": 0 });
        self.say("complete", json!({ "proof": proof, "result": {}, "outputs": outputs, "usage": usage }))
    }
}

fn put(site: &Site, place: &Value, url: &str, content: &[u8]) -> u16 {
    let mut request = site.client.put(url).body(content.to_vec());
    for (name, value) in place["headers"].as_object().unwrap() {
        request = request.header(name, value.as_str().unwrap());
    }
    request.send().unwrap().status().as_u16()
}

/// Of `abc`.
const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";

#[test]
fn a_url_is_for_one_file_of_one_execution_as_it_was_declared() {
    let site = Site::new(Engine::Sqlite);
    let server = site.server("a", &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1")]);
    let file = std::fs::read(site.sample("talk.mkv", 1)).unwrap();
    good(server.admin("POST", "/api/videos?name=talk.mkv").body(file.clone()).send().unwrap());
    let (hand, stranger) = (Hand::new(&server, "one"), Hand::new(&server, "two"));
    let mut assignment = Value::Null;
    until("there is something to encode", || {
        assignment = hand.claim();
        !assignment.is_null()
    });
    let proof = &assignment["proof"];

    // Only who holds the execution is told, and only of tame paths.
    assert_eq!(stranger.say("direct", json!({ "proof": proof, "source": true })).status(), 409);
    let output = json!({ "path": "../../x", "bytes": 3, "sha256": "00".repeat(32), "md5": MD5 });
    assert_eq!(hand.say("direct", json!({ "proof": proof, "outputs": [output] })).status(), 422);

    // What is put must be what was declared, where it was.
    let named = |path: &str, bytes: u64| json!([{ "path": path, "bytes": bytes, "sha256": hex::encode(Sha256::digest(b"abc")) }]);
    let place = hand.place(proof, "90p/seg.m4s", b"abc", MD5);
    let url = place["url"].as_str().unwrap();
    assert_eq!(put(&site, &place, url, b"abd"), 400, "other bytes");
    assert_eq!(put(&site, &place, &url.replace("seg.m4s", "other.m4s"), b"abc"), 403, "another name");
    assert!(site.client.get(url).send().unwrap().status().is_client_error(), "reading");
    assert_eq!(put(&site, &place, url, b"abc"), 200);
    let source = good(hand.say("direct", json!({ "proof": proof, "source": true })))["source"].clone();
    let read = site.client.get(source["url"].as_str().unwrap()).send().unwrap();
    assert_eq!(read.bytes().unwrap(), file);

    // A commit names exactly what is there, and of a video what was planned.
    let unplanned = hand.complete(proof, named("90p/seg.m4s", 3));
    assert_eq!(unplanned.status(), 422);
    good(hand.say("release", json!({ "proof": proof })));
    server.post(
        "/api/jobs",
        json!({ "name": "x", "priority": 10, "stage": [{ "name": "only", "sleep_ms": 1 }] }),
    );
    let assignment = hand.claim();
    let proof = &assignment["proof"];
    let place = hand.place(proof, "90p/seg.m4s", b"abc", MD5);
    assert_eq!(put(&site, &place, place["url"].as_str().unwrap(), b"abc"), 200);
    assert_eq!(hand.complete(proof, named("90p/seg.m4s", 4)).status(), 422, "another size");
    assert_eq!(hand.complete(proof, named("90p/other.m4s", 3)).status(), 422, "another name");
    assert_eq!(hand.complete(proof, named("90p/seg.m4s", 3)).status(), 200);
    site.world.is_healthy();
}

/// Of `abd`.
const OTHER_MD5: &str = "4911e516e5aa21d327512e0c8b197616";

#[test]
fn a_url_that_is_still_good_replaces_nothing_that_was_committed() {
    let site = Site::new(Engine::Sqlite);
    let server = site.server("a", &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1")]);
    let hand = Hand::new(&server, "one");
    // The second stage keeps the files of the first.
    let stages =
        json!([{ "name": "first", "sleep_ms": 1 }, { "name": "second", "needs": ["first"], "sleep_ms": 1 }]);
    server.post("/api/jobs", json!({ "name": "x", "stage": stages }));
    let assignment = hand.claim();
    let proof = &assignment["proof"];
    let [good_place, bad_place] = [(&b"abc"[..], MD5), (b"abd", OTHER_MD5)]
        .map(|(content, md5)| hand.place(proof, "90p/seg.m4s", content, md5));
    let put = |place: &Value, content: &[u8]| put(&site, place, place["url"].as_str().unwrap(), content);
    assert_eq!(put(&good_place, b"abc"), 200);
    let outputs =
        json!([{ "path": "90p/seg.m4s", "bytes": 3, "sha256": hex::encode(Sha256::digest(b"abc")) }]);
    assert_eq!(hand.complete(proof, outputs.clone()).status(), 200);

    assert_eq!(put(&bad_place, b"abd"), 200, "the URL lives on");
    hand.complete(proof, outputs);

    let kept: Vec<String> =
        site.bucket.objects("parts").into_iter().filter(|name| name.ends_with("/90p/seg.m4s")).collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
    assert_eq!(std::fs::read(site.bucket.path(&kept[0])).unwrap(), b"abc");
    site.world.is_healthy();
}
