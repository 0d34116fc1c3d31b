#!/usr/bin/env python3
"""The layering check itself: what it must accept and what it must refuse, on small made-up trees."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).with_name("layering.py")


def run(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = pathlib.Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run([sys.executable, CHECK, folder], capture_output=True, text=True)
        return done.returncode, done.stdout


class Layering(unittest.TestCase):
    base = {"common/status.h": "#pragma once\n", "quant/codec.h": '#pragma once\n#include "common/status.h"\n'}

    def test_downwards_is_fine(self):
        self.assertEqual(run(self.base)[0], 0)

    def test_upwards_is_refused(self):
        code, text = run(self.base | {"common/bad.cc": '#include "quant/codec.h"\n'})
        self.assertEqual(code, 1)
        self.assertIn('common/ must not include "quant/codec.h"', text)

    def test_sideways_is_refused(self):
        self.assertEqual(run(self.base | {"topology/bad.h": '#pragma once\n#include "quant/codec.h"\n'})[0], 1)

    def test_a_bare_name_is_refused(self):
        self.assertEqual(run(self.base | {"quant/bad.cc": '#include "codec.h"\n'})[0], 1)

    def test_a_missing_file_is_refused(self):
        self.assertEqual(run(self.base | {"quant/bad.cc": '#include "quant/gone.h"\n'})[0], 1)

    def test_a_header_without_guard_is_refused(self):
        self.assertEqual(run(self.base | {"quant/bad.h": "int x;\n"})[0], 1)

    def test_an_empty_tree_is_refused(self):
        self.assertEqual(run({})[0], 1)


if __name__ == "__main__":
    unittest.main()
