//! Node's package clients, and what is installed with them.

use super::{NEW_REPOSITORY, TOUR, Tour, lands, lands_without, runs};
use crate::clients::Check;
use crate::clients::need::Need;

const NODE: Need = Need::Program("node", &["--version"]);
const NPM: Need = Need::Program("npm", &["--version"]);
const GIT: Need = Need::Program("git", &["--version"]);

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "npm",
        about: "packages are installed, run, reinstalled and removed",
        needs: &[NODE, NPM],
        run: |place| PACKAGES.take(place),
    },
    Check {
        name: "pnpm",
        about: "the same with a store of links",
        needs: &[NODE, NPM],
        run: |place| STORE.take(place),
    },
    Check {
        name: "jest",
        about: "tests with snapshots and coverage",
        needs: &[NODE, NPM],
        run: |place| JEST.take(place),
    },
    Check {
        name: "husky",
        about: "hooks that the user installed run at each commit",
        needs: &[NODE, NPM, GIT],
        run: |place| HUSKY.take(place),
    },
    Check {
        name: "husky-new",
        about: "a package brings husky: its hooks stay out, everything else lands",
        needs: &[NODE, NPM, GIT],
        run: |place| HUSKY_NEW.take(place),
    },
];

const PACKAGES: Tour = Tour {
    with_network: true,
    files: &[("odd.js", include_str!("files/odd.js")), ("odd.test.js", include_str!("files/odd.test.js"))],
    steps: &[
        lands(
            "npm init -y; npm pkg set name=small scripts.test='node --test' \
                scripts.build='esbuild odd.js --bundle --platform=node --outfile=dist/out.js'",
            &["package.json"],
        ),
        lands("npm install is-odd", &["package-lock.json", "node_modules/is-odd/package.json"]),
        // Its installation runs a script and a native program.
        lands("npm install --save-dev esbuild", &["node_modules/.bin/esbuild"]),
        lands("npm run build; node dist/out.js | grep 'odd true'", &["dist/out.js"]),
        runs("npm test", "pass 1"),
        lands("npm ci", &["node_modules/is-odd/package.json"]),
        runs("npm ls; npm outdated || true", "is-odd"),
        runs("npx --yes semver 1.2.3", "1.2.3"),
        lands("npm pack", &["package.json"]),
        lands("npm uninstall esbuild; test ! -e node_modules/.bin/esbuild", &["package.json"]),
    ],
    ..TOUR
};

const STORE: Tour = Tour {
    with_network: true,
    files: &[
        (
            "package.json",
            "{\"name\":\"small\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node odd.js\"}}\n",
        ),
        ("odd.js", include_str!("files/odd.js")),
    ],
    first: "PATH=$HOME/node/bin:$PATH",
    steps: &[
        runs("npm install --global --prefix $HOME/node pnpm@10; pnpm --version", "10."),
        lands("pnpm add is-odd", &["pnpm-lock.yaml", "node_modules/is-odd"]),
        runs("pnpm test", "odd true"),
        lands("rm -rf node_modules; pnpm install --frozen-lockfile; node odd.js", &["node_modules/is-odd"]),
        runs("pnpm dlx semver 1.2.3; pnpm list", "1.2.3"),
        lands("pnpm remove is-odd", &["package.json"]),
    ],
    ..TOUR
};

const JEST: Tour = Tour {
    with_network: true,
    // Some packages contain a `.gitattributes` or the like.
    warnings: &["sensitive_path"],
    files: &[
        ("package.json", "{\"name\":\"small\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"jest\"}}\n"),
        ("sum.js", "module.exports = (a, b) => a + b;\n"),
        ("sum.test.js", include_str!("files/sum.test.js")),
        ("child.test.js", include_str!("files/child.test.js")),
    ],
    steps: &[
        lands("npm install --save-dev jest", &["node_modules/.bin/jest"]),
        lands("npm test", &["__snapshots__/sum.test.js.snap"]),
        runs("npx jest --ci --maxWorkers=2", "3 passed"),
        lands("npx jest --coverage", &["coverage/lcov.info"]),
    ],
    ..TOUR
};

const PACKAGE: &str = "{\"name\":\"small\",\"version\":\"1.0.0\",\"devDependencies\":{\"husky\":\"^9\"},\
    \"scripts\":{\"prepare\":\"husky\",\"test\":\"echo tested\"}}\n";
const PROJECT: &[(&str, &str)] = &[("package.json", PACKAGE), (".gitignore", "node_modules\n")];

const HUSKY: Tour = Tour {
    with_network: true,
    files: PROJECT,
    before: &[
        NEW_REPOSITORY,
        "npm install --silent",
        "echo 'npm test' > .husky/pre-commit; git add .; git commit -q -m 1",
    ],
    steps: &[
        lands("echo 2 > f; git add f; git commit -m 2 2>&1 | grep tested", &["f"]),
        // `prepare` runs again, and finds everything as it is.
        lands("rm -rf node_modules; npm install", &["node_modules/husky/package.json"]),
        lands("npm install is-odd; git add .; git commit -m 3", &[".git/logs/HEAD"]),
        lands("git checkout -q -b b; git commit -q --allow-empty --no-verify -m 4", &[".git/refs/heads/b"]),
    ],
    ..TOUR
};

const HUSKY_NEW: Tour = Tour {
    with_network: true,
    protected_paths: "withhold",
    warnings: &["protected_withheld"],
    files: PROJECT,
    before: &[NEW_REPOSITORY],
    steps: &[
        lands_without(
            "npm install",
            &[".husky", ".git/config"],
            &["node_modules/husky/package.json", "package-lock.json"],
        ),
        lands("git add .; git commit -q -m 1", &[".git/refs/heads/main"]),
    ],
    ..TOUR
};
