"""The workloads: jobs under a name, as `--workload` takes it."""
import fnmatch

from . import alone, grid, jobs, phases, shapes

WORKLOADS = {"streams": jobs.JOBS, "phases": phases.JOBS, "shapes": shapes.JOBS, "grid": grid.JOBS, "alone": alone.JOBS}
JOBS = {name: job for each in WORKLOADS.values() for name, job in each.items()}
DEFAULT, ALL = "streams", "all"


def chosen(opt):
    """Names of jobs, in their order."""
    if opt.only:
        for pattern in opt.only:
            if not fnmatch.filter(JOBS, pattern):
                raise SystemExit("bench/engine: no such job: %s" % pattern)
        return [name for name in JOBS if any(fnmatch.fnmatchcase(name, pattern) for pattern in opt.only)]
    wanted = list(WORKLOADS) if ALL in opt.workload else opt.workload or [DEFAULT]
    names = [name for workload, each in WORKLOADS.items() if workload in wanted for name in each]
    return [name for name in names if not opt.quick or name not in grid.JOBS or name in grid.QUICK_JOBS]


def serving(opt):
    """The sides of which a job needs the server."""
    return [side for side in opt.sides if any(JOBS[name].needs_server and side.can(JOBS[name]) for name in opt.jobs)]


def check_sides(opt):
    """Every job but those of `all` has a side that can do it."""
    if not any(side.can(JOBS[name]) for name in opt.jobs for side in opt.sides):
        raise SystemExit("bench/engine: no side can do %s: jobs of the workload alone need --modes" % " ".join(opt.jobs))


def prepare(opt, sides):
    done = set()
    for name in opt.jobs:
        for side in sides:
            if side.can(JOBS[name]):
                JOBS[name].prepare(name, side, opt, done)


def rows(names):
    """{row: its Row}, of these jobs."""
    return {row: each for name in names for row, each in JOBS[name].rows(name).items()}
