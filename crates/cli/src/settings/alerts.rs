//! Settings of alerts: which, how often, and where they are posted.

use super::{Settings, Usage, duration, millis};
use orchestrator::webhook::Options;
use rules::Millis;
use std::collections::HashMap;
use store::alert::Kind;

/// Workers come and go all day.
const BY_DEFAULT: [Kind; 5] = [
    Kind::StaleJobRecovered,
    Kind::JobMaxRetriesExceeded,
    Kind::JobFailedPattern,
    Kind::WorkerSuspended,
    Kind::VideoReady,
];

pub fn webhook(settings: &Settings) -> anyhow::Result<Option<Options>> {
    let Some(url) = url(settings) else { return Ok(None) };
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return Err(Usage("alert_webhook_url must begin with https:// or http://".into()).into());
    }
    let mut options = Options::new(url.into());
    let secret = settings.alert_webhook_secret.as_deref().filter(|secret| !secret.is_empty());
    options.secret =
        secret.map(str::parse).transpose().map_err(|bad| Usage(format!("alert_webhook_secret: {bad}")))?;
    let timeout = settings.alert_webhook_timeout;
    options.timeout = duration(millis(timeout, 1.0, "alert_webhook_timeout", Millis(10_000))?);
    options.allow_private = settings.alert_allow_private.unwrap_or(false);
    Ok(Some(options))
}

/// None where there is nowhere to post them.
pub fn wanted(settings: &Settings) -> anyhow::Result<HashMap<Kind, Millis>> {
    if url(settings).is_none() {
        return Ok(HashMap::new());
    }
    let cooldown = cooldown(settings)?;
    let held_back = |kind| if kind == Kind::VideoReady { Millis(0) } else { cooldown };
    Ok(kinds(settings)?.into_iter().map(|kind| (kind, held_back(kind))).collect())
}

fn url(settings: &Settings) -> Option<&str> {
    settings.alert_webhook_url.as_deref().map(str::trim).filter(|url| !url.is_empty())
}

fn cooldown(settings: &Settings) -> anyhow::Result<Millis> {
    match settings.alert_rate_limit_seconds {
        Some(0.0) => Ok(Millis(0)),
        seconds => millis(seconds, 1.0, "alert_rate_limit_seconds", Millis(300_000)),
    }
}

fn kinds(settings: &Settings) -> anyhow::Result<Vec<Kind>> {
    let Some(names) = &settings.alert_events else { return Ok(BY_DEFAULT.into()) };
    let named = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    let kinds = named.map(str::parse).collect::<Result<Vec<Kind>, _>>();
    kinds.map_err(|unknown| {
        let known = Kind::ALL.map(Kind::as_str).join(", ");
        Usage(format!("alert_events: {unknown}; there are {known}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(events: &str) -> Settings {
        Settings {
            alert_webhook_url: Some("https://hooks.example/x".into()),
            alert_events: Some(events.into()),
            ..Settings::default()
        }
    }

    #[test]
    fn without_an_address_nothing_is_wanted() {
        assert!(wanted(&Settings::default()).unwrap().is_empty());
        assert!(webhook(&Settings::default()).unwrap().is_none());
        let empty = Settings { alert_webhook_url: Some(" ".into()), ..Settings::default() };
        assert!(wanted(&empty).unwrap().is_empty());
    }

    #[test]
    fn every_kind_but_a_finished_video_is_held_back() {
        let wanted = wanted(&settings("worker_startup, video_ready")).unwrap();

        let expected = [(Kind::WorkerStartup, Millis(300_000)), (Kind::VideoReady, Millis(0))];
        assert_eq!(wanted, HashMap::from(expected));
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let unknown = wanted(&settings("video_redy")).unwrap_err().to_string();
        assert!(unknown.contains("no event `video_redy`; there are stale_job_recovered"), "{unknown}");
        let bad = Settings { alert_webhook_secret: Some("geheim".into()), ..settings("") };
        assert!(webhook(&bad).is_err());
        let bad = Settings { alert_webhook_url: Some("ftp://x".into()), ..Settings::default() };
        assert!(webhook(&bad).is_err());
    }
}
