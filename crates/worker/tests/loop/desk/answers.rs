//! What it answers to each verb.

use rules::WorkerId;
use rules::backoff::{Backoff, Jitter};
use rules::task::Command;
use rules::worker::Status;
use wire::{Answer, Assignment, Commit, Error, Failure, Heartbeat, Hello, Progress, Renewal};

use super::{Entry, FakeDesk, LEASE, Said};

impl wire::Desk for FakeDesk {
    async fn register(&self, hello: &Hello) -> Result<(), Error> {
        self.here()?;
        self.hear(Said::Register(hello.capabilities.to_string()));
        if self.with(|desk| desk.rejects_workers) {
            return Err(Error::Rejected("no such key".into()));
        }
        self.with(|desk| desk.is_known = true);
        Ok(())
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Status, Error> {
        self.known()?;
        let Heartbeat { phase, running, is_draining, is_leaving, .. } = *heartbeat;
        self.hear(Said::Heartbeat { phase, running, is_draining, is_leaving });
        let by_rules = match (is_draining, running) {
            (true, _) => Status::Draining,
            (false, 0) => Status::Idle,
            (false, _) => Status::Busy,
        };
        Ok(self.with(|desk| desk.status).unwrap_or(by_rules))
    }

    async fn has_work(&self, _: WorkerId) -> Result<bool, Error> {
        self.here()?;
        self.hear(Said::HasWork);
        if self.with(|desk| desk.hangs) {
            std::future::pending::<()>().await;
        }
        let hints = *self.shared.hints.borrow();
        Ok(self.with(|desk| {
            let has_ready = desk.is_known && desk.tasks.values().any(Entry::is_ready);
            let has_work = desk.always_has_work || has_ready;
            desk.known_hints = if has_work { desk.known_hints } else { hints };
            has_work
        }))
    }

    async fn claim(&self, worker: WorkerId, max: u32) -> Result<Vec<Assignment>, Error> {
        self.known()?;
        let now = self.now();
        let jobs = self.with(|desk| desk.claim(worker, max as usize, now));
        self.hear(Said::Claim { max, got: jobs.len() });
        self.until("claims to go on", |desk| !desk.holds_claims).await;
        Ok(jobs)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Answer>, Error> {
        self.known()?;
        if self.with(|desk| desk.renews_in_vain) {
            return Err(Error::Away("only for renewals".into()));
        }
        self.hear(Said::Renew(renewals.len()));
        let refusal = self.with(|desk| desk.refuses_renewals);
        let answer = |renewal: &Renewal| {
            let Renewal { proof, progress } = *renewal;
            let renew = Command::Renew { token: proof.token, progress, kept: None, length: LEASE };
            refusal.map_or_else(|| self.decide(proof, &[renew]), Answer::Refused)
        };
        Ok(renewals.iter().map(answer).collect())
    }

    async fn progress(&self, word: &Progress) -> Result<Answer, Error> {
        self.known()?;
        self.hear(Said::Progress(word.proof.task, word.permille));
        let (token, progress) = (word.proof.token, word.progress);
        Ok(self.decide(
            word.proof,
            &[Command::Start { token }, Command::Renew { token, progress, kept: None, length: LEASE }],
        ))
    }

    async fn commit(&self, word: &Commit) -> Result<Answer, Error> {
        self.known()?;
        if self.with(|desk| desk.commits_in_vain) {
            return Err(Error::Away("only for commits".into()));
        }
        if self.with(|desk| desk.rejects_results) {
            return Err(Error::Rejected("the result is too long".into()));
        }
        let token = word.proof.token;
        let answer = self.decide(word.proof, &[Command::Start { token }, Command::Commit { token }]);
        if answer == Answer::Accepted {
            self.with(|desk| desk.tasks.get_mut(&word.proof.task).unwrap().result = word.result.clone());
        }
        self.hear(Said::Commit(word.proof.task, answer));
        self.with(|desk| desk.renews_in_vain = false);
        match self.with(|desk| std::mem::take(&mut desk.loses_commit)) {
            true => Err(Error::Away("the answer got lost".into())),
            false => Ok(answer),
        }
    }

    async fn fail(&self, word: &Failure) -> Result<Answer, Error> {
        self.known()?;
        let (token, kind) = (word.proof.token, word.kind);
        let fail = Command::Fail {
            token,
            kind,
            spared: 0,
            witness: rules::failure::Witness::Server,
            backoff: Backoff::default(),
            jitter: Jitter(500),
        };
        let answer = self.decide(word.proof, &[fail]);
        self.hear(Said::Fail(word.proof.task, kind, word.message.clone(), answer));
        Ok(answer)
    }

    async fn wait_for_work(&self) {
        if self.with(|desk| desk.never_hints) {
            return std::future::pending().await;
        }
        let known = self.with(|desk| desk.known_hints);
        if !self.with(|desk| desk.always_hints) {
            let _ = self.shared.hints.subscribe().wait_for(|hints| *hints > known).await;
        }
        self.hear(Said::Hint);
    }
}
