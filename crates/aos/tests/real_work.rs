//! Real work runs unchanged inside: build tools, runtimes and version control, in a session with the defaults.
//!
//! Each task runs with every kind of daemon that is available here; what cannot run says why and is counted. Nothing is
//! refused, withheld or warned about, and at the end all commands are undone.
#![allow(
    clippy::disallowed_methods,
    reason = "a test prepares and inspects the disk behind the product's back"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use aos_testkit::{Outcome, Start, Walk, World, check, is_root, reaches, rust_toolchain};
use libtest_mimic::{Arguments, Trial};
use serde_json::{Value, json};

/// The initial files, the commands in order, and the output of the last one.
struct Task {
    name: &'static str,
    /// All of these must be on PATH.
    tools: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    /// A script that the user runs before the session is opened.
    before: &'static str,
    commands: &'static [&'static [&'static str]],
    says: &'static str,
    /// What the user finds in the folder afterwards.
    lands: &'static [&'static str],
    /// The warnings that belong to this work.
    warnings: &'static [&'static str],
}

const TASK: Task =
    Task { name: "", tools: &[], files: &[], before: "", commands: &[], says: "", lands: &[], warnings: &[] };

/// The owner of the daemon, and the owner of the folder.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    daemon: Option<u32>,
    folder: Option<u32>,
}

fn kinds() -> Vec<Kind> {
    if !is_root() {
        return vec![Kind { name: "an ordinary user", daemon: None, folder: None }];
    }
    vec![
        Kind { name: "root", daemon: None, folder: None },
        Kind { name: "root for another", daemon: None, folder: Some(12_345) },
        Kind { name: "an ordinary user", daemon: Some(65_534), folder: Some(65_534) },
    ]
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let all = kinds().into_iter().flat_map(|kind| TASKS.iter().map(move |task| (task, kind)));
    let trials = all.map(|(task, kind)| trial(&arguments, task, kind)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(arguments: &Arguments, task: &'static Task, kind: Kind) -> Trial {
    let name = format!("{} as {}", task.name, kind.name);
    let is_borrowed = |tool: &str| tool == "cargo" && borrows_rust(task, kind);
    let missing = task.tools.iter().filter(|tool| !is_borrowed(tool)).find_map(|tool| missing(tool, kind));
    aos_testkit::needs::trial(arguments, &name, missing.as_deref(), move || done(task, kind))
}

/// The user that commands run as: the daemon's own, or under a daemon of root the owner of the folder (S10).
fn user(kind: Kind) -> Option<u32> {
    kind.daemon.or(kind.folder)
}

/// The first program of that name on PATH that the user reaches.
fn found(tool: &str, kind: Kind) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').map(|dir| Path::new(dir).join(tool)).find(|file| reaches(file, user(kind)))
}

/// Whether root shows the user its own Rust toolchain: one in a home folder is closed to others.
fn borrows_rust(task: &Task, kind: Kind) -> bool {
    task.tools.contains(&"cargo") && is_root() && found("cargo", kind).is_none() && rust_toolchain().is_some()
}

/// Why the tool is not available to this kind of daemon, if it is not.
fn missing(tool: &str, kind: Kind) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let Some(found) = found(tool, kind) else {
        return Some(match path.split(':').any(|dir| Path::new(dir).join(tool).exists()) {
            true => format!("`{tool}` is out of this user's reach"),
            false => format!("there is no `{tool}` here"),
        });
    };
    let works = Command::new(found).arg("--version").output().is_ok_and(|output| output.status.success());
    (!works).then(|| format!("`{tool}` does not work here either"))
}

fn done(task: &Task, kind: Kind) -> Outcome {
    let env = std::env::var("HOME").map(|home| vec![("HOME".to_owned(), home)]).unwrap_or_default();
    let env = if kind.daemon.is_some() { Vec::new() } else { env };
    let mut world = World::with(Start { uid: kind.daemon, env, ..Start::default() });
    for (path, content) in task.files {
        world.write(path, content);
    }
    prepare(&world, task.before)?;
    give(&world.root, kind.folder)?;
    let session = session(&mut world, task, kind)?;
    let mut walk = Walk::begin(&world, session, task.warnings)?;
    let mut said = String::new();
    for argv in task.commands {
        let receipt = walk.step(argv)?;
        said = walk.stream(&receipt["stdout"]);
    }
    check(said.contains(task.says), || format!("it says {said}"))?;
    for path in task.lands {
        check(world.root.join(path).exists(), || format!("{path} did not land"))?;
    }
    walk.undo()?;
    world.finish()
}

/// The params of the session: the defaults, and the toolchain of root where the user has none.
fn session(world: &mut World, task: &Task, kind: Kind) -> Result<Value, String> {
    let Some(rust) = rust_toolchain().filter(|_| borrows_rust(task, kind)) else { return Ok(json!({})) };
    let shown = world.reachable(&rust, user(kind))?;
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", shown.join("bin").display());
    let mounts = json!([{ "host_path": shown, "mode": "ro" }]);
    Ok(json!({ "target": { "local": { "workdir": world.root, "mounts": mounts, "env": { "PATH": path } } } }))
}

/// Runs what the user does before there is a session.
fn prepare(world: &World, script: &str) -> Outcome {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(&world.root).env("HOME", &world.parent);
    // The folder may belong to another user already.
    let trust = ["GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"];
    command.envs(trust.iter().filter_map(|word| word.split_once('=')));
    let output = command.output().map_err(|why| why.to_string())?;
    check(output.status.success(), || format!("{script}: {output:?}"))
}

/// Gives the folder and everything in it to `uid`.
fn give(folder: &Path, uid: Option<u32>) -> Outcome {
    let Some(uid) = uid else { return Ok(()) };
    let status = Command::new("chown").arg("-R").arg(format!("{uid}:{uid}")).arg(folder).status();
    check(status.is_ok_and(|status| status.success()), || "chown failed".into())
}

const TASKS: &[Task] = &[
    Task {
        name: "a cargo crate is built and tested",
        tools: &["cargo"],
        files: &[
            (
                "Cargo.toml",
                "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n",
            ),
            ("build.rs", "fn main() {\n    println!(\"cargo:rustc-env=BUILT=by-a-script\");\n}\n"),
            ("src/main.rs", "fn main() {\n    println!(\"{} {}\", env!(\"BUILT\"), small::double(21));\n}\n"),
            ("src/lib.rs", CRATE),
            ("tests/whole.rs", "#[test]\nfn whole() {\n    assert_eq!(small::double(2), 4);\n}\n"),
        ],
        commands: &[
            &["cargo", "build", "--offline"],
            // Times survive: what is built is not built again.
            &["sh", "-c", "! cargo build --offline 2>&1 | grep Compiling"],
            &["cargo", "test", "--offline"],
            &["cargo", "run", "--offline", "--quiet"],
        ],
        says: "by-a-script 42",
        lands: &["Cargo.lock", "target/debug/small"],
        ..TASK
    },
    Task {
        name: "python with multiprocessing",
        tools: &["python3"],
        files: &[("work.py", PYTHON)],
        commands: &[&["python3", "work.py"]],
        says: "pool 4950 queue 10 semaphore 20 shared 7 children ok",
        ..TASK
    },
    Task {
        // With pip it takes long; `cargo xtask clients pip` does that.
        name: "python makes and uses a virtual environment",
        tools: &["python3"],
        files: &[("use.py", "import sys\nprint(sys.prefix != sys.base_prefix)\n")],
        commands: &[
            &["python3", "-m", "venv", "--without-pip", "env"],
            &["sh", "-c", ". env/bin/activate && python use.py"],
            &["sh", "-c", "mv env old && python3 -m venv --without-pip env && rm -r old"],
            &["sh", "-c", ". env/bin/activate && python use.py"],
        ],
        says: "True",
        lands: &["env/bin/python", "env/pyvenv.cfg"],
        ..TASK
    },
    Task {
        name: "node with children and workers",
        tools: &["node"],
        files: &[("work.js", NODE)],
        commands: &[&["node", "work.js"]],
        says: "spawned forked worked served",
        ..TASK
    },
    Task {
        name: "git keeps a history",
        tools: &["git"],
        files: &[("a.txt", "one\n")],
        commands: &[
            &["git", "init", "-q", "."],
            &["git", "add", "."],
            &["sh", "-c", "git -c user.name=A -c user.email=a@b.example commit -q -m first"],
            &["git", "checkout", "-q", "-b", "side"],
            &[
                "sh",
                "-c",
                "echo two >> a.txt && git -c user.name=A -c user.email=a@b.example commit -q -a -m second",
            ],
            &["git", "gc", "-q"],
            &["git", "log", "--format=%s"],
        ],
        says: "second\nfirst",
        lands: &[".git/HEAD"],
        ..TASK
    },
    Task {
        name: "git with hooks, clones, worktrees and submodules",
        tools: &["git"],
        before: HOOKS,
        commands: &[
            &[
                "sh",
                "-ec",
                "echo 2 >> f; git commit -q -am 2; test \"$(echo $(cat ran))\" = 'pre-commit commit-msg post-commit'",
            ],
            &["git", "clone", "-q", ".", "copy"],
            &[
                "sh",
                "-ec",
                "cd copy; echo 3 > g; git add g; git -c user.name=A -c user.email=a@b.example commit -q -m 3; git push -q origin HEAD:refs/heads/theirs",
            ],
            &[
                "sh",
                "-ec",
                "git worktree add -q tree -b side; cd tree; echo 4 > h; git add h; git commit -q -m 4",
            ],
            &[
                "git",
                "-c",
                "protocol.file.allow=always",
                "submodule",
                "--quiet",
                "add",
                "./copy",
                "deps/copy",
            ],
            &[
                "sh",
                "-ec",
                "git commit -q -m 5; echo 6 >> f; git stash -q; git rebase -q theirs; git stash pop -q",
            ],
            &["sh", "-ec", "git worktree remove tree; git commit -q -am 6; git gc -q; git fsck"],
            &["git", "log", "--format=%s"],
        ],
        says: "6\n5\n3\n2\n1",
        lands: &[".git/modules/deps/copy/HEAD", "deps/copy/g", "copy/g"],
        // `.gitmodules`.
        warnings: &["sensitive_path"],
        ..TASK
    },
    Task {
        name: "make and cc",
        tools: &["make", "cc"],
        files: &[
            (
                "Makefile",
                "hello: main.o part.o\n\tcc -o $@ $^ -lm -lpthread\n\n%.o: %.c\n\tcc -O2 -g -c -o $@ $<\n",
            ),
            ("main.c", C_MAIN),
            ("part.c", "#include <math.h>\ndouble part(double x) { return sqrt(x); }\n"),
        ],
        commands: &[
            &["make", "-j4"],
            // Times survive: everything is up to date.
            &["make", "-q"],
            &["sh", "-c", "touch part.c; ! make -q && make"],
            &["./hello"],
        ],
        says: "threads 4 root 12",
        lands: &["hello", "part.o"],
        ..TASK
    },
    Task {
        name: "a shell script with pipes, here documents and jobs",
        tools: &["bash"],
        files: &[("work.sh", SHELL)],
        commands: &[&["bash", "work.sh"]],
        says: "sorted abc jobs 3 temporary yes locked",
        lands: &["doc", "job3", "lock.out"],
        ..TASK
    },
];

/// A repository with a commit, and hooks that write down that they ran.
const HOOKS: &str = "\
git init -q -b main .
git config user.name U
git config user.email u@example.org
echo ran > .git/info/exclude
echo 1 > f
git add f
git commit -q -m 1
for hook in pre-commit commit-msg post-commit; do
    printf '#!/bin/sh\\necho %s >> ran\\n' $hook > .git/hooks/$hook
    chmod 755 .git/hooks/$hook
done
";

const CRATE: &str = "\
pub fn double(x: u32) -> u32 {
    x * 2
}

/// ```
/// assert_eq!(small::double(3), 6);
/// ```
pub fn documented() {}

#[test]
fn threads_and_files() {
    let made = std::thread::spawn(|| {
        let path = std::env::temp_dir().join(\"small-test\");
        std::fs::write(&path, \"x\").unwrap();
        std::fs::read(&path).unwrap()
    });
    assert_eq!(made.join().unwrap(), b\"x\");
    let listener = std::net::TcpListener::bind(\"127.0.0.1:0\").unwrap();
    assert!(std::net::TcpStream::connect(listener.local_addr().unwrap()).is_ok());
}
";

const PYTHON: &str = "\
import multiprocessing as mp, os, subprocess, sys, tempfile
from multiprocessing import shared_memory

def square(x): return x

def put(queue, semaphore, total):
    with semaphore:
        queue.put(1)
    for _ in range(2):
        with total.get_lock():
            total.value += 1

if __name__ == '__main__':
    with mp.Pool(4) as pool:
        summed = sum(pool.map(square, range(100)))
    queue, semaphore, total = mp.Queue(), mp.Semaphore(2), mp.Value('i', 0)
    workers = [mp.Process(target=put, args=(queue, semaphore, total)) for _ in range(10)]
    for worker in workers: worker.start()
    got = sum(queue.get(timeout=30) for _ in workers)
    for worker in workers: worker.join()
    block = shared_memory.SharedMemory(create=True, size=16)
    block.buf[0] = 7
    other = shared_memory.SharedMemory(name=block.name)
    seen = other.buf[0]
    other.close(); block.close(); block.unlink()
    mp.set_start_method('spawn', force=True)
    with mp.Pool(2) as pool: pool.map(square, range(4))
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run(['sh', '-c', 'echo ok'], capture_output=True, text=True, cwd=folder).stdout.strip()
    print('pool', summed, 'queue', got, 'semaphore', total.value, 'shared', seen, 'children', said)
";

const NODE: &str = "\
const { execFileSync, fork, spawn } = require('child_process');
const { Worker, isMainThread, parentPort } = require('worker_threads');
const http = require('http');
if (process.argv[2] === 'child') { process.send('hello'); process.disconnect(); }
else if (!isMainThread) { parentPort.postMessage(1); }
else (async () => {
  const words = [];
  if (execFileSync('echo', ['x']).toString() === 'x\\n') {
    const child = spawn('sh', ['-c', 'cat; exit 3'], { stdio: 'pipe' });
    child.stdin.end('through');
    const code = await new Promise(done => child.on('close', done));
    if (code === 3) words.push('spawned');
  }
  const forked = fork(__filename, ['child']);
  if (await new Promise(done => forked.on('message', done)) === 'hello') words.push('forked');
  const worker = new Worker(__filename);
  if (await new Promise(done => worker.on('message', done)) === 1) words.push('worked');
  const server = http.createServer((_, answer) => answer.end('hi')).listen(0, '127.0.0.1', () => {
    http.get({ port: server.address().port, host: '127.0.0.1' }, answer => {
      answer.resume();
      answer.on('end', () => { words.push('served'); server.close(); console.log(words.join(' ')); });
    });
  });
})();
";

const C_MAIN: &str = "\
#include <pthread.h>
#include <stdio.h>
double part(double);
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *run(void *unused) {
    pthread_mutex_lock(&lock);
    count++;
    pthread_mutex_unlock(&lock);
    return unused;
}
int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], 0, run, 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
    printf(\"threads %d root %.0f\\n\", count, part(144));
    return 0;
}
";

const SHELL: &str = "\
set -euo pipefail
sorted=$(printf 'c\\na\\nb\\n' | sort | tr -d '\\n')
while read -r word; do heard=$word; done <<< 'three'
cat > doc <<END
$heard
END
for i in 1 2 3; do (sleep 0.1; echo x > \"job$i\") & done
wait
file=$(mktemp)
[ -w \"$file\" ] && temporary=yes
( flock 9; echo locked > lock.out ) 9> lock
echo \"sorted $sorted jobs $(ls job* | wc -l) temporary $temporary $(cat lock.out)\"
";
