//! What a person may choose about a stream, by flags or in a file.

use crate::settings::Usage;
use anyhow::Context;
use clap::ValueEnum;
use media::encoder::{Codec, Family};
use media::settings::Settings;
use std::path::{Path, PathBuf};
use worker::encoders;
use worker::process::Guard;

#[derive(clap::Args, Clone)]
#[command(next_help_heading = "The stream")]
pub struct Choices {
    /// Codecs; each rung is made in each: h264, hevc, av1. Default: h264
    #[arg(long = "codec", value_name = "CODEC", value_delimiter = ',')]
    codecs: Vec<CodecName>,
    /// The rungs to make, of those the source is large enough for. Default: 2160p to 240p
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    rungs: Vec<String>,
    /// Rungs without which the stream is shown where they cannot be made. Default: all must be made
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    optional_rungs: Vec<String>,
    /// How hard the encoder tries, in its own words. Default: fast (x264, x265), 8 (SVT-AV1)
    #[arg(long, value_name = "WORD")]
    preset: Option<String>,
    /// Encode with hardware: auto takes what is found to work, here or on a server's workers, else the processor does it.
    /// Default: none, or what the ladder file says
    #[arg(long, value_name = "KIND")]
    hardware: Option<Hardware>,
    /// Read ladder and encoder settings from a TOML or JSON file; flags win over it
    #[arg(long, value_name = "FILE", visible_alias = "settings")]
    ladder: Option<PathBuf>,
    /// The length of a segment, in seconds. Default: 6
    #[arg(long, value_name = "SECONDS")]
    segment_seconds: Option<f64>,
    /// Keep surround sound beside the stereo that is always made
    #[arg(long)]
    surround: bool,
    /// Make no preview pictures
    #[arg(long)]
    no_thumbnails: bool,
    /// Also make a plain file to download, video.mp4
    #[arg(long)]
    mp4: bool,
    /// Also make a manifest for DASH players, manifest.mpd
    #[arg(long)]
    dash: bool,
    /// Compare every rung with the source: PSNR and SSIM
    #[arg(long)]
    measure: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
#[value(rename_all = "lowercase")]
enum CodecName {
    H264,
    #[value(alias = "h265")]
    Hevc,
    Av1,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
enum Hardware {
    None,
    Auto,
    Nvenc,
    Qsv,
    Vaapi,
    Videotoolbox,
}

impl Choices {
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let mut settings = self.file_settings()?;
        if !self.codecs.is_empty() {
            settings.codecs = self.codecs.iter().map(|codec| codec.codec()).collect();
        }
        if !self.rungs.is_empty() {
            self.choose_rungs(&mut settings)?;
        }
        known(&settings, &self.optional_rungs)?;
        for rung in &mut settings.rungs {
            rung.optional |= self.optional_rungs.contains(&rung.name);
        }
        settings.preset = self.preset.clone().or(settings.preset);
        settings.segment_seconds = self.segment_seconds.unwrap_or(settings.segment_seconds);
        settings.encoder = match self.hardware {
            None => settings.encoder,
            Some(Hardware::None) => Family::Software,
            Some(Hardware::Auto) => Family::Auto,
            Some(Hardware::Nvenc) => Family::Nvenc,
            Some(Hardware::Qsv) => Family::Qsv,
            Some(Hardware::Vaapi) => Family::Vaapi,
            Some(Hardware::Videotoolbox) => Family::Videotoolbox,
        };
        settings.surround |= self.surround;
        settings.thumbnails &= !self.no_thumbnails;
        settings.mp4 |= self.mp4;
        settings.dash |= self.dash;
        settings.measure |= self.measure;
        settings.check().map_err(|bad| Usage(bad.to_string()))?;
        Ok(settings)
    }

    fn file_settings(&self) -> anyhow::Result<Settings> {
        self.ladder.as_deref().map_or_else(|| Ok(Settings::default()), Choices::read)
    }

    /// A file of settings: TOML, or JSON as `vodmill plan --json` shows them.
    pub fn read(path: &Path) -> anyhow::Result<Settings> {
        let wrong = |error: String| Usage(format!("{}: {}", path.display(), error.trim_end()));
        let text = std::fs::read_to_string(path)
            .with_context(|| Usage(format!("cannot read the ladder file {}", path.display())))?;
        Ok(if text.trim_start().starts_with('{') {
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
        } else {
            toml::from_str(&text).map_err(|error| wrong(error.to_string()))?
        })
    }

    fn choose_rungs(&self, settings: &mut Settings) -> anyhow::Result<()> {
        known(settings, &self.rungs)?;
        settings.rungs.retain(|rung| self.rungs.contains(&rung.name));
        Ok(())
    }
}

/// Sees to it that the encoders that are to be used really work here.
pub async fn find_encoders(settings: &mut Settings, guard: &Guard) -> anyhow::Result<()> {
    match settings.encoder {
        Family::Software => {}
        Family::Auto => settings.encoder = hardware(&settings.codecs, guard).await,
        family => trials(family, &settings.codecs, guard).await.map_err(Usage)?,
    }
    Ok(())
}

/// The first kind of hardware that works here, else the processor.
async fn hardware(codecs: &[Codec], guard: &Guard) -> Family {
    for family in Family::HARDWARE {
        if trials(family, codecs, guard).await.is_ok() {
            return family;
        }
    }
    Family::Software
}

/// Whether the ladder has all of these rungs.
fn known(settings: &Settings, names: &[String]) -> Result<(), Usage> {
    let known: Vec<&str> = settings.rungs.iter().map(|rung| rung.name.as_str()).collect();
    match names.iter().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            Err(Usage(format!("there is no rung `{unknown}`; the ladder has {}", known.join(", "))))
        }
    }
}

impl CodecName {
    const fn codec(self) -> Codec {
        match self {
            CodecName::H264 => Codec::H264,
            CodecName::Hevc => Codec::Hevc,
            CodecName::Av1 => Codec::Av1,
        }
    }
}

/// Encodes a frame in each of these codecs, or says which one cannot be.
async fn trials(family: Family, codecs: &[Codec], guard: &Guard) -> Result<(), String> {
    for codec in codecs {
        encoders::try_out(family, *codec, guard).await?;
    }
    Ok(())
}
