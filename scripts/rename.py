#!/usr/bin/env python3
"""Applies scripts/renames.tsv to the sources: whole words only, in the paths of each row. Safe to run again.

A row is `paths<TAB>old<TAB>new`; `paths` is a space-separated list of folders or files, `old` a word or a regular
expression between slashes. Used while part G rebuilds the crates, so that a branch written before a rename can be
brought up to it before it is merged.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENDINGS = {".rs"}


def files(paths):
    for name in paths.split():
        path = ROOT / name
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.suffix in ENDINGS)


def main():
    changed = 0
    for line in (ROOT / "scripts/renames.tsv").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        paths, old, new = line.split("\t")
        pattern = re.compile(old[1:-1] if old.startswith("/") else rf"\b{re.escape(old)}\b")
        for file in files(paths):
            before = file.read_text()
            after = pattern.sub(new, before)
            if after != before:
                file.write_text(after)
                changed += 1
    print(f"{changed} edits", file=sys.stderr)


if __name__ == "__main__":
    main()
