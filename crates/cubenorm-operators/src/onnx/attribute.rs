use std::collections::BTreeMap;

use crate::OperatorError;

/// Value of a node's attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// `INT`
    Int(i64),
    /// `FLOAT`
    Float(f32),
    /// `INTS`
    Ints(Vec<i64>),
    /// `FLOATS`
    Floats(Vec<f32>),
    /// `STRING`
    String(Vec<u8>),
    /// Any other type; no normalization has an attribute of one.
    Other,
}

impl AttributeValue {
    /// Name of the type in ONNX.
    fn type_name(&self) -> &'static str {
        match self {
            Self::Int(_) => "an INT",
            Self::Float(_) => "a FLOAT",
            Self::Ints(_) => "INTS",
            Self::Floats(_) => "FLOATS",
            Self::String(_) => "a STRING",
            Self::Other => "of another type",
        }
    }
}

/// Attributes of older versions, which nodes may still carry.
const LEGACY: [(&str, &str); 3] = [
    ("BatchNormalization", "consumed_inputs"),
    ("BatchNormalization", "is_test"),
    ("InstanceNormalization", "consumed_inputs"),
];

/// Attributes of a node, all of which the operator has.
pub(super) struct Attributes<'a> {
    operator: &'static str,
    values: &'a BTreeMap<String, AttributeValue>,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(
        operator: &'static str,
        known: &[&'static str],
        values: &'a BTreeMap<String, AttributeValue>,
    ) -> Result<Self, OperatorError> {
        let is_known = |name: &str| known.contains(&name) || LEGACY.contains(&(operator, name));
        match values.keys().find(|name| !is_known(name)) {
            Some(attribute) => Err(OperatorError::UnknownAttribute {
                operator,
                attribute: attribute.clone(),
                expected: known.join(", "),
            }),
            None => Ok(Self { operator, values }),
        }
    }

    pub(super) fn int(&self, name: &'static str, default: i64) -> Result<i64, OperatorError> {
        match self.values.get(name) {
            None => Ok(default),
            Some(&AttributeValue::Int(value)) => Ok(value),
            Some(other) => Err(self.mistyped(name, "an INT", other)),
        }
    }

    pub(super) fn required_int(&self, name: &'static str) -> Result<i64, OperatorError> {
        if !self.values.contains_key(name) {
            return Err(OperatorError::MissingAttribute {
                operator: self.operator,
                attribute: name,
            });
        }
        self.int(name, 0)
    }

    /// Reads 0 or 1.
    pub(super) fn flag(&self, name: &'static str, default: bool) -> Result<bool, OperatorError> {
        match self.int(name, i64::from(default))? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(OperatorError::Attribute {
                operator: self.operator,
                attribute: name,
                expected: "0 or 1".into(),
                actual: other.to_string(),
            }),
        }
    }

    pub(super) fn float(&self, name: &'static str, default: f32) -> Result<f32, OperatorError> {
        match self.values.get(name) {
            None => Ok(default),
            Some(&AttributeValue::Float(value)) => Ok(value),
            Some(other) => Err(self.mistyped(name, "a FLOAT", other)),
        }
    }

    pub(super) fn ints(
        &self,
        name: &'static str,
        default: &[i64],
    ) -> Result<Vec<i64>, OperatorError> {
        match self.values.get(name) {
            None => Ok(default.to_vec()),
            Some(AttributeValue::Ints(values)) => Ok(values.clone()),
            Some(other) => Err(self.mistyped(name, "INTS", other)),
        }
    }

    fn mistyped(
        &self,
        attribute: &'static str,
        expected: &str,
        came: &AttributeValue,
    ) -> OperatorError {
        OperatorError::Attribute {
            operator: self.operator,
            attribute,
            expected: expected.into(),
            actual: came.type_name().into(),
        }
    }
}
