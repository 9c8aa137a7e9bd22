//! Input and output of a command: complete, in order, in the form that the contract names.

use aos_testkit::{Findings, check, expect};
use serde_json::{Value, json};

use super::room::{Room, SECOND, in_time, ns};
use crate::Outcome;

pub fn unread_input() -> Outcome {
    let room = Room::new();
    let input = room.world.blob(&vec![b'x'; 10 << 20]);
    let params = json!({ "argv": ["sleep", "1"], "stdin_ref": input });
    let receipt = in_time("sleep 1", 4 * SECOND, || room.exec(params))?;
    expect("sleep 1", &receipt, &["ok"])?;
    check(receipt["exit_code"] == 0, || format!("{receipt}"))?;
    // A command that reads a little of its input, and one that closes it.
    for script in ["head -c 10 > /dev/null", "exec <&-; sleep 0.2"] {
        let params = json!({ "argv": ["sh", "-c", script], "stdin_ref": input });
        let receipt = in_time(script, 4 * SECOND, || room.exec(params))?;
        check(receipt["exit_code"] == 0, || format!("{script}: {receipt}"))?;
    }
    room.finish()
}

pub fn no_input() -> Outcome {
    let room = Room::permissive();
    let receipt = in_time("cat", 2 * SECOND, || room.run(&["cat"]))?;
    expect("cat", &receipt, &["ok"])?;
    check(receipt["exit_code"] == 0 && receipt["stdout_bytes"] == 0, || format!("{receipt}"))?;
    let stdin = room.says("readlink /proc/self/fd/0")?;
    check(stdin == "/dev/null", || format!("stdin is {stdin}"))?;
    room.finish()
}

pub fn given_input() -> Outcome {
    let room = Room::new();
    for bytes in [&b""[..], b"one\ntwo\n", b"\0\xff\xfe", &vec![b'y'; 1 << 20]] {
        let input = room.world.blob(bytes);
        let receipt = room.exec(json!({ "argv": ["cat"], "stdin_ref": input }));
        expect("cat", &receipt, &["ok"])?;
        check(room.bytes(&receipt["stdout"]) == bytes, || format!("it came out changed: {receipt}"))?;
    }
    // A blob that a receipt of this session named is input as well.
    let receipt = room.sh("head -c 100000 /dev/zero");
    let made = receipt["stdout"]["blob"]["blob_ref"].clone();
    let receipt = room.exec(json!({ "argv": ["wc", "-c"], "stdin_ref": made }));
    check(room.stdout(&receipt).trim() == "100000", || format!("{receipt}"))?;
    // A command that writes into its stdin does not change the blob.
    let input = room.world.blob(b"original");
    let receipt = room.exec(json!({ "argv": ["sh", "-c", "echo x >&0; cat"], "stdin_ref": input }));
    check(room.bytes(&json!({ "blob": { "blob_ref": input } })) == b"original", || {
        format!("the blob was written: {receipt}")
    })?;
    room.finish()
}

pub fn foreign_input() -> Outcome {
    let room = Room::new();
    let nobody = format!("sha256:{}", "0".repeat(64));
    let run = |input: &Value| room.exec(json!({ "argv": ["touch", "started"], "stdin_ref": input }));
    expect("unknown", &run(&json!(nobody)), &["error / stdin_ref_not_found"])?;
    for odd in ["", "sha256:", "sha256:zz", "../../etc/passwd", "/etc/passwd", "sha256:../journal.db"] {
        expect(odd, &run(&json!(odd)), &["error / stdin_ref_not_found", "error / invalid_params"])?;
    }
    for wrong in [json!(1), json!({}), json!(["x"]), json!(null), json!({ "blob_ref": nobody })] {
        expect("of another type", &run(&wrong), &["error / invalid_params"])?;
    }
    // A blob that another session made and no receipt of this session named.
    let other = room.another(json!({}));
    let made =
        room.exec_in(&other, json!({ "argv": ["sh", "-c", "head -c 50000 /dev/urandom | base64 -w0"] }));
    let theirs = made["stdout"]["blob"]["blob_ref"].clone();
    check(theirs.is_string(), || format!("{made}"))?;
    expect("another session's", &run(&theirs), &["error / stdin_ref_not_found"])?;
    check(!room.world.root.join("started").exists(), || "something ran".into())?;
    let own = room.exec_in(&other, json!({ "argv": ["wc", "-c"], "stdin_ref": theirs }));
    expect("its own", &own, &["ok"])?;
    room.finish()
}

pub fn a_broken_pipe() -> Outcome {
    let room = Room::new();
    let receipt = room.run(&["bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[0]}"]);
    check(room.stdout(&receipt) == "y\n141\n", || format!("SIGPIPE does not kill: {receipt}"))?;
    room.finish()
}

pub fn controls_are_escaped() -> Outcome {
    let room = Room::new();
    let raw = "\x1b]52;c;aGk=\x07\x1b]0;owned\x07\x1b[2J\u{202e}end\r\x08\u{9b}31m\n";
    room.world.write("say", raw);
    let receipt = room.sh("cat say; cat say >&2");
    expect("cat", &receipt, &["ok"])?;
    check(room.stdout(&receipt) == raw && room.stderr(&receipt) == raw, || format!("changed: {receipt}"))?;
    let seq = receipt["seq"].to_string();
    let mut findings = Findings::default();
    // Also in the arguments of the request.
    let words = room.exec(json!({ "argv": ["echo", raw] }))["seq"].to_string();
    for arguments in
        [vec!["log"], vec!["show", &seq], vec!["log", "--session", &room.session], vec!["show", &words]]
    {
        let (code, out, err) = room.world.aos(&arguments);
        findings.add(check(code == 0, || format!("aos {arguments:?}: {code}: {err}")));
        let odd = |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
        findings.add(check(!out.contains(odd), || format!("aos {arguments:?} prints controls: {out:?}")));
    }
    findings.add(room.finish());
    findings.outcome()
}

pub fn interleaved_lines() -> Outcome {
    let room = Room::new();
    let script = "i=0; while [ $i -lt 10000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let receipt = room.exec(json!({ "argv": ["sh", "-c", script], "timeout_ns": ns(60 * SECOND) }));
    expect("10 000 lines", &receipt, &["ok"])?;
    let lines = |word: &str| (0..10_000).map(|i| format!("{word} {i}\n")).collect::<String>();
    check(room.stdout(&receipt) == lines("out"), || "stdout is out of order".into())?;
    check(room.stderr(&receipt) == lines("err"), || "stderr is out of order".into())?;
    check(receipt.get("truncated").is_none_or(|cut| cut == false), || format!("{receipt}"))?;
    room.finish()
}

pub fn bytes_that_are_no_text() -> Outcome {
    let room = Room::new();
    for (text, is_text) in [
        ("printf 'plain'", true),
        ("printf 'h\\303\\251llo \\342\\230\\203'", true),
        ("printf '\\377\\376'", false),
        ("printf 'cut \\303'", false),
        ("printf 'nul\\0nul'", true),
        ("true", true),
    ] {
        let receipt = room.sh(&format!("{text}; {text} >&2"));
        expect(text, &receipt, &["ok"])?;
        for stream in ["stdout", "stderr"] {
            let form = if is_text { "inline_text" } else { "inline_bytes" };
            check(receipt[stream].get(form).is_some(), || format!("{text}: {stream}: {receipt}"))?;
        }
        check(room.bytes(&receipt["stdout"]) == room.bytes(&receipt["stderr"]), || format!("{receipt}"))?;
    }
    room.finish()
}

pub fn at_the_inline_ceiling() -> Outcome {
    let room = Room::new();
    let small = room.another(json!({ "capability": { "max_inline_bytes": 10 } }));
    for (session, ceiling) in [(&room.session, 16_384), (&small, 10)] {
        for (bytes, inline) in [(ceiling, true), (ceiling + 1, false)] {
            let script = format!("head -c {bytes} /dev/zero | tr '\\0' x");
            let receipt = room.exec_in(session, json!({ "argv": ["sh", "-c", script] }));
            expect("output", &receipt, &["ok"])?;
            let form = if inline { "inline_text" } else { "blob" };
            check(receipt["stdout"].get(form).is_some(), || format!("{bytes} bytes: {receipt}"))?;
            check(receipt["stderr"]["inline_text"]["text"] == "", || format!("{receipt}"))?;
            check(receipt["stdout_bytes"] == bytes, || format!("{receipt}"))?;
            let all = "x".repeat(bytes);
            check(room.stdout(&receipt) == all, || format!("{bytes} bytes: not those"))?;
        }
    }
    room.finish()
}

pub fn inline_or_nothing() -> Outcome {
    let room = Room::new();
    let run = |bytes: usize, to: &str| {
        let script = format!("head -c {bytes} /dev/zero {to}");
        room.exec(json!({ "argv": ["sh", "-c", script], "output_mode": "require_inline" }))
    };
    expect("16 384", &run(16_384, ""), &["ok"])?;
    expect("16 385", &run(16_385, ""), &["error / inline_required_too_large"])?;
    expect("16 385 on stderr", &run(16_385, ">&2"), &["error / inline_required_too_large"])?;
    let odd = room.exec(json!({ "argv": ["true"], "output_mode": "sideways" }));
    expect("sideways", &odd, &["error / invalid_params"])?;
    room.finish()
}

/// Beyond the limit the first half and the last half are kept.
pub fn first_and_last_half() -> Outcome {
    let room = Room::open(json!({ "capability": { "exec": { "max_output_bytes": 1_000 } } }));
    let numbers = |count: usize| (0..count).map(|i| format!("{i:09}\n")).collect::<String>();
    let script =
        |count: usize| format!("i=0; while [ $i -lt {count} ]; do printf '%09d\\n' $i; i=$((i+1)); done");
    let receipt = room.sh(&script(100));
    check(receipt.get("truncated").is_none_or(|cut| cut == false), || format!("just enough: {receipt}"))?;
    check(room.stdout(&receipt) == numbers(100), || format!("{receipt}"))?;
    for count in [101, 150, 1_000, 20_000] {
        let receipt = room.sh(&script(count));
        expect("numbers", &receipt, &["ok"])?;
        check(receipt["truncated"] == true, || format!("{count} lines: {receipt}"))?;
        check(receipt["stdout_bytes"] == count * 10, || format!("{count} lines: {receipt}"))?;
        let (kept, all) = (room.stdout(&receipt), numbers(count));
        check(kept.starts_with(&all[..450]) && kept.ends_with(&all[all.len() - 450..]), || {
            format!("{count} lines: not the two ends: {kept}")
        })?;
        check(kept.len() <= 1_000 + 200, || format!("{count} lines: {} bytes are kept", kept.len()))?;
    }
    room.finish()
}
