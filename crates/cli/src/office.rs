//! The place that is asked: a database, or a server. Commands are written once and do not know which.
//!
//! | file | what is asked there |
//! | --- | --- |
//! | `jobs`, `videos`, `workers`, `sessions` | one question for each endpoint, with the same answer from both |
//! | `server`, `fault` | one request, and what an answer comes to that is not the one asked for |
//! | `bell` | when to look again: a server tells by its events |
//! | `upload` | a video on its way to a server |

mod bell;
mod fault;
mod jobs;
mod server;
mod sessions;
mod upload;
mod videos;
mod workers;

use crate::settings::{Settings, Usage};
pub use bell::Bell;
pub use fault::Fault;
pub use server::Server;
use store::Store;
pub use upload::Upload;

pub enum Office {
    Database(Box<Database>),
    Server(Server),
}

pub struct Database {
    store: Store,
    settings: Settings,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Server(#[from] Fault),
    /// What the server's own code says when it is used without the server.
    #[error(transparent)]
    Refused(#[from] ::server::Error),
    #[error(transparent)]
    Settings(anyhow::Error),
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Whether the same question may be answered in a moment.
    pub fn is_unavailable(&self) -> bool {
        match self {
            Error::Store(error) => error.is_unavailable(),
            Error::Server(fault) => fault.is_away(),
            _ => false,
        }
    }

    /// Whether typing something else would mend it.
    pub fn is_usage(&self) -> bool {
        match self {
            Error::Store(error) => matches!(error, store::Error::BadSpec(_) | store::Error::Invalid(_)),
            Error::Server(fault) => fault.is_usage(),
            Error::Refused(error) => {
                matches!(error, ::server::Error::Invalid(_) | ::server::Error::Unprocessable { .. })
            }
            Error::Settings(error) => error.is::<Usage>(),
        }
    }
}

impl Database {
    /// Tells those who wait for work, for this program ends before it would carry hints.
    async fn tell(&self) {
        self.store.wake().send().await;
    }
}

impl Office {
    /// The server that was named, or else a database, which must be there.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        match settings.server()? {
            Some(address) => Office::at(address, settings),
            None => Ok(Office::of(settings.open_existing().await?, settings)),
        }
    }

    /// As [`Office::open`]; a database in a file is made if there is none.
    pub async fn open_or_make(settings: &Settings) -> anyhow::Result<Self> {
        match settings.server()? {
            Some(address) => Office::at(address, settings),
            None => Ok(Office::of(settings.open().await?, settings)),
        }
    }

    fn at(address: worker::remote::Address, settings: &Settings) -> anyhow::Result<Self> {
        let secret = settings.admin_secret.as_deref().ok_or_else(|| {
            let how = "give it as VODMILL_ADMIN_SECRET; `vodmill serve` showed it at its first start";
            Usage(format!("the server at {address} wants the admin's secret: {how}"))
        })?;
        Ok(Office::Server(Server::new(address, secret)?))
    }

    fn of(store: Store, settings: &Settings) -> Self {
        Office::Database(Box::new(Database { store, settings: settings.clone() }))
    }

    /// The clock by which everything else that is shown was written, in milliseconds.
    pub async fn now(&self) -> Result<i64> {
        match self {
            Office::Database(here) => Ok(here.store.now().await?.0),
            Office::Server(there) => Ok(there.now()),
        }
    }

    /// The server's address, if it is one.
    pub fn address(&self) -> Option<String> {
        match self {
            Office::Database(_) => None,
            Office::Server(there) => Some(there.address()),
        }
    }

    /// A path of the server's as it can be opened from here.
    pub fn place_of(&self, path: &str) -> String {
        format!("{}{path}", self.address().unwrap_or_default())
    }
}
