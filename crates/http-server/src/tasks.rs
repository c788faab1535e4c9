//! Tasks of connections: the signal that ends them, and how they ended.

use tokio::sync::watch;
use tokio::task::JoinError;

/// Ready when the server is to stop, also when nobody is left to say so.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

pub(crate) fn tell_of_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}
