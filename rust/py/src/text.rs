//! A `str` argument that names something.

use std::ops::Deref;

use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::prelude::*;

use crate::errors;

/// Text as UTF-8, borrowed. A lone surrogate, which no UTF-8 can say, is the library's error.
#[derive(Clone, Copy)]
pub struct Text<'a>(&'a str);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Text<'a> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text = <&str>::extract(object);
        text.map(Self).map_err(|error| of_encoding(object.py(), error))
    }
}

/// The error of a text that is no Unicode as one of ours; any other as it is.
#[cold]
pub fn of_encoding(py: Python<'_>, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyUnicodeEncodeError>(py) {
        return errors::config(format!("text must be valid Unicode: {error}"));
    }
    error
}
