use crate::array::{ElementType, MAX_RANK};
use crate::dxdispatch::ModelError;
use crate::dxdispatch::json::{Json, Object};

/// A JSON object and its place in the model. Names are case-sensitive, unknown fields are ignored,
/// and null means absent.
#[derive(Debug, Clone)]
pub(crate) struct Fields<'a> {
    pub at: String,
    map: &'a Object<'a>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(at: impl Into<String>, value: &'a Json<'a>) -> Result<Self, ModelError> {
        let at = at.into();
        match value {
            Json::Object(map) => Ok(Self { at, map }),
            _ => Err(wrong(at, "an object", value)),
        }
    }

    /// Place of a field of this object.
    pub(crate) fn within(&self, field: &str) -> String {
        format!("{}: {field}", self.at)
    }

    pub(crate) fn optional(&self, field: &str) -> Option<&'a Json<'a>> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// True if the field is present, even if it is null.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.map.get(field).is_some()
    }

    pub(crate) fn required(&self, field: &'static str) -> Result<&'a Json<'a>, ModelError> {
        self.optional(field).ok_or_else(|| ModelError::Missing {
            at: self.at.clone(),
            field,
        })
    }

    pub(crate) fn object(&self, field: &'static str) -> Result<Self, ModelError> {
        Fields::new(self.within(field), self.required(field)?)
    }

    /// Returns the object in the first of `fields` that is present, or this one: the format allows
    /// to omit a level.
    pub(crate) fn level(&self, fields: &[&str]) -> Result<Self, ModelError> {
        match fields.iter().find_map(|field| self.optional(field)) {
            Some(value) => Fields::new(self.at.clone(), value),
            None => Ok(self.clone()),
        }
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Json<'a>)> {
        self.map.iter()
    }

    pub(crate) fn array(&self, field: &'static str) -> Result<&'a [Json<'a>], ModelError> {
        let value = self.required(field)?;
        let array = value.as_array();
        array.ok_or_else(|| wrong(self.within(field), "an array", value))
    }

    pub(crate) fn text(&self, field: &'static str) -> Result<&'a str, ModelError> {
        let value = self.required(field)?;
        let text = value.as_str();
        text.ok_or_else(|| wrong(self.within(field), "a string", value))
    }

    pub(crate) fn boolean(&self, field: &'static str) -> Result<bool, ModelError> {
        let value = self.required(field)?;
        let boolean = value.as_bool();
        boolean.ok_or_else(|| wrong(self.within(field), "true or false", value))
    }

    pub(crate) fn float(&self, field: &'static str) -> Result<f32, ModelError> {
        Ok(float(self.within(field), self.required(field)?)? as f32)
    }

    pub(crate) fn unsigned(&self, field: &'static str) -> Result<u64, ModelError> {
        unsigned(self.within(field), self.required(field)?)
    }

    pub(crate) fn optional_unsigned(&self, field: &'static str) -> Result<Option<u64>, ModelError> {
        let value = self.optional(field);
        value
            .map(|value| unsigned(self.within(field), value))
            .transpose()
    }

    /// Reads an array of UINT, one for each dimension.
    pub(crate) fn sizes(&self, field: &'static str) -> Result<Vec<u32>, ModelError> {
        let expected = "a whole number from 0 to 4294967295";
        let sizes = self.array(field)?;
        if sizes.len() > MAX_RANK {
            let expected = format!("at most {MAX_RANK} numbers");
            return Err(wrong(self.within(field), expected, self.required(field)?));
        }
        let sizes = sizes.iter().map(|value| {
            let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
            size.ok_or_else(|| wrong(self.within(field), expected, value))
        });
        sizes.collect()
    }

    /// Checks the optional count of an array.
    pub(crate) fn check_count(
        &self,
        count: &'static str,
        array: &'static str,
        expected: usize,
    ) -> Result<(), ModelError> {
        match self.optional_unsigned(count)? {
            Some(actual) if actual != expected as u64 => Err(ModelError::Count {
                at: self.at.clone(),
                count,
                array,
                expected,
                actual,
            }),
            _ => Ok(()),
        }
    }

    pub(crate) fn element_type(&self, field: &'static str) -> Result<ElementType, ModelError> {
        let name = self.text(field)?;
        ElementType::from_directml(name).ok_or_else(|| ModelError::Unknown {
            at: self.within(field),
            kind: "data type",
            name: name.to_owned(),
        })
    }
}

/// Reads a number, or one of three that JSON cannot express, as a string.
pub(crate) fn float(at: impl Into<String>, value: &Json) -> Result<f64, ModelError> {
    let named = |text: &str| match text.to_ascii_lowercase().as_str() {
        "nan" => Some(f64::NAN),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => None,
    };
    let number = value.as_f64().or_else(|| value.as_str().and_then(named));
    number.ok_or_else(|| wrong(at, "a number, \"nan\", \"inf\" or \"-inf\"", value))
}

pub(crate) fn unsigned(at: String, value: &Json) -> Result<u64, ModelError> {
    let number = value.as_u64();
    number.ok_or_else(|| wrong(at, "a whole number from 0", value))
}

/// Makes the error of an invalid value.
pub(crate) fn wrong(
    at: impl Into<String>,
    expected: impl Into<String>,
    actual: &Json,
) -> ModelError {
    ModelError::Value {
        at: at.into(),
        expected: expected.into(),
        actual: actual.to_string(),
    }
}
