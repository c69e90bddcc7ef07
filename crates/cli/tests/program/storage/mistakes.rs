//! Settings that name no storage that could be used.

use super::bucket::{Bucket, KEY, SECRET};
use crate::support::{Engine, World};

#[test]
fn a_storage_that_cannot_be_used_is_told_at_the_start() {
    let (world, bucket) = (World::new(Engine::Sqlite), Bucket::start());
    let serve = |storage: &str, secret: &str| {
        let program = world
            .vodmill(&["serve"])
            .env("VODMILL_LISTEN", "127.0.0.1:0")
            .env("VODMILL_STORAGE", storage)
            .env("AWS_ENDPOINT", &bucket.endpoint())
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .env("AWS_REGION", "us-east-1");
        program.ends_with(2)
    };

    for (storage, secret, told) in [
        ("ftp://somewhere/else", SECRET, "s3://BUCKET/PREFIX"),
        ("file://relative", SECRET, "file:///FOLDER"),
        ("s3://nobodys-bucket/x", SECRET, "there is no bucket"),
        (&Bucket::url(), "a-wrong-secret", "credentials"),
    ] {
        let said = serve(storage, secret);

        assert!(said.contains(told), "{storage}: {said}");
        assert!(!said.contains(secret), "{said}");
    }
}
