//! Languages with compilers: Rust with crates from the registry, and Go.

use super::{TOUR, Tour, lands, runs};
use crate::clients::Check;
use crate::clients::need::{Need, Unpacked};

const GO: Unpacked = Unpacked {
    name: "go",
    packages: &["golang-1.19-go", "golang-1.19-src"],
    bin: "usr/lib/go-1.19/bin",
    variable: Some(("GOROOT", "usr/lib/go-1.19")),
};

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "cargo",
        about: "a crate with dependencies from the registry",
        needs: &[Need::Rust, Need::Program("cc", &["--version"])],
        run: |place| CARGO.take(place),
    },
    Check {
        name: "go",
        about: "a module is built, tested and run",
        needs: &[Need::Debian(&GO)],
        run: |place| GO_MODULE.take(place),
    },
];

const MAIN: &str = "\
fn main() {
    println!(\"{}\", itoa::Buffer::new().format(6 * 7));
}

#[test]
fn seven() {
    assert_eq!(itoa::Buffer::new().format(7), \"7\");
}
";

const CARGO: Tour = Tour {
    with_network: true,
    // A vendored crate contains its workflows.
    warnings: &["sensitive_path"],
    files: &[
        ("src/main.rs", MAIN),
        (
            "Cargo.toml",
            "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[workspace]\n",
        ),
    ],
    steps: &[
        lands("cargo add itoa", &["Cargo.toml"]),
        lands("cargo build", &["Cargo.lock", "target/debug/small"]),
        runs("cargo run --quiet", "42"),
        runs("cargo test", "1 passed"),
        lands("cargo vendor > vendored.toml", &["vendor/itoa/Cargo.toml"]),
        // Times survive: what is built is not built again.
        runs("! cargo build --offline 2>&1 | grep Compiling", ""),
        runs("cargo clean", "Removed"),
    ],
    ..TOUR
};

const GO_MODULE: Tour = Tour {
    files: &[
        ("go.mod", "module example.org/small\n\ngo 1.19\n"),
        ("main.go", include_str!("files/main.go")),
        ("part/part.go", "package part\n\nfunc Double(x int) int { return 2 * x }\n"),
        ("part/part_test.go", include_str!("files/part_test.go")),
    ],
    steps: &[
        lands("go build -o small .; ./small | grep 42", &["small"]),
        runs("go vet ./...", ""),
        runs("go test ./...", "ok"),
        lands("go test -coverprofile=cover.out ./part", &["cover.out"]),
        runs("go run .", "42"),
        runs("go mod tidy; go mod verify; go list ./...", "example.org/small/part"),
        runs("test -z \"$(gofmt -l main.go part)\"", ""),
    ],
    ..TOUR
};
