//! Videos as people look for them: lists, search, generations.

use crate::Store;
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::from_row::row;
use crate::job;
use rules::job::Outcome;
use rules::video::{State, Video};
use rules::{GenerationId, JobId, VideoId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;

/// A video with everything that is known of it.
#[derive(utoipa::ToSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    #[schema(value_type = i64)]
    pub id: VideoId,
    pub slug: String,
    pub title: String,
    pub user: String,
    #[schema(value_type = String)]
    pub state: State,
    #[schema(value_type = Option<i64>)]
    pub generation: Option<GenerationId>,
    /// The newest job on it.
    #[schema(value_type = Option<i64>)]
    pub job: Option<JobId>,
    pub is_early_playback: bool,
    /// The pool whose remote workers make it.
    #[serde(default)]
    pub pool: Option<String>,
    pub source_bytes: Option<i64>,
    pub source_sha256: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub deleted_at: Option<i64>,
    #[serde(skip)]
    pub source: Option<String>,
    /// What was asked for last, as JSON.
    #[serde(skip)]
    pub settings: Option<String>,
}

/// One immutable output of a video.
#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct Generation {
    #[schema(value_type = i64)]
    pub id: GenerationId,
    #[schema(value_type = i64)]
    pub job: JobId,
    pub created_at: i64,
    pub is_current: bool,
    /// Its folder, its files and the gate's proof.
    #[serde(skip)]
    #[schema(value_type = Object)]
    pub manifest: Value,
}

/// Which generation it is, for ever: after a restore of the database the same ids are given to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GenerationKey {
    pub id: GenerationId,
    pub job: JobId,
    pub created_at: i64,
}

/// Which videos to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Part of a title or slug, in any case.
    pub search: Option<String>,
    pub state: Option<State>,
    /// Only those that are deleted.
    pub deleted: bool,
    /// Only videos older than this one: the last of the page before.
    pub before: Option<VideoId>,
    /// Default 50, at most 1000.
    pub limit: Option<i64>,
}

macro_rules! select {
    ($where:literal) => {
        concat!(
            "
SELECT v.id, v.slug, v.title, v.user_id, v.source, v.source_hash, v.source_bytes, v.generation_id, v.settings,
       v.is_early_playback, v.pool, v.created_at, v.updated_at, v.deleted_at,
       (SELECT max(j.id) FROM job j WHERE j.video_id = v.id) AS job_id,
       (SELECT max(a.job_id) FROM job_archive a WHERE a.video_id = v.id) AS archived_id
FROM video v
WHERE ",
            $where
        )
    };
}

/// `$2` is the text to look for in lower case with its wildcards escaped, or empty.
const PAGE: &str = select!(
    "v.id <= $1
  AND ($2 = '' OR lower(v.title) LIKE '%' || $2 || '%' ESCAPE '!' OR lower(v.slug) LIKE '%' || $2 || '%' ESCAPE '!')
  AND ((v.deleted_at IS NOT NULL) = $3)
ORDER BY v.id DESC LIMIT $4"
);
const BY_ID: &str = select!("v.id = $1");
const BY_SLUG: &str = select!("v.slug = $1");
const DELETED_BEFORE: &str = select!("v.deleted_at < $1 ORDER BY v.deleted_at LIMIT $2");

const OUTCOMES: &str = "
SELECT j.id, j.outcome
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job j ON j.id = r.id";

const ARCHIVED: &str = "
SELECT a.job_id, a.outcome
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job_archive a ON a.job_id = r.id";

const GENERATIONS: &str = "
SELECT id, job_id, created_at, manifest FROM generation WHERE video_id = $1 ORDER BY id DESC LIMIT 1000";

const GENERATION: &str = "SELECT id, job_id, created_at, manifest FROM generation WHERE id = $1";

const KEY: &str = "SELECT id, job_id, created_at FROM generation WHERE id = $1";

const KEY_OF_JOB: &str = "
SELECT id, job_id, created_at FROM generation WHERE video_id = $1 AND job_id = $2 ORDER BY id DESC LIMIT 1";

const MANIFEST: &str = "SELECT manifest FROM generation WHERE id = $1";

row! {
    struct Row {
        id: i64,
        slug: String,
        title: String,
        user_id: String,
        source: Option<String>,
        source_hash: Option<String>,
        source_bytes: Option<i64>,
        generation_id: Option<i64>,
        settings: Option<String>,
        is_early_playback: bool,
        pool: Option<String>,
        created_at: i64,
        updated_at: i64,
        deleted_at: Option<i64>,
        job_id: Option<i64>,
        archived_id: Option<i64>,
    }
}

impl Store {
    /// Videos, newest first.
    pub async fn videos(&self, filter: &Filter) -> Result<Vec<Entry>> {
        let limit = filter.limit.unwrap_or(50).clamp(1, 1000);
        let search = filter.search.as_deref().map(escaped).unwrap_or_default();
        let mut below = filter.before.map_or(i64::MAX, |video| video.0.saturating_sub(1));
        let (mut tx, mut found) = (self.db.read().await?, Vec::new());
        // A state is derived, not stored: pages are read until enough of the wanted ones are found.
        loop {
            let page = tx.query(PAGE).bind(below).bind(search.as_str()).bind(filter.deleted);
            let rows: Vec<Row> = page.bind(limit.max(200)).all().await?;
            let Some(last) = rows.last() else { break };
            below = last.id - 1;
            let page = entries(&mut tx, rows).await?;
            found.extend(
                page.into_iter().filter(|video| filter.state.is_none_or(|state| video.state == state)),
            );
            if found.len() as i64 >= limit {
                break;
            }
        }
        found.truncate(limit as usize);
        Ok(found)
    }

    pub async fn entry(&self, id: VideoId) -> Result<Entry> {
        let mut tx = self.db.read().await?;
        let row: Option<Row> = tx.query(BY_ID).bind(id).optional().await?;
        one(&mut tx, row).await
    }

    pub async fn entry_called(&self, slug: &str) -> Result<Entry> {
        let mut tx = self.db.read().await?;
        let row: Option<Row> = tx.query(BY_SLUG).bind(slug).optional().await?;
        one(&mut tx, row).await
    }

    /// Those deleted before `before`, the oldest first.
    pub async fn videos_deleted_before(&self, before: rules::Millis, max: i64) -> Result<Vec<Entry>> {
        let mut tx = self.db.read().await?;
        let rows: Vec<Row> = tx.query(DELETED_BEFORE).bind(before).bind(max).all().await?;
        entries(&mut tx, rows).await
    }

    /// All outputs of a video that were ever published and not purged, newest first.
    pub async fn generations(&self, video: VideoId) -> Result<Vec<Generation>> {
        const CURRENT: &str = "SELECT generation_id FROM video WHERE id = $1";
        let mut tx = self.db.read().await?;
        let current: Option<(Option<i64>,)> = tx.query(CURRENT).bind(video).optional().await?;
        let (current,) = current.ok_or(Error::NotFound("video"))?;
        let rows: Vec<GenerationRow> = tx.query(GENERATIONS).bind(video).all().await?;
        rows.into_iter().map(|row| generation(row, current)).collect()
    }

    pub async fn generation(&self, id: GenerationId) -> Result<Generation> {
        let mut tx = self.db.read().await?;
        let row: Option<GenerationRow> = tx.query(GENERATION).bind(id).optional().await?;
        generation(row.ok_or(Error::NotFound("generation"))?, Some(id.0))
    }

    pub async fn generation_key(&self, id: GenerationId) -> Result<GenerationKey> {
        let mut tx = self.db.look().await?;
        let found: Option<KeyRow> = tx.query(KEY).bind(id).optional().await?;
        found.map(key).ok_or(Error::NotFound("generation"))
    }

    /// The generation that a job made of a video, if it has published one.
    pub async fn generation_of_job(&self, video: VideoId, job: JobId) -> Result<Option<GenerationKey>> {
        let mut tx = self.db.look().await?;
        let found: Option<KeyRow> = tx.query(KEY_OF_JOB).bind(video).bind(job).optional().await?;
        Ok(found.map(key))
    }

    /// Of a generation's manifest, which may have megabytes, what is asked for.
    pub async fn manifest<T: DeserializeOwned>(&self, id: GenerationId) -> Result<T> {
        let mut tx = self.db.read().await?;
        let found: Option<(String,)> = tx.query(MANIFEST).bind(id).optional().await?;
        let (manifest,) = found.ok_or(Error::NotFound("generation"))?;
        Ok(serde_json::from_str(&manifest)?)
    }
}

type KeyRow = (i64, i64, i64);

fn key((id, job, created_at): KeyRow) -> GenerationKey {
    GenerationKey { id: GenerationId(id), job: JobId(job), created_at }
}

type GenerationRow = (i64, i64, i64, String);

fn generation((id, job, created_at, manifest): GenerationRow, current: Option<i64>) -> Result<Generation> {
    Ok(Generation {
        id: GenerationId(id),
        job: JobId(job),
        created_at,
        is_current: current == Some(id),
        manifest: serde_json::from_str(&manifest)?,
    })
}

async fn one(tx: &mut Tx, row: Option<Row>) -> Result<Entry> {
    entries(tx, row.into_iter().collect()).await?.pop().ok_or(Error::NotFound("video"))
}

async fn entries(tx: &mut Tx, rows: Vec<Row>) -> Result<Vec<Entry>> {
    let kept: Vec<i64> =
        rows.iter().filter(|row| row.job_id > row.archived_id).filter_map(|row| row.job_id).collect();
    let archived: Vec<i64> =
        rows.iter().filter(|row| row.job_id < row.archived_id).filter_map(|row| row.archived_id).collect();
    let mut states: HashMap<JobId, rules::job::State> = HashMap::new();
    if !kept.is_empty() {
        let outcomes: Vec<(i64, Option<String>)> = tx.query(OUTCOMES).ids(kept).all().await?;
        let is_cancelled = |outcome: Option<String>| outcome.as_deref() == Some(Outcome::Cancelled.as_str());
        let jobs: Vec<_> =
            outcomes.into_iter().map(|(id, outcome)| (JobId(id), is_cancelled(outcome))).collect();
        states = job::states_of(tx, &jobs).await?;
    }
    if !archived.is_empty() {
        let ended: Vec<(i64, String)> = tx.query(ARCHIVED).ids(archived).all().await?;
        for (id, outcome) in ended {
            states.insert(JobId(id), outcome.parse::<Outcome>()?.state());
        }
    }
    Ok(rows.into_iter().map(|row| entry(row, &states)).collect())
}

fn entry(row: Row, states: &HashMap<JobId, rules::job::State>) -> Entry {
    let job = row.job_id.max(row.archived_id).map(JobId);
    let generation = row.generation_id.map(GenerationId);
    let is_deleted = row.deleted_at.is_some();
    let video = Video { generation, job: job.and_then(|job| states.get(&job).copied()), is_deleted };
    Entry {
        id: VideoId(row.id),
        state: video.state(),
        generation,
        job,
        slug: row.slug,
        title: row.title,
        user: row.user_id,
        is_early_playback: row.is_early_playback,
        pool: row.pool,
        source_bytes: row.source_bytes,
        source_sha256: row.source_hash,
        created_at: row.created_at,
        updated_at: row.updated_at,
        deleted_at: row.deleted_at,
        source: row.source,
        settings: row.settings,
    }
}

/// For LIKE: what was typed is looked for as it is.
fn escaped(text: &str) -> String {
    let text = text.to_lowercase();
    text.chars().flat_map(|c| ['%', '_', '!'].contains(&c).then_some('!').into_iter().chain([c])).collect()
}
