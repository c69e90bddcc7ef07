//! Videos and their generations: a pointer that moves at a commit, and can be moved back.

use crate::Store;
use crate::audit::{self, AuditRow};
use crate::db::{Step, Tx, again};
use crate::error::{Error, Result};
use crate::from_row::row;
use crate::job;
use crate::wake::Topic;
use rules::job::Outcome;
use rules::video::{Command, State, Video};
use rules::{GenerationId, JobId, VideoId};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap};
use wire::{Arrival, Rendition};

#[derive(Debug, Clone, Default)]
pub struct NewVideo {
    pub slug: String,
    pub title: String,
    pub user: String,
    pub source: Option<String>,
    pub source_hash: Option<String>,
    pub source_bytes: Option<i64>,
    /// What is asked for, as JSON, so that it can be asked for again.
    pub settings: Option<String>,
    /// It may be watched while it is being made.
    pub is_early_playback: bool,
    /// The pool whose remote workers make it.
    pub pool: Option<String>,
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
INSERT INTO video (slug, title, user_id, source, source_hash, source_bytes, settings, is_early_playback, created_at,
                   updated_at, pool)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $10)
ON CONFLICT (slug) DO NOTHING
RETURNING id";

const ARRIVED: &str = "
UPDATE video SET source_hash = $1, source_bytes = $2, updated_at = $3
WHERE id = (SELECT video_id FROM job WHERE id = $4)";

const LOCK: &str = "SELECT id, slug, title, generation_id, deleted_at FROM video WHERE id = $1 FOR UPDATE";

const LOCK_ALL: &str = "
SELECT v.id, v.deleted_at
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN video v ON v.id = r.id
ORDER BY v.id
FOR UPDATE OF v";

const FIND: &str = "SELECT id, slug, title, generation_id, deleted_at FROM video WHERE id = $1";

const NEWEST_JOB: &str = "SELECT id FROM job WHERE video_id = $1 ORDER BY id DESC LIMIT 1";

const NEWEST_ARCHIVED: &str = "
SELECT job_id, outcome FROM job_archive WHERE video_id = $1 ORDER BY job_id DESC LIMIT 1";

const OPEN_JOBS: &str = "SELECT id FROM job WHERE video_id = $1 AND outcome IS NULL ORDER BY id";

const POINT: &str = "
UPDATE video SET generation_id = $1, deleted_at = $2, updated_at = $3 WHERE id = $4";

/// What refers to a video, and then the video.
const PURGE: [&str; 5] = [
    "DELETE FROM rendition WHERE generation_id IN (SELECT id FROM generation WHERE video_id = $1)",
    "DELETE FROM generation WHERE video_id = $1",
    crate::caption::DELETE_ALL,
    "UPDATE job SET video_id = NULL WHERE video_id = $1",
    "DELETE FROM video WHERE id = $1",
];

row! {
    struct VideoRow {
        id: i64,
        slug: String,
        title: String,
        generation_id: Option<i64>,
        deleted_at: Option<i64>,
    }
}

impl Store {
    pub async fn create_video(&self, new: &NewVideo) -> Result<VideoId> {
        again(|| self.create_video_once(new)).await
    }

    async fn create_video_once(&self, new: &NewVideo) -> Result<VideoId> {
        let mut tx = self.db.write(Step::CreateVideo).await?;
        let id = insert(&mut tx, new).await?;
        tx.commit().await?;
        Ok(id)
    }

    pub async fn find_video(&self, slug: &str) -> Result<Option<VideoId>> {
        const BY_SLUG: &str = "SELECT id FROM video WHERE slug = $1";
        let found: Option<(i64,)> = self.db.read().await?.query(BY_SLUG).bind(slug).optional().await?;
        Ok(found.map(|(id,)| VideoId(id)))
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
            let mut tx = self.db.write(Step::Rollback).await?;
            let known: Option<(i64,)> = tx.query(OF_VIDEO).bind(to).bind(id).optional().await?;
            known.ok_or(Error::NotFound("generation of this video"))?;
            step(&mut tx, id, Command::Rollback(to), None).await?;
            tx.commit().await
        })
        .await?;
        self.wake.up(Topic::Event);
        Ok(())
    }

    /// Hides a video and cancels its jobs; its files stay until it is purged. Should this be killed in between, the
    /// jobs run on, and publish nothing.
    pub async fn delete_video(&self, id: VideoId) -> Result<()> {
        self.change_video(id, Command::Delete).await?;
        let mut read = self.db.read().await?;
        let open: Vec<(i64,)> = read.query(OPEN_JOBS).bind(id).all().await?;
        drop(read);
        for (job,) in open {
            match self.cancel(JobId(job), None).await {
                Ok(()) | Err(Error::Refused(_) | Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    pub async fn restore_video(&self, id: VideoId) -> Result<()> {
        self.change_video(id, Command::Restore).await
    }

    /// Forgets a deleted video for good, with its generations and captions; its files are the caller's to remove first.
    pub async fn purge_video(&self, id: VideoId) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::PurgeVideo).await?;
            let (row, _) = load(&mut tx, LOCK, id).await?;
            if row.deleted_at.is_none() {
                return Err(rules::video::Refusal::NotDeleted.into());
            }
            for forget in PURGE {
                tx.query(forget).bind(id).execute().await?;
            }
            let note = format!("video {id}: forgotten");
            let row = AuditRow::of_video(id, None, "user", "purge", note, tx.now());
            audit::insert(&mut tx, &[row]).await?;
            tx.commit().await
        })
        .await
    }

    /// Remembers what is asked for from now on.
    pub async fn set_video_settings(&self, id: VideoId, settings: &str) -> Result<()> {
        const SET: &str = "UPDATE video SET settings = $1, updated_at = $2 WHERE id = $3";
        again(|| async {
            let mut tx = self.db.write(Step::SetVideoSettings).await?;
            let now = tx.now();
            tx.query(SET).bind(settings).bind(now).bind(id).execute().await?;
            tx.commit().await
        })
        .await
    }

    async fn change_video(&self, id: VideoId, command: Command) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::ChangeVideo).await?;
            step(&mut tx, id, command, None).await?;
            tx.commit().await
        })
        .await?;
        self.wake.up(Topic::Event);
        Ok(())
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

pub(crate) async fn insert(tx: &mut Tx, new: &NewVideo) -> Result<VideoId> {
    let now = tx.now();
    let made: Option<(i64,)> = tx
        .query(INSERT)
        .bind(new.slug.as_str())
        .bind(new.title.as_str())
        .bind(new.user.as_str())
        .bind(new.source.clone())
        .bind(new.source_hash.clone())
        .bind(new.source_bytes)
        .bind(new.settings.clone())
        .bind(new.is_early_playback)
        .bind(now)
        .bind(new.pool.clone())
        .optional()
        .await?;
    let (id,) = made.ok_or_else(|| Error::Taken(new.slug.clone()))?;
    Ok(VideoId(id))
}

/// The file that the job's video is made of has come.
pub(crate) async fn arrived(tx: &mut Tx, job: JobId, arrival: &Arrival) -> Result<()> {
    let now = tx.now();
    tx.query(ARRIVED)
        .bind(arrival.sha256.as_str())
        .bind(i64::try_from(arrival.bytes).unwrap_or(i64::MAX))
        .bind(now)
        .bind(job)
        .execute()
        .await?;
    Ok(())
}

/// A video that is to get a job or a generation.
pub(crate) struct Locked {
    pub is_deleted: bool,
}

/// Locks those of these videos that exist, in order of id. Comes after jobs and tasks.
pub(crate) async fn lock_all(
    tx: &mut Tx,
    videos: impl IntoIterator<Item = VideoId>,
) -> Result<HashMap<VideoId, Locked>> {
    let ids: BTreeSet<i64> = videos.into_iter().map(|video| video.0).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let rows: Vec<(i64, Option<i64>)> = tx.query(LOCK_ALL).ids(ids).all().await?;
    Ok(rows.into_iter().map(|(id, at)| (VideoId(id), Locked { is_deleted: at.is_some() })).collect())
}

async fn load(tx: &mut Tx, select: &'static str, id: VideoId) -> Result<(VideoRow, Video)> {
    let row: VideoRow = tx.query(select).bind(id).optional().await?.ok_or(Error::NotFound("video"))?;
    let job = newest_job(tx, row.id).await?;
    let video =
        Video { generation: row.generation_id.map(GenerationId), job, is_deleted: row.deleted_at.is_some() };
    Ok((row, video))
}

/// The state of the newest job on a video, archived or not.
async fn newest_job(tx: &mut Tx, video: i64) -> Result<Option<rules::job::State>> {
    let kept: Option<(i64,)> = tx.query(NEWEST_JOB).bind(video).optional().await?;
    let archived: Option<(i64, String)> = tx.query(NEWEST_ARCHIVED).bind(video).optional().await?;
    match (kept, archived) {
        (Some((kept,)), archived) if archived.as_ref().is_none_or(|(job, _)| *job < kept) => {
            Ok(Some(job::state_of(tx, JobId(kept)).await?))
        }
        (_, Some((_, outcome))) => Ok(Some(outcome.parse::<Outcome>()?.state())),
        (_, None) => Ok(None),
    }
}

/// Load, decide, save, for one video.
pub(crate) async fn step(tx: &mut Tx, id: VideoId, command: Command, job: Option<JobId>) -> Result<()> {
    let (row, before) = load(tx, LOCK, id).await?;
    let after = rules::video::decide(&before, command)?;
    let now = tx.now();
    let deleted_at = after.is_deleted.then(|| row.deleted_at.unwrap_or(now.0));
    let generation = after.generation.map(|generation| generation.0);
    tx.query(POINT).bind(generation).bind(deleted_at).bind(now).bind(id).execute().await?;
    let note = format!("video {id}: {} → {}", shown(before), shown(after));
    let role = if job.is_some() { "worker" } else { "user" };
    audit::insert(tx, &[AuditRow::of_video(id, job, role, command.name(), note, now)]).await
}

fn shown(video: Video) -> String {
    let deleted = if video.is_deleted { ", deleted" } else { "" };
    match video.generation {
        Some(generation) => format!("{} (generation {generation}{deleted})", video.state()),
        None => format!("{}{deleted}", video.state()),
    }
}
