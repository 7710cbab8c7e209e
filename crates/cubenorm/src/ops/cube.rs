//! The fused kernels, on every runtime of CubeCL's.

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;
use cubenorm_core::{Layout, StrategyChoice, TensorDesc};
use cubenorm_kernels::{ForwardOutputs, ForwardTensors, Tensor, launch_forward};

use super::{NormBackend, NormSpec, Optional, dtype};

impl NormBackend for CubeBackend {
    fn normalize(
        input: FloatTensor<Self>,
        scale: Optional<Self>,
        bias: Optional<Self>,
        spec: NormSpec,
    ) -> FloatTensor<Self> {
        let (output, _) = launch(input, None, scale, bias, &spec);
        output
    }

    fn add_normalize(
        input: FloatTensor<Self>,
        residual: FloatTensor<Self>,
        scale: Optional<Self>,
        bias: Optional<Self>,
        spec: NormSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (output, sum) = launch(input, Some(residual), scale, bias, &spec);
        (output, sum.expect("a residual makes a sum"))
    }
}

fn launch(
    input: CubeTensor,
    residual: Option<CubeTensor>,
    scale: Optional<CubeBackend>,
    bias: Optional<CubeBackend>,
    spec: &NormSpec,
) -> (CubeTensor, Option<CubeTensor>) {
    let input = untiled(input);
    let residual = residual.map(untiled);
    let scale = scale.into_option().map(untiled);
    let bias = bias.into_option().map(untiled);
    let optional_desc = |tensor: &Option<CubeTensor>| tensor.as_ref().map(desc);
    let mut norm = spec.desc(
        desc(&input),
        optional_desc(&residual),
        optional_desc(&scale),
        optional_desc(&bias),
    );
    norm.writes_sum = residual.is_some();
    let handle = |tensor: &Option<CubeTensor>| tensor.as_ref().map(|t| t.handle.clone());
    let tensors = ForwardTensors {
        residual: handle(&residual),
        scale: handle(&scale),
        bias: handle(&bias),
        ..ForwardTensors::new(input.handle.clone())
    };
    // The functions of this crate have validated the call and asked the device for its dtypes, so
    // what is left is a plan that the device cannot hold, which is a defect of ours.
    let ForwardOutputs { output, sum, .. } =
        launch_forward(&input.client, &norm, &tensors, StrategyChoice::Inferred)
            .unwrap_or_else(|error| panic!("{error}"));
    let wrap = |tensor: Tensor| {
        let Layout { shape, strides } = tensor.desc.layout;
        let (client, device) = (input.client.clone(), input.device.clone());
        CubeTensor::new(
            client,
            tensor.handle,
            Metadata::new(shape, strides),
            device,
            input.dtype,
        )
    };
    (wrap(output), sum.map(wrap))
}

/// A tensor whose shape and strides are those of its elements: Burn may keep matrices in tiles,
/// which are strides of another rank.
fn untiled(tensor: CubeTensor) -> CubeTensor {
    match tensor.meta.rank() == tensor.rank() {
        true => tensor,
        false => burn_cubecl::kernel::into_contiguous(tensor),
    }
}

fn desc(tensor: &CubeTensor) -> TensorDesc {
    let layout = Layout::strided(tensor.meta.shape().to_vec(), tensor.meta.strides().to_vec());
    let dtype = dtype(tensor.dtype).expect("a normalization checks its dtypes first");
    TensorDesc::new(layout, dtype)
}
