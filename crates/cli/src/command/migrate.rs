use super::serve::refused;
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use store::Store;

/// Bring the database's schema up to date
///
/// A SQLite file is also migrated by whatever opens it; PostgreSQL only by this.
#[derive(clap::Args)]
pub struct Args {
    /// Begin a new timeline, after a backup was restored by hand together with the data folder
    #[arg(long)]
    new_timeline: bool,
    /// The files were moved to what --data-folder or --storage says now; no server may run
    #[arg(long)]
    move_storage: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let applied = Store::migrate(&settings.location()?, settings.store_options()?).await?;
        let timeline = if self.new_timeline { Some(begin_timeline(settings).await?) } else { None };
        let storage = if self.move_storage { Some(move_storage(settings).await?) } else { None };
        if self.json {
            let done = serde_json::json!({ "applied": applied, "timeline": timeline, "storage": storage });
            output::json(&done)?;
            return Ok(Done::Yes);
        }
        match applied.is_empty() {
            true => output::line("the schema is up to date"),
            false => output::line(&format!("applied {}", applied.join(", "))),
        }
        if let Some(timeline) = timeline {
            output::line(&format!("timeline {timeline} begins"));
        }
        if let Some(storage) = storage {
            output::line(&format!("the files of this database are in {storage}"));
        }
        Ok(Done::Yes)
    }
}

async fn begin_timeline(settings: &Settings) -> anyhow::Result<String> {
    let store = settings.open().await?;
    let begun = store.begin_timeline(None, "an operator said that a backup was restored").await?;
    store.close().await;
    Ok(begun.to_string())
}

async fn move_storage(settings: &Settings) -> anyhow::Result<String> {
    let (store, data) = (settings.open().await?, settings.data()?);
    let Some(_lock) = settings.lock_database()? else {
        return Err(Usage("a server uses this database; stop it before its files move".into()).into());
    };
    server::identity::move_here(&store, &data).await.map_err(refused)?;
    store.close().await;
    Ok(data.location())
}
