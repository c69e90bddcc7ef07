//! What the viewer sees (document 001): a video points at its current generation of output.

use crate::{GenerationId, job};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Waiting for its first stream.
    Pending,
    /// Its first stream is being made.
    Processing,
    /// Can be watched, also while a newer generation is being made.
    Ready,
    /// No stream, and the job that should have made one has failed.
    Failed,
}

crate::words::words!("video state", State {
    Pending => "pending",
    Processing => "processing",
    Ready => "ready",
    Failed => "failed",
});

/// The facts a video's state depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Video {
    /// What `master.m3u8` means now.
    pub generation: Option<GenerationId>,
    /// State of the newest job on it.
    pub job: Option<job::State>,
    pub is_deleted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// A job begins on it: the first, a retranscode, or a new one after a failure.
    Submit,
    /// The newest job is now in this state.
    Observe(job::State),
    /// A job's commit: the pointer moves to a new generation.
    Publish(GenerationId),
    /// A person moves the pointer back to an older generation.
    Rollback(GenerationId),
    Delete,
    Restore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("the video is deleted; restore it first")]
    Deleted,
    #[error("the video is not deleted")]
    NotDeleted,
    #[error("the video has no published generation")]
    NothingPublished,
    #[error("generation {0} is the current one already")]
    AlreadyCurrent(GenerationId),
    #[error("no job has been submitted for the video")]
    NoJob,
    #[error("generation {0} is older than the current one; use rollback to go back")]
    Older(GenerationId),
    #[error("generation {0} is newer than the current one; only a job publishes forward")]
    Newer(GenerationId),
}

impl Video {
    pub const NEW: Video = Video { generation: None, job: None, is_deleted: false };

    /// A published video stays `ready` whatever its newest job does: a retranscode never takes it away.
    pub const fn state(&self) -> State {
        match (self.generation, self.job) {
            (Some(_), _) => State::Ready,
            (None, None | Some(job::State::Pending | job::State::Cancelled)) => State::Pending,
            (None, Some(job::State::Failed)) => State::Failed,
            // Completed without a generation: the job makes none (a check, a thumbnail).
            (None, Some(job::State::Completed)) => State::Pending,
            (None, Some(_)) => State::Processing,
        }
    }
}

impl Command {
    pub const fn name(self) -> &'static str {
        match self {
            Command::Submit => "submit",
            Command::Observe(_) => "observe",
            Command::Publish(_) => "publish",
            Command::Rollback(_) => "rollback",
            Command::Delete => "delete",
            Command::Restore => "restore",
        }
    }
}

pub fn decide(video: &Video, command: Command) -> Result<Video, Refusal> {
    match (video, command) {
        (Video { is_deleted: true, .. }, Command::Restore) => Ok(Video { is_deleted: false, ..*video }),
        // Its jobs were cancelled by the deletion, and their end is still to be seen.
        (Video { is_deleted: true, .. }, Command::Observe(job)) => Ok(Video { job: Some(job), ..*video }),
        (Video { is_deleted: true, .. }, _) => Err(Refusal::Deleted),

        (_, Command::Restore) => Err(Refusal::NotDeleted),
        (_, Command::Delete) => Ok(Video { is_deleted: true, ..*video }),
        (_, Command::Submit) => Ok(Video { job: Some(job::State::Pending), ..*video }),

        (Video { job: None, .. }, Command::Observe(_) | Command::Publish(_)) => Err(Refusal::NoJob),
        (_, Command::Observe(job)) => Ok(Video { job: Some(job), ..*video }),

        (Video { generation: Some(current), .. }, Command::Publish(to)) if to < *current => {
            Err(Refusal::Older(to))
        }
        (Video { generation: Some(current), .. }, Command::Publish(to) | Command::Rollback(to))
            if to == *current =>
        {
            Err(Refusal::AlreadyCurrent(to))
        }
        (_, Command::Publish(to)) => Ok(Video { generation: Some(to), ..*video }),

        (Video { generation: None, .. }, Command::Rollback(_)) => Err(Refusal::NothingPublished),
        (Video { generation: Some(current), .. }, Command::Rollback(to)) if to > *current => {
            Err(Refusal::Newer(to))
        }
        (Video { generation: Some(_), .. }, Command::Rollback(to)) => {
            Ok(Video { generation: Some(to), ..*video })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retranscode_never_takes_a_playable_video_away() {
        let ready =
            Video { generation: Some(GenerationId(1)), job: Some(job::State::Completed), ..Video::NEW };

        let again = decide(&ready, Command::Submit).unwrap();

        for &state in job::State::ALL {
            let seen = decide(&again, Command::Observe(state)).unwrap();
            assert_eq!(seen.state(), State::Ready, "while its job is {state}");
        }
    }

    #[test]
    fn rollback_goes_back_and_publish_goes_on() {
        let third =
            Video { generation: Some(GenerationId(3)), job: Some(job::State::Completed), ..Video::NEW };

        let back = decide(&third, Command::Rollback(GenerationId(2))).unwrap();
        assert_eq!(back.generation, Some(GenerationId(2)));
        assert_eq!(decide(&third, Command::Publish(GenerationId(2))), Err(Refusal::Older(GenerationId(2))));
        assert_eq!(decide(&third, Command::Rollback(GenerationId(4))), Err(Refusal::Newer(GenerationId(4))));
        assert_eq!(
            decide(&back, Command::Publish(GenerationId(4))).unwrap().generation,
            Some(GenerationId(4))
        );
    }
}
