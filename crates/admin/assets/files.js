// What one does with files and folders: menu, new folder, rename, delete, share. All of it by WebDAV on the same origin.
"use strict";

(() => {
  const { say, words, request, create, merge, parse, localTimes } = forebay;
  const byId = (id) => document.getElementById(id);
  const token = new URLSearchParams(location.search).get("authz");
  const suffix = token ? `?authz=${encodeURIComponent(token)}` : "";
  const parentOf = (path) => path.replace(/[^/]+\/?$/, "");

  /** As the server writes names: what a name may not hold is refused before anything is sent. */
  function problemOf(name) {
    if (name === "") return "Enter a name.";
    if (name === "." || name === "..") return "This name means a folder itself or the one above it.";
    if (name.includes("/")) return "A name cannot contain a slash.";
    if (new TextEncoder().encode(name).length > 255) return "The name is too long: at most 255 bytes.";
    return "";
  }

  const encode = (name) => encodeURIComponent(name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16)}`);

  /** Loads the listing again and merges it, so that the page does not jump. */
  async function refresh() {
    const listing = byId("listing");
    if (!listing) return;
    const response = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
    if (!response || !response.ok) return;
    const fresh = parse(await response.text()).getElementById("listing");
    if (!fresh) return;
    merge(listing, document.importNode(fresh, true));
    localTimes(listing);
  }

  /** Errors stand in the dialog, where one can do something about them. */
  function ask(dialog, problem, button, act) {
    problem.textContent = "";
    button.disabled = false;
    const form = dialog.querySelector("form");
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (button.disabled) return;
      button.disabled = true;
      problem.textContent = "";
      const why = await act();
      button.disabled = false;
      if (why === "") dialog.close();
      else if (why) problem.textContent = why;
    };
    dialog.showModal();
  }

  function askName({ title, label, value, button, act }) {
    const field = byId("name-field");
    byId("name-title").textContent = title;
    byId("name-label").textContent = label;
    byId("name-ok").textContent = button;
    field.value = value;
    ask(byId("name-dialog"), byId("name-problem"), byId("name-ok"), async () => {
      const why = problemOf(field.value) || await act(field.value);
      if (why) field.focus();
      return why;
    });
    const dot = value.lastIndexOf(".");
    field.focus();
    field.setSelectionRange(0, dot > 0 ? dot : value.length);
  }

  function newFolder() {
    const base = byId("listing").dataset.path;
    askName({
      title: "New folder", label: "Name", value: "", button: "Create",
      act: async (name) => {
        const answer = await request("MKCOL", `${base}${encode(name)}/${suffix}`);
        if (!answer.ok) return words(answer.status, answer.text);
        await refresh();
        focusEntry(`${base}${encode(name)}/`);
        say(`Folder ${name} was created.`);
        return "";
      },
    });
  }

  function rename(entry) {
    const { path, label } = entry.dataset;
    askName({
      title: `Rename ${"folder" in entry.dataset ? "folder" : "file"}`, label: "New name", value: label, button: "Rename",
      act: async (name) => {
        if (name === label) return "";
        const slash = path.endsWith("/") ? "/" : "";
        const target = `${parentOf(path)}${encode(name)}${slash}`;
        const headers = { Destination: `${location.origin}${target}`, Overwrite: "F" };
        const answer = await request("MOVE", path + suffix, headers);
        if (!answer.ok) return words(answer.status, answer.text);
        if (entry.id === "file") {
          location.replace(`/ui/files${target}${suffix}`);
          return undefined;
        }
        await refresh();
        focusEntry(target);
        say(`${label} is now ${name}.`);
        return "";
      },
    });
  }

  function remove(entry) {
    const { path, label } = entry.dataset;
    const isFolder = "folder" in entry.dataset;
    byId("delete-title").textContent = `Delete ${isFolder ? "folder" : "file"}?`;
    byId("delete-text").replaceChildren(create("bdi", { textContent: label, className: "quoted" }),
      isFolder ? " and everything in it will be gone. There is no undo." : " will be gone. There is no undo.");
    ask(byId("delete-dialog"), byId("delete-problem"), byId("delete-ok"), async () => {
      const neighbour = entry.nextElementSibling || entry.previousElementSibling;
      const answer = await request("DELETE", path + suffix);
      // Somebody else was faster: what was wanted is so.
      if (!answer.ok && answer.status !== 404) return words(answer.status, answer.text);
      if (entry.id === "file") {
        location.replace(`/ui/files${parentOf(path)}${suffix}`);
        return undefined;
      }
      await refresh();
      say(`${label} was deleted.`);
      returnTo = neighbour ? neighbour.dataset.path : "";
      return "";
    });
  }

  function share(entry) {
    const { path, label } = entry.dataset;
    const isFolder = path.endsWith("/");
    byId("share-title").textContent = "Share a link";
    byId("share-text").replaceChildren("For reading ", create("bdi", { textContent: label, className: "quoted" }),
      isFolder ? " and what is in it, without a login." : ", without a login.");
    byId("share-result").hidden = true;
    byId("share-ok").hidden = false;
    ask(byId("share-dialog"), byId("share-problem"), byId("share-ok"), async () => {
      const validity = byId("share-dialog").querySelector("input[name=validity]:checked").value;
      const body = JSON.stringify({ caveats: ["activity:DOWNLOAD,LIST"], validity });
      const answer = await request("POST", path, { "Content-Type": "application/macaroon-request" }, body);
      if (!answer.ok) return words(answer.status, answer.text);
      let link;
      try {
        link = new URL(JSON.parse(answer.text).uri.targetWithMacaroon);
        // A folder is for people: they get this page, not what programs read.
        if (isFolder) link.pathname = `/ui/files${path}`;
      } catch {
        return "The server's answer was not understood.";
      }
      const field = byId("share-link");
      field.value = link.href;
      byId("share-result").hidden = false;
      byId("share-ok").hidden = true;
      field.focus();
      field.select();
      say("The link was created.");
      return undefined;
    });
  }

  // A link of another validity is another link.
  for (const radio of document.querySelectorAll("#share-dialog input[name=validity]")) {
    radio.addEventListener("change", () => {
      byId("share-result").hidden = true;
      byId("share-ok").hidden = false;
    });
  }

  byId("share-copy")?.addEventListener("click", async () => {
    const field = byId("share-link");
    field.select();
    const button = byId("share-copy");
    const copied = await navigator.clipboard?.writeText(field.value).then(() => true, () => false);
    button.textContent = copied || document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
    say("The link was copied.");
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  // Where the focus goes after a dialog: to the entry, or if that is gone to its neighbour.
  let returnTo = null;

  function focusEntry(path) {
    returnTo = path;
  }

  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("close", () => {
      if (returnTo === null) return;
      const rows = [...document.querySelectorAll("#listing tr[data-path]")];
      const row = rows.find((one) => spelled(one.dataset.path) === spelled(returnTo));
      (row?.querySelector("a") || byId("main")).focus();
      returnTo = null;
    });
  }

  /** The same for every way to write a path; one with bytes that are no text has only the server's. */
  function spelled(path) {
    try {
      return decodeURIComponent(path);
    } catch {
      return path;
    }
  }

  const acts = { rename, delete: remove, share };

  // One menu for all rows; it stands where its button is.
  const menu = byId("menu");
  let opener = null;

  function fillMenu(entry) {
    const { path, label } = entry.dataset;
    const items = [];
    if ("file" in entry.dataset) {
      items.push(create("a", { href: path + suffix, download: "", textContent: "Download" }));
    }
    for (const [act, text] of [["share", "Share a link"], ["rename", "Rename"], ["delete", "Delete"]]) {
      if (!(act in entry.dataset)) continue;
      const item = create("button", { type: "button", textContent: text, className: act === "delete" ? "risky" : "" });
      item.addEventListener("click", () => {
        menu.hidePopover();
        acts[act](entry);
      });
      items.push(item);
    }
    for (const item of items) {
      item.setAttribute("role", "menuitem");
      item.tabIndex = -1;
    }
    menu.setAttribute("aria-label", `Actions for ${label}`);
    menu.replaceChildren(...items);
  }

  function openMenu(button) {
    opener = button;
    fillMenu(button.closest("[data-path]"));
    menu.showPopover();
    const at = button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = menu;
    const below = at.bottom + 4 + height < innerHeight ? at.bottom + 4 : Math.max(8, at.top - 4 - height);
    menu.style.top = `${below}px`;
    menu.style.left = `${Math.max(8, Math.min(at.right - width, innerWidth - width - 8))}px`;
    button.setAttribute("aria-expanded", "true");
    menu.firstElementChild?.focus();
  }

  menu?.addEventListener("toggle", (event) => {
    if (event.newState === "closed") opener?.setAttribute("aria-expanded", "false");
  });

  menu?.addEventListener("keydown", (event) => {
    const items = [...menu.children];
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      items[to % items.length].focus();
    } else if (event.key === "Escape" || event.key === "Tab") {
      if (event.key === "Escape") event.preventDefault();
      menu.hidePopover();
      opener?.focus();
    }
  });

  addEventListener("scroll", () => { if (menu?.matches(":popover-open")) menu.hidePopover(); }, { passive: true });

  document.addEventListener("click", (event) => {
    const dots = event.target.closest("[data-menu]");
    if (dots) {
      event.preventDefault();
      openMenu(dots);
      return;
    }
    const act = event.target.closest("[data-act]");
    if (act) acts[act.dataset.act](act.closest("[data-path]"));
  });

  byId("new-folder")?.addEventListener("click", newFolder);
  byId("share-folder")?.addEventListener("click", () => share(byId("share-folder")));

  forebay.refresh = refresh;
  forebay.encode = encode;
  forebay.suffix = suffix;
})();
