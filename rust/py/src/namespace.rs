//! `prefixroute.Namespace`, read by attribute: the chain's seed and the extra keys of single blocks.

use prefixroute_core::hash::{ExtraKey, NamespaceSpec, namespace_seed};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::errors;
use crate::text::of_encoding;
use crate::tokens::type_name;

/// What separates equal tokens, ready for hashing.
pub struct Namespace {
    /// Begins every chain.
    pub seed: u64,
    extra: Vec<(usize, Vec<u8>)>,
}

impl Namespace {
    /// Reads a `prefixroute.Namespace`; `None` is the empty one.
    #[inline]
    pub fn read(object: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        match object {
            None => Ok(Self { seed: empty_seed(), extra: Vec::new() }),
            Some(object) => Self::of_attributes(object),
        }
    }

    fn of_attributes(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let part = |name| key_bytes(&attribute(object, name)?);
        let model = part(pyo3::intern!(py, "model"))?;
        let lora = part(pyo3::intern!(py, "lora"))?;
        let salt = part(pyo3::intern!(py, "salt"))?;
        let mut extra = Vec::new();
        let not_pairs = || errors::config("extra keys of a namespace must be (token position, key) pairs");
        let pairs = attribute(object, pyo3::intern!(py, "extra"))?;
        for pair in errors::caught(py, pairs.try_iter())?.ok_or_else(not_pairs)? {
            let (position, key) =
                errors::caught(py, pair?.extract::<(usize, Bound<'_, PyAny>)>())?.ok_or_else(not_pairs)?;
            extra.push((position, key_bytes(&key)?));
        }
        extra.sort_by_key(|(position, _)| *position);
        Ok(Self { seed: namespace_seed(&NamespaceSpec { model: &model, lora: &lora, salt: &salt }), extra })
    }

    /// Extra keys in order of position.
    #[inline]
    pub fn extra(&self) -> Vec<ExtraKey<'_>> {
        self.extra.iter().map(|(position, key)| ExtraKey { position: *position, key }).collect()
    }

    /// Extra keys have token positions, so text cannot carry them.
    pub fn check_text(&self) -> PyResult<()> {
        if self.extra.is_empty() {
            return Ok(());
        }
        Err(errors::config("extra keys have token positions, a text prompt has none: put the key in its text"))
    }
}

/// A namespace whose parts an event may override.
pub struct Base {
    model: Vec<u8>,
    lora: Vec<u8>,
    salt: Vec<u8>,
}

impl Base {
    /// Reads a `prefixroute.Namespace`; `None` is the empty one. Extra keys belong to prompts: an event has its own.
    pub fn read(object: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let part = |name: &str| match object {
            None => Ok(Vec::new()),
            Some(object) => key_bytes(&attribute(object, &PyString::new(object.py(), name))?),
        };
        Ok(Self { model: part("model")?, lora: part("lora")?, salt: part("salt")? })
    }

    /// As the core takes it.
    pub fn spec(&self) -> NamespaceSpec<'_> {
        NamespaceSpec { model: &self.model, lora: &self.lora, salt: &self.salt }
    }
}

fn attribute<'py>(object: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    errors::caught(object.py(), object.getattr(name))?
        .ok_or_else(|| errors::config(format!("namespace must be a prefixroute.Namespace, got {}", type_name(object))))
}

fn empty_seed() -> u64 {
    static SEED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    *SEED.get_or_init(|| namespace_seed(&NamespaceSpec::default()))
}

/// A name or key as bytes; text and bytes never collide by accident, since text is UTF-8 either way.
fn key_bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str().map_err(|error| of_encoding(value.py(), error))?;
        return Ok(text.as_bytes().to_vec());
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    Err(errors::config(format!("names and keys of a namespace must be str or bytes, got {}", type_name(value))))
}
