//! A training step of ResNet-50, with random weights and pictures.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
use burn::optim::SgdConfig;
use burn::optim::momentum::MomentumConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use cubenorm_example_common::training::cross_entropy;

use super::{Instance, Step, classes, noise};
use crate::norms::{Kind, MapNorm};

const LEARNING_RATE: f64 = 1e-3;
const MOMENTUM: f64 = 0.9;
/// Output channels of a bottleneck, as a multiple of its inner ones.
const EXPANSION: usize = 4;

struct Size {
    /// Number of bottlenecks of each stage. Each stage but the first one starts with a stride of 2.
    stages: &'static [usize],
    /// Inner channels of the first stage. Each next stage doubles them.
    channels: usize,
    classes: usize,
    batch: usize,
    side: usize,
}

const FULL: Size = Size {
    stages: &[3, 4, 6, 3],
    channels: 64,
    classes: 1000,
    batch: 32,
    side: 224,
};

const SMALL: Size = Size {
    stages: &[1],
    channels: 8,
    classes: 16,
    batch: 4,
    side: 32,
};

#[derive(Module, Debug)]
struct ResNet {
    stem: Conv2d,
    stem_norm: MapNorm,
    pool: MaxPool2d,
    blocks: Vec<Bottleneck>,
    head: Linear,
}

/// Three convolutions with a shortcut. The second one has the stride.
#[derive(Module, Debug)]
struct Bottleneck {
    reduce: Conv2d,
    reduce_norm: MapNorm,
    middle: Conv2d,
    middle_norm: MapNorm,
    expand: Conv2d,
    expand_norm: MapNorm,
    shortcut: Option<(Conv2d, MapNorm)>,
}

impl ResNet {
    fn new(size: &Size, kind: Kind, device: &Device) -> Self {
        let mut blocks = Vec::new();
        let mut from = size.channels;
        for (stage, &count) in size.stages.iter().enumerate() {
            let inner = size.channels << stage;
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                blocks.push(Bottleneck::new(from, inner, stride, kind, device));
                from = EXPANSION * inner;
            }
        }
        Self {
            stem: conv([3, size.channels], 7, 2, device),
            stem_norm: MapNorm::batch(kind, size.channels, device),
            pool: MaxPool2dConfig::new([3, 3])
                .with_strides([2, 2])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .init(),
            blocks,
            head: LinearConfig::new(from, size.classes).init(device),
        }
    }

    /// Input: `[batch, 3, height, width]`; output: logits, `[batch, classes]`.
    fn forward(&self, pictures: Tensor<4>) -> Tensor<2> {
        let stem = relu(self.stem_norm.forward(self.stem.forward(pictures)));
        let blocks = self.blocks.iter();
        let maps = blocks.fold(self.pool.forward(stem), |maps, block| block.forward(maps));
        self.head
            .forward(maps.mean_dims(&[2, 3]).flatten::<2>(1, 3))
    }
}

impl Bottleneck {
    fn new(from: usize, inner: usize, stride: usize, kind: Kind, device: &Device) -> Self {
        let to = EXPANSION * inner;
        let norm = |channels| MapNorm::batch(kind, channels, device);
        let shortcut = || (conv([from, to], 1, stride, device), norm(to));
        Self {
            reduce: conv([from, inner], 1, 1, device),
            reduce_norm: norm(inner),
            middle: conv([inner, inner], 3, stride, device),
            middle_norm: norm(inner),
            expand: conv([inner, to], 1, 1, device),
            expand_norm: norm(to),
            shortcut: (stride > 1 || from != to).then(shortcut),
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let maps = relu(self.reduce_norm.forward(self.reduce.forward(input.clone())));
        let maps = relu(self.middle_norm.forward(self.middle.forward(maps)));
        let maps = self.expand_norm.forward(self.expand.forward(maps));
        let shortcut = match &self.shortcut {
            Some((conv, norm)) => norm.forward(conv.forward(input)),
            None => input,
        };
        relu(maps + shortcut)
    }
}

/// A convolution with a square kernel and without bias, since a norm with a bias follows.
fn conv([from, to]: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Conv2d {
    let side = kernel / 2;
    Conv2dConfig::new([from, to], [kernel, kernel])
        .with_stride([stride, stride])
        .with_padding(PaddingConfig2d::Explicit(side, side, side, side))
        .with_bias(false)
        .init(device)
}

pub(super) fn instance(small: bool, kind: Kind, device: &Device) -> Instance {
    let size = if small { &SMALL } else { &FULL };
    let device = device.clone().autodiff();
    let model = ResNet::new(size, kind, &device);
    let pictures = noise([size.batch, 3, size.side, size.side], &device);
    let labels = classes(size.batch, size.classes, &device);
    let layers = 2 + 3 * size.stages.iter().sum::<usize>();
    let optimizer =
        SgdConfig::new().with_momentum(Some(MomentumConfig::new().with_momentum(MOMENTUM)));
    Instance {
        step: Step::training(model, optimizer.init(), LEARNING_RATE, move |model| {
            cross_entropy(model.forward(pictures.clone()), labels.clone())
        }),
        shape: format!(
            "{layers} layers, {} x 3 x {side} x {side}, f32, SGD",
            size.batch,
            side = size.side
        ),
        is_training: true,
        tolerance: super::TRAINING_TOLERANCE,
    }
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    #[test]
    fn full_size_is_resnet_50() {
        let device = Device::flex();
        let count = ResNet::new(&FULL, Kind::Burn, &device).num_params();
        // Burn counts the running mean and variance of 26,560 channels too.
        assert_eq!(count, 25_557_032 + 2 * 26_560);
    }

    #[test]
    fn all_stages_and_shortcuts_fit() {
        let device = Device::flex();
        let size = Size {
            channels: 2,
            classes: 3,
            side: 64,
            ..FULL
        };
        for kind in Kind::ALL {
            let network = ResNet::new(&size, kind, &device);
            let logits = network.forward(noise([2, 3, size.side, size.side], &device));
            assert_eq!(logits.dims(), [2, 3]);
        }
    }
}
