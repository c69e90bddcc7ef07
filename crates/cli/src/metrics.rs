//! The address at which the metrics of this process can be read, if there is to be one.

use crate::log;
use crate::settings::{Settings, Usage};
use anyhow::Context;
use server::AdminSecret;
use server::metrics::{self, Metrics};
use tokio::task::JoinSet;

/// Shorter ones are guessed.
const SHORTEST_TOKEN: usize = 20;

pub fn token(settings: &Settings) -> anyhow::Result<Option<AdminSecret>> {
    match settings.metrics_token.as_deref() {
        Some(token) if token.len() < SHORTEST_TOKEN => {
            let why = format!("the metrics token must have at least {SHORTEST_TOKEN} characters");
            Err(Usage(why).into())
        }
        token => Ok(token.map(AdminSecret::given)),
    }
}

/// Shows them until what is returned is dropped.
pub async fn show(settings: &Settings, metrics: Metrics) -> anyhow::Result<JoinSet<()>> {
    let mut beside = JoinSet::new();
    if let Some(address) = settings.metrics_listen.as_deref() {
        let listener = server::bind(address)
            .await
            .with_context(|| Usage(format!("cannot listen on {address} for metrics")))?;
        log::address(settings, "metrics", &format!("http://{}/metrics", listener.local_addr()?));
        beside.spawn(metrics::serve(metrics, listener));
    }
    Ok(beside)
}
