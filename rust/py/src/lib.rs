//! `prefixroute._core`: converts, works, converts back; nothing else.

use pyo3::prelude::*;

/// The compiled core of prefixroute.
#[pymodule]
mod _core {
    use super::{Bound, PyModule, PyResult};
    use pyo3::types::PyModuleMethods;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("DEBUG_BUILD", cfg!(debug_assertions))
    }
}
