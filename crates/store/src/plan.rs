//! Expanding a committed plan into tasks.

use crate::db::Tx;
use crate::error::{Error, Result};
use crate::moves::Moves;
use crate::stage::StageRow;
use crate::task::NewTask;
use rules::{JobId, Priority, TaskId, spec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;

#[derive(Serialize)]
struct NewInput {
    task_id: i64,
    input: String,
}

const INSERT_INPUTS: &str = "
INSERT INTO task_input (task_id, input)
SELECT r.task_id, r.input FROM json_to_recordset($1::json) AS r(task_id BIGINT, input TEXT)";

const LAST_TASK: &str = "SELECT coalesce(max(id), $1 - 1) FROM task WHERE id BETWEEN $1 AND $2";

const KEEP_PLAN: &str = "UPDATE job SET plan = $1, version = version + 1, updated_at = $2 WHERE id = $3";

/// What a planning stage commits.
#[derive(Deserialize)]
struct Plan {
    segments: Segments,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of segments, or such a list for each stage by name")]
enum Segments {
    /// The same for every stage that the plan is for.
    Of(Vec<Value>),
    ByStage(HashMap<String, Vec<Value>>),
}

/// Where a job may have no more than so many tasks: what it has, and the stages that its plans are for.
#[derive(Debug, Default)]
pub(crate) struct Room {
    most: u64,
    has: u64,
    /// By the position of the stage that plans them.
    planned: Vec<(i64, String)>,
}

const LIMITED: &str = "SELECT spec FROM job WHERE id = $1 AND spec LIKE '%\"max_tasks\"%'";

const STAGES: &str =
    "SELECT name, tasks, expands, is_expanded FROM stage WHERE job_id = $1 ORDER BY position";

impl Room {
    /// `None` for a job without a limit.
    pub async fn of(tx: &mut Tx, job: JobId) -> Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Limited {
            max_tasks: Option<u64>,
        }
        let Some((spec,)) = tx.query(LIMITED).bind(job).optional::<(String,)>().await? else {
            return Ok(None);
        };
        let Some(most) = serde_json::from_str::<Limited>(&spec)?.max_tasks else { return Ok(None) };
        let mut room = Room { most, ..Room::default() };
        for (name, tasks, expands, is_expanded) in
            tx.query(STAGES).bind(job).all::<(String, i64, Option<i64>, bool)>().await?
        {
            match expands {
                Some(plan) if !is_expanded => room.planned.push((plan, name)),
                _ => room.has += tasks.unsigned_abs(),
            }
        }
        Ok(Some(room))
    }

    fn check(&self, plan: i64, segments: &Segments) -> Result<(), String> {
        let stages = self.planned.iter().filter(|(by, _)| *by == plan);
        let planned: u64 = stages.map(|(_, name)| segments.of(name).len() as u64).sum();
        let tasks = self.has.saturating_add(planned);
        match tasks > self.most {
            true => Err(format!(
                "with this plan the job has {tasks} tasks, and it may have {}: its `max_tasks`, which is at most the \
                 server's setting max_job_tasks for a job that is submitted over HTTP",
                self.most
            )),
            false => Ok(()),
        }
    }
}

/// What is wrong with a result that is to be a plan of the stage at this position, in a person's words. Asked before the
/// commit: a plan that cannot be expanded is never committed.
pub(crate) fn check(result: Option<&str>, stage: i64, room: Option<&Room>) -> Result<(), String> {
    let segments = read(result)?;
    match &segments {
        Segments::Of(segments) => check_many(segments.len())?,
        Segments::ByStage(stages) => stages.values().try_for_each(|segments| check_many(segments.len()))?,
    }
    room.map_or(Ok(()), |room| room.check(stage, &segments))
}

impl Segments {
    fn of(&self, stage: &str) -> &[Value] {
        match self {
            Segments::Of(segments) => segments,
            Segments::ByStage(stages) => stages.get(stage).map(Vec::as_slice).unwrap_or_default(),
        }
    }
}

fn read(result: Option<&str>) -> Result<Segments, String> {
    let result = result.ok_or("the plan is empty; it must be of the form {\"segments\": […]}")?;
    let plan: Plan = serde_json::from_str(result)
        .map_err(|error| format!("the plan is not of the form {{\"segments\": […]}}: {error}"))?;
    Ok(plan.segments)
}

fn check_many(segments: usize) -> Result<(), String> {
    match segments {
        many if many > spec::MAX_SEGMENTS => {
            Err(format!("the plan has {many} segments; {} are allowed", spec::MAX_SEGMENTS))
        }
        _ => Ok(()),
    }
}

/// The segments a plan lists for a stage. A stage it does not speak of has none.
fn segments(result: Option<&str>, stage: &str) -> Result<Vec<Value>, String> {
    Ok(match read(result)? {
        Segments::Of(segments) => segments,
        Segments::ByStage(mut stages) => stages.remove(stage).unwrap_or_default(),
    })
}

/// Gives `stage` the tasks that the committed `result` lists.
pub(crate) async fn expand(
    tx: &mut Tx,
    moves: &mut Moves,
    stage: &mut StageRow,
    result: Option<&str>,
    priority: Priority,
    max_attempts: i64,
) -> Result<()> {
    let job = JobId(stage.job_id);
    let segments = segments(result, &stage.name).map_err(Error::Invalid)?;
    let (first, last) = TaskId::range(job);
    let (newest,): (i64,) = tx.query(LAST_TASK).bind(first).bind(last).one().await?;
    let newest = moves.newest_added(job).map_or(newest, |added| added.0.max(newest));
    let begin = TaskId(newest + 1);
    let ids = (begin.0..).take(segments.len());
    let tasks: Vec<NewTask> = ids
        .clone()
        .enumerate()
        .map(|(segment, id)| NewTask {
            id,
            stage: stage.position,
            segment: segment as i64,
            lane_id: stage.lane_id,
            owner_id: stage.owner_id,
            priority: priority.into(),
            max_attempts,
        })
        .collect();
    let inputs: Vec<NewInput> =
        ids.zip(&segments).map(|(task_id, input)| NewInput { task_id, input: input.to_string() }).collect();
    for batch in inputs.chunks(5000) {
        tx.query(INSERT_INPUTS).rows(batch).execute().await?;
    }
    stage.first_task = Some(begin.0);
    stage.tasks = tasks.len() as i64;
    stage.open = stage.tasks;
    stage.is_expanded = true;
    moves.add(tasks);
    let now = tx.now();
    tx.query(KEEP_PLAN).bind(result.unwrap_or_default()).bind(now).bind(job).execute().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_plan_lists_its_segments() {
        let listed = segments(Some(r#"{"segments": [1, {"from": 2}], "more": true}"#), "a").unwrap();

        assert_eq!(listed, [json!(1), json!({ "from": 2 })]);
        assert!(segments(Some(r#"{"segments": []}"#), "a").unwrap().is_empty());
    }

    #[test]
    fn a_plan_for_several_stages_lists_the_segments_of_each() {
        let plan = Some(r#"{"segments": {"encode": [1, 2], "audio": [3]}}"#);

        assert_eq!(segments(plan, "encode").unwrap(), [1, 2]);
        assert_eq!(segments(plan, "audio").unwrap(), [3]);
        assert!(segments(plan, "subtitles").unwrap().is_empty());
    }

    #[test]
    fn a_job_has_no_more_tasks_than_it_may() {
        let room =
            Room { most: 10, has: 3, planned: vec![(0, "a".into()), (0, "b".into()), (1, "c".into())] };
        let check =
            |segments: Value| check(Some(&json!({ "segments": segments }).to_string()), 0, Some(&room));

        assert_eq!(check(json!([1, 2, 3])), Ok(()));
        assert_eq!(check(json!({ "a": [1, 2, 3, 4, 5, 6, 7], "c": [1, 2] })), Ok(()));
        for too_many in [json!([1, 2, 3, 4]), json!({ "a": [1, 2, 3, 4], "b": [1, 2, 3, 4] })] {
            let refused = check(too_many).unwrap_err();
            assert!(
                refused.contains("has 11 tasks, and it may have 10") && refused.contains("max_job_tasks")
            );
        }
    }

    #[test]
    fn what_is_no_plan_says_what_is_wrong() {
        let too_many = json!({ "segments": vec![0; spec::MAX_SEGMENTS + 1] }).to_string();
        for (result, reason) in [
            (None, "the plan is empty"),
            (Some("null"), "not of the form"),
            (Some(r#"{"segments": 1}"#), "expected a list of segments"),
            (Some(too_many.as_str()), "100000 are allowed"),
        ] {
            let refused = check(result, 0, None).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
