//! When it is measured which plan of a kernel is the fastest.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{DType, Device, Tensor, TensorData};

/// When it is measured which plan of a kernel is the fastest, on the runtimes that have a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tuning {
    /// At the first call of a kind: operation, dtypes, layout and rounded shape. That call takes up to
    /// some hundred milliseconds more; what it finds is kept in CubeCL's cache, for later runs too.
    ///
    /// Results may differ in their last digits between machines that chose differently.
    #[default]
    OnFirstCall,
    /// Never: plans are made from shape, dtype and device alone, the same in each run.
    Off,
}

/// The variable that says `off` where nobody called [`set_tuning`].
const VARIABLE: &str = "CUBENORM_TUNING";

fn state() -> &'static AtomicBool {
    static IS_ON: OnceLock<AtomicBool> = OnceLock::new();
    IS_ON.get_or_init(|| {
        let is_off = std::env::var(VARIABLE).is_ok_and(|value| value.eq_ignore_ascii_case("off"));
        AtomicBool::new(!is_off)
    })
}

/// Says when to tune, for all calls of this process from here on.
///
/// Without it tuning is on, unless the environment has `CUBENORM_TUNING=off`.
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
    state().store(tuning == Tuning::OnFirstCall, Ordering::Relaxed);
}

/// When it is tuned.
pub fn tuning() -> Tuning {
    match state().load(Ordering::Relaxed) {
        true => Tuning::OnFirstCall,
        false => Tuning::Off,
    }
}

/// Runs `call` once for an input of each shape and waits for the device, so that a later call of these
/// shapes finds everything tuned and compiled.
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
