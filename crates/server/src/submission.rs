//! What a job that is submitted over HTTP may ask for. The server's settings decide, and nothing in the job's payload.
//!
//! Jobs that make videos come from a video's own endpoints: the server writes their stages, with its own paths and limits.

use crate::data::is_tame;
use crate::problem::{Error, Result};
use rules::spec::{Effect, Spec, Stage};
use std::path::PathBuf;

/// The kinds of work that a job over HTTP may use where the settings say nothing. Neither reads nor writes a file.
pub const PUBLIC_KINDS: [&str; 2] = ["noop", "sleep"];

/// Settings of jobs that are submitted over HTTP.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Default: [`PUBLIC_KINDS`].
    kinds: Vec<String>,
    /// Where effects may append to files. Default: nowhere.
    effects_folder: Option<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is work of the server's own; jobs over HTTP cannot be allowed to use it")]
pub struct ServerKind(String);

impl Default for Limits {
    fn default() -> Self {
        Limits { kinds: PUBLIC_KINDS.map(String::from).into(), effects_folder: None }
    }
}

impl Limits {
    /// Refuses kinds whose payloads name files of the server.
    pub fn new(kinds: Option<Vec<String>>, effects_folder: Option<PathBuf>) -> Result<Self, ServerKind> {
        let kinds = kinds.unwrap_or_else(|| Limits::default().kinds);
        match kinds.iter().find(|kind| worker::transcode::KINDS.contains(&kind.as_str())) {
            Some(kind) => Err(ServerKind(kind.clone())),
            None => Ok(Limits { kinds, effects_folder }),
        }
    }

    /// The job as it may be submitted, or why it may not.
    pub fn admit(&self, mut spec: Spec) -> Result<Spec> {
        for stage in &mut spec.stages {
            self.check_kind(stage)?;
            if let Some(effect) = &stage.effect {
                stage.effect = Some(self.confine(&stage.name, effect)?);
            }
        }
        Ok(spec)
    }

    /// Whether a job that was submitted before, perhaps under other settings or to an older version, may be submitted again.
    pub fn admit_again(&self, spec: Spec) -> Result<()> {
        let own = self.effects_folder.as_ref().map(|folder| folder.to_string_lossy());
        let mut spec = spec;
        for stage in &mut spec.stages {
            if let Some(Effect::AppendIn { folder, name }) = &stage.effect
                && own.as_deref() == Some(folder)
            {
                stage.effect = Some(Effect::Append(name.clone()));
            }
        }
        self.admit(spec).map(drop).map_err(|error| match error {
            Error::Unprocessable { code, detail } => Error::unprocessable(
                code,
                format!(
                    "the job cannot be made again over HTTP: {detail}; `vodmill job retry` at the server's database can \
                     do it"
                ),
            ),
            error => error,
        })
    }

    fn check_kind(&self, stage: &Stage) -> Result<()> {
        // What is wrong with the spec itself is said by the store.
        let Ok((kind, _)) = stage.work() else { return Ok(()) };
        if self.kinds.iter().any(|public| public == kind) {
            return Ok(());
        }
        let (name, allowed) = (&stage.name, self.kinds.join(", "));
        let what = if worker::transcode::KINDS.contains(&kind) {
            format!(
                "stage `{name}`: `{kind}` is work of the server's own; POST /api/videos makes a video. Jobs over \
                 HTTP may use {allowed}"
            )
        } else {
            format!(
                "stage `{name}`: jobs over HTTP may use {allowed}; the server's `api_job_kinds` can allow `{kind}`"
            )
        };
        Err(Error::unprocessable("kind_not_public", what))
    }

    /// Over HTTP an effect names a file of the one folder that the settings name.
    fn confine(&self, stage: &str, effect: &Effect) -> Result<Effect> {
        let Some(folder) = &self.effects_folder else {
            let what = "effects are disabled over HTTP; the server's `api_effects_folder` names where they may write";
            return Err(Error::unprocessable("effects_disabled", format!("stage `{stage}`: {what}")));
        };
        match effect {
            Effect::Append(name) if is_tame(name) && !name.contains('/') => {
                let folder = folder.to_string_lossy().into_owned();
                Ok(Effect::AppendIn { folder, name: name.clone() })
            }
            Effect::Append(_) | Effect::AppendIn { .. } => {
                let what = "over HTTP `effect.append` is a plain file name, without folders";
                Err(Error::unprocessable("bad_effect", format!("stage `{stage}`: {what}")))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn admitted(limits: &Limits, stage: Value) -> Result<Spec> {
        let mut named = json!({ "name": "a" });
        named.as_object_mut().unwrap().extend(stage.as_object().unwrap().clone());
        limits.admit(serde_json::from_value(json!({ "name": "x", "stage": [named] })).unwrap())
    }

    fn code(refused: Result<Spec>) -> &'static str {
        match refused {
            Err(Error::Unprocessable { code, .. }) => code,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_public_kinds_are_admitted() {
        let limits = Limits::default();

        for stage in [json!({ "kind": "noop" }), json!({ "sleep_ms": 1 })] {
            assert!(admitted(&limits, stage).is_ok());
        }
        for kind in worker::transcode::KINDS.into_iter().chain(["command", "custom"]) {
            assert_eq!(code(admitted(&limits, json!({ "kind": kind }))), "kind_not_public", "{kind}");
        }
        assert_eq!(code(admitted(&limits, json!({ "run": ["true"] }))), "kind_not_public");
        let open = Limits::new(Some(vec!["command".into()]), None).unwrap();
        assert!(admitted(&open, json!({ "run": ["true"] })).is_ok());
        assert_eq!(code(admitted(&open, json!({ "kind": "noop" }))), "kind_not_public");
        for kind in worker::transcode::KINDS {
            assert!(Limits::new(Some(vec![kind.into()]), None).is_err(), "{kind}");
        }
    }

    #[test]
    fn an_effect_stays_in_the_one_folder_or_is_refused() {
        let effect = |effect: Value| json!({ "kind": "noop", "effect": effect });
        let closed = Limits::default();
        assert_eq!(code(admitted(&closed, effect(json!({ "append": "x" })))), "effects_disabled");

        let open = Limits::new(None, Some("/srv/effects".into())).unwrap();
        let spec = admitted(&open, effect(json!({ "append": "x.tsv" }))).unwrap();
        let expected = Effect::AppendIn { folder: "/srv/effects".into(), name: "x.tsv".into() };
        assert_eq!(spec.stages[0].effect, Some(expected));
        for path in ["/etc/passwd", "../x", "a/b", ".bashrc", "", "x\n"] {
            assert_eq!(code(admitted(&open, effect(json!({ "append": path })))), "bad_effect", "{path}");
        }
        assert!(open.admit_again(spec.clone()).is_ok(), "it was confined when it was submitted");
        assert_eq!(code(closed.admit_again(spec.clone()).map(|()| spec)), "effects_disabled");
        let elsewhere = json!({ "append_in": { "folder": "/etc", "name": "passwd" } });
        assert_eq!(code(admitted(&open, effect(elsewhere))), "bad_effect");
    }
}
