//! A provider in a process of its own, so that a crash is its own too.

use std::{
    fmt,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use cubenorm_problems::{
    Problem,
    protocol::{About, Reply, Request, Samples},
};

use crate::exec::{Cmd, ending};

/// Why a provider has no time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Lost {
    /// The process died of a signal, as drivers that crash make it.
    Crashed(String),
    /// It said why, panicked, or did not answer in time.
    Failed(String),
    /// It does not have the operator, the type or the pass.
    Unsupported(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crashed(why) => write!(f, "crashed: {why}"),
            Self::Failed(why) => write!(f, "failed: {why}"),
            Self::Unsupported(why) => write!(f, "{NO_RESULT}: {why}"),
        }
    }
}

/// A provider that lacks the operator, the type or the pass: no failure.
pub(super) const NO_RESULT: &str = "no result";

/// Longer than any warm-up, tuning included.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A running worker. It is stopped between two requests, and dropping it ends the process.
pub(super) struct Worker {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<LastWords>>,
}

impl Worker {
    pub(super) fn start(command: &Cmd) -> Result<Self> {
        let mut command_line = command.command();
        dies_with_us(&mut command_line);
        let mut child = command_line
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{command}` could not be started"))?;
        let stdout = child
            .stdout
            .take()
            .context("the worker has no standard output")?;
        let stderr = child
            .stderr
            .take()
            .context("the worker has no standard error")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in lossy_lines(stdout) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let errors = thread::spawn(move || LastWords::of(lossy_lines(stderr)));
        Ok(Self {
            child,
            lines,
            errors: Some(errors),
        })
    }

    /// Sets a problem up; returns when the worker is warm.
    pub(super) fn prepare(&mut self, problem: &Problem) -> Result<About, Lost> {
        match self.ask(&Request::Prepare(problem.clone()))? {
            Reply::Ready(about) => Ok(about),
            Reply::Unsupported(why) => Err(Lost::Unsupported(why)),
            Reply::Failed(why) => Err(Lost::Failed(why)),
            Reply::Round(_) => Err(Lost::Failed("answered a round without a request".into())),
        }
    }

    /// The samples of a round.
    pub(super) fn round(&mut self) -> Result<Samples, Lost> {
        self.samples(&Request::Round)
    }

    /// Samples of replays of a recorded graph; empty if nothing can be recorded.
    pub(super) fn replay(&mut self) -> Result<Samples, Lost> {
        self.samples(&Request::Replay)
    }

    fn samples(&mut self, request: &Request) -> Result<Samples, Lost> {
        match self.ask(request)? {
            Reply::Round(samples) => Ok(samples),
            Reply::Unsupported(why) | Reply::Failed(why) => Err(Lost::Failed(why)),
            Reply::Ready(_) => Err(Lost::Failed("answered no round".into())),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Lost> {
        stop(&self.child, false);
        let reply = self.answer(request);
        if reply.is_ok() {
            stop(&self.child, true);
        }
        reply
    }

    fn answer(&mut self, request: &Request) -> Result<Reply, Lost> {
        let line = serde_json::to_string(request).map_err(|e| Lost::Failed(e.to_string()))?;
        // A worker that died before it read this is found below, with the reason.
        if let Some(stdin) = &mut self.child.stdin {
            let _ = writeln!(stdin, "{line}");
        }
        loop {
            match self.lines.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    // Drivers and compilers write to standard output too.
                    if let Ok(reply) = serde_json::from_str(&line) {
                        return Ok(reply);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    let seconds = TIMEOUT.as_secs();
                    return Err(Lost::Failed(format!("no answer in {seconds} s")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.cause_of_death()),
            }
        }
    }

    /// Why the worker is dead.
    fn cause_of_death(&mut self) -> Lost {
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(error) => return Lost::Failed(error.to_string()),
        };
        let words = self.errors.take().and_then(|thread| thread.join().ok());
        let why = match words.and_then(LastWords::into_reason) {
            Some(reason) => format!("{}: {reason}", ending(status)),
            None => ending(status),
        };
        match status.code() {
            Some(_) => Lost::Failed(why),
            None => Lost::Crashed(why),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops a worker while others are measured, or lets it go on. Systems other than Unix cannot.
///
/// Waiting threads of CubeCL poll for work thousands of times a second. They would take 10 to 20 %
/// of a core from the worker that is measured. A dead worker is noticed at its next request.
fn stop(child: &Child, stops: bool) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process};

        let signal = if stops { Signal::STOP } else { Signal::CONT };
        let _ = kill_process(Pid::from_child(child), signal);
    }
    #[cfg(not(unix))]
    let _ = (child, stops);
}

/// Ends a worker with this process: a stopped process does not see the end of its standard input.
fn dies_with_us(command: &mut Command) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::process::CommandExt as _;

        use rustix::process::{Signal, set_parent_process_death_signal};

        // SAFETY: between fork and exec it makes one system call, and allocates nothing.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?));
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = command;
}

/// Lines of a process's standard error that may explain its death.
#[derive(Default)]
struct LastWords {
    /// The message of the first panic; notes and a backtrace follow it.
    panic: Option<String>,
    /// The last line, which is what a driver leaves.
    line: Option<String>,
}

impl LastWords {
    fn of(lines: impl Iterator<Item = String>) -> Self {
        let mut words = Self::default();
        let mut panicked = false;
        for line in lines.filter(|line| !line.trim().is_empty()) {
            if panicked && words.panic.is_none() {
                words.panic = Some(line.trim().to_owned());
            }
            panicked |= line.contains(" panicked at ");
            words.line = Some(line.trim().to_owned());
        }
        words
    }

    fn into_reason(self) -> Option<String> {
        self.panic.or(self.line)
    }
}

/// Lines as they come, whatever their encoding.
fn lossy_lines(source: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(source)
        .split(b'\n')
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(lines: &[&str]) -> Option<String> {
        LastWords::of(lines.iter().map(ToString::to_string)).into_reason()
    }

    #[test]
    fn a_panic_has_its_message_as_reason() {
        let lines = [
            "some driver's chatter",
            "",
            "thread 'main' (7) panicked at src/lib.rs:3:5:",
            "not implemented",
            "stack backtrace:",
            "note: Some details are omitted",
        ];
        assert_eq!(reason(&lines).unwrap(), "not implemented");
    }

    #[test]
    fn a_crash_has_the_last_line_as_reason() {
        assert_eq!(
            reason(&["first", "UNREACHABLE: x", " "]).unwrap(),
            "UNREACHABLE: x"
        );
        assert_eq!(reason(&[]), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_signal_is_a_crash_and_an_exit_a_failure() {
        let lost = |script: &str| {
            let mut worker = Worker::start(&Cmd::new("sh").args(["-c", script])).unwrap();
            worker.round().unwrap_err()
        };
        assert!(matches!(lost("kill -SEGV $$"), Lost::Crashed(why) if why.contains("signal 11")));
        assert_eq!(
            lost("echo no >&2; exit 3"),
            Lost::Failed("exit code 3: no".into())
        );
        assert_eq!(
            lost(r#"echo noise; echo '{"failed":"x"}'"#),
            Lost::Failed("x".into())
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_waiting_worker_is_stopped() {
        let script = r#"while read line; do echo '{"round":{"wall":[1.0]}}'; done"#;
        let mut worker = Worker::start(&Cmd::new("sh").args(["-c", script])).unwrap();
        for _ in 0..2 {
            assert_eq!(worker.round().unwrap().wall, [1.0]);
            let stat = format!("/proc/{}/stat", worker.child.id());
            let is_stopped = || {
                let stat = std::fs::read_to_string(&stat).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            };
            // A signal takes a moment.
            let mut looks = 0;
            while !is_stopped() {
                looks += 1;
                assert!(looks < 1000, "the worker runs on");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_missing_operator_is_no_failure() {
        let problem: Problem =
            serde_json::from_str(r#"{"op": "rms_norm", "shape": [2, 3]}"#).unwrap();
        let prepared = |reply: &str| {
            let script = format!("read line; echo '{reply}'");
            let mut worker = Worker::start(&Cmd::new("sh").args(["-c", &script])).unwrap();
            worker.prepare(&problem)
        };
        assert_eq!(
            prepared(r#"{"unsupported":"no f16"}"#),
            Err(Lost::Unsupported("no f16".into()))
        );
        let about = prepared(r#"{"ready":{"runtime":"x 1"}}"#).unwrap();
        assert_eq!((about.runtime.as_str(), about.plan), ("x 1", None));
    }
}
