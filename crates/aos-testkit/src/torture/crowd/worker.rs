//! One worker of the crowd. It knows the content of its own folder, so it can check every answer exactly.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::{Value, json};

use super::figures::Times;
use crate::client::Client;
use crate::random::Random;

const FILES: usize = 4;

#[derive(Debug)]
pub(super) struct Worker {
    session: String,
    root: PathBuf,
    /// The worker's folder below the root.
    folder: String,
    random: Random,
    /// The number that each file contains.
    numbers: [u64; FILES],
    /// The last call that changed something, and the numbers before it.
    last: Option<(String, [u64; FILES])>,
    made: u64,
    pub(super) times: Times,
}

fn body(number: u64) -> String {
    format!("number {number:016x}\n") + &"a line that fills a file of one kilobyte\n".repeat(24)
}

impl Worker {
    pub(super) fn new(session: &str, root: &Path, folder: String, seed: u64) -> Result<Worker, String> {
        let numbers = [0; FILES];
        let prepare = || -> std::io::Result<()> {
            std::fs::create_dir_all(root.join(&folder))?;
            (0..FILES).try_for_each(|file| std::fs::write(root.join(format!("{folder}/f{file}")), body(0)))
        };
        prepare().map_err(|why| format!("cannot prepare {}: {why}", root.display()))?;
        let (session, root, random) = (session.to_owned(), root.to_owned(), Random::new(seed));
        Ok(Worker { session, root, folder, random, numbers, last: None, made: 0, times: Times::default() })
    }

    /// Sends one request and times it. The answer must match the worker's model of its folder.
    pub(super) fn step(&mut self, client: &mut Client) -> Result<(), String> {
        let file = self.random.below(FILES);
        match self.random.below(100) {
            0..26 => self.read(client, file),
            26..48 => self.write(client, file),
            48..63 => self.edit(client, file),
            63..72 => self.patch(client, file),
            72..80 => self.look(client, file),
            80..87 => self.grep(client, file),
            87..90 => self.glob(client),
            90..97 => self.restore(client),
            97 if self.random.one_in(2) => self.command(client, file),
            _ => self.look(client, file),
        }
    }

    fn path(&self, file: usize) -> String {
        format!("{}/f{file}", self.folder)
    }

    fn ask(&mut self, client: &mut Client, kind: &'static str, mut params: Value) -> Result<Value, String> {
        self.made += 1;
        params["session_id"] = json!(self.session);
        let call = format!("{}-{}", self.folder, self.made);
        let asked = Instant::now();
        let receipt = client.try_effect(kind, &params, &call).ok_or("the daemon hung up")?;
        self.times.add(kind, asked.elapsed());
        let well = receipt["status"] == "ok";
        if well { Ok(receipt) } else { Err(format!("{kind} {params}: {receipt}")) }
    }

    /// Sends a mutation that writes new numbers into files.
    fn change(
        &mut self,
        client: &mut Client,
        kind: &'static str,
        params: Value,
        after: [u64; FILES],
    ) -> Result<(), String> {
        let receipt = self.ask(client, kind, params)?;
        let call = receipt["tool_call_id"].as_str().unwrap_or_default().to_owned();
        self.last = Some((call, self.numbers));
        self.numbers = after;
        Ok(())
    }

    fn with(&self, changes: &[(usize, u64)]) -> [u64; FILES] {
        let mut after = self.numbers;
        changes.iter().for_each(|(file, number)| after[*file] = *number);
        after
    }

    fn read(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        let receipt = self.ask(client, "host.fs.read_file", json!({ "path": self.path(file) }))?;
        let expected = body(self.numbers[file]);
        let well = receipt["content"]["inline_text"]["text"] == expected;
        if well {
            Ok(())
        } else {
            Err(format!("{} is not {}: {receipt}", self.path(file), self.numbers[file]))
        }
    }

    fn write(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        let number = self.random.number();
        let content = json!({ "inline_text": { "text": body(number) } });
        let params = json!({ "path": self.path(file), "content": content });
        self.change(client, "host.fs.write_file", params, self.with(&[(file, number)]))
    }

    fn edit(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        let (old, new) = (self.numbers[file], self.random.number());
        let params = json!({ "path": self.path(file), "old_string": format!("number {old:016x}"),
            "new_string": format!("number {new:016x}") });
        self.change(client, "host.fs.edit_file", params, self.with(&[(file, new)]))
    }

    fn patch(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        let other = (file + 1) % FILES;
        let (mut body, mut changes) = (String::new(), Vec::new());
        for file in [file, other] {
            let (old, new) = (self.numbers[file], self.random.number());
            let path = self.path(file);
            body += &format!("*** Update File: {path}\n@@\n-number {old:016x}\n+number {new:016x}\n");
            changes.push((file, new));
        }
        let patch = format!("*** Begin Patch\n{body}*** End Patch\n");
        let params = json!({ "patch": { "inline_text": { "text": patch } } });
        self.change(client, "host.fs.apply_patch", params, self.with(&changes))
    }

    fn look(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        match self.random.below(3) {
            0 => self.ask(client, "host.fs.stat", json!({ "path": self.path(file) })),
            1 => self.ask(client, "host.fs.exists", json!({ "path": self.path(file) })),
            _ => self.ask(client, "host.fs.list_dir", json!({ "path": self.folder })),
        }
        .map(drop)
    }

    fn grep(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        let pattern = format!("number {:016x}", self.numbers[file]);
        let expected = self.numbers.iter().filter(|number| **number == self.numbers[file]).count();
        let params = json!({ "pattern": pattern, "fixed_strings": true, "path": self.folder });
        let receipt = self.ask(client, "host.fs.grep", params)?;
        let well = receipt["match_count"] == expected;
        if well { Ok(()) } else { Err(format!("{pattern} should be found {expected} times: {receipt}")) }
    }

    fn glob(&mut self, client: &mut Client) -> Result<(), String> {
        let receipt = self.ask(client, "host.fs.glob", json!({ "pattern": "*", "path": self.folder }))?;
        if receipt["count"] == FILES { Ok(()) } else { Err(format!("there are {FILES} files: {receipt}")) }
    }

    fn restore(&mut self, client: &mut Client) -> Result<(), String> {
        let Some((call, before)) = self.last.take() else { return self.write(client, 0) };
        self.ask(client, "host.fs.restore", json!({ "scope_id": call }))?;
        self.numbers = before;
        Ok(())
    }

    fn command(&mut self, client: &mut Client, file: usize) -> Result<(), String> {
        let receipt = self.ask(client, "host.exec", json!({ "argv": ["cat", self.path(file)] }))?;
        let well = receipt["stdout"]["inline_text"]["text"] == body(self.numbers[file]);
        if well { Ok(()) } else { Err(format!("cat of {}: {receipt}", self.path(file))) }
    }

    /// Compares the files with the expected numbers.
    pub(super) fn judge(&self) -> Result<(), String> {
        for (file, number) in self.numbers.iter().enumerate() {
            let path = self.root.join(self.path(file));
            let found = std::fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
            if found != body(*number) {
                let first = found.lines().next().unwrap_or_default();
                return Err(format!("{} must say {number:016x} and says `{first}`", path.display()));
            }
        }
        Ok(())
    }
}
