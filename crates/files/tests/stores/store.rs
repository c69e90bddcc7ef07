//! A server for all tests of this program; `scripts/with-services` ends it.

use files::Bucket;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

pub struct Store {
    kind: &'static str,
    scheme: &'static str,
    endpoint: OnceLock<String>,
}

pub static RCLONE: Store = Store::of("rclone", "s3");
pub static MOTO: Store = Store::of("moto", "s3");
pub static AZURITE: Store = Store::of("azurite", "az");

/// Of every emulator of Azure's.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

impl Store {
    const fn of(kind: &'static str, scheme: &'static str) -> Self {
        Store { kind, scheme, endpoint: OnceLock::new() }
    }

    pub fn endpoint(&self) -> String {
        self.endpoint.get_or_init(|| self.start()).clone()
    }

    /// A place in it that no other test has.
    pub fn bucket(&self, prefix: &str) -> Bucket {
        self.bucket_by(&self.endpoint(), prefix)
    }

    pub fn bucket_by(&self, endpoint: &str, prefix: &str) -> Bucket {
        let account = format!("{endpoint}/{ACCOUNT}");
        let variables = [
            ("AWS_ENDPOINT", endpoint),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "vodmill"),
            ("AWS_SECRET_ACCESS_KEY", "a-secret-of-the-tests"),
            ("AZURE_STORAGE_ENDPOINT", &account),
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
        ];
        Bucket::open_with(&format!("{}://vodmill/{prefix}", self.scheme), &variables).unwrap()
    }

    fn start(&self) -> String {
        let folder = tempfile::Builder::new().prefix("vodmill-storage").tempdir().unwrap().keep();
        let script = |args: &[&str]| {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/storage");
            let output = Command::new(script).args(args).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        };
        let folder = folder.to_str().unwrap();
        script(&["start", folder, self.kind]);
        script(&["endpoint", folder])
    }
}
