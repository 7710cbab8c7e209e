//! Norms in many spellings, against float64.

use burn::nn;
use burn::tensor::{DType, Device, Tensor, activation};
use cubenorm::{Activation, MatchedNorm};
use cubenorm_core::{Epsilon, NormDesc, Statistics, TensorDesc};
use cubenorm_reference::Tensors;
use cubenorm_tests::tensors::supports;
use cubenorm_tests::tolerance::bound;

use crate::{counted, cubenorm_core_dtype, devices, installed, noise};

const EPSILON: f64 = 1e-5;

/// Tensors of a spelling.
struct Given {
    x: Tensor<3>,
    residual: Tensor<3>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
}

impl Given {
    fn centered(&self) -> Tensor<3> {
        self.x.clone() - self.x.clone().mean_dim(2)
    }

    fn affine(&self, normalized: Tensor<3>) -> Tensor<3> {
        normalized * self.gamma.clone().unsqueeze() + self.beta.clone().unsqueeze()
    }

    fn scaled(&self, normalized: Tensor<3>) -> Tensor<3> {
        normalized * self.gamma.clone().unsqueeze()
    }

    fn size(&self) -> f64 {
        self.x.dims()[2] as f64
    }

    /// The tensors themselves: their last readers free them.
    fn take(self) -> (Tensor<3>, Tensor<1>, Tensor<1>) {
        (self.x, self.gamma, self.beta)
    }
}

/// A norm, and how it is spelled.
struct Spelling {
    name: &'static str,
    statistics: Statistics,
    epsilon: Epsilon,
    axes: &'static [usize],
    has_residual: bool,
    has_scale: bool,
    has_bias: bool,
    activation: Activation,
    graph: fn(Given) -> Tensor<3>,
}

fn layer(name: &'static str, graph: fn(Given) -> Tensor<3>) -> Spelling {
    Spelling {
        name,
        statistics: Statistics::MeanVariance,
        epsilon: Epsilon::InsideSqrt(EPSILON),
        axes: &[2],
        has_residual: false,
        has_scale: true,
        has_bias: true,
        activation: Activation::Identity,
        graph,
    }
}

fn rms(name: &'static str, graph: fn(Given) -> Tensor<3>) -> Spelling {
    Spelling {
        statistics: Statistics::MeanSquare,
        has_bias: false,
        ..layer(name, graph)
    }
}

fn plain(spelling: Spelling) -> Spelling {
    Spelling {
        has_scale: false,
        has_bias: false,
        ..spelling
    }
}

fn spellings() -> Vec<Spelling> {
    vec![
        layer("burn::nn::LayerNorm", |given| {
            let mut norm = nn::LayerNormConfig::new(given.x.dims()[2]).init(&given.x.device());
            norm.gamma = burn::module::Param::from_tensor(given.gamma);
            norm.beta = Some(burn::module::Param::from_tensor(given.beta));
            norm.forward(given.x)
        }),
        layer(
            "mean, difference, mean of squares, root, quotient",
            |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                let (_, gamma, beta) = given.take();
                c / (variance + EPSILON).sqrt() * gamma.unsqueeze() + beta.unsqueeze()
            },
        ),
        layer("biased variance", |given| {
            let variance = given.x.clone().var_bias(2);
            given.affine(given.centered() / (variance + EPSILON).sqrt())
        }),
        layer("variance with its mean", |given| {
            let (variance, mean) = given.x.clone().var_mean_bias(2);
            given.affine((given.x.clone() - mean) / (variance + EPSILON).sqrt())
        }),
        layer("variance of the centred tensor", |given| {
            let c = given.centered();
            let variance = c.clone().var_bias(2);
            given.affine(c / (variance + EPSILON).sqrt())
        }),
        layer("times the reciprocal", |given| {
            let c = given.centered();
            let variance = (c.clone() * c.clone()).mean_dim(2);
            given.affine(c * (variance + EPSILON).sqrt().recip())
        }),
        layer("times one over the root", |given| {
            let c = given.centered();
            let variance = (c.clone() * c.clone()).mean_dim(2);
            given.affine(c * (1.0f32 / (variance + EPSILON).sqrt()))
        }),
        layer("times the root of the reciprocal", |given| {
            let c = given.centered();
            let variance = c.clone().square().mean_dim(2);
            given.affine((variance + EPSILON).recip().sqrt() * c)
        }),
        layer("to the power of minus a half", |given| {
            let c = given.centered();
            let variance = c.clone().powf_scalar(2.0).mean_dim(2);
            given.affine(c * (variance + EPSILON).powf_scalar(-0.5))
        }),
        layer("to the power of a half", |given| {
            let c = given.centered();
            let variance = c.clone().powi_scalar(2).mean_dim(2);
            given.affine(c / (variance + EPSILON).powf_scalar(0.5))
        }),
        layer("commuted operands", |given| {
            let c = given.centered();
            let variance = c.clone().square().mean_dim(2);
            let normalized = c / (variance + EPSILON).sqrt();
            let gamma: Tensor<3> = given.gamma.clone().unsqueeze();
            let beta: Tensor<3> = given.beta.clone().unsqueeze();
            beta + gamma * normalized
        }),
        layer("sums divided by their number", |given| {
            let n = given.size();
            let c = given.x.clone() - given.x.clone().sum_dim(2) / n;
            let variance = c.clone().square().sum_dim(2) / n;
            given.affine(c / (variance + EPSILON).sqrt())
        }),
        layer("sums times the reciprocal of their number", |given| {
            let n = 1.0 / given.size();
            let c = given.x.clone() - given.x.clone().sum_dim(2) * n;
            let variance = c.clone().square().sum_dim(2) * n;
            given.affine(c / (variance + EPSILON).sqrt())
        }),
        Spelling {
            epsilon: Epsilon::AddedToDeviation(EPSILON),
            ..layer("epsilon behind the root", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                given.affine(c / (variance.sqrt() + EPSILON))
            })
        },
        layer("difference of moments", |given| {
            let mean = given.x.clone().mean_dim(2);
            let square = given.x.clone().square().mean_dim(2);
            let variance = square - mean.clone() * mean.clone();
            given.affine((given.x.clone() - mean) / (variance + EPSILON).sqrt())
        }),
        layer("everything in f32", |given| {
            let dtype = given.x.dtype();
            let x = given.x.clone().cast(DType::F32);
            let c = x.clone() - x.mean_dim(2);
            let variance = c.clone().square().mean_dim(2);
            let normalized = c / (variance + EPSILON).sqrt();
            let gamma = given.gamma.clone().cast(DType::F32).unsqueeze();
            let beta = given.beta.clone().cast(DType::F32).unsqueeze();
            (normalized * gamma + beta).cast(dtype)
        }),
        plain(layer("no parameters", |given| {
            let c = given.centered();
            let variance = c.clone().square().mean_dim(2);
            c / (variance + EPSILON).sqrt()
        })),
        plain(Spelling {
            axes: &[1, 2],
            ..layer("two axes at once", |given| {
                let mean = given.x.clone().mean_dims(&[1, 2]);
                let c = given.x - mean;
                let n = (c.dims()[1] * c.dims()[2]) as f64;
                let variance = c.clone().square().sum_dims(&[1, 2]) / n;
                c / (variance + EPSILON).sqrt()
            })
        }),
        plain(Spelling {
            axes: &[1, 2],
            ..layer("two axes as one, by a reshape", |given| {
                let shape = given.x.dims();
                let x = given.x.reshape([shape[0], shape[1] * shape[2]]);
                let c = x.clone() - x.mean_dim(1);
                let variance = c.clone().square().mean_dim(1);
                (c / (variance + EPSILON).sqrt()).reshape(shape)
            })
        }),
        plain(Spelling {
            axes: &[1, 2],
            ..layer("statistics of a reshaped copy", |given| {
                let [n, c, m] = given.x.dims();
                let flat = given.x.clone().reshape([n, c * m]);
                let (variance, mean) = flat.var_mean_bias(1);
                let mean = mean.reshape([n, 1, 1]);
                let variance = variance.reshape([n, 1, 1]);
                (given.x - mean) / (variance + EPSILON).sqrt()
            })
        }),
        plain(Spelling {
            axes: &[1],
            ..layer("an axis in the middle", |given| {
                let c = given.x.clone() - given.x.mean_dim(1);
                let variance = c.clone().square().mean_dim(1);
                c / (variance + EPSILON).sqrt()
            })
        }),
        Spelling {
            has_residual: true,
            ..layer("a residual in front", |given| {
                let x = given.x + given.residual;
                let c = x.clone() - x.mean_dim(2);
                let variance = c.clone().square().mean_dim(2);
                let normalized = c / (variance + EPSILON).sqrt();
                normalized * given.gamma.unsqueeze() + given.beta.unsqueeze()
            })
        },
        Spelling {
            activation: Activation::Gelu,
            ..layer("GELU behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                activation::gelu(given.affine(c / (variance + EPSILON).sqrt()))
            })
        },
        Spelling {
            activation: Activation::GeluTanh,
            ..layer("approximate GELU behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                activation::gelu_approximate(given.affine(c / (variance + EPSILON).sqrt()))
            })
        },
        Spelling {
            activation: Activation::Silu,
            ..layer("SiLU behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                activation::silu(given.affine(c / (variance + EPSILON).sqrt()))
            })
        },
        Spelling {
            activation: Activation::Relu,
            ..layer("ReLU behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                activation::relu(given.affine(c / (variance + EPSILON).sqrt()))
            })
        },
        Spelling {
            activation: Activation::LeakyRelu { alpha: 0.1 },
            ..layer("leaky ReLU behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                activation::leaky_relu(given.affine(c / (variance + EPSILON).sqrt()), 0.1)
            })
        },
        Spelling {
            activation: Activation::Sigmoid,
            ..layer("sigmoid behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                activation::sigmoid(given.affine(c / (variance + EPSILON).sqrt()))
            })
        },
        Spelling {
            activation: Activation::Linear {
                alpha: 2.0,
                beta: -1.0,
            },
            ..layer("numbers behind", |given| {
                let c = given.centered();
                let variance = c.clone().square().mean_dim(2);
                given.affine(c / (variance + EPSILON).sqrt()) * 2.0 - 1.0
            })
        },
        rms("burn::nn::RmsNorm", |given| {
            let mut norm = nn::RmsNormConfig::new(given.x.dims()[2]).init(&given.x.device());
            norm.gamma = burn::module::Param::from_tensor(given.gamma);
            norm.forward(given.x)
        }),
        rms("RMS by a reciprocal", |given| {
            let square = given.x.clone().square().mean_dim(2);
            given.scaled(given.x.clone() * (square + EPSILON).sqrt().recip())
        }),
        rms("RMS by a power", |given| {
            let square = given.x.clone().square().mean_dim(2);
            given.scaled(given.x.clone() * (square + EPSILON).powf_scalar(-0.5))
        }),
        rms("RMS by a sum", |given| {
            let square = given.x.clone().square().sum_dim(2) / given.size();
            given.scaled(given.x.clone() / (square + EPSILON).sqrt())
        }),
        rms("RMS in f32 of Llama", |given| {
            let dtype = given.x.dtype();
            let x = given.x.clone().cast(DType::F32);
            let square = x.clone().square().mean_dim(2);
            let normalized = x * (square + EPSILON).sqrt().recip();
            given.scaled(normalized.cast(dtype))
        }),
        Spelling {
            epsilon: Epsilon::AddedToDeviation(EPSILON),
            ..rms("RMS with epsilon behind the root", |given| {
                let square = given.x.clone().square().mean_dim(2);
                given.scaled(given.x.clone() / (square.sqrt() + EPSILON))
            })
        },
        Spelling {
            has_residual: true,
            ..rms("RMS of a sum", |given| {
                let x = given.x + given.residual;
                let square = x.clone().square().mean_dim(2);
                x / (square + EPSILON).sqrt() * given.gamma.unsqueeze()
            })
        },
        plain(Spelling {
            statistics: Statistics::L2Norm,
            ..rms("L2", |given| {
                let norm = given.x.clone().square().sum_dim(2).sqrt();
                given.x / norm
            })
        }),
    ]
}

const SHAPES: [[usize; 3]; 6] = [
    [2, 3, 8],
    [1, 7, 33],
    [4, 16, 64],
    [8, 32, 128],
    [3, 5, 1000],
    [2, 64, 768],
];

fn check(spelling: &Spelling, shape: [usize; 3], dtype: DType, device: &Device, name: &str) {
    let size = shape[2];
    let seed = size as u64;
    let (x, x_values) = noise(shape, seed, dtype, device);
    let (residual, residual_values) = noise(shape, seed + 1, dtype, device);
    let (gamma, gamma_values) = noise([size], seed + 2, dtype, device);
    let (beta, beta_values) = noise([size], seed + 3, dtype, device);
    let given = Given {
        x,
        residual,
        gamma,
        beta,
    };
    let (actual, norms, report) = counted(|| (spelling.graph)(given));
    let context = format!("{name} {dtype:?} {shape:?}: {}", spelling.name);
    assert_eq!(norms, 1, "{context}\n{report}");
    let kind = spelling.activation.to_string();
    let is_fused = |norm: &MatchedNorm| {
        norm.description.contains(&kind) || spelling.activation == Activation::Identity
    };
    assert!(
        report.matched.iter().any(is_fused),
        "{context}: {kind}\n{report}"
    );

    let dtype = cubenorm_core_dtype(dtype);
    let tensor = |shape: &[usize]| TensorDesc::contiguous(shape, cubenorm_core::DType::F64);
    let desc = NormDesc::new(tensor(&shape), spelling.axes, spelling.statistics.clone())
        .with_epsilon(spelling.epsilon)
        .with_residual(spelling.has_residual.then(|| tensor(&shape)))
        .with_scale(spelling.has_scale.then(|| tensor(&[size])))
        .with_bias(spelling.has_bias.then(|| tensor(&[size])))
        .with_activation(spelling.activation);
    let expected = cubenorm_reference::forward(
        &desc,
        &Tensors {
            input: &x_values,
            residual: spelling.has_residual.then_some(&residual_values),
            scale: spelling.has_scale.then_some(&gamma_values),
            bias: spelling.has_bias.then_some(&beta_values),
            ..Tensors::default()
        },
    );
    let cols = spelling.axes.iter().map(|&axis| shape[axis]).product();
    let (slope, offset) = match spelling.activation {
        Activation::Linear { alpha, beta } => (alpha.abs(), beta.abs()),
        // The steepest of the others.
        _ => (1.13, 0.0),
    };
    let largest_sum = match spelling.has_residual {
        true => expected
            .sum
            .iter()
            .fold(0.0, |most: f64, sum| most.max(sum.abs())),
        false => 0.0,
    };
    for (at, (actual, output)) in actual.iter().zip(&expected.output).enumerate() {
        let scale = if spelling.has_scale {
            gamma_values[at % size]
        } else {
            1.0
        };
        let bias = if spelling.has_bias {
            beta_values[at % size]
        } else {
            0.0
        };
        let normalized = (expected.sum[at] - expected.mean[at]) * expected.rstd[at];
        let magnitude = slope * ((normalized * scale).abs() + bias.abs() + 1.0) + offset;
        let cancelled = slope * 2.0 * largest_sum * expected.rstd[at];
        let bound = bound(dtype, cols, magnitude, cancelled);
        let error = (actual - output).abs();
        assert!(
            error <= bound,
            "{context}: {actual} for {output} at {at} is off by {error}, more than {bound}"
        );
    }
}

#[test]
fn spellings_are_matched_and_within_bounds() {
    let _guard = installed();
    for (name, device) in devices() {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            if !supports(name, &device, dtype) {
                println!("{name}: skipped {dtype:?}");
                continue;
            }
            for spelling in spellings() {
                for shape in SHAPES {
                    check(&spelling, shape, dtype, &device, name);
                }
            }
        }
    }
}
