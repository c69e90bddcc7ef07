//! The whole server put together.

use crate::body;
use crate::cache::Cache;
use crate::client_address::{ClientAddresses, Network};
use crate::connections::Caps;
use crate::data::Data;
use crate::events::{self, Hub};
use crate::guarded::Deadlines;
use crate::guesses::Guesses;
use crate::ingest::Ingest;
use crate::listen::Door;
use crate::metrics::{self, Metrics};
use crate::pace::Rate;
use crate::secret::AdminSecret;
use crate::submission::Limits;
use crate::turns::{self, Turns};
use crate::worker::allowance::Allowances;
use crate::worker::archive::Unpacking;
use crate::worker::writers::Writers;
use crate::{
    api, cors, drain, health, home, html, janitor, listen, openapi, playback, problem, request_id, rewind,
    trace, watch, worker,
};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, Request, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use dispatch::Redis;
use files::Reserve;
use media::limits::FileLimits;
use rules::JobId;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::catalogue::GenerationKey;
use store::{Store, StoreDesk};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

#[derive(Debug, Clone)]
pub struct Options {
    /// Default 20 GiB.
    pub max_upload_bytes: u64,
    /// A request body that is read into memory: a job, a result, captions. Default 4 MiB.
    pub max_body_bytes: usize,
    /// What one execution may bring. Default 50 GiB.
    pub max_output_bytes: u64,
    /// How long a resumable upload may take. Default 7 days.
    pub upload_lives: Duration,
    /// A body of which nothing comes for so long is given up. Default 60 s.
    pub upload_silence: Duration,
    /// Deleted videos are purged after this. Default 30 days.
    pub retention: Duration,
    /// How long a request may take to be answered, save uploads, streams and long polls. Default 30 s.
    pub request_timeout: Duration,
    /// How often to remove what nobody needs. Default 60 s.
    pub janitor_interval: Duration,
    /// Executions a task may have. Default 3.
    pub max_attempts: u32,
    /// How many tasks a job may have that is submitted over HTTP. Default 10,000.
    pub max_job_tasks: u32,
    /// An encoder that makes no frame for so long is killed, and its task tried again. Default 60 s.
    pub stall: Duration,
    /// How long an encoding task may take beyond the time that the plan adds for its size. Default 2 h.
    pub encode_timeout: Duration,
    /// How much of one file is taken on.
    pub file_limits: FileLimits,
    /// Videos may be imported from this machine and from private networks. Default: no.
    pub import_allow_private: bool,
    /// What is put there becomes a video. Default: none.
    pub watch_folder: Option<PathBuf>,
    /// Into how many chunks at least a video is cut, so that as many encoders can share it. Default 8.
    pub parallel: u32,
    /// Where players are sent for the files of generations: a CDN in front of the bucket. Default: none, they are served
    /// here.
    pub playback_url: Option<String>,
    /// How many may listen to events at once. Default 5000.
    pub sse_listeners: usize,
    /// After how long a listener that is told nothing is told that. Default 20 s.
    pub sse_heartbeat: Duration,
    /// After how long a listener that was cut off comes back. Default 3 s.
    pub sse_retry: Duration,
    /// Wrong secrets and keys in a minute that an address may offer; what it offers then is not looked at, unless it was
    /// right before. Default 10.
    pub guesses_per_minute: u32,
    /// The header in which a proxy in front tells whom a request is from, its last entry. Default: none, the connection
    /// says so.
    pub client_address_header: Option<String>,
    /// The proxies in front. Their connections do not count against an address, and only they are believed what
    /// `client_address_header` says. Default: with that header, this machine; without it, none.
    pub proxies: Vec<Network>,
    /// Connections in all. Half of them are for clients that have authenticated. Default 4096.
    pub max_connections: usize,
    /// Connections of one address that has not authenticated. Default 256.
    pub max_connections_per_address: usize,
    /// How long a client may take to send the head of a request, and idle if it has not authenticated. Default 15 s.
    pub head_timeout: Duration,
    /// How long an authenticated client or a proxy may idle between two requests. Default 120 s.
    pub idle_timeout: Duration,
    /// Within this a client takes what it is sent, or so much of it that it keeps a least rate. Default 60 s.
    pub write_timeout: Duration,
    /// What jobs that are submitted over HTTP may ask for.
    pub jobs: Limits,
    /// Whoever knows it may read the metrics. Default: none, which leaves them to the admin.
    pub metrics_token: Option<AdminSecret>,
}

impl Default for Options {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Options {
            max_upload_bytes: 20 << 30,
            max_body_bytes: 4 << 20,
            max_output_bytes: 50 << 30,
            upload_lives: 7 * DAY,
            upload_silence: Duration::from_secs(60),
            retention: 30 * DAY,
            request_timeout: Duration::from_secs(30),
            janitor_interval: Duration::from_secs(60),
            max_attempts: 3,
            max_job_tasks: 10_000,
            stall: Duration::from_secs(60),
            encode_timeout: Duration::from_secs(2 * 3600),
            file_limits: FileLimits::default(),
            import_allow_private: false,
            watch_folder: None,
            parallel: 8,
            playback_url: None,
            sse_listeners: 5000,
            sse_heartbeat: Duration::from_secs(20),
            sse_retry: Duration::from_secs(3),
            guesses_per_minute: 10,
            client_address_header: None,
            proxies: Vec::new(),
            max_connections: 4096,
            max_connections_per_address: 256,
            head_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(60),
            jobs: Limits::default(),
            metrics_token: None,
        }
    }
}

impl Options {
    pub(crate) fn door(&self, addresses: ClientAddresses, guesses: Arc<Guesses>) -> Door {
        let caps = Caps {
            total: self.max_connections,
            // Workers and admins that are connected stay, however many others come.
            unauthenticated: (self.max_connections / 2).max(1),
            per_address: self.max_connections_per_address,
        };
        let deadlines =
            Deadlines { head: self.head_timeout, idle: self.idle_timeout, write: self.write_timeout };
        Door { caps, rate: Rate::default(), deadlines, addresses, guesses }
    }
}

/// Keys and tokens that are not known to be right and are looked up at once.
const UNKNOWN_AT_ONCE: usize = 4;

/// What every handler can reach. Cheap to clone.
/// The data folder, as a [`Reserve`] calls it.
pub const DATA_FOLDER: &str = "data folder";

#[derive(Clone)]
pub struct App {
    pub store: Store,
    /// Where news comes from that the database does not keep, if there is such a place.
    pub redis: Option<Redis>,
    pub data: Data,
    pub ingest: Ingest,
    pub(crate) admin: AdminSecret,
    pub(crate) guesses: Arc<Guesses>,
    pub(crate) addresses: ClientAddresses,
    /// Requests that need no authentication wait for their turn.
    pub(crate) turns: Arc<Turns>,
    pub(crate) writers: Arc<Writers>,
    /// How much each execution may still bring.
    pub(crate) allowances: Arc<Allowances>,
    /// Archives that are unpacked at a time.
    pub(crate) unpacking: Arc<Unpacking>,
    /// Keys and tokens that are not known to be right are looked up in turn.
    pub(crate) lookups: Arc<Semaphore>,
    pub(crate) options: Arc<Options>,
    pub(crate) reserve: Reserve,
    /// The same, for what clients write into the data folder.
    pub(crate) room: Reserve,
    /// What remote workers made, compared with the source.
    pub(crate) comparisons: worker::content::Comparisons,
    /// Words of remote workers are gathered into few transactions.
    pub(crate) desk: Arc<StoreDesk>,
    pub(crate) events: Hub,
    pub(crate) streams: Arc<Cache<GenerationKey, playback::Stream>>,
    pub(crate) early: Arc<Cache<JobId, playback::early::Known>>,
    pub(crate) health: health::Latest,
    pub metrics: Metrics,
    /// When this process began to serve.
    pub(crate) started: Instant,
    /// Cancelled when the server is to end: long polls and streams end then.
    pub(crate) ending: CancellationToken,
}

impl App {
    pub fn new(store: Store, data: Data, admin: AdminSecret, options: Options) -> Self {
        let options = Arc::new(options);
        App {
            metrics: Metrics::of_server(store.clone(), data.root().into(), options.metrics_token.clone()),
            ingest: Ingest::new(store.clone(), data.clone(), options.clone()),
            comparisons: worker::content::Comparisons::default(),
            desk: Arc::new(store.desk()),
            events: Hub::new(options.sse_listeners),
            streams: Arc::new(Cache::new(playback::STREAMS_BYTES)),
            early: Arc::new(Cache::new(playback::early::BYTES)),
            health: health::Latest::default(),
            guesses: Arc::new(Guesses::new(options.guesses_per_minute)),
            addresses: ClientAddresses::new(options.client_address_header.clone(), options.proxies.clone()),
            turns: Arc::default(),
            writers: Arc::default(),
            allowances: Arc::default(),
            unpacking: Arc::default(),
            lookups: Arc::new(Semaphore::new(UNKNOWN_AT_ONCE)),
            started: Instant::now(),
            ending: CancellationToken::new(),
            reserve: Reserve::default(),
            room: Reserve::default(),
            store,
            redis: None,
            data,
            admin,
            options,
        }
    }

    pub fn with_redis(self, redis: Option<Redis>) -> Self {
        App { redis, ..self }
    }

    /// Compares what remote workers made with the source, before it is committed.
    pub fn with_result_check(self, check: ::worker::transcode::ResultCheck) -> Self {
        App { comparisons: worker::content::Comparisons::with(check), ..self }
    }

    /// What is to stay free on which disks: on that of [`DATA_FOLDER`], whatever clients bring.
    pub fn with_reserve(self, reserve: Reserve) -> Self {
        let room = reserve.of(DATA_FOLDER);
        App { ingest: self.ingest.with_room(room.clone()), room, reserve, ..self }
    }
}

/// Serves until `shutdown`; then lets what was asked be answered, for a while.
pub async fn run(app: App, listener: TcpListener, shutdown: CancellationToken) {
    let mut beside = tokio::task::JoinSet::new();
    beside.spawn(janitor::run(app.clone()));
    beside.spawn(events::run(app.clone()));
    beside.spawn(rewind::run(app.clone()));
    if let Some(folder) = app.options.watch_folder.clone() {
        beside.spawn(watch::run(app.clone(), folder));
    }
    let ending = app.ending.clone();
    let shutdown = async move {
        shutdown.cancelled().await;
        ending.cancel();
    };
    let door = app.options.door(app.addresses.clone(), app.guesses.clone());
    listen::serve(listener, router(app), door, shutdown).await;
    beside.shutdown().await;
}

pub(crate) fn router(app: App) -> Router {
    let (streamed, of_streamed) = api::streamed().split_for_parts();
    let (open, of_open) = health::routes().split_for_parts();
    let (documented, mut api) = api::routes()
        .merge(events::routes())
        .merge(worker::routes())
        .merge(home::routes())
        .merge(metrics::routes())
        .split_for_parts();
    api.merge(of_streamed);
    api.merge(of_open);
    let in_turn = middleware::from_fn_with_state(app.clone(), turns::take);
    let limits = (
        middleware::from_fn_with_state(app.clone(), in_time),
        // Whatever is read otherwise than by the extractors of `body`.
        DefaultBodyLimit::max(body::SMALL_BYTES),
    );
    // Nothing of these needs authentication: playback, pages, health.
    let public = playback::routes().merge(home::page()).merge(openapi::routes(api)).merge(open);
    documented
        .merge(public.layer(in_turn))
        .layer(limits)
        .merge(streamed.layer(DefaultBodyLimit::disable()))
        .merge(worker::streamed().layer(DefaultBodyLimit::disable()))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(metrics::measure))
        .layer(middleware::from_fn(trace::follow))
        .layer(CompressionLayer::new().gzip(true).compress_when(worth_compressing()))
        .layer(middleware::from_fn(body::account))
        .layer(CatchPanicLayer::custom(broke_down))
        .layer(middleware::from_fn(protected))
        .layer(middleware::from_fn(cors::open))
        .layer(middleware::from_fn(request_id::give))
        .layer(middleware::from_fn_with_state(app.clone(), drain::politely))
        .with_state(app)
}

/// Playlists and JSON; media is compressed already, and events must not be held back.
fn worth_compressing() -> impl Predicate {
    SizeAbove::new(512)
        .and(NotForContentType::new("video/"))
        .and(NotForContentType::new("audio/"))
        .and(NotForContentType::IMAGES)
        .and(NotForContentType::new("application/octet-stream"))
        .and(NotForContentType::SSE)
}

async fn in_time(
    axum::extract::State(app): axum::extract::State<App>,
    request: Request<axum::body::Body>,
    next: Next,
) -> Response {
    // A long poll says itself how long it waits.
    let patience = app.options.request_timeout + worker::LONGEST_WAIT;
    match tokio::time::timeout(patience, next.run(request)).await {
        Ok(response) => response,
        Err(_) => problem::Error::Protocol {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "timeout",
            detail: "the server took too long to answer; try again".into(),
        }
        .into_response(),
    }
}

async fn protected(request: Request<axum::body::Body>, next: Next) -> Response {
    let mut response = next.run(request).await;
    html::protect(response.headers_mut());
    response
}

async fn nothing_here() -> problem::Error {
    problem::Error::NotFound("address; GET /api/docs lists them all")
}

async fn wrong_method() -> problem::Error {
    problem::Error::Protocol {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "method_not_allowed",
        detail: "this address does not take that method; GET /api/docs lists what it takes".into(),
    }
}

fn broke_down(panic: Box<dyn std::any::Any + Send>) -> Response {
    let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    problem::Error::Internal(format!("a handler broke down: {said}")).into_response()
}

/// For what must never be kept by a cache.
pub(crate) const NO_STORE: (header::HeaderName, HeaderValue) =
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
