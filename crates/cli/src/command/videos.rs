use crate::Done;
use crate::office::Office;
use crate::output::{ago, listing, or_dash, short, size};
use crate::settings::Settings;
use rules::VideoId;
use rules::video::State;
use store::catalogue::Filter;

/// List videos, newest first
#[derive(clap::Args)]
pub struct Args {
    /// Only those with this in their title or slug
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only those in this state: pending, processing, ready, failed
    #[arg(long)]
    state: Option<State>,
    /// Only those that are deleted and can still be restored
    #[arg(long)]
    deleted: bool,
    /// Only those older than this one
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    /// How many, at most 1000
    #[arg(long, default_value_t = 50)]
    limit: i64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        let filter = Filter {
            search: self.search,
            state: self.state,
            deleted: self.deleted,
            before: self.before.map(VideoId),
            limit: Some(self.limit),
        };
        let videos = office.videos(&filter).await?;
        let now = office.now().await?;
        listing(self.json, &videos, ["id", "slug", "title", "state", "job", "source", "age"], |video| {
            [
                video.id.to_string(),
                video.slug.clone(),
                short(&video.title, 40),
                video.state.to_string(),
                or_dash(video.job),
                or_dash(video.source_bytes.map(size)),
                ago(video.created_at, now),
            ]
        })?;
        Ok(Done::Yes)
    }
}
