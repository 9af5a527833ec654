#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every check of the house reports what it is there for, and nothing else."""

import pathlib
import tempfile
import unittest

import documents
import functions
import house
import layering
import sizes
import words

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class HouseTest(unittest.TestCase):

    def _tree(self, files):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for name, text in files.items():
            path = pathlib.Path(directory.name) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return directory.name

    def _find(self, check, files):
        return check(self._tree(files))


class SizesTest(HouseTest):

    def test_file_of_601_lines_is_reported_and_one_of_600_is_not(self):
        findings = self._find(sizes.FileLengths, {"stack/wire/a.cc": "\n" * 600,
                                                  "stack/wire/b.cc": "\n" * 601})
        self.assertEqual(findings, ["stack/wire/b.cc: 601 lines, the limit is 600"])

    def test_test_file_may_have_800_lines(self):
        findings = self._find(sizes.FileLengths, {"stack/wire/a_test.cc": "\n" * 800,
                                                  "tests/b.cc": "\n" * 801})
        self.assertEqual(findings, ["tests/b.cc: 801 lines, the limit is 800"])

    def test_line_of_101_columns_is_reported(self):
        findings = self._find(sizes.Columns, {"api/a.h": "x" * 100 + "\n" + "y" * 101})
        self.assertEqual(findings, ["api/a.h:2: 101 columns, the limit is 100"])

    def test_function_of_61_lines_is_reported_and_one_of_60_is_not(self):
        body = lambda lines: "{\n" + "  Step();\n" * (lines - 2) + "}\n"
        findings = self._find(sizes.FunctionLengths, {
            "xtreme/nic/a.cc": "namespace x {\nvoid Long() " + body(61) + "void Short() " + body(60)
                               + "}  // namespace x\n"})
        self.assertEqual(findings, ["xtreme/nic/a.cc:2: Long has 61 lines, the limit is 60"])

    def test_function_that_nests_four_deep_is_reported(self):
        three = "for (;;) { if (a) { while (b) { Step(); } } }"
        findings = self._find(sizes.Nesting, {
            "xtreme/nic/a.cc": f"void Three() {{ {three} }}\n"
                               f"void Four() {{ if (x) {{ {three} }} }}"})
        self.assertEqual(findings, ["xtreme/nic/a.cc:2: Four nests 4 deep, the limit is 3"])

    def test_header_that_reaches_21_headers_through_others_is_reported(self):
        files = {f"stack/base/h{i}.h": f'#include "stack/base/h{i + 1}.h"\n' for i in range(21)}
        files["stack/base/h21.h"] = "#include <vector>\n"
        findings = self._find(sizes.FanOut, files)
        self.assertEqual(findings, ["stack/base/h0.h: reaches 21 headers of the project, "
                                    "the limit is 20"])


class LayeringTest(HouseTest):

    def _arrow(self, path, included):
        return self._find(layering.Arrows, {path: f'#include "{included}"\n'})

    def test_include_that_goes_up_is_reported(self):
        for path, included in (("stack/ip/a.cc", "xtreme/nic/nic.h"),
                               ("stack/base/a.h", "stack/wire/udp.h"),
                               ("stack/wire/a.h", "stack/packet/buffer.h"),
                               ("stack/ip/a.h", "stack/udp/endpoint.h"),
                               ("xtreme/nic/a.h", "api/xtreme.h"),
                               ("xtreme/host/a.cc", "xtreme/engine/ring.h"),
                               ("xtreme/engine/a.cc", "xtreme/mlx5/device.h"),
                               ("xtreme/mlx5/a.cc", "tools/connectx/device/device.h"),
                               ("api/a.cc", "samples/feed/itch.h"),
                               ("samples/feed/a.h", "stack/wire/udp.h"),
                               ("xtreme/mlx5/a_test.cc", "tools/connectx/device/device.h"),
                               ("stack/udp/a_test.cc", "xtreme/nic/nic.h")):
            with self.subTest(path=path, included=included):
                findings = self._arrow(path, included)
                self.assertEqual(len(findings), 1, findings)
                self.assertTrue(findings[0].startswith(f"{path}:1: "), findings)
                self.assertIn(included, findings[0])

    def test_include_that_goes_down_or_stays_is_not_reported(self):
        for path, included in (("stack/udp/a.cc", "stack/ip/neighbours.h"),
                               ("xtreme/engine/a.cc", "stack/udp/endpoint.h"),
                               ("xtreme/mlx5/a.cc", "xtreme/nic/nic.h"),
                               ("xtreme/mlx5/a_test.cc", "tests/net/namespace.h"),
                               ("stack/wire/a_fuzz.cc", "tests/fuzz/input.h"),
                               ("api/a.cc", "xtreme/mlx5/device.h"),
                               ("samples/feed_handler/a.cc", "samples/feed/itch.h"),
                               ("tests/end_to_end/a.cc", "stack/wire/udp.h"),
                               ("stack/wire/a.cc", "gtest/gtest.h")):
            with self.subTest(path=path, included=included):
                self.assertEqual(self._arrow(path, included), [])

    def test_file_in_an_unknown_package_is_reported(self):
        self.assertEqual(len(self._find(layering.Arrows, {"stack/quic/a.cc": ""})), 1)

    def test_reading_the_environment_below_the_api_is_reported(self):
        text = '// getenv is not called\nauto a = "getenv";\nauto b = std::getenv("B");\n'
        findings = self._find(layering.Environment, {"stack/base/a.cc": text, "tools/a.cc": text})
        self.assertEqual(findings, ["stack/base/a.cc:3: reads the environment"])

    def test_public_header_with_abseil_is_reported(self):
        text = '#include <string>\n#include "absl/status/status.h"\n'
        findings = self._find(layering.PublicHeaders, {"api/x.hpp": text, "api/x.cc": text})
        self.assertEqual(findings, ["api/x.hpp:2: a public header includes absl/status/status.h"])

    def test_missing_licence_line_is_reported(self):
        findings = self._find(layering.Heads, {"api/a.cc": "// A file.\n" + SPDX, "api/b.cc": SPDX})
        self.assertEqual(findings, ["api/a.cc: the first line is not the SPDX line"])

    def test_guard_that_is_not_the_path_is_reported(self):
        good = SPDX + "#ifndef XTREME_STACK_WIRE_UDP_H_\n#define XTREME_STACK_WIRE_UDP_H_\n"
        findings = self._find(layering.Heads, {"stack/wire/udp.h": good, "stack/wire/tcp.h": good})
        self.assertEqual(findings,
                         ["stack/wire/tcp.h: the include guard is not XTREME_STACK_WIRE_TCP_H_"])

    def test_c_comment_and_the_name_of_the_project_said_once_are_accepted(self):
        text = ("/* SPDX-License-Identifier: Apache-2.0 */\n"
                "#ifndef XTREME_NIC_A_H_\n#define XTREME_NIC_A_H_\n")
        self.assertEqual(self._find(layering.Heads, {"xtreme/nic/a.h": text}), [])


class WordsTest(HouseTest):

    def test_note_of_unfinished_work_is_reported_in_every_kind_of_text(self):
        for path in ("api/a.cc", "docs/a.md", "tools/demo", "a/BUILD.bazel"):
            with self.subTest(path=path):
                findings = self._find(words.Unfinished, {path: "fine\n# TODO: more\nXXXXXX\n"})
                self.assertEqual(findings, [f"{path}:2: unfinished: TODO"])

    def test_test_that_does_not_run_is_reported(self):
        text = "TEST(A, DISABLED_B) {}\nTEST(A, C) { GTEST_SKIP(); }\n"
        findings = self._find(words.NotRun, {"api/a_test.cc": text})
        self.assertEqual(findings, ["api/a_test.cc:1: a test that may not run: DISABLED_B",
                                    "api/a_test.cc:2: a test that may not run: GTEST_SKIP"])

    def test_using_directive_and_goto_are_reported(self):
        findings = self._find(words.Directives,
                              {"api/a.cc": "using namespace std;\nvoid F() { goto end; }\n"})
        self.assertEqual(findings, ["api/a.cc:1: using namespace", "api/a.cc:2: goto"])


class DocumentsTest(HouseTest):

    SOURCE = {"samples/a.cc": "int F() {\n  int a = 1;\n  Use(a);\n  return a;\n}\n"}

    def test_snippet_that_a_source_has_otherwise_indented_is_not_reported(self):
        for code in ("int a = 1;\nUse(a);\n", "int a = 1;\n// ... use it ...\nreturn a;\n"):
            document = {"docs/a.md": f"See:\n\n```c++\n{code}```\n"}
            self.assertEqual(self._find(documents.Snippets, self.SOURCE | document), [])

    def test_snippet_that_no_source_has_is_reported(self):
        for code in ("int a = 1;\nreturn a;\n", "int a = 1;\n// ...\nreturn b;\n"):
            document = {"docs/a.md": f"See:\n\n```c++\n{code}```\n"}
            self.assertEqual(self._find(documents.Snippets, self.SOURCE | document),
                             ["docs/a.md:3: this code stands in no source"])


class ExemptionsTest(HouseTest):

    BAD = {"api/a.cc": SPDX + "using namespace std;\n"}

    def test_excused_finding_is_not_reported(self):
        excuse = {house.EXEMPTIONS: "# why\nDirectives api/a.cc because\n"}
        self.assertEqual(house.Check(self._tree(self.BAD | excuse)), [])

    def test_excuse_is_for_one_check_and_one_file(self):
        excuse = {house.EXEMPTIONS: "Columns api/a.cc because\n"}
        findings = house.Check(self._tree(self.BAD | excuse))
        self.assertEqual(len(findings), 2, findings)

    def test_excuse_without_a_reason_is_reported(self):
        excuse = {house.EXEMPTIONS: "Directives api/a.cc\n"}
        self.assertEqual(len(house.Check(self._tree(self.BAD | excuse))), 2)

    def test_every_check_is_run_by_name(self):
        self.assertEqual(house.Check(self._tree(self.BAD)),
                         ["Directives api/a.cc:2: using namespace"])


class StraysTest(HouseTest):

    def test_what_is_not_the_projects_is_reported(self):
        findings = self._find(layering.Strays, {"notes.txt": "", "README.md": "", "api/a.cc": "",
                                                "a.out": "", "old/b.cc": ""})
        self.assertEqual([finding.split(":")[0] for finding in findings],
                         ["a.out", "notes.txt", "old"])

    def test_what_git_ignores_is_not_reported(self):
        findings = self._find(layering.Strays, {".gitignore": "/bazel-*\n*.pcapng\n",
                                                "bazel-out/x": "", "a.pcapng": "", "b.pcap": ""})
        self.assertEqual(findings, ["b.pcap: does not belong into the root"])


class FunctionsTest(unittest.TestCase):

    def _names(self, text):
        return [(f.name, f.lines) for f in functions.Functions(text)]

    def test_constructor_with_braced_member_initialisers_is_one_function(self):
        text = "Ring::Ring(int a) noexcept\n  : a_{a}, b_(2),\n    c_{} {\n}"
        self.assertEqual(self._names(text), [("Ring::Ring", 4)])

    def test_members_of_classes_are_found_and_fields_are_not(self):
        text = ("class alignas(64) A : public B {\n public:\n  int f() const {\n  }\n"
                "  int g_ = 1;\n  int h_{2};\n"
                "  bool operator==(const A& o) const { return true; }\n};")
        self.assertEqual(self._names(text), [("f", 2), ("operator==", 1)])

    def test_tables_and_enums_are_not_functions(self):
        self.assertEqual(self._names("constexpr Row kRows[] = {\n {1, F(2)},\n};\n"
                                     "enum class E : int { kA = 1 };\nstruct S { int a; };"), [])

    def test_braces_in_comments_literals_and_directives_do_not_count(self):
        text = ("// {\n#define X {\nint F() {\n  auto a = '{';\n"
                "  return \"{\" R\"({\n)\";  /* { */\n}\nint G(int n = 1'000) { return n; }")
        self.assertEqual(self._names(text), [("F", 5), ("G", 1)])

    def test_default_arguments_and_trailing_types_are_part_of_the_head(self):
        self.assertEqual(self._names("auto F(A a = {}, B b = {1})\n    -> int {\n}"), [("F", 3)])

    def test_templates_operators_and_linkage_blocks_are_understood(self):
        self.assertEqual(self._names('extern "C" {\nint f(void) { return 0; }\n}\n'
                                     "template <class T>\nvoid A<T>::G() {}\n"
                                     'extern "C" int h() { return 1; }'),
                         [("f", 1), ("A<T>::G", 2), ("h", 1)])

    def test_test_is_named_with_its_arguments(self):
        self.assertEqual(self._names("TEST_F(A,\n       B) {\n}"), [("TEST_F(A, B)", 3)])

    def test_nesting_counts_what_a_reader_has_to_remember(self):
        for body, depth in (("Step();", 0),
                            ("if (a) return;", 1),
                            ("if (a) { } else if (b) { } else { }", 1),
                            ("for (;;)\n if (a) Step();", 2),
                            ("switch (a) { case 1: { Step(); } default: if (b) Step(); }", 2),
                            ("auto f = [&] { if (a) Step(); };", 1),
                            ("if (a) { Each([&](int b) { while (b) Step(); }); }", 2),
                            ("do { Step(); } while (a);", 1),
                            ("if (a) { } if (b) { }", 1),
                            ("if constexpr (A) { for (int b : c) { } }", 2),
                            ("{ { Step(); } }", 0)):
            with self.subTest(body=body):
                found = functions.Functions("void F() { " + body + " }")
                self.assertEqual([f.nesting for f in found], [depth])


if __name__ == "__main__":
    unittest.main()
