//! Storages of other kinds than the one that most tests have: S3 that honours conditions, and Azure.

use super::bucket::script;
use crate::support::Engine;
use crate::support::house::{House, SECRET};
use crate::support::until;
use reqwest::blocking::RequestBuilder;
use std::io::{Read, Write};
use std::net::TcpStream;
use tempfile::TempDir;

/// A server for objects of a test's own.
struct Storage(TempDir);

impl Storage {
    fn start(kind: &str) -> Self {
        let storage = Storage(tempfile::Builder::new().prefix("vodmill-storage").tempdir().unwrap());
        script(&["start", storage.0.path().to_str().unwrap(), kind]);
        storage
    }

    fn endpoint(&self) -> String {
        script(&["endpoint", self.0.path().to_str().unwrap()])
    }

    /// What it was asked for.
    fn log(&self) -> String {
        std::fs::read_to_string(self.0.path().join("storage.log")).unwrap()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        script(&["stop", self.0.path().to_str().unwrap()]);
    }
}

#[test]
fn a_video_is_made_in_azure() {
    let storage = Storage::start("azurite");
    let endpoint = format!("{}/devstoreaccount1", storage.endpoint());
    a_video_is_made(
        &storage,
        &[
            ("VODMILL_STORAGE", "az://vodmill/some/prefix"),
            ("AZURE_STORAGE_ENDPOINT", &endpoint),
            ("AZURE_STORAGE_ACCOUNT_NAME", "devstoreaccount1"),
            // Of every emulator of Azure's.
            (
                "AZURE_STORAGE_ACCOUNT_KEY",
                "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
            ),
        ],
    );
}

#[test]
fn a_video_is_made_in_s3_that_honours_conditions() {
    let storage = Storage::start("moto");
    a_video_is_made(
        &storage,
        &[
            ("VODMILL_STORAGE", "s3://vodmill/some/prefix"),
            ("AWS_ENDPOINT", &storage.endpoint()),
            ("AWS_ACCESS_KEY_ID", super::bucket::KEY),
            ("AWS_SECRET_ACCESS_KEY", super::bucket::SECRET),
            ("AWS_REGION", "us-east-1"),
        ],
    );
}

/// Uploaded in pieces, encoded by a worker that reaches the storage itself, played, and purged.
fn a_video_is_made(storage: &Storage, settings: &[(&'static str, &str)]) {
    let mut house = House::with(Engine::Sqlite, settings);
    let _worker = house.remote_worker("far", &[]);
    of_two_rivals_one_is_refused(&house);
    let file = std::fs::read(house.sample("talk.mp4", 2)).unwrap();
    let upload = begin(&house, file.len());
    for (at, until) in [(0, 1000), (1000, file.len())] {
        let piece = tus(&house, "PATCH", &upload).header("content-type", CHUNK).header("upload-offset", at);
        assert_eq!(piece.body(file[at..until].to_vec()).send().unwrap().status(), 204);
    }

    house.video_is(1, "ready");

    let is_signed = |line: &&str| line.contains("X-Amz-Signature=") || line.contains("&sig=");
    let log = storage.log();
    let direct =
        log.lines().filter(|line| line.contains("PUT ") && line.contains("/incoming/")).find(is_signed);
    assert!(direct.is_some(), "the worker went through the server: {log}");
    let video = house.get("/api/videos/1");
    let slug = video["slug"].as_str().unwrap();
    let master = house.anyone("GET", &format!("/videos/{slug}/master.m3u8")).send().unwrap().text().unwrap();
    let variant = master.lines().find(|line| line.ends_with("index.m3u8") && !line.starts_with('#')).unwrap();
    let playlist = house.anyone("GET", &format!("/videos/{slug}/{variant}")).send().unwrap().text().unwrap();
    let segment = playlist.lines().find(|line| line.ends_with(".m4s")).unwrap();
    let folder = variant.rsplit_once('/').unwrap().0;
    let path = format!("/videos/{slug}/{folder}/{segment}");
    let part = house.anyone("GET", &path).header("range", "bytes=4-7").send().unwrap();
    assert_eq!((part.status().as_u16(), part.bytes().unwrap().to_vec()), (206, b"styp".to_vec()));
    assert_eq!(house.admin("DELETE", "/api/videos/1").send().unwrap().status(), 204);
    house.kill();
    house.set("VODMILL_RETENTION_DAYS", "0.0000001");
    house.start();
    until("it is purged", || house.admin("GET", "/api/videos/1").send().unwrap().status() == 404);
    house.is_healthy();
}

const CHUNK: &str = "application/offset+octet-stream";

fn tus(house: &House, method: &str, path: &str) -> RequestBuilder {
    house.admin(method, path).header("tus-resumable", "1.0.0")
}

fn begin(house: &House, bytes: usize) -> String {
    let begun = tus(house, "POST", "/api/uploads").header("upload-length", bytes).send().unwrap();
    begun.headers()["location"].to_str().unwrap().to_owned()
}

/// Both have been let in at the same place, and bring as many bytes, but others.
fn of_two_rivals_one_is_refused(house: &House) {
    let upload = begin(house, 1000);
    for round in 0..3 {
        let mut rivals = [b'a', b'b'].map(|letter| (Rival::let_in(house, &upload, round * 10), letter));

        for (rival, letter) in &mut rivals {
            rival.0.write_all(&[*letter; 10]).unwrap();
        }

        let mut answers = rivals.map(|(mut rival, _)| rival.answer());
        answers.sort();
        assert_eq!(answers, ["204", "409"]);
    }
    assert_eq!(tus(house, "HEAD", &upload).send().unwrap().headers()["upload-offset"], "30");
    assert_eq!(tus(house, "DELETE", &upload).send().unwrap().status(), 204);
}

/// A request whose head was read, and whose ten bytes are waited for.
struct Rival(TcpStream);

impl Rival {
    fn let_in(house: &House, upload: &str, at: u32) -> Self {
        let address = house.url("").trim_start_matches("http://").to_owned();
        let mut connection = TcpStream::connect(&address).unwrap();
        let head = format!(
            "PATCH {upload} HTTP/1.1\r\nhost: {address}\r\nx-admin-secret: {SECRET}\r\ntus-resumable: 1.0.0\r\n\
             content-type: {CHUNK}\r\nupload-offset: {at}\r\ncontent-length: 10\r\nexpect: 100-continue\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).unwrap();
        let mut rival = Rival(connection);
        assert_eq!(rival.answer(), "100");
        rival
    }

    /// The status of the next answer.
    fn answer(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        String::from_utf8_lossy(&head).split(' ').nth(1).unwrap().to_owned()
    }
}
