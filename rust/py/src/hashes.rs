//! `BlockHashes`, one prompt hashed, and the conversion of hash arrays.

use std::borrow::Cow;
use std::ffi::c_void;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use prefixroute_core::BlockHash;
use prefixroute_core::hash::{
    CONTENT_SEED, TEXT_BYTES_PER_TOKEN, check_block_size, content_hash_keyed, hash_text_keyed, hash_tokens_keyed,
};
use prefixroute_core::replica_cache::{Sequence, SharedSequence};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyList};

use crate::errors;
use crate::ints::hash_of;
use crate::namespace::Namespace;
use crate::sizes;
use crate::tokens::{Prompt, type_name};

/// Prompts of at least so many tokens are worked on with the interpreter released: about 20 µs of hashing, far more than
/// letting go and taking hold again costs.
const DETACH_TOKENS: usize = 65_536;

/// Does the work, with the interpreter released if it takes long enough for others to use it.
#[inline]
pub fn detached_if_long<T: Send>(py: Python<'_>, tokens: usize, work: impl FnOnce() -> T + Send) -> T {
    if tokens < DETACH_TOKENS { work() } else { py.detach(work) }
}

/// The chained hashes of a prompt's full blocks, with the prompt's length in tokens.
///
/// A value: immutable, hashable, equal if all three parts are, safe to share between threads and to pickle. `len()` is the
/// number of full blocks.
///
/// Args:
///     hashes: `uint64[blocks]` or ints; they are taken as they are.
///     token_count: tokens of the prompt, at least `blocks * block_size`.
///     block_size: tokens of a block, 1 to 65,536.
///
/// Raises:
///     ConfigError: a value outside of these limits.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct BlockHashes {
    /// Shared with what `head` returns, which uses only the first `len` of them.
    hashes: Arc<Vec<BlockHash>>,
    len: usize,
    token_count: usize,
    block_size: usize,
    /// Tells the key of the content hashes from others, not which it is; `None` for hashes that were given.
    key_check: Option<u64>,
}

/// A value that differs for other keys and does not give the key away: these hashes may travel where the key must not.
fn key_check(hash_key: u64) -> u64 {
    content_hash_keyed(&[0x6b65_795f, 0x6368_6563], hash_key)
}

impl BlockHashes {
    /// Hashes made by this crate, so their lengths agree.
    fn new(hashes: Vec<BlockHash>, token_count: usize, block_size: usize, hash_key: Option<u64>) -> Self {
        let key_check = hash_key.map(key_check);
        Self { len: hashes.len(), hashes: Arc::new(hashes), token_count, block_size, key_check }
    }

    /// Hashes that another process has made, whose lengths agree.
    pub fn given(hashes: Vec<BlockHash>, token_count: usize, block_size: usize) -> Self {
        Self::new(hashes, token_count, block_size, None)
    }

    /// Hashes of the full blocks.
    #[inline]
    pub fn blocks(&self) -> &[BlockHash] {
        &self.hashes[..self.len]
    }

    /// Tokens of the prompt, those after the last full block included.
    #[inline]
    pub fn tokens(&self) -> usize {
        self.token_count
    }

    /// As the cache model takes it.
    pub fn sequence(&self) -> Sequence<'_> {
        Sequence { blocks: self.blocks(), tokens: self.token_count }
    }

    /// The same, sharing its hashes.
    pub fn shared(&self) -> SharedSequence {
        SharedSequence::new(Arc::clone(&self.hashes), self.len, self.token_count)
    }

    /// Fails unless the hashes are of blocks of `block_size` tokens.
    #[inline]
    pub fn check_block_size(&self, block_size: usize) -> PyResult<()> {
        if self.block_size == block_size {
            return Ok(());
        }
        Err(errors::config(format!("block size must be {block_size} as here, the hashes have {}", self.block_size)))
    }

    /// Fails unless an index of this block size and key can hold them: with another key nothing would ever match.
    #[inline]
    pub fn check_index(&self, block_size: usize, hash_key: u64) -> PyResult<()> {
        self.check_block_size(block_size)?;
        if self.key_check.is_none_or(|check| check == key_check(hash_key)) {
            return Ok(());
        }
        Err(errors::config(
            "the hashes were made with another hash key than this index has: pass hash_key=index.hash_key (or \
             router.hash_key) to hash_blocks, or give index or router a hash_key of your own"
                .to_owned(),
        ))
    }

    fn check_lengths(blocks: usize, token_count: usize, block_size: usize) -> PyResult<()> {
        if token_count / block_size < blocks {
            let least = blocks * block_size;
            return Err(errors::config(format!(
                "token count must be at least {least} for {blocks} blocks, got {token_count}"
            )));
        }
        Ok(())
    }
}

#[pymethods]
impl BlockHashes {
    #[new]
    #[pyo3(signature = (hashes, *, token_count, block_size=16))]
    fn py_new(
        hashes: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = sizes::token_count)] token_count: usize,
        #[pyo3(from_py_with = sizes::block_size)] block_size: usize,
    ) -> PyResult<Self> {
        check_block_size(block_size).map_err(errors::of_core)?;
        let hashes = hash_values(hashes)?.iter().copied().map(BlockHash).collect::<Vec<_>>();
        Self::check_lengths(hashes.len(), token_count, block_size)?;
        Ok(Self::new(hashes, token_count, block_size, None))
    }

    /// `uint64[len]`, read-only, a view of this object's memory.
    #[getter]
    fn array(slf: Bound<'_, Self>) -> Bound<'_, PyArray1<u64>> {
        let blocks = slf.get().blocks();
        // SAFETY: `BlockHash` is a transparent u64; the memory belongs to `slf`, is never changed, and `slf` becomes the
        // base of the array.
        let array = unsafe {
            let values = ArrayView1::from_shape_ptr(blocks.len(), blocks.as_ptr().cast::<u64>());
            PyArray1::borrow_from_array(&values, slf.clone().into_any())
        };
        array.readwrite().make_nonwriteable();
        array
    }

    /// Tokens of the prompt, those after the last full block included.
    #[getter]
    fn token_count(&self) -> usize {
        self.token_count
    }

    /// Tokens of a block.
    #[getter]
    fn block_size(&self) -> usize {
        self.block_size
    }

    /// The first blocks. Shares memory, costs nothing.
    ///
    /// Args:
    ///     blocks: how many; at most as many as there are.
    ///     token_count: length of the prompt in tokens; None: nothing beyond these blocks.
    ///
    /// Returns:
    ///     Hashes of the shorter prompt.
    ///
    /// Raises:
    ///     ConfigError: there are fewer blocks, or the length is not theirs.
    #[pyo3(signature = (blocks, token_count=None))]
    fn head(
        &self,
        #[pyo3(from_py_with = sizes::blocks)] blocks: usize,
        #[pyo3(from_py_with = sizes::optional_token_count)] token_count: Option<usize>,
    ) -> PyResult<Self> {
        if blocks > self.len {
            return Err(errors::config(format!("blocks must be 0..={}, got {blocks}", self.len)));
        }
        let token_count = token_count.unwrap_or(blocks * self.block_size);
        Self::check_lengths(blocks, token_count, self.block_size)?;
        Ok(Self { hashes: Arc::clone(&self.hashes), len: blocks, token_count, ..*self })
    }

    fn __len__(&self) -> usize {
        self.len
    }

    /// The hash of one block: `int(array[block])`, without an array.
    ///
    /// Args:
    ///     block: its number, from 0.
    ///
    /// Returns:
    ///     64 bits.
    ///
    /// Raises:
    ///     ConfigError: there is no such block.
    #[pyo3(signature = (block, /))]
    pub fn hash_at(&self, #[pyo3(from_py_with = sizes::blocks)] block: usize) -> PyResult<u64> {
        let hash = self.blocks().get(block).map(|hash| hash.0);
        hash.ok_or_else(|| errors::config(format!("block must be below {}, got {block}", self.len)))
    }

    fn __eq__(&self, other: &Bound<'_, Self>) -> bool {
        let other = other.get();
        self.block_size == other.block_size && self.token_count == other.token_count && self.blocks() == other.blocks()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // The last hash stands for all before it.
        (self.blocks().last(), self.len, self.token_count, self.block_size).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<BlockHashes blocks={} token_count={} block_size={}>", self.len, self.token_count, self.block_size)
    }

    fn __getnewargs_ex__(slf: Bound<'_, Self>) -> PyResult<((Bound<'_, PyAny>,), Bound<'_, PyDict>)> {
        let sizes = PyDict::new(slf.py());
        sizes.set_item("token_count", slf.get().token_count)?;
        sizes.set_item("block_size", slf.get().block_size)?;
        let array = Self::array(slf).call_method0("copy")?;
        Ok(((array,), sizes))
    }
}

/// Hash a prompt's full blocks under a namespace; about 4 nanoseconds a block.
///
/// Token ids are a list, any integer array, or a buffer (`array.array`, `memoryview`); `str` and `bytes` are text, whose
/// blocks have `4 * block_size` bytes and never equal a block of token ids.
///
/// Args:
///     prompt: token ids, 0 to 2**32 - 1, or text.
///     block_size: tokens of a block, 1 to 65,536.
///     namespace: a `prefixroute.Namespace`; prompts of different namespaces share no hash, but see `hash_key`.
///     hash_key: 0 to 2**64 - 1. None: the fixed key, the same in every process, for which anyone can compute prompts that
///         share a hash. Where untrusted prompts meet, use the key of the index, `PrefixIndex.hash_key`.
///
/// Raises:
///     TokensError: not a prompt; the message names the first bad position.
///     ConfigError: a block size or namespace that cannot be.
#[pyfunction]
#[pyo3(signature = (prompt, block_size=16, namespace=None, hash_key=None))]
pub fn hash_blocks(
    py: Python<'_>,
    prompt: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = sizes::block_size)] block_size: usize,
    namespace: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = sizes::hash_key)] hash_key: Option<u64>,
) -> PyResult<BlockHashes> {
    let (prompt, namespace) = (Prompt::read(prompt)?, Namespace::read(namespace)?);
    hash_prompt(py, &prompt, block_size, &namespace, hash_key.unwrap_or(CONTENT_SEED))
}

/// The hashes of a prompt that is not hashed yet.
pub fn hash_prompt(
    py: Python<'_>,
    prompt: &Prompt<'_>,
    block_size: usize,
    namespace: &Namespace,
    hash_key: u64,
) -> PyResult<BlockHashes> {
    let mut hashes = Vec::new();
    let token_count = match prompt {
        Prompt::Tokens(ids) => {
            let extra = namespace.extra();
            let work = || hash_tokens_keyed(ids, block_size, namespace.seed, &extra, hash_key, &mut hashes);
            detached_if_long(py, ids.len(), work).map_err(errors::of_core)?;
            ids.len()
        }
        Prompt::Text(text) => {
            namespace.check_text()?;
            let work = || hash_text_keyed(text, block_size, namespace.seed, hash_key, &mut hashes);
            detached_if_long(py, text.len() / TEXT_BYTES_PER_TOKEN, work).map_err(errors::of_core)?;
            text.len().div_ceil(TEXT_BYTES_PER_TOKEN)
        }
        Prompt::Hashed(_) => return Err(errors::tokens("the prompt is hashed already, got BlockHashes")),
    };
    Ok(BlockHashes::new(hashes, token_count, block_size, Some(hash_key)))
}

/// Hashes as 64-bit values: an array of `uint64` or `int64` (the bits count), or any iterable of ints of either sign, or of
/// digests as bytes, whose last eight, big-endian, are the value.
pub fn hash_values<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u64]>> {
    if let Ok(list) = object.cast::<PyList>() {
        let mut values = Vec::with_capacity(list.len());
        while values.len() < list.len() {
            values.push(hash_value(&list.get_item(values.len())?, values.len())?);
        }
        return Ok(Cow::Owned(values));
    }
    if let Ok(array) = object.cast::<PyUntypedArray>() {
        return of_array(array);
    }
    let items = object
        .try_iter()
        .map_err(|_| errors::config(format!("hashes must be an array or a list, got {}", type_name(object))))?;
    items.enumerate().map(|(position, item)| hash_value(&item?, position)).collect::<PyResult<_>>().map(Cow::Owned)
}

#[inline]
fn of_array<'a>(array: &'a Bound<'_, PyUntypedArray>) -> PyResult<Cow<'a, [u64]>> {
    let dtype = array.dtype();
    let plain =
        matches!(dtype.kind(), b'u' | b'i') && dtype.itemsize() == 8 && dtype.is_native_byteorder() != Some(false);
    if plain && array.ndim() == 1 && array.is_c_contiguous() && array.is_aligned() && !array.is_empty() {
        // SAFETY: a one-dimensional, contiguous, aligned array of 64-bit integers that the caller keeps alive.
        return Ok(Cow::Borrowed(unsafe {
            std::slice::from_raw_parts((*array.as_array_ptr()).fields.data.cast::<c_void>().cast::<u64>(), array.len())
        }));
    }
    if array.ndim() != 1 {
        return Err(errors::config(format!("hashes must have one dimension, got an array of {}", array.ndim())));
    }
    hash_values(&array.call_method0("tolist")?).map(|values| Cow::Owned(values.into_owned()))
}

/// One hash; `position` is for the message.
pub fn hash_value(item: &Bound<'_, PyAny>, position: usize) -> PyResult<u64> {
    if let Some(value) = hash_of(item) {
        return Ok(value);
    }
    odd_hash_value(item, position)
}

/// Negative ints, bytes, and what converts to an int.
fn odd_hash_value(item: &Bound<'_, PyAny>, position: usize) -> PyResult<u64> {
    if let Ok(bytes) = item.cast::<PyBytes>() {
        let bytes = bytes.as_bytes();
        return bytes.last_chunk::<8>().map(|last| u64::from_be_bytes(*last)).ok_or_else(|| {
            let given = bytes.len();
            errors::config(format!("a hash must have at least 8 bytes, got {given} at position {position}"))
        });
    }
    if item.is_instance_of::<PyBool>() || !item.hasattr("__index__")? {
        let class = type_name(item);
        return Err(errors::config(format!("a hash must be an int or bytes, got {class} at position {position}")));
    }
    if let Some(value) = errors::caught(item.py(), item.extract::<u64>())? {
        return Ok(value);
    }
    if let Some(value) = errors::caught(item.py(), item.extract::<i64>())? {
        return Ok(u64::from_ne_bytes(value.to_ne_bytes()));
    }
    let given = item.str()?;
    Err(errors::config(format!("a hash must fit in 64 bits, got {given} at position {position}")))
}
