//! Python packages that some verbs compare with, in an environment of their own under `target/`.

use std::{env::consts::EXE_EXTENSION, path::PathBuf};

use anyhow::{Context, Result, bail};

use crate::{
    exec::{Cmd, workspace},
    style,
};

/// Folder of the environment.
const FOLDER: &str = "target/python";
/// Folder of our scripts.
const SCRIPTS: &str = "xtask/python";
/// Fails unless exactly these packages, as `NAME==VERSION`, are installed.
const INSTALLED: &str = "\
import sys
from importlib import metadata
for package in sys.argv[1:]:
    name, version = package.split('==')
    try:
        found = metadata.version(name).split('+')[0]
    except metadata.PackageNotFoundError:
        found = None
    if found != version:
        sys.exit(1)
";

/// An interpreter with packages: the environment, or the system's own.
#[derive(Clone, Debug)]
pub(crate) struct Python {
    interpreter: PathBuf,
}

impl Python {
    /// Makes the environment if there is none, and installs missing `packages`, each
    /// `NAME==VERSION`.
    ///
    /// # Errors
    ///
    /// If there is no Python, or a package cannot be installed.
    pub(crate) fn with(packages: &[&str]) -> Result<Self> {
        let python = Self::new()?;
        python.install(packages, &[])?;
        Ok(python)
    }

    /// The first interpreter that has what a library needs: the environment with exactly these
    /// `packages`, or the system's with `modules` of any version. Changes nothing.
    pub(crate) fn having(packages: &[&str], modules: &[&str]) -> Option<Self> {
        let environment = Self::environment();
        if environment.has(packages) {
            return Some(environment);
        }
        let system = Self {
            interpreter: system().into(),
        };
        let import = format!("import {}", modules.join(", "));
        system.succeeds(&["-c", &import]).then_some(system)
    }

    fn environment() -> Self {
        let program = match cfg!(windows) {
            true => "Scripts/python.exe",
            false => "bin/python",
        };
        Self {
            interpreter: workspace().join(FOLDER).join(program),
        }
    }

    /// The environment, with whatever is in it.
    pub(crate) fn new() -> Result<Self> {
        let python = Self::environment();
        if !python.runs() {
            anstream::eprintln!("{} in {FOLDER}", style::heading("Python environment"));
            let make = Cmd::new(system()).args(["-m", "venv", "--clear", FOLDER]);
            make.aside().run().context(
                "this needs Python 3 with its module `venv` (Debian: apt-get install python3-venv)",
            )?;
        }
        Ok(python)
    }

    /// Installs what the environment lacks of `packages`, each `NAME==VERSION`. `options`
    /// are pip's.
    pub(crate) fn install(&self, packages: &[&str], options: &[&str]) -> Result<()> {
        if self.has(packages) {
            return Ok(());
        }
        let names = packages.join(", ");
        let install = self
            .command()
            .args(["-m", "pip", "install", "--disable-pip-version-check"])
            .args(options.iter().copied())
            .args(packages.iter().copied());
        install.aside().run().with_context(|| {
            format!("the Python packages {names} could not be installed in {FOLDER}")
        })?;
        match self.has(packages) {
            true => Ok(()),
            false => bail!("pip installed other versions than {names}"),
        }
    }

    /// Folder of its packages.
    pub(crate) fn site_packages(&self) -> Result<PathBuf> {
        let print = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let path = self.command().args(["-c", print]).capture()?;
        Ok(PathBuf::from(path.trim()))
    }

    /// One of our scripts, to be given its arguments.
    pub(crate) fn script(&self, name: &str) -> Cmd {
        self.command().arg(format!("{SCRIPTS}/{name}"))
    }

    /// A program that one of its packages has, to be given its arguments.
    pub(crate) fn program(&self, name: &str) -> Result<Cmd> {
        let folder = self.interpreter.parent();
        let path = folder.map(|folder| folder.join(name).with_extension(EXE_EXTENSION));
        let path = path.filter(|path| path.is_file());
        let path = path.with_context(|| format!("{FOLDER} has no program called `{name}`"))?;
        Ok(Cmd::new(path.to_string_lossy()))
    }

    fn command(&self) -> Cmd {
        Cmd::new(self.interpreter.to_string_lossy())
    }

    /// True if the interpreter is there and still works. An upgrade of the system's may break it.
    fn runs(&self) -> bool {
        self.succeeds(&["-m", "pip", "--version"])
    }

    fn has(&self, packages: &[&str]) -> bool {
        let check = [&["-c", INSTALLED], packages].concat();
        self.succeeds(&check)
    }

    fn succeeds(&self, arguments: &[&str]) -> bool {
        let output = self
            .command()
            .args(arguments.iter().copied())
            .command()
            .output();
        output.is_ok_and(|output| output.status.success())
    }
}

/// The system's interpreter.
fn system() -> &'static str {
    match cfg!(windows) {
        true => "python",
        false => "python3",
    }
}
