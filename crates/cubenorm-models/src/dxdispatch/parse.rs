use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::access::{Denied, FileAccess};
use crate::dxdispatch::fields::{Fields, wrong};
use crate::dxdispatch::json::Json;
use crate::dxdispatch::model::{Binding, Command, Dispatchable, Model, Resource};
use crate::dxdispatch::values::{Left, SourceFiles};
use crate::dxdispatch::{InitialValues, ModelError, operator};
use crate::file::Opened;

/// Alignment in bytes of a tensor within a buffer (`DML_MINIMUM_BUFFER_TENSOR_ALIGNMENT`).
const ALIGNMENT: u64 = 16;

impl Model {
    /// Maximum bytes of all resources of a model together.
    pub const MAX_BYTES: u64 = 4 << 30;

    /// Maximum bytes of a model's text. Larger data belongs in a file that `sourcePath` names.
    pub const MAX_TEXT_BYTES: usize = 16 << 20;

    /// Reads a model's file. The files that it names are below its folder.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn read(path: &Path) -> Result<Self, ModelError> {
        Self::read_with(path, Self::MAX_BYTES, &FileAccess::new())
    }

    /// Reads a model's file, with `access` to the files that it names. `limit` is the maximum bytes
    /// of its resources together.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn read_with(path: &Path, limit: u64, access: &FileAccess) -> Result<Self, ModelError> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let file = Opened::new(path)?;
        check_length(usize::try_from(file.length).unwrap_or(usize::MAX))?;
        let text = String::from_utf8(file.read()?).map_err(|error| error.utf8_error())?;
        Self::from_text(text, folder, limit, access)
    }

    /// Reads a model's text, which may have comments and trailing commas. The files that it names
    /// are below `folder`. `limit` is the maximum bytes of its resources together.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn parse(text: &[u8], folder: &Path, limit: u64) -> Result<Self, ModelError> {
        Self::parse_with(text, folder, limit, &FileAccess::new())
    }

    /// Reads a model's text like [`parse`](Self::parse), with `access` to the files that it names.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn parse_with(
        text: &[u8],
        folder: &Path,
        limit: u64,
        access: &FileAccess,
    ) -> Result<Self, ModelError> {
        check_length(text.len())?;
        let text = std::str::from_utf8(text)?.to_owned();
        Self::from_text(text, folder, limit, access)
    }

    fn from_text(
        mut text: String,
        folder: &Path,
        limit: u64,
        access: &FileAccess,
    ) -> Result<Self, ModelError> {
        // In place, so that the text is in memory once.
        json_strip_comments::strip_comments_in_place(&mut text).map_err(|_| ModelError::Comment)?;
        let value = Json::model(text.strip_prefix('\u{feff}').unwrap_or(&text))?;
        let root = Fields::new("model", &value)?;

        let mut resources = BTreeMap::new();
        let mut files = SourceFiles::new(folder, access);
        let mut left = Left { used: 0, limit };
        for (name, value) in root.object("resources")?.entries() {
            let fields = Fields::new(format!("resource {name:?}"), value)?;
            let resource = resource(&fields, &mut files, &left)?;
            // It is at most the limit, as checked before.
            left.used += resource.size_in_bytes;
            resources.insert(name.to_owned(), resource);
        }
        let mut dispatchables = BTreeMap::new();
        for (name, value) in root.object("dispatchables")?.entries() {
            let fields = Fields::new(format!("dispatchable {name:?}"), value)?;
            dispatchables.insert(name.to_owned(), dispatchable(&fields, &resources)?);
        }
        let mut model = Self {
            resources,
            dispatchables,
            commands: Vec::new(),
            folder: folder.to_owned(),
            access: access.clone(),
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

    /// Resolves the path of the file that a command writes.
    fn target(&self, fields: &Fields) -> Result<PathBuf, ModelError> {
        let target = Path::new(fields.text("targetPath")?);
        let at = || fields.within("targetPath");
        let path = self.access.target(&self.folder, target);
        path.map_err(|denied| match denied {
            Denied::Outside => ModelError::WriteOutside {
                at: at(),
                path: target.to_owned(),
            },
            Denied::Io(source) => ModelError::Write {
                at: at(),
                path: target.to_owned(),
                source,
            },
        })
    }
}

fn check_length(length: usize) -> Result<(), ModelError> {
    match length <= Model::MAX_TEXT_BYTES {
        true => Ok(()),
        false => Err(ModelError::LongText { length }),
    }
}

fn unknown(fields: &Fields, kind: &'static str, name: &str) -> ModelError {
    ModelError::Unknown {
        at: fields.at.clone(),
        kind,
        name: name.to_owned(),
    }
}

fn resource(fields: &Fields, files: &mut SourceFiles, left: &Left) -> Result<Resource, ModelError> {
    let (initial_values, element) = InitialValues::read(fields, files, left)?;
    if let Some(element) = element.filter(|element| element.size().is_none()) {
        return Err(ModelError::Unsupported {
            at: fields.within("initialValuesDataType"),
            what: element.to_string(),
        });
    }
    let bytes = initial_values.size_in_bytes();
    if bytes == 0 {
        let at = fields.within("initialValues");
        let given = fields.required("initialValues")?;
        return Err(wrong(at, "at least one value", given));
    }
    left.check(&*fields.at, bytes)?;
    // It is at most the limit, as checked before.
    let values = bytes as u64;
    let size = fields.optional_unsigned("sizeInBytes")?.unwrap_or(values);
    if size < values {
        return Err(ModelError::TooSmall {
            at: fields.at.clone(),
            expected: values,
            actual: size,
        });
    }
    let size_in_bytes = u128::from(size).next_multiple_of(4);
    left.check(&*fields.at, size_in_bytes)?;
    Ok(Resource {
        initial_values,
        element,
        size_in_bytes: size_in_bytes as u64,
    })
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

/// Checks that exactly the tensors that DirectML does not own are bound.
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
            Json::Array(sources) => match sources.as_slice() {
                [source] => source,
                _ => return Err(wrong(at, "one resource", value)),
            },
            source => source,
        };
        bindings.insert(tensor.to_owned(), binding(&at, source, resources)?);
    }
    Ok(bindings)
}

fn binding(
    at: &str,
    source: &Json,
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
        Json::Object(_) => Fields::new(at, source)?,
        _ => return Err(wrong(at, "the name of a resource, or an object", source)),
    };
    let name = fields.text("name")?;
    let resource = find(name)?;
    fields.optional_unsigned("elementCount")?;
    let element = resource
        .element
        .and_then(super::super::array::ElementType::size);
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
                "an offset within the {} bytes of resource {name:?}, a multiple of \
                 {ALIGNMENT} bytes",
                resource.size_in_bytes
            ),
            &Json::from(elements),
        )),
    }
}
