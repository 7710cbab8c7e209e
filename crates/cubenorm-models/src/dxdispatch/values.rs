use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::f16;

use crate::access::{Denied, FileAccess};
use crate::array::{ElementType, to_f16};
use crate::dxdispatch::ModelError;
use crate::dxdispatch::fields::{Fields, float, wrong};
use crate::dxdispatch::json::{self, Json};
use crate::file::Opened;
use crate::npy;

/// Initial contents of a resource. Repeated values take no memory before a
/// [`Session`](crate::dxdispatch::Session) allocates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitialValues {
    /// The bytes of a list or of a file. Resources that name the same file share them.
    Bytes(Arc<Vec<u8>>),
    /// One element, repeated.
    Constant {
        /// Number of elements.
        count: u64,
        /// The element.
        value: Element,
    },
    /// `start`, `start + delta`, `start + delta + delta`, rounded to the type each time.
    Sequence {
        /// Number of elements.
        count: u64,
        /// The first element.
        start: Element,
        /// The difference to the next element.
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

    /// Reads a value of `element`: a float also by name, an integer only in range.
    fn read(at: &str, element: ElementType, value: &Json) -> Result<Self, ModelError> {
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
        let float = || float(at, value);
        match element {
            ElementType::Float16 => Ok(Self::new(element, &to_f16(float()?).to_le_bytes())),
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

    /// Adds in the elements' own type: floats are rounded, integers wrap.
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
            ElementType::Float16 => sum!(f16, |a, b| to_f16(a.to_f64() + b.to_f64())),
            ElementType::Float32 => sum!(f32, |a, b| a + b),
            ElementType::Float64 => sum!(f64, |a, b| a + b),
            // Two's complement: signed and unsigned integers add alike.
            ElementType::Int8 | ElementType::UInt8 => sum!(u8, u8::wrapping_add),
            ElementType::Int16 | ElementType::UInt16 => sum!(u16, u16::wrapping_add),
            ElementType::Int32 | ElementType::UInt32 => sum!(u32, u32::wrapping_add),
            _ => sum!(u64, u64::wrapping_add),
        }
    }
}

impl InitialValues {
    /// Reads `initialValues` of a resource, and their element type: `None` if a list has several.
    /// They may take the bytes in `left`.
    pub(crate) fn read(
        resource: &Fields,
        files: &mut SourceFiles,
        left: &Left,
    ) -> Result<(Self, Option<ElementType>), ModelError> {
        let at = resource.within("initialValues");
        let unknown = ["UNKNOWN", "DML_TENSOR_DATA_TYPE_UNKNOWN"];
        let declared = match resource.optional("initialValuesDataType") {
            None => None,
            Some(Json::Text(name)) if unknown.contains(&&**name) => None,
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
            Json::List(list) => match declared {
                Some(element) => Ok((list_of_one_type(&at, list, element, left)?, declared)),
                None => Ok((list_of_types(&at, list, left)?, None)),
            },
            Json::Object(_) => {
                let fields = Fields::new(at.clone(), values)?;
                let kinds = [
                    fields.has("value"),
                    fields.has("valueStart") || fields.has("initialValue"),
                    fields.has("sourcePath"),
                ];
                match kinds {
                    [true, false, false] => Ok((constant(&fields, typed()?)?, declared)),
                    [false, true, false] => Ok((sequence(&fields, typed()?)?, declared)),
                    [false, false, true] => files.read(&fields, declared, left),
                    _ => Err(wrong(at, "one of value, valueStart and sourcePath", values)),
                }
            }
            Json::Text(text) if text == "deferred" => Err(ModelError::Unsupported {
                at,
                what: "\"deferred\"".to_owned(),
            }),
            _ => Err(wrong(at, "an array or an object", values)),
        }
    }

    /// Bytes of all values.
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
            Self::Bytes(values) => bytes.extend(&**values),
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

/// Bytes that a resource may take before the model's limit is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    /// Bytes of the previous resources.
    pub used: u64,
    pub limit: u64,
}

impl Left {
    /// Checks that `bytes` more stay within the limit.
    pub(crate) fn check(&self, at: impl Into<String>, bytes: u128) -> Result<(), ModelError> {
        let total = bytes.saturating_add(self.used.into());
        match total <= self.limit.into() {
            true => Ok(()),
            false => Err(ModelError::TooLarge {
                at: at.into(),
                bytes: total,
                limit: self.limit,
            }),
        }
    }
}

fn list_of_one_type(
    at: &str,
    list: &str,
    element: ElementType,
    left: &Left,
) -> Result<InitialValues, ModelError> {
    let size = json::count(list).saturating_mul(element.size().unwrap_or(1));
    left.check(at, size as u128)?;
    let mut bytes = Vec::with_capacity(size);
    json::for_each(list, &mut |value| {
        bytes.extend(Element::read(at, element, value)?.bytes());
        Ok(())
    })?;
    Ok(InitialValues::Bytes(bytes.into()))
}

fn list_of_types(at: &str, list: &str, left: &Left) -> Result<InitialValues, ModelError> {
    let mut bytes = Vec::new();
    json::for_each(list, &mut |value| {
        let fields = Fields::new(at, value)?;
        let element = fields.element_type("type")?;
        bytes.extend(Element::read(at, element, fields.required("value")?)?.bytes());
        Ok(())
    })?;
    left.check(at, bytes.len() as u128)?;
    Ok(InitialValues::Bytes(bytes.into()))
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

/// Source files of a model's resources. Each file is read once.
#[derive(Debug)]
pub(crate) struct SourceFiles<'a> {
    folder: &'a Path,
    access: &'a FileAccess,
    /// Contents by path, and the element type of an array.
    read: BTreeMap<PathBuf, (Arc<Vec<u8>>, Option<ElementType>)>,
}

/// Maximum header of an .npy file: a 16-bit length and 12 bytes before it.
const NPY_HEADER_BYTES: u64 = (1 << 16) + 12;

impl<'a> SourceFiles<'a> {
    pub(crate) fn new(folder: &'a Path, access: &'a FileAccess) -> Self {
        Self {
            folder,
            access,
            read: BTreeMap::new(),
        }
    }

    fn read(
        &mut self,
        fields: &Fields,
        declared: Option<ElementType>,
        left: &Left,
    ) -> Result<(InitialValues, Option<ElementType>), ModelError> {
        let at = || fields.within("sourcePath");
        let name = Path::new(fields.text("sourcePath")?);
        let path = self.access.source(self.folder, name);
        let path = path.map_err(|denied| match denied {
            Denied::Outside => ModelError::ReadOutside {
                at: at(),
                path: name.to_owned(),
            },
            Denied::Io(source) => ModelError::File {
                at: at(),
                path: name.to_owned(),
                source,
            },
        })?;
        let extension = path.extension().map(std::ffi::OsStr::to_ascii_lowercase);
        let extension = extension.as_deref().and_then(|e| e.to_str());
        if let Some("png" | "jpg") = extension {
            return Err(ModelError::Unsupported {
                at: at(),
                what: "a picture".to_owned(),
            });
        }
        let is_npy = extension == Some("npy");
        let (contents, element) = match self.read.get(&path) {
            Some(read) => read.clone(),
            None => {
                let read = contents(&at, &path, is_npy, left)?;
                self.read.insert(path.clone(), read.clone());
                read
            }
        };
        let values = InitialValues::Bytes(contents);
        left.check(at(), values.size_in_bytes())?;
        match (declared, element) {
            (Some(declared), Some(element)) if declared != element => Err(ModelError::FileType {
                at: at(),
                path,
                expected: format!("initialValuesDataType, {declared}"),
                actual: element.to_string(),
            }),
            (_, Some(element)) => Ok((values, Some(element))),
            (None, None) => Err(ModelError::Missing {
                at: at(),
                field: "initialValuesDataType",
            }),
            (Some(declared), None) => {
                let (size, bytes) = (declared.size().unwrap_or(1), values.size_in_bytes());
                if bytes % size as u128 != 0 {
                    return Err(ModelError::FileType {
                        at: at(),
                        path,
                        expected: format!("a whole number of elements of {size} bytes"),
                        actual: format!("{bytes} bytes"),
                    });
                }
                Ok((values, Some(declared)))
            }
        }
    }
}

/// Reads a file if its length is within the bytes left.
fn contents(
    at: &dyn Fn() -> String,
    path: &Path,
    is_npy: bool,
    left: &Left,
) -> Result<(Arc<Vec<u8>>, Option<ElementType>), ModelError> {
    let failed = |source| ModelError::File {
        at: at(),
        path: path.to_owned(),
        source,
    };
    let file = Opened::new(path).map_err(failed)?;
    let header = if is_npy { NPY_HEADER_BYTES } else { 0 };
    left.check(at(), file.length.saturating_sub(header).into())?;
    let bytes = file.read().map_err(failed)?;
    if !is_npy {
        return Ok((bytes.into(), None));
    }
    let array = npy::read(bytes).map_err(|source| ModelError::Npy {
        at: at(),
        path: path.to_owned(),
        source,
    })?;
    // DirectML stores booleans as bytes.
    let element = match array.element {
        ElementType::Bool => ElementType::UInt8,
        element => element,
    };
    Ok((array.bytes.into(), Some(element)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float16_is_rounded_once() {
        let read = |value: f64| {
            let value = Json::Number(serde_json::Number::from_f64(value).unwrap());
            let element = Element::read("here", ElementType::Float16, &value).unwrap();
            f16::from_le_bytes([element.bytes[0], element.bytes[1]]).to_f64()
        };
        // Above the middle of 1 and the next f16 by less than one f32 step.
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(read(above), 1.0 + 2f64.powi(-10));
        assert_eq!(read(-above), -1.0 - 2f64.powi(-10));
        // Below the middle of the next two.
        let below = 1.0 + 3.0 * 2f64.powi(-11) - 2f64.powi(-40);
        assert_eq!(read(below), 1.0 + 2f64.powi(-10));
    }
}
