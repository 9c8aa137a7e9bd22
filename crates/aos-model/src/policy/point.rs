//! The seven host-access points: their names, their sentences and their decision in each preset.

use super::{Decision, Preset};

/// A host-access decision point, in the order in which risks are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    AbsolutePath,
    PathOutsideCwd,
    PathOutsideWorkspace,
    CommandCwdOutsideCwd,
    CommandCwdOutsideWorkspace,
    CommandExternalPaths,
    CommandPathsOutsideWorkspace,
}

/// The fixed properties of a point: its names, its sentence, and its decision in the default, strict and permissive
/// preset.
struct Row {
    name: &'static str,
    risk_code: &'static str,
    sentence: &'static str,
    decisions: [Decision; 3],
}

const TABLE: [Row; 7] = {
    use Decision::{Allow, Deny, Warn};
    [
        Row {
            name: "absolute_path",
            risk_code: "absolute_path",
            sentence: "Path is absolute",
            decisions: [Warn, Warn, Warn],
        },
        Row {
            name: "path_outside_cwd",
            risk_code: "outside_cwd",
            sentence: "Path is outside the active session cwd",
            decisions: [Warn, Deny, Allow],
        },
        Row {
            name: "path_outside_workspace",
            risk_code: "outside_workspace",
            sentence: "Path escapes the workspace root",
            decisions: [Deny, Deny, Warn],
        },
        Row {
            name: "command_cwd_outside_cwd",
            risk_code: "command_cwd_outside_cwd",
            sentence: "Command cwd is outside the active session cwd",
            decisions: [Warn, Deny, Allow],
        },
        Row {
            name: "command_cwd_outside_workspace",
            risk_code: "command_cwd_outside_workspace",
            sentence: "Command cwd escapes the workspace root",
            decisions: [Deny, Deny, Warn],
        },
        Row {
            name: "command_external_paths",
            risk_code: "command_references_external_paths",
            sentence: "Command references paths outside the active session cwd",
            decisions: [Warn, Deny, Warn],
        },
        Row {
            name: "command_paths_outside_workspace",
            risk_code: "command_references_outside_workspace",
            sentence: "Command references paths outside the workspace root",
            decisions: [Deny, Deny, Warn],
        },
    ]
};

impl Point {
    pub const ALL: [Point; 7] = [
        Point::AbsolutePath,
        Point::PathOutsideCwd,
        Point::PathOutsideWorkspace,
        Point::CommandCwdOutsideCwd,
        Point::CommandCwdOutsideWorkspace,
        Point::CommandExternalPaths,
        Point::CommandPathsOutsideWorkspace,
    ];

    pub fn as_str(self) -> &'static str {
        self.row().name
    }

    pub fn risk_code(self) -> &'static str {
        self.row().risk_code
    }

    pub(super) fn sentence(self) -> &'static str {
        self.row().sentence
    }

    pub(super) fn decision_in(self, preset: Preset) -> Decision {
        self.row().decisions[preset as usize]
    }

    fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}
