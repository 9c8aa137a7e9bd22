//! Commands: each one returns, leaves nothing behind and sees only what it may; its output is bounded.

mod ending;
mod floods;
mod interrupted;
pub mod isolation;
mod limits;
mod links;
mod network;
mod output;
mod policy;
pub mod probe;
mod progress;
mod request;
pub mod room;
mod sessions;
mod signals;
mod terminal;
mod view;
mod zoo;

use crate::{Case, Need, Outcome, plain};

pub use interrupted::asked_to_stop;

pub fn cases() -> Vec<Case> {
    let root = |id, run: fn() -> Outcome| Case { id, needs: &[Need::Root], run };
    let mut cases = vec![
        plain("EXEC-01", ending::a_child_that_stays),
        plain("EXEC-02", ending::a_child_of_another_session),
        plain("EXEC-03", ending::a_daemon),
        plain("EXEC-04", ending::past_its_time),
        plain("EXEC-05", ending::deaf_to_signals),
        plain("EXEC-06", ending::process_substitution),
        plain("EXEC-07", ending::a_writer_into_a_fifo),
        plain("EXEC-08", ending::stopped_by_itself),
        plain("EXEC-09", floods::a_fork_bomb),
        plain("EXEC-10", floods::yes),
        plain("EXEC-11", floods::both_streams),
        plain("EXEC-12", output::unread_input),
        plain("EXEC-13", output::no_input),
        plain("EXEC-16", view::a_clean_environment),
        plain("EXEC-21", view::our_own_state),
        plain("EXEC-22", view::the_secret_outside),
        plain("EXEC-23", policy::a_cwd_outside),
        plain("EXEC-24", policy::a_cwd_widens_nothing),
        plain("EXEC-25", request::impossible_words),
        plain("EXEC-27", ending::how_it_ended),
        plain("EXEC-29", output::controls_are_escaped),
        plain("EXEC-32", signals::another_sessions_signal),
        plain("EXEC-36", network::nothing_goes_out),
        plain("EXEC-37", policy::sixty_harmless_words_first),
        plain("EXEC-39", policy::paths_in_disguise),
        plain("EXEC-40", isolation::no_privileges_to_gain),
        plain("EXEC-41", isolation::a_mount_inside),
        plain("EXEC-43", floods::two_hundred_at_once),
        plain("EXEC-44", sessions::gone),
        plain("EXEC-45", view::its_own_defaults),
        plain("EXEC-46", limits::too_much_memory),
    ];
    let own = own().into_iter().chain(own_requests_and_views());
    cases.extend(own.map(|(id, run)| plain(id, run)));
    cases.extend([
        root("OWN-EXEC-OWNER", view::the_owner_of_the_folder),
        root("OWN-EXEC-SETUID", isolation::a_setuid_helper),
        root("OWN-EXEC-OTHER-USER", isolation::an_ordinary_users_daemon),
        root("OWN-EXEC-NO-USERNS", isolation::without_user_namespaces),
        root("OWN-EXEC-NEIGHBOUR-IN-OPT", sessions::a_root_in_a_public_place),
    ]);
    cases
}

type Own = (&'static str, fn() -> Outcome);

/// Cases of our own beside the listed ones.
fn own() -> Vec<Own> {
    vec![
        ("OWN-EXEC-ORPHAN-PRINTER", ending::an_orphan_that_prints),
        ("OWN-EXEC-SHORT-TIMEOUT", ending::half_a_second),
        ("OWN-EXEC-CLOSED-STREAMS", ending::streams_closed_early),
        ("OWN-EXEC-ZOMBIES", ending::zombies),
        ("OWN-EXEC-WAIT", ending::children_are_waited_for),
        ("OWN-EXEC-PARTIAL-OUTPUT", ending::what_was_printed_is_kept),
        ("OWN-EXEC-ZOO", zoo::short),
        ("OWN-EXEC-MEMORY", floods::memory_is_bounded),
        ("OWN-EXEC-INTERLEAVED", output::interleaved_lines),
        ("OWN-EXEC-BINARY", output::bytes_that_are_no_text),
        ("OWN-EXEC-INLINE-CEILING", output::at_the_inline_ceiling),
        ("OWN-EXEC-REQUIRE-INLINE", output::inline_or_nothing),
        ("OWN-EXEC-HEAD-AND-TAIL", output::first_and_last_half),
        ("OWN-EXEC-STDIN", output::given_input),
        ("OWN-EXEC-STDIN-REF", output::foreign_input),
        ("OWN-EXEC-SIGPIPE", output::a_broken_pipe),
        ("OWN-EXEC-PROGRESS", progress::streamed_while_it_runs),
        ("OWN-EXEC-CLI", progress::the_client),
        ("OWN-EXEC-CLI-INTERRUPT", progress::the_client_is_interrupted),
        ("OWN-EXEC-INT", signals::int_leaves_the_session_open),
        ("OWN-EXEC-TERM-GRACE", signals::term_gives_time),
        ("OWN-EXEC-KILL", signals::kill_ends_everything),
        ("OWN-EXEC-SIGNAL-STORM", signals::a_storm),
        ("OWN-EXEC-EXPIRES", signals::the_session_expires),
        ("OWN-EXEC-DAEMON-KILLED", interrupted::killed),
        ("OWN-EXEC-DAEMON-STOPPED", interrupted::asked_to_stop),
        ("OWN-EXEC-CLIENT-GONE", interrupted::the_caller_hangs_up),
    ]
}

/// What a request may ask for, and what a command sees.
fn own_requests_and_views() -> Vec<Own> {
    vec![
        ("OWN-EXEC-PARAMS", request::by_the_book),
        ("OWN-EXEC-PROGRAM", request::what_is_started),
        ("OWN-EXEC-PATH-LOOKUP", request::looked_up_on_its_own_path),
        ("OWN-EXEC-ENV-PATCH", request::variables),
        ("OWN-EXEC-JUST-WRITTEN", request::a_program_just_written),
        ("OWN-EXEC-CWD", request::where_it_runs),
        ("OWN-EXEC-NOT-ALLOWED", limits::not_allowed),
        ("OWN-EXEC-PROGRAMS", limits::programs),
        ("OWN-EXEC-PROGRAMS-PLANTED", limits::planted_programs),
        ("OWN-EXEC-MAX-TIMEOUT", limits::the_shorter_time),
        ("OWN-EXEC-MAX-OUTPUT", limits::the_smaller_output),
        ("OWN-EXEC-MAX-PROCESSES", limits::processes_are_counted),
        ("OWN-EXEC-READ-ONLY", limits::read_only_roots),
        ("OWN-EXEC-ROOTS", limits::several_roots),
        ("OWN-EXEC-MOUNTS", limits::mounts),
        ("OWN-EXEC-RULES", policy::rules_on_programs),
        ("OWN-EXEC-SAID-AND-DONE", policy::said_and_done),
        ("OWN-EXPLAIN", policy::explained),
        ("OWN-EXEC-STATE", view::process_state),
        ("OWN-EXEC-DESCRIPTORS", view::no_descriptors),
        ("OWN-EXEC-DEV", view::devices),
        ("OWN-EXEC-TMP", view::a_private_tmp),
        ("OWN-EXEC-HOME", view::a_private_home),
        ("OWN-EXEC-CREDENTIALS", view::the_users_home),
        ("OWN-EXEC-HOME-BELOW", view::our_home_below_the_root),
        ("OWN-EXEC-PROC", view::other_processes),
        ("OWN-EXEC-SYSTEM", view::the_system_is_read_only),
        ("OWN-EXEC-MODES", view::modes_of_new_files),
        ("OWN-EXEC-LINKS", links::links_lead_nowhere),
        ("OWN-EXEC-LINK-SWAP", links::a_swapped_folder),
        ("OWN-EXEC-SYSCALLS", isolation::denied_calls),
        ("OWN-EXEC-PRELOAD", isolation::preloaded_code),
        ("OWN-EXEC-NONE", isolation::without_isolation),
        ("OWN-EXEC-TERMINAL", terminal::no_terminal),
        ("OWN-EXEC-LOOPBACK", network::inside_it_works),
        ("OWN-EXEC-NETWORK-FULL", network::asked_for),
        ("OWN-EXEC-TWO-SESSIONS", sessions::apart),
        ("OWN-EXEC-BESIDE", sessions::reads_run_beside),
        ("OWN-EXEC-OUR-SOCKET", sessions::our_socket_is_out_of_reach),
        ("OWN-EXEC-OPERATOR", sessions::operators_verbs),
        ("OWN-EXEC-ORDER", sessions::in_order),
        ("OWN-EXEC-HOMES", view::the_users_own_home),
        ("OWN-EXEC-RESTART", sessions::after_a_restart),
    ]
}
