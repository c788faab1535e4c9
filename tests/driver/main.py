"""Command line of the end-to-end tests."""
import argparse, os, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor, as_completed

from . import commands, http_clients, http_grid, http_hostile, http_python, loopback
from .groups import GROUPS
from .guests import TESTS, run_group
from .report import Report
from .server import SERVERS

# The groups without guests, in the order in which they run: name, module, whether servers must stop with nothing logged.
LOOPBACK = [("command_line", commands, False), ("http_clients", http_clients, True),
            ("http_hostile", http_hostile, True), ("http_python", http_python, True),
            ("http_grid", http_grid, True)]


def wanted(names, group, scenario):
    full = "%s/%s" % (group, scenario)
    groups = [g.name for g in GROUPS] + [g for g, _, _ in LOOPBACK]
    return not names or any(n == group if n in groups else n in full for n in names)


def plan(names, kind):
    """[(group, cases, checks)] to run, and the groups that this server cannot run."""
    chosen, left_out = [], []
    for group in GROUPS:
        cases = [c for c in group.cases() if wanted(names, group.name, c)]
        checks = [c for c in group.all_checks() if wanted(names, group.name, c[0])]
        if checks and not cases:
            cases = group.cases()       # a look afterwards needs the work before
        if not cases:
            continue
        if group.forebay_only and kind != "forebay":
            left_out.append(group)
        else:
            chosen.append((group, cases, checks or list(group.all_checks())))
    return chosen, left_out


def list_all():
    for group, module, _ in LOOPBACK:
        for scenario in module.SCENARIOS:
            print("%s/%s" % (group, scenario.__name__))
    for group in GROUPS:
        for scenario in group.cases() + [n for n, _ in group.all_checks()]:
            print("%s/%s" % (group.name, scenario))


def run_loopback(names, scratch, report):
    for group, module, ends_well in LOOPBACK:
        chosen = [s.__name__ for s in module.SCENARIOS if wanted(names, group, s.__name__)]
        for result in loopback.run(group, module.SCENARIOS, chosen, scratch, ends_well):
            report.add(result)


def run_guests(chosen, opt, scratch, report):
    """So many groups at a time; what asserts how soon something comes runs alone, at last."""
    def one(planned):
        (group, cases, checks), began = planned, time.monotonic()
        results = list(run_group(group, cases, checks, opt.server, scratch))
        if not opt.keep:
            shutil.rmtree(os.path.join(scratch, group.name), ignore_errors=True)
        return group, results, time.monotonic() - began

    for jobs, planned in ((opt.jobs, [p for p in chosen if not p[0].alone]), (1, [p for p in chosen if p[0].alone])):
        with ThreadPoolExecutor(jobs) as pool:
            # The long ones first, or the last one runs by itself.
            begun = [pool.submit(one, p) for p in sorted(planned, key=lambda p: -p[0].limit_s)]
            for done in as_completed(begun):
                group, results, seconds = done.result()
                for result in results:
                    report.add(result)
                print("-- %s: %s: %.0f s" % (group.name, group.says, seconds), flush=True)


def main(argv, doc):
    p = argparse.ArgumentParser(prog="tests/run", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="run so many groups with guests at a time [1]")
    p.add_argument("--list", action="store_true", help="print the scenarios' names and end")
    p.add_argument("--server", choices=sorted(SERVERS), default="forebay", help="ganesha: prove the jobs on a peer")
    p.add_argument("--keep", metavar="DIR", help="keep data, logs, consoles and captures here")
    opt = p.parse_args(argv)
    if opt.list:
        list_all()
        return 0
    if os.geteuid():
        sys.exit("tests/run: needs root (network namespaces, tap devices, loop devices)")
    scratch = opt.keep or tempfile.mkdtemp(prefix="forebay-tests-", dir=os.environ.get("FOREBAY_TEST_DIR", "/var/tmp"))
    os.makedirs(scratch, exist_ok=True)
    os.chmod(scratch, 0o755)
    missing = SERVERS[opt.server](scratch).missing()
    if missing:
        sys.exit("tests/run: " + missing)
    report, t0 = Report(), time.monotonic()
    try:
        if opt.server == "forebay":
            run_loopback(opt.names, scratch, report)
        chosen, left_out = plan(opt.names, opt.server)
        if chosen:
            subprocess.run([sys.executable, os.path.join(TESTS, "guest/make_tree.py"), scratch + "/tree.tar"], check=True)
        run_guests(chosen, opt, scratch, report)
        for group in left_out:
            print("left out with %s: %s" % (opt.server, group.name))
    finally:
        if not opt.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    print("tests/run: %.0f s" % (time.monotonic() - t0))
    return report.close()
