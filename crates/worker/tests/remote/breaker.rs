use rules::WorkerId;
use tokio::time::Instant;
use uuid::Uuid;
use wire::Desk;

use crate::scene::Scene;

pub async fn a_failing_server_is_left_alone_for_a_while() {
    let scene = Scene::new().await;
    let (server, desk) = (&scene.server, &scene.desk);
    let worker = WorkerId(Uuid::nil());
    server.with(|desk| desk.problem = Some((500, "internal")));

    let began = Instant::now();
    for _ in 0..50 {
        desk.has_work(worker).await.unwrap_err();
    }
    let (asked, took) = (server.asked("claim").len(), began.elapsed());
    server.with(|desk| desk.problem = None);
    let back = async {
        while desk.has_work(worker).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    back.await;

    assert!(asked < 10, "{asked} of 50 questions were asked within {took:?}");
    assert!(!desk.has_work(worker).await.unwrap(), "and it stays so");
}
