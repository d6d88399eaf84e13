//! The binary as a process: its settings, its log, its descriptors. No cluster
//! answers it here.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test reports what is wrong by ending"
)]

mod descriptors;
mod kubeconfigs;
mod settings;
mod unread;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// More than anything here takes, on a machine with other things to do.
const SOON: Duration = Duration::from_secs(30);

const HEALTH: &str = "GET /health/live HTTP/1.1\r\nhost: drainwell\r\n\r\n";

/// The binary, with nothing of this process's environment, and a kubeconfig of
/// this content.
fn command(kubeconfig: &str, arguments: &[&str]) -> Command {
    with_kubeconfig(
        Command::new(env!("CARGO_BIN_EXE_drainwell")),
        kubeconfig,
        arguments,
    )
}

fn with_kubeconfig(mut command: Command, kubeconfig: &str, arguments: &[&str]) -> Command {
    let thread = std::thread::current();
    let name = thread.name().unwrap().replace("::", "-");
    let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, kubeconfig).unwrap();
    command
        .args(arguments)
        .env_clear()
        .env("KUBECONFIG", path)
        .stdin(Stdio::null());
    command
}

/// A kubeconfig whose one cluster is nowhere, and whose user is this one.
fn nowhere(user: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:1"}}}}],
        "users": [{{"name": "u", "user": {user}}}],
        "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}]}}"#
    )
}

/// Flags with which the service starts, and asks nobody anything.
const ALONE: &[&str] = &[
    "serve",
    "--auth",
    "none",
    "--listen",
    "127.0.0.1:0",
    "--verify",
    "off",
    "--log",
    "json",
];

/// Runs it to its end, which comes by itself.
fn run(mut command: Command) -> (i32, String) {
    let stdio = (Stdio::null(), Stdio::piped());
    let mut process = command.stdout(stdio.0).stderr(stdio.1).spawn().unwrap();
    let (status, _) = end_of(&mut process);
    let mut stderr = String::new();
    let mut pipe = process.stderr.take().unwrap();
    pipe.read_to_string(&mut stderr).unwrap();
    (status.code().unwrap(), stderr)
}

/// How a process ends, and after what time. One that doesn't is killed.
fn end_of(process: &mut Child) -> (ExitStatus, Duration) {
    let began = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            return (status, began.elapsed());
        }
        if began.elapsed() > SOON {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A service that runs, and what it has not yet said. It is killed when this is
/// dropped.
struct Service {
    process: Child,
    stdout: Option<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Service {
    /// Starts it, and reads its log as far as the line with its address.
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::with_capacity(1, process.stdout.take().unwrap());
        let address = loop {
            let mut line = String::new();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "it has ended");
            if let Some(after) = line.split("listening on http://").nth(1) {
                break after.trim().split('"').next().unwrap().parse().unwrap();
            }
        };
        Self {
            process,
            stdout: Some(stdout),
            address,
        }
    }

    /// What it says from now on, line by line; none is waited for without end.
    fn lines(&mut self) -> Receiver<String> {
        let (each, lines) = channel();
        let stdout = self.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                each.send(line.unwrap()).unwrap_or_default();
            }
        });
        lines
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream
    }

    /// The status of the answer to one request.
    fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        String::from_utf8_lossy(&status[9..]).into_owned()
    }

    /// SIGTERM; gives how it ended, and after what time.
    fn terminate(&mut self) -> (ExitStatus, Duration) {
        let id = self.process.id().to_string();
        let told = Command::new("kill").args(["-s", "TERM", &id]).status();
        assert!(told.unwrap().success());
        end_of(&mut self.process)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        self.process.kill().unwrap_or_default();
        self.process.wait().unwrap();
    }
}
