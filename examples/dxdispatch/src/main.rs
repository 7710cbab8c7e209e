//! Runs a DxDispatch model: dispatches its operators and prints its resources.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Parser;
use cubenorm_models::dxdispatch::{Event, Model, Options, Session};
use cubenorm_models::{FileAccess, run};

/// Runs a model of DxDispatch, DirectML's command-line tool, on any device.
///
/// Resources are printed with all digits. Files are read and written below the model's folder.
/// Existing files are never overwritten.
#[derive(Debug, Parser)]
#[command(name = "dxdispatch", version)]
struct Arguments {
    /// The model
    #[arg(value_name = "MODEL.json")]
    model: PathBuf,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Runs of each dispatch for the time, without the first one
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    iterations: usize,

    /// Let the model read any file
    #[arg(long)]
    read_anywhere: bool,

    /// Let the model write below DIR, as well as below its own folder
    #[arg(long, value_name = "DIR")]
    write_under: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run_model(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_model(arguments: &Arguments) -> Result<()> {
    let path = &arguments.model;
    let about = |error| anyhow!("{}: {error}", path.display());
    let mut access = FileAccess::new().read_anywhere(arguments.read_anywhere);
    if let Some(folder) = &arguments.write_under {
        access = access.write_under(folder);
    }
    let model = Model::read_with(path, Model::MAX_BYTES, &access).map_err(about)?;
    let mut session = Session::new(&model).map_err(about)?;
    let device = match &arguments.device {
        Some(device) => device.to_lowercase(),
        None => run::default_device()?,
    };
    let executor = run::open(&device)?;

    let mut output = io::stdout().lock();
    writeln!(output, "Running on '{}'", executor.name())?;
    let mut written = Ok(());
    let mut print = |event: &Event| {
        if written.is_ok() {
            written = writeln!(output, "{event}");
        }
    };
    let options = Options {
        iterations: arguments.iterations,
        ..Options::default()
    };
    let result = session.run(executor.as_ref(), &options, &mut print);
    result.map_err(|error| anyhow!("{error}"))?;
    Ok(written?)
}
