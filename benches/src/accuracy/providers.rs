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
    let shape: [usize; D] = case.shape.as_slice().try_into()?;
    let input = upload(&data.input, shape, case.dtype, device);
    let params = [&data.scale, &data.bias, &data.mean, &data.variance].map(|values| {
        let values = values.as_ref()?;
        Some(upload(values, [values.len()], case.dtype, device))
    });
    let output = match provider {
        Provider::Cubenorm => cubenorm(case.op, input, params, data.epsilon),
        Provider::Burn | Provider::Installed => burn(case.op, input, params, data.epsilon),
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

/// Scale, bias, mean and variance, as far as the operator has them.
type Params = [Option<Tensor<1>>; 4];

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

fn cubenorm<const D: usize>(
    op: Op,
    input: Tensor<D>,
    [scale, bias, mean, variance]: Params,
    epsilon: f64,
) -> Result<Tensor<D>> {
    Ok(match op {
        Op::LayerNorm => cubenorm::try_layer_norm(input, scale, bias, epsilon)?,
        Op::RmsNorm => cubenorm::try_rms_norm(input, scale, epsilon)?,
        Op::InstanceNorm => cubenorm::try_instance_norm(input, scale, bias, epsilon)?,
        Op::MeanVarianceNorm => {
            let axes: Vec<usize> = (0..D).collect();
            let options = MeanVarianceOptions::new(axes).with_epsilon(epsilon);
            cubenorm::try_mean_variance_norm(input, None, None, &options)?
        }
        Op::BatchNorm => {
            let (mean, variance) = mean.zip(variance).context("a statistic is missing")?;
            cubenorm::try_batch_norm(input, scale, bias, mean, variance, epsilon)?
        }
    })
}

fn burn<const D: usize>(
    op: Op,
    input: Tensor<D>,
    [scale, bias, mean, variance]: Params,
    epsilon: f64,
) -> Result<Tensor<D>> {
    let device = input.device();
    let size = scale.as_ref().map_or(0, |scale| scale.dims()[0]);
    let [gamma, beta] = [scale, bias].map(|tensor| tensor.map(Param::from_tensor));
    macro_rules! layer {
        ($config:ident) => {
            $config::new(size).with_epsilon(epsilon).init(&device)
        };
    }
    let missing = "a parameter is missing";
    Ok(match op {
        Op::LayerNorm => {
            let mut norm = layer!(LayerNormConfig);
            (norm.gamma, norm.beta) = (gamma.context(missing)?, beta);
            norm.forward(input)
        }
        Op::RmsNorm => {
            let mut norm = layer!(RmsNormConfig);
            norm.gamma = gamma.context(missing)?;
            norm.forward(input)
        }
        Op::InstanceNorm => {
            let mut norm = layer!(InstanceNormConfig);
            (norm.gamma, norm.beta) = (gamma, beta);
            norm.forward(input)
        }
        Op::BatchNorm => {
            let mut norm = layer!(BatchNormConfig);
            (norm.gamma, norm.beta) = gamma.zip(beta).context(missing)?;
            norm.running_mean = RunningState::new(mean.context(missing)?);
            norm.running_var = RunningState::new(variance.context(missing)?);
            norm.forward(input)
        }
        Op::MeanVarianceNorm => {
            let row = input.clone().flatten::<1>(0, D - 1).unsqueeze::<2>();
            let (variance, mean) = row.clone().var_mean_bias(1);
            let normalized = (row - mean) / (variance + epsilon).sqrt();
            normalized.reshape(input.dims())
        }
    })
}
