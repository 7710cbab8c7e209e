//! Graphs that look like a norm and are none: they run as Burn runs them, and the report says why.

use burn::tensor::{DType, Device, Tensor};
use cubenorm::DeclineReason;

use crate::process::{is_other, without_install};
use crate::{counted, devices, difference, installed, noise, values};

const EPSILON: f64 = 1e-5;

type X = Tensor<3>;

/// A graph of two tensors, and the test of its reason. None if nothing in it looks like a norm.
struct LookAlike {
    name: &'static str,
    graph: fn(X, X) -> X,
    reason: Option<fn(&DeclineReason) -> bool>,
}

macro_rules! look_alike {
    ($name:literal, $reason:pat, $graph:expr) => {
        LookAlike {
            name: $name,
            graph: $graph,
            reason: Some(|reason| matches!(reason, $reason)),
        }
    };
}

fn unlike(name: &'static str, graph: fn(X, X) -> X) -> LookAlike {
    LookAlike {
        name,
        graph,
        reason: None,
    }
}

fn centered(x: X, axis: usize) -> X {
    x.clone() - x.mean_dim(axis)
}

fn variance(x: X, axis: usize) -> X {
    centered(x, axis).square().mean_dim(axis)
}

fn look_alikes() -> Vec<LookAlike> {
    use DeclineReason::*;
    vec![
        look_alike!("a mean over another axis", OtherAxes, |x, _| {
            let c = centered(x, 1);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + EPSILON).sqrt()
        }),
        look_alike!("a variance over another axis", OtherAxes, |x, _| {
            centered(x.clone(), 2) / (variance(x, 1) + EPSILON).sqrt()
        }),
        look_alike!("a variance over fewer axes", OtherAxes, |x, _| {
            let c = x.clone() - x.mean_dims(&[1, 2]);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + EPSILON).sqrt()
        }),
        look_alike!("the variance of a function of it", OtherVariance, |x, _| {
            let z = x.clone().tanh();
            centered(x, 2) / (variance(z, 2) + EPSILON).sqrt()
        }),
        look_alike!("the mean of a function of it", OtherMean, |x, _| {
            let z = x.clone().tanh();
            (x.clone() - z.mean_dim(2)) / (variance(x, 2) + EPSILON).sqrt()
        }),
        look_alike!(
            "the mean square of a function of it",
            OtherVariance,
            |x, _| {
                let z = x.clone().tanh();
                x / (z.square().mean_dim(2) + EPSILON).sqrt()
            }
        ),
        unlike("the variance of another tensor", |x, z| {
            centered(x, 2) / (variance(z, 2) + EPSILON).sqrt()
        }),
        unlike("the mean of another tensor", |x, z| {
            (x.clone() - z.mean_dim(2)) / (variance(x, 2) + EPSILON).sqrt()
        }),
        unlike("the mean square of another tensor", |x, z| {
            x / (z.square().mean_dim(2) + EPSILON).sqrt()
        }),
        look_alike!("a product of two tensors", NotSquares, |x, _| {
            let magnitude = x.clone().abs();
            x / ((magnitude.clone() * magnitude.tanh()).mean_dim(2) + EPSILON).sqrt()
        }),
        look_alike!("no epsilon", NoEpsilon, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / variance.sqrt()
        }),
        look_alike!("no epsilon, without a mean", NoEpsilon, |x, _| {
            x.clone() / x.square().mean_dim(2).sqrt()
        }),
        look_alike!("two epsilons", TwoEpsilons, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / ((variance + EPSILON).sqrt() + EPSILON)
        }),
        look_alike!("an unbiased variance", Divisor { .. }, |x, _| {
            let variance = x.clone().var(2);
            centered(x, 2) / (variance + EPSILON).sqrt()
        }),
        look_alike!("a sum divided by another number", Divisor { .. }, |x, _| {
            let variance = centered(x.clone(), 2).square().sum_dim(2) / 60.0;
            centered(x, 2) / (variance + EPSILON).sqrt()
        }),
        look_alike!(
            "a mean of a sum divided by another number",
            Divisor { .. },
            |x, _| {
                let mean = x.clone().sum_dim(2) / 16.0;
                let c = x - mean;
                let variance = c.clone().square().mean_dim(2);
                c / (variance + EPSILON).sqrt()
            }
        ),
        look_alike!("a sum of squares about the mean", NoDivisor, |x, _| {
            let sum = centered(x.clone(), 2).square().sum_dim(2);
            centered(x, 2) / (sum + EPSILON).sqrt()
        }),
        look_alike!(
            "the centred tensor is read after",
            IntermediateRead { .. },
            |x, _| {
                let c = centered(x, 2);
                let variance = c.clone().square().mean_dim(2);
                let y = c.clone() / (variance + EPSILON).sqrt();
                y.exp() + c
            }
        ),
        look_alike!(
            "the variance is read after",
            IntermediateRead { .. },
            |x, _| {
                let c = centered(x, 2);
                let variance = c.clone().square().mean_dim(2);
                let y = c / (variance.clone() + EPSILON).sqrt();
                y.exp() + variance
            }
        ),
        look_alike!("the mean is read after", IntermediateRead { .. }, |x, _| {
            let mean = x.clone().mean_dim(2);
            let c = x - mean.clone();
            let variance = c.clone().square().mean_dim(2);
            let y = c / (variance + EPSILON).sqrt();
            y.exp() + mean
        }),
        look_alike!(
            "the deviation is read after",
            IntermediateRead { .. },
            |x, _| {
                let deviation = (x.clone().square().mean_dim(2) + EPSILON).sqrt();
                let y = x / deviation.clone();
                y.exp() + deviation
            }
        ),
        look_alike!(
            "the tensor itself over its deviation",
            NotCentered,
            |x, _| { x.clone() / (variance(x, 2) + EPSILON).sqrt() }
        ),
        look_alike!("twice the centred tensor", NotCentered, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            (c.clone() + c) / (variance + EPSILON).sqrt()
        }),
        look_alike!("the mean minus the tensor", OtherMean, |x, _| {
            let c = x.clone().mean_dim(2) - x.clone();
            c / (variance(x, 2) + EPSILON).sqrt()
        }),
        look_alike!("the tensor minus half its mean", OtherMean, |x, _| {
            let c = x.clone() - x.clone().mean_dim(2) * 0.5;
            c / (variance(x, 2) + EPSILON).sqrt()
        }),
        look_alike!(
            "the mean square of a centred tensor's tensor",
            VarianceNotCentered,
            |x, _| {
                let square = x.clone().square().mean_dim(2);
                centered(x, 2) / (square + EPSILON).sqrt()
            }
        ),
        look_alike!("squares about another mean", VarianceNotCentered, |x, _| {
            let z = x.clone().tanh();
            let square = (x.clone() - z.mean_dim(2)).square().mean_dim(2);
            centered(x, 2) / (square + EPSILON).sqrt()
        }),
        look_alike!("a clamped variance", Clamped, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / variance.clamp_min(EPSILON).sqrt()
        }),
        look_alike!("a clamped norm", Clamped, |x, _| {
            let norm = x.clone().square().sum_dim(2).sqrt();
            x / norm.clamp_min(1e-12)
        }),
        look_alike!("a third power in the mean", NotSquares, |x, _| {
            let c = centered(x, 2);
            let cube = c.clone().abs().powf_scalar(3.0).mean_dim(2);
            c / (cube + EPSILON).sqrt()
        }),
        look_alike!("a mean of magnitudes", NoRoot, |x, _| {
            let c = centered(x, 2);
            let magnitude = c.clone().abs().mean_dim(2);
            c / (magnitude + EPSILON)
        }),
        look_alike!("the variance instead of its root", NoRoot, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + EPSILON)
        }),
        look_alike!("a third root", Number { .. }, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + EPSILON).powf_scalar(1.0 / 3.0)
        }),
        look_alike!("a fourth root of the reciprocal", Number { .. }, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c * (variance + EPSILON).powf_scalar(-0.25)
        }),
        look_alike!("times two over the root", Number { .. }, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c * (2.0f32 / (variance + EPSILON).sqrt())
        }),
        look_alike!("a negative epsilon", Number { .. }, |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + (-EPSILON)).sqrt()
        }),
        look_alike!(
            "a mean that broadcasts along the reduced axis",
            OtherBroadcast,
            |x, _| {
                // 16 rows of 16: the means of the rows are subtracted from the columns.
                let x = x.reshape([4, 16, 16]);
                let mean = x.clone().mean_dim(2).reshape([4, 1, 16]);
                let c = x - mean;
                let variance = c.clone().square().mean_dim(2);
                c / (variance + EPSILON).sqrt()
            }
        ),
        look_alike!(
            "a deviation that broadcasts along the reduced axis",
            OtherBroadcast,
            |x, _| {
                let x = x.reshape([4, 16, 16]);
                let c = centered(x, 2);
                let variance = c.clone().square().mean_dim(2).reshape([4, 1, 16]);
                c / (variance + EPSILON).sqrt()
            }
        ),
        look_alike!("statistics of another grouping", OtherAxes, |x, _| {
            let mean = x
                .clone()
                .reshape([8, 128])
                .mean_dim(1)
                .reshape([4, 2, 1, 1]);
            let x = x.reshape([4, 2, 4, 32]);
            let variance = x.clone().var_bias(3);
            ((x - mean) / (variance + EPSILON).sqrt()).reshape([4, 8, 32])
        }),
        look_alike!(
            "work around it that Burn fuses",
            Surrounded { .. },
            |x, _| {
                let x = (x * 2.0).exp();
                let square = x.clone().square().mean_dim(2);
                (x / (square + EPSILON).sqrt()).exp()
            }
        ),
        look_alike!("an epsilon in a tensor", EpsilonTensor, |x, _| {
            let c = centered(x, 2);
            let epsilon = Tensor::<1>::from_floats([EPSILON], &c.device());
            let variance = c.clone().square().mean_dim(2);
            c / (variance + epsilon.unsqueeze()).sqrt()
        }),
        unlike("a square by an exponent in a tensor", |x, _| {
            let c = centered(x, 2);
            let two = Tensor::<1>::from_floats([2.0], &c.device());
            let variance = c.clone().powf(two.unsqueeze()).mean_dim(2);
            c / (variance + EPSILON).sqrt()
        }),
        unlike("integers in between", |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c.int().float() / (variance + EPSILON).sqrt()
        }),
        unlike("a maximum instead of the mean", |x, _| {
            let c = x.clone() - x.max_dim(2);
            c.clone() / (c.abs().mean_dim(2) + EPSILON).exp()
        }),
        unlike("the root of the root", |x, _| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + EPSILON).sqrt().sqrt()
        }),
        unlike("an epsilon that is a tensor", |x, z| {
            let c = centered(x, 2);
            let variance = c.clone().square().mean_dim(2);
            c / (variance + z.abs().max_dim(2)).sqrt()
        }),
        unlike("a swap of axes in between", |x, _| {
            let c = centered(x.reshape([4, 16, 16]), 2);
            let variance = c.clone().square().mean_dim(2);
            c.swap_dims(1, 2) / (variance + EPSILON).sqrt()
        }),
    ]
}

fn given(device: &Device) -> [X; 2] {
    [1, 2].map(|seed| noise([4, 8, 32], seed, DType::F32, device).0)
}

#[test]
fn look_alikes_run_as_burn_runs_them() {
    let run = |look_alike: &LookAlike, device: &Device| {
        let [x, z] = given(device);
        (look_alike.graph)(x, z)
    };
    let all = || {
        let devices = devices();
        let graphs = devices.iter().flat_map(|(_, device)| {
            let graphs = look_alikes();
            graphs.into_iter().map(|graph| values(run(&graph, device)))
        });
        graphs.collect()
    };
    if is_other(all) {
        return;
    }
    let _guard = installed();
    let mut expected =
        without_install("look_alikes::look_alikes_run_as_burn_runs_them").into_iter();
    for (name, device) in devices() {
        for look_alike in look_alikes() {
            let (actual, norms, report) = counted(|| run(&look_alike, &device));
            let context = format!("{name}: {}", look_alike.name);
            assert_eq!(norms, 0, "{context}\n{report}");
            if let Some(is_reason) = look_alike.reason {
                let declined = report.declined.iter();
                let found = declined.clone().any(|declined| is_reason(&declined.reason));
                assert!(found, "{context} has no such reason\n{report}");
            }
            let expected = expected.next().expect("the other process ran all");
            let largest = expected
                .iter()
                .fold(1.0, |most: f64, value| most.max(value.abs()));
            let difference = difference(&actual, &expected);
            assert!(
                difference <= 1e-6 * largest,
                "{context} is off by {difference}"
            );
        }
    }
}
