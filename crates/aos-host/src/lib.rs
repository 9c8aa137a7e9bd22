//! aos-host
