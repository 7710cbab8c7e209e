use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Number;
use serde_json::value::RawValue;

use crate::dxdispatch::ModelError;

/// Maximum bytes of a name or other text. Names are copied, and errors show them with escapes.
const MAX_TEXT_BYTES: usize = 1 << 16;
/// Maximum number of values of a model, except for the elements of `initialValues`.
const MAX_VALUES: usize = 1 << 17;
/// Maximum number of values of one element in a list of several types.
const MAX_ELEMENT_VALUES: usize = 1 << 8;

/// A JSON value that borrows from its text.
///
/// The elements of a resource's `initialValues` stay text, because parsed values take many times
/// the memory. The number of all other values is limited.
#[derive(Debug, Clone)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    Array(Vec<Self>),
    Object(Object<'a>),
    /// Text of a valid array.
    List(&'a str),
}

/// Members of an object, sorted by name. The last one counts if a name repeats.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

impl<'a> Object<'a> {
    fn new(mut members: Vec<(Cow<'a, str>, Json<'a>)>) -> Self {
        // The sort is stable, so the last of several equal names comes first and stays.
        members.reverse();
        members.sort_by(|(one, _), (other, _)| one.cmp(other));
        members.dedup_by(|(next, _), (first, _)| next == first);
        members.shrink_to_fit();
        Self(members)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Json<'a>> {
        let found = self.0.binary_search_by(|(member, _)| (**member).cmp(name));
        found.ok().map(|index| &self.0[index].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Json<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }
}

impl<'a> Json<'a> {
    /// Reads the text of a model.
    pub(crate) fn model(text: &'a str) -> Result<Self, serde_json::Error> {
        parse(text, Place::Model, MAX_VALUES)
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.as_u64(),
            _ => None,
        }
    }

    pub(crate) fn as_i64(&self) -> Option<i64> {
        match self {
            Self::Number(number) => number.as_i64(),
            _ => None,
        }
    }

    pub(crate) fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Number(number) => number.as_f64(),
            _ => None,
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn as_array(&self) -> Option<&[Self]> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }
}

impl<'a> From<&'a str> for Json<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<u64> for Json<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

/// Shows the start of a scalar, or the size of a container.
impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 60;
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => match text.char_indices().nth(SHOWN) {
                Some((end, _)) => write!(f, "{:?}...", &text[..end]),
                None => write!(f, "{text:?}"),
            },
            Self::Array(array) => write!(f, "an array of {}", array.len()),
            Self::List(text) => write!(f, "an array of {}", count(text)),
            Self::Object(_) => f.write_str("an object"),
        }
    }
}

/// Counts the elements of a list.
pub(crate) fn count(list: &str) -> usize {
    struct Counter;
    impl<'de> Visitor<'de> for Counter {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
            let mut count = 0;
            while list.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(count)
        }
    }
    let mut deserializer = serde_json::Deserializer::from_str(list);
    deserializer.deserialize_seq(Counter).unwrap_or(0)
}

/// Calls `each` with the elements of a list, one at a time.
pub(crate) fn for_each(
    list: &str,
    each: &mut dyn FnMut(&Json) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    struct Each<'f> {
        each: &'f mut dyn FnMut(&Json) -> Result<(), ModelError>,
        error: &'f mut Option<ModelError>,
    }
    impl<'de> Visitor<'de> for Each<'_> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
            loop {
                let left = Cell::new(MAX_ELEMENT_VALUES);
                let seed = Seed {
                    place: Place::Other,
                    left: &left,
                };
                let Some(element) = list.next_element_seed(seed)? else {
                    return Ok(());
                };
                if let Err(error) = (self.each)(&element) {
                    *self.error = Some(error);
                    return Err(A::Error::custom("an element is refused"));
                }
            }
        }
    }
    let mut error = None;
    let visitor = Each {
        each,
        error: &mut error,
    };
    let mut deserializer = serde_json::Deserializer::from_str(list);
    let read = deserializer.deserialize_seq(visitor);
    match (error, read) {
        (Some(error), _) => Err(error),
        (None, read) => Ok(read?),
    }
}

/// Place of a value that decides how it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Model,
    Resources,
    Resource,
    InitialValues,
    Other,
}

impl Place {
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Model, "resources") => Self::Resources,
            (Self::Resources, _) => Self::Resource,
            (Self::Resource, "initialValues") => Self::InitialValues,
            _ => Self::Other,
        }
    }
}

fn parse<'a>(text: &'a str, place: Place, limit: usize) -> Result<Json<'a>, serde_json::Error> {
    let left = Cell::new(limit);
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let seed = Seed { place, left: &left };
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads a value. Every value in it counts against the number left.
#[derive(Clone, Copy)]
struct Seed<'b> {
    place: Place,
    left: &'b Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Json<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json<'de>, D::Error> {
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(D::Error::custom(format_args!(
                "there are too many values: expected at most {MAX_VALUES}, apart from lists of \
                 initialValues, and {MAX_ELEMENT_VALUES} in an element of one"
            )));
        };
        self.left.set(left);
        if self.place != Place::InitialValues {
            return deserializer.deserialize_any(self);
        }
        let raw: &RawValue = serde::Deserialize::deserialize(deserializer)?;
        if raw.get().starts_with('[') {
            return Ok(Json::List(raw.get()));
        }
        let mut nested = serde_json::Deserializer::from_str(raw.get());
        let seed = Self {
            place: Place::Other,
            ..self
        };
        let value = nested.deserialize_any(seed);
        value.map_err(|error| D::Error::custom(format_args!("in initialValues, {error}")))
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Json<'de>, E> {
        let number = Number::from_f64(value);
        let number = number.ok_or_else(|| E::custom("a number is not finite"))?;
        Ok(Json::Number(number))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Json<'de>, E> {
        Name.visit_str(text).map(Json::Text)
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Json<'de>, E> {
        Name.visit_borrowed_str(text).map(Json::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json<'de>, A::Error> {
        let seed = Self {
            place: Place::Other,
            ..self
        };
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(seed)? {
            elements.push(element);
        }
        Ok(Json::Array(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key_seed(Name)? {
            let seed = Self {
                place: self.place.member(&name),
                ..self
            };
            let value = map.next_value_seed(seed)?;
            members.push((name, value));
        }
        Ok(Json::Object(Object::new(members)))
    }
}

/// Reads a text of at most [`MAX_TEXT_BYTES`], without a copy unless it has escapes.
struct Name;

fn check_length<E: serde::de::Error>(text: &str) -> Result<(), E> {
    match text.len() <= MAX_TEXT_BYTES {
        true => Ok(()),
        false => Err(E::custom(format_args!(
            "a text has {} bytes: expected at most {MAX_TEXT_BYTES}",
            text.len()
        ))),
    }
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        check_length(text)?;
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        check_length(text)?;
        Ok(Cow::Borrowed(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object<'a, 'b>(value: &'b Json<'a>) -> &'b Object<'a> {
        match value {
            Json::Object(object) => object,
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn values_keep_their_kinds() {
        let text = r#"{ "b": [1, -2, 0.5, null, true], "a": "x\ty", "b": [{}] }"#;
        let value = Json::model(text).unwrap();
        let object = object(&value);
        assert_eq!(object.get("a").and_then(Json::as_str), Some("x\ty"));
        // The last of two equal names.
        assert_eq!(object.get("b").unwrap().to_string(), "an array of 1");
        assert_eq!(
            object.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert!(object.get("c").is_none());
    }

    #[test]
    fn lists_of_a_resource_stay_text() {
        let text =
            r#"{ "resources": { "r": { "initialValues": [1, 2.5 ] } }, "initialValues": [3] }"#;
        let value = Json::model(text).unwrap();
        let resources = object(object(&value).get("resources").unwrap());
        let resource = object(resources.get("r").unwrap());
        let Some(&Json::List(list)) = resource.get("initialValues") else {
            panic!("{resource:?}")
        };
        assert_eq!(count(list), 2);
        let mut values = Vec::new();
        let mut each = |value: &Json| {
            values.push(value.as_f64());
            Ok(())
        };
        for_each(list, &mut each).unwrap();
        assert_eq!(values, [Some(1.0), Some(2.5)]);
        let other = object(&value).get("initialValues").unwrap();
        assert!(other.as_array().is_some());
    }

    #[test]
    fn numbers_of_values_are_limited() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(Json::model(&list(MAX_VALUES - 1)).is_ok());
        let error = Json::model(&list(MAX_VALUES)).unwrap_err();
        assert!(error.to_string().contains("131072"), "{error}");
        let resource =
            |list: &str| format!(r#"{{ "resources": {{ "r": {{ "initialValues": {list} }} }} }}"#);
        assert!(Json::model(&resource(&list(MAX_VALUES))).is_ok());
        let value = resource(&format!("{{ \"value\": {} }}", list(MAX_VALUES)));
        assert!(Json::model(&value).is_err());
        let long = format!("\"{}\"", "x".repeat(MAX_TEXT_BYTES + 1));
        let error = Json::model(&long).unwrap_err();
        assert!(error.to_string().contains("65537"), "{error}");
    }

    #[test]
    fn nesting_is_limited_everywhere() {
        let deep = "[".repeat(1 << 20);
        assert!(Json::model(&deep).is_err());
        let deep = "{\"initialValues\":".repeat(1 << 16);
        let within = format!(r#"{{ "resources": {{ "r": {deep}"#);
        assert!(Json::model(&within).is_err());
        let closed = format!("[{}{}]", "[".repeat(1 << 16), "]".repeat(1 << 16));
        assert!(for_each(&closed, &mut |_| Ok(())).is_err());
    }
}
