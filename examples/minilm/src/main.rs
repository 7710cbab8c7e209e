//! Embeds sentences, and measures the effect of fused norms.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use burn::tensor::{Device, Tensor};
use clap::Parser;
use cubenorm_example_common::progress::Progress;
use cubenorm_example_common::{Choice, Norms, exit, graph, open, tuning};
use minilm::check::check;
use minilm::fetch;
use minilm::model::{MiniLm, MiniLmConfig};
use minilm::report::{Timed, agreement_table, similarity_table, timing_table};
use minilm::timing::time;
use minilm::tokens::{Batch, Tokenizer};
use minilm::vectors::{largest_difference, read_rows};
use minilm::weights;

/// Default sentences: three pairs of similar meaning.
const SENTENCES: [&str; 6] = [
    "A man is playing the guitar.",
    "Someone strums an acoustic instrument on stage.",
    "The central bank raised interest rates by half a point.",
    "Borrowing money just became more expensive.",
    "Two dogs chase each other across the beach.",
    "The puppies are running along the shore.",
];

/// Sentence embeddings with all-MiniLM-L6-v2 in Burn, its layer norms fused by cubenorm.
#[derive(Debug, Parser)]
#[command(name = "minilm", version)]
struct Arguments {
    /// Sentences to compare [default: three pairs of similar meaning]
    sentences: Vec<String>,

    /// The device: cuda, rocm, metal, vulkan, wgpu, webgpu, cpu or flex, if compiled in [default:
    /// BURN_DEVICE, or the first one compiled in]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,

    /// Implementation of the layer norms
    #[arg(long, value_enum, default_value_t = Choice::Both)]
    norms: Choice,

    /// Let cubenorm match the layer norms of Burn in the network, and print the report
    #[arg(long)]
    install: bool,

    /// Embed by a replayed graph, on devices that record graphs, and time it too
    #[arg(long, conflicts_with = "check")]
    capture: bool,

    /// Sentences in the timed batch, which repeats the arguments [default: 16]
    #[arg(long, value_name = "N", value_parser = positive)]
    batch: Option<usize>,

    /// Timed runs for the median [default: 10]
    #[arg(long, value_name = "N", value_parser = positive)]
    iterations: Option<usize>,

    /// Time three runs of a batch of eight, unless --batch and --iterations say otherwise
    #[arg(long)]
    quick: bool,

    /// Only compare with the reference embeddings, and exit with an error if they disagree
    #[arg(long)]
    check: bool,

    /// Folder of the model's files, which are downloaded if missing [default: target/minilm]
    #[arg(long, value_name = "DIR")]
    model_dir: Option<PathBuf>,

    /// Time a single run: this process only tunes the kernels
    #[arg(long, hide = true)]
    tune: bool,
}

fn main() -> ExitCode {
    exit(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> Result<()> {
    if arguments.install {
        // Before the device has a tensor.
        cubenorm::install()?;
    }
    let opened = open(arguments.device.as_deref())?;
    if arguments.capture {
        // An error after a download is too late.
        graph::require(&opened)?;
    }
    let folder = arguments
        .model_dir
        .clone()
        .unwrap_or_else(fetch::default_folder);
    let files = fetch::fetch(&folder)?;

    let timed = !arguments.check && !arguments.tune;
    if timed && tuning::needed(&opened.name) {
        tuning::in_another_process("--tune")?;
    }

    let device = &opened.device;
    let tokenizer = Tokenizer::from_file(&files.tokenizer)?;
    let (model, config) = weights::load(&files, device)?;
    println!("all-MiniLM-L6-v2 on {opened}\n");

    if arguments.check {
        run_check(&model, &tokenizer, arguments.norms.kinds(), device)?;
    } else {
        run_demo(&arguments, &model, &config, &tokenizer, device)?;
    }
    if arguments.install {
        print!("\n{}", cubenorm::install_report());
    }
    Ok(())
}

/// Compares with the reference embeddings.
fn run_check(
    model: &MiniLm,
    tokenizer: &Tokenizer,
    kinds: &[Norms],
    device: &Device,
) -> Result<()> {
    let mut failed = 0;
    for &norms in kinds {
        let agreements = check(model, tokenizer, norms, device)?;
        println!("{}", agreement_table(norms, &agreements));
        failed += agreements
            .iter()
            .filter(|agreement| !agreement.passes())
            .count();
    }
    if failed > 0 {
        bail!("{failed} embeddings disagree with the reference");
    }
    Ok(())
}

/// Prints the similarities of the sentences, then times the network.
fn run_demo(
    arguments: &Arguments,
    model: &MiniLm,
    config: &MiniLmConfig,
    tokenizer: &Tokenizer,
    device: &Device,
) -> Result<()> {
    let kinds = arguments.norms.kinds();
    let sentences = match arguments.sentences.as_slice() {
        [] => SENTENCES.map(str::to_owned).to_vec(),
        given => given.to_vec(),
    };
    let tokens = tokenizer.encode(&sentences)?;

    let batch = Batch::new(&tokens, device);
    let embeddings = kinds
        .iter()
        .map(|&norms| read_rows(embed(model, &batch, norms, arguments.capture, device)?))
        .collect::<Result<Vec<_>>>()?;
    let Some(shown) = embeddings.last() else {
        bail!("no implementation of norms is selected");
    };
    println!("{}", similarity_table(&sentences, shown));

    let (batch_size, iterations) = if arguments.quick { (8, 3) } else { (16, 10) };
    let batch_size = arguments.batch.unwrap_or(batch_size);
    let iterations = if arguments.tune {
        1
    } else {
        arguments.iterations.unwrap_or(iterations)
    };
    let repeated: Vec<_> = tokens.iter().cycle().take(batch_size).cloned().collect();
    let batch = Batch::new(&repeated, device);

    let progress = Progress::start(format!("Timing {iterations} runs after a warm-up"));
    let capture = arguments.capture;
    let timings = time(model, config, &batch, kinds, iterations, capture, device)?;
    drop(progress);

    let [sentences, tokens] = batch.shape();
    let timed = Timed {
        shape: [sentences, tokens, config.hidden_size],
        norm_count: config.norm_count(),
        iterations,
    };
    let difference = match embeddings.as_slice() {
        [one, other] => Some(largest_difference(one, other)),
        _ => None,
    };
    let timings: Vec<_> = kinds.iter().copied().zip(timings).collect();
    print!("{}", timing_table(timed, &timings, difference));
    Ok(())
}

/// Embeds a batch, by a replayed graph if `capture` is true.
fn embed(
    model: &MiniLm,
    batch: &Batch,
    norms: Norms,
    capture: bool,
    device: &Device,
) -> Result<Tensor<2>> {
    if !capture {
        return Ok(model.embed(batch, norms));
    }
    let mut graph = graph::record(device, || model.embed(batch, norms))?;
    // SAFETY: The model, the batch and the graph are alive, and only this thread uses them.
    Ok(unsafe { graph.replay() }.clone())
}

/// A number of at least one.
fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}
