"""The figures of a run of bench/engine as SVG, the sides beside each other: one for each workload, and one for its CPU.

Colours, letters and marks are those of the figures of bench/create.
"""
import math
from xml.sax.saxutils import escape

from creates.plots import COLOURS, LETTER, NothingToDraw, circumstances, mark, nice, stroke, style, text

from . import grid, phases, workloads

# By side, not by its place in the list.
LOOKS = {"calibrated": "a", "buffered": "b", "uncached": "p", "direct": "c1", "paper": "c2", "beegfs": "pgbench", "forebay": "a", "forebay-head": "p", "sendfile": "b",
         "nfs-ganesha": "c2", "before": "pgbench"}
LEFT, TOP, WIDTH, RIGHT = 180, 110, 530, 150
BAR, GAP, BETWEEN = 8, 2, 18
PANEL, PANEL_TOP = (330, 150), 130
TITLES = {"streams": "Streams", "phases": "Mixture of phases", "shapes": "Shapes of known benchmarks", "grid": "Streams, lengths and kinds of access",
          "alone": "The engine without a server"}


def figures(run):
    """{suffix of the name: SVG} of all workloads in the result."""
    by_workload = {}
    for name, row in run["jobs"].items():
        by_workload.setdefault(WORKLOAD_OF.get(name, workloads.DEFAULT), {})[name] = row
    if not by_workload:
        raise NothingToDraw("the result has no jobs")
    out = {}
    for workload, rows in by_workload.items():
        out[workload] = {"phases": mixture, "grid": panels}.get(workload, shares)(run, workload, rows)
        if workload not in ("phases", "grid"):
            out[workload + "-cpu"] = shares(run, workload, rows, is_cpu=True)
    return out


WORKLOAD_OF = {row: workload for workload, jobs in workloads.WORKLOADS.items() for name in jobs for row in workloads.JOBS[name].rows(name)}


def sides_of(rows):
    """In the order of the result, with a look each."""
    sides = list(dict.fromkeys(side for row in rows.values() for side in row["sides"]))
    free = [look for look in COLOURS if look not in {LOOKS.get(side) for side in sides}] or list(COLOURS)
    others = iter(free * len(sides))
    return {side: LOOKS.get(side) or next(others) for side in sides}


def whole(run, title, about, size, parts, legend):
    """The SVG around the parts of a figure, with title, machine, and a line that explains."""
    words = [title, circumstances(run, [each["busy_before"] for each in run.get("calm", [])]), about]
    width = round(max(size[0], 30 + max(map(len, words)) * LETTER))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">' % (2 * (width, size[1])),
           '<title id="title">%s</title>' % escape(". ".join(words)), style(), '<rect class="ground" width="%d" height="%d"/>' % (width, size[1])]
    out += [text(20, 28 + 20 * i, line, "head" if i == 0 else "faint", "start") for i, line in enumerate(words)]
    left = 20
    for name, look in legend.items():
        out += [bar(left, 82, 12, look, name, "key"), text(left + 18, 92, name, "", "start")]
        left += 40 + len(name) * LETTER
    return "\n".join(out + parts + ["</svg>", ""])


def rounds(run):
    count = run.get("rounds", 0)
    return "%d round%s" % (count, "" if count == 1 else "s")


def bar(left, top, width, look, about, kind="bar", height=BAR + 4):
    return '<rect class="%s %s" x="%.1f" y="%.1f" width="%.1f" height="%g" style="fill:currentColor;stroke:none"><title>%s</title></rect>' % (
        kind, look, left, top, max(width, 0.5), height, escape(about))


def scale(ticks, at, bottom, form="%g"):
    """An axis below, with lines up to the top of the plot."""
    parts = []
    for tick in ticks:
        parts += [stroke(at(tick), TOP, at(tick), bottom, "grid"), text(at(tick), bottom + 18, form % tick, "faint", "middle")]
    return parts


def shares(run, workload, rows, is_cpu=False):
    """Bars: a group for each row, as long as the share of the best rate or of the highest CPU; the line goes from the lowest round to the highest."""
    looks, parts, top = sides_of(rows), [], TOP
    values = {name: {side: spread(found, row, is_cpu) for side, found in row["sides"].items()} for name, row in rows.items()}
    highest = max((high / (most(row) or 1) for row in values.values() for _, _, high in row.values()), default=1)
    ticks = [i / 4 for i in range(math.ceil(max(1, min(highest, 2)) * 4 - 1e-9) + 1)]
    at = lambda share: LEFT + WIDTH * min(share, ticks[-1]) / ticks[-1]
    for name, row in values.items():
        unit = next(iter(rows[name]["sides"].values()))["cpu"]["unit"] if is_cpu else rate_unit(rows[name])
        best = most(row)
        parts.append(text(LEFT - 10, top + (len(row) * (BAR + GAP)) / 2 + 4, name, "", "end"))
        parts.append(text(LEFT + WIDTH + 10, top + (len(row) * (BAR + GAP)) / 2 + 4, "1 = %s %s" % (short(best), unit), "faint", "start"))
        for side, (median, low, high) in row.items():
            share = lambda value: value / best if best else 0
            parts.append(bar(LEFT, top, at(share(median)) - LEFT, looks[side], "%s, %s: %s %s" % (name, side, short(median), unit), height=BAR))
            parts.append(stroke(at(share(low)), top + BAR / 2, at(share(high)), top + BAR / 2, "axis"))
            top += BAR + GAP
        top += BETWEEN
    kind = "CPU of the %s, as a share of the highest; less is better" % ("process" if workload == "alone" else "server") if is_cpu else "Rate as a share of the best; more is better"
    title = TITLES[workload] + (", CPU" if is_cpu else "")
    return whole(run, title, "%s. Bars are medians of %s, lines go from the lowest round to the highest" % (kind, rounds(run)),
                 (LEFT + WIDTH + RIGHT, top + 34), scale(ticks, at, top) + parts, looks)


def spread(found, row, is_cpu):
    """Median, lowest and highest round; of times, how many runs fit into a second."""
    figures = found["cpu"] if is_cpu else found
    values = figures["values"]
    if row.get("less_is_better") and not is_cpu:
        return tuple(1 / value if value else 0 for value in (figures["median"], max(values), min(values)))
    return figures["median"], min(values), max(values)


def rate_unit(row):
    return "/s" if row.get("less_is_better") else row["unit"]


def most(row):
    return max((median for median, _, _ in row.values()), default=0)


def short(value):
    """Three digits."""
    return format(float("%.3g" % value), ",.10g")


def mixture(run, workload, rows):
    """A bar for each side, of the times of its phases one after the other."""
    parts, names = [], {phase: "%s-%s" % (workload, phase) for phase in phases.PHASES}
    looks = dict(zip(names, COLOURS))
    sides = list(sides_of(rows))
    sums = {side: sum(rows[name]["sides"][side]["median"] for name in names.values() if name in rows) for side in sides}
    step = nice(max(sums.values()) / 6) if max(sums.values()) else 1
    ticks = [i * step for i in range(math.ceil(max(sums.values()) / step - 1e-9) + 1)]
    at = lambda seconds: LEFT + WIDTH * seconds / (ticks[-1] or 1)
    top = TOP
    for side in sides:
        parts.append(text(LEFT - 10, top + 15, side, "", "end"))
        begin = 0
        for phase, name in names.items():
            seconds = rows[name]["sides"][side]["median"]
            # A gap of a pixel tells phases apart besides the colours.
            parts.append(bar(at(begin), top, at(begin + seconds) - at(begin) - 1, looks[phase], "%s, %s: %s s" % (side, phase, short(seconds)), height=20))
            begin += seconds
        parts.append(text(at(begin) + 8, top + 15, "%s s" % short(sums[side]), "faint", "start"))
        top += 20 + BETWEEN
    limit = run.get("memory_limit")
    about = "Seconds of each phase, medians of %s; less is better. %s" % (
        rounds(run), "Memory limit %d MiB" % limit["mib"] if limit else "No limit of memory")
    return whole(run, TITLES[workload], about, (LEFT + WIDTH + RIGHT, top + 34), scale(ticks, at, top) + parts, looks)


def panels(run, workload, rows):
    """A panel for each kind of access and number of streams: the rate by the length of a request, a line for each side."""
    looks, parts = sides_of(rows), []
    lengths = [name for name in grid.BLOCKS if any(cell.endswith("x" + name) for cell in rows)]
    columns, lines = len(grid.STREAMS), len(grid.KINDS)
    for line, kind in enumerate(grid.KINDS):
        for column, streams in enumerate(grid.STREAMS):
            cells = {name: rows[cell] for name in lengths if (cell := "grid-%s-%dx%s" % (kind, streams, name)) in rows}
            place = (90 + column * (PANEL[0] + 90), PANEL_TOP + line * (PANEL[1] + 70))
            if cells:
                parts += panel("%s, %d stream%s" % (kind, streams, "s" if streams > 1 else ""), cells, lengths, looks, place)
    size = (90 + columns * (PANEL[0] + 90), PANEL_TOP + lines * (PANEL[1] + 70))
    return whole(run, TITLES[workload], "MB/s by the length of a request, medians of %s; more is better" % rounds(run), size, parts, looks)


def panel(title, cells, lengths, looks, place):
    left, top = place
    bottom = top + PANEL[1]
    highest = max(found["median"] for row in cells.values() for found in row["sides"].values()) or 1
    step = nice(highest / 4)
    ticks = [i * step for i in range(math.ceil(highest / step - 1e-9) + 1)]
    x = lambda name: left + 14 + (PANEL[0] - 28) * lengths.index(name) / max(1, len(lengths) - 1)
    y = lambda value: bottom - PANEL[1] * value / ticks[-1]
    parts = [text(left, top - 10, title, "", "start")]
    for tick in ticks:
        parts += [stroke(left, y(tick), left + PANEL[0], y(tick), "grid"), text(left - 8, y(tick) + 4, format(tick, ",.10g"), "faint", "end")]
    parts += [text(x(name), bottom + 18, name, "faint", "middle") for name in lengths]
    for side, look in looks.items():
        points = [(x(name), y(row["sides"][side]["median"])) for name, row in cells.items() if side in row["sides"]]
        path = " ".join("%.1f,%.1f" % point for point in points)
        parts.append('<polyline class="line %s" points="%s"><title>%s, %s</title></polyline>' % (look, path, escape(title), escape(side)))
        parts += [mark(look, *point) for point in points]
    return parts
