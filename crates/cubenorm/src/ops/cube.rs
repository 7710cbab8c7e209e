//! The fused kernels, on every runtime of CubeCL's.

use burn::backend::TensorMetadata;
use burn::tensor::Shape;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::client::Client;
use cubecl::zspace::metadata::Metadata;
use cubenorm_core::{DType, Layout, StrategyChoice, TensorDesc};
use cubenorm_kernels::{
    BackwardOutputs, BackwardTensors, ForwardOutputs, ForwardTensors, LaunchError, Tensor,
    hardware, launch_backward, launch_forward,
};

use super::spec::Descs;
use super::view::shaped;
use super::{
    BackwardOperands, BackwardSpec, Gradients, NormBackend, NormSpec, Normalized, Operands,
    Optional, dtype,
};
use crate::tuning::tuning;

impl NormBackend for CubeBackend {
    fn normalize(operands: Operands<Self>, spec: NormSpec) -> Normalized<Self> {
        let like = (operands.input.shape(), operands.input.dtype);
        let inputs = ForwardInputs::new(operands, &spec);
        let client = inputs.input.client.clone();
        let outputs = inputs.launch(&spec, choice(&client));
        let outputs = outputs.or_else(|_| {
            // A layout has arrived that the check of the call did not see.
            let inputs = inputs.contiguous();
            inputs.launch(&spec, StrategyChoice::Inferred)
        });
        let (input, outputs) = (&inputs.input, launched(outputs));
        Normalized {
            output: in_shape(wrap(outputs.output, input, like.1), &like.0),
            sum: optional(outputs.sum, input, Some(&like)),
            statistics: optional(outputs.statistics, input, None),
        }
    }

    fn normalize_backward(operands: BackwardOperands<Self>, spec: BackwardSpec) -> Gradients<Self> {
        let like = |tensor: &CubeTensor| (tensor.shape(), tensor.dtype);
        let likes = [
            Some(like(&operands.input)),
            operands.scale.as_option().map(like),
            operands.bias.as_option().map(like),
        ];
        let inputs = BackwardInputs::new(operands, &spec);
        let client = inputs.input.client.clone();
        let outputs = inputs.launch(&spec, choice(&client));
        let outputs = outputs.or_else(|_| {
            let inputs = inputs.contiguous();
            inputs.launch(&spec, StrategyChoice::Inferred)
        });
        let (input, outputs) = (&inputs.input, launched(outputs));
        let [of_input, of_scale, of_bias] = likes.each_ref().map(Option::as_ref);
        Gradients {
            input: optional(outputs.input, input, of_input),
            scale: optional(outputs.scale, input, of_scale),
            bias: optional(outputs.bias, input, of_bias),
        }
    }
}

/// Inputs of a forward pass, in the shapes that the normalization sees.
struct ForwardInputs {
    input: CubeTensor,
    residual: Option<CubeTensor>,
    scale: Option<CubeTensor>,
    bias: Option<CubeTensor>,
    mean: Option<CubeTensor>,
    variance: Option<CubeTensor>,
}

impl ForwardInputs {
    fn new(operands: Operands<CubeBackend>, spec: &NormSpec) -> Self {
        let see = |tensor: CubeTensor| {
            let shape = spec.seen_shape(&tensor.shape());
            in_shape(untiled(tensor), &shape)
        };
        Self {
            input: see(operands.input),
            residual: operands.residual.into_option().map(see),
            scale: present(operands.scale, spec),
            bias: present(operands.bias, spec),
            mean: present(operands.mean, spec),
            variance: present(operands.variance, spec),
        }
    }

    fn contiguous(&self) -> Self {
        Self {
            input: contiguous(&self.input),
            residual: self.residual.as_ref().map(contiguous),
            scale: self.scale.as_ref().map(contiguous),
            bias: self.bias.as_ref().map(contiguous),
            mean: self.mean.as_ref().map(contiguous),
            variance: self.variance.as_ref().map(contiguous),
        }
    }

    fn launch(
        &self,
        spec: &NormSpec,
        choice: StrategyChoice,
    ) -> Result<ForwardOutputs, LaunchError> {
        let norm = spec.desc(Descs {
            input: desc(&self.input),
            residual: self.residual.as_ref().map(desc),
            scale: self.scale.as_ref().map(desc),
            bias: self.bias.as_ref().map(desc),
            mean: self.mean.as_ref().map(desc),
            variance: self.variance.as_ref().map(desc),
        });
        let tensors = ForwardTensors {
            input: self.input.handle.clone(),
            residual: handle(&self.residual),
            scale: handle(&self.scale),
            bias: handle(&self.bias),
            mean: handle(&self.mean),
            variance: handle(&self.variance),
            output: None,
        };
        launch_forward(&self.input.client, &norm, &tensors, choice)
    }
}

/// Inputs of a backward pass, in the shapes that the normalization sees.
struct BackwardInputs {
    input: CubeTensor,
    output_gradient: CubeTensor,
    saved: Option<CubeTensor>,
    scale: Option<CubeTensor>,
    bias: Option<CubeTensor>,
}

impl BackwardInputs {
    fn new(operands: BackwardOperands<CubeBackend>, spec: &BackwardSpec) -> Self {
        let norm = &spec.norm;
        let see = |tensor: CubeTensor| {
            let shape = norm.seen_shape(&tensor.shape());
            in_shape(untiled(tensor), &shape)
        };
        Self {
            input: see(operands.input),
            output_gradient: see(operands.output_gradient),
            saved: operands.saved.into_option().map(untiled),
            scale: present(operands.scale, norm),
            bias: present(operands.bias, norm),
        }
    }

    fn contiguous(&self) -> Self {
        Self {
            input: contiguous(&self.input),
            output_gradient: contiguous(&self.output_gradient),
            saved: self.saved.as_ref().map(contiguous),
            scale: self.scale.as_ref().map(contiguous),
            bias: self.bias.as_ref().map(contiguous),
        }
    }

    fn launch(
        &self,
        spec: &BackwardSpec,
        choice: StrategyChoice,
    ) -> Result<BackwardOutputs, LaunchError> {
        let gradient = spec.desc(
            Descs {
                input: desc(&self.input),
                residual: None,
                scale: self.scale.as_ref().map(desc),
                bias: self.bias.as_ref().map(desc),
                mean: None,
                variance: None,
            },
            desc(&self.output_gradient),
            self.saved.as_ref().map(desc),
        );
        let tensors = BackwardTensors {
            input: self.input.handle.clone(),
            output_gradient: self.output_gradient.handle.clone(),
            saved: handle(&self.saved),
            scale: handle(&self.scale),
            bias: handle(&self.bias),
            input_gradient: None,
        };
        launch_backward(&self.input.client, &gradient, &tensors, choice)
    }
}

fn choice(client: &Client) -> StrategyChoice {
    tuning().choice(&hardware(client))
}

/// A copy in the layout that the check of the call was made for.
fn contiguous(tensor: &CubeTensor) -> CubeTensor {
    burn_cubecl::kernel::into_contiguous(tensor.clone())
}

/// The outputs of a launch that the check of the call has promised: it planned contiguous tensors of the same shapes on
/// the same device. An error here is a defect of this crate.
fn launched<T>(outputs: Result<T, LaunchError>) -> T {
    outputs.unwrap_or_else(|error| panic!("{error}"))
}

fn present(tensor: Optional<CubeBackend>, spec: &NormSpec) -> Option<CubeTensor> {
    let see = |tensor: CubeTensor| {
        let shape = spec.seen_param_shape(&tensor.shape());
        in_shape(untiled(tensor), &shape)
    };
    tensor.into_option().map(see)
}

fn handle(tensor: &Option<CubeTensor>) -> Option<cubecl::server::Handle> {
    tensor.as_ref().map(|tensor| tensor.handle.clone())
}

/// Wraps a result as a tensor on the input's device. Its dtype is `like` if kernels do not tell the two apart.
fn wrap(tensor: Tensor, input: &CubeTensor, like: burn::tensor::DType) -> CubeTensor {
    let TensorDesc { layout, dtype } = tensor.desc;
    let Layout { shape, strides } = layout;
    let dtype = match like {
        flex32 @ burn::tensor::DType::Flex32 if dtype == DType::F32 => flex32,
        _ => burn_dtype(dtype),
    };
    let (client, device) = (input.client.clone(), input.device.clone());
    CubeTensor::new(
        client,
        tensor.handle,
        Metadata::new(shape, strides),
        device,
        dtype,
    )
}

/// Wraps a result in the shape and dtype of another tensor, or as the kernels wrote it.
fn optional(
    tensor: Option<Tensor>,
    input: &CubeTensor,
    like: Option<&(Shape, burn::tensor::DType)>,
) -> Optional<CubeBackend> {
    let tensor = tensor.map(|tensor| match like {
        Some((shape, dtype)) => in_shape(wrap(tensor, input, *dtype), shape),
        None => {
            let dtype = burn_dtype(tensor.desc.dtype);
            wrap(tensor, input, dtype)
        }
    });
    tensor.into()
}

fn burn_dtype(dtype: DType) -> burn::tensor::DType {
    match dtype {
        DType::F16 => burn::tensor::DType::F16,
        DType::BF16 => burn::tensor::DType::BF16,
        DType::F32 => burn::tensor::DType::F32,
        DType::F64 => burn::tensor::DType::F64,
    }
}

/// Reshapes a tensor, without a copy if its strides allow that.
///
/// Burn's own reshape copies every tensor that is not contiguous. For a channels-last convolution it would copy twice: to
/// split the channels into groups, and to merge them again.
fn in_shape(mut tensor: CubeTensor, shape: &Shape) -> CubeTensor {
    if tensor.shape() == *shape {
        return tensor;
    }
    let layout = Layout::strided(tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec());
    match layout.reshaped(shape) {
        Some(layout) => {
            *tensor.meta = Metadata::new(layout.shape, layout.strides);
            tensor
        }
        None => shaped::<CubeBackend>(tensor, shape),
    }
}

/// Makes a tensor whose strides have its rank. Burn may keep matrices in tiles, whose strides have another rank.
fn untiled(tensor: CubeTensor) -> CubeTensor {
    match tensor.meta.rank() == tensor.rank() {
        true => tensor,
        false => burn_cubecl::kernel::into_contiguous(tensor),
    }
}

fn desc(tensor: &CubeTensor) -> TensorDesc {
    let layout = Layout::strided(tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec());
    let dtype = dtype(tensor.dtype).expect("the functions of this crate check dtypes first");
    TensorDesc::new(layout, dtype)
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use burn::backend::ops::FloatTensorOps;
    use burn::tensor::TensorData;
    use cubecl::future::block_on;

    use super::*;
    use crate::ops::Reduction;

    #[test]
    fn contiguous_copies_give_the_same_results() {
        let device = cubecl::Device::Cpu(Default::default());
        let numbers: Vec<f32> = (0..24).map(|i| (i * i % 17) as f32).collect();
        let x = CubeBackend::float_from_data(TensorData::new(numbers, [6, 4]), &device);
        let x = CubeBackend::float_swap_dims(x, 0, 1);
        let spec = NormSpec::new([1], Reduction::MeanVariance, 1e-5);
        let inputs = ForwardInputs::new(Operands::new(x), &spec);
        let copies = inputs.contiguous();
        assert_eq!(inputs.input.meta.strides().to_vec(), [1, 4]);
        assert_eq!(copies.input.meta.strides().to_vec(), [6, 1]);
        let [from_view, from_copy] = [&inputs, &copies].map(|inputs| {
            let outputs = launched(inputs.launch(&spec, StrategyChoice::Inferred));
            let output = wrap(outputs.output, &inputs.input, inputs.input.dtype);
            let data = block_on(CubeBackend::float_into_data(output)).unwrap();
            data.try_to_vec::<f32>().unwrap()
        });
        for (a, b) in from_view.iter().zip(from_copy) {
            assert!((a - b).abs() < 1e-5, "{a}, not {b}");
        }
    }
}
