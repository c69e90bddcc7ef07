//! Which encoders a machine offers, and what each may take.

use super::encoder_limits;
use crate::settings::Usage;
use media::encoder::{Codec, Family};
use worker::encoders;
use worker::process::{Guard, Limits};

#[derive(clap::Args)]
pub struct Encoding {
    /// The most memory one encoder may use, in megabytes. Default: twice what is estimated from its picture, and at least 2048
    #[arg(long, value_name = "MB", env = "VODMILL_ENCODER_MEMORY_MB")]
    encoder_memory: Option<u64>,
    /// Offer only these encoders, such as h264_nvenc, and only if they work here. Default: all that work
    #[arg(long, value_name = "NAMES", value_delimiter = ',', env = "VODMILL_ENCODERS")]
    encoders: Vec<String>,
}

impl Encoding {
    pub fn limits(&self) -> Limits {
        encoder_limits(self.encoder_memory)
    }

    /// What a worker here is able to do, by trying it out.
    pub async fn able(&self, guard: &Guard) -> Result<Vec<String>, Usage> {
        let all = || Family::with_software().flat_map(|family| Codec::ALL.map(|codec| (family, codec)));
        let known = |name: &String| all().any(|(family, codec)| family.encoder(codec) == *name);
        if let Some(unknown) = self.encoders.iter().find(|name| !known(name)) {
            let names: Vec<String> = all().map(|(family, codec)| family.encoder(codec)).collect();
            return Err(Usage(format!("--encoders: there is no `{unknown}`, only {}", names.join(", "))));
        }
        let is_wanted = |family: Family, codec: Codec| {
            self.encoders.is_empty() || self.encoders.contains(&family.encoder(codec))
        };
        let wanted: Vec<_> = all().filter(|(family, codec)| is_wanted(*family, *codec)).collect();
        let found = encoders::find(&wanted, guard).await;
        if found.is_empty() {
            tracing::warn!("none of ffmpeg's encoders works here; is ffmpeg installed?");
        }
        Ok(encoders::capabilities(&found))
    }
}
