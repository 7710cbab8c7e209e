//! Cargo command lines that several verbs share, and the artifacts that cargo reports.

use std::{env, path::PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::exec::{Cmd, workspace};

/// Every package that builds Burn.
///
/// They are always built together, because cargo unites the features of all packages of one
/// invocation. One at a time, each example would turn on other features of crates deep below Burn.
/// Cargo would then build Burn anew for each of them, which takes many minutes.
pub(crate) const BURN_FACING: [&str; 16] = [
    "cubenorm",
    "cubenorm-kernels",
    "cubenorm-cpu-hints",
    "cubenorm-models",
    "cubenorm-tests",
    "cubenorm-bench",
    "cubenorm-example-dxdispatch",
    "cubenorm-example-onnx-node",
    "cubenorm-example-minilm",
    "cubenorm-example-candy",
    "cubenorm-example-quickstart",
    "cubenorm-example-digits",
    "cubenorm-example-transformer",
    "cubenorm-example-models",
    "cubenorm-example-onnx-import",
    "cubenorm-example-mamba",
];

/// `cargo VERB` on these packages with exactly these features.
pub(crate) fn on(verb: &str, packages: &[&str], features: &str) -> Cmd {
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    let command = Cmd::new("cargo").arg(verb).args(packages);
    match features {
        "" => command,
        _ => command.args(["--no-default-features", "--features", features]),
    }
}

/// A folder of this name below the target folder, for what must not share the builds' artifacts.
pub(crate) fn target_folder(name: &str) -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    workspace().join(target).join(name)
}

/// The version of a package in the lock file that this program was built with. On another machine
/// there is none to read.
pub(crate) fn locked(package: &str) -> Result<String> {
    let version = locked_in(include_str!("../../Cargo.lock"), package);
    let version = version.with_context(|| format!("{package} is not in Cargo.lock"))?;
    Ok(version.to_owned())
}

fn locked_in<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name).skip(1);
    lines
        .next()?
        .strip_prefix("version = \"")?
        .strip_suffix('"')
}

/// Builds everything that depends on Burn, with these runtimes.
pub(crate) struct Build {
    artifacts: Vec<Artifact>,
}

impl Build {
    /// Builds the binaries of the packages that build Burn.
    pub(crate) fn burn_facing(runtimes: &str) -> Result<Self> {
        Self::binaries(&BURN_FACING, &format!("burn,{runtimes}"))
    }

    /// Builds the binaries of these packages.
    pub(crate) fn binaries(packages: &[&str], features: &str) -> Result<Self> {
        Self::run(on("build", packages, features))
    }

    /// Builds the tests of these packages.
    pub(crate) fn tests(packages: &[&str], features: &str) -> Result<Self> {
        Self::run(on("test", packages, features).arg("--no-run"))
    }

    /// The one program of tests that a command builds, which names its target.
    pub(crate) fn test_program(command: Cmd, target: &str) -> Result<PathBuf> {
        let build = Self::run(command.arg("--no-run"))?;
        let mut programs = build.test_programs();
        let program = programs.find(|program| program.target == target);
        let program = program.with_context(|| format!("cargo built no tests called `{target}`"))?;
        Ok(program.executable.clone())
    }

    fn run(command: Cmd) -> Result<Self> {
        let messages = command
            .arg("--message-format=json-render-diagnostics")
            .capture()?;
        Ok(Self {
            artifacts: artifacts(&messages),
        })
    }

    /// The program of this name.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf> {
        self.artifacts
            .iter()
            .find(|artifact| artifact.target == name && !artifact.test)
            .map(|artifact| artifact.executable.clone())
            .with_context(|| format!("cargo built no program called `{name}`"))
    }

    /// The test programs.
    pub(crate) fn test_programs(&self) -> impl Iterator<Item = &Artifact> {
        self.artifacts.iter().filter(|artifact| artifact.test)
    }
}

/// A program that cargo built.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Artifact {
    /// The target within the package: `kernels` for `tests/kernels.rs`.
    pub target: String,
    /// Folder of the package: cargo runs its tests there.
    pub folder: PathBuf,
    pub executable: PathBuf,
    /// True if it is made of tests.
    pub test: bool,
}

impl Artifact {
    /// True if it is of the package in this folder of the workspace.
    pub(crate) fn is_in(&self, folder: &str) -> bool {
        self.folder.ends_with(folder)
    }
}

/// A line of cargo's messages, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

fn artifacts(messages: &str) -> Vec<Artifact> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| message.reason == "compiler-artifact")
        .filter_map(|message| {
            Some(Artifact {
                target: message.target.name,
                folder: message.manifest_path.parent()?.to_owned(),
                executable: message.executable?,
                test: message.profile.test,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_no_programs() {
        let message = |target: &str, executable: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/x/Cargo.toml","target":{{"name":
                "{target}"}},"profile":{{"test":{test}}},"executable":{executable}}}"#
            )
            .replace('\n', "")
        };
        let messages = [
            r#"{"reason":"build-script-executed","package_id":"x"}"#.to_owned(),
            message("pack", "null", false),
            message("tool", r#""/t/tool""#, false),
            message("suite", r#""/t/suite-1""#, true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let artifacts = artifacts(&messages.join("\n"));
        let build = Build { artifacts };
        assert_eq!(build.program("tool").unwrap(), PathBuf::from("/t/tool"));
        let other = build.program("other").unwrap_err().to_string();
        assert!(other.contains("`other`"), "{other}");
        let [suite] = &build.test_programs().collect::<Vec<_>>()[..] else {
            panic!("one program of tests");
        };
        assert_eq!(
            (suite.target.as_str(), &suite.folder),
            ("suite", &"/w/x".into())
        );
    }

    #[test]
    fn the_version_is_that_of_the_lock_file() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"ab\"\nversion = \"23.1.0-4\"\nsource = \"x\"\n";
        assert_eq!(locked_in(lock, "ab"), Some("23.1.0-4"));
        assert_eq!(locked_in(lock, "b"), None);
    }
}
