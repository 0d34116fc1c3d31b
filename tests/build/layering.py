#!/usr/bin/env python3
"""Holds the direction of dependency between the folders, and that each file in the tree is clean to include.

    layering.py ROOT

Every #include "folder/..." must point downwards. Prints each offence and exits 1; prints a count and exits 0 otherwise.
"""
import pathlib
import re
import sys

# What each folder may include. Folders on top may use everything and are used by nobody.
LIBRARIES = {
    "common": {"common"},
    "quant": {"common", "quant"},
    "topology": {"common", "topology"},
    "collectives": {"common", "quant", "topology", "collectives"},
    "zero": {"common", "quant", "topology", "collectives", "zero"},
}
TOPS = ["cli", "bench", "tests", "adapters", "examples"]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
# Libraries whose own documentation includes them with quotes, and headers that the build writes.
EXTERNAL = {"hwy"}
GENERATED = {"cli/version.h"}
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def allowed(folder):
    if folder in LIBRARIES:
        return LIBRARIES[folder]
    return set(LIBRARIES) | {folder} | ({"cli"} if folder in ("tests", "bench") else set())


def offences(root):
    files = 0
    for folder in list(LIBRARIES) + TOPS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            files += 1
            text = path.read_text()
            name = path.relative_to(root)
            if path.suffix == ".h" and "#pragma once" not in text and "HWY_TARGET_TOGGLE" not in text:
                yield f"{name}: a header without #pragma once"
            for included in INCLUDE.findall(text):
                parts = pathlib.PurePath(included).parts
                if parts[0] in EXTERNAL or included in GENERATED:
                    continue
                if len(parts) < 2:
                    yield f'{name}: #include "{included}" must name its folder'
                elif parts[0] not in allowed(folder):
                    yield f'{name}: {folder}/ must not include "{included}"'
                elif not (root / included).is_file():
                    yield f'{name}: #include "{included}" does not exist'
    if files == 0:
        yield f"{root}: no sources found"


def main():
    if len(sys.argv) != 2:
        print("usage: layering.py ROOT", file=sys.stderr)
        return 2
    found = list(offences(pathlib.Path(sys.argv[1])))
    print("\n".join(found) if found else "layering: every include points downwards")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
