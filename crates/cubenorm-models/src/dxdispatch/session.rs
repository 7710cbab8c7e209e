use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cubenorm_operators::directml::TensorDesc;
use cubenorm_operators::{Program, Role, Slot};

use crate::access::Denied;
use crate::array::{self, HostArray};
use crate::dxdispatch::model::{Binding, Command, Model, Resource};
use crate::dxdispatch::{Dispatchable, ModelError};
use crate::executor::{ExecuteError, Executor, Run, check_outputs, only_f32, span_bytes};
use crate::npy;
use crate::strided::copy_elements;

/// A model with its buffers in host memory.
#[derive(Debug)]
pub struct Session<'a> {
    model: &'a Model,
    programs: BTreeMap<&'a str, Program>,
    contents: BTreeMap<&'a str, Vec<u8>>,
    /// Copies of the tensors owned by DirectML, from before the first command.
    owned: BTreeMap<(&'a str, &'a str), Vec<u8>>,
    /// Tensor last written to each resource.
    written: BTreeMap<&'a str, &'a TensorDesc>,
    /// Files written by commands, with links resolved.
    files: BTreeSet<PathBuf>,
}

/// Options of running a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Number of times that each dispatch runs, at least 1. Each run starts from the same contents.
    pub iterations: usize,
    /// True if `writeFile` commands write their files.
    pub writes_files: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            iterations: 1,
            writes_files: true,
        }
    }
}

/// Error of running a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The device did not run a dispatchable.
    #[error("dispatchable {dispatchable:?}: {source}")]
    Execute {
        /// Name of the dispatchable.
        dispatchable: String,
        /// True if all its tensors are FLOAT32, which every device has to support.
        only_f32: bool,
        /// The cause.
        source: ExecuteError,
    },
    /// A file was not written.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// A completed command. Its text is the tool's, except that numbers have all their digits.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A dispatch.
    Dispatched {
        /// Name of the dispatchable.
        dispatchable: &'a str,
        /// Number of runs.
        iterations: usize,
        /// Median host time. The first of several runs does not count.
        host: Duration,
        /// Median device time, if the device measures it.
        device: Option<Duration>,
    },
    /// A resource was shown.
    Printed {
        /// Name of the resource.
        resource: &'a str,
        /// Contents in one dimension, with the number of initial elements.
        contents: HostArray,
    },
    /// A file was written.
    Written {
        /// Name of the resource.
        resource: &'a str,
        /// Path of the file.
        path: &'a Path,
    },
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: &Duration| time.as_secs_f64() * 1e3;
        match self {
            Self::Dispatched {
                dispatchable,
                iterations,
                host,
                device,
            } => {
                let host = milliseconds(host);
                write!(
                    f,
                    "Dispatch '{dispatchable}': {iterations} iterations, {host:.4} ms median (CPU)"
                )?;
                match device {
                    Some(device) => write!(f, ", {:.6} ms median (GPU)", milliseconds(device)),
                    None => Ok(()),
                }
            }
            Self::Printed { resource, contents } => {
                write!(f, "Resource '{resource}': ")?;
                let size = contents.element.size().unwrap_or(1);
                for (index, element) in contents.bytes.chunks(size).enumerate() {
                    let text = contents.element.text(element).unwrap_or_default();
                    let comma = if index == 0 { "" } else { ", " };
                    write!(f, "{comma}{text}")?;
                }
                Ok(())
            }
            Self::Written { resource, path } => {
                write!(f, "Resource '{resource}' written to '{}'", path.display())
            }
        }
    }
}

impl<'a> Session<'a> {
    /// Checks every operator, binding and command, then allocates the resources.
    ///
    /// # Errors
    ///
    /// [`ModelError`].
    pub fn new(model: &'a Model) -> Result<Self, ModelError> {
        let mut programs = BTreeMap::new();
        for (name, dispatchable) in &model.dispatchables {
            let program = dispatchable.operator.lower();
            let program = program.map_err(|source| ModelError::Operator {
                at: format!("dispatchable {name:?}"),
                source,
            })?;
            programs.insert(name.as_str(), program);
        }
        let mut session = Self {
            model,
            programs,
            contents: BTreeMap::new(),
            owned: BTreeMap::new(),
            written: BTreeMap::new(),
            files: BTreeSet::new(),
        };
        session.check_commands()?;
        session.check_owned()?;
        for (name, resource) in &model.resources {
            session.contents.insert(name, allocate(name, resource)?);
        }
        session.keep_owned()?;
        Ok(session)
    }

    /// Runs all commands in order and reports each that is done.
    ///
    /// Files are written below the model's folder, or in the folder that the model's
    /// [`access`](Model::access) allows. An existing file is never overwritten, unless this session
    /// wrote it.
    ///
    /// # Errors
    ///
    /// [`RunError`]. Completed commands keep their effect. An existing target is an error before
    /// the first command.
    pub fn run(
        &mut self,
        executor: &dyn Executor,
        options: &Options,
        on_event: &mut dyn FnMut(&Event),
    ) -> Result<(), RunError> {
        let model = self.model;
        if options.writes_files {
            self.check_targets()?;
        }
        for (index, command) in model.commands.iter().enumerate() {
            let event = match command {
                Command::Dispatch {
                    dispatchable,
                    bindings,
                } => {
                    let run =
                        self.dispatch(executor, dispatchable, bindings, options.iterations)?;
                    Event::Dispatched {
                        dispatchable,
                        iterations: options.iterations.max(1),
                        host: median(&run.host_times).unwrap_or_default(),
                        device: run.device_times.as_deref().and_then(median),
                    }
                }
                Command::Print { resource } => match self.contents(resource) {
                    Some(contents) => Event::Printed { resource, contents },
                    None => continue,
                },
                Command::WriteFile {
                    resource,
                    path,
                    dimensions,
                } => {
                    if !options.writes_files {
                        continue;
                    }
                    self.write(&format!("command {index}"), resource, path, dimensions)?;
                    Event::Written { resource, path }
                }
            };
            on_event(&event);
        }
        Ok(())
    }

    /// Returns the contents of a resource in one dimension, with the number of initial elements.
    /// `None` if there is no such resource, or it has several element types.
    pub fn contents(&self, resource: &str) -> Option<HostArray> {
        let described = self.model.resources.get(resource)?;
        let element = described.element?;
        let bytes = usize::try_from(described.initial_values.size_in_bytes()).ok()?;
        let contents = self.contents.get(resource)?.get(..bytes)?;
        let count = bytes / element.size()?;
        HostArray::new(element, [count], contents.to_vec()).ok()
    }

    /// Returns the tensor last written to a resource, if any.
    pub fn last_written(&self, resource: &str) -> Option<&'a TensorDesc> {
        self.written.get(resource).copied()
    }

    fn check_commands(&self) -> Result<(), ModelError> {
        for (name, dispatchable) in &self.model.dispatchables {
            let at = format!("dispatchable {name:?}");
            self.check_buffers(&at, name, dispatchable, &dispatchable.bindings)?;
        }
        for (index, command) in self.model.commands.iter().enumerate() {
            let at = format!("command {index}");
            match command {
                Command::Dispatch {
                    dispatchable,
                    bindings,
                } => {
                    let described = self.model.dispatchables.get(dispatchable);
                    let described = described.ok_or_else(|| ModelError::Unknown {
                        at: at.clone(),
                        kind: "dispatchable",
                        name: dispatchable.clone(),
                    })?;
                    self.check_buffers(&at, dispatchable, described, bindings)?;
                    let program = &self.programs[dispatchable.as_str()];
                    let mut tensors = program.inputs().chain(program.outputs());
                    let is_bound = |name: &str| {
                        bindings.contains_key(name) || described.bindings.contains_key(name)
                    };
                    if let Some((_, tensor)) = tensors.find(|(_, tensor)| !is_bound(tensor.name)) {
                        let tensor = tensor.name.to_owned();
                        return Err(ModelError::Unbound { at, tensor });
                    }
                }
                Command::Print { resource } => {
                    self.check_shown(at, resource, &[])?;
                }
                Command::WriteFile {
                    resource,
                    path,
                    dimensions,
                } if is_npy(path) => self.check_shown(at, resource, dimensions)?,
                Command::WriteFile { resource, .. } => {
                    self.described(&at, resource)?;
                }
            }
        }
        Ok(())
    }

    /// Looks up a resource. Models made by hand may name an unknown one.
    fn described(&self, at: &str, name: &str) -> Result<&'a Resource, ModelError> {
        let resource = self.model.resources.get(name);
        resource.ok_or_else(|| ModelError::Unknown {
            at: at.to_owned(),
            kind: "resource",
            name: name.to_owned(),
        })
    }

    /// Checks that each resource covers the tensor bound to it.
    fn check_buffers(
        &self,
        at: &str,
        name: &str,
        dispatchable: &Dispatchable,
        bindings: &BTreeMap<String, Binding>,
    ) -> Result<(), ModelError> {
        for tensor in &self.programs[name].tensors {
            let Some(binding) = bindings.get(tensor.name) else {
                continue;
            };
            let described = dispatchable.tensors.get(tensor.name);
            let declared = described.and_then(|tensor| tensor.desc.total_tensor_size_in_bytes);
            let span = span_bytes(&tensor.desc).map_or(u64::MAX, |bytes| bytes as u64);
            let expected = span.max(declared.unwrap_or(0));
            let resource = self.described(at, &binding.resource)?;
            let actual = resource.size_in_bytes.saturating_sub(binding.offset);
            if actual < expected {
                return Err(ModelError::BufferTooSmall {
                    at: at.to_owned(),
                    tensor: tensor.name.to_owned(),
                    resource: binding.resource.clone(),
                    expected,
                    actual,
                    offset: binding.offset,
                });
            }
        }
        Ok(())
    }

    /// Checks that a resource has one element type and at least the elements of the sizes given.
    fn check_shown(&self, at: String, name: &str, sizes: &[u32]) -> Result<(), ModelError> {
        let resource = self.described(&at, name)?;
        let Some(size) = resource.element.and_then(array::ElementType::size) else {
            return Err(ModelError::NoElementType {
                at,
                resource: name.to_owned(),
            });
        };
        let count = resource.initial_values.size_in_bytes() / size as u128;
        let product = |product: u128, &size: &u32| product.checked_mul(size.into());
        let asked = sizes.iter().try_fold(1, product);
        match asked {
            Some(asked) if asked <= count => Ok(()),
            _ => Err(ModelError::Value {
                at: format!("{at}: dimensions"),
                expected: format!("at most the {count} elements of resource {name:?}"),
                actual: format!("{sizes:?}"),
            }),
        }
    }

    /// Lists the tensors owned by DirectML: dispatchable, tensor, binding and description.
    fn owned_tensors(
        &self,
    ) -> impl Iterator<Item = (&'a str, &'a str, &'a Binding, &cubenorm_core::TensorDesc)> {
        let described = self.model.dispatchables.iter();
        described.flat_map(|(name, dispatchable)| {
            let tensors = &self.programs[name.as_str()].tensors;
            dispatchable
                .bindings
                .iter()
                .filter_map(move |(tensor, binding)| {
                    let found = tensors.iter().find(|t| t.name == tensor)?;
                    Some((name.as_str(), tensor.as_str(), binding, &found.desc))
                })
        })
    }

    /// Limits the copies of owned tensors: dispatchables may share a resource.
    fn check_owned(&self) -> Result<(), ModelError> {
        let spans = self
            .owned_tensors()
            .map(|(_, _, _, desc)| span_bytes(desc).unwrap_or(0));
        let bytes: u128 = spans.map(|bytes| bytes as u128).sum();
        match bytes <= Model::MAX_BYTES.into() {
            true => Ok(()),
            false => Err(ModelError::TooLarge {
                at: "tensors with the flag OWNED_BY_DML together".to_owned(),
                bytes,
                limit: Model::MAX_BYTES,
            }),
        }
    }

    fn keep_owned(&mut self) -> Result<(), ModelError> {
        let mut owned = BTreeMap::new();
        for (name, tensor, binding, desc) in self.owned_tensors() {
            let bound = self.bound(binding, desc);
            let mut bytes = Vec::new();
            bytes
                .try_reserve_exact(bound.len())
                .map_err(|_| ModelError::OutOfMemory {
                    at: format!("dispatchable {name:?}: {tensor}"),
                    bytes: bound.len() as u64,
                })?;
            bytes.extend(bound);
            owned.insert((name, tensor), bytes);
        }
        self.owned = owned;
        Ok(())
    }

    /// Returns the bytes that a tensor spans in its resource. The range was checked.
    fn bound(&self, binding: &Binding, desc: &cubenorm_core::TensorDesc) -> &[u8] {
        let start = binding.offset as usize;
        let end = start + span_bytes(desc).unwrap_or(0);
        &self.contents[binding.resource.as_str()][start..end]
    }

    fn dispatch(
        &mut self,
        executor: &dyn Executor,
        name: &'a str,
        bindings: &'a BTreeMap<String, Binding>,
        iterations: usize,
    ) -> Result<Run, RunError> {
        let program = &self.programs[name];
        let mut buffers = BTreeMap::new();
        let tensors = program.inputs().chain(program.outputs());
        for (slot, tensor) in tensors {
            let bytes = match bindings.get(tensor.name) {
                Some(binding) => self.bound(binding, &tensor.desc).to_vec(),
                None => self.owned[&(name, tensor.name)].clone(),
            };
            buffers.insert(slot, bytes);
        }
        let run = executor
            .run(program, &buffers, iterations.max(1))
            .and_then(|run| check_outputs(program, &buffers, &run).map(|()| run))
            .map_err(|source| RunError::Execute {
                dispatchable: name.to_owned(),
                only_f32: only_f32(program),
                source,
            })?;
        self.write_back(name, bindings, &run.outputs);
        Ok(run)
    }

    /// Copies outputs to their resources, element by element, because two outputs may interleave.
    fn write_back(
        &mut self,
        name: &'a str,
        bindings: &'a BTreeMap<String, Binding>,
        outputs: &BTreeMap<Slot, Vec<u8>>,
    ) {
        let program = &self.programs[name];
        for (&slot, bytes) in outputs {
            let tensor = program.tensor(slot);
            let binding = bindings.get(tensor.name);
            let Some(binding) = binding.filter(|_| tensor.role == Role::Output) else {
                continue;
            };
            if let Some(contents) = self.contents.get_mut(binding.resource.as_str()) {
                let start = binding.offset as usize;
                copy_elements(&tensor.desc, bytes, &mut contents[start..]);
            }
            let described = &self.model.dispatchables[name].tensors;
            if let Some(described) = described.get(tensor.name) {
                self.written.insert(&binding.resource, &described.desc);
            }
        }
    }

    /// Writes a resource to a file: the initial elements as an array, or all bytes.
    fn write(
        &mut self,
        at: &str,
        resource: &str,
        path: &Path,
        dimensions: &[u32],
    ) -> Result<(), ModelError> {
        let bytes = match is_npy(path) {
            false => self.contents[resource].clone(),
            true => {
                let contents = self.contents(resource);
                let mut contents = contents.ok_or_else(|| ModelError::NoElementType {
                    at: at.to_owned(),
                    resource: resource.to_owned(),
                })?;
                let element = contents.element;
                if !dimensions.is_empty() {
                    contents.shape = dimensions.iter().map(|&size| size as usize).collect();
                    let count = array::count(&contents.shape).unwrap_or(usize::MAX);
                    let bytes = count.saturating_mul(element.size().unwrap_or(1));
                    contents.bytes.truncate(bytes);
                }
                npy::write(&contents)
                    .ok_or_else(|| ModelError::NoNumpyType {
                        at: at.to_owned(),
                        element,
                    })?
                    .map_err(|source| written(at, path, source))?
            }
        };
        let file = self.target_file(at, path)?;
        let mut options = OpenOptions::new();
        options.write(true);
        match self.files.contains(&file) {
            true => options.truncate(true),
            // `create_new` fails if the file exists, and does not follow a link.
            false => options.create_new(true),
        };
        let opened = options.open(&file).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => exists(at, path),
            _ => written(at, path, source),
        });
        let result = opened?.write_all(&bytes);
        self.files.insert(file);
        result.map_err(|source| written(at, path, source))
    }

    /// Checks that all targets are new, or written by this session.
    fn check_targets(&self) -> Result<(), ModelError> {
        for (index, command) in self.model.commands.iter().enumerate() {
            let Command::WriteFile { path, .. } = command else {
                continue;
            };
            let at = format!("command {index}");
            let file = self.target_file(&at, path)?;
            if !self.files.contains(&file) && file.symlink_metadata().is_ok() {
                return Err(exists(&at, path));
            }
        }
        Ok(())
    }

    /// Resolves a target, within the folders that the model may write to. A link in its place is
    /// refused.
    fn target_file(&self, at: &str, path: &Path) -> Result<PathBuf, ModelError> {
        let outside = || ModelError::WriteOutside {
            at: at.to_owned(),
            path: path.to_owned(),
        };
        let file = self.model.access.target_file(&self.model.folder, path);
        let file = file.map_err(|denied| match denied {
            Denied::Outside => outside(),
            Denied::Io(source) => written(at, path, source),
        })?;
        match file.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => Err(outside()),
            _ => Ok(file),
        }
    }
}

fn exists(at: &str, path: &Path) -> ModelError {
    ModelError::Exists {
        at: at.to_owned(),
        path: path.to_owned(),
    }
}

fn written(at: &str, path: &Path, source: std::io::Error) -> ModelError {
    ModelError::Write {
        at: at.to_owned(),
        path: path.to_owned(),
        source,
    }
}

fn is_npy(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("npy"))
}

fn allocate(name: &str, resource: &Resource) -> Result<Vec<u8>, ModelError> {
    let out_of_memory = || ModelError::OutOfMemory {
        at: format!("resource {name:?}"),
        bytes: resource.size_in_bytes,
    };
    let values = resource.initial_values.size_in_bytes();
    if values > resource.size_in_bytes.into() {
        return Err(ModelError::TooSmall {
            at: format!("resource {name:?}"),
            expected: u64::try_from(values).unwrap_or(u64::MAX),
            actual: resource.size_in_bytes,
        });
    }
    let size = usize::try_from(resource.size_in_bytes).map_err(|_| out_of_memory())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| out_of_memory())?;
    resource.initial_values.materialize(&mut bytes);
    bytes.resize(size, 0);
    Ok(bytes)
}

/// Median without the first of several times, which includes compilation.
fn median(times: &[Duration]) -> Option<Duration> {
    let mut times = match times {
        [_, rest @ ..] if !rest.is_empty() => rest.to_vec(),
        times => times.to_vec(),
    };
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_skips_the_first_time() {
        let times: Vec<Duration> = [90, 3, 1, 2].map(Duration::from_millis).to_vec();
        assert_eq!(median(&times), Some(Duration::from_millis(2)));
        assert_eq!(median(&times[..1]), Some(Duration::from_millis(90)));
        assert_eq!(median(&[]), None);
    }
}
