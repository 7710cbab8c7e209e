//! Gradients: one autodiff node per normalization, whose forward and backward passes are the backend's own.
//!
//! The node keeps scale, bias, two numbers per row and, through Burn's checkpointing, the input. It keeps nothing else
//! of the input's size. With a residual it keeps the sum instead of the input, with a gate both input and gate.
//!
//! A node of Burn's graph has one output. If the sum is a result too, the normalization is a node without a gradient of
//! its own, and each result is a node behind it: see [`OneResult`]. So is the rotation of query and key, which turns both
//! in one launch.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients as Grads;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, TensorMetadata};
use burn::tensor::{DType, Shape};
use cubenorm_core::WrittenStatistics;

use super::{
    BackwardOperands, BackwardSpec, Gradients, HeadOperands, HeadSpec, Heads, NormBackend,
    NormSpec, Normalized, Operands, Optional, QuantizedOperands, QuantizedParts, QuantizedSpec,
    Reduction, Route, Running, RunningOperands, Tracked, portable,
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
        let norm = spec.trained(has_residual);
        normalize_tracked::<B, C>(operands, norm, forward, spec.writes_sum)
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

    fn normalize_heads(operands: HeadOperands<Self>, spec: HeadSpec) -> Heads<Self> {
        let is_tracked = operands.query.is_tracked()
            || operands.key.is_tracked()
            || is_tracked::<B, C>(&operands.query_scale)
            || is_tracked::<B, C>(&operands.key_scale);
        if is_tracked {
            return normalize_heads_tracked::<B, C>(operands, &spec);
        }
        let heads = B::normalize_heads(
            HeadOperands {
                query: operands.query.into_primitive(),
                key: operands.key.into_primitive(),
                query_scale: inner(operands.query_scale),
                key_scale: inner(operands.key_scale),
                rotation: inner(operands.rotation),
            },
            spec,
        );
        Heads {
            query: Self::from_inner(heads.query),
            key: Self::from_inner(heads.key),
        }
    }

    /// Codes have no gradient, and nothing passes through the sum: the functions of this crate hand over no tracked tensor.
    fn normalize_quantized(
        operands: QuantizedOperands<Self>,
        spec: QuantizedSpec,
    ) -> QuantizedParts<Self> {
        let parts = B::normalize_quantized(
            QuantizedOperands {
                input: operands.input.into_primitive(),
                residual: inner(operands.residual),
                scale: inner(operands.scale),
                bias: inner(operands.bias),
                codes_scale: inner(operands.codes_scale),
            },
            spec,
        );
        let wrap = |tensor: Optional<B>| {
            let tensor = tensor.into_option();
            tensor.map(Self::from_inner).into()
        };
        QuantizedParts {
            words: parts.words,
            scale: wrap(parts.scale),
            sum: wrap(parts.sum),
        }
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        let outputs = B::normalize_backward(
            BackwardOperands {
                input: operands.input.into_primitive(),
                output_gradient: operands.output_gradient.into_primitive(),
                saved: inner(operands.saved),
                scale: inner(operands.scale),
                bias: inner(operands.bias),
                sum_gradient: inner(operands.sum_gradient),
                gate: inner(operands.gate),
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
            gate: wrap(outputs.gate),
        }
    }
}

/// A tracked normalization of each, then a node that turns both.
fn normalize_heads_tracked<B: NormBackend, C: CheckpointStrategy>(
    operands: HeadOperands<Autodiff<B, C>>,
    spec: &HeadSpec,
) -> Heads<Autodiff<B, C>> {
    let dtypes = (operands.query.dtype(), operands.key.dtype());
    let table = inner(operands.rotation).into_option();
    let mut norm = spec.norm.clone();
    // Rounded once, after the rotation.
    let accumulation = super::dtype(dtypes.0).map(|dtype| dtype.accumulation());
    norm.output_dtype = accumulation.filter(|_| table.is_some());
    let one = |input, scale| {
        let operands = Operands {
            scale,
            ..Operands::new(input)
        };
        Autodiff::<B, C>::normalize(operands, norm.clone()).output
    };
    let heads = Heads {
        query: one(operands.query, operands.query_scale),
        key: one(operands.key, operands.key_scale),
    };
    let Some(table) = table else {
        return heads;
    };
    let heads = rotate_tracked::<B, C>(heads, table, spec);
    Heads {
        query: portable::cast_to::<Autodiff<B, C>>(heads.query, dtypes.0),
        key: portable::cast_to::<Autodiff<B, C>>(heads.key, dtypes.1),
    }
}

/// Zeros of a tensor's dtype and device.
fn zeros_like<B: NormBackend>(tensor: &FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
    B::float_zeros(shape, &tensor.device(), tensor.dtype().into())
}

/// Turns both by the forward kernel.
fn rotate<B: NormBackend>(
    [query, key]: [FloatTensor<B>; 2],
    table: FloatTensor<B>,
    spec: HeadSpec,
) -> Heads<B> {
    B::normalize_heads(
        HeadOperands {
            query,
            key,
            query_scale: Optional::None,
            key_scale: Optional::None,
            rotation: Optional::Some(table),
        },
        spec,
    )
}

/// Turns query and key, and in the backward pass their gradients back.
#[derive(Debug)]
struct Rotate;

/// State of [`Rotate`].
#[derive(Debug, Clone)]
struct Rotation<B: NormBackend> {
    table: FloatTensor<B>,
    spec: HeadSpec,
    /// Shapes of query and key.
    shapes: [Shape; 2],
    gradients: Results<B>,
}

impl<B: NormBackend> Backward<B, 2> for Rotate {
    type State = Rotation<B>;

    fn backward(self, ops: Ops<Rotation<B>, 2>, grads: &mut Grads, _: &mut Checkpointer) {
        let [query_node, key_node] = ops.parents;
        let Rotation {
            table,
            spec,
            shapes,
            gradients,
        } = ops.state;
        let mut gradients = gradients.lock().unwrap_or_else(PoisonError::into_inner);
        let of_results = std::mem::take(&mut *gradients).into_iter().zip(shapes);
        // The loss may depend on one alone. The other's norm runs all the same, and takes a gradient.
        let nothing = |shape| zeros_like::<B>(&table, shape);
        let mut both = of_results.map(|(it, shape)| it.unwrap_or_else(|| nothing(shape)));
        let (Some(of_query), Some(of_key)) = (both.next(), both.next()) else {
            return;
        };
        drop(both);
        let back = rotate::<B>([of_query, of_key], portable::turning_back::<B>(table), spec);
        for (node, gradient) in [(query_node, back.query), (key_node, back.key)] {
            if let Some(node) = node {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

fn rotate_tracked<B: NormBackend, C: CheckpointStrategy>(
    heads: Heads<Autodiff<B, C>>,
    table: FloatTensor<B>,
    spec: &HeadSpec,
) -> Heads<Autodiff<B, C>> {
    let nodes = [heads.query.node(), heads.key.node()];
    let shapes = [heads.query.shape(), heads.key.shape()];
    let both = [heads.query.into_primitive(), heads.key.into_primitive()];
    let axes = spec.norm.axes.clone();
    let spec = HeadSpec {
        norm: NormSpec {
            batch_invariant: spec.norm.batch_invariant,
            ..NormSpec::new(axes, Reduction::None, 0.0)
        },
        pairs: spec.pairs,
    };
    let turned = rotate::<B>(both, table.clone(), spec.clone());
    match Rotate.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let gradients = Results::<B>::default();
            let state = Rotation {
                table,
                spec,
                shapes,
                gradients: gradients.clone(),
            };
            let node = prep.finish(state, turned.query.clone());
            Heads {
                query: one_result::<B, C>(&node, &gradients, 0, turned.query),
                key: one_result::<B, C>(&node, &gradients, 1, turned.key),
            }
        }
        OpsKind::UnTracked(prep) => Heads {
            query: prep.finish(turned.query),
            key: Autodiff::<B, C>::from_inner(turned.key),
        },
    }
}

/// State of a node for its backward pass.
#[derive(Debug, Clone)]
struct State<B: NormBackend> {
    normalized: Source<B>,
    scale: Option<NodeId>,
    bias: Option<NodeId>,
    gate: Option<NodeId>,
    saved: Optional<B>,
    spec: NormSpec,
    /// Gradients of both results, if the sum is one of them.
    gradients: Option<Results<B>>,
    /// Shape and dtype of the residual or gate, which may broadcast to the input.
    residual: Option<(Shape, DType)>,
}

/// The normalized tensor.
#[derive(Debug, Clone)]
enum Source<B: NormBackend> {
    /// The input, kept by Burn.
    Input(NodeId),
    /// The sum of input and residual.
    Sum(FloatTensor<B>),
}

/// Gradients of the two results of a node: of the normalized tensor, then of the sum. Each is absent until the node of
/// the result has run, or if the loss does not depend on it.
type Results<B> = Arc<Mutex<[Option<FloatTensor<B>>; 2]>>;

/// One of two results of a normalization: the node behind it, which hands it the gradient.
#[derive(Debug)]
struct OneResult;

impl<B: NormBackend> Backward<B, 1> for OneResult {
    type State = (Results<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Grads, _: &mut Checkpointer) {
        let (results, which) = ops.state;
        let gradient = grads.consume::<B>(&ops.node);
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        results[which] = Some(gradient);
    }
}

/// A result of a packed node.
fn one_result<B: NormBackend, C: CheckpointStrategy>(
    packed: &TrackedTensor<B, C>,
    results: &Results<B>,
    which: usize,
    output: FloatTensor<B>,
) -> TrackedTensor<B, C> {
    let parent = [packed.node()];
    match OneResult.prepare::<C>(parent).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish((results.clone(), which), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

#[derive(Debug)]
struct Normalize;

impl<B: NormBackend> Backward<B, 4> for Normalize {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 4>, grads: &mut Grads, checkpointer: &mut Checkpointer) {
        let [input_node, residual_node, scale_node, bias_node] = ops.parents;
        let state = ops.state;
        let [dy, sum_gradient] = match state.gradients {
            None => [Some(grads.consume::<B>(&ops.node)), None],
            Some(results) => {
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *results)
            }
        };
        let mut retrieve = |id: Option<NodeId>| -> Optional<B> {
            id.map(|id| checkpointer.retrieve_node_output(id)).into()
        };
        let (scale, bias) = (retrieve(state.scale), retrieve(state.bias));
        let gate = retrieve(state.gate);
        let is_gated = gate.as_option().is_some();
        let input: FloatTensor<B> = match state.normalized {
            Source::Input(id) => checkpointer.retrieve_node_output(id),
            Source::Sum(sum) => sum,
        };
        let wants_input = input_node.is_some() || residual_node.is_some();
        let sum_gradient = sum_gradient.filter(|_| wants_input);
        let gradients = match dy {
            Some(output_gradient) => B::normalize_backward(
                BackwardOperands {
                    input,
                    output_gradient,
                    saved: state.saved,
                    scale,
                    bias,
                    sum_gradient: sum_gradient.into(),
                    gate,
                },
                BackwardSpec {
                    norm: state.spec,
                    wants_input,
                    wants_scale: scale_node.is_some() && state.scale.is_some(),
                    wants_bias: bias_node.is_some() && state.bias.is_some(),
                    wants_gate: is_gated && residual_node.is_some(),
                },
            ),
            // The loss depends on the sum alone. An operation that made scale or bias takes a gradient all the same.
            None => {
                let [made_scale, made_bias] = [&scale_node, &bias_node]
                    .map(|node| node.as_ref().is_some_and(|node| !node.parents.is_empty()));
                let zeros = |param: Optional<B>, is_made: bool| {
                    let param = param.into_option().filter(|_| is_made);
                    let zeros = param.map(|param| zeros_like::<B>(&param, param.shape()));
                    zeros.into()
                };
                Gradients {
                    input: sum_gradient.into(),
                    scale: zeros(scale, made_scale),
                    bias: zeros(bias, made_bias),
                    gate: Optional::None,
                }
            }
        };
        let dx = gradients.input.into_option();
        let of_residual = match is_gated {
            true => gradients.gate.into_option(),
            false => dx.clone(),
        };
        let of_residual = of_residual.zip(state.residual);
        let pairs = [
            (input_node, dx),
            (
                residual_node,
                of_residual.map(|(gradient, (shape, dtype))| {
                    portable::cast_to::<B>(portable::sum_to::<B>(gradient, shape), dtype)
                }),
            ),
            (scale_node, gradients.scale.into_option()),
            (bias_node, gradients.bias.into_option()),
        ];
        for (node, gradient) in pairs {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}

fn normalize_tracked<B: NormBackend, C: CheckpointStrategy>(
    operands: Operands<Autodiff<B, C>>,
    spec: NormSpec,
    forward: NormSpec,
    wants_sum: bool,
) -> Normalized<Autodiff<B, C>> {
    let Operands {
        input,
        residual,
        scale,
        bias,
        mean,
        variance,
    } = operands;
    // An absent tensor is a leaf that needs no gradient.
    let stand_in = Autodiff::<B, C>::from_inner(input.primitive().clone());
    let nodes = [
        input.node(),
        residual.as_option().unwrap_or(&stand_in).node(),
        scale.as_option().unwrap_or(&stand_in).node(),
        bias.as_option().unwrap_or(&stand_in).node(),
    ];
    let rank = spec.seen_shape(&input.shape()).num_dims();
    let of_residual = residual.as_option();
    let of_residual = of_residual.map(|residual| (residual.shape(), residual.dtype()));
    let is_gated = spec.has_gate(of_residual.is_some());
    let (mean, variance) = (inner(mean), inner(variance));
    let run = |input: TrackedTensor<B, C>, residual, scale, bias, spec| {
        B::normalize(
            Operands {
                input: input.into_primitive(),
                residual: inner(residual),
                scale: inner(scale),
                bias: inner(bias),
                mean: mean.clone(),
                variance: variance.clone(),
            },
            spec,
        )
    };
    let untracked = |tensor: Option<FloatTensor<B>>| tensor.map(Autodiff::<B, C>::from_inner);
    // Compute-bound, so that Burn keeps the output. Recomputing it would read the input again, and the next operation
    // keeps the output anyway.
    match Normalize.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let mut keep = |tensor: &Optional<Autodiff<B, C>>| {
                tensor.as_option().map(|tensor| prep.checkpoint(tensor))
            };
            let (scale_id, bias_id) = (keep(&scale), keep(&bias));
            let gate_id = match is_gated {
                true => keep(&residual),
                false => None,
            };
            let input_id = match of_residual {
                Some(_) if !is_gated => None,
                _ => Some(prep.checkpoint(&input)),
            };
            let written = forward.written_statistics;
            // Without a residual the sum is the input.
            let input_alone = of_residual.is_none().then(|| input.primitive().clone());
            let outputs = run(input, residual, scale, bias, forward);
            let statistics = outputs.statistics.into_option();
            let sum = outputs.sum.into_option().or(input_alone);
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
            let gradients = wants_sum.then(Results::<B>::default);
            let normalized = match input_id {
                Some(id) => Source::Input(id),
                None => Source::Sum(sum.clone().expect("a residual's sum is written")),
            };
            let state = State {
                normalized,
                scale: scale_id,
                bias: bias_id,
                gate: gate_id,
                saved: saved.into(),
                spec,
                gradients: gradients.clone(),
                residual: of_residual,
            };
            let node = prep.finish(state, outputs.output.clone());
            let (output, sum) = match (gradients, sum) {
                (Some(results), Some(sum)) => {
                    let of_sum = one_result::<B, C>(&node, &results, 1, sum);
                    let output = one_result::<B, C>(&node, &results, 0, outputs.output);
                    (output, Some(of_sum))
                }
                _ => (node, None),
            };
            Normalized {
                output,
                sum: sum.into(),
                // Statistics have no gradient.
                statistics: untracked(wanted).into(),
            }
        }
        OpsKind::UnTracked(prep) => {
            let outputs = run(
                input,
                residual,
                scale,
                bias,
                NormSpec {
                    writes_sum: wants_sum,
                    ..spec
                },
            );
            Normalized {
                output: prep.finish(outputs.output),
                sum: untracked(outputs.sum.into_option()).into(),
                statistics: untracked(outputs.statistics.into_option()).into(),
            }
        }
    }
}
