use crate::settings::{Settings, Usage};
use crate::{Done, output};
use server::inventory::{Depth, Inventory};
use store::Store;
use worker::sandbox::{self, Sandbox};

/// Recompute every derived value and invariant, and list what is off
///
/// Read-only, in one snapshot, on a live database. Exits with 1 when something is off.
#[derive(clap::Args)]
pub struct Args {
    /// Also compare all files with what the database names: every one is there with its size, and no other
    #[arg(long)]
    files: bool,
    /// With --files, also read every file and compare its hash
    #[arg(long, requires = "files")]
    deep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Look at this machine instead: tell which parts of the sandbox around ffmpeg are in force, each by trying it
    #[arg(long)]
    host: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        if self.host {
            return self.examine_host(settings).await;
        }
        if settings.server()?.is_some() {
            let how = "run it where the database can be reached, without --server and VODMILL_SERVER";
            return Err(Usage(format!("the doctor looks into the database itself: {how}")).into());
        }
        let store = settings.open_existing().await?;
        let mut report = store.examine().await?;
        let inventory = if self.files { Some(self.compare(settings, &store).await?) } else { None };
        let files = inventory.as_ref().map(|inventory| inventory.files);
        report.findings.extend(inventory.into_iter().flat_map(|inventory| inventory.findings));
        if self.json {
            let mut told = serde_json::to_value(&report)?;
            if let Some(files) = files {
                told["files"] = files.into();
            }
            output::json(&told)?;
        } else {
            for finding in &report.findings {
                output::line(&format!("{}: {}  [{}]", finding.subject, finding.what, finding.check));
            }
            for note in &report.notes {
                output::line(&format!("note: {note}"));
            }
            output::line(&format!(
                "{} checks over {}{} jobs, {} tasks, {} executions: {}",
                report.checks,
                files.map(|files| format!("{files} files, ")).unwrap_or_default(),
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

    async fn examine_host(self, settings: &Settings) -> anyhow::Result<Done> {
        let guard = settings.guard();
        let examined = sandbox::examine(&guard).await?;
        if self.json {
            output::json(&serde_json::json!({ "sandbox": guard.sandbox, "items": examined.items }))?;
        } else {
            for item in &examined.items {
                let state = if item.is_in_force { "in force" } else { "MISSING" };
                output::line(&format!("{:<26} {state:<9} {}", item.name, item.detail));
            }
            if guard.sandbox == Sandbox::Off {
                output::line("the sandbox is off by the settings: nothing of this is used");
            }
        }
        let is_complete = examined.missing().next().is_none();
        Ok(if is_complete { Done::Yes } else { Done::No })
    }

    async fn compare(&self, settings: &Settings, store: &Store) -> anyhow::Result<Inventory> {
        let data = settings.data()?;
        // A backup is checked at another place.
        if let Err(mismatch) = server::identity::compare(store, &data).await {
            output::tell(&format!("note: {mismatch}"));
        }
        let depth = if self.deep { Depth::Hashes } else { Depth::Sizes };
        let work = settings.work_folder.clone().unwrap_or_else(|| data.work());
        Ok(server::inventory::examine(store, &data, &work, depth).await?)
    }
}
