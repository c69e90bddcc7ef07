//! Webhooks: alerts are posted to an address that somebody set, signed as [Standard Webhooks] has it.
//!
//! At least once, in no particular order: `webhook-id` is the same at each attempt. A receiver that answers anything but
//! 2xx, or too late, is tried again with backoff, until the alert is a day old. It has a duty of its own, so that a slow
//! one delays nothing else.
//!
//! [Standard Webhooks]: https://www.standardwebhooks.com

mod secret;

pub use secret::{BadSecret, Secret};

use crate::duty::{Look, When, repeat};
use outbound::Reach;
use reqwest::Client;
use rules::Millis;
use rules::backoff::Backoff;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::outbox::Delivery;
use store::wake::Topic;
use store::{Result, Store};

#[derive(Debug, Clone)]
pub struct Options {
    pub url: String,
    /// What messages are signed with. Default: they are not.
    pub secret: Option<Secret>,
    /// How long the receiver may take. Default 10 s, at most 50 s.
    pub timeout: Duration,
    /// Whether the receiver may be on this machine or in a private network. Default no.
    pub allow_private: bool,
    /// Between attempts. Default 10 s, doubling up to 5 min.
    pub backoff: Backoff,
    /// How old an alert may get before it is given up. Default 24 h.
    pub patience: Duration,
}

impl Options {
    pub fn new(url: String) -> Self {
        Options {
            url,
            secret: None,
            timeout: Duration::from_secs(10),
            allow_private: false,
            backoff: Backoff::default(),
            patience: Duration::from_secs(24 * 3600),
        }
    }
}

/// Below the time after which another orchestrator would take the same alert.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(50);

/// How many are under way at once.
const AT_ONCE: i64 = 8;

#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error("{0}")]
    Address(#[from] outbound::Error),
    #[error("it answered {0}{1}")]
    Answered(u16, &'static str),
    #[error("{0}")]
    Unreachable(String),
}

pub(crate) async fn run(store: &Store, options: &crate::Options) {
    let Some(webhook) = &options.webhook else { return std::future::pending().await };
    let client = match client(webhook) {
        Ok(client) => client,
        Err(error) => {
            tracing::error!("no alert can be delivered: {error}");
            return std::future::pending().await;
        }
    };
    let wakeups = store.wake().subscribe(Topic::Deliver);
    let look = || deliver(store, webhook, &client);
    repeat("deliver alerts", When::Woken(wakeups, options.poll), look).await;
}

fn client(options: &Options) -> Result<Client, reqwest::Error> {
    reach(options).client().timeout(options.timeout.min(LONGEST_TIMEOUT)).build()
}

fn reach(options: &Options) -> Reach {
    Reach::private(options.allow_private)
}

async fn deliver(store: &Store, options: &Options, client: &Client) -> Result<Look> {
    loop {
        let alerts = store.take_alerts(AT_ONCE).await?;
        if alerts.is_empty() {
            return Ok(Look::Idle);
        }
        let mut under_way = tokio::task::JoinSet::new();
        for alert in alerts {
            let (store, options, client) = (store.clone(), options.clone(), client.clone());
            under_way.spawn(async move { deliver_one(&store, &options, &client, &alert).await });
        }
        while let Some(done) = under_way.join_next().await {
            done.unwrap_or(Ok(()))?;
        }
    }
}

async fn deliver_one(store: &Store, options: &Options, client: &Client, alert: &Delivery) -> Result<()> {
    failpoint::reached("webhook", "before");
    let posted = post(options, client, alert).await;
    failpoint::reached("webhook", "after");
    let Err(failed) = posted else { return store.messages_delivered(&[alert.id]).await };
    let patience = Millis(i64::try_from(options.patience.as_millis()).unwrap_or(i64::MAX));
    let (error, key) = (failed.to_string(), &alert.key);
    if store.postpone_or_give_up(alert, &error, options.backoff, patience).await? {
        tracing::error!(alert.key = key, "gave up on alert {key} after {} attempts: {error}", alert.attempt);
    } else {
        tracing::warn!(alert.key = key, "cannot deliver alert {key}, trying again later: {error}");
    }
    Ok(())
}

async fn post(options: &Options, client: &Client, alert: &Delivery) -> Result<(), Failed> {
    let url = reach(options).parse(&options.url)?;
    let body = alert.payload.to_string();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let timestamp = since.as_secs().to_string();
    let mut request = client
        .post(url)
        .header("content-type", "application/json")
        .header("webhook-id", &alert.key)
        .header("webhook-timestamp", &timestamp);
    if let Some(secret) = &options.secret {
        request = request.header("webhook-signature", secret.sign(&alert.key, &timestamp, &body));
    }
    let answer =
        request.body(body).send().await.map_err(|error| Failed::Unreachable(outbound::told(error)))?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => {
            Err(Failed::Answered(status.as_u16(), ", and redirects are not followed"))
        }
        status => Err(Failed::Answered(status.as_u16(), "")),
    }
}
