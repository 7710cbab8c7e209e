//! When it is measured which plan of a kernel is the fastest.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use burn::tensor::{DType, Device, Tensor, TensorData};
use cubenorm_core::{Hardware, StrategyChoice};

/// When it is measured which plan of a kernel is the fastest, on the runtimes that have a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tuning {
    /// [`OnFirstCall`](Self::OnFirstCall) on a GPU, [`Off`](Self::Off) where a CPU does the work: there the
    /// candidates differ by less than their times do from run to run.
    #[default]
    Auto,
    /// At the first call of a kind: operation, dtypes, layout and rounded shape. That call takes up to
    /// some hundred milliseconds more, and seconds where kernels compile slowly; what it finds is kept in
    /// CubeCL's cache, for later runs too.
    ///
    /// Results may differ in their last digits between machines that chose differently.
    OnFirstCall,
    /// As [`Auto`](Self::Auto), until first calls have measured for so long together in this process: from then on a
    /// kind that was measured neither here nor by a process before, and is in no bundle, has the plan that is made from
    /// shape, dtype and device. One call may take longer than what is left.
    Within(Duration),
    /// Never: plans are made from shape, dtype and device alone, the same in each run.
    Off,
}

impl Tuning {
    /// How a kernel's plan is chosen on a device.
    pub fn choice(self, hardware: &Hardware) -> StrategyChoice {
        match self {
            Self::OnFirstCall => StrategyChoice::Tuned,
            Self::Auto if hardware.is_gpu() => StrategyChoice::Tuned,
            Self::Within(budget) if hardware.is_gpu() => StrategyChoice::TunedWithin(budget),
            Self::Auto | Self::Within(_) | Self::Off => StrategyChoice::Inferred,
        }
    }

    /// What a value of the variable means.
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

/// The variable that says `on`, `off` or how many milliseconds (`500ms`) where nobody called [`set_tuning`].
const VARIABLE: &str = "CUBENORM_TUNING";

fn state() -> &'static Mutex<Tuning> {
    static STATE: OnceLock<Mutex<Tuning>> = OnceLock::new();
    STATE.get_or_init(|| Mutex::new(Tuning::of(&std::env::var(VARIABLE).unwrap_or_default())))
}

/// Says when to tune, for all calls of this process from here on.
///
/// Without it tuning is [`Auto`](Tuning::Auto), unless the environment has `CUBENORM_TUNING=on`, `off`, or a budget
/// in milliseconds, such as `500ms`.
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

/// When it is tuned.
pub fn tuning() -> Tuning {
    *state().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `call` once for an input of each shape and waits for the device, so that a later call of these
/// shapes finds everything compiled, and tuned where that is on.
///
/// The inputs are all ones, of `dtype`, on `device`; on a device with autodiff they require gradients,
/// so that a `call` that ends in `backward()` warms up the way back too.
///
/// # Panics
///
/// Where `call` does, or the device cannot finish what was asked of it.
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
    if let Err(error) = device.sync() {
        panic!("warm_up: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_no_budget_and_who_has_one_measure_on_a_gpu_alone() {
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
    fn the_variable_says_when_and_for_how_long() {
        assert_eq!(Tuning::of("ON"), Tuning::OnFirstCall);
        assert_eq!(Tuning::of("off"), Tuning::Off);
        let budget = Tuning::Within(Duration::from_millis(500));
        assert_eq!([Tuning::of("500ms"), Tuning::of(" 500 ms")], [budget; 2]);
        for other in ["", "auto", "ms", "-1ms"] {
            assert_eq!(Tuning::of(other), Tuning::Auto, "{other}");
        }
    }
}
