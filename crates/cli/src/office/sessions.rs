//! Sessions of the server's page, asked for in one way.

use super::{Office, Result};
use ::server::SessionsEnded;
use reqwest::Method;
use store::session::Session;

impl Office {
    pub async fn sessions(&self) -> Result<Vec<Session>> {
        match self {
            Office::Database(here) => Ok(here.store.sessions(None).await?),
            Office::Server(there) => Ok(there.get(["sessions"], &[]).await?),
        }
    }

    pub async fn end_session(&self, id: &str) -> Result<()> {
        match self {
            Office::Database(here) => Ok(here.store.end_session(id).await?),
            Office::Server(there) => {
                there.send(there.request(Method::DELETE, ["sessions", id])).await?;
                Ok(())
            }
        }
    }

    /// Ends all; how many there were.
    pub async fn end_sessions(&self) -> Result<u64> {
        match self {
            Office::Database(here) => Ok(here.store.end_sessions().await?),
            Office::Server(there) => {
                let done: SessionsEnded = there.ask(there.request(Method::DELETE, ["sessions"])).await?;
                Ok(done.ended)
            }
        }
    }
}
