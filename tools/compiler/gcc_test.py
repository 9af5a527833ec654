#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Objects are those of gcc, whether headers were precompiled or could not be."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

_WRAPPER = pathlib.Path(__file__).resolve().parent / "gcc"
_SOURCES = 5  # more than are compiled without precompiled headers


class GccTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self._folder = pathlib.Path(scratch.name)
        shutil.copy(_WRAPPER, self._folder / "gcc")
        (self._folder / "common.h").write_text("#include <cstdint>\n#include <utility>\n")
        (self._folder / "common_test.h").write_text('#include "common.h"\n#include <string>\n')
        (self._folder / "ours.h").write_text("#include <utility>\nint Ours(int);\n")
        for i in range(_SOURCES):
            (self._folder / f"s{i}.cc").write_text(
                f'#include "ours.h"\nint Ours(int x) {{ return std::exchange(x, {i}); }}\n')

    def _compile(self, compiler, source, *more):
        done = subprocess.run(
            [compiler, "-std=c++20", "-O2", "-frandom-seed=s", "-MD", "-MF", "out.d", *more, "-c",
             source, "-o", "out.o"], cwd=self._folder, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return (self._folder / "out.o").read_bytes(), (self._folder / "out.d").read_text()

    def _expect_objects_of_gcc(self):
        for i in range(_SOURCES):
            ours, _ = self._compile(self._folder / "gcc", f"s{i}.cc")
            theirs, _ = self._compile("/usr/bin/gcc", f"s{i}.cc")
            self.assertEqual(ours, theirs)

    def _precompiled(self):
        return sorted((self._folder / "headers").glob("*/common.h.gch"))

    def test_objects_are_those_of_gcc(self):
        self._expect_objects_of_gcc()
        self.assertEqual(len(self._precompiled()), 1)

    def test_tests_have_headers_of_their_own(self):
        (self._folder / "gtest").mkdir()
        (self._folder / "gtest/gtest.h").write_text("int Test();\n")
        for i in range(_SOURCES):
            test = self._folder / f"s{i}_test.cc"
            test.write_text(f'#include "gtest/gtest.h"\nint Test() {{ return {i}; }}\n')
            ours, _ = self._compile(self._folder / "gcc", test.name, "-iquote", ".")
            theirs, _ = self._compile("/usr/bin/gcc", test.name, "-iquote", ".")
            self.assertEqual(ours, theirs)
            self._compile(self._folder / "gcc", f"s{i}.cc")
        self.assertEqual(len(self._precompiled()), 2)

    def test_what_gcc_refuses_is_not_told_as_read(self):
        for i in range(_SOURCES):
            self._compile(self._folder / "gcc", f"s{i}.cc")
        self._precompiled()[0].write_text("not a precompiled header")
        ours, read = self._compile(self._folder / "gcc", "s4.cc")
        theirs, _ = self._compile("/usr/bin/gcc", "s4.cc")
        self.assertEqual(ours, theirs)
        self.assertIn("ours.h", read)
        self.assertIn("s4.cc", read)
        self.assertNotIn("common.h", read)

    def test_other_flags_have_headers_of_their_own(self):
        for i in range(_SOURCES):
            self._compile(self._folder / "gcc", f"s{i}.cc")
            self._compile(self._folder / "gcc", f"s{i}.cc", "-DOTHER=1")
        self.assertEqual(len(self._precompiled()), 2)

    def test_headers_that_do_not_compile_cost_only_time(self):
        (self._folder / "common.h").write_text("#error no\n")
        self._expect_objects_of_gcc()
        self.assertEqual(self._precompiled(), [])

    def test_headers_that_cannot_be_kept_cost_only_time(self):
        (self._folder / "headers").write_text("where the folder would be")
        self._expect_objects_of_gcc()

    def test_what_fails_with_precompiled_headers_is_compiled_without(self):
        (self._folder / "common.h").write_text("#define Ours(x) no\n")
        self._expect_objects_of_gcc()
        self.assertEqual(len(self._precompiled()), 1)

    def test_a_source_that_does_not_compile_fails(self):
        for i in range(_SOURCES):
            self._compile(self._folder / "gcc", f"s{i}.cc")
        (self._folder / "bad.cc").write_text("int f() { return }\n")
        done = subprocess.run([self._folder / "gcc", "-std=c++20", "-O2", "-c", "bad.cc"],
                              cwd=self._folder, capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("bad.cc:1", done.stderr)


if __name__ == "__main__":
    unittest.main()
