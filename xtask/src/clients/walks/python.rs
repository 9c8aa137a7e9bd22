//! Python's package clients in virtual environments, and what is installed with them.

use super::{NEW_REPOSITORY, TOUR, Tour, denied, lands, runs};
use crate::clients::Check;
use crate::clients::need::Need;

const VENV: Need = Need::Program("python3", &["-m", "ensurepip", "--version"]);
const GIT: Need = Need::Program("git", &["--version"]);

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "pip",
        about: "packages and an editable project in a virtual environment",
        needs: &[VENV],
        run: |place| PIP.take(place),
    },
    Check {
        name: "uv",
        about: "a project, its lock file and its environment",
        needs: &[VENV, GIT],
        run: |place| UV.take(place),
    },
    Check {
        name: "pytest",
        about: "tests, also in several processes",
        needs: &[VENV],
        run: |place| PYTEST.take(place),
    },
    Check {
        name: "pre-commit",
        about: "hooks run by hand and at each commit; installing them is denied",
        needs: &[VENV, GIT],
        run: |place| PRE_COMMIT.take(place),
    },
];

const PIP: Tour = Tour {
    with_network: true,
    files: &[
        ("pyproject.toml", include_str!("files/pyproject.toml")),
        ("small.py", include_str!("files/small.py")),
    ],
    steps: &[
        lands("python3 -m venv .venv", &[".venv/bin/pip"]),
        // One package with a native module, one without.
        lands(".venv/bin/pip install --quiet markupsafe idna", &[".venv/lib"]),
        lands(".venv/bin/pip install --quiet --editable .", &[".venv/bin/small"]),
        runs(". .venv/bin/activate; small", "&lt;small&gt;"),
        lands(".venv/bin/pip freeze --exclude-editable > requirements.txt", &["requirements.txt"]),
        lands(
            ".venv/bin/pip wheel --quiet --no-deps --wheel-dir dist .",
            &["dist/small-1.0-py3-none-any.whl"],
        ),
        lands(".venv/bin/pip uninstall --yes --quiet small idna; .venv/bin/pip check", &[".venv/lib"]),
        lands(
            "python3 -m venv --clear .venv; .venv/bin/pip install --quiet -r requirements.txt",
            &[".venv/bin/python"],
        ),
    ],
    ..TOUR
};

const UV: Tour = Tour {
    with_network: true,
    before: &[NEW_REPOSITORY],
    first: "PATH=$HOME/uv/bin:$PATH; export UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=true",
    steps: &[
        runs("python3 -m venv $HOME/uv; pip install --quiet uv; uv --version", "uv"),
        lands("uv init --name small .", &["pyproject.toml"]),
        lands("uv add markupsafe", &["uv.lock", ".venv/bin/python"]),
        runs("uv run python -c 'import markupsafe; print(markupsafe.escape(\"<\"))'", "&lt;"),
        lands("rm -rf .venv; uv sync --frozen", &[".venv/bin/python"]),
        lands("uv venv other; VIRTUAL_ENV=other uv pip install idna", &["other/bin/python"]),
        runs("uvx pycowsay hello", "hello"),
        lands("uv remove markupsafe; uv lock --check", &["pyproject.toml"]),
    ],
    ..TOUR
};

const PYTEST: Tour = Tour {
    with_network: true,
    files: &[("test_small.py", include_str!("files/test_small.py"))],
    steps: &[
        lands(
            "python3 -m venv .venv; .venv/bin/pip install --quiet pytest pytest-xdist coverage",
            &[".venv/bin/pytest"],
        ),
        lands(".venv/bin/pytest -q", &[".pytest_cache"]),
        lands(".venv/bin/pytest -n 2 --junitxml=out.xml", &["out.xml"]),
        runs(".venv/bin/pytest -q --last-failed", "4 passed"),
        lands(
            ".venv/bin/coverage run -m pytest -q; .venv/bin/coverage html",
            &[".coverage", "htmlcov/index.html"],
        ),
    ],
    ..TOUR
};

const PRE_COMMIT: Tour = Tour {
    with_network: true,
    files: &[
        (".pre-commit-config.yaml", include_str!("files/pre-commit-config.yaml")),
        ("hook", include_str!("files/pre-commit-hook.sh")),
        ("a.yaml", "a: 1\n"),
        (".gitignore", ".venv\n"),
    ],
    before: &[
        NEW_REPOSITORY,
        "mv hook .git/hooks/pre-commit; git add .; git commit -q -m 1; chmod 755 .git/hooks/pre-commit",
    ],
    steps: &[
        lands("python3 -m venv .venv; .venv/bin/pip install --quiet pre-commit", &[".venv/bin/pre-commit"]),
        runs(".venv/bin/pre-commit run --all-files", "looked at"),
        lands("echo 'b: 2' > b.yaml; git add b.yaml; git commit -m 2", &["b.yaml"]),
        runs("printf 'c: [\\n' > c.yaml; git add c.yaml; ! git commit -m 3", "syntax error"),
        // What is not staged is set aside while the hooks run.
        lands(
            "git rm -q -f c.yaml; echo 'a: 2' > a.yaml; echo 'b: 3' > b.yaml; git add a.yaml; git commit -m 4; \
                grep 3 b.yaml",
            &["a.yaml"],
        ),
        denied(".venv/bin/pre-commit install --hook-type pre-push"),
        runs(".venv/bin/pre-commit validate-config; .venv/bin/pre-commit gc", ""),
    ],
    ..TOUR
};
