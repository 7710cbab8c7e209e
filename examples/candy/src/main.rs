//! Applies the network's style to a picture.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use burn::tensor::Device;
use candy::check::{LEVEL_TOLERANCE, TOLERANCE, check64, compare};
use candy::network::Candy;
use candy::picture;
use candy::weights::Weights;
use clap::Parser;
use cubenorm_example_common::{Norms, exit, open};

/// Style transfer in Burn, its instance normalizations fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "candy", version)]
struct Arguments {
    /// Folder with the weights
    #[arg(long, value_name = "DIR")]
    weights: PathBuf,

    /// Input picture; its sides must be multiples of 4 and larger than 40
    #[arg(long, value_name = "PNG", required_unless_present = "check")]
    input: Option<PathBuf>,

    /// File of the output picture
    #[arg(long, value_name = "PNG", requires = "input")]
    output: Option<PathBuf>,

    /// Expected picture; exit with an error if the output differs by more than one level
    #[arg(long, value_name = "PNG", requires = "input")]
    expected: Option<PathBuf>,

    /// Run the 64x64 check of the weights; exit with an error if it fails
    #[arg(long)]
    check: bool,

    /// Implementation of the norms
    #[arg(long, value_enum, default_value_t = Norms::Cubenorm)]
    norms: Norms,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let opened = open(arguments.device.as_deref())?;
    let weights = Weights::open(&arguments.weights, &opened.device)?;
    let network = Candy::load(&weights, &opened.device)?;
    println!("candy on {opened}");

    if arguments.check {
        check(&network, &weights, arguments.norms)?;
    }
    paint(&network, arguments, &opened.device)
}

/// Runs the small check.
fn check(network: &Candy, weights: &Weights, norms: Norms) -> Result<()> {
    let deviations = check64(network, weights, norms)?;
    println!("Largest difference in the 64x64 check (at most {TOLERANCE} in the output)");
    for deviation in &deviations {
        println!("  {:7} {:.1e}", deviation.layer, deviation.largest);
    }
    let output = deviations
        .last()
        .map_or(f32::NAN, |deviation| deviation.largest);
    ensure!(
        output <= TOLERANCE,
        "the 64x64 check failed: {output} is more than {TOLERANCE}"
    );
    Ok(())
}

/// Runs the network on the input picture, if there is one.
fn paint(network: &Candy, arguments: &Arguments, device: &Device) -> Result<()> {
    let Some(input) = &arguments.input else {
        return Ok(());
    };
    // Read first, so that a missing file fails before the forward pass.
    let expected = arguments
        .expected
        .as_deref()
        .map(picture::read)
        .transpose()?;
    let input = picture::to_tensor(&picture::read(input)?, device)?;

    let start = Instant::now();
    let painted = picture::from_tensor(network.forward(input, arguments.norms))?;
    println!(
        "Painted {}x{} in {:.1} s (a first run on a device tunes its kernels)",
        painted.width(),
        painted.height(),
        start.elapsed().as_secs_f64()
    );

    if let Some(output) = &arguments.output {
        picture::write(&painted, output)?;
        println!("Wrote {}", output.display());
    }
    if let Some(expected) = expected {
        let difference = compare(&painted, &expected)?;
        println!(
            "{} of {} values differ from the expected picture, by at most {} (allowed: {LEVEL_TOLERANCE})",
            difference.count, difference.total, difference.largest
        );
        ensure!(
            difference.largest <= LEVEL_TOLERANCE,
            "the picture is not the expected one"
        );
    }
    Ok(())
}
