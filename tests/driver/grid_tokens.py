"""Bearer tokens of the WLCG and SciTokens profiles, by an issuer that the test is."""
import os, time
from concurrent.futures import ThreadPoolExecutor

from .grid import Site
from .issuer import ANY_AUDIENCE, DISCOVERY, Issuer
from .loopback import check, same

ALL = "storage.read:/ storage.modify:/"
AUDIENCE = "https://se.example"


def place_with_issuer(place, *more, issuer=None):
    issuer = issuer or Issuer(place)
    site = Site(place, "one", '[http]\nanonymous = "refuse"\n' + issuer.config(*more, audiences=[AUDIENCE]))
    for name in ("/foo", "/foobar"):
        same("MKCOL " + name, site.curl("-X", "MKCOL", path=name).status, 201)
        site.put(name + "/file", name.encode())
    return site, issuer


def get(site, token, path="/foo/file"):
    return site.curl(path=path, auth=token).status


def do(site, token, method, path, *lines):
    return site.curl("-X", method, *(["-d", "data"] if method == "PUT" else []), headers=lines, path=path, auth=token).status


def both_profiles_and_both_kinds_of_keys_are_taken(place):
    site, issuer = place_with_issuer(place)
    for key in ("rsa", "ec"):
        for audience in (ANY_AUDIENCE, AUDIENCE, ["https://other.example", AUDIENCE]):
            same("%s for %s" % (key, audience), get(site, issuer.token(ALL, key=key, aud=audience)), 200)
        for audience in ("ANY", AUDIENCE):
            same("scitoken, %s for %s" % (key, audience), get(site, issuer.scitoken("read:/", key=key, aud=audience)), 200)
    same("in the address", site.curl(path="/foo/file?authz=" + issuer.token(ALL), auth=False).status, 200)
    same("fetches of the keys", issuer.fetches(), 1)
    same("PUT with a scitoken", do(site, issuer.scitoken("write:/foo", aud="ANY"), "PUT", "/foo/new"), 201)
    plural = issuer.scitoken("read:/", aud="ANY", ver="scitokens:2.0")
    same("a scitoken of HTCondor", get(site, plural), 200)


def a_token_that_is_wrong_in_one_thing_is_refused(place):
    site, issuer = place_with_issuer(place)
    stranger, now = Issuer(place), int(time.time())
    head, body, _ = issuer.token(ALL).split(".")
    wrong = {
        "another audience": issuer.token(ALL, aud="https://other.example"),
        "no audience": issuer.token(ALL, drop=("aud",)),
        "the other profile's any": issuer.token(ALL, aud="ANY"),
        "an issuer that nobody trusts": stranger.token(ALL),
        "a stranger who claims to be the issuer": stranger.token(ALL, iss=issuer.url),
        "expired": issuer.token(ALL, iat=now - 900, nbf=now - 900, exp=now - 90),
        "no expiry": issuer.token(ALL, drop=("exp",)),
        "not yet valid": issuer.token(ALL, nbf=now + 300),
        "issued in the future": issuer.token(ALL, iat=now + 300),
        "alg none": issuer.token(ALL, alg="none"),
        "HS256 with the public key": issuer.token(ALL, alg="HS256"),
        "the algorithm of the other key": issuer.token(ALL, key="rsa", alg="RS256", kid="ec"),
        "no version": issuer.token(ALL, drop=("wlcg.ver",)),
        "a version that nobody knows": issuer.token(ALL, **{"wlcg.ver": "2.0"}),
        "no signature": head + "." + body + ".",
        "another signature": head + "." + body + "." + issuer.token(ALL, sub="eve").split(".")[2],
        "a scope without a path": issuer.token("storage.read"),
        "a scope with dots": issuer.token("storage.read:/foo/../"),
        "no subject": issuer.token(ALL, drop=("sub",)),
        "two parts": head + "." + body,
        "garbage": "eyJhbGciOiJub25lIn0.e30.",
    }
    same("the right one", get(site, issuer.token(ALL)), 200)
    for what, token in wrong.items():
        answer = site.curl(path="/foo/file", auth=token)
        same("status of %s (%s)" % (what, answer.text.strip()), answer.status, 401)
        check("www-authenticate" in answer.headers, what + ": the answer names no way to log in")
        check(token not in answer.text, what + ": the answer repeats the token")
        same("PUT with " + what, do(site, token, "PUT", "/foo/new"), 401)
    same("too long a token", get(site, issuer.token(ALL, filler="x" * 20000)), 400)
    check(not site.is_there("/foo/new"), "a refused PUT left a file")
    for leeway in ({"exp": now - 20, "iat": now - 900, "nbf": now - 900}, {"nbf": now + 20, "iat": now + 20}):
        same("within the leeway %s" % leeway, get(site, issuer.token(ALL, **leeway)), 200)


def scopes_end_at_whole_components(place):
    site, issuer = place_with_issuer(place)
    token = issuer.token("storage.read:/foo")
    same("the scope's path", get(site, token), 200)
    same("a name that begins alike", get(site, token, "/foobar/file"), 403)
    same("dots", site.curl("--path-as-is", path="/foo/../foobar/file", auth=token).status in (400, 403), True)
    same("coded dots", site.curl("--path-as-is", path="/foo/%2e%2e/foobar/file", auth=token).status in (400, 403), True)
    same("writing with a scope for reading", do(site, token, "PUT", "/foo/new"), 403)
    same("deleting with a scope for reading", do(site, token, "DELETE", "/foo/file"), 403)
    same("copying out of the scope", do(site, token, "COPY", "/foo/file", "Destination: " + site.url("/foobar/new")), 403)
    below = issuer.token("storage.read:/foo/")
    same("below", get(site, below), 200)
    same("reading with a scope for writing only", get(site, issuer.token("storage.modify:/foo")), 403)
    same("a scitoken's path", get(site, issuer.scitoken("read:/foo", aud="ANY"), "/foobar/file"), 403)
    same("reading with a scope for staging", get(site, issuer.token("storage.stage:/foo")), 403)
    same("no storage scope and nobody known", get(site, issuer.token("openid")), 403)


def creating_is_neither_overwriting_nor_deleting_and_modifying_is_both(place):
    site, issuer = place_with_issuer(place)
    create, modify = issuer.token("storage.create:/foo storage.read:/foo"), issuer.token("storage.modify:/foo storage.read:/foo")
    same("create: MKCOL", do(site, create, "MKCOL", "/foo/folder"), 201)
    same("create: PUT of a new file", do(site, create, "PUT", "/foo/folder/new"), 201)
    same("create: overwriting", do(site, create, "PUT", "/foo/file"), 403)
    same("create: deleting", do(site, create, "DELETE", "/foo/file"), 403)
    same("create: renaming", do(site, create, "MOVE", "/foo/folder/new", "Destination: " + site.url("/foo/folder/renamed")), 201)
    over = do(site, create, "MOVE", "/foo/folder/renamed", "Destination: " + site.url("/foo/file"))
    same("create: renaming over a file", over in (403, 412), True)
    over = do(site, create, "COPY", "/foo/folder/renamed", "Destination: " + site.url("/foo/file"))
    same("create: copying over a file", over in (403, 412), True)
    same("the file is as it was", site.curl(path="/foo/file").body, b"/foo")
    same("create: elsewhere", do(site, create, "PUT", "/foobar/new"), 403)
    deep = issuer.token("storage.create:/foo/deep/er/file")
    for path, status in (("/foo/deeper", 403), ("/foo/deep", 201), ("/foo/deep/other", 403), ("/foo/deep/er", 201)):
        same("create: making %s on the way to a file" % path, do(site, deep, "MKCOL", path), status)
    same("create: the file", do(site, deep, "PUT", "/foo/deep/er/file"), 201)
    same("create: a file beside it", do(site, deep, "PUT", "/foo/deep/er/other"), 403)
    same("create: once more with a token for what is below", do(site, issuer.token("storage.create:/foo/below/"), "MKCOL", "/foo/below"), 201)
    same("modify: overwriting", do(site, modify, "PUT", "/foo/file"), 204)
    same("modify: deleting", do(site, modify, "DELETE", "/foo/file"), 204)
    same("modify: moving out of the scope", do(site, modify, "MOVE", "/foo/folder", "Destination: " + site.url("/foobar/x")), 403)


def an_issuer_reaches_no_further_than_its_base_path(place):
    site, issuer = place_with_issuer(place, 'base_path = "/foo"')
    token = issuer.token("storage.read:/ storage.modify:/")
    same("the token's / is the base", get(site, token), 200)
    same("outside", get(site, token, "/foobar/file"), 403)
    same("writing outside", do(site, token, "PUT", "/foobar/new"), 403)


def a_flood_of_unknown_keys_does_not_flood_the_issuer(place):
    site, issuer = place_with_issuer(place)
    same("the right one", get(site, issuer.token(ALL)), 200)
    with ThreadPoolExecutor(8) as pool:
        statuses = set(pool.map(lambda n: get(site, issuer.token(ALL, kid="unknown-%d" % n)), range(100)))
    same("statuses", statuses, {401})
    check(issuer.fetches() <= 3, "%d fetches of the keys" % issuer.fetches())
    same("the right one afterwards", get(site, issuer.token(ALL)), 200)


def an_issuer_that_is_down_is_told_from_a_wrong_token(place):
    issuer = Issuer(place)
    documents, issuer.peer.documents = issuer.peer.documents, {}
    place.allowed_log = ("cannot fetch the keys of an issuer",)
    site, _ = place_with_issuer(place, issuer=issuer)
    for _ in range(5):
        same("without keys", get(site, issuer.token(ALL)), 503)
    check(len(issuer.peer.asked(DISCOVERY)) <= 2, "%d attempts" % len(issuer.peer.asked(DISCOVERY)))
    issuer.peer.documents = documents
    end = time.monotonic() + 20
    while get(site, issuer.token(ALL)) != 200:
        check(time.monotonic() < end, "the issuer is back, its tokens are not taken")
        time.sleep(0.5)


def a_mapping_file_says_who_a_subject_is_and_may_change(place):
    mapping = place.path("mapping")
    issuer = Issuer(place)
    with open(mapping, "w") as f:
        f.write("sub:%s anna -> 3001 3000\n" % issuer.url)
    site = Site(place, "one", '[http]\nanonymous = "refuse"\n[auth]\nmapping = "%s"\n%s' % (mapping, issuer.config()))
    site.put("/file", b"x")
    same("anna may not write where only root may", do(site, issuer.token(ALL), "PUT", "/new"), 403)
    same("anybody else is root here, as the issuer's table says", do(site, issuer.token(ALL, sub="otto"), "PUT", "/new"), 201)
    with open(mapping + ".new", "w") as f:
        f.write("sub:%s anna -> 0 0\n" % issuer.url)
    os.rename(mapping + ".new", mapping)
    end = time.monotonic() + 10
    while do(site, issuer.token(ALL), "PUT", "/later") != 201:
        check(time.monotonic() < end, "the new mapping is not read")
        time.sleep(0.2)


def nothing_of_a_token_is_logged(place):
    issuer = Issuer(place)
    place.allowed_log = ("WARN",)
    site = Site(place, "one", '[log]\nlevel = "debug"\n[http]\nanonymous = "refuse"\n' + issuer.config())
    site.put("/file", b"x")
    token = issuer.token(ALL)
    same("GET", get(site, token, "/file"), 200)
    same("by the address", site.curl(path="/file?authz=" + token, auth=False).status, 200)
    site.pull("/copy", issuer.peer.url("/nothing"), "TransferHeaderAuthorization: Bearer " + token)
    check(token.split(".")[2] not in site.up.said(), "the signature of a token is in the log")
    check(site.up.login[1] not in site.up.said().split("  stop ")[1], "the password is in the log")


SCENARIOS = [both_profiles_and_both_kinds_of_keys_are_taken, a_token_that_is_wrong_in_one_thing_is_refused,
             scopes_end_at_whole_components, creating_is_neither_overwriting_nor_deleting_and_modifying_is_both,
             an_issuer_reaches_no_further_than_its_base_path, a_flood_of_unknown_keys_does_not_flood_the_issuer,
             an_issuer_that_is_down_is_told_from_a_wrong_token, a_mapping_file_says_who_a_subject_is_and_may_change,
             nothing_of_a_token_is_logged]
