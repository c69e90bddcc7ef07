//! Publishing: the commit of a task gives its job's video a new generation, or fails for good with the reason.

use crate::alert::{self, Alert, Kind};
use crate::db::Tx;
use crate::error::Result;
use crate::video;
use rules::video::{Command, Refusal};
use rules::{GenerationId, JobId, TaskId, VideoId};
use serde_json::json;
use std::collections::{BTreeSet, HashMap, HashSet};
use wire::{Commit, Publication};

const ABOUT: &str = "
SELECT j.id, j.video_id
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job j ON j.id = r.id";

const NEW_GENERATION: &str = "
INSERT INTO generation (video_id, job_id, task_id, manifest, created_at) VALUES ($1, $2, $3, $4, $5)
RETURNING id";

const NEW_RENDITIONS: &str = "
INSERT INTO rendition (generation_id, name, codec, width, height, bandwidth, bytes)
SELECT $1, r.name, r.codec, r.width, r.height, r.bandwidth, r.bytes
FROM json_to_recordset($2::json) AS r(name TEXT, codec TEXT, width BIGINT, height BIGINT, bandwidth BIGINT, bytes BIGINT)";

/// What the publications of a batch are judged by. Their videos stay locked until its end: so generations are
/// numbered in the order in which the pointer moves.
#[derive(Default)]
pub(crate) struct Shelf {
    /// The video that each job is about.
    about: HashMap<JobId, VideoId>,
    deleted: HashSet<VideoId>,
}

impl Shelf {
    pub async fn of(tx: &mut Tx, commits: &[Commit]) -> Result<Self> {
        let publishing = commits.iter().filter(|commit| commit.publication.is_some());
        let jobs: BTreeSet<i64> = publishing.map(|commit| commit.proof.task.job().0).collect();
        if jobs.is_empty() {
            return Ok(Shelf::default());
        }
        let rows: Vec<(i64, Option<i64>)> = tx.query(ABOUT).ids(jobs).all().await?;
        let about: HashMap<JobId, VideoId> =
            rows.into_iter().filter_map(|(job, video)| Some((JobId(job), VideoId(video?)))).collect();
        let locked = video::lock_all(tx, about.values().copied()).await?;
        let deleted = locked.into_iter().filter(|(_, video)| video.is_deleted).map(|(id, _)| id).collect();
        Ok(Shelf { about, deleted })
    }

    /// What is wrong with a publication, in a person's words.
    pub fn check(&self, task: TaskId, publication: &Publication) -> Result<(), String> {
        let wanted = publication.video;
        match self.about.get(&task.job()) {
            None => return Err(format!("it would publish video {wanted}, and its job is about none")),
            Some(video) if *video != wanted => {
                return Err(format!("it would publish video {wanted}, and its job is about video {video}"));
            }
            Some(video) if self.deleted.contains(video) => return Err(Refusal::Deleted.to_string()),
            Some(_) => {}
        }
        let mut names = HashSet::new();
        match publication.renditions.iter().find(|rendition| !names.insert(&rendition.name)) {
            Some(twice) => Err(format!("it would publish two renditions called `{}`", twice.name)),
            None => Ok(()),
        }
    }
}

/// Makes a new generation and moves the pointer to it, in the transaction that commits `task`.
pub(crate) async fn generation(tx: &mut Tx, task: TaskId, publication: &Publication) -> Result<GenerationId> {
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
    video::step(tx, publication.video, Command::Publish(GenerationId(id)), Some(task.job())).await?;
    let ready = ready(tx, task.job(), publication.video, id).await?;
    alert::raise(tx, vec![ready]).await?;
    Ok(GenerationId(id))
}

async fn ready(tx: &mut Tx, job: JobId, video: VideoId, generation: i64) -> Result<Alert> {
    const SHOWN: &str = "SELECT slug, title FROM video WHERE id = $1";
    let (slug, title): (String, String) = tx.query(SHOWN).bind(video).one().await?;
    Ok(Alert {
        kind: Kind::VideoReady,
        key: format!("{video}_{generation}"),
        job: Some(job),
        data: json!({ "video": video, "slug": slug, "title": title, "generation": generation, "job": job }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Rendition;

    fn publication(video: i64, names: &[&str]) -> Publication {
        let rendition = |name: &&str| Rendition {
            name: (*name).into(),
            codec: "avc1".into(),
            width: None,
            height: None,
            bandwidth: None,
            bytes: 1,
        };
        let renditions = names.iter().map(rendition).collect();
        Publication { video: VideoId(video), manifest: json!({}), renditions }
    }

    #[test]
    fn only_the_jobs_own_video_is_published_and_only_while_it_is_there() {
        let about = HashMap::from([(JobId(1), VideoId(7)), (JobId(2), VideoId(8))]);
        let shelf = Shelf { about, deleted: HashSet::from([VideoId(8)]) };
        let check = |job, video| shelf.check(TaskId::new(JobId(job), 0), &publication(video, &["a", "b"]));

        assert_eq!(check(1, 7), Ok(()));
        assert!(check(1, 8).unwrap_err().contains("its job is about video 7"));
        assert!(check(2, 8).unwrap_err().contains("deleted"));
        assert!(check(3, 7).unwrap_err().contains("its job is about none"));
        let twice = shelf.check(TaskId::new(JobId(1), 0), &publication(7, &["a", "b", "a"]));
        assert!(twice.unwrap_err().contains("two renditions called `a`"));
    }
}
