//! V4A patches: parsing them and applying them in memory.
