"""Checks of the drawing, by the text of the figures: `bench/plots --self-test`."""
import unittest
from xml.etree import ElementTree

from creates.plots import COLOURS, NothingToDraw

from . import grid, phases, plots, workloads

SVG = "{http://www.w3.org/2000/svg}"
MODES = ["calibrated", "buffered", "uncached", "direct", "paper", "beegfs"]


def row(values, unit="MB/s", is_time=False):
    """values: {side: median}; the rounds lie a tenth below and above."""
    return {"unit": unit, "less_is_better": is_time, "sides": {
        side: {"values": [0.9 * value, value, 1.1 * value], "median": value, "cpu": {"unit": "s/GB", "values": [value / 1000] * 3, "median": value / 1000}}
        for side, value in values.items()}}


def run_of(jobs, **more):
    return {"date": "2026-11-28T00:00:00+00:00", "host": {"cpu": "A <fast> CPU & more", "cores": 2, "kernel": "6.18", "file_system": "ext4"}, "rounds": 3,
            "jobs": jobs, **more}


ALL = {side: 100.0 * (i + 1) for i, side in enumerate(MODES)}
STREAMS = run_of({"read-hot": row(ALL), "write-stream": row(ALL)})
PHASES = run_of(dict({"phases": row({side: 21.0 for side in MODES}, "s", True)},
                     **{"phases-" + phase: row({side: i + 1.0 for side in MODES}, "s", True) for i, phase in enumerate(phases.PHASES)}), memory_limit={"mib": 512})
GRID = run_of({name: row(ALL) for name in grid.JOBS})


def tree(run, name):
    return ElementTree.fromstring(plots.figures(run)[name])


def bars(root):
    """The bars without those of the legend: [(look, left, width)]."""
    found = [each for each in root.iter(SVG + "rect") if each.get("class", "").startswith("bar ")]
    return [(each.get("class").split()[1], float(each.get("x")), float(each.get("width"))) for each in found]


def words(root):
    return [element.text for element in root.iter(SVG + "text")]


class Drawing(unittest.TestCase):
    def test_each_workload_has_a_figure_and_those_of_bars_have_one_of_cpu(self):
        every = run_of({name: row(ALL) for names in workloads.WORKLOADS.values() for job in names for name in workloads.JOBS[job].rows(job)})
        self.assertEqual(set(plots.figures(every)), {"streams", "streams-cpu", "phases", "shapes", "shapes-cpu", "grid", "alone", "alone-cpu"})

    def test_a_job_that_is_not_known_is_drawn_with_the_streams(self):
        self.assertIn("strange", words(tree(run_of({"strange": row(ALL)}), "streams")))

    def test_a_result_without_jobs_draws_nothing(self):
        with self.assertRaises(NothingToDraw):
            plots.figures(run_of({}))

    def test_title_has_machine_and_date_and_marks_a_busy_run(self):
        found = words(tree(STREAMS, "streams"))
        self.assertIn("A <fast> CPU & more, 2 cores, Linux 6.18, ext4. 2026-11-28", found[1])
        self.assertNotIn("NOT CALM", found[1])
        self.assertIn("NOT CALM: 60 %", words(tree(dict(STREAMS, calm=[{"busy_before": 0.6}]), "streams"))[1])

    def test_the_number_of_rounds_is_written(self):
        self.assertIn("medians of 3 rounds,", words(tree(STREAMS, "streams"))[2])
        self.assertIn("medians of 1 round,", words(tree(dict(STREAMS, rounds=1), "streams"))[2])

    def test_nothing_is_cut_off_at_the_right(self):
        for run in (STREAMS, PHASES, GRID):
            for drawn in plots.figures(run).values():
                root = ElementTree.fromstring(drawn)
                for element in root.iter(SVG + "text"):
                    if element.get("text-anchor") == "start" and element.get("class") != "head":
                        self.assertLessEqual(float(element.get("x")) + len(element.text) * 6, float(root.get("width")), element.text)

    def test_sides_have_a_colour_each_and_the_legend_names_them(self):
        for run, name in ((STREAMS, "streams"), (GRID, "grid")):
            root = tree(run, name)
            self.assertEqual(len({plots.sides_of(run["jobs"])[side] for side in MODES}), len(MODES))
            for side in MODES:
                self.assertEqual(words(root).count(side), 1)

    def test_a_side_that_is_not_known_gets_a_colour_that_is_free(self):
        looks = plots.sides_of({"x": row({"calibrated": 1.0, "mine": 2.0})})
        self.assertIn(looks["mine"], COLOURS)
        self.assertNotEqual(looks["mine"], looks["calibrated"])


class Shares(unittest.TestCase):
    def test_a_bar_for_each_row_and_side_as_long_as_its_share_of_the_best(self):
        found = bars(tree(STREAMS, "streams"))
        self.assertEqual(len(found), 2 * len(MODES))
        widths = [width for _, _, width in found[:len(MODES)]]
        self.assertAlmostEqual(widths[-1], plots.WIDTH / 1.25, delta=0.1)      # the axis ends behind the highest round
        for place, width in enumerate(widths):
            self.assertAlmostEqual(width / widths[-1], (place + 1) / len(MODES), delta=0.01)
        self.assertIn("1 = 600 MB/s", words(tree(STREAMS, "streams")))

    def test_cpu_has_its_unit(self):
        self.assertIn("1 = 0.6 s/GB", words(tree(STREAMS, "streams-cpu")))

    def test_the_shortest_time_is_the_longest_bar(self):
        found = bars(tree(run_of({"strange": row({"buffered": 2.0, "direct": 1.0}, "s", True)}), "streams"))
        self.assertAlmostEqual(found[0][2] / found[1][2], 0.5, delta=0.01)

    def test_zero_and_a_side_that_is_missing_can_be_drawn(self):
        found = bars(tree(run_of({"read-hot": row({"buffered": 0.0}), "write-stream": row(ALL)}), "streams"))
        self.assertEqual(len(found), 1 + len(MODES))


class Mixture(unittest.TestCase):
    def test_phases_follow_each_other_in_one_bar_for_each_side(self):
        found = bars(tree(PHASES, "phases"))
        self.assertEqual(len(found), len(MODES) * len(phases.PHASES))
        first = found[:len(phases.PHASES)]
        for (_, left, width), (_, following, _) in zip(first, first[1:]):
            self.assertAlmostEqual(left + width + 1, following, delta=0.2)
        self.assertEqual(len({look for look, _, _ in first}), len(phases.PHASES))
        self.assertAlmostEqual(first[5][2] / first[2][2], 2, delta=0.05)

    def test_the_sum_and_the_limit_are_written(self):
        found = words(tree(PHASES, "phases"))
        self.assertEqual(found.count("21 s"), len(MODES))
        self.assertIn("512 MiB", found[2])
        self.assertIn("No limit", words(tree(dict(PHASES, memory_limit=None), "phases"))[2])


class Grid(unittest.TestCase):
    def test_a_panel_for_each_kind_and_number_of_streams_with_a_line_for_each_side(self):
        root = tree(GRID, "grid")
        lines = list(root.iter(SVG + "polyline"))
        self.assertEqual(len(lines), 4 * 2 * len(MODES))
        self.assertTrue(all(len(line.get("points").split()) == len(grid.BLOCKS) for line in lines))
        for title in ("write, 1 stream", "random, 16 streams"):
            self.assertIn(title, words(root))

    def test_the_faster_side_is_higher(self):
        lines = list(tree(GRID, "grid").iter(SVG + "polyline"))[:len(MODES)]
        heights = [float(line.get("points").split()[0].split(",")[1]) for line in lines]
        self.assertEqual(heights, sorted(heights, reverse=True))

    def test_a_part_of_the_cells_can_be_drawn(self):
        root = tree(run_of({"grid-hot-1x1m": row(ALL)}), "grid")
        self.assertEqual(len(list(root.iter(SVG + "polyline"))), len(MODES))
