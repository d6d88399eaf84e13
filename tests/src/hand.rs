//! One clock for a test and the processes that it starts. It stands still until
//! the test moves it, so that hours pass as fast as the work in them is done,
//! and no longer on a slow machine.
//!
//! The test listens; each process connects, and answers every time that it is
//! sent (in milliseconds) with the next one that it waits for.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use drainwell_app::clock::{Clock, Hand};
use jiff::Timestamp;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Environment variable with the address of the leader.
pub const LEADER: &str = "DRAINWELL_TEST_CLOCK";
/// Far longer than a process takes to answer that still lives.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// The answer of a process that waits for nothing.
const AT_WORK: &str = "at work";

/// Leads the clock.
pub struct Leader {
    hand: &'static Hand,
    address: SocketAddr,
    followers: Arc<Mutex<Vec<Follower>>>,
    _tasks: JoinSet<()>,
}

/// A process whose clock is led.
struct Follower(BufStream<TcpStream>);

impl Leader {
    /// A clock that shows `begin`.
    pub async fn start(begin: Timestamp) -> anyhow::Result<Self> {
        // As long as the process: clocks are copied freely.
        let hand: &'static Hand = Box::leak(Box::new(Hand::new(begin)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let followers = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, hand, followers.clone()));
        Ok(Self {
            hand,
            address,
            followers,
            _tasks: tasks,
        })
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        Clock::led(self.hand)
    }

    /// Where it is followed.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Moves the clock, everywhere.
    pub async fn set(&self, at: Timestamp) {
        self.hand.set(at);
        let _awaited = self.awaited().await;
    }

    /// What each living process waits for; none of one that is at work.
    pub async fn awaited(&self) -> Vec<Option<Timestamp>> {
        let mut followers = self.followers.lock().await;
        let now = self.clock().now();
        let mut all = Vec::new();
        let mut living = Vec::new();
        for mut follower in followers.drain(..) {
            if let Ok(awaited) = follower.tell(now).await {
                all.push(awaited);
                living.push(follower);
            }
        }
        *followers = living;
        all
    }
}

impl Follower {
    async fn tell(&mut self, now: Timestamp) -> anyhow::Result<Option<Timestamp>> {
        let line = format!("{}\n", now.as_millisecond());
        self.0.write_all(line.as_bytes()).await?;
        self.0.flush().await?;
        let mut answer = String::new();
        timeout(ANSWER_WITHIN, self.0.read_line(&mut answer)).await??;
        match answer.trim() {
            AT_WORK => Ok(None),
            text => Ok(Some(Timestamp::from_millisecond(text.parse()?)?)),
        }
    }
}

async fn accept(listener: TcpListener, hand: &'static Hand, all: Arc<Mutex<Vec<Follower>>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let mut follower = Follower(BufStream::new(stream));
        let mut followers = all.lock().await;
        if follower.tell(Clock::led(hand).now()).await.is_ok() {
            followers.push(follower);
        }
    }
}

/// The clock that is led from this address, and the task that follows it.
pub async fn follow(
    leader: &str,
) -> anyhow::Result<(&'static Hand, impl Future<Output = anyhow::Result<()>>)> {
    let mut stream = BufStream::new(TcpStream::connect(leader).await?);
    let begin = read(&mut stream).await?;
    let hand: &'static Hand = Box::leak(Box::new(Hand::new(begin)));
    answer(&mut stream, hand).await?;
    Ok((hand, async move {
        loop {
            hand.set(read(&mut stream).await?);
            answer(&mut stream, hand).await?;
        }
    }))
}

async fn read(stream: &mut BufStream<TcpStream>) -> anyhow::Result<Timestamp> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let millis = line.trim().parse().context("the leader is gone")?;
    Ok(Timestamp::from_millisecond(millis)?)
}

async fn answer(stream: &mut BufStream<TcpStream>, hand: &Hand) -> anyhow::Result<()> {
    // Rounded up, so that it is over when the clock shows it.
    let awaited = hand
        .awaited()
        .map(|at| (at.as_millisecond() + 1).to_string());
    let line = format!("{}\n", awaited.unwrap_or_else(|| AT_WORK.to_owned()));
    stream.write_all(line.as_bytes()).await?;
    Ok(stream.flush().await?)
}
