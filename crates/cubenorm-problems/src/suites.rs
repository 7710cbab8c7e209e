//! The named lists of problems.

use strum::{Display, EnumString, VariantNames};

use crate::{DType, Layout, Op, Pass, Problem};

/// A named list of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Suite {
    /// A few shapes of every kind of norm, in f32; minutes on a CPU.
    Quick,
    /// The shapes of all suites, forward and with the backward, in f32 and f16.
    Full,
    /// The hidden sizes of common transformers.
    Transformer,
    /// The feature maps of common vision networks.
    Vision,
    /// Shapes whose launch costs more than the work.
    Tiny,
    /// Shapes that no vector width or block divides, and the longest and shortest rows.
    Odd,
    /// What models call on a GPU, from one token to feature maps of 200 MiB. `full` lacks it.
    Gpu,
    /// Layer and RMS norm of rows of 512 to 65,536 elements, in tensors of 256 MiB. `full` lacks it.
    Rows,
    /// Norms of models of the last two years: with a gate, a sum, a modulation, codes, in pairs. `full` lacks it.
    Modern,
    /// Four of these norms for rows of 512 to 16,384 elements, in tensors of 256 MiB, forward. `full` lacks it.
    ModernRows,
    /// Group norm with SiLU of the feature maps of Stable Diffusion and SDXL, in f16, forward, in both layouts. `full`
    /// lacks it.
    Diffusion,
}

impl Suite {
    /// The problems of this suite.
    pub fn problems(self) -> Vec<Problem> {
        let every = |shapes: &[Shaped]| {
            let problems = shapes.iter().flat_map(|shaped| {
                let kinds = [DType::F32, DType::F16]
                    .into_iter()
                    .flat_map(|dtype| [Pass::Forward, Pass::Full].map(|pass| (dtype, pass)));
                kinds.map(|(dtype, pass)| problem(shaped, dtype, pass))
            });
            problems.collect::<Vec<Problem>>()
        };
        match self {
            Self::Quick => {
                let part = |shapes: &[Shaped], pass| {
                    let problems = shapes.iter().map(|s| problem(s, DType::F32, pass));
                    problems.collect::<Vec<Problem>>()
                };
                [part(QUICK, Pass::Forward), part(QUICK_FULL, Pass::Full)].concat()
            }
            Self::Full => {
                let suites = [Self::Transformer, Self::Vision, Self::Tiny, Self::Odd];
                let others = suites.map(Self::problems).concat();
                let trained = QUICK_FULL.iter().filter(|shaped| !QUICK.contains(shaped));
                let quick: Vec<Shaped> = QUICK.iter().chain(trained).copied().collect();
                [every(&quick), others].concat()
            }
            Self::Transformer => every(TRANSFORMER),
            Self::Vision => {
                let mut last = every(CHANNELS_LAST);
                for problem in &mut last {
                    problem.layout = Layout::ChannelsLast;
                }
                [every(VISION), last].concat()
            }
            Self::Tiny => every(TINY),
            Self::Odd => every(ODD),
            Self::Gpu => {
                let of = |&(op, shape, layout, dtype, pass): &Called| Problem {
                    layout,
                    ..problem(&(op, shape), dtype, pass)
                };
                GPU.iter().map(of).collect()
            }
            Self::Rows => {
                let dtypes = [DType::Bf16, DType::F16, DType::F32];
                let of = |&dtype: &DType, cols: usize| {
                    let shape: &[usize] = &[TENSOR / dtype.size() / cols, cols];
                    let ops = [Op::LayerNorm, Op::RmsNorm];
                    let passes = [Pass::Forward, Pass::Backward];
                    let problems = ops
                        .into_iter()
                        .flat_map(|op| passes.map(|pass| problem(&(op, shape), dtype, pass)));
                    problems.collect::<Vec<Problem>>()
                };
                let all = dtypes
                    .iter()
                    .flat_map(|dtype| ROWS.into_iter().flat_map(|cols| of(dtype, cols)));
                all.collect()
            }
            Self::Modern => {
                let mut problems = every(MODERN);
                problems.retain(|it| it.op.trains() || it.pass == Pass::Forward);
                problems
            }
            Self::ModernRows => {
                let of = |dtype: DType, cols: usize| {
                    let rows = TENSOR / dtype.size() / cols;
                    let shape: &[usize] = &[rows, cols];
                    let ops = [Op::AddRmsNorm, Op::GatedRmsNorm, Op::QuantizedRmsNorm];
                    let modulated: Shaped = (Op::ModulatedLayerNorm, &[8, rows / 8, cols]);
                    let shaped = ops.map(|op| (op, shape)).into_iter().chain([modulated]);
                    let problems = shaped.map(|shaped| problem(&shaped, dtype, Pass::Forward));
                    problems.collect::<Vec<Problem>>()
                };
                let dtypes = [DType::Bf16, DType::F32];
                let all = dtypes.into_iter().flat_map(|dtype| {
                    MODERN_ROWS
                        .into_iter()
                        .flat_map(move |cols| of(dtype, cols))
                });
                all.collect()
            }
            Self::Diffusion => {
                let layouts = [Layout::Contiguous, Layout::ChannelsLast];
                let of = |&shape: &&'static [usize]| {
                    layouts.map(|layout| Problem {
                        layout,
                        ..problem(&(Op::SiluGroupNorm, shape), DType::F16, Pass::Forward)
                    })
                };
                DIFFUSION.iter().flat_map(of).collect()
            }
        }
    }
}

type Shaped<'a> = (Op, &'a [usize]);
type Called = (Op, &'static [usize], Layout, DType, Pass);

fn problem((op, shape): &Shaped, dtype: DType, pass: Pass) -> Problem {
    Problem {
        dtype,
        pass,
        ..Problem::new(*op, *shape)
    }
}

/// A row that fits a cube, many short rows, few long ones; and a feature map.
const QUICK: &[Shaped] = &[
    (Op::LayerNorm, &[2048, 4096]),
    (Op::LayerNorm, &[32768, 256]),
    (Op::LayerNorm, &[64, 65536]),
    (Op::RmsNorm, &[2048, 4096]),
    (Op::InstanceNorm, &[8, 64, 128, 128]),
];

const QUICK_FULL: &[Shaped] = &[
    (Op::LayerNorm, &[2048, 4096]),
    (Op::RmsNorm, &[2048, 4096]),
    (Op::BatchNorm, &[8, 64, 128, 128]),
    (Op::GroupNorm, &[8, 64, 128, 128]),
    (Op::InstanceNorm, &[8, 64, 128, 128]),
];

const TRANSFORMER: &[Shaped] = &[
    // MiniLM and BERT base, 32 sentences of 128 tokens.
    (Op::LayerNorm, &[4096, 384]),
    (Op::LayerNorm, &[4096, 768]),
    // ViT-B/16, 32 images.
    (Op::LayerNorm, &[6304, 768]),
    // A prompt of Llama 8B and of Llama 70B.
    (Op::RmsNorm, &[1024, 4096]),
    (Op::RmsNorm, &[512, 8192]),
];

const VISION: &[Shaped] = &[
    // ResNet-50, 8 images: first and last stage.
    (Op::BatchNorm, &[8, 64, 112, 112]),
    (Op::BatchNorm, &[8, 2048, 7, 7]),
    // A UNet of a diffusion model.
    (Op::GroupNorm, &[2, 320, 64, 64]),
    (Op::GroupNorm, &[2, 1280, 16, 16]),
    // ConvNeXt, 8 images, channels last.
    (Op::LayerNorm, &[8, 56, 56, 96]),
    (Op::LayerNorm, &[8, 14, 14, 384]),
    // A style-transfer network's first and last feature maps.
    (Op::InstanceNorm, &[1, 32, 720, 720]),
    (Op::InstanceNorm, &[1, 128, 180, 180]),
];

/// Feature maps that a convolution of Burn's returns, in its memory order.
const CHANNELS_LAST: &[Shaped] = &[
    (Op::BatchNorm, &[8, 64, 112, 112]),
    (Op::BatchNorm, &[8, 2048, 7, 7]),
    (Op::GroupNorm, &[2, 320, 64, 64]),
    (Op::GroupNorm, &[2, 1280, 16, 16]),
    (Op::InstanceNorm, &[1, 128, 180, 180]),
];

const TINY: &[Shaped] = &[
    // A single token of Llama 8B and of MiniLM.
    (Op::RmsNorm, &[1, 4096]),
    (Op::LayerNorm, &[1, 384]),
    (Op::LayerNorm, &[4, 16]),
    (Op::GroupNorm, &[1, 32, 4, 4]),
];

const ODD: &[Shaped] = &[
    // Rows that no vector width divides.
    (Op::LayerNorm, &[1021, 1021]),
    (Op::RmsNorm, &[65537, 3]),
    // One column, and one row.
    (Op::LayerNorm, &[65536, 1]),
    (Op::LayerNorm, &[1, 1 << 24]),
    (Op::BatchNorm, &[16, 3, 223, 223]),
    // Feature maps of Inception v3, and of Deformable DETR for an image of 800 x 1,066: their
    // segments have a tail.
    (Op::GroupNorm, &[16, 64, 73, 73]),
    (Op::GroupNorm, &[2, 256, 50, 67]),
];

/// Bytes of a tensor of the suite `rows`, and its lengths of rows: powers of two, and hidden sizes of
/// transformers that are none.
const TENSOR: usize = 256 << 20;
const ROWS: [usize; 16] = [
    512, 768, 1024, 1280, 2048, 3072, 4096, 5120, 7168, 8192, 12_288, 14_336, 16_384, 28_672,
    32_768, 65_536,
];

const MODERN: &[Shaped] = &[
    // A prompt of Gemma 2 9B, and of a Llama 8B with its sums.
    (Op::OffsetRmsNorm, &[1024, 3584]),
    (Op::AddRmsNorm, &[1024, 4096]),
    (Op::AddRmsNorm, &[2048, 1024]),
    // A prompt of Mamba-2 2.7B, and of one of 370M.
    (Op::GatedRmsNorm, &[1024, 5120]),
    (Op::GatedRmsNorm, &[2048, 2048]),
    // DiT-XL/2 at 512 x 512, and Flux at 1,024 x 1,024.
    (Op::ModulatedLayerNorm, &[2, 1024, 1152]),
    (Op::ModulatedLayerNorm, &[1, 4096, 3072]),
    // Stable Diffusion's U-Net.
    (Op::SiluGroupNorm, &[2, 320, 64, 64]),
    (Op::SiluGroupNorm, &[2, 640, 32, 32]),
    // A prompt and a token of Qwen3 8B.
    (Op::QkNorm, &[512, 32, 128]),
    (Op::QkNorm, &[1, 32, 128]),
    (Op::QuantizedRmsNorm, &[1024, 4096]),
    (Op::QuantizedRmsNorm, &[1, 4096]),
    // ViT-B/16, 32 images.
    (Op::DynamicTanh, &[6304, 768]),
];

const MODERN_ROWS: [usize; 6] = [512, 1024, 2048, 4096, 8192, 16_384];

const DIFFUSION: &[&[usize]] = &[
    &[2, 320, 64, 64],
    &[2, 640, 32, 32],
    &[2, 1280, 16, 16],
    &[2, 1280, 8, 8],
    &[2, 320, 128, 128],
    &[2, 640, 64, 64],
    &[2, 1280, 32, 32],
];

/// Rows of commit 338ef36 name this list `gpu.json`; that run ended after its first 15.
#[rustfmt::skip]
const GPU: &[Called] = &[
    (Op::RmsNorm, &[1, 4096], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::RmsNorm, &[2048, 4096], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::RmsNorm, &[16384, 4096], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::LayerNorm, &[512, 768], Layout::Contiguous, DType::F32, Pass::Forward),
    (Op::LayerNorm, &[16384, 768], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::LayerNorm, &[4096, 16384], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::GroupNorm, &[2, 320, 64, 64], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::GroupNorm, &[2, 320, 64, 64], Layout::ChannelsLast, DType::F16, Pass::Forward),
    (Op::GroupNorm, &[8, 640, 32, 32], Layout::Contiguous, DType::F16, Pass::Forward),
    (Op::InstanceNorm, &[8, 64, 128, 128], Layout::Contiguous, DType::F32, Pass::Forward),
    (Op::BatchNorm, &[64, 256, 56, 56], Layout::Contiguous, DType::F32, Pass::Forward),
    (Op::BatchNorm, &[64, 256, 56, 56], Layout::ChannelsLast, DType::F16, Pass::Forward),
    (Op::RmsNorm, &[2048, 4096], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::RmsNorm, &[4096, 8192], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::LayerNorm, &[512, 768], Layout::Contiguous, DType::F32, Pass::Full),
    (Op::LayerNorm, &[2048, 4096], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::LayerNorm, &[16384, 768], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::GroupNorm, &[2, 320, 64, 64], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::InstanceNorm, &[8, 64, 128, 128], Layout::Contiguous, DType::F32, Pass::Full),
    (Op::BatchNorm, &[64, 256, 56, 56], Layout::Contiguous, DType::F32, Pass::Full),
    (Op::BatchNorm, &[64, 64, 112, 112], Layout::Contiguous, DType::F16, Pass::Full),
    (Op::BatchNorm, &[64, 2048, 7, 7], Layout::ChannelsLast, DType::F16, Pass::Full),
];

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

    use super::*;

    #[test]
    fn every_catalogued_problem_is_valid() {
        for name in Suite::VARIANTS {
            for problem in name.parse::<Suite>().unwrap().problems() {
                problem.validate().unwrap();
            }
        }
    }

    #[test]
    fn the_full_suite_holds_each_problem_once() {
        let full = Suite::Full.problems();
        let suites = Suite::VARIANTS.iter().map(|name| name.parse().unwrap());
        let is_part = |suite: &Suite| {
            use Suite::*;
            matches!(suite, Quick | Transformer | Vision | Tiny | Odd)
        };
        for suite in suites.filter(is_part) {
            for problem in suite.problems() {
                let times = full.iter().filter(|&other| *other == problem).count();
                assert_eq!(times, 1, "{problem} of {suite}");
            }
        }
    }
}
