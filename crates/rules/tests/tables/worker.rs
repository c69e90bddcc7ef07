use crate::machine::{Describe, Group, every, variant};
use crate::page::markdown;
use rules::Millis;
use rules::worker::{Command, Refusal, Status, Worker, decide};

pub struct Machine;

const NOW: Millis = Millis(1000);
const THRESHOLD: Millis = Millis(300);

impl Describe for Machine {
    type State = Worker;
    type Command = Command;
    type Refusal = Refusal;

    const TITLE: &'static str = "Worker";
    const FIRST: &'static str = "active";
    const INTRODUCTION: &'static str = "
A worker as the fleet sees it: the states of document 001 (Transcoding Job Lifecycle), with `draining` of
document 003 (Distributed State Management). Stored. It decides who is given new work and what people see, and
nothing else: work is taken from a worker only by the expiry of its lease. *Silent* is one not heard of for
the offline threshold.";

    fn states() -> Vec<(String, Worker)> {
        let heard = |status, at| Worker { status, last_heartbeat: Some(at), ..Worker::register(Millis(0)) };
        let cases = |status: &Status| {
            let (lately, long_ago) = (heard(*status, NOW), heard(*status, NOW - THRESHOLD));
            [(status.to_string(), lately), (format!("{status}, silent"), long_ago)]
        };
        Status::ALL.iter().flat_map(cases).collect()
    }

    fn commands() -> Vec<Group<Command>> {
        let commands = every!(Command {
            Command::Heartbeat { .. } => [
                "heartbeat, idle" => Command::Heartbeat { running: 0, is_draining: false },
                "heartbeat, running" => Command::Heartbeat { running: 2, is_draining: false },
                "heartbeat, draining" => Command::Heartbeat { running: 2, is_draining: true },
            ],
            Command::Leave => ["leave" => Command::Leave],
            Command::Check { .. } => ["check" => Command::Check { threshold: THRESHOLD }],
            Command::Drain => ["drain" => Command::Drain],
            Command::Disable => ["disable" => Command::Disable],
            Command::Enable => ["enable" => Command::Enable],
            Command::Reject { .. } => [
                "reject" => Command::Reject { limit: 0, window: THRESHOLD },
                "reject, at the limit" => Command::Reject { limit: 1, window: THRESHOLD },
            ],
        });
        vec![("Said by the worker, the fleet, and people:", commands)]
    }

    fn decide(worker: &Worker, command: &Command) -> Result<Worker, Refusal> {
        decide(worker, *command, NOW)
    }

    fn word(worker: &Worker) -> String {
        worker.status.to_string()
    }

    fn verb(command: &Command) -> String {
        command.name().into()
    }

    fn more() -> String {
        let worker = |status: &Status| Worker { status: *status, ..Worker::register(NOW) };
        let may =
            |status: &Status| worker(status).may_claim().map_or_else(|r| variant(&r), |()| "yes".into());
        let rows = Status::ALL.iter().map(|status| (status.to_string(), vec![may(status)]));
        markdown("", &["may claim".into()], rows)
    }
}
