//! A prompt as Python gives it: token ids, text, or hashes made before.

use std::borrow::Cow;

use numpy::{PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyString, PyTuple};

use crate::errors;
use crate::hashes::BlockHashes;
use crate::ints::of_list;
use crate::sizes;

/// What a prompt argument turned out to be; borrows from the Python object wherever it can.
pub enum Prompt<'a> {
    /// Token ids.
    Tokens(Cow<'a, [u32]>),
    /// UTF-8 text.
    Text(Cow<'a, [u8]>),
    /// Hashed before.
    Hashed(&'a BlockHashes),
}

impl<'a> Prompt<'a> {
    /// Reads the argument. A contiguous `uint32` array is not copied.
    #[inline]
    pub fn read(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(list) = object.cast::<PyList>() {
            return of_list(list).map(|ids| Self::Tokens(Cow::Owned(ids)));
        }
        if let Ok(array) = object.cast::<PyUntypedArray>() {
            return of_array(array).map(Self::Tokens);
        }
        if let Ok(hashes) = object.cast::<BlockHashes>() {
            return Ok(Self::Hashed(hashes.get()));
        }
        if let Some(text) = text_of(object)? {
            return Ok(Self::Text(text));
        }
        of_other(object).map(|ids| Self::Tokens(Cow::Owned(ids)))
    }
}

/// Token ids alone; text and hashes are refused.
pub fn token_ids<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Cow<'a, [u32]>> {
    match Prompt::read(object)? {
        Prompt::Tokens(ids) => Ok(ids),
        _ => Err(errors::tokens(format!("expected token ids, got {}", type_name(object)))),
    }
}

fn text_of<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<Cow<'a, [u8]>>> {
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_str().map_err(|error| errors::tokens(format!("text must be valid Unicode: {error}")))?;
        return Ok(Some(Cow::Borrowed(text.as_bytes())));
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(Cow::Borrowed(bytes.as_bytes())));
    }
    Ok(object.cast::<PyByteArray>().ok().map(|bytes| Cow::Owned(bytes.to_vec())))
}

#[inline]
fn of_array<'a>(array: &'a Bound<'_, PyUntypedArray>) -> PyResult<Cow<'a, [u32]>> {
    if array.ndim() != 1 {
        return Err(errors::tokens(format!("token ids must have one dimension, got an array of {}", array.ndim())));
    }
    let dtype = array.dtype();
    let (kind, size, native) = (dtype.kind(), dtype.itemsize(), dtype.is_native_byteorder() != Some(false));
    // SAFETY: the pointer is that of a live array object.
    let data = unsafe { (*array.as_array_ptr()).fields.data.cast::<u8>() };
    if (kind, size) == (b'u', 4) && native && array.is_c_contiguous() && array.is_aligned() {
        // SAFETY: a one-dimensional, contiguous, aligned array of u32 has `len` of them at `data`, and the caller's
        // reference keeps it alive (NumPy refuses to resize an array that is referenced twice). Another thread that
        // writes to it meanwhile changes which ids are read, as for every extension that reads buffers.
        return Ok(Cow::Borrowed(unsafe { slice(data.cast(), array.len()) }));
    }
    if !native || !matches!(kind, b'u' | b'i') {
        return of_odd_array(array, kind).map(Cow::Owned);
    }
    let elements = Elements { data, len: array.len(), stride: array.strides()[0] };
    // SAFETY: shape and strides of a live array describe readable memory.
    unsafe { elements.integers(kind == b'i', size) }.map(Cow::Owned)
}

/// Other byte orders and object arrays: seldom, so by way of Python.
#[cold]
fn of_odd_array(array: &Bound<'_, PyUntypedArray>, kind: u8) -> PyResult<Vec<u32>> {
    match kind {
        b'u' | b'i' => {
            let native = array.dtype().call_method1("newbyteorder", ("=",))?;
            token_ids(&array.call_method1("astype", (native,))?).map(Cow::into_owned)
        }
        b'O' => of_sequence(&array.call_method0("tolist")?),
        _ if array.is_empty() => Ok(Vec::new()),
        _ => Err(errors::tokens(format!("token ids must be integers, got {} at position 0", array.dtype().str()?))),
    }
}

unsafe fn slice<'a>(data: *const u32, len: usize) -> &'a [u32] {
    if len == 0 {
        return &[];
    }
    // SAFETY: upheld by the caller.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// Equally spaced integers in memory.
#[derive(Clone, Copy)]
struct Elements {
    data: *const u8,
    len: usize,
    stride: isize,
}

impl Elements {
    /// # Safety
    /// `len` integers of `size` bytes in native byte order must be readable at the strides given.
    #[expect(clippy::cast_sign_loss, reason = "a negative id becomes one far above the limit")]
    #[expect(clippy::cast_possible_wrap, reason = "and back, for the message")]
    unsafe fn integers(self, signed: bool, size: usize) -> PyResult<Vec<u32>> {
        // SAFETY: upheld by the caller.
        let ids = unsafe {
            match (signed, size) {
                (false, 1) => self.narrow(|id: u8| u64::from(id)),
                (false, 2) => self.narrow(|id: u16| u64::from(id)),
                (false, 4) => self.narrow(|id: u32| u64::from(id)),
                (false, _) => self.narrow(|id: u64| id),
                (true, 1) => self.narrow(|id: i8| i64::from(id) as u64),
                (true, 2) => self.narrow(|id: i16| i64::from(id) as u64),
                (true, 4) => self.narrow(|id: i32| i64::from(id) as u64),
                (true, _) => self.narrow(|id: i64| id as u64),
            }
        };
        ids.map_err(|(position, id)| {
            let given = if signed { (id as i64).to_string() } else { id.to_string() };
            out_of_range(&given, position)
        })
    }

    /// The ids, or the first one above `u32::MAX` with its position.
    ///
    /// # Safety
    /// As for `integers`, with `T` the element type.
    #[inline]
    #[expect(clippy::cast_possible_wrap, reason = "an array has no more than isize::MAX elements")]
    unsafe fn narrow<T: Copy>(self, widen: impl Fn(T) -> u64) -> Result<Vec<u32>, (usize, u64)> {
        // SAFETY: `position < len` at every call.
        let at = |position: usize| unsafe {
            widen(self.data.wrapping_offset(self.stride.wrapping_mul(position as isize)).cast::<T>().read_unaligned())
        };
        let mut above = 0;
        let ids = (0..self.len).map(|position| {
            let id = at(position);
            above |= id >> 32;
            id as u32
        });
        let ids: Vec<u32> = ids.collect();
        let wrong = if above == 0 { None } else { (0..self.len).find(|&position| at(position) >> 32 != 0) };
        wrong.map_or(Ok(ids), |position| Err((position, at(position))))
    }
}

#[cold]
fn out_of_range(given: &str, position: usize) -> PyErr {
    errors::tokens(format!("token ids must be 0..={}, got {given} at position {position}", u32::MAX))
}

fn of_sequence(object: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    object.try_iter()?.enumerate().map(|(position, item)| of_item(&item?, position)).collect()
}

/// One id in full generality: integers of any class but `bool`, or the error that names the position.
#[cold]
pub fn of_item(item: &Bound<'_, PyAny>, position: usize) -> PyResult<u32> {
    // A failed conversion above may have left its error behind.
    drop(PyErr::take(item.py()));
    let py = item.py();
    let Some(integer) = sizes::as_int(item)? else {
        let given = errors::caught(py, item.repr())?.map_or_else(|| "an object".into(), |repr| repr.to_string());
        let given: String = given.chars().take(40).collect();
        let class = type_name(item);
        return Err(errors::tokens(format!(
            "token ids must be integers, got {given} ({class}) at position {position}"
        )));
    };
    integer.extract::<u32>().map_err(|_| {
        let given = integer.str().map_or_else(|_| "a huge number".into(), |text| text.to_string());
        out_of_range(&given.chars().take(40).collect::<String>(), position)
    })
}

/// Tuples, the buffer protocol, and whatever gives an array of itself (`__array__`).
fn of_other(object: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    if object.is_instance_of::<PyTuple>() {
        return of_sequence(object);
    }
    if let Some(buffer) = errors::caught(object.py(), PyUntypedBuffer::get(object))? {
        return of_buffer(&buffer);
    }
    if object.hasattr("__array__")? {
        let array = object.call_method0("__array__")?;
        if array.is_instance_of::<PyUntypedArray>() {
            return token_ids(&array).map(Cow::into_owned);
        }
    }
    let class = type_name(object);
    Err(errors::tokens(format!(
        "a prompt is a list, an array or a buffer of token ids, str, bytes or BlockHashes, got {class}"
    )))
}

fn of_buffer(buffer: &PyUntypedBuffer) -> PyResult<Vec<u32>> {
    if buffer.dimensions() != 1 || buffer.suboffsets().is_some() {
        let found = buffer.dimensions();
        return Err(errors::tokens(format!("token ids must have one dimension, got a buffer of {found}")));
    }
    let format = buffer.format();
    let swapped = matches!(
        (format.to_bytes().first(), cfg!(target_endian = "little")),
        (Some(b'>' | b'!'), true) | (Some(b'<'), false)
    ) && buffer.item_size() > 1;
    let signed = match ElementType::from_format(format) {
        ElementType::SignedInteger { .. } if !swapped => true,
        ElementType::UnsignedInteger { .. } if !swapped => false,
        _ if buffer.item_count() == 0 => return Ok(Vec::new()),
        _ => {
            let format = format.to_string_lossy();
            return Err(errors::tokens(format!(
                "token ids must be integers in native byte order, got format {format:?} at position 0"
            )));
        }
    };
    let elements = Elements { data: buffer.buf_ptr().cast(), len: buffer.item_count(), stride: buffer.strides()[0] };
    // SAFETY: the exporter guarantees shape and strides for as long as the buffer is held.
    unsafe { elements.integers(signed, buffer.item_size()) }
}

/// The class of an object, for messages.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".into(), |name| name.to_string())
}
