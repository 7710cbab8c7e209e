//! An executor in float64 on the host, by the reference's formulas.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use cubenorm_core::{DType, Epsilon, Layout, TensorDesc, WrittenStatistics};
use cubenorm_models::{ElementType, ExecuteError, Executor, HostArray, Run};
use cubenorm_operators::{Gradient, Lerp, Normalize, Program, Role, Slot, Step};
use cubenorm_reference::{BackwardTensors, Tensors, forward};

/// Computes everything in float64 and rounds outputs to their dtype.
pub(crate) struct Float64 {
    /// The dtypes that it has.
    pub dtypes: Vec<DType>,
}

impl Float64 {
    pub(crate) fn new() -> Self {
        Self {
            dtypes: DType::ALL.to_vec(),
        }
    }
}

impl Executor for Float64 {
    fn name(&self) -> &str {
        "float64"
    }

    fn run(
        &self,
        program: &Program,
        buffers: &BTreeMap<Slot, Vec<u8>>,
        iterations: usize,
    ) -> Result<Run, ExecuteError> {
        let dtypes = program.tensors.iter().map(|tensor| tensor.desc.dtype);
        if let Some(dtype) = dtypes
            .into_iter()
            .find(|dtype| !self.dtypes.contains(dtype))
        {
            return Err(ExecuteError::Unsupported(format!("it has no {dtype}")));
        }
        let mut values = Vec::new();
        for (index, tensor) in program.tensors.iter().enumerate() {
            let span = tensor.desc.layout.checked_span().expect("it was checked");
            values.push(match tensor.role {
                Role::Temporary => vec![0.0; span],
                _ => decode(tensor.desc.dtype, &buffers[&Slot(index)]),
            });
            assert!(values[index].len() >= span, "{} is too short", tensor.name);
        }
        for step in &program.steps {
            match step {
                Step::Normalize(step) => normalize(step, &mut values),
                Step::Lerp(step) => lerp(step, &mut values),
                Step::Gradient(step) => gradient(step, &mut values),
            }
        }
        let outputs = program.outputs().map(|(slot, tensor)| {
            let values = &values[slot.0];
            let array = HostArray::from_f64(tensor.desc.dtype, [values.len()], values);
            (slot, array.expect("its length is its own").bytes)
        });
        Ok(Run {
            outputs: outputs.collect(),
            host_times: vec![Duration::from_millis(1); iterations],
            device_times: None,
        })
    }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let element = ElementType::from(dtype);
    let chunks = bytes.chunks_exact(dtype.size());
    chunks.map(|chunk| element.number(chunk).unwrap()).collect()
}

/// The addresses of a layout's elements in row-major order.
fn addresses(layout: &Layout) -> Vec<usize> {
    let count = layout.checked_elements().expect("it was checked");
    let address = |mut index: usize| {
        let mut address = 0;
        for (&size, &stride) in layout.shape.iter().zip(&layout.strides).rev() {
            address += index % size * stride;
            index /= size;
        }
        address
    };
    (0..count).map(address).collect()
}

fn store(desc: &TensorDesc, values: &[f64], buffer: &mut [f64]) {
    for (&value, address) in values.iter().zip(addresses(&desc.layout)) {
        buffer[address] = value;
    }
}

fn normalize(step: &Normalize, values: &mut [Vec<f64>]) {
    let at = |slot: Option<Slot>| slot.map(|slot| values[slot.0].as_slice());
    let tensors = Tensors {
        input: &values[step.input.0],
        residual: at(step.residual),
        scale: at(step.scale),
        bias: at(step.bias),
        mean: at(step.mean),
        variance: at(step.variance),
        ..Tensors::default()
    };
    let result = forward(&step.desc, &tensors);
    let output = step.desc.output.as_ref().expect("it is always described");
    store(output, &result.output, &mut values[step.output.0]);
    if let Some(sum) = step.sum {
        store(output, &result.sum, &mut values[sum.0]);
    }
    let Some(statistics) = step.statistics else {
        return;
    };
    let shape = step.desc.input.shape();
    let mut kept = shape.to_vec();
    step.desc.axes.iter().for_each(|&axis| kept[axis] = 1);
    let mut rows = Layout::contiguous(kept.clone());
    for (stride, (kept, size)) in rows.strides.iter_mut().zip(kept.iter().zip(shape)) {
        if kept != size {
            *stride = 0;
        }
    }
    rows.shape = shape.to_vec();
    for (element, row) in addresses(&rows).into_iter().enumerate() {
        let second = match step.desc.written_statistics {
            Some(WrittenStatistics::MeanRstd) => result.rstd[element],
            _ => result.variance[element],
        };
        values[statistics.0][2 * row] = result.mean[element];
        values[statistics.0][2 * row + 1] = second;
    }
}

fn lerp(step: &Lerp, values: &mut [Vec<f64>]) {
    let desc = &step.desc;
    let load = |desc: &TensorDesc, offset: usize, buffer: &[f64]| -> Vec<f64> {
        let addresses = addresses(&desc.layout).into_iter();
        addresses.map(|address| buffer[address + offset]).collect()
    };
    let mut result = load(&desc.input, desc.input_offset, &values[step.input.0]);
    for value in &mut result {
        *value = match desc.deviation {
            None => *value,
            Some(Epsilon::InsideSqrt(epsilon)) => 1.0 / (*value + epsilon).sqrt(),
            Some(Epsilon::AddedToDeviation(epsilon)) => 1.0 / (value.sqrt() + epsilon),
        };
    }
    if let (Some(previous), Some(slot)) = (&desc.previous, step.previous) {
        let previous = load(previous, 0, &values[slot.0]);
        for (value, previous) in result.iter_mut().zip(previous) {
            *value = previous * desc.momentum + *value * (1.0 - desc.momentum);
        }
    }
    let output = &mut values[step.output.0][desc.output_offset..];
    store(&desc.output, &result, output);
}

/// Folder of shared test cases, if there is one.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = root.join("../../../shared").join(name);
    let there = folder.is_dir();
    if !there {
        println!("skipped: there are no cases in ../shared/{name}");
    }
    there.then_some(folder)
}

fn gradient(step: &Gradient, values: &mut [Vec<f64>]) {
    let at = |slot: Option<Slot>| slot.map(|slot| values[slot.0].as_slice());
    let tensors = BackwardTensors {
        input: &values[step.input.0],
        output_gradient: &values[step.output_gradient.0],
        saved: at(step.saved),
        scale: at(step.scale),
        bias: at(step.bias),
        ..BackwardTensors::default()
    };
    let result = cubenorm_reference::gradient(&step.desc, &tensors);
    if let (Some(slot), Some(desc)) = (step.input_gradient, &step.desc.input_gradient) {
        store(desc, &result.input, &mut values[slot.0]);
    }
    for (slot, sums) in [
        (step.scale_gradient, result.scale),
        (step.bias_gradient, result.bias),
    ] {
        if let Some(slot) = slot {
            values[slot.0] = sums;
        }
    }
}

/// An array of float64 in NumPy's format.
pub(crate) fn npy(shape: &[usize], values: &[f64]) -> Vec<u8> {
    let sizes: String = shape.iter().map(|size| format!("{size},")).collect();
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({sizes}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// An archive of arrays by their names, stored or deflated.
pub(crate) fn npz(arrays: &[(&str, Vec<u8>)], is_deflated: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut archive = rawzip::ZipArchiveWriter::new(&mut bytes);
    let method = match is_deflated {
        true => rawzip::CompressionMethod::DEFLATE,
        false => rawzip::CompressionMethod::STORE,
    };
    for (name, array) in arrays {
        let name = format!("{name}.npy");
        let builder = archive.new_file(&*name).compression_method(method);
        let (mut entry, config) = builder.start().unwrap();
        let descriptor = if is_deflated {
            let level = flate2::Compression::default();
            let encoder = flate2::write::DeflateEncoder::new(&mut entry, level);
            let mut writer = config.wrap(encoder);
            writer.write_all(array).unwrap();
            let (encoder, descriptor) = writer.finish().unwrap();
            encoder.finish().unwrap();
            descriptor
        } else {
            let mut writer = config.wrap(&mut entry);
            writer.write_all(array).unwrap();
            writer.finish().unwrap().1
        };
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    bytes
}
