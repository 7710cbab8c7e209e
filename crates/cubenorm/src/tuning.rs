//! When autotuning runs.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use burn::backend::ExecutionError;
use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm_core::{Hardware, StrategyChoice};

/// When autotuning runs, on runtimes with more than one plan for a kernel.
///
/// Plans differ in the units that share a row, the vector width, the rows per unit and the staging
/// of a row. The analytic plan depends on shape, dtype and device alone. Tuning measures it and a
/// handful of others with CubeCL's autotuner.
///
/// # What a first call does
///
/// The first call of a kind measures. A kind is an operation, its dtypes and layout, and a shape
/// rounded up to powers of two. Tuning starts with the plan that was the fastest for the nearest
/// measured shape. It stops as soon as a plan reaches 97 % of copy bandwidth. CubeCL's cache keeps
/// the choice for later runs. A cache that cannot be read is ignored, with a warning through the
/// crate `log`. Tensors of less than 8,192 elements or more than 2 GiB run the analytic plan. On CUDA and ROCm the least is
/// 65,536 elements for each multiprocessor: the host takes longer for a smaller launch than the device.
///
/// [`warm_up`] makes these calls ahead of time.
///
/// # CPUs
///
/// On `cpu` and on CPU Vulkan drivers nothing is measured by default, and a cache or a bundle is
/// not read. With [`OnFirstCall`](Self::OnFirstCall), tensors of 1 MiB and more are measured from
/// memory, not from a cache. A first call then takes 64 MiB of buffers at a time.
///
/// # Ship the choices
///
/// In a clone of this project, these commands show and export what tuning chooses:
///
/// ```text
/// # every candidate of a shape, its time, and the choice
/// cargo xtask tune --op layer_norm --shape 2048x4096 --device wgpu
/// # the choices for a list of shapes, in a file that an application imports
/// cargo xtask tune --shapes shapes.json --device wgpu --bundle tuned.bundle
/// # the plan of a problem, the reason for it, and the source of its kernels
/// cargo xtask explain --op layer_norm --shape 2048x4096 --dtype f16 --device wgpu
/// ```
///
/// An application imports a bundle with `cubecl::bundle`, after CubeCL has read its configuration.
/// On CUDA, ROCm, Metal and Vulkan a bundle has the compiled kernels too. They are used if the
/// configuration sets `cache = true` under `[compilation]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tuning {
    /// [`OnFirstCall`](Self::OnFirstCall) on a GPU, [`Off`](Self::Off) if a CPU does the work. On a CPU the candidates
    /// differ by less than the noise between runs.
    #[default]
    Auto,
    /// At the first call of a kind: operation, dtypes, layout and rounded shape.
    ///
    /// That call takes up to some hundred milliseconds longer, and seconds if kernels compile slowly. CubeCL's cache
    /// keeps the result for later runs too. Results may differ in their last digits between machines that chose
    /// different plans.
    OnFirstCall,
    /// As [`Auto`](Self::Auto), until the measurements of this process have taken this long in total.
    ///
    /// From then on, a kind that is in no cache and no bundle runs the analytic plan, as with [`Off`](Self::Off). One
    /// call may exceed the rest of the budget.
    Within(Duration),
    /// Never: plans depend on shape, dtype and device alone, and are the same in each run.
    Off,
}

impl Tuning {
    /// Choice of a kernel's plan on a device.
    pub fn choice(self, hardware: &Hardware) -> StrategyChoice {
        match self {
            Self::OnFirstCall => StrategyChoice::Tuned,
            Self::Auto if hardware.is_gpu() => StrategyChoice::Tuned,
            Self::Within(budget) if hardware.is_gpu() => StrategyChoice::TunedWithin(budget),
            Self::Auto | Self::Within(_) | Self::Off => StrategyChoice::Inferred,
        }
    }

    /// Parses a value of the variable.
    fn of(value: &str) -> Self {
        let value = value.trim().to_ascii_lowercase();
        let budget = value.strip_suffix("ms").map(str::trim).map(str::parse);
        match (value.as_str(), budget) {
            ("on", _) => Self::OnFirstCall,
            ("off", _) => Self::Off,
            (_, Some(Ok(budget))) => Self::Within(Duration::from_millis(budget)),
            _ => Self::Auto,
        }
    }
}

/// Environment variable with the setting before any [`set_tuning`]: `on`, `off` or milliseconds (`500ms`).
const VARIABLE: &str = "CUBENORM_TUNING";

fn state() -> &'static Mutex<Tuning> {
    static STATE: OnceLock<Mutex<Tuning>> = OnceLock::new();
    STATE.get_or_init(|| Mutex::new(Tuning::of(&std::env::var(VARIABLE).unwrap_or_default())))
}

/// Sets when to tune, for all later calls of this process.
///
/// The default is [`Auto`](Tuning::Auto), or the environment's `CUBENORM_TUNING`: `on`, `off`, or a budget in
/// milliseconds, such as `500ms`.
///
/// # Example
///
/// ```
/// use cubenorm::Tuning;
///
/// cubenorm::set_tuning(Tuning::Off);
/// assert_eq!(cubenorm::tuning(), Tuning::Off);
/// ```
pub fn set_tuning(tuning: Tuning) {
    *state().lock().unwrap_or_else(PoisonError::into_inner) = tuning;
}

/// The current setting.
pub fn tuning() -> Tuning {
    *state().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `call` once for an input of each shape and waits for the device.
///
/// Later calls of these shapes find their kernels compiled, and tuned if tuning is on. The inputs are all ones, of
/// `dtype`, on `device`. On a device with autodiff they require gradients, so a `call` that ends in `backward()` warms
/// up the backward pass too.
///
/// # Panics
///
/// If `call` panics, or the device fails to finish its work.
///
/// # Example
///
/// ```no_run
/// use burn::tensor::{DType, Device, Tensor};
///
/// let device = Device::default();
/// let norm = cubenorm::nn::RmsNormConfig::new(4096).init(&device);
/// cubenorm::warm_up(&[[1, 4096], [512, 4096]], DType::F32, &device, |x| {
///     norm.forward(x);
/// });
/// ```
pub fn warm_up<const D: usize>(
    shapes: &[[usize; D]],
    dtype: DType,
    device: &Device,
    call: impl Fn(Tensor<D>),
) {
    call_with_ones(shapes, dtype, device, call);
    if let Err(error) = device.sync() {
        panic!("warm_up: {error}");
    }
}

/// [`warm_up`] for a browser, which cannot wait for a device.
///
/// A browser's autotuner measures after the call has returned, and a kind keeps its analytic plan until the page is
/// loaded again. Results last if a dedicated worker awaits `cubecl::environment::open()` before it opens the device.
///
/// # Errors
///
/// If the device fails to finish its work.
///
/// # Panics
///
/// If `call` panics.
///
/// # Example
///
/// ```no_run
/// use burn::tensor::{DType, Device};
///
/// # async fn example(device: Device) -> Result<(), Box<dyn std::error::Error>> {
/// // In a browser, `device` comes from `Device::wgpu_options().init_async().await`.
/// let norm = cubenorm::nn::RmsNormConfig::new(4096).init(&device);
/// cubenorm::warm_up_async(&[[1, 4096]], DType::F32, &device, |x| {
///     norm.forward(x);
/// })
/// .await?;
/// # Ok(())
/// # }
/// ```
pub async fn warm_up_async<const D: usize>(
    shapes: &[[usize; D]],
    dtype: DType,
    device: &Device,
    call: impl Fn(Tensor<D>),
) -> Result<(), ExecutionError> {
    call_with_ones(shapes, dtype, device, call);
    // A read waits for everything before it.
    let last = Tensor::<1>::ones([1], device);
    last.into_data_async().await.map(drop)
}

/// Calls once for an input of ones of each shape.
fn call_with_ones<const D: usize>(
    shapes: &[[usize; D]],
    dtype: DType,
    device: &Device,
    call: impl Fn(Tensor<D>),
) {
    for &shape in shapes {
        let ones = vec![1.0f32; shape.iter().product()];
        let data = TensorData::new(ones, shape).convert_dtype(dtype);
        let input = Tensor::from_data(data, (device, dtype));
        let input = match device.is_autodiff() {
            true => input.require_grad(),
            false => input,
        };
        call(input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_and_budgets_tune_on_gpus_alone() {
        let (gpu, cpu) = (Hardware::cuda(132), Hardware::cpu(2, 512));
        let budget = Duration::from_secs(1);
        let within = Tuning::Within(budget);
        assert_eq!(within.choice(&gpu), StrategyChoice::TunedWithin(budget));
        assert_eq!(within.choice(&cpu), StrategyChoice::Inferred);
        assert_eq!(Tuning::Auto.choice(&gpu), StrategyChoice::Tuned);
        assert_eq!(Tuning::Auto.choice(&cpu), StrategyChoice::Inferred);
        assert_eq!(Tuning::OnFirstCall.choice(&cpu), StrategyChoice::Tuned);
        assert_eq!(Tuning::Off.choice(&gpu), StrategyChoice::Inferred);
    }

    #[test]
    fn parses_the_environment_variable() {
        assert_eq!(Tuning::of("ON"), Tuning::OnFirstCall);
        assert_eq!(Tuning::of("off"), Tuning::Off);
        let budget = Tuning::Within(Duration::from_millis(500));
        assert_eq!([Tuning::of("500ms"), Tuning::of(" 500 ms")], [budget; 2]);
        for other in ["", "auto", "ms", "-1ms"] {
            assert_eq!(Tuning::of(other), Tuning::Auto, "{other}");
        }
    }
}
