//! The first residual block of Stable Diffusion's U-Net, with random weights.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::silu;
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::{Instance, Step, noise};
use crate::norms::{Kind, MapNorm};

struct Size {
    batch: usize,
    channels: usize,
    side: usize,
    groups: usize,
    /// Size of the embedding of the time step.
    time: usize,
}

const FULL: Size = Size {
    batch: 2,
    channels: 320,
    side: 64,
    groups: 32,
    time: 1280,
};

const SMALL: Size = Size {
    batch: 2,
    channels: 32,
    side: 16,
    groups: 8,
    time: 64,
};

/// Two convolutions, each after a group norm and SiLU, with a shortcut. The embedding of the time
/// step is added between them.
#[derive(Module, Debug)]
struct ResidualBlock {
    first_norm: MapNorm,
    first: Conv2d,
    time: Linear,
    second_norm: MapNorm,
    second: Conv2d,
}

impl ResidualBlock {
    fn new(size: &Size, kind: Kind, device: &Device) -> Self {
        let norm = || MapNorm::group(kind, size.groups, size.channels, device);
        let conv = || {
            Conv2dConfig::new([size.channels, size.channels], [3, 3])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(device)
        };
        Self {
            first_norm: norm(),
            first: conv(),
            time: LinearConfig::new(size.time, size.channels).init(device),
            second_norm: norm(),
            second: conv(),
        }
    }

    /// Input and output: `[batch, channels, height, width]`; time: `[batch, time]`.
    fn forward(&self, input: Tensor<4>, time: Tensor<2>) -> Tensor<4> {
        let maps = self
            .first
            .forward(self.first_norm.forward_silu(input.clone()));
        let time = self.time.forward(silu(time));
        let [batch, channels] = time.dims();
        let maps = maps + time.reshape([batch, channels, 1, 1]);
        let maps = self.second.forward(self.second_norm.forward_silu(maps));
        maps + input
    }
}

/// Casts all parameters.
struct CastTo(FloatDType);

impl ModuleMapper for CastTo {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|value| value.cast(self.0))
    }
}

pub(super) fn instance(small: bool, kind: Kind, device: &Device) -> Instance {
    let size = if small { &SMALL } else { &FULL };
    let half = device.supports_dtype(DType::F16);
    let (dtype, name) = match half {
        true => (FloatDType::F16, "f16"),
        false => (FloatDType::F32, "f32"),
    };
    let block = ResidualBlock::new(size, kind, device);
    let block = block.map(&mut CastTo(dtype));
    let maps = noise([size.batch, size.channels, size.side, size.side], device).cast(dtype);
    let time = noise([size.batch, size.time], device).cast(dtype);
    let batch = size.batch;
    Instance {
        step: Step::new(move || {
            let output = block.forward(maps.clone(), time.clone());
            output.reshape([batch as isize, -1])
        }),
        shape: format!(
            "{batch} x {} x {side} x {side}, {name}, inference",
            size.channels,
            side = size.side
        ),
        is_training: false,
        tolerance: if half {
            super::F16_TOLERANCE
        } else {
            super::F32_TOLERANCE
        },
    }
}
