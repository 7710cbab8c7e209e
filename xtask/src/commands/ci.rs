//! `cargo xtask ci`: everything a change must pass.

use std::path::PathBuf;

use anyhow::Result;

use super::{
    bench, codegen, conformance, features as runtimes, outcome::Steps, test, verify::everywhere,
    web,
};
use crate::{
    cargo::Build,
    device::{Device, features},
    exec::{Cmd, on_path, workspace},
    python::Python,
    style,
};

/// Check a change: formatting, lints, docs, every runtime's feature, the page for browsers, tests,
/// operators in files, generated sources, examples.
///
/// All steps run, whatever fails before them. The exit code tells if all passed.
#[derive(clap::Args)]
pub(crate) struct Args {}

/// Cases for `verify`, if they are next to the clone.
const CASES: [&str; 3] = ["../shared/onnx", "../shared/dxdispatch", "../shared/cases"];

/// The quick form of each example, on the devices that it supports.
const EXAMPLES: [&str; 10] = [
    "quickstart",
    "minilm --check --device wgpu",
    "minilm --check --device cpu",
    "minilm --check --device flex",
    "onnx_node ../shared/onnx/test_layer_normalization_4d_axis1 --device wgpu",
    "dxdispatch ../shared/dxdispatch/mvn1_layer_norm.json --device cpu",
    "minilm --quick --device wgpu",
    "candy --weights ../shared/candy --check --device wgpu",
    "candy --weights ../shared/candy --check --device cpu",
    "models --small --only minilm --device wgpu",
];

/// The program that finds misspelled words, and the Python package that has it.
const TYPOS: &str = "typos";
const TYPOS_PACKAGE: &str = "typos==1.52.0";

pub(crate) fn run(_args: &Args) -> Result<()> {
    let mut steps = Steps::default();
    let everything = format!("burn,criterion,{}", features(&[Device::Wgpu], true));
    let workspace = |verb: &str| {
        Cmd::new("cargo")
            .args([verb, "--workspace", "--no-default-features", "--features"])
            .arg(&everything)
    };

    let format = Cmd::new("cargo").args(["fmt", "--all", "--", "--check"]);
    steps.run("format", || format.run());
    steps.run("spelling", spelling);
    steps.run("benchmark page", bench::check_report);
    let lint = workspace("clippy")
        .arg("--all-targets")
        .args(["--", "-D", "warnings"]);
    steps.run("lints", || lint.run());
    let docs = workspace("doc")
        .arg("--no-deps")
        .env("RUSTDOCFLAGS", "-D warnings");
    steps.run("docs", || docs.run());
    // By itself: another package would turn on features that this one may lack.
    let alone = ["clippy", "--package", "cubenorm", "--no-default-features"];
    let flex = Cmd::new("cargo")
        .args(alone)
        .args(["--features", "flex", "--", "-D", "warnings"]);
    steps.run("flex alone", || flex.run());
    steps.run("runtimes", || {
        runtimes::run(&runtimes::Args {
            shared: true,
            ..Default::default()
        })
    });
    // It builds for wasm32 all that `wasm` would type-check.
    steps.run("browser", || web::run(&web::Args::checking()));
    // Nothing leaves the machine. The GitHub workflow builds the packages.
    let dry = ["--dry-run", "--no-verify", "--allow-dirty"];
    let packages = Cmd::new("cargo").args(["publish", "--workspace"]).args(dry);
    steps.run("packages", || packages.run());
    steps.run("tests", || {
        test::run(&test::Args {
            fuzz_seconds: Some(60),
            ..Default::default()
        })
    });
    steps.run("operators in files", operators);
    steps.run("devices that are not here", || codegen::test().run());
    steps.run("generated sources", || {
        codegen::run(&codegen::Args {
            check: true,
            ..Default::default()
        })
    });
    examples(&mut steps);
    steps.report()
}

/// Looks for misspelled words, by a program that is there or by the one in a Python package.
fn spelling() -> Result<()> {
    if on_path(TYPOS) {
        return Cmd::new(TYPOS).run();
    }
    match Python::with(&[TYPOS_PACKAGE]) {
        Ok(python) => python.program(TYPOS)?.run(),
        Err(why) => {
            anstream::println!("{}: no `{TYPOS}`: {why:#}", style::warning("skipped"));
            Ok(())
        }
    }
}

/// Verifies the cases next to the clone on every runtime, or ONNX's own if there are none.
fn operators() -> Result<()> {
    let cases: Vec<PathBuf> = CASES
        .iter()
        .map(PathBuf::from)
        .filter(|folder| workspace().join(folder).is_dir())
        .collect();
    match cases.is_empty() {
        true => conformance::run(&conformance::Args::default()),
        false => everywhere::verify(&cases, &[]),
    }
}

/// Builds the examples once, and runs each.
fn examples(steps: &mut Steps) {
    let mut built = None;
    steps.run("build examples", || {
        built = Some(Build::burn_facing(&features(&[Device::Wgpu], true))?);
        Ok(())
    });
    let Some(build) = built else { return };
    for line in EXAMPLES {
        let mut words = line.split(' ');
        let program = words.next().unwrap_or_default();
        // Other clones may have no such files next to them.
        let mut files = words.clone().filter(|word| word.starts_with(".."));
        if files.all(|file| workspace().join(file).exists()) {
            steps.run(line, || {
                let program = build.program(program)?;
                Cmd::new(program.to_string_lossy()).args(words).run()
            });
        }
    }
}
