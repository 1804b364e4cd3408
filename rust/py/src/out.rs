//! The caller's own arrays for results.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::errors;

#[cold]
pub fn not_an_out_array() -> PyErr {
    errors::config("out must be a writable, contiguous uint32 array")
}

/// Load what the bindings of NumPy else load at the first use of an array: its array API and the register of borrows.
///
/// They panic where an exception of a signal handler ends that load. Within an import the exception passes through.
pub fn load_numpy(py: Python<'_>) -> PyResult<()> {
    py.import("numpy")?;
    let array = PyArray1::<u32>::zeros(py, 0, false);
    array.try_readonly().map_err(|_| not_an_out_array())?;
    Ok(())
}

/// A writable, contiguous `uint32` array with room for every slot.
pub fn out_array<'a, 'py>(out: &'a Bound<'py, PyAny>, slots: usize) -> PyResult<&'a Bound<'py, PyArray1<u32>>> {
    let array = out.cast::<PyArray1<u32>>().map_err(|_| not_an_out_array())?;
    if !array.is_c_contiguous() || !is_writable(array) {
        return Err(not_an_out_array());
    }
    if array.len() < slots {
        return Err(errors::config(format!(
            "out must have at least {slots} elements, one per slot, got {}",
            array.len()
        )));
    }
    Ok(array)
}

/// A writable, contiguous `uint32` array of one row per prompt and one column per slot.
pub fn out_matrix<'a, 'py>(
    out: &'a Bound<'py, PyAny>,
    prompts: usize,
    slots: usize,
) -> PyResult<&'a Bound<'py, PyArray2<u32>>> {
    let array = out.cast::<PyArray2<u32>>().map_err(|_| not_an_out_array())?;
    if !array.is_c_contiguous() || !is_writable(array) {
        return Err(not_an_out_array());
    }
    if array.shape() != [prompts, slots] {
        return Err(errors::config(format!("out must have shape ({prompts}, {slots}), got {:?}", array.shape())));
    }
    Ok(array)
}

fn is_writable<'py>(array: &impl PyUntypedArrayMethods<'py>) -> bool {
    // SAFETY: the pointer is that of a live array object.
    unsafe { (*array.as_array_ptr()).fields.flags & numpy::npyffi::flags::NPY_ARRAY_WRITEABLE != 0 }
}
