//! Generates sources on all cores.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use cubecl::ir::DeviceProperties;
use cubenorm_offline::{Case, Found, Language, Profile, Target, check, representation, survey};

use crate::protocol::{Outcome, Source};

/// Bytes of a thread's stack: CubeCL's passes recurse into a kernel's expressions.
const STACK: usize = 64 << 20;

/// A kernel and its target.
pub struct Job {
    pub found: Found,
    target: Target,
    properties: Arc<DeviceProperties>,
}

/// All distinct pairs of kernel and target for these languages.
pub fn all(languages: &BTreeSet<Language>) -> Result<Vec<Job>> {
    let (all, essential) = (Case::all(), Case::essential());
    let mut seen = HashSet::new();
    let mut begun = BTreeSet::new();
    let mut jobs = Vec::new();
    for profile in Profile::all() {
        let wanted = |target: &&Target| languages.contains(&target.language());
        let targets: Vec<Target> = profile.targets.iter().filter(wanted).copied().collect();
        if targets.is_empty() {
            continue;
        }
        // The first device of a language uses all cases.
        let is_first = targets.iter().fold(false, |is_first, target| {
            begun.insert(target.language()) || is_first
        });
        let cases = if is_first { &all } else { &essential };
        let found = survey(&profile, cases)
            .with_context(|| format!("the catalogue on {}", profile.name))?;
        let properties = Arc::new(profile.properties);
        for found in found {
            let new = targets
                .iter()
                .filter(|&&target| seen.insert((target, found.kernel.id())));
            jobs.extend(new.map(|&target| Job {
                found: found.clone(),
                target,
                properties: properties.clone(),
            }));
        }
    }
    Ok(jobs)
}

/// Generates all sources and reports each result, in no particular order.
pub fn run(
    jobs: &[Job],
    out: &Path,
    checks: bool,
    mut say: impl FnMut(Box<Source>) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |cores| cores.get()) {
            let (next, sender) = (&next, sender.clone());
            let work = move || {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if sender.send(job.run(out, checks)).is_err() {
                        break;
                    }
                }
            };
            let thread = thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, work)?;
        }
        drop(sender);
        for source in receiver {
            say(Box::new(source?))?;
        }
        Ok(())
    })
}

impl Job {
    /// Generates the source and writes its file.
    fn run(&self, out: &Path, checks: bool) -> Result<Source> {
        let Found {
            kernel,
            name,
            strategy,
            dtype,
            ..
        } = &self.found;
        let (contents, extension, outcome) = match self.target.compile(&**kernel) {
            Ok(source) => {
                let outcome = match checks.then(|| check(self.target, &source, &self.properties)) {
                    None | Some(None) => Outcome::Generated,
                    Some(Some(Ok(()))) => Outcome::Checked,
                    Some(Some(Err(why))) => Outcome::Wrong(why),
                };
                let bytes = source.binary.unwrap_or_else(|| source.text.into_bytes());
                (bytes, self.target.extension(), outcome)
            }
            Err(error) => {
                let text = representation(&**kernel).unwrap_or_else(|error| error.to_string());
                let outcome = Outcome::Refused(error.to_string());
                (text.into_bytes(), "ir", outcome)
            }
        };
        let folder = match self.target.variant() {
            Some(variant) => format!("{}/{variant}", self.target.language().name()),
            None => self.target.language().name().to_owned(),
        };
        let strategy_name = strategy.map(|strategy| format!("_{strategy}"));
        let id = kernel.id().stable_hash() as u32;
        let file = format!(
            "{folder}/{name}{}_{dtype}_{id:08x}.{extension}",
            strategy_name.unwrap_or_default()
        );
        let path = out.join(&file);
        fs::create_dir_all(out.join(&folder))
            .and_then(|()| fs::write(&path, contents))
            .with_context(|| format!("{} could not be written", path.display()))?;
        Ok(Source {
            target: self.target.language(),
            variant: self.target.variant(),
            kernel: self.found.name,
            strategy: *strategy,
            dtype: *dtype,
            case: self.found.case.clone(),
            knobs: self.found.knobs.to_string(),
            hot: self.found.is_hot,
            file,
            outcome,
        })
    }
}
