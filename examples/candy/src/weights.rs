//! Weights of the network, read as tensors.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use burn::tensor::{Device, Tensor, TensorData};
use npyz::{NpyFile, Order};

/// Bytes of an `.npy` file before its header: magic, version and length.
const HEADER: usize = 10;

/// A folder of `.npy` files.
#[derive(Debug, Clone)]
pub struct Weights {
    folder: PathBuf,
    device: Device,
}

impl Weights {
    /// The weights in `folder`, for tensors on `device`.
    ///
    /// # Errors
    ///
    /// If there is no such folder.
    pub fn open(folder: &Path, device: &Device) -> Result<Self> {
        ensure!(
            folder.is_dir(),
            "there is no folder of weights {}",
            folder.display()
        );
        Ok(Self {
            folder: folder.to_owned(),
            device: device.clone(),
        })
    }

    /// The tensor in the file `name.npy`.
    ///
    /// # Errors
    ///
    /// If there is no such file, or its array has another shape.
    pub fn tensor<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>> {
        let path = self.folder.join(format!("{name}.npy"));
        let cannot = || format!("cannot read {}", path.display());
        let mut bytes = fs::read(&path).with_context(cannot)?;
        // The headers of the published weights end as NumPy's do, in a new line. Unlike NumPy's they
        // have no space before it, and the parser demands one.
        if let Some(end) = bytes.iter().skip(HEADER).position(|byte| *byte == b'\n') {
            bytes[HEADER + end] = b' ';
        }
        let array = NpyFile::new(bytes.as_slice()).with_context(cannot)?;
        ensure!(
            array
                .shape()
                .iter()
                .eq(shape.map(|size| size as u64).iter()),
            "{} has the shape {:?}, expected {shape:?}",
            path.display(),
            array.shape()
        );
        ensure!(
            array.order() == Order::C,
            "{} is in Fortran order, expected C order",
            path.display()
        );
        let data = TensorData::new(array.into_vec::<f32>().with_context(cannot)?, shape);
        Ok(Tensor::from_data(data, &self.device))
    }

    /// Filter of this shape and bias of `channels` elements of convolution `index`.
    pub fn convolution(
        &self,
        index: usize,
        shape: [usize; 4],
        channels: usize,
    ) -> Result<(Tensor<4>, Tensor<1>)> {
        let name = numbered("convolution", index);
        let filter = self.tensor(&format!("{name}_W"), shape)?;
        let bias = self.tensor(&format!("{name}_B"), [channels])?;
        Ok((filter, bias))
    }

    /// Scale and bias of normalization `index`, with `channels` elements each.
    pub fn normalization(&self, index: usize, channels: usize) -> Result<(Tensor<1>, Tensor<1>)> {
        let scale = numbered("InstanceNormalization_scale", index);
        let bias = numbered("InstanceNormalization_B", index);
        let read = |name: &str| {
            self.tensor(name, [channels])
                .with_context(|| format!("normalization {index}"))
        };
        Ok((read(&scale)?, read(&bias)?))
    }
}

/// Name of the layer with this index. The first one has no number.
fn numbered(name: &str, index: usize) -> String {
    match index {
        0 => name.to_owned(),
        index => format!("{name}{index}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_layer_has_no_number() {
        assert_eq!(numbered("convolution", 0), "convolution");
        assert_eq!(numbered("convolution", 12), "convolution12");
    }
}
