//! Lookups: how much of a prompt each replica holds.

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use prefixroute_core::Medium;
use pyo3::prelude::*;

use super::{PrefixIndex, as_block_hashes};
use crate::batch::ragged;
use crate::errors;
use crate::hashes::{BlockHashes, detached_if_long, hash_prompt, hash_values};
use crate::namespace::Namespace;
use crate::out::{not_an_out_array, out_array, out_matrix};
use crate::tokens::{Prompt, token_ids};

impl PrefixIndex {
    /// A new `uint32[slots]`, or the caller's array, with what `work` writes: one length per slot, in tokens.
    #[inline]
    fn lengths<'py>(
        &self,
        py: Python<'py>,
        out: Option<&Bound<'py, PyAny>>,
        work: impl Fn(&mut [u32]) -> PyResult<usize>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        if let Some(out) = out {
            let out = out_array(out, self.index.slots())?;
            // Written at the end, with the interpreter held: nothing else sees it half-filled, and it may even overlap
            // the prompt.
            let mut held = vec![0; out.len()];
            work(&mut held)?;
            // SAFETY: `out_array` checked that it is contiguous and writable; no Python code runs while it is borrowed.
            unsafe { out.as_slice_mut() }.map_err(|_| not_an_out_array())?.copy_from_slice(&held);
            return Ok(out.clone());
        }
        loop {
            // SAFETY: nobody else has seen the array, and `work` writes every element of it.
            let array = unsafe { PyArray1::<u32>::new(py, [self.index.slots()], false) };
            // SAFETY: as above.
            let held = unsafe { array.as_slice_mut() };
            let slots = work(held.map_err(|_| not_an_out_array())?)?;
            if slots <= array.len() {
                return Ok(array);
            }
            // A replica was added between the two looks at the fleet.
        }
    }

    /// All of a prompt hashed.
    #[inline]
    fn as_hashes<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, BlockHashes>> {
        if let Ok(hashes) = prompt.cast::<BlockHashes>() {
            return self.blocks_of(hashes.get()).map(|_| hashes.clone());
        }
        let (prompt, namespace) = (Prompt::read(prompt)?, Namespace::read(namespace)?);
        Bound::new(py, hash_prompt(py, &prompt, self.block_size(), &namespace, self.hash_key())?)
    }

    /// The same, and the tokens of it that each of the first slots holds.
    #[inline]
    pub(crate) fn hash_and_hold<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
        slots: usize,
    ) -> PyResult<(Bound<'py, BlockHashes>, Vec<u32>)> {
        let hashes = self.as_hashes(py, prompt, namespace)?;
        let mut held = vec![0; slots];
        self.index.match_blocks(hashes.get().blocks(), &mut held);
        Ok((hashes, held))
    }

    /// Lengths held of a prompt, hashing no further than the longest of them.
    #[inline]
    fn match_prompt(
        &self,
        py: Python<'_>,
        prompt: &Prompt<'_>,
        namespace: &Namespace,
        out: &mut [u32],
    ) -> PyResult<usize> {
        match prompt {
            Prompt::Tokens(ids) => {
                let extra = namespace.extra();
                let work = || self.index.match_tokens(ids, namespace.seed, &extra, out);
                detached_if_long(py, ids.len(), work).map_err(errors::of_core)
            }
            Prompt::Text(_) => {
                let hashes = hash_prompt(py, prompt, self.block_size(), namespace, self.hash_key())?;
                Ok(self.index.match_blocks(hashes.blocks(), out))
            }
            Prompt::Hashed(hashes) => Ok(self.index.match_blocks(self.blocks_of(hashes)?, out)),
        }
    }
}

#[pymethods]
impl PrefixIndex {
    /// Tokens of the prompt's prefix that each slot holds.
    ///
    /// Args:
    ///     prompt: token ids, text, or `BlockHashes` of this index.
    ///     namespace: what else must be equal; not together with `BlockHashes`, which have theirs.
    ///     out: uint32[slots] to write to; None: a new array.
    ///
    /// Returns:
    ///     uint32[slots], multiples of the block size, in the order of `replicas`; 0 at a free slot.
    ///
    /// Raises:
    ///     TokensError: the prompt holds something that is no token id.
    ///     ConfigError: `out` is too short, or the hashes are of other blocks or another key.
    #[pyo3(name = "match", signature = (prompt, namespace=None, out=None))]
    #[inline]
    fn match_<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let (prompt, namespace) = (Prompt::read(prompt)?, Namespace::read(namespace)?);
        self.lengths(py, out, |held| self.match_prompt(py, &prompt, &namespace, held))
    }

    /// Match prompts laid end to end: prompt i is flat[offsets[i]:offsets[i + 1]].
    ///
    /// Args:
    ///     flat: token ids of all prompts, an integer array.
    ///     offsets: n + 1 rising positions in it, from 0 to its length.
    ///     namespace: of all of them.
    ///     out: uint32[n, slots] to write to; None: a new array.
    ///
    /// Returns:
    ///     uint32[n, slots], in tokens.
    ///
    /// Raises:
    ///     TokensError: an id is no token id.
    ///     ConfigError: the offsets do not rise, or `out` has another shape.
    #[pyo3(signature = (flat, offsets, namespace=None, out=None))]
    fn match_many<'py>(
        &self,
        py: Python<'py>,
        flat: &Bound<'py, PyAny>,
        offsets: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let (ids, namespace) = (token_ids(flat)?, Namespace::read(namespace)?);
        let prompts = ragged(&ids, offsets)?;
        let slots = self.index.slots();
        let out = out.map(|out| out_matrix(out, prompts.len(), slots)).transpose()?;
        let extra = namespace.extra();
        let mut held = vec![0; prompts.len() * slots];
        py.detach(|| {
            for (ids, row) in prompts.iter().zip(held.chunks_exact_mut(slots.max(1))) {
                self.index.match_tokens(ids, namespace.seed, &extra, row)?;
            }
            Ok(())
        })
        .map_err(errors::of_core)?;
        match out {
            None => held.into_pyarray(py).reshape([prompts.len(), slots]),
            Some(out) => {
                // SAFETY: checked by `out_matrix`; no Python code runs while it is borrowed.
                unsafe { out.as_slice_mut() }.map_err(|_| not_an_out_array())?.copy_from_slice(&held);
                Ok(out.clone())
            }
        }
    }

    /// Match a prompt that was hashed before.
    ///
    /// Args:
    ///     hashes: uint64 hashes of its blocks, or `BlockHashes`.
    ///     out: uint32[slots] to write to; None: a new array.
    ///
    /// Returns:
    ///     uint32[slots], in tokens.
    ///
    /// Raises:
    ///     ConfigError: the hashes are of other blocks or another key, or `out` is too short.
    #[pyo3(signature = (hashes, out=None))]
    fn match_hashes<'py>(
        &self,
        py: Python<'py>,
        hashes: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        if let Ok(hashes) = hashes.cast::<BlockHashes>() {
            let blocks = self.blocks_of(hashes.get())?;
            return self.lengths(py, out, |held| Ok(self.index.match_blocks(blocks, held)));
        }
        let values = hash_values(hashes)?;
        self.lengths(py, out, |held| Ok(self.index.match_blocks(as_block_hashes(&values), held)))
    }

    /// Hash all of a prompt and match it: one crossing of the border for a router.
    ///
    /// Args:
    ///     prompt: token ids, text, or `BlockHashes` of this index.
    ///     out: uint32[slots] that takes the tokens held.
    ///     namespace: what else must be equal.
    ///
    /// Returns:
    ///     The hashes of the whole prompt.
    ///
    /// Raises:
    ///     TokensError: the prompt holds something that is no token id.
    ///     ConfigError: `out` is too short, or the hashes are of other blocks or another key.
    #[pyo3(signature = (prompt, out, namespace=None))]
    fn hash_and_match<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        out: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, BlockHashes>> {
        let hashes = self.as_hashes(py, prompt, namespace)?;
        self.lengths(py, Some(out), |held| Ok(self.index.match_blocks(hashes.get().blocks(), held)))?;
        Ok(hashes)
    }

    /// Tokens of the prefix by the best medium of each block.
    ///
    /// Args:
    ///     prompt: token ids, text, or `BlockHashes` of this index.
    ///     namespace: what else must be equal.
    ///
    /// Returns:
    ///     uint32[slots, 3], in tokens on GPU, CPU and disk.
    ///
    /// Raises:
    ///     TokensError: the prompt holds something that is no token id.
    #[pyo3(signature = (prompt, namespace=None))]
    fn match_media<'py>(
        &self,
        py: Python<'py>,
        prompt: &Bound<'py, PyAny>,
        namespace: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<u32>>> {
        let media = self.index.match_media(self.hashed(py, prompt, namespace)?.blocks());
        let slots = media.len();
        media.into_flattened().into_pyarray(py).reshape([slots, Medium::ALL.len()])
    }
}
