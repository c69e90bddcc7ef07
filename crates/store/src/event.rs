//! Events: what the audit says of jobs, segments, videos and workers, to be followed live from a [`Cursor`].
//!
//! What happened is as it was written. What an event adds to that, such as how many segments are done, is as of the
//! telling: told again later, it may say more.

use crate::Store;
use crate::cursor::{self, Cursor, WHOLE};
use crate::db::Tx;
use crate::error::Result;
use crate::from_row::row;
use rules::{JobId, TaskId, VideoId};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};

/// Something that has happened, for good.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub cursor: Cursor,
    pub at: i64,
    pub job: Option<JobId>,
    pub video: Option<VideoId>,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum What {
    Job(JobEvent),
    Segment(SegmentEvent),
    Video(VideoEvent),
    Worker(WorkerEvent),
}

#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct JobEvent {
    /// `submitted`, `state`, `ended`, `retried`
    pub what: &'static str,
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its name when it was submitted, the reason when it ended badly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct SegmentEvent {
    /// `done`; or `failed`, and it will be tried again or its job fails
    pub what: &'static str,
    #[schema(value_type = String)]
    pub task: TaskId,
    pub attempt: i64,
    pub worker: Option<String>,
    #[serde(flatten)]
    pub place: Option<Place>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where a task stands in its job. An archived job has forgotten.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Place {
    pub stage: String,
    pub segment: i64,
    /// Tasks of this stage that are done by now.
    pub done: i64,
    pub total: i64,
    /// What the plan gave to this task: for a piece of picture its chunk and its codec, of which it makes all qualities.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub input: Option<Value>,
    #[serde(skip)]
    phase: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct VideoEvent {
    /// `published`, `rolled_back`, `deleted`, `restored`, `purged`
    pub what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct WorkerEvent {
    pub worker: String,
    pub status: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// Some events, and where to read on.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub events: Vec<Event>,
    pub next: Cursor,
    /// There was no more.
    pub is_last: bool,
    /// The place to read after is of another timeline, or of a history that is not kept any more: what lies between is not
    /// known, and `next` is the end.
    pub is_lost: bool,
}

/// What events are made of: all that is not about a task, results and failures, and the claim that begins a job. It is
/// that of its first task, the number of which is 0; of the run that it begins, nobody is told of the others.
macro_rules! rows {
    ($range:literal, $order:literal) => {
        concat!(
            "
SELECT xact, id, CASE WHEN command = 'claim' THEN 1 ELSE tasks END AS tasks, at, job_id, task_id, video_id, fence, worker_id, command, from_state, to_state, failure, note FROM audit
WHERE ",
            $range,
            " AND id > $5 AND (task_id IS NULL OR command IN ('commit', 'fail', 'recover')
       OR (command = 'claim' AND task_id % 1048576 = 0))
ORDER BY ",
            $order,
            " LIMIT $4"
        )
    };
}

const ROWS: &str = rows!("xact >= $1 AND xact < $3 AND (xact > $1 OR id > $2)", "xact, id");

/// SQLite has an index on the id alone. Its rows are all of transaction 0.
const ROWS_BY_ID: &str = rows!("xact >= $1 AND id > $2 AND id <= $3", "id");

const JOBS: &str = "
SELECT j.id, j.video_id
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job j ON j.id = r.id
UNION ALL
SELECT a.job_id, a.video_id
FROM json_to_recordset($2::json) AS q(id BIGINT)
JOIN job_archive a ON a.job_id = q.id";

const PLACES: &str = "
SELECT t.id, t.segment, s.position, s.name, s.phase, s.tasks, i.input
FROM json_to_recordset($1::json) AS r(id BIGINT, job_id BIGINT)
JOIN task t ON t.id = r.id
JOIN stage s ON s.job_id = r.job_id AND s.position = t.stage
LEFT JOIN task_input i ON i.task_id = t.id";

/// Once for each stage, however many of its tasks are told of.
const DONE: &str = "
SELECT r.job_id, r.position,
       (SELECT count(DISTINCT t.segment) FROM task t
        WHERE t.id BETWEEN r.job_id * 1048576 AND r.job_id * 1048576 + 1048575 AND t.stage = r.position
          AND t.state = 'DONE')
FROM json_to_recordset($1::json) AS r(job_id BIGINT, position BIGINT)";

/// How many transactions of PostgreSQL are looked through at a time, at first. One index finds a stretch of them, and
/// none finds the first few rows of many.
const STRETCH: i64 = 10_000;

row! {
    #[derive(Clone)]
    struct Row {
        xact: i64,
        id: i64,
        tasks: i64,
        at: i64,
        job_id: Option<i64>,
        task_id: Option<i64>,
        video_id: Option<i64>,
        fence: Option<i64>,
        worker_id: Option<String>,
        command: String,
        from_state: Option<String>,
        to_state: Option<String>,
        failure: Option<String>,
        note: Option<String>,
    }
}

row! {
    struct PlaceRow {
        id: i64,
        segment: i64,
        position: i64,
        name: String,
        phase: String,
        tasks: i64,
        input: Option<String>,
    }
}

impl Store {
    /// The place behind everything that has happened so far.
    pub async fn events_end(&self) -> Result<Cursor> {
        let mut tx = self.db.look().await?;
        let (end, _) = cursor::head(&mut tx).await?;
        self.db.outlive_a_crash(tx).await?;
        Ok(end)
    }

    /// The same place if it is of the history that goes on and is kept, so that nothing behind it is missing. One of an older
    /// program, which names no timeline, is of the first; the beginning, `0-0`, is of each.
    pub async fn place_in_this_history(&self, place: Cursor) -> Result<Option<Cursor>> {
        let mut tx = self.db.look().await?;
        let (end, current) = cursor::head(&mut tx).await?;
        let is_kept = !cursor::dropped(&mut tx).await?.is_some_and(|dropped| dropped.is_missed_at(place));
        let is_beginning = (place.xact, place.id) == (0, 0);
        let is_ours = match place.timeline {
            None => is_beginning || current.number == 1,
            Some(timeline) => timeline == current.name,
        };
        let place = place.on(current.name);
        Ok((is_ours && is_kept && place <= end).then_some(place))
    }

    /// Up to `max` events after `after`. Who goes on from `next` sees each once, in an order that is always the same, also
    /// after a crash of the database: what it could take back is not told.
    pub async fn events(&self, after: Cursor, max: i64) -> Result<Page> {
        let mut tx = self.db.look().await?;
        let (end, timeline) = cursor::head(&mut tx).await?;
        let is_of_another = after.timeline.is_some_and(|after| after != timeline.name);
        let dropped = cursor::dropped(&mut tx).await?;
        if is_of_another || dropped.is_some_and(|dropped| dropped.is_missed_at(after)) {
            self.db.outlive_a_crash(tx).await?;
            return Ok(Page { events: Vec::new(), next: end, is_last: true, is_lost: true });
        }
        let (told, next) = read(&mut tx, after.on(timeline.name), end, max, timeline.after_id).await?;
        let about = About::of(&mut tx, &told).await?;
        let events = told.into_iter().filter_map(|told| about.event(told)).collect();
        self.db.outlive_a_crash(tx).await?;
        Ok(Page { events, next, is_last: next >= end, is_lost: false })
    }
}

/// Rows up to `hidden` are of earlier timelines.
async fn read(tx: &mut Tx, after: Cursor, end: Cursor, max: i64, hidden: i64) -> Result<(Vec<Told>, Cursor)> {
    let (mut at, mut stretch) = (after, STRETCH);
    let here = |it: Cursor| Cursor { timeline: end.timeline, ..it };
    while at < end {
        let to = if tx.is_postgres() {
            end.xact.min(at.xact.saturating_add(stretch))
        } else {
            end.id
        };
        let sql = if tx.is_postgres() { ROWS } else { ROWS_BY_ID };
        let rows: Vec<Row> =
            tx.query(sql).bind(at.xact).bind(at.last_whole()).bind(to).bind(max).bind(hidden).all().await?;
        let passed = match rows.last() {
            Some(last) if rows.len() as i64 >= max => here(last.cursor(last.tasks)),
            Some(_) | None if tx.is_postgres() => here(Cursor::behind(to, 0)),
            Some(_) | None => end,
        };
        let (told, next) = page(rows, at, passed, max);
        let told: Vec<Told> = told.into_iter().map(|it| Told { cursor: here(it.cursor), ..it }).collect();
        let next = here(next);
        if !told.is_empty() {
            return Ok((told, next));
        }
        (at, stretch) = (passed, stretch.saturating_mul(4));
    }
    Ok((Vec::new(), at))
}

/// What is told of these rows to a reader at `at`, `max` times at most, and where that leads; all of it, to `passed`.
fn page(rows: Vec<Row>, at: Cursor, passed: Cursor, max: i64) -> (Vec<Told>, Cursor) {
    let mut each = rows.into_iter().flat_map(|row| row.each_after(at));
    let told: Vec<Told> = each.by_ref().take(usize::try_from(max).unwrap_or_default()).collect();
    let next = match (told.last(), each.next()) {
        (Some(last), Some(_)) => last.cursor,
        (Some(_), None) | (None, _) => passed,
    };
    (told, next)
}

/// A row, as it is told of one of its tasks.
struct Told {
    cursor: Cursor,
    row: Row,
}

/// What rows are about, looked up for all of them at once.
struct About {
    videos: HashMap<i64, VideoId>,
    places: HashMap<i64, Place>,
}

impl About {
    async fn of(tx: &mut Tx, told: &[Told]) -> Result<Self> {
        let jobs: BTreeSet<i64> = told.iter().filter_map(|told| told.row.job_id).collect();
        let tasks: BTreeSet<i64> = told.iter().filter_map(|told| told.row.task_id).collect();
        let (mut videos, mut places) = (HashMap::new(), HashMap::new());
        if !jobs.is_empty() {
            let found: Vec<(i64, Option<i64>)> = tx.query(JOBS).ids(jobs.clone()).ids(jobs).all().await?;
            videos.extend(found.into_iter().filter_map(|(job, video)| Some((job, VideoId(video?)))));
        }
        if !tasks.is_empty() {
            places = places_of(tx, tasks).await?;
        }
        Ok(About { videos, places })
    }

    fn event(&self, Told { cursor, row }: Told) -> Option<Event> {
        let job = row.job_id.map(JobId);
        let video = row.video_id.map(VideoId).or_else(|| self.videos.get(&row.job_id?).copied());
        let at = row.at;
        let what = match (row.task_id, row.video_id, row.job_id) {
            (Some(task), ..) => self.of_task(TaskId(task), row)?,
            (_, Some(_), _) => What::Video(VideoEvent { what: of_video(&row.command)? }),
            (.., Some(_)) => What::Job(of_job(row)?),
            _ => What::Worker(of_worker(row)?),
        };
        Some(Event { cursor, at, job, video, what })
    }

    fn of_task(&self, task: TaskId, row: Row) -> Option<What> {
        let place = self.places.get(&task.0).cloned();
        let what = match row.command.as_str() {
            "commit" => "done",
            "fail" | "recover" | "lose_worker" => "failed",
            _ => {
                let from = Some(rules::job::State::Pending.to_string());
                return Some(What::Job(JobEvent { what: "state", state: place?.phase, from, note: None }));
            }
        };
        let (attempt, worker) = (row.fence.unwrap_or_default(), row.worker_id);
        let (failure, note) = (row.failure, row.note);
        Some(What::Segment(SegmentEvent { what, task, attempt, worker, place, failure, note }))
    }
}

fn of_job(row: Row) -> Option<JobEvent> {
    let what = match row.command.as_str() {
        "submit" => "submitted",
        "phase" => "state",
        "complete" | "fail" | "cancel" => "ended",
        "retry" => "retried",
        _ => return None,
    };
    let state = row.to_state.unwrap_or_else(|| rules::job::State::Pending.to_string());
    Some(JobEvent { what, state, from: row.from_state, note: row.note })
}

fn of_video(command: &str) -> Option<&'static str> {
    Some(match command {
        "publish" => "published",
        "rollback" => "rolled_back",
        "delete" => "deleted",
        "restore" => "restored",
        "purge" => "purged",
        _ => return None,
    })
}

fn of_worker(row: Row) -> Option<WorkerEvent> {
    Some(WorkerEvent { worker: row.worker_id?, status: row.to_state?, from: row.from_state })
}

impl Row {
    /// Where a reader is who was told of the first `told` of its tasks.
    fn cursor(&self, told: i64) -> Cursor {
        let told = if told < self.tasks { told } else { WHOLE };
        Cursor { told, ..Cursor::behind(self.xact, self.id) }
    }

    /// The row for each of its tasks that a reader at `at` was not told of.
    fn each_after(self, at: Cursor) -> impl Iterator<Item = Told> {
        let is_inside = (at.xact, at.id) == (self.xact, self.id);
        let told = if is_inside { at.told } else { 0 };
        (told..self.tasks).map(move |nth| {
            let task_id = self.task_id.map(|first| first + nth);
            Told { cursor: self.cursor(nth + 1), row: Row { task_id, ..self.clone() } }
        })
    }
}

async fn places_of(tx: &mut Tx, tasks: BTreeSet<i64>) -> Result<HashMap<i64, Place>> {
    #[derive(Serialize)]
    struct Task {
        id: i64,
        job_id: i64,
    }
    #[derive(Serialize, PartialEq, Eq, PartialOrd, Ord, Hash)]
    struct Stage {
        job_id: i64,
        position: i64,
    }
    let tasks: Vec<Task> = tasks.into_iter().map(|id| Task { id, job_id: TaskId(id).job().0 }).collect();
    let rows: Vec<PlaceRow> = tx.query(PLACES).rows(&tasks).all().await?;
    let stage = |row: &PlaceRow| Stage { job_id: TaskId(row.id).job().0, position: row.position };
    let stages: Vec<Stage> = rows.iter().map(stage).collect::<BTreeSet<_>>().into_iter().collect();
    if stages.is_empty() {
        return Ok(HashMap::new());
    }
    let done: Vec<(i64, i64, i64)> = tx.query(DONE).rows(&stages).all().await?;
    let done: HashMap<Stage, i64> =
        done.into_iter().map(|(job_id, position, done)| (Stage { job_id, position }, done)).collect();
    let place = |row: PlaceRow| (row.id, row.place(done.get(&stage(&row)).copied().unwrap_or_default()));
    Ok(rows.into_iter().map(place).collect())
}

impl PlaceRow {
    fn place(&self, done: i64) -> Place {
        Place {
            stage: self.name.clone(),
            segment: self.segment,
            done,
            total: self.tasks,
            input: self.input.as_deref().and_then(|input| serde_json::from_str(input).ok()),
            phase: self.phase.clone(),
        }
    }
}
