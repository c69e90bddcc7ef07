//! Every figure that a process counts by itself.
//!
//! Labels are words of a few: states, kinds of work, routes as they are written in the code. Never an id, a user, a name
//! or an address: those are in the logs and traces.

use crate::family::{Counter, Family, Gauge, Histogram, Shown};

/// In the order in which they are shown.
pub const ALL: &[&dyn Shown] = &[
    &JOBS_CREATED,
    &JOBS_COMPLETED,
    &JOB_DURATION,
    &TASK_WAIT,
    &CLAIM_DURATION,
    &EXECUTIONS_ENDED,
    &LEASES_EXPIRED,
    &TASK_RETRIES,
    &TASK_HEDGES,
    &WORDS_REFUSED,
    &TRANSACTION_RETRIES,
    &MESSAGES_DELIVERED,
    &MESSAGES_POSTPONED,
    &REDIS_UP,
    &EXECUTION_DURATION,
    &EXECUTION_CPU,
    &EXECUTION_BYTES,
    &ENCODE_SPEED,
    &PHASES_ENTERED,
    &SLOTS,
    &SLOTS_TAKEN,
    &HTTP_DURATION,
    &EVENT_LISTENERS,
];

/// From a request to a film.
const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
    3600.0,
];

/// Of 003, and on to nine hours.
const JOB_SECONDS: &[f64] = &[
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
    32768.0,
];

const SHORT_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

const SPEEDS: &[f64] = &[0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0, 55.0];

// Counted by the store: in whichever process decides.

pub static JOBS_CREATED: Family<Counter, 0> =
    Family::new("vodmill_jobs_created_total", "Jobs that this process added to the queue.", [], Counter);

pub static JOBS_COMPLETED: Family<Counter, 1> = Family::new(
    "vodmill_jobs_completed_total",
    "Jobs that this process saw end, by how: completed, failed, cancelled.",
    ["status"],
    Counter,
);

pub static JOB_DURATION: Family<Histogram, 1> = Family::new(
    "vodmill_job_duration_seconds",
    "From a job's submission to its end, by how it ended.",
    ["status"],
    Histogram(JOB_SECONDS),
);

pub static TASK_WAIT: Family<Histogram, 1> = Family::new(
    "vodmill_task_wait_seconds",
    "From a task becoming READY to its claim, by priority.",
    ["priority"],
    Histogram(SECONDS),
);

pub static CLAIM_DURATION: Family<Histogram, 0> = Family::new(
    "vodmill_claim_duration_seconds",
    "How long the database took to answer a claim.",
    [],
    Histogram(SHORT_SECONDS),
);

pub static EXECUTIONS_ENDED: Family<Counter, 1> = Family::new(
    "vodmill_executions_ended_total",
    "Executions whose end this process recorded: committed, or why not.",
    ["outcome"],
    Counter,
);

pub static LEASES_EXPIRED: Family<Counter, 0> =
    Family::new("vodmill_leases_expired_total", "Leases that this process took back.", [], Counter);

pub static TASK_RETRIES: Family<Counter, 0> = Family::new(
    "vodmill_task_retries_total",
    "Tasks that this process made READY again after a failure.",
    [],
    Counter,
);

pub static TASK_HEDGES: Family<Counter, 0> = Family::new(
    "vodmill_task_hedges_total",
    "Second executions that this process began beside slow ones.",
    [],
    Counter,
);

pub static WORDS_REFUSED: Family<Counter, 1> = Family::new(
    "vodmill_words_refused_total",
    "Words of workers that came too late or without the right token: renew, progress, commit, fail.",
    ["word"],
    Counter,
);

pub static TRANSACTION_RETRIES: Family<Counter, 0> = Family::new(
    "vodmill_transaction_retries_total",
    "Transactions that met another and were begun again.",
    [],
    Counter,
);

pub static MESSAGES_DELIVERED: Family<Counter, 0> = Family::new(
    "vodmill_messages_delivered_total",
    "Effects and alerts that this process delivered.",
    [],
    Counter,
);

pub static MESSAGES_POSTPONED: Family<Counter, 0> = Family::new(
    "vodmill_messages_postponed_total",
    "Effects and alerts that could not be delivered and are tried again, or were given up.",
    [],
    Counter,
);

// Told by whoever uses Redis.

pub static REDIS_UP: Family<Gauge, 1> = Family::new(
    "vodmill_redis_up",
    "Whether Redis answers this process, where it is asked at all.",
    ["at"],
    Gauge,
);

// Counted by a worker.

pub static EXECUTION_DURATION: Family<Histogram, 2> = Family::new(
    "vodmill_execution_duration_seconds",
    "Work of this process from its lease to its report, by kind and how it ended.",
    ["kind", "outcome"],
    Histogram(SECONDS),
);

pub static EXECUTION_CPU: Family<Counter, 1> = Family::new(
    "vodmill_execution_cpu_seconds_total",
    "Processor time of the commands that this process ran.",
    ["kind"],
    Counter,
);

pub static EXECUTION_BYTES: Family<Counter, 1> = Family::new(
    "vodmill_execution_bytes_total",
    "Bytes that the work of this process read (in) and made (out).",
    ["direction"],
    Counter,
);

pub static ENCODE_SPEED: Family<Histogram, 1> = Family::new(
    "vodmill_encode_speed_ratio",
    "Seconds of video that this process encoded in all rungs, for each second it took.",
    ["codec"],
    Histogram(SPEEDS),
);

pub static PHASES_ENTERED: Family<Counter, 1> = Family::new(
    "vodmill_worker_phases_entered_total",
    "How often the worker's loop or a slot of it came to a phase.",
    ["phase"],
    Counter,
);

pub static SLOTS: Family<Gauge, 0> =
    Family::new("vodmill_worker_slots", "Tasks that this process can do at a time.", [], Gauge);

pub static SLOTS_TAKEN: Family<Gauge, 0> =
    Family::new("vodmill_worker_slots_taken", "Tasks that this process does now.", [], Gauge);

// Counted by a server.

pub static HTTP_DURATION: Family<Histogram, 3> = Family::new(
    "vodmill_http_request_duration_seconds",
    "Until the answer began, by route as it is documented. Claims wait for work, and streams go on afterwards.",
    ["method", "route", "status"],
    Histogram(SHORT_SECONDS),
);

pub static EVENT_LISTENERS: Family<Gauge, 0> =
    Family::new("vodmill_event_listeners", "Who listens to live events of this process.", [], Gauge);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text;

    #[test]
    fn every_figure_has_a_name_of_ours_a_unit_and_a_sentence() {
        let mut text = Text::default();
        for family in ALL {
            family.write(&mut text);
        }

        let text = text.into_string();
        let helps: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# HELP ")).collect();
        let names: std::collections::BTreeSet<&str> =
            helps.iter().filter_map(|help| help.split(' ').next()).collect();
        assert_eq!(names.len(), ALL.len(), "each once: {names:?}");
        assert!(names.iter().all(|name| name.starts_with("vodmill_")), "{names:?}");
        assert!(helps.iter().all(|help| help.ends_with('.')), "{helps:?}");
    }
}
