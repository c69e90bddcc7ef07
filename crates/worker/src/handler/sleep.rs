//! Waits: `{"ms": 1500}`.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::{Instant, sleep};
use wire::Assignment;

use super::{BoxFuture, Failed, Handler, Outcome};
use crate::context::Context;

/// How often it says that it is still asleep.
const TURN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct Sleep;

#[derive(Deserialize)]
struct Payload {
    ms: u64,
}

impl Handler for Sleep {
    fn kind(&self) -> &str {
        "sleep"
    }

    fn run<'a>(
        &'a self,
        job: &'a Assignment,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Failed>> {
        Box::pin(async move {
            let payload = Payload::deserialize(&job.payload);
            let Payload { ms } =
                payload.map_err(|error| Failed::permanent(format!("not a payload of `sleep`: {error}")))?;
            tokio::select! {
                () = slumber(Duration::from_millis(ms), context) => Ok(Outcome::default()),
                () = context.stop.cancelled() => Err(Failed::transient("woken before its time")),
            }
        })
    }
}

async fn slumber(length: Duration, context: &Context) {
    let began = Instant::now();
    while let Some(left) = length.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        sleep(left.min(TURN)).await;
        context.progress.beat();
        context.progress.set_fraction(began.elapsed().div_duration_f64(length));
    }
}
