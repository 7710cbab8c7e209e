use prost::Message;

use crate::array::{ArrayError, ElementType, HostArray, MAX_RANK, count};
use crate::onnx::external::{ExternalData, Location};
use crate::onnx::proto::{EXTERNAL, TensorProto};
use crate::onnx::tensor_error::TensorError;
use crate::onnx::wire::{Fields, WireError};

/// Bytes that a typed field may take in memory beyond 3 times its message. Zeros of int64 grow by a
/// factor of 8.
const EXPANDED_BYTES: usize = 512 << 10;

/// Reads a serialized `TensorProto`, the format of test data: its name and the array.
///
/// # Errors
///
/// [`TensorError`].
pub fn read_tensor(bytes: &[u8]) -> Result<(String, HostArray), TensorError> {
    let tensor = TensorView::new(bytes)?;
    let array = tensor.array(None)?;
    Ok((tensor.name.to_owned(), array))
}

/// Serializes an array as a `TensorProto` with raw data.
pub fn write_tensor(name: &str, array: &HostArray) -> Vec<u8> {
    let dims = array.shape.iter();
    TensorProto {
        dims: dims
            .map(|&size| size.try_into().unwrap_or(i64::MAX))
            .collect(),
        data_type: Some(array.element.onnx()),
        name: Some(name.to_owned()),
        raw_data: Some(array.bytes.clone()),
        ..TensorProto::default()
    }
    .encode_to_vec()
}

/// A field that holds elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    Raw,
    Float,
    Int32,
    Int64,
    Double,
    UInt64,
}

impl Data {
    const ALL: [Self; 6] = [
        Self::Raw,
        Self::Float,
        Self::Int32,
        Self::Int64,
        Self::Double,
        Self::UInt64,
    ];

    fn number(self) -> u32 {
        match self {
            Self::Float => 4,
            Self::Int32 => 5,
            Self::Int64 => 7,
            Self::Raw => 9,
            Self::Double => 10,
            Self::UInt64 => 11,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw_data",
            Self::Float => "float_data",
            Self::Int32 => "int32_data",
            Self::Int64 => "int64_data",
            Self::Double => "double_data",
            Self::UInt64 => "uint64_data",
        }
    }

    /// Returns the typed field that ONNX prescribes for `element`; `None` if there is none.
    fn of(element: ElementType) -> Option<Self> {
        use ElementType::*;
        Some(match element {
            Float32 => Self::Float,
            Float64 => Self::Double,
            Int64 => Self::Int64,
            UInt32 | UInt64 => Self::UInt64,
            Float16 | BFloat16 | Int8 | Int16 | Int32 | UInt8 | UInt16 | Bool => Self::Int32,
            _ => return None,
        })
    }
}

/// A `TensorProto` whose elements are not decoded yet.
#[derive(Debug, Clone)]
pub(crate) struct TensorView<'a> {
    message: &'a [u8],
    pub name: &'a str,
    dims: Vec<i64>,
    rank: usize,
    code: i32,
    raw: &'a [u8],
    /// Elements per field, by [`Data::ALL`]; bytes of `raw_data`.
    counts: [usize; 6],
    is_segment: bool,
    is_external: bool,
    location: Location<'a>,
}

impl<'a> TensorView<'a> {
    pub(super) fn new(message: &'a [u8]) -> Result<Self, WireError> {
        let mut view = Self {
            message,
            name: "",
            dims: Vec::new(),
            rank: 0,
            code: 0,
            raw: &[],
            counts: [0; 6],
            is_segment: false,
            is_external: false,
            location: Location::default(),
        };
        for field in Fields::new(message) {
            let field = field?;
            let mut counted = |data: Data, more: usize| view.counts[data as usize] += more;
            let mut elements = 0;
            let mut element = |_| {
                elements += 1;
                Ok::<_, WireError>(())
            };
            match field.number {
                1 => field.varints(&mut |size| {
                    view.rank += 1;
                    if view.rank <= MAX_RANK {
                        view.dims.push(size as i64);
                    }
                    Ok::<_, WireError>(())
                })?,
                2 => view.code = field.int32()?,
                3 => view.is_segment = field.message().map(|_| true)?,
                4 => counted(Data::Float, field.floats()?.len() / 4),
                5 => {
                    field.varints(&mut element)?;
                    counted(Data::Int32, elements);
                }
                7 => {
                    field.varints(&mut element)?;
                    counted(Data::Int64, elements);
                }
                8 => view.name = field.name()?,
                9 => view.raw = field.bytes()?,
                10 => counted(Data::Double, field.doubles()?.len() / 8),
                11 => {
                    field.varints(&mut element)?;
                    counted(Data::UInt64, elements);
                }
                13 => {
                    view.is_external = true;
                    view.location.read(field.message()?)?;
                }
                14 => view.is_external |= field.int32()? == EXTERNAL,
                _ => (),
            }
        }
        view.counts[Data::Raw as usize] = view.raw.len();
        Ok(view)
    }

    /// Reads only the name.
    pub(super) fn name_of(message: &'a [u8]) -> Result<&'a str, WireError> {
        let mut name = "";
        for field in Fields::new(message) {
            let field = field?;
            if field.number == 8 {
                name = field.name()?;
            }
        }
        Ok(name)
    }

    /// Reads the array from raw data, the field of its type, or an external file.
    pub(super) fn array(
        &self,
        external: Option<&mut ExternalData>,
    ) -> Result<HostArray, TensorError> {
        let name = || self.name.to_owned();
        if self.is_segment {
            return Err(TensorError::Segment { name: name() });
        }
        let code = self.code;
        let element = ElementType::from_onnx(code)
            .ok_or_else(|| TensorError::UnknownType { name: name(), code })?;
        let unreadable = || TensorError::UnreadableType {
            name: name(),
            element,
        };
        let size = element.size().ok_or_else(unreadable)?;
        let (shape, expected) = self.shape(size)?;

        if self.is_external {
            self.expect_only(element, None)?;
            let external = external.ok_or_else(|| TensorError::External { name: name() })?;
            let bytes = external.read(self.name, self.location, expected as u64)?;
            return self.sized(element, shape, bytes);
        }
        // Some writers leave an empty field.
        let (data, actual) = match self.raw {
            [] => {
                let data = Data::of(element).ok_or_else(unreadable)?;
                (data, self.counts[data as usize].saturating_mul(size))
            }
            raw => (Data::Raw, raw.len()),
        };
        self.expect_only(element, Some(data))?;
        // Checked before the allocation.
        if actual != expected {
            let source = ArrayError::Size {
                element,
                shape,
                expected,
                actual,
            };
            return Err(TensorError::Size {
                name: name(),
                source,
            });
        }
        let bytes = match data {
            Data::Raw => self.raw.to_vec(),
            data => self.typed(element, data, expected)?,
        };
        self.sized(element, shape, bytes)
    }

    fn sized(
        &self,
        element: ElementType,
        shape: Vec<usize>,
        bytes: Vec<u8>,
    ) -> Result<HostArray, TensorError> {
        HostArray::new(element, shape, bytes).map_err(|source| TensorError::Size {
            name: self.name.to_owned(),
            source,
        })
    }

    /// Returns the shape and its bytes, with elements of `size` bytes.
    fn shape(&self, size: usize) -> Result<(Vec<usize>, usize), TensorError> {
        if self.rank > MAX_RANK {
            return Err(TensorError::Rank {
                name: self.name.to_owned(),
                rank: self.rank,
            });
        }
        let sizes = self.dims.iter().map(|&size| usize::try_from(size).ok());
        let shape: Option<Vec<usize>> = sizes.collect();
        let sized = shape.and_then(|shape| {
            let bytes = count(&shape)?.checked_mul(size)?;
            (bytes <= isize::MAX as usize).then_some((shape, bytes))
        });
        sized.ok_or_else(|| TensorError::Dims {
            name: self.name.to_owned(),
            dims: self.dims.clone(),
        })
    }

    /// Decodes the elements of a typed field, which take `expected` bytes.
    fn typed(
        &self,
        element: ElementType,
        data: Data,
        expected: usize,
    ) -> Result<Vec<u8>, TensorError> {
        use ElementType::*;
        let limit = (self.message.len().saturating_mul(3)).saturating_add(EXPANDED_BYTES);
        if expected > limit {
            return Err(TensorError::TooLarge {
                name: self.name.to_owned(),
                bytes: expected as u64,
                limit: limit as u64,
            });
        }
        let mut bytes = Vec::with_capacity(expected);
        for field in Fields::new(self.message) {
            let field = field?;
            if field.number != data.number() {
                continue;
            }
            // Each number of int32_data and uint64_data holds one element in its low bytes.
            macro_rules! narrow {
                ($wide:ty as $type:ty) => {
                    field.varints(&mut |value| {
                        let value = value as $wide;
                        let narrow = <$type>::try_from(value).map_err(|_| TensorError::Range {
                            name: self.name.to_owned(),
                            element,
                            field: data.name(),
                            value: value as i64,
                        })?;
                        bytes.extend(narrow.to_le_bytes());
                        Ok::<_, TensorError>(())
                    })?
                };
            }
            match element {
                Float32 => bytes.extend(field.floats()?),
                Float64 => bytes.extend(field.doubles()?),
                Int64 | UInt64 => narrow!(u64 as u64),
                UInt32 => narrow!(u64 as u32),
                Int32 => narrow!(i32 as i32),
                Int16 => narrow!(i32 as i16),
                Int8 => narrow!(i32 as i8),
                UInt8 | Bool => narrow!(i32 as u8),
                _ => narrow!(i32 as u16),
            }
        }
        Ok(bytes)
    }

    /// Checks that no field except `expected` has data; `None` if the data is external.
    fn expect_only(&self, element: ElementType, expected: Option<Data>) -> Result<(), TensorError> {
        let is_filled = |data: &Data| self.counts[*data as usize] > 0;
        let filled: Vec<Data> = Data::ALL.into_iter().filter(is_filled).collect();
        if filled.iter().all(|&data| Some(data) == expected) {
            return Ok(());
        }
        let filled: Vec<&str> = filled.into_iter().map(Data::name).collect();
        Err(TensorError::Field {
            name: self.name.to_owned(),
            element,
            expected: expected.map_or("another file", Data::name),
            actual: filled.join(" and "),
        })
    }
}

impl<'a> Location<'a> {
    /// Reads a `StringStringEntryProto`. Other entries, such as the checksum, are ignored.
    fn read(&mut self, entry: Fields<'a>) -> Result<(), WireError> {
        let (mut key, mut value) = ("", "");
        for field in entry {
            let field = field?;
            match field.number {
                1 => key = field.name()?,
                2 => value = field.name()?,
                _ => (),
            }
        }
        match key {
            "location" => self.path = Some(value),
            "offset" => self.offset = Some(value),
            "length" => self.length = Some(value),
            _ => (),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::onnx::proto::Segment;

    fn tensor(data_type: i32, dims: &[i64]) -> TensorProto {
        TensorProto {
            data_type: Some(data_type),
            dims: dims.to_vec(),
            name: Some("t".to_owned()),
            ..TensorProto::default()
        }
    }

    fn array(tensor: &TensorProto) -> Result<HostArray, TensorError> {
        read_tensor(&tensor.encode_to_vec()).map(|(_, array)| array)
    }

    #[test]
    fn written_tensors_read_back() {
        let bytes = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes());
        let array = HostArray::new(ElementType::Float32, [2, 1], bytes.collect()).unwrap();
        let (name, read) = read_tensor(&write_tensor("x", &array)).unwrap();
        assert_eq!((name.as_str(), read), ("x", array));
    }

    #[test]
    fn reads_data_from_the_field_of_its_type() {
        let mut floats = tensor(1, &[2]);
        floats.float_data = vec![1.0, 2.0];
        assert_eq!(array(&floats).unwrap().to_f64().unwrap(), [1.0, 2.0]);

        let mut halves = tensor(10, &[2]);
        let bits = |value: f32| i32::from(f16::from_f32(value).to_bits());
        halves.int32_data = vec![bits(0.5), bits(-3.0)];
        assert_eq!(array(&halves).unwrap().to_f64().unwrap(), [0.5, -3.0]);

        let mut doubles = tensor(11, &[1]);
        doubles.double_data = vec![0.1];
        assert_eq!(array(&doubles).unwrap().to_f64().unwrap(), [0.1]);

        let mut wholes = tensor(3, &[2]);
        wholes.int32_data = vec![-128, 127];
        assert_eq!(array(&wholes).unwrap().to_f64().unwrap(), [-128.0, 127.0]);

        let mut longs = tensor(7, &[2]);
        longs.int64_data = vec![-1, 3];
        assert_eq!(array(&longs).unwrap().to_f64().unwrap(), [-1.0, 3.0]);

        let mut wrong = tensor(1, &[1]);
        wrong.double_data = vec![0.1];
        assert!(matches!(array(&wrong), Err(TensorError::Field { .. })));
        floats.raw_data = Some(vec![0; 8]);
        assert!(matches!(array(&floats), Err(TensorError::Field { .. })));
        halves.int32_data[0] = 65536;
        assert!(matches!(array(&halves), Err(TensorError::Range { .. })));
    }

    #[test]
    fn reads_numbers_that_are_not_packed() {
        // dims 2, data_type 1, then float_data twice as single numbers.
        let bytes = b"\x08\x02\x10\x01\x25\0\0\x80\x3f\x25\0\0\0\x40";
        let (_, array) = read_tensor(bytes).unwrap();
        assert_eq!(array.to_f64().unwrap(), [1.0, 2.0]);
    }

    #[test]
    fn refuses_mismatched_tensors() {
        let refused = |tensor: &TensorProto| array(tensor).unwrap_err();
        assert!(matches!(
            refused(&tensor(1, &[2])),
            TensorError::Size { .. }
        ));
        assert!(matches!(
            refused(&tensor(1, &[-1])),
            TensorError::Dims { .. }
        ));
        let huge = tensor(1, &[i64::MAX, i64::MAX]);
        assert!(matches!(refused(&huge), TensorError::Dims { .. }));
        assert!(matches!(
            refused(&tensor(0, &[])),
            TensorError::UnknownType { .. }
        ));
        assert!(matches!(
            refused(&tensor(99, &[])),
            TensorError::UnknownType { .. }
        ));
        assert!(matches!(
            refused(&tensor(8, &[])),
            TensorError::UnreadableType { .. }
        ));
        let mut external = tensor(1, &[0]);
        external.data_location = Some(EXTERNAL);
        assert!(matches!(refused(&external), TensorError::External { .. }));
        external.raw_data = Some(vec![0; 4]);
        assert!(matches!(refused(&external), TensorError::Field { .. }));
        let mut segment = tensor(1, &[0]);
        segment.segment = Some(Segment::default());
        assert!(matches!(refused(&segment), TensorError::Segment { .. }));
        assert!(array(&tensor(1, &[0, i64::MAX])).is_ok());
    }

    #[test]
    fn refuses_ranks_above_64() {
        let ones = |rank| {
            let mut tensor = tensor(1, &vec![1; rank]);
            tensor.float_data = vec![1.0];
            array(&tensor)
        };
        assert_eq!(ones(64).unwrap().shape.len(), 64);
        let error = ones(65).unwrap_err();
        assert!(
            matches!(error, TensorError::Rank { rank: 65, .. }),
            "{error}"
        );
    }

    #[test]
    fn limits_arrays_by_their_message() {
        let count = 1 << 20;
        let mut zeros = tensor(7, &[count]);
        zeros.int64_data = vec![0; count as usize];
        let error = array(&zeros).unwrap_err();
        assert!(matches!(error, TensorError::TooLarge { .. }), "{error}");
        let mut zeros = tensor(10, &[count]);
        zeros.int32_data = vec![0; count as usize];
        assert!(array(&zeros).is_ok());
    }
}
