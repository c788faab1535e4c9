"""The figures of the create bench as SVG: rate against concurrent creators, a line for each level and durability.

No library draws them: a figure is text, and its colours follow the reader's light or dark theme by CSS alone.
"""
import math, statistics
from xml.sax.saxutils import escape

from .report import BUSY_MAX

TITLES = {"shared": "Creates per second, all in one directory", "own": "Creates per second, each creator in a directory of its own"}
DURABILITY = {"durable": "durable: on disk when answered", "interval": "interval: a power cut may take the last second"}
# By what is measured, not by its place in the list: (light, dark). All have a contrast of 3 and more with the ground.
COLOURS = {"a": ("#1f6fd0", "#5aa2f0"), "b": ("#c2570c", "#ee9a55"), "p": ("#6b46c1", "#a78bfa"), "c1": ("#1a7f4b", "#43c08a"), "c2": ("#b32d74", "#ee86bb"), "pgbench": ("#6a6f78", "#9aa1ad"),
           "other": ("#7a5c00", "#d0ae3c")}
MARKERS = {"a": "circle", "b": "square", "p": "hexagon", "c1": "triangle", "c2": "diamond", "pgbench": "cross", "other": "plus"}
DASHES = ["", "6 4", "2 3", "9 3 2 3", "1 5"]
GROUND, INK, FAINT, GRID = ("#ffffff", "#15181d"), ("#1d2127", "#e8eaed"), ("#59606b", "#a4abb6"), ("#dfe2e7", "#343942")
# In user units, which are pixels where nothing scales the figure.
LEFT, TOP, WIDTH, HEIGHT, BOTTOM, LETTER = 86, 96, 560, 330, 62, 6.6
LOG_FROM = 50


class NothingToDraw(Exception):
    """The result holds no figure of what was asked for."""


class Line:
    """A line of one colour and dash: [(creators, median rate, slowest, fastest)]."""

    def __init__(self, level, clients, mode, consistency, title):
        self.durability, self.dash, self.points = mode, "", []
        self.mode = mode if consistency == "strong" else "%s, %s" % (mode, consistency)
        look = level if level != "c" else "c2" if (clients or 1) > 1 else "c1"
        self.look = look if look in COLOURS else "other"
        hosts = "" if level != "c" or clients is None else ", %d client%s" % (clients, "s" if clients > 1 else "")
        self.label = "%s%s, %s" % (title, hosts, self.mode)


def figure(run, directories, levels=None, modes=None, scale="auto"):
    """The whole SVG of one run for `directories`, of these levels and modes or of all."""
    lines = lines_of(run, directories, levels, modes)
    if not lines:
        raise NothingToDraw("no figures of directories that are %s" % directories)
    # The figures of a run have the same axes, so that one can be held beside the other.
    every = [line for each in TITLES for line in lines_of(run, each, levels, modes)]
    x, y = Creators(every), Rates(every, scale)
    lines.sort(key=lambda line: -line.points[-1][1])
    legend = max(len(line.label) for line in lines) * LETTER + 60
    about = texts(run, directories, lines)
    wide = max(LEFT + WIDTH + 24 + legend, LEFT + max(map(len, about[1:])) * LETTER)
    size = (round(wide), TOP + HEIGHT + BOTTOM)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-labelledby="title">' % (size + size),
             '<title id="title">%s</title>' % escape(". ".join(about)), style(), '<rect class="ground" width="%d" height="%d"/>' % size]
    parts += [text(LEFT, 28 + 20 * i, words, "head" if i == 0 else "faint", "start") for i, words in enumerate(about)]
    parts += axes(x, y)
    for line in reversed(lines):
        parts += drawn(line, x, y)
    for place, line in enumerate(lines):
        parts += entry(line, LEFT + WIDTH + 24, TOP + 12 + 22 * place)
    return "\n".join(parts + ["</svg>", ""])


def lines_of(run, directories, levels, modes):
    lines = {}
    for each in run["figures"]:
        if each["directories"] != directories or levels and each["level"] not in levels or modes and each["mode"] not in modes:
            continue
        key = (each["level"], each.get("clients"), each["mode"], each.get("consistency", "strong"))
        if key not in lines:
            lines[key] = Line(*key, run.get("levels", {}).get(each["level"], each["level"]))
        rates = each.get("rates") or [each["rate"]]
        lines[key].points.append((each["creators"], each["rate"], min(rates), max(rates)))
    # Of nothing created there is nothing to show, least of all on a log scale.
    for line in lines.values():
        line.points = sorted(point for point in line.points if point[1] > 0 and point[2] > 0)
    return tell_apart([line for line in lines.values() if line.points])


def tell_apart(lines):
    """Dashes by the mode; of one level alone the colours, too."""
    modes, looks = sorted({line.mode for line in lines}), {line.look for line in lines}
    for line in lines:
        place = modes.index(line.mode)
        line.dash = DASHES[place % len(DASHES)]
        if len(looks) == 1:
            line.look = list(COLOURS)[place % len(COLOURS)]
    return lines


def texts(run, directories, lines):
    """Title, machine and date, durability."""
    busy = [each["busy_before"] for each in run.get("runs", []) if "busy_before" in each]
    modes = sorted({line.durability for line in lines})
    return [TITLES[directories], circumstances(run, busy), "; ".join(DURABILITY.get(mode, mode) for mode in modes)]


def circumstances(run, busy):
    """Machine and date, and whether the machine was calm: `busy` has shares of its CPUs."""
    host = run.get("host", {})
    machine = [host.get("cpu"), "%s cores" % host["cores"] if "cores" in host else None, "Linux " + host["kernel"] if "kernel" in host else None, host.get("file_system")]
    machine = ", ".join(word for word in machine if word) or "machine not recorded"
    calm = ". NOT CALM: %.0f %% of the CPUs busy before" % (100 * statistics.median(busy)) if busy and statistics.median(busy) > BUSY_MAX else ""
    return "%s. %s%s" % (machine, run.get("date", "no date")[:10], calm)


class Creators:
    """The x axis: a doubling is always as wide."""

    def __init__(self, lines):
        self.ticks = sorted({point[0] for line in lines for point in line.points})
        low, high = math.log2(self.ticks[0]), math.log2(self.ticks[-1])
        self.low, self.span = low, high - low or 1.0

    def at(self, creators):
        return LEFT + 14 + (WIDTH - 28) * (math.log2(creators) - self.low) / self.span


class Rates:
    """The y axis, from zero or logarithmic."""

    def __init__(self, lines, scale):
        low = min(point[2] for line in lines for point in line.points)
        high = max(point[3] for line in lines for point in line.points)
        self.is_log = scale == "log" or scale == "auto" and high / low >= LOG_FROM
        if self.is_log:
            self.ticks = log_ticks(low, high)
        else:
            step = nice(high / 6)
            self.ticks = [i * step for i in range(math.ceil(high / step - 1e-9) + 1)]
        self.ends = [self.value(self.ticks[0]), self.value(self.ticks[-1])]

    def value(self, rate):
        return math.log10(rate) if self.is_log else rate

    def at(self, rate):
        low, high = self.ends
        return TOP + HEIGHT - HEIGHT * (self.value(rate) - low) / (high - low)


def nice(step):
    """The smallest of 1, 2, 5, 10, ... that is not below."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * (1 - 1e-9))


def log_ticks(low, high):
    """1, 2, 5, 10, ... that hold both ends."""
    steps = [factor * 10.0 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for factor in (1, 2, 5)]
    first = max(i for i, step in enumerate(steps) if step <= low * (1 + 1e-9))
    last = min(i for i, step in enumerate(steps) if step >= high * (1 - 1e-9))
    return steps[first:max(last, first + 1) + 1]


def style():
    def rules(theme):
        out = [".ground{fill:%s}" % GROUND[theme], "text{fill:%s}" % INK[theme], ".faint{fill:%s}" % FAINT[theme],
               ".grid{stroke:%s}" % GRID[theme], ".axis{stroke:%s}" % FAINT[theme]]
        return out + [".%s{stroke:%s;color:%s}" % (look, colours[theme], colours[theme]) for look, colours in COLOURS.items()]
    return "\n".join(["<style>", "text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}", ".head{font-size:16px;font-weight:600}",
                      ".line{fill:none;stroke-width:2;stroke-linejoin:round}", ".spread{stroke-width:1;opacity:.6}", ".mark{fill:currentColor;stroke-width:1.5}"]
                     + rules(0) + ["@media (prefers-color-scheme:dark){"] + rules(1) + ["}", "</style>"])


def axes(x, y):
    right, bottom = LEFT + WIDTH, TOP + HEIGHT
    parts = []
    for tick in y.ticks:
        parts.append(stroke(LEFT, y.at(tick), right, y.at(tick), "grid"))
        parts.append(text(LEFT - 8, y.at(tick) + 4, format(tick, ",.10g"), "faint", "end"))
    parts.append(stroke(LEFT, bottom, right, bottom, "axis"))
    for tick in x.ticks:
        parts.append(stroke(x.at(tick), bottom, x.at(tick), bottom + 5, "axis"))
        parts.append(text(x.at(tick), bottom + 20, str(tick), "faint", "middle"))
    parts.append(text(LEFT + WIDTH / 2, bottom + 44, "concurrent creators (log2 scale)", "", "middle"))
    middle = (20, TOP + HEIGHT / 2)
    words = "creates per second" + (" (log scale)" if y.is_log else "")
    parts.append('<text text-anchor="middle" transform="translate(%g %g) rotate(-90)">%s</text>' % (middle + (words,)))
    return parts


def drawn(line, x, y):
    places = [(x.at(creators), y.at(rate), y.at(slow), y.at(fast)) for creators, rate, slow, fast in line.points]
    parts = [stroke(px, slow, px, fast, "spread " + line.look) for px, _, slow, fast in places if abs(slow - fast) > 1]
    path = " ".join("%.1f,%.1f" % place[:2] for place in places)
    parts.append('<polyline class="line %s" points="%s"%s><title>%s</title></polyline>' % (line.look, path, dashes(line), escape(line.label)))
    return parts + [mark(line.look, *place[:2]) for place in places]


def entry(line, left, at):
    """A line of the legend."""
    return ['<polyline class="line %s key" points="%g,%g %g,%g"%s/>' % (line.look, left, at, left + 34, at, dashes(line)),
            mark(line.look, left + 17, at), text(left + 44, at + 4, line.label, "", "start")]


def dashes(line):
    return ' stroke-dasharray="%s"' % line.dash if line.dash else ""


def mark(look, x, y):
    """A form besides the colour: colours alone do not tell lines apart for everybody."""
    forms = {"circle": "M%g %gm-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "square": "M%g %gm-3.5 -3.5h7v7h-7z", "triangle": "M%g %gm0 -5l4.5 8h-9z",
             "diamond": "M%g %gm0 -5l5 5l-5 5l-5 -5z", "hexagon": "M%g %gm-4.5 0l2.25 -4h4.5l2.25 4l-2.25 4h-4.5z", "cross": "M%g %gm-4 -4l8 8m0 -8l-8 8", "plus": "M%g %gm-5 0h10m-5 -5v10"}
    return '<path class="mark %s" d="%s"/>' % (look, forms[MARKERS[look]] % (round(x, 1), round(y, 1)))


def stroke(x1, y1, x2, y2, kind):
    return '<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>' % (kind, x1, y1, x2, y2)


def text(x, y, words, kind, anchor):
    return '<text%s x="%g" y="%g" text-anchor="%s">%s</text>' % (' class="%s"' % kind if kind else "", round(x, 1), round(y, 1), anchor, escape(words))
