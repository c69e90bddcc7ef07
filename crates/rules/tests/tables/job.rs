use crate::machine::{Describe, Group, every};
use crate::page::markdown;
use rules::job::{Command, Facts, Phase, Refusal, State, decide, derive};

pub struct Machine;

impl Describe for Machine {
    type State = State;
    type Command = Command;
    type Refusal = Refusal;

    const TITLE: &'static str = "Job";
    const FIRST: &'static str = "pending";
    const INTRODUCTION: &'static str = "
One request for work. The states are those of document 003 (Distributed State Management), and its table of
transitions; that they are a pure function of the job's tasks and executions is document 002's. Nothing but
the outcome is stored, for an index, in the transaction that ends the job. Working states are named for the
earliest phase that is not finished, so a job without work in a phase passes over it. `failed` is final, but
for a person who retries the job; what was committed stays, so it may enter a later phase at once.";

    fn states() -> Vec<(String, State)> {
        State::ALL.iter().map(|state| (state.to_string(), *state)).collect()
    }

    fn commands() -> Vec<Group<Command>> {
        let commands = every!(Command {
            Command::Enter(Phase::Validating) => ["enter validating" => Command::Enter(Phase::Validating)],
            Command::Enter(Phase::Planning) => ["enter planning" => Command::Enter(Phase::Planning)],
            Command::Enter(Phase::DownloadingInputs) => [
                "enter downloading_inputs" => Command::Enter(Phase::DownloadingInputs),
            ],
            Command::Enter(Phase::Processing) => ["enter processing" => Command::Enter(Phase::Processing)],
            Command::Enter(Phase::UploadingOutputs) => [
                "enter uploading_outputs" => Command::Enter(Phase::UploadingOutputs),
            ],
            Command::Lose => ["lose" => Command::Lose],
            Command::Complete => ["complete" => Command::Complete],
            Command::Fail => ["fail" => Command::Fail],
            Command::Cancel => ["cancel" => Command::Cancel],
            Command::Retry => ["retry" => Command::Retry],
        });
        let (enter, end) =
            commands.into_iter().partition(|(_, command)| matches!(command, Command::Enter(_)));
        vec![
            ("Work of a phase is the earliest unfinished:", enter),
            ("The only execution is lost before any commit; the job ends; a person retries it:", end),
        ]
    }

    fn decide(state: &State, command: &Command) -> Result<State, Refusal> {
        decide(*state, *command)
    }

    fn word(state: &State) -> String {
        state.to_string()
    }

    fn verb(command: &Command) -> String {
        match command {
            Command::Enter(_) => "enter".into(),
            Command::Lose | Command::Complete | Command::Fail | Command::Cancel | Command::Retry => {
                format!("{command:?}").to_lowercase()
            }
        }
    }

    fn more() -> String {
        let phases: Vec<Option<Phase>> = Phase::ALL.iter().copied().map(Some).chain([None]).collect();
        let name = |phase: &Option<Phase>| phase.map_or("all finished".into(), |phase| phase.to_string());
        let head: Vec<String> = phases.iter().map(name).collect();
        let rows = facts().into_iter().map(|(heading, facts)| {
            let states = phases.iter().map(|&phase| derive(Facts { phase, ..facts }).to_string());
            (heading.to_string(), states.collect())
        });
        format!("Derived, by the earliest phase with an unfinished stage:\n\n{}", markdown("", &head, rows))
    }
}

fn facts() -> [(&'static str, Facts); 4] {
    let waiting = Facts { is_cancelled: false, has_failed: false, has_begun: false, phase: None };
    [
        (
            "cancelled, whatever else",
            Facts { is_cancelled: true, has_failed: true, has_begun: true, ..waiting },
        ),
        ("a required task has failed for good", Facts { has_failed: true, has_begun: true, ..waiting }),
        ("an execution is live or committed", Facts { has_begun: true, ..waiting }),
        ("none is", waiting),
    ]
}
