"""The functions of the package, with the program in `HABITAT_TUI_PROGRAM`."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import habitat_tui
from habitat_tui import _program

FIXTURES = pathlib.Path(__file__).parent.parent / "fixtures"
STEP = FIXTURES / "v1/profile.habitat.json"


class Commands(unittest.TestCase):
    def test_a_prediction_is_what_the_program_prints(self):
        found = habitat_tui.predict(gpus=["h100-sxm", "l4"])
        self.assertEqual((found["format"], found["version"]), ("habitat-predictions", 2))
        gpus = [row["gpu"] for row in found["predictions"]]
        self.assertEqual(gpus, ["h100-sxm5-80gb", "l4"])
        rows = found.rows()
        self.assertEqual([row["gpu"] for row in rows], gpus)
        self.assertEqual(rows[1]["step_time_us_mid"], found["predictions"][1]["step_time_us"]["mid"])
        frame = found.frame().set_index("gpu")
        self.assertLess(frame.loc["h100-sxm5-80gb", "step_time_us_mid"], frame.loc["l4", "step_time_us_mid"])
        shown = found._repr_html_()
        self.assertTrue(shown.startswith("<iframe srcdoc=") and "bert-large" in shown)
        self.assertNotIn("<script", shown)

    def test_files_and_flags(self):
        one = habitat_tui.predict(str(STEP), "l4", precision="bf16")
        self.assertEqual(one["predictions"], habitat_tui.predict(STEP, ["l4"], precision="bf16")["predictions"])
        self.assertNotIn("operations", one["predictions"][0])
        self.assertIn("operations", habitat_tui.predict(STEP, "l4", operations=True)["predictions"][0])

    def test_plans(self):
        found = habitat_tui.plan(steps="1M", deadline="30d", accept=["marketplace"])
        self.assertEqual(found["status"], "optimal")
        self.assertGreater(found.rows()[0]["cost_usd_mid"], 0)
        self.assertIn("limits", found)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "plan.html"
            found.save(path)
            self.assertIn("</html>", path.read_text(encoding="utf-8"))
        none = habitat_tui.plan(steps="1M", budget=1)
        self.assertTrue(none["reasons"] and not none.rows())

    def test_an_error_has_the_message_of_the_program(self):
        with self.assertRaisesRegex(habitat_tui.HabitatError, r"^missing\.json: no such file") as raised:
            habitat_tui.predict("missing.json")
        self.assertEqual(raised.exception.code, 2)
        with self.assertRaisesRegex(habitat_tui.HabitatError, 'no GPU "nosuch" in the catalog .near'):
            habitat_tui.predict(gpus="nosuch")
        none = habitat_tui.plan(steps="100M", budget=1)
        self.assertIn("budget", json.dumps(none["reasons"]) + json.dumps(none["rejected"]))
        self.assertNotRegex(json.dumps(none), "--[a-z]")
        for words, refused in (
            ("argument 'no_such_flag' found$", lambda: habitat_tui.predict(no_such_flag=3)),
            ("for 'batch_size': a step processes", lambda: habitat_tui.predict(gpus="l4", batch_size=0)),
            ("pass samples, steps, epochs with dataset, or tokens", habitat_tui.plan),
        ):
            with self.assertRaisesRegex(habitat_tui.HabitatError, words) as raised:
                refused()
            self.assertNotRegex(str(raised.exception), "--[a-z]")
        with self.assertRaisesRegex(TypeError, "belong to a model"):
            habitat_tui.predict(len, inputs=[1])

    def test_a_file_that_begins_with_a_dash_is_a_file(self):
        with self.assertRaisesRegex(habitat_tui.HabitatError, "no such file"):
            habitat_tui.predict("-x.json")

    def test_warnings_are_warnings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "step.habitat.json"
            path.write_text(STEP.read_text().replace('"workload": {', '"new": 1, "workload": {', 1))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                habitat_tui.predict(path, "l4")
                habitat_tui.diff(path, STEP)
        self.assertGreater(len(caught), 1)
        self.assertEqual([warning.filename for warning in caught], [__file__] * len(caught))
        self.assertTrue(all(issubclass(warning.category, habitat_tui.HabitatWarning) for warning in caught))

    def test_flags(self):
        given = {"to": ["a", "b"], "operations": True, "x": None, "y": False, "max_parts": 3, "arg": {"k": 1, "m": 2}}
        words = ["--to=a,b", "--operations", "--max-parts=3", "--arg=k=1", "--arg=m=2"]
        self.assertEqual(_program.flags(given), words)

    def test_a_missing_program_is_named(self):
        environment = dict(os.environ, PATH="", HABITAT_TUI_PROGRAM="")
        code = "import habitat_tui; habitat_tui.predict()"
        ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        self.assertIn("reinstall the wheel", ended.stderr)

    def test_the_module_is_the_program(self):
        ended = subprocess.run([sys.executable, "-m", "habitat_tui", "--version"], capture_output=True, text=True)
        self.assertRegex(ended.stdout, r"^habitat-tui \d")


if __name__ == "__main__":
    unittest.main()
