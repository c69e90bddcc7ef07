//! Videos, asked for in one way.

use super::{Database, Error, Office, Result};
use ::server::api::videos::{Begun, Retranscode, VideoDetail, again, called};
use ::server::{Ingest, Page};
use reqwest::Method;
use rules::{GenerationId, JobId};
use serde_json::json;
use std::sync::Arc;
use store::catalogue::{Entry, Filter};

/// A video is named by its number or its slug.
impl Office {
    pub async fn videos(&self, filter: &Filter) -> Result<Vec<Entry>> {
        let there = match self {
            Office::Database(here) => return Ok(here.store.videos(filter).await?),
            Office::Server(there) => there,
        };
        let query = [
            ("search", filter.search.clone()),
            ("state", filter.state.map(|state| state.to_string())),
            ("deleted", Some(filter.deleted.to_string())),
            ("before", filter.before.map(|video| video.to_string())),
            ("limit", filter.limit.map(|limit| limit.clamp(1, 1000).to_string())),
        ];
        Ok(there.get::<Page<Entry>>(["videos"], &query).await?.items)
    }

    pub async fn video(&self, name: &str) -> Result<VideoDetail> {
        match self {
            Office::Database(here) => {
                Ok(VideoDetail::of(&here.store, called(&here.store, name).await?).await?)
            }
            Office::Server(there) => Ok(there.get(["videos", name], &[]).await?),
        }
    }

    pub async fn delete_video(&self, name: &str) -> Result<Entry> {
        match self {
            Office::Database(here) => {
                let video = called(&here.store, name).await?;
                here.store.delete_video(video.id).await?;
            }
            Office::Server(there) => {
                there.send(there.request(Method::DELETE, ["videos", name])).await?;
            }
        }
        Ok(self.video(name).await?.video)
    }

    pub async fn restore_video(&self, name: &str) -> Result<Entry> {
        match self {
            Office::Database(here) => {
                let video = called(&here.store, name).await?;
                here.store.restore_video(video.id).await?;
                Ok(here.store.entry(video.id).await?)
            }
            Office::Server(there) => Ok(there.post(["videos", name, "restore"], &json!({})).await?),
        }
    }

    pub async fn roll_back_video(&self, name: &str, to: GenerationId) -> Result<Entry> {
        match self {
            Office::Database(here) => {
                let video = called(&here.store, name).await?;
                here.store.rollback_video(video.id, to).await?;
                Ok(here.store.entry(video.id).await?)
            }
            Office::Server(there) => {
                Ok(there.post(["videos", name, "rollback"], &json!({ "generation": to })).await?)
            }
        }
    }

    /// Makes a new generation; its job.
    pub async fn retranscode(&self, name: &str, asked: Retranscode) -> Result<JobId> {
        match self {
            Office::Database(here) => {
                let video = called(&here.store, name).await?;
                Ok(again(&here.store, &here.ingest().await?, &video, asked).await?)
            }
            Office::Server(there) => {
                let begun: Begun = there.post(["videos", name, "retranscode"], &asked).await?;
                Ok(JobId(begun.job))
            }
        }
    }
}

impl Database {
    /// Of a job that has made no files, no data folder is looked at.
    pub(super) async fn retry(&self, job: JobId) -> Result<JobId> {
        if self.store.committed_files(job).await?.is_empty() {
            self.store.retry_job(job, None).await?;
            return Ok(job);
        }
        let data = self.settings.data().map_err(Error::Settings)?;
        let ours = server::identity::check(&self.store, &data).await;
        ours.map_err(|mismatch| Error::Settings(crate::command::serve::refused(mismatch)))?;
        Ok(server::inventory::retry(&self.store, &data, job, None).await?)
    }

    /// The server's own way of making jobs, over its folder.
    async fn ingest(&self) -> Result<Ingest> {
        let data = self.settings.data().map_err(Error::Settings)?;
        let ours = server::identity::check(&self.store, &data).await;
        ours.map_err(|mismatch| Error::Settings(crate::command::serve::refused(mismatch)))?;
        let options = self.settings.server_options().map_err(Error::Settings)?;
        Ok(Ingest::new(self.store.clone(), data, Arc::new(options)))
    }
}
