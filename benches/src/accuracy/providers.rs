//! The providers that compute the cases on a device: this project and Burn.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use burn::{
    module::{Param, RunningState},
    nn::{BatchNormConfig, InstanceNormConfig, LayerNormConfig, RmsNormConfig},
    tensor::{DType as BurnDType, Device, Tensor, TensorData},
};
use cubenorm::MeanVarianceOptions;
use cubenorm_core::DType;
use cubenorm_reference::{decode, encode};

use super::{
    cases::{Case, Data, Op},
    exact::reference,
    ulp::deviation,
};
use crate::{problems::Provider, protocol::Verdict};

/// Has a provider compute a case, and compares the result. A panic is a failure of the case.
pub fn judge(provider: Provider, case: &Case, device: &Device) -> Verdict {
    if !device.supports_dtype(burn_dtype(case.dtype)) {
        return Verdict::Skipped(format!("the device has no {}", case.dtype));
    }
    let data = case.data();
    let computed = || match case.shape.len() {
        2 => compute::<2>(provider, case, &data, device),
        4 => compute::<4>(provider, case, &data, device),
        rank => bail!("no case has {rank} dimensions"),
    };
    let output = catch_unwind(AssertUnwindSafe(computed));
    match output.unwrap_or_else(|cause| Err(anyhow!("it panicked: {}", message(cause.as_ref())))) {
        Ok(output) => compared(case, &data, &output),
        Err(error) => Verdict::Failed(format!("{error:#}")),
    }
}

fn compute<const D: usize>(
    provider: Provider,
    case: &Case,
    data: &Data,
    device: &Device,
) -> Result<Vec<f64>> {
    let uploaded = Uploaded::<D>::new(case, data, device)?;
    let output = match provider {
        Provider::Cubenorm => cubenorm(case, data, uploaded),
        Provider::Burn => burn(case, data, uploaded, device),
        other => bail!("{other} is not measured here"),
    };
    let output = output?.try_into_data().context("the output was not read")?;
    ensure!(
        output.dtype() == burn_dtype(case.dtype),
        "the output is {:?}",
        output.dtype()
    );
    Ok(decode(case.dtype, output.as_bytes()))
}

/// Compares a result with the reference.
pub fn compared(case: &Case, data: &Data, output: &[f64]) -> Verdict {
    let expected = reference(case, data);
    match deviation(case.dtype, case.row(), &expected, output) {
        Some(found) => Verdict::Measured(found),
        None => Verdict::Failed(format!(
            "it gave {} elements: expected {}",
            output.len(),
            expected.len()
        )),
    }
}

fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| cause.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it did not say why".to_owned())
}

fn burn_dtype(dtype: DType) -> BurnDType {
    match dtype {
        DType::F16 => BurnDType::F16,
        DType::BF16 => BurnDType::BF16,
        DType::F32 => BurnDType::F32,
        DType::F64 => BurnDType::F64,
    }
}

/// A case's tensors on the device.
struct Uploaded<const D: usize> {
    input: Tensor<D>,
    scale: Option<Tensor<1>>,
    bias: Option<Tensor<1>>,
    mean: Option<Tensor<1>>,
    variance: Option<Tensor<1>>,
}

impl<const D: usize> Uploaded<D> {
    fn new(case: &Case, data: &Data, device: &Device) -> Result<Self> {
        let shape: [usize; D] = case.shape.as_slice().try_into()?;
        let parameter = |values: &Option<Vec<f64>>| {
            let values = values.as_ref();
            values.map(|values| upload(values, [values.len()], case.dtype, device))
        };
        Ok(Self {
            input: upload(&data.input, shape, case.dtype, device),
            scale: parameter(&data.scale),
            bias: parameter(&data.bias),
            mean: parameter(&data.mean),
            variance: parameter(&data.variance),
        })
    }
}

fn upload<const D: usize>(
    values: &[f64],
    shape: [usize; D],
    dtype: DType,
    device: &Device,
) -> Tensor<D> {
    let bytes = encode(dtype, values);
    let dtype = burn_dtype(dtype);
    let data = TensorData::from_bytes_vec(bytes, shape, dtype);
    Tensor::from_data(data, (device, dtype))
}

fn cubenorm<const D: usize>(case: &Case, data: &Data, tensors: Uploaded<D>) -> Result<Tensor<D>> {
    let Uploaded {
        input,
        scale,
        bias,
        mean,
        variance,
    } = tensors;
    let epsilon = data.epsilon;
    Ok(match case.op {
        Op::LayerNorm => cubenorm::try_layer_norm(input, scale, bias, epsilon)?,
        Op::RmsNorm => cubenorm::try_rms_norm(input, scale, epsilon)?,
        Op::InstanceNorm => cubenorm::try_instance_norm(input, scale, bias, epsilon)?,
        Op::MeanVarianceNorm => {
            let axes: Vec<usize> = (0..D).collect();
            let options = MeanVarianceOptions::new(axes).with_epsilon(epsilon);
            cubenorm::try_mean_variance_norm(input, None, None, &options)?
        }
        Op::BatchNorm => {
            let mean = mean.context("the mean is missing")?;
            let variance = variance.context("the variance is missing")?;
            cubenorm::try_batch_norm(input, scale, bias, mean, variance, epsilon)?
        }
    })
}

fn burn<const D: usize>(
    case: &Case,
    data: &Data,
    tensors: Uploaded<D>,
    device: &Device,
) -> Result<Tensor<D>> {
    let Uploaded { input, .. } = &tensors;
    let input = input.clone();
    let parameter = |tensor: &Option<Tensor<1>>| {
        let tensor = tensor.clone().context("a parameter is missing")?;
        anyhow::Ok(Param::from_tensor(tensor))
    };
    let (size, epsilon) = (case.parameters(), data.epsilon);
    Ok(match case.op {
        Op::LayerNorm => {
            let mut norm = LayerNormConfig::new(size)
                .with_epsilon(epsilon)
                .init(device);
            norm.gamma = parameter(&tensors.scale)?;
            norm.beta = Some(parameter(&tensors.bias)?);
            norm.forward(input)
        }
        Op::RmsNorm => {
            let mut norm = RmsNormConfig::new(size).with_epsilon(epsilon).init(device);
            norm.gamma = parameter(&tensors.scale)?;
            norm.forward(input)
        }
        Op::InstanceNorm => {
            let mut norm = InstanceNormConfig::new(size)
                .with_epsilon(epsilon)
                .init(device);
            norm.gamma = Some(parameter(&tensors.scale)?);
            norm.beta = Some(parameter(&tensors.bias)?);
            norm.forward(input)
        }
        Op::BatchNorm => {
            let mut norm = BatchNormConfig::new(size)
                .with_epsilon(epsilon)
                .init(device);
            norm.gamma = parameter(&tensors.scale)?;
            norm.beta = parameter(&tensors.bias)?;
            let given = |tensor: Option<Tensor<1>>| {
                let tensor = tensor.context("a statistic is missing")?;
                anyhow::Ok(RunningState::new(tensor))
            };
            norm.running_mean = given(tensors.mean)?;
            norm.running_var = given(tensors.variance)?;
            norm.forward(input)
        }
        Op::MeanVarianceNorm => {
            let row = input.clone().reshape([1, case.elements()]);
            let (variance, mean) = row.clone().var_mean_bias(1);
            let normalized = (row - mean) / (variance + epsilon).sqrt();
            normalized.reshape(input.dims())
        }
    })
}
