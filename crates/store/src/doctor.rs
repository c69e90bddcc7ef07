//! The doctor: recomputes every derived value and invariant on a live database, and changes nothing.
//!
//! Each check is one statement that returns what is off, and nothing on a healthy database.

use crate::Store;
use crate::db::Tx;
use crate::error::Result;
use crate::history::rfc3339;
use crate::job::states_of;
use crate::timeline::TimelineView;
use rules::job::State;
use rules::{JobId, Millis, TaskId};
use serde::Serialize;

/// Something that must not be.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct Finding {
    /// Which rule is broken.
    pub check: &'static str,
    pub subject: String,
    pub what: String,
}

/// What the doctor looked at.
#[derive(Debug, Clone, Serialize, Default)]
pub struct Report {
    pub checks: usize,
    pub jobs: i64,
    pub tasks: i64,
    pub executions: i64,
    /// What is no fault and good to know.
    #[serde(default)]
    pub notes: Vec<String>,
    pub findings: Vec<Finding>,
}

struct Check {
    name: &'static str,
    /// Returns (task or job id, what is off).
    sql: &'static str,
    subject: fn(i64) -> String,
}

fn task(id: i64) -> String {
    format!("task {}", TaskId(id))
}

fn job(id: i64) -> String {
    format!("job {id}")
}

fn video(id: i64) -> String {
    format!("video {id}")
}

/// A statement about `moves`: the audit's rows, each once for each of the tasks that it speaks for.
macro_rules! of_each_move {
    ($sql:literal) => {
        concat!(
            "
WITH RECURSIVE moves (id, task_id, tasks, fence, command, from_state, to_state, from_execution, to_execution) AS (
    SELECT id, task_id, tasks, fence, command, from_state, to_state, from_execution, to_execution
    FROM audit WHERE task_id IS NOT NULL
    UNION ALL
    SELECT id, task_id + 1, tasks - 1, fence, command, from_state, to_state, from_execution, to_execution
    FROM moves WHERE tasks > 1
)",
            $sql
        )
    };
}

/// Findings shown for each check; more of the same tell nothing new.
const MAX_FINDINGS: usize = 100;

/// A job's number is worked out with a CAST where rows are joined by it: only then SQLite makes an index for it.
///
/// What the schema rules out is not looked for: a RUNNING task without a lease, a DONE one without its commit, a second of
/// either.
const CHECKS: &[Check] = &[
    Check {
        name: "executions are numbered without a gap, up to the task's fence",
        subject: task,
        sql: "
SELECT t.id, 'has fence ' || t.fence || ' and ' || count(e.fence) || ' aborted executions'
       || CASE WHEN t.leased_at IS NULL THEN '' ELSE ' and one that counts' END
FROM task t LEFT JOIN execution_aborted e ON e.task_id = t.id
GROUP BY t.id, t.fence, t.leased_at
HAVING count(e.fence) <> t.fence - CASE WHEN t.leased_at IS NULL THEN 0 ELSE 1 END
    OR max(e.fence) <> count(e.fence)",
    },
    Check {
        name: "attempts are the executions that count, since the last rerun at the most",
        subject: task,
        sql: "
SELECT t.id, 'counts ' || t.attempts || ' attempts, of which ' || count(e.fence) || ' were aborted'
FROM task t LEFT JOIN execution_aborted e
    ON e.task_id = t.id AND e.failure NOT IN
        ('disk_full', 'drained', 'interrupted', 'rejected', 'storage_away', 'unconfirmed', 'withdrawn')
GROUP BY t.id, t.attempts, t.leased_at
HAVING count(e.fence) + CASE WHEN t.leased_at IS NULL THEN 0 ELSE 1 END < t.attempts",
    },
    Check {
        name: "every execution has its task",
        subject: task,
        sql: "
SELECT e.task_id, 'has execution ' || e.fence || ' and does not exist'
FROM execution_aborted e LEFT JOIN task t ON t.id = e.task_id WHERE t.id IS NULL",
    },
    Check {
        name: "every task has its stage",
        subject: task,
        sql: "
SELECT t.id, 'is of stage ' || t.stage || ', which does not exist'
FROM task t LEFT JOIN stage s ON s.job_id = t.id / 1048576 AND s.position = t.stage WHERE s.job_id IS NULL",
    },
    Check {
        name: "a task waits where its stage's tasks wait",
        subject: task,
        sql: "
SELECT t.id, 'has lane ' || t.lane_id || ' and owner ' || t.owner_id || ', and its stage ' || s.lane_id || ' and ' || s.owner_id
FROM task t JOIN stage s ON s.job_id = t.id / 1048576 AND s.position = t.stage
WHERE t.lane_id <> s.lane_id OR t.owner_id <> s.owner_id",
    },
    // What was delivered before the oldest delivery that is left may have been pruned. A twin's is its original's.
    Check {
        name: "a commit has its effect in the outbox",
        subject: task,
        sql: "
SELECT t.id, 'is committed in stage ' || s.name || ', and its effect is not in the outbox'
FROM stage s
JOIN task t ON t.id BETWEEN s.job_id * 1048576 AND s.job_id * 1048576 + 1048575 AND t.stage = s.position
LEFT JOIN (
    SELECT id, CASE WHEN key LIKE 'append/%' THEN key ELSE substr(key, 10) END AS key FROM outbox WHERE topic = 'append'
) o ON o.key = 'append/' || (coalesce(t.twin_of, t.id) / 1048576) || '-' || (coalesce(t.twin_of, t.id) % 1048576)
WHERE s.effect IS NOT NULL AND o.id IS NULL AND t.committed_at >= (SELECT min(delivered_at) FROM outbox)",
    },
    Check {
        name: "a stage counts its tasks",
        subject: job,
        sql: "
SELECT s.job_id, 'stage ' || s.name || ' counts ' || s.tasks || ' tasks and has ' || coalesce(c.tasks, 0)
FROM stage s
LEFT JOIN (
    SELECT CAST(id / 1048576 AS BIGINT) AS job_id, stage, count(*) AS tasks FROM task
    WHERE twin_of IS NULL GROUP BY 1, stage
) c
    ON c.job_id = s.job_id AND c.stage = s.position
WHERE s.tasks <> coalesce(c.tasks, 0)",
    },
    Check {
        name: "a stage counts what is open: all but the settled and, where optional, the failed",
        subject: job,
        sql: "
SELECT s.job_id, 'stage ' || s.name || ' counts ' || s.open || ' open tasks of ' || s.tasks || ', '
       || coalesce(c.settled, 0) || ' are settled'
FROM stage s
LEFT JOIN (
    SELECT CAST(id / 1048576 AS BIGINT) AS job_id, stage, count(DISTINCT segment) AS settled
    FROM task WHERE status = 'DONE'
    GROUP BY 1, stage
) c ON c.job_id = s.job_id AND c.stage = s.position
WHERE s.open <> s.tasks - coalesce(c.settled, 0) - CASE WHEN s.is_optional THEN s.failed ELSE 0 END",
    },
    Check {
        name: "a stage counts no more failed tasks than it has",
        subject: job,
        sql: "
SELECT s.job_id, 'stage ' || s.name || ' counts ' || s.failed || ' failed tasks and has ' || coalesce(t.failed, 0)
FROM stage s
LEFT JOIN (
    SELECT CAST(id / 1048576 AS BIGINT) AS job_id, stage, count(*) AS failed FROM task
    WHERE state = 'ERROR' AND due_at IS NULL
    GROUP BY 1, stage
) t ON t.job_id = s.job_id AND t.stage = s.position
WHERE coalesce(t.failed, 0) < s.failed",
    },
    Check {
        name: "a stage's tasks are NEW before its release and, in an open job, not after",
        subject: task,
        sql: "
SELECT t.id, 'is ' || t.state || ' in stage ' || s.name || CASE WHEN s.is_released THEN ', released' ELSE ', not released' END
FROM task t
JOIN stage s ON s.job_id = t.id / 1048576 AND s.position = t.stage
JOIN job j ON j.id = s.job_id
LEFT JOIN task w ON w.twin_of = t.id
WHERE (NOT s.is_released AND t.state <> 'NEW')
   OR (s.is_released AND t.state = 'NEW' AND j.outcome IS NULL AND t.twin_of IS NULL AND w.id IS NULL)",
    },
    Check {
        name: "an ended job has nothing READY, RUNNING or due",
        subject: task,
        sql: "
SELECT t.id, 'is ' || t.state || ' in a job that is ' || j.outcome
FROM task t JOIN job j ON j.id = t.id / 1048576
WHERE j.outcome IS NOT NULL AND (t.state IN ('READY', 'RUNNING') OR t.due_at IS NOT NULL)",
    },
    Check {
        name: "an open job has something to go on with",
        subject: job,
        sql: "
SELECT j.id, 'is open, and nothing of it is READY, RUNNING, due or to be settled: it can never end. Cancel it: vodmill job cancel '
       || j.id
FROM job j
WHERE j.outcome IS NULL AND NOT EXISTS (
    SELECT 1 FROM task t
    WHERE t.id BETWEEN j.id * 1048576 AND j.id * 1048576 + 1048575
      AND (t.state IN ('READY', 'RUNNING') OR t.due_at IS NOT NULL OR t.status = 'COMMITTED')
)",
    },
    Check {
        name: "the audit explains each task's state: its last row leads there",
        subject: task,
        sql: of_each_move!(
            "
SELECT t.id, 'is ' || t.state || ', and its last audit row says ' || coalesce(a.to_state, 'nothing')
FROM task t
LEFT JOIN (
    SELECT task_id, to_state, row_number() OVER (PARTITION BY task_id ORDER BY id DESC) AS age FROM moves
) a ON a.task_id = t.id AND a.age = 1
WHERE t.updated_at >= (SELECT dropped_before FROM history WHERE name = 'audit')
  AND coalesce(a.to_state, 'NEW') <> t.state"
        ),
    },
    Check {
        name: "the audit has no gap: each row begins where the one before ended (INV_003)",
        subject: task,
        sql: of_each_move!(
            "
SELECT task_id, command || ' begins at ' || from_state || ', and the row before ended at ' || before FROM (
    SELECT task_id, command, from_state, lag(to_state) OVER (PARTITION BY task_id ORDER BY id) AS before
    FROM moves
) pairs WHERE before <> from_state"
        ),
    },
    Check {
        name: "the audit of an execution has no gap: each row begins where the one before ended (INV_003)",
        subject: task,
        sql: of_each_move!(
            "
SELECT task_id, command || ' begins at ' || coalesce(from_execution, 'nothing') || ', and the row before ended at ' || before
FROM (
    SELECT task_id, command, from_execution, lag(to_execution) OVER (PARTITION BY task_id, fence ORDER BY id) AS before
    FROM moves WHERE to_execution IS NOT NULL
) pairs WHERE before <> coalesce(from_execution, '')"
        ),
    },
    Check {
        name: "the audit shows at most one commit of a task (INV_001)",
        subject: task,
        sql: of_each_move!(
            "
SELECT task_id, 'was committed ' || count(*) || ' times' FROM moves
WHERE to_execution = 'COMMITTED' OR (to_execution = 'DONE' AND from_execution <> 'COMMITTED')
GROUP BY task_id HAVING count(*) > 1"
        ),
    },
    Check {
        name: "a video points at a generation of its own",
        subject: video,
        sql: "
SELECT v.id, 'points at generation ' || v.generation_id || ', which is not its own'
FROM video v LEFT JOIN generation g ON g.id = v.generation_id AND g.video_id = v.id
WHERE v.generation_id IS NOT NULL AND g.id IS NULL",
    },
    Check {
        name: "a generation was committed by its task (INV_002)",
        subject: task,
        sql: "
SELECT g.task_id, 'made generation ' || g.id || ' and is not committed'
FROM generation g
LEFT JOIN task t ON t.id = g.task_id AND t.committed_at IS NOT NULL
LEFT JOIN job_archive a ON a.job_id = g.job_id
WHERE t.id IS NULL AND a.job_id IS NULL",
    },
];

impl Store {
    /// Looks at everything, in one snapshot.
    pub async fn examine(&self) -> Result<Report> {
        let mut tx = self.db.read().await?;
        let mut report = Report { checks: CHECKS.len() + 1, ..Report::default() };
        for check in CHECKS {
            let found: Vec<(i64, String)> = tx.query(check.sql).all().await?;
            report.findings.extend(found.into_iter().take(MAX_FINDINGS).map(|(id, what)| Finding {
                check: check.name,
                subject: (check.subject)(id),
                what,
            }));
        }
        report.findings.extend(wrong_outcomes(&mut tx).await?);
        report.notes = notes(&mut tx).await?;
        (report.jobs,) = tx.query("SELECT count(*) FROM job").one().await?;
        (report.tasks,) = tx.query("SELECT count(*) FROM task").one().await?;
        (report.executions,) = tx.query("SELECT count(*) FROM execution").one().await?;
        Ok(report)
    }
}

/// Numbers that others keep may mean something else since then.
async fn notes(tx: &mut Tx) -> Result<Vec<String>> {
    const BEGUN: &str = "
SELECT number, name, began_at, after_id, reason FROM timeline WHERE number > 1 ORDER BY number";
    let begun: Vec<TimelineView> = tx.query(BEGUN).all().await?;
    let note = |it: TimelineView| {
        let at = rfc3339(Millis(it.began_at));
        format!("timeline {} began at {at}: {}; ids given before may be given again", it.name, it.reason)
    };
    Ok(begun.into_iter().map(note).collect())
}

/// A job's outcome is stored for an index; it must be what its tasks say.
async fn wrong_outcomes(tx: &mut Tx) -> Result<Vec<Finding>> {
    const PAGE: &str = "SELECT id, outcome FROM job WHERE id > $1 ORDER BY id LIMIT 1000";
    let mut findings = Vec::new();
    let mut after = 0;
    loop {
        let page: Vec<(i64, Option<String>)> = tx.query(PAGE).bind(after).all().await?;
        let Some(&(last, _)) = page.last() else { return Ok(findings) };
        after = last;
        let is_cancelled = |outcome: &Option<String>| outcome.as_deref() == Some(State::Cancelled.as_str());
        let ids: Vec<_> = page.iter().map(|(id, outcome)| (JobId(*id), is_cancelled(outcome))).collect();
        let states = states_of(tx, &ids).await?;
        for (id, outcome) in page {
            let Some(state) = states.get(&JobId(id)) else { continue };
            let derived = state.is_final().then_some(state.as_str());
            if outcome.as_deref() != derived {
                findings.push(Finding {
                    check: "a job's outcome follows from its tasks",
                    subject: job(id),
                    what: format!(
                        "is stored as {}, and its tasks say {state}",
                        outcome.as_deref().unwrap_or("open")
                    ),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::failure::Kind;

    #[test]
    fn the_check_of_attempts_leaves_out_every_kind_that_uses_up_none() {
        let check = CHECKS.iter().find(|check| check.name.starts_with("attempts are")).expect("it is there");

        for kind in Kind::ALL {
            assert_eq!(check.sql.contains(&format!("'{kind}'")), !kind.counts(), "{kind}");
        }
    }
}
