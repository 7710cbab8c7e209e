use cubenorm_operators::directml::FusedActivation;

/// An activation in f64, by the formula in DirectML's documentation, rearranged to avoid the
/// exponential of large numbers. NaN is not supported.
pub fn activate(activation: FusedActivation, x: f64) -> f64 {
    use FusedActivation::*;
    let wide = f64::from;
    match activation {
        Elu { alpha } if x < 0.0 => wide(alpha) * x.exp_m1(),
        HardSigmoid { alpha, beta } => (wide(alpha) * x + wide(beta)).clamp(0.0, 1.0),
        LeakyRelu { alpha } if x < 0.0 => wide(alpha) * x,
        Elu { .. } | LeakyRelu { .. } | Identity => x,
        Linear { alpha, beta } => wide(alpha) * x + wide(beta),
        ParametricSoftplus { alpha, beta } => wide(alpha) * ln_1p_exp(wide(beta) * x),
        Relu => x.max(0.0),
        ScaledElu { gamma, .. } if x > 0.0 => wide(gamma) * x,
        ScaledElu { alpha, gamma } => wide(gamma) * wide(alpha) * x.exp_m1(),
        ScaledTanh { alpha, beta } => wide(alpha) * (wide(beta) * x).tanh(),
        Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Softplus { steepness } => ln_1p_exp(wide(steepness) * x) / wide(steepness),
        Softsign => x / (1.0 + x.abs()),
        Tanh => x.tanh(),
        ThresholdedRelu { alpha } if x > wide(alpha) => x,
        ThresholdedRelu { .. } => 0.0,
        Shrink { bias, threshold } if x > wide(threshold) => x - wide(bias),
        Shrink { bias, threshold } if x < -wide(threshold) => x + wide(bias),
        Shrink { .. } => 0.0,
        Celu { alpha } => x.max(0.0) + (wide(alpha) * (x / wide(alpha)).exp_m1()).min(0.0),
    }
}

/// `ln(1 + exp(x))`
fn ln_1p_exp(x: f64) -> f64 {
    match x > 0.0 {
        true => x + (-x).exp().ln_1p(),
        false => x.exp().ln_1p(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softplus_matches_its_formula() {
        for x in [-3.0, -0.5, 0.0, 0.5, 3.0f64] {
            let written = (1.0 + (2.0 * x).exp()).ln() / 2.0;
            let actual = activate(FusedActivation::Softplus { steepness: 2.0 }, x);
            assert!((actual - written).abs() < 1e-15, "{actual} at {x}");
        }
        assert_eq!(
            activate(FusedActivation::Softplus { steepness: 2.0 }, 1e3),
            1e3
        );
    }
}
