//! Fields of each operator. A new operator is a new arm here.

use std::collections::BTreeMap;

use cubenorm_operators::directml::{
    BatchNormalization, BatchNormalizationGrad, BatchNormalizationTraining,
    BatchNormalizationTrainingGrad, DataType, FusedActivation, MeanVarianceNormalization,
    MeanVarianceNormalization1, MeanVarianceNormalization2, Operator, TensorDesc,
};

use crate::array::ElementType;
use crate::dxdispatch::ModelError;
use crate::dxdispatch::fields::{Fields, wrong};
use crate::dxdispatch::json::Json;
use crate::dxdispatch::model::Tensor;

/// Tensors of an operator, by the names of their fields.
pub(crate) type Tensors = BTreeMap<&'static str, Tensor>;

/// Reads the operator called `name` from its description. Fields that DirectML requires are
/// required.
pub(crate) fn read(
    at: &str,
    name: &str,
    fields: Fields,
) -> Result<(Operator, Tensors), ModelError> {
    let mut desc = Description {
        fields,
        tensors: BTreeMap::new(),
    };
    let operator = match name.strip_prefix("DML_OPERATOR_").unwrap_or(name) {
        "MEAN_VARIANCE_NORMALIZATION" => {
            Operator::MeanVarianceNormalization(MeanVarianceNormalization {
                input_tensor: desc.input("InputTensor")?,
                scale_tensor: desc.optional_input("ScaleTensor")?,
                bias_tensor: desc.optional_input("BiasTensor")?,
                output_tensor: desc.output("OutputTensor")?,
                cross_channel: desc.fields.boolean("CrossChannel")?,
                normalize_variance: desc.fields.boolean("NormalizeVariance")?,
                epsilon: desc.fields.float("Epsilon")?,
                fused_activation: desc.fused_activation()?,
            })
        }
        "MEAN_VARIANCE_NORMALIZATION1" => {
            Operator::MeanVarianceNormalization1(MeanVarianceNormalization1 {
                input_tensor: desc.input("InputTensor")?,
                scale_tensor: desc.optional_input("ScaleTensor")?,
                bias_tensor: desc.optional_input("BiasTensor")?,
                output_tensor: desc.output("OutputTensor")?,
                axes: desc.axes()?,
                normalize_variance: desc.fields.boolean("NormalizeVariance")?,
                epsilon: desc.fields.float("Epsilon")?,
                fused_activation: desc.fused_activation()?,
            })
        }
        "MEAN_VARIANCE_NORMALIZATION2" => {
            Operator::MeanVarianceNormalization2(MeanVarianceNormalization2 {
                input_tensor: desc.input("InputTensor")?,
                scale_tensor: desc.optional_input("ScaleTensor")?,
                bias_tensor: desc.optional_input("BiasTensor")?,
                output_tensor: desc.output("OutputTensor")?,
                axes: desc.axes()?,
                use_mean: desc.fields.boolean("UseMean")?,
                use_variance: desc.fields.boolean("UseVariance")?,
                epsilon: desc.fields.float("Epsilon")?,
                fused_activation: desc.fused_activation()?,
            })
        }
        "BATCH_NORMALIZATION" => Operator::BatchNormalization(BatchNormalization {
            input_tensor: desc.input("InputTensor")?,
            mean_tensor: desc.input("MeanTensor")?,
            variance_tensor: desc.input("VarianceTensor")?,
            scale_tensor: desc.input("ScaleTensor")?,
            bias_tensor: desc.input("BiasTensor")?,
            output_tensor: desc.output("OutputTensor")?,
            spatial: desc.fields.boolean("Spatial")?,
            epsilon: desc.fields.float("Epsilon")?,
            fused_activation: desc.fused_activation()?,
        }),
        "BATCH_NORMALIZATION_TRAINING" => {
            Operator::BatchNormalizationTraining(BatchNormalizationTraining {
                input_tensor: desc.input("InputTensor")?,
                scale_tensor: desc.input("ScaleTensor")?,
                bias_tensor: desc.input("BiasTensor")?,
                fused_add_tensor: desc.optional_input("FusedAddTensor")?,
                output_tensor: desc.output("OutputTensor")?,
                output_mean_tensor: desc.output("OutputMeanTensor")?,
                output_variance_tensor: desc.output("OutputVarianceTensor")?,
                epsilon: desc.fields.float("Epsilon")?,
                fused_activation: desc.fused_activation()?,
            })
        }
        "BATCH_NORMALIZATION_GRAD" => Operator::BatchNormalizationGrad(BatchNormalizationGrad {
            input_tensor: desc.input("InputTensor")?,
            input_gradient_tensor: desc.input("InputGradientTensor")?,
            mean_tensor: desc.input("MeanTensor")?,
            variance_tensor: desc.input("VarianceTensor")?,
            scale_tensor: desc.input("ScaleTensor")?,
            output_gradient_tensor: desc.output("OutputGradientTensor")?,
            output_scale_gradient_tensor: desc.output("OutputScaleGradientTensor")?,
            output_bias_gradient_tensor: desc.output("OutputBiasGradientTensor")?,
            epsilon: desc.fields.float("Epsilon")?,
        }),
        "BATCH_NORMALIZATION_TRAINING_GRAD" => {
            Operator::BatchNormalizationTrainingGrad(BatchNormalizationTrainingGrad {
                input_tensor: desc.input("InputTensor")?,
                input_gradient_tensor: desc.input("InputGradientTensor")?,
                mean_tensor: desc.input("MeanTensor")?,
                variance_tensor: desc.input("VarianceTensor")?,
                scale_tensor: desc.input("ScaleTensor")?,
                output_gradient_tensor: desc.output("OutputGradientTensor")?,
                output_scale_gradient_tensor: desc.output("OutputScaleGradientTensor")?,
                output_bias_gradient_tensor: desc.output("OutputBiasGradientTensor")?,
                epsilon: desc.fields.float("Epsilon")?,
            })
        }
        _ => {
            return Err(ModelError::Unknown {
                at: at.to_owned(),
                kind: "operator",
                name: name.to_owned(),
            });
        }
    };
    Ok((operator, desc.tensors))
}

/// Reads a fused activation. Its fields are next to its type or under `Desc`.
fn activation(at: String, value: &Json) -> Result<FusedActivation, ModelError> {
    let outer = Fields::new(at.clone(), value)?;
    let name = match outer.has("Type") {
        true => outer.text("Type")?,
        false => outer.text("type")?,
    };
    let fields = outer.level(&["Desc", "desc"])?;
    let read = FusedActivation::read(name, |parameter| fields.float(parameter))?;
    read.ok_or_else(|| ModelError::Unknown {
        at,
        kind: "activation",
        name: name.to_owned(),
    })
}

/// Fields of an operator's description, and the tensors read from them.
struct Description<'a> {
    fields: Fields<'a>,
    tensors: Tensors,
}

impl Description<'_> {
    fn input(&mut self, field: &'static str) -> Result<TensorDesc, ModelError> {
        let value = self.fields.required(field)?;
        self.tensor(field, value, false)
    }

    fn optional_input(&mut self, field: &'static str) -> Result<Option<TensorDesc>, ModelError> {
        let value = self.fields.optional(field);
        value
            .map(|value| self.tensor(field, value, false))
            .transpose()
    }

    fn output(&mut self, field: &'static str) -> Result<TensorDesc, ModelError> {
        let value = self.fields.required(field)?;
        self.tensor(field, value, true)
    }

    fn tensor(
        &mut self,
        field: &'static str,
        value: &Json,
        is_output: bool,
    ) -> Result<TensorDesc, ModelError> {
        let tensor = tensor(self.fields.within(field), value)?;
        if tensor.owned && is_output {
            let at = self.fields.within(field);
            return Err(wrong(
                format!("{at}: Flags"),
                "no OWNED_BY_DML on an output",
                &Json::from("OWNED_BY_DML"),
            ));
        }
        let desc = tensor.desc.clone();
        self.tensors.insert(field, tensor);
        Ok(desc)
    }

    fn axes(&self) -> Result<Vec<u32>, ModelError> {
        self.fields.required("AxisCount")?;
        let axes = self.fields.sizes("Axes")?;
        self.fields.check_count("AxisCount", "Axes", axes.len())?;
        Ok(axes)
    }

    fn fused_activation(&self) -> Result<Option<FusedActivation>, ModelError> {
        let at = self.fields.within("FusedActivation");
        let value = self.fields.optional("FusedActivation");
        value.map(|value| activation(at, value)).transpose()
    }
}

/// Reads a tensor's description. Its fields are next to its type or under `Desc`.
fn tensor(at: String, value: &Json) -> Result<Tensor, ModelError> {
    let outer = Fields::new(at.clone(), value)?;
    if let Some(kind) = outer.optional("Type")
        && !matches!(kind.as_str(), Some("BUFFER" | "DML_TENSOR_TYPE_BUFFER"))
    {
        return Err(wrong(outer.within("Type"), "BUFFER", kind));
    }
    let fields = outer.level(&["Desc", "desc"])?;
    let data_type = match fields.element_type("DataType")? {
        ElementType::Float32 => DataType::Float32,
        ElementType::Float16 => DataType::Float16,
        _ => {
            let given = fields.required("DataType")?;
            return Err(wrong(
                fields.within("DataType"),
                "FLOAT32 or FLOAT16",
                given,
            ));
        }
    };
    let sizes = fields.sizes("Sizes")?;
    fields.check_count("DimensionCount", "Sizes", sizes.len())?;
    let strides = fields.optional("Strides").map(|_| fields.sizes("Strides"));
    fields.optional_unsigned("GuaranteedBaseOffsetAlignment")?;
    Ok(Tensor {
        desc: TensorDesc {
            data_type,
            sizes,
            strides: strides.transpose()?,
            // 0 asks for the size that follows from sizes and strides.
            total_tensor_size_in_bytes: fields
                .optional_unsigned("TotalTensorSizeInBytes")?
                .filter(|&bytes| bytes > 0),
        },
        owned: owned(&fields)?,
    })
}

/// Reads `Flags`: one flag, or an array.
fn owned(fields: &Fields) -> Result<bool, ModelError> {
    let given = match fields.optional("Flags") {
        None => return Ok(false),
        Some(Json::Array(flags)) => flags.as_slice(),
        Some(flag) => std::slice::from_ref(flag),
    };
    let mut owned = false;
    for flag in given {
        let name = flag.as_str().unwrap_or_default();
        match name.strip_prefix("DML_TENSOR_FLAG_").unwrap_or(name) {
            "OWNED_BY_DML" => owned = true,
            "NONE" => (),
            _ => return Err(wrong(fields.within("Flags"), "NONE or OWNED_BY_DML", flag)),
        }
    }
    Ok(owned)
}
