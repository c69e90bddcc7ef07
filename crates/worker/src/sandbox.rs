//! How strictly programs that read files of strangers are locked in, and what of that works on this machine.
//!
//! The cage itself is the [guard](crate::guard)'s.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::guard::EXAMINE;
pub use crate::guard::{Examined, Item};
use crate::process::Guard;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// Nothing runs where a part of the cage is missing.
    Require,
    /// As far as the system can.
    #[default]
    BestEffort,
    Off,
}

impl FromStr for Sandbox {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "require" => Ok(Sandbox::Require),
            "best-effort" => Ok(Sandbox::BestEffort),
            "off" => Ok(Sandbox::Off),
            _ => Err("it is one of require, best-effort and off".into()),
        }
    }
}

/// Has a guard try every part of the cage on itself.
pub async fn examine(guard: &Guard) -> std::io::Result<Examined> {
    let mut command = tokio::process::Command::new(&guard.program);
    let output = command.args(&guard.args).arg(EXAMINE).stdin(std::process::Stdio::null()).output().await?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr);
        std::io::Error::other(format!("the guard does not say what works here: {}", said.trim()))
    })
}
