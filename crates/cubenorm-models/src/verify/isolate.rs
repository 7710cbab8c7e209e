//! Runs cases in another process, so that a driver that crashes or hangs costs one case.
//!
//! The child calls [`serve`]. It reads a list of cases from its standard input. On its standard
//! output, it prints a line when it starts a case, and a line with the result. The parent calls
//! [`supervise`]. If the child ends early or times out, the case that it started last fails, and
//! another child runs the rest. Other lines, such as a driver's messages, are ignored.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Executor;
use crate::verify::{Case, CaseResult, Options, Outcome, Report, run_case};

/// Prefix of each line of the child.
const MARK: &str = "cubenorm-verify: ";
/// Maximum bytes that are read of a line at once, which is more than any message has.
const MAX_LINE_BYTES: u64 = 16 << 20;
/// Minimum time for a child to start its device, even if the limit of a case is less.
const STARTING: Duration = Duration::from_secs(60);

/// Message of the child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Message {
    /// The device has started.
    Ready { device: String },
    /// The device did not start.
    NotReady { reason: String },
    /// The case at this index of the list starts.
    Started { index: usize },
    /// The case has a result.
    Finished { index: usize, outcome: CaseResult },
}

/// Error of starting a child.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// The child's program did not start.
    #[error("the process that runs the cases did not start: {0}")]
    Spawn(#[from] io::Error),
    /// The device did not start.
    #[error("{0}")]
    NotReady(String),
}

/// Child: runs the cases listed in `input`, if there is an executor.
///
/// # Errors
///
/// If the parent's end of a pipe is closed.
pub fn serve<E: std::fmt::Display>(
    executor: Result<&dyn Executor, E>,
    options: &Options,
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    let mut list = String::new();
    input.read_line(&mut list)?;
    let cases: Vec<Case> = serde_json::from_str(&list)?;
    let mut say = |message: &Message| {
        // On its own line, after any output of a driver.
        writeln!(output, "\n{MARK}{}", serde_json::to_string(message)?)?;
        output.flush()
    };
    let executor = match executor {
        Ok(executor) => executor,
        Err(reason) => {
            let reason = reason.to_string();
            return say(&Message::NotReady { reason });
        }
    };
    let device = executor.name().to_owned();
    say(&Message::Ready { device })?;
    for (index, case) in cases.iter().enumerate() {
        say(&Message::Started { index })?;
        let outcome = run_case(case, executor, options);
        say(&Message::Finished { index, outcome })?;
    }
    Ok(())
}

/// Parent: runs `cases` in children that `command` makes, with a time limit for each case. Reports
/// each outcome immediately.
///
/// # Errors
///
/// [`SuperviseError`]: no case was run.
pub fn supervise(
    cases: Vec<Case>,
    command: &mut dyn FnMut() -> Command,
    limit: Duration,
    on_outcome: &mut dyn FnMut(&Outcome),
) -> Result<Report, SuperviseError> {
    let mut report = Report::default();
    let mut rest = cases.as_slice();
    loop {
        // Broken cases have nothing to run.
        while let [case, after @ ..] = rest {
            let Some(reason) = &case.broken else { break };
            record(
                &mut report,
                case,
                CaseResult::Failed(reason.clone()),
                on_outcome,
            );
            rest = after;
        }
        let run = rest.iter().take_while(|case| case.broken.is_none()).count();
        if run == 0 {
            return Ok(report);
        }
        let mut child = Running::start(command(), &rest[..run])?;
        let done = child.attend(&rest[..run], limit, &mut report, on_outcome)?;
        rest = &rest[done..];
    }
}

fn record(
    report: &mut Report,
    case: &Case,
    result: CaseResult,
    on_outcome: &mut dyn FnMut(&Outcome),
) {
    let outcome = Outcome {
        case: case.clone(),
        result,
    };
    on_outcome(&outcome);
    report.outcomes.push(outcome);
}

/// A running child; killed when dropped.
struct Running {
    child: Child,
    messages: Receiver<Message>,
}

impl Running {
    fn start(mut command: Command, cases: &[Case]) -> io::Result<Self> {
        let list = serde_json::to_string(cases)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // In separate threads: a child that does not read, or never ends a line, must not block the
        // parent.
        if let Some(mut stdin) = child.stdin.take() {
            thread::spawn(move || {
                let written = writeln!(stdin, "{list}");
                // A child that has ended is noticed by the closed pipe.
                drop(written);
            });
        }
        let (sender, messages) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || forward(stdout, &sender));
        }
        Ok(Self { child, messages })
    }

    /// Records outcomes until the child is done or has to be replaced. Returns their number, at
    /// least one.
    fn attend(
        &mut self,
        cases: &[Case],
        limit: Duration,
        report: &mut Report,
        on_outcome: &mut dyn FnMut(&Outcome),
    ) -> Result<usize, SuperviseError> {
        let mut done = 0;
        let mut is_ready = false;
        while let Some(case) = cases.get(done) {
            let limit = if is_ready { limit } else { limit.max(STARTING) };
            let reason = match self.next(limit) {
                Ok(Message::Ready { device }) => {
                    report.device = device;
                    is_ready = true;
                    continue;
                }
                Ok(Message::NotReady { reason }) => return Err(SuperviseError::NotReady(reason)),
                Ok(Message::Started { .. }) => continue,
                Ok(Message::Finished { index, outcome }) if index == done => {
                    record(report, case, outcome, on_outcome);
                    done += 1;
                    continue;
                }
                Ok(Message::Finished { .. }) => "its process lost count".to_owned(),
                Err(RecvTimeoutError::Timeout) => {
                    format!("it did not finish within {} s", limit.as_secs_f64())
                }
                Err(RecvTimeoutError::Disconnected) => self.how_it_ended(),
            };
            if !is_ready {
                let reason = format!("the device did not start: {reason}");
                return Err(SuperviseError::NotReady(reason));
            }
            record(report, case, CaseResult::Failed(reason), on_outcome);
            return Ok(done + 1);
        }
        Ok(done)
    }

    fn next(&self, limit: Duration) -> Result<Message, RecvTimeoutError> {
        self.messages.recv_timeout(limit)
    }

    fn how_it_ended(&mut self) -> String {
        // The output has ended: wait for the process to end.
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("its process ended: {status}"),
                Ok(None) => thread::sleep(Duration::from_millis(10)),
                Err(_) => break,
            }
        }
        "its process closed its output".to_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Errors mean that the process has ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Forwards the messages among the lines of a child.
fn forward(stdout: impl Read, sender: &Sender<Message>) {
    let mut lines = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        // A driver may print without end and without a newline.
        let read = lines
            .by_ref()
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line);
        if !read.is_ok_and(|bytes| bytes > 0) {
            return;
        }
        let Some(text) = line.strip_prefix(MARK.as_bytes()) else {
            continue;
        };
        let Ok(message) = serde_json::from_slice(text) else {
            continue;
        };
        if sender.send(message).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_lines_are_read_in_parts() {
        let line = format!("\n{MARK}{}\n", r#"{"started":{"index":3}}"#);
        let endless = io::repeat(b'x').take(3 * MAX_LINE_BYTES);
        let (sender, messages) = channel();
        forward(endless.chain(line.as_bytes()), &sender);
        assert_eq!(messages.try_recv(), Ok(Message::Started { index: 3 }));
    }
}
