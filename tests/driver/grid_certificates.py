"""Certificates: users of X.509 with proxies and VOMS attributes, and the server's own under TLS."""
import os, shutil, socket, ssl, subprocess, time

from .certificates import DAY, LIMITED, Authority, write
from .grid import MIB, Site, bearer, fails, need, succeeds
from .loopback import Failed, check, same, within

ANNA, OTTO, PILOTS = 3007, 3008, 3009


def tls(host):
    return 'certificate = "%s"\nkey = "%s"\n' % (host.cert_path, host.key_path)


def grid_site(place, ca, mapping, revoked=(), auth="", name="one"):
    """A site whose tree belongs to Anna, who knows it by certificates; the server itself is root's."""
    path = place.path(name + ".mapping")
    write(path, mapping.encode())
    first = Site(place, name, user=ANNA)
    first.up.stop()
    config = '[http]\nanonymous = "refuse"\ncopy_ca = ["%s"]\n%s[auth]\nmapping = "%s"\ncertificates = "%s"\n%s' % (
        ca.path, tls(ca.host(name + ".host")), path, ca.directory(revoked), auth)
    return Site(place, name, config, scheme="https", login=first.up.login)


def status(site, holder, *argv, path="/"):
    return site.curl(*holder.curl, *argv, path=path, auth=False)


def owner(site, path):
    """uid by WebDAV."""
    wish = '<propfind xmlns="DAV:"><prop><owner/></prop></propfind>'
    answer = site.curl("-X", "PROPFIND", "-d", wish, headers=["Depth: 0"], path=path)
    same("PROPFIND", answer.status, 207)
    return answer.text.split("owner>")[1].split("<")[0] if "owner>" in answer.text else answer.text


def a_user_and_two_proxies_are_the_same_owner(place):
    ca = Authority(place)
    anna = ca.user("Anna Doe")
    site = grid_site(place, ca, "dn:/DC=example/O=Grid/CN=Anna Doe -> %d %d\n" % (ANNA, ANNA))
    proxy = ca.proxy(anna, "proxy")
    for label, holder in (("user", anna), ("proxy", proxy), ("proxy-of-proxy", ca.proxy(proxy, "second")),
                          ("limited", ca.proxy(anna, "limited", policy=LIMITED))):
        same("PUT as " + label, status(site, holder, "-T", anna.cert_path, path="/" + label).status, 201)
        same("owner of what the %s wrote" % label, owner(site, "/" + label), str(ANNA))
    both = site.curl(*anna.curl, path="/user", auth=True)
    same("a password beside the certificate", both.status, 200)
    same("a wrong token beside the certificate", site.curl(*anna.curl, path="/user", auth="garbage").status, 401)


def certificates_that_are_wrong_in_one_thing_get_a_clear_status(place):
    ca, foreign = Authority(place), Authority(place, "foreign")
    anna, revoked = ca.user("Anna Doe"), ca.user("Revoked")
    site = grid_site(place, ca, "dn:/DC=example/O=Grid/CN=* -> %d %d\n" % (ANNA, ANNA), revoked=[revoked])
    same("the right one", status(site, anna).status, 200)
    for what, holder, word in (
            ("revoked", revoked, "revoked"), ("a proxy of a revoked user", ca.proxy(revoked, "p1"), "revoked"),
            ("expired", ca.user("Old", end=-DAY / 2, begin=-2 * DAY), "expired"),
            ("not yet valid", ca.user("Early", begin=DAY), "not valid yet"),
            ("a foreign authority", foreign.user("Anna Doe"), "no trusted authority"),
            ("an expired proxy", ca.proxy(anna, "p2", end=-DAY / 48), "expired"),
            ("a proxy signed by somebody else", forged(place, ca, anna), "signature")):
        answer = status(site, holder, "-T", anna.cert_path, path="/new")
        same("%s: status of %r" % (what, answer), answer.status, 401)
        check(word in answer.text, "%s: does not say %r: %s" % (what, word, answer.text))
    check(not site.is_there("/new"), "a refused PUT left a file")
    same("without any", site.curl(auth=False).status, 401)


def forged(place, ca, anna):
    """A proxy in Anna's name with the key of somebody else."""
    eve = ca.user("Eve")
    anna_by_eve = type(anna)(place, "half", anna.certificate, eve.key)
    return ca.proxy(anna_by_eve, "forged")


def a_name_without_a_mapping_is_forbidden(place):
    ca = Authority(place)
    site = grid_site(place, ca, "dn:/DC=example/O=Grid/CN=Anna Doe -> %d %d\n" % (ANNA, ANNA))
    answer = status(site, ca.user("Nobody Knows"))
    same("status of %r" % answer, answer.status, 403)
    check("/DC=example/O=Grid/CN=Nobody Knows" in answer.text, "the answer does not name the user: " + answer.text)


def somebody_elses_files_are_out_of_reach(place):
    ca = Authority(place)
    site = grid_site(place, ca, "dn:/DC=example/O=Grid/CN=Anna Doe -> %d %d\ndn:/DC=example/O=Grid/CN=Otto -> %d %d\n"
                     % (ANNA, ANNA, OTTO, OTTO))
    anna, otto = ca.user("Anna Doe"), ca.user("Otto")
    same("Anna writes", status(site, anna, "-T", anna.cert_path, path="/hers").status, 201)
    same("Otto reads", status(site, otto, path="/hers").status, 200)
    for argv in (["-T", otto.cert_path], ["-X", "DELETE"], ["-X", "PROPPATCH", "-d", "<x/>"]):
        answer = status(site, otto, *argv, path="/hers")
        check(answer.status in (400, 403), "Otto, %s: %r" % (argv, answer))
    same("Otto makes a file", status(site, otto, "-T", otto.cert_path, path="/his").status, 403)
    check(site.is_there("/hers"), "Anna's file is gone")


def voms_attributes_say_who_somebody_is(place):
    need("voms-proxy-fake")
    ca = Authority(place)
    # The tool writes the name of RSA over whatever signature the key makes.
    anna, voms = ca.user("Anna Doe"), ca.host("voms.example", names=("voms.example",), addresses=(), curve=False)
    lsc = place.path("vomsdir/pilots")
    os.makedirs(lsc)
    write(lsc + "/voms.example.lsc", b"/O=Grid/CN=voms.example\n/DC=example/O=Grid/CN=ca\n")
    site = grid_site(place, ca, "fqan:/pilots/Role=production* -> %d %d\ndn:/DC=example/O=Grid/CN=Anna Doe -> %d %d\n"
                     % (PILOTS, PILOTS, ANNA, ANNA), auth='vomsdir = "%s"\n' % place.path("vomsdir"))
    same("PUT as Anna", status(site, anna, "-T", anna.cert_path, path="/plain").status, 201)
    fake = voms_proxy(place, ca, anna, voms, "/pilots/Role=production/Capability=NULL", "pilots")
    answer = site.curl("--cert", fake, "--key", fake, path="/plain", auth=False)
    same("GET with attributes: %r" % answer, answer.status, 200)
    # The tree is Anna's, so that somebody else is told by what they may not do.
    answer = site.curl("--cert", fake, "--key", fake, "-T", anna.cert_path, path="/new", auth=False)
    same("PUT with the role: %r" % answer, answer.status, 403)
    other = ca.host("other.example", names=("other.example",), addresses=(), curve=False)
    unknown = voms_proxy(place, ca, anna, other, "/pilots/Role=production/Capability=NULL", "pilots", host="other.example")
    same("PUT with attributes of a server without .lsc: Anna herself",
         site.curl("--cert", unknown, "--key", unknown, "-T", anna.cert_path, path="/new", auth=False).status, 201)
    same("the owner", owner(site, "/new"), str(ANNA))


def voms_proxy(place, ca, user, server, fqan, vo, host="voms.example"):
    out = place.path("voms.%s.proxy" % host)
    key = place.path("voms.%s.key" % host)
    shutil.copy(server.key_path, key)
    os.chmod(key, 0o600)
    said = subprocess.run(
        ["voms-proxy-fake", "-rfc", "-bits", "2048", "-hours", "6", "-cert", user.cert_path, "-key", user.key_path, "-certdir",
         ca.directory(), "-hostcert", server.cert_path, "-hostkey", key, "-voms", vo, "-uri", host + ":15000", "-fqan", fqan,
         "-out", out, "-newformat"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
        env=dict(os.environ, HOME=place.dir))
    check(said.returncode == 0 and os.path.exists(out), "voms-proxy-fake: " + said.stdout)
    return out


def gfal_asks_for_macaroons_with_a_proxy_and_copies_by_third_party(place):
    """As FTS does for sites without tokens: a proxy to the door, a macaroon of each site, then COPY."""
    need("gfal-copy")
    ca = Authority(place)
    proxy = ca.proxy(ca.user("Anna Doe"), "proxy")
    mapping = "dn:/DC=example/O=Grid/CN=Anna Doe -> %d %d\n" % (ANNA, ANNA)
    one, two = grid_site(place, ca, mapping), grid_site(place, ca, mapping, name="two")
    data = os.urandom(2 * MIB)
    one.put("/source", data)
    for mode in ("pull", "push"):
        argv = ["gfal-copy", "-f", "-K", "ADLER32", "--copy-mode", mode, "--cert", proxy.proxy_path, "--key", proxy.proxy_path,
                one.url("/source").replace("https:", "davs:"), two.url("/" + mode).replace("https:", "davs:")]
        environment = dict(os.environ, GFAL_PYTHONBIN="/usr/bin/python3", X509_USER_PROXY=proxy.proxy_path,
                           X509_CERT_DIR=ca.directory(), HOME=place.dir)
        said = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, env=environment)
        check(said.returncode == 0, "%s: %s" % (mode, said.stdout))
        two.holds("/" + mode, data)


def third_party_copy_over_tls_trusts_only_its_authorities(place):
    ca, foreign = Authority(place), Authority(place, "foreign")
    extra = '[http]\nanonymous = "read"\n'
    trusting = Site(place, "one", extra + tls(ca.host("one.host")) + 'copy_ca = ["%s"]\ncopy_allows_plain = false\n' % ca.path,
                    scheme="https")
    good = Site(place, "two", extra + tls(ca.host("two.host")), scheme="https")
    stranger = Site(place, "three", extra + tls(foreign.host("three.host")), scheme="https")
    stranger.tls = ["--cacert", foreign.path]
    misnamed = Site(place, "four", extra + tls(ca.host("four.host", names=("other.example",), addresses=())), scheme="https")
    misnamed.tls = ["-k"]
    data = os.urandom(3 * MIB)
    for site in (good, stranger, misnamed):
        site.put("/source", data)
    succeeds("a trusted authority", trusting.pull("/copy", good.url("/source"), bearer(good.macaroon("/source", "DOWNLOAD,LIST"))))
    trusting.holds("/copy", data)
    succeeds("push", trusting.push("/copy", good.url("/back"), bearer(good.macaroon("/", "UPLOAD,DOWNLOAD,LIST,DELETE"))))
    good.holds("/back", data)
    fails("a foreign authority", trusting.pull("/x", stranger.url("/source")), "certificate", "tls", "issuer")
    fails("another name", trusting.pull("/x", misnamed.url("/source")), "certificate", "name")
    fails("without TLS", trusting.pull("/x", good.url("/source").replace("https:", "http:")), "http")
    check(not trusting.is_there("/x"), "a refused copy left a file")


def served_serial(site, ca, **versions):
    context = ssl.create_default_context(cafile=ca.path)
    for key, value in versions.items():
        setattr(context, key, value)
    with socket.create_connection(("127.0.0.1", site.up.http), 5) as raw, context.wrap_socket(raw, server_hostname="localhost") as s:
        return int(s.getpeercert()["serialNumber"], 16), s.version()


def a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not(place):
    place.allowed_log = ("certificate",)
    ca = Authority(place)
    first, second = ca.host("host"), ca.host("next")
    site = Site(place, "one", "[http]\n" + tls(first), scheme="https")
    same("serial at first", served_serial(site, ca)[0], first.certificate.serial_number)
    for path, source in ((first.key_path, second.key_path), (first.cert_path, second.cert_path)):
        shutil.copy(source, path + ".new")
        os.rename(path + ".new", path)
    within(90, lambda: served_serial(site, ca)[0] == second.certificate.serial_number, "the new certificate is not served")
    write(first.cert_path, b"-----BEGIN CERTIFICATE-----\nbroken\n")
    time.sleep(3)
    same("serial while the file is broken", served_serial(site, ca)[0], second.certificate.serial_number)
    check(site.up.process.poll() is None, "it fell")


def tls_1_2_and_1_3_are_spoken_and_older_ones_are_not(place):
    ca = Authority(place)
    site = Site(place, "one", "[http]\n" + tls(ca.host("host")), scheme="https")
    site.put("/file", b"x" * MIB)
    for version in ("1.2", "1.3"):
        answer = site.curl("--tlsv" + version, "--tls-max", version, path="/file")
        same("by TLS " + version, (answer.status, len(answer.body)), (200, MIB))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca.path)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    try:
        with socket.create_connection(("127.0.0.1", site.up.http), 5) as raw:
            context.wrap_socket(raw, server_hostname="localhost")
    except (ssl.SSLError, OSError):
        pass
    else:
        raise Failed("TLS 1.1 was spoken")
    plain = subprocess.run(["curl", "-sS", "-m", "5", site.url("/file").replace("https:", "http:")], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    check(b"x" * 100 not in plain.stdout, "plain HTTP was answered with the file")
    same("afterwards", site.curl(path="/file").status, 200)


def http_2_does_all_that_http_1_does(place):
    ca = Authority(place)
    config = "[http]\n" + 'copy_ca = ["%s"]\n' % ca.path
    site = Site(place, "one", config + tls(ca.host("host")), scheme="https")
    data = os.urandom(8 * MIB)
    name = place.path("data")
    write(name, data)
    answer = site.curl("--http2", "-T", name, path="/file")
    same("PUT", (answer.version, answer.status), ("HTTP/2", 201))
    site.holds("/file", data)
    answer = site.curl("--http2", path="/file")
    check((answer.version, answer.status) == ("HTTP/2", 200) and answer.body == data, "GET: %s %s" % (answer.version, answer.status))
    answer = site.curl("--http2", "-r", "1000-1999", path="/file")
    check(answer.status == 206 and answer.body == data[1000:2000], "a range: %s" % answer.status)
    token = site.macaroon("/", "DOWNLOAD,LIST")
    answer = site.curl("--http2", "-X", "COPY", headers=["Source: " + site.url("/file"), bearer(token)], path="/copy")
    same("COPY by", answer.version, "HTTP/2")
    succeeds("a copy asked for by HTTP/2", answer)
    site.holds("/copy", data)
    same("by HTTP/1.1", site.curl("--http1.1", path="/file").version, "HTTP/1.1")


SCENARIOS = [a_user_and_two_proxies_are_the_same_owner, certificates_that_are_wrong_in_one_thing_get_a_clear_status,
             a_name_without_a_mapping_is_forbidden, somebody_elses_files_are_out_of_reach, voms_attributes_say_who_somebody_is,
             gfal_asks_for_macaroons_with_a_proxy_and_copies_by_third_party,
             third_party_copy_over_tls_trusts_only_its_authorities,
             a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not,
             tls_1_2_and_1_3_are_spoken_and_older_ones_are_not, http_2_does_all_that_http_1_does]
