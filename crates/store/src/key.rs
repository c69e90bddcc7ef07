//! API keys of workers: shown once, stored as hash and prefix, compared in constant time.

use crate::Store;
use crate::db::{Step, again};
use crate::error::{Error, Result};
use rules::WorkerId;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// A key as its owner must keep it. Never shown by `Debug`.
pub struct Secret(String);

impl Secret {
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
    /// Makes a new key for a worker: 256 random bits.
    pub async fn issue_key(&self, worker: WorkerId) -> Result<Secret> {
        let secret = Secret(hex::encode(rand::random::<[u8; 32]>()));
        let (prefix, hash) = (&secret.0[..PREFIX], hash(&secret.0));
        again(|| async {
            let mut tx = self.db.write(Step::Manage).await?;
            let known: Option<(String,)> =
                tx.query("SELECT id FROM worker WHERE id = $1").bind(worker).optional().await?;
            known.ok_or(Error::NotFound("worker"))?;
            let now = tx.now();
            tx.query(INSERT).bind(worker).bind(prefix).bind(hash.as_str()).bind(now).execute().await?;
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
            let mut tx = self.db.write(Step::Manage).await?;
            let now = tx.now();
            let revoked = tx.query(REVOKE).bind(now).bind(worker).execute().await?;
            tx.commit().await?;
            Ok(revoked)
        })
        .await
    }
}

fn hash(key: &str) -> String {
    hex::encode(Sha256::digest(key.as_bytes()))
}
