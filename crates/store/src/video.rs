//! Videos and their generations: a pointer that moves at a commit, and can be moved back.

use crate::Store;
use crate::audit::{self, AuditRow};
use crate::db::{Step, Tx, again};
use crate::error::{Error, Result};
use crate::job;
use rules::video::{Command, State, Video};
use rules::{GenerationId, JobId, TaskId, VideoId};
use serde::Serialize;
use wire::{Publication, Rendition};

#[derive(Debug, Clone, Default)]
pub struct NewVideo {
    pub slug: String,
    pub title: String,
    pub user: String,
    pub source: Option<String>,
    pub source_hash: Option<String>,
    pub source_bytes: Option<i64>,
}

/// A video as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct View {
    pub id: VideoId,
    pub slug: String,
    pub title: String,
    pub state: State,
    pub generation: Option<GenerationId>,
    pub is_deleted: bool,
}

const INSERT: &str = "
INSERT INTO video (slug, title, user_id, source, source_hash, source_bytes, created_at, updated_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
ON CONFLICT (slug) DO NOTHING
RETURNING id";

const LOCK: &str = "SELECT id, slug, title, generation_id, deleted_at FROM video WHERE id = $1 FOR UPDATE";

const FIND: &str = "SELECT id, slug, title, generation_id, deleted_at FROM video WHERE id = $1";

const NEWEST_JOB: &str = "SELECT id FROM job WHERE video_id = $1 ORDER BY id DESC LIMIT 1";

const NEW_GENERATION: &str = "
INSERT INTO generation (video_id, job_id, task_id, manifest, created_at) VALUES ($1, $2, $3, $4, $5)
RETURNING id";

const NEW_RENDITIONS: &str = "
INSERT INTO rendition (generation_id, name, codec, width, height, bandwidth, bytes)
SELECT $1, r.name, r.codec, r.width, r.height, r.bandwidth, r.bytes
FROM json_to_recordset($2::json) AS r(name TEXT, codec TEXT, width BIGINT, height BIGINT, bandwidth BIGINT, bytes BIGINT)";

const POINT: &str = "
UPDATE video SET generation_id = $1, deleted_at = $2, updated_at = $3 WHERE id = $4";

#[derive(sqlx::FromRow)]
struct VideoRow {
    id: i64,
    slug: String,
    title: String,
    generation_id: Option<i64>,
    deleted_at: Option<i64>,
}

impl Store {
    pub async fn create_video(&self, new: &NewVideo) -> Result<VideoId> {
        again(|| self.create_video_once(new)).await
    }

    async fn create_video_once(&self, new: &NewVideo) -> Result<VideoId> {
        let mut tx = self.db.write(Step::Video).await?;
        let now = tx.now();
        let made: Option<(i64,)> = tx
            .query(INSERT)
            .bind(new.slug.as_str())
            .bind(new.title.as_str())
            .bind(new.user.as_str())
            .bind(new.source.clone())
            .bind(new.source_hash.clone())
            .bind(new.source_bytes)
            .bind(now)
            .optional()
            .await?;
        let (id,) = made.ok_or_else(|| Error::Invalid(format!("the slug `{}` is taken", new.slug)))?;
        tx.commit().await?;
        Ok(VideoId(id))
    }

    pub async fn video(&self, id: VideoId) -> Result<View> {
        let mut tx = self.db.read().await?;
        let (row, video) = load(&mut tx, FIND, id).await?;
        Ok(View {
            id,
            slug: row.slug,
            title: row.title,
            state: video.state(),
            generation: video.generation,
            is_deleted: video.is_deleted,
        })
    }

    /// Moves the pointer back to an older generation of the same video.
    pub async fn rollback_video(&self, id: VideoId, to: GenerationId) -> Result<()> {
        const OF_VIDEO: &str = "SELECT id FROM generation WHERE id = $1 AND video_id = $2";
        again(|| async {
            let mut tx = self.db.write(Step::Publish).await?;
            let known: Option<(i64,)> = tx.query(OF_VIDEO).bind(to).bind(id).optional().await?;
            known.ok_or(Error::NotFound("generation of this video"))?;
            step(&mut tx, id, Command::Rollback(to), None).await?;
            tx.commit().await
        })
        .await
    }

    /// Hides a video; its files stay until it is purged.
    pub async fn delete_video(&self, id: VideoId) -> Result<()> {
        self.change_video(id, Command::Delete).await
    }

    pub async fn restore_video(&self, id: VideoId) -> Result<()> {
        self.change_video(id, Command::Restore).await
    }

    async fn change_video(&self, id: VideoId, command: Command) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::Video).await?;
            step(&mut tx, id, command, None).await?;
            tx.commit().await
        })
        .await
    }

    pub async fn renditions(&self, generation: GenerationId) -> Result<Vec<Rendition>> {
        const OF_GENERATION: &str = "
SELECT name, codec, width, height, bandwidth, bytes FROM rendition WHERE generation_id = $1 ORDER BY name";
        let mut tx = self.db.read().await?;
        type Row = (String, String, Option<i64>, Option<i64>, Option<i64>, i64);
        let rows: Vec<Row> = tx.query(OF_GENERATION).bind(generation).all().await?;
        let rendition = |(name, codec, width, height, bandwidth, bytes)| Rendition {
            name,
            codec,
            width,
            height,
            bandwidth,
            bytes,
        };
        Ok(rows.into_iter().map(rendition).collect())
    }
}

/// The job's commit: a new generation, and the pointer to it, in the transaction that commits `task`.
pub(crate) async fn publish(tx: &mut Tx, task: TaskId, publication: &Publication) -> Result<GenerationId> {
    let now = tx.now();
    let (id,): (i64,) = tx
        .query(NEW_GENERATION)
        .bind(publication.video)
        .bind(task.job())
        .bind(task)
        .bind(publication.manifest.to_string())
        .bind(now)
        .one()
        .await?;
    tx.query(NEW_RENDITIONS).bind(id).rows(&publication.renditions).execute().await?;
    step(tx, publication.video, Command::Publish(GenerationId(id)), Some(task.job())).await?;
    Ok(GenerationId(id))
}

async fn load(tx: &mut Tx, select: &'static str, id: VideoId) -> Result<(VideoRow, Video)> {
    let row: VideoRow = tx.query(select).bind(id).optional().await?.ok_or(Error::NotFound("video"))?;
    let newest: Option<(i64,)> = tx.query(NEWEST_JOB).bind(row.id).optional().await?;
    let state = match newest {
        Some((job,)) => Some(job::state_of(tx, JobId(job)).await?),
        None => None,
    };
    let video = Video {
        generation: row.generation_id.map(GenerationId),
        job: state,
        is_deleted: row.deleted_at.is_some(),
    };
    Ok((row, video))
}

async fn step(tx: &mut Tx, id: VideoId, command: Command, job: Option<JobId>) -> Result<()> {
    let (row, before) = load(tx, LOCK, id).await?;
    let after = rules::video::decide(&before, command)?;
    let now = tx.now();
    let deleted_at = after.is_deleted.then(|| row.deleted_at.unwrap_or(now.0));
    let generation = after.generation.map(|generation| generation.0);
    tx.query(POINT).bind(generation).bind(deleted_at).bind(now).bind(id).execute().await?;
    let note = format!("video {id}: {} → {}", shown(before), shown(after));
    let role = if job.is_some() { "worker" } else { "user" };
    audit::insert(tx, &[AuditRow::of_video(job, role, command.name(), note, now)]).await
}

fn shown(video: Video) -> String {
    let deleted = if video.is_deleted { ", deleted" } else { "" };
    match video.generation {
        Some(generation) => format!("{} (generation {generation}{deleted})", video.state()),
        None => format!("{}{deleted}", video.state()),
    }
}
