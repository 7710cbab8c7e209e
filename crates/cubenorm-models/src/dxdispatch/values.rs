use std::path::{Path, PathBuf};

use half::f16;
use serde_json::Value;

use crate::array::ElementType;
use crate::dxdispatch::ModelError;
use crate::dxdispatch::fields::{Fields, float, wrong};
use crate::{file, npy};

/// What a resource starts with. However many values it says, they take no memory before a
/// [`Session`](crate::dxdispatch::Session) allocates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitialValues {
    /// These bytes: a list, or what a file has.
    Bytes(Vec<u8>),
    /// One element, repeated.
    Constant {
        /// How often.
        count: u64,
        /// Its bytes.
        value: Element,
    },
    /// `start`, `start + delta`, `start + delta + delta`, rounded to the type each time.
    Sequence {
        /// How many.
        count: u64,
        /// The first.
        start: Element,
        /// What is added.
        delta: Element,
    },
}

/// One element of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element {
    bytes: [u8; 8],
    element: ElementType,
}

impl Element {
    fn new(element: ElementType, bytes: &[u8]) -> Self {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        Self {
            bytes: padded,
            element,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.element.size().unwrap_or(0).min(8)]
    }

    /// Reads a value of `element`; floats also by name, whole numbers only in range.
    fn read(at: &str, element: ElementType, value: &Value) -> Result<Self, ModelError> {
        macro_rules! whole {
            ($get:ident as $type:ty) => {{
                let number = value
                    .$get()
                    .and_then(|number| <$type>::try_from(number).ok());
                let range = || format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX);
                number
                    .map(|number| Self::new(element, &number.to_le_bytes()))
                    .ok_or_else(|| wrong(at, range(), value))
            }};
        }
        let float = || float(at.to_owned(), value);
        match element {
            ElementType::Float16 => Ok(Self::new(element, &f16::from_f64(float()?).to_le_bytes())),
            ElementType::Float32 => Ok(Self::new(element, &(float()? as f32).to_le_bytes())),
            ElementType::Float64 => Ok(Self::new(element, &float()?.to_le_bytes())),
            ElementType::Int8 => whole!(as_i64 as i8),
            ElementType::Int16 => whole!(as_i64 as i16),
            ElementType::Int32 => whole!(as_i64 as i32),
            ElementType::Int64 => whole!(as_i64 as i64),
            ElementType::UInt8 => whole!(as_u64 as u8),
            ElementType::UInt16 => whole!(as_u64 as u16),
            ElementType::UInt32 => whole!(as_u64 as u32),
            ElementType::UInt64 => whole!(as_u64 as u64),
            _ => Err(ModelError::Unsupported {
                at: at.to_owned(),
                what: format!("a value of type {element}"),
            }),
        }
    }

    /// The sum in the elements' own type: floats rounded, whole numbers wrapped.
    fn plus(self, delta: Self) -> Self {
        macro_rules! sum {
            ($type:ty, $add:expr) => {{
                let read = |element: Self| {
                    let (bytes, _) = element.bytes.split_at(size_of::<$type>());
                    <$type>::from_le_bytes(bytes.try_into().unwrap_or_default())
                };
                let add: fn($type, $type) -> $type = $add;
                Self::new(self.element, &add(read(self), read(delta)).to_le_bytes())
            }};
        }
        match self.element {
            ElementType::Float16 => sum!(f16, |a, b| f16::from_f64(a.to_f64() + b.to_f64())),
            ElementType::Float32 => sum!(f32, |a, b| a + b),
            ElementType::Float64 => sum!(f64, |a, b| a + b),
            // Two's complement: signed and unsigned numbers add alike.
            ElementType::Int8 | ElementType::UInt8 => sum!(u8, u8::wrapping_add),
            ElementType::Int16 | ElementType::UInt16 => sum!(u16, u16::wrapping_add),
            ElementType::Int32 | ElementType::UInt32 => sum!(u32, u32::wrapping_add),
            _ => sum!(u64, u64::wrapping_add),
        }
    }
}

impl InitialValues {
    /// Reads `initialValues` of a resource, and the data type they turn out to have: `None` for a
    /// list of elements of several types. Files are relative to `folder` or, failing that, to the
    /// current directory.
    pub(crate) fn read(
        resource: &Fields,
        folder: &Path,
        limit: u64,
    ) -> Result<(Self, Option<ElementType>), ModelError> {
        let at = resource.within("initialValues");
        let unknown = ["UNKNOWN", "DML_TENSOR_DATA_TYPE_UNKNOWN"];
        let declared = match resource.optional("initialValuesDataType") {
            None => None,
            Some(Value::String(name)) if unknown.contains(&name.as_str()) => None,
            Some(_) => Some(resource.element_type("initialValuesDataType")?),
        };
        let typed = || {
            declared.ok_or_else(|| ModelError::Missing {
                at: resource.at.clone(),
                field: "initialValuesDataType",
            })
        };
        let values = resource.required("initialValues")?;
        match values {
            Value::Array(list) => match declared {
                Some(element) => Ok((list_of_one_type(&at, list, element)?, declared)),
                None => Ok((list_of_types(&at, list)?, None)),
            },
            Value::Object(_) => {
                let fields = Fields::new(at.clone(), values)?;
                let kinds = [
                    fields.has("value"),
                    fields.has("valueStart") || fields.has("initialValue"),
                    fields.has("sourcePath"),
                ];
                match kinds {
                    [true, false, false] => Ok((constant(&fields, typed()?)?, declared)),
                    [false, true, false] => Ok((sequence(&fields, typed()?)?, declared)),
                    [false, false, true] => from_file(&fields, declared, folder, limit),
                    _ => Err(wrong(at, "one of value, valueStart and sourcePath", values)),
                }
            }
            Value::String(text) if text == "deferred" => Err(ModelError::Unsupported {
                at,
                what: "\"deferred\"".to_owned(),
            }),
            _ => Err(wrong(at, "an array or an object", values)),
        }
    }

    /// Bytes of all values; more than a u64 holds counts as that.
    pub fn size_in_bytes(&self) -> u128 {
        let sized = |count: u64, value: &Element| u128::from(count) * value.bytes().len() as u128;
        match self {
            Self::Bytes(bytes) => bytes.len() as u128,
            Self::Constant { count, value } => sized(*count, value),
            Self::Sequence { count, start, .. } => sized(*count, start),
        }
    }

    /// Appends the values' bytes.
    pub(crate) fn materialize(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Bytes(values) => bytes.extend(values),
            Self::Constant { count, value } => {
                let element = value.bytes();
                match element.iter().all(|&byte| byte == 0) {
                    true => bytes.resize(bytes.len() + element.len() * *count as usize, 0),
                    false => (0..*count).for_each(|_| bytes.extend(element)),
                }
            }
            Self::Sequence {
                count,
                start,
                delta,
            } => {
                let mut value = *start;
                for _ in 0..*count {
                    bytes.extend(value.bytes());
                    value = value.plus(*delta);
                }
            }
        }
    }
}

fn list_of_one_type(
    at: &str,
    list: &[Value],
    element: ElementType,
) -> Result<InitialValues, ModelError> {
    let mut bytes = Vec::new();
    for value in list {
        bytes.extend(Element::read(at, element, value)?.bytes());
    }
    Ok(InitialValues::Bytes(bytes))
}

fn list_of_types(at: &str, list: &[Value]) -> Result<InitialValues, ModelError> {
    let mut bytes = Vec::new();
    for value in list {
        let fields = Fields::new(at, value)?;
        let element = fields.element_type("type")?;
        bytes.extend(Element::read(at, element, fields.required("value")?)?.bytes());
    }
    Ok(InitialValues::Bytes(bytes))
}

fn constant(fields: &Fields, element: ElementType) -> Result<InitialValues, ModelError> {
    Ok(InitialValues::Constant {
        count: fields.unsigned("valueCount")?,
        value: Element::read(&fields.within("value"), element, fields.required("value")?)?,
    })
}

fn sequence(fields: &Fields, element: ElementType) -> Result<InitialValues, ModelError> {
    let start = match fields.has("valueStart") {
        true => "valueStart",
        false => "initialValue",
    };
    let read = |field| Element::read(&fields.within(field), element, fields.required(field)?);
    Ok(InitialValues::Sequence {
        count: fields.unsigned("valueCount")?,
        start: read(start)?,
        delta: read("valueDelta")?,
    })
}

fn from_file(
    fields: &Fields,
    declared: Option<ElementType>,
    folder: &Path,
    limit: u64,
) -> Result<(InitialValues, Option<ElementType>), ModelError> {
    let at = || fields.within("sourcePath");
    let name = Path::new(fields.text("sourcePath")?);
    let beside = folder.join(name);
    let path = match beside.exists() {
        true => beside,
        false => PathBuf::from(name),
    };
    let extension = path.extension().map(|e| e.to_ascii_lowercase());
    let extension = extension.as_deref().and_then(|e| e.to_str());
    if let Some("png" | "jpg") = extension {
        return Err(ModelError::Unsupported {
            at: at(),
            what: "a picture".to_owned(),
        });
    }
    let contents = file::read_at_most(&path, limit).map_err(|source| ModelError::File {
        at: at(),
        path: path.clone(),
        source,
    })?;
    if extension != Some("npy") {
        let Some(element) = declared else {
            return Err(ModelError::Missing {
                at: at(),
                field: "initialValuesDataType",
            });
        };
        let size = element.size().unwrap_or(1);
        if contents.len() % size != 0 {
            return Err(ModelError::FileType {
                at: at(),
                path,
                expected: format!("a whole number of elements of {size} bytes"),
                actual: format!("{} bytes", contents.len()),
            });
        }
        return Ok((InitialValues::Bytes(contents), declared));
    }
    let array = npy::read(&contents).map_err(|source| ModelError::Npy {
        at: at(),
        path: path.clone(),
        source,
    })?;
    // DirectML keeps truth values as bytes.
    let element = match array.element {
        ElementType::Bool => ElementType::UInt8,
        element => element,
    };
    match declared {
        Some(declared) if declared != element => Err(ModelError::FileType {
            at: at(),
            path,
            expected: format!("initialValuesDataType, {declared}"),
            actual: element.to_string(),
        }),
        _ => Ok((InitialValues::Bytes(array.bytes), Some(element))),
    }
}
