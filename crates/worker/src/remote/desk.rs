//! The desk as a server keeps it.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rules::WorkerId;
use rules::failure::Kind;
use rules::phase::Phase;
use rules::worker::Status;
use serde::Serialize;
use tokio::time::{Instant, sleep};
use tracing::debug;
use wire::http::{
    ClaimRequest, ClaimResponse, CompleteRequest, Description, FailRequest, HeartbeatRequest,
    HeartbeatResponse, ProgressRequest, ProgressResponse, ReleaseRequest, Report, Verdict,
};
use wire::{Answer, Assignment, Commit, Desk, Error, Failure, Heartbeat, Hello, Progress, Proof, Renewal};

use super::Client;
use super::fault::Fault;
use crate::machine;
use crate::pace::Pace;

/// How long the server may keep a question for work that there is not yet.
const LONG_POLL: Duration = Duration::from_secs(20);

/// A server that answers such a question at once does not wait, so we do.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whatever a server says: no flood of heartbeats, and none that is not heard for hours.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(600);

#[derive(Debug)]
pub struct HttpDesk {
    client: Client,
    /// Whose disk the heartbeat tells of.
    folder: PathBuf,
    known: Mutex<Known>,
}

/// What has passed between the two.
#[derive(Debug, Default)]
struct Known {
    worker: Option<WorkerId>,
    heartbeat: Option<Heartbeat>,
    interval: Option<Duration>,
    lease: Option<Duration>,
    known_as: Option<WorkerId>,
}

impl HttpDesk {
    /// `folder` is where the worker works.
    pub fn new(client: Client, folder: impl Into<PathBuf>) -> Self {
        HttpDesk { client, folder: folder.into(), known: Mutex::default() }
    }

    async fn beat(&self, heartbeat: &Heartbeat, hello: Option<Description>) -> Result<Status, Error> {
        let request = HeartbeatRequest {
            incarnation: heartbeat.worker.0,
            hello,
            phase: heartbeat.phase,
            running: heartbeat.running,
            is_draining: heartbeat.is_draining,
            is_leaving: heartbeat.is_leaving,
            done: heartbeat.done,
            failed: heartbeat.failed,
            load: machine::load(&self.folder),
            refusal: heartbeat.refusal.clone(),
        };
        let answer: HeartbeatResponse = self.client.post("heartbeat", &request, Duration::ZERO).await?;
        let span = |ms: i64| Duration::from_millis(ms.max(0).unsigned_abs());
        let interval = span(answer.heartbeat_interval_ms);
        let mut known = self.known();
        known.interval = Some(interval.clamp(*INTERVALS.start(), *INTERVALS.end()));
        known.lease = Some(span(answer.lease_ms)).filter(|lease| !lease.is_zero());
        known.known_as = answer.worker_id;
        Ok(answer.status)
    }

    async fn ask(&self, worker: WorkerId, max: u32, wait: Duration) -> Result<ClaimResponse, Error> {
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let request = ClaimRequest { incarnation: worker.0, max, wait_ms };
        Ok(self.client.post("claim", &request, wait).await?)
    }

    /// A word about one execution; a refusal is an answer too.
    async fn say(&self, word: &str, body: &impl Serialize) -> Result<Answer, Error> {
        match self.client.post::<Verdict>(word, body, Duration::ZERO).await {
            Ok(verdict) => Ok(verdict.into()),
            Err(Fault::Refused(refusal)) => Ok(Answer::Refused(refusal)),
            Err(fault) => Err(fault.into()),
        }
    }

    async fn say_failed(&self, mut failure: FailRequest) -> Result<Answer, Error> {
        let answer = self.say("fail", &failure).await;
        let is_newer = matches!(failure.kind, Kind::StorageAway | Kind::DiskFull);
        if is_newer && matches!(answer, Err(Error::Rejected(_))) {
            // A server of an older version does not know that word.
            failure.kind = Kind::Transient;
            return self.say("fail", &failure).await;
        }
        answer
    }

    async fn tell(&self, reports: Vec<Report>, patience: Duration) -> Result<Vec<Answer>, Error> {
        let told = reports.len();
        let answer = self.client.post_within("progress", &ProgressRequest { reports }, patience).await;
        match answer {
            Ok(ProgressResponse { answers }) if answers.len() == told => {
                Ok(answers.into_iter().map(Answer::from).collect())
            }
            Ok(ProgressResponse { answers }) => {
                Err(Error::Away(format!("{told} reports, and {} answers", answers.len())))
            }
            Err(Fault::Refused(refusal)) if told == 1 => Ok(vec![Answer::Refused(refusal)]),
            Err(fault) => Err(fault.into()),
        }
    }

    /// A renewal that nobody answers is asked for again before the lease runs out.
    fn renewal_patience(&self) -> Duration {
        let answer = self.client.patience().answer;
        self.known().lease.map_or(answer, |lease| answer.min(lease / 4))
    }

    /// The files of an execution are listed until its last word is heard.
    fn heard(&self, proof: Proof, answer: Result<Answer, Error>) -> Result<Answer, Error> {
        let may_be_said_again =
            matches!(answer, Err(Error::Away(_)) | Ok(Answer::Refused(rules::task::Refusal::LeaseExpired)));
        if !may_be_said_again {
            self.client.forget(proof.execution());
        }
        answer
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk for HttpDesk {
    async fn register(&self, hello: &Hello) -> Result<(), Error> {
        let heartbeat = {
            let mut known = self.known();
            known.worker = Some(hello.worker);
            known.heartbeat.clone().unwrap_or_else(|| first_breath(hello.worker))
        };
        self.beat(&heartbeat, Some(description(hello))).await.map(drop)
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<Status, Error> {
        self.known().heartbeat = Some(heartbeat.clone());
        self.beat(heartbeat, None).await
    }

    async fn has_work(&self, worker: WorkerId) -> Result<bool, Error> {
        Ok(self.ask(worker, 0, Duration::ZERO).await?.has_work)
    }

    async fn claim(&self, worker: WorkerId, max: u32) -> Result<Vec<Assignment>, Error> {
        Ok(self.ask(worker, max, Duration::ZERO).await?.assignments)
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Answer>, Error> {
        let answers = self.tell(renewals.iter().map(renewal).collect(), self.renewal_patience()).await?;
        for (renewal, answer) in renewals.iter().zip(&answers) {
            if matches!(answer, Answer::Refused(_)) {
                self.client.forget(renewal.proof.execution());
            }
        }
        Ok(answers)
    }

    async fn progress(&self, word: &Progress) -> Result<Answer, Error> {
        let answers = self.tell(vec![report(word)], self.client.patience().answer).await?;
        answers.into_iter().next().ok_or_else(|| Error::Away("no answer".into()))
    }

    async fn commit(&self, commit: &Commit) -> Result<Answer, Error> {
        let request = CompleteRequest {
            proof: commit.proof.lease_token(),
            result: commit.result.clone(),
            outputs: self.client.uploaded_by(commit.proof.execution()),
            usage: commit.usage,
            steps: commit.steps.clone(),
        };
        failpoint::reached("complete", "before");
        let answer = self.say("complete", &request).await;
        failpoint::reached("complete", "after");
        self.heard(commit.proof, answer)
    }

    async fn fail(&self, failure: &Failure) -> Result<Answer, Error> {
        let Failure { proof, kind, message, usage, steps } = failure.clone();
        let lease = proof.lease_token();
        let answer = match kind {
            Kind::Drained => {
                self.say("release", &ReleaseRequest { proof: lease, message, usage, steps }).await
            }
            _ => self.say_failed(FailRequest { proof: lease, kind, message, usage, steps }).await,
        };
        self.heard(proof, answer)
    }

    /// An answer that does not come is no hint, and asking for it again and again is no use.
    async fn wait_for_work(&self) {
        let Some(worker) = self.known().worker else { return std::future::pending().await };
        let mut pace = Pace::new(SHORTEST_POLL, LONGEST_PAUSE);
        loop {
            let asked = Instant::now();
            match self.ask(worker, 0, LONG_POLL).await {
                Ok(answer) if answer.has_work => return,
                Ok(_) if asked.elapsed() >= SHORTEST_POLL => pace.reset(),
                Ok(_) => sleep(pace.next()).await,
                Err(error) => {
                    debug!("no news of work: {error}");
                    sleep(pace.next()).await;
                }
            }
        }
    }

    fn known_as(&self) -> Option<WorkerId> {
        self.known().known_as
    }

    fn heartbeat_interval(&self) -> Option<Duration> {
        self.known().interval
    }

    async fn dismissed(&self) -> String {
        self.client.dismissed().await
    }
}

fn first_breath(worker: WorkerId) -> Heartbeat {
    Heartbeat {
        worker,
        phase: Phase::Connecting,
        running: 0,
        is_draining: false,
        is_leaving: false,
        done: 0,
        failed: 0,
        refusal: None,
    }
}

fn description(hello: &Hello) -> Description {
    Description {
        hostname: hello.hostname.clone(),
        version: hello.version.clone(),
        slots: hello.slots,
        capabilities: hello.capabilities.iter().map(String::from).collect(),
        metadata: hello.metadata.clone(),
    }
}

fn renewal(renewal: &Renewal) -> Report {
    let proof = renewal.proof.lease_token();
    Report { proof, progress: renewal.progress, step: None, permille: None, is_renewal: true }
}

fn report(word: &Progress) -> Report {
    Report {
        proof: word.proof.lease_token(),
        progress: word.progress,
        step: word.step.clone(),
        permille: word.permille,
        is_renewal: false,
    }
}
