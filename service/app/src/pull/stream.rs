//! One stream of messages, from its opening to its end.

use std::sync::Arc;
use std::time::Duration;

use google_cloud_pubsub::Error;
use google_cloud_pubsub::client::Subscriber;
use google_cloud_pubsub::model::Message;
use google_cloud_pubsub::subscriber::MessageStream;
use google_cloud_pubsub::subscriber::ShutdownToken;
use google_cloud_pubsub::subscriber::handler::Handler;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinError, JoinSet};

use super::message::{self, Fate};
use super::puller::Shared;

/// Messages that are here at once, worked on or held before they go back. More
/// than the VMs of a large slice; with the usual few kilobytes each, a few
/// megabytes.
const HERE_MAX: usize = 1000;
/// And as many bytes of them: Pub/Sub's largest message has ten megabytes.
const BYTES_MAX: i64 = 32 << 20;
/// After a crash of this instance its messages come again within this time.
/// Work may take longer: the client keeps extending it.
const LEASE: Duration = Duration::from_secs(20);
/// The service has eight seconds to stop: so long for work under way, and so
/// long to hand in what became of it.
const FINISH_WITHIN: Duration = Duration::from_secs(6);
const HAND_IN_WITHIN: Duration = Duration::from_millis(1500);

/// A stream, and the work on its messages.
pub(super) struct Stream {
    messages: MessageStream,
    end: ShutdownToken,
    work: JoinSet<()>,
    room: Arc<Semaphore>,
}

impl Stream {
    /// A stream of this subscription. It is opened when it is read from.
    pub(super) fn new(client: &Subscriber, subscription: &str) -> Self {
        let messages = client
            .subscribe(subscription)
            .set_max_outstanding_messages(i64::try_from(HERE_MAX).unwrap_or(i64::MAX))
            .set_max_outstanding_bytes(BYTES_MAX)
            .set_max_lease_extension(LEASE)
            .build();
        Self {
            end: messages.shutdown_token(),
            messages,
            work: JoinSet::new(),
            // The server is asked to keep the limit, and an emulator doesn't.
            room: Arc::new(Semaphore::new(HERE_MAX)),
        }
    }

    /// Reads messages until the stream fails, or is closed by itself (`None`).
    /// Must not be dropped before the stream is to end: an opening stream would
    /// be opened anew.
    pub(super) async fn read(
        &mut self,
        shared: &Arc<Shared>,
        stop: &watch::Receiver<bool>,
    ) -> Option<Error> {
        loop {
            while let Some(ended) = self.work.try_join_next() {
                tell_panic(ended);
            }
            let Ok(place) = Arc::clone(&self.room).acquire_owned().await else {
                return None;
            };
            match self.messages.next().await? {
                Ok((message, handler)) => {
                    let here = Here::new(shared, place);
                    let (shared, stop) = (Arc::clone(shared), stop.clone());
                    self.work.spawn(async move {
                        work(&shared, message, handler, stop).await;
                        drop(here);
                    });
                }
                Err(error) => return Some(error),
            }
        }
    }

    /// Lets the work under way end, hands in what became of it, and gives the
    /// rest back.
    pub(super) async fn end(self) {
        let Self {
            messages,
            end,
            mut work,
            ..
        } = self;
        // No more messages come; those that nobody has begun go back last.
        drop(messages);
        let finish = async {
            while let Some(ended) = work.join_next().await {
                tell_panic(ended);
            }
        };
        if tokio::time::timeout(FINISH_WITHIN, finish).await.is_err() {
            tracing::warn!("{} messages go back unfinished", work.len());
            // A message whose handler is dropped is given back.
            work.shutdown().await;
        }
        let handed_in = tokio::time::timeout(HAND_IN_WITHIN, end.shutdown()).await;
        if handed_in.is_err() {
            tracing::warn!("Not every acknowledgement was handed in: messages come again");
        }
    }
}

/// A message that is here, until it has left in whichever way.
struct Here {
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Here {
    fn new(shared: &Arc<Shared>, place: OwnedSemaphorePermit) -> Self {
        shared.tries.message_came();
        shared.calm();
        Self {
            shared: Arc::clone(shared),
            _place: place,
        }
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.shared.tries.message_left();
    }
}

async fn work(
    shared: &Shared,
    message: Message,
    handler: Handler,
    mut stop: watch::Receiver<bool>,
) {
    let fate = {
        // What nobody has begun when the service stops goes back.
        let hand = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            hand = shared.hands.acquire() => hand,
        };
        let Ok(_hand) = hand else { return };
        message::judge(&message, &shared.reception, shared.clock).await
    };
    match fate {
        Fate::Done => message::acknowledge(handler).await,
        Fate::Again => {
            drop(message);
            // Given back at once, it would be here again at once, for ever:
            // Pub/Sub doesn't wait unless the subscription has a retry policy.
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = tokio::time::sleep(shared.pace.jittered(shared.pace.hold)) => {}
            }
            handler.nack();
        }
    }
}

fn tell_panic(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!("A fault in the service, the message comes again: {error}");
    }
}
