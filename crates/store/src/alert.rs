//! Alerts: what somebody outside asked to be told of (document 001). Written with the decision that causes them, as
//! messages of the outbox; of each kind at most one in its cooldown, and none that nobody asked for.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::history::rfc3339;
use crate::outbox::{self, Message};
use rules::{JobId, Millis};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A lease ran out, and its task was taken back.
    StaleJobRecovered,
    /// A job failed because a task had no attempt left.
    JobMaxRetriesExceeded,
    /// A video's jobs failed [`PATTERN`] times or more since one last completed.
    JobFailedPattern,
    /// A worker's process began.
    WorkerStartup,
    /// A worker left, or has not been heard of for long.
    WorkerShutdown,
    /// A worker's reports were rejected so often that it was suspended.
    WorkerSuspended,
    /// A new generation of a video can be watched.
    VideoReady,
}

/// From how many failures in a row on they are a pattern.
pub const PATTERN: i64 = 2;

impl Kind {
    pub const ALL: [Kind; 7] = [
        Kind::StaleJobRecovered,
        Kind::JobMaxRetriesExceeded,
        Kind::JobFailedPattern,
        Kind::WorkerStartup,
        Kind::WorkerShutdown,
        Kind::WorkerSuspended,
        Kind::VideoReady,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::StaleJobRecovered => "stale_job_recovered",
            Kind::JobMaxRetriesExceeded => "job_max_retries_exceeded",
            Kind::JobFailedPattern => "job_failed_pattern",
            Kind::WorkerStartup => "worker_startup",
            Kind::WorkerShutdown => "worker_shutdown",
            Kind::WorkerSuspended => "worker_suspended",
            Kind::VideoReady => "video_ready",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no event `{0}`")]
pub struct NoKind(String);

impl FromStr for Kind {
    type Err = NoKind;

    fn from_str(name: &str) -> Result<Self, NoKind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name).ok_or_else(|| NoKind(name.into()))
    }
}

/// Something that somebody may want to be told.
pub(crate) struct Alert {
    pub kind: Kind,
    /// With the kind, what tells it from all others. Without a dot, which separates what is signed.
    pub key: String,
    pub job: Option<JobId>,
    pub data: Value,
}

/// The topic of alerts in the outbox.
pub(crate) const TOPIC: &str = "alert";

const WANTED: &str = "SELECT topic, cooldown_ms FROM alert";

const LOCK: &str = "SELECT last_at, suppressed FROM alert WHERE topic = $1 FOR UPDATE";

const RAISED: &str = "UPDATE alert SET last_at = $1, suppressed = $2 WHERE topic = $3";

const SUPPRESSED: &str = "UPDATE alert SET suppressed = suppressed + $1 WHERE topic = $2";

const ASK: &str = "
INSERT INTO alert (topic, cooldown_ms) VALUES ($1, $2)
ON CONFLICT (topic) DO UPDATE SET cooldown_ms = excluded.cooldown_ms";

const ASK_NO_MORE: &str = "DELETE FROM alert WHERE topic = $1";

const DROP_MESSAGES: &str = "
UPDATE outbox SET delivered_at = $1, error = 'nobody asks for alerts any more'
WHERE topic = 'alert' AND delivered_at IS NULL";

impl Store {
    /// From now on these alerts are written, and no others; of each at most one in its cooldown. Where none is asked
    /// for, those that were not delivered yet never will be.
    pub async fn ask_for_alerts(&self, wanted: &HashMap<Kind, Millis>) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::AskForAlerts).await?;
            for kind in Kind::ALL {
                match wanted.get(&kind) {
                    Some(cooldown) => tx.query(ASK).bind(kind.as_str()).bind(*cooldown).execute().await?,
                    None => tx.query(ASK_NO_MORE).bind(kind.as_str()).execute().await?,
                };
            }
            let now = tx.now();
            if wanted.is_empty() {
                tx.query(DROP_MESSAGES).bind(now).execute().await?;
            }
            tx.commit().await
        })
        .await
    }
}

/// Writes those of these alerts that are wanted and not too many. Takes its locks last: whoever waits for one here waits
/// for the end of a transaction, and for nothing else.
pub(crate) async fn raise(tx: &mut Tx, alerts: Vec<Alert>) -> Result<()> {
    if alerts.is_empty() {
        return Ok(());
    }
    let wanted: Vec<(String, i64)> = tx.query(WANTED).all().await?;
    let mut by_kind: BTreeMap<Kind, Vec<Alert>> = BTreeMap::new();
    for alert in alerts {
        by_kind.entry(alert.kind).or_default().push(alert);
    }
    for (kind, mut alerts) in by_kind {
        let Some((_, cooldown)) = wanted.iter().find(|(topic, _)| topic == kind.as_str()) else { continue };
        let suppressed = if *cooldown > 0 {
            hold_back(tx, kind, *cooldown, &mut alerts).await?
        } else {
            0
        };
        let now = tx.now();
        let messages: Vec<Message> = alerts.iter().map(|alert| alert.message(suppressed, now)).collect();
        outbox::insert(tx, &messages).await?;
    }
    Ok(())
}

/// Leaves one alert, or none while the last one is young; how many were held back since that.
async fn hold_back(tx: &mut Tx, kind: Kind, cooldown: i64, alerts: &mut Vec<Alert>) -> Result<i64> {
    let Some((last, suppressed)) = tx.query(LOCK).bind(kind.as_str()).optional::<(i64, i64)>().await? else {
        alerts.clear();
        return Ok(0);
    };
    let now = tx.now();
    // A clock that was set back must not silence anybody.
    if now.0 < last || now.0 >= last + cooldown {
        let rest = alerts.split_off(1).len() as i64;
        tx.query(RAISED).bind(now).bind(rest).bind(kind.as_str()).execute().await?;
    } else {
        tx.query(SUPPRESSED).bind(alerts.len() as i64).bind(kind.as_str()).execute().await?;
        alerts.clear();
    }
    Ok(suppressed)
}

impl Alert {
    fn message(&self, suppressed: i64, now: Millis) -> Message {
        let mut data = self.data.clone();
        if let (Some(data), true) = (data.as_object_mut(), suppressed > 0) {
            data.insert("suppressed".into(), suppressed.into());
        }
        Message {
            key: format!("{}_{}", self.kind, self.key),
            topic: TOPIC,
            job: self.job,
            payload: json!({ "type": self.kind.as_str(), "timestamp": rfc3339(now), "data": data }),
        }
    }
}
