//! Effects that leave the system: written with the decision that causes them, delivered at least once under a key
//! that stays the same, so that the receiver can tell a repetition.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use rules::backoff::{Backoff, Jitter};
use rules::{JobId, Millis};
use serde::Serialize;
use serde_json::Value;
use telemetry::metrics::{MESSAGES_DELIVERED, MESSAGES_POSTPONED};

/// Something to be told to the outside.
pub(crate) struct Message {
    pub key: String,
    pub topic: &'static str,
    pub job: Option<JobId>,
    pub payload: Value,
}

/// A message taken for delivery.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: i64,
    /// The same at each attempt.
    pub key: String,
    pub topic: String,
    pub payload: Value,
    pub attempt: i64,
}

#[derive(Serialize)]
struct Row {
    key: String,
    topic: &'static str,
    job_id: Option<i64>,
    payload: String,
    at: i64,
}

/// Numbers are given again after a restored backup, and a receiver would take what is new for what it had. So the timeline
/// is part of a key: `1f2e3d4c/append/42-7`, `video_ready_5_1_1f2e3d4c`.
const INSERT: &str = "
INSERT INTO outbox (key, topic, job_id, payload, created_at, available_at)
SELECT CASE r.topic WHEN 'alert' THEN r.key || '_' || (SELECT name FROM timeline ORDER BY number DESC LIMIT 1)
                    ELSE (SELECT name FROM timeline ORDER BY number DESC LIMIT 1) || '/' || r.key END,
       r.topic, r.job_id, r.payload, r.at, r.at
FROM json_to_recordset($1::json) AS r(key TEXT, topic TEXT, job_id BIGINT, payload TEXT, at BIGINT)
WHERE TRUE
ON CONFLICT (key) DO NOTHING";

/// Taken messages come back after a while unless they are reported delivered.
const TAKE: &str = "
UPDATE outbox SET attempts = attempts + 1, available_at = $2
WHERE id IN (
    SELECT id FROM outbox
    WHERE delivered_at IS NULL AND available_at <= $1 AND (topic = 'alert') = $4
    ORDER BY available_at LIMIT $3
    FOR UPDATE SKIP LOCKED
)
RETURNING id, key, topic, payload, attempts";

const DELIVERED: &str = "
UPDATE outbox AS o SET delivered_at = coalesce(o.delivered_at, $1), error = NULL
FROM json_to_recordset($2::json) AS r(id BIGINT)
WHERE o.id = r.id";

const POSTPONE: &str =
    "UPDATE outbox SET available_at = $1, error = $2 WHERE id = $3 AND delivered_at IS NULL";

const GIVE_UP: &str =
    "UPDATE outbox SET delivered_at = $1, error = $2 WHERE id = $3 AND delivered_at IS NULL";

const CREATED: &str = "SELECT created_at FROM outbox WHERE id = $1";

const DUE: &str = "
SELECT id FROM outbox WHERE delivered_at IS NULL AND available_at <= $1 AND (topic = 'alert') = $2 LIMIT 1";

const PRUNE: &str = "
DELETE FROM outbox WHERE id IN (SELECT id FROM outbox WHERE delivered_at < $1 ORDER BY id LIMIT $2)";

/// How long a post may take before another orchestrator tries. Other deliveries have a lease, as tasks have.
const POSTING: Millis = Millis::from_secs(60);

pub(crate) async fn insert(tx: &mut Tx, messages: &[Message]) -> Result<()> {
    let at = tx.now().0;
    let row = |message: &Message| Row {
        key: message.key.clone(),
        topic: message.topic,
        job_id: message.job.map(|job| job.0),
        payload: message.payload.to_string(),
        at,
    };
    let rows: Vec<Row> = messages.iter().map(row).collect();
    if !rows.is_empty() {
        tx.query(INSERT).rows(&rows).execute().await?;
    }
    Ok(())
}

impl Store {
    /// Takes messages that are due, the oldest first; alerts are not among them.
    pub async fn take_messages(&self, max: i64) -> Result<Vec<Delivery>> {
        self.take(max, false).await
    }

    /// Takes alerts that are due, the oldest first.
    pub async fn take_alerts(&self, max: i64) -> Result<Vec<Delivery>> {
        self.take(max, true).await
    }

    async fn take(&self, max: i64, alerts: bool) -> Result<Vec<Delivery>> {
        if !self.has_messages(alerts).await? {
            return Ok(Vec::new());
        }
        again(|| self.take_once(max, alerts)).await
    }

    async fn has_messages(&self, alerts: bool) -> Result<bool> {
        let mut tx = self.db.look().await?;
        let now = tx.now();
        Ok(tx.query(DUE).bind(now).bind(alerts).optional::<(i64,)>().await?.is_some())
    }

    async fn take_once(&self, max: i64, alerts: bool) -> Result<Vec<Delivery>> {
        let mut tx = self.db.write(Step::Deliver).await?;
        let now = tx.now();
        let until = now + if alerts { POSTING } else { self.options.lease };
        let mut rows: Vec<(i64, String, String, String, i64)> =
            tx.query(TAKE).bind(now).bind(until).bind(max).bind(alerts).all().await?;
        tx.commit().await?;
        // An UPDATE returns its rows in no order.
        rows.sort();
        rows.into_iter()
            .map(|(id, key, topic, payload, attempt)| {
                Ok(Delivery { id, key, topic, payload: serde_json::from_str(&payload)?, attempt })
            })
            .collect()
    }

    pub async fn messages_delivered(&self, ids: &[i64]) -> Result<()> {
        again(|| self.messages_delivered_once(ids)).await?;
        MESSAGES_DELIVERED.add([], ids.len() as f64);
        Ok(())
    }

    async fn messages_delivered_once(&self, ids: &[i64]) -> Result<()> {
        #[derive(Serialize)]
        struct Key {
            id: i64,
        }
        let keys: Vec<Key> = ids.iter().map(|&id| Key { id }).collect();
        let mut tx = self.db.write(Step::Delivered).await?;
        let now = tx.now();
        tx.query(DELIVERED).bind(now).rows(&keys).execute().await?;
        tx.commit().await
    }

    /// Puts a message that could not be delivered back, for later.
    pub async fn postpone_message(&self, delivery: &Delivery, error: &str) -> Result<()> {
        MESSAGES_POSTPONED.count([]);
        again(|| async {
            let mut tx = self.db.write(Step::Postpone).await?;
            let at = tx.now() + delay(delivery, Backoff::default());
            tx.query(POSTPONE).bind(at).bind(short(error)).bind(delivery.id).execute().await?;
            tx.commit().await
        })
        .await
    }

    /// As [`Store::postpone_message`]; but once it would be `patience` old by then, never again. Whether that is so.
    pub async fn postpone_or_give_up(
        &self,
        delivery: &Delivery,
        error: &str,
        backoff: Backoff,
        patience: Millis,
    ) -> Result<bool> {
        MESSAGES_POSTPONED.count([]);
        let delay = delay(delivery, backoff);
        again(|| async {
            let mut tx = self.db.write(Step::PostponeAlert).await?;
            let (now, error) = (tx.now(), short(error));
            let (created,): (i64,) = tx.query(CREATED).bind(delivery.id).one().await?;
            let is_over = now + delay > Millis(created) + patience;
            let (sql, at) = if is_over { (GIVE_UP, now) } else { (POSTPONE, now + delay) };
            tx.query(sql).bind(at).bind(error).bind(delivery.id).execute().await?;
            tx.commit().await?;
            Ok(is_over)
        })
        .await
    }

    /// Forgets messages delivered before `before`, a batch at a time; how many.
    pub async fn prune_messages(&self, before: Millis, max: i64) -> Result<u64> {
        again(|| async {
            let mut tx = self.db.write(Step::PruneMessages).await?;
            let pruned = tx.query(PRUNE).bind(before).bind(max).execute().await?;
            tx.commit().await?;
            Ok(pruned)
        })
        .await
    }
}

/// Until the next attempt.
fn delay(delivery: &Delivery, backoff: Backoff) -> Millis {
    let failures = u32::try_from(delivery.attempt).unwrap_or(u32::MAX);
    backoff.delay(failures, Jitter(rand::random_range(0..=1000)))
}

fn short(error: &str) -> String {
    error.chars().take(1000).collect()
}
