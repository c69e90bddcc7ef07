//! A browser that signed in on the server's page, known by a token of which only the hash is kept.
//!
//! A session is bound to the admin's secret: it is open only to a server that has the secret it began with. The binding
//! needs the token, so who reads the database cannot try secrets against it.

use crate::Store;
use crate::db::{Step, again};
use crate::error::{Error, Result};
use rules::Millis;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

const OPEN: &str = "
INSERT INTO session (token_hash, expires_at, binding, secret_mark, created_at, client, user_agent)
VALUES ($1, $2, $3, $4, $5, $6, $7)";
const REMOVE_OLD: &str = "
DELETE FROM session WHERE expires_at <= $1 OR secret_mark IS NULL OR secret_mark <> $2";
const IS_OPEN: &str = "SELECT expires_at FROM session WHERE token_hash = $1 AND binding = $2";
const CLOSE: &str = "DELETE FROM session WHERE token_hash = $1";
const LIST: &str = "
SELECT token_hash, created_at, expires_at, client, user_agent FROM session
WHERE expires_at > $1 AND secret_mark IS NOT NULL AND ($2 = '' OR secret_mark = $2)
ORDER BY created_at DESC, token_hash LIMIT 1000";
const END: &str = "DELETE FROM session WHERE substr(token_hash, 1, 16) = $1";
const END_ALL: &str = "DELETE FROM session";

/// What a session of the server's page is known by to people. Its token is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    pub id: String,
    /// In milliseconds since 1970.
    pub created_at: i64,
    pub expires_at: i64,
    /// The address it was opened from.
    pub client: String,
    /// What the browser called itself.
    pub user_agent: String,
    /// Whether it is the session of the request.
    #[serde(default)]
    pub is_current: bool,
}

/// A session that begins.
pub struct NewSession<'a> {
    /// The hash of the admin's secret.
    pub secret: &'a [u8; 32],
    pub lasts: Millis,
    pub client: &'a str,
    pub user_agent: &'a str,
}

type Row = (String, Option<i64>, i64, Option<String>, Option<String>);

impl Store {
    /// A new session; its token. Sessions that are over or belong to another secret are removed.
    pub async fn open_session(&self, new: &NewSession<'_>) -> Result<String> {
        let token = hex::encode(rand::random::<[u8; 32]>());
        let (binding, mark) = (binding(new.secret, &token), mark(new.secret));
        again(|| async {
            let mut tx = self.db.write(Step::OpenSession).await?;
            let now = tx.now();
            tx.query(REMOVE_OLD).bind(now).bind(mark.as_str()).execute().await?;
            let row = tx.query(OPEN).bind(hash(&token)).bind(now + new.lasts).bind(binding.as_str());
            let row = row.bind(mark.as_str()).bind(now).bind(new.client).bind(new.user_agent);
            row.execute().await?;
            tx.commit().await
        })
        .await?;
        Ok(token)
    }

    /// Whether a session with this token is open, and began with this secret.
    pub async fn is_session(&self, secret: &[u8; 32], token: &str) -> Result<bool> {
        let mut tx = self.db.read().await?;
        let asked = tx.query(IS_OPEN).bind(hash(token)).bind(binding(secret, token));
        let found: Option<(i64,)> = asked.optional().await?;
        Ok(found.is_some_and(|(expires_at,)| expires_at > tx.now().0))
    }

    /// The open sessions, newest first; with a secret, only its own.
    pub async fn sessions(&self, secret: Option<&[u8; 32]>) -> Result<Vec<Session>> {
        let mut tx = self.db.read().await?;
        let (now, mark) = (tx.now(), secret.map(mark).unwrap_or_default());
        let rows: Vec<Row> = tx.query(LIST).bind(now).bind(mark).all().await?;
        let view = |(hash, created_at, expires_at, client, user_agent): Row| Session {
            id: shortened(&hash),
            created_at: created_at.unwrap_or_default(),
            expires_at,
            client: client.unwrap_or_default(),
            user_agent: user_agent.unwrap_or_default(),
            is_current: false,
        };
        Ok(rows.into_iter().map(view).collect())
    }

    pub async fn close_session(&self, token: &str) -> Result<()> {
        self.remove_sessions(CLOSE, Some(hash(token))).await.map(|_| ())
    }

    /// Ends the session with this id.
    pub async fn end_session(&self, id: &str) -> Result<()> {
        match self.remove_sessions(END, Some(id.into())).await? {
            0 => Err(Error::NotFound("session")),
            _ => Ok(()),
        }
    }

    /// Ends all sessions; how many there were.
    pub async fn end_sessions(&self) -> Result<u64> {
        self.remove_sessions(END_ALL, None).await
    }

    async fn remove_sessions(&self, statement: &'static str, key: Option<String>) -> Result<u64> {
        again(|| async {
            let mut tx = self.db.write(Step::CloseSession).await?;
            let query = tx.query(statement);
            let query = match &key {
                Some(key) => query.bind(key.as_str()),
                None => query,
            };
            let removed = query.execute().await?;
            tx.commit().await?;
            Ok(removed)
        })
        .await
    }
}

/// The id of the session with this token.
pub fn id(token: &str) -> String {
    shortened(&hash(token))
}

fn shortened(hash: &str) -> String {
    hash.chars().take(16).collect()
}

fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

fn binding(secret: &[u8; 32], token: &str) -> String {
    let digest = Sha256::new().chain_update(b"session\0").chain_update(secret).chain_update(token.as_bytes());
    hex::encode(digest.finalize())
}

/// Tells sessions of other secrets apart. Two bytes are enough for that, and too few to find the secret by.
fn mark(secret: &[u8; 32]) -> String {
    let digest = Sha256::new().chain_update(b"session secret\0").chain_update(secret).finalize();
    hex::encode(&digest[..2])
}
