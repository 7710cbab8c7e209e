//! `cargo xtask web`: the norms in a browser.

mod browser;
mod build;
mod server;

use anyhow::{Result, bail, ensure};
use serde::Deserialize;

use crate::style;
use browser::Browser;
use server::Server;

/// Build the page of `examples/browser`, whose norms run on WebGPU.
///
/// The page needs nothing but its folder: any server of static files can offer it. This command builds it with rustup's
/// wasm target or with Debian's packages rustc-web, cargo-web and rust-web-src, and with wasm-bindgen-cli of the lock
/// file's version. It installs what is missing. The first build takes many minutes.
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Serve the page on this machine alone, until it is interrupted
    #[arg(long)]
    serve: bool,
    /// Open the page in headless Chromium on SwiftShader, with the limits that every WebGPU device has. Fails unless
    /// every norm passes
    #[arg(long, conflicts_with = "serve")]
    check: bool,
    /// Port of --serve
    #[arg(long, value_name = "N", default_value_t = 8080, requires = "serve")]
    port: u16,
    /// Take the page as it was built before
    #[arg(long)]
    no_build: bool,
    /// With --check: also measure, and embed sentences if the files of the MiniLM example are there
    #[arg(long, requires = "check")]
    all: bool,
    /// Install missing system packages without asking
    #[arg(long)]
    yes: bool,
}

impl Args {
    /// `--check --yes`
    pub(crate) fn checking() -> Self {
        Self {
            check: true,
            yes: true,
            ..Self::default()
        }
    }
}

/// Largest size of the compressed module in bytes.
const LARGEST: usize = 6 << 20;

/// Longest time from the adapter to the first norm's results, in milliseconds: it starts the module and compiles the
/// kernels of both passes.
const FIRST_NORM: f64 = 2_000.0;

pub(crate) fn run(args: &Args) -> Result<()> {
    let page = match args.no_build {
        true => build::built()?,
        false => build::build(args.yes)?,
    };
    let size = build::compressed(&page, args.yes)?;
    println!(
        "page: {} (module: {:.2} MiB by brotli)",
        page.display(),
        size as f64 / f64::from(1 << 20)
    );
    ensure!(
        size <= LARGEST,
        "the module is {size} bytes by brotli: expected at most {LARGEST}"
    );
    if args.check {
        return check(args, Server::start(page, 0)?);
    }
    if args.serve {
        let server = Server::start(page, args.port)?;
        println!("http://{}/{}", server.address(), server.query());
        server.wait();
    }
    Ok(())
}

/// The report of a page.
#[derive(Deserialize)]
struct Report {
    /// The problem that ended the run early.
    problem: Option<String>,
    check: Option<Checked>,
    speed: Option<serde_json::Value>,
    sentences: Option<serde_json::Value>,
}

/// The table of the check, as the page shows it.
#[derive(Deserialize)]
struct Checked {
    rows: Vec<Row>,
    /// Cases that disagree, in detail.
    failures: Vec<String>,
    /// Milliseconds from the adapter to the first result.
    first: f64,
    /// Milliseconds of all.
    total: f64,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    result: String,
    /// Why it is skipped.
    reason: Option<String>,
}

fn check(args: &Args, server: Server) -> Result<()> {
    let checked = opened(args, &server)?;
    if checked.first <= FIRST_NORM {
        return judge(&checked);
    }
    // Right after the build the browser and the module come from the disk.
    println!(
        "the first norm came {:.0} ms after the adapter: once more",
        checked.first
    );
    judge(&opened(args, &server)?)
}

/// Opens the page, and waits for its check.
fn opened(args: &Args, server: &Server) -> Result<Checked> {
    let mut steps = vec!["check"];
    if args.all {
        steps.push("speed");
        steps.extend(server.has_model().then_some("sentences"));
    }
    let query = format!("?limits=guaranteed&report&run={}", steps.join(","));
    let address = format!("http://{}/{query}", server.address());
    let browser = Browser::open(&address, args.yes)?;
    let text = browser.wait_for(server)?;
    let report: Report = serde_json::from_str(&text)?;
    if let Some(problem) = report.problem {
        bail!("the page says: {problem}");
    }
    let Some(checked) = report.check else {
        bail!("the page reported no check: {text}");
    };
    for (name, part) in [("speed", &report.speed), ("sentences", &report.sentences)] {
        if let Some(part) = part {
            println!("{name}: {part}");
        }
    }
    Ok(checked)
}

/// Prints the counts. An error if a row does not pass, or the first norm was late.
fn judge(checked: &Checked) -> Result<()> {
    let count = |result: &str| {
        checked
            .rows
            .iter()
            .filter(|row| row.result == result)
            .count()
    };
    let (passed, skipped) = (count("pass"), count("skip"));
    let failed = checked.rows.len() - passed - skipped;
    println!(
        "{passed} passed, {failed} failed, {skipped} skipped ({:.1} s, the first norm {:.0} ms after the adapter)",
        checked.total / 1e3,
        checked.first
    );
    for row in checked.rows.iter().filter(|row| row.result == "skip") {
        let reason = row.reason.as_deref().unwrap_or("no reason");
        println!("{}: {}: {reason}", style::warning("skipped"), row.name);
    }
    for failure in &checked.failures {
        println!("{}: {failure}", style::bad("failed"));
    }
    ensure!(
        passed > 0 && failed == 0,
        "{failed} cases failed in the browser"
    );
    ensure!(
        checked.first <= FIRST_NORM,
        "the first norm came after {:.0} ms: expected at most {FIRST_NORM} ms",
        checked.first
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(results: &[&str], first: f64) -> Checked {
        let row = |result: &&str| Row {
            name: "layer_norm".to_owned(),
            result: (*result).to_owned(),
            reason: None,
        };
        Checked {
            rows: results.iter().map(row).collect(),
            failures: Vec::new(),
            first,
            total: first,
        }
    }

    #[test]
    fn only_a_table_that_passes_is_accepted() {
        assert!(judge(&checked(&["pass", "skip"], 10.0)).is_ok());
        for results in [&["pass", "FAIL"][..], &["skip"], &[]] {
            assert!(judge(&checked(results, 10.0)).is_err(), "{results:?}");
        }
    }

    #[test]
    fn a_late_first_norm_is_an_error() {
        assert!(judge(&checked(&["pass"], FIRST_NORM + 1.0)).is_err());
    }
}
