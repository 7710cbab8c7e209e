//! The norms of a block as an optimization. A norm whose shapes or numbers do not fit runs as Burn runs it.

use std::sync::Arc;

use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::FusedOperation;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl_fusion::{CubeFusionHandle, FallbackOperation};
use burn_fusion::stream::{Context, ScalarId};
use burn_ir::{OperationIr, TensorIr, TensorStatus};
use cubecl::Device;
use cubecl::client::Client;
use cubenorm_core::{NormDesc, TensorDesc};

use super::fuser::norms;
use super::graph::{Graph, name};
use super::lower::{Lowered, Values, lower};
use super::pattern::{Condition, Constant, Draft, Function, Operand};
use super::record::{self, Runs};
use super::schedule::{Step, schedule};
use super::segments::Segments;
use super::threshold;
use crate::install::DeclineReason;
use crate::ops::{Descs, NormBackend, Operands, Optional, in_shape};

/// Name of the optimization, which stored execution plans are restored by. A new number for a new state.
pub(super) const NAME: &str = "cubenorm/norm/1";

/// Operations of a block with norms in it.
pub(super) struct NormOptimization {
    device: Device,
    operations: Vec<OperationIr>,
    norms: Vec<Norm>,
    /// Orders of the block. Each is made when its norms first fit.
    orders: Vec<Order>,
}

/// An order of the block, for the norms that fit.
struct Order {
    fit: Vec<bool>,
    parts: Vec<Part>,
}

enum Part {
    /// A norm, by its position.
    Norm(usize),
    Burn(Segments),
}

struct Norm {
    draft: Draft,
    /// The last shapes and numbers, and what became of them.
    last: Option<(Key, Result<Ready, DeclineReason>)>,
}

/// Shapes and numbers of a run.
type Key = (Vec<usize>, Vec<u64>);

/// A norm that is checked and counted.
#[derive(Clone)]
struct Ready {
    lowered: Arc<Lowered>,
    runs: Runs,
}

impl NormOptimization {
    pub(super) fn new(device: &Device, operations: Vec<OperationIr>) -> Self {
        let norms = norms(&operations).into_iter();
        let norms = norms.map(|draft| Norm { draft, last: None });
        Self {
            device: device.clone(),
            norms: norms.collect(),
            operations,
            orders: Vec::new(),
        }
    }

    /// Position of the order for the norms that fit.
    fn order(&mut self, fit: Vec<bool>) -> usize {
        if let Some(known) = self.orders.iter().position(|order| order.fit == fit) {
            return known;
        }
        let parts = self.parts(&fit);
        self.orders.push(Order { fit, parts });
        self.orders.len() - 1
    }

    fn parts(&self, fit: &[bool]) -> Vec<Part> {
        let graph = Graph::new(&self.operations);
        let fitting: Vec<usize> = (0..fit.len()).filter(|&norm| fit[norm]).collect();
        let drafts: Vec<&Draft> = fitting
            .iter()
            .map(|&norm| &self.norms[norm].draft)
            .collect();
        // An operation that frees what a norm reads may have been part of another norm, which does not fit.
        let steps = schedule(&graph, &drafts).or_else(|_| schedule(&graph, &[]));
        let steps = steps.unwrap_or_else(|_| (0..graph.len()).map(Step::Operation).collect());
        let is_operation = |step: &Step| matches!(step, Step::Operation(_));
        let runs = steps.chunk_by(|a, b| is_operation(a) && is_operation(b));
        runs.map(|run| match run {
            [Step::Norm(norm)] => Part::Norm(fitting[*norm]),
            run => {
                let positions = run.iter().filter_map(|step| match step {
                    Step::Operation(at) => Some(*at),
                    Step::Norm(_) => None,
                });
                let positions: Vec<usize> = positions.collect();
                Part::Burn(Segments::new(&self.device, &self.operations, &positions))
            }
        })
        .collect()
    }
}

impl FusedOperation for NormOptimization {
    const NAME: &'static str = NAME;

    /// The operations. What is found in them depends on them alone.
    type State = Vec<OperationIr>;

    fn num_ops_fused(&self) -> usize {
        self.operations.len()
    }

    fn max_relative_shape_id(&self) -> Option<usize> {
        let tensors = self.operations.iter().flat_map(OperationIr::nodes);
        tensors
            .flat_map(|tensor| tensor.shape.iter().copied())
            .max()
    }

    fn run(
        &mut self,
        context: &mut Context<CubeFusionHandle>,
        fallback: &dyn Fn(usize) -> Box<dyn FallbackOperation>,
    ) {
        let mut ready = Vec::with_capacity(self.norms.len());
        for norm in &mut self.norms {
            ready.push(norm.ready(&self.device, &self.operations, context));
        }
        let order = self.order(ready.iter().map(Option::is_some).collect());
        for part in &mut self.orders[order].parts {
            match part {
                Part::Burn(segments) => segments.run(context, fallback),
                Part::Norm(norm) => {
                    if let Some(ready) = &ready[*norm] {
                        launch(&self.norms[*norm].draft, &ready.lowered, context);
                        ready.runs.count();
                    }
                }
            }
        }
    }

    fn to_state(&self) -> Self::State {
        self.operations.clone()
    }

    fn from_state(device: &Device, operations: Self::State) -> Self {
        Self::new(device, operations)
    }
}

impl Norm {
    /// The norm with the shapes and numbers of a run; None if they do not fit.
    fn ready(
        &mut self,
        device: &Device,
        operations: &[OperationIr],
        context: &Context<CubeFusionHandle>,
    ) -> Option<Ready> {
        let key = key(&self.draft, context);
        if let Some((last, result)) = &self.last
            && *last == key
        {
            return result.clone().ok();
        }
        let prepared = prepare(&self.draft, device, context);
        let result = prepared.map(|(lowered, desc, client)| Ready {
            runs: record::matched(&self.draft, &desc, &client),
            lowered: Arc::new(lowered),
        });
        if let Err(reason) = &result {
            let taken = self.draft.taken.iter();
            let names: Vec<_> = taken.map(|&at| name(&operations[at])).collect();
            record::declined(&names.join(", "), reason);
        }
        self.last = Some((key, result.clone()));
        result.ok()
    }
}

/// Runs a norm.
fn launch(draft: &Draft, lowered: &Lowered, context: &mut Context<CubeFusionHandle>) {
    let mut params = |operand: &Option<Operand>, shape: &Option<Shape>| {
        let (operand, shape) = (operand.as_ref()?, shape.as_ref()?);
        Some(in_shape(tensor(context, &operand.tensor), shape))
    };
    let residual = draft.residual.as_ref().map(|(operand, _)| operand.clone());
    let residual = params(&residual, &lowered.residual);
    let scale = params(&draft.scale, &lowered.scale);
    let bias = params(&draft.bias, &lowered.bias);
    let mean = params(&draft.mean, &lowered.mean);
    let variance = params(&draft.variance, &lowered.variance);
    let input = in_shape(tensor(context, &draft.input), &lowered.view);
    let (scale, bias) = alike(input.dtype, scale, bias);
    let (mean, variance) = alike(input.dtype, mean, variance);
    let normalized = CubeBackend::normalize(
        Operands {
            input,
            residual: residual.into(),
            scale: scale.into(),
            bias: bias.into(),
            mean: mean.into(),
            variance: variance.into(),
        },
        lowered.spec.clone(),
    );
    let output = in_shape(normalized.output, &lowered.output);
    register(context, &draft.output, output);
    if let (Some(sum), Some(shape), Optional::Some(written)) =
        (&draft.sum, &lowered.sum, normalized.sum)
    {
        register(context, sum, in_shape(written, shape));
    }
}

/// A tensor of the block. It is not freed: the queue frees it when the block has run.
fn tensor(context: &mut Context<CubeFusionHandle>, relative: &TensorIr) -> CubeTensor {
    let mut tensor = global(context, relative).clone();
    tensor.status = TensorStatus::ReadOnly;
    context.handles.get_float_tensor::<CubeBackend>(&tensor)
}

fn register(context: &mut Context<CubeFusionHandle>, relative: &TensorIr, tensor: CubeTensor) {
    let id = global(context, relative).id;
    context
        .handles
        .register_float_tensor::<CubeBackend>(&id, tensor);
}

fn global<'a>(context: &'a Context<CubeFusionHandle>, relative: &TensorIr) -> &'a TensorIr {
    context
        .tensors
        .get(&relative.id)
        .expect("the context has all tensors of the block")
}

/// The dtypes of a pair of parameters, as the kernels read them.
fn param_dtype(input: DType, pair: [Option<DType>; 2]) -> Option<DType> {
    let wide = crate::ops::wider(input).map_or(input, DType::from);
    let mut dtypes = pair.into_iter().flatten();
    let first = dtypes.next()?;
    let is_read = |dtype: DType| dtype == input || dtype == wide;
    match dtypes.all(|dtype| dtype == first) && is_read(first) {
        true => Some(first),
        false => Some(wide),
    }
}

/// Casts a pair of parameters to a dtype that the kernels read.
fn alike(
    input: DType,
    first: Option<CubeTensor>,
    second: Option<CubeTensor>,
) -> (Option<CubeTensor>, Option<CubeTensor>) {
    let dtypes = [&first, &second].map(|tensor| tensor.as_ref().map(|tensor| tensor.dtype));
    let Some(dtype) = param_dtype(input, dtypes) else {
        return (first, second);
    };
    let cast = |tensor: CubeTensor| match tensor.dtype == dtype {
        true => tensor,
        false => burn_cubecl::kernel::cast(tensor, dtype),
    };
    (first.map(cast), second.map(cast))
}

/// Values of a block that runs.
struct Global<'a>(&'a Context<CubeFusionHandle>);

impl Values for Global<'_> {
    fn shape(&self, tensor: &TensorIr) -> Vec<usize> {
        // A tensor's position does not say which shape it has where it is read, but its id does.
        global(self.0, tensor).shape.to_vec()
    }

    fn number(&self, id: ScalarId) -> Option<f64> {
        let scalar = self.0.scalars.get(&id).copied();
        // A number that is not there fits no formula.
        Some(scalar.map_or(f64::NAN, |scalar| scalar.elem()))
    }
}

/// Everything that a lowering depends on.
fn key(draft: &Draft, context: &Context<CubeFusionHandle>) -> Key {
    let values = Global(context);
    let mut sizes = Vec::new();
    for tensor in draft
        .fulls
        .iter()
        .chain(draft.reads())
        .chain(draft.writes())
    {
        sizes.extend(global(context, tensor).shape.iter().copied());
    }
    let mut numbers = Vec::new();
    let mut add = |id| numbers.push(values.number(id).unwrap_or(f64::NAN).to_bits());
    match draft.epsilon {
        Constant::None => {}
        Constant::InsideSqrt(id) | Constant::AddedToDeviation(id) => add(id),
    }
    if let Function::LeakyRelu(slope) = draft.function {
        add(slope);
    }
    draft.linear.iter().for_each(|&(_, id)| add(id));
    for condition in &draft.conditions {
        match condition {
            Condition::Is(id, _) => add(*id),
            Condition::Mean { factors, .. } => factors.iter().for_each(|&(id, _)| add(id)),
        }
    }
    (sizes, numbers)
}

/// Lowers a norm with the values of a run, and checks that the device runs it.
fn prepare(
    draft: &Draft,
    device: &Device,
    context: &Context<CubeFusionHandle>,
) -> Result<(Lowered, NormDesc, Client), DeclineReason> {
    let lowered = lower(draft, &Global(context))?;
    let client = device.client();
    threshold::check(lowered.view.iter().product())?;
    let input = draft.input.dtype;
    let dtype_of = |operand: &Option<Operand>| Some(operand.as_ref()?.tensor.dtype);
    let params = param_dtype(input, [dtype_of(&draft.scale), dtype_of(&draft.bias)]);
    let provided = param_dtype(input, [dtype_of(&draft.mean), dtype_of(&draft.variance)]);
    let desc = |shape: Option<&Shape>, dtype: Option<DType>| {
        let (shape, dtype) = (shape?, crate::ops::dtype(dtype?)?);
        Some(TensorDesc::contiguous(shape.to_vec(), dtype))
    };
    let not_read = || DeclineReason::Refused(format!("the kernels do not read {input:?}"));
    let residual = draft
        .residual
        .as_ref()
        .map(|(operand, _)| operand.tensor.dtype);
    let descs = Descs {
        input: desc(Some(&lowered.view), Some(input)).ok_or_else(not_read)?,
        residual: desc(lowered.residual.as_ref(), residual),
        scale: desc(lowered.scale.as_ref(), params),
        bias: desc(lowered.bias.as_ref(), params),
        mean: desc(lowered.mean.as_ref(), provided),
        variance: desc(lowered.variance.as_ref(), provided),
    };
    let desc = lowered.spec.desc(descs);
    let checked = cubenorm_kernels::check_forward(&client, &desc);
    checked.map_err(|refusal| DeclineReason::Refused(refusal.to_string()))?;
    Ok((lowered, desc, client))
}
