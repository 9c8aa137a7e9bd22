//! What a receipt warns of when the changes of a command are read from its overlay.

use aos_model::receipt::Warning;

/// The paths, as receipts show them.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    /// What another process changed while the command ran.
    pub(super) concurrent: Vec<String>,
    pub(super) special: Vec<String>,
    /// Names of unfinished writes, which no command may make.
    pub(super) reserved: Vec<String>,
    /// Files that would run with the privileges of another user.
    pub(super) privileged: Vec<String>,
}

impl Noticed {
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let warning = |code, message: &str, paths: &[String]| {
            let more = if paths.len() > 10 { ", …" } else { "" };
            let named = paths.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
            (!paths.is_empty()).then(|| Warning::new(code, format!("{message}: {named}{more}")))
        };
        let concurrent = "changed by another process while the command ran, and overwritten";
        let special = "FIFOs, sockets and devices are not kept beyond the command";
        let reserved = "names that begin with `.aos-tmp-` are reserved, and what the command did under them was not kept";
        let mut warnings = Vec::new();
        warnings.extend(warning("concurrent_change", concurrent, &self.concurrent));
        warnings.extend(warning("special_files_not_kept", special, &self.special));
        warnings.extend(super::set_ids::warning(&self.privileged));
        warnings.extend(warning("reserved_names_not_kept", reserved, &self.reserved));
        warnings
    }
}
