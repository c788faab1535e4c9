"""Checks of the drawing, by the text of the figures: `bench/plots --self-test`."""
import unittest
from xml.etree import ElementTree

from . import plots

SVG = "{http://www.w3.org/2000/svg}"
CREATORS = [1, 2, 4, 8, 16, 32, 64]


def run_of(rates, directories="shared", **more):
    """A result with the rate of each (level, mode) and one creator, twice as high for each doubling of creators."""
    figures = [{"level": level, "mode": mode, "directories": directories, "creators": n, "rate": rate * n, "rates": [rate * n * 0.9, rate * n, rate * n * 1.1]}
               for (level, mode), rate in rates.items() for n in CREATORS]
    return {"date": "2026-11-22T04:33:00+00:00", "host": {"cpu": "A <fast> CPU & more", "cores": 2, "kernel": "6.18", "file_system": "ext4"},
            "levels": {"a": "the namespace alone", "b": "through NFS, native client", "c": "mdtest", "pgbench": "PostgreSQL, dCache's statements"}, "figures": figures, **more}


BOTH = run_of({("a", "durable"): 100.0, ("a", "interval"): 300.0})


def tree(run, directories="shared", **how):
    return ElementTree.fromstring(plots.figure(run, directories, **how))


def lines(root):
    """The polylines of the plot, without the samples of the legend: [(class, dashes, [(x, y)])]."""
    found = [line for line in root.iter(SVG + "polyline") if "key" not in line.get("class").split()]
    return [(line.get("class"), line.get("stroke-dasharray"), [tuple(map(float, pair.split(","))) for pair in line.get("points").split()]) for line in found]


def words(root):
    return [element.text for element in root.iter(SVG + "text")]


class Drawing(unittest.TestCase):
    def test_one_line_for_each_level_and_mode_with_a_point_for_each_number(self):
        found = lines(tree(BOTH))
        self.assertEqual([len(points) for _, _, points in found], [7, 7])
        self.assertEqual({dash for _, dash, _ in found}, {None, "6 4"})

    def test_a_doubling_of_creators_is_always_as_wide(self):
        xs = [x for x, _ in lines(tree(BOTH))[0][2]]
        steps = [b - a for a, b in zip(xs, xs[1:])]
        self.assertLess(max(steps) - min(steps), 0.3)

    def test_every_point_lies_in_the_plot_and_the_faster_is_higher(self):
        for scale in ("linear", "log"):
            for _, _, points in lines(tree(BOTH, scale=scale)):
                ys = [y for _, y in points]
                self.assertEqual(ys, sorted(ys, reverse=True))
                self.assertTrue(all(plots.TOP <= y <= plots.TOP + plots.HEIGHT for y in ys), ys)
                self.assertTrue(all(plots.LEFT <= x <= plots.LEFT + plots.WIDTH for x, _ in points))

    def test_rates_that_differ_much_are_drawn_on_a_log_scale_and_the_axis_says_so(self):
        near, far = run_of({("a", "durable"): 100.0}), run_of({("a", "durable"): 100.0, ("pgbench", "durable"): 1.0})
        near["figures"] = near["figures"][:3]
        self.assertIn("creates per second", words(tree(near)))
        self.assertIn("creates per second (log scale)", words(tree(far)))

    def test_both_figures_of_a_run_have_the_same_axes(self):
        run = run_of({("a", "durable"): 100.0})
        run["figures"] += [each | {"rate": 1.0, "rates": [1.0]} for each in run_of({("a", "durable"): 1.0}, "own")["figures"]]
        numbers = [[text for text in words(tree(run, directories))[3:] if text[0].isdigit()] for directories in plots.TITLES]
        self.assertEqual(*numbers)

    def test_title_says_machine_date_and_durability(self):
        title, machine, durability = words(tree(BOTH))[:3]
        self.assertIn("one directory", title)
        self.assertIn("A <fast> CPU & more, 2 cores, Linux 6.18, ext4. 2026-11-22", machine)
        self.assertIn("on disk when answered", durability)
        self.assertIn("power cut", durability)
        self.assertNotIn("power cut", words(tree(BOTH, modes=["durable"]))[2])

    def test_a_run_on_a_busy_machine_is_marked(self):
        self.assertNotIn("NOT CALM", words(tree(BOTH | {"runs": [{"busy_before": 0.05}]}))[1])
        self.assertIn("NOT CALM: 60 %", words(tree(BOTH | {"runs": [{"busy_before": 0.6}]}))[1])

    def test_axes_have_ticks_and_units(self):
        found = words(tree(run_of({("a", "durable"): 1000.0}), scale="linear"))
        for tick in ["1", "2", "4", "8", "16", "32", "64", "0", "20,000", "80,000", "concurrent creators (log2 scale)"]:
            self.assertIn(tick, found)

    def test_nothing_is_cut_off_at_the_right(self):
        every = run_of({(level, mode): 10.0 for level in ("a", "b", "pgbench") for mode in ("durable", "interval")})
        root = tree(every)
        wide = float(root.get("width"))
        for element in root.iter(SVG + "text"):
            if element.get("text-anchor") == "start":
                self.assertLessEqual(float(element.get("x")) + len(element.text) * 6, wide, element.text)

    def test_legend_names_each_line_once_and_one_and_two_clients_differ(self):
        run = run_of({("c", "durable"): 1.0})
        run["figures"] = [each | {"clients": clients, "rate": each["rate"] * clients} for each in run["figures"] for clients in (1, 2)]
        root = tree(run)
        self.assertEqual([text for text in words(root) if text.startswith("mdtest")], ["mdtest, 2 clients, durable", "mdtest, 1 client, durable"])
        self.assertEqual(len({kind for kind, _, _ in lines(root)}), 2)

    def test_modes_of_one_level_have_each_a_colour_and_a_dash(self):
        found = lines(tree(run_of({("a", mode): 1.0 for mode in ("strong", "weak", "soft", "auto")})))
        self.assertEqual([len(set(kinds)) for kinds in zip(*[(kind, dash) for kind, dash, _ in found])], [4, 4])

    def test_a_level_that_is_not_known_is_drawn_too(self):
        self.assertEqual(len(lines(tree(run_of({("z", "durable"): 1.0, ("a", "durable"): 1.0})))), 2)

    def test_only_the_levels_and_directories_asked_for(self):
        run = run_of({("a", "durable"): 1.0, ("b", "durable"): 1.0})
        self.assertEqual(len(lines(tree(run, levels=["b"]))), 1)
        with self.assertRaises(plots.NothingToDraw):
            plots.figure(run, "own")

    def test_one_point_alone_and_a_rate_of_zero_can_be_drawn(self):
        run = run_of({("a", "durable"): 5.0})
        run["figures"] = run["figures"][:1] + [run["figures"][1] | {"rate": 0.0, "rates": [0.0]}]
        for scale in ("linear", "log"):
            self.assertEqual([len(points) for _, _, points in lines(tree(run, scale=scale))], [1])


class Scales(unittest.TestCase):
    def test_steps_are_one_two_or_five(self):
        self.assertEqual([plots.nice(step) for step in (0.9, 1, 1.1, 2.5, 7, 3300)], [1, 1, 2, 5, 10, 5000])

    def test_log_ticks_hold_both_ends(self):
        self.assertEqual(plots.log_ticks(150, 4200), [100, 200, 500, 1000, 2000, 5000])
        self.assertEqual(plots.log_ticks(100, 100), [100, 200])


class Themes(unittest.TestCase):
    def test_lines_and_letters_stand_out_from_the_ground_in_both(self):
        for theme in (0, 1):
            for name, colours in plots.COLOURS.items():
                self.assertGreaterEqual(contrast(colours[theme], plots.GROUND[theme]), 3, name)
            for letters in (plots.INK, plots.FAINT):
                self.assertGreaterEqual(contrast(letters[theme], plots.GROUND[theme]), 4.5)

    def test_dark_has_a_rule_for_every_colour(self):
        dark = plots.style().split("prefers-color-scheme:dark", 1)[1]
        for look, (_, colour) in plots.COLOURS.items():
            self.assertIn(".%s{stroke:%s" % (look, colour), dark)


def contrast(one, other):
    """The ratio of luminances, as WCAG 2 defines it."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
