//! Workers: registration, heartbeats, and the ones that fell silent.

use crate::Store;
use crate::alert::{self, Alert, Kind};
use crate::audit::{self, AuditRow};
use crate::db::{Step, Tx, again};
use crate::eligibility;
use crate::error::{Error, Result};
use crate::from_row::row;
use crate::lost_worker;
use crate::wake::Topic;
use rules::placement::Grant;
use rules::task::Death;
use rules::worker::{Command, Rejections, Status, Worker};
use rules::{Millis, WorkerId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;
use wire::{Heartbeat, Hello};

/// How large a worker's metadata may be, as JSON (001).
pub const MAX_METADATA: usize = 10 * 1024;

const REGISTER: &str = "
INSERT INTO worker (id, name, kind, hostname, version, status, phase, capabilities, metadata, slots, registered_at,
                    granted, pool, users, registered_metadata)
VALUES ($1, $2, $3, $4, $5, 'active', 'Startup', $6, $7, $8, $9, $10, $11, $12, $13)
ON CONFLICT (id) DO NOTHING";

const LOCK: &str = "
SELECT name, status, registered_at, last_heartbeat, rejections, rejected_since FROM worker WHERE id = $1 FOR UPDATE";

/// A worker that is switched on again is not suspended any more.
const SAVE: &str = "
UPDATE worker SET status = $1, last_heartbeat = $2, rejections = $3, rejected_since = $4,
                  suspended = CASE WHEN $1 = 'disabled' THEN suspended END
WHERE id = $5";

const SUSPEND: &str = "UPDATE worker SET suspended = $1 WHERE id = $2";

const IS_REMOTE: &str = "SELECT id FROM worker WHERE id = $1 AND kind = 'remote'";

const SAVE_LOAD: &str =
    "UPDATE worker SET phase = $1, running = $2, done = $3, failed = $4, refusal = $5 WHERE id = $6";

/// Judged again under the row's lock, so that a heartbeat that arrives meanwhile wins (001, edge cases 4 and 9).
const SILENT: &str = "
SELECT id FROM worker
WHERE status NOT IN ('offline', 'disabled') AND coalesce(last_heartbeat, registered_at) <= $1
ORDER BY id LIMIT $2";

/// Those that left for good. Their executions name them still, and need no row of theirs.
const PRUNE: &str = "
DELETE FROM worker WHERE id IN (
    SELECT id FROM worker
    WHERE status = 'offline' AND kind = 'local' AND coalesce(last_heartbeat, registered_at) < $1
    LIMIT $2
)";

const LIST: &str = "
SELECT id, name, kind, hostname, version, status, phase, capabilities, slots, running, done, failed, registered_at,
       last_heartbeat, load, metadata, granted, pool, users, registered_metadata, suspended, refusal
FROM worker WHERE ($1 OR status <> 'offline')
ORDER BY registered_at DESC, id LIMIT 1000";

row! {
    /// A worker as people see it.
    #[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
    pub struct View {
        pub id: String,
        pub name: String,
        pub kind: String,
        pub hostname: String,
        pub version: String,
        pub status: String,
        pub phase: String,
        pub capabilities: String,
        pub slots: i64,
        pub running: i64,
        pub done: i64,
        pub failed: i64,
        pub registered_at: i64,
        pub last_heartbeat: Option<i64>,
        /// How busy its machine is, where it has told.
        #[serde(default, with = "json_text")]
        #[schema(value_type = Option<Object>)]
        pub load: Option<String>,
        /// What it told of its machine when it came: system, processors and the like.
        #[serde(default, with = "json_text")]
        #[schema(value_type = serde_json::Value)]
        pub metadata: Option<String>,
        /// The capabilities it was allowed when it was registered, the upper bound of `capabilities`. Null: every kind
        /// of work that a remote worker may do.
        #[serde(default)]
        pub granted: Option<String>,
        /// The pool it belongs to. It takes only jobs that name this pool.
        #[serde(default)]
        pub pool: Option<String>,
        /// The users whose jobs it takes. Null: all.
        #[serde(default, with = "json_text")]
        #[schema(value_type = Option<Vec<String>>)]
        pub users: Option<String>,
        /// The metadata given at its registration.
        #[serde(default, with = "json_text")]
        #[schema(value_type = serde_json::Value)]
        pub registered_metadata: Option<String>,
        /// Why the server suspended it. Null: it is not suspended.
        #[serde(default)]
        pub suspended: Option<String>,
        /// Why it takes nothing new although a slot is free: its machine has too little disk or memory left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub refusal: Option<String>,
    }
}

/// JSON that is kept as text is shown as JSON.
mod json_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub fn serialize<S: Serializer>(text: &Option<String>, to: S) -> Result<S::Ok, S::Error> {
        let value: Option<Value> = text.as_deref().and_then(|text| serde_json::from_str(text).ok());
        value.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
        let value: Option<Value> = Option::deserialize(from)?;
        Ok(value.map(|value| value.to_string()))
    }
}

/// What stands behind the key of a remote worker.
#[derive(Debug, Clone, Copy)]
pub struct Process<'a> {
    pub incarnation: Uuid,
    /// How busy its machine is, as JSON.
    pub load: &'a str,
}

const INCARNATION: &str =
    "SELECT incarnation, name, granted, pool, users FROM worker WHERE id = $1 FOR UPDATE";

const INTRODUCE: &str = "
UPDATE worker SET hostname = $1, version = $2, slots = $3, capabilities = $4, metadata = $5, incarnation = $6
WHERE id = $7";

const SAVE_PROCESS: &str = "UPDATE worker SET load = $1 WHERE id = $2 AND incarnation = $3";

const IS_CURRENT: &str = "SELECT id FROM worker WHERE id = $1 AND incarnation = $2";

impl Store {
    /// A new process speaks for a registered worker. The one before it is dead or about to learn that it was replaced:
    /// whatever it had leased is free at once, at the cost of an attempt.
    pub async fn introduce_worker(&self, hello: &Hello, incarnation: Uuid) -> Result<()> {
        let metadata = checked(hello)?;
        let is_new = again(|| self.introduce_once(hello, &metadata, incarnation)).await?;
        if is_new {
            self.lose_worker(hello.worker, Death::Unexplained).await?;
        }
        Ok(())
    }

    async fn introduce_once(&self, hello: &Hello, metadata: &str, incarnation: Uuid) -> Result<bool> {
        let mut tx = self.db.write(Step::Introduce).await?;
        type Known = (Option<String>, String, Option<String>, Option<String>, Option<String>);
        let known: Option<Known> = tx.query(INCARNATION).bind(hello.worker).optional().await?;
        let (before, name, granted, pool, users) = known.ok_or(Error::NotFound("worker"))?;
        let grant = eligibility::grant(granted.as_deref(), pool.as_deref(), users.as_deref())?;
        tx.query(INTRODUCE)
            .bind(hello.hostname.as_str())
            .bind(hello.version.as_str())
            .bind(i64::from(hello.slots))
            .bind(grant.narrow(&hello.capabilities).to_string())
            .bind(metadata)
            .bind(incarnation.to_string())
            .bind(hello.worker)
            .execute()
            .await?;
        let is_same = before.as_deref() == Some(incarnation.to_string().as_str());
        if !is_same {
            alert::raise(&mut tx, vec![startup(&Hello { name, ..hello.clone() }, incarnation)]).await?;
        }
        tx.commit().await?;
        Ok(before.is_some() && !is_same)
    }

    /// Whether this process still speaks for the worker.
    pub async fn is_current_process(&self, worker: WorkerId, incarnation: Uuid) -> Result<bool> {
        let mut tx = self.db.look().await?;
        let found: Option<(String,)> =
            tx.query(IS_CURRENT).bind(worker).bind(incarnation.to_string()).optional().await?;
        Ok(found.is_some())
    }

    pub async fn register_worker(&self, hello: &Hello) -> Result<()> {
        let metadata = checked(hello)?;
        again(|| self.register_once(hello, &metadata)).await?;
        self.wake.up(Topic::Event);
        Ok(())
    }

    async fn register_once(&self, hello: &Hello, metadata: &str) -> Result<()> {
        let mut tx = self.db.write(Step::Register).await?;
        register(&mut tx, hello, metadata, None).await?;
        tx.commit().await
    }

    /// Records a heartbeat; what the worker is to be from now on.
    pub async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Status> {
        again(|| self.heartbeat_once(heartbeat, None)).await
    }

    /// As [`Store::heartbeat`], of a worker that is known by a key: only its newest process is heard.
    pub async fn heartbeat_of(&self, process: &Process<'_>, heartbeat: &Heartbeat) -> Result<Status> {
        again(|| self.heartbeat_once(heartbeat, Some(process))).await
    }

    async fn heartbeat_once(&self, heartbeat: &Heartbeat, process: Option<&Process<'_>>) -> Result<Status> {
        let mut tx = self.db.write(Step::Heartbeat).await?;
        if let Some(process) = process {
            let said = tx.query(SAVE_PROCESS).bind(process.load).bind(heartbeat.worker);
            if said.bind(process.incarnation.to_string()).execute().await? == 0 {
                return Err(rules::worker::Refusal::Superseded.into());
            }
        }
        let said = Command::Heartbeat { running: heartbeat.running, is_draining: heartbeat.is_draining };
        let mut status = step(&mut tx, heartbeat.worker, said, "worker").await?.status;
        if heartbeat.is_leaving && status != Status::Disabled {
            status = step(&mut tx, heartbeat.worker, Command::Leave, "worker").await?.status;
        }
        tx.query(SAVE_LOAD)
            .bind(heartbeat.phase.as_str())
            .bind(i64::from(heartbeat.running))
            .bind(i64::try_from(heartbeat.done).unwrap_or(i64::MAX))
            .bind(i64::try_from(heartbeat.failed).unwrap_or(i64::MAX))
            .bind(heartbeat.refusal.as_deref().map(refusal))
            .bind(heartbeat.worker)
            .execute()
            .await?;
        tx.commit().await?;
        Ok(status)
    }

    /// Marks workers offline that were not heard of for the offline threshold. Their leases expire by themselves.
    pub async fn mark_offline(&self, max: i64) -> Result<Vec<WorkerId>> {
        let mut read = self.db.read().await?;
        let silent_since = read.now() - self.options.offline_after;
        let found: Vec<(String,)> = read.query(SILENT).bind(silent_since).bind(max).all().await?;
        drop(read);
        if !found.is_empty() {
            failpoint::between("offline", "found").await;
        }
        let mut marked = Vec::new();
        for (id,) in found {
            let Ok(id) = id.parse() else { continue };
            let check = Command::Check { threshold: self.options.offline_after };
            match self.tell(id, check, Step::Offline, "orchestrator").await {
                Ok(_) => {
                    self.wake.up(Topic::Event);
                    marked.push(id);
                }
                Err(Error::Refused(_) | Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(marked)
    }

    /// A person's word to a worker: drain, disable, enable.
    pub async fn manage_worker(&self, id: WorkerId, command: Command) -> Result<Status> {
        let status = self.tell(id, command, Step::Manage, "user").await?;
        // There is nothing new to do, but perhaps somebody new to do it.
        self.wake.up(Topic::Ready);
        Ok(status)
    }

    async fn tell(&self, id: WorkerId, command: Command, at: Step, role: &'static str) -> Result<Status> {
        again(|| async {
            let mut tx = self.db.write(at).await?;
            let status = step(&mut tx, id, command, role).await?.status;
            tx.commit().await?;
            Ok(status)
        })
        .await
    }

    /// Forgets local workers that have been offline since before `before`, a batch at a time; how many.
    pub async fn prune_workers(&self, before: Millis, max: i64) -> Result<u64> {
        again(|| async {
            let mut tx = self.db.write(Step::PruneWorkers).await?;
            let pruned = tx.query(PRUNE).bind(before).bind(max).execute().await?;
            tx.commit().await?;
            Ok(pruned)
        })
        .await
    }

    /// Workers, newest first; those that left only when asked for.
    pub async fn workers(&self, with_offline: bool) -> Result<Vec<View>> {
        let mut tx = self.db.read().await?;
        tx.query(LIST).bind(with_offline).all().await
    }
}

/// What a worker says of its machine, as it is kept: short, and without what would move a terminal's cursor.
fn refusal(said: &str) -> String {
    said.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn startup(hello: &Hello, incarnation: Uuid) -> Alert {
    Alert {
        kind: Kind::WorkerStartup,
        key: format!("{}_{incarnation}", hello.worker),
        job: None,
        data: json!({ "worker": hello.worker.to_string(), "name": hello.name, "hostname": hello.hostname,
                      "version": hello.version }),
    }
}

fn shutdown(worker: WorkerId, command: Command, now: Millis) -> Alert {
    let why = if command == Command::Leave { "it left" } else { "it has not been heard of" };
    Alert {
        kind: Kind::WorkerShutdown,
        key: format!("{worker}_{}", now.0),
        job: None,
        data: json!({ "worker": worker.to_string(), "reason": why }),
    }
}

/// Makes a worker known; nothing, if it is. A remote one comes with what it is allowed.
pub(crate) async fn register(
    tx: &mut Tx,
    hello: &Hello,
    metadata: &str,
    grant: Option<&Grant>,
) -> Result<()> {
    let now = tx.now();
    let granted = grant.and_then(|grant| grant.capabilities.as_ref()).map(ToString::to_string);
    let capabilities = match grant {
        Some(grant) => grant.narrow(&hello.capabilities),
        None => hello.capabilities.clone(),
    };
    let pool = grant.and_then(|grant| grant.pool.as_ref()).map(ToString::to_string);
    let users = grant.and_then(|grant| grant.users.as_ref()).map(serde_json::to_string).transpose()?;
    let registered = tx
        .query(REGISTER)
        .bind(hello.worker)
        .bind(hello.name.as_str())
        .bind(hello.kind.as_str())
        .bind(hello.hostname.as_str())
        .bind(hello.version.as_str())
        .bind(capabilities.to_string())
        .bind(metadata)
        .bind(i64::from(hello.slots))
        .bind(now)
        .bind(granted)
        .bind(pool)
        .bind(users)
        .bind(grant.map(|_| metadata.to_owned()))
        .execute()
        .await?;
    if registered > 0 {
        audit::insert(tx, &[AuditRow::of_new_worker(hello.worker, now)]).await?;
    }
    if hello.kind == wire::Kind::Server {
        lost_worker::note_server_worker(tx, hello.worker).await?;
    }
    // A remote worker is registered by a person; its process says hello later.
    if registered > 0 && hello.kind != wire::Kind::Remote {
        alert::raise(tx, vec![startup(hello, hello.worker.0)]).await?;
    }
    Ok(())
}

/// The metadata as it is stored.
pub(crate) fn checked(hello: &Hello) -> Result<String> {
    let metadata = hello.metadata.to_string();
    if metadata.len() > MAX_METADATA || hello.capabilities.to_string().len() > MAX_METADATA {
        return Err(Error::Invalid(format!("a worker's metadata may be {MAX_METADATA} bytes long")));
    }
    Ok(metadata)
}

/// What a command left of a worker.
pub(crate) struct Changed {
    pub name: String,
    pub status: Status,
    pub rejections: Rejections,
}

/// Load, decide, save, for one worker; a change of status is audited.
pub(crate) async fn step(tx: &mut Tx, id: WorkerId, command: Command, role: &'static str) -> Result<Changed> {
    type Row = (String, String, i64, Option<i64>, i64, Option<i64>);
    let row: Option<Row> = tx.query(LOCK).bind(id).optional().await?;
    let (name, status, registered_at, last_heartbeat, count, since) = row.ok_or(Error::NotFound("worker"))?;
    let before = Worker {
        status: status.parse()?,
        registered_at: Millis(registered_at),
        last_heartbeat: last_heartbeat.map(Millis),
        rejections: Rejections { count: u32::try_from(count).unwrap_or(0), since: since.map(Millis) },
    };
    let after = rules::worker::decide(&before, command, tx.now())?;
    tx.query(SAVE)
        .bind(after.status.as_str())
        .bind(after.last_heartbeat)
        .bind(i64::from(after.rejections.count))
        .bind(after.rejections.since)
        .bind(id)
        .execute()
        .await?;
    let is_routine = matches!(command, Command::Heartbeat { .. }) && before.status != Status::Offline;
    if before.status != after.status && !is_routine {
        let between = (before.status, after.status);
        audit::insert(tx, &[AuditRow::of_worker(id, role, command.name(), between, tx.now())]).await?;
        if after.status == Status::Offline {
            alert::raise(tx, vec![shutdown(id, command, tx.now())]).await?;
        }
    }
    Ok(Changed { name, status: after.status, rejections: after.rejections })
}

/// Says why a worker that was just disabled was suspended.
pub(crate) async fn suspend(tx: &mut Tx, id: WorkerId, why: &str) -> Result<()> {
    tx.query(SUSPEND).bind(why).bind(id).execute().await?;
    Ok(())
}

pub(crate) async fn is_remote(tx: &mut Tx, id: WorkerId) -> Result<bool> {
    Ok(tx.query(IS_REMOTE).bind(id).optional::<(String,)>().await?.is_some())
}
