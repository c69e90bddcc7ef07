//! A video for a server.

use super::Args;
use crate::command::transcode::Choices;
use crate::office::{Office, Server, Upload};
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use server::api::uploads::Uploaded;
use server::api::videos::VideoDetail;
use std::fs::Metadata;
use std::io::IsTerminal;
use std::path::Path;

#[derive(clap::Args)]
#[command(next_help_heading = "The video")]
pub struct Wish {
    /// For people. Default: the file's name
    #[arg(long)]
    title: Option<String>,
    /// Its name in addresses: letters, digits and dashes. Default: made of the title
    #[arg(long)]
    slug: Option<String>,
    /// It may be watched while it is being made
    #[arg(long)]
    early_playback: bool,
    /// The pool of remote workers that makes it. Default: workers of no pool
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    #[command(flatten)]
    choices: Choices,
}

impl Wish {
    /// Whether anything is said of a video.
    pub fn is_any(&self) -> anyhow::Result<bool> {
        let is_named =
            self.title.is_some() || self.slug.is_some() || self.early_playback || self.pool.is_some();
        Ok(is_named || self.choices.settings()? != media::settings::Settings::default())
    }

    /// As the server wants to be told.
    fn metadata(&self, args: &Args) -> anyhow::Result<Vec<(&'static str, String)>> {
        let chosen = self.choices.settings()?;
        let is_special = chosen != media::settings::Settings::default();
        let settings = is_special.then(|| serde_json::to_string(&chosen)).transpose()?;
        let name = args.file.file_name().map(|name| name.to_string_lossy().into_owned());
        let told = [
            ("filename", name),
            ("title", self.title.clone()),
            ("slug", self.slug.clone()),
            ("user", args.user.clone()),
            ("priority", args.priority.map(|priority| priority.to_string())),
            ("early_playback", self.early_playback.then(|| "true".into())),
            ("pool", self.pool.clone()),
            ("settings", settings),
        ];
        Ok(told.into_iter().filter_map(|(key, value)| Some((key, value?))).collect())
    }
}

pub async fn submit(args: Args, settings: &Settings) -> anyhow::Result<Done> {
    if args.idempotency_key.is_some() {
        return Err(Usage("--idempotency-key is for a job's spec, not for a video".into()).into());
    }
    let url = args.file.to_str().filter(|text| media::probe::input::is_remote(text));
    let metadata = args.video.metadata(&args)?;
    let office = Office::open(settings).await?;
    let Office::Server(server) = &office else { unreachable!("videos are sent only to a server") };
    let video = match url {
        Some(url) => import(server, url, &metadata).await?,
        None => tokio::select! {
            sent = send(server, &args.file, look(&args.file)?, &metadata) => sent?,
            _ = tokio::signal::ctrl_c() => return Ok(Done::Interrupted),
        },
    };
    let detail = office.video(&video).await?;
    say(&detail, args.json)?;
    match detail.video.job {
        Some(job) if args.watch => {
            let done = crate::command::watch::follow(&office, job, args.json).await?;
            if matches!(done, Done::Yes) && !args.json {
                let place = server.place(["watch", &detail.video.slug]);
                output::line(&format!("video {} is ready: {place}", detail.video.id));
            }
            Ok(done)
        }
        _ => Ok(Done::Yes),
    }
}

fn look(file: &Path) -> Result<Metadata, Usage> {
    let found = file.metadata().map_err(|error| Usage(format!("cannot read {}: {error}", file.display())))?;
    if !found.is_file() {
        return Err(Usage(format!("{} is no file; name a video", file.display())));
    }
    Ok(found)
}

/// Lets the server fetch it; the number of the video.
async fn import(server: &Server, url: &str, metadata: &[(&str, String)]) -> anyhow::Result<String> {
    let mut asked = json!({ "url": url });
    for (key, value) in metadata.iter().filter(|(key, _)| *key != "filename") {
        asked[key] = match *key {
            "priority" | "early_playback" | "settings" => serde_json::from_str(value)?,
            _ => json!(value),
        };
    }
    let begun: Uploaded = server.post(["videos"], &asked).await?;
    Ok(begun.id.to_string())
}

/// The number of the video that the server made of it.
async fn send(
    server: &Server,
    file: &Path,
    found: Metadata,
    metadata: &[(&str, String)],
) -> anyhow::Result<String> {
    let bar = bar(found.len());
    let shown = bar.clone();
    let sent = Upload::new(server, file, found, move |bytes| shown.set_position(bytes)).send(metadata).await;
    bar.finish_and_clear();
    sent
}

fn bar(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("[{bar:32}] {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left");
    ProgressBar::new(bytes)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "))
}

fn say(detail: &VideoDetail, as_json: bool) -> anyhow::Result<()> {
    let video = &detail.video;
    if as_json {
        return output::json(&json!({ "id": video.id, "slug": video.slug, "job": video.job }));
    }
    let job = output::or_dash(video.job);
    output::line(&format!("submitted video {} ({}), job {job}", video.id, video.slug));
    Ok(())
}
