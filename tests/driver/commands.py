"""Scenarios of the command line: no guest, no namespace; the server on loopback as a user starts it."""
import json, os, re, signal, socket, subprocess, time

from .loopback import USER, Up, check, same
from .server import FORCED, force, variable


def an_ordinary_user_can_start_it(place):
    up = Up(place, user=USER).ready()
    check(os.stat(up.data).st_uid == USER, "the data directory belongs to %d" % os.stat(up.data).st_uid)
    status = place.run("status", "--data", up.data, user=USER)
    check(status.returncode == 0, status.stdout)
    check(up.stop() < 5, "took longer than 5 s to stop")


def the_banner_tells_data_ports_mount_and_how_to_stop(place):
    up = Up(place).ready()
    time.sleep(0.3)
    said = up.said()
    for what in (up.data, str(up.port), "mount -t nfs", "127.0.0.1"):
        check(what in said, "the banner lacks %r:\n%s" % (what, said))
    check(re.search(r"ctrl.c|sigterm|stop", said, re.I), "the banner does not say how to stop:\n" + said)
    check(len(said.splitlines()) <= 20, "the banner is not short:\n" + said)
    with socket.socket() as s:
        s.settimeout(1)
        others = [a for a in subprocess.run(["hostname", "-I"], stdout=subprocess.PIPE, text=True).stdout.split() if "." in a]
        if others:
            check(s.connect_ex((others[0], up.port)) != 0, "listens on %s, not on loopback only" % others[0])


def another_address_squashes_root_and_says_what_auth_sys_means(place):
    up = Up(place, "--listen", "0.0.0.0").ready()
    time.sleep(0.3)
    said = up.said()
    check("AUTH_SYS" in said, "no line on AUTH_SYS:\n" + said)
    check(re.search(r"squash", said, re.I), "no word on root squash:\n" + said)


def sigterm_and_sigint_stop_it_within_five_seconds(place):
    for sig in (signal.SIGTERM, signal.SIGINT):
        up = Up(place).ready()
        took = up.stop(sig)
        check(took < 5, "signal %d: %.1f s" % (sig, took))
        check(up.process.returncode == 0, "signal %d: exit status %s\n%s" % (sig, up.process.returncode, up.said()))


def a_second_start_continues(place):
    Up(place).ready().stop()
    before = sorted(os.listdir(os.path.join(place.dir, "data")))
    up = Up(place).ready()
    up.stop()
    check(before and set(before) <= set(os.listdir(up.data)), "the data directory was made anew")
    fsck = place.run("fsck", "--data", up.data)
    check(fsck.returncode == 0, fsck.stdout)


def a_start_after_kill_9_continues(place):
    for _ in range(3):
        Up(place).ready().stop(signal.SIGKILL)
    up = Up(place).ready()
    fsck = place.run("fsck", "--data", up.data)
    check(fsck.returncode == 0, "fsck on the running server: " + fsck.stdout)


def a_second_process_on_the_same_data_is_refused(place):
    first = Up(place).ready()
    Up(place).refuses("in use", "running", "another", "locked")
    check(first.process.poll() is None, "the first one fell")
    Up(place, data=os.path.join(place.dir, "other")).ready()


def a_port_in_use_gets_one_clear_line(place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        Up(place, port=taken.getsockname()[1]).refuses("in use")


def a_read_only_directory_gets_one_clear_line(place):
    ro = os.path.join(place.dir, "ro")
    os.makedirs(ro)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", ro], check=True)
    try:
        Up(place, data=os.path.join(ro, "data")).refuses("read-only")
    finally:
        subprocess.run(["umount", ro])


def a_directory_of_another_user_gets_one_clear_line(place):
    shut = os.path.join(place.dir, "shut")
    os.makedirs(shut, mode=0o700)
    Up(place, data=os.path.join(shut, "data"), user=USER).refuses("permission denied", "permission")


def a_full_disk_at_start_gets_one_clear_line(place):
    full = os.path.join(place.dir, "full")
    os.makedirs(full)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
    try:
        subprocess.run("cat /dev/zero >%s/fill" % full, shell=True, stderr=subprocess.DEVNULL)
        Up(place, data=os.path.join(full, "data")).refuses("no space", "disk is full", "full", "space")
    finally:
        subprocess.run(["umount", "-l", full])


def raise_version(data):
    path = os.path.join(data, "instance.json")
    with open(path) as f:
        instance = json.load(f)
    instance["version"] += 1
    with open(path, "w") as f:
        json.dump(instance, f)


def data_of_a_newer_version_is_refused(place):
    up = Up(place).ready()
    up.stop()
    raise_version(up.data)
    Up(place).refuses("newer")


def status_tells_what_runs(place):
    up = Up(place, "--pools", "2").ready()
    text = place.run("status", "--data", up.data)
    check(text.returncode == 0 and text.stdout.strip(), text.stdout)
    answer = place.run("status", "--data", up.data, "--json")
    facts = json.loads(answer.stdout)
    flat = json.dumps(facts).lower()
    for word in ("uptime", "clients", "opens", "pools", "free"):
        check(word in flat, "status --json lacks %s: %s" % (word, flat))
    check(len(facts["pools"]) == 2, flat)
    up.stop()
    gone = place.run("status", "--data", up.data)
    check(gone.returncode != 0 and len(gone.stdout.strip().splitlines()) == 1, "of a stopped server: %r" % gone.stdout)


def fsck_tells_clean_data_from_none(place):
    up = Up(place).ready()
    up.stop()
    answer = place.run("fsck", "--data", up.data, "--json")
    check(answer.returncode == 0, answer.stdout)
    json.loads(answer.stdout)
    nothing = place.run("fsck", "--data", os.path.join(place.dir, "nothing"))
    check(nothing.returncode not in (0, 101), "of a directory that is not there: %s %s" % (nothing.returncode, nothing.stdout))


def settings_of_a_directory_are_set_and_shown_running_and_stopped(place):
    def shown(path):
        answer = place.run("dir", "show", "--data", data, "--json", path)
        check(answer.returncode == 0, answer.stdout)
        return json.loads(answer.stdout)

    up = Up(place).ready()
    data = up.data
    check(shown("/")["own"] is None and shown("/")["consistency"] == "auto", str(shown("/")))
    said = place.run("dir", "set-consistency", "--data", data, "/", "weak")
    check(said.returncode == 0 and "weak" in said.stdout, said.stdout)
    said = place.run("dir", "set-io", "--data", data, "/", "direct")
    check(said.returncode == 0 and "direct" in said.stdout, said.stdout)
    expected = {"path": "/", "own": "weak", "consistency": "weak", "io": "direct", "changed": 0}
    check(shown("/") == expected, str(shown("/")))
    for path, mode, word in (("/nowhere", "weak", "/nowhere"), ("/", "weaker", "weaker")):
        refused = place.run("dir", "set-consistency", "--data", data, path, mode)
        check(refused.returncode not in (0, 101) and word in refused.stdout, "%s %s: %s" % (path, mode, refused.stdout))
    up.stop()
    check(shown("/") == expected, "it is lost after a stop: %s" % shown("/"))
    said = place.run("dir", "set-consistency", "--data", data, "--recursive", "/", "inherit")
    check(said.returncode == 0, said.stdout)
    check(shown("/")["own"] is None, str(shown("/")))


def config_reference_names_every_key_and_check_finds_mistakes(place):
    reference = place.run("config", "reference")
    check(reference.returncode == 0 and "lease_s" in reference.stdout and "grace_s" in reference.stdout, reference.stdout)
    good, bad = os.path.join(place.dir, "good.toml"), os.path.join(place.dir, "bad.toml")
    with open(good, "w") as f:
        f.write("[nfs]\nlease_s = 10\n")
    with open(bad, "w") as f:
        f.write("[nfs]\nleas_s = 10\n")
    check(place.run("config", "check", good).returncode == 0, "a good file: " + place.run("config", "check", good).stdout)
    answer = place.run("config", "check", bad)
    check(answer.returncode not in (0, 101) and "leas_s" in answer.stdout, "a misspelt key: " + answer.stdout)
    up = Up(place, "--config", bad)
    up.refuses("leas_s")


def keys_that_a_run_forces_reach_servers_that_do_not_set_them(place):
    before = {variable(key): os.environ.get(variable(key)) for key in FORCED}
    try:
        force("io", "buffered"), force("journal", "off"), force("gather", "always")
        shown = []
        for config in ("", '[pools]\nio = "paper"\njournal = "pool"\n'):
            up = Up(place, config=config, data=place.path("data.%d" % len(shown))).ready()
            said = place.run("pool", "iostat", "--data", up.data, "--json")
            check(said.returncode == 0, said.stdout)
            pool = json.loads(said.stdout)["pools"][0]
            shown.append((pool["policy"], pool["journal"] is not None, pool["gathered"] is not None))
        same("policy, journal and gathering", shown, [("buffered", False, True), ("paper", True, True)])
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


SCENARIOS = [an_ordinary_user_can_start_it, the_banner_tells_data_ports_mount_and_how_to_stop,
             another_address_squashes_root_and_says_what_auth_sys_means, sigterm_and_sigint_stop_it_within_five_seconds,
             a_second_start_continues, a_start_after_kill_9_continues, a_second_process_on_the_same_data_is_refused,
             a_port_in_use_gets_one_clear_line, a_read_only_directory_gets_one_clear_line,
             a_directory_of_another_user_gets_one_clear_line, a_full_disk_at_start_gets_one_clear_line,
             data_of_a_newer_version_is_refused, status_tells_what_runs, fsck_tells_clean_data_from_none, settings_of_a_directory_are_set_and_shown_running_and_stopped,
             config_reference_names_every_key_and_check_finds_mistakes,
             keys_that_a_run_forces_reach_servers_that_do_not_set_them]
