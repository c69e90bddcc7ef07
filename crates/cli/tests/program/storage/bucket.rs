//! An S3-compatible server of a test's own. What is put there lies in a folder that the test can look into.

use crate::support::said;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

pub const KEY: &str = "vodmill";
pub const SECRET: &str = "a-secret-of-the-tests";
/// Within the bucket, so that it is seen that nothing goes elsewhere.
const PREFIX: &str = "some/prefix";

pub struct Bucket {
    folder: TempDir,
}

impl Bucket {
    pub fn start() -> Self {
        let bucket = Bucket { folder: tempfile::Builder::new().prefix("vodmill-s3").tempdir().unwrap() };
        bucket.script("start");
        bucket
    }

    pub fn endpoint(&self) -> String {
        self.script("endpoint")
    }

    pub fn stop(&self) {
        self.script("stop");
    }

    pub fn start_again(&self) {
        self.script("start");
    }

    /// For `VODMILL_STORAGE`.
    pub fn url() -> String {
        format!("s3://vodmill/{PREFIX}")
    }

    /// What a server is told to keep its files there.
    pub fn settings<'a>(url: &'a str, endpoint: &'a str) -> [(&'static str, &'a str); 5] {
        [
            ("VODMILL_STORAGE", url),
            ("AWS_ENDPOINT", endpoint),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_REGION", "us-east-1"),
        ]
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("data/vodmill").join(PREFIX).join(name)
    }

    /// The names of all objects below a folder.
    pub fn objects(&self, folder: &str) -> Vec<String> {
        let (root, mut found) = (self.path(""), Vec::new());
        walk(&self.path(folder), &mut |path| {
            found.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
        });
        found.sort();
        found
    }

    /// Everything that is not below the prefix.
    pub fn elsewhere(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.folder.path().join("data"), &mut |path| found.push(path.to_owned()));
        found.retain(|path| !path.starts_with(self.path("")));
        found
    }

    /// Puts an object there as if so long ago.
    pub fn plant(&self, name: &str, content: &str, age: Duration) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        self.age(name, age);
    }

    pub fn age(&self, name: &str, age: Duration) {
        let file = std::fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }

    fn script(&self, what: &str) -> String {
        script(&[what, self.folder.path().to_str().unwrap()])
    }
}

/// `scripts/storage` with these arguments; what it says.
pub fn script(args: &[&str]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/storage");
    let output = Command::new(script).args(args).output().unwrap();
    assert!(output.status.success(), "scripts/storage {args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.stop();
    }
}

fn walk(folder: &Path, look: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => walk(&path, look),
            path => look(&path),
        }
    }
}
