//! Descriptions of common normalizations.

use cubenorm_core::{
    Activation, DType, Layout, NormDesc, Statistics, TensorDesc, WrittenStatistics,
};

/// Tensors of one dtype.
#[derive(Clone, Copy)]
pub(super) struct Of(pub(super) DType);

impl Of {
    pub(super) fn tensor(self, shape: &[usize]) -> TensorDesc {
        TensorDesc::contiguous(shape, self.0)
    }

    pub(super) fn strided(self, shape: &[usize], strides: &[usize]) -> TensorDesc {
        TensorDesc::new(Layout::strided(shape, strides), self.0)
    }

    /// Layer norm over the last axis, with scale and bias.
    pub(super) fn layer_norm(self, shape: &[usize]) -> NormDesc {
        let last = &shape[shape.len() - 1..];
        self.rms_norm(shape)
            .with_statistics(Statistics::MeanVariance)
            .with_bias(self.tensor(last))
    }

    /// RMS norm over the last axis, with a scale.
    pub(super) fn rms_norm(self, shape: &[usize]) -> NormDesc {
        let last = shape.len() - 1;
        NormDesc::new(self.tensor(shape), [last], Statistics::MeanSquare)
            .with_scale(self.tensor(&shape[last..]))
    }

    /// A normalization over `axes`, with a scale and a bias per channel of axis 1.
    pub(super) fn of_channels(self, shape: &[usize], axes: &[usize]) -> NormDesc {
        let mut channels = vec![1; shape.len() - 1];
        channels[0] = shape[1];
        NormDesc::new(self.tensor(shape), axes, Statistics::MeanVariance)
            .with_scale(self.tensor(&channels))
            .with_bias(self.tensor(&channels))
    }

    /// Instance norm over spatial positions.
    pub(super) fn instance_norm(self, shape: &[usize]) -> NormDesc {
        self.of_channels(shape, &[2, 3])
    }

    /// Batch norm in training, with statistics written for the running ones.
    pub(super) fn batch_norm(self, shape: &[usize]) -> NormDesc {
        self.of_channels(shape, &[0, 2, 3])
            .with_written_statistics(WrittenStatistics::MeanVariance)
    }

    /// Batch norm with running statistics.
    pub(super) fn batch_norm_inference(self, shape: &[usize]) -> NormDesc {
        let channels = self.tensor(&[shape[1], 1, 1]);
        self.of_channels(shape, &[0, 2, 3])
            .with_statistics(Statistics::Provided {
                mean: channels.clone(),
                variance: channels,
            })
    }

    /// Group norm over 32 groups of channels.
    pub(super) fn group_norm(self, [n, c, h, w]: [usize; 4]) -> NormDesc {
        let (groups, each) = (32, c / 32);
        let params = self.tensor(&[groups, each, 1, 1]);
        let input = self.tensor(&[n, groups, each, h, w]);
        NormDesc::new(input, [2, 3, 4], Statistics::MeanVariance)
            .with_scale(params.clone())
            .with_bias(params)
    }

    /// Group norm in channels-last layout.
    pub(super) fn group_norm_channels_last(self, [n, c, h, w]: [usize; 4]) -> NormDesc {
        let (groups, each) = (32, c / 32);
        let strides = [h * w * c, each, 1, w * c, c];
        NormDesc {
            input: self.strided(&[n, groups, each, h, w], &strides),
            ..self.group_norm([n, c, h, w])
        }
    }
}

/// A description with other statistics.
pub(super) trait WithStatistics {
    fn with_statistics(self, statistics: Statistics) -> Self;
}

impl WithStatistics for NormDesc {
    fn with_statistics(mut self, statistics: Statistics) -> Self {
        self.statistics = statistics;
        self
    }
}

/// Statistics that are reduced.
pub(super) const REDUCED: [(&str, Statistics); 5] = [
    ("mean and variance", Statistics::MeanVariance),
    ("mean square", Statistics::MeanSquare),
    ("mean", Statistics::Mean),
    ("l1 norm", Statistics::L1Norm),
    ("l2 norm", Statistics::L2Norm),
];

/// One of each activation.
pub(super) fn activations() -> Vec<Activation> {
    use Activation::*;
    let (alpha, beta) = (0.5, 0.25);
    vec![
        Identity,
        Relu,
        LeakyRelu { alpha },
        ThresholdedRelu { alpha },
        Elu { alpha },
        Celu { alpha },
        ScaledElu { alpha, gamma: beta },
        Linear { alpha, beta },
        HardSigmoid { alpha, beta },
        Sigmoid,
        Tanh,
        ScaledTanh { alpha, beta },
        Softplus { steepness: alpha },
        ParametricSoftplus { alpha, beta },
        Softsign,
        Shrink {
            bias: alpha,
            threshold: beta,
        },
        Gelu,
        GeluTanh,
        Silu,
        HardSwish,
        Mish,
    ]
}
