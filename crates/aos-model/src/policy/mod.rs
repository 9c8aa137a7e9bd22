//! The policy: rules and host-access decision points, and the one function that evaluates them.
