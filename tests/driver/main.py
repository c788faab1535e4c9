"""Command line of the end-to-end tests."""
import argparse, os, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor, as_completed

from . import cluster, cluster_http, commands, documents, failing_disks, hostile_crowds, http_clients, http_grid, http_hostile, http_python, loopback, power_cuts
from .groups import GROUPS
from .guests import TESTS, run_group
from .report import Report
from .server import FORCED, SERVERS, force

# The groups without guests, in the order in which they run: name, module, whether servers must stop with nothing logged.
LOOPBACK = [("command_line", commands, False), ("http_clients", http_clients, True),
            ("http_hostile", http_hostile, True), ("http_python", http_python, True),
            ("http_grid", http_grid, True), ("power_cuts", power_cuts, True),
            ("failing_disks", failing_disks, True), ("hostile_crowds", hostile_crowds, True), ("documents", documents, False),
            ("cluster_joins", cluster, True), ("cluster_http", cluster_http, True)]
ALONE = ("command_line", "http_hostile")      # of these: they assert how soon something ends


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


def run_loopback(groups, names, opt, scratch, report):
    """One after the other: they share the host's own network."""
    for group, module, ends_well in groups:
        began = time.monotonic()
        chosen = [s.__name__ for s in module.SCENARIOS if wanted(names, group, s.__name__)]
        for result in loopback.run(group, module.SCENARIOS, chosen, scratch, ends_well, keeps=bool(opt.keep)):
            report.add(result)
        if chosen:
            report.say("-- %s: %.0f s" % (group, time.monotonic() - began))


def run_guests(chosen, jobs, opt, scratch, report):
    """So many groups at a time."""
    def one(planned):
        (group, cases, checks), began = planned, time.monotonic()
        results = list(run_group(group, cases, checks, opt.server, scratch))
        if not opt.keep:
            shutil.rmtree(os.path.join(scratch, group.name), ignore_errors=True)
        for result in results:
            report.add(result)
        report.say("-- %s: %s: %.0f s" % (group.name, group.says, time.monotonic() - began))

    with ThreadPoolExecutor(jobs) as pool:
        # The long ones first, or the last one runs by itself.
        for done in as_completed([pool.submit(one, p) for p in sorted(chosen, key=lambda p: -p[0].about_s)]):
            done.result()


def run_all(names, chosen, opt, scratch, report):
    """First what asserts how soon something comes, alone; then guests, and beside them, if more than one thing may run, what needs none."""
    groups = LOOPBACK if opt.server == "forebay" else []
    others = [g for g in groups if g[0] not in ALONE]
    run_loopback([g for g in groups if g[0] in ALONE], names, opt, scratch, report)
    run_guests([p for p in chosen if p[0].alone], 1, opt, scratch, report)
    among = [p for p in chosen if not p[0].alone]
    if opt.jobs == 1:
        run_loopback(others, names, opt, scratch, report)
        run_guests(among, 1, opt, scratch, report)
        return
    with ThreadPoolExecutor(1) as beside:
        without_guests = beside.submit(run_loopback, others, names, opt, scratch, report)
        run_guests(among, opt.jobs, opt, scratch, report)
        without_guests.result()


def main(argv, doc):
    p = argparse.ArgumentParser(prog="tests/run", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", metavar="NAME")
    p.add_argument("--jobs", type=int, default=1, metavar="N",
                   help="run so many groups with guests at a time, and if more than one, those without guests beside them [1]")
    p.add_argument("--list", action="store_true", help="print the scenarios' names and end")
    p.add_argument("--server", choices=sorted(SERVERS), default="forebay", help="ganesha: prove the jobs on a peer")
    for key, values in FORCED.items():
        p.add_argument("--" + key, choices=values, help="set pools.%s for all servers that do not set it themselves" % key)
    p.add_argument("--keep", metavar="DIR", help="keep data, logs, consoles and captures here")
    opt = p.parse_args(argv)
    if opt.list:
        list_all()
        return 0
    forced = {key: getattr(opt, key) for key in FORCED if getattr(opt, key)}
    if forced and opt.server != "forebay":
        p.error("--%s needs --server forebay" % ", --".join(forced))
    for key, value in forced.items():
        force(key, value)
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
        chosen, left_out = plan(opt.names, opt.server)
        if chosen:
            subprocess.run([sys.executable, os.path.join(TESTS, "guest/make_tree.py"), scratch + "/tree.tar"], check=True)
        run_all(opt.names, chosen, opt, scratch, report)
        for group in left_out:
            print("left out with %s: %s" % (opt.server, group.name))
    finally:
        if not opt.keep:
            shutil.rmtree(scratch, ignore_errors=True)
    print(", ".join(["tests/run: %.0f s" % (time.monotonic() - t0)] + ["--%s %s" % one for one in forced.items()]))
    return report.close()
