use super::trainer::Run;

/// Two loss curves must agree over this number of first steps. Later, different roundings make any
/// two trainings diverge.
pub const AGREEING_STEPS: usize = 20;

/// Largest difference of the losses of a step.
pub const LOSS_TOLERANCE: f32 = 1e-3;

/// A condition after training.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// The condition with its numbers.
    pub text: String,
    /// True if the condition holds.
    pub passed: bool,
}

impl Check {
    /// Checks that `value` is at most `limit`. NaN fails.
    pub fn at_most(what: &str, value: f32, limit: f32) -> Self {
        Self {
            text: format!("{what}: {value:.2e}, at most {limit:.2e}"),
            passed: value <= limit,
        }
    }
}

/// Checks that the losses of two runs agree in the first [`AGREEING_STEPS`].
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

/// Largest absolute difference; NaN if a value is NaN or the lengths differ.
pub fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    if one.len() != other.len() {
        return f32::NAN;
    }
    let differences = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    // `f32::max` would ignore a NaN.
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
    fn only_first_steps_must_agree() {
        let one = run(vec![1.0; 30]);
        let mut other = one.clone();
        other.losses[AGREEING_STEPS] = 2.0;
        assert!(losses_agree(&one, &other).passed);
        other.losses[AGREEING_STEPS - 1] = 1.01;
        assert!(!losses_agree(&one, &other).passed);
    }

    #[test]
    fn nan_and_missing_values_fail() {
        assert!(largest_difference(&[f32::NAN, 1.0], &[0.0, 5.0]).is_nan());
        assert!(largest_difference(&[1.0], &[1.0, 2.0]).is_nan());
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
        assert!(!losses_agree(&run(vec![f32::NAN]), &run(vec![0.0])).passed);
    }
}
