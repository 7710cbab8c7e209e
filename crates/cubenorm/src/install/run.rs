//! A norm of a block as an optimization: it runs the kernels, or what Burn would run if shapes or numbers do not fit.

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

use super::burns::{Fallback, Segments};
use super::fuser::{Match, find_in};
use super::lower::{Lowered, Values, lower};
use super::pattern::{Condition, Constant, Function, Operand};
use super::reason::DeclineReason;
use super::report::{self, Runs};
use super::threshold;
use crate::ops::{Descs, NormBackend, Operands, Optional, in_shape};

/// Name of the optimization, which stored execution plans are restored by. A new number for a new state.
pub(super) const NAME: &str = "cubenorm/norm/1";

/// Operations of a block with a norm in it.
pub(super) struct NormOptimization {
    device: Device,
    operations: Vec<OperationIr>,
    norm: Option<Norm>,
    /// All operations as Burn runs them. Built when a norm does not fit.
    burns: Option<Segments>,
}

struct Norm {
    found: Arc<Match>,
    before: Segments,
    after: Segments,
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
    pub(super) fn new(
        device: &Device,
        operations: Vec<OperationIr>,
        found: Option<Arc<Match>>,
    ) -> Self {
        let norm = found.map(|found| {
            let segments = |positions: &[usize]| Segments::new(device, &operations, positions);
            Norm {
                before: segments(&found.schedule.before),
                after: segments(&found.schedule.after),
                last: None,
                found,
            }
        });
        Self {
            device: device.clone(),
            operations,
            norm,
            burns: None,
        }
    }

    fn run_as_burn(&mut self, context: &mut Context<CubeFusionHandle>, fallback: Fallback<'_>) {
        let burns = self.burns.get_or_insert_with(|| {
            let all: Vec<usize> = (0..self.operations.len()).collect();
            Segments::new(&self.device, &self.operations, &all)
        });
        burns.run(context, fallback);
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
        let Some(norm) = &mut self.norm else {
            return self.run_as_burn(context, fallback);
        };
        let Some(ready) = norm.ready(&self.device, &self.operations, context) else {
            return self.run_as_burn(context, fallback);
        };
        norm.before.run(context, fallback);
        norm.launch(&ready.lowered, context);
        norm.after.run(context, fallback);
        ready.runs.count();
    }

    fn to_state(&self) -> Self::State {
        self.operations.clone()
    }

    fn from_state(device: &Device, operations: Self::State) -> Self {
        let found = find_in(&operations).filter(|found| found.schedule.len == operations.len());
        Self::new(device, operations, found.map(Arc::new))
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
        let key = key(&self.found, context);
        if let Some((last, result)) = &self.last
            && *last == key
        {
            return result.clone().ok();
        }
        let result = prepare(&self.found, device, context);
        let name = || {
            let names: Vec<_> = operations.iter().map(super::graph::name).collect();
            names.join(", ")
        };
        let result = result.map(|(lowered, desc, client)| Ready {
            runs: report::matched(self.found.draft.name(), &self.found, &desc, &client),
            lowered: Arc::new(lowered),
        });
        if let Err(reason) = &result {
            report::declined(&name(), reason);
        }
        self.last = Some((key, result.clone()));
        result.ok()
    }

    fn launch(&self, lowered: &Lowered, context: &mut Context<CubeFusionHandle>) {
        let draft = &self.found.draft;
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
fn key(found: &Match, context: &Context<CubeFusionHandle>) -> Key {
    let values = Global(context);
    let draft = &found.draft;
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
    found: &Match,
    device: &Device,
    context: &Context<CubeFusionHandle>,
) -> Result<(Lowered, NormDesc, Client), DeclineReason> {
    let draft = &found.draft;
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
