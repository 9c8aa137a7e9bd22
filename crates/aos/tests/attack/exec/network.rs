//! The network: without it nothing goes out and nothing comes in; with it, connections work.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use aos_testkit::{Findings, Start, World, check, warning_codes};
use serde_json::{Value, json};

use super::room::{Room, SECOND, ns};
use crate::Outcome;

/// Listeners of each kind on the host.
struct Outside {
    tcp: TcpListener,
    named: UnixListener,
    unnamed: UnixListener,
    address: String,
}

impl Outside {
    fn new(world: &mut World) -> Outside {
        let address = format!("aos-attack-{:x}", aos_testkit::new_seed());
        let socket = world.parent.join("listening");
        let outside = Outside {
            tcp: TcpListener::bind("127.0.0.1:0").expect("a port"),
            named: UnixListener::bind(socket).expect("a socket"),
            unnamed: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&address).unwrap()).unwrap(),
            address,
        };
        outside.tcp.set_nonblocking(true).unwrap();
        outside.named.set_nonblocking(true).unwrap();
        outside.unnamed.set_nonblocking(true).unwrap();
        outside
    }

    fn port(&self) -> u16 {
        self.tcp.local_addr().expect("it is bound").port()
    }

    /// The listeners that were connected to.
    fn called(&self) -> Vec<&'static str> {
        let mut who = Vec::new();
        who.extend(self.tcp.accept().is_ok().then_some("the port"));
        who.extend(self.named.accept().is_ok().then_some("the socket in a folder"));
        who.extend(self.unnamed.accept().is_ok().then_some("the abstract socket"));
        who
    }
}

fn room(network: Option<&str>) -> (Room, Outside) {
    let mut world = World::asleep(Start::default());
    let outside = Outside::new(&mut world);
    world.start_daemon();
    let mut local = json!({});
    if let Some(mode) = network {
        local["network_mode"] = json!(mode);
    }
    let room = Room::of(world, json!({ "local": local, "policy": { "preset": "permissive" } }));
    room.plant_probe();
    (room, outside)
}

fn limited(room: &Room, script: &str) -> Value {
    room.exec(json!({ "argv": ["bash", "-c", script], "timeout_ns": ns(20 * SECOND) }))
}

pub fn nothing_goes_out() -> Outcome {
    let mut findings = Findings::default();
    for network in [Some("none"), None] {
        let (room, outside) = room(network);
        let (port, named) = (outside.port(), room.world.parent.join("listening").display().to_string());
        for script in [
            "curl -sS -m 3 http://1.1.1.1/".to_owned(),
            "curl -sS -m 3 http://example.com/".into(),
            format!("curl -sS -m 3 http://127.0.0.1:{port}/"),
            "getent hosts example.com".into(),
            "ping -c 1 -W 2 1.1.1.1".into(),
            "exec 3<>/dev/tcp/1.1.1.1/53".into(),
            "exec 3<>/dev/udp/1.1.1.1/53 && echo x >&3".into(),
            format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
            format!("exec 3<>/dev/tcp/localhost/{port}"),
            format!("exec 3<>/dev/tcp/0.0.0.0/{port}"),
            format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{named}\")'"),
            "python3 -c 'import socket; socket.create_connection((\"1.1.1.1\", 53), 3)'".into(),
            "python3 -c 'import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b\"x\", (\"2606:4700:4700::1111\", 53))'".into(),
            format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{}\")'", outside.address),
            "ls /run/dbus/system_bus_socket /run/docker.sock /var/run/docker.sock /run/systemd/private".into(),
        ] {
            let receipt = limited(&room, &script);
            findings.add(check(receipt["exit_code"] != 0, || format!("{network:?}: {script}: {receipt}")));
        }
        let called = outside.called();
        findings.add(check(called.is_empty(), || format!("{network:?}: called: {called:?}")));
        let receipt = room.exec(json!({ "argv": ["./probe"], "env_patch": { super::probe::QUESTION: "abstract", "AOS_ATTACK_ADDRESS": outside.address } }));
        findings
            .add(check(room.stdout(&receipt) != "connected\n", || format!("an abstract socket: {receipt}")));
        let links = room.says("cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '")?;
        findings.add(check(links == "lo", || format!("it has the links {links}")));
        findings.add(room.finish());
    }
    findings.outcome()
}

/// What a test suite does with sockets works.
pub fn inside_it_works() -> Outcome {
    let (room, _outside) = room(Some("none"));
    let tcp = "
import socket, threading
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
def serve():
    c, _ = s.accept(); c.sendall(b'hello'); c.close()
threading.Thread(target=serve).start()
print(socket.create_connection(s.getsockname(), 5).recv(5).decode())
";
    let unix = "
import socket, threading
for name in ('/tmp/s', 's', '\\0inside'):
    s = socket.socket(socket.AF_UNIX); s.bind(name); s.listen()
    c = socket.socket(socket.AF_UNIX); c.connect(name); d, _ = s.accept()
    c.sendall(b'x'); print(d.recv(1).decode())
a, b = socket.socketpair(); a.send(b'y'); print(b.recv(1).decode())
";
    for (script, expected) in [(tcp, "hello\n"), (unix, "x\nx\nx\ny\n")] {
        let receipt = room.run(&["python3", "-c", script]);
        check(room.stdout(&receipt) == expected, || format!("{script}: {receipt}"))?;
    }
    // Two commands of one session are not in one network.
    room.finish()
}

pub fn asked_for() -> Outcome {
    let (room, outside) = room(Some("full"));
    let receipt = limited(&room, &format!("exec 3<>/dev/tcp/127.0.0.1/{}", outside.port()));
    check(receipt["exit_code"] == 0, || format!("the network was asked for: {receipt}"))?;
    check(!warning_codes(&receipt).contains(&"network_not_isolated"), || {
        format!("it was asked for: {receipt}")
    })?;
    check(outside.called() == ["the port"], || "nobody called".into())?;
    // Network access gives access to neither folders nor processes.
    let named = room.world.parent.join("listening").display().to_string();
    let connect = format!("python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{named}\")'");
    for script in [connect.as_str(), "ls /run/*", "ls /proc/*/exe | grep aosd"] {
        check(limited(&room, script)["exit_code"] != 0, || format!("{script} worked"))?;
    }
    check(room.says("cat /etc/resolv.conf > /dev/null; echo ok")? == "ok", || "no resolver".into())?;
    room.finish()
}
