//! Mistakes that could have been made, to prove that the checker would have found them.

use crate::world::NOW;
use rules::task::{Change, Checks, Command, Refusal, State, Task, decide_with};

#[derive(Debug, Clone)]
pub enum Flaw {
    None,
    /// The rules themselves, with some of a commit's checks taken away.
    Unchecked(Checks),
    /// Recovery doesn't look whether the lease has expired.
    RecoversLiveLeases,
    /// Recovery doesn't look whether an attempt is left.
    RecoversForEver,
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
            (Flaw::NeverRecovers, Command::Recover) => Err(Refusal::LeaseLive),
            _ => decide(task),
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
