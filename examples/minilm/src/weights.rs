//! Loads the published weights into the network.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use burn::tensor::Device;
use burn_store::{KeyRemapper, ModuleSnapshot, PyTorchToBurnAdapter, SafetensorsStore};

use crate::fetch::ModelFiles;
use crate::model::{MiniLm, MiniLmConfig};

/// Replacements from names in the checkpoint to fields of [`MiniLm`], applied in this order.
const RENAMES: [(&str, &str); 6] = [
    (r"^encoder\.layer\.", "layers."),
    (r"attention\.self\.", "attention."),
    (r"attention\.output\.LayerNorm\.", "attention_norm.norm."),
    (r"output\.LayerNorm\.", "output_norm.norm."),
    (r"embeddings\.LayerNorm\.", "embeddings.norm.norm."),
    (r"(intermediate|output)\.dense\.", "$1."),
];

/// Reads the sizes of the network from a `config.json`.
pub fn read_config(path: &Path) -> Result<MiniLmConfig> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} does not describe a BERT model", path.display()))
}

/// Builds the network and fills it with the checkpoint's weights.
pub fn load(files: &ModelFiles, device: &Device) -> Result<(MiniLm, MiniLmConfig)> {
    let config = read_config(&files.config)?;
    let mut model = config.init(device);

    let path = &files.weights;
    let mut store = SafetensorsStore::from_file(path)
        .with_from_adapter(PyTorchToBurnAdapter)
        .remap(KeyRemapper::from_pattern_iter(RENAMES)?);
    // The checkpoint's pooler is unused. A missing weight is an error.
    model
        .load_from(&mut store)
        .map_err(|error| anyhow!("cannot load {}: {error}", path.display()))?;
    Ok((model, config))
}
