use crate::settings::Settings;
use crate::{Done, output};

/// Recompute every derived value and invariant, and list what is off
///
/// Read-only, in one snapshot, on a live database. Exits with 1 when something is off.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let store = settings.open_existing().await?;
        let report = store.examine().await?;
        if self.json {
            output::json(&report)?;
        } else {
            for finding in &report.findings {
                output::line(&format!("{}: {}  [{}]", finding.subject, finding.what, finding.check));
            }
            output::line(&format!(
                "{} checks over {} jobs, {} tasks, {} executions: {}",
                report.checks,
                report.jobs,
                report.tasks,
                report.executions,
                match report.findings.len() {
                    0 => "all is well".into(),
                    1 => "1 finding".into(),
                    many => format!("{many} findings"),
                }
            ));
        }
        Ok(if report.findings.is_empty() { Done::Yes } else { Done::No })
    }
}
