//! Layers against PyTorch: its results in f64 and its state dict.
//!
//! `tests/fixtures/pytorch/make.py` writes both.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_store::{
    KeyRemapper, ModuleSnapshot, PyTorchToBurnAdapter, PytorchStore, SafetensorsStore,
};
use cubenorm::nn::{
    AddLayerNorm, AddRmsNorm, BatchNorm, BatchNormConfig, DynamicTanh, GroupNorm, GroupNormConfig,
    InstanceNorm, InstanceNormConfig, LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig,
};
use cubenorm::{
    Activation, GateOptions, HeadNormOptions, MeanVarianceOptions, NormError, Rope, RotatedPairs,
    Rounding,
};
use safetensors::SafeTensors;

use crate::{devices, supports, values};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/pytorch");
const LAYERS: &[u8] = include_bytes!("../../fixtures/pytorch/layers.safetensors");

/// Layers of the state dict, with its names.
#[derive(Module, Debug)]
struct Norms {
    layer: LayerNorm,
    rms: RmsNorm,
    batch: BatchNorm,
    group: GroupNorm,
    instance: InstanceNorm,
}

impl Norms {
    fn init(device: &Device) -> Self {
        Self {
            layer: LayerNormConfig::new(24).init(device),
            rms: RmsNormConfig::new(24).init(device),
            batch: BatchNormConfig::new(6).with_momentum(0.25).init(device),
            group: GroupNormConfig::new(3, 6).init(device),
            instance: InstanceNormConfig::new(6).init(device),
        }
    }

    fn load(device: &Device) -> Self {
        let mut norms = Self::init(device);
        let mut store = SafetensorsStore::from_file(format!("{FOLDER}/state.safetensors"))
            .with_from_adapter(PyTorchToBurnAdapter)
            .remap(renames());
        let result = norms.load_from(&mut store).unwrap();
        assert_eq!(
            (result.applied.len(), result.missing.len()),
            (11, 0),
            "{result}"
        );
        norms
    }
}

/// Adds instance norm to the store's own mapping, which has all other norms.
fn renames() -> KeyRemapper {
    let renames = [
        (r"^instance\.weight$", "instance.gamma"),
        (r"^instance\.bias$", "instance.beta"),
    ];
    KeyRemapper::from_pattern_iter(renames).unwrap()
}

/// Stores parameters in another dtype.
struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let value = param.val();
        let cast = Tensor::from_data(value.to_data(), (&value.device(), self.0));
        Param::from_tensor(cast.require_grad())
    }
}

/// A device and the dtypes of a test on it.
struct Case {
    name: String,
    device: Device,
    dtype: DType,
}

impl Case {
    fn tensor<const D: usize>(&self, name: &str) -> Tensor<D> {
        let (values, shape) = expected(name);
        Tensor::from_data(TensorData::new(values, shape), (&self.device, self.dtype))
    }

    fn tracked<const D: usize>(&self, name: &str) -> Tensor<D> {
        self.tensor(name).require_grad()
    }

    /// True if the device computes SiLU to the digits of the dtype. Vulkan has no exponential of f64.
    fn has_silu(&self) -> bool {
        let x = Tensor::<1>::ones([4], (&self.device, self.dtype));
        let options = MeanVarianceOptions::new([0]).with_activation(Activation::Silu);
        let result = cubenorm::try_mean_variance_norm(x, None, None, &options);
        !matches!(result, Err(NormError::UnsupportedActivation { .. }))
    }

    /// Compares with PyTorch's result, relative to the largest number of the tensor.
    fn compare<const D: usize>(&self, actual: Tensor<D>, name: &str) {
        let tolerance = match self.dtype {
            DType::F64 => 1e-12,
            DType::F32 => 2e-6,
            DType::F16 => 2e-3,
            _ => 1.6e-2,
        };
        let (expected, shape) = expected(name);
        assert_eq!(actual.dims().as_slice(), shape, "{}: {name}", self.name);
        let largest = expected.iter().fold(1.0, |a: f64, b| a.max(b.abs()));
        for (position, (actual, expected)) in values(actual).into_iter().zip(expected).enumerate() {
            let error = (actual - expected).abs() / largest;
            assert!(
                error < tolerance,
                "{}: {name}[{position}] is {actual}, PyTorch says {expected}",
                self.name
            );
        }
    }

    /// Runs the backward pass of `output` with the fixture's dy, and compares all gradients.
    fn check<const D: usize>(
        &self,
        layer: &str,
        output: Tensor<D>,
        inputs: &[(&str, &Tensor<D>)],
        params: &[(&str, &Param<Tensor<1>>)],
    ) {
        let dy = self.tensor(&format!("{layer}.dy"));
        self.compare(output.clone(), &format!("{layer}.y"));
        let gradients = (output * dy).sum().backward();
        for (name, input) in inputs {
            let gradient = input.grad(&gradients).expect("it is tracked");
            self.compare(gradient, &format!("{layer}.d{name}"));
        }
        for (name, param) in params {
            let gradient = param.val().grad(&gradients).expect("it is tracked");
            assert_eq!(gradient.dtype(), param.val().dtype(), "{}", self.name);
            self.compare(gradient, &format!("{layer}.d{name}"));
        }
    }
}

/// A tensor of the fixture: values and shape.
fn expected(name: &str) -> (Vec<f64>, Vec<usize>) {
    let tensors = SafeTensors::deserialize(LAYERS).unwrap();
    let tensor = tensors.tensor(name).unwrap();
    let bytes = tensor.data().chunks_exact(8);
    let values = bytes.map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
    (values.collect(), tensor.shape().to_vec())
}

/// Every device with each of its dtypes, and parameters of that dtype or f32.
fn cases() -> impl Iterator<Item = (Case, Norms)> {
    devices().into_iter().flat_map(|(name, device)| {
        let dtypes = [DType::F64, DType::F32, DType::F16, DType::BF16];
        let here: Vec<DType> = dtypes
            .into_iter()
            .filter(|&dtype| supports(name, &device, dtype))
            .collect();
        assert!(here.contains(&DType::F32), "{name}");
        let device = device.autodiff();
        let kinds = here.into_iter().flat_map(|dtype| {
            let params = match dtype {
                DType::F64 | DType::F32 => vec![dtype],
                narrow => vec![narrow, DType::F32],
            };
            params.into_iter().map(move |params| (dtype, params))
        });
        kinds.map(move |(dtype, params)| {
            let case = Case {
                name: format!("{name}, {dtype:?}, parameters {params:?}"),
                device: device.clone(),
                dtype,
            };
            let norms = Norms::load(&device).map(&mut Cast(params));
            (case, norms)
        })
    })
}

#[test]
fn pytorch_state_dict_loads_from_both_formats() {
    for (name, device) in devices() {
        let from_safetensors = Norms::load(&device);
        let mut from_pickle = Norms::init(&device);
        let mut store = PytorchStore::from_file(format!("{FOLDER}/state.pt")).remap(renames());
        let result = from_pickle.load_from(&mut store).unwrap();
        assert_eq!(
            (result.applied.len(), result.missing.len()),
            (11, 0),
            "{name}: {result}"
        );

        // Inference uses the running statistics too.
        for norms in [from_safetensors, from_pickle] {
            let case = Case {
                name: name.to_owned(),
                device: device.clone(),
                dtype: DType::F32,
            };
            let x = || case.tensor::<4>("batch_inference.x");
            case.compare(norms.batch.forward(x()), "batch_inference.y");
            let x = || case.tensor::<4>("instance.x");
            case.compare(norms.instance.forward(x()), "instance.y");
            case.compare(norms.layer.forward(case.tensor::<3>("layer.x")), "layer.y");
            case.compare(norms.rms.forward(case.tensor::<3>("rms.x")), "rms.y");
            case.compare(norms.group.forward(case.tensor::<4>("group.x")), "group.y");
        }
    }
}

#[test]
fn layer_norm_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let x = case.tracked::<3>("layer.x");
        let y = norms.layer.forward(x.clone());
        let bias = norms.layer.beta.as_ref().unwrap();
        let params = [("weight", &norms.layer.gamma), ("bias", bias)];
        case.check("layer", y, &[("x", &x)], &params);
    }
}

#[test]
fn rms_norm_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let x = case.tracked::<3>("rms.x");
        let y = norms.rms.forward(x.clone());
        case.check("rms", y, &[("x", &x)], &[("weight", &norms.rms.gamma)]);
    }
}

#[test]
fn batch_norm_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let params = [("weight", &norms.batch.gamma), ("bias", &norms.batch.beta)];
        let x = case.tracked::<4>("batch.x");
        let y = norms.batch.forward(x.clone());
        case.check("batch", y, &[("x", &x)], &params);

        let frozen = Norms::load(&case.device).batch;
        let params_dtype = norms.batch.gamma.val().dtype();
        let x = case.tracked::<4>("batch_inference.x");
        let y = cubenorm::batch_norm(
            x.clone(),
            norms.batch.gamma.val(),
            norms.batch.beta.val(),
            frozen.running_mean.value().cast(params_dtype),
            frozen.running_var.value().cast(params_dtype),
            frozen.epsilon,
        );
        case.check("batch_inference", y, &[("x", &x)], &params);
    }
}

#[test]
fn group_norm_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let x = case.tracked::<4>("group.x");
        let y = norms.group.forward(x.clone());
        let (weight, bias) = (norms.group.gamma.unwrap(), norms.group.beta.unwrap());
        let params = [("weight", &weight), ("bias", &bias)];
        case.check("group", y, &[("x", &x)], &params);
    }
}

#[test]
fn instance_norm_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let x = case.tracked::<4>("instance.x");
        let y = norms.instance.forward(x.clone());
        let (weight, bias) = (norms.instance.gamma.unwrap(), norms.instance.beta.unwrap());
        let params = [("weight", &weight), ("bias", &bias)];
        case.check("instance", y, &[("x", &x)], &params);
    }
}

#[test]
fn fused_residual_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let inputs = |layer: &str| {
            let tracked = |name: &str| case.tracked::<3>(&format!("{layer}.{name}"));
            (tracked("x"), tracked("residual"))
        };
        let layer = AddLayerNorm::from(norms.layer);
        let (x, residual) = inputs("add_layer");
        let (y, _) = layer.forward(x.clone(), residual.clone());
        let bias = layer.norm.beta.as_ref().unwrap();
        let params = [("weight", &layer.norm.gamma), ("bias", bias)];
        case.check(
            "add_layer",
            y,
            &[("x", &x), ("residual", &residual)],
            &params,
        );

        let layer = AddRmsNorm::from(norms.rms);
        let (x, residual) = inputs("add_rms");
        let (y, _) = layer.forward(x.clone(), residual.clone());
        let params = [("weight", &layer.norm.gamma)];
        case.check("add_rms", y, &[("x", &x), ("residual", &residual)], &params);
    }
}

#[test]
fn adaptive_layer_norm_gradients_match_pytorch() {
    for (case, _) in cases() {
        let x = case.tracked::<3>("ada_layer.x");
        let scale = case.tracked::<2>("ada_layer.scale");
        let shift = case.tracked::<2>("ada_layer.shift");
        let y = cubenorm::ada_layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5);
        case.compare(y.clone(), "ada_layer.y");
        let gradients = (y * case.tensor("ada_layer.dy")).sum().backward();
        case.compare(x.grad(&gradients).unwrap(), "ada_layer.dx");
        case.compare(scale.grad(&gradients).unwrap(), "ada_layer.dscale");
        case.compare(shift.grad(&gradients).unwrap(), "ada_layer.dshift");
    }
}

#[test]
fn modulated_norm_gradients_match_pytorch() {
    for (case, _) in cases() {
        for name in ["modulated_layer", "modulated_rms"] {
            let of = |part: &str| format!("{name}.{part}");
            let [x, scale, shift] =
                ["x", "scale", "shift"].map(|part| case.tracked::<3>(&of(part)));
            let norm = match name {
                "modulated_layer" => cubenorm::modulated_layer_norm,
                _ => cubenorm::modulated_rms_norm,
            };
            let y = norm(x.clone(), scale.clone(), shift.clone(), 1e-5);
            case.compare(y.clone(), &of("y"));
            let gradients = (y * case.tensor(&of("dy"))).sum().backward();
            for (part, tensor) in [("dx", &x), ("dscale", &scale), ("dshift", &shift)] {
                case.compare(tensor.grad(&gradients).unwrap(), &of(part));
            }
        }
    }
}

#[test]
fn weight_offset_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let dtype = norms.rms.gamma.val().dtype();
        let param = |name: &str| {
            Param::from_tensor(case.tracked::<1>(name).cast(dtype).detach().require_grad())
        };
        let norm = RmsNorm {
            gamma: param("offset_rms.weight"),
            offset: 1.0,
            ..norms.rms
        };
        let x = case.tracked::<3>("offset_rms.x");
        let y = norm.forward(x.clone());
        case.check("offset_rms", y, &[("x", &x)], &[("weight", &norm.gamma)]);

        let mut norm = norms.layer;
        norm.gamma = param("offset_layer.weight");
        norm.beta = Some(param("offset_layer.bias"));
        norm.offset = 1.0;
        let x = case.tracked::<3>("offset_layer.x");
        let y = norm.forward(x.clone());
        let bias = norm.beta.as_ref().unwrap();
        let params = [("weight", &norm.gamma), ("bias", bias)];
        case.check("offset_layer", y, &[("x", &x)], &params);
    }
}

#[test]
fn rounded_rms_norm_has_the_bits_of_pytorch() {
    for (case, norms) in cases() {
        let dtype = case.dtype;
        if dtype != norms.rms.gamma.val().dtype() || !matches!(dtype, DType::F16 | DType::BF16) {
            continue;
        }
        let name = |tensor: &str| format!("rounded_rms_{dtype:?}.{tensor}");
        let norm = RmsNorm {
            gamma: Param::from_tensor(case.tracked(&name("weight"))),
            rounding: Rounding::BeforeScale,
            ..norms.rms
        };
        let x = case.tracked::<3>(&name("x"));
        let y = norm.forward(x.clone());
        let (expected, _) = expected(&name("y"));
        assert_eq!(values(y.clone()), expected, "{}", case.name);
        let params = [("weight", &norm.gamma)];
        case.check(&format!("rounded_rms_{dtype:?}"), y, &[("x", &x)], &params);
    }
}

#[test]
fn dynamic_tanh_gradients_match_pytorch() {
    for (case, norms) in cases() {
        let dtype = norms.rms.gamma.val().dtype();
        let param = |name: &str| {
            let value = case
                .tensor::<1>(&format!("dynamic_tanh.{name}"))
                .cast(dtype);
            Param::from_tensor(value.require_grad())
        };
        let norm = DynamicTanh {
            alpha: param("alpha"),
            gamma: param("weight"),
            beta: Some(param("bias")),
        };
        let x = case.tracked::<3>("dynamic_tanh.x");
        let y = match norm.try_forward(x.clone()) {
            // WGSL has no tanh of f64.
            Err(NormError::UnsupportedActivation { .. }) if case.dtype == DType::F64 => continue,
            y => y.unwrap(),
        };
        let beta = norm.beta.as_ref().unwrap();
        let params = [
            ("alpha", &norm.alpha),
            ("weight", &norm.gamma),
            ("bias", beta),
        ];
        case.check("dynamic_tanh", y, &[("x", &x)], &params);
        // Nothing is tracked: the kernel.
        let plain = norm.no_grad().forward(case.tensor::<3>("dynamic_tanh.x"));
        case.compare(plain, "dynamic_tanh.y");
    }
}

/// Compares a result and gradients with those of a fixture whose inputs are all tracked.
macro_rules! compare_all {
    ($case:expr, $name:expr, $y:expr, [$($part:literal: $tensor:expr),*]) => {{
        let of = |part: &str| format!("{}.{part}", $name);
        let y = $y;
        $case.compare(y.clone(), &of("y"));
        let gradients = (y * $case.tensor(&of("dy"))).sum().backward();
        $($case.compare($tensor.grad(&gradients).expect("it is tracked"), &of($part));)*
    }};
}

#[test]
fn gated_norm_gradients_match_pytorch() {
    for (case, _) in cases() {
        for (name, is_behind, group) in [
            ("gated_behind", true, None),
            ("gated_in_front", false, None),
            ("gated_groups", false, Some(8)),
        ] {
            let of = |part: &str| format!("{name}.{part}");
            let [x, gate] = ["x", "gate"].map(|part| case.tracked::<3>(&of(part)));
            let weight = case.tracked::<1>(&of("weight"));
            let options = GateOptions::new()
                .with_norm_before_gate(is_behind)
                .with_group_size(group);
            if !case.has_silu() {
                continue;
            }
            let y = cubenorm::gated_rms_norm(x.clone(), gate.clone(), weight.clone(), &options);
            compare_all!(case, name, y, ["dx": x, "dgate": gate, "dweight": weight]);
            let untracked =
                cubenorm::gated_rms_norm(x.inner(), gate.inner(), weight.inner(), &options);
            case.compare(untracked, &of("y"));
        }
    }
}

#[test]
fn group_norm_of_a_sum_with_silu_matches_pytorch() {
    for (case, norms) in cases().filter(|(case, _)| case.has_silu()) {
        let [x, residual] =
            ["x", "residual"].map(|it| case.tracked::<4>(&format!("group_silu.{it}")));
        let y = norms
            .group
            .forward_with(x.clone(), residual.clone(), Activation::Silu);
        let (weight, bias) = (norms.group.gamma.unwrap(), norms.group.beta.unwrap());
        let params = [("weight", &weight), ("bias", &bias)];
        case.check(
            "group_silu",
            y,
            &[("x", &x), ("residual", &residual)],
            &params,
        );
    }
}

#[test]
fn both_results_of_a_sum_match_pytorch() {
    for (case, norms) in cases() {
        let [x, residual] =
            ["x", "residual"].map(|it| case.tracked::<3>(&format!("both_results.{it}")));
        let gamma = norms.rms.gamma.val();
        let (y, sum) = cubenorm::add_rms_norm(x.clone(), residual.clone(), gamma.clone(), 1e-5);
        let both = Tensor::cat(vec![y, sum], 2);
        compare_all!(case, "both_results", both, ["dx": x, "dresidual": residual, "dweight": gamma]);

        let parts = ["x", "residual", "gate", "scale", "shift"];
        let [x, residual, gate, scale, shift] =
            parts.map(|it| case.tracked::<3>(&format!("gated_branch.{it}")));
        let (y, sum) = cubenorm::add_modulated_layer_norm(
            x.clone(),
            residual.clone(),
            gate.clone(),
            scale.clone(),
            shift.clone(),
            1e-5,
        );
        let both = Tensor::cat(vec![y, sum], 2);
        compare_all!(case, "gated_branch", both, [
            "dx": x,
            "dresidual": residual,
            "dgate": gate,
            "dscale": scale,
            "dshift": shift
        ]);
    }
}

#[test]
fn rotated_heads_match_pytorch() {
    for (case, _) in cases() {
        let kinds = [
            ("rope_half_split", RotatedPairs::HalfSplit),
            ("rope_interleaved", RotatedPairs::Interleaved),
        ];
        for (name, pairs) in kinds {
            let of = |part: &str| format!("{name}.{part}");
            let [q, k] = ["q", "k"].map(|part| case.tracked::<4>(&of(part)));
            let [gq, gk] = ["q_weight", "k_weight"].map(|part| case.tracked::<1>(&of(part)));
            let options = (&case.device, case.dtype);
            let rope = Rope::new(8, 12, 100.0, pairs, options);
            let run = |q: Tensor<4>, k: Tensor<4>, gq: Tensor<1>, gk: Tensor<1>| {
                let options = HeadNormOptions::default();
                let (q, k) = cubenorm::qk_norm_rope(q, k, gq, gk, &rope, 3, &options);
                Tensor::cat(vec![q, k], 2)
            };
            let y = run(q.clone(), k.clone(), gq.clone(), gk.clone());
            compare_all!(case, name, y, ["dq": q, "dk": k, "dq_weight": gq, "dk_weight": gk]);
            case.compare(run(q.inner(), k.inner(), gq.inner(), gk.inner()), &of("y"));
        }
    }
}
