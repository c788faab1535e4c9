"""Uses the page as a person does, step by step; each step checks its own result."""
import contextlib
import os
import shutil
import struct
import sys
import tempfile
import time
import urllib.parse
import zlib

from server import Server
from webdriver import Browser

TAB, ENTER, ESCAPE, DOWN = "\ue004", "\ue007", "\ue00c", "\ue015"
HOSTILE = ["<img src=x onerror=alert(1)>", "gpj.\u202eexe", "two\nlines", " spaces ", "rich & \"quoted\" 'name'"]
STEPS = []


def step(function):
    STEPS.append(function)
    return function


def same(seen, expected, what="value"):
    if seen != expected:
        raise AssertionError(f"{what}: saw {seen!r}, expected {expected!r}")


class World:
    def __init__(self, server, browser, scratch, artefacts):
        self.server, self.browser, self.scratch, self.artefacts = server, browser, scratch, artefacts
        # Messages of the console that a step provoked on purpose.
        self.expected_console = []

    def go(self, path):
        self.browser.open(self.server.url + path)

    def file(self, name, content):
        path = os.path.join(self.scratch, name)
        with open(path, "wb") as file:
            file.write(content)
        return path

    def names(self):
        """Of the listing, as they stand in the addresses."""
        return [urllib.parse.unquote(row.attribute("data-path").rstrip("/").rsplit("/", 1)[1])
                for row in self.browser.all("#listing tr[data-path]")]

    def row(self, name, part=""):
        """A selector of the row of an entry, or of a part of it."""
        encoded = urllib.parse.quote(name, safe="-._~!$()*,:=@")
        return ", ".join(f"#listing tr[data-path$='/{encoded}{slash}'] {part}".strip() for slash in ("", "/"))

    def wait_for_names(self, names):
        self.browser.wait(lambda: sorted(self.names()) == sorted(names), f"the listing to be {names}")

    def menu(self, name, item):
        self.browser.wait(lambda: self.browser.all(self.row(name)), f"{name} in the listing")
        self.browser.one(self.row(name, "[data-menu]")).click()
        self.browser.one("#menu")
        for one in self.browser.all("#menu [role=menuitem]"):
            if one.text == item:
                one.click()
                return
        raise AssertionError(f"the menu has no {item}")

    def check_console(self):
        for entry in self.browser.console():
            if entry["level"] != "SEVERE" and "Content Security Policy" not in entry["message"]:
                continue
            if not any(text in entry["message"] for text in self.expected_console):
                raise AssertionError(f"the console says: {entry['message']}")

    def pictures(self, name):
        """At two widths, light and dark; and nothing may be wider than the window."""
        for scheme in ("light", "dark"):
            for width, height in ((1280, 800), (360, 720), (320, 640)):
                self.browser.show_as(width, height, scheme)
                wide = self.browser.run("return document.documentElement.scrollWidth")
                if wide > width:
                    raise AssertionError(f"{name} is {wide} pixels wide in a window of {width}")
                if width != 320:
                    self.browser.screenshot(os.path.join(self.artefacts, f"{name}-{width}-{scheme}.png"))
        self.browser.show_as(1280, 800, "light")


def png(width, height):
    """A picture with a gradient, so that one sees that it is there."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    rows = b"".join(
        b"\0" + b"".join(bytes((x * 255 // width, 110, 200 - y * 150 // height)) for x in range(width)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@step
def a_stranger_reads_and_is_asked_to_log_in_for_more(world):
    same(world.server.request("PUT", "/welcome.txt", b"Hello, stranger.\n")[0], 201, "status of a PUT")
    world.go("/ui/")
    same(urllib.parse.urlparse(world.browser.url).path, "/ui/files/", "where /ui/ leads")
    same(world.names(), ["welcome.txt"])
    same(world.browser.all("#upload"), [], "the upload button of a stranger")
    world.go("/ui/pools")
    same(urllib.parse.urlparse(world.browser.url).path, "/ui/login", "where pools lead without a login")


@step
def a_wrong_password_is_refused_in_words(world):
    world.pictures("login")
    # The browser reports the 401 of the page itself.
    world.expected_console.append("/ui/login")
    world.browser.one("#user").type(world.server.user)
    world.browser.one("#password").type("wrong")
    world.browser.one("form[action='/ui/login'] button").click()
    same(world.browser.one("#why").text, "User name or password is wrong.")
    same("forebay-session" in world.browser.cookies(), False, "a session after a wrong password")


@step
def a_login_leads_back_to_where_one_was(world):
    world.browser.one("#password").type(world.server.password + ENTER)
    world.browser.one("#live")
    same(urllib.parse.urlparse(world.browser.url).path, "/ui/pools", "where the login leads")
    cookie = world.browser.cookies()["forebay-session"]
    same((cookie["httpOnly"], cookie["sameSite"], cookie["path"]), (True, "Strict", "/"), "the cookie")


LOCK = b'<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>'


@contextlib.contextmanager
def locked(world, path):
    """A file that somebody has open."""
    request = world.server.request
    same(request("PUT", path, b"held")[0], 201)
    status, headers, _ = request("LOCK", path, LOCK)
    same(status, 200)
    token = headers["Lock-Token"]
    try:
        yield
    finally:
        request("UNLOCK", path, headers={"Lock-Token": token})
        request("DELETE", path)


@step
def the_views_follow_the_instance_without_a_reload(world):
    world.browser.run("window.isTheSamePage = true")
    before = world.browser.run("return performance.getEntriesByType('resource').length")
    world.browser.wait(
        lambda: world.browser.run("return performance.getEntriesByType('resource').length") > before + 1, "two refreshes")
    same(world.browser.run("return window.isTheSamePage"), True, "the page after refreshes")
    world.pictures("pools")
    world.browser.one("#pause").click()
    same(world.browser.one("#pulse").text, "Paused")
    with locked(world, "/held%20open%C3%A9.txt"):
        world.go("/ui/clients")
        world.browser.wait(lambda: "/held open\u00e9.txt" in world.browser.one("#live").text, "the path of an open file")
        world.pictures("clients")
    for view in ("clients", "operations"):
        world.go(f"/ui/{view}")
        world.browser.one("#live")
        if view == "operations":
            world.browser.wait(lambda: any(one.text for one in world.browser.all("[data-per-second]")), "a rate")
        same("shown to administrators" in world.browser.one("main").text, False, "an administrator sees the clients")
        if view == "operations":
            world.pictures(view)


@step
def a_folder_is_made(world):
    world.go("/ui/files/")
    world.browser.one("#new-folder").click()
    world.browser.one("#name-field").type("a/b" + ENTER)
    world.browser.wait(lambda: "slash" in world.browser.one("#name-problem").text, "why a slash is refused")
    world.browser.one("#name-field").clear()
    world.browser.one("#name-field").type("data 2026")
    world.browser.screenshot(os.path.join(world.artefacts, "dialog-1280-light.png"))
    world.browser.keys(ENTER)
    world.wait_for_names(["data 2026", "welcome.txt"])
    world.browser.gone("#name-dialog")
    same(world.browser.focused.text, "data 2026", "the focus after making a folder")
    world.browser.keys(ENTER)
    world.browser.one("#listing .empty")
    same(world.browser.title.startswith("data 2026 · "), True, "the title of the folder")
    world.pictures("empty")


@step
def files_are_uploaded_and_appear(world):
    text = ("# Notes\n\nÄÖÜ and <b>no bold</b>.\n" + "line of text\n" * 9_000).encode()
    files = [world.file("notes.md", text), world.file("gradient.png", png(640, 400)),
             world.file("events.root", os.urandom(3_000_000)), world.file("README", b"Plain text without an extension.\n")]
    world.browser.all("#upload-files")[0].type("\n".join(files))
    world.wait_for_names(["notes.md", "gradient.png", "events.root", "README"])
    world.browser.wait(lambda: world.browser.one("#transfers-title").text == "Uploads", "the uploads to end")
    for name in ("notes.md", "events.root"):
        status, _, body = world.server.request("GET", f"/data%202026/{name}")
        with open(os.path.join(world.scratch, name), "rb") as file:
            same((status, body == file.read()), (200, True), f"{name} at the server")
    world.pictures("uploads")
    world.browser.one("#transfers-close").click()
    world.browser.gone("#transfers")


@step
def the_pools_show_their_work(world):
    world.server.command("pool", "scrub", "pool-0")
    world.go("/ui/pools")
    rows = lambda caption: [row.text for row in world.browser.all(f"[aria-label='{caption}'] tbody tr")]
    world.browser.wait(lambda: rows("Scrubs") and "Never" not in rows("Scrubs")[0], "the scrub")
    same("Not running" in rows("Scrubs")[0], True, rows("Scrubs"))
    same(any("buffered" in row for row in rows("I/O modes")), True, rows("I/O modes"))
    same(any("write" in row for row in rows("Times of reads and writes")), True, rows("Times of reads and writes"))
    same(["sync" in row for row in rows("Threads")], [False, True], rows("Threads"))
    # HTTP has sent them from the page cache, where nobody looked.
    same(["MiB" in row for row in rows("Reads from memory")], [True], rows("Reads from memory"))
    same(["In order" in row for row in rows("Write journals")], [True], rows("Write journals"))
    same("Delayed allocation" in world.browser.one("#live").text, True, "the writes that were gathered")
    same("Busiest open files" in world.browser.one("#live").text, True, "the busiest files")
    same("Read-ahead" in world.browser.one("#live").text, True, "the use of read-ahead")
    world.pictures("pools-work")
    for width, scheme in ((1280, "light"), (360, "dark")):
        world.browser.show_as(width, 2600, scheme)
        world.browser.screenshot(os.path.join(world.artefacts, f"pools-whole-{width}-{scheme}.png"))
    world.browser.show_as(1280, 800, "light")
    world.go("/ui/files/data%202026/")


@step
def a_file_that_is_there_is_replaced_only_when_asked_for(world):
    path = world.file("README", b"A newer text.\n")
    world.browser.all("#upload-files")[0].type(path)
    world.browser.wait(lambda: "exists already" in world.browser.one("#transfers-list").text, "the question")
    same(world.server.request("GET", "/data%202026/README")[2], b"Plain text without an extension.\n", "the old text")
    world.browser.one("#transfers-list button[aria-label='Replace README']").click()
    world.browser.wait(lambda: "done" in world.browser.one("#transfers-list").text, "the replacing")
    same(world.server.request("GET", "/data%202026/README")[2], b"A newer text.\n", "the new text")
    world.browser.one("#transfers-close").click()
    # One that the page does not know of yet: the server refuses it, and that is the answer we want.
    world.expected_console.append("status of 412")
    world.server.request("PUT", "/data%202026/late.txt", b"first\n")
    world.browser.all("#upload-files")[0].type(world.file("late.txt", b"second\n" * 200_000))
    world.browser.wait(lambda: "exists already" in world.browser.one("#transfers-list").text, "the server's refusal")
    world.browser.one("#transfers-list button[aria-label='Skip late.txt']").click()
    world.browser.gone("#transfers")
    same(world.server.request("GET", "/data%202026/late.txt")[2], b"first\n", "the text that was there")
    world.server.request("DELETE", "/data%202026/late.txt")


@step
def an_upload_that_is_cancelled_leaves_nothing(world):
    path = os.path.join(world.scratch, "huge.bin")
    with open(path, "wb") as file:
        file.truncate(6 << 30)
    world.browser.chrome("Network.enable")
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1}
    world.browser.chrome("Network.emulateNetworkConditions", uploadThroughput=1_000_000, **slow)
    world.browser.all("#upload-files")[0].type(path)
    bar = world.browser.one("#transfers-list progress")
    world.browser.wait(lambda: bar.value_of("value") > 0, "the first bytes to be sent")
    world.browser.screenshot(os.path.join(world.artefacts, "uploading-1280-light.png"))
    world.browser.one("#transfers-list button[aria-label='Cancel huge.bin']").click()
    world.browser.wait(lambda: "Cancelled" in world.browser.one("#transfers-list").text, "the cancelling")
    world.browser.chrome("Network.emulateNetworkConditions", uploadThroughput=-1, **slow)
    world.browser.one("#transfers-close").click()
    os.unlink(path)
    same(world.server.request("HEAD", "/data%202026/huge.bin")[0], 404, "the cancelled file")


@step
def files_are_previewed(world):
    world.pictures("folder")
    world.browser.one(world.row("notes.md", "a")).click()
    pre = world.browser.one("#preview pre")
    world.browser.wait(lambda: "<b>no bold</b>" in pre.text, "the text")
    same("ÄÖÜ" in pre.text, True, "letters beyond ASCII")
    same("first 64.0 KiB of" in world.browser.one("#preview").text, True, "that it is only the beginning")
    world.pictures("text")
    world.go("/ui/files/data%202026/gradient.png")
    image = world.browser.one(".picture img")
    world.browser.wait(lambda: image.value_of("naturalWidth") == 640, "the picture")
    world.pictures("picture")
    world.go("/ui/files/data%202026/README")
    world.browser.wait(lambda: "A newer text." in world.browser.one("#preview pre").text, "the text without an extension")
    world.go("/ui/files/data%202026/events.root")
    same("no preview" in world.browser.one(".file .nothing").text, True, "what is no text")


@step
def a_file_is_downloaded(world):
    folder = os.path.join(world.scratch, "downloads")
    os.mkdir(folder)
    world.browser.chrome("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder)
    world.browser.one("a[download]").click()
    path = os.path.join(folder, "events.root")
    world.browser.wait(lambda: os.path.exists(path), "the download")
    with open(path, "rb") as one, open(os.path.join(world.scratch, "events.root"), "rb") as other:
        same(one.read() == other.read(), True, "the downloaded file")


@step
def a_link_is_shared_that_needs_no_login(world):
    world.go("/ui/files/data%202026/")
    world.menu("notes.md", "Share a link")
    world.browser.one("#share-dialog input[value=PT1H]").click()
    world.browser.one("#share-ok").click()
    link = world.browser.one("#share-link").value_of("value")
    world.browser.screenshot(os.path.join(world.artefacts, "share-1280-light.png"))
    world.browser.keys(ESCAPE)
    world.browser.gone("#share-dialog")
    status, _, body = world.server.request("GET", link, is_logged_in=False)
    with open(os.path.join(world.scratch, "notes.md"), "rb") as file:
        same((status, body == file.read()), (200, True), "what the link gives")
    for method, url in (("DELETE", link), ("PUT", link), ("GET", link.replace("notes.md", "README"))):
        status = world.server.request(method, url, b"x" if method == "PUT" else None, is_logged_in=False)[0]
        same(status in (401, 403), True, f"{method} {url.split('?')[0]} by the link is {status}")


@step
def a_file_is_renamed_by_the_keyboard_alone(world):
    world.go("/ui/files/data%202026/")
    target = "notes.md"
    for _ in range(60):
        world.browser.keys(TAB)
        if world.browser.focused.label == f"Actions for {target}":
            break
    else:
        raise AssertionError("the keyboard does not reach the menu")
    world.browser.keys(ENTER)
    world.browser.one("#menu")
    for _ in range(5):
        if world.browser.focused.text == "Rename":
            break
        world.browser.keys(DOWN)
    world.browser.keys(ENTER)
    field = world.browser.one("#name-field")
    same(field.value_of("value"), "notes.md", "the old name in the field")
    # The part before the extension is selected.
    world.browser.keys(*"README", ENTER)
    world.browser.gone("#name-dialog")
    world.wait_for_names(["README", "README.md", "events.root", "gradient.png"])
    same(world.browser.focused.text, "README.md", "the focus after renaming")


@step
def a_name_that_is_taken_is_not_overwritten(world):
    world.menu("README.md", "Rename")
    field = world.browser.one("#name-field")
    field.clear()
    field.type("README" + ENTER)
    world.browser.wait(lambda: "exists already" in world.browser.one("#name-problem").text, "the refusal")
    world.browser.keys(ESCAPE)
    world.browser.gone("#name-dialog")
    same(world.server.request("GET", "/data%202026/README")[2], b"A newer text.\n", "the file that was in the way")


@step
def hostile_names_do_nothing_but_stand_there(world):
    world.server.request("MKCOL", "/hostile/")
    for name in HOSTILE:
        encoded = urllib.parse.quote(name, safe="")
        same(world.server.request("PUT", f"/hostile/{encoded}", b"x")[0], 201, f"status of {name!r}")
    same(world.server.request("PUT", "/hostile/%FF%FE.bin", b"x")[0], 201, "status of a name that is no text")
    world.go("/ui/files/hostile/")
    same(len(world.browser.all("#listing tr[data-path]")), len(HOSTILE) + 1, "entries")
    same(world.browser.all("#listing img"), [], "elements made of names")
    text = world.browser.one("#listing").text
    for part in ("<img src=x onerror=alert(1)>", "\\u{202e}", "two\\nlines", "\\xff\\xfe"):
        same(part in text, True, f"{part} in the listing")
    world.pictures("hostile")
    for link in range(len(HOSTILE) + 1):
        world.browser.all("#listing td.name a")[link].click()
        world.browser.one("#file")
        world.go("/ui/files/hostile/")
    world.menu("two\nlines", "Delete")
    world.browser.one("#delete-ok").click()
    world.browser.wait(lambda: len(world.browser.all("#listing tr[data-path]")) == len(HOSTILE), "one entry less")


@step
def deleting_asks_for_confirmation_first(world):
    world.go("/ui/files/data%202026/")
    world.menu("events.root", "Delete")
    world.browser.one("#delete-dialog")
    same(world.browser.focused.text, "Cancel", "what the dialog offers first")
    world.browser.screenshot(os.path.join(world.artefacts, "delete-1280-light.png"))
    world.browser.keys(ENTER)
    world.browser.gone("#delete-dialog")
    same("events.root" in world.names(), True, "the file after Cancel")
    world.menu("events.root", "Delete")
    world.browser.one("#delete-ok").click()
    world.wait_for_names(["README", "README.md", "gradient.png"])
    same(world.server.request("HEAD", "/data%202026/events.root")[0], 404, "the deleted file")
    world.go("/ui/files/")
    world.menu("data 2026", "Delete")
    world.browser.one("#delete-ok").click()
    world.wait_for_names(["hostile", "welcome.txt"])


@step
def a_large_folder_comes_in_pages_and_sorted(world):
    world.server.request("MKCOL", "/many/")
    for number in range(520):
        same(world.server.request("PUT", f"/many/run{number}.txt", b"x" * (number % 7))[0], 201, "status of a PUT")
    world.go("/ui/files/many/")
    names = world.names()
    same((len(names), names[9], names[10]), (500, "run9.txt", "run10.txt"), "the first page")
    world.browser.one("a[rel=next]").click()
    world.browser.wait(lambda: world.names()[-1:] == ["run519.txt"], "the second page")
    world.browser.one("th.size a").click()
    world.browser.wait(lambda: "sort=size" in world.browser.url, "sorting by size")
    same(world.browser.one("th.size").attribute("aria-sort"), "ascending")


@step
def a_folder_is_shared(world):
    world.browser.one("#share-folder").click()
    world.browser.one("#share-ok").click()
    world.folder_link = world.browser.one("#share-link").value_of("value")
    world.browser.one("#share-copy").click()
    world.browser.wait(lambda: world.browser.one("#share-copy").text == "Copied", "that the link was copied")


@step
def a_missing_page_is_explained(world):
    world.expected_console.append("/ui/files/no-such-thing")
    world.go("/ui/files/no-such-thing")
    same(world.browser.one("h1").text, "There is nothing here")
    world.pictures("missing")


@step
def a_session_that_ended_is_said_and_leads_back(world):
    world.go("/ui/files/many/")
    cookie = world.browser.cookies()["forebay-session"]
    world.browser.call("POST", "/cookie", {"cookie": {**cookie, "value": cookie["value"][:-2] + "AA"}})
    world.go("/ui/files/many/")
    same("Your session has ended" in world.browser.one("main").text, True, "the note")
    world.browser.one(".note a").click()
    world.browser.one("#user").type(world.server.user)
    world.browser.one("#password").type(world.server.password + ENTER)
    world.browser.one("#share-folder")
    same(urllib.parse.urlparse(world.browser.url).path, "/ui/files/many/", "where the login leads")


@step
def one_logs_out(world):
    world.go("/ui/pools")
    session = world.browser.cookies()["forebay-session"]["value"]
    world.browser.one("form[action='/ui/logout'] button").click()
    world.browser.wait(lambda: "forebay-session" not in world.browser.cookies(), "the cookie to be gone")
    same(world.browser.all("#upload"), [], "the upload button after the logout")
    status, _, _ = world.server.request("GET", "/ui/live/clients", headers={"Cookie": f"forebay-session={session}"},
                                        is_logged_in=False)
    same(status, 401, "the answer to the old session")


@step
def a_shared_folder_needs_no_login_and_shows_nothing_else(world):
    world.browser.open(world.folder_link)
    same((world.browser.one("h1").text, world.browser.one(".who").text), ("many", "Shared link"))
    same(world.browser.all("#upload, #new-folder, .tabs, .crumbs a"), [], "what a shared link does not show")
    world.browser.one(world.row("run6.txt", "a")).click()
    world.browser.wait(lambda: world.browser.one("#preview pre").text == "xxxxxx", "the text by the link")
    world.pictures("shared")
    world.browser.one(".crumbs a").click()
    world.browser.one("#listing table")
    world.expected_console.append("/ui/files/hostile/")
    world.browser.open(world.folder_link.replace("/many/", "/hostile/"))
    same(world.browser.one("h1").text, "Not allowed", "another folder by the link")


def main(arguments):
    os.makedirs(arguments.artefacts, exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="forebay-browser-")
    artefact = lambda name: os.path.join(arguments.artefacts, name)
    failed = None
    try:
        with Server(arguments.binary, os.path.join(scratch, "data"), artefact("server.log")) as server:
            with Browser(os.path.join(scratch, "profile"), artefact("chromedriver.log")) as browser:
                world = World(server, browser, scratch, arguments.artefacts)
                browser.show_as(1280, 800, "light")
                failed = walk(world)
    finally:
        if arguments.keep:
            print(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    print(f"FAILED: {failed}" if failed else f"{len(STEPS)} steps passed")
    return 1 if failed else 0


def walk(world):
    """Steps stand on each other: the first that fails is the last."""
    for function in STEPS:
        name, began = function.__name__, time.monotonic()
        try:
            function(world)
            world.check_console()
        except Exception as error:  # any error is the evidence
            print(f"FAILED {name}: {error}", flush=True)
            try:
                world.browser.screenshot(os.path.join(world.artefacts, "failed.png"))
                with open(os.path.join(world.artefacts, "failed.html"), "w") as file:
                    file.write(world.browser.run("return document.documentElement.outerHTML"))
            except Exception as second:
                print(f"and no picture of it: {second}", file=sys.stderr)
            return name
        print(f"ok {name} {time.monotonic() - began:.1f}s", flush=True)
    return None
