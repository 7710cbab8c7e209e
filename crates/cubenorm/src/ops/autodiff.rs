//! Gradients. The forward pass is the backend's own, fused where it is; the backward pass is
//! composed of its operations, from the input and the scale alone.

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::Shape;
use cubenorm_core::{Activation, Epsilon};

use super::portable::{self, RowStatistics, cast_to, mean_over, widen, with_rank};
use super::{NormBackend, NormSpec, Optional, Reduction};

impl<B: NormBackend, C: CheckpointStrategy> NormBackend for Autodiff<B, C> {
    fn normalize(
        input: FloatTensor<Self>,
        scale: Optional<Self>,
        bias: Optional<Self>,
        spec: NormSpec,
    ) -> FloatTensor<Self> {
        let activation = spec.activation;
        let tracked = |tensor: &Optional<Self>| match tensor {
            Optional::Some(tensor) => tensor.is_tracked(),
            Optional::None => false,
        };
        if !(input.is_tracked() || tracked(&scale) || tracked(&bias)) {
            let inner = |tensor: Optional<Self>| {
                Optional::from(tensor.into_option().map(|tensor| tensor.into_primitive()))
            };
            let output = B::normalize(input.into_primitive(), inner(scale), inner(bias), spec);
            return Self::from_inner(output);
        }
        // The activation stays outside the node, as an operation that Burn differentiates.
        let spec = NormSpec {
            activation: Activation::Identity,
            ..spec
        };
        let output =
            normalize_tracked::<B, C>(input, scale.into_option(), bias.into_option(), spec);
        portable::activate::<Self>(output, activation)
    }

    fn add_normalize(
        input: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        scale: Optional<Self>,
        bias: Optional<Self>,
        spec: NormSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        // A step of Burn's graph has one output, so the sum is a step of its own.
        let sum = Self::float_add(input, residual);
        (Self::normalize(sum.clone(), scale, bias, spec), sum)
    }
}

/// What the backward pass keeps beside the graph's own.
#[derive(Debug, Clone)]
struct State {
    input: NodeId,
    scale: Option<NodeId>,
    shapes: [Option<Shape>; 2],
    dtypes: [Option<burn::tensor::DType>; 2],
    spec: NormSpec,
}

#[derive(Debug)]
struct Normalize;

impl<B: Backend> Backward<B, 3> for Normalize {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [input_node, scale_node, bias_node] = ops.parents;
        let state = ops.state;
        let spec = &state.spec;
        let grad = grads.consume::<B>(&ops.node);
        let input: FloatTensor<B> = checkpointer.retrieve_node_output(state.input);
        let scale: Option<FloatTensor<B>> =
            state.scale.map(|id| checkpointer.retrieve_node_output(id));
        let dtype = input.dtype();
        let rank = input.shape().num_dims();

        let grad = widen::<B>(grad);
        let RowStatistics { centered, rstd } = portable::statistics::<B>(widen::<B>(input), spec);
        let normalized = match &rstd {
            Some(rstd) => B::float_mul(centered.clone(), rstd.clone()),
            None => centered.clone(),
        };
        let [scale_shape, bias_shape] = state.shapes;
        let [scale_dtype, bias_dtype] = state.dtypes;
        if let (Some(node), Some(shape), Some(dtype)) = (scale_node, scale_shape, scale_dtype) {
            let product = B::float_mul(grad.clone(), normalized.clone());
            grads.register::<B>(node.id, cast_to::<B>(sum_to::<B>(product, shape), dtype));
        }
        if let (Some(node), Some(shape), Some(dtype)) = (bias_node, bias_shape, bias_dtype) {
            let sum = sum_to::<B>(grad.clone(), shape);
            grads.register::<B>(node.id, cast_to::<B>(sum, dtype));
        }
        if let Some(node) = input_node {
            let grad = match scale {
                Some(scale) => B::float_mul(grad, widen::<B>(with_rank::<B>(scale, rank))),
                None => grad,
            };
            let grad = input_gradient::<B>(grad, centered, normalized, rstd, spec);
            grads.register::<B>(node.id, cast_to::<B>(grad, dtype));
        }
    }
}

/// The gradient of the input from that of the normalized value `n = c * rstd`, `c = x - mean`:
///
/// ```text
/// dx = rstd * (dn - mean(dn) - n * mean(dn * n))
/// ```
///
/// without the first mean where none is taken off, and with `c / deviation` for the second `n`
/// where epsilon is added to the deviation, as that is what `d rstd / dx` then goes by.
fn input_gradient<B: Backend>(
    grad: FloatTensor<B>,
    centered: FloatTensor<B>,
    normalized: FloatTensor<B>,
    rstd: Option<FloatTensor<B>>,
    spec: &NormSpec,
) -> FloatTensor<B> {
    let mean = |tensor: FloatTensor<B>| mean_over::<B>(tensor, &spec.axes);
    let Some(rstd) = rstd else {
        return match spec.reduction {
            Reduction::Mean => B::float_sub(grad.clone(), mean(grad)),
            _ => grad,
        };
    };
    let slope = mean(B::float_mul(grad.clone(), normalized.clone()));
    let direction = match spec.epsilon {
        Epsilon::InsideSqrt(_) => normalized,
        Epsilon::AddedToDeviation(epsilon) => {
            let deviation = B::float_add_scalar(B::float_recip(rstd.clone()), (-epsilon).into());
            // A row without deviation has centered values of 0 and no direction.
            let deviation = B::float_clamp_min(deviation, f64::from(f32::MIN_POSITIVE).into());
            B::float_div(centered, deviation)
        }
    };
    let mut inner = B::float_sub(grad.clone(), B::float_mul(direction, slope));
    if spec.reduction == Reduction::MeanVariance {
        inner = B::float_sub(inner, mean(grad));
    }
    B::float_mul(inner, rstd)
}

/// Sums a gradient over what a parameter was broadcast over.
fn sum_to<B: Backend>(grad: FloatTensor<B>, shape: Shape) -> FloatTensor<B> {
    let full = grad.shape();
    let missing = full.num_dims() - shape.num_dims();
    let summed = (0..full.num_dims())
        .filter(|&dim| full[dim] != 1 && (dim < missing || shape[dim - missing] == 1))
        .fold(grad, |grad, dim| B::float_sum_dim(grad, dim));
    B::float_reshape(summed, shape)
}

fn normalize_tracked<B: NormBackend, C: CheckpointStrategy>(
    input: FloatTensor<Autodiff<B, C>>,
    scale: Option<FloatTensor<Autodiff<B, C>>>,
    bias: Option<FloatTensor<Autodiff<B, C>>>,
    spec: NormSpec,
) -> FloatTensor<Autodiff<B, C>> {
    let shape = |tensor: &Option<FloatTensor<Autodiff<B, C>>>| tensor.as_ref().map(|t| t.shape());
    let dtype = |tensor: &Option<FloatTensor<Autodiff<B, C>>>| tensor.as_ref().map(|t| t.dtype());
    let shapes = [shape(&scale), shape(&bias)];
    let dtypes = [dtype(&scale), dtype(&bias)];
    // An absent parameter is a leaf that needs no gradient.
    let stand_in = Autodiff::<B, C>::from_inner(input.primitive().clone());
    let nodes = [
        input.node(),
        scale.as_ref().unwrap_or(&stand_in).node(),
        bias.as_ref().unwrap_or(&stand_in).node(),
    ];
    let forward = |input: FloatTensor<Autodiff<B, C>>,
                   scale: Option<FloatTensor<Autodiff<B, C>>>,
                   bias: Option<FloatTensor<Autodiff<B, C>>>,
                   spec: NormSpec| {
        let inner = |tensor: Option<FloatTensor<Autodiff<B, C>>>| {
            Optional::from(tensor.map(|tensor| tensor.into_primitive()))
        };
        B::normalize(input.into_primitive(), inner(scale), inner(bias), spec)
    };
    match Normalize.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            let state = State {
                input: prep.checkpoint(&input),
                scale: scale.as_ref().map(|scale| prep.checkpoint(scale)),
                shapes,
                dtypes,
                spec: spec.clone(),
            };
            prep.finish(state, forward(input, scale, bias, spec))
        }
        OpsKind::UnTracked(prep) => prep.finish(forward(input, scale, bias, spec)),
    }
}
