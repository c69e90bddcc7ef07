//! Workers, asked for in one way.

use super::{Office, Result};
use ::server::api::workers::{Revoked, WorkerStatus, let_in, shut_out};
use rules::WorkerId;
use rules::worker::Command;
use serde_json::json;
use store::worker::View;
use wire::http::{Registered, Registration};

impl Office {
    pub async fn workers(&self, all: bool) -> Result<Vec<View>> {
        match self {
            Office::Database(here) => Ok(here.store.workers(all).await?),
            Office::Server(there) => Ok(there.get(["workers"], &[("all", Some(all.to_string()))]).await?),
        }
    }

    /// What the worker is after this word.
    pub async fn tell_worker(&self, worker: WorkerId, command: Command) -> Result<String> {
        let there = match self {
            Office::Database(here) => {
                return Ok(here.store.manage_worker(worker, command).await?.to_string());
            }
            Office::Server(there) => there,
        };
        let word = match command {
            Command::Drain => "drain",
            Command::Disable => "disable",
            _ => "enable",
        };
        let told: WorkerStatus = there.post(["workers", &worker.to_string(), word], &json!({})).await?;
        Ok(told.status)
    }

    pub async fn register(&self, asked: Registration) -> Result<Registered> {
        match self {
            Office::Database(here) => Ok(let_in(&here.store, asked).await?),
            Office::Server(there) => Ok(there.post(["worker", "register"], &asked).await?),
        }
    }

    pub async fn revoke(&self, worker: WorkerId) -> Result<Revoked> {
        match self {
            Office::Database(here) => Ok(shut_out(&here.store, worker).await?),
            Office::Server(there) => {
                Ok(there.post(["workers", &worker.to_string(), "revoke"], &json!({})).await?)
            }
        }
    }
}
