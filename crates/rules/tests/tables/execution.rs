use crate::machine::{Describe, Group, every};
use rules::execution::{Command, Refusal, Status, decide};

pub struct Machine;

impl Describe for Machine {
    type State = Status;
    type Command = Command;
    type Refusal = Refusal;

    const TITLE: &'static str = "Execution";
    const FIRST: &'static str = "LEASED";
    const INTRODUCTION: &'static str = "
One attempt at a task, after document 002 (State Model). It is the source of truth: stored, and never changed
once it has ended. `COMMITTED` is the one boundary at which an effect becomes real; at most one execution of a
task ever crosses it. A claim creates an execution; the task's machine moves it.";

    fn states() -> Vec<(String, Status)> {
        Status::ALL.iter().map(|status| (status.to_string(), *status)).collect()
    }

    fn commands() -> Vec<Group<Command>> {
        let commands = every!(Command {
            Command::Start => ["start" => Command::Start],
            Command::Commit => ["commit" => Command::Commit],
            Command::Settle => ["settle" => Command::Settle],
            Command::Abort => ["abort" => Command::Abort],
        });
        vec![("Moved by its task:", commands)]
    }

    fn decide(status: &Status, command: &Command) -> Result<Status, Refusal> {
        decide(*status, *command)
    }

    fn word(status: &Status) -> String {
        status.to_string()
    }

    fn verb(command: &Command) -> String {
        format!("{command:?}").to_lowercase()
    }
}
