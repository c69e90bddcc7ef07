//! Submitting jobs: same key, same job, also under a race.

use crate::Store;
use crate::audit::{self, AuditRow};
use crate::db::{Step, Tx, again};
use crate::error::{Error, Result};
use crate::readied::Readied;
use crate::settle::advance;
use crate::task::NewTask;
use crate::upload;
use crate::video::{self, Locked, NewVideo};
use crate::wake::Topic;
use crate::{lane, moves::Moves, owner, stage};
use rules::placement::Lane;
use rules::spec::{self, Spec};
use rules::video::{Command, Video};
use rules::{JobId, TaskId, VideoId};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use telemetry::metrics::JOBS_CREATED;
use telemetry::trace;
use tracing::{Instrument, Span, info_span};

/// A job to be done.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub spec: Spec,
    pub video: Option<VideoId>,
    /// The same key again means the same job; with another spec it is an error.
    pub idempotency_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    New(JobId),
    /// The key was known: nothing was added.
    Existing(JobId),
}

impl Submitted {
    pub fn id(self) -> JobId {
        match self {
            Submitted::New(id) | Submitted::Existing(id) => id,
        }
    }
}

const INSERT: &str = "
INSERT INTO job (video_id, user_id, name, priority, spec, idempotency_key, spec_hash, max_attempts,
                 backoff_initial_ms, backoff_max_ms, created_at, updated_at, traceparent)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12)
ON CONFLICT (user_id, idempotency_key) DO NOTHING
RETURNING id";

const BY_KEY: &str = "SELECT id, spec_hash FROM job WHERE user_id = $1 AND idempotency_key = $2";

const ARCHIVED_BY_KEY: &str =
    "SELECT job_id, spec_hash FROM job_archive WHERE user_id = $1 AND idempotency_key = $2";

const TAKE_BACK: &str = "DELETE FROM job WHERE id = $1";

const INSERT_STAGES: &str = "
INSERT INTO stage (job_id, position, name, phase, kind, payload, effect, needs, reads, expands, is_plan,
                   lane_id, is_optional, timeout_ms, stall_ms, is_expanded, is_released, first_task, tasks, open, is_hedged,
                   owner_id)
SELECT r.job_id, r.position, r.name, r.phase, r.kind, r.payload, r.effect, r.needs, r.reads, r.expands, r.is_plan,
       r.lane_id, r.is_optional, r.timeout_ms, r.stall_ms, r.is_expanded, FALSE, r.first_task, r.tasks, r.tasks, r.is_hedged,
       r.owner_id
FROM json_to_recordset($1::json) AS r(job_id BIGINT, position BIGINT, name TEXT, phase TEXT, kind TEXT, payload TEXT,
     effect TEXT, needs TEXT, reads TEXT, expands BIGINT, is_plan BOOLEAN, lane_id BIGINT, is_optional BOOLEAN,
     timeout_ms BIGINT, stall_ms BIGINT, is_expanded BOOLEAN, first_task BIGINT, tasks BIGINT, is_hedged BOOLEAN,
     owner_id BIGINT)";

#[derive(Serialize)]
struct StageInsert<'a> {
    job_id: i64,
    position: i64,
    name: &'a str,
    phase: &'static str,
    kind: &'a str,
    payload: String,
    effect: Option<String>,
    needs: String,
    reads: String,
    expands: Option<i64>,
    is_plan: bool,
    lane_id: i64,
    is_optional: bool,
    timeout_ms: Option<u32>,
    stall_ms: Option<u32>,
    is_expanded: bool,
    first_task: Option<i64>,
    tasks: i64,
    is_hedged: bool,
    owner_id: i64,
}

impl Store {
    /// Adds a job with all its tasks; those without prerequisites are READY when this returns.
    pub async fn submit(&self, job: &NewJob) -> Result<Submitted> {
        let mut submitted = self.submit_all(std::slice::from_ref(job)).await?;
        Ok(submitted.remove(0))
    }

    /// Adds several jobs at once: all of them, or none.
    pub async fn submit_all(&self, jobs: &[NewJob]) -> Result<Vec<Submitted>> {
        let checked = jobs.iter().map(Checked::new).collect::<Result<Vec<_>>>()?;
        let (submitted, readied) = again(|| self.submit_once(&checked)).instrument(span()).await?;
        let new = submitted.iter().filter(|one| matches!(one, Submitted::New(_)));
        JOBS_CREATED.add([], new.count() as f64);
        self.wake.ready(readied);
        self.wake.up(Topic::Event);
        Ok(submitted)
    }

    /// A new video and the job that makes its first stream: both, or neither. `upload` is what it came by, if it was
    /// resumable; one that has become a video already is not made into a second.
    pub async fn submit_video(
        &self,
        new: &NewVideo,
        upload: Option<&str>,
        job: impl Fn(VideoId) -> Result<NewJob>,
    ) -> Result<(VideoId, JobId)> {
        let made = again(|| async {
            let mut tx = self.db.write(Step::SubmitVideo).await?;
            let video = video::insert(&mut tx, new).await?;
            if let Some(upload) = upload
                && tx.query(upload::DONE).bind(video).bind(upload).execute().await? == 0
            {
                return Err(Error::NotFound("upload that is still open"));
            }
            let job = job(video)?;
            let (submitted, readied) = submit_in(&mut tx, &[Checked::new(&job)?]).await?;
            tx.commit().await?;
            Ok(((video, submitted[0].id()), readied))
        });
        let (made, readied) = made.instrument(span()).await?;
        JOBS_CREATED.count([]);
        self.wake.ready(readied);
        self.wake.up(Topic::Settle);
        Ok(made)
    }

    async fn submit_once(&self, jobs: &[Checked<'_>]) -> Result<(Vec<Submitted>, Readied)> {
        let mut tx = self.db.write(Step::Submit).await?;
        let submitted = submit_in(&mut tx, jobs).await?;
        tx.commit().await?;
        Ok(submitted)
    }
}

/// What all executions of the new job follow from. Where nothing led here, a trace begins with it.
fn span() -> Span {
    info_span!(target: trace::TARGET, "submit")
}

async fn submit_in(tx: &mut Tx, jobs: &[Checked<'_>]) -> Result<(Vec<Submitted>, Readied)> {
    let mut submitted = Vec::with_capacity(jobs.len());
    let mut added = Added::default();
    let mut audited = Vec::new();
    let videos = video::lock_all(tx, jobs.iter().filter_map(|job| job.new.video)).await?;
    let lanes = lanes_of(tx, jobs).await?;
    let owners = owners_of(tx, jobs).await?;
    for job in jobs {
        let video = job.new.video.map(|id| videos.get(&id).ok_or(Error::NotFound("video"))).transpose()?;
        let Some(id) = insert_job(tx, job).await? else {
            submitted.push(Submitted::Existing(same_key(tx, job).await?));
            continue;
        };
        // Looked for only now: it may have been archived while the insert waited for its key.
        if let Some(archived) = existing(tx, job, ARCHIVED_BY_KEY).await? {
            tx.query(TAKE_BACK).bind(id).execute().await?;
            submitted.push(Submitted::Existing(archived));
            continue;
        }
        if let Some(&Locked { is_deleted }) = video {
            rules::video::decide(&Video { is_deleted, ..Video::NEW }, Command::Submit)?;
        }
        added.add(id, job, &lanes, owners[job.new.spec.user.as_str()])?;
        audited.push(AuditRow::of_job(id, "user", "submit", Some(job.new.spec.name.clone()), tx.now()));
        submitted.push(Submitted::New(id));
    }
    added.insert_stages(tx).await?;
    audit::insert(tx, &audited).await?;
    let mut moves = Moves::new(tx.now());
    moves.add(added.tasks);
    let mut new = stage::of_jobs(tx, added.jobs).await?;
    advance(tx, &mut new, &mut moves).await?;
    moves.save(tx).await?;
    Ok((submitted, moves.readied()))
}

/// A job whose spec is known to be sound.
struct Checked<'a> {
    new: &'a NewJob,
    stages: Vec<rules::stage::Stage>,
    json: String,
    hash: String,
}

impl<'a> Checked<'a> {
    fn new(new: &'a NewJob) -> Result<Self> {
        let json = serde_json::to_string(&new.spec)?;
        if json.len() > spec::MAX_BYTES {
            return Err(spec::Bad::TooLarge(json.len()).into());
        }
        if new.idempotency_key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 255) {
            return Err(Error::Invalid("an idempotency key must have 1 to 255 characters".into()));
        }
        let stages = new.spec.resolve()?;
        // The limit is a setting of the server that took the job: the same job sent again is the same.
        let asked = serde_json::to_string(&Spec { max_tasks: None, ..new.spec.clone() })?;
        let hash = hex::encode(Sha256::digest(format!("{:?} {asked}", new.video)));
        Ok(Checked { new, stages, json, hash })
    }
}

async fn insert_job(tx: &mut Tx, job: &Checked<'_>) -> Result<Option<JobId>> {
    let (spec, now) = (&job.new.spec, tx.now());
    let inserted: Option<(i64,)> = tx
        .query(INSERT)
        .bind(job.new.video.map(|video| video.0))
        .bind(spec.user.as_str())
        .bind(spec.name.as_str())
        .bind(i64::from(spec.priority))
        .bind(job.json.as_str())
        .bind(job.new.idempotency_key.clone())
        .bind(job.hash.as_str())
        .bind(i64::from(spec.max_attempts))
        .bind(i64::from(spec.backoff_initial_ms))
        .bind(i64::from(spec.backoff_max_ms))
        .bind(now)
        .bind(trace::current())
        .optional()
        .await?;
    Ok(inserted.map(|(id,)| JobId(id)))
}

/// The job whose key was in the way. It may have been archived since: statements see what was committed before each.
async fn same_key(tx: &mut Tx, job: &Checked<'_>) -> Result<JobId> {
    for place in [BY_KEY, ARCHIVED_BY_KEY] {
        if let Some(id) = existing(tx, job, place).await? {
            return Ok(id);
        }
    }
    Err(Error::NotFound("job"))
}

/// The job that was submitted under the same key before.
async fn existing(tx: &mut Tx, job: &Checked<'_>, by_key: &'static str) -> Result<Option<JobId>> {
    let Some(key) = job.new.idempotency_key.as_deref() else { return Ok(None) };
    let user = job.new.spec.user.as_str();
    match tx.query(by_key).bind(user).bind(key).optional::<(i64, String)>().await? {
        Some((id, hash)) if hash == job.hash => Ok(Some(JobId(id))),
        Some(_) => Err(Error::KeyReused(key.into())),
        None => Ok(None),
    }
}

/// Finds or makes the lanes of all stages, in order: two submitters of new lanes never wait for each other.
async fn lanes_of(tx: &mut Tx, jobs: &[Checked<'_>]) -> Result<BTreeMap<Lane, i64>> {
    let lanes_of = |job: &Checked<'_>| {
        let spec = &job.new.spec;
        spec.stages.iter().map(|stage| stage.lane(spec.pool.as_ref())).collect::<Vec<_>>()
    };
    let wanted = jobs.iter().flat_map(lanes_of).collect::<Result<BTreeSet<Lane>, _>>()?;
    let mut lanes = BTreeMap::new();
    for lane in wanted {
        let id = lane::find_or_make(tx, &lane).await?;
        lanes.insert(lane, id);
    }
    Ok(lanes)
}

/// Finds or makes the numbers of all users, in order.
async fn owners_of<'a>(tx: &mut Tx, jobs: &[Checked<'a>]) -> Result<BTreeMap<&'a str, i64>> {
    let wanted: BTreeSet<&str> = jobs.iter().map(|job| job.new.spec.user.as_str()).collect();
    let mut owners = BTreeMap::new();
    for name in wanted {
        owners.insert(name, owner::find_or_make(tx, name).await?);
    }
    Ok(owners)
}

/// The new jobs of one submission, and what is inserted for all of them at once.
#[derive(Default)]
struct Added<'a> {
    jobs: Vec<JobId>,
    stages: Vec<StageInsert<'a>>,
    tasks: Vec<NewTask>,
}

impl<'a> Added<'a> {
    fn add(
        &mut self,
        id: JobId,
        job: &'a Checked<'_>,
        lanes: &BTreeMap<Lane, i64>,
        owner_id: i64,
    ) -> Result<()> {
        let spec = &job.new.spec;
        let mut next = TaskId::new(id, 0).0;
        for (position, (written, resolved)) in spec.stages.iter().zip(&job.stages).enumerate() {
            let (kind, payload) = written.work()?;
            let lane_id = lanes[&written.lane(spec.pool.as_ref())?];
            let known = written.known_tasks();
            let tasks = i64::from(known.unwrap_or(0));
            self.stages.push(StageInsert {
                job_id: id.0,
                position: position as i64,
                name: &written.name,
                phase: written.phase.as_str(),
                kind,
                payload: payload.to_string(),
                effect: written.effect.as_ref().map(serde_json::to_string).transpose()?,
                needs: serde_json::to_string(&resolved.needs)?,
                reads: serde_json::to_string(&resolved.reads)?,
                expands: resolved.expands.map(|plan| plan as i64),
                is_plan: job.stages.iter().any(|stage| stage.expands == Some(position)),
                lane_id,
                is_optional: written.optional,
                timeout_ms: written.timeout_ms,
                stall_ms: written.stall_ms,
                is_expanded: known.is_some(),
                first_task: known.map(|_| next),
                tasks,
                is_hedged: written.hedge,
                owner_id,
            });
            self.tasks.extend((0..tasks).map(|segment| NewTask {
                id: next + segment,
                stage: position as i64,
                segment,
                lane_id,
                owner_id,
                priority: spec.priority.into(),
                max_attempts: spec.max_attempts.into(),
            }));
            next += tasks;
        }
        self.jobs.push(id);
        Ok(())
    }

    async fn insert_stages(&self, tx: &mut Tx) -> Result<()> {
        if self.stages.is_empty() {
            return Ok(());
        }
        tx.query(INSERT_STAGES).rows(&self.stages).execute().await.map(drop)
    }
}
