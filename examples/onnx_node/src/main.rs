//! Runs an ONNX model of one normalization node and prints its outputs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Error, Result, anyhow, ensure};
use clap::Parser;
use cubenorm_models::onnx::{Node, Prepared, read_tensor, write_tensor};
use cubenorm_models::{FileAccess, HostArray, run};

/// Elements printed at each end of an output.
const SHOWN: usize = 4;

/// Runs an ONNX model of one normalization node on any device.
///
/// The inputs are serialized tensors (TensorProto), in the order of the graph's inputs. A folder of
/// an ONNX node test can replace the model and its inputs.
#[derive(Debug, Parser)]
#[command(name = "onnx_node", version)]
struct Arguments {
    /// The model, or a folder with model.onnx and test_data_set_0
    #[arg(value_name = "MODEL.onnx|FOLDER")]
    model: PathBuf,

    /// The inputs
    #[arg(value_name = "INPUT.pb")]
    inputs: Vec<PathBuf>,

    /// Write the outputs to this folder, as output_0.pb and so on
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Allow external data outside of the model's folder
    #[arg(long)]
    read_anywhere: bool,
}

fn main() -> ExitCode {
    match run_node(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_node(arguments: &Arguments) -> Result<()> {
    let (model, files) = files(arguments)?;
    let access = FileAccess::new().read_anywhere(arguments.read_anywhere);
    let node = Node::read_with(&model, &access).map_err(|error| about(&model, error))?;
    let inputs: Vec<HostArray> = files.iter().map(|path| read(path)).collect::<Result<_>>()?;
    let prepared = Prepared::new(&node, &inputs).map_err(|error| about(&model, error))?;
    let device = match &arguments.device {
        Some(device) => device.to_lowercase(),
        None => run::default_device()?,
    };
    let executor = run::open(&device)?;
    let (outputs, _) = prepared.run(executor.as_ref(), 1)?;

    if let Some(folder) = &arguments.output {
        fs::create_dir_all(folder).map_err(|error| about(folder, error))?;
    }
    for (index, (name, array)) in outputs.iter().enumerate() {
        println!(
            "{name}: {} {:?} {}",
            array.element,
            array.shape,
            values(array)
        );
        if let Some(folder) = &arguments.output {
            let path = folder.join(format!("output_{index}.pb"));
            fs::write(&path, write_tensor(name, array)).map_err(|error| about(&path, error))?;
        }
    }
    Ok(())
}

/// Paths of the model and its inputs, from the arguments or from a test's folder.
fn files(arguments: &Arguments) -> Result<(PathBuf, Vec<PathBuf>)> {
    if !arguments.model.is_dir() {
        return Ok((arguments.model.clone(), arguments.inputs.clone()));
    }
    ensure!(
        arguments.inputs.is_empty(),
        "{} is a folder, which contains its own inputs",
        arguments.model.display()
    );
    let data = arguments.model.join("test_data_set_0");
    let input = |index: usize| data.join(format!("input_{index}.pb"));
    let inputs = (0..).map(input).take_while(|path| path.exists()).collect();
    Ok((arguments.model.join("model.onnx"), inputs))
}

fn read(path: &Path) -> Result<HostArray> {
    let bytes = fs::read(path).map_err(|error| about(path, error))?;
    let (_, array) = read_tensor(&bytes).map_err(|error| about(path, error))?;
    Ok(array)
}

/// Adds the file to an error. The library's errors already contain their cause.
fn about(path: &Path, error: impl std::fmt::Display) -> Error {
    anyhow!("{}: {error}", path.display())
}

/// First and last elements.
fn values(array: &HostArray) -> String {
    let size = array.element.size().unwrap_or(1);
    let elements = array.bytes.chunks(size);
    let mut texts: Vec<String> = elements.filter_map(|e| array.element.text(e)).collect();
    if texts.len() > 2 * SHOWN {
        texts.splice(SHOWN..texts.len() - SHOWN, ["...".to_owned()]);
    }
    format!("[{}]", texts.join(", "))
}
