use crate::Done;
use crate::beside::Beside;
use crate::settings::Settings;
use tokio_util::sync::CancellationToken;
use worker::Shutdown;

/// Run an orchestrator without a worker
///
/// `vodmill worker` has one inside; more of them do no harm, and one is enough.
#[derive(clap::Args)]
pub struct Args {}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let store = settings.open().await?;
        let shutdown = Shutdown::on_signals()?;
        tracing::info!("orchestrating");
        let mut beside = Beside::start(settings, &store).await?;
        let mut options = settings.orchestrator_options()?;
        options.leads = Some(beside.orchestrates(&store));
        // It may be stopped at any line: each duty is a transaction, or safe to repeat.
        tokio::select! {
            () = orchestrator::run(store, options, CancellationToken::new()) => {}
            () = shutdown.draining() => {}
        }
        beside.end().await;
        Ok(Done::Yes)
    }
}
