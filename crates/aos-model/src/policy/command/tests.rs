//! Commands in, paths and texts out.

use super::*;
use crate::policy::{Decision, Evaluation, HostAccess, Preset};

const ROOTS: &[&str] = &["/ws/app"];

fn evaluate(preset: Preset, argv: &[&str]) -> Evaluation {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    HostAccess::preset(preset).evaluate_command(&CommandQuery {
        argv: &argv,
        cwd: "/ws/app",
        workspaces: ROOTS,
        command_cwd: "/ws/app",
        home: Some("/home/me"),
        resolve: &str::to_owned,
    })
}

/// The paths outside the cwd that a command names, as its message lists them.
fn external(argv: &[&str]) -> String {
    let evaluation = evaluate(Preset::Default, argv);
    let risk = evaluation.risks.iter().find(|risk| risk.code == "command_references_external_paths");
    risk.map_or(String::new(), |risk| risk.message.split_once(": ").expect("a list").1.to_owned())
}

/// All paths that a command names.
fn named(argv: &[&str]) -> String {
    let value = serde_json::to_value(evaluate(Preset::Default, argv)).expect("it serialises");
    let paths = value["referenced_paths"].as_array().expect("a list").iter();
    paths.map(|path| path.as_str().expect("a path")).collect::<Vec<_>>().join(" ")
}

#[test]
fn denied_under_strict() {
    let sixty = format!("{} cat /etc/passwd", "true;".repeat(60));
    let cases: &[&[&str]] = &[
        &["bash", "-c", "cat /etc/passwd"],
        &["curl", "-d", "@/etc/passwd"],
        &["curl", "-d@/etc/passwd"],
        &["cc", "-o../x"],
        &["sh", "-c", &sixty],
        &["python", "../scripts/build.py"],
    ];
    for argv in cases {
        let evaluation = evaluate(Preset::Strict, argv);
        assert_eq!(evaluation.disposition, Decision::Deny, "{argv:?}");
        assert_eq!(
            evaluation.risk_codes(),
            ["command_references_external_paths", "command_references_outside_workspace"],
            "{argv:?}"
        );
    }
}

#[test]
fn exec_39_each_form_is_found() {
    for word in ["--output=../x", "-o/tmp/x", "of=/tmp/x", "@/etc/passwd", "2>/tmp/x", "file:///etc/x"] {
        assert!(evaluate(Preset::Default, &["prog", word]).has_risks(), "{word}");
    }
}

#[test]
fn words_that_name_a_path() {
    for (word, path) in [
        ("src/a", "/ws/app/src/a"),
        (".", "/ws/app"),
        ("./a", "/ws/app/a"),
        ("a\\b", "/ws/app/a\\b"),
        ("..\\x", "/ws/app/..\\x"),
        ("..", "/ws"),
        ("../app-evil/x", "/ws/app-evil/x"),
        ("/etc/passwd", "/etc/passwd"),
        ("/etc/../etc//passwd", "/etc/passwd"),
        ("~", "/home/me"),
        ("~/x", "/home/me/x"),
        ("~bob/x", "~bob/x"),
        (".//./~/x", "/home/me/x"),
        ("$HOME/x", "/home/me/x"),
        ("${HOME}/x", "/home/me/x"),
        ("$HOME", "/home/me"),
        ("$PWD/../x", "/ws/x"),
        ("$HOMELESS/x", "/ws/app/$HOMELESS/x"),
        ("--output=../dist/x", "/ws/dist/x"),
        ("--output=..", "/ws"),
        ("--data=@/etc/passwd", "/etc/passwd"),
        ("--a/b=../x", "/ws/x"),
        ("@-/../../x", "/ws/x"),
        ("--url=file:///etc/x", "/etc/x"),
        ("-f=../x", "/ws/x"),
        ("-Dkey=/etc/x", "/etc/x"),
        ("of=/tmp/x", "/tmp/x"),
        ("file=@/etc/passwd", "/etc/passwd"),
        ("-I/usr/include", "/usr/include"),
        ("-Isrc/include", "/ws/app/src/include"),
        ("-L~/lib", "/home/me/lib"),
        ("-I$HOME/x", "/home/me/x"),
        ("-C..", "/ws"),
        ("-xf../x", "/ws/app/f../x /ws/x"),
        ("@../x", "/ws/x"),
        ("@scope/pkg", "/ws/app/scope/pkg"),
        (">/tmp/x", "/tmp/x"),
        (">>../x", "/ws/x"),
        ("<../x", "/ws/x"),
        ("&>/tmp/x", "/tmp/x"),
        ("file:../x", "/ws/x"),
        ("file://localhost/etc/x", "/etc/x"),
        ("FILE:/etc/%70asswd", "/etc/passwd"),
        ("x://../../../etc/passwd", "/etc/passwd"),
        ("type=bind,src=/etc", "/ws/app/bind,src=/etc /etc"),
        ("{/etc/passwd,x}", "/ws/app/{/etc/passwd,x} /etc/passwd"),
        ("${x:-/etc/passwd}", "/ws/app/${x:-/etc/passwd} /etc/passwd"),
        ("grün/ä", "/ws/app/grün/ä"),
        ("--ä=/etc/ö", "/etc/ö"),
        ("-ä/etc/ö", "/etc/ö"),
    ] {
        assert_eq!(named(&["prog", word]), path, "{word}");
    }
}

#[test]
fn words_that_name_no_path() {
    for word in [
        "",
        "-",
        "--",
        "a",
        "-x",
        "--flag",
        "--flag=value",
        "key=value",
        "a.b",
        "...",
        "-1/2",
        "-d/",
        "-F/",
        "http://x/y",
        "https://x/a/b?c=/etc",
        "ssh://git@host/repo",
        "git+https://x/y",
        "--url=https://x/y",
        "-xhttps://x/y",
        "/dev/null",
        "/dev/fd/3",
        ">/dev/null",
        "2>&1",
        "of=/dev/zero",
        "$x",
        "user@host",
        "@",
        "\u{0}",
        "ä",
        "<<EOF",
    ] {
        assert_eq!(named(&["prog", word]), "", "{word:?}");
    }
    for device in ["zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "fd/0"] {
        assert_eq!(named(&["prog", &format!("/dev/{device}")]), "", "{device}");
    }
    for other in ["/dev/sda", "/dev/fd/x", "/dev/fd/", "/dev/nullx", "/dev/null/../sda", "/dev/tcp/h/1"] {
        assert_ne!(external(&["prog", other]), "", "{other}");
    }
}

#[test]
fn the_program_itself() {
    for (program, path) in [
        ("cat", ""),
        ("/bin/cat", ""),
        ("/usr/bin/cat", ""),
        ("/usr/local/bin/cat", ""),
        ("/sbin/ip", ""),
        ("/usr/sbin/ip", ""),
        ("./run.sh", "/ws/app/run.sh"),
        ("../run.sh", "/ws/run.sh"),
        ("/opt/x", "/opt/x"),
        ("/usr/bin/../../etc/x", "/etc/x"),
        ("/usr/bin/", "/usr/bin"),
        ("/usr/binary/x", "/usr/binary/x"),
        ("~/bin/x", "/home/me/bin/x"),
    ] {
        assert_eq!(named(&[program]), path, "{program}");
    }
    assert_eq!(named(&["ls", "/usr/bin/cat"]), "/usr/bin/cat", "only the program is exempt");
}

#[test]
fn scripts_are_not_paths_but_their_files_are() {
    let cases: &[(&[&str], &str)] = &[
        (&["sed", "s/a/b/", "/etc/x"], "/etc/x"),
        (&["sed", "-n", "/a/p", "x"], ""),
        (&["sed", "-i", "-e", "/a/d", "-e/b/d", "/etc/x"], "/etc/x"),
        (&["sed", "--expression=/a/d", "/etc/x"], "/etc/x"),
        (&["sed", "-f", "/etc/script", "/etc/x"], "/etc/script, /etc/x"),
        (&["sed", "-f", "a", "-i.e", "/etc/x"], "/etc/x"),
        (&["sed", "/etc/x", "-f", "a"], "/etc/x"),
        (&["awk", "/a/{print}", "/etc/x"], "/etc/x"),
        (&["awk", "-F/", "/a/{print}", "/etc/x"], "/etc/x"),
        (&["awk", "-F", ":", "-v", "x=/etc/y", "/a/", "/etc/x"], "/etc/y, /etc/x"),
        (&["awk", "-f", "/etc/prog", "/etc/x"], "/etc/prog, /etc/x"),
        (&["gawk", "/a/", "-e", "/etc/x"], "/etc/x"),
        (&["grep", "/a", "/etc/x"], "/etc/x"),
        (&["grep", "-rn", "-A", "3", "/a", "/etc/x"], "/etc/x"),
        (&["grep", "-e", "/a", "/etc/x"], "/etc/x"),
        (&["grep", "/etc/x", "-e", "/a"], "/etc/x"),
        (&["grep", "/etc/x", "--regexp=/a"], "/etc/x"),
        (&["grep", "--exclude-from", "/etc/y", "/a", "/etc/x"], "/etc/y, /etc/x"),
        (&["grep", "--exclude-fr", "/etc/y", "/a", "/etc/x"], "/etc/y, /etc/x"),
        (&["grep", "-f", "/etc/y", "/etc/x"], "/etc/y, /etc/x"),
        (&["grep", "--", "/a", "/etc/x"], "/etc/x"),
        (&["rg", "/api", "/etc/x"], "/etc/x"),
        (&["rg", "-g", "*.rs", "--type", "py", "/api", "/etc/x"], "/etc/x"),
        (&["rg", "--files", "/etc/x"], "/etc/x"),
        (&["perl", "-e", "/a/", "/etc/x"], "/etc/x"),
        (&["perl", "-I", "-ple", "/etc/x"], "/etc/x"),
        (&["perl", "-I", "lib", "-ple", "/a/", "/etc/x"], "/etc/x"),
        (&["perl", "-pI", "-e", "/etc/x"], "/etc/x"),
        (&["perl", "-Ilib", "-e", "/a/", "/etc/x"], "/etc/x"),
        (&["perl", "-lane", "/a/", "/etc/x"], "/etc/x"),
        (&["perl", "-i.bak", "-pe", "/a/", "/etc/x"], "/etc/x"),
        (&["perl", "/etc/y", "-e", "/etc/x"], "/etc/y, /etc/x"),
        (&["python3.12", "-Bc", "/a/", "/etc/x"], "/etc/x"),
        (&["python", "-c", "/a/", "-c", "/etc/x"], "/etc/x"),
        (&["python", "-m", "mod", "-c", "/etc/x"], "/etc/x"),
        (&["python", "x.py", "-c", "/etc/x"], "/etc/x"),
        (&["python", "-W", "ignore", "-c", "/a/", "/etc/x"], "/etc/x"),
        (&["node", "-e", "/a/", "/etc/x"], "/etc/x"),
        (&["node", "--eval=/a/", "/etc/x"], "/etc/x"),
        (&["node", "x.js", "-e", "/etc/x"], "/etc/x"),
        (&["/usr/bin/sed", "/a/d", "/etc/x"], "/etc/x"),
        (&["sudo", "-u", "root", "grep", "/a", "/etc/x"], "/etc/x"),
        (&["sudo", "-u", "grep", "/etc/x"], "/etc/x"),
        (&["timeout", "-k", "5", "10", "grep", "/a", "/etc/x"], "/etc/x"),
        (&["env", "A=1", "nice", "-n", "5", "sed", "/a/d", "/etc/x"], "/etc/x"),
        (&["xargs", "-n", "1", "grep", "/a"], ""),
        (&["cat", "sed", "/etc/x"], "/etc/x"),
    ];
    for (argv, paths) in cases {
        assert_eq!(external(argv), *paths, "{argv:?}");
    }
}

#[test]
fn the_words_inside_shell_text() {
    for (text, paths) in [
        ("cat /etc/passwd", "/etc/passwd"),
        ("cat '/etc/pass'\"wd\"", "/etc/passwd"),
        ("cat /e\\tc/passwd", "/etc/passwd"),
        ("cat $'\\x2fetc\\057passwd'", "/etc/passwd"),
        ("/bin/cat a; /usr/bin/env b", ""),
        ("A=1 /bin/cat a", ""),
        ("if /bin/test a; then /bin/cat b; fi", ""),
        ("A=/etc/x cat a", "/etc/x"),
        ("./a; ../b", "/ws/b"),
        ("true && cat /etc/a || cat /etc/b | cat /etc/c & cat /etc/d", "/etc/a, /etc/b, /etc/c, /etc/d"),
        ("true\ncat /etc/a\n", "/etc/a"),
        ("(cat /etc/a; { cat /etc/b; })", "/etc/a, /etc/b"),
        ("echo $(cat /etc/a) \"$(cat /etc/b)\" `cat /etc/c`", "/etc/a, /etc/b, /etc/c"),
        ("echo \"a `cat \"/etc/a\"` b\"", "/etc/a"),
        ("echo \"$(echo \"$(cat /etc/a)\")\"", "/etc/a"),
        ("echo ${ cat /etc/a; }", "/etc/a"),
        ("cat <(cat /etc/a)", "/etc/a"),
        ("echo $((1 / 2)) $((1<<2))\ncat /etc/a\n2", "/etc/a"),
        ("((cat /etc/a))", "/etc/a"),
        ("echo $((cat /etc/a) )", "/etc/a"),
        ("echo $(pwd)/x $(git x)/../y", ""),
        ("echo \"$(case x in x) cat /etc/a;; esac)\"", "/etc/a"),
        ("echo a>/tmp/x", "/tmp/x"),
        ("echo a 2>/dev/null >>../x", "/ws/x"),
        ("echo a &>/tmp/x; cat</etc/a", "/tmp/x, /etc/a"),
        ("echo a 2>&1 >&/tmp/x", "/tmp/x"),
        ("cat ~/.ssh/id_rsa $HOME/x \"${HOME}\"/y", "/home/me/.ssh/id_rsa, /home/me/x, /home/me/y"),
        ("# don't\ncat /etc/a", "/etc/a"),
        ("echo a # /etc/a", ""),
        ("echo a#/../../x", "/ws/x"),
        ("cat > x <<'EOF'\nit's /etc/a $(cat /etc/b)\nEOF\ncat /etc/c", "/etc/c"),
        ("cat > x <<EOF\nit's \"/etc/a $(cat /etc/b)\nEOF\ncat /etc/c", "/etc/c, /etc/b"),
        ("cat <<-EOF\n\tit's /etc/a\n\tEOF\ncat /etc/c", "/etc/c"),
        ("bash <<EOF\ncat /etc/a\nEOF\n", "/etc/a"),
        ("cat <<EOF | sh\ncat /etc/a\nEOF\n", "/etc/a"),
        ("bash <<< 'cat /etc/a'", "/etc/a"),
        ("cat <<EOF\ncat /etc/a", "/etc/a"),
        ("eval 'cat /etc/a'", "/etc/a"),
        ("sh -c 'sh -c \"cat /etc/a\"'", "/etc/a"),
        ("find . -exec bash -c 'cat /etc/a' \\;", "/etc/a"),
        ("grep '/a' /etc/b | sed 's/x/y/'", "/etc/b"),
        ("grep \"$(cat /etc/a)\" b", "/etc/a"),
        ("echo 'unclosed /etc/a", "/etc/a"),
        ("$SHELL -c 'cat /etc/a'", "/etc/a"),
        ("`true`sh -c 'cat /etc/a'", "/etc/a"),
        ("${SHELL:-sh} -c 'cat /etc/a'", "/etc/a"),
        ("grep sh -c /usr/bin/a", "/usr/bin/a"),
        ("echo `(#` ; cat /etc/a", "/etc/a"),
        ("echo $((\\''*`cat /etc/a`))", "/etc/a"),
        ("echo ${x:-cat /etc/a}", "/etc/a"),
        ("for f in /etc/*; do cat $f; done", "/etc/*"),
        ("curl -d @/etc/a https://x/y", "/etc/a"),
        ("echo grün; cat /etc/ä", "/etc/ä"),
    ] {
        assert_eq!(external(&["sh", "-c", text]), paths, "{text}");
    }
}

#[test]
fn shells_in_every_spelling() {
    let text = "cat /etc/passwd";
    let cases: &[&[&str]] = &[
        &["sh", "-c"],
        &["bash", "-lc"],
        &["dash", "-ec"],
        &["zsh", "-c"],
        &["ksh", "-c"],
        &["/bin/sh", "-c"],
        &["busybox", "sh", "-c"],
        &["env", "sh", "-c"],
        &["env", "-i", "A=1", "bash", "-c"],
        &["sudo", "-u", "me", "sh", "-c"],
        &["nice", "-n", "5", "sh", "-c"],
        &["timeout", "5", "sh", "-c"],
        &["xargs", "-I{}", "sh", "-c"],
        &["nohup", "time", "sh", "-c"],
        &["find", ".", "-exec", "sh", "-c"],
        &["bash", "-c", "-e"],
        &["bash", "-euo", "pipefail", "-c"],
        &["bash", "-ceuo", "pipefail"],
        &["bash", "--norc", "--rcfile", "x", "-c"],
        &["bash", "-c", "--"],
        &["sh", "-o", "sh", "-c"],
    ];
    for prefix in cases {
        let argv = [prefix, [text].as_slice()].concat();
        assert_eq!(external(&argv), "/etc/passwd", "{argv:?}");
    }
    assert_eq!(
        external(&["sh", "-c", "cat \"$1\"", "sh", "/etc/x"]),
        "/etc/x",
        "arguments of the script count"
    );
}

#[test]
fn nesting_beyond_the_limits_is_split_into_words() {
    let evals = format!("{} cat /etc/passwd", "eval ".repeat(50));
    assert_eq!(external(&["sh", "-c", &evals]), "/etc/passwd");
    let quoted = (0..12)
        .fold("cat /etc/passwd".to_owned(), |text, _| format!("sh -c '{}'", text.replace('\'', "'\\''")));
    assert_eq!(external(&["sh", "-c", &quoted]), "/etc/passwd");
    let deep = format!("echo \"{}cat /etc/passwd", "$(".repeat(5_000));
    assert_eq!(external(&["sh", "-c", &deep]), "/etc/passwd");
}

#[test]
fn the_texts_of_a_command() {
    let argv = ["cp", "/etc/a", "../b", "/etc/a", "src/c"].map(str::to_owned);
    let evaluation = HostAccess::preset(Preset::Default).evaluate_command(&CommandQuery {
        argv: &argv,
        cwd: "/ws/app",
        workspaces: &["/ws"],
        command_cwd: "/tmp/run",
        home: None,
        resolve: &str::to_owned,
    });
    assert_eq!(
        serde_json::to_value(&evaluation).expect("it serialises"),
        serde_json::json!({
            "disposition": "deny",
            "headline": "Host access denied",
            "message": "Command cwd is outside the active session cwd: /tmp/run; \
                Command cwd escapes the workspace root: /tmp/run; \
                Command references paths outside the active session cwd: /etc/a, /tmp/b, /tmp/run/src/c; \
                Command references paths outside the workspace root: /etc/a, /tmp/b, /tmp/run/src/c",
            "recommendation": "Do not continue unless you intentionally relax the policy.",
            "risks": [
                {"code": "command_cwd_outside_cwd", "path": "/tmp/run",
                 "message": "Command cwd is outside the active session cwd: /tmp/run"},
                {"code": "command_cwd_outside_workspace", "path": "/tmp/run",
                 "message": "Command cwd escapes the workspace root: /tmp/run"},
                {"code": "command_references_external_paths", "message":
                 "Command references paths outside the active session cwd: /etc/a, /tmp/b, /tmp/run/src/c"},
                {"code": "command_references_outside_workspace", "message":
                 "Command references paths outside the workspace root: /etc/a, /tmp/b, /tmp/run/src/c"},
            ],
            "risk_codes": ["command_cwd_outside_cwd", "command_cwd_outside_workspace",
                "command_references_external_paths", "command_references_outside_workspace"],
            "primary_risk": {"code": "command_cwd_outside_cwd", "path": "/tmp/run",
                "message": "Command cwd is outside the active session cwd: /tmp/run"},
            "has_risks": true,
            "should_warn": false,
            "should_deny": true,
            "summary_lines": ["Host access denied", evaluation.message(),
                "Do not continue unless you intentionally relax the policy."],
            "resolved_cwd": "/tmp/run",
            "referenced_paths": ["/etc/a", "/tmp/b", "/tmp/run/src/c"],
        })
    );
}

#[test]
fn a_harmless_command_has_no_risks() {
    let evaluation = evaluate(Preset::Strict, &["cargo", "test", "--manifest-path=sub/Cargo.toml", "./x"]);
    assert!(!evaluation.has_risks());
    assert_eq!(evaluation.message(), "Host access allowed.");
}

#[test]
fn links_are_checked_in_both_spellings() {
    let argv = ["cat", "link/../x", "inner/a", "/out/back"].map(str::to_owned);
    let resolve = |path: &str| match path {
        "/ws/app/link/../x" => "/elsewhere/x".to_owned(),
        "/out/back" => "/ws/app/back".to_owned(),
        _ => path.to_owned(),
    };
    let query = CommandQuery {
        argv: &argv,
        cwd: "/ws/app",
        workspaces: &[],
        command_cwd: "/ws/app",
        home: None,
        resolve: &resolve,
    };
    let evaluation = HostAccess::preset(Preset::Default).evaluate_command(&query);
    assert_eq!(
        evaluation.message(),
        "Command references paths outside the active session cwd: /elsewhere/x, /out/back"
    );
}

#[test]
fn long_lists_are_checked_completely_and_shown_in_part() {
    let argv: Vec<String> =
        (0..3_000).map(|n| format!("in/{n}")).chain((0..1_500).map(|n| format!("/out/{n}"))).collect();
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let evaluation = evaluate(Preset::Default, &argv);
    assert!(evaluation.should_deny());
    assert!(evaluation.risks[0].message.ends_with("/out/999, …"));
    let value = serde_json::to_value(&evaluation).expect("it serialises");
    assert_eq!(value["referenced_paths_count"], 4_500);
    assert_eq!(value["referenced_paths"].as_array().map(Vec::len), Some(1_000));
}

/// Inputs on which a careless parser is quadratic.
#[test]
fn hostile_texts_are_parsed_in_linear_time() {
    for unit in [
        "(", "$(", "$((", "`", "\"", "'", "\\", "<<a ", "<<a\n", "=/", "{", "${", "case ", "if case ",
        "sh -o ", "eval ", "a=", ",/", "$'\\", "#", "../", "&>", "-", "@", "sh -c ", "ä", "%", "file:",
        "${$x", "${\"", "\"${'", "://",
    ] {
        let text = unit.repeat(100_000 / unit.len());
        let started = std::time::Instant::now();
        evaluate(Preset::Default, &["sh", "-c", &text, &text]);
        let words: Vec<&str> = unit.split(' ').cycle().take(20_000).collect();
        evaluate(Preset::Default, &words);
        assert!(started.elapsed().as_secs() < 20, "{unit:?} took {:?}", started.elapsed());
    }
}

#[test]
fn clustered_options_with_an_absolute_value() {
    let cases: &[(&[&str], &str)] = &[
        (&["tar", "-xf/etc/a"], "/etc/a"),
        (&["tar", "-xzvf/data2/a"], "/data2/a"),
        (&["sudo", "-u", "me", "tar", "-xC/data2"], "/data2"),
        (&["sh", "-c", "tar -xf/etc/a"], "/etc/a"),
        (&["curl", "-sSo/etc/x"], "/etc/x"),
        (&["curl", "-fsSLo/srv2/x"], "/srv2/x"),
        (&["cc", "-isystem/usr/include"], "/usr/include"),
        (&["cc", "-iquote/data2/include"], "/data2/include"),
        (&["prog", "-xf/etc/a"], "/etc/a"),
        (&["sort", "-uo/data2/x"], "/data2/x"),
        // A relative value of one letter.
        (&["rg", "-gsrc/x", "needle"], ""),
        (&["rg", "-gsrc/usr", "needle"], ""),
        (&["rg", "-nge2e/tmp", "needle"], ""),
        (&["prog", "-gsrc/x"], ""),
        (&["cc", "-Lbuild/lib", "-Isrc/sys"], ""),
        (&["make", "-Csub/usr"], ""),
        (&["tar", "-fsub/etc/a"], ""),
        (&["cc", "-Wall", "-O2", "-DX=1"], ""),
    ];
    for (argv, paths) in cases {
        assert_eq!(external(argv), *paths, "{argv:?}");
    }
}
