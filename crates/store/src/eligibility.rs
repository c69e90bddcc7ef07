//! What each worker may be given, read from its row: what it declared, within what an admin allowed.

use crate::db::Tx;
use crate::error::{Error, Result};
use crate::from_row::row;
use rules::placement::{BadCapability, Capabilities, Eligibility, Grant};
use rules::worker::Status;
use rules::{Millis, WorkerId};

row! {
    /// The part of a worker's row that decides what it may be given.
    #[derive(Debug, Clone)]
    pub(crate) struct BoundsRow {
        pub id: String,
        pub name: String,
        pub status: String,
        pub kind: String,
        pub capabilities: String,
        pub granted: Option<String>,
        pub pool: Option<String>,
        pub users: Option<String>,
        pub last_heartbeat: Option<i64>,
        /// Why it takes nothing new for now.
        pub refusal: Option<String>,
    }
}

const IDLE: &str = "
SELECT id, name, status, kind, capabilities, granted, pool, users, last_heartbeat, refusal FROM worker
WHERE status = 'idle' AND id <> $1 AND last_heartbeat > $2";

const LIVE: &str = "
SELECT id, name, status, kind, capabilities, granted, pool, users, last_heartbeat, refusal FROM worker
WHERE status IN ('active', 'idle', 'busy') AND coalesce(last_heartbeat, registered_at) > $1
ORDER BY name, id";

impl BoundsRow {
    pub fn eligibility(&self) -> Result<Eligibility> {
        let declared = capabilities(&self.capabilities)?;
        if self.kind == wire::Kind::Local.as_str() {
            return Ok(Eligibility::local(declared));
        }
        Ok(Eligibility::remote(&declared, self.grant()?))
    }

    pub fn grant(&self) -> Result<Grant> {
        grant(self.granted.as_deref(), self.pool.as_deref(), self.users.as_deref())
    }

    pub fn status(&self) -> Result<Status> {
        Ok(self.status.parse()?)
    }
}

/// A grant as its columns hold it.
pub(crate) fn grant(granted: Option<&str>, pool: Option<&str>, users: Option<&str>) -> Result<Grant> {
    Ok(Grant {
        capabilities: granted.map(capabilities).transpose()?,
        pool: pool.map(str::parse).transpose().map_err(unreadable)?,
        users: users.map(serde_json::from_str).transpose()?,
    })
}

pub(crate) fn capabilities(text: &str) -> Result<Capabilities> {
    text.parse().map_err(unreadable)
}

fn unreadable(bad: BadCapability) -> Error {
    Error::Invalid(bad.to_string())
}

/// Idle workers other than this one that were heard of since `since`.
pub(crate) async fn idle(tx: &mut Tx, except: Option<WorkerId>, since: Millis) -> Result<Vec<BoundsRow>> {
    let except = except.map(|id| id.to_string()).unwrap_or_default();
    tx.query(IDLE).bind(except).bind(since).all().await
}

/// Workers that could be given work: heard of since `since` and not told to take nothing new.
pub(crate) async fn live(tx: &mut Tx, since: Millis) -> Result<Vec<BoundsRow>> {
    tx.query(LIVE).bind(since).all().await
}

#[cfg(test)]
mod tests {
    use pipeline::StageKind;
    use rules::placement::SERVER_KINDS;

    #[test]
    fn the_rules_and_the_pipeline_agree_on_what_only_a_server_runs() {
        assert_eq!(StageKind::server_only().map(StageKind::as_str).collect::<Vec<_>>(), SERVER_KINDS);
    }
}
