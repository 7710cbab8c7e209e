//! Failed launches and concurrent devices do not affect other launches.

use cubecl::future::block_on;
use cubenorm_core::{DType, Layout, NormDesc, Statistics, TensorDesc};
use cubenorm_kernels::{ForwardTensors, launch_forward};
use cubenorm_tests::case::Case;
use cubenorm_tests::device::{TestDevice, devices};

fn layer_norm(rows: usize, cols: usize) -> NormDesc {
    let input = TensorDesc::contiguous([rows, cols], DType::F32);
    NormDesc::new(input, [1], Statistics::MeanVariance)
}

/// Checks an unrelated norm.
#[track_caller]
fn check_another(device: &TestDevice, seed: u64) {
    let case = Case::new(layer_norm(37, 300 + seed as usize), seed);
    if let Err(error) = case.check(device, Default::default()) {
        panic!("{error}");
    }
}

/// Row length of an output that exceeds any memory. The input is one repeated row.
const COLS: usize = 1 << 14;

/// Number of rows that exceeds one buffer of the device.
///
/// It is as small as possible, since a device with 32-bit addresses refuses larger counts earlier.
fn too_many_rows(device: &TestDevice) -> usize {
    let most = device.client.properties().memory.max_page_size as usize / size_of::<f32>();
    let beyond_any_machine = 1usize << 44;
    match most < u32::MAX as usize / 2 {
        true => 2 * most / COLS,
        false => beyond_any_machine / COLS,
    }
}

#[test]
fn failed_allocation_leaves_the_next_call_working() {
    for device in devices() {
        let client = &device.client;
        let rows = too_many_rows(&device);
        let repeated = Layout::strided([rows, COLS], [0, 1]);
        let input = TensorDesc::new(repeated, DType::F32);
        let output = TensorDesc::contiguous([rows, COLS], DType::F32);
        let desc = NormDesc::new(input, [1], Statistics::MeanVariance).with_output(output);
        let tensors = ForwardTensors::new(client.create_from_slice(&[0; COLS * 4]));
        for seed in 0..3 {
            // Refused by the plan, or reported when the result is read.
            let error = match launch_forward(client, &desc, &tensors, Default::default()) {
                Err(error) => error.to_string(),
                Ok(outputs) => {
                    let read = client.read_one(outputs.output.handle);
                    match read {
                        Err(error) => error.to_string(),
                        Ok(_) => panic!("no device has that much memory"),
                    }
                }
            };
            println!("{}: {}", device.name, error.lines().next().unwrap_or(""));
            check_another(&device, seed);
        }
    }
}

#[test]
fn refused_launches_leave_the_next_call_working() {
    for device in devices() {
        let client = &device.client;
        for dtype in DType::ALL {
            if cubenorm_kernels::supports(client, dtype) {
                continue;
            }
            let input = TensorDesc::contiguous([4, 64], dtype);
            let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
            let tensors = ForwardTensors::new(client.empty(4 * 64 * dtype.size()));
            let error = launch_forward(client, &desc, &tensors, Default::default()).unwrap_err();
            let message = format!("{} has no {dtype}", client.name());
            assert!(error.to_string().starts_with(&message), "{error}");
            block_on(client.sync()).unwrap();
            check_another(&device, dtype.size() as u64);
        }
        let short = ForwardTensors::new(client.empty(4));
        launch_forward(client, &layer_norm(4, 64), &short, Default::default()).unwrap_err();
        block_on(client.sync()).unwrap();
        check_another(&device, 9);
    }
}

#[test]
fn concurrent_devices_keep_their_results_apart() {
    let devices = devices();
    if devices.len() == 1 {
        println!("{}: one device, shared by all threads", devices[0].name);
    }
    // At least two threads per device, so that threads share a device while others run.
    std::thread::scope(|scope| {
        for seed in 0..4u64.max(2 * devices.len() as u64) {
            let device = &devices[seed as usize % devices.len()];
            scope.spawn(move || (0..8).for_each(|round| check_another(device, 8 * seed + round)));
        }
    });
}

#[cfg(feature = "burn")]
#[test]
fn mixed_devices_are_refused() {
    use cubenorm::NormError;
    use cubenorm_tests::tensors::{devices, noise};

    let devices = devices();
    let [(_, first), .., (_, second)] = devices.as_slice() else {
        println!("skipped: one device");
        return;
    };
    let x = noise([2, 4], 1, first);
    let error = cubenorm::try_layer_norm(x, noise([4], 2, second), None, 1e-5).unwrap_err();
    assert_eq!(
        error,
        NormError::MixedDevices {
            tensor: "gamma",
            expected: format!("{first:?}"),
            actual: format!("{second:?}"),
        }
    );
}
