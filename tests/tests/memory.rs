//! Memory that a layer saves for its backward pass, as reported by the runtime.

#![cfg(feature = "burn")]

use std::sync::{Mutex, PoisonError};

use burn::nn;
use burn::tensor::{Device, Tensor};
use cubenorm::nn::from_burn;
use cubenorm_tests::tensors::{devices, noise};

/// Memory usage is reported per device, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Bytes in use after all pending work. None if the device does not report them.
fn in_use(device: &Device) -> Option<u64> {
    device.sync().unwrap();
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}

/// Bytes that the autodiff graph holds, without input and output.
fn kept<const D: usize>(
    shape: [usize; D],
    device: &Device,
    forward: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Option<u64> {
    let x = noise(shape, 1, device).require_grad();
    // The first call also allocates tuned choices and parameters.
    drop(forward(x.clone()));
    let before = in_use(device)?;
    let output = forward(x.clone());
    let after = in_use(device)?;
    let output_bytes = (size_of::<f32>() * output.shape().num_elements()) as u64;
    // Keeps the graph alive until after the measurement.
    output.sum().backward();
    Some(after.saturating_sub(before).saturating_sub(output_bytes))
}

macro_rules! keeps_little {
    ($test:ident, $config:expr, $shape:expr, rows: $rows:expr, half_of_burns: $half:expr) => {
        #[test]
        fn $test() {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            cubenorm_tests::guard::leave_out();
            for (name, device) in devices() {
                let device = device.autodiff();
                let burns = $config.init(&device);
                let ours = from_burn(burns.clone());
                let of_burn = kept($shape, &device, |x| burns.forward(x));
                let of_ours = kept($shape, &device, |x| ours.forward(x));
                let (Some(of_burn), Some(of_ours)) = (of_burn, of_ours) else {
                    println!("{name}: skipped, does not report its memory");
                    continue;
                };
                println!("{name}: {of_ours} bytes, Burn's {of_burn}");
                // Two f32 numbers per row, and the allocator's overhead for two tensors.
                let most = 8 * $rows + 512;
                assert!(
                    of_ours >= 8 * $rows,
                    "{name}: {of_ours} bytes: expected at least two numbers per row"
                );
                assert!(of_ours <= most, "{name}: {of_ours} bytes, of {most}");
                if $half {
                    assert!(
                        2 * of_ours <= of_burn,
                        "{name}: {of_ours} bytes, Burn's {of_burn}"
                    );
                }
            }
        }
    };
}

keeps_little!(layer_norm_saves_two_numbers_per_row, nn::LayerNormConfig::new(512), [256, 512], rows: 256, half_of_burns: true);
keeps_little!(rms_norm_saves_two_numbers_per_row, nn::RmsNormConfig::new(512), [256, 512], rows: 256, half_of_burns: true);
keeps_little!(group_norm_saves_two_numbers_per_row, nn::GroupNormConfig::new(4, 16), [8, 16, 32, 32], rows: 32, half_of_burns: true);
keeps_little!(instance_norm_saves_two_numbers_per_row, nn::InstanceNormConfig::new(16), [8, 16, 32, 32], rows: 128, half_of_burns: true);
// Burn's batch norm is one operation with its own backward pass, and saves as little.
keeps_little!(batch_norm_saves_two_numbers_per_row, nn::BatchNormConfig::new(16), [8, 16, 32, 32], rows: 16, half_of_burns: false);
