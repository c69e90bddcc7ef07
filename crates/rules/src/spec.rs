//! What a person asks for: a job as stages of work, written in TOML or JSON.
//!
//! A stage names a *kind* of work and carries what that kind needs (`with`); the core never looks inside. A
//! new kind is a new handler in the worker, nothing here.

use crate::backoff::Backoff;
use crate::job::Phase;
use crate::placement::{BadCapability, Capabilities, Lane, Pool};
use crate::stage::{self, Invalid, Named};
use crate::{Millis, Priority, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// How long a spec may be, as JSON.
pub const MAX_BYTES: usize = 1 << 20;

/// How many segments one plan may list.
pub const MAX_SEGMENTS: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    pub name: String,
    /// Whose job it is.
    #[serde(default = "nobody")]
    pub user: String,
    /// 0 to 10, 10 first. Default 5.
    #[serde(default)]
    pub priority: Priority,
    /// How many executions a task may have. Default 3.
    #[serde(default = "three")]
    pub max_attempts: u32,
    /// Wait after the first failure, doubled with each further one. Default 10 s.
    #[serde(default = "initial_ms")]
    pub backoff_initial_ms: u32,
    /// The longest such wait. Default 5 min.
    #[serde(default = "max_ms")]
    pub backoff_max_ms: u32,
    /// The pool of remote workers that takes its tasks. Default: workers of no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
    /// The most tasks it may have, those that its plans list included. Of a job that is sent to a server, the server sets it.
    /// Default: no limit but that of each plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tasks: Option<u32>,
    #[serde(rename = "stage", default)]
    pub stages: Vec<Stage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub name: String,
    #[serde(default = "processing")]
    pub phase: Phase,
    /// Stages that must be finished first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Stages whose results its tasks are given; each must be finished first, directly or through others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// The stage whose committed output lists this one's segments: `{"segments": [{…}, …]}`, or, where it plans
    /// several stages, `{"segments": {"this stage": [{…}, …], …}}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expand: Option<String>,
    /// How many tasks the stage has, where that is known beforehand. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,

    /// A command and its arguments: short for `kind = "command"`. Never goes through a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// Waits: short for `kind = "sleep"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sleep_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<Value>,

    /// Capabilities a worker must have besides knowing the kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// A GPU worker would do it better, and any worker can.
    #[serde(default)]
    pub prefer_gpu: bool,
    /// The job goes on without it when it fails for good.
    #[serde(default)]
    pub optional: bool,
    /// A task that is much slower than the others of its stage may be done a second time meanwhile, where a worker is
    /// idle; the first to end counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hedge: bool,
    /// How long one execution may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
    /// How long one execution may go without progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

/// What happens, exactly once, because a task of the stage committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A line with the task's id is appended to this file.
    Append(String),
    /// The same, to a file of this name in a folder that is never left, also not by a symbolic link. Made by a server of
    /// what it is sent over HTTP.
    AppendIn { folder: String, name: String },
}

fn nobody() -> String {
    "default".into()
}
fn three() -> u32 {
    3
}
fn initial_ms() -> u32 {
    Backoff::default().initial.0 as u32
}
fn max_ms() -> u32 {
    Backoff::default().max.0 as u32
}
fn processing() -> Phase {
    Phase::Processing
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Bad {
    #[error("{0}")]
    Stages(#[from] Invalid),
    #[error("stage `{stage}`: {bad}")]
    Capability { stage: String, bad: BadCapability },
    #[error("stage `{0}` must say what to do by exactly one of `run`, `sleep_ms` and `kind`")]
    Work(String),
    #[error("stage `{0}` has an empty `run`; give a program and its arguments")]
    EmptyRun(String),
    #[error("stage `{0}` has both `expand` and `segments`; the plan says how many segments there are")]
    ExpandAndSegments(String),
    #[error(
        "stage `{stage}` expands `{plan}`, which is optional; given up, it would leave the stage waiting for ever"
    )]
    OptionalPlan { stage: String, plan: String },
    #[error("stage `{stage}` expands `{plan}`, which has several tasks; a plan is made by one")]
    ManyPlans { stage: String, plan: String },
    #[error("{0} tasks are too many; a job may have {max}", max = TaskId::PER_JOB)]
    TooManyTasks(i64),
    #[error("`{0}` is too long; {1} characters are allowed")]
    TooLong(&'static str, usize),
    #[error("max_attempts is {0}; it may be 1 to 100")]
    Attempts(u32),
    #[error("the spec is {0} bytes long; {MAX_BYTES} are allowed")]
    TooLarge(usize),
}

impl Spec {
    pub fn backoff(&self) -> Backoff {
        Backoff { initial: Millis(self.backoff_initial_ms.into()), max: Millis(self.backoff_max_ms.into()) }
    }

    /// The stages with names turned into positions, or what is wrong with the spec.
    pub fn resolve(&self) -> Result<Vec<stage::Stage>, Bad> {
        short("name", &self.name, 200)?;
        short("user", &self.user, 64)?;
        if !(1..=100).contains(&self.max_attempts) {
            return Err(Bad::Attempts(self.max_attempts));
        }
        let at_most = |stage: &Stage| stage.known_tasks().map_or(MAX_SEGMENTS as i64, i64::from);
        let tasks: i64 = self.stages.iter().map(at_most).sum();
        if tasks > TaskId::PER_JOB {
            return Err(Bad::TooManyTasks(tasks));
        }
        for stage in &self.stages {
            stage.check(self.pool.as_ref())?;
        }
        let named: Vec<Named<'_>> = self.stages.iter().map(Stage::named).collect();
        let stages = stage::resolve(&named)?;
        self.check_plans(&stages)?;
        Ok(stages)
    }

    /// A plan that is given up is never expanded, and a stage that is never expanded never ends.
    fn check_plans(&self, stages: &[stage::Stage]) -> Result<(), Bad> {
        for stage in stages {
            let Some(plan) = stage.expands.map(|at| &self.stages[at]) else { continue };
            let (stage, name) = (stage.name.clone(), plan.name.clone());
            if plan.optional {
                return Err(Bad::OptionalPlan { stage, plan: name });
            }
            if plan.known_tasks() != Some(1) {
                return Err(Bad::ManyPlans { stage, plan: name });
            }
        }
        Ok(())
    }
}

impl Stage {
    /// How many tasks it has; none while a plan has yet to say.
    pub fn known_tasks(&self) -> Option<u32> {
        match self.expand {
            Some(_) => None,
            None => Some(self.segments.unwrap_or(1)),
        }
    }

    /// The kind of work, and what that kind needs to know.
    pub fn work(&self) -> Result<(&str, Value), Bad> {
        match (&self.run, self.sleep_ms, &self.kind) {
            (Some(run), None, None) if run.is_empty() => Err(Bad::EmptyRun(self.name.clone())),
            (Some(run), None, None) => Ok(("command", json!({ "run": run }))),
            (None, Some(ms), None) => Ok(("sleep", json!({ "ms": ms }))),
            (None, None, Some(kind)) => Ok((kind, self.with.clone().unwrap_or(Value::Null))),
            _ => Err(Bad::Work(self.name.clone())),
        }
    }

    /// What a worker must be able to do to take one of its tasks, and the pool it must be in.
    pub fn lane(&self, pool: Option<&Pool>) -> Result<Lane, Bad> {
        let (kind, _) = self.work()?;
        let pool = pool.map(Pool::capability);
        let asks = self.requires.iter().map(String::as_str).chain([kind]).chain(pool.as_deref());
        let asks =
            Capabilities::new(asks).map_err(|bad| Bad::Capability { stage: self.name.clone(), bad })?;
        Ok(Lane { asks, prefers_gpu: self.prefer_gpu })
    }

    fn check(&self, pool: Option<&Pool>) -> Result<(), Bad> {
        if self.expand.is_some() && self.segments.is_some() {
            return Err(Bad::ExpandAndSegments(self.name.clone()));
        }
        match &self.effect {
            Some(Effect::Append(path)) => short("effect.append", path, 4096)?,
            Some(Effect::AppendIn { folder, name }) => {
                short("effect.append_in.folder", folder, 4096)?;
                short("effect.append_in.name", name, 255)?;
            }
            None => {}
        }
        self.lane(pool).map(drop)
    }

    fn named(&self) -> Named<'_> {
        Named {
            name: &self.name,
            phase: self.phase,
            needs: self.needs.iter().map(String::as_str).collect(),
            reads: self.reads.iter().map(String::as_str).collect(),
            expands: self.expand.as_deref(),
        }
    }
}

fn short(what: &'static str, text: &str, max: usize) -> Result<(), Bad> {
    if text.chars().count() > max { Err(Bad::TooLong(what, max)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(stage: Value) -> Result<Vec<stage::Stage>, String> {
        let spec = json!({ "name": "x", "stage": [stage] });
        let spec: Spec = serde_json::from_value(spec).map_err(|e| e.to_string())?;
        spec.resolve().map_err(|e| e.to_string())
    }

    #[test]
    fn a_stage_says_what_to_do_in_one_way() {
        assert!(spec(json!({ "name": "a", "run": ["true"] })).is_ok());
        assert!(spec(json!({ "name": "a", "sleep_ms": 5 })).is_ok());
        assert!(spec(json!({ "name": "a", "kind": "noop" })).is_ok());

        assert!(spec(json!({ "name": "a" })).unwrap_err().contains("exactly one"));
        assert!(
            spec(json!({ "name": "a", "run": ["true"], "kind": "noop" }))
                .unwrap_err()
                .contains("exactly one")
        );
        assert!(spec(json!({ "name": "a", "run": [] })).unwrap_err().contains("empty"));
    }

    #[test]
    fn a_plan_cannot_be_optional() {
        let stages = json!([
            { "name": "plan", "kind": "noop", "optional": true },
            { "name": "encode", "kind": "noop", "needs": ["plan"], "expand": "plan" },
        ]);
        let spec: Spec = serde_json::from_value(json!({ "name": "x", "stage": stages })).unwrap();

        assert!(matches!(spec.resolve(), Err(Bad::OptionalPlan { .. })));
    }

    #[test]
    fn a_plan_is_made_by_one_task() {
        let stages = json!([
            { "name": "plan", "kind": "noop", "segments": 2 },
            { "name": "encode", "kind": "noop", "needs": ["plan"], "expand": "plan" },
        ]);
        let spec: Spec = serde_json::from_value(json!({ "name": "x", "stage": stages })).unwrap();

        assert!(matches!(spec.resolve(), Err(Bad::ManyPlans { .. })));
    }

    #[test]
    fn what_is_absurd_or_misspelt_is_refused_with_its_reason() {
        let cases = [
            (json!({ "name": "a", "runn": ["true"] }), "unknown field `runn`"),
            (json!({ "name": "a", "kind": "noop", "phase": "later" }), "unknown phase `later`"),
            (json!({ "name": "a", "kind": "NO OP" }), "not usable"),
            (json!({ "name": "a", "kind": "noop", "segments": 2_000_000 }), "too many"),
            (
                json!({ "name": "a", "kind": "noop", "segments": 2, "expand": "b" }),
                "both `expand` and `segments`",
            ),
        ];
        for (stage, reason) in cases {
            let refused = spec(stage).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        let absurd: Result<Spec, _> = serde_json::from_value(json!({ "name": "x", "priority": 99 }));
        assert!(absurd.unwrap_err().to_string().contains("priority 99 is out of range"));
    }
}
