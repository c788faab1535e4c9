"""Checks of what `bench/engine` computes, without a server: `bench/engine --self-test`."""
import os, tempfile, types, unittest
from unittest import mock

from . import alone, grid, jobs, limits, phases, report, shapes, sides, workloads

FOUND = {"cpu_s": 0.5, "machine_cpu_s": 2.0, "bytes": 2 * 10**9, "operations": 1000, "mb_s": 800.0, "operations_s": 400.0, "p50_us": 1, "p99_us": 2, "max_us": 3}


def result(value, cpu=1.0):
    return {"value": value, "cpu": cpu, "client_cpu": cpu, "machine_cpu": 2 * cpu, "cpu_s_per_gb": cpu}


def summary(rows, values, cpu=None):
    """values: {row: {side: value}}"""
    runs = {row: {side: [result(value, (cpu or {}).get(side, 1.0))] for side, value in sides.items()} for row, sides in values.items()}
    return report.summarise(runs, rows)


class Figures(unittest.TestCase):
    def test_cpu_is_in_the_unit_of_the_row_and_for_a_gb_and_an_operation(self):
        found = jobs.rate(FOUND, 4.0, "MB/s")
        self.assertEqual((found["value"], found["cpu"], found["client_cpu"], found["machine_cpu"]), (800.0, 2.0, 0.25, 1.0))
        self.assertEqual((found["cpu_s_per_gb"], found["cpu_us_per_op"]), (2.0, 4000.0))
        self.assertEqual(jobs.rate(FOUND, 4.0, "op/s")["cpu"], 4000.0)

    def test_removed_files_have_the_times_of_files(self):
        found = dict(FOUND, bytes=0, operations=0, files=10, files_s=5.0, file_us={"p50_us": 7, "p99_us": 8, "max_us": 9})
        figures = jobs.rate(found, 1e-5, "files/s")
        self.assertEqual((figures["value"], round(figures["cpu"], 6), figures["p99_us"]), (5.0, 1.0, 8))
        self.assertNotIn("cpu_s_per_gb", figures)


class Mixture(unittest.TestCase):
    def test_the_total_is_the_sum_of_the_phases(self):
        parts = {phase: jobs.figures(dict(FOUND, seconds=0.5), 1.0, 0.5, 1) for phase in phases.PHASES}
        rows = phases.summed("phases", parts)
        self.assertEqual(set(rows), set(workloads.rows(["phases"])))
        self.assertEqual((rows["phases"]["value"], rows["phases"]["cpu"], rows["phases-scan"]["value"]), (3.0, 6.0, 0.5))

    def test_sizes_follow_from_the_memory(self):
        memory = 512 << 20
        options = {phase: work.options() for phase, work in phases.works(memory)}
        value = lambda phase, option: int(options[phase][options[phase].index(option) + 1])
        self.assertEqual(list(options), list(phases.PHASES))
        self.assertEqual(value("write", "--files") * value("write", "--file-bytes") * value("write", "--streams"), memory // 2)
        self.assertEqual(value("scan", "--file-bytes"), 2 * memory)
        self.assertEqual(value("reread", "--file-bytes") * value("reread", "--streams"), memory // 4)
        self.assertEqual(value("rewrite", "--bytes") * value("rewrite", "--streams"), memory // 16)


class FakeSide:
    """Notes what forebay-load is told."""

    def __init__(self):
        self.works, self.drops, self.warms = [], 0, 0

    def run(self, work):
        self.works.append(work.options())
        return dict(FOUND, files=5, files_s=2.0), 1.0

    def drop_all(self):
        self.drops += 1

    def drop(self, _work):
        self.drops += 1

    def warm(self, _work):
        self.warms += 1

    def files(self):
        return []


class Shapes(unittest.TestCase):
    opt = types.SimpleNamespace(size=1024, files=1600)

    def test_each_job_fills_its_rows_and_removes_its_files(self):
        for name, job in shapes.JOBS.items():
            side = FakeSide()
            found = job.measure(name, side, self.opt)
            self.assertEqual(list(found), list(job.rows(name)))
            self.assertIn("remove", side.works[-1])
            self.assertEqual(side.drops, 1 if "%s-read" % name in found and name != "mdtest-hard" else 0)

    def test_bytes_are_compared_before(self):
        for name, job in shapes.JOBS.items():
            side = FakeSide()
            job.prepare(name, side, self.opt, set())
            self.assertEqual(["--verify" in options for options in side.works[:2]], [True, True])

    def test_ior_hard_has_whole_rounds_of_all_streams(self):
        options = shapes.ior_hard("write", "x", 1 << 30).options()
        self.assertEqual(int(options[options.index("--file-bytes") + 1]) % (16 * 47008), 0)
        self.assertEqual(options[options.index("--stride") + 1], str(16 * 47008))

    def test_segments_of_vpic_are_as_long_as_each_other(self):
        options = shapes.vpic(32 << 10)("write", "x", 1 << 30).options()
        self.assertEqual((int(options[options.index("--file-bytes") + 1]) - 2104) % (16 * (32 << 10)), 0)
        self.assertIn("--segments", options)

    def test_extents_are_those_of_the_large_files(self):
        with tempfile.TemporaryDirectory() as place:
            small, large = os.path.join(place, "small"), os.path.join(place, "large")
            for path, count in ((small, 1), (large, 1 << 20)):
                with open(path, "wb") as f:
                    f.write(bytes(count))
            self.assertIsNone(shapes.extents([small, place]))
            answer = types.SimpleNamespace(stdout="%s: 3 extents found\n" % large)
            with mock.patch.object(shapes.shutil, "which", return_value="filefrag"), mock.patch.object(shapes.subprocess, "run", return_value=answer) as run:
                self.assertEqual(shapes.extents([small, large]), 3)
            self.assertEqual(run.call_args.args[0], ["filefrag", large])


class Grid(unittest.TestCase):
    opt = types.SimpleNamespace(size=1024, grid_size=256, seconds=1)

    def test_there_is_a_cell_for_each_kind_number_of_streams_and_length(self):
        self.assertEqual(len(grid.JOBS), 4 * 2 * 7)
        self.assertEqual(len(grid.QUICK_JOBS), 4 * 2 * 3)
        for name, cell in grid.JOBS.items():
            work = cell.work(self.opt)
            total = work.bytes() * cell.streams
            self.assertLessEqual(work.bytes(), work.file_bytes(), name)
            self.assertGreaterEqual(work.bytes(), cell.block if cell.pattern != "random" else cell.block // 2, name)
            self.assertLessEqual(total, max(cell.block, 4096) * grid.REQUESTS, name)

    def test_cold_files_are_dropped_once_and_hot_ones_are_in_memory(self):
        for name, found in (("grid-cold-1x1m", (1, 0)), ("grid-random-16x4k", (1, 0)), ("grid-hot-1x4k", (0, 1)), ("grid-write-1x4k", (0, 0))):
            side = FakeSide()
            grid.JOBS[name].measure(name, side, self.opt)
            self.assertEqual(((side.drops, side.warms), len(side.works)), (found, 1), name)

    def test_cells_with_as_many_streams_read_the_same_files(self):
        paths = {name: cell.work(self.opt).path() for name, cell in grid.JOBS.items()}
        self.assertEqual(set(paths.values()), {"grid-new-1", "grid-new-16", "grid-file-1", "grid-file-16"})


class FakeEngine(alone.Engine):
    """Notes what forebay-load is told."""

    def __init__(self):
        super().__init__("/nowhere", "direct")
        self.runs, self.steps = [], []

    def run(self, options):
        self.runs.append(options)
        self.steps.append("run")
        return dict(FOUND, cpu_s=0, decisions=[{"bytes": 1}]), 0.5

    def files(self):
        return ["data/%d" % len(self.runs)]

    def drop(self, work):
        self.steps.append("drop " + self.made[work.path()][0])

    def warm(self, work):
        self.steps.append("warm " + self.made[work.path()][0])


def value(options, option):
    return options[options.index(option) + 1]


class Alone(unittest.TestCase):
    opt = types.SimpleNamespace(size=1024, seconds=2)

    def side(self):
        return types.SimpleNamespace(name="direct", alone=FakeEngine())

    def test_each_job_fills_its_row_and_has_compared_its_bytes(self):
        side, done = self.side(), set()
        for name, job in alone.JOBS.items():
            job.prepare(name, side, self.opt, done)
        compared = [(value(run, "--replica"), value(run, "--operation")) for run in side.alone.runs if "--verify" in run]
        replicas = {value(job.work(self.opt).options(), "--replica") for job in alone.JOBS.values()}
        self.assertEqual(sorted(compared), sorted((replica, operation) for replica in replicas for operation in ("read", "write")))
        for name, job in alone.JOBS.items():
            found = job.measure(name, side, self.opt)
            self.assertEqual(list(found), list(job.rows(name)))
            self.assertNotIn("--verify", side.alone.runs[-1])
            self.assertEqual((found[name]["client_cpu"], found[name]["decisions"]), (0, [{"bytes": 1}]), name)

    def test_cold_replicas_are_dropped_before_each_run_and_hot_ones_are_in_memory(self):
        for name, steps in (("alone-read-cold", ["drop data/1", "run", "drop data/1", "run"]), ("alone-read-hot", ["warm data/1", "run"]), ("alone-write-4k", ["run"])):
            side = self.side()
            alone.JOBS[name].prepare(name, side, self.opt, set())
            side.alone.steps.clear()
            alone.JOBS[name].measure(name, side, self.opt)
            self.assertEqual(side.alone.steps, steps, name)

    def test_sets_of_replicas_do_not_overlap(self):
        ranges = {}
        for job in alone.JOBS.values():
            work = job.work(self.opt)
            ranges[work.path()] = int(value(work.options(), "--replica"))
            self.assertLessEqual(job.streams, alone.REPLICAS_MAX)
        self.assertEqual(len({first // alone.REPLICAS_MAX for first in ranges.values()}), len(ranges))

    def test_writers_of_one_replica_have_segments_of_whole_blocks_behind_the_header(self):
        for name in ("alone-vpic-32k", "alone-vpic-1m"):
            options = alone.JOBS[name].work(self.opt).options()
            block = int(value(options, "--block"))
            self.assertEqual((int(value(options, "--file-bytes")) - 2104) % (16 * block), 0)
            self.assertEqual((value(options, "--offset"), value(options, "--streams")), ("2104", "16"))
            for option in ("--shared", "--segments", "--truncate"):
                self.assertIn(option, options)

    def test_cpu_is_of_the_process_and_of_the_machine_at_least_as_much(self):
        for machine, expected in ((0.25, 0.5), (0.75, 0.75)):
            line = dict(FOUND, machine_cpu_s=machine, sizes={"write": 1})
            with mock.patch.object(sides, "generate", return_value=line) as generate:
                engine = alone.Engine("/pool", "calibrated")
                found, cpu = engine.run(["--x"])
            self.assertEqual((found["machine_cpu_s"], found["cpu_s"], cpu), (expected, 0, 0.5))
            self.assertEqual(generate.call_args.args[0], ["engine", "--directory", "/pool", "--mode", "calibrated", "--x"])
            self.assertEqual(engine.described(), {"calibrated": {"write": 1}})

    def test_the_modes_alone_do_it_and_need_no_server(self):
        job = alone.JOBS["alone-read-hot"]
        self.assertTrue(all(side.can(job) for side in sides.MODES))
        self.assertFalse(any(side.can(job) for side in sides.SIDES))
        modes = types.SimpleNamespace(sides=sides.MODES, jobs=list(alone.JOBS))
        self.assertEqual(workloads.serving(modes), [])
        self.assertEqual(workloads.serving(types.SimpleNamespace(sides=sides.MODES, jobs=["alone-read-hot", "read-hot"])), sides.MODES)
        workloads.check_sides(modes)
        with self.assertRaisesRegex(SystemExit, "--modes"):
            workloads.check_sides(types.SimpleNamespace(sides=sides.SIDES, jobs=list(alone.JOBS)))
        workloads.check_sides(types.SimpleNamespace(sides=sides.SIDES, jobs=list(workloads.JOBS)))


class Targets(unittest.TestCase):
    rows = workloads.rows(["phases", "read-cold", "write-stream", *alone.JOBS])

    def lines(self, values, cpu=None, limits=()):
        return "\n".join(report.targets(summary({row: self.rows[row] for row in values}, values, cpu), dict(limits)))

    def test_the_best_fixed_mode_counts_and_less_time_is_better(self):
        text = self.lines({"phases": {"calibrated": 1.0, "buffered": 1.2, "direct": 1.5}})
        self.assertIn("phases: calibrated of the best fixed mode >= 1.30: 1.20  MISSED", text)
        self.assertIn("1.40  met", self.lines({"phases": {"calibrated": 1.0, "buffered": 1.4, "direct": 1.5}}))

    def test_a_row_below_the_best_fixed_mode_is_named_and_the_others_are_counted(self):
        text = self.lines({"read-cold": {"calibrated": 90, "buffered": 50, "paper": 100}, "write-stream": {"calibrated": 96, "buffered": 100}})
        self.assertIn("read-cold: calibrated of the best fixed mode >= 0.95: 0.90  MISSED", text)
        self.assertNotIn("write-stream: calibrated", text)
        self.assertIn("1 of 2 rows", text)

    def test_a_row_whose_rounds_overlap_is_marked(self):
        text = lambda row, ours, theirs: "\n".join(report.targets(report.summarise({row: {"calibrated": [result(v) for v in ours], "buffered": [result(v) for v in theirs]}}, self.rows), {}))
        self.assertIn("MISSED, but rounds overlap", text("read-cold", (70, 80, 96), (90, 100, 110)))
        self.assertIn("of the others, the rounds of 0 overlap", text("read-cold", (70, 80, 84), (90, 100, 110)))
        times = lambda ours, theirs: report.summarise({"phases": {"calibrated": [result(v) for v in ours], "buffered": [result(v) for v in theirs]}}, self.rows)["phases"]
        self.assertTrue(report.overlaps(times((1.0, 1.2), (0.8, 1.0))))
        self.assertFalse(report.overlaps(times((1.2, 1.3), (0.8, 1.0))))

    def test_a_row_that_misses_shows_its_decisions(self):
        decisions = sides.growth({("read", "direct", "contended"): (1, 100)}, {("read", "direct", "contended"): (4, 400), ("read", "buffered", "small"): (2, 700),
                                                                             ("write", "direct", "large-write"): (0, 0)})
        self.assertEqual([(row["reason"], row["operations"], row["bytes"]) for row in decisions], [("small", 2, 700), ("contended", 3, 300)])
        runs = {"read-cold": {"calibrated": [result(1), dict(result(1), decisions=decisions)], "buffered": [result(2), result(2)]}}
        text = "\n".join(report.targets(report.summarise(runs, self.rows), {}))
        self.assertIn("MISSED  (buffered small: 70 %, direct contended: 30 %)", text)

    def test_cpu_of_direct_is_compared_with_and_without_the_receiving(self):
        text = self.lines({"write-stream": {"buffered": 1, "direct": 1}}, {"buffered": 1.1, "direct": 0.2}, {report.RECEIVING: 0.1})
        self.assertIn("CPU of direct beside buffered <= 0.20: 0.18  met", text)
        self.assertIn("without receiving the bytes (0.100 s/GB) <= 0.20: 0.10  met", text)
        self.assertIn("1.00  MISSED", self.lines({"write-stream": {"buffered": 1, "direct": 1}}))

    def test_the_engine_alone_has_the_same_targets_and_receives_nothing(self):
        text = self.lines({"alone-write-stream": {"buffered": 1, "direct": 1}}, {"buffered": 1.0, "direct": 0.1}, {report.RECEIVING: 0.05})
        self.assertIn("alone-write-stream: CPU of direct beside buffered <= 0.20: 0.10  met", text)
        self.assertIn("the same of the whole machine with the kernel's threads <= 0.20: 0.10  met", text)
        self.assertNotIn("receiving", text)
        values = {"alone-vpic-32k": {"calibrated": 31, "buffered": 10}, "alone-vpic-1m": {"calibrated": 29, "buffered": 10}, "alone-read-hot": {"calibrated": 94, "buffered": 100}}
        text = self.lines(values)
        self.assertIn("alone-vpic-32k: calibrated of buffered >= 3.00: 3.10  met", text)
        self.assertIn("alone-vpic-1m: calibrated of buffered >= 3.00: 2.90  MISSED", text)
        self.assertIn("alone-read-hot: calibrated of buffered >= 0.95: 0.94  MISSED", text)

    def test_ratios_of_times_are_how_often_ours_fits_into_the_other(self):
        found = summary(self.rows, {"phases": {"calibrated": 1.0, "buffered": 2.0}})
        self.assertEqual(found["phases"]["ratios"]["calibrated / buffered"]["rate"]["of_medians"], 2.0)

    def test_a_table_has_all_rows_and_sides(self):
        found = summary(self.rows, {"phases": {"calibrated": 1.0, "buffered": 2.0}, "read-cold": {"calibrated": 3.0}})
        text = report.table(found, ["calibrated", "buffered"], {"x": 0.25}, [{"busy_before": 0.5}])
        for words in ("phases", "read-cold", "buffered", "x 0.25", "NOT CALM", "calibrated / buffered"):
            self.assertIn(words, text)

    def test_ratios_of_many_rows_are_in_the_json_alone(self):
        values = {name: {"calibrated": 1.0, "buffered": 2.0} for name in grid.JOBS}
        found = summary(grid.JOBS, values)
        self.assertNotIn("calibrated / buffered", report.table(found, ["calibrated", "buffered"], {}, [{"busy_before": 0}]))
        self.assertIn("calibrated / buffered", found["grid-hot-1x4k"]["ratios"])


class Limits(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.own = os.path.join(self.dir.name, "own")

    def write(self, name, text):
        with open(os.path.join(self.dir.name, name), "w") as f:
            f.write(text)

    def test_a_controller_of_version_2_is_taken_and_switched_on(self):
        self.write("cgroup.controllers", "cpu memory\n")
        self.assertEqual(limits.place(self.dir.name, self.own), (self.dir.name, "memory.max", "max"))
        self.assertEqual(limits.read(os.path.join(self.dir.name, "cgroup.subtree_control")), "+memory\n")

    def test_a_controller_of_version_1_is_taken_below_the_own_group(self):
        self.write("own", "5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n")
        self.assertEqual(limits.place(self.dir.name, self.own), (self.dir.name + "/memory/a/b", "memory.limit_in_bytes", -1))

    def test_memory_of_the_process_itself_is_read_from_both_versions(self):
        self.assertEqual(limits.own_bytes("anon 4096\nfile 1\n"), 4096)
        self.assertEqual(limits.own_bytes("cache 1\nrss 8192\nrss_huge 0\n"), 8192)

    def test_a_limit_that_the_process_itself_would_fill_is_refused(self):
        group = limits.MemoryGroup.__new__(limits.MemoryGroup)
        group.path, group.file = self.dir.name, "memory.max"
        self.write("memory.stat", "anon %d\n" % (300 << 20))
        with self.assertRaisesRegex(SystemExit, "at least 600"):
            group.limit(512)
        group.limit(600)
        self.assertEqual(limits.read(os.path.join(self.dir.name, "memory.max")), "%d\n" % (600 << 20))

    def test_without_a_controller_nothing_is_limited(self):
        self.write("own", "0::/\n")
        with self.assertRaises(limits.CannotLimit):
            limits.place(self.dir.name, self.own)


class Choice(unittest.TestCase):
    def chosen(self, workload=(), only=(), quick=False):
        return workloads.chosen(types.SimpleNamespace(workload=list(workload), only=list(only), quick=quick))

    def test_a_workload_has_its_jobs_and_only_takes_patterns(self):
        self.assertEqual(self.chosen(), list(jobs.JOBS))
        self.assertEqual(self.chosen(["all"]), list(workloads.JOBS))
        self.assertEqual(self.chosen(only=["read-hot*", "phases"]), ["read-hot", "read-hot8", "phases"])
        self.assertEqual(self.chosen(["streams", "grid"], quick=True), list(jobs.JOBS) + grid.QUICK_JOBS)
        with self.assertRaises(SystemExit):
            self.chosen(only=["nothing-*"])
