use crate::settings::{Settings, Usage};
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
        if settings.server()?.is_some() {
            let how = "run it where the database can be reached, without --server and VODMILL_SERVER";
            return Err(Usage(format!("the doctor looks into the database itself: {how}")).into());
        }
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
