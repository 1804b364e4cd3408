//! Belief: what replicas should hold by the decisions made.

use std::borrow::Cow;

use prefixroute_core::Error;
use prefixroute_core::hash::hash_tokens_keyed;
use pyo3::prelude::*;

use super::PrefixIndex;
use crate::batch::{names_of, ragged};
use crate::errors;
use crate::hashes::{BlockHashes, detached_if_long};
use crate::namespace::Namespace;
use crate::outcomes::Insertion;
use crate::sizes;
use crate::text::Text;
use crate::tokens::token_ids;

#[pymethods]
impl PrefixIndex {
    /// Book a decision: the replica is believed to hold the prompt from now on.
    #[pyo3(signature = (name, prompt, namespace=None, now=0.0))]
    fn insert(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        prompt: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Insertion> {
        let hashes = self.hashed(py, prompt, namespace)?;
        let blocks = hashes.blocks();
        let work = || self.index.insert(&*name, blocks, now);
        detached_if_long(py, blocks.len() * self.block_size(), work).map(Insertion::from).map_err(errors::of_core)
    }

    /// Book prompts laid end to end. names is one name for all, or one for each prompt; stops at the first error.
    #[pyo3(signature = (names, flat, offsets, namespace=None, now=0.0))]
    fn insert_many(
        &self,
        py: Python<'_>,
        names: &Bound<'_, PyAny>,
        flat: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Vec<Insertion>> {
        let (ids, namespace) = (token_ids(flat)?, Namespace::read(namespace)?);
        let prompts = ragged(&ids, offsets)?;
        let names = names_of(names, prompts.len())?;
        if let Some(name) = names.iter().find(|name| self.index.slot(name).is_none()) {
            return Err(errors::of_core(Error::UnknownReplica(name.to_string())));
        }
        let extra = namespace.extra();
        py.detach(|| {
            let mut hashes = Vec::new();
            let insert = |(name, ids): (&Cow<'_, str>, &&[u32])| {
                hashes.clear();
                hash_tokens_keyed(ids, self.block_size(), namespace.seed, &extra, self.hash_key(), &mut hashes)?;
                self.index.insert(&**name, &hashes, now).map(Insertion::from)
            };
            names.iter().zip(&prompts).map(insert).collect::<Result<_, _>>()
        })
        .map_err(errors::of_core)
    }

    /// Take back the blocks that an insert added and nobody has touched since; returns how many.
    fn retract(
        &self,
        name: Text<'_>,
        hashes: &Bound<'_, BlockHashes>,
        insertion: &Bound<'_, Insertion>,
    ) -> PyResult<usize> {
        hashes.get().check_index(self.block_size(), self.hash_key())?;
        let (keep, stamp) = insertion.get().retract_key();
        self.index.retract(&*name, hashes.get().blocks(), keep, stamp).map_err(errors::of_core)
    }

    /// Make the leading blocks held the most recently used; returns how many lead.
    #[pyo3(signature = (name, prompt, namespace=None, now=0.0))]
    fn touch(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        prompt: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<usize> {
        let hashes = self.hashed(py, prompt, namespace)?;
        self.index.touch(&*name, hashes.blocks(), now).map_err(errors::of_core)
    }

    /// Keep the leading blocks held from eviction; returns how many lead. Unpin as many.
    fn pin(&self, name: Text<'_>, hashes: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        hashes.get().check_index(self.block_size(), self.hash_key())?;
        self.index.pin(&*name, hashes.get().blocks()).map_err(errors::of_core)
    }

    /// Take one pin from each of these blocks.
    fn unpin(&self, name: Text<'_>, hashes: &Bound<'_, BlockHashes>) -> PyResult<()> {
        hashes.get().check_index(self.block_size(), self.hash_key())?;
        self.index.unpin(&*name, hashes.get().blocks()).map_err(errors::of_core)
    }

    /// Drop belief that is older than its time to live; returns how many blocks.
    fn expire(&self, py: Python<'_>, #[pyo3(from_py_with = sizes::seconds)] now: f64) -> PyResult<usize> {
        py.detach(|| self.index.expire(now)).map_err(errors::of_core)
    }
}
