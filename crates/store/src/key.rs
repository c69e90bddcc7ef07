//! API keys of workers: shown once, stored as hash and prefix, compared in constant time.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::{Error, Result};
use crate::wake::Topic;
use crate::worker;
use rules::WorkerId;
use rules::placement::Grant;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;
use wire::Hello;

/// A key as its owner must keep it. Never shown by `Debug`.
pub struct Secret(String);

impl Secret {
    fn new() -> Self {
        Secret(hex::encode(rand::random::<[u8; 32]>()))
    }

    /// The text itself, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How much of a key is stored as it is, to find its row.
const PREFIX: usize = 8;

const INSERT: &str = "INSERT INTO api_key (worker_id, prefix, hash, created_at) VALUES ($1, $2, $3, $4)";
const BY_PREFIX: &str = "SELECT worker_id, hash FROM api_key WHERE prefix = $1 AND revoked_at IS NULL";
const REVOKE: &str = "UPDATE api_key SET revoked_at = $1 WHERE worker_id = $2 AND revoked_at IS NULL";

impl Store {
    /// Makes a remote worker known and its key, or neither: nobody could use one without the other. `grant` is the upper
    /// bound of what it will be given, whatever its process declares later.
    pub async fn enroll_worker(&self, hello: &Hello, grant: &Grant) -> Result<Secret> {
        let secret = Secret::new();
        grant.check().map_err(|bad| Error::Invalid(bad.to_string()))?;
        let metadata = worker::checked(hello)?;
        again(|| async {
            let mut tx = self.db.write(Step::Enroll).await?;
            worker::register(&mut tx, hello, &metadata, Some(grant)).await?;
            insert(&mut tx, hello.worker, &secret).await?;
            tx.commit().await
        })
        .await?;
        self.wake.up(Topic::Event);
        Ok(secret)
    }

    /// Makes a new key for a worker: 256 random bits.
    pub async fn issue_key(&self, worker: WorkerId) -> Result<Secret> {
        let secret = Secret::new();
        again(|| async {
            let mut tx = self.db.write(Step::IssueKey).await?;
            let known: Option<(String,)> =
                tx.query("SELECT id FROM worker WHERE id = $1").bind(worker).optional().await?;
            known.ok_or(Error::NotFound("worker"))?;
            insert(&mut tx, worker, &secret).await?;
            tx.commit().await
        })
        .await?;
        Ok(secret)
    }

    /// Whose key this is. A wrong key and a revoked one are told apart by nobody.
    pub async fn authenticate(&self, key: &str) -> Result<WorkerId> {
        let prefix = key.get(..PREFIX).ok_or(Error::BadKey)?;
        let offered = hash(key);
        let mut tx = self.db.read().await?;
        let rows: Vec<(String, String)> = tx.query(BY_PREFIX).bind(prefix).all().await?;
        let matches = |stored: &str| bool::from(stored.as_bytes().ct_eq(offered.as_bytes()));
        let found = rows.into_iter().find(|(_, stored)| matches(stored)).ok_or(Error::BadKey)?;
        found.0.parse().map_err(|_| Error::BadKey)
    }

    /// Revokes all keys of a worker; how many there were.
    pub async fn revoke_keys(&self, worker: WorkerId) -> Result<u64> {
        again(|| async {
            let mut tx = self.db.write(Step::RevokeKeys).await?;
            let now = tx.now();
            let revoked = tx.query(REVOKE).bind(now).bind(worker).execute().await?;
            tx.commit().await?;
            Ok(revoked)
        })
        .await
    }
}

async fn insert(tx: &mut Tx, worker: WorkerId, secret: &Secret) -> Result<()> {
    let now = tx.now();
    let (prefix, hash) = (&secret.0[..PREFIX], hash(&secret.0));
    tx.query(INSERT).bind(worker).bind(prefix).bind(hash).bind(now).execute().await?;
    Ok(())
}

fn hash(key: &str) -> String {
    hex::encode(Sha256::digest(key.as_bytes()))
}
