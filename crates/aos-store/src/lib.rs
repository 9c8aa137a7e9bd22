//! aos-store
