//! What an admin may ask: one file for each noun.

pub mod captions;
pub mod jobs;
pub mod qualities;
pub mod tus;
pub mod uploads;
pub mod videos;
pub mod workers;

use crate::app::App;
use crate::openapi::Api;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Api::openapi())
        .merge(videos::routes())
        .merge(captions::routes())
        .merge(jobs::routes())
        .merge(qualities::routes())
        .merge(workers::routes())
}

/// Bodies that may be as large as a video: never held in memory, and limited where they are written.
pub(crate) fn streamed() -> OpenApiRouter<App> {
    uploads::routes().merge(tus::routes().into())
}
