//! Validates WGSL with naga, as wgpu does.

use cubecl::ir::features::Plane;
use cubecl::ir::{DeviceProperties, ElemType, FloatKind};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Parses and validates a module, with the capabilities that wgpu enables on a device of these
/// properties.
pub fn check(text: &str, properties: &DeviceProperties) -> Result<(), String> {
    let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
    let has = |kind| properties.supports_type(ElemType::Float(kind));
    let mut capabilities = Capabilities::empty();
    capabilities.set(Capabilities::SHADER_FLOAT16, has(FloatKind::F16));
    capabilities.set(Capabilities::FLOAT64, has(FloatKind::F64));
    let has_planes = properties.features.plane.contains(Plane::Ops);
    capabilities.set(Capabilities::SUBGROUP, has_planes);
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator
        .validate(&module)
        .map(|_| ())
        .map_err(|error| error.emit_to_string(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    const HALF: &str = "enable f16;
        @group(0) @binding(0) var<storage, read_write> x: array<f16>;
        @compute @workgroup_size(1) fn main() { x[0] = x[0] + 1.0h; }";

    #[test]
    fn f16_is_valid_only_if_supported() {
        check(HALF, &Profile::browser().properties).unwrap();
        let without = check(HALF, &Profile::small_software_wgsl().properties);
        assert!(without.is_err());
    }

    #[test]
    fn invalid_module_error_shows_line() {
        let text = "@compute @workgroup_size(1) fn main() { let x = 1u + 1.5f; }";
        let error = check(text, &Profile::browser().properties).unwrap_err();
        assert!(error.contains("1u + 1.5f"), "{error}");
    }
}
