use crate::machine::{Describe, Group, every};
use rules::video::{Command, Refusal, State, Video, decide};
use rules::{GenerationId, job};

pub struct Machine;

const OLDER: GenerationId = GenerationId(1);
const CURRENT: GenerationId = GenerationId(2);
const NEWER: GenerationId = GenerationId(3);

impl Describe for Machine {
    type State = Video;
    type Command = Command;
    type Refusal = Refusal;

    const TITLE: &'static str = "Video";
    const FIRST: &'static str = "pending";
    const INTRODUCTION: &'static str = "
What the viewer sees, after document 001 (Transcoding Job Lifecycle). Stored are the current generation, the
newest job's state and whether the video is deleted; the state is derived from them. A published video stays
`ready` whatever its newest job does. In the tables, generation 2 is the current one where there is one.";

    fn states() -> Vec<(String, Video)> {
        State::ALL.iter().flat_map(|state| cases(*state)).chain([deleted()]).collect()
    }

    fn commands() -> Vec<Group<Command>> {
        let commands = every!(Command {
            Command::Submit => ["submit" => Command::Submit],
            Command::Observe(_) => [
                "observe pending" => Command::Observe(job::State::Pending),
                "observe processing" => Command::Observe(job::State::Processing),
                "observe completed" => Command::Observe(job::State::Completed),
                "observe failed" => Command::Observe(job::State::Failed),
                "observe cancelled" => Command::Observe(job::State::Cancelled),
            ],
            Command::Publish(_) => [
                "publish 1" => Command::Publish(OLDER),
                "publish 2" => Command::Publish(CURRENT),
                "publish 3" => Command::Publish(NEWER),
            ],
            Command::Rollback(_) => [
                "rollback 1" => Command::Rollback(OLDER),
                "rollback 2" => Command::Rollback(CURRENT),
                "rollback 3" => Command::Rollback(NEWER),
            ],
            Command::Delete => ["delete" => Command::Delete],
            Command::Restore => ["restore" => Command::Restore],
        });
        let is_of_job = |(_, command): &(String, Command)| match command {
            Command::Submit | Command::Observe(_) | Command::Publish(_) => true,
            Command::Rollback(_) | Command::Delete | Command::Restore => false,
        };
        let (of_jobs, of_people) = commands.into_iter().partition(is_of_job);
        vec![("What jobs do to it:", of_jobs), ("What people do to it:", of_people)]
    }

    fn decide(video: &Video, command: &Command) -> Result<Video, Refusal> {
        decide(video, *command)
    }

    fn word(video: &Video) -> String {
        if video.is_deleted { "deleted".into() } else { video.state().to_string() }
    }

    fn cell(video: &Video) -> String {
        let generation = video.generation.filter(|_| !video.is_deleted);
        generation.map_or_else(|| Self::word(video), |number| format!("{}, {number}", Self::word(video)))
    }

    fn verb(command: &Command) -> String {
        match command {
            Command::Observe(state) => format!("observe {state}"),
            Command::Submit
            | Command::Publish(_)
            | Command::Rollback(_)
            | Command::Delete
            | Command::Restore => command.name().into(),
        }
    }
}

fn cases(state: State) -> Vec<(String, Video)> {
    let with_job = |state| Video { job: Some(state), ..Video::NEW };
    let cases = match state {
        State::Pending => {
            vec![("pending, no job yet", Video::NEW), ("pending", with_job(job::State::Pending))]
        }
        State::Processing => vec![("processing", with_job(job::State::Processing))],
        State::Ready => {
            let published = Video { generation: Some(CURRENT), ..with_job(job::State::Completed) };
            let again = Video { generation: Some(CURRENT), ..with_job(job::State::Processing) };
            vec![("ready, 2", published), ("ready, 2, made anew", again)]
        }
        State::Failed => vec![("failed", with_job(job::State::Failed))],
    };
    assert!(cases.iter().all(|(_, video)| video.state() == state));
    cases.into_iter().map(|(heading, video)| (heading.into(), video)).collect()
}

fn deleted() -> (String, Video) {
    let ready = Video { generation: Some(CURRENT), job: Some(job::State::Completed), is_deleted: true };
    ("deleted, was ready, 2".into(), ready)
}
