//! What is said of the parts of the cage.

use serde::{Deserialize, Serialize};

/// What of the cage works here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Examined {
    pub items: Vec<Item>,
}

/// One promise of the cage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Item {
    pub name: String,
    pub is_in_force: bool,
    /// By what, or what is missing.
    pub detail: String,
}

impl Examined {
    pub fn missing(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter(|item| !item.is_in_force)
    }
}
