use crate::machine::{Describe, Group, every, variant};
use crate::page::{markdown, moves};
use rules::backoff::{Backoff, Jitter};
use rules::execution::Status;
use rules::lease::{Lease, Terms};
use rules::task::{Command, Death, Next, Refusal, State, Task, decide};
use rules::{Fence, Millis, Token, WorkerId, failure};

pub struct Machine;

const NOW: Millis = Millis(1000);
const PAST: Millis = Millis(900);
const FUTURE: Millis = Millis(1100);
const LENGTH: Millis = Millis(60);
const MAX_ATTEMPTS: u32 = 3;

const CURRENT: Token = Token(1);
const STALE: Token = Token(2);

impl Describe for Machine {
    type State = Task;
    type Command = Command;
    type Refusal = Refusal;

    const TITLE: &'static str = "Task";
    const FIRST: &'static str = "NEW";
    const DRAWS_LOOPS: bool = true;
    const INTRODUCTION: &'static str = "
The unit that is leased: a stage of a job, or one segment of a stage, after document 000 (State Machine and
Leases). Stored, together with the execution it speaks of. Workers move `READY → RUNNING → DONE` or `ERROR`;
every other move is the orchestrator's. A worker proves with the token of its claim that its word is about the
current execution.";

    fn states() -> Vec<(String, Task)> {
        let states = every!(State {
            State::New => ["NEW" => State::New],
            State::Ready { .. } => ["READY" => State::Ready { since: PAST }],
            State::Running { .. } => [
                "RUNNING, LEASED" => running(FUTURE, Status::Leased),
                "RUNNING, LEASED, expired" => running(PAST, Status::Leased),
                "RUNNING, IN_PROGRESS" => running(FUTURE, Status::InProgress),
                "RUNNING, IN_PROGRESS, expired" => running(PAST, Status::InProgress),
                "RUNNING, stalled" => running_on(Terms { stall: Some(LENGTH), ..TERMS }),
                "RUNNING, overdue" => running_on(Terms { deadline: Some(PAST), ..TERMS }),
            ],
            State::Done { .. } => [
                "DONE, COMMITTED" => State::Done { token: CURRENT, execution: Status::Committed },
                "DONE, DONE" => State::Done { token: CURRENT, execution: Status::Done },
            ],
            State::Error { next: Next::RetryAt(_), .. } => [
                "ERROR, backoff running" => error(Next::RetryAt(FUTURE)),
                "ERROR, backoff over" => error(Next::RetryAt(PAST)),
            ],
            State::Error { next: Next::Unjudged, .. } => ["ERROR, unjudged" => error(Next::Unjudged)],
            State::Error { next: Next::Final, .. } => ["ERROR, final" => error(Next::Final)],
        });
        states.into_iter().flat_map(with_attempts).collect()
    }

    fn commands() -> Vec<Group<Command>> {
        let (orchestrator, worker) = said_with(CURRENT)
            .into_iter()
            .partition(|(_, command)| matches!(command.role(), rules::task::Role::Orchestrator));
        let of_claims = said_with(STALE).into_iter().filter(|(_, command)| command.token().is_some());
        let mut stale: Vec<_> = of_claims.map(|(_, command)| (command.name().to_string(), command)).collect();
        stale.dedup_by(|(one, _), (other, _)| one == other);
        vec![
            ("Said by the orchestrator:", orchestrator),
            ("Said by the worker whose claim is the latest:", worker),
            (
                "Said by a worker whose claim is not the latest any more (why it fails makes no difference):",
                stale,
            ),
        ]
    }

    fn decide(task: &Task, command: &Command) -> Result<Task, Refusal> {
        decide(task, command, NOW).map(|change| change.task)
    }

    fn word(task: &Task) -> String {
        task.state.name().to_string()
    }

    fn verb(command: &Command) -> String {
        command.name().into()
    }

    fn cell(task: &Task) -> String {
        let name = task.state.name();
        match &task.state {
            State::New | State::Ready { .. } => name.to_string(),
            State::Running { execution, .. } | State::Done { execution, .. } => {
                format!("{name}, {execution}")
            }
            State::Error { next: Next::RetryAt(at), .. } if *at <= NOW => format!("{name}, retry now"),
            State::Error { next: Next::RetryAt(_), .. } => format!("{name}, retry later"),
            State::Error { next: Next::Unjudged, .. } => format!("{name}, unjudged"),
            State::Error { next: Next::Final, .. } => format!("{name}, final"),
        }
    }

    fn refusal(refusal: &Refusal) -> String {
        match refusal {
            Refusal::Execution(of_execution) => variant(of_execution),
            of_task => variant(of_task),
        }
    }

    fn more() -> String {
        let moves = moves::<Machine>();
        let mut rows: Vec<(String, Vec<String>)> = Vec::new();
        for (_, command) in said_with(CURRENT) {
            let made = moves.iter().filter(|(_, _, by)| by == command.name());
            let made: Vec<String> = made.map(|(from, to, _)| format!("{from} → {to}")).collect();
            let row = (command.name().to_string(), vec![command.role().to_string(), made.join(", ")]);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        format!("Who may say what:\n\n{}", markdown("command", &["role".into(), "moves".into()], rows))
    }
}

/// Everything that can be said, where a word needs a token with this one.
fn said_with(token: Token) -> Vec<(String, Command)> {
    let worker = WorkerId(uuid::Uuid::nil());
    let fail_as = |kind, spared, witness| Command::Fail {
        token,
        kind,
        spared,
        witness,
        backoff: Backoff::default(),
        jitter: Jitter(500),
    };
    let fail_by = |kind, witness| fail_as(kind, 0, witness);
    let fail_after = |kind, spared| fail_as(kind, spared, failure::Witness::Server);
    let fail = |kind| fail_after(kind, 0);
    let fail_by_remote = |doubt| fail_by(failure::Kind::Permanent, failure::Witness::Remote(doubt));
    let lose = |death| Command::LoseWorker { death, backoff: Backoff::default(), jitter: Jitter(500) };
    every!(Command {
        Command::Advance => ["advance" => Command::Advance],
        Command::Retry => ["retry" => Command::Retry],
        Command::Recover => ["recover" => Command::Recover],
        Command::LoseWorker { death: Death::Unexplained, .. } => [
            "lose_worker, unexplained" => lose(Death::Unexplained),
        ],
        Command::LoseWorker { death: Death::ByPerson, .. } => [
            "lose_worker, by a person" => lose(Death::ByPerson),
        ],
        Command::Settle => ["settle" => Command::Settle],
        Command::Judge => ["judge" => Command::Judge],
        Command::Withdraw => ["withdraw" => Command::Withdraw],
        Command::Rerun => ["rerun" => Command::Rerun],
        Command::Claim { .. } => ["claim" => Command::Claim { worker, token, terms: TERMS }],
        Command::Start { .. } => ["start" => Command::Start { token }],
        Command::Renew { .. } => ["renew" => Command::Renew { token, progress: 0, kept: None, length: LENGTH }],
        Command::Commit { .. } => ["commit" => Command::Commit { token }],
        Command::Fail { kind: failure::Kind::Transient, .. } => [
            "fail, transient" => fail(failure::Kind::Transient),
        ],
        Command::Fail { kind: failure::Kind::Permanent, .. } => [
            "fail, permanent" => fail(failure::Kind::Permanent),
            "fail, permanent, by a remote worker" => fail_by_remote(failure::Doubt::Nobody),
            "fail, permanent, by the same one again" => fail_by_remote(failure::Doubt::Itself),
            "fail, permanent, by a second one" => fail_by_remote(failure::Doubt::Another),
        ],
        Command::Fail { kind: failure::Kind::Unconfirmed, .. } => [
            "fail, unconfirmed" => fail(failure::Kind::Unconfirmed),
        ],
        Command::Fail { kind: failure::Kind::Rejected, .. } => [
            "fail, rejected" => fail(failure::Kind::Rejected),
        ],
        Command::Fail { kind: failure::Kind::Drained, .. } => [
            "fail, drained" => fail(failure::Kind::Drained),
            "fail, drained, often" => fail_after(failure::Kind::Drained, failure::FREE_RELEASES),
            "fail, drained, too often" => fail_after(failure::Kind::Drained, failure::MOST_SPARED),
        ],
        Command::Fail { kind: failure::Kind::StorageAway, .. } => [
            "fail, storage_away" => fail(failure::Kind::StorageAway),
        ],
        Command::Fail { kind: failure::Kind::DiskFull, .. } => [
            "fail, disk_full" => fail(failure::Kind::DiskFull),
        ],
        Command::Fail { kind: failure::Kind::LeaseExpired, .. } => [
            "fail, lease_expired" => fail(failure::Kind::LeaseExpired),
        ],
        Command::Fail { kind: failure::Kind::WorkerLost, .. } => [
            "fail, worker_lost" => fail(failure::Kind::WorkerLost),
        ],
        Command::Fail { kind: failure::Kind::Interrupted, .. } => [
            "fail, interrupted" => fail(failure::Kind::Interrupted),
        ],
        Command::Fail { kind: failure::Kind::Withdrawn, .. } => [
            "fail, withdrawn" => fail(failure::Kind::Withdrawn),
        ],
    })
}

const TERMS: Terms = Terms { length: LENGTH, stall: None, deadline: None };

fn running(expires_at: Millis, execution: Status) -> State {
    let lease = Lease::grant(WorkerId(uuid::Uuid::nil()), CURRENT, TERMS, PAST);
    State::Running { lease: Lease { expires_at, ..lease }, execution }
}

fn running_on(terms: Terms) -> State {
    let lease = Lease::grant(WorkerId(uuid::Uuid::nil()), CURRENT, terms, PAST);
    State::Running { lease, execution: Status::InProgress }
}

fn kept(state: State) -> State {
    match state {
        State::Running { lease, execution } => {
            State::Running { lease: Lease { has_kept: true, ..lease }, execution }
        }
        other => other,
    }
}

fn error(next: Next) -> State {
    State::Error { failure: failure::Kind::Transient, next }
}

/// What runs comes three times: with an attempt left, as the last one, and as the last one with durable progress.
fn with_attempts((heading, state): (String, State)) -> Vec<(String, Task)> {
    let task =
        |attempts, state| Task { state, fence: Fence(1), attempts, max_attempts: MAX_ATTEMPTS, kept: 0 };
    let is_in_progress = state.execution() == Some(Status::InProgress);
    match &state {
        State::Running { lease, .. } if is_in_progress && lease.terms == TERMS => vec![
            (heading.clone(), task(1, state.clone())),
            (format!("{heading}, last attempt"), task(MAX_ATTEMPTS, state.clone())),
            (format!("{heading}, last attempt, durable progress"), task(MAX_ATTEMPTS, kept(state))),
        ],
        State::New | State::Ready { .. } => vec![(heading, task(0, state))],
        State::Running { .. } | State::Done { .. } | State::Error { .. } => vec![(heading, task(1, state))],
    }
}
