//! Plans of typical problems, as recorded in `snapshots/`.

use cubenorm_core::{DType, Hardware, Knobs, NormDesc, Statistics, Strategy, TensorDesc};
use insta::assert_snapshot;

use crate::descs::{
    batch_norms, cpu, cpu_of_few_registers, group_norms, group_norms_channels_last, hopper,
    instance_norms_channels_last, layer_norms, over_channels, provided,
};
use crate::line::{backward, both, candidates_line, forward, forward_line, lines};

const F16: DType = DType::F16;
const BF16: DType = DType::BF16;
const F32: DType = DType::F32;

/// Short rows stay in registers or in the first-level cache; long ones share loads of parameters.
/// The compiler vectorizes one row of odd length, but not several at once.
#[test]
fn cpu_rows() {
    let shapes = "2048x96 2048x128 2048x256 2048x272 2048x320 2048x768 2048x1021 2048x1024 \
                  2048x1280 2048x2032 2048x2048 2048x4096 2048x16384 2048x16387";
    assert_snapshot!(both(&cpu(), layer_norms(shapes, &[F32])));
}

#[test]
fn cpu_rows_of_few_registers() {
    let shapes = "2048x768 2048x1021 2048x4096 2048x16384 2048x16387";
    assert_snapshot!(both(&cpu_of_few_registers(), layer_norms(shapes, &[F32])));
}

/// Narrow vectors stage rows, and leave registers for two sums.
#[test]
fn cpu_rows_of_halves() {
    let shapes = "2048x96 2048x256 2048x384 2048x544 2048x768 2048x1021 2048x2048 2048x2080";
    assert_snapshot!(forward(&cpu(), layer_norms(shapes, &[F16, BF16])));
}

#[test]
fn cpu_halves_of_few_registers() {
    let layer = layer_norms("2048x4096", &[F16]);
    let rms = layer[0].clone().with_bias(None);
    let rms = NormDesc {
        statistics: Statistics::MeanSquare,
        ..rms
    };
    assert_snapshot!(forward(
        &cpu_of_few_registers(),
        [layer, vec![rms]].concat()
    ));
}

/// Two launches exactly if a row occupies two cores. Each short row costs a square root.
#[test]
fn cpu_cores_worth_waking() {
    let shapes = "4x16 1x131072 1x262144 1x1048576 256x1024 2048x4096 4096x3 16384x3";
    assert_snapshot!(forward(&Hardware::cpu(4, 512), layer_norms(shapes, &[F32])));
}

/// Lengths that a full or half vector divides need no tail, nor do short rows. Backward, column
/// sums have a slot for each lane.
#[test]
fn cpu_tails() {
    let rows = layer_norms("8x3 8x7 8x1000 8x1021 8x1024", &[F32, F16]);
    let bare = rows
        .iter()
        .map(|it| it.clone().with_scale(None).with_bias(None));
    let descs = [
        bare.collect(),
        rows.clone(),
        batch_norms("8x64x49 40000x3x49"),
    ];
    assert_snapshot!(both(&cpu(), descs.concat()));
}

/// Columns with other segments than the scale's have no tail.
#[test]
fn cpu_segments_of_other_length() {
    let input = TensorDesc::contiguous([8, 3, 7, 49], F32);
    let norm = NormDesc::new(input, [1, 2, 3], Statistics::MeanVariance);
    let norm = norm.with_scale(TensorDesc::contiguous([3, 7, 1], F32));
    assert_snapshot!(both(&cpu(), vec![norm]));
}

/// A core takes all vectors of a sample or one. Samples that do not balance are split.
#[test]
fn cpu_tiles() {
    let shapes = "8x96x900 8x320x900 8x1280x900 8x1344x900 1x320x900 3x320x900 9x320x900";
    let descs = instance_norms_channels_last(shapes, &[F32, F16, DType::F64]);
    assert_snapshot!(both(&cpu(), descs));
}

/// A core combines groups whose channels fill whole vectors, in tiles of whole rows.
#[test]
fn cpu_groups_channels_last() {
    let shapes = "8x32x4x4096 8x32x6x4096 8x32x8x4096 8x32x10x4096 8x32x16x4096 8x32x30x4096 \
                  8x32x40x4096 8x32x60x4096 8x32x256x64";
    let descs = group_norms_channels_last(shapes, &[F32, F16]);
    assert_snapshot!(both(&cpu(), descs));
}

/// Lines of 640 and 768 bytes are whole tiles if they balance over the cores.
#[test]
fn cpu_tiles_of_whole_lines() {
    let descs = group_norms_channels_last("8x32x6x4096 8x32x8x4096 8x32x10x4096", &[F32, F16]);
    let [two, three] = [2, 3].map(|cores| forward(&Hardware::cpu(cores, 256), descs.clone()));
    assert_snapshot!(lines([two, three]));
}

/// Vectors cross channels, end with them, or split the row at them.
#[test]
fn cpu_groups() {
    let shapes = "2x32x10x4096 2x32x10x16 2x32x7x49 2x32x20x49 2x32x64x49 16x32x2x5329 \
                  16x32x2x5184 8x32x8x850";
    assert_snapshot!(both(&cpu(), group_norms(shapes, &[F32, F16])));
}

/// A tile computes deviations once per channel. A core keeps those of few channels.
#[test]
fn cpu_provided_statistics() {
    let shapes = "8x3x900 8x64x900 8x320x900 8x1024x900 8x4096x900 8x8192x900";
    let channels_last = provided(shapes, true, &[F32, F16]);
    let contiguous = provided("8x2048x49 8x64x784", false, &[F32]);
    assert_snapshot!(forward(&cpu(), [channels_last, contiguous].concat()));
}

/// Segments that are too short for per-lane coefficients stay whole.
#[test]
fn cpu_batch_norms() {
    let shapes = "256x2048x49 256x2048x196 256x3x49 64x2048x49";
    assert_snapshot!(both(&cpu(), batch_norms(shapes)));
}

/// Sums per lane remain with many rows per core, and none with parts of all rows.
#[test]
fn cpu_columns() {
    let shapes = "64x96x64 64x96x49 1x4096x197 2x8192x16";
    assert_snapshot!(both(&cpu(), over_channels(shapes, &[F32])));
}

/// Outputs of more than half the caches, one row at a time. Rows up to 128 KiB are prefetched.
#[test]
fn cpu_large_outputs() {
    let hardware = Hardware {
        nontemporal_threshold: Some(32 << 20),
        ..cpu()
    };
    let rows = "4095x512 4096x512 2730x512 4097x1021 2048x4096 64x32768 64x65536 4096x64";
    let groups = "16x3x1x49729 16x32x2x5329 8x3x1x49729 9000x1x1x497";
    let provided = provided("32x3x50176 8x64x12544 8x64x784", true, &[F32]);
    let descs = [
        layer_norms(rows, &[F32]),
        group_norms(groups, &[F32]),
        provided,
    ];
    assert_snapshot!(both(&hardware, descs.concat()));
}

/// A dynamic schedule pays for four cores and 8 MiB; two launches have a static one.
#[test]
fn cpu_dynamic_schedules() {
    let shapes = "4096x1024 2047x1024 2048x1024 4x4096 3x1048576";
    let of = |cores| forward(&Hardware::cpu(cores, 512), layer_norms(shapes, &[F32]));
    assert_snapshot!(lines([2, 3, 4, 64].map(of)));
}

/// Four rows share loads if enough are left. Lanes or cores share few rows.
#[test]
fn cpu_vulkan() {
    let rows = "32768x256 2048x4096 512x16384 512x131072 64x65536 64x63 1x512 1x1024 1x2048 \
                1x16384 4x4096 8x2048";
    let maps = "8x32x900 8x64x900 8x100x900 8x320x900";
    let descs = [
        layer_norms(rows, &[F32, F16]),
        instance_norms_channels_last(maps, &[F32]),
        group_norms("16x32x10x4096", &[F32]),
        over_channels("64x96x64", &[F32]),
        provided("64x64x3136", false, &[F32]),
    ];
    assert_snapshot!(both(&Hardware::cpu_vulkan(2), descs.concat()));
}

/// Rows stay in registers, in shared memory, or in both. Longer rows are reloaded.
#[test]
fn gpu_rows() {
    let shapes = "262144x256 4096x512 4096x1024 4096x1280 4096x2025 4096x4096 4096x5120 4096x8192 \
                  4096x12288 4096x14336 4096x16380 4096x16384 4096x28672 4096x32768 4096x65536 \
                  4096x131072";
    assert_snapshot!(forward(&hopper(), layer_norms(shapes, &[F32, BF16])));
}

/// Persistent teams sum columns in registers or shared memory, clusters for long rows.
#[test]
fn gpu_rows_backward() {
    let shapes = "32768x384 32768x768 32768x1024 32768x1280 32768x3072 32768x4000 32768x4096 \
                  32768x5120 32768x7168 32768x8192 32768x14336 4096x16384 4096x20003 4096x32768 \
                  4096x65536 4096x131072 256x4096";
    assert_snapshot!(backward(&hopper(), layer_norms(shapes, &[F32, BF16])));
}

/// One column sum leaves registers for the next row.
#[test]
fn gpu_rows_backward_without_bias() {
    let shapes = "16384x5120 16384x8192 16384x14336 4096x16384 4096x65536";
    let descs = layer_norms(shapes, &[F32, F16]).into_iter();
    assert_snapshot!(backward(
        &hopper(),
        descs.map(|it| it.with_bias(None)).collect()
    ));
}

#[test]
fn gpu_rows_backward_without_clusters() {
    let hardware = Hardware {
        inter_cube_atomics: false,
        ..hopper()
    };
    assert_snapshot!(backward(
        &hardware,
        layer_norms("4096x32768 2048x65536", &[F32, BF16])
    ));
}

/// Parts for few rows, one cube per row otherwise.
#[test]
fn gpu_few_rows() {
    let shapes = "2x16777216 4x65536 131x65536 131x1048576 33x131072 44x131072 64x262144";
    assert_snapshot!(both(&Hardware::cuda(132), layer_norms(shapes, &[F32, F16])));
}

/// Parts balance over multiprocessors. Unreduced rows are split within one launch.
#[test]
fn gpu_batch_norms() {
    let trained = batch_norms("64x64x16384 64x70x16384 64x3x262144 64x2048x49");
    let provided = provided(
        "64x2048x49 668x2048x49 16384x2048x49 64x64x3136",
        false,
        &[F32],
    );
    assert_snapshot!(forward(&Hardware::cuda(132), [trained, provided].concat()));
}

/// Columns are staged if they fit, in narrow vectors or more units. Long columns take more units.
#[test]
fn gpu_columns() {
    let shapes = "4096x64x784 4096x96x784 4096x192x784 4096x384x784 4096x768x784 4096x3072x784 \
                  1783x192x49 1783x384x49 1783x768x49 1783x512x64 1783x768x64 1783x2048x64";
    assert_snapshot!(both(
        &Hardware::cuda(132),
        over_channels(shapes, &[F32, BF16])
    ));
}

/// A plane sums each channel of a group if its units have enough steps.
#[test]
fn gpu_groups() {
    let shapes = "64x32x40x256 64x32x16x1024 64x32x10x4096 64x32x2x65536 64x32x64x49 64x32x64x196 \
                  64x32x64x16 1x32x8192x256";
    assert_snapshot!(both(&Hardware::cuda(132), group_norms(shapes, &[F32, F16])));
}

/// Channels are segments if adjacent ones are worth a load, unless rows are staged whole.
#[test]
fn gpu_groups_channels_last() {
    let shapes = "8x32x4x4096 8x32x10x4096 8x32x40x256 8x32x256x64";
    let descs = group_norms_channels_last(shapes, &[F32, F16]);
    assert_snapshot!(both(&Hardware::cuda(132), descs));
}

/// A strategy or another knob decides what it names, and the plan the rest.
#[test]
fn knobs_of_channels_last() {
    let rows_per_unit = |rows| Knobs {
        rows_per_unit: Some(rows),
        ..Knobs::default()
    };
    let ten = &group_norms_channels_last("8x32x10x4096", &[F16])[0];
    let maps = &instance_norms_channels_last("8x1280x900", &[F16])[0];
    let of_maps = [1, 2, 4].map(|rows| forward_line(maps, &cpu(), rows_per_unit(rows)));
    let of_groups = [rows_per_unit(1), Strategy::Split.into()];
    let of_groups = of_groups.map(|knobs| forward_line(ten, &cpu(), knobs));
    let on_gpu = [Strategy::Cube, Strategy::Split];
    let on_gpu = on_gpu.map(|it| forward_line(ten, &Hardware::cuda(132), it.into()));
    assert_snapshot!(lines([&of_maps[..], &of_groups, &on_gpu].concat()));
}

/// Candidates for autotuning start with the analytic plan.
#[test]
fn candidates() {
    let rows = layer_norms("4096x8192 1x1048576 32768x256", &[F32, F16]);
    let descs = [rows, over_channels("512x192x196 512x384x196", &[F32, F16])].concat();
    let of = |hardware: &Hardware| lines(descs.iter().map(|desc| candidates_line(desc, hardware)));
    let devices = [cpu(), Hardware::cpu_vulkan(2), Hardware::cuda(132)];
    assert_snapshot!(lines(devices.iter().map(of)));
}
