mod spec;
mod video;

use crate::Done;
use crate::settings::Settings;
use std::path::PathBuf;

/// Submit a video to a server, or a job of command stages, described in a TOML or JSON file
///
/// A video is sent piece by piece: through cut connections and restarts of the server it goes on where it was. One that is
/// named by its address is fetched by the server. See
/// examples/demo.toml for the format of a job.
#[derive(clap::Args)]
pub struct Args {
    /// The file: a job's spec (.toml, .json; `-` reads one from standard input) or, with --server, a video or its URL
    file: PathBuf,
    /// For a spec: the same key again means the same job; with another spec it is an error
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// 0 to 10, 10 first; over what the file says
    #[arg(long, value_name = "N")]
    priority: Option<i64>,
    /// Whose it is; over what the file says
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Follow the job until it ends
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    video: video::Wish,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        match settings.server()? {
            Some(_) if !spec::is_one(&self.file) => video::submit(self, settings).await,
            _ => spec::submit(self, settings).await,
        }
    }
}
