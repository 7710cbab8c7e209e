//! Guarantees besides values: errors, determinism, plans and memory.

use cubecl::MemoryScope;
use cubenorm_core::{DType, Epsilon, Layout, NormDesc, Statistics, TensorDesc};
use cubenorm_kernels::{ForwardTensors, PreparedForward, launch_forward};
use cubenorm_tests::case::Case;
use cubenorm_tests::device::devices;

use super::choices;

#[test]
fn results_are_bitwise_reproducible() {
    for device in devices() {
        let mut compared = 0;
        for dtype in device.dtypes() {
            for (shape, axis) in [
                ([100, 96], 1),
                ([3, 5000], 1),
                ([1, 70_000], 1),
                ([4096, 32], 0),
            ] {
                let input = TensorDesc::contiguous(shape, dtype);
                let desc = NormDesc::new(input, [axis], Statistics::MeanVariance);
                let case = Case::new(desc, 31);
                for choice in choices(&device, &case.desc) {
                    let first = case.run(&device.client, choice).unwrap();
                    for _ in 0..3 {
                        let again = case.run(&device.client, choice).unwrap();
                        assert!(again == first, "{} {dtype} {choice:?}", device.name);
                    }
                    compared += 1;
                }
            }
        }
        println!("{}: {compared} results are reproducible", device.name);
    }
}

#[test]
fn concurrent_launches_do_not_change_results() {
    for device in devices() {
        let input = TensorDesc::contiguous([257, 1000], DType::F32);
        let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
        let case = Case::new(desc, 33);
        let alone = case.run(&device.client, Default::default()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..8 {
                        let beside = case.run(&device.client, Default::default()).unwrap();
                        assert!(beside == alone, "{}", device.name);
                    }
                });
            }
        });
    }
}

#[test]
fn short_buffers_are_refused() {
    for device in devices() {
        let input = TensorDesc::new(Layout::strided([3, 4], [8, 1]), DType::F32);
        let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
        let tensors = ForwardTensors::new(device.client.empty(19 * 4));
        let error = launch_forward(&device.client, &desc, &tensors, Default::default());
        assert_eq!(
            error.unwrap_err().to_string(),
            "input with shape [3, 4] and strides [8, 1] spans 20 elements, but its buffer holds 19"
        );
    }
}

#[test]
fn missing_buffers_are_refused() {
    for device in devices() {
        let input = TensorDesc::contiguous([3, 4], DType::F32);
        let desc = NormDesc::new(input.clone(), [1], Statistics::MeanVariance).with_scale(input);
        let tensors = ForwardTensors::new(device.client.empty(12 * 4));
        let error = launch_forward(&device.client, &desc, &tensors, Default::default());
        assert_eq!(
            error.unwrap_err().to_string(),
            "the description and the buffers disagree about scale: one has it, the other does not"
        );
    }
}

#[test]
fn outputs_that_overlap_inputs_are_refused() {
    for device in devices() {
        let row = TensorDesc::contiguous([3, 4], DType::F32);
        let desc = NormDesc::new(row.clone(), [1], Statistics::MeanVariance);
        let buffer = device.client.empty(24 * 4);
        let launch = |input, output| {
            let tensors = ForwardTensors {
                output: Some(output),
                ..ForwardTensors::new(input)
            };
            launch_forward(&device.client, &desc, &tensors, Default::default())
        };
        let half = buffer.clone().offset_end(12 * 4);
        let error = launch(half.clone(), buffer.clone().offset_start(11 * 4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "output overlaps input, which is read after the first store: give output a buffer of its own"
        );
        // Offsets of another allocation never overlap.
        launch(half, device.client.empty(24 * 4).offset_end(12 * 4)).unwrap();
    }
}

#[test]
fn buffers_that_start_between_vectors_are_refused() {
    for device in devices() {
        let row = TensorDesc::contiguous([3, 4], DType::F32);
        let desc = NormDesc::new(row, [1], Statistics::MeanVariance);
        let alignment = device.client.properties().memory.alignment;
        let buffer = device.client.empty(2 * alignment as usize + 64);
        let launch = |offset| {
            let tensors = ForwardTensors::new(buffer.clone().offset_start(offset));
            launch_forward(&device.client, &desc, &tensors, Default::default())
        };
        let error = launch(4).unwrap_err().to_string();
        let runtime = device.client.name();
        let expected = format!(
            "input starts 4 bytes into its buffer: expected a multiple of {alignment} on {runtime}"
        );
        assert_eq!(error, expected);
        launch(alignment).unwrap();
    }
}

#[test]
fn epsilon_is_not_part_of_the_plan() {
    for device in devices() {
        let of = |epsilon| {
            let input = TensorDesc::contiguous([4, 64], DType::F32);
            NormDesc::new(input, [1], Statistics::MeanVariance)
                .with_epsilon(Epsilon::InsideSqrt(epsilon))
        };
        let plan = |desc| cubenorm_kernels::plan_for(&device.client, &desc, Default::default());
        assert_eq!(plan(of(1e-5)).unwrap(), plan(of(0.5)).unwrap());
        for epsilon in [0.0, 1e-5, 0.5] {
            Case::new(of(epsilon), 32)
                .check(&device, Default::default())
                .unwrap();
        }
    }
}

#[test]
fn concurrent_threads_get_their_own_results() {
    for device in devices() {
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let device = &device;
                scope.spawn(move || {
                    let input = TensorDesc::contiguous([37, 300 + seed as usize], DType::F32);
                    let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
                    for _ in 0..8 {
                        let case = Case::new(desc.clone(), seed);
                        if let Err(error) = case.check(device, Default::default()) {
                            panic!("{error}");
                        }
                    }
                });
            }
        });
    }
}

#[test]
#[ignore = "100,000 calls on each device: cargo xtask test --large"]
fn many_small_calls_leak_no_memory() {
    const CALLS: usize = 100_000;
    for device in devices() {
        let client = &device.client;
        let input = TensorDesc::contiguous([4, 64], DType::F32);
        let desc = NormDesc::new(input, [1], Statistics::MeanVariance);
        let tensors = ForwardTensors::new(client.create_from_slice(&[0; 4 * 64 * 4]));
        let reserved = || {
            cubecl::future::block_on(client.sync()).expect("every launch succeeds");
            client
                .memory_report(MemoryScope::CurrentStream)
                .usage()
                .bytes_reserved
        };
        let call = || {
            launch_forward(client, &desc, &tensors, Default::default()).expect("it is valid");
        };
        (0..CALLS / 10).for_each(|_| call());
        let early = reserved();
        (CALLS / 10..CALLS).for_each(|_| call());
        let late = reserved();
        assert!(early > 0, "{}: no memory usage reported", device.name);
        assert!(
            late <= early + (1 << 20),
            "{}: {early} to {late} bytes",
            device.name
        );
    }
}

#[test]
fn outputs_may_take_the_buffer_of_the_input() {
    for device in devices() {
        let client = &device.client;
        let mut in_place = 0;
        for dtype in device.dtypes() {
            let layouts = [
                Layout::contiguous([64, 96]),
                Layout::contiguous([5, 1000]),
                Layout::contiguous([3, 30_000]),
                Layout::contiguous([40, 7]),
                Layout::strided([6, 64], [1, 6]),
                Layout::strided([6, 64], [80, 1]),
            ];
            for layout in layouts {
                for statistics in [Statistics::MeanVariance, Statistics::MeanSquare] {
                    let input = TensorDesc::new(layout.clone(), dtype);
                    let gamma = TensorDesc::contiguous([layout.shape[1]], dtype);
                    let desc = NormDesc::new(input, [1], statistics).with_scale(gamma);
                    let case = Case::new(desc, 34);
                    for choice in choices(&device, &case.desc) {
                        let tensors = case.tensors(client);
                        let prepared =
                            PreparedForward::new(client, &case.desc, &tensors, choice).unwrap();
                        let written = prepared.launch_in_place(client, &tensors).unwrap();
                        let output = prepared.output();
                        if let Err(error) =
                            case.compare_output(client, output, written.output.clone())
                        {
                            panic!("{} {dtype} {choice:?} {layout:?}: {error}", device.name);
                        }
                        let read = |handle| client.read_one(handle).unwrap().to_vec();
                        let is_same = read(written.output) == read(tensors.input);
                        assert_eq!(is_same, prepared.writes_in_place(), "{}", device.name);
                        in_place += usize::from(is_same);
                    }
                }
            }
        }
        println!(
            "{}: {in_place} outputs took the input's buffer",
            device.name
        );
        assert!(in_place > 0, "{}", device.name);
    }
}
