//! The animals: programs that do not want to end, one file each.

#[derive(Debug)]
pub(super) struct Animal {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) flag: &'static str,
    pub(super) script: &'static str,
}

macro_rules! animals {
    ($($program:literal $flag:literal [$($name:literal)*])*) => {
        &[$($(Animal {
            name: $name,
            program: $program,
            flag: $flag,
            script: include_str!(concat!("zoo/", $name)),
        },)*)*]
    };
}

pub(super) const ANIMALS: &[Animal] = animals! {
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
