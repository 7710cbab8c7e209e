use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::dxdispatch::fields::{Fields, wrong};
use crate::dxdispatch::model::{Binding, Command, Dispatchable, Model, Resource};
use crate::dxdispatch::{InitialValues, ModelError, operator};
use crate::file;

/// DirectML wants tensors to start at a multiple of this within a buffer
/// (`DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT`).
const ALIGNMENT: u64 = 16;

impl Model {
    /// The most bytes that one resource, and all of a model together, are allocated.
    pub const MAX_BYTES: u64 = 4 << 30;

    /// Reads a model's file; files that it names are relative to its folder.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&file::read(path)?, folder, Self::MAX_BYTES)
    }

    /// Reads a model's text, which may have comments and trailing commas. `folder` is where its files
    /// are; `limit` is the most bytes that its resources may take, each and together.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn parse(text: &[u8], folder: &Path, limit: u64) -> Result<Self, ModelError> {
        let text = std::str::from_utf8(text)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut stripped = text.to_owned();
        let value: Value = match json_strip_comments::strip_comments_in_place(&mut stripped) {
            Ok(()) => serde_json::from_str(&stripped)?,
            // A comment that is none: the parser says where.
            Err(_) => serde_json::from_str(text)?,
        };
        let root = Fields::new("model", &value)?;

        let mut resources = BTreeMap::new();
        for (name, value) in root.object("resources")?.entries() {
            let fields = Fields::new(format!("resource {name:?}"), value)?;
            resources.insert(name.clone(), resource(&fields, folder, limit)?);
        }
        check_total(&resources, limit)?;
        let mut dispatchables = BTreeMap::new();
        for (name, value) in root.object("dispatchables")?.entries() {
            let fields = Fields::new(format!("dispatchable {name:?}"), value)?;
            dispatchables.insert(name.clone(), dispatchable(&fields, &resources)?);
        }
        let mut model = Self {
            resources,
            dispatchables,
            commands: Vec::new(),
            folder: folder.to_owned(),
        };
        for (index, value) in root.array("commands")?.iter().enumerate() {
            let fields = Fields::new(format!("command {index}"), value)?;
            let command = model.command(&fields)?;
            model.commands.push(command);
        }
        Ok(model)
    }

    fn command(&self, fields: &Fields) -> Result<Command, ModelError> {
        let kind = fields.text("type")?;
        match kind.to_ascii_lowercase().as_str() {
            "dispatch" => {
                let name = fields.text("dispatchable")?;
                let Some(dispatchable) = self.dispatchables.get(name) else {
                    return Err(unknown(fields, "dispatchable", name));
                };
                let bindings = bindings(&fields.object("bindings")?, &self.resources)?;
                check_bindings(fields, dispatchable, &bindings)?;
                Ok(Command::Dispatch {
                    dispatchable: name.to_owned(),
                    bindings,
                })
            }
            "print" => Ok(Command::Print {
                resource: self.resource(fields)?,
            }),
            "writefile" => self.write_file(fields),
            _ => Err(unknown(fields, "command", kind)),
        }
    }

    fn write_file(&self, fields: &Fields) -> Result<Command, ModelError> {
        let path = self.target(fields)?;
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        if extension == "png" || extension == "jpg" {
            return Err(ModelError::Unsupported {
                at: fields.within("targetPath"),
                what: "a picture".to_owned(),
            });
        }
        Ok(Command::WriteFile {
            resource: self.resource(fields)?,
            path,
            dimensions: match fields.optional("dimensions") {
                Some(_) => fields.sizes("dimensions")?,
                None => Vec::new(),
            },
        })
    }

    fn resource(&self, fields: &Fields) -> Result<String, ModelError> {
        let name = fields.text("resource")?;
        match self.resources.contains_key(name) {
            true => Ok(name.to_owned()),
            false => Err(unknown(fields, "resource", name)),
        }
    }

    /// Where a file is written: within the model's folder, or within the current directory if it says
    /// so itself.
    fn target(&self, fields: &Fields) -> Result<PathBuf, ModelError> {
        let target = Path::new(fields.text("targetPath")?);
        let at = fields.within("targetPath");
        let absolute = |path: &Path| std::path::absolute(path).ok().map(|path| plain(&path));
        let folder = match self.folder.as_os_str().is_empty() {
            true => absolute(Path::new(".")),
            false => absolute(&self.folder),
        };
        let places = [folder.clone(), absolute(Path::new("."))];
        let path = folder.map(|folder| plain(&folder.join(target)));
        let is_within = |path: &PathBuf| {
            let mut places = places.iter().flatten();
            places.any(|place| path.starts_with(place) && path != place)
        };
        path.filter(is_within).ok_or_else(|| ModelError::Outside {
            at,
            path: target.to_owned(),
        })
    }
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

fn unknown(fields: &Fields, kind: &'static str, name: &str) -> ModelError {
    ModelError::Unknown {
        at: fields.at.clone(),
        kind,
        name: name.to_owned(),
    }
}

fn resource(fields: &Fields, folder: &Path, limit: u64) -> Result<Resource, ModelError> {
    let (initial_values, element) = InitialValues::read(fields, folder, limit)?;
    if let Some(element) = element.filter(|element| element.size().is_none()) {
        return Err(ModelError::Unsupported {
            at: fields.within("initialValuesDataType"),
            what: element.to_string(),
        });
    }
    let bytes = initial_values.size_in_bytes();
    let too_large = |bytes| ModelError::TooLarge {
        at: fields.at.clone(),
        bytes,
        limit,
    };
    if bytes == 0 {
        let at = fields.within("initialValues");
        let given = fields.required("initialValues")?;
        return Err(wrong(at, "at least one value", given));
    }
    let values = u64::try_from(bytes).ok().filter(|&bytes| bytes <= limit);
    let values = values.ok_or_else(|| too_large(bytes))?;
    let size = fields.optional_unsigned("sizeInBytes")?.unwrap_or(values);
    if size < values {
        return Err(ModelError::TooSmall {
            at: fields.at.clone(),
            expected: values,
            actual: size,
        });
    }
    match size.checked_next_multiple_of(4) {
        Some(size_in_bytes) if size_in_bytes <= limit => Ok(Resource {
            initial_values,
            element,
            size_in_bytes,
        }),
        _ => Err(too_large(size.into())),
    }
}

fn check_total(resources: &BTreeMap<String, Resource>, limit: u64) -> Result<(), ModelError> {
    let sizes = resources.values().map(|r| u128::from(r.size_in_bytes));
    let bytes: u128 = sizes.sum();
    match bytes <= limit.into() {
        true => Ok(()),
        false => Err(ModelError::TooLarge {
            at: "resources together".to_owned(),
            bytes,
            limit,
        }),
    }
}

fn dispatchable(
    fields: &Fields,
    resources: &BTreeMap<String, Resource>,
) -> Result<Dispatchable, ModelError> {
    let name = match fields.has("type") {
        true => fields.text("type")?,
        false => fields.text("Type")?,
    };
    if ["hlsl", "onnx", "dmlserializedgraph"].contains(&name.to_ascii_lowercase().as_str()) {
        return Err(ModelError::Unsupported {
            at: fields.within("type"),
            what: format!("a dispatchable of type {name}"),
        });
    }
    let (operator, tensors) = operator::read(&fields.at, name, fields.level(&["desc", "Desc"])?)?;
    let bindings = match fields.optional("bindings") {
        Some(_) => bindings(&fields.object("bindings")?, resources)?,
        None => BTreeMap::new(),
    };
    for tensor in bindings.keys() {
        let wrong = match tensors.get(tensor.as_str()) {
            None => "it does not have",
            Some(tensor) if !tensor.owned => "does not have the flag OWNED_BY_DML",
            Some(_) => continue,
        };
        return Err(ModelError::Binding {
            at: fields.within("bindings"),
            tensor: tensor.clone(),
            reason: wrong,
        });
    }
    let mut owned = tensors.iter().filter(|(_, tensor)| tensor.owned);
    if let Some((&tensor, _)) = owned.find(|(tensor, _)| !bindings.contains_key(**tensor)) {
        return Err(ModelError::Unbound {
            at: fields.within("bindings"),
            tensor: tensor.to_owned(),
        });
    }
    Ok(Dispatchable {
        operator,
        tensors,
        bindings,
    })
}

/// Checks that every tensor has a resource and nothing else has, apart from those that DirectML owns.
fn check_bindings(
    fields: &Fields,
    dispatchable: &Dispatchable,
    bindings: &BTreeMap<String, Binding>,
) -> Result<(), ModelError> {
    for tensor in bindings.keys() {
        let reason = match dispatchable.tensors.get(tensor.as_str()) {
            None => "the dispatchable does not have",
            Some(tensor) if tensor.owned => "has the flag OWNED_BY_DML and is bound beforehand",
            Some(_) => continue,
        };
        return Err(ModelError::Binding {
            at: fields.within("bindings"),
            tensor: tensor.clone(),
            reason,
        });
    }
    for (&tensor, desc) in &dispatchable.tensors {
        if !desc.owned && !bindings.contains_key(tensor) {
            return Err(ModelError::Unbound {
                at: fields.within("bindings"),
                tensor: tensor.to_owned(),
            });
        }
    }
    Ok(())
}

fn bindings(
    fields: &Fields,
    resources: &BTreeMap<String, Resource>,
) -> Result<BTreeMap<String, Binding>, ModelError> {
    let mut bindings = BTreeMap::new();
    for (tensor, value) in fields.entries() {
        let at = fields.within(tensor);
        let source = match value {
            // Each tensor of these operators takes one resource.
            Value::Array(sources) => match sources.as_slice() {
                [source] => source,
                _ => return Err(wrong(at, "one resource", value)),
            },
            source => source,
        };
        bindings.insert(tensor.clone(), binding(&at, source, resources)?);
    }
    Ok(bindings)
}

fn binding(
    at: &str,
    source: &Value,
    resources: &BTreeMap<String, Resource>,
) -> Result<Binding, ModelError> {
    let find = |name: &str| {
        resources.get(name).ok_or_else(|| ModelError::Unknown {
            at: at.to_owned(),
            kind: "resource",
            name: name.to_owned(),
        })
    };
    if let Some(name) = source.as_str() {
        find(name)?;
        return Ok(Binding {
            resource: name.to_owned(),
            offset: 0,
        });
    }
    let fields = match source {
        Value::Object(_) => Fields::new(at, source)?,
        _ => return Err(wrong(at, "the name of a resource, or an object", source)),
    };
    let name = fields.text("name")?;
    let resource = find(name)?;
    fields.optional_unsigned("elementCount")?;
    let element = resource.element.and_then(|element| element.size());
    let size = match fields.optional_unsigned("elementSizeInBytes")? {
        None | Some(0) => element.map(|size| size as u64),
        size => size,
    };
    let elements = fields.optional_unsigned("elementOffset")?.unwrap_or(0);
    let offset = match elements {
        0 => Some(0),
        elements => size.and_then(|size| size.checked_mul(elements)),
    };
    let is_right = |&offset: &u64| offset % ALIGNMENT == 0 && offset < resource.size_in_bytes;
    match offset.filter(is_right) {
        Some(offset) => Ok(Binding {
            resource: name.to_owned(),
            offset,
        }),
        None => Err(wrong(
            fields.within("elementOffset"),
            format!(
                "an offset within the {} bytes of resource {name:?} that comes to a multiple of \
                 {ALIGNMENT} bytes",
                resource.size_in_bytes
            ),
            &Value::from(elements),
        )),
    }
}
