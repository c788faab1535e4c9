"""Checks of what `bench/cluster` computes, without a server: `bench/cluster --self-test`."""
import struct, types, unittest

from . import calls, client, cpu, report, restarts, silence, transfers, writers
from driver.nfs_client import words


class Verdicts(unittest.TestCase):
    def verdict(self, differences, goal=0.02):
        return report.compared([100 * (1 + d) for d in differences], [100] * len(differences), goal)["verdict"]

    def test_rounds_on_one_side_of_the_goal_decide(self):
        self.assertEqual(self.verdict([-0.10, -0.11, -0.09]), report.MET)
        self.assertEqual(self.verdict([0.10, 0.11, 0.09]), report.MISSED)

    def test_rounds_on_both_sides_of_the_goal_do_not(self):
        self.assertEqual(self.verdict([0.01, 0.00, 0.03]), report.UNDECIDED)
        self.assertEqual(self.verdict([-0.2, 0.9, -0.1]), report.UNDECIDED)

    def test_one_round_on_the_other_side_is_enough_for_that(self):
        self.assertEqual(self.verdict([-0.10] * 8 + [0.05]), report.UNDECIDED)

    def test_a_spread_larger_than_the_distance_to_the_goal_does_not(self):
        self.assertEqual(self.verdict([0.03, 0.30, 0.04, 0.28, 0.05]), report.UNDECIDED)

    def test_the_figures_of_a_comparison(self):
        found = report.compared([110, 120, 130], [100, 100, 100], 0.02)
        self.assertAlmostEqual(found["difference"], 0.2)
        self.assertAlmostEqual(found["spread"], 0.1)
        self.assertEqual((found["rounds_over_goal"], found["rounds_over_zero"]), (3, 3))

    def test_a_bound_is_met_up_to_itself(self):
        self.assertEqual([report.at_most(n, 0)["verdict"] for n in (0, 1)], [report.MET, report.MISSED])

    def test_numbers_are_rounded_at_any_depth(self):
        self.assertEqual(report.rounded({"a": [1.23456, {"b": 123456.7}], "c": 7, "d": "x"}), {"a": [1.235, {"b": 123500.0}], "c": 7, "d": "x"})


class Calls(unittest.TestCase):
    def test_only_procedures_that_were_called_are_told(self):
        row = calls.row({"MAKE": 3, "FACTS": 1}, {"MAKE": 13, "FACTS": 1, "FENCE": 2}, 10, None)
        self.assertEqual((row["calls"], row["per_operation"], row["by_procedure"]), (12, 1.2, {"MAKE": 10, "FENCE": 2}))
        self.assertNotIn("verdict", row)

    def test_one_call_misses_a_target_of_none(self):
        self.assertEqual(calls.row({"OPEN": 0}, {"OPEN": 1}, 100, 0)["verdict"], report.MISSED)
        self.assertEqual(calls.row({"OPEN": 5}, {"OPEN": 5}, 100, 0)["verdict"], report.MET)


class FakeSetup:
    """Its CPU grows with what its worker does."""

    def __init__(self, name, each_s, pools_s=0.0):
        self.name, self.each_s, self.pools_s, self.done = name, each_s, pools_s, 0
        self.pool_processes = [None] if pools_s else []

    def cpu_s(self):
        return self.done * self.each_s

    def pools_cpu_s(self):
        return self.done * self.pools_s


class FakeWorker:
    def __init__(self, setup, log):
        self.setup, self.log = setup, log

    def turn(self, _job, count):
        self.setup.done += count
        self.log.append(self.setup.name)


class Cpu(unittest.TestCase):
    def test_a_round_is_cpu_per_operation_of_turns_in_changing_order(self):
        log = []
        workers = [FakeWorker(FakeSetup("one", 20e-6), log), FakeWorker(FakeSetup("cluster", 10e-6, 5e-6), log)]
        found = cpu.one_round(workers, "open", 100, 4)
        self.assertEqual({key: round(value, 6) for key, value in found.items()}, {"one": 20, "cluster": 10, "pools": 5})
        self.assertEqual(log, ["one", "cluster", "cluster", "one", "cluster", "one", "one", "cluster"])

    def test_the_first_place_goes_round(self):
        log = []
        cpu.one_round([FakeWorker(FakeSetup(name, 1e-6), log) for name in "abc"], "open", 1, 6)
        self.assertEqual(["".join(log[at:at + 3]) for at in range(0, 18, 3)], ["abc", "bca", "cab", "cba", "acb", "bac"])

    def test_a_turn_has_whole_batches_and_enough_cpu(self):
        self.assertEqual(cpu.enough(FakeWorker(FakeSetup("one", 100e-6), []), "open", 0.2), 2000 // 32 * 32)
        self.assertEqual(cpu.enough(FakeWorker(FakeSetup("one", 1e-6), []), "create", 0.2), cpu.COUNT_MAX["create"])
        self.assertEqual(cpu.enough(FakeWorker(FakeSetup("one", 1.0), []), "list", 0.2), cpu.LISTS_AT_ONCE)
        self.assertEqual(cpu.enough(FakeWorker(FakeSetup("one", 1.0), []), "write", 0.2), cpu.COUNT_MIN["write"])

    def test_pool_hosts_count_beside_the_head(self):
        found = cpu.verdict_of([{"one": 100.0, "again": 101.0, "cluster": 50.0, "pools": 60.0}] * 3)
        self.assertEqual((found["head"]["verdict"], round(found["with_pools"]["difference"], 6)), (report.MET, 0.1))

    def test_two_equal_processes_that_differ_as_much_leave_it_undecided(self):
        found = cpu.verdict_of([{"one": 100.0, "again": 110.0, "cluster": 95.0, "pools": 0.0}] * 3)
        self.assertEqual(found["head"]["verdict"], report.UNDECIDED)


class Silence(unittest.TestCase):
    def probe(self, *found, under_way=None):
        return types.SimpleNamespace(found=list(found), under_way=under_way)

    def test_answers_belong_to_the_phase_in_which_they_were_asked_for(self):
        found = silence.by_phase(self.probe((9, 0.1, "OK"), (10, 2.5, "DELAY"), (14, 0.2, "DELAY"), (25, 0.5, "OK"), (41, 0.1, "OK")), 10, (13, 20.5, 40))
        self.assertEqual({phase: (row["answers"], row["longest_s"]) for phase, row in found["phases"].items()},
                         {"before": (1, 0.1), "until_suspect": (1, 2.5), "until_out": (1, 0.2), "while_out": (1, 0.5), "after": (1, 0.1)})
        self.assertEqual(found["phases"]["until_suspect"]["outcomes"], {"DELAY": 1})

    def test_the_wait_goes_from_the_first_refusal_to_the_success(self):
        found = silence.by_phase(self.probe((9, 0.1, "OK"), (10, 2, "DELAY"), (14, 1, "DELAY"), (25, 0.5, "OK")), 10, (13, 20, 40))
        self.assertEqual((found["waits_s"], found["longest_s"]), (15.5, 2))

    def test_a_wait_without_an_end_counts(self):
        self.assertEqual(silence.longest_wait([(0, 1, "OK"), (10, 2, "DELAY"), (20, 3, "DELAY")], 5), 13)

    def test_waits_that_ended_before_the_pool_stopped_do_not_count(self):
        self.assertEqual(silence.longest_wait([(0, 4, "OK"), (10, 1, "OK")], 5), 1)

    def test_an_answer_that_has_not_come_counts(self):
        found = silence.by_phase(self.probe((9, 0.1, "OK"), under_way=10.0), 10, (13, 20, 40))
        self.assertEqual(found["phases"]["until_suspect"]["outcomes"], {"no answer": 1})


class Waits(unittest.TestCase):
    def worker(self, successes):
        worker = writers.Worker.__new__(writers.Worker)
        worker.successes = successes
        return worker

    def test_the_longest_pause_that_ends_after_the_event_counts(self):
        self.assertEqual(self.worker([1, 5, 6, 9, 9.5]).wait_s(7), 3)
        self.assertEqual(self.worker([1, 5, 6, 6.5]).wait_s(6.2), 0.5)

    def test_rounds_of_a_restart_have_medians(self):
        rounds = [{"away_s": n, "writer_at_pool_s": 2 * n, "refusals": {"writer_at_pool_s": {"DELAY": n}}} for n in (1, 2, 3)]
        found = restarts.summarised(rounds)
        self.assertEqual((found["away_s"]["median"], found["writer_at_pool_s"]["max"], found["refusals"]), (2, 6, {"writer_at_pool_s": {"DELAY": 3}}))


class Streams(unittest.TestCase):
    def test_sides_are_compared_by_cpu_and_not_by_rate(self):
        run = lambda cost, rate: {"cpu_s_per_gb": cost, "head_cpu_s_per_gb": 0.0, "mb_s": rate, "bytes": 1}
        found = transfers.summarised({"one": [run(1.0, 100)] * 3, "cluster": [run(0.8, 1)] * 3}, [0.4] * 3)
        self.assertAlmostEqual(found["cluster_beside_one"]["difference"], -0.2)
        self.assertEqual((found["sides"]["cluster"]["mb_s"]["median"], found["bound_share"]["cluster"]["median"]), (1, 0.5))


def reply(status, *results):
    """A reply to call 7 on slot 3: `results` are operation, status and bytes."""
    body = b"".join(words(operation, own) + data for operation, own, data in results)
    return words(7 << 8 | 3, 1, 0, 0, 0, 0, status, 0, len(results)) + body


class Wire(unittest.TestCase):
    def test_results_of_an_open_are_found_behind_each_other(self):
        change = words(1) + bytes(16)
        opened = b"s" * 16 + change + words(0) + words(2, 0, 2) + words(3, 0)
        data = reply(0, (client.SEQUENCE, 0, bytes(36)), (client.PUTFH, 0, b""), (client.OPEN, 0, opened), (client.GETFH, 0, words(5) + b"abcde\0\0\0"))
        slot, status, results = client.parsed(data)
        self.assertEqual((slot, status, results[2:]), (3, 0, [b"s" * 16, b"abcde"]))

    def test_an_error_ends_the_results(self):
        _, status, results = client.parsed(reply(client.DELAY, (client.SEQUENCE, 0, bytes(36)), (client.PUTFH, 0, b""), (client.WRITE, client.DELAY, b"")))
        self.assertEqual((status, results[2]), (client.DELAY, None))
        self.assertEqual(client.failed_of((words(client.PUTFH), words(client.WRITE)), results), client.WRITE)

    def test_a_listing_is_read_to_its_end(self):
        entry = lambda name, cookie: words(1) + struct.pack(">Q", cookie) + client.opaque(name) + words(1, 1 << 4) + client.opaque(bytes(8))
        data = bytes(8) + entry("a", 3) + entry("bcd", 4) + words(0, 1)
        self.assertEqual(client.result_of(client.READDIR, client.Reader(data)), ({b"a": 3, b"bcd": 4}, True))

    def test_a_layout_names_its_pool_its_ticket_and_its_user(self):
        server = b"d" * 16 + words(0) + b"x" * 16 + words(1) + client.opaque(b"ticket") + client.opaque(b"17") + client.opaque(b"18")
        body = struct.pack(">Q", 0) + words(1, 1) + server + words(0, 0)
        data = words(1) + b"l" * 16 + words(1) + bytes(16) + words(1, client.FLEX_FILES) + client.opaque(body)
        layout = client.result_of(client.LAYOUTGET, client.Reader(data))
        self.assertEqual((layout.stateid, layout.device, layout.at_pool, layout.handle, layout.user, layout.group),
                         (b"l" * 16, b"d" * 16, b"x" * 16, b"ticket", 17, 18))

    def test_records_of_a_session_count_their_slots(self):
        session = client.Session.__new__(client.Session)
        session.id, session.slots, session.user, session.xid = b"i" * 16, [0] * client.SLOTS, (0, 0), 0
        first, second = session.record(2, (words(client.PUTROOTFH),)), session.record(2, (words(client.PUTROOTFH),))
        self.assertEqual(len(first), struct.unpack(">I", first[:4])[0] - (1 << 31) + 4)
        sequence = words(client.SEQUENCE) + b"i" * 16
        self.assertIn(sequence + words(1, 2), first)
        self.assertIn(sequence + words(2, 2), second)
