//! Which encoders this machine has: those that have encoded a frame here, whatever ffmpeg lists.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use media::encoder::{self, Codec, Family};
use rules::placement::GPU;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::process::{self, Guard, Progress, Reach};

/// A driver that takes longer for one frame is of no use.
const PATIENCE: Duration = Duration::from_secs(20);

/// They mostly wait, for programs to load and devices to open.
const SIDE_BY_SIDE: usize = 4;

/// Encodes one frame, or says why it cannot.
pub async fn try_out(family: Family, codec: Codec, guard: &Guard) -> Result<(), String> {
    let mut trial = process::Command::new(encoder::trial(family, codec), ".");
    trial.guard = guard.clone();
    trial.reach = Some(Reach::default());
    trial.timeout = Some(PATIENCE);
    let name = family.encoder(codec);
    match process::run(&trial, &Progress::default(), CancellationToken::new()).await {
        Ok(exit) if exit.status.is_success() => Ok(()),
        Ok(exit) => {
            let why = exit.stderr_tail.lines().next().unwrap_or("ffmpeg does not say why");
            Err(format!("{name} does not work here: {why}"))
        }
        Err(error) => Err(format!("{name} does not work here: {error}")),
    }
}

/// What of these works here.
pub async fn find(wanted: &[(Family, Codec)], guard: &Guard) -> Vec<(Family, Codec)> {
    let of = |family| wanted.iter().filter(move |(of, _)| *of == family).map(|(_, codec)| *codec);
    let found = stream::iter(Family::with_software().map(|family| find_of(family, of(family), guard)));
    found.buffered(SIDE_BY_SIDE).flat_map(stream::iter).collect().await
}

/// H.264 comes first, and a device that encodes anything encodes that: without it the rest of its family is not tried.
async fn find_of(family: Family, codecs: impl Iterator<Item = Codec>, guard: &Guard) -> Vec<(Family, Codec)> {
    let mut found = Vec::new();
    for codec in codecs {
        match try_out(family, codec, guard).await {
            Ok(()) => found.push((family, codec)),
            Err(why) => debug!("{why}"),
        }
        if found.is_empty() && family != Family::Software {
            break;
        }
    }
    found
}

/// What a worker with these encoders is able to do.
pub fn capabilities(found: &[(Family, Codec)]) -> Vec<String> {
    let mut names: Vec<String> = found.iter().map(|(family, codec)| family.encoder(*codec)).collect();
    if found.iter().any(|(family, _)| *family != Family::Software) {
        names.push(GPU.into());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hardware_encoder_makes_it_a_gpu_worker() {
        let (software, hardware) = ((Family::Software, Codec::H264), (Family::Nvenc, Codec::Hevc));

        assert_eq!(capabilities(&[software]), ["libx264"]);
        assert_eq!(capabilities(&[software, hardware]), ["libx264", "hevc_nvenc", "gpu"]);
    }
}
