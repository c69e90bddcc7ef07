//! What workers say of their work: renew, progress, commit, fail. Each takes a batch and answers for each.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::job::retry_policies;
use crate::log::{self, Level, NewLog};
use crate::moves::{Moves, Words};
use crate::publish::{self, Shelf};
use crate::stage::{self, Special};
use crate::suspension::Rejection;
use crate::task::{self, Busy, Loaded};
use crate::wake::Topic;
use crate::witness::{self, Witnesses};
use crate::{hedge, outbox, plan, settle, video};
use rules::backoff::{Backoff, Jitter};
use rules::task::{Command, Refusal, State};
use rules::{JobId, TaskId, WorkerId, failure};
use std::collections::HashMap;
use telemetry::metrics::{EXECUTIONS_ENDED, WORDS_REFUSED};
use wire::{Answer, Commit, Failure, Progress, Proof, Renewal};

/// Messages of failures longer than this are cut.
const MAX_MESSAGE: usize = 8 * 1024;

impl Store {
    /// Extends leases of work that moves; also one that has expired and was not reclaimed yet.
    pub async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Answer>> {
        let answers = again(|| self.renew_once(renewals)).await?;
        count_refused("renew", &answers);
        Ok(answers)
    }

    async fn renew_once(&self, renewals: &[Renewal]) -> Result<Vec<Answer>> {
        let mut tx = self.db.write(Step::Renew).await?;
        let mut tasks = lock(&mut tx, renewals.iter().map(|renewal| renewal.proof)).await?;
        let mut moves = Moves::new(tx.now());
        let answers = renewals.iter().map(|renewal| {
            let renew = self.renewal(renewal.proof, renewal.progress, None);
            answer(&mut tasks, renewal.proof, |task| moves.make(task, &renew, Words::default()))
        });
        let answers = answers.collect();
        moves.save(&mut tx).await?;
        tx.commit().await?;
        Ok(answers)
    }

    /// Records that work has begun and how far it is; extends the lease.
    pub async fn progress(&self, reports: &[Progress]) -> Result<Vec<Answer>> {
        let answers = again(|| self.progress_once(reports)).await?;
        count_refused("progress", &answers);
        Ok(answers)
    }

    async fn progress_once(&self, reports: &[Progress]) -> Result<Vec<Answer>> {
        let mut tx = self.db.write(Step::Progress).await?;
        let mut tasks = lock(&mut tx, reports.iter().map(|report| report.proof)).await?;
        let mut moves = Moves::new(tx.now());
        let answers = reports.iter().map(|report| {
            let words = Words {
                step: report.step.clone(),
                permille: report.permille.map(|permille| i64::from(permille.min(1000))),
                ..Words::default()
            };
            let renew = self.renewal(report.proof, report.progress, report.kept);
            answer(&mut tasks, report.proof, |task| moves.make_begun(task, &renew, words))
        });
        let answers = answers.collect();
        moves.save(&mut tx).await?;
        tx.commit().await?;
        Ok(answers)
    }

    /// Makes results real: compare-and-set on the lease, at most once for each task, with their effects in the
    /// same transaction.
    pub async fn commit(&self, commits: &[Commit]) -> Result<Vec<Answer>> {
        let Committed { answers, unsettled, has_effects, refuted } =
            again(|| self.commit_once(commits)).await?;
        count_refused("commit", &answers);
        let accepted = answers.iter().filter(|answer| **answer == Answer::Accepted).count();
        EXECUTIONS_ENDED.add(["committed"], accepted as f64);
        self.wake.up(if unsettled > 0 { Topic::Settle } else { Topic::Event });
        if has_effects {
            self.wake.up(Topic::Deliver);
        }
        if answers.contains(&Answer::Refused(Refusal::BadResult)) {
            self.wake.up(Topic::Judge);
        }
        for (task, worker) in refuted {
            self.refute(task, worker).await;
        }
        Ok(answers)
    }

    async fn commit_once(&self, commits: &[Commit]) -> Result<Committed> {
        let mut tx = self.db.write(Step::Commit).await?;
        let mut tasks = look(&mut tx, commits).await?;
        let mut moves = Moves::new(tx.now());
        let special = stage::special(&mut tx, tasks.keys().map(|id| id.job())).await?;
        let shelf = Shelf::of(&mut tx, commits).await?;
        let is_checked = |commit: &&Commit| {
            let task = tasks.get(&commit.proof.task);
            let is_plan =
                task.and_then(|task| special.get(&(task.id.job(), task.stage))).is_some_and(|it| it.is_plan);
            is_plan || commit.publication.is_some()
        };
        let checked = commits.iter().filter(is_checked).map(reporter).collect::<Vec<_>>();
        let witnesses = Witnesses::of(&mut tx, &checked).await?;
        let mut rooms = HashMap::new();
        for task in commits.iter().filter_map(|commit| tasks.get(&commit.proof.task)) {
            let job = task.id.job();
            let is_plan = special.get(&(job, task.stage)).is_some_and(|stage| stage.is_plan);
            if let (true, Some(room)) = (is_plan, plan::Room::of(&mut tx, job).await?) {
                rooms.insert(job, room);
            }
        }
        let mut answers = Vec::with_capacity(commits.len());
        let mut accepted = Vec::new();
        for commit in commits {
            let answer = answer(&mut tasks, commit.proof, |task| {
                let is_plan = special.get(&(task.id.job(), task.stage)).is_some_and(|stage| stage.is_plan);
                let plan = is_plan.then(|| rooms.get(&task.id.job()));
                let witness = witnesses.witness(commit.proof.worker, task.id);
                commit_one(&mut moves, task, commit, plan, &shelf, witness)
            });
            if answer == Answer::Accepted {
                accepted.push(commit);
            }
            answers.push(answer);
        }
        let mut unsettled = accepted.len();
        if accepted.len() >= settle::GATHERED {
            let counting = accepted.iter().map(|commit| commit.proof.task);
            unsettled -= settle::count(&mut tx, counting, &mut tasks, &special, &mut moves).await?;
        }
        moves.save(&mut tx).await?;
        let has_effects = publish(&mut tx, &accepted, &tasks, &special).await?;
        let refuted = refuted(&mut tx, &accepted).await?;
        tx.commit().await?;
        Ok(Committed { answers, unsettled, has_effects, refuted })
    }

    /// Counts a permanent failure that another worker did not have. What was committed stays, whatever becomes of this.
    async fn refute(&self, task: TaskId, worker: WorkerId) {
        let detail = format!("task {task} was done by another worker");
        if let Err(error) = self.reject_report(worker, Rejection::RefutedFailure, &detail).await {
            tracing::warn!(worker.id = %worker, task.id = %task, "cannot count a refuted failure of {worker}: {error}");
        }
    }

    /// Ends executions that did not succeed.
    pub async fn fail(&self, failures: &[Failure]) -> Result<Vec<Answer>> {
        let answers = again(|| self.fail_once(failures)).await?;
        count_refused("fail", &answers);
        self.wake.up(Topic::Judge);
        Ok(answers)
    }

    async fn fail_once(&self, failures: &[Failure]) -> Result<Vec<Answer>> {
        let mut tx = self.db.write(Step::Fail).await?;
        let mut tasks = lock(&mut tx, failures.iter().map(|failure| failure.proof)).await?;
        let policies = retry_policies(&mut tx, tasks.keys().map(|id| id.job())).await?;
        let permanent = failures.iter().filter(|failure| failure.kind == failure::Kind::Permanent);
        let permanent =
            permanent.map(|failure| (failure.proof.worker, failure.proof.task)).collect::<Vec<_>>();
        let witnesses = Witnesses::of(&mut tx, &permanent).await?;
        let mut moves = Moves::new(tx.now());
        let mut failed_workers = Vec::new();
        let mut answers = Vec::with_capacity(failures.len());
        let (mut steps, mut logs) = (Vec::new(), Vec::new());
        let mut ended = Vec::new();
        for failure in failures {
            let spared = tasks.get(&failure.proof.task).map_or(0, Loaded::spared);
            let witness = witnesses.witness(failure.proof.worker, failure.proof.task);
            let kind = failure.kind.after(spared, witness);
            let fail = Command::Fail {
                token: failure.proof.token,
                kind: failure.kind,
                spared,
                witness,
                backoff: policies.get(&failure.proof.task.job()).copied().unwrap_or_default(),
                jitter: Jitter(rand::random_range(0..=1000)),
            };
            let note: String = failure.message.chars().take(MAX_MESSAGE).collect();
            let mut said = format!("execution {} failed ({kind}): {note}", failure.proof.execution());
            said.push_str(match (failure.kind, kind) {
                (failure::Kind::Permanent, failure::Kind::Unconfirmed) => {
                    "; a remote worker calls this permanent, and another worker or the server has to confirm it"
                }
                (failure::Kind::Permanent, failure::Kind::Transient) => {
                    "; the same remote worker calls this permanent again, which uses up an attempt and confirms nothing"
                }
                _ => "",
            });
            let words = Words { note: Some(note), usage: Some(failure.usage), ..Words::default() };
            let answer = answer(&mut tasks, failure.proof, |task| moves.make(task, &fail, words));
            let answer = failed(answer);
            if answer == Answer::Accepted {
                steps.extend(failure.steps.iter().map(|step| (failure.proof, step)));
                logs.push(NewLog::of_task(failure.proof.task, Level::Warn, said));
                ended.push(kind);
                failed_workers.push(failure.proof.worker);
            }
            answers.push(answer);
        }
        moves.save(&mut tx).await?;
        log::insert_steps(&mut tx, &steps).await?;
        log::insert(&mut tx, &logs).await?;
        let now = tx.now();
        witness::have_failed(&mut tx, failed_workers.into_iter(), now).await?;
        tx.once_committed(move || ended.iter().for_each(|kind| EXECUTIONS_ENDED.count([kind.as_str()])));
        tx.commit().await?;
        Ok(answers)
    }

    fn renewal(&self, proof: Proof, progress: i64, kept: Option<i64>) -> Command {
        Command::Renew { token: proof.token, progress, kept, length: self.options.lease }
    }
}

/// What a batch of commits came to.
struct Committed {
    answers: Vec<Answer>,
    /// How many are left to an orchestrator.
    unsettled: usize,
    /// The outside is to be told.
    has_effects: bool,
    /// Workers that called a task hopeless which another has done now.
    refuted: Vec<(TaskId, WorkerId)>,
}

fn reporter(commit: &Commit) -> (WorkerId, TaskId) {
    (commit.proof.worker, commit.proof.task)
}

/// Only a task that had an execution before can have been called hopeless.
async fn refuted(tx: &mut Tx, accepted: &[&Commit]) -> Result<Vec<(TaskId, WorkerId)>> {
    let repeated = accepted.iter().filter(|commit| commit.proof.fence.0 > 1);
    let doers: HashMap<TaskId, WorkerId> =
        repeated.map(|commit| (commit.proof.task, commit.proof.worker)).collect();
    let mut refuted = witness::unconfirmed(tx, doers.keys().copied()).await?;
    refuted.retain(|(task, worker)| doers.get(task) != Some(worker));
    Ok(refuted)
}

fn count_refused(word: &'static str, answers: &[Answer]) {
    let refused = answers.iter().filter(|answer| matches!(answer, Answer::Refused(_))).count();
    WORDS_REFUSED.add([word], refused as f64);
}

async fn lock(tx: &mut Tx, proofs: impl Iterator<Item = Proof>) -> Result<HashMap<TaskId, Loaded>> {
    let loaded = task::lock(tx, tasks_of(proofs), Busy::Wait).await?;
    Ok(by_id(loaded))
}

/// A commit changes its task's row, so a lock before it is not needed; but videos are locked after tasks.
async fn look(tx: &mut Tx, commits: &[Commit]) -> Result<HashMap<TaskId, Loaded>> {
    let proofs = commits.iter().map(|commit| commit.proof);
    if commits.iter().any(|commit| commit.publication.is_some() || commit.arrival.is_some()) {
        return lock(tx, proofs).await;
    }
    Ok(by_id(task::look(tx, tasks_of(proofs)).await?))
}

fn tasks_of(proofs: impl Iterator<Item = Proof>) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = proofs.map(|proof| proof.task).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn by_id(loaded: Vec<Loaded>) -> HashMap<TaskId, Loaded> {
    loaded.into_iter().map(|loaded| (loaded.id, loaded)).collect()
}

fn answer(
    tasks: &mut HashMap<TaskId, Loaded>,
    proof: Proof,
    decide: impl FnOnce(&mut Loaded) -> Result<(), Refusal>,
) -> Answer {
    let Some(task) = tasks.get_mut(&proof.task) else { return Answer::Refused(Refusal::NotRunning) };
    match check_holder(task, proof).and_then(|()| decide(task)) {
        Ok(()) => Answer::Accepted,
        Err(Refusal::CommittedByYou) => Answer::AlreadyAccepted,
        Err(refusal) => Answer::Refused(refusal),
    }
}

/// What is committed cannot fail any more.
fn failed(answer: Answer) -> Answer {
    match answer {
        Answer::AlreadyAccepted => Answer::Refused(Refusal::CommittedByYou),
        answer => answer,
    }
}

/// Every report passes here. The rules compare the token. A token that leaked is of no use to another worker, nor with the
/// number of another execution.
fn check_holder(task: &Loaded, proof: Proof) -> Result<(), Refusal> {
    let is_holder = task.holder == Some(proof.worker) && task.task.fence == proof.fence;
    match &task.task.state {
        State::Running { lease, .. } if lease.token == proof.token && !is_holder => Err(Refusal::StaleToken),
        State::Done { token, .. } if *token == proof.token && !is_holder => Err(Refusal::CommittedByOther),
        _ => Ok(()),
    }
}

/// `plan` is given where the result is one, with the job's limit. A plan that cannot be expanded, or a publication that cannot be shown, is a failure of its task, for good, and no
/// commit.
fn commit_one(
    moves: &mut Moves,
    task: &mut Loaded,
    commit: &Commit,
    plan: Option<Option<&plan::Room>>,
    shelf: &Shelf,
    witness: failure::Witness,
) -> Result<(), Refusal> {
    let token = commit.proof.token;
    let result = commit.result.as_ref().map(ToString::to_string);
    let usage = Some(commit.usage);
    let plan = plan.map_or(Ok(()), |room| plan::check(result.as_deref(), task.stage, room));
    let publication = commit.publication.as_ref().map_or(Ok(()), |it| shelf.check(task.id, it));
    if let Err(reason) = plan.and(publication) {
        let fail = Command::Fail {
            token,
            kind: failure::Kind::Permanent,
            spared: 0,
            witness,
            backoff: Backoff::default(),
            jitter: Jitter::default(),
        };
        moves.make_begun(task, &fail, Words { note: Some(reason), usage, ..Words::default() })?;
        return Err(Refusal::BadResult);
    }
    moves.make_begun(task, &Command::Commit { token }, Words { result, usage, ..Words::default() })
}

/// Everything a commit makes visible, in its transaction; whether the outside is to be told.
async fn publish(
    tx: &mut Tx,
    accepted: &[&Commit],
    tasks: &HashMap<TaskId, Loaded>,
    special: &HashMap<(JobId, i64), Special>,
) -> Result<bool> {
    let mut messages = Vec::new();
    let mut steps = Vec::new();
    for commit in accepted {
        let id = commit.proof.task;
        steps.extend(commit.steps.iter().map(|step| (commit.proof, step)));
        let stage = tasks.get(&id).and_then(|task| special.get(&(id.job(), task.stage)));
        if let Some(stage) = stage {
            let segment = if stage.is_hedged { hedge::original(tx, id).await? } else { id };
            messages.extend(stage.message(segment)?);
        }
        if let Some(publication) = &commit.publication {
            publish::generation(tx, id, publication).await?;
        }
        if let Some(arrival) = &commit.arrival {
            video::arrived(tx, id.job(), arrival).await?;
        }
    }
    log::insert_steps(tx, &steps).await?;
    outbox::insert(tx, &messages).await?;
    Ok(!messages.is_empty())
}
