//! `vodmill video …`: one video, by its number or its slug.

use super::transcode::Choices;
use crate::Done;
use crate::office::Office;
use crate::output::{self, ago, or_dash, size};
use crate::settings::{Settings, Usage};
use rules::{GenerationId, JobId};
use server::api::videos::{Retranscode, VideoDetail};
use std::path::PathBuf;
use store::catalogue::Entry;

#[derive(clap::Args)]
pub struct Target {
    /// Its number or its slug
    video: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Look at one video, delete it, make it again
#[derive(clap::Subcommand)]
pub enum Command {
    /// What it is, its renditions and generations
    Show(Target),
    /// Hide it at once and stop its jobs; after a while it is removed for good
    Delete(Target),
    /// Take a deletion back
    Restore(Target),
    /// Make it again; what is there plays until the new generation is complete
    Retranscode(Again),
    /// Show an older generation again
    Rollback(Back),
}

#[derive(clap::Args)]
pub struct Again {
    #[command(flatten)]
    target: Target,
    /// Only these rungs: 720p,480p. Default: all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    rungs: Option<Vec<String>>,
    /// Ladder and encoder settings from a TOML or JSON file, instead of what was asked for last
    #[arg(long, value_name = "FILE", visible_alias = "ladder")]
    settings: Option<PathBuf>,
    /// 0 to 10, 10 first
    #[arg(long, value_name = "N")]
    priority: Option<i64>,
    /// Also remove the captions that somebody attached
    #[arg(long)]
    delete_captions: bool,
    /// Follow its job until it ends
    #[arg(long)]
    watch: bool,
}

#[derive(clap::Args)]
pub struct Back {
    #[command(flatten)]
    target: Target,
    /// Which one, as `video show` lists them. Default: the one before the present one
    #[arg(long, value_name = "GENERATION")]
    to: Option<i64>,
}

impl Command {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        match self {
            Command::Show(target) => show(&office, target).await?,
            Command::Delete(target) => {
                say(&office.delete_video(&target.video).await?, target.json, "deleted")?;
            }
            Command::Restore(target) => {
                say(&office.restore_video(&target.video).await?, target.json, "restored")?;
            }
            Command::Retranscode(again) => return again.run(&office).await,
            Command::Rollback(back) => back.run(&office).await?,
        }
        Ok(Done::Yes)
    }
}

fn say(video: &Entry, json: bool, what: &str) -> anyhow::Result<()> {
    if json {
        return output::json(video);
    }
    output::line(&format!("video {} ({}) is {what}", video.id, video.slug));
    Ok(())
}

async fn show(office: &Office, target: Target) -> anyhow::Result<()> {
    let detail = office.video(&target.video).await?;
    if target.json {
        return output::json(&detail);
    }
    let now = office.now().await?;
    describe(office, &detail, now);
    output::line("");
    output::listing(false, &detail.renditions, ["rendition", "codec", "size", "bandwidth", "bytes"], |it| {
        [
            it.name.clone(),
            it.codec.clone(),
            it.width.zip(it.height).map_or_else(|| "-".into(), |(width, height)| format!("{width}x{height}")),
            or_dash(it.bandwidth),
            size(it.bytes),
        ]
    })?;
    output::line("");
    output::listing(false, &detail.generations, ["generation", "job", "age", "shown"], |it| {
        let shown = if it.is_current { "yes" } else { "" };
        [it.id.to_string(), it.job.to_string(), ago(it.created_at, now), shown.into()]
    })
}

fn describe(office: &Office, detail: &VideoDetail, now: i64) {
    let video = &detail.video;
    let deleted = video.deleted_at.map(|at| format!("  deleted {} ago", ago(at, now))).unwrap_or_default();
    output::line(&format!(
        "video {}  {}  {}  {}  job {}  user {}  uploaded {} ago{deleted}",
        video.id,
        video.slug,
        output::text(&video.title),
        video.state,
        or_dash(video.job),
        video.user,
        ago(video.created_at, now)
    ));
    if video.generation.is_some() {
        output::line(&format!("playlist: {}", office.place_of(&detail.playlist)));
    }
    for caption in &detail.captions {
        output::line(&format!("captions: {} ({})", caption.language, caption.label));
    }
}

impl Again {
    async fn run(self, office: &Office) -> anyhow::Result<Done> {
        let asked = Retranscode {
            qualities: self.rungs,
            settings: self.settings.as_deref().map(Choices::read).transpose()?,
            priority: self.priority,
            delete_transcription: self.delete_captions,
        };
        let job: JobId = office.retranscode(&self.target.video, asked).await?;
        if self.target.json {
            output::json(&serde_json::json!({ "job": job }))?;
        } else {
            output::line(&format!("job {job} makes it again; what is there plays until then"));
        }
        if self.watch {
            return super::watch::follow(office, job, self.target.json).await;
        }
        Ok(Done::Yes)
    }
}

impl Back {
    async fn run(self, office: &Office) -> anyhow::Result<()> {
        let to = match self.to {
            Some(to) => GenerationId(to),
            None => before(&office.video(&self.target.video).await?)?,
        };
        let video = office.roll_back_video(&self.target.video, to).await?;
        say(&video, self.target.json, &format!("back at generation {to}"))
    }
}

/// The newest generation that is older than the one shown.
fn before(detail: &VideoDetail) -> Result<GenerationId, Usage> {
    let older = detail.generations.iter().skip_while(|generation| !generation.is_current).nth(1);
    older.map(|generation| generation.id).ok_or_else(|| {
        Usage(format!("video {} has no generation before the one that is shown", detail.video.id))
    })
}
