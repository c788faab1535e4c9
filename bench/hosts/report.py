"""Medians, verdicts and the table of `bench/cluster`."""
import statistics

SCHEMA = 1
# Figures of a machine that was busier than this before half of the runs settle nothing.
BUSY_MAX = 0.25
MET, MISSED, UNDECIDED = "met", "missed", "undecided"


def spread(values):
    """Between the quartiles."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return third - first


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "spread": spread(values), "values": list(values)}


def differing(ours, other):
    """By how much ours is higher in each round, as a share of the other."""
    differences = [a / b - 1 for a, b in zip(ours, other)]
    return {"difference": statistics.median(differences), "spread": spread(differences), "per_round": differences,
            "rounds_over_zero": sum(difference > 0 for difference in differences)}


def compared(ours, other, goal, noise=0.0):
    """A cost of both sides in each round. `goal`: ours may be so much higher, as a share of the other. `noise`: two equal sides differ by so much.

    Undecided: the rounds do not all lie on one side of the goal, or the spread or the noise is larger than the distance of the median to it.
    """
    found = differing(ours, other)
    are_over = [difference > goal for difference in found["per_round"]]
    distance = abs(found["difference"] - goal)
    is_clear = len(set(are_over)) == 1 and max(found["spread"], abs(noise)) <= distance
    verdict = UNDECIDED if not is_clear else MISSED if found["difference"] > goal else MET
    return dict({"goal": goal}, **found, rounds_over_goal=sum(are_over), verdict=verdict)


def at_most(found, bound):
    """Of a figure without noise around its bound."""
    return {"bound": bound, "found": found, "verdict": MET if found <= bound else MISSED}


def rounded(value, digits=4):
    if isinstance(value, float):
        return float("%.*g" % (digits, value))
    if isinstance(value, dict):
        return {key: rounded(each, digits) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each, digits) for each in value]
    return value


def table(found, calm):
    parts = {"calls": of_calls, "cpu": of_cpu, "silence": of_silence, "restarts": of_restarts, "streams": of_streams}
    lines = []
    for figure, part in found.items():
        lines += [""] + list(parts[figure](part))
    busy = statistics.median(each["busy_before"] for each in calm) if calm else 0
    if busy > BUSY_MAX:
        lines += ["", "the machine was NOT CALM: half of the runs began with %.0f %% of its CPUs busy" % (100 * busy)]
    return "\n".join(lines[1:])


def of_calls(part):
    yield "calls of the head to pools per operation"
    for name, row in part.items():
        procedures = ", ".join("%s %d" % pair for pair in row["by_procedure"].items())
        yield "  %-26s %6.2f  %-8s %s" % (name, row["per_operation"], row.get("verdict", ""), procedures)


def of_cpu(part):
    yield "CPU of the head per operation, us: median; cluster beside one process, spread of the rounds; a second process beside the first; with the pool hosts"
    for name, row in part["jobs"].items():
        head, control = row["head"], row["control"]
        yield "  %-7s one %8.2f  cluster %8.2f  %+6.1f %% +- %4.1f  goal <= %+.0f %%: %-9s  control %+6.1f %% +- %4.1f  with pools %+6.1f %%" % (
            name, row["one"]["median"], row["cluster"]["median"], 100 * head["difference"], 100 * head["spread"], 100 * head["goal"], head["verdict"],
            100 * control["difference"], 100 * control["spread"], 100 * row["with_pools"]["difference"])


def of_silence(part):
    yield "a silent pool: suspect after %.1f s, out after %.1f s, ready %.1f s after it goes on" % tuple(part[key]["median"] for key in ("suspect_s", "out_s", "ready_again_s"))
    yield "  %-28s %10s %10s  answers while the pool was silent" % ("", "longest s", "waits s")
    for name, row in part["operations"].items():
        outcomes = {}
        for phase in ("until_suspect", "until_out", "while_out"):
            for outcome, count in row["phases"].get(phase, {"outcomes": {}})["outcomes"].items():
                outcomes[outcome] = outcomes.get(outcome, 0) + count
        target = "  %s (< %g s)" % (row["target"]["verdict"], row["target"]["bound"]) if "target" in row else ""
        yield "  %-28s %10.2f %10.2f  %s%s" % (name, row["longest_s"]["max"], row["waits_s"]["max"], ", ".join("%s %d" % pair for pair in outcomes.items()), target)


def of_restarts(part):
    yield "killed and started again at once, s: median (longest)"
    for name, row in part.items():
        yield "  %-5s %s" % (name, "  ".join("%s %.2f (%.2f)" % (key[:-2], row[key]["median"], row[key]["max"]) for key in row if key != "refusals"))


def of_streams(part):
    yield "streams: CPU s/GB of the process that has the pool, MB/s"
    for name, row in part["jobs"].items():
        sides = "  ".join("%s %.3f (%.0f MB/s, bound %.0f %%)" % (side, each["cpu_s_per_gb"]["median"], each["mb_s"]["median"], 100 * row["bound_share"][side]["median"])
                          for side, each in row["sides"].items())
        beside = row["cluster_beside_one"]
        yield "  %-5s %s  cluster %+.1f %% +- %.1f" % (name, sides, 100 * beside["difference"], 100 * beside["spread"])
    bound = part["sendfile"]
    yield "  bound: sendfile %.3f s/GB, receiving %.3f s/GB (%.0f MB/s)" % tuple(bound[key]["median"] for key in ("cpu_s_per_gb", "receive_cpu_s_per_gb", "mb_s"))
