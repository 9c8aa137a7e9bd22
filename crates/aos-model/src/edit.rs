//! The edit ladder: finds `old_string` in a text and replaces it, never by guessing.
