//! `vodmill transcode` is killed, stopped, starved and misled in the middle, with real processes and real signals; the
//! same command, given again, goes on where it was, and what is published in the end is what an undisturbed run makes.

mod disk;
mod encoders;
mod kills;
mod reruns;
pub mod room;
mod signals;
mod sources;
mod steps;
