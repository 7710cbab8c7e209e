//! A contender in a process of its own, so that a crash is its own too.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    process::{Child, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    device::Device,
    exec::{Cmd, ending},
};

/// What is measured; the worker's catalogue knows what the words mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub op: String,
    pub shape: Vec<usize>,
    pub dtype: String,
    pub pass: String,
}

/// A line to the worker. `cubenorm_bench::protocol` is the other side.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Request<'a> {
    Prepare(&'a Problem),
    Round,
}

/// A line from the worker.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Reply {
    Ready,
    Round(Vec<f64>),
    Failed(String),
}

/// Why a contender has no time.
#[derive(Clone, Debug, PartialEq)]
pub enum Lost {
    /// The process died of a signal, as drivers that crash make it.
    Crashed(String),
    /// It said why, panicked, or did not answer in time.
    Failed(String),
}

/// Longer than any warm-up, tuning included, shorter than a person's patience.
const PATIENCE: Duration = Duration::from_secs(300);
/// Lines of standard error kept to explain a death.
const TAIL: usize = 12;

/// A running worker; dropping it ends the process.
pub struct Worker {
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<VecDeque<String>>>,
}

impl Worker {
    pub fn start(program: &Path, contender: &str, device: Device) -> Result<Self> {
        let mut child = Cmd::new(program.to_string_lossy())
            .args(["work", contender])
            .env("BURN_DEVICE", device.name())
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("`{}` could not be started", program.display()))?;
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
        let errors = thread::spawn(move || {
            let mut tail = VecDeque::new();
            for line in lossy_lines(stderr).filter(|line| !line.trim().is_empty()) {
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            tail
        });
        Ok(Self {
            child,
            lines,
            errors: Some(errors),
        })
    }

    /// Sets a problem up; returns when the worker is warm.
    pub fn prepare(&mut self, problem: &Problem) -> Result<(), Lost> {
        match self.ask(&Request::Prepare(problem))? {
            Reply::Ready => Ok(()),
            Reply::Failed(why) => Err(Lost::Failed(why)),
            Reply::Round(_) => Err(Lost::Failed(
                "answered a round that nobody asked for".into(),
            )),
        }
    }

    /// Milliseconds per run, one number per sample.
    pub fn round(&mut self) -> Result<Vec<f64>, Lost> {
        match self.ask(&Request::Round)? {
            Reply::Round(samples) => Ok(samples),
            Reply::Failed(why) => Err(Lost::Failed(why)),
            Reply::Ready => Err(Lost::Failed("answered no round".into())),
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, Lost> {
        let line = serde_json::to_string(request).map_err(|e| Lost::Failed(e.to_string()))?;
        // A worker that died before it read this shows below, where the reason is known.
        if let Some(stdin) = &mut self.child.stdin {
            let _ = writeln!(stdin, "{line}");
        }
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    // Drivers and compilers write to standard output too.
                    if let Ok(reply) = serde_json::from_str(&line) {
                        return Ok(reply);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    let _ = self.child.kill();
                    let seconds = PATIENCE.as_secs();
                    return Err(Lost::Failed(format!("no answer in {seconds} s")));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.autopsy()),
            }
        }
    }

    /// Why the worker is dead.
    fn autopsy(&mut self) -> Lost {
        let status = match self.child.wait() {
            Ok(status) => status,
            Err(error) => return Lost::Failed(error.to_string()),
        };
        let tail = self
            .errors
            .take()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_default();
        // A panic leaves its message first and notes after; a driver its last words last.
        let panic = tail.iter().position(|line| line.contains("panicked at"));
        let words = match panic {
            Some(at) => tail.range(at..).nth(1),
            None => tail.back(),
        };
        let why = match words {
            Some(words) => format!("{}: {}", ending(status), words.trim()),
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

/// Lines as they come, whatever their encoding.
fn lossy_lines(source: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(source)
        .split(b'\n')
        .map_while(Result::ok)
        .map(|line| String::from_utf8_lossy(&line).into_owned())
}
