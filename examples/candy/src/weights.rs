//! Weights of the network, read as tensors.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use burn::tensor::{Device, Tensor, TensorData};

use crate::npy;

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
        let array = npy::read(&path)?;
        ensure!(
            array.shape == shape,
            "{} has the shape {:?}, expected {shape:?}",
            path.display(),
            array.shape
        );
        let data = TensorData::new(array.values, shape);
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
