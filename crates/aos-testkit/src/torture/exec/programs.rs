//! Stubborn programs: each resists being ended, one file each.

#[derive(Debug)]
pub(super) struct Stubborn {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) flag: &'static str,
    pub(super) script: &'static str,
}

macro_rules! programs {
    ($($program:literal $flag:literal [$($name:literal)*])*) => {
        &[$($(Stubborn {
            name: $name,
            program: $program,
            flag: $flag,
            script: include_str!(concat!("programs/", $name)),
        },)*)*]
    };
}

pub(super) const PROGRAMS: &[Stubborn] = programs! {
    "sh" "-c" [
        "sleeper.sh" "background.sh" "another_session.sh" "deaf.sh" "nested.sh" "printer.sh" "slow_printer.sh"
        "both_streams.sh" "fifo.sh" "fifo_without_reader.sh" "stopped.sh" "stopped_children.sh" "closed_streams.sh"
        "clean_environment.sh" "exec_storm.sh" "orphans.sh" "nohup.sh" "respawn.sh" "quick.sh" "crash.sh" "bomb.sh"
        "pseudo_terminal.sh" "namespaces.sh"
    ]
    "bash" "-c" ["coprocess.bash"]
    "perl" "-e" [
        "double_fork.pl" "hopper.pl" "tree.pl" "tracer.pl" "vfork.pl" "zombies.pl" "signals.pl" "pipes.pl"
    ]
};
