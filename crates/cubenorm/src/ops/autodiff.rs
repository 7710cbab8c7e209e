//! Gradients: one autodiff node per normalization, whose forward and backward passes are the backend's own.
//!
//! The node keeps scale, bias, two numbers per row and, through Burn's checkpointing, the input. It keeps nothing else
//! of the input's size.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as Grads;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, TensorMetadata};
use cubenorm_core::{ResidualPlace, WrittenStatistics};

use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    Optional, Route, Running, RunningOperands, Tracked, portable,
};

type TrackedTensor<B, C> = FloatTensor<Autodiff<B, C>>;

fn is_tracked<B: NormBackend, C: CheckpointStrategy>(tensor: &Optional<Autodiff<B, C>>) -> bool {
    tensor.as_option().is_some_and(|tensor| tensor.is_tracked())
}

fn inner<B: NormBackend, C: CheckpointStrategy>(tensor: Optional<Autodiff<B, C>>) -> Optional<B> {
    let tensor = tensor.into_option();
    tensor.map(|tensor| tensor.into_primitive()).into()
}

/// The fused forward pass alone: nothing is tracked.
fn normalize_untracked<B: NormBackend, C: CheckpointStrategy>(
    operands: Operands<Autodiff<B, C>>,
    spec: NormSpec,
) -> Normalized<Autodiff<B, C>> {
    let wrap = |tensor: Optional<B>| {
        let tensor = tensor.into_option();
        tensor.map(Autodiff::<B, C>::from_inner).into()
    };
    let outputs = B::normalize(
        Operands {
            input: operands.input.into_primitive(),
            residual: inner(operands.residual),
            scale: inner(operands.scale),
            bias: inner(operands.bias),
            mean: inner(operands.mean),
            variance: inner(operands.variance),
        },
        spec,
    );
    Normalized {
        output: Autodiff::<B, C>::from_inner(outputs.output),
        sum: wrap(outputs.sum),
        statistics: wrap(outputs.statistics),
    }
}

impl<B: NormBackend, C: CheckpointStrategy> NormBackend for Autodiff<B, C> {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        let [residual, scale, bias, mean, variance] = [
            &operands.residual,
            &operands.scale,
            &operands.bias,
            &operands.mean,
            &operands.variance,
        ]
        .map(is_tracked::<B, C>);
        let tracked = Tracked {
            input: operands.input.is_tracked() || residual,
            scale,
            bias,
            provided: mean || variance,
        };
        let has_residual = operands.residual.as_option().is_some();
        let forward = match spec.route(tracked, has_residual) {
            Route::Forward => return normalize_untracked::<B, C>(operands, spec),
            Route::Composed => return portable::normalize::<Self>(operands, &spec),
            Route::Trained(forward) => forward,
        };
        let gate = |value, gate| portable::gated::<Self>(value, gate, spec.activation);
        // A node of Burn's graph has one output, so a sum is a node of its own.
        let (input, last) = match (operands.residual.into_option(), spec.residual_place) {
            (Some(it), ResidualPlace::InputGate) => (gate(operands.input, it), None),
            (Some(it), ResidualPlace::OutputGate) => (operands.input, Some(it)),
            (Some(residual), _) => (Self::float_add(operands.input, residual), None),
            (None, _) => (operands.input, None),
        };
        let sum = spec.writes_sum.then(|| input.clone());
        let operands = Operands {
            input,
            residual: Optional::None,
            ..operands
        };
        let norm = NormSpec {
            writes_sum: false,
            ..spec.without_residual(has_residual)
        };
        let (output, statistics) = normalize_tracked::<B, C>(operands, norm, forward);
        Normalized {
            output: match last {
                Some(last) => gate(output, last),
                None => output,
            },
            sum: sum.into(),
            // Statistics have no gradient.
            statistics: statistics.map(Self::from_inner).into(),
        }
    }

    fn update_running(operands: RunningOperands<Self>, momentum: f64) -> Running<Self> {
        let updated = B::update_running(
            RunningOperands {
                statistics: operands.statistics.into_primitive(),
                mean: operands.mean.into_primitive(),
                variance: operands.variance.into_primitive(),
            },
            momentum,
        );
        // Statistics have no gradient.
        Running {
            mean: Self::from_inner(updated.mean),
            variance: Self::from_inner(updated.variance),
        }
    }

    /// Statistics have no gradient.
    fn row_statistics(input: FloatTensor<Self>, spec: NormSpec) -> FloatTensor<Self> {
        Self::from_inner(B::row_statistics(input.into_primitive(), spec))
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        let outputs = B::normalize_backward(
            BackwardOperands {
                input: operands.input.into_primitive(),
                output_gradient: operands.output_gradient.into_primitive(),
                saved: inner(operands.saved),
                scale: inner(operands.scale),
                bias: inner(operands.bias),
            },
            spec,
        );
        // Gradients of gradients are not tracked.
        let wrap = |tensor: Optional<B>| {
            let tensor = tensor.into_option();
            tensor.map(Self::from_inner).into()
        };
        Gradients {
            input: wrap(outputs.input),
            scale: wrap(outputs.scale),
            bias: wrap(outputs.bias),
        }
    }
}

/// State of a node for its backward pass.
#[derive(Debug, Clone)]
struct State<B: NormBackend> {
    input: NodeId,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    saved: Optional<B>,
    spec: NormSpec,
}

#[derive(Debug)]
struct Normalize;

impl<B: NormBackend> Backward<B, 3> for Normalize {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 3>, grads: &mut Grads, checkpointer: &mut Checkpointer) {
        let [input_node, scale_node, bias_node] = ops.parents;
        let state = ops.state;
        let output_gradient = grads.consume::<B>(&ops.node);
        let mut retrieve = |id: Option<NodeId>| -> Optional<B> {
            id.map(|id| checkpointer.retrieve_node_output(id)).into()
        };
        let (scale, bias) = (retrieve(state.scale), retrieve(state.bias));
        let input: FloatTensor<B> = checkpointer.retrieve_node_output(state.input);
        let spec = BackwardSpec {
            norm: state.spec,
            wants_input: input_node.is_some(),
            wants_scale: scale_node.is_some() && state.scale.is_some(),
            wants_bias: bias_node.is_some() && state.bias.is_some(),
        };
        let gradients = B::normalize_backward(
            BackwardOperands {
                input,
                output_gradient,
                saved: state.saved,
                scale,
                bias,
            },
            spec,
        );
        let pairs = [
            (input_node, gradients.input),
            (scale_node, gradients.scale),
            (bias_node, gradients.bias),
        ];
        for (node, gradient) in pairs {
            if let (Some(node), Optional::Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

fn normalize_tracked<B: NormBackend, C: CheckpointStrategy>(
    operands: Operands<Autodiff<B, C>>,
    spec: NormSpec,
    forward: NormSpec,
) -> (TrackedTensor<B, C>, Option<FloatTensor<B>>) {
    let Operands {
        input,
        scale,
        bias,
        mean,
        variance,
        ..
    } = operands;
    // An absent parameter is a leaf that needs no gradient.
    let stand_in = Autodiff::<B, C>::from_inner(input.primitive().clone());
    let nodes = [
        input.node(),
        scale.as_option().unwrap_or(&stand_in).node(),
        bias.as_option().unwrap_or(&stand_in).node(),
    ];
    let run = |input: TrackedTensor<B, C>,
               scale,
               bias,
               mean: &Optional<B>,
               variance: &Optional<B>,
               spec| {
        B::normalize(
            Operands {
                input: input.into_primitive(),
                residual: Optional::None,
                scale: inner(scale),
                bias: inner(bias),
                mean: mean.clone(),
                variance: variance.clone(),
            },
            spec,
        )
    };
    let rank = spec.seen_shape(&input.shape()).num_dims();
    let (mean, variance) = (inner(mean), inner(variance));
    // Compute-bound, so that Burn keeps the output. Recomputing it would read the input again, and the next operation
    // keeps the output anyway.
    match Normalize.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let mut keep = |tensor: &Optional<Autodiff<B, C>>| {
                tensor.as_option().map(|tensor| prep.checkpoint(tensor))
            };
            let (scale_id, bias_id) = (keep(&scale), keep(&bias));
            let input_id = prep.checkpoint(&input);
            let written = forward.written_statistics;
            let outputs = run(input, scale, bias, &mean, &variance, forward);
            let statistics = outputs.statistics.into_option();
            let deviations =
                |mean, variance| portable::provided_pairs::<B>(mean, variance, spec.epsilon);
            let saved = match (mean, variance, written, &statistics) {
                (Optional::Some(mean), Optional::Some(variance), ..) => {
                    let provided = |tensor| portable::param::<B>(tensor, rank, &spec);
                    Some(deviations(provided(mean), provided(variance)))
                }
                (.., Some(WrittenStatistics::MeanVariance), Some(pairs)) => {
                    let number = |which| portable::of_pairs::<B>(pairs.clone(), which);
                    Some(deviations(number(0), number(1)))
                }
                _ => statistics.clone(),
            };
            let wanted = statistics.filter(|_| spec.written_statistics.is_some());
            let state = State {
                input: input_id,
                scale: scale_id,
                bias: bias_id,
                saved: saved.into(),
                spec,
            };
            (prep.finish(state, outputs.output), wanted)
        }
        OpsKind::UnTracked(prep) => {
            let outputs = run(input, scale, bias, &mean, &variance, spec);
            (
                prep.finish(outputs.output),
                outputs.statistics.into_option(),
            )
        }
    }
}
