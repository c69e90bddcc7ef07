//! What things are called in Redis. All names begin with the prefix, so that one Redis can serve several.

use rules::{JobId, Priority, VideoId};

#[derive(Debug, Clone)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// The consumer group of all who take work.
    pub const GROUP: &'static str = "workers";

    pub fn new(prefix: &str) -> Self {
        Names { prefix: prefix.into() }
    }

    /// The stream of hints for one priority.
    pub fn ready(&self, priority: Priority) -> String {
        self.of(&format!("ready:{}", priority.get()))
    }

    /// The streams of all priorities, the most urgent first.
    pub fn all_ready(&self) -> Vec<(Priority, String)> {
        let priorities = (0..=10).rev().filter_map(|number: i64| Priority::try_from(number).ok());
        priorities.map(|priority| (priority, self.ready(priority))).collect()
    }

    /// The channel of wake-ups that everybody hears.
    pub fn wake(&self) -> String {
        self.of("wake")
    }

    pub fn worker_status(&self) -> String {
        self.of("worker_status")
    }

    pub fn transcode_progress(&self, video: VideoId) -> String {
        self.of(&format!("transcode_progress:{video}"))
    }

    pub fn transcode_complete(&self, video: VideoId) -> String {
        self.of(&format!("transcode_complete:{video}"))
    }

    /// As [`Names::transcode_progress`], of a job that makes no video.
    pub fn job_progress(&self, job: JobId) -> String {
        self.of(&format!("job_progress:{job}"))
    }

    /// The patterns of all channels that say how far things are.
    pub fn progress_patterns(&self) -> [String; 2] {
        [self.of("transcode_progress:*"), self.of("job_progress:*")]
    }

    pub fn lock(&self, name: &str) -> String {
        self.of(&format!("lock:{name}"))
    }

    pub fn fence(&self, name: &str) -> String {
        self.of(&format!("fence:{name}"))
    }

    /// Written now and then, to see whether anything can be.
    pub fn pulse(&self) -> String {
        self.of("pulse")
    }

    /// Up to where events were told.
    pub fn herald(&self) -> String {
        self.of("herald")
    }

    fn of(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Redis answers in this order.
    #[test]
    fn streams_are_named_from_the_most_urgent_down() {
        let names: Vec<String> = Names::new("x:").all_ready().into_iter().map(|(_, name)| name).collect();

        assert_eq!(
            (names.len(), &*names[0], &*names[1], &*names[10]),
            (11, "x:ready:10", "x:ready:9", "x:ready:0")
        );
    }
}
