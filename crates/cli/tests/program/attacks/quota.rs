//! A worker brings more than its task can make, to fill the server's disk.

use super::results::{claim_of, finish};
use crate::support::Engine;
use crate::support::house::{House, good};
use flate2::Compression;
use flate2::write::GzEncoder;

#[test]
fn an_execution_brings_no_more_than_its_task_makes() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let (greedy, file) = (house.worker("greedy", &["encode", "libx264"]), house.sample("talk.mp4", 2));
    house.upload(&file, "slug=talk");
    let task = claim_of(&greedy, "encode");

    let megabyte = vec![0; 1 << 20];
    let brings = |path: String, content: &[u8]| {
        let status = greedy.put(&task, &path, content).send().unwrap().status().as_u16();
        assert!([201, 413].contains(&status), "{path}: {status}");
        status == 201
    };
    let large = (0..100).take_while(|n| brings(format!("large-{n}"), &megabyte)).count();
    let empty = (0..1000).take_while(|n| brings(format!("empty-{n}"), b"")).count();

    assert!((1..64).contains(&large), "{large} MiB, of a video of two seconds");
    assert!(empty < 100, "{empty} files");
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for n in 0..200 {
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        archive.append_data(&mut header, format!("packed-{n}"), &b""[..]).unwrap();
    }
    let request = greedy.request("POST", "/api/worker/outputs").header("content-type", "application/gzip");
    let request = request.header("x-vodmill-proof", greedy.proof_header(&task));
    let packed = request.body(archive.into_inner().unwrap().finish().unwrap()).send().unwrap();
    assert_eq!(packed.status(), 413);
    good(greedy.release(&task).unwrap());
    finish(&house, &house.worker("honest", &["encode", "audio", "libx264"]), &file, 1);
    house.is_healthy();
}
