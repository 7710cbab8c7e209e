//! Tensors of more than 2^31 and 2^32 elements. They take gigabytes: `cargo xtask test --large`.
//!
//! The input repeats one block of numbers. Statistics of a row therefore follow from the block, and
//! so does each expected element. Results are read in pieces.

use cubecl::bytes::Bytes;
use cubecl::server::Handle;
use cubenorm_core::{DType, Epsilon, Layout, NormDesc, Statistics, TensorDesc};
use cubenorm_kernels::{ForwardTensors, launch_forward, supports};
use cubenorm_tests::case::{encode, noise, round};
use cubenorm_tests::device::{TestDevice, devices};
use cubenorm_tests::tolerance;
use half::f16;

const DTYPE: DType = DType::F16;
const EPSILON: f64 = 1e-5;
/// Elements of the block: whole short rows of 3 elements, and no power of two.
const BLOCK: usize = 3 * 21_841;
/// Elements per read.
const PIECE: usize = 1 << 26;

/// Numbers of the block, rounded to f16.
fn block() -> Vec<f64> {
    let numbers = (0..BLOCK).map(|position| round(DTYPE, 0.5 + 2.0 * noise(3, position)));
    numbers.collect()
}

/// Mean and reciprocal deviation of `cols` elements that start at `start` in the block.
fn statistics(block: &[f64], start: usize, cols: usize) -> (f64, f64) {
    let rest = cols % BLOCK;
    let rounds = (cols / BLOCK) as f64;
    let of = |value: &dyn Fn(f64) -> f64| {
        let whole: f64 = match cols >= BLOCK {
            true => block.iter().map(|&x| value(x)).sum(),
            false => 0.0,
        };
        let tail = (start..start + rest).map(|position| value(block[position % BLOCK]));
        (rounds * whole + tail.sum::<f64>()) / cols as f64
    };
    let mean = of(&|x| x);
    let variance = of(&|x| (x - mean) * (x - mean));
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

/// Compares f16 results of a device with `expected`, a function of the position.
fn compare(
    device: &TestDevice,
    output: Handle,
    elements: usize,
    cols: usize,
    mut expected: impl FnMut(usize) -> f64,
) {
    for first in (0..elements).step_by(PIECE) {
        let piece = PIECE.min(elements - first);
        let bytes = |count: usize| (count * DTYPE.size()) as u64;
        let handle = output.clone().offset_start(bytes(first));
        let handle = handle.offset_end(bytes(elements - first - piece));
        let read = device.client.read_one(handle).expect("the launch succeeds");
        assert_eq!(read.len() as u64, bytes(piece));
        for (place, half) in read.chunks_exact(2).enumerate() {
            let position = first + place;
            let actual = f16::from_le_bytes([half[0], half[1]]).to_f64();
            let expected = expected(position);
            let tolerance = tolerance::bound(DTYPE, cols, expected.abs() + 1.0, 0.0);
            assert!(
                (actual - expected).abs() <= tolerance,
                "{}: {position} of {elements} is {actual}, expected {expected} within {tolerance:e}",
                device.name
            );
        }
    }
}

fn layer_norm(input: TensorDesc) -> NormDesc {
    NormDesc::new(input, [1], Statistics::MeanVariance).with_epsilon(Epsilon::InsideSqrt(EPSILON))
}

/// Devices whose buffers hold `elements` f16 numbers.
fn devices_for(elements: usize) -> impl Iterator<Item = TestDevice> {
    cubenorm_tests::guard::leave_out();
    devices().into_iter().filter(move |device| {
        let most = device.client.properties().memory.max_page_size;
        let fits = most >= (elements * DTYPE.size()) as u64;
        let runs = fits && supports(&device.client, DTYPE);
        if !runs {
            println!("{}: skipped, its buffers hold {most} bytes", device.name);
        }
        runs
    })
}

#[test]
#[ignore = "two tensors of 4 GiB: cargo xtask test --large"]
fn normalizes_more_than_two_to_the_31_elements() {
    const ELEMENTS: usize = (1 << 31) + 1;
    let block = block();
    for device in devices_for(ELEMENTS) {
        let client = &device.client;
        let input = {
            let block = encode(DTYPE, &block);
            let mut bytes = block.repeat(ELEMENTS.div_ceil(BLOCK));
            bytes.truncate(ELEMENTS * DTYPE.size());
            ForwardTensors::new(client.create(Bytes::from_bytes_vec(bytes)))
        };
        // Three rows of more than 2^29 elements, and more than 2^29 short rows.
        for cols in [ELEMENTS / 3, 3] {
            let shape = [ELEMENTS / cols, cols];
            let desc = layer_norm(TensorDesc::contiguous(shape, DTYPE));
            let outputs = launch_forward(client, &desc, &input, Default::default()).unwrap();
            let of_row = |row: usize| statistics(&block, row * cols % BLOCK, cols);
            // The block contains whole short rows. There are only three long ones.
            let rows: Vec<_> = (0..shape[0].min(BLOCK / 3)).map(of_row).collect();
            compare(&device, outputs.output.handle, ELEMENTS, cols, |position| {
                let (mean, rstd) = rows[position / cols % rows.len()];
                (block[position % BLOCK] - mean) * rstd
            });
            println!("{}: {shape:?} agree", device.name);
        }
    }
}

#[test]
#[ignore = "a tensor of 8 GiB: cargo xtask test --large"]
fn writes_more_than_two_to_the_32_elements() {
    const COLS: usize = (1 << 30) + 1;
    const SHAPE: [usize; 2] = [4, COLS];
    let block = block();
    for device in devices_for(4 * COLS) {
        let client = &device.client;
        let input = {
            let mut bytes = encode(DTYPE, &block).repeat(COLS.div_ceil(BLOCK));
            bytes.truncate(COLS * DTYPE.size());
            ForwardTensors::new(client.create(Bytes::from_bytes_vec(bytes)))
        };
        let repeated = TensorDesc::new(Layout::strided(SHAPE, [0, 1]), DTYPE);
        let desc = layer_norm(repeated).with_output(TensorDesc::contiguous(SHAPE, DTYPE));
        let outputs = launch_forward(client, &desc, &input, Default::default()).unwrap();
        let (mean, rstd) = statistics(&block, 0, COLS);
        compare(&device, outputs.output.handle, 4 * COLS, COLS, |position| {
            (block[position % COLS % BLOCK] - mean) * rstd
        });
        println!("{}: {SHAPE:?} agree", device.name);
    }
}
