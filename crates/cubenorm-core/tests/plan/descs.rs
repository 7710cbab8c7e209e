//! Typical normalizations, and devices for them.

use cubenorm_core::{DType, Hardware, Layout, NormDesc, Statistics, TensorDesc};

/// A CPU of two cores with AVX-512.
pub(crate) fn cpu() -> Hardware {
    Hardware::cpu(2, 512)
}

/// The registers of AVX2 with the loads of AVX-512.
pub(crate) fn cpu_of_few_registers() -> Hardware {
    Hardware {
        register_bits: 16 * 256,
        ..cpu()
    }
}

/// An H200 with all of its shared memory.
pub(crate) fn hopper() -> Hardware {
    Hardware {
        max_shared_memory: 227 << 10,
        ..Hardware::cuda(132)
    }
}

/// Shapes such as `64x1024`, separated by spaces.
fn shapes<const N: usize>(text: &str) -> impl Iterator<Item = [usize; N]> {
    text.split_whitespace().map(|shape| {
        let sizes = shape.split('x').map(|size| size.parse().unwrap());
        sizes.collect::<Vec<usize>>().try_into().unwrap()
    })
}

/// A description for each shape and dtype.
fn each<const N: usize>(
    text: &str,
    dtypes: &[DType],
    desc: impl Fn([usize; N], DType) -> NormDesc,
) -> Vec<NormDesc> {
    let of = |shape| dtypes.iter().map(move |&dtype| (shape, dtype));
    let all = shapes(text).flat_map(of);
    all.map(|(shape, dtype)| desc(shape, dtype)).collect()
}

fn norm(layout: Layout, dtype: DType, axes: &[usize], param: &[usize]) -> NormDesc {
    let param = TensorDesc::contiguous(param, dtype);
    let input = TensorDesc::new(layout, dtype);
    NormDesc::new(input, axes.to_vec(), Statistics::MeanVariance)
        .with_scale(param.clone())
        .with_bias(param)
}

pub(crate) fn layer_norm(rows: usize, cols: usize, dtype: DType) -> NormDesc {
    norm(Layout::contiguous([rows, cols]), dtype, &[1], &[cols])
}

/// Layer norms of rows and columns.
pub(crate) fn layer_norms(text: &str, dtypes: &[DType]) -> Vec<NormDesc> {
    each(text, dtypes, |[rows, cols], dtype| {
        layer_norm(rows, cols, dtype)
    })
}

/// Layer norms over the channels of samples, channels and spatial positions.
pub(crate) fn over_channels(text: &str, dtypes: &[DType]) -> Vec<NormDesc> {
    each(text, dtypes, |shape: [usize; 3], dtype| {
        norm(Layout::contiguous(shape), dtype, &[1], &[shape[1], 1])
    })
}

/// Group norm of samples, groups, channels and spatial positions.
pub(crate) fn group_norm(shape: [usize; 4], dtype: DType) -> NormDesc {
    let of_channels = [1, shape[1], shape[2], 1];
    norm(Layout::contiguous(shape), dtype, &[2, 3], &of_channels)
}

pub(crate) fn group_norms(text: &str, dtypes: &[DType]) -> Vec<NormDesc> {
    each(text, dtypes, group_norm)
}

/// The same, channels-last.
pub(crate) fn group_norms_channels_last(text: &str, dtypes: &[DType]) -> Vec<NormDesc> {
    each(text, dtypes, |shape: [usize; 4], dtype| {
        let [_, groups, members, pixels] = shape;
        let channels = groups * members;
        let layout = Layout::strided(shape, [pixels * channels, members, 1, channels]);
        norm(layout, dtype, &[2, 3], &[1, groups, members, 1])
    })
}

/// Instance norms of samples, channels and spatial positions, channels-last, without parameters.
pub(crate) fn instance_norms_channels_last(text: &str, dtypes: &[DType]) -> Vec<NormDesc> {
    each(text, dtypes, |shape, dtype| {
        let input = TensorDesc::new(channels_last(shape), dtype);
        NormDesc::new(input, [2], Statistics::MeanVariance)
    })
}

/// Batch norms of samples, channels and spatial positions, without parameters.
pub(crate) fn batch_norms(text: &str) -> Vec<NormDesc> {
    each(text, &[DType::F32], |shape: [usize; 3], dtype| {
        let input = TensorDesc::contiguous(shape, dtype);
        NormDesc::new(input, [0, 2], Statistics::MeanVariance)
    })
}

/// Batch norms with provided statistics, of channels-last samples or of contiguous ones.
pub(crate) fn provided(text: &str, is_channels_last: bool, dtypes: &[DType]) -> Vec<NormDesc> {
    each(text, dtypes, |shape: [usize; 3], dtype| {
        let channel = TensorDesc::contiguous([shape[1], 1], DType::F32);
        let [mean, variance] = [channel.clone(), channel.clone()];
        let layout = match is_channels_last {
            true => channels_last(shape),
            false => Layout::contiguous(shape),
        };
        let input = TensorDesc::new(layout, dtype);
        let statistics = Statistics::Provided { mean, variance };
        NormDesc::new(input, [0, 2], statistics).with_scale(channel)
    })
}

fn channels_last(shape: [usize; 3]) -> Layout {
    let [_, channels, pixels] = shape;
    Layout::strided(shape, [pixels * channels, 1, channels])
}
