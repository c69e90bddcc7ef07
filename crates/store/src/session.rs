//! Somebody who signed in on the server's page, known by a token of which only the hash is kept.

use crate::Store;
use crate::db::{Step, again};
use crate::error::Result;
use rules::Millis;
use sha2::{Digest, Sha256};

const OPEN: &str = "INSERT INTO session (token_hash, expires_at) VALUES ($1, $2)";
const REMOVE_OLD: &str = "DELETE FROM session WHERE expires_at <= $1";
const IS_OPEN: &str = "SELECT expires_at FROM session WHERE token_hash = $1";
const CLOSE: &str = "DELETE FROM session WHERE token_hash = $1";

impl Store {
    /// A new session; its token.
    pub async fn open_session(&self, lasts: Millis) -> Result<String> {
        let token = hex::encode(rand::random::<[u8; 32]>());
        again(|| async {
            let mut tx = self.db.write(Step::OpenSession).await?;
            let now = tx.now();
            tx.query(REMOVE_OLD).bind(now).execute().await?;
            tx.query(OPEN).bind(hash(&token)).bind(now + lasts).execute().await?;
            tx.commit().await
        })
        .await?;
        Ok(token)
    }

    pub async fn is_session(&self, token: &str) -> Result<bool> {
        let mut tx = self.db.read().await?;
        let found: Option<(i64,)> = tx.query(IS_OPEN).bind(hash(token)).optional().await?;
        Ok(found.is_some_and(|(expires_at,)| expires_at > tx.now().0))
    }

    pub async fn close_session(&self, token: &str) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::CloseSession).await?;
            tx.query(CLOSE).bind(hash(token)).execute().await?;
            tx.commit().await
        })
        .await
    }
}

fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}
