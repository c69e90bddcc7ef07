//! One Redis: asked through one connection, left alone for a while when it fails, and asked again.

use crate::names::Names;
use crate::{Mode, jitter};
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, Pipeline, RedisError};
use rules::breaker::Breaker;
use std::sync::Arc;
use std::time::Duration;
use telemetry::metrics::REDIS_UP;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, timeout};

/// For a connection, and for an answer. What is slower is of no use: a poll would have been as quick.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is asked whether it is well.
const PULSE: Duration = Duration::from_secs(2);

/// It holds no password: messages name the host alone.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error(
        "the Redis URL cannot be read: {0}; it looks like redis://:PASSWORD@HOST:6379/0, or rediss:// with TLS"
    )]
    Url(String),
    #[error("cannot use Redis at {at}: {why}")]
    Away { at: String, why: String },
    /// The streams were never made, or somebody has emptied Redis.
    #[error("the streams of hints are not there")]
    NoStreams,
}

/// Clones are one and the same.
#[derive(Clone)]
pub struct Redis(Arc<Inner>);

struct Inner {
    client: Client,
    /// Where it is, for people.
    at: String,
    /// This process among all that use it.
    id: String,
    names: Names,
    breaker: Breaker,
    connection: Mutex<Option<MultiplexedConnection>>,
    is_up: watch::Sender<bool>,
}

impl Redis {
    /// Reaches the Redis at `url`. One that does not answer is an error where hints rest on it; elsewhere it is
    /// waited for, and the log says so.
    pub async fn open(url: &str, prefix: &str, mode: Mode) -> Result<Redis, Error> {
        let client = Client::open(url).map_err(|error| Error::Url(error.to_string()))?;
        let at = client.get_connection_info().addr().to_string();
        if matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. }) {
            outbound::choose_tls();
        }
        let redis = Redis(Arc::new(Inner {
            client,
            at,
            id: format!("{}-{:08x}", std::process::id(), rand::random::<u32>()),
            names: Names::new(prefix),
            breaker: Breaker::default(),
            connection: Mutex::default(),
            is_up: watch::Sender::new(false),
        }));
        match redis.beat().await {
            Err(error) if mode == Mode::Redis => return Err(error),
            Err(error) => tracing::warn!("{error}; {}", meanwhile(mode)),
            Ok(()) => {}
        }
        Ok(redis)
    }

    pub(crate) fn names(&self) -> &Names {
        &self.0.names
    }

    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    /// Whether it answered lately.
    pub fn is_up(&self) -> bool {
        *self.0.is_up.borrow()
    }

    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.is_up.subscribe()
    }

    /// Looks now and then whether it is well, so that its going and coming are noticed though nothing happens.
    pub(crate) async fn pulse(&self) {
        loop {
            let _ = self.beat().await;
            tokio::time::sleep(PULSE).await;
        }
    }

    /// Writes something: a full Redis, or a copy that only reads, answers and is of no use.
    async fn beat(&self) -> Result<(), Error> {
        let mut beat = redis::cmd("SET");
        self.ask(beat.arg(self.0.names.pulse()).arg(&self.0.id).arg("PX").arg(60_000)).await
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Error> {
        self.with(true, async |mut connection| command.query_async(&mut connection).await).await
    }

    pub(crate) async fn tell<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, Error> {
        self.with(true, async |mut connection| commands.query_async(&mut connection).await).await
    }

    /// Says something to whoever listens. That it could be said is no proof that Redis is well: a full one lets it pass.
    pub(crate) async fn publish(&self, channel: &str, words: &str) -> Result<(), Error> {
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(channel).arg(words);
        self.with(false, async |mut connection| publish.query_async(&mut connection).await).await
    }

    async fn with<T>(
        &self,
        is_proof: bool,
        ask: impl AsyncFnOnce(MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, Error> {
        let pass = self.0.breaker.enter(Instant::now().into_std());
        let pass = pass.ok_or_else(|| self.away("it failed several times in a row and is left alone"))?;
        let asked = async {
            let connection = self.connection().await?;
            ask(connection).await.map_err(|error| self.error(&error))
        };
        let answer = timeout(2 * PATIENCE, asked).await.unwrap_or_else(|_| Err(self.away("it is too slow")));
        match &answer {
            Ok(_) | Err(Error::NoStreams) if is_proof => pass.succeeded(),
            Ok(_) | Err(Error::NoStreams) => return answer,
            Err(_) => {
                // A new one may be better.
                *self.0.connection.lock().await = None;
                pass.failed(Instant::now().into_std(), jitter());
            }
        }
        self.note(answer.as_ref().err());
        answer
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let mut kept = self.0.connection.lock().await;
        if let Some(connection) = &*kept {
            return Ok(connection.clone());
        }
        let connection = self.connect(PATIENCE).await?;
        Ok(kept.insert(connection).clone())
    }

    /// A connection of one's own, to wait on for up to `patience`.
    pub(crate) async fn connect(&self, patience: Duration) -> Result<MultiplexedConnection, Error> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(patience));
        let connected = self.0.client.get_multiplexed_async_connection_with_config(&config);
        let connected = timeout(2 * PATIENCE, connected).await;
        let connected = connected.map_err(|_| self.away("it does not answer"))?;
        connected.map_err(|error| self.error(&error))
    }

    /// A connection that hears channels.
    pub(crate) async fn hear(&self) -> Result<PubSub, Error> {
        let connected = timeout(2 * PATIENCE, self.0.client.get_async_pubsub()).await;
        let connected = connected.map_err(|_| self.away("it does not answer"))?;
        connected.map_err(|error| self.error(&error))
    }

    pub(crate) fn error(&self, error: &RedisError) -> Error {
        match error.code() {
            // Who waited at a stream that vanished is told in other words than who comes later.
            Some("NOGROUP" | "UNBLOCKED") => Error::NoStreams,
            _ => self.away(&error.to_string()),
        }
    }

    pub(crate) fn away(&self, why: &str) -> Error {
        Error::Away { at: self.0.at.clone(), why: why.into() }
    }

    /// One line when it goes, one when it comes back, not one for each question.
    fn note(&self, error: Option<&Error>) {
        let is_up = match error {
            None | Some(Error::NoStreams) => true,
            // A single failure may be an accident.
            Some(_) => self.is_up() && self.0.breaker.is_closed(),
        };
        REDIS_UP.set([&self.0.at], u8::from(is_up).into());
        let has_changed = self.0.is_up.send_if_modified(|was| std::mem::replace(was, is_up) != is_up);
        match error {
            Some(error) if has_changed => {
                tracing::warn!("{error}; going on without it, and trying again")
            }
            None if has_changed => tracing::info!("Redis at {} answers", self.0.at),
            _ => {}
        }
    }
}

fn meanwhile(mode: Mode) -> &'static str {
    match mode {
        Mode::Database => "going on without live news from other servers",
        Mode::Redis | Mode::Hybrid => "going on with the database alone until it answers",
    }
}
