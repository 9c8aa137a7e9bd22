//! Git's own extensions. Git itself is in the tests (`real_work`, `OWN-S4-ORDINARY`).

use super::{NEW_REPOSITORY, TOUR, Tour, lands, lands_without, runs};
use crate::clients::Check;
use crate::clients::need::{Need, Unpacked};

const LFS: Unpacked = Unpacked { name: "git-lfs", packages: &["git-lfs"], bin: "usr/bin", variable: None };
const NEEDS: &[Need] = &[Need::Program("git", &["--version"]), Need::Debian(&LFS)];

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "git-lfs",
        about: "large files in a repository where the user installed git-lfs",
        needs: NEEDS,
        run: |place| INSTALLED.take(place),
    },
    Check {
        name: "git-lfs-new",
        about: "the same in a repository that has no hooks of git-lfs: these stay out",
        needs: NEEDS,
        run: |place| NEW.take(place),
    },
];

const INSTALLED: Tour = Tour {
    // `.gitattributes`, and the hooks of new clones.
    warnings: &["sensitive_path", "hooks_withheld"],
    before: &[NEW_REPOSITORY, "git lfs install --local; echo 1 > f; git add f; git commit -q -m 1"],
    steps: &[
        // For the clones of this session; it goes into its home.
        runs("git lfs install --skip-repo", "initialized"),
        lands("git lfs track '*.bin'", &[".gitattributes"]),
        lands(
            "head -c 300000 /dev/urandom > a.bin; git add .; git commit -q -m 2",
            &[".git/lfs/objects", "a.bin"],
        ),
        runs("git lfs ls-files; git lfs status; git lfs fsck", "a.bin"),
        lands(
            "git checkout -q -b b; echo b > b.bin; git add .; git commit -q -m 3; git checkout -q main",
            &[".git/refs/heads/b"],
        ),
        lands("git merge -q b; grep -x b b.bin", &["b.bin"]),
        lands("git init -q --bare -b main store.git", &["store.git/HEAD"]),
        lands(
            "git remote add origin file://$PWD/store.git; git push -q origin main",
            &["store.git/lfs/objects", ".git/refs/remotes/origin/main"],
        ),
        lands_without(
            "git clone -q file://$PWD/store.git copy; cmp a.bin copy/a.bin",
            &["copy/.git/hooks"],
            &["copy/a.bin"],
        ),
        lands("git lfs untrack '*.bin'; git add --renormalize .; git commit -q -m 4", &["a.bin"]),
        runs("git lfs prune --verbose; git lfs env", "LocalWorkingDir"),
    ],
    ..TOUR
};

/// Whatever git-lfs does in a repository, it installs its hooks first if they are missing.
const NEW: Tour = Tour {
    protected_paths: "withhold",
    warnings: &["sensitive_path", "protected_withheld"],
    before: &[NEW_REPOSITORY],
    steps: &[
        runs("git lfs install --skip-repo", "initialized"),
        lands_without("git lfs track '*.bin'", &[".git/hooks"], &[".gitattributes"]),
        lands_without(
            "head -c 300000 /dev/urandom > a.bin; git add .; git commit -q -m 1",
            &[".git/hooks"],
            &[".git/lfs/objects", "a.bin"],
        ),
        lands_without("git lfs fsck; git lfs ls-files | grep a.bin", &[".git/hooks"], &[]),
    ],
    ..TOUR
};
