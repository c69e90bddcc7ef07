//! What a remote worker may say and fetch and bring (document 001, §2–8).

pub(crate) mod allowance;
pub mod archive;
mod bounds;
pub(crate) mod content;
mod desk;
mod direct;
pub mod outputs;
pub mod rejections;
mod result;
pub mod source;
mod verify;
pub(crate) mod writers;

use crate::app::App;
use axum::Router;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;

/// How long a claim may wait for work.
pub const LONGEST_WAIT: Duration = Duration::from_secs(60);

pub(crate) fn routes() -> OpenApiRouter<App> {
    desk::routes().merge(direct::routes())
}

pub(crate) fn streamed() -> Router<App> {
    source::routes().merge(outputs::routes()).merge(archive::routes())
}
