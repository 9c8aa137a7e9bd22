//! aos-wire
