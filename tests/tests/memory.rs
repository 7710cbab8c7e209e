//! What a layer keeps between its forward pass and its backward pass, by the runtime's own account.

#![cfg(feature = "burn")]

use std::sync::{Mutex, PoisonError};

use burn::nn;
use burn::tensor::{Device, Tensor};
use cubenorm::nn::from_burn;
use cubenorm_tests::tensors::{devices, noise};

/// The account is the device's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The bytes in use once all that was asked of a device is computed; `None` where it does not say.
fn in_use(device: &Device) -> Option<u64> {
    device.sync().unwrap();
    device.memory_pool_usage().map(|usage| usage.bytes_in_use)
}

/// The bytes that the output's graph keeps besides the output and the input.
fn kept<const D: usize>(
    shape: [usize; D],
    device: &Device,
    forward: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Option<u64> {
    let x = noise(shape, 1, device).require_grad();
    // What the first call leaves behind, tuned choices and parameters, is not the graph's.
    drop(forward(x.clone()));
    let before = in_use(device)?;
    let output = forward(x.clone());
    let after = in_use(device)?;
    let output_bytes = (size_of::<f32>() * output.shape().num_elements()) as u64;
    // Alive until here.
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
                    println!("{name}: skipped, its memory is not accounted for");
                    continue;
                };
                println!("{name}: {of_ours} bytes, Burn's {of_burn}");
                // Two numbers for each row, and what an allocator adds to a tensor or two.
                let most = 8 * $rows + 512;
                assert!(
                    of_ours >= 8 * $rows,
                    "{name}: {of_ours} bytes are not all it keeps"
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

keeps_little!(layer_norm_keeps_two_numbers_a_row, nn::LayerNormConfig::new(512), [256, 512], rows: 256, half_of_burns: true);
keeps_little!(rms_norm_keeps_two_numbers_a_row, nn::RmsNormConfig::new(512), [256, 512], rows: 256, half_of_burns: true);
keeps_little!(group_norm_keeps_two_numbers_a_row, nn::GroupNormConfig::new(4, 16), [8, 16, 32, 32], rows: 32, half_of_burns: true);
keeps_little!(instance_norm_keeps_two_numbers_a_row, nn::InstanceNormConfig::new(16), [8, 16, 32, 32], rows: 128, half_of_burns: true);
// Burn's batch norm is one operation with a backward pass of its own, and keeps as little.
keeps_little!(batch_norm_keeps_two_numbers_a_row, nn::BatchNormConfig::new(16), [8, 16, 32, 32], rows: 16, half_of_burns: false);
