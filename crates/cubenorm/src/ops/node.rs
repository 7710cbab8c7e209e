//! Gradients of functions that are several operations of a backend: one autodiff node, whose backward pass works on
//! Burn's tensors.
//!
//! The functions over several devices need it. Their backward pass calls a [`Collective`](crate::distributed::Collective),
//! which knows tensors but no backends.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::{
    BalancedCheckpointing, CheckpointStrategy, NoCheckpointing,
};
use burn::backend::autodiff::grads::Gradients as Grads;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, BackendTensor, DispatchDevice, DispatchKindConversion,
    DispatchTensor,
};
use burn::tensor::{GradientCheckpointingStrategy, Tensor};

/// Backward pass of a function of an input, a scale and a bias.
pub(crate) trait Gradient<const D: usize>: Clone + Debug + Send + 'static {
    /// Gradients of input, scale and bias, each if `wanted`.
    fn backward(self, tensors: Retrieved<D>, wanted: [bool; 3]) -> Passed<D>;
}

/// Tensors that a node has kept, and the gradient of its output. None has autodiff.
pub(crate) struct Retrieved<const D: usize> {
    pub(crate) input: Tensor<D>,
    pub(crate) scale: Option<Tensor<1>>,
    pub(crate) dy: Tensor<D>,
}

/// Gradients of a node.
pub(crate) struct Passed<const D: usize> {
    pub(crate) input: Option<Tensor<D>>,
    pub(crate) scale: Option<Tensor<1>>,
    pub(crate) bias: Option<Tensor<1>>,
}

/// Gives `output`, which has no autodiff, the gradient of a function of these tensors. Returns it as it is if none of
/// them has autodiff.
///
/// The tensors are on one device, with one gradient checkpointing strategy.
pub(crate) fn attach<const D: usize, G: Gradient<D>>(
    input: Tensor<D>,
    params: [Option<Tensor<1>>; 2],
    output: Tensor<D>,
    gradient: G,
) -> Tensor<D> {
    let of_params = params.iter().flatten();
    let strategies = of_params.filter_map(Tensor::gradient_checkpointing_strategy);
    let strategy = input.gradient_checkpointing_strategy();
    let Some(strategy) = strategy.into_iter().chain(strategies).next() else {
        return output;
    };
    let node = Node {
        input,
        params,
        output,
        gradient,
        strategy,
    };
    let device = node.output.device();
    match device.as_dispatch() {
        #[cfg(feature = "cube")]
        DispatchDevice::Cube(_) => node.on::<burn::backend::Cube>(),
        #[cfg(feature = "flex")]
        DispatchDevice::Flex(_) => node.on::<burn::backend::Flex>(),
        #[allow(unreachable_patterns)]
        other => unreachable!("a checked call is on a backend of this build, not on {other:?}"),
    }
}

/// A node before its backend and its strategy are known as types.
#[cfg_attr(not(any(feature = "cube", feature = "flex")), allow(dead_code))]
struct Node<const D: usize, G> {
    input: Tensor<D>,
    params: [Option<Tensor<1>>; 2],
    output: Tensor<D>,
    gradient: G,
    strategy: GradientCheckpointingStrategy,
}

#[cfg_attr(not(any(feature = "cube", feature = "flex")), allow(dead_code))]
impl<const D: usize, G: Gradient<D>> Node<D, G> {
    fn on<B: Backend>(self) -> Tensor<D>
    where
        DispatchTensor: DispatchKindConversion<B>
            + DispatchKindConversion<Autodiff<B, NoCheckpointing>>
            + DispatchKindConversion<Autodiff<B, BalancedCheckpointing>>,
    {
        match self.strategy {
            GradientCheckpointingStrategy::Disabled => self.register::<B, NoCheckpointing>(),
            GradientCheckpointingStrategy::Balanced => self.register::<B, BalancedCheckpointing>(),
        }
    }

    fn register<B: Backend, C: CheckpointStrategy>(self) -> Tensor<D>
    where
        DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B, C>>,
    {
        let strategy = self.strategy;
        let input = tracked::<B, C, D>(self.input, strategy);
        let [scale, bias] = self
            .params
            .map(|param| param.map(|param| tracked::<B, C, 1>(param, strategy)));
        // An absent parameter is a leaf that needs no gradient.
        let stand_in = Autodiff::<B, C>::from_inner(primitive::<B, D>(self.output.clone()));
        let nodes = [
            input.node(),
            scale.as_ref().unwrap_or(&stand_in).node(),
            bias.as_ref().unwrap_or(&stand_in).node(),
        ];
        let output = primitive::<B, D>(self.output);
        let step = PassBack::<D, G>(PhantomData);
        // Compute-bound: recomputing it would call the collective once more.
        let prepared = Backward::<B, 3>::prepare::<C>(step, nodes).compute_bound();
        let output: FloatTensor<Autodiff<B, C>> = match prepared.stateful() {
            OpsKind::Tracked(mut prep) => {
                let state = State {
                    input: prep.checkpoint(&input),
                    scale: scale.as_ref().map(|scale| prep.checkpoint(scale)),
                    gradient: self.gradient,
                };
                prep.finish(state, output)
            }
            OpsKind::UnTracked(prep) => prep.finish(output),
        };
        wrapped::<Autodiff<B, C>, D>(output)
    }
}

/// A tensor without autodiff, on its backend.
fn primitive<B: Backend, const D: usize>(tensor: Tensor<D>) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let dispatch = tensor.into_dispatch();
    let tensor = <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(dispatch);
    let tensor = tensor.expect("a tensor is on the backend of its device");
    tensor.float()
}

/// A tensor with autodiff on its backend, a constant if it has none.
fn tracked<B: Backend, C: CheckpointStrategy, const D: usize>(
    tensor: Tensor<D>,
    strategy: GradientCheckpointingStrategy,
) -> FloatTensor<Autodiff<B, C>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<B, C>>,
{
    let tensor = match tensor.is_autodiff() {
        true => tensor,
        false => tensor
            .autodiff()
            .with_gradient_checkpointing_strategy(strategy),
    };
    let dispatch = tensor.into_dispatch();
    let tensor =
        <DispatchTensor as DispatchKindConversion<Autodiff<B, C>>>::try_into_backend(dispatch);
    let tensor = tensor.expect("a tensor has its backend and its strategy");
    tensor.float()
}

/// A tensor of a backend as one of Burn's.
fn wrapped<B: Backend, const D: usize>(tensor: FloatTensor<B>) -> Tensor<D>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let tensor = BackendTensor::<B>::Float(tensor);
    Tensor::from_dispatch(<DispatchTensor as DispatchKindConversion<B>>::from_backend(
        tensor,
    ))
}

/// State of a node for its backward pass.
#[derive(Debug, Clone)]
struct State<G> {
    input: NodeId,
    scale: Option<NodeId>,
    gradient: G,
}

#[derive(Debug)]
struct PassBack<const D: usize, G>(PhantomData<G>);

impl<B: Backend, const D: usize, G: Gradient<D>> Backward<B, 3> for PassBack<D, G>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = State<G>;

    fn backward(self, ops: Ops<State<G>, 3>, grads: &mut Grads, checkpointer: &mut Checkpointer) {
        let [input_node, scale_node, bias_node] = ops.parents;
        let dy = grads.consume::<B>(&ops.node);
        let scale = ops.state.scale.map(|id| {
            let scale: FloatTensor<B> = checkpointer.retrieve_node_output(id);
            wrapped::<B, 1>(scale)
        });
        let input: FloatTensor<B> = checkpointer.retrieve_node_output(ops.state.input);
        let wanted = [&input_node, &scale_node, &bias_node].map(Option::is_some);
        let tensors = Retrieved {
            input: wrapped::<B, D>(input),
            scale,
            dy: wrapped::<B, D>(dy),
        };
        let passed = ops.state.gradient.backward(tensors, wanted);
        let gradients = [
            (input_node, passed.input.map(primitive::<B, D>)),
            (scale_node, passed.scale.map(primitive::<B, 1>)),
            (bias_node, passed.bias.map(primitive::<B, 1>)),
        ];
        for (node, gradient) in gradients {
            if let (Some(node), Some(gradient)) = (node, gradient) {
                grads.register::<B>(node.id, gradient);
            }
        }
    }
}
