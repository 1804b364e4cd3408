//! Python's numbers, and token ids out of a list: the one conversion that costs more than everything else together.
//!
//! The stable ABI asks for two calls into the interpreter per id: 28 to 70 µs for 8,800 ids. Reading the memory of the
//! list and of its small ints takes 10. Their layout is not part of the stable ABI, so it is used only on the
//! interpreters whose layout is written down here, after a probe that compares both ways; all others take the calls.

use std::sync::OnceLock;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyList};

use crate::tokens::of_item;

/// What lies behind the head of an `int`, on a 64-bit interpreter with a GIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// 3.11: the number of 30-bit digits, negative for a negative number, then the digits.
    SignedSize,
    /// 3.12 to 3.14: a tag (number of digits from bit 3 on, sign in bits 0 and 1: 0 positive, 1 zero), then the digits.
    Tag,
    /// Not known here.
    Other,
}

/// Words before the items of a list and before the size or tag of an int: reference count and type, and the list's size.
const LIST_ITEMS: usize = 3;
const FLOAT_VALUE: usize = 2;
const INT_SIZE: usize = 2;
const INT_DIGITS: usize = 3;

/// The ids of a list, in order. Lists of a class of their own are read by calls on every interpreter.
pub fn of_list(list: &Bound<'_, PyList>) -> PyResult<Vec<u32>> {
    let layout = if list.is_exact_instance_of::<PyList>() { layout(list.py()) } else { Layout::Other };
    match layout {
        // SAFETY: `layout` found that lists and ints look like this.
        Layout::SignedSize => read(list, |position| unsafe { listed(list, position) }, |int| unsafe { sized_id(int) }),
        // SAFETY: as above.
        Layout::Tag => read(list, |position| unsafe { listed(list, position) }, |int| unsafe { tagged_id(int) }),
        Layout::Other => read(list, |position| called(list, position), called_id),
    }
}

/// The value of an int of 64 bits, or what fits in them, without a sign; `None` for any other object.
#[inline]
pub fn hash_of(object: &Bound<'_, PyAny>) -> Option<u64> {
    let int = object.as_ptr();
    // SAFETY: a live object; the address of the type object is only compared.
    if unsafe { ffi::Py_TYPE(int) != &raw mut ffi::PyLong_Type } {
        return None;
    }
    let digits = match layout(object.py()) {
        // SAFETY: `layout` found that ints look like this.
        Layout::SignedSize => usize::try_from(unsafe { *int.cast::<isize>().add(INT_SIZE) }).ok()?,
        // SAFETY: as above.
        Layout::Tag => match unsafe { *int.cast::<usize>().add(INT_SIZE) } {
            tag if tag & 3 < 2 => tag >> 3,
            _ => return None,
        },
        Layout::Other => return object.extract().ok(),
    };
    // SAFETY: an int has as many digits of 30 bits as it says.
    let digit = |place: usize| u64::from(unsafe { *int.cast::<usize>().add(INT_DIGITS).cast::<u32>().add(place) });
    match digits {
        0 => Some(0),
        1 => Some(digit(0)),
        2 => Some(digit(0) | digit(1) << 30),
        3 if digit(2) < 16 => Some(digit(0) | digit(1) << 30 | digit(2) << 60),
        _ => None,
    }
}

/// The numbers of a list, each read when it is asked for. No Python runs meanwhile, so that the list stays as it is.
pub struct Numbers<'a, 'py> {
    list: &'a Bound<'py, PyList>,
    layout: Layout,
}

impl<'a, 'py> Numbers<'a, 'py> {
    pub fn of(list: &'a Bound<'py, PyList>) -> Self {
        let layout = if list.is_exact_instance_of::<PyList>() { layout(list.py()) } else { Layout::Other };
        Self { list, layout }
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The item at a position below the list's length, borrowed.
    #[inline]
    fn item(&self, position: usize) -> *mut ffi::PyObject {
        match self.layout {
            Layout::Other => called(self.list, position),
            // SAFETY: `layout` found that lists look like this; callers stay below the length.
            Layout::SignedSize | Layout::Tag => unsafe { listed(self.list, position) },
        }
    }

    /// The item as an exact int of 64 bits.
    #[inline]
    pub fn int(&self, position: usize) -> Option<i64> {
        let int = self.item(position);
        // SAFETY: a live object of the list; the address of the type object is only compared.
        if unsafe { ffi::Py_TYPE(int) != &raw mut ffi::PyLong_Type } {
            return None;
        }
        let small = match self.layout {
            // SAFETY: `layout` found that ints look like this.
            Layout::SignedSize => unsafe { sized_id(int) },
            // SAFETY: as above.
            Layout::Tag => unsafe { tagged_id(int) },
            Layout::Other => None,
        };
        small.map(i64::from).or_else(|| {
            let mut overflow = 0;
            // SAFETY: an exact int: nothing is raised, and what does not fit is told.
            let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(int, &raw mut overflow) };
            (overflow == 0).then_some(value)
        })
    }

    /// The item as an exact float.
    #[inline]
    pub fn float(&self, position: usize) -> Option<f64> {
        let float = self.item(position);
        // SAFETY: a live object of the list; the address of the type object is only compared.
        if unsafe { ffi::Py_TYPE(float) != &raw mut ffi::PyFloat_Type } {
            return None;
        }
        Some(match self.layout {
            // SAFETY: an exact float, which raises nothing.
            Layout::Other => unsafe { ffi::PyFloat_AsDouble(float) },
            // SAFETY: `layout` found that floats look like this.
            Layout::SignedSize | Layout::Tag => unsafe { stored_float(float) },
        })
    }

    /// All of them as floats, if each is an exact float or an exact int of 64 bits.
    pub fn reals(&self) -> Option<Vec<f64>> {
        let mut values = Vec::with_capacity(self.len());
        values.extend((0..self.len()).map_while(|position| self.real(position)));
        (values.len() == self.len()).then_some(values)
    }

    /// The item as a float, if it is an exact float or an exact int of 64 bits.
    #[inline]
    pub fn real(&self, position: usize) -> Option<f64> {
        self.float(position).or_else(|| self.int(position).map(|int| int as f64))
    }
}

/// Reads a list with `item`, which gives a borrowed item, and `small`, which gives the value of a small exact int. What
/// `small` leaves goes through Python.
#[inline]
fn read(
    list: &Bound<'_, PyList>,
    item: impl Fn(usize) -> *mut ffi::PyObject,
    small: impl Fn(*mut ffi::PyObject) -> Option<u32>,
) -> PyResult<Vec<u32>> {
    let mut ids = Vec::with_capacity(list.len());
    // An item that goes through Python may change the list, so its length is looked up again after it.
    while ids.len() < list.len() {
        ids.extend((ids.len()..list.len()).map_while(|position| {
            let item = item(position);
            // SAFETY: a live object of the list; the address of the type object is only compared.
            if unsafe { ffi::Py_TYPE(item) == &raw mut ffi::PyLong_Type } { small(item) } else { None }
        }));
        if ids.len() < list.len() {
            // SAFETY: a live object of the list, to which this makes a reference of our own.
            let item = unsafe { Bound::from_borrowed_ptr(list.py(), item(ids.len())) };
            ids.push(of_item(&item, ids.len())?);
        }
    }
    Ok(ids)
}

/// An item by way of the list's memory, borrowed.
///
/// # Safety
/// `position` is less than the list's length.
#[inline]
unsafe fn listed(list: &Bound<'_, PyList>, position: usize) -> *mut ffi::PyObject {
    // SAFETY: upheld by the caller.
    unsafe { *(*list.as_ptr().cast::<*const *mut ffi::PyObject>().add(LIST_ITEMS)).add(position) }
}

/// An item by way of the stable ABI, borrowed.
#[expect(clippy::cast_possible_wrap, reason = "a list has no more than isize::MAX items")]
fn called(list: &Bound<'_, PyList>, position: usize) -> *mut ffi::PyObject {
    // SAFETY: callers stay below the list's length, so the item is there.
    unsafe { ffi::PyList_GetItem(list.as_ptr(), position as isize) }
}

/// # Safety
/// `int` is an exact int of an interpreter with `Layout::SignedSize`.
#[inline]
unsafe fn sized_id(int: *mut ffi::PyObject) -> Option<u32> {
    // SAFETY: upheld by the caller; an int of one digit has one digit.
    unsafe {
        match *int.cast::<isize>().add(INT_SIZE) {
            1 => Some(*int.cast::<usize>().add(INT_DIGITS).cast::<u32>()),
            0 => Some(0),
            _ => None,
        }
    }
}

/// # Safety
/// `int` is an exact int of an interpreter with `Layout::Tag`.
#[inline]
unsafe fn tagged_id(int: *mut ffi::PyObject) -> Option<u32> {
    // SAFETY: upheld by the caller; an int of one digit has one digit.
    unsafe {
        let tag = *int.cast::<usize>().add(INT_SIZE);
        match (tag >> 3, tag & 3) {
            (1, 0) => Some(*int.cast::<usize>().add(INT_DIGITS).cast::<u32>()),
            (0, 1) => Some(0),
            _ => None,
        }
    }
}

/// # Safety
/// `float` is an exact float of an interpreter whose layout is known.
#[inline]
unsafe fn stored_float(float: *mut ffi::PyObject) -> f64 {
    // SAFETY: upheld by the caller.
    unsafe { *float.cast::<f64>().add(FLOAT_VALUE) }
}

/// The value by way of the stable ABI.
#[inline]
fn called_id(int: *mut ffi::PyObject) -> Option<u32> {
    // SAFETY: an exact int; what does not fit raises, which `of_item` clears.
    u32::try_from(unsafe { ffi::PyLong_AsLongLong(int) }).ok()
}

fn layout(py: Python<'_>) -> Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    *LAYOUT.get_or_init(|| probed(py, expected(py)).unwrap_or(Layout::Other))
}

/// Free-threaded interpreters, whose objects have another head, do not load modules built for this stable ABI.
fn expected(py: Python<'_>) -> Layout {
    let version = py.version_info();
    match (cfg!(target_pointer_width = "64"), version.major, version.minor) {
        (true, 3, 11) => Layout::SignedSize,
        (true, 3, 12..=14) => Layout::Tag,
        _ => Layout::Other,
    }
}

/// The layout, if ints, floats and a list made by the interpreter look like it.
fn probed(py: Python<'_>, layout: Layout) -> PyResult<Layout> {
    let fits = [0, 1, 255, 256, 150_000, (1 << 30) - 1].map(|id: u32| (i64::from(id), Some(id)));
    let others = [-1, -150_000, 1 << 30, 1 << 32].map(|int: i64| (int, None));
    let list = PyList::new(py, fits.iter().chain(&others).map(|(int, _)| int))?;
    let same = fits.iter().chain(&others).enumerate().all(|(position, (_, id))| {
        let int = called(&list, position);
        // SAFETY: the list is that long, and the words read lie inside of any int.
        unsafe {
            listed(&list, position) == int
                && match layout {
                    Layout::SignedSize => sized_id(int) == *id,
                    Layout::Tag => tagged_id(int) == *id,
                    Layout::Other => false,
                }
        }
    });
    let floats = [0.0, -0.0, 1.5, f64::MIN_POSITIVE, f64::NEG_INFINITY];
    // SAFETY: the words read lie inside of any float.
    let exact = floats
        .iter()
        .all(|&value| unsafe { stored_float(PyFloat::new(py, value).as_ptr()) }.to_bits() == value.to_bits());
    Ok(if same && exact { layout } else { Layout::Other })
}
