//! Belief: what replicas should hold by the decisions made.

use std::borrow::Cow;

use prefixroute_core::hash::hash_tokens_keyed;
use prefixroute_core::{BlockHash, Error};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::PrefixIndex;
use crate::batch::{names_of, ragged};
use crate::errors;
use crate::hashes::{BlockHashes, detached_if_long};
use crate::namespace::Namespace;
use crate::outcomes::Insertion;
use crate::sizes;
use crate::text::Text;
use crate::tokens::token_ids;

impl PrefixIndex {
    fn believe(&self, py: Python<'_>, name: &str, blocks: &[BlockHash], now: f64) -> PyResult<Insertion> {
        let work = || self.index.insert(name, blocks, now);
        detached_if_long(py, blocks.len() * self.block_size(), work).map(Insertion::from).map_err(errors::of_core)
    }

    /// Insert what a replica holds into a belief of whatever class; without a call of Python where it is an index and the blocks
    /// are hashed.
    pub fn hold(
        belief: &Bound<'_, PyAny>,
        name: &Bound<'_, PyString>,
        blocks: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        now: f64,
    ) -> PyResult<()> {
        let py = belief.py();
        if let (Ok(index), Ok(hashes), Ok(name)) = (belief.cast::<Self>(), blocks.cast::<BlockHashes>(), name.to_str())
        {
            let (index, hashes) = (index.get(), hashes.get());
            return index.believe(py, name, index.blocks_of(hashes)?, now).map(drop);
        }
        belief.call_method1(intern!(py, "insert"), (name, blocks, namespace, now)).map(drop)
    }
}

#[pymethods]
impl PrefixIndex {
    /// Book a decision: the replica is believed to hold the prompt from now on.
    ///
    /// Args:
    ///     name: the replica.
    ///     prompt: token ids, text, or `BlockHashes` of this index.
    ///     namespace: what else must be equal.
    ///     now: seconds on the caller's clock, for `ttl_s` and provisional blocks.
    ///
    /// Returns:
    ///     What was added and evicted; `retract` takes it.
    ///
    /// Raises:
    ///     TokensError: the prompt holds something that is no token id.
    ///     UnknownReplicaError: no replica has that name.
    #[pyo3(signature = (name, prompt, namespace=None, now=0.0))]
    fn insert(
        &self,
        py: Python<'_>,
        name: Text<'_>,
        prompt: &Bound<'_, PyAny>,
        namespace: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = sizes::seconds)] now: f64,
    ) -> PyResult<Insertion> {
        self.believe(py, &name, self.hashed(py, prompt, namespace)?.blocks(), now)
    }

    /// Book prompts laid end to end, up to the first error.
    ///
    /// Args:
    ///     names: one name for all, or one for each prompt.
    ///     flat: token ids of all prompts, an integer array.
    ///     offsets: n + 1 rising positions in it, from 0 to its length.
    ///     namespace: of all of them.
    ///     now: seconds on the caller's clock.
    ///
    /// Returns:
    ///     What was added and evicted, for each prompt.
    ///
    /// Raises:
    ///     TokensError: an id is no token id.
    ///     UnknownReplicaError: no replica has one of the names.
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

    /// Take back the blocks that an insert added and nobody has touched since.
    ///
    /// Args:
    ///     name: the replica.
    ///     hashes: of the prompt that was inserted.
    ///     insertion: what `insert` returned.
    ///
    /// Returns:
    ///     How many blocks went.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn retract(
        &self,
        name: Text<'_>,
        hashes: &Bound<'_, BlockHashes>,
        insertion: &Bound<'_, Insertion>,
    ) -> PyResult<usize> {
        let (blocks, (keep, stamp)) = (self.blocks_of(hashes.get())?, insertion.get().retract_key());
        self.index.retract(&*name, blocks, keep, stamp).map_err(errors::of_core)
    }

    /// Make the leading blocks held the most recently used.
    ///
    /// Args:
    ///     name: the replica.
    ///     prompt: token ids, text, or `BlockHashes` of this index.
    ///     namespace: what else must be equal.
    ///     now: seconds on the caller's clock, for `ttl_s`.
    ///
    /// Returns:
    ///     How many blocks lead.
    ///
    /// Raises:
    ///     TokensError: the prompt holds something that is no token id.
    ///     UnknownReplicaError: no replica has that name.
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

    /// Keep the leading blocks held from eviction.
    ///
    /// Args:
    ///     name: the replica.
    ///     hashes: of the prompt.
    ///
    /// Returns:
    ///     How many lead: unpin as many.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn pin(&self, name: Text<'_>, hashes: &Bound<'_, BlockHashes>) -> PyResult<usize> {
        self.index.pin(&*name, self.blocks_of(hashes.get())?).map_err(errors::of_core)
    }

    /// Take one pin from each of these blocks.
    ///
    /// Args:
    ///     name: the replica.
    ///     hashes: of the blocks that `pin` kept.
    ///
    /// Raises:
    ///     UnknownReplicaError: no replica has that name.
    fn unpin(&self, name: Text<'_>, hashes: &Bound<'_, BlockHashes>) -> PyResult<()> {
        self.index.unpin(&*name, self.blocks_of(hashes.get())?).map_err(errors::of_core)
    }

    /// Drop belief that is older than its time to live.
    ///
    /// Args:
    ///     now: seconds on the caller's clock.
    ///
    /// Returns:
    ///     How many blocks went.
    fn expire(&self, py: Python<'_>, #[pyo3(from_py_with = sizes::seconds)] now: f64) -> PyResult<usize> {
        py.detach(|| self.index.expire(now)).map_err(errors::of_core)
    }
}
