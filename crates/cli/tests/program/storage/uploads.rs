//! Files on their way into a bucket.

use super::site::{Site, good};
use crate::support::{Engine, until};
use sha2::{Digest, Sha256};
use std::io::Write;
use std::net::TcpStream;

/// More than one part of a multipart upload, and the same each time.
fn large() -> Vec<u8> {
    (0..40_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn a_large_file_arrives_whole_or_not_at_all_by_whichever_way() {
    let site = Site::new(Engine::Sqlite);
    let mut server = site.server("a", &[]);
    let (file, sources) = (large(), || site.bucket.objects("sources"));
    let hash = hex::encode(Sha256::digest(&file));

    // In one request.
    let uploaded = good(server.admin("POST", "/api/videos?name=a.mov").body(file.clone()).send().unwrap());
    assert_eq!((&uploaded["sha256"], &uploaded["bytes"]), (&hash.as_str().into(), &file.len().into()));
    assert_eq!(hash, hex::encode(Sha256::digest(std::fs::read(site.bucket.path(&sources()[0])).unwrap())));

    // One that breaks off in the middle of it leaves nothing.
    let mut connection = TcpStream::connect(server.url("").trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /api/videos?name=b.mov HTTP/1.1\r\nhost: x\r\nx-admin-secret: a secret of twenty or more\r\ncontent-length: {}\r\n\r\n",
        file.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&file[..20_000_000]).unwrap();
    until("its parts are on their way", || !site.bucket.objects("unfinished").is_empty());
    drop(connection);
    until("it is given up", || site.bucket.objects("unfinished").is_empty());
    assert_eq!(sources().len(), 1);

    // In pieces, through a server that is killed between them.
    let upload = server.begin(file.len(), "filename Yy5tb3Y=");
    good(server.append(&upload, &file, 30_000_000));
    server.kill();
    server.start();
    assert_eq!(server.offset(&upload), 30_000_000);
    good(server.append(&upload, &file, file.len()));
    assert_eq!(sources().len(), 2);
    for source in sources() {
        assert_eq!(hash, hex::encode(Sha256::digest(std::fs::read(site.bucket.path(&source)).unwrap())));
    }
    site.is_tidy();

    // What is asked for again after its source is gone says so.
    server.video_is(1, "failed");
    site.bucket.stop();
    for source in sources() {
        std::fs::remove_file(site.bucket.path(&source)).unwrap();
    }
    site.bucket.start_again();
    let again =
        server.admin("POST", "/api/videos/1/retranscode").json(&serde_json::json!({})).send().unwrap();
    assert_eq!(again.status(), 409);
    site.world.is_healthy();
}
