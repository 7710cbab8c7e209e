//! Sources through the compiler or validator of their target, on all cores.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::{
    program::{Outcome, Source, Target},
    ptxas::Resources,
    tools::{SCRIPT, Tools},
};
use crate::commands::bench::progress;

/// Message of a spirv-val that does not know `BFloat16TypeKHR`.
const SPIRV_BFLOAT16: &str = "Invalid capability operand: 5116";
/// The header that has the type in HIP.
const HIP_BFLOAT16: &str = "hip/hip_bf16.h";

/// Checks the sources that are not checked yet and have a checker.
pub(super) fn check(sources: &mut [Source], tools: &Tools, out: &Path) -> Result<()> {
    let open: Vec<&mut Source> = sources
        .iter_mut()
        .filter(|source| source.outcome == Outcome::Generated)
        .filter(|source| tools.checker(source.target).is_some())
        .collect();
    let bar = progress(open.len() as u64);
    bar.set_message("checked");
    let queue = Mutex::new(open.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut bench = Bench {
                    tools,
                    out,
                    runtimes: BTreeMap::new(),
                };
                while let Some(source) = next() {
                    source.outcome = match bench.check(source) {
                        Ok(outcome) => outcome,
                        Err(error) => Outcome::Wrong(format!("{error:#}")),
                    };
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    Ok(())
}

/// The compilers of one thread.
struct Bench<'a> {
    tools: &'a Tools,
    out: &'a Path,
    runtimes: BTreeMap<&'static str, RuntimeCompiler>,
}

impl Bench<'_> {
    fn check(&mut self, source: &mut Source) -> Result<Outcome> {
        let file = self.out.join(&source.file);
        let variant = source.variant.clone().unwrap_or_default();
        match source.target {
            Target::Ptx => {
                let cuda = self.tools.cuda.as_ref().context("no ptxas")?;
                let mut command = Command::new(&cuda.ptxas);
                // Named explicitly: from sm_90 on LLVM's default is an architecture that no later GPU
                // runs.
                let arch = format!("-arch={}", specific(&variant));
                command.args(["-v", &arch, "-o", "/dev/null"]).arg(&file);
                let (passed, said) = said(command)?;
                source.resources = Resources::parse(&said);
                Ok(outcome(passed, said))
            }
            Target::Spirv => {
                let mut command = Command::new("spirv-val");
                command.args(["--target-env", &variant]);
                // The buffer layouts that CubeCL asks the device for.
                command.args(["--scalar-block-layout", "--workgroup-scalar-block-layout"]);
                command.arg(&file);
                let (passed, said) = said(command)?;
                match said.contains(SPIRV_BFLOAT16) {
                    // An older validator than the extension.
                    true => Ok(Outcome::Generated),
                    false => Ok(outcome(passed, said)),
                }
            }
            Target::Cuda => {
                let cuda = self.tools.cuda.as_ref().context("no NVRTC")?;
                let mut options = vec![format!("--gpu-architecture={}", specific(&variant))];
                let folders = cuda.include.iter();
                options.extend(folders.map(|f| format!("--include-path={}", f.display())));
                self.compile("nvrtc", &cuda.nvrtc.to_string_lossy(), &file, &options)
            }
            Target::Hip => {
                let library = self.tools.hip.context("no hipRTC")?;
                if fs::read_to_string(&file)?.contains(HIP_BFLOAT16) {
                    // It is older than the header.
                    return Ok(Outcome::Generated);
                }
                let options = [format!("--gpu-architecture={variant}")];
                self.compile("hiprtc", library, &file, &options)
            }
            Target::Msl | Target::Wgsl | Target::Llvm => Ok(Outcome::Generated),
        }
    }

    /// Compiles with a runtime compiler, which is started if there is none or it has died.
    fn compile(
        &mut self,
        kind: &'static str,
        library: &str,
        file: &Path,
        options: &[String],
    ) -> Result<Outcome> {
        let mut compiler = match self.runtimes.remove(kind) {
            Some(compiler) => compiler,
            None => RuntimeCompiler::start(self.tools, library, kind)?,
        };
        let error = compiler.compile(file, options);
        let error = error.with_context(|| format!("{kind} died"))?;
        self.runtimes.insert(kind, compiler);
        Ok(error.map_or(Outcome::Checked, Outcome::Wrong))
    }
}

/// The architecture with its specific features, as CubeCL compiles for it.
fn specific(sm: &str) -> String {
    let number: u32 = sm.trim_start_matches("sm_").parse().unwrap_or(0);
    match number >= 90 {
        true => format!("{sm}a"),
        false => sm.to_owned(),
    }
}

fn outcome(passed: bool, said: String) -> Outcome {
    match passed {
        true => Outcome::Checked,
        false => Outcome::Wrong(said),
    }
}

/// Runs a command. Returns if it succeeded, and its output.
fn said(mut command: Command) -> Result<(bool, String)> {
    let output = command
        .output()
        .with_context(|| format!("{} did not start", command.get_program().display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Ok((output.status.success(), text))
}

/// NVRTC or hipRTC, in a process of its own, because they may crash it.
struct RuntimeCompiler {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct Answer {
    error: Option<String>,
}

impl RuntimeCompiler {
    fn start(tools: &Tools, library: &str, kind: &str) -> Result<Self> {
        let python = tools.python.as_ref().context("no Python")?;
        let (child, stdin, stdout) = python.script(SCRIPT).args([library, kind]).talk()?;
        Ok(Self {
            child,
            stdin,
            stdout,
        })
    }

    /// The checker's complaint about a source.
    fn compile(&mut self, file: &Path, options: &[String]) -> Result<Option<String>> {
        let order = serde_json::json!({ "file": file, "options": options });
        writeln!(self.stdin, "{order}")?;
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        let answer: Answer = serde_json::from_str(&line).context("no answer")?;
        Ok(answer.error)
    }
}

impl Drop for RuntimeCompiler {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hopper_and_newer_compile_for_one_architecture() {
        assert_eq!(specific("sm_80"), "sm_80");
        assert_eq!(specific("sm_90"), "sm_90a");
        assert_eq!(specific("sm_100"), "sm_100a");
    }
}
