//! The file a stream is made of, which somebody may change or take away in the middle.

use super::Work;
use crate::Context;
use crate::handler::Failed;
use crate::process::Reach;
use crate::remote::{Relay, Source};
use crate::sandbox::Sandbox;
use media::probe::input::is_remote;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::UNIX_EPOCH;

/// The payload of stages that read the file itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct FromSource {
    /// A path on the worker's machine, or a URL; to a worker elsewhere only the file's name.
    pub source: String,
    /// None for what cannot be told to have changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

/// How a file looked when its job was begun. Pieces of two different files must never become one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub bytes: u64,
    /// Since 1970.
    pub modified_ns: u64,
}

impl Seen {
    pub fn of(path: &str) -> io::Result<Self> {
        let found = std::fs::metadata(path)?;
        let modified = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Seen { bytes: found.len(), modified_ns: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX) })
    }
}

impl FromSource {
    /// Hands on what was made of the file, unless it is another one by now; that also explains any failure best.
    pub fn unchanged<T>(&self, made: Result<T, Failed>) -> Result<T, Failed> {
        let Some(seen) = self.seen else { return made };
        let source = &self.source;
        match Seen::of(source) {
            Ok(found) if found == seen => made,
            Ok(_) => Err(Failed::permanent(format!(
                "{source} was changed while a stream was made of it; the same command begins anew with what it is now"
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failed::permanent(format!(
                "{source} was removed while a stream was made of it; put it back, and the same command goes on"
            ))),
            Err(error) => made.and(Err(Failed::transient(format!("{source} cannot be read: {error}")))),
        }
    }
}

/// The file as the programs of one execution read it.
pub(super) struct Input<'a> {
    from: FromSource,
    relayed: Option<Relayed>,
    context: &'a Context,
}

/// At a server, and read through the worker.
struct Relayed {
    relay: Relay,
    url: String,
}

impl<'a> Work<'a> {
    /// What the stage's payload names as its source.
    pub async fn open(&self) -> Result<Input<'a>, Failed> {
        let from: FromSource = self.payload()?;
        let relay = self.tools.depot.relay(self.job, self.context, &from.source).await?;
        if relay.is_none() && is_remote(&from.source) && self.tools.guard.sandbox != Sandbox::Off {
            return Err(Failed::permanent(format!(
                "{} is an address, and programs that read videos have no network: import it instead",
                from.source
            )));
        }
        let relayed = relay.map(|relay| Relayed { url: relay.url(), relay });
        Ok(Input { from, relayed, context: self.context })
    }
}

impl Input<'_> {
    /// What ffmpeg is told to read.
    pub fn argument(&self) -> &str {
        self.relayed.as_ref().map_or(&self.from.source, |relayed| &relayed.url)
    }

    /// What a program needs to read it.
    pub fn reach(&self) -> Reach {
        match &self.relayed {
            Some(relayed) => Reach::through(relayed.relay.door()),
            None => Reach::reading(&self.from.source),
        }
    }

    /// None for what is on this machine.
    pub fn at_server(&self) -> Option<&Source> {
        self.relayed.as_ref().map(|relayed| relayed.relay.source())
    }

    /// Hands on what was made of the file, unless it is another one by now, or not all of it could be read.
    pub fn unchanged<T>(&self, made: Result<T, Failed>) -> Result<T, Failed> {
        match self.at_server() {
            None => self.from.unchanged(made),
            Some(source) => source.trouble().map_or(made, Err).map_err(|failed| source.blame(failed)),
        }
    }
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        let fetched = self.at_server().map_or(0, Source::bytes_in);
        self.context.count_bytes(fetched, 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_of_another_file_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("talk.mov").to_str().unwrap().to_owned();
        std::fs::write(&source, "a talk").unwrap();
        let from = FromSource { seen: Some(Seen::of(&source).unwrap()), source: source.clone() };
        let remote = FromSource { seen: None, source: "https://example.org/talk.mov".into() };

        let as_it_was = from.unchanged(Ok(1));
        std::fs::write(&source, "another talk").unwrap();
        let changed = from.unchanged(Ok(1)).unwrap_err();
        std::fs::remove_file(&source).unwrap();
        let removed = from.unchanged::<()>(Err(Failed::transient("exit code 1"))).unwrap_err();

        assert_eq!(as_it_was.unwrap(), 1);
        assert!(changed.message.contains("was changed"), "{}", changed.message);
        assert!(removed.message.contains("was removed"), "{}", removed.message);
        assert_eq!(remote.unchanged(Ok(1)).unwrap(), 1);
    }
}
