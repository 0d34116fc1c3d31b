#!/usr/bin/env python3
"""Sums JUnit files into one closing line: count_tests.py FAILED_STEPS FILE... Exits 1 when anything failed or nothing ran."""
import pathlib
import sys
import xml.etree.ElementTree as tree


def main():
    failed_steps, files = int(sys.argv[1]), sys.argv[2:]
    passed = failed = skipped = 0
    for file in filter(lambda f: pathlib.Path(f).is_file(), files):
        for case in tree.parse(file).getroot().iter("testcase"):
            status = case.get("status")
            if status == "run":
                passed += 1
            elif status in ("notrun", "disabled"):
                skipped += 1
            else:
                failed += 1
    # A step that failed without a failing test (a build, the format) counts as one failure.
    failed = max(failed, failed_steps)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
