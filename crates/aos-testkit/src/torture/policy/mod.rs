//! Random policies and random operations, by every front end: what policy reports before an operation is what happens.
//!
//! Four sources report it: `policy.evaluate` (the host-access points), `effect.foresee` (all of capability and policy),
//! the command line, and a second implementation of the rules in `reference`. Each pair is one operation, evaluated and
//! then executed.

mod chance;
mod front_ends;
mod judged;
pub(in crate::torture) mod reference;

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::client::Client;
use crate::random::Random;
use crate::time::is_over;
use crate::torture::pulse::{About, Pulse, beside};
use crate::torture::{COMPLAINTS_MAX, Setup};
use chance::Act;
use front_ends::Mcp;

#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub pairs: u64,
    /// One in `mcp_every` sessions is also driven through MCP, one in `cli_every` pairs through the command line.
    pub mcp_every: usize,
    pub cli_every: usize,
    pub until: Option<Instant>,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Tally {
    pub pairs: u64,
    policies: u64,
    socket: u64,
    cli: u64,
    mcp: u64,
    commands: u64,
    denied: u64,
    walled: u64,
    warned: u64,
    done: u64,
    by_reference: u64,
    explained: u64,
    disagreements: u64,
    pulse: Pulse,
    pub complaints: Vec<String>,
}

impl Tally {
    pub fn is_clean(&self) -> bool {
        self.complaints.is_empty()
    }

    pub fn add(&mut self, mut other: Tally) {
        self.pairs += other.pairs;
        self.policies += other.policies;
        self.socket += other.socket;
        self.cli += other.cli;
        self.mcp += other.mcp;
        self.commands += other.commands;
        self.denied += other.denied;
        self.walled += other.walled;
        self.warned += other.warned;
        self.done += other.done;
        self.by_reference += other.by_reference;
        self.explained += other.explained;
        self.disagreements += other.disagreements;
        self.pulse.add(&other.pulse);
        self.complaints.append(&mut other.complaints);
        self.complaints.extend(other.pulse.complaint());
    }

    /// Whether each kind of outcome occurred. How often depends on the random policies.
    pub fn is_meaningful(&self) -> bool {
        [self.denied, self.walled, self.done, self.warned, self.by_reference].iter().all(|count| *count > 0)
    }

    fn disagree(&mut self, why: String) {
        self.disagreements += 1;
        self.complaints.push(why);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            to,
            "{} pairs under {} policies ({} by the socket, {} by the command line, {} by MCP; {} commands): {} denied by \
             policy, {} by the capability, {} done ({} with a warning); {} also held against the reference, {} \
             explained; {} disagreements; {}",
            self.pairs,
            self.policies,
            self.socket,
            self.cli,
            self.mcp,
            self.commands,
            self.denied,
            self.walled,
            self.done,
            self.warned,
            self.by_reference,
            self.explained,
            self.disagreements,
            self.pulse
        )
    }
}

/// Operations under one policy.
const PAIRS_PER_POLICY: usize = 50;

/// Runs one home until the plan is done. `progress` gets the number of pairs.
pub fn torture(setup: &Setup, plan: &Plan, progress: &mut dyn FnMut(u64)) -> Tally {
    let daemon = match setup.start(&[], &[]) {
        Ok(daemon) => daemon,
        Err(why) => return Tally { complaints: vec![format!("no daemon: {why:?}")], ..Tally::default() },
    };
    let mut tally = Tally::default();
    let (outcome, pulse) =
        beside(&setup.home, About::Root(&setup.roots[0]), || policies(setup, plan, &mut tally, progress));
    tally.complaints.extend(outcome.err());
    tally.add(Tally { pulse, ..Tally::default() });
    daemon.kill();
    tally
}

fn policies(
    setup: &Setup,
    plan: &Plan,
    tally: &mut Tally,
    progress: &mut dyn FnMut(u64),
) -> Result<(), String> {
    let (root, mut random) = (setup.roots[0].as_path(), Random::new(plan.seed));
    while tally.pairs < plan.pairs && !is_over(plan.until) {
        let mut trial = Trial::open(setup, root, plan, &mut random, tally)?;
        tally.policies += 1;
        for _ in 0..PAIRS_PER_POLICY {
            plant(root).map_err(|why| format!("cannot plant: {why}"))?;
            if random.one_in(20) {
                trial.command(&mut random, tally)?;
            } else {
                trial.pair(&mut random, tally)?;
            }
            tally.pairs += 1;
            if tally.complaints.len() > COMPLAINTS_MAX {
                return Err("too much is wrong already; stopping here".into());
            }
        }
        let close = json!({ "session_id": trial.session, "signal": "kill" });
        trial.client.try_effect("host.session.signal", &close, "close").ok_or("the daemon hung up")?;
        progress(tally.pairs);
    }
    Ok(())
}

/// Creates the files and links of the root, and restores those that an operation removed.
fn plant(root: &Path) -> std::io::Result<()> {
    let beside = |name: &str| root.with_file_name(name);
    for folder in ["in/deep", "sub/deep", ".git"] {
        let folder = root.join(folder);
        // A file that was moved to the place of a folder is replaced by the folder.
        if std::fs::create_dir_all(&folder).is_err() {
            let _ = std::fs::remove_file(&folder);
            let _ = std::fs::remove_file(root.join("in"));
            let _ = std::fs::remove_file(root.join("sub"));
            std::fs::create_dir_all(&folder)?;
        }
    }
    for folder in ["second", "third", "outside"] {
        std::fs::create_dir_all(beside(folder))?;
        keep_file(&beside(folder).join("f"))?;
    }
    keep_file(&beside("outside").join("secret"))?;
    for file in ["f", "in/f", "in/deep/f", "sub/deep/f", "sub/x.rs", ".git/config"] {
        keep_file(&root.join(file))?;
    }
    let and_back = format!("../{}/in", root.file_name().unwrap_or_default().to_string_lossy());
    for (target, name) in [
        ("in", "to_in"),
        ("..", "up"),
        ("../outside", "out"),
        ("../outside/secret", "out_file"),
        ("../second", "to_second"),
        ("../third", "third"),
        ("in/f", "to_f"),
        (and_back.as_str(), "there_and_back"),
    ] {
        let at = root.join(name);
        if !at.is_symlink() {
            let _ = std::fs::remove_file(&at).or_else(|_| std::fs::remove_dir_all(&at));
            symlink(target, at)?;
        }
    }
    // Leftovers of earlier operations would influence later ones.
    for name in ["new", "in/new", "IN", "~", "ws", "second", "secret", "outside", "config"] {
        let at = root.join(name);
        let _ = std::fs::remove_file(&at).or_else(|_| std::fs::remove_dir_all(&at));
    }
    Ok(())
}

fn keep_file(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        std::fs::remove_dir_all(path)?;
    }
    if path.is_file() { Ok(()) } else { std::fs::write(path, "one\n") }
}

/// A session under a random policy and capability.
struct Trial<'a> {
    setup: &'a Setup,
    plan: &'a Plan,
    root: &'a Path,
    client: Client,
    session: String,
    policy: Value,
    mcp: Option<Mcp>,
}

impl<'a> Trial<'a> {
    fn open(
        setup: &'a Setup,
        root: &'a Path,
        plan: &'a Plan,
        random: &mut Random,
        tally: &mut Tally,
    ) -> Result<Trial<'a>, String> {
        plant(root).map_err(|why| format!("cannot plant: {why}"))?;
        let mut client = setup.client()?;
        let (policy, capability) = (chance::policy(random), chance::capability(root, random));
        let params = json!({
            "target": { "local": { "workdir": root } },
            "policy": policy,
            "capability": capability,
        });
        let receipt = client.try_effect("host.session.open", &params, "open").unwrap_or_default();
        let id = receipt["session_id"].as_str();
        let session = id.ok_or_else(|| format!("no session: {params}: {receipt}"))?.to_owned();
        // The receipt reports the rules of the session: they must be the given ones, in order.
        if receipt["policy"]["rules"] != policy["rules"] {
            tally.disagree(format!("given {}, reported {}", policy["rules"], receipt["policy"]["rules"]));
        }
        let mcp = if random.one_in(plan.mcp_every) { Some(Mcp::open(setup, &session)?) } else { None };
        Ok(Trial { setup, plan, root, client, session, policy, mcp })
    }

    fn pair(&mut self, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
        let mut act = Act::new(self.root, random);
        act.params["session_id"] = json!(self.session);
        let said = self.said(&act)?;
        // The decision depends on the content of a folder, so it is computed before the operation removes it.
        let decision = self.by_reference(&act).map(str::to_owned);
        if let (Some(mcp), Some((tool, arguments))) = (&mut self.mcp, &act.tool) {
            let answer = mcp.tool(tool, arguments)?;
            tally.mcp += 1;
            if let Err(why) = said.holds_for_a_tool(&answer, act.looks_below()) {
                tally.disagree(self.tell(&act, &said, &why));
            }
            plant(self.root).map_err(|why| why.to_string())?;
        }
        let by_cli = random.one_in(self.plan.cli_every);
        let receipt = if by_cli {
            tally.cli += 1;
            self.same_on_the_command_line(&act, tally)?;
            front_ends::call(self.setup, act.kind, &act.params)?
        } else {
            tally.socket += 1;
            self.client.try_effect(act.kind, &act.params, "pair").ok_or("the daemon hung up")?
        };
        if let Err(why) = said.holds(&receipt, act.looks_below()) {
            tally.disagree(self.tell(&act, &said, &format!("{why}: {receipt}")));
        }
        if let Some(decision) = decision {
            tally.by_reference += 1;
            if let Err(why) = agrees(&decision, &receipt, &said, act.looks_below()) {
                tally.disagree(self.tell(&act, &said, &format!("{why}: {receipt}")));
            }
        }
        if by_cli && let (Some(seq), [_]) = (receipt["seq"].as_u64(), act.paths.as_slice()) {
            tally.explained += 1;
            let explained = front_ends::explain(self.setup, seq)?;
            self.explained_as_evaluated(&explained, &said, &act, tally);
        }
        count(&receipt, tally);
        Ok(())
    }

    /// Evaluates a command by its arguments, then runs it.
    fn command(&mut self, random: &mut Random, tally: &mut Tally) -> Result<(), String> {
        let (argv, cwd) = chance::command(self.root, random);
        let question = json!({ "session_id": self.session, "argv": argv, "command_cwd": cwd });
        let evaluated = self.client.call("policy.evaluate", &question).ok_or("the daemon hung up")?;
        let params = json!({
            "session_id": self.session, "argv": argv, "cwd": cwd, "timeout_ns": 5_000_000_000_u64,
        });
        let act = Act { kind: "host.exec", params, op: "exec", paths: Vec::new(), tool: None };
        let mut said = self.said(&act)?;
        said.dispositions.extend(evaluated["disposition"].as_str().map(str::to_owned));
        let receipt =
            self.client.try_effect("host.exec", &act.params, "command").ok_or("the daemon hung up")?;
        tally.commands += 1;
        tally.socket += 1;
        if let Err(why) = said.holds(&receipt, false) {
            tally.disagree(self.tell(&act, &said, &format!("{why}: {receipt}")));
        }
        if let Some(seq) = receipt["seq"].as_u64().filter(|_| random.one_in(self.plan.cli_every)) {
            tally.explained += 1;
            let explained = front_ends::explain(self.setup, seq)?;
            self.explained_as_evaluated(&explained, &said, &act, tally);
        }
        count(&receipt, tally);
        Ok(())
    }

    fn said(&mut self, act: &Act) -> Result<Said, String> {
        let mut dispositions = BTreeSet::new();
        // An evaluation follows a link in the last name; these operations do not.
        let on_the_link = ["host.fs.remove", "host.fs.move"].contains(&act.kind);
        for path in act.paths.iter().filter(|path| !on_the_link || chance::is_plain(path)) {
            let question = json!({ "session_id": self.session, "path": path });
            let answer = self.client.call("policy.evaluate", &question).ok_or("the daemon hung up")?;
            dispositions.insert(answer["disposition"].as_str().unwrap_or("none").to_owned());
        }
        let question = json!({ "kind": act.kind, "params": act.params });
        let foreseen = self.client.call("effect.foresee", &question).ok_or("the daemon hung up")?;
        Ok(Said { dispositions, foreseen })
    }

    /// Checks that `aos policy path` in the session prints what the socket answers.
    fn same_on_the_command_line(&mut self, act: &Act, tally: &mut Tally) -> Result<(), String> {
        for path in &act.paths {
            let question = json!({ "session_id": self.session, "path": path });
            let said = self.client.call("policy.evaluate", &question).ok_or("the daemon hung up")?;
            let printed = front_ends::policy_path(self.setup, &self.session, path)?;
            if printed.get("refused").is_none() && printed != said {
                tally.disagree(format!("aos policy path {path}: {printed}, the socket: {said}"));
            }
        }
        Ok(())
    }

    /// Checks that an explanation gives the disposition that was reported before the operation.
    fn explained_as_evaluated(&self, explained: &Value, said: &Said, act: &Act, tally: &mut Tally) {
        let told = explained["disposition"].as_str().unwrap_or("none");
        // The paths of a patch are in its text, which an explanation does not read.
        let is_known = act.kind != "host.fs.apply_patch" && !said.dispositions.is_empty();
        if is_known && !said.dispositions.contains(told) {
            tally.disagree(self.tell(act, said, &format!("explained as {explained}")));
        }
    }

    fn tell(&self, act: &Act, said: &Said, why: &str) -> String {
        format!("{} {}: said {said:?}, {why}; policy {}", act.kind, act.params, self.policy)
    }
}

/// What was reported before an operation.
#[derive(Debug)]
struct Said {
    /// The dispositions of the paths that it names, or of the command.
    dispositions: BTreeSet<String>,
    foreseen: Value,
}

/// The error codes with which capability and policy refuse. Each refusal must be foreseen.
const POLICY_REFUSALS: &[&str] =
    &["policy_denied", "protected_path", "op_not_allowed", "exec_not_allowed", "program_not_allowed"];

impl Said {
    /// Checks that the receipt matches what was reported. `looks_below`: policy checks more than the named paths.
    fn holds(&self, receipt: &Value, looks_below: bool) -> Result<(), &'static str> {
        let (foreseen, found) = (code(&self.foreseen), code(receipt));
        if self.foreseen["status"] == "ok" && POLICY_REFUSALS.contains(&found) && !looks_below {
            return Err("not foreseen");
        }
        if POLICY_REFUSALS.contains(&foreseen) && found != foreseen {
            return Err("foreseen, and yet");
        }
        if self.dispositions.contains("deny") && receipt["status"] == "ok" {
            return Err("evaluated as denied, and yet done");
        }
        let warnings = |answer: &Value| -> BTreeSet<String> {
            let all = answer["warnings"].as_array().into_iter().flatten();
            let codes = all.filter_map(|warning| warning["code"].as_str());
            codes.filter(|code| is_of_policy(code)).map(str::to_owned).collect()
        };
        let (before, after) = (warnings(&self.foreseen), warnings(receipt));
        let as_foreseen = if looks_below { before.is_subset(&after) } else { before == after };
        if receipt["status"] == "ok" && !as_foreseen {
            return Err("other warnings than foreseen");
        }
        Ok(())
    }

    /// As [`Said::holds`], for the answer of an MCP tool: a text, with `isError` on failure.
    fn holds_for_a_tool(&self, answer: &Value, looks_below: bool) -> Result<(), String> {
        let failed = answer["isError"] == true;
        let refused = POLICY_REFUSALS.contains(&code(&self.foreseen)) || self.dispositions.contains("deny");
        if refused && !failed {
            return Err(format!("refused beforehand, and yet the tool answers {answer}"));
        }
        let found = answer["structuredContent"]["error_code"].as_str().unwrap_or_default();
        if self.foreseen["status"] == "ok" && POLICY_REFUSALS.contains(&found) && !looks_below {
            return Err(format!("not foreseen, and yet the tool answers {answer}"));
        }
        Ok(())
    }
}

fn is_of_policy(code: &str) -> bool {
    let others = [
        "policy_rule",
        "protected_path",
        "sensitive_path",
        "absolute_path",
        "outside_cwd",
        "outside_workspace",
    ];
    others.contains(&code) || code.starts_with("command_")
}

/// Checks that the answer agrees with the decision of the rules.
fn agrees(decision: &str, receipt: &Value, said: &Said, looks_below: bool) -> Result<(), &'static str> {
    // Policy does not check what is below when another error blocks the path first.
    let is_refused = receipt["status"] == "forbidden" || looks_below && receipt["status"] != "ok";
    if decision == "deny" && !is_refused {
        return Err("the reference denies it");
    }
    if decision != "deny" && code(receipt) == "policy_denied" && !said.dispositions.contains("deny") {
        return Err("the reference does not deny it");
    }
    Ok(())
}

fn code(answer: &Value) -> &str {
    answer["error_code"].as_str().unwrap_or_default()
}

fn count(receipt: &Value, tally: &mut Tally) {
    match (receipt["status"].as_str().unwrap_or_default(), code(receipt)) {
        (_, "policy_denied") => tally.denied += 1,
        ("forbidden", _) => tally.walled += 1,
        ("ok", _) => {
            tally.done += 1;
            tally.warned += u64::from(receipt["warnings"].is_array());
        }
        _ => {}
    }
}
