//! The choice of kernels for a call under autodiff. The check of a call and its execution both use it.

use cubenorm_core::{Activation, ResidualPlace, WrittenStatistics};

use super::{NormSpec, Reduction};

/// Inputs of a call that autodiff tracks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tracked {
    /// The input or the residual.
    pub(crate) input: bool,
    /// The scale.
    pub(crate) scale: bool,
    /// The bias.
    pub(crate) bias: bool,
    /// The provided mean or variance.
    pub(crate) provided: bool,
}

/// Kernels that a call runs.
#[allow(
    clippy::large_enum_variant,
    reason = "one value per call: a box would be an allocation"
)]
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Route {
    /// The fused forward kernel of the specification as it is: nothing is tracked.
    Forward,
    /// Burn's own operations, which autodiff passes gradients through.
    Composed,
    /// The fused forward kernel of this specification, and later the fused backward kernel. A residual is part of both: the
    /// forward kernel writes the sum, which the backward kernel reads. So is a gate.
    Trained(NormSpec),
}

impl NormSpec {
    /// The route of a call with this specification.
    pub(crate) fn route(&self, tracked: Tracked, has_residual: bool) -> Route {
        if tracked == Tracked::default() {
            return Route::Forward;
        }
        // The fused backward pass has no gradient of provided statistics, nor of a residual that is added last, nor of
        // dynamic tanh. A gate goes with statistics that the kernel reduces.
        let adds_last = has_residual && self.residual_place == ResidualPlace::Output;
        let is_given = self.reduction == Reduction::Provided && self.has_gate(has_residual);
        let has_kernel = self.reduction != Reduction::DynamicTanh && !is_given;
        if tracked.provided || adds_last || !has_kernel {
            return Route::Composed;
        }
        let kept = match self.reduction {
            Reduction::None | Reduction::Provided | Reduction::DynamicTanh => None,
            _ => Some(WrittenStatistics::MeanRstd),
        };
        Route::Trained(Self {
            writes_sum: self.adds(has_residual),
            written_statistics: self.written_statistics.or(kept),
            ..self.trained(has_residual)
        })
    }

    /// True if a residual is added to the input.
    pub(crate) fn adds(&self, has_residual: bool) -> bool {
        has_residual && self.residual_place == ResidualPlace::Input
    }

    /// True if a residual is a gate.
    pub(crate) fn has_gate(&self, has_residual: bool) -> bool {
        has_residual && self.residual_place.is_gate()
    }

    /// The norm that a backward pass is of.
    pub(crate) fn trained(&self, has_residual: bool) -> Self {
        Self {
            residual_place: match self.has_gate(has_residual) {
                true => self.residual_place,
                false => ResidualPlace::Input,
            },
            writes_sum: false,
            ..self.clone()
        }
    }

    /// The same without its gate, which takes the activation along.
    #[cfg(any(feature = "cube", feature = "flex"))]
    pub(crate) fn without_gate(&self) -> Self {
        Self {
            residual_place: ResidualPlace::Input,
            writes_sum: false,
            activation: Activation::Identity,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: Tracked = Tracked {
        input: true,
        scale: false,
        bias: false,
        provided: false,
    };

    #[test]
    fn untracked_calls_run_the_forward_kernel_alone() {
        let spec = NormSpec::new([1], Reduction::MeanVariance, 1e-5);
        assert_eq!(spec.route(Tracked::default(), true), Route::Forward);
    }

    #[test]
    fn training_keeps_statistics_and_the_sum() {
        let mut spec = NormSpec::new([1], Reduction::MeanVariance, 1e-5);
        let Route::Trained(forward) = spec.route(INPUT, true) else {
            panic!("expected the fused kernels");
        };
        assert!(forward.writes_sum);
        assert_eq!(
            forward.written_statistics,
            Some(WrittenStatistics::MeanRstd)
        );
        spec.reduction = Reduction::Provided;
        let Route::Trained(forward) = spec.route(INPUT, false) else {
            panic!("expected the fused kernels");
        };
        assert_eq!(forward.written_statistics, None);
        assert!(!forward.writes_sum);
    }

    #[test]
    fn a_gate_is_part_of_both_kernels() {
        let mut spec = NormSpec::new([1], Reduction::MeanSquare, 1e-5);
        spec.activation = Activation::Silu;
        spec.residual_place = ResidualPlace::OutputGate;
        let places = [
            (true, ResidualPlace::OutputGate),
            (false, ResidualPlace::Input),
        ];
        for (has_residual, place) in places {
            let Route::Trained(forward) = spec.route(INPUT, has_residual) else {
                panic!("expected the fused kernels");
            };
            assert_eq!(forward.residual_place, place);
            assert_eq!(forward.activation, Activation::Silu);
            assert!(!forward.writes_sum);
        }
        assert_eq!(spec.without_gate().activation, Activation::Identity);
        spec.reduction = Reduction::Provided;
        assert_eq!(spec.route(INPUT, true), Route::Composed);
    }

    #[test]
    fn tracked_statistics_and_late_residuals_are_composed() {
        let mut spec = NormSpec::new([1], Reduction::Provided, 1e-5);
        let provided = Tracked {
            provided: true,
            ..Tracked::default()
        };
        assert_eq!(spec.route(provided, false), Route::Composed);
        spec.residual_place = ResidualPlace::Output;
        assert_eq!(spec.route(INPUT, true), Route::Composed);
    }
}
