use super::trainer::Run;

/// The first steps, over which two loss curves have to agree. Later the roundings of two ways to
/// compute the same drive any two trainings apart.
pub const AGREEING_STEPS: usize = 20;

/// How far the losses of the same step may be apart.
pub const LOSS_TOLERANCE: f32 = 1e-3;

/// Something that has to hold after training.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What holds, or does not, with its numbers.
    pub text: String,
    /// Whether it holds.
    pub passed: bool,
}

impl Check {
    /// That `value` is at most `limit`. A NaN is not.
    pub fn at_most(what: &str, value: f32, limit: f32) -> Self {
        Self {
            text: format!("{what}: {value:.2e}, at most {limit:.2e}"),
            passed: value <= limit,
        }
    }
}

/// That the losses of two runs agree in their first [`AGREEING_STEPS`].
pub fn losses_agree(one: &Run, other: &Run) -> Check {
    let first = |run: &Run| {
        run.losses
            .iter()
            .copied()
            .take(AGREEING_STEPS)
            .collect::<Vec<_>>()
    };
    let (one, other) = (first(one), first(other));
    let what = format!(
        "largest difference of losses over the first {} steps",
        one.len()
    );
    Check::at_most(&what, largest_difference(&one, &other), LOSS_TOLERANCE)
}

/// The largest absolute difference; NaN if there is a NaN, or a value on one side only.
pub fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    if one.len() != other.len() {
        return f32::NAN;
    }
    let differences = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    // `f32::max` would drop a NaN, and with it the one difference that must be seen.
    differences.fold(0.0, |largest, difference| {
        if largest.is_nan() || difference <= largest {
            largest
        } else {
            difference
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Norms;

    fn run(losses: Vec<f32>) -> Run {
        Run {
            norms: Norms::Burn,
            losses,
            epochs: Vec::new(),
            memory: None,
        }
    }

    #[test]
    fn only_the_first_steps_have_to_agree() {
        let one = run(vec![1.0; 30]);
        let mut other = one.clone();
        other.losses[AGREEING_STEPS] = 2.0;
        assert!(losses_agree(&one, &other).passed);
        other.losses[AGREEING_STEPS - 1] = 1.01;
        assert!(!losses_agree(&one, &other).passed);
    }

    #[test]
    fn neither_a_nan_nor_a_missing_value_is_overlooked() {
        assert!(largest_difference(&[f32::NAN, 1.0], &[0.0, 5.0]).is_nan());
        assert!(largest_difference(&[1.0], &[1.0, 2.0]).is_nan());
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
        assert!(!losses_agree(&run(vec![f32::NAN]), &run(vec![0.0])).passed);
    }
}
