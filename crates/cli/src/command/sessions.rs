use crate::office::Office;
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use serde_json::json;

/// List browsers that are signed in on the server's page, or sign them out
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List open sessions, newest first
    List,
    /// Sign one browser out, or all of them
    End {
        /// The session's id
        #[arg(value_name = "SESSION")]
        id: Option<String>,
        /// End all sessions
        #[arg(long)]
        all: bool,
    },
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        match &self.command {
            None | Some(Command::List) => self.list(&office).await?,
            Some(Command::End { id: Some(id), all: false }) => {
                office.end_session(id).await?;
                self.say(1)?;
            }
            Some(Command::End { id: None, all: true }) => self.say(office.end_sessions().await?)?,
            Some(Command::End { .. }) => {
                return Err(Usage("name one session, or end them all with --all".into()).into());
            }
        }
        Ok(Done::Yes)
    }

    async fn list(&self, office: &Office) -> anyhow::Result<()> {
        let sessions = office.sessions().await?;
        let now = office.now().await?;
        output::listing(self.json, &sessions, ["id", "opened", "ends in", "from", "browser"], |session| {
            [
                session.id.clone(),
                output::ago(session.created_at, now),
                output::ago(now, session.expires_at),
                session.client.clone(),
                output::short(&session.user_agent, 60),
            ]
        })
    }

    fn say(&self, ended: u64) -> anyhow::Result<()> {
        if self.json {
            return output::json(&json!({ "ended": ended }));
        }
        output::line(&format!("ended {ended} session{}", if ended == 1 { "" } else { "s" }));
        Ok(())
    }
}
