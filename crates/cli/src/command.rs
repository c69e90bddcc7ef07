//! One file for each command.

pub mod check;
pub mod completions;
pub mod doctor;
pub mod job;
pub mod jobs;
pub mod migrate;
pub mod orchestrate;
pub mod plan;
pub mod serve;
pub mod sessions;
pub mod submit;
pub mod transcode;
pub mod video;
pub mod videos;
pub mod watch;
pub mod worker;
pub mod workers;
