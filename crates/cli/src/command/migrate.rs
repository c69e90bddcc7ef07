use crate::settings::Settings;
use crate::{Done, output};
use store::Store;

/// Bring the database's schema up to date
///
/// A SQLite file is also migrated by whatever opens it; PostgreSQL only by this.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let applied = Store::migrate(&settings.location()?, settings.store_options()?).await?;
        if self.json {
            output::json(&serde_json::json!({ "applied": applied }))?;
        } else if applied.is_empty() {
            output::line("the schema is up to date");
        } else {
            output::line(&format!("applied {}", applied.join(", ")));
        }
        Ok(Done::Yes)
    }
}
