//! Log lines leave through a thread of their own, so that whoever reads them
//! slowly, or not at all, holds up the log and never the service. What finds
//! no room is counted, and told when there is room again.
//!
//! `tracing-appender` is this as well, but bounds lines and not their bytes,
//! and its guard prints to stdout when it can't end in time: with nobody
//! reading there, the process would never end.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::json;

/// Some thousand lines: what a burst of notices says while a reader that is
/// alive is busy. As much again may be on its way out.
const BYTES_MAX: usize = 1 << 20;
/// What is left at the end may take this long, of the two seconds that remain
/// between our own end and that of Cloud Run's patience.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes a line that says how many were lost.
type Lost = fn(u64) -> String;

/// Where lines go, whole ones only. Clones write to the same place.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

/// Waits when it is dropped, a moment, until all lines are written.
#[must_use = "lines that wait are lost without it"]
pub struct Flush(Lines);

struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    lost: u64,
    /// Some have been taken from here and are not yet written.
    on_the_way: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.lost == 0
    }
}

/// Starts the thread that writes to stdout, where lines are JSON or text.
///
/// # Errors
/// When it can't be started.
pub(super) fn start(json: bool) -> anyhow::Result<(Lines, Flush)> {
    start_to(io::stdout(), if json { lost_as_json } else { lost_as_text })
}

fn start_to(to: impl Write + Send + 'static, lost: Lost) -> anyhow::Result<(Lines, Flush)> {
    let lines = Lines(Arc::new(Shared {
        waiting: Mutex::default(),
        changed: Condvar::new(),
    }));
    let from = lines.clone();
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || from.write_to(to, lost))
        .context("no thread for the log")?;
    Ok((lines.clone(), Flush(lines)))
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Lines are whole whenever it is free: a panic leaves none half done.
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, if there is room for it.
    pub(super) fn put(&self, line: &[u8]) {
        let mut waiting = self.lock();
        // Once one is lost, so are all until that can be told: in its place.
        if waiting.lost > 0 || waiting.lines.len() + line.len() > BYTES_MAX {
            waiting.lost += 1;
        } else {
            waiting.lines.extend_from_slice(line);
        }
        self.0.changed.notify_all();
    }

    /// Writes what is put, for as long as the process lives.
    fn write_to(&self, mut to: impl Write, lost: Lost) {
        loop {
            let waiting = self.lock();
            let waited = self.0.changed.wait_while(waiting, |w| w.is_empty());
            let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
            let mut lines = mem::take(&mut waiting.lines);
            let count = mem::take(&mut waiting.lost);
            waiting.on_the_way = true;
            drop(waiting);
            if count > 0 {
                lines.extend_from_slice(lost(count).as_bytes());
            }
            // What can't be written can't be reported either.
            drop(to.write_all(&lines).and_then(|()| to.flush()));
            self.lock().on_the_way = false;
            self.0.changed.notify_all();
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        let waiting = self.0.lock();
        let unwritten = |w: &mut Waiting| !w.is_empty() || w.on_the_way;
        let changed = &self.0.0.changed;
        // What isn't written by then is lost: there is nobody left to tell.
        drop(changed.wait_timeout_while(waiting, END_TIMEOUT, unwritten));
    }
}

fn lost_as_json(lost: u64) -> String {
    let (words, now) = (lost_as_words(lost), Timestamp::now());
    let line = json!({"severity": "WARNING", "message": words, "timestamp": now});
    line.to_string() + "\n"
}

fn lost_as_text(lost: u64) -> String {
    format!("{}  WARN {}\n", Timestamp::now(), lost_as_words(lost))
}

fn lost_as_words(lost: u64) -> String {
    format!("{lost} log lines were lost: they were not read in time.")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader who takes each piece when the test says so.
    struct Reader {
        pieces: Sender<Vec<u8>>,
        leave: Receiver<()>,
    }

    impl Write for Reader {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.pieces.send(piece.to_vec()).map_err(io::Error::other)?;
            self.leave.recv().map_err(io::Error::other)?;
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_without_room_are_lost_and_counted_and_that_is_told_in_their_place() {
        let ((pieces, read), (go, leave)) = (channel(), channel());
        let lost = |lost| format!("{lost} lost\n");
        let (lines, flush) = start_to(Reader { pieces, leave }, lost).unwrap();
        lines.put(b"first\n");
        assert_eq!(read.recv().unwrap(), b"first\n");
        // Nobody takes it, and nobody who writes is held up.
        let long = [b'x'; 1 << 10];
        (0..(BYTES_MAX >> 10) + 5).for_each(|_| lines.put(&long));
        lines.put(b"short\n");
        go.send(()).unwrap();
        let rest = read.recv().unwrap();
        assert_eq!(rest.len(), BYTES_MAX + "6 lost\n".len());
        assert!(rest.ends_with(b"x6 lost\n"));
        lines.put(b"last\n");
        go.send(()).unwrap();
        go.send(()).unwrap();
        drop(flush);
        assert_eq!(
            read.try_recv().unwrap(),
            b"last\n",
            "written before the end"
        );
    }

    #[test]
    fn the_end_waits_for_nobody_who_does_not_read() {
        let ((pieces, read), (_go, leave)) = (channel(), channel());
        let (lines, flush) = start_to(Reader { pieces, leave }, |_| String::new()).unwrap();
        lines.put(b"line\n");
        read.recv().unwrap();
        let (done, ended) = channel();
        thread::spawn(move || {
            drop(flush);
            done.send(()).unwrap();
        });
        ended.recv_timeout(END_TIMEOUT * 20).unwrap();
    }
}
