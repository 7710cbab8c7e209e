//! The fused kernels, on every runtime of CubeCL's.
//!
//! A warm call is one look-up by what it is: specification, layouts and dtypes of its tensors, device and tuning. The
//! result has everything that does not change from call to call. Without it, a call is described, validated and planned.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::server::Handle;
use cubecl::zspace::metadata::Metadata;
use cubenorm_core::{
    DType, Knobs, Layout, LerpDesc, StrategyChoice, TensorDesc, WrittenStatistics,
};
use cubenorm_kernels::{
    BackwardTensors, Device, ForwardTensors, LaunchError, PlanCache, PreparedBackward,
    PreparedForward, PreparedPair, hardware, launch_lerp,
};

use super::spec::{Descs, burn_dtype};
use super::view::shaped;
use super::{
    BackwardOperands, BackwardSpec, Gradients, HeadOperands, HeadSpec, Heads, NormBackend,
    NormSpec, Normalized, Operands, Optional, QuantizedOperands, QuantizedParts, QuantizedSpec,
    Running, RunningOperands, dtype, portable,
};
use crate::tuning::{Tuning, tuning};

impl NormBackend for CubeBackend {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        let Operands {
            input,
            residual,
            scale,
            bias,
            mean,
            variance,
        } = operands;
        let tensors = [
            Some(input),
            residual.into_option(),
            scale.into_option(),
            bias.into_option(),
            mean.into_option(),
            variance.into_option(),
        ];
        let [output, sum, statistics, _] = run(tensors, &spec);
        Normalized {
            output: output.expect("a forward pass writes an output"),
            sum: sum.into(),
            statistics: statistics.into(),
        }
    }

    fn update_running(operands: RunningOperands<Self>, momentum: f64) -> Running<Self> {
        let statistics = burn_cubecl::kernel::into_contiguous(operands.statistics);
        Running {
            mean: moved(&statistics, 0, operands.mean, momentum),
            variance: moved(&statistics, 2, operands.variance, momentum),
        }
    }

    fn row_statistics(input: FloatTensor<Self>, spec: NormSpec) -> FloatTensor<Self> {
        let [_, _, statistics, _] = run([Some(input), None, None, None, None, None], &spec);
        statistics.expect("the specification writes statistics")
    }

    fn normalize_heads(operands: HeadOperands<Self>, spec: HeadSpec) -> Heads<Self> {
        let HeadOperands {
            query,
            key,
            query_scale,
            key_scale,
            rotation,
        } = operands;
        let tensors = [
            Some(query),
            Some(key),
            query_scale.into_option(),
            key_scale.into_option(),
            rotation.into_option(),
        ];
        let [query, key, ..] = run(tensors, &spec);
        let written = "a forward pass writes an output";
        Heads {
            query: query.expect(written),
            key: key.expect(written),
        }
    }

    fn normalize_quantized(
        operands: QuantizedOperands<Self>,
        spec: QuantizedSpec,
    ) -> QuantizedParts<Self> {
        let shape = operands.input.shape();
        let tensors = [
            Some(operands.input),
            operands.residual.into_option(),
            operands.scale.into_option(),
            operands.bias.into_option(),
            operands.codes_scale.into_option(),
        ];
        let [words, sum, scale, _] = run(tensors, &spec);
        let mut words = words.expect("a forward pass writes an output");
        words.dtype = burn::tensor::DType::U32;
        // One number per row, without the dimension that counts them.
        let of_rows = shape.iter().take(shape.num_dims() - 1).copied().chain([1]);
        let of_rows: Shape = of_rows.collect();
        QuantizedParts {
            words,
            scale: scale.map(|scale| in_shape(scale, &of_rows)).into(),
            sum: sum.into(),
        }
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        // A refused pass has reshaped and copied its tensors.
        let has_gate = operands.gate.as_option().is_some();
        let gated = has_gate.then(|| operands.clone());
        let BackwardOperands {
            input,
            output_gradient,
            saved,
            scale,
            bias,
            sum_gradient,
            gate,
        } = operands;
        let tensors = [
            Some(input),
            Some(output_gradient),
            saved.into_option(),
            scale.into_option(),
            bias.into_option(),
            sum_gradient.into_option(),
            gate.into_option(),
        ];
        match try_run(tensors, &spec) {
            Ok(gradients) => {
                let [input, scale, bias, gate] = gradients.map(Optional::from);
                Gradients {
                    input,
                    scale,
                    bias,
                    gate,
                }
            }
            Err(refused) => match gated.filter(|_| refused.error.lacks_bindings()) {
                Some(operands) => portable::normalize_backward_gated(operands, &spec),
                None => panic!("{}", refused.error),
            },
        }
    }
}

/// A running statistic after a batch that has it as the number `which` of its channels.
fn moved(statistics: &CubeTensor, which: usize, old: CubeTensor, momentum: f64) -> CubeTensor {
    let old = burn_cubecl::kernel::into_contiguous(old);
    let numbers = WrittenStatistics::MeanRstdVariance.count();
    let channels = statistics.meta.num_elements() / numbers;
    let is_float = "the check of the call takes float dtypes only";
    let running = TensorDesc::contiguous([channels], dtype(old.dtype).expect(is_float));
    let desc = LerpDesc {
        input: TensorDesc::new(
            Layout::strided([channels], [numbers]),
            dtype(statistics.dtype).expect(is_float),
        ),
        input_offset: which,
        previous: Some(running.clone()),
        momentum: 1.0 - momentum,
        output: running,
        output_offset: 0,
        deviation: None,
    };
    let handle = old.client.empty(channels * old.dtype.size());
    launch_lerp(
        &old.client,
        &desc,
        &statistics.handle,
        Some(&old.handle),
        &handle,
    )
    .unwrap_or_else(|error| panic!("{error}"));
    CubeTensor { handle, ..old }
}

/// A pass over `N` tensors, of which the first is the input. It writes up to four tensors.
trait Pass<const N: usize>: Hash + PartialEq + Clone + Sized + 'static {
    /// A pass that is validated and planned.
    type Prepared;

    /// Passes of this kind that ran before.
    fn cache() -> &'static PlanCache<Key<Self, N>, Step<Self::Prepared, N>>;

    /// The normalization.
    fn norm(&self) -> &NormSpec;

    /// Shape of a tensor's view.
    fn seen(&self, which: usize, tensor: &CubeTensor) -> Shape;

    /// True if the pass runs on a tensor of this layout. If not, it runs on a contiguous copy.
    fn takes(&self, _which: usize, _tensor: &TensorDesc) -> bool {
        true
    }

    /// Validates and plans the pass, and describes what it writes.
    fn prepare(
        &self,
        client: &Client,
        descs: [Option<TensorDesc>; N],
        tensors: &[Option<CubeTensor>; N],
        choice: StrategyChoice,
    ) -> Result<(Self::Prepared, [Option<TensorDesc>; 4]), LaunchError>;

    /// False if a later call is to prepare the pass again.
    fn is_settled(prepared: &Self::Prepared) -> bool;

    /// The tensor whose shape an output has; None if it has its own.
    fn like(output: usize) -> Option<usize>;

    /// The tensor whose dtype an output has.
    fn dtype_like(output: usize) -> Option<usize> {
        Self::like(output)
    }

    /// Launches the pass.
    fn launch(
        prepared: &Self::Prepared,
        client: &Client,
        tensors: &[Option<CubeTensor>; N],
    ) -> Result<[Option<Handle>; 4], LaunchError>;
}

/// Next step of a call.
#[allow(
    clippy::large_enum_variant,
    reason = "one value per call: a box would be an allocation"
)]
enum Step<P, const N: usize> {
    /// Copies these tensors to contiguous ones: no view of them has the shape that the pass sees.
    Copy([bool; N]),
    /// Launches.
    Launch {
        prepared: P,
        outputs: [Option<Output>; 4],
    },
}

/// A tensor that a pass writes.
struct Output {
    meta: Metadata,
    dtype: burn::tensor::DType,
    /// The shape to copy it to, if no view of it has the caller's shape.
    copied_to: Option<Shape>,
}

/// Runs a pass. The check of the call has planned contiguous tensors of the same shapes on the same device, so these
/// run if anything about the tensors' layouts is refused. An error after that is a defect of this crate.
fn run<S: Pass<N>, const N: usize>(
    tensors: [Option<CubeTensor>; N],
    spec: &S,
) -> [Option<CubeTensor>; 4] {
    try_run(tensors, spec).unwrap_or_else(|refused| panic!("{}", refused.error))
}

/// [`run`] as a [`Result`].
fn try_run<S: Pass<N>, const N: usize>(
    tensors: [Option<CubeTensor>; N],
    spec: &S,
) -> Result<[Option<CubeTensor>; 4], Box<Refused<N>>> {
    match run_tuned(tensors, spec, tuning()) {
        Ok(outputs) => Ok(outputs),
        Err(refused) => run_copies(refused.tensors, spec, [true; N], Tuning::Off),
    }
}

/// A pass that was not launched.
struct Refused<const N: usize> {
    tensors: [Option<CubeTensor>; N],
    error: LaunchError,
}

fn run_tuned<S: Pass<N>, const N: usize>(
    tensors: [Option<CubeTensor>; N],
    spec: &S,
    tuning: Tuning,
) -> Result<[Option<CubeTensor>; 4], Box<Refused<N>>> {
    let client = input(&tensors).client.clone();
    let query = Query {
        device: cubenorm_kernels::device(&client),
        tuning,
        spec,
        tensors: &tensors,
    };
    let step = match S::cache().find(&query) {
        Some(step) => Ok(step),
        None => prepare(&client, &query),
    };
    let launched = step.and_then(|step| match &*step {
        Step::Copy(_) => Ok((step, [const { None }; 4])),
        Step::Launch { prepared, .. } => {
            let handles = S::launch(prepared, &client, &tensors)?;
            Ok((step, handles))
        }
    });
    let (step, handles) = match launched {
        Ok(launched) => launched,
        Err(error) => return Err(Box::new(Refused { tensors, error })),
    };
    match &*step {
        Step::Copy(which) => run_copies(tensors, spec, *which, tuning),
        Step::Launch { outputs, .. } => Ok(wrap(handles, outputs, tensors)),
    }
}

/// Runs a pass of which some tensors are contiguous copies in the shapes that it sees.
fn run_copies<S: Pass<N>, const N: usize>(
    mut tensors: [Option<CubeTensor>; N],
    spec: &S,
    which: [bool; N],
    tuning: Tuning,
) -> Result<[Option<CubeTensor>; 4], Box<Refused<N>>> {
    let shapes = tensors
        .each_ref()
        .map(|tensor| tensor.as_ref().map(TensorMetadata::shape));
    for (at, tensor) in tensors.iter_mut().enumerate() {
        *tensor = tensor.take().map(|tensor| match which[at] {
            true => {
                let seen = spec.seen(at, &tensor);
                let tensor = burn_cubecl::kernel::into_contiguous(tensor);
                shaped::<CubeBackend>(tensor, &seen)
            }
            false => tensor,
        });
    }
    let mut outputs = run_tuned(tensors, spec, tuning)?;
    for (at, output) in outputs.iter_mut().enumerate() {
        let shape = S::like(at).and_then(|like| shapes[like].as_ref());
        if let Some(shape) = shape {
            *output = output.take().map(|output| in_shape(output, shape));
        }
    }
    Ok(outputs)
}

/// Describes, validates and plans a call.
fn prepare<S: Pass<N>, const N: usize>(
    client: &Client,
    query: &Query<'_, S, N>,
) -> Result<Arc<Step<S::Prepared, N>>, LaunchError> {
    let Query { spec, tensors, .. } = query;
    let mut descs = [const { None }; N];
    let mut copied = [false; N];
    for (at, tensor) in tensors.iter().enumerate() {
        if let Some(tensor) = tensor {
            let seen = desc(tensor, &spec.seen(at, tensor));
            descs[at] = seen.filter(|tensor| spec.takes(at, tensor));
            copied[at] = descs[at].is_none();
        }
    }
    if copied.contains(&true) {
        let step = Arc::new(Step::Copy(copied));
        S::cache().insert(query, step.clone());
        return Ok(step);
    }
    let choice = match spec.norm().batch_invariant {
        true => Knobs::batch_invariant().into(),
        false => query.tuning.choice(&hardware(client)),
    };
    let (prepared, descs) = spec.prepare(client, descs, tensors, choice)?;
    let mut outputs = [const { None }; 4];
    for (at, desc) in descs.into_iter().enumerate() {
        let like = |like: Option<usize>| like.and_then(|like| tensors[like].as_ref());
        let (shape, dtype) = (like(S::like(at)), like(S::dtype_like(at)));
        outputs[at] = desc.map(|desc| Output::new(desc, shape, dtype));
    }
    let is_settled = S::is_settled(&prepared);
    let step = Arc::new(Step::Launch { prepared, outputs });
    if is_settled {
        S::cache().insert(query, step.clone());
    }
    Ok(step)
}

fn input<const N: usize>(tensors: &[Option<CubeTensor>; N]) -> &CubeTensor {
    tensors[0].as_ref().expect("every pass has an input")
}

impl Output {
    /// In the shape and dtype of other tensors, or as the kernels write it.
    fn new(desc: TensorDesc, shape: Option<&CubeTensor>, dtype: Option<&CubeTensor>) -> Self {
        let shape = shape.map(TensorMetadata::shape);
        let reshaped = match &shape {
            Some(shape) if shape[..] != desc.layout.shape[..] => desc.layout.reshaped(shape),
            _ => Some(desc.layout.clone()),
        };
        let dtype = match dtype.map(|like| like.dtype) {
            // Kernels do not tell the two apart.
            Some(flex32 @ burn::tensor::DType::Flex32) if desc.dtype == DType::F32 => flex32,
            _ => burn_dtype(desc.dtype),
        };
        let copied_to = shape.filter(|_| reshaped.is_none());
        let Layout { shape, strides } = reshaped.unwrap_or(desc.layout);
        Self {
            meta: Metadata::new(shape, strides),
            dtype,
            copied_to,
        }
    }
}

/// Wraps results as tensors on the input's device. They take over the boxes of the inputs, which are dropped here.
fn wrap<const N: usize>(
    handles: [Option<Handle>; 4],
    outputs: &[Option<Output>; 4],
    tensors: [Option<CubeTensor>; N],
) -> [Option<CubeTensor>; 4] {
    let (client, device) = {
        let input = input(&tensors);
        (input.client.clone(), input.device.clone())
    };
    let mut boxes = tensors.into_iter().flatten().map(|tensor| tensor.meta);
    let mut wrapped = [const { None }; 4];
    let written = handles.into_iter().zip(outputs);
    for (wrapped, (handle, output)) in wrapped.iter_mut().zip(written) {
        let (Some(handle), Some(output)) = (handle, output) else {
            continue;
        };
        let meta = match boxes.next() {
            Some(mut meta) => {
                (*meta).clone_from(&output.meta);
                meta
            }
            None => Box::new(output.meta.clone()),
        };
        let tensor = CubeTensor {
            client: client.clone(),
            handle,
            meta,
            device: device.clone(),
            dtype: output.dtype,
            qparams: None,
        };
        *wrapped = Some(match &output.copied_to {
            Some(shape) => shaped::<CubeBackend>(tensor, shape),
            None => tensor,
        });
    }
    wrapped
}

/// A call, as far as its plan depends on it.
struct Query<'a, S, const N: usize> {
    device: Device,
    tuning: Tuning,
    spec: &'a S,
    tensors: &'a [Option<CubeTensor>; N],
}

/// Key of a call.
struct Key<S, const N: usize> {
    device: Device,
    tuning: Tuning,
    spec: S,
    tensors: [Option<Seen>; N],
}

/// Everything of a tensor that a plan depends on.
struct Seen {
    meta: Metadata,
    dtype: burn::tensor::DType,
    padded_bytes: u64,
}

/// Bytes of a buffer whose layout has gaps, else 0: a plan may compute padding that the buffer contains.
fn padded_bytes(tensor: &CubeTensor) -> u64 {
    let mut stride = 1;
    let dims = tensor.meta.shape().iter().zip(tensor.meta.strides().iter());
    for (&size, &actual) in dims.rev() {
        if size != 1 && actual != stride {
            return tensor.handle.size_in_used();
        }
        stride *= size;
    }
    0
}

impl<S: Hash, const N: usize> Hash for Query<'_, S, N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.device.hash(state);
        self.tuning.hash(state);
        self.spec.hash(state);
        for tensor in self.tensors {
            tensor.is_some().hash(state);
            if let Some(tensor) = tensor {
                tensor.meta.shape().hash(state);
                tensor.meta.strides().hash(state);
                tensor.dtype.hash(state);
            }
        }
    }
}

impl<S: Hash + PartialEq + Clone, const N: usize> cubenorm_kernels::Query<Key<S, N>>
    for Query<'_, S, N>
{
    fn matches(&self, key: &Key<S, N>) -> bool {
        let is_same = |(tensor, seen): (&Option<CubeTensor>, &Option<Seen>)| match (tensor, seen) {
            (Some(tensor), Some(seen)) => {
                *tensor.meta == seen.meta
                    && tensor.dtype == seen.dtype
                    && padded_bytes(tensor) == seen.padded_bytes
            }
            (None, None) => true,
            _ => false,
        };
        self.device == key.device
            && self.tuning == key.tuning
            && *self.spec == key.spec
            && self.tensors.iter().zip(&key.tensors).all(is_same)
    }

    fn to_key(&self) -> Key<S, N> {
        let seen = |tensor: &CubeTensor| Seen {
            meta: (*tensor.meta).clone(),
            dtype: tensor.dtype,
            padded_bytes: padded_bytes(tensor),
        };
        Key {
            device: self.device,
            tuning: self.tuning,
            spec: self.spec.clone(),
            tensors: self
                .tensors
                .each_ref()
                .map(|tensor| tensor.as_ref().map(seen)),
        }
    }
}

fn handle(tensor: &Option<CubeTensor>) -> Option<Handle> {
    tensor.as_ref().map(|tensor| tensor.handle.clone())
}

impl Pass<6> for NormSpec {
    type Prepared = PreparedForward;

    fn cache() -> &'static PlanCache<Key<Self, 6>, Step<PreparedForward, 6>> {
        static FORWARD: PlanCache<Key<NormSpec, 6>, Step<PreparedForward, 6>> = PlanCache::new();
        &FORWARD
    }

    fn norm(&self) -> &NormSpec {
        self
    }

    fn seen(&self, which: usize, tensor: &CubeTensor) -> Shape {
        match which {
            0 | 1 => self.seen_shape(&tensor.shape()),
            _ => self.seen_param_shape(&tensor.shape()),
        }
    }

    fn prepare(
        &self,
        client: &Client,
        descs: [Option<TensorDesc>; 6],
        tensors: &[Option<CubeTensor>; 6],
        choice: StrategyChoice,
    ) -> Result<(PreparedForward, [Option<TensorDesc>; 4]), LaunchError> {
        let [input, residual, scale, bias, mean, variance] = descs;
        let desc = self.desc(Descs {
            input: input.expect("every pass has an input"),
            residual,
            scale,
            bias,
            mean,
            variance,
        });
        let prepared = PreparedForward::new(client, &desc, &forward_tensors(tensors), choice)?;
        let output = prepared.output().clone();
        let sum = prepared.sum().cloned();
        let statistics = prepared.statistics().cloned();
        let output = self.writes_output.then_some(output);
        Ok((prepared, [output, sum, statistics, None]))
    }

    fn is_settled(prepared: &PreparedForward) -> bool {
        prepared.is_settled()
    }

    fn like(output: usize) -> Option<usize> {
        // Statistics have a shape of their own.
        (output < 2).then_some(0)
    }

    fn launch(
        prepared: &PreparedForward,
        client: &Client,
        tensors: &[Option<CubeTensor>; 6],
    ) -> Result<[Option<Handle>; 4], LaunchError> {
        // No one else has the input's buffer, so the output may take it.
        let is_last = input(tensors).can_mut();
        let tensors = forward_tensors(tensors);
        let written = match is_last {
            true => prepared.launch_in_place(client, &tensors)?,
            false => prepared.launch(client, &tensors)?,
        };
        Ok([Some(written.output), written.sum, written.statistics, None])
    }
}

fn forward_tensors(tensors: &[Option<CubeTensor>; 6]) -> ForwardTensors {
    let [_, residual, scale, bias, mean, variance] = tensors.each_ref().map(handle);
    ForwardTensors {
        input: input(tensors).handle.clone(),
        residual,
        scale,
        bias,
        mean,
        variance,
        rotation: None,
        codes_scale: None,
        output: None,
    }
}

impl Pass<7> for BackwardSpec {
    type Prepared = PreparedBackward;

    fn cache() -> &'static PlanCache<Key<Self, 7>, Step<PreparedBackward, 7>> {
        static BACKWARD: PlanCache<Key<BackwardSpec, 7>, Step<PreparedBackward, 7>> =
            PlanCache::new();
        &BACKWARD
    }

    fn norm(&self) -> &NormSpec {
        &self.norm
    }

    fn seen(&self, which: usize, tensor: &CubeTensor) -> Shape {
        match which {
            0 | 1 | 5 | 6 => self.norm.seen_shape(&tensor.shape()),
            // The saved statistics have a shape of their own.
            2 => tensor.shape(),
            _ => self.norm.seen_param_shape(&tensor.shape()),
        }
    }

    /// The gradient of the input has the layout of the sum's.
    fn takes(&self, which: usize, tensor: &TensorDesc) -> bool {
        which != 5 || tensor.layout == tensor.layout.kept()
    }

    fn prepare(
        &self,
        client: &Client,
        descs: [Option<TensorDesc>; 7],
        tensors: &[Option<CubeTensor>; 7],
        choice: StrategyChoice,
    ) -> Result<(PreparedBackward, [Option<TensorDesc>; 4]), LaunchError> {
        let [
            input,
            output_gradient,
            saved,
            scale,
            bias,
            sum_gradient,
            gate,
        ] = descs;
        let descs = Descs {
            input: input.expect("every pass has an input"),
            residual: gate,
            scale,
            bias,
            mean: None,
            variance: None,
        };
        let output_gradient = output_gradient.expect("a backward pass has an output gradient");
        let desc = self.desc(descs, output_gradient, saved, sum_gradient);
        let prepared = PreparedBackward::new(client, &desc, &backward_tensors(tensors), choice)?;
        let outputs = prepared.outputs().map(Option::<&TensorDesc>::cloned);
        Ok((prepared, outputs))
    }

    fn is_settled(prepared: &PreparedBackward) -> bool {
        prepared.is_settled()
    }

    fn like(output: usize) -> Option<usize> {
        // Of input, scale, bias and gate.
        Some([0, 3, 4, 0][output])
    }

    fn dtype_like(output: usize) -> Option<usize> {
        Some([0, 3, 4, 6][output])
    }

    fn launch(
        prepared: &PreparedBackward,
        client: &Client,
        tensors: &[Option<CubeTensor>; 7],
    ) -> Result<[Option<Handle>; 4], LaunchError> {
        let written = prepared.launch(client, &backward_tensors(tensors))?;
        Ok([written.input, written.scale, written.bias, written.gate])
    }
}

fn backward_tensors(tensors: &[Option<CubeTensor>; 7]) -> BackwardTensors {
    let [_, output_gradient, saved, scale, bias, sum_gradient, gate] =
        tensors.each_ref().map(handle);
    BackwardTensors {
        input: input(tensors).handle.clone(),
        output_gradient: output_gradient.expect("a backward pass has an output gradient"),
        saved,
        scale,
        bias,
        sum_gradient,
        gate,
        input_gradient: None,
    }
}

impl Pass<5> for HeadSpec {
    type Prepared = PreparedPair;

    fn cache() -> &'static PlanCache<Key<Self, 5>, Step<PreparedPair, 5>> {
        static HEADS: PlanCache<Key<HeadSpec, 5>, Step<PreparedPair, 5>> = PlanCache::new();
        &HEADS
    }

    fn norm(&self) -> &NormSpec {
        &self.norm
    }

    fn seen(&self, _which: usize, tensor: &CubeTensor) -> Shape {
        tensor.shape()
    }

    fn prepare(
        &self,
        client: &Client,
        descs: [Option<TensorDesc>; 5],
        tensors: &[Option<CubeTensor>; 5],
        choice: StrategyChoice,
    ) -> Result<(PreparedPair, [Option<TensorDesc>; 4]), LaunchError> {
        let [query, key, query_scale, key_scale, table] = descs;
        let has_both = "both query and key are there";
        let query = self.desc(query.expect(has_both), query_scale, table.clone());
        let key = self.desc(key.expect(has_both), key_scale, table);
        let tensors = head_tensors(tensors);
        let prepared = PreparedPair::new(client, [&query, &key], tensors.each_ref(), choice)?;
        let [query, key] = prepared.outputs().map(|output| Some(output.clone()));
        Ok((prepared, [query, key, None, None]))
    }

    fn is_settled(_: &PreparedPair) -> bool {
        true
    }

    fn like(output: usize) -> Option<usize> {
        (output < 2).then_some(output)
    }

    fn launch(
        prepared: &PreparedPair,
        client: &Client,
        tensors: &[Option<CubeTensor>; 5],
    ) -> Result<[Option<Handle>; 4], LaunchError> {
        let tensors = head_tensors(tensors);
        let [query, key] = prepared.launch(client, tensors.each_ref())?;
        Ok([Some(query.output), Some(key.output), None, None])
    }
}

impl Pass<5> for QuantizedSpec {
    type Prepared = PreparedForward;

    fn cache() -> &'static PlanCache<Key<Self, 5>, Step<PreparedForward, 5>> {
        static QUANTIZED: PlanCache<Key<QuantizedSpec, 5>, Step<PreparedForward, 5>> =
            PlanCache::new();
        &QUANTIZED
    }

    fn norm(&self) -> &NormSpec {
        &self.norm
    }

    fn seen(&self, _which: usize, tensor: &CubeTensor) -> Shape {
        tensor.shape()
    }

    fn prepare(
        &self,
        client: &Client,
        descs: [Option<TensorDesc>; 5],
        tensors: &[Option<CubeTensor>; 5],
        choice: StrategyChoice,
    ) -> Result<(PreparedForward, [Option<TensorDesc>; 4]), LaunchError> {
        let [input, residual, scale, bias, codes_scale] = descs;
        let descs = Descs {
            input: input.expect("every pass has an input"),
            residual,
            scale,
            bias,
            mean: None,
            variance: None,
        };
        let desc = self.desc(descs, codes_scale);
        let prepared = PreparedForward::new(client, &desc, &quantized_tensors(tensors), choice)?;
        let words = Some(prepared.output().clone());
        let (sum, scale) = (prepared.sum().cloned(), prepared.statistics().cloned());
        Ok((prepared, [words, sum, scale, None]))
    }

    fn is_settled(prepared: &PreparedForward) -> bool {
        prepared.is_settled()
    }

    fn like(output: usize) -> Option<usize> {
        (output == 1).then_some(0)
    }

    fn launch(
        prepared: &PreparedForward,
        client: &Client,
        tensors: &[Option<CubeTensor>; 5],
    ) -> Result<[Option<Handle>; 4], LaunchError> {
        let written = prepared.launch(client, &quantized_tensors(tensors))?;
        Ok([Some(written.output), written.sum, written.statistics, None])
    }
}

fn quantized_tensors(tensors: &[Option<CubeTensor>; 5]) -> ForwardTensors {
    let [_, residual, scale, bias, codes_scale] = tensors.each_ref().map(handle);
    ForwardTensors {
        residual,
        scale,
        bias,
        codes_scale,
        ..ForwardTensors::new(input(tensors).handle.clone())
    }
}

/// Buffers of query and key.
fn head_tensors(tensors: &[Option<CubeTensor>; 5]) -> [ForwardTensors; 2] {
    let [query, key, query_scale, key_scale, rotation] = tensors.each_ref().map(handle);
    let of = |input: Option<Handle>, scale| ForwardTensors {
        scale,
        rotation: rotation.clone(),
        ..ForwardTensors::new(input.expect("both query and key are there"))
    };
    [of(query, query_scale), of(key, key_scale)]
}

/// Reshapes a tensor, without a copy if its strides allow that.
///
/// Burn's own reshape copies every tensor that is not contiguous. For a channels-last convolution it would copy twice: to
/// split the channels into groups, and to merge them again.
pub(crate) fn in_shape(mut tensor: CubeTensor, shape: &Shape) -> CubeTensor {
    if tensor.shape() == *shape {
        return tensor;
    }
    match layout(&tensor).reshaped(shape) {
        Some(layout) => {
            *tensor.meta = Metadata::new(layout.shape, layout.strides);
            tensor
        }
        None => shaped::<CubeBackend>(tensor, shape),
    }
}

fn layout(tensor: &CubeTensor) -> Layout {
    Layout::strided(tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec())
}

/// Description of a tensor's view in a shape. None if only a copy has that shape, or if its strides have another rank:
/// Burn may keep matrices in tiles.
fn desc(tensor: &CubeTensor, shape: &Shape) -> Option<TensorDesc> {
    if tensor.meta.rank() != tensor.rank() {
        return None;
    }
    let layout = layout(tensor);
    let layout = match layout.shape[..] == shape[..] {
        true => layout,
        false => layout.reshaped(shape)?,
    };
    let dtype = dtype(tensor.dtype).expect("the functions of this crate check dtypes first");
    Some(TensorDesc::new(layout, dtype))
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::TensorData;
    use cubecl::future::block_on;
    use cubenorm_core::{Activation, ResidualPlace};

    use super::*;
    use crate::ops::{Reduction, View};

    fn values(tensor: CubeTensor) -> Vec<f32> {
        let data = block_on(CubeBackend::float_into_data(tensor)).unwrap();
        data.try_to_vec::<f32>().unwrap()
    }

    fn matrix(rows: usize, cols: usize) -> CubeTensor {
        let device = cubecl::Device::Cpu(Default::default());
        let numbers: Vec<f32> = (0..rows * cols).map(|i| (i * i % 17) as f32).collect();
        CubeBackend::float_from_data(TensorData::new(numbers, [rows, cols]), &device)
    }

    #[test]
    fn contiguous_copies_give_the_same_results() {
        let x = CubeBackend::float_swap_dims(matrix(6, 4), 0, 1);
        assert_eq!(x.meta.strides().to_vec(), [1, 4]);
        let spec = NormSpec::new([1], Reduction::MeanVariance, 1e-5);
        let tensors = [Some(x), None, None, None, None, None];
        let copied = run_copies(tensors.clone(), &spec, [true; 6], Tuning::Off);
        let [from_view, ..] = run(tensors, &spec);
        let [from_copy, ..] = copied.ok().expect("contiguous tensors run");
        let from_copy = from_copy.expect("an output");
        assert_eq!(from_copy.shape(), Shape::from([4, 6]));
        for (a, b) in values(from_view.unwrap()).iter().zip(values(from_copy)) {
            assert!((a - b).abs() < 1e-5, "{a}, not {b}");
        }
    }

    #[test]
    fn a_gate_without_bindings_gives_the_same_gradients() {
        let row = || CubeBackend::float_reshape(matrix(1, 8), Shape::from([8]));
        let (x, z, dy) = (matrix(4, 8), matrix(4, 8), matrix(4, 8));
        let z = CubeBackend::float_div_scalar(z, 8.0.into());
        let (gamma, beta) = (Optional::Some(row()), Optional::Some(row()));
        for place in [ResidualPlace::OutputGate, ResidualPlace::InputGate] {
            let spec = NormSpec {
                activation: Activation::Silu,
                residual_place: place,
                view: Some(View {
                    input: Shape::from([4, 2, 4]),
                    params: Shape::from([1, 2, 4]),
                }),
                ..NormSpec::new([2], Reduction::MeanVariance, 1e-3)
            };
            let forward = Operands {
                residual: Optional::Some(z.clone()),
                scale: gamma.clone(),
                bias: beta.clone(),
                ..Operands::new(x.clone())
            };
            let kept = NormSpec {
                written_statistics: Some(WrittenStatistics::MeanRstd),
                ..spec.clone()
            };
            let operands = BackwardOperands {
                input: x.clone(),
                output_gradient: dy.clone(),
                saved: CubeBackend::normalize(forward, kept).statistics,
                scale: gamma.clone(),
                bias: beta.clone(),
                sum_gradient: Optional::None,
                gate: Optional::Some(z.clone()),
            };
            let spec = BackwardSpec {
                norm: spec,
                wants_input: true,
                wants_scale: true,
                wants_bias: true,
                wants_gate: true,
            };
            let gradients = |of: Gradients<CubeBackend>| {
                let all = [of.input, of.scale, of.bias, of.gate];
                all.map(|it| it.into_option().expect("it is wanted"))
            };
            let composed = portable::normalize_backward_gated(operands.clone(), &spec);
            let fused = CubeBackend::normalize_backward(operands, spec);
            for (a, b) in gradients(fused).into_iter().zip(gradients(composed)) {
                assert_eq!(a.shape(), b.shape());
                for (a, b) in values(a).iter().zip(values(b)) {
                    assert!((a - b).abs() < 1e-3 * (1.0 + b.abs()), "{a}, not {b}");
                }
            }
        }
    }

    #[test]
    fn tells_layouts_of_one_shape_apart() {
        let spec = NormSpec::new([1], Reduction::MeanVariance, 1e-4);
        let normalized = |x: CubeTensor| {
            let [output, ..] = run([Some(x), None, None, None, None, None], &spec);
            output.expect("an output")
        };
        let square = matrix(6, 6);
        let swapped = CubeBackend::float_swap_dims(square.clone(), 0, 1);
        let contiguous = burn_cubecl::kernel::into_contiguous(swapped.clone());
        // Twice: the second calls are warm.
        for _ in 0..2 {
            let results = [&square, &swapped, &contiguous].map(|x| values(normalized(x.clone())));
            assert_ne!(results[0], results[1]);
            for (a, b) in results[1].iter().zip(&results[2]) {
                assert!((a - b).abs() < 1e-5, "{a}, not {b}");
            }
        }
    }

    #[test]
    fn reads_the_tuning_of_each_call() {
        let spec = NormSpec::new([1], Reduction::MeanVariance, 1e-3);
        let tensors = [Some(matrix(3, 5)), None, None, None, None, None];
        let query = |tuning| Query {
            device: cubenorm_kernels::device(&input(&tensors).client),
            tuning,
            spec: &spec,
            tensors: &tensors,
        };
        run_tuned(tensors.clone(), &spec, Tuning::Off)
            .ok()
            .expect("it runs");
        let cache = <NormSpec as Pass<6>>::cache();
        assert!(cache.find(&query(Tuning::Off)).is_some());
        assert!(cache.find(&query(Tuning::OnFirstCall)).is_none());
    }
}
