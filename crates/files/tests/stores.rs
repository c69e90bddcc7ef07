//! A bucket in real servers, over HTTP: rclone's S3, which has signatures; moto's, which has conditions; and Azure's own
//! emulator, which has both. For Google's there is none that could be had: `docs/storage.md`.

#![allow(clippy::unwrap_used)]

#[path = "stores/line.rs"]
mod line;
#[path = "stores/store.rs"]
mod store;

use bytes::Bytes;
use files::Bucket;
use files::bucket::{Digests, Error, Told};
use futures_util::TryStreamExt;
use line::Line;
use sha2::{Digest, Sha256};
use std::time::Duration;
use store::{AZURITE, MOTO, RCLONE, Store};

macro_rules! on {
    ($store:ident as $name:ident: $($behaviour:ident),+ $(,)?) => {
        mod $name {
            $(#[tokio::test]
            async fn $behaviour() {
                super::$behaviour(&super::$store, stringify!($behaviour)).await;
            })+
        }
    };
}

on![
    RCLONE as rclone:
    objects_come_and_go, a_copy_replaces_nothing, a_large_object_is_written_in_parts, nobody_replaces_a_sealed_object, a_signed_url_is_for_one_object,
];
// It breaks down at a part of what was given up, so nothing is sealed there. And it looks whether there is an object before
// it writes one, so that two at once may both succeed.
on![
    MOTO as moto:
    objects_come_and_go, a_copy_replaces_nothing, a_large_object_is_written_in_parts, an_object_that_is_there_is_not_created_again,
    a_lost_answer_to_a_creation_leaves_what_was_created,
];
on![
    AZURITE as azurite:
    objects_come_and_go, a_copy_replaces_nothing, a_large_object_is_written_in_parts, nobody_replaces_a_sealed_object, a_signed_url_is_for_one_object,
    of_two_who_create_an_object_one_is_refused, a_lost_answer_to_a_creation_leaves_what_was_created,
];
async fn content(bucket: &Bucket, name: &str, range: Option<std::ops::Range<u64>>) -> Vec<u8> {
    let reading = bucket.read(name, range).await.unwrap();
    let blocks: Vec<Bytes> = reading.stream.try_collect().await.unwrap();
    blocks.concat()
}

async fn names(bucket: &Bucket, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = bucket.list(folder).await.unwrap().into_iter().map(|it| it.name).collect();
    names.sort();
    names
}

async fn objects_come_and_go(store: &Store, prefix: &str) {
    let bucket = store.bucket(prefix);
    bucket.check().await.unwrap();

    let told = Told { content_type: Some("video/mp4"), cache: Some("max-age=1") };
    for name in ["a/one.mp4", "a/b/two.mp4", "c/three.mp4"] {
        bucket.put(name, name.as_bytes().to_vec().into(), told).await.unwrap();
    }
    bucket.put("a/one.mp4", Bytes::from_static(b"0123456789"), told).await.unwrap();

    assert_eq!(bucket.look("a/one.mp4").await.unwrap().bytes, 10);
    assert_eq!(content(&bucket, "a/one.mp4", None).await, b"0123456789");
    assert_eq!(content(&bucket, "a/one.mp4", Some(2..5)).await, b"234");
    assert_eq!(names(&bucket, "a").await, ["a/b/two.mp4", "a/one.mp4"]);
    assert_eq!(bucket.folders("").await.unwrap(), ["a", "c"]);
    assert!(matches!(bucket.look("a/none.mp4").await, Err(Error::NotFound(_))));
    bucket.remove_all("a").await.unwrap();
    bucket.remove("a/one.mp4").await.unwrap();
    assert_eq!(names(&bucket, "").await, ["c/three.mp4"]);
}

async fn a_copy_replaces_nothing(store: &Store, prefix: &str) {
    let bucket = store.bucket(prefix);
    let told = Told { content_type: Some("video/mp4"), cache: None };
    bucket.put("incoming/a.mp4", Bytes::from_static(b"first"), told).await.unwrap();

    bucket.copy_new("incoming/a.mp4", "parts/a.mp4").await.unwrap();
    bucket.put("incoming/a.mp4", Bytes::from_static(b"other"), told).await.unwrap();
    let again = bucket.copy_new("incoming/a.mp4", "parts/a.mp4").await;

    assert!(matches!(again, Err(Error::Taken(_))), "{again:?}");
    assert_eq!(content(&bucket, "parts/a.mp4", None).await, b"first");
    assert!(matches!(bucket.copy_new("incoming/none", "parts/b.mp4").await, Err(Error::NotFound(_))));
}

async fn a_large_object_is_written_in_parts(store: &Store, prefix: &str) {
    let bucket = store.bucket(prefix);
    let whole: Vec<u8> = (0..20_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sha256 = hex::encode(Sha256::digest(&whole));
    let mut writer = bucket.writer("large.mov", Told::default());
    let mut broken = bucket.writer("broken.mov", Told::default());

    for block in whole.chunks(1 << 20) {
        writer.write(Bytes::copy_from_slice(block)).await.unwrap();
        broken.write(Bytes::copy_from_slice(block)).await.unwrap();
    }
    assert!(!bucket.has("large.mov").await.unwrap(), "nobody sees it before it is whole");
    let written = writer.finish().await.unwrap();
    broken.abandon().await;

    assert_eq!(written.sha256, sha256);
    assert_eq!(bucket.measure("large.mov", &|| {}).await.unwrap(), written);
    assert_eq!(
        content(&bucket, "large.mov", Some(16_777_200..16_777_232)).await,
        whole[16_777_200..16_777_232]
    );
    assert_eq!(names(&bucket, "").await, ["large.mov"]);
}

/// What was begun before another was finished and sealed; and what is begun after.
async fn nobody_replaces_a_sealed_object(store: &Store, prefix: &str) {
    let bucket = store.bucket(prefix);
    let new = || bucket.writer("source.mov", Told::default()).new_only();
    let mut slow = new();
    slow.write(vec![0; 17 << 20].into()).await.unwrap();
    // One stands still after it has looked, and just before it is done.
    let mut about_to_finish = new();
    about_to_finish.write(Bytes::from_static(b"about to finish")).await.unwrap();
    let about_to_finish = about_to_finish.looked().await.unwrap();

    let mut quick = new();
    quick.write(Bytes::from_static(b"quick")).await.unwrap();
    quick.finish().await.unwrap();
    bucket.seal("source.mov").await.unwrap();

    assert!(about_to_finish.complete().await.is_err());
    assert!(slow.finish().await.is_err());
    let mut late = new();
    late.write(Bytes::from_static(b"late")).await.unwrap();
    assert!(matches!(late.finish().await, Err(Error::Taken(_))));
    assert_eq!(content(&bucket, "source.mov", None).await, b"quick");
    bucket.give_up_unfinished(Duration::ZERO).await.unwrap();
    assert_eq!(names(&bucket, "").await, ["source.mov"]);
}

async fn an_object_that_is_there_is_not_created_again(store: &Store, prefix: &str) {
    let bucket = store.bucket(prefix);
    bucket.create("piece", Bytes::from_static(b"one")).await.unwrap();

    let other = bucket.create("piece", Bytes::from_static(b"other")).await;

    assert!(matches!(other, Err(Error::Taken(_))), "{other:?}");
    assert_eq!(content(&bucket, "piece", None).await, b"one");
}

async fn of_two_who_create_an_object_one_is_refused(store: &Store, prefix: &str) {
    let bucket = store.bucket(prefix);
    for round in 0..5 {
        let name = format!("piece-{round}");
        let create = |text: &'static [u8]| bucket.create(&name, text.into());

        let (one, other) = tokio::join!(create(b"one"), create(b"other"));

        let is_taken = |it: &Result<(), Error>| matches!(it, Err(Error::Taken(_)));
        assert!(is_taken(&one) != is_taken(&other), "{one:?} {other:?}");
        let won: &[u8] = if one.is_ok() { b"one" } else { b"other" };
        assert_eq!(content(&bucket, &name, None).await, won);
    }
}

async fn a_lost_answer_to_a_creation_leaves_what_was_created(store: &Store, prefix: &str) {
    let line = Line::that_loses_the_first_answer(&store.endpoint()).await;
    let bucket = store.bucket_by(&line.url(), prefix);

    let created = bucket.create("piece", Bytes::from_static(b"ours")).await;

    assert!(matches!(created, Err(Error::Taken(_))), "{created:?}");
    assert_eq!(content(&store.bucket(prefix), "piece", None).await, b"ours");
}

/// Of `abc`.
const MD5: &str = "900150983cd24fb0d6963f7d28e17f72";

async fn a_signed_url_is_for_one_object(store: &Store, prefix: &str) {
    let (bucket, lives) = (store.bucket(prefix), Duration::from_secs(60));
    let (md5, sha256) = (hex::decode(MD5).unwrap(), Sha256::digest(b"abc"));
    let digests = Digests { md5: &md5, sha256: &sha256 };
    let signed = bucket.sign_put("a.m4s", lives, digests).await.unwrap().expect("it can sign");
    let client = reqwest::Client::new();
    let put = async |url: &str, content: &'static [u8]| {
        let mut request = client.put(url).body(content);
        for (name, value) in &signed.headers {
            request = request.header(name, value);
        }
        request.send().await.unwrap().status()
    };

    assert!(put(&signed.url, b"abd").await.is_client_error(), "other bytes");
    assert!(put(&signed.url.replace("a.m4s", "b.m4s"), b"abc").await.is_client_error(), "another name");
    assert!(client.get(&signed.url).send().await.unwrap().status().is_client_error(), "reading");
    assert!(put(&signed.url, b"abc").await.is_success());
    let signed = bucket.sign_get("a.m4s", lives).await.unwrap().expect("it can sign");
    let ranged = client.get(&signed.url).header("range", "bytes=1-").send().await.unwrap();

    assert_eq!(ranged.bytes().await.unwrap(), &b"bc"[..]);
    assert!(client.delete(&signed.url).send().await.unwrap().status().is_client_error(), "removing");
    assert_eq!(names(&bucket, "").await, ["a.m4s"]);
}
