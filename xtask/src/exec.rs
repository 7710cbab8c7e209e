//! Commands that are printed before they run, so that a person can repeat each by hand.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::OnceLock,
};

use anyhow::{Context, Result, bail};

use crate::style;

/// A command line with the environment it adds.
#[derive(Clone, Debug)]
pub(crate) struct Cmd {
    program: String,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    folder: Option<PathBuf>,
    aside: bool,
    quiet: bool,
}

impl Cmd {
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: None,
            aside: false,
            quiet: false,
        }
    }

    pub(crate) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn args<A: Into<OsString>>(
        mut self,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Runs in this folder instead of the root of the workspace.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Sends the standard output to standard error, because ours is a report.
    pub(crate) fn aside(mut self) -> Self {
        self.aside = true;
        self
    }

    /// Drops the standard error of an exchange.
    pub(crate) fn quiet(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Prints the command.
    pub(crate) fn announce(&self) {
        anstream::eprintln!("{}", style::faint(format_args!("$ {self}")));
    }

    /// The command for the standard library.
    pub(crate) fn command(&self) -> Command {
        // The `cargo` on the path may be another version than the one that runs us.
        let is_cargo = self.program == "cargo";
        let cargo = is_cargo.then(|| std::env::var_os("CARGO")).flatten();
        let mut command = Command::new(cargo.unwrap_or_else(|| self.program.clone().into()));
        // Not cargo: a build script could depend on it.
        if !is_cargo {
            set_runtime_folder(&mut command);
        }
        for name in inherited(std::env::vars_os().map(|(name, _)| name)) {
            command.env_remove(name);
        }
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned());
        command.current_dir(self.folder.clone().unwrap_or_else(workspace));
        command
    }

    /// Runs the command, with our own standard output and error.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self.status()?;
        self.check(status)
    }

    /// Runs the command as [`run`](Self::run) does, and says how it ended.
    pub(crate) fn status(&self) -> Result<ExitStatus> {
        self.announce();
        let mut command = self.command();
        if self.aside {
            command.stdout(std::io::stderr());
        }
        command.status().with_context(|| self.not_started())
    }

    /// Runs the command and returns what it wrote to standard output.
    pub(crate) fn capture(&self) -> Result<String> {
        self.announce();
        let output = self.command().stderr(Stdio::inherit()).output();
        let output = output.with_context(|| self.not_started())?;
        self.check(output.status)?;
        String::from_utf8(output.stdout).with_context(|| format!("`{self}` wrote no UTF-8"))
    }

    /// Runs the command and shows its standard output line by line, each with `prefix` before it.
    /// Returns the output without the prefix, and the exit status.
    pub(crate) fn tee(&self, prefix: &str) -> Result<(String, ExitStatus)> {
        self.announce();
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| self.not_started())?;
        let mut text = String::new();
        if let Some(stdout) = child.stdout.take() {
            let mut reader = BufReader::new(stdout);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line)? > 0 {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(prefix.as_bytes())?;
                stdout.write_all(&line)?;
                text.push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        }
        Ok((text, child.wait()?))
    }

    /// Starts the command, for an exchange over its standard input and output.
    pub(crate) fn talk(&self) -> Result<(Child, ChildStdin, BufReader<ChildStdout>)> {
        let mut command = self.command();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if self.quiet {
            piped.stderr(Stdio::null());
        }
        let mut child = piped.spawn().with_context(|| self.not_started())?;
        let stdin = child.stdin.take().context("it is piped")?;
        let stdout = child.stdout.take().context("it is piped")?;
        Ok((child, stdin, BufReader::new(stdout)))
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("`{self}` failed: {}", ending(status));
        }
        Ok(())
    }

    fn not_started(&self) -> String {
        format!("`{}` could not be started", self.program)
    }
}

/// As a shell would take it.
impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(&value.to_string_lossy()))?;
        }
        f.write_str(&quoted(&self.program))?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(&argument.to_string_lossy()))?;
        }
        Ok(())
    }
}

/// Variables of `cargo run` about our own package, which a cargo that we start must not inherit.
///
/// A build script far below Burn (ring's) runs again if one of these changes. Burn would then be
/// built anew each time a person's cargo and ours take turns.
fn inherited(names: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    names.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name == "OUT_DIR"
    })
}

/// Names a folder in `XDG_RUNTIME_DIR` if the variable is not set, as in a container.
///
/// Mesa's drivers look for a window system there, and print an error if the variable is not set.
pub(crate) fn set_runtime_folder(command: &mut Command) {
    if std::env::var_os(RUNTIME_FOLDER).is_some() {
        return;
    }
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    if let Some(folder) = FOLDER.get_or_init(|| private_folder(&runtime_folder())) {
        command.env(RUNTIME_FOLDER, folder);
    }
}

const RUNTIME_FOLDER: &str = "XDG_RUNTIME_DIR";

/// The user's own folder, at a short path: the length of a socket's path is limited.
fn runtime_folder() -> PathBuf {
    let user = std::env::var("USER").unwrap_or_default();
    std::env::temp_dir().join(format!("cubenorm-runtime-{user}"))
}

/// Makes the folder for its owner alone, as the specification of the variable demands.
fn private_folder(path: &Path) -> Option<PathBuf> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};

        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path);
        let found = made.and_then(|()| fs::symlink_metadata(path)).ok()?;
        // Another user may have made it before, in a temporary folder that all users share.
        let is_private = found.is_dir() && found.mode() & 0o077 == 0;
        let is_ours = found.uid() == rustix::process::geteuid().as_raw();
        (is_private && is_ours).then(|| path.to_owned())
    }
    #[cfg(not(unix))]
    {
        // No driver reads the variable.
        let _ = path;
        None
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The end of a process, in words.
pub(crate) fn ending(status: ExitStatus) -> String {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return format!("killed by signal {signal}");
    }
    match status.code() {
        Some(code) => format!("exit code {code}"),
        None => "ended without an exit code".to_owned(),
    }
}

/// Why a process failed, if it did.
pub(crate) fn trouble(status: ExitStatus) -> Option<String> {
    (!status.success()).then(|| ending(status))
}

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    // Set by `cargo run`, and right even if another clone built a cached binary.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    match package.parent() {
        Some(root) if root.is_dir() => root.to_owned(),
        // This program was built on another machine.
        _ => std::env::current_dir().unwrap_or(package),
    }
}

/// True if a program of this name is on the path.
pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| {
        folder
            .join(program)
            .with_extension(std::env::consts::EXE_EXTENSION)
            .is_file()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_command_can_be_pasted_into_a_shell() {
        let command = Cmd::new("cargo")
            .args(["test", "-p", "it's here", ""])
            .env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(
            command.to_string(),
            r"RUSTDOCFLAGS='-D warnings' cargo test -p 'it'\''s here' ''"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_signal_is_named_as_one() {
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(ending(ExitStatus::from_raw(11)), "killed by signal 11");
        assert_eq!(ending(ExitStatus::from_raw(3 << 8)), "exit code 3");
    }

    #[test]
    fn a_started_cargo_inherits_no_package_variables() {
        let names = [
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "CARGO_TARGET_DIR",
            "PATH",
        ];
        let removed: Vec<_> = inherited(names.into_iter().map(OsString::from)).collect();
        assert_eq!(removed, ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"]);
    }

    #[cfg(unix)]
    #[test]
    fn runtime_folder_is_private_or_unused() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = std::env::temp_dir().join(format!("cubenorm-xdg-{}", std::process::id()));
        let first = private_folder(&folder);
        let again = private_folder(&folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let open = private_folder(&folder);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((first, again), (Some(folder.clone()), Some(folder)));
        assert_eq!(open, None);
    }

    #[cfg(unix)]
    #[test]
    fn programs_have_a_runtime_folder_and_cargo_does_not() {
        let environment = |program: &str| {
            let command = Cmd::new(program).command();
            command.get_envs().any(|(name, _)| name == RUNTIME_FOLDER)
        };
        let is_missing = std::env::var_os(RUNTIME_FOLDER).is_none();
        assert_eq!(environment("minilm"), is_missing);
        assert!(!environment("cargo"));
    }

    #[test]
    fn tee_returns_output_without_the_prefix() {
        let (text, status) = Cmd::new("cargo").arg("--version").tee("name: ").unwrap();
        assert!(status.success());
        assert!(text.starts_with("cargo "), "{text}");
    }

    #[test]
    fn failures_name_the_command() {
        let error = Cmd::new("cargo").arg("no-such-verb").capture().unwrap_err();
        assert!(
            error.to_string().contains("`cargo no-such-verb` failed"),
            "{error}"
        );
        assert!(Cmd::new("no-such-program").run().is_err());
    }
}
