"""Programs that people have, against the HTTP door: each puts, gets, lists, moves and deletes, and bytes are compared."""
import base64, hashlib, os, re, zlib

from .loopback import Up, check, same
from .web import a_file, absent, ask, content, curl, expect, holds, macaroon, program, same_file, stat_of

LITMUS = {"basic": 16, "copymove": 13, "props": 30, "locks": 41, "http": 4}
SIZE = 3_000_000


def litmus_passes_104_of_104(place):
    up = Up(place).ready()
    said = program(place, "litmus", "-k", up.url + "/", *up.login)
    passed = {n: int(p) for n, p in re.findall(r"summary for `(\w+)': of \d+ tests run: (\d+) passed, 0 failed", said)}
    same("tests passed", passed, LITMUS)
    same("all of them", sum(passed.values()), 104)


def davix(up, tool, *argv, **kw):
    return program(up.place, "davix-" + tool, "-H", "Authorization: Bearer " + macaroon(up), *argv, **kw)


def davix_puts_gets_lists_moves_and_removes(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    davix(up, "mkdir", up.url + "/d")
    davix(up, "put", file, up.url + "/d/a")
    davix(up, "get", up.url + "/d/a", place.path("got"))
    same_file("davix-get", place.path("got"), file)
    check(re.search(r"%d .* a$" % SIZE, davix(up, "ls", "-l", up.url + "/d"), re.M), "davix-ls does not show the file")
    # It moves and then exits with 255, whatever the server (0.8.4).
    davix(up, "mv", up.url + "/d/a", up.url + "/d/b", want=None)
    absent(up, "/d/a")
    holds(up, "/d/b", file)
    davix(up, "rm", up.url + "/d/b")
    absent(up, "/d/b")


def gfal(up, tool, *argv, **kw):
    env = {"BEARER_TOKEN": macaroon(up), "GFAL_PYTHONBIN": "/usr/bin/python3"}
    return program(up.place, "gfal-" + tool, *argv, env=env, **kw)


def gfal2_copies_with_checksums_lists_renames_and_removes(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    there = "dav://127.0.0.1:%d/d" % up.http
    sum32 = "%08x" % zlib.adler32(content(file))
    gfal(up, "mkdir", there)
    gfal(up, "copy", "-K", "ADLER32", "file://" + file, there + "/a")
    check(re.search(r"\b%d\b.* a\b" % SIZE, gfal(up, "ls", "-l", there)), "gfal-ls does not show the file")
    check("Size: %d" % SIZE in gfal(up, "stat", there + "/a"), "gfal-stat says another size")
    same("gfal-sum", gfal(up, "sum", there + "/a", "ADLER32").split()[-1], sum32)
    gfal(up, "rename", there + "/a", there + "/b")
    absent(up, "/d/a")
    gfal(up, "copy", "-K", "ADLER32", there + "/b", "file://" + place.path("got"))
    same_file("gfal-copy", place.path("got"), file)
    gfal(up, "rm", there + "/b")
    gfal(up, "rm", "-r", there)
    absent(up, "/d")


def gfal2_is_told_of_a_checksum_that_does_not_agree(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    there = "dav://127.0.0.1:%d/a" % up.http
    said = gfal(up, "copy", "-K", "ADLER32:00000001", "file://" + file, there, want=None)
    check("checksum" in said.lower(), "gfal-copy did not complain: " + said)
    absent(up, "/a")


def rclone(up, *argv, **kw):
    config = up.place.path("rclone.conf")
    if not os.path.exists(config):
        user, password = up.login
        with open(config, "w") as f:
            f.write("[fb]\ntype = webdav\nurl = %s\nvendor = other\nuser = %s\npass = %s\n" % (
                up.url, user, program(up.place, "rclone", "obscure", password).strip()))
    return program(up.place, "rclone", "--config", config, *argv, **kw)


def a_tree(place):
    for name, size in (("src/a/b/big", SIZE), ("src/small", 6), ("src/empty", 0), ("src/ü sp%20#?&+.txt", 77), ("src/a/many/x", 1)):
        a_file(place, name, size)
    for i in range(40):
        a_file(place, "src/a/many/%d" % i, 1000 + i)
    return place.path("src")


def rclone_copies_checks_lists_moves_and_deletes(place):
    up, tree = Up(place).ready(), a_tree(place)
    rclone(up, "copy", tree, "fb:d")
    check("45 matching files" in rclone(up, "check", "--download", tree, "fb:d"), "rclone check counts other files")
    check("nothing to transfer" in rclone(up, "copy", "--size-only", "-v", tree, "fb:d"), "the second copy copied")
    lines = rclone(up, "lsl", "fb:d").splitlines()
    same("lines of lsl", len(lines), 45)
    check(any(re.search(r"\b%d .* a/b/big$" % SIZE, l) for l in lines), "lsl does not show the file: %s" % lines[:5])
    rclone(up, "move", "fb:d/a", "fb:moved")
    same("moved away", rclone(up, "lsf", "-R", "--files-only", "fb:d").split("\n")[:-1],
         ["empty", "small", "ü sp%20#?&+.txt"])
    rclone(up, "copy", "fb:moved/b", place.path("back"))
    same_file("after the move", place.path("back/big"), os.path.join(tree, "a/b/big"))
    about = rclone(up, "about", "fb:")
    check("Free:" in about and "Used:" in about, "about: " + about)
    rclone(up, "delete", "fb:moved/many")
    same("deleted", rclone(up, "lsf", "-R", "--files-only", "fb:moved").split(), ["b/big"])
    rclone(up, "purge", "fb:d")
    absent(up, "/d")


def rclone_keeps_times_by_x_oc_mtime(place):
    up, file = Up(place).ready(), a_file(place, "src/file", SIZE)
    os.utime(file, (1_500_000_000, 1_500_000_000))
    rclone(up, "copy", "--webdav-vendor", "owncloud", place.path("src"), "fb:d")
    check("2017-07-14" in rclone(up, "lsl", "--webdav-vendor", "owncloud", "fb:d"), "the time was not kept")
    check("nothing to transfer" in rclone(up, "copy", "--webdav-vendor", "owncloud", "-v", place.path("src"), "fb:d"),
          "the second copy copied")


def cadaver(up, *lines):
    home = up.place.path("home")
    os.makedirs(home, exist_ok=True)
    with open(os.open(home + "/.netrc", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
        f.write("machine 127.0.0.1 login %s password %s\n" % up.login)
    said = program(up.place, "cadaver", up.url + "/", stdin="\n".join(lines) + "\nquit\n", env={"HOME": home})
    check("failed" not in said.lower(), "cadaver: " + said[-2000:])
    return said


def cadaver_puts_gets_sets_properties_locks_moves_and_deletes(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    said = cadaver(up, "mkcol d", "cd d", "put file a", "get a got", "propset a color blue", "propget a color", "lock a",
                   "discover a", "put file a", "unlock a", "copy a b", "move a c", "propget c color", "ls")
    same("the property, before and after the move", said.count("Value of color is: blue"), 2)
    check("Scope: exclusive  Type: write" in said, "no lock was shown: " + said)
    same_file("get", place.path("got"), file)
    holds(up, "/d/b", file)
    holds(up, "/d/c", file)
    cadaver(up, "cd d", "delete b", "delete c", "cd ..", "rmcol d")
    absent(up, "/d")


def cadavers_lock_keeps_others_out_until_it_is_given_back(place):
    up, file = Up(place).ready(), a_file(place, "file", 1000)
    cadaver(up, "put file a", "lock a")       # it ends without giving the lock back
    expect(423, up, "PUT", "/a", b"other")
    expect(423, up, "DELETE", "/a")
    expect(423, up, "MOVE", "/a", headers={"Destination": up.url + "/b"})
    holds(up, "/a", file)
    found = ask(up, "PROPFIND", "/a", headers={"Depth": "0"}).body.decode()
    token = re.search(r"urn:uuid:[0-9a-f-]+", found).group()
    expect(204, up, "UNLOCK", "/a", headers={"Lock-Token": "<%s>" % token})
    expect(204, up, "PUT", "/a", b"other")


def curl_waits_for_100_continue_before_it_sends(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    said = curl(up, "-v", "-H", "Expect: 100-continue", "-T", file, up.url + "/a")
    check("HTTP/1.1 100 Continue" in said and "HTTP/1.1 201 Created" in said, "curl -v: " + said[-2000:])
    holds(up, "/a", file)
    # A request is refused before its body is sent.
    said = curl(up, "-v", "-H", "Expect: 100-continue", "--expect100-timeout", "30", "-T", file, up.url + "/none/a")
    check("100 Continue" not in said and "409" in said, "curl -v: " + said[-2000:])


def curl_puts_without_telling_the_length(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    said = curl(up, "-v", "-T", "-", up.url + "/a", stdin=content(file))
    check("Transfer-Encoding: chunked" in said, "curl did not send chunks: " + said[-1000:])
    holds(up, "/a", file)


def curl_gets_ranges(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    data = content(file)
    curl(up, "-T", file, up.url + "/a")
    for asked, want in (("0-0", data[:1]), ("1000000-1999999", data[1000000:2000000]), ("-5", data[-5:]), ("2999990-", data[-10:])):
        curl(up, "-r", asked, "-o", "got", up.url + "/a")
        check(content(place.path("got")) == want, "range %s" % asked)
    curl(up, "-T", file, up.url + "/half")
    with open(place.path("half"), "wb") as f:
        f.write(data[:1234567])
    curl(up, "-C", "-", "-o", "half", up.url + "/half")
    same_file("a resumed download", place.path("half"), file)


def parts(answer):
    """{first: bytes} of a multipart/byteranges answer."""
    boundary = re.search(r"boundary=(\S+)", answer.headers["Content-Type"]).group(1).encode()
    found = {}
    for part in answer.body.split(b"--" + boundary)[1:-1]:
        head, _, body = part.partition(b"\r\n\r\n")
        first, last = map(int, re.search(rb"bytes (\d+)-(\d+)/", head).groups())
        body = body.removesuffix(b"\r\n")
        same("bytes of part %d" % first, len(body), last + 1 - first)
        found[first] = body
    return found


def ten_thousand_ranges_come_in_one_answer(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    data = content(file)
    curl(up, "-T", file, up.url + "/a")
    wanted = [(i * 300, i * 300 + 9) for i in range(10_000)]
    answer = ask(up, "GET", "/a", headers={"Range": "bytes=" + ",".join("%d-%d" % w for w in wanted)})
    same("status", answer.status, 206)
    found = parts(answer)
    same("parts", len(found), 10_000)
    check(all(found[a] == data[a:b + 1] for a, b in wanted), "a part holds other bytes")


def conditions_are_judged_by_the_etag(place):
    up = Up(place).ready()
    first = expect(201, up, "PUT", "/a", b"one").headers["ETag"]
    expect(304, up, "GET", "/a", headers={"If-None-Match": first})
    expect(412, up, "PUT", "/a", b"two", {"If-None-Match": "*"})
    second = expect(204, up, "PUT", "/a", b"two", {"If-Match": first}).headers["ETag"]
    check(first != second, "the ETag stayed the same")
    expect(412, up, "PUT", "/a", b"three", {"If-Match": first})
    expect(412, up, "DELETE", "/a", headers={"If-Match": first})
    same("contents", expect(200, up, "GET", "/a", headers={"If-None-Match": first}).body, b"two")
    curl(up, "-R", "-o", "got", up.url + "/a")
    same("curl -z", curl(up, "-w", "%{http_code}", "-o", "again", "-z", "got", up.url + "/a"), "304")


def a_put_is_resumed_by_content_range(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    data, half = content(file), 1_234_567
    part = lambda a, b: {"Content-Range": "bytes %d-%d/%d" % (a, b - 1, SIZE)}
    expect(202, up, "PUT", "/a", data[:half], part(0, half))
    absent(up, "/a")
    asked = expect(308, up, "PUT", "/a", b"", {"Content-Range": "bytes */%d" % SIZE})
    same("what has arrived", asked.headers["Range"], "bytes=0-%d" % (half - 1))
    expect(416, up, "PUT", "/a", data[half + 1:], part(half + 1, SIZE))
    expect(201, up, "PUT", "/a", data[half:], dict(part(half, SIZE), Digest="adler32=%08x" % zlib.adler32(data)))
    holds(up, "/a", file)


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "big")


def digests(data):
    b64 = lambda b: base64.b64encode(b).decode()
    return {"adler32": "%08x" % zlib.adler32(data), "crc32c": b64(crc32c(data)), "md5": b64(hashlib.md5(data).digest()),
            "sha-256": b64(hashlib.sha256(data).digest())}


def every_checksum_is_answered_and_held_against_uploads(place):
    up, file = Up(place).ready(), a_file(place, "file", 100_000)
    data = content(file)
    curl(up, "-T", file, up.url + "/a")
    for kind, value in digests(data).items():
        for method in ("HEAD", "GET"):
            digest = expect(200, up, method, "/a", headers={"Want-Digest": kind}).headers["Digest"]
            same("%s %s" % (method, kind), (digest or "").lower() if kind == "adler32" else digest, "%s=%s" % (kind, value))
        expect(201, up, "PUT", "/right-" + kind, data, {"Digest": "%s=%s" % (kind, value)})
        wrong = digests(data + b"!")[kind]
        expect(400, up, "PUT", "/wrong-" + kind, data, {"Digest": "%s=%s" % (kind, wrong)})
        absent(up, "/wrong-" + kind)
    sha = digests(data)["sha-256"]
    same("Repr-Digest", expect(200, up, "GET", "/a", headers={"Want-Repr-Digest": "sha-256=1"}).headers["Repr-Digest"],
         "sha-256=:%s:" % sha)
    same("Content-MD5", expect(400, up, "PUT", "/wrong", data, {"Content-MD5": digests(b"")["md5"]}).status, 400)
    absent(up, "/wrong")


def an_overwrite_with_a_wrong_checksum_leaves_the_old_file(place):
    up = Up(place).ready()
    expect(201, up, "PUT", "/a", b"old")
    expect(400, up, "PUT", "/a", b"new", {"Digest": "adler32=00000001"})
    same("contents", expect(200, up, "GET", "/a").body, b"old")


def curl_moves_copies_and_deletes(place):
    up, file = Up(place).ready(), a_file(place, "file", SIZE)
    curl(up, "-f", "-X", "MKCOL", up.url + "/d")
    curl(up, "-f", "-T", file, up.url + "/d/a")
    curl(up, "-f", "-X", "COPY", "-H", "Destination: %s/e" % up.url, up.url + "/d")
    curl(up, "-f", "-X", "MOVE", "-H", "Destination: %s/d/b" % up.url, up.url + "/d/a")
    absent(up, "/d/a")
    curl(up, "-f", "-X", "DELETE", up.url + "/d")
    absent(up, "/d")
    holds(up, "/e/a", file)
    same("size", stat_of(up, "/e/a"), SIZE)


SCENARIOS = [litmus_passes_104_of_104, davix_puts_gets_lists_moves_and_removes,
             gfal2_copies_with_checksums_lists_renames_and_removes, gfal2_is_told_of_a_checksum_that_does_not_agree,
             rclone_copies_checks_lists_moves_and_deletes, rclone_keeps_times_by_x_oc_mtime,
             cadaver_puts_gets_sets_properties_locks_moves_and_deletes,
             cadavers_lock_keeps_others_out_until_it_is_given_back, curl_waits_for_100_continue_before_it_sends,
             curl_puts_without_telling_the_length, curl_gets_ranges, ten_thousand_ranges_come_in_one_answer,
             conditions_are_judged_by_the_etag, a_put_is_resumed_by_content_range,
             every_checksum_is_answered_and_held_against_uploads, an_overwrite_with_a_wrong_checksum_leaves_the_old_file,
             curl_moves_copies_and_deletes]
