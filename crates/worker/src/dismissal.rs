//! A desk that wants nothing more of this worker is obeyed: it gives back what it has, and ends.

use std::sync::Arc;

use wire::Desk;

use crate::shared::Shared;

pub(crate) async fn run<D: Desk>(shared: Arc<Shared<D>>) {
    tokio::select! {
        why = shared.desk.dismissed() => {
            let _ = shared.dismissed.set(why);
            shared.shutdown.give_back();
        }
        () = shared.ending.cancelled() => {}
    }
}
