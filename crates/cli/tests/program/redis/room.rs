//! A database, a Redis behind a line, and programs that use both.

use super::line::Line;
use crate::support::{Engine, Process, Program, World, said};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A Redis of one's own, to be stopped, killed and filled.
pub struct Redis(TempDir);

impl Redis {
    pub fn start() -> Self {
        let redis = Redis(tempfile::Builder::new().prefix("vodmill-redis").tempdir().unwrap());
        redis.run("start", &["maxmemory-policy noeviction"]);
        redis
    }

    pub fn run(&self, what: &str, more: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/redis");
        let output = Command::new(script).arg(what).arg(self.0.path()).args(more).output().unwrap();
        assert!(output.status.success(), "scripts/redis {what}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub fn ask(&self, words: &[&str]) -> String {
        self.run("cli", words)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.run("stop", &["KILL"]);
    }
}

pub struct Room {
    pub world: World,
    pub redis: Redis,
    pub line: Line,
    mode: &'static str,
}

impl Room {
    pub fn new(mode: &'static str) -> Self {
        let (world, redis) = (World::new(Engine::Postgres), Redis::start());
        let line = Line::to(&redis.run("port", &[]));
        Room { world, redis, line, mode }
    }

    /// A program with leases of two seconds, that speaks to Redis by the line.
    pub fn program(&self, args: &[&str]) -> Program {
        self.world
            .vodmill(args)
            .env("VODMILL_REDIS_URL", self.line.url())
            .env("VODMILL_JOB_QUEUE_MODE", self.mode)
            .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.034")
            .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.5")
            .env("VODMILL_LOG", "info,dispatch=debug,sqlx=warn")
    }

    /// Its log is `name` in the world's folder.
    pub fn start(&self, args: &[&str], name: &str) -> Process {
        self.program(args).start_logged(&self.world.folder.path().join(name))
    }

    pub fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.world.folder.path().join(name)).unwrap_or_default()
    }
}
