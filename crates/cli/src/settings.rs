//! Settings: flag over `VODMILL_*` variable over `vodmill.toml` over default. All are optional.

mod alerts;
mod redis;
mod sandbox;

use anyhow::Context;
use clap::Args;
use files::Bucket;
use media::limits::FileLimits;
use rules::Millis;
use serde::Deserialize;
use server::Data;
use server::submission::Limits;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::alert::Kind;
use store::{Location, Store};
use worker::remote::Address;
use worker::sandbox::Sandbox;

/// The file that is read when no other is named, if it exists.
const FILE: &str = "vodmill.toml";

/// Settings that are secret, or hold a secret. Each can be in a file of its own.
pub const SECRETS: [&str; 6] = [
    "admin_secret",
    "alert_webhook_secret",
    "alert_webhook_url",
    "database_url",
    "metrics_token",
    "redis_url",
];

/// A mistake in what was typed or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

pub use redis::QueueMode;

macro_rules! settings {
    ($($(#[$attribute:meta])* $name:ident: $type:ty,)+) => {
        /// Each field is a flag, a variable and a line in the file, of the same name.
        #[derive(Args, Deserialize, Clone, Default)]
        #[serde(deny_unknown_fields, default)]
        #[command(next_help_heading = "Settings")]
        pub struct Settings {
            $($(#[$attribute])* pub $name: Option<$type>,)+
        }

        impl Settings {
            fn or(self, below: Settings) -> Settings {
                Settings { $($name: self.$name.or(below.$name),)+ }
            }
        }
    };
}

settings! {
    /// Where settings are read from. Default: vodmill.toml in this folder, if it is there.
    #[arg(long, env = "VODMILL_CONFIG", global = true, value_name = "FILE")]
    #[serde(skip)]
    config: PathBuf,

    /// The database: `sqlite:FILE` or `postgres://…`. Default: sqlite:vodmill-data/vodmill.db
    #[arg(long, env = "VODMILL_DATABASE_URL", global = true, value_name = "URL", hide_env_values = true)]
    database_url: String,

    /// A file that holds the database's URL, with its password. Default: none
    #[arg(long, env = "VODMILL_DATABASE_URL_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    database_url_file: PathBuf,

    /// Connections to PostgreSQL. Default: 10
    #[arg(long, env = "VODMILL_DATABASE_CONNECTIONS", global = true, value_name = "N", hide_short_help = true)]
    database_connections: u32,

    /// PostgreSQL is behind a pooler in transaction mode, such as PgBouncer. Default: false
    #[arg(long, env = "VODMILL_DATABASE_POOLED", global = true, num_args = 0..=1, default_missing_value = "true", hide_short_help = true)]
    database_pooled: bool,

    /// Who tells workers at once that there is work: database, redis, or hybrid: redis while it answers. Default: database
    #[arg(long, env = "VODMILL_JOB_QUEUE_MODE", global = true, value_name = "MODE", hide_short_help = true)]
    job_queue_mode: QueueMode,

    /// The Redis that carries hints, live news and locks between servers: redis://… or rediss://… Default: none
    #[arg(long, env = "VODMILL_REDIS_URL", global = true, value_name = "URL", hide_env_values = true, hide_short_help = true)]
    redis_url: String,

    /// A file that holds the URL of Redis, with its password. Default: none
    #[arg(long, env = "VODMILL_REDIS_URL_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    redis_url_file: PathBuf,

    /// What all names in Redis begin with; one for each database. Default: vodmill:
    #[arg(long, env = "VODMILL_REDIS_PREFIX", global = true, value_name = "TEXT", hide_short_help = true)]
    redis_prefix: String,

    /// How long a lease lasts, in minutes; renewed while the work moves. Default: 1
    #[arg(long, env = "VODMILL_WORKER_CLAIM_DURATION_MINUTES", global = true, value_name = "MINUTES", hide_short_help = true)]
    worker_claim_duration_minutes: f64,

    /// Between heartbeats, in seconds. Default: 30
    #[arg(long, env = "VODMILL_WORKER_HEARTBEAT_INTERVAL", global = true, value_name = "SECONDS", hide_short_help = true)]
    worker_heartbeat_interval: f64,

    /// A worker not heard of for so many minutes is offline. Default: 5
    #[arg(long, env = "VODMILL_WORKER_OFFLINE_THRESHOLD_MINUTES", global = true, value_name = "MINUTES", hide_short_help = true)]
    worker_offline_threshold_minutes: f64,

    /// How often to look for silent workers, in seconds. Default: 60
    #[arg(long, env = "VODMILL_STALE_JOB_CHECK_INTERVAL", global = true, value_name = "SECONDS", hide_short_help = true)]
    stale_job_check_interval: f64,

    /// Executions a task may have, for jobs whose spec says nothing. Default: 3
    #[arg(long, env = "VODMILL_MAX_RETRY_ATTEMPTS", global = true, value_name = "N", hide_short_help = true)]
    max_retry_attempts: u32,

    /// How many tasks of one user may run at a time. Default: any number
    #[arg(long, env = "VODMILL_MAX_RUNNING_PER_USER", global = true, value_name = "N", hide_short_help = true)]
    max_running_per_user: u32,

    /// Ended jobs are archived after so many days. Default: 30
    #[arg(long, env = "VODMILL_ARCHIVE_AFTER_DAYS", global = true, value_name = "DAYS", hide_short_help = true)]
    archive_after_days: f64,

    /// Audit rows, logs and steps are dropped after so many days. Default: never
    #[arg(long, env = "VODMILL_HISTORY_AFTER_DAYS", global = true, value_name = "DAYS", hide_short_help = true)]
    history_after_days: f64,

    /// The folder executions work in. Default: vodmill-data/work
    #[arg(long, env = "VODMILL_WORK_FOLDER", global = true, value_name = "FOLDER", hide_short_help = true)]
    work_folder: PathBuf,

    /// Where the server keeps its files. Default: vodmill-data
    #[arg(long, env = "VODMILL_DATA_FOLDER", global = true, value_name = "FOLDER", hide_short_help = true)]
    data_folder: PathBuf,

    /// Where sources and streams are kept: `file:///FOLDER`, `s3://BUCKET/PREFIX`, `gs://…` or `az://…`. Default: the data folder
    #[arg(long, env = "VODMILL_STORAGE", global = true, value_name = "URL", hide_short_help = true)]
    storage: String,

    /// Where players are sent for the files of streams, such as a CDN in front of the bucket. Default: they stay here
    #[arg(long, env = "VODMILL_PLAYBACK_URL", global = true, value_name = "URL", hide_short_help = true)]
    playback_url: String,

    /// Where the server listens. Default: 127.0.0.1:8080
    #[arg(long, env = "VODMILL_LISTEN", global = true, value_name = "ADDRESS", hide_short_help = true)]
    listen: String,

    /// The admin's secret. Default: made at the server's first start and shown once
    #[arg(long, env = "VODMILL_ADMIN_SECRET", global = true, value_name = "SECRET", hide_env_values = true, hide_short_help = true)]
    admin_secret: String,

    /// A file that holds the admin's secret. Default: none
    #[arg(long, env = "VODMILL_ADMIN_SECRET_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    admin_secret_file: PathBuf,

    /// The server to ask, instead of a database. Default: none
    #[arg(long, env = "VODMILL_SERVER", global = true, value_name = "URL")]
    server: String,

    /// A folder in which every file becomes a video. Default: none
    #[arg(long, env = "VODMILL_WATCH_FOLDER", global = true, value_name = "FOLDER", hide_short_help = true)]
    watch_folder: PathBuf,

    /// The largest video the server takes, in gigabytes. Default: 20
    #[arg(long, env = "VODMILL_MAX_UPLOAD_GB", global = true, value_name = "GB", hide_short_help = true)]
    max_upload_gb: f64,

    /// A request of which nothing comes for so many seconds is given up; a resumable upload can be gone on with then. Default: 60
    #[arg(long, env = "VODMILL_UPLOAD_SILENCE_SECONDS", global = true, value_name = "SECONDS", hide_short_help = true)]
    upload_silence_seconds: f64,

    /// Videos may be imported by URL from this machine and from private networks. Default: false
    #[arg(long, env = "VODMILL_IMPORT_ALLOW_PRIVATE", global = true, num_args = 0..=1, default_missing_value = "true", hide_short_help = true)]
    import_allow_private: bool,

    /// A remote worker is suspended at so many rejected reports within the window; 0 for never. Default: 5
    #[arg(long, env = "VODMILL_WORKER_SUSPEND_AFTER", global = true, value_name = "N", hide_short_help = true)]
    worker_suspend_after: u32,

    /// The window in which rejected reports of a worker are counted, in minutes. Default: 60
    #[arg(long, env = "VODMILL_WORKER_REJECTION_WINDOW_MINUTES", global = true, value_name = "MINUTES", hide_short_help = true)]
    worker_rejection_window_minutes: f64,

    /// The kinds of work that jobs submitted over HTTP may use, with commas between. `command` lets them run commands on
    /// workers that allow it. Default: noop,sleep
    #[arg(long, env = "VODMILL_API_JOB_KINDS", global = true, value_name = "KINDS", hide_short_help = true)]
    api_job_kinds: String,

    /// The folder in which effects of jobs submitted over HTTP may append to files. Default: none, such effects are refused
    #[arg(long, env = "VODMILL_API_EFFECTS_FOLDER", global = true, value_name = "FOLDER", hide_short_help = true)]
    api_effects_folder: PathBuf,

    /// Wrong secrets and keys in a minute that an address may offer before it is told to wait. Default: 10
    #[arg(long, env = "VODMILL_AUTH_FAILURES_PER_MINUTE", global = true, value_name = "N", hide_short_help = true)]
    auth_failures_per_minute: u32,

    /// The header in which a proxy in front tells whom a request is from, such as X-Forwarded-For; its last entry counts.
    /// Only with a proxy that sets it: else anybody could. Default: none
    #[arg(long, env = "VODMILL_CLIENT_ADDRESS_HEADER", global = true, value_name = "NAME", hide_short_help = true)]
    client_address_header: String,

    /// The proxies in front of the server: addresses and networks, with commas between. Only they are believed
    /// client_address_header. Default: with that header this machine, otherwise none
    #[arg(long, env = "VODMILL_PROXY_ADDRESSES", global = true, value_name = "ADDRESSES", hide_short_help = true)]
    proxy_addresses: String,

    /// Open connections to the server; half of them only for clients that have authenticated. Default: 4096
    #[arg(long, env = "VODMILL_MAX_CONNECTIONS", global = true, value_name = "N", hide_short_help = true)]
    max_connections: usize,

    /// Open connections of one address that has not authenticated; through a proxy, requests. Default: 256
    #[arg(long, env = "VODMILL_MAX_CONNECTIONS_PER_ADDRESS", global = true, value_name = "N", hide_short_help = true)]
    max_connections_per_address: usize,

    /// Time for a client to send the head of a request, and to idle before it authenticates, in seconds. Default: 15
    #[arg(long, env = "VODMILL_HEADER_TIMEOUT_SECONDS", global = true, value_name = "SECONDS", hide_short_help = true)]
    header_timeout_seconds: f64,

    /// Time for an authenticated client or a proxy to idle between two requests, in seconds. Default: 120
    #[arg(long, env = "VODMILL_IDLE_TIMEOUT_SECONDS", global = true, value_name = "SECONDS", hide_short_help = true)]
    idle_timeout_seconds: f64,

    /// Time for a client to accept a response, or 1 KiB of it for each second, before its connection is closed, in
    /// seconds. Default: 60
    #[arg(long, env = "VODMILL_WRITE_TIMEOUT_SECONDS", global = true, value_name = "SECONDS", hide_short_help = true)]
    write_timeout_seconds: f64,

    /// The largest request body that is read into memory, such as a job or a result, in megabytes. Default: 4
    #[arg(long, env = "VODMILL_MAX_REQUEST_MB", global = true, value_name = "MB", hide_short_help = true)]
    max_request_mb: f64,

    /// What one execution may upload, in gigabytes. Default: 50
    #[arg(long, env = "VODMILL_MAX_OUTPUT_GB", global = true, value_name = "GB", hide_short_help = true)]
    max_output_gb: f64,

    /// A deleted video is removed for good after so many days. Default: 30
    #[arg(long, env = "VODMILL_RETENTION_DAYS", global = true, value_name = "DAYS", hide_short_help = true)]
    retention_days: f64,

    /// How often files that nobody needs are removed, in seconds. Default: 60
    #[arg(long, env = "VODMILL_JANITOR_INTERVAL", global = true, value_name = "SECONDS", hide_short_help = true)]
    janitor_interval: f64,

    /// An encoder that makes no frame for so many seconds is killed and its task tried again. Default: 60
    #[arg(long, env = "VODMILL_ENCODER_STALL_SECONDS", global = true, value_name = "SECONDS", hide_short_help = true)]
    encoder_stall_seconds: f64,

    /// How long an encoding task may take, in hours, beyond the time for its size: a second for each 500,000 pixels. Default: 2
    #[arg(long, env = "VODMILL_ENCODE_TIMEOUT_HOURS", global = true, value_name = "HOURS", hide_short_help = true)]
    encode_timeout_hours: f64,

    /// How strictly ffmpeg and ffprobe are locked in: `require` (or not run at all), `best-effort`, or `off`. Default: best-effort
    #[arg(long, env = "VODMILL_SANDBOX", global = true, value_name = "DEGREE", hide_short_help = true)]
    sandbox: Sandbox,

    /// The longest video that is accepted, in hours. Default: 12
    #[arg(long, env = "VODMILL_MAX_VIDEO_HOURS", global = true, value_name = "HOURS", hide_short_help = true)]
    max_video_hours: f64,

    /// The most frames a picture may have, in the file and when it is encoded. Default: 2592000, 12 hours at 60 a second
    #[arg(long, env = "VODMILL_MAX_FRAMES", global = true, value_name = "N", hide_short_help = true)]
    max_frames: u64,

    /// The most frames that may be made by repeating others, where a picture stands still. Default: 540000, 5 hours at 30 a second
    #[arg(long, env = "VODMILL_MAX_REPEATED_FRAMES", global = true, value_name = "N", hide_short_help = true)]
    max_repeated_frames: u64,

    /// The most such frames for each frame of the picture and packet of sound in the file, beyond half an hour's. Default: 30
    #[arg(long, env = "VODMILL_MAX_REPEATS_PER_FRAME", global = true, value_name = "N", hide_short_help = true)]
    max_repeats_per_frame: u32,

    /// The most frames a picture may have in a second, in the file. Default: 1000
    #[arg(long, env = "VODMILL_MAX_FRAME_RATE", global = true, value_name = "N", hide_short_help = true)]
    max_frame_rate: f64,

    /// The largest picture, in millions of pixels. Default: 67.2
    #[arg(long, env = "VODMILL_MAX_MEGAPIXELS", global = true, value_name = "N", hide_short_help = true)]
    max_megapixels: f64,

    /// The most tracks of sound that are made of a video; more are left out. Default: 32
    #[arg(long, env = "VODMILL_MAX_AUDIO_TRACKS", global = true, value_name = "N", hide_short_help = true)]
    max_audio_tracks: u32,

    /// The most tracks of text that are made of a video; more are left out. Default: 32
    #[arg(long, env = "VODMILL_MAX_SUBTITLE_TRACKS", global = true, value_name = "N", hide_short_help = true)]
    max_subtitle_tracks: u32,

    /// The most rungs a ladder may have. Default: 16
    #[arg(long, env = "VODMILL_MAX_RENDITIONS", global = true, value_name = "N", hide_short_help = true)]
    max_renditions: u32,

    /// The most tasks one video may take. Default: 20000
    #[arg(long, env = "VODMILL_MAX_TASKS", global = true, value_name = "N", hide_short_help = true)]
    max_tasks: u32,

    /// The most that encoding one video may be estimated to take, in hours of one processor. Default: 1000
    #[arg(long, env = "VODMILL_MAX_ENCODE_HOURS", global = true, value_name = "HOURS", hide_short_help = true)]
    max_encode_hours: f64,

    /// How many encoders are to share one video: it is cut into so many chunks or more. Default: 8
    #[arg(long, env = "VODMILL_PARALLEL", global = true, value_name = "N", hide_short_help = true)]
    parallel: u32,

    /// Where alerts are posted. Default: nowhere
    #[arg(long, env = "VODMILL_ALERT_WEBHOOK_URL", global = true, value_name = "URL", hide_env_values = true, hide_short_help = true)]
    alert_webhook_url: String,

    /// A file that holds the address where alerts are posted, with its token. Default: none
    #[arg(long, env = "VODMILL_ALERT_WEBHOOK_URL_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    alert_webhook_url_file: PathBuf,

    /// What alerts are signed with: whsec_ and a key in base64. Default: they are not signed
    #[arg(long, env = "VODMILL_ALERT_WEBHOOK_SECRET", global = true, value_name = "SECRET", hide_env_values = true, hide_short_help = true)]
    alert_webhook_secret: String,

    /// A file that holds what alerts are signed with. Default: none
    #[arg(long, env = "VODMILL_ALERT_WEBHOOK_SECRET_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    alert_webhook_secret_file: PathBuf,

    /// How long the receiver of an alert may take, in seconds, at most 50. Default: 10
    #[arg(long, env = "VODMILL_ALERT_WEBHOOK_TIMEOUT", global = true, value_name = "SECONDS", hide_short_help = true)]
    alert_webhook_timeout: f64,

    /// Of each kind at most one alert in so many seconds; 0 for all. video_ready is never held back. Default: 300
    #[arg(long, env = "VODMILL_ALERT_RATE_LIMIT_SECONDS", global = true, value_name = "SECONDS", hide_short_help = true)]
    alert_rate_limit_seconds: f64,

    /// Which alerts, with commas between. Default: all but worker_startup and worker_shutdown
    #[arg(long, env = "VODMILL_ALERT_EVENTS", global = true, value_name = "EVENTS", hide_short_help = true)]
    alert_events: String,

    /// Alerts may go to this machine and to private networks. Default: false
    #[arg(long, env = "VODMILL_ALERT_ALLOW_PRIVATE", global = true, num_args = 0..=1, default_missing_value = "true", hide_short_help = true)]
    alert_allow_private: bool,

    /// Who listens to events is told in so many seconds that nothing happens. Default: 20
    #[arg(long, env = "VODMILL_SSE_HEARTBEAT_INTERVAL", global = true, value_name = "SECONDS", hide_short_help = true)]
    sse_heartbeat_interval: f64,

    /// Who listens to events and is cut off comes back after so many seconds. Default: 3
    #[arg(long, env = "VODMILL_SSE_RECONNECT_TIMEOUT", global = true, value_name = "SECONDS", hide_short_help = true)]
    sse_reconnect_timeout: f64,

    /// The most tasks of a job that is submitted over HTTP, those that its plans list included. Default: 10000
    #[arg(long, env = "VODMILL_MAX_JOB_TASKS", global = true, value_name = "N", hide_short_help = true)]
    max_job_tasks: u32,

    /// How many may listen to a server's events at once. Default: 5000
    #[arg(long, env = "VODMILL_SSE_MAX_LISTENERS", global = true, value_name = "N", hide_short_help = true)]
    sse_max_listeners: usize,

    /// Where the metrics of a server or a worker can be read, at /metrics, by whoever can reach it. Default: nowhere
    #[arg(long, env = "VODMILL_METRICS_LISTEN", global = true, value_name = "ADDRESS", hide_short_help = true)]
    metrics_listen: String,

    /// What one must know to read the metrics. Default: the admin's secret, or on metrics_listen nothing
    #[arg(long, env = "VODMILL_METRICS_TOKEN", global = true, value_name = "TOKEN", hide_env_values = true, hide_short_help = true)]
    metrics_token: String,

    /// A file that holds what one must know to read the metrics. Default: none
    #[arg(long, env = "VODMILL_METRICS_TOKEN_FILE", global = true, value_name = "FILE", hide_short_help = true)]
    metrics_token_file: PathBuf,

    /// The OpenTelemetry collector that traces are sent to (OTLP over HTTP). Default: none, or OTEL_EXPORTER_OTLP_ENDPOINT
    #[arg(long, env = "VODMILL_OTLP_ENDPOINT", global = true, value_name = "URL", hide_short_help = true)]
    otlp_endpoint: String,

    /// What is logged: error, warn, info, debug, or a tracing filter. Default: info for workers, warn otherwise
    #[arg(long, env = "VODMILL_LOG", global = true, value_name = "FILTER", hide_short_help = true)]
    log: String,

    /// How log lines look: text or json. Default: text
    #[arg(long, env = "VODMILL_LOG_FORMAT", global = true, value_name = "FORMAT", hide_short_help = true)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

impl Settings {
    /// Adds what the file says where flags and variables say nothing.
    pub fn with_file(self) -> anyhow::Result<Settings> {
        let named = self.config.clone();
        let path = named.clone().unwrap_or_else(|| FILE.into());
        if named.is_none() && !path.exists() {
            return self.with_secret_files();
        }
        let text = std::fs::read_to_string(&path)
            .with_context(|| Usage(format!("cannot read the settings file {}", path.display())))?;
        self.or(parse(&text, &path)?).with_secret_files()
    }

    /// Reads the secrets that are in files of their own. A secret that was given otherwise wins.
    fn with_secret_files(mut self) -> anyhow::Result<Settings> {
        for (secret, file, flag) in [
            (&mut self.database_url, &self.database_url_file, "--database-url-file"),
            (&mut self.redis_url, &self.redis_url_file, "--redis-url-file"),
            (&mut self.admin_secret, &self.admin_secret_file, "--admin-secret-file"),
            (&mut self.alert_webhook_url, &self.alert_webhook_url_file, "--alert-webhook-url-file"),
            (&mut self.alert_webhook_secret, &self.alert_webhook_secret_file, "--alert-webhook-secret-file"),
            (&mut self.metrics_token, &self.metrics_token_file, "--metrics-token-file"),
        ] {
            let (None, Some(file)) = (&secret, file) else { continue };
            let text = std::fs::read_to_string(file)
                .with_context(|| Usage(format!("{flag}: cannot read {}", file.display())))?;
            *secret = Some(text.trim().to_owned());
        }
        Ok(self)
    }

    pub fn location(&self) -> anyhow::Result<Location> {
        let url = self.database_url.as_deref().unwrap_or("sqlite:vodmill-data/vodmill.db");
        Ok(url.parse()?)
    }

    /// The file that the database is in, if it is in one.
    pub fn database_file(&self) -> anyhow::Result<Option<PathBuf>> {
        Ok(match self.location()? {
            Location::Sqlite(path) => Some(path.canonicalize().unwrap_or(path)),
            Location::Postgres(_) => None,
        })
    }

    /// Takes the lock of a server on a database in a file, which must be there: the lock, which no database on PostgreSQL
    /// needs. None if another has it.
    pub fn lock_database(&self) -> anyhow::Result<Option<Option<File>>> {
        let Some(path) = self.database_file()? else { return Ok(Some(None)) };
        // Beside it: whoever closes the database's own file loses SQLite's locks on it.
        let mut name = path.into_os_string();
        name.push(".server-lock");
        let file = File::options().create(true).truncate(false).write(true).open(&name)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Some(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }

    pub fn store_options(&self) -> anyhow::Result<store::Options> {
        let default = store::Options::default();
        let minutes = |value, name, default| millis(value, 60.0, name, default);
        Ok(store::Options {
            lease: minutes(
                self.worker_claim_duration_minutes,
                "worker_claim_duration_minutes",
                default.lease,
            )?,
            heartbeat_interval: millis(
                self.worker_heartbeat_interval,
                1.0,
                "worker_heartbeat_interval",
                default.heartbeat_interval,
            )?,
            offline_after: minutes(
                self.worker_offline_threshold_minutes,
                "worker_offline_threshold_minutes",
                default.offline_after,
            )?,
            connections: self.database_connections.unwrap_or(default.connections).max(2),
            is_pooled: self.database_pooled.unwrap_or(default.is_pooled),
            suspend_after: self.worker_suspend_after.unwrap_or(default.suspend_after),
            rejection_window: minutes(
                self.worker_rejection_window_minutes,
                "worker_rejection_window_minutes",
                default.rejection_window,
            )?,
            max_running_per_user: self.max_running_per_user.map(|most| most.max(1)),
            ..default
        })
    }

    pub fn orchestrator_options(&self) -> anyhow::Result<orchestrator::Options> {
        let default = orchestrator::Options::default();
        let lease = duration(self.store_options()?.lease);
        let days = |value: Option<f64>, name| -> anyhow::Result<Option<Duration>> {
            value.map(|days| millis(Some(days), 86_400.0, name, Millis(0)).map(duration)).transpose()
        };
        let offline = millis(self.stale_job_check_interval, 1.0, "stale_job_check_interval", Millis(60_000))?;
        Ok(orchestrator::Options {
            recovery_interval: (lease / 8).clamp(Duration::from_millis(50), default.recovery_interval),
            offline_interval: duration(offline),
            archive_after: days(self.archive_after_days, "archive_after_days")?
                .unwrap_or(default.archive_after),
            history_after: days(self.history_after_days, "history_after_days")?,
            webhook: alerts::webhook(self)?,
            ..default
        })
    }

    /// How much of one file is taken on.
    pub fn file_limits(&self) -> Result<FileLimits, Usage> {
        let default = FileLimits::default();
        let positive = |value: Option<f64>, name: &str, default: f64| match value {
            Some(value) if value.is_nan() || value <= 0.0 => {
                Err(Usage(format!("{name} is {value}; it must be more than 0")))
            }
            value => Ok(value.unwrap_or(default)),
        };
        Ok(FileLimits {
            max_video_hours: positive(self.max_video_hours, "max_video_hours", default.max_video_hours)?,
            max_frames: self.max_frames.unwrap_or(default.max_frames),
            max_repeated_frames: self.max_repeated_frames.unwrap_or(default.max_repeated_frames),
            max_repeats_per_frame: self.max_repeats_per_frame.unwrap_or(default.max_repeats_per_frame),
            max_frame_rate: positive(self.max_frame_rate, "max_frame_rate", default.max_frame_rate)?,
            max_megapixels: positive(self.max_megapixels, "max_megapixels", default.max_megapixels)?,
            max_audio_tracks: self.max_audio_tracks.unwrap_or(default.max_audio_tracks),
            max_subtitle_tracks: self.max_subtitle_tracks.unwrap_or(default.max_subtitle_tracks),
            max_renditions: self.max_renditions.unwrap_or(default.max_renditions),
            max_tasks: self.max_tasks.unwrap_or(default.max_tasks),
            max_encode_hours: positive(self.max_encode_hours, "max_encode_hours", default.max_encode_hours)?,
        })
    }

    pub fn server_options(&self) -> anyhow::Result<server::Options> {
        let default = server::Options::default();
        let span = |value, seconds, name, default: Duration| {
            let default = Millis(i64::try_from(default.as_millis()).unwrap_or(i64::MAX));
            millis(value, seconds, name, default).map(duration)
        };
        let bytes = |value: Option<f64>, unit: f64, name, default: u64| {
            let bytes = value.map(|value| millis(Some(value), unit / 1000.0, name, Millis(0))).transpose();
            anyhow::Ok(bytes?.map_or(default, |bytes| bytes.0.unsigned_abs()))
        };
        let max_body = bytes(self.max_request_mb, 1e6, "max_request_mb", default.max_body_bytes as u64)?;
        Ok(server::Options {
            max_upload_bytes: bytes(self.max_upload_gb, 1e9, "max_upload_gb", default.max_upload_bytes)?,
            max_output_bytes: bytes(self.max_output_gb, 1e9, "max_output_gb", default.max_output_bytes)?,
            max_body_bytes: usize::try_from(max_body).unwrap_or(default.max_body_bytes).max(64 << 10),
            proxies: self.proxies()?,
            max_connections: self.max_connections.unwrap_or(default.max_connections).max(2),
            max_connections_per_address: self
                .max_connections_per_address
                .unwrap_or(default.max_connections_per_address)
                .max(1),
            head_timeout: span(
                self.header_timeout_seconds,
                1.0,
                "header_timeout_seconds",
                default.head_timeout,
            )?,
            idle_timeout: span(self.idle_timeout_seconds, 1.0, "idle_timeout_seconds", default.idle_timeout)?,
            write_timeout: span(
                self.write_timeout_seconds,
                1.0,
                "write_timeout_seconds",
                default.write_timeout,
            )?,
            upload_silence: span(
                self.upload_silence_seconds,
                1.0,
                "upload_silence_seconds",
                default.upload_silence,
            )?,
            retention: span(self.retention_days, 86_400.0, "retention_days", default.retention)?,
            janitor_interval: span(self.janitor_interval, 1.0, "janitor_interval", default.janitor_interval)?,
            stall: span(self.encoder_stall_seconds, 1.0, "encoder_stall_seconds", default.stall)?,
            encode_timeout: span(
                self.encode_timeout_hours,
                3600.0,
                "encode_timeout_hours",
                default.encode_timeout,
            )?,
            parallel: self.parallel.map_or(default.parallel, |parallel| parallel.clamp(1, 10_000)),
            max_attempts: self.max_retry_attempts.unwrap_or(default.max_attempts),
            import_allow_private: self.import_allow_private.unwrap_or(false),
            file_limits: self.file_limits()?,
            watch_folder: self.watch_folder.clone(),
            playback_url: self.playback_url()?,
            sse_heartbeat: span(
                self.sse_heartbeat_interval,
                1.0,
                "sse_heartbeat_interval",
                default.sse_heartbeat,
            )?,
            sse_retry: span(self.sse_reconnect_timeout, 1.0, "sse_reconnect_timeout", default.sse_retry)?,
            max_job_tasks: self.max_job_tasks.unwrap_or(default.max_job_tasks),
            sse_listeners: self.sse_max_listeners.unwrap_or(default.sse_listeners),
            jobs: self.job_limits()?,
            metrics_token: crate::metrics::token(self)?,
            guesses_per_minute: self.auth_failures_per_minute.unwrap_or(default.guesses_per_minute).max(1),
            client_address_header: self.client_address_header.as_deref().map(header).transpose()?,
            ..default
        })
    }

    /// The alerts that are wanted, each with how long the next of its kind has to wait.
    pub fn alerts(&self) -> anyhow::Result<HashMap<Kind, Millis>> {
        alerts::wanted(self)
    }

    /// The server that commands speak to, and a worker works for; none means the database.
    pub fn server(&self) -> anyhow::Result<Option<Address>> {
        let parsed = self.server.as_deref().map(str::parse).transpose();
        Ok(parsed.map_err(|bad| Usage(format!("--server: {bad}")))?)
    }

    /// Where the server keeps its files.
    pub fn data(&self) -> anyhow::Result<Data> {
        let folder = self.data_folder.clone().unwrap_or_else(|| "vodmill-data".into());
        let (folder, bucket) = match self.storage.as_deref() {
            None => (folder, None),
            Some(url) => match url.strip_prefix("file://") {
                Some(path) if path.starts_with('/') => (path.into(), None),
                Some(_) => {
                    return Err(
                        Usage(format!("--storage: `{url}` names no folder; file:///FOLDER does")).into()
                    );
                }
                None => {
                    let bucket = Bucket::open(url).map_err(|bad| Usage(format!("--storage: {bad}")))?;
                    (folder, Some(bucket))
                }
            },
        };
        let data =
            Data::open(&folder).with_context(|| format!("cannot use the folder {}", folder.display()))?;
        Ok(data.with_bucket(bucket))
    }

    fn proxies(&self) -> anyhow::Result<Vec<server::Network>> {
        let named = self.proxy_addresses.as_deref().unwrap_or_default().split(',').map(str::trim);
        let networks = named.filter(|text| !text.is_empty()).map(str::parse).collect::<Result<_, String>>();
        Ok(networks.map_err(|bad| Usage(format!("proxy_addresses: {bad}")))?)
    }

    /// What jobs submitted over HTTP may ask for.
    fn job_limits(&self) -> anyhow::Result<Limits> {
        let names = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect()
        };
        let folder = match &self.api_effects_folder {
            None => None,
            Some(folder) => {
                let data = self.data_folder.clone().unwrap_or_else(|| "vodmill-data".into());
                let (folder, data) = (std::path::absolute(folder)?, std::path::absolute(data)?);
                if folder.starts_with(&data) || data.starts_with(&folder) {
                    let what = "must be neither in the data folder nor above it: jobs append to files there";
                    return Err(Usage(format!("api_effects_folder {what}")).into());
                }
                Some(folder)
            }
        };
        Limits::new(self.api_job_kinds.as_deref().map(names), folder)
            .map_err(|bad| Usage(format!("api_job_kinds: {bad}")).into())
    }

    fn playback_url(&self) -> anyhow::Result<Option<String>> {
        let url = self.playback_url.as_deref().map(|url| url.trim_end_matches('/').to_owned());
        match url {
            Some(url) if !url.starts_with("https://") && !url.starts_with("http://") => {
                Err(Usage(format!("--playback-url: `{url}` is not a URL such as https://cdn.example.org"))
                    .into())
            }
            url => Ok(url),
        }
    }

    /// Opens the store for a program that works on it.
    pub async fn open(&self) -> anyhow::Result<Store> {
        Ok(Store::open(&self.location()?, self.store_options()?).await?)
    }

    /// Opens the store for a look: it must be there, and is not changed by the looking.
    pub async fn open_existing(&self) -> anyhow::Result<Store> {
        Ok(Store::open_existing(&self.location()?, self.store_options()?).await?)
    }

    pub fn work_folder(&self) -> PathBuf {
        self.work_folder.clone().unwrap_or_else(|| "vodmill-data/work".into())
    }
}

fn parse(text: &str, path: &Path) -> anyhow::Result<Settings> {
    toml::from_str(text)
        .map_err(|error| Usage(format!("{}: {}", path.display(), error.to_string().trim_end())).into())
}

fn header(name: &str) -> anyhow::Result<String> {
    match !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(name.to_ascii_lowercase()),
        false => Err(Usage(format!(
            "client_address_header is `{name}`; it must be the name of a header, such as X-Forwarded-For"
        ))
        .into()),
    }
}

fn millis(value: Option<f64>, seconds: f64, name: &str, default: Millis) -> anyhow::Result<Millis> {
    match value {
        None => Ok(default),
        Some(value) if value.is_finite() && value > 0.0 && value < 1e9 => {
            Ok(Millis(((value * seconds * 1000.0) as i64).max(1)))
        }
        Some(value) => Err(Usage(format!("{name} is {value}; it must be a number above 0")).into()),
    }
}

pub fn duration(span: Millis) -> Duration {
    Duration::from_millis(u64::try_from(span.0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = include_str!("../../../config.example.toml");

    #[test]
    fn the_example_names_every_setting_and_is_valid() {
        let uncommented: String = EXAMPLE
            .lines()
            .map(|line| line.strip_prefix("# ").filter(|rest| rest.contains(" = ")).unwrap_or(line))
            .map(|line| format!("{line}\n"))
            .collect();

        let settings = parse(&uncommented, Path::new("config.example.toml")).unwrap();

        assert!(settings.store_options().is_ok() && settings.orchestrator_options().is_ok());
        assert!(settings.server_options().is_ok() && settings.alerts().is_ok());
        let command = <Settings as clap::Args>::augment_args(clap::Command::new("x"));
        for flag in command.get_arguments().filter(|flag| flag.get_id() != "config") {
            assert!(uncommented.contains(&format!("{} = ", flag.get_id())), "{} is missing", flag.get_id());
        }
    }

    #[test]
    fn every_setting_that_the_help_does_not_show_is_a_secret_and_can_be_in_a_file() {
        let command = <Settings as clap::Args>::augment_args(clap::Command::new("x"));
        let names = |is_wanted: fn(&clap::Arg) -> bool| -> Vec<String> {
            let wanted = command.get_arguments().filter(|flag| is_wanted(flag));
            wanted.map(|flag| flag.get_id().to_string()).collect()
        };

        let (mut hidden, all) = (names(clap::Arg::is_hide_env_values_set), names(|_| true));
        hidden.sort();

        assert_eq!(hidden, SECRETS);
        for name in SECRETS {
            assert!(all.contains(&format!("{name}_file")), "{name}");
        }
    }

    #[test]
    fn a_misspelt_setting_and_an_absurd_one_are_refused() {
        let misspelt = parse("databse_url = 'x'", Path::new("f")).err().unwrap().to_string();
        assert!(misspelt.contains("unknown field `databse_url`"), "{misspelt}");

        let absurd = Settings { worker_heartbeat_interval: Some(-1.0), ..Settings::default() };
        assert!(absurd.store_options().is_err());
    }

    #[test]
    fn secrets_are_read_from_files_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "a secret of twenty or more\n").unwrap();
        let config = folder.path().join("vodmill.toml");
        let files: String = SECRETS.iter().map(|name| format!("{name}_file = {file:?}\n")).collect();
        std::fs::write(&config, files).unwrap();
        let flags = Settings {
            config: Some(config),
            metrics_token: Some("this one wins".into()),
            ..Settings::default()
        };

        let settings = flags.with_file().unwrap();

        assert_eq!(settings.metrics_token.as_deref(), Some("this one wins"));
        for secret in [
            settings.admin_secret,
            settings.alert_webhook_secret,
            settings.alert_webhook_url,
            settings.database_url,
            settings.redis_url,
        ] {
            assert_eq!(secret.as_deref(), Some("a secret of twenty or more"));
        }
        let missing = Settings { database_url_file: Some("/nowhere/at/all".into()), ..Settings::default() };
        assert!(missing.with_secret_files().err().unwrap().to_string().contains("--database-url-file"));
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let flags = Settings { database_connections: Some(3), ..Settings::default() };

        let merged = flags.or(parse("database_connections = 7\nlog = 'debug'", Path::new("f")).unwrap());

        assert_eq!(merged.database_connections, Some(3));
        assert_eq!(merged.log.as_deref(), Some("debug"));
    }
}
