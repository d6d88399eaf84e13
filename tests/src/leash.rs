//! Child processes on a leash: they end when this process ends, however that
//! happens, since the kernel closes the pipe that each of them is tied to.
//! The same pipe carries signals, so that nobody needs to know a child's id.

use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `"$@"` and leaves with its exit code. Each line on stdin is the name of
/// a signal for it; the end of stdin is SIGKILL. The watcher holds none of the
/// program's outputs, so that a reader sees their end when the program ends.
const SCRIPT: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
program=$!
{
  while read -r signal; do kill -s "$signal" "$program"; done
  kill -s KILL "$program"
} <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
wait "$program"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"
"#;

/// Waits for the end of stdin, gives the others a moment to go, and removes the
/// folder in its first argument.
const JANITOR: &str = r#"while read -r _; do :; done; sleep 1; rm -rf "$1""#;

/// A command that runs `program` on a leash: the child's stdin is the leash.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", SCRIPT, "leash"])
        .arg(program)
        .stdin(Stdio::piped());
    command
}

/// A command that removes `folder` when this process has ended. It is in a
/// process group of its own, so that Ctrl-C does not end it too early.
pub(crate) fn janitor(folder: &Path) -> Command {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", JANITOR, "janitor"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    command
}
