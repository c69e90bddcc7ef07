//! What people, workers and orchestrators do all day, in one word each.

use crate::world::World;
use rules::job::State;
use rules::placement::Capabilities;
use rules::spec::Spec;
use rules::{JobId, TaskId, VideoId, WorkerId, failure, phase};
use serde_json::{Value, json};
use store::detail::{ExecutionView, TaskView};
use store::submit::{NewJob, Submitted};
use store::video::NewVideo;
use store::{Result, Store};
use uuid::Uuid;
use wire::{Answer, Assignment, Commit, Failure, Heartbeat, Hello, Kind, Progress, Proof, Renewal, Usage};

/// A spec from its stages, and whatever else differs from the defaults.
pub fn spec(stages: Value, more: Value) -> Spec {
    let mut spec = json!({ "name": "test", "stage": stages });
    spec.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    serde_json::from_value(spec).unwrap()
}

/// One stage of one task that any worker can do.
pub fn simple() -> Spec {
    spec(json!([{ "name": "work", "kind": "noop" }]), json!({}))
}

/// One stage of so many tasks.
pub fn wide(segments: u32) -> Spec {
    spec(json!([{ "name": "work", "kind": "noop", "segments": segments }]), json!({}))
}

/// A plan, the segments it lists, and what brings them together.
pub fn planned() -> Spec {
    spec(
        json!([
            { "name": "plan", "kind": "noop", "phase": "planning" },
            { "name": "encode", "kind": "noop", "needs": ["plan"], "expand": "plan" },
            { "name": "package", "kind": "noop", "phase": "uploading_outputs", "needs": ["encode"] },
        ]),
        json!({}),
    )
}

pub fn new_job(spec: Spec) -> NewJob {
    NewJob { spec, video: None, idempotency_key: None }
}

pub fn hello(capabilities: &str) -> Hello {
    Hello {
        worker: WorkerId(Uuid::new_v4()),
        name: format!("worker-{capabilities}"),
        kind: Kind::Local,
        hostname: "here".into(),
        version: "1".into(),
        slots: 4,
        capabilities: capabilities.parse::<Capabilities>().unwrap(),
        metadata: Value::Null,
    }
}

pub fn heartbeat(worker: WorkerId) -> Heartbeat {
    Heartbeat {
        worker,
        phase: phase::Phase::Idle,
        running: 0,
        is_draining: false,
        is_leaving: false,
        done: 0,
        failed: 0,
        refusal: None,
    }
}

pub fn commit_of(proof: Proof) -> Commit {
    Commit {
        proof,
        result: None,
        publication: None,
        arrival: None,
        usage: Usage::default(),
        steps: Vec::new(),
    }
}

pub fn failure_of(proof: Proof, kind: failure::Kind, message: &str) -> Failure {
    Failure { proof, kind, message: message.into(), usage: Usage::default(), steps: Vec::new() }
}

pub fn progress_of(proof: Proof, progress: i64) -> Progress {
    Progress { proof, progress, step: None, permille: None, kept: None }
}

/// What an orchestrator does in one round; with several stores, several orchestrators.
pub async fn orchestrate(store: &Store) -> Result<()> {
    store.recover(1000).await?;
    let due = store.due(1000).await?;
    store.retry(&due.retries).await?;
    store.judge(&due.verdicts).await?;
    while store.settle(1000).await?.settled > 0 {}
    Ok(())
}

/// People.
impl World {
    pub async fn submit(&self, spec: Spec) -> JobId {
        self.store.submit(&new_job(spec)).await.unwrap().id()
    }

    pub async fn submit_with_key(&self, spec: Spec, key: &str) -> Result<Submitted> {
        self.store.submit(&NewJob { idempotency_key: Some(key.into()), ..new_job(spec) }).await
    }

    pub async fn video(&self, slug: &str) -> VideoId {
        let new =
            NewVideo { slug: slug.into(), title: slug.into(), user: "ann".into(), ..NewVideo::default() };
        self.store.create_video(&new).await.unwrap()
    }

    pub async fn submit_for(&self, video: VideoId, spec: Spec) -> JobId {
        self.store.submit(&NewJob { video: Some(video), ..new_job(spec) }).await.unwrap().id()
    }
}

/// Workers.
impl World {
    /// A worker that has said hello and is idle.
    pub async fn worker(&self, capabilities: &str) -> WorkerId {
        let hello = hello(capabilities);
        self.store.register_worker(&hello).await.unwrap();
        self.store.heartbeat(&heartbeat(hello.worker)).await.unwrap();
        hello.worker
    }

    /// Claims one task, which must be there.
    pub async fn claim(&self, worker: WorkerId) -> Assignment {
        let mut claimed = self.store.claim(worker, 1).await.unwrap();
        assert_eq!(claimed.len(), 1, "one task is ready to be claimed");
        claimed.remove(0)
    }

    pub async fn finds_nothing(&self, worker: WorkerId) -> bool {
        self.store.claim(worker, 1).await.unwrap().is_empty()
    }

    pub async fn commit(&self, assignment: &Assignment) -> Answer {
        self.say(commit_of(assignment.proof)).await
    }

    pub async fn commit_with(&self, assignment: &Assignment, result: Value) -> Answer {
        self.say(Commit { result: Some(result), ..commit_of(assignment.proof) }).await
    }

    pub async fn say(&self, commit: Commit) -> Answer {
        self.store.commit(&[commit]).await.unwrap()[0]
    }

    pub async fn fail(&self, assignment: &Assignment, kind: failure::Kind) -> Answer {
        let failure = failure_of(assignment.proof, kind, "the disk is full");
        self.store.fail(&[failure]).await.unwrap()[0]
    }

    pub async fn renew(&self, assignment: &Assignment, progress: i64) -> Answer {
        self.store.renew(&[Renewal { proof: assignment.proof, progress }]).await.unwrap()[0]
    }

    pub async fn progress(&self, assignment: &Assignment, progress: i64) -> Answer {
        self.store.progress(&[progress_of(assignment.proof, progress)]).await.unwrap()[0]
    }

    /// Claims and commits everything this worker can do, with the orchestrator beside it.
    pub async fn work_off(&self, worker: WorkerId) {
        loop {
            self.orchestrate().await;
            let claimed = self.store.claim(worker, 1000).await.unwrap();
            if claimed.is_empty() {
                return;
            }
            let commits: Vec<Commit> = claimed.iter().map(|assignment| commit_of(assignment.proof)).collect();
            let answers = self.store.commit(&commits).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Answer::Accepted), "{answers:?}");
        }
    }
}

/// Orchestrators.
impl World {
    pub async fn orchestrate(&self) {
        orchestrate(&self.store).await.unwrap();
    }
}

/// What there is to see.
impl World {
    pub async fn tasks(&self, job: JobId) -> Vec<TaskView> {
        self.store.tasks_of_job(job).await.unwrap()
    }

    /// The states of a job's tasks, in order.
    pub async fn task_states(&self, job: JobId) -> Vec<String> {
        self.tasks(job).await.into_iter().map(|task| task.state).collect()
    }

    pub async fn task(&self, id: TaskId) -> TaskView {
        self.tasks(id.job()).await.into_iter().find(|task| task.id == id).unwrap()
    }

    pub async fn executions(&self, job: JobId) -> Vec<ExecutionView> {
        self.store.executions_of_job(job).await.unwrap()
    }

    /// The statuses of a task's executions, in order.
    pub async fn statuses(&self, id: TaskId) -> Vec<String> {
        let executions = self.executions(id.job()).await;
        executions.into_iter().filter(|e| e.id.task == id).map(|e| e.status).collect()
    }

    /// The latest execution of a task.
    pub async fn latest(&self, id: TaskId) -> ExecutionView {
        self.executions(id.job()).await.into_iter().rfind(|e| e.id.task == id).unwrap()
    }

    /// Commands of the audit about one task, in order.
    pub async fn audited(&self, id: TaskId) -> Vec<String> {
        let rows = self.store.audit_of_job(id.job()).await.unwrap();
        rows.into_iter().filter(|row| row.task == Some(id)).map(|row| row.command).collect()
    }

    /// How a job has ended, each time.
    pub async fn endings(&self, job: JobId) -> Vec<String> {
        let rows = self.store.audit_of_job(job).await.unwrap();
        let ends = |command: &str| ["complete", "fail", "cancel"].contains(&command);
        rows.into_iter()
            .filter(|row| row.task.is_none() && ends(&row.command))
            .map(|row| row.command)
            .collect()
    }

    pub async fn is(&self, job: JobId, state: State) -> bool {
        self.state(job).await == state
    }
}

/// All in one batch; none may be refused.
pub async fn commit_all(store: &Store, tasks: &[Assignment]) {
    let commits: Vec<Commit> = tasks.iter().map(|task| commit_of(task.proof)).collect();
    let answers = store.commit(&commits).await.unwrap();
    assert!(answers.iter().all(|answer| *answer == Answer::Accepted), "{answers:?}");
}
