//! How programs that read videos are locked in.

use super::{Settings, Usage};
use anyhow::Context;
use worker::process::Guard;
use worker::sandbox::{self, Sandbox};

impl Settings {
    /// What starts ffmpeg and ffprobe.
    pub fn guard(&self) -> Guard {
        Guard { sandbox: self.sandbox.unwrap_or_default(), ..Guard::default() }
    }

    /// As [`Settings::guard`], for a program that is about to work: `warn` is told what is missing of the sandbox, or it refuses.
    pub async fn examined_guard(&self, warn: impl FnOnce(&str)) -> anyhow::Result<Guard> {
        let guard = self.guard();
        if guard.sandbox == Sandbox::Off {
            return Ok(guard);
        }
        let examined = sandbox::examine(&guard).await.context("finding out how ffmpeg can be locked in")?;
        let missing: Vec<_> =
            examined.missing().map(|item| format!("{} ({})", item.name, item.detail)).collect();
        let missing = missing.join("; ");
        match guard.sandbox {
            _ if missing.is_empty() => {}
            Sandbox::Require => {
                return Err(Usage(format!(
                    "the sandbox is required, and this is missing of it here: {missing}; see `vodmill doctor --host`"
                ))
                .into());
            }
            Sandbox::BestEffort | Sandbox::Off => {
                warn(&format!(
                    "ffmpeg is not locked in completely, missing: {missing}; see `vodmill doctor --host`"
                ));
            }
        }
        Ok(guard)
    }
}
