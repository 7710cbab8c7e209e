use cubenorm_core::Activation;

/// An activation in f64, by the formula of [`Activation`].
pub fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => max(x, 0.0),
        Activation::LeakyRelu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha * x
            }
        }
        Activation::ThresholdedRelu { alpha } => {
            if x > alpha {
                x
            } else {
                0.0
            }
        }
        Activation::Elu { alpha } => {
            if x > 0.0 {
                x
            } else {
                alpha * x.exp_m1()
            }
        }
        Activation::Celu { alpha } => max(x, 0.0) + min(alpha * (x / alpha).exp_m1(), 0.0),
        Activation::ScaledElu { alpha, gamma } => {
            gamma * if x > 0.0 { x } else { alpha * x.exp_m1() }
        }
        Activation::Linear { alpha, beta } => alpha * x + beta,
        Activation::HardSigmoid { alpha, beta } => max(min(alpha * x + beta, 1.0), 0.0),
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => x.tanh(),
        Activation::ScaledTanh { alpha, beta } => alpha * (beta * x).tanh(),
        Activation::Softplus { steepness } => softplus(steepness * x) / steepness,
        Activation::ParametricSoftplus { alpha, beta } => alpha * softplus(beta * x),
        Activation::Softsign => x / (1.0 + x.abs()),
        Activation::Shrink { bias, threshold } => {
            if x > threshold {
                x - bias
            } else if x < -threshold {
                x + bias
            } else {
                0.0 * x
            }
        }
        Activation::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            // x / 2 * (1 + tanh(u)) is x * sigmoid(2 u), which stays accurate if tanh(u) rounds to
            // -1.
            x * sigmoid(2.0 * inner)
        }
        Activation::Silu => x * sigmoid(x),
        Activation::HardSwish => x * max(min(x / 6.0 + 0.5, 1.0), 0.0),
        Activation::Mish => x * softplus(x).tanh(),
    }
}

/// The larger value; propagates NaN, unlike `f64::max`.
fn max(x: f64, bound: f64) -> f64 {
    if x < bound { bound } else { x }
}

/// The smaller value; propagates NaN.
fn min(x: f64, bound: f64) -> f64 {
    if x > bound { bound } else { x }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    max(x, 0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_hold() {
        let close = |activation, x, expected: f64| {
            let actual = activate(activation, x);
            assert!(
                (actual - expected).abs() < 1e-12,
                "{activation} of {x}: {actual}"
            );
        };
        close(Activation::Gelu, 1.0, 0.841_344_746_068_542_9);
        close(Activation::Gelu, -1.0, -0.158_655_253_931_457_05);
        close(Activation::Silu, 1.0, 0.731_058_578_630_004_9);
        close(Activation::Mish, 1.0, 0.865_098_388_267_310_3);
        close(Activation::Softplus { steepness: 1.0 }, 100.0, 100.0);
        close(Activation::Sigmoid, -100.0, 3.720_075_976_020_836e-44);
        close(Activation::HardSwish, 1.0, 2.0 / 3.0);
        close(
            Activation::Celu { alpha: 2.0 },
            -1.0,
            2.0 * (-0.5f64).exp_m1(),
        );
        close(Activation::Elu { alpha: 1.0 }, -1.0, (-1.0f64).exp_m1());
    }
}
