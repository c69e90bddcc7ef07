//! Mistakes that could have been made, to prove that the checker would have found them.

use crate::world::{DEAD, NOW};
use rules::failure::Kind;
use rules::task::{Change, Checks, Command, Death, Event, Refusal, State, Task, decide_with};

#[derive(Debug, Clone)]
pub enum Flaw {
    None,
    /// The rules themselves, with some of a commit's checks taken away.
    Unchecked(Checks),
    /// Recovery doesn't look whether the lease has expired.
    RecoversLiveLeases,
    /// Recovery doesn't look whether an attempt is left.
    RecoversForEver,
    /// A death is held against nobody: work that kills its worker is done again for ever.
    SparesEveryDeath,
    /// Workers are taken for dead that are not.
    TakesTheLivingForDead,
    /// There is no recovery.
    NeverRecovers,
    /// A commit that is settled after its job has closed sets nothing in motion.
    ForgetsToExpand,
    /// A cancel doesn't look for what is committed and not settled yet.
    CancelsUnsettled,
    /// A person's retry passes over all optional work that failed, also what was never given up.
    PassesOverOptionalWork,
    /// A person's retry also reopens the optional work that later stages have done without.
    ReopensGivenUpWork,
}

impl Flaw {
    pub fn decide(&self, task: &Task, command: &Command) -> Result<Change, Refusal> {
        let decide = |task: &Task| decide_with(task, command, NOW, &Checks::default());
        match (self, command) {
            (Flaw::Unchecked(checks), _) => decide_with(task, command, NOW, checks),
            (Flaw::RecoversLiveLeases, Command::Recover) => decide(&expired(task)),
            (Flaw::RecoversForEver, Command::Recover) => {
                let change = decide(&Task { max_attempts: u32::MAX, ..task.clone() })?;
                Ok(Change { task: Task { max_attempts: task.max_attempts, ..change.task }, ..change })
            }
            (Flaw::SparesEveryDeath, Command::LoseWorker { death: Death::Unexplained, backoff, jitter }) => {
                let spared =
                    Command::LoseWorker { death: Death::ByPerson, backoff: *backoff, jitter: *jitter };
                let change = decide_with(task, &spared, NOW, &Checks::default())?;
                let event = Event { failure: Some(Kind::WorkerLost), ..change.event };
                Ok(Change { event, ..change })
            }
            (Flaw::NeverRecovers, Command::Recover) => Err(Refusal::LeaseLive),
            _ => decide(task),
        }
    }
}

impl Flaw {
    /// Whether the orchestrator believes that the process which holds the task is dead.
    pub fn takes_for_dead(&self, task: &Task) -> bool {
        match &task.state {
            State::Running { lease, .. } => {
                lease.worker == DEAD || matches!(self, Flaw::TakesTheLivingForDead)
            }
            State::New | State::Ready { .. } | State::Done { .. } | State::Error { .. } => false,
        }
    }
}

fn expired(task: &Task) -> Task {
    let mut task = task.clone();
    if let State::Running { lease, .. } = &mut task.state {
        lease.expires_at = NOW;
    }
    task
}
