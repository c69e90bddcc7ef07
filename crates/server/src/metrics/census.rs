//! What the database says of the whole system. Every server tells the same: queries take the greatest, not the sum.

use rules::job::Outcome;
use rules::{failure, worker};
use std::time::{Duration, Instant};
use store::Store;
use store::census::Census;
use telemetry::Text;
use telemetry::metrics::{EXECUTIONS_ENDED, JOB_DURATION, JOBS_COMPLETED, WORDS_REFUSED};
use tokio::sync::Mutex;

/// However many ask, the database is asked no more often.
const FRESH: Duration = Duration::from_secs(5);

/// How long the database may take before it is called away.
const PATIENCE: Duration = Duration::from_secs(3);

/// The states that are shown; also those of which there is none, so that a graph falls to zero and does not end.
const STATES: [&str; 3] = ["READY", "RUNNING", "ERROR"];
const PRIORITIES: std::ops::RangeInclusive<i64> = 0..=10;

/// The newest census, shared by all who ask.
pub struct Latest {
    store: Store,
    known: Mutex<Option<(Instant, Census)>>,
}

impl Latest {
    pub fn new(store: Store) -> Self {
        Latest { store, known: Mutex::default() }
    }

    pub async fn write(&self, text: &mut Text) {
        let mut known = self.known.lock().await;
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
            let census = tokio::time::timeout(PATIENCE, self.store.census()).await;
            *known = match census {
                Ok(Ok(census)) => Some((Instant::now(), census)),
                Ok(Err(error)) => away(&error),
                Err(_) => away(&format!("no answer for {PATIENCE:?}")),
            };
        }
        let up = u8::from(known.is_some());
        text.single("vodmill_database_up", "gauge", "Whether the database answers this server.", up);
        // Nothing is better than what is no longer true.
        if let Some((_, census)) = &*known {
            write(text, census);
        }
    }
}

fn away<T>(why: &dyn std::fmt::Display) -> Option<T> {
    tracing::warn!("the metrics are without those of the database: {why}");
    None
}

/// What may happen later is zero now, and not absent.
pub fn expect() {
    for outcome in Outcome::ALL.iter().map(|outcome| outcome.as_str()) {
        JOBS_COMPLETED.expect([outcome]);
        JOB_DURATION.expect([outcome]);
    }
    failure::Kind::ALL.iter().for_each(|kind| EXECUTIONS_ENDED.expect([kind.as_str()]));
    EXECUTIONS_ENDED.expect(["committed"]);
    ["renew", "progress", "commit", "fail"].into_iter().for_each(|word| WORDS_REFUSED.expect([word]));
}

fn write(text: &mut Text, census: &Census) {
    write_tasks(text, census);
    let jobs = census.jobs;
    let waiting = (jobs.open - jobs.in_progress).max(0);
    text.single("vodmill_queue_size", "gauge", "Open jobs of which nothing runs.", waiting);
    text.single("vodmill_jobs_in_progress", "gauge", "Jobs of which something runs.", jobs.in_progress);
    write_workers(text, census);
    text.single(
        "vodmill_outbox_messages",
        "gauge",
        "Effects and alerts that are not delivered yet.",
        census.outbox.count,
    );
    text.single(
        "vodmill_outbox_oldest_age_seconds",
        "gauge",
        "Age of the oldest effect or alert that is not delivered yet.",
        census.outbox.since.map_or(0.0, |since| age(census, since)),
    );
    text.single(
        "vodmill_leases_overdue",
        "gauge",
        "Leases that have expired and that nobody has taken back yet.",
        census.overdue_leases,
    );
}

fn write_tasks(text: &mut Text, census: &Census) {
    let of = |state: &str, priority: i64| {
        census.tasks.iter().find(|tasks| tasks.state == state && tasks.priority == priority)
    };
    text.family(
        "vodmill_tasks",
        "gauge",
        "Tasks that are claimable (READY), leased (RUNNING) or waiting for their next attempt (ERROR).",
    );
    for (state, priority) in STATES.into_iter().flat_map(|state| PRIORITIES.map(move |of| (state, of))) {
        let labels = [("state", state), ("priority", &priority.to_string())];
        text.sample("vodmill_tasks", labels, of(state, priority).map_or(0, |tasks| tasks.count));
    }
    text.family(
        "vodmill_oldest_ready_task_age_seconds",
        "gauge",
        "How long the task that has been READY for longest has been so, by priority.",
    );
    for priority in PRIORITIES {
        let oldest = of("READY", priority).map_or(0.0, |tasks| age(census, tasks.since));
        let labels = [("priority", priority.to_string())];
        let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
        text.sample("vodmill_oldest_ready_task_age_seconds", labels, oldest);
    }
}

fn write_workers(text: &mut Text, census: &Census) {
    let of = |status: &str| census.workers.iter().find(|workers| workers.status == status);
    text.family("vodmill_workers", "gauge", "Workers by status.");
    for status in worker::Status::ALL.iter().map(|status| status.as_str()) {
        text.sample("vodmill_workers", [("status", status)], of(status).map_or(0, |workers| workers.count));
    }
    let present = || census.workers.iter().filter(|them| !matches!(&*them.status, "offline" | "disabled"));
    text.single(
        "vodmill_workers_active",
        "gauge",
        "Workers that were heard of lately and may work.",
        present().map(|workers| workers.count).sum::<i64>(),
    );
    text.single(
        "vodmill_fleet_slots",
        "gauge",
        "Tasks that these workers can do at a time.",
        present().map(|workers| workers.slots).sum::<i64>(),
    );
    text.family("vodmill_worker_load", "gauge", "Of a worker's slots, the part that is taken: 0 to 1.");
    for load in &census.loads {
        let share = load.running as f64 / load.slots.max(1) as f64;
        text.sample("vodmill_worker_load", [("worker_id", &*load.id), ("name", &*load.name)], share);
    }
}

fn age(census: &Census, since: i64) -> f64 {
    (census.at.0 - since).max(0) as f64 / 1000.0
}
